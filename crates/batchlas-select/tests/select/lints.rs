//! The linter: shape facts of published tables, and each kind of oddity.

use std::collections::BTreeMap;

use batchlas_select::lint::{Facts, Lint, facts, lint};
use batchlas_select::{Device, Header, Row, Source, Table};

use crate::ops::{POTRF, TRSM, file, spelled};

fn counts<const N: usize>(pairs: [(&str, usize); N]) -> BTreeMap<String, usize> {
    pairs.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Order and side, and how often each ranking occurs there.
type Group<'a> = (u64, &'a str, &'a [(&'a str, usize)]);

/// A trsm table of one type whose rows, per (order, side), rank as listed and as often as listed.
fn trsm_table(groups: &[Group<'_>], source: &Source) -> Table {
    let mut rows = Vec::new();
    for (order, side, rankings) in groups {
        for (index, ranking) in
            rankings.iter().flat_map(|(ranking, count)| std::iter::repeat_n(ranking, *count)).enumerate()
        {
            rows.push(Row {
                key: TRSM.key(&[side, "N"], &[*order, 1 + index as u64, 128]).unwrap(),
                ranking: ranking.split(" | ").map(|text| spelled(&TRSM, text)).collect(),
                source: source.clone(),
                ns: Vec::new(),
                kernel: None,
                line: 0,
            });
        }
    }
    let header = Header { dtype: "f32".to_owned(), device: Device::Sm(89), generated_by: "test".to_owned() };
    let table = Table::new(&TRSM, header, rows, "trsm.f32.sm_89.toml").unwrap();
    Table::parse(&TRSM, "trsm.f32.sm_89.toml", &table.to_toml()).unwrap()
}

fn by_order_and_side(key: &BTreeMap<&str, String>) -> String {
    let small = key["order"].parse::<u64>().unwrap() <= 32;
    format!("{} {}", if small { "<=32" } else { ">32" }, key["side"])
}

/// The shape of the published trsm table: two rankings, split at order 32, one family in no row.
#[test]
fn facts_of_a_transcribed_table() {
    let groups: [Group<'_>; 2] =
        [(32, "left", &[("cta | blocked | vendor", 1920)]), (64, "left", &[("blocked | vendor", 2400)])];
    let table = trsm_table(&groups, &Source::Transcribed("8b9adeb3".to_owned()));
    let facts = facts(&table, by_order_and_side);
    assert_eq!(
        facts["<=32 left"],
        Facts {
            rows: 1920,
            first: counts([("cta", 1920)]),
            rankings: counts([("cta | blocked | vendor", 1920)]),
            sources: counts([("transcribed:8b9adeb3", 1920)]),
        }
    );
    assert_eq!(
        (facts[">32 left"].rows, &facts[">32 left"].rankings),
        (2400, &counts([("blocked | vendor", 2400)]))
    );
    let lints = lint(&table);
    assert_eq!(
        lints,
        [
            Lint::NotMeasured { rows: 4320 },
            Lint::Holes { exact: vec!["left", "N"], missing: 480 },
            Lint::NeverRanked(spelled(&TRSM, "sg_left"))
        ]
    );
}

/// First-entry counts of a measured table, per order and side.
#[test]
fn facts_of_a_measured_table() {
    let groups: [Group<'_>; 4] = [
        (16, "left", &[("sg_left | cta", 1156), ("cta | vendor", 473), ("blocked", 1)]),
        (16, "right", &[("cta", 946), ("vendor | cta", 95)]),
        (64, "left", &[("blocked", 957), ("vendor", 744)]),
        (64, "right", &[("blocked", 955), ("vendor", 545)]),
    ];
    let facts = facts(&trsm_table(&groups, &Source::Measured), by_order_and_side);
    for (group, first) in [
        ("<=32 left", counts([("sg_left", 1156), ("cta", 473), ("blocked", 1)])),
        ("<=32 right", counts([("cta", 946), ("vendor", 95)])),
        (">32 left", counts([("blocked", 957), ("vendor", 744)])),
        (">32 right", counts([("blocked", 955), ("vendor", 545)])),
    ] {
        assert_eq!(facts[group].first, first, "{group}");
        assert_eq!(facts[group].rows, first.values().sum::<usize>(), "{group}");
    }
}

#[test]
fn each_oddity_is_found() {
    let all = "'tiny', 'cta', 'lpanel:8', 'lpanel:16', 'blocked', 'vendor'";
    let lints = |rows: &[&str]| {
        let (name, text) = file(&POTRF, "f32", "sm_90", rows);
        lint(&Table::parse(&POTRF, &name, &text).unwrap())
    };
    let clean = format!("key = ['L', 8, 8], ranking = [{all}], source = 'measured', ns = [1, 2, 2, 3, 4, 5]");
    assert_eq!(lints(&[&clean]), []);

    let vendor_only = "key = ['L', 16, 8], ranking = ['vendor'], source = 'measured', ns = [1]";
    assert_eq!(lints(&[&clean, vendor_only]), [Lint::NoNative { line: 9 }]);
    let untimed = "key = ['L', 16, 8], ranking = ['cta'], source = 'measured'";
    assert_eq!(lints(&[&clean, untimed]), [Lint::MeasuredWithoutTimes { line: 9 }]);
    let guess = "key = ['L', 16, 8], ranking = ['cta'], source = 'provisional'";
    assert_eq!(lints(&[&clean, guess]), [Lint::NotMeasured { rows: 1 }]);
    let unsorted = "key = ['L', 16, 8], ranking = ['cta', 'tiny'], source = 'measured', ns = [2, 1]";
    let (slower, faster) = (spelled(&POTRF, "cta"), spelled(&POTRF, "tiny"));
    let expected = Lint::TimesDisagree { line: 9, slower, faster };
    assert_eq!(expected.to_string(), "line 9: cta ranks before tiny but is slower");
    assert_eq!(lints(&[&clean, unsorted]), [expected]);
    let corner = "key = ['L', 16, 16], ranking = ['cta'], source = 'measured', ns = [1]";
    assert_eq!(lints(&[&clean, corner]), [Lint::Holes { exact: vec!["L"], missing: 2 }]);
    let other_triangle = "key = ['U', 16, 16], ranking = ['cta'], source = 'measured', ns = [1]";
    assert_eq!(lints(&[&clean, other_triangle]), []);
}
