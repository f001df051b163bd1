//! The walk: nearest row, ranking, last resort, borrowing, vendor-free builds.

use batchlas_select::{Device, Pin, Refusal, SelectError, Source, Warning, Why, choose};

use crate::ops::{Call, POSV, POTRF, TRSM, by_caller, file, set, spelled};

fn row(key: &str, ranking: &str) -> String {
    format!("key = [{key}], ranking = ['{}'], source = 'measured'", ranking.replace(" | ", "', '"))
}

fn potrf_table(device: &str, rows: &[(&str, &str)]) -> (String, String) {
    let rows: Vec<String> = rows.iter().map(|(key, ranking)| row(key, ranking)).collect();
    file(&POTRF, "f32", device, &rows.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_nearest_row_decides_and_its_first_runnable_entry_runs() {
    let tables = set([potrf_table(
        "sm_90",
        &[("'L', 16, 128", "tiny | cta"), ("'L', 64, 128", "cta | blocked | vendor")],
    )]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[60, 128]);
    let choice = call.choose().unwrap();
    assert_eq!(choice.spelling, spelled(&POTRF, "cta"));
    let Why::Ranked(ranking) = choice.why else { panic!("{:?}", choice.why) };
    assert_eq!((ranking.file.as_str(), ranking.line, ranking.rank), ("potrf.f32.sm_90.toml", 9, 0));
    assert!((ranking.distance - 3.0 * (64.0_f64 / 60.0).log2()).abs() < 1e-12);
    assert!(!ranking.is_measured(), "off the grid is extrapolated");

    call.refuse = &["cta", "blocked"];
    let choice = call.choose().unwrap();
    assert_eq!(choice.spelling, spelled(&POTRF, "vendor"));
    assert_eq!(
        choice.skipped,
        [
            (spelled(&POTRF, "cta"), Refusal::from("cta is refused here")),
            (spelled(&POTRF, "blocked"), Refusal::from("blocked is refused here"))
        ]
    );
    let Why::Ranked(ranking) = choice.why else { panic!("{:?}", choice.why) };
    assert_eq!(ranking.rank, 2);
}

#[test]
fn on_the_grid_is_distance_zero_and_only_then_measured() {
    let text = "key = ['L', 16, 128], ranking = ['tiny'], source = 'SOURCE'";
    for (source, device, n, distance_zero, measured) in [
        ("measured", Device::Sm(90), 16, true, true),
        ("measured", Device::Sm(90), 17, false, false),
        ("measured", Device::Sm(89), 16, true, false),
        ("transcribed:8b9adeb3", Device::Sm(90), 16, true, false),
        ("provisional", Device::Sm(90), 16, true, false),
    ] {
        let tables = set([file(&POTRF, "f32", "sm_90", &[&text.replace("SOURCE", source)])]);
        let mut call = Call::new(&POTRF, &tables, &["L"], &[n, 128]);
        call.device = device;
        let Why::Ranked(ranking) = call.choose().unwrap().why else { panic!("a row decides") };
        assert_eq!(
            (ranking.distance == 0.0, ranking.is_measured()),
            (distance_zero, measured),
            "{source} {n}"
        );
        assert_eq!(ranking.source.to_string(), source);
        let text = Why::Ranked(ranking).to_string();
        assert!(text.contains(if distance_zero { "(on the grid)" } else { "(extrapolated)" }), "{text}");
    }
}

/// Knobs measured at a neighbour that do not fit here: the family's own defaults stand in before the next rank, and the
/// choice does not claim to be measured. A family whose knobs are required has no defaults.
#[test]
fn defaults_of_a_family_stand_in_for_knobs_that_do_not_run() {
    let ranking = "lpanel:panel=16 | tiny:lanes=32 | vendor";
    let tables = set([potrf_table("sm_90", &[("'L', 16, 128", ranking)])]);
    let call = Call::new(&POTRF, &tables, &["L"], &[16, 128]);
    let pick = |runs: &[&str]| {
        choose(&call.problem(), &tables, by_caller(Pin::Auto), false, |spelling| {
            runs.contains(&spelling.to_string().as_str()).then_some(()).ok_or_else(|| "refused".into())
        })
        .unwrap()
    };
    let choice = pick(&["tiny", "vendor"]);
    assert_eq!(choice.spelling, spelled(&POTRF, "tiny"));
    let skipped: Vec<_> = choice.skipped.iter().map(|(spelling, _)| spelling.to_string()).collect();
    assert_eq!(skipped, ["lpanel:panel=16", "tiny:lanes=32"]);
    let text = choice.why.to_string();
    assert!(text.starts_with("defaults of rank 1 of potrf.f32.sm_90.toml:"), "{text}");
    assert!(matches!(&choice.why, Why::FamilyDefault(row) if row.rank == 1 && row.distance == 0.0));
    let choice = pick(&["tiny:lanes=32", "tiny", "vendor"]);
    assert!(matches!(&choice.why, Why::Ranked(row) if row.rank == 1), "{:?}", choice.why);
    assert_eq!(pick(&["vendor"]).spelling, spelled(&POTRF, "vendor"));
}

/// Orders weigh 2 in trsm and 3 in potrf and posv; everything else weighs 1.
#[test]
fn key_distances() {
    for (vocabulary, exact, from, to, distance) in [
        (&TRSM, &["left", "N"][..], &[16, 8, 128][..], &[32, 8, 128][..], 2.0),
        (&TRSM, &["left", "N"], &[16, 8, 128], &[16, 4, 512], 3.0),
        (&POTRF, &["L"], &[16, 128], &[32, 128], 3.0),
        (&POTRF, &["L"], &[16, 128], &[8, 32], 5.0),
        (&POSV, &["L"], &[16, 1, 128], &[32, 4, 64], 6.0),
    ] {
        let (a, b) = (vocabulary.key(exact, from).unwrap(), vocabulary.key(exact, to).unwrap());
        assert_eq!(vocabulary.distance(&a, &b), Some(distance));
        assert_eq!(vocabulary.distance(&b, &a), Some(distance));
        assert_eq!(vocabulary.distance(&a, &a), Some(0.0));
    }
    let lower = POTRF.key(&["L"], &[16, 128]).unwrap();
    let upper = POTRF.key(&["U"], &[16, 128]).unwrap();
    assert_eq!(POTRF.distance(&lower, &upper), None);
}

/// A factor of two in the order outweighs a factor of four in the batch.
#[test]
fn weights_decide_between_rows() {
    let tables = set([potrf_table("sm_90", &[("'L', 16, 512", "tiny"), ("'L', 32, 128", "cta")])]);
    assert_eq!(Call::new(&POTRF, &tables, &["L"], &[32, 512]).picks(), "cta");
    assert_eq!(Call::new(&POTRF, &tables, &["L"], &[16, 128]).picks(), "tiny");
}

#[test]
fn a_tie_goes_to_the_first_row_in_file_order() {
    // Each order is the geometric mean of its rows: equally far, up to rounding in either direction.
    for (n, a, b) in [(24, 16, 36), (10, 5, 20), (14, 7, 28)] {
        for (first, second) in [(a, b), (b, a)] {
            let rows = [first, second].map(|row| format!("'L', {row}, 128"));
            let tables = set([potrf_table("sm_90", &[(&rows[0], "tiny"), (&rows[1], "cta")])]);
            let picked = Call::new(&POTRF, &tables, &["L"], &[n, 128]).picks();
            assert_eq!(picked, "tiny", "{n} between {first} and {second}");
        }
    }
}

#[test]
fn exact_fields_must_match() {
    let tables = set([potrf_table("sm_90", &[("'U', 32, 128", "cta"), ("'L', 2048, 1", "vendor")])]);
    assert_eq!(Call::new(&POTRF, &tables, &["L"], &[32, 128]).picks(), "vendor");
    assert_eq!(Call::new(&POTRF, &tables, &["U"], &[2048, 1]).picks(), "cta");
}

#[test]
fn without_a_row_for_the_exact_fields_the_last_resort_decides() {
    let tables = set([potrf_table("sm_90", &[("'L', 32, 128", "cta")])]);
    let mut call = Call::new(&POTRF, &tables, &["U"], &[32, 128]);
    let choice = call.choose().unwrap();
    assert_eq!((choice.spelling, choice.why), (spelled(&POTRF, "blocked"), Why::LastResort));
    call.refuse = &["blocked"];
    assert_eq!(call.picks(), "vendor");
}

#[test]
fn last_resort_order() {
    let nothing_ranked = set([]);
    for (vocabulary, exact, log, refuse, expected) in [
        (&TRSM, &["left", "N"][..], &[64, 8, 128][..], &[][..], "blocked"),
        (&TRSM, &["left", "N"], &[64, 8, 128], &["blocked"], "vendor"),
        (&TRSM, &["left", "N"], &[64, 8, 128], &["blocked", "vendor"], "cta"),
        (&POTRF, &["L"], &[64, 128], &[], "blocked"),
        (&POTRF, &["L"], &[64, 128], &["blocked"], "vendor"),
        (&POTRF, &["L"], &[64, 128], &["blocked", "vendor", "tiny"], "cta"),
        (&POTRF, &["L"], &[64, 128], &["blocked", "vendor", "tiny", "cta"], "lpanel:panel=8"),
        (&POSV, &["L"], &[64, 1, 128], &[], "blocked"),
        (&POSV, &["L"], &[64, 1, 128], &["blocked"], "tiny"),
    ] {
        let mut call = Call::new(vocabulary, &nothing_ranked, exact, log);
        call.refuse = refuse;
        assert_eq!(call.picks(), expected, "{} refusing {refuse:?}", vocabulary.op);
        let why = call.choose().unwrap().why;
        let in_resort = vocabulary.last_resort.contains(&expected);
        assert_eq!(why, if in_resort { Why::LastResort } else { Why::VocabularyOrder });
    }
}

#[test]
fn nothing_runs_is_an_error_with_every_reason() {
    let tables = set([potrf_table("sm_90", &[("'L', 32, 128", "cta | vendor")])]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    call.refuse = &["tiny", "cta", "lpanel", "blocked", "vendor"];
    for pin in [Pin::Auto, Pin::Native, Pin::Vendor] {
        call.pin = pin;
        let error = call.choose().unwrap_err();
        assert!(matches!(error, SelectError::NothingRuns { .. }));
        let message = error.to_string();
        for family in ["tiny", "cta", "lpanel:panel=8", "lpanel:panel=16", "blocked", "vendor"] {
            assert_eq!(message.matches(&format!("{family}: ")).count(), 1, "{pin}: {message}");
        }
    }
}

#[test]
fn each_candidate_is_asked_at_most_once() {
    let tables = set([potrf_table("sm_90", &[("'L', 32, 128", "blocked | vendor")])]);
    let call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    let mut asked = Vec::new();
    let result = choose(&call.problem(), &tables, by_caller(Pin::Vendor), false, |spelling| {
        asked.push(spelling.to_string());
        Err("no".into())
    });
    assert!(result.is_err());
    assert_eq!(asked, ["vendor", "blocked", "tiny", "cta", "lpanel:panel=8", "lpanel:panel=16"]);
}

#[test]
fn a_vendor_free_build_takes_the_first_native_entry_or_blocked() {
    let tables =
        set([potrf_table("sm_90", &[("'L', 32, 128", "vendor | cta | tiny"), ("'L', 512, 128", "vendor")])]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    assert_eq!(call.picks(), "vendor");
    call.vendor_free = true;
    assert_eq!(call.picks(), "cta");
    assert_eq!(call.choose().unwrap().warnings, []);
    call.key = POTRF.key(&["L"], &[512, 128]).unwrap();
    assert_eq!(call.picks(), "blocked");
    call.refuse = &["tiny", "cta", "lpanel", "blocked"];
    assert!(
        matches!(call.choose(), Err(SelectError::NothingRuns { .. })),
        "vendor would run, but is not there"
    );
}

#[test]
fn a_device_without_a_table_borrows_the_closest_with_a_warning() {
    let tables = set([
        potrf_table("sm_120", &[("'L', 32, 128", "tiny")]),
        potrf_table("sm_89", &[("'L', 32, 128", "cta")]),
        potrf_table("sm_80", &[("'L', 32, 128", "blocked")]),
        potrf_table("cpu", &[("'L', 32, 128", "vendor")]),
    ]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    for (device, expected, from) in [
        (89, "cta", None),
        (90, "cta", Some(89)),
        (86, "cta", Some(89)),
        (75, "blocked", Some(80)),
        (100, "cta", Some(89)),
        (121, "tiny", Some(120)),
    ] {
        call.device = Device::Sm(device);
        let choice = call.choose().unwrap();
        assert_eq!(choice.spelling.to_string(), expected, "sm_{device}");
        let warning = from.map(|from| Warning::Borrowed { device: call.device, from: Device::Sm(from) });
        assert_eq!(choice.warnings, Vec::from_iter(warning), "sm_{device}");
        let Why::Ranked(ranking) = choice.why else { panic!("a row decides") };
        assert_eq!(ranking.borrowed_from, from.map(Device::Sm));
    }
}

#[test]
fn equally_close_devices_lend_the_older_table() {
    for order in [["sm_80", "sm_90"], ["sm_90", "sm_80"]] {
        let tables = set(order.map(|device| {
            potrf_table(device, &[("'L', 32, 128", if device == "sm_80" { "cta" } else { "tiny" })])
        }));
        let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
        call.device = Device::Sm(85);
        assert_eq!(call.picks(), "cta");
    }
}

#[test]
fn a_cpu_never_borrows_and_never_lends() {
    let gpu_only = set([potrf_table("sm_90", &[("'L', 32, 128", "cta")])]);
    let mut call = Call::new(&POTRF, &gpu_only, &["L"], &[32, 128]);
    call.device = Device::Cpu;
    let choice = call.choose().unwrap();
    assert_eq!(choice.why, Why::LastResort);
    assert_eq!(choice.warnings, [Warning::NoTable { device: Device::Cpu }]);

    let cpu_only = set([potrf_table("cpu", &[("'L', 32, 128", "vendor")])]);
    let mut call = Call::new(&POTRF, &cpu_only, &["L"], &[32, 128]);
    assert_eq!(call.choose().unwrap().warnings, [Warning::NoTable { device: Device::Sm(90) }]);
    call.device = Device::Cpu;
    assert_eq!((call.picks().as_str(), call.choose().unwrap().warnings.len()), ("vendor", 0));
}

#[test]
fn tables_are_per_type() {
    let tables = set([
        potrf_table("sm_90", &[("'L', 9, 128", "tiny")]),
        file(&POTRF, "f64", "sm_90", &[&row("'L', 9, 128", "vendor | tiny")]),
    ]);
    let call = Call::new(&POTRF, &tables, &["L"], &[9, 128]);
    for (dtype, expected) in [("f32", "tiny"), ("f64", "vendor"), ("c32", "blocked")] {
        let problem = batchlas_select::Problem { dtype, ..call.problem() };
        let choice = choose(&problem, &tables, by_caller(Pin::Auto), false, |_| Ok(())).unwrap();
        assert_eq!(choice.spelling.to_string(), expected, "{dtype}");
    }
}

/// Rows of f64 rank the vendor first at 9 and 10 although tiny leads on both sides of them.
#[test]
fn a_hole_in_a_window_is_just_rows() {
    let rows: Vec<String> = (8..=12)
        .map(|n| {
            row(&format!("'L', {n}, 1024"), if n == 9 || n == 10 { "vendor | tiny" } else { "tiny | vendor" })
        })
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let tables = set([file(&POTRF, "f32", "sm_90", &rows)]);
    let picks: Vec<String> =
        (8..=12).map(|n| Call::new(&POTRF, &tables, &["L"], &[n, 1024]).picks()).collect();
    assert_eq!(picks, ["tiny", "vendor", "vendor", "tiny", "tiny"]);
}

/// A family that refuses a triangle is never reached for it, although its row ranks it first.
#[test]
fn correctness_wins_over_ranking() {
    let tables = set([potrf_table("sm_90", &[("'U', 128, 512", "lpanel:panel=8 | lpanel:panel=16 | cta")])]);
    let call = Call::new(&POTRF, &tables, &["U"], &[128, 512]);
    let choice = choose(&call.problem(), &tables, by_caller(Pin::Auto), false, |spelling| {
        if spelling.family() == "lpanel" { Err("Lower only".into()) } else { Ok(()) }
    });
    let choice = choice.unwrap();
    assert_eq!((choice.spelling.family(), choice.skipped.len()), ("cta", 2));
}

/// Orders between the rows 24 and 32 split at their geometric mean: 25 and 26 take the row of 24.
#[test]
fn row_edges() {
    let rows: Vec<String> = [1, 2, 4]
        .into_iter()
        .flat_map(|nrhs| {
            let above = if nrhs == 4 { "tiny | cta" } else { "cta | tiny" };
            [(24, "tiny | cta"), (32, above)]
                .map(|(n, ranking)| row(&format!("'L', {n}, {nrhs}, 4096"), ranking))
        })
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let tables = set([file(&POSV, "f32", "sm_90", &rows)]);
    for (n, nrhs, expected) in [
        (24, 1, "tiny"),
        (25, 1, "tiny"),
        (25, 2, "tiny"),
        (26, 1, "tiny"),
        (26, 2, "tiny"),
        (27, 2, "tiny"),
        (28, 2, "cta"),
        (32, 1, "cta"),
        (32, 2, "cta"),
        (32, 4, "tiny"),
    ] {
        assert_eq!(
            Call::new(&POSV, &tables, &["L"], &[n, nrhs, 4096]).picks(),
            expected,
            "n={n} nrhs={nrhs}"
        );
    }
}

/// There is no batch floor: below the smallest tabulated batch its rows decide, at a distance that says so.
#[test]
fn batches_below_the_grid_take_its_edge() {
    let rows = [row("'left', 'N', 32, 8, 128", "cta"), row("'left', 'N', 32, 8, 4096", "vendor")];
    let tables = set([file(&TRSM, "f32", "sm_90", &[&rows[0], &rows[1]])]);
    for batch in [1, 8, 127, 128] {
        let call = Call::new(&TRSM, &tables, &["left", "N"], &[32, 8, batch]);
        let Why::Ranked(ranking) = call.choose().unwrap().why else { panic!("a row decides") };
        assert_eq!((call.picks().as_str(), ranking.line), ("cta", 8));
        assert!((ranking.distance - (128.0 / batch as f64).log2()).abs() < 1e-12);
        assert_eq!(ranking.source, Source::Measured);
    }
}
