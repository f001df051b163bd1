//! The probe with the real NVRTC: it sees what is planted, and counts what it is given.

use batchlas_core::Promise;
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_kernels::residency::Breach;

fn nvrtc() -> Nvrtc {
    Nvrtc::load()
        .unwrap_or_else(|error| panic!("{error}\n\nThese tests compile kernels: run `cargo xtask setup`."))
}

fn archs(names: &[&str]) -> Vec<Arch> {
    names.iter().map(|name| name.parse().expect("an architecture")).collect()
}

fn family(source: &str, entries: &[&str], promise: Promise) -> Family {
    Family {
        owner: "batchlas-test".into(),
        name: "reverse".into(),
        source_name: "tests/kernels/copy.cu".into(),
        source: source.into(),
        options: vec![],
        kernels: entries.iter().map(|&entry| (entry.into(), promise)).collect(),
    }
}

const SOURCE: &str = include_str!("kernels/copy.cu");
const PROMISE: Promise = Promise { threads: 128, min_blocks: 4, max_dynamic_shared: 0 };

#[test]
fn every_plant_is_seen_on_every_architecture() {
    let plants = probe::self_test(nvrtc(), &archs(&DEFAULT_ARCHS), 2);
    assert_eq!(plants.len(), 4 * 5);
    for plant in plants {
        assert!(plant.right, "{plant}");
    }
}

#[test]
fn kernels_are_counted_and_tabulated() {
    let entries: Vec<String> = (1..=20).map(|n| format!("test::reverse<float, {}>", 4 * n)).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let report =
        probe::run(nvrtc(), &archs(&["sm_80", "sm_90"]), 2, |_| vec![family(SOURCE, &entries, PROMISE)]);
    assert!(report.is_green(), "{report}");
    assert_eq!((report.expected, report.rows.len(), report.seconds.len()), (40, 40, 2));
    let order: Vec<&str> = report.rows[..20].iter().map(|row| row.entry.as_str()).collect();
    assert_eq!(order, entries);
    let text = report.to_string();
    assert!(text.contains("40 of 40 kernels seen, 40 keep their promise"), "{text}");
    let table = report.kernels().to_string();
    assert_eq!(table.lines().count(), 41, "{table}");
    assert!(table.contains("test::reverse<float, 80>"), "{table}");
}

#[test]
fn a_broken_promise_an_unmatched_name_and_an_empty_list_are_red() {
    let greedy = Promise { min_blocks: 1 << 20, ..PROMISE };
    let run = |arch, families: Vec<Family>| probe::run(nvrtc(), &archs(&[arch]), 2, |_| families.clone());
    let report = run("sm_90", vec![family(SOURCE, &["test::reverse<float, 8>"], greedy)]);
    assert!(!report.is_green());
    let breaches = report.rows[0].verdict.as_ref().unwrap_err();
    assert!(matches!(breaches[..], [Breach::Registers { .. }]), "{breaches:?}");
    assert!(
        report.to_string().contains("RED sm_90 batchlas-test reverse `test::reverse<float, 8>`"),
        "{report}"
    );

    let report = run("sm_90", vec![family(SOURCE, &["test::absent<float, 8>"], PROMISE)]);
    assert!(!report.is_green());
    assert!(report.to_string().contains("test::absent<float, 8>"), "{report}");
    assert!(report.to_string().contains("0 of 1 kernels seen"), "{report}");

    assert!(!run("sm_90", vec![]).is_green());
    assert!(!run("sm_90", vec![family(SOURCE, &[], PROMISE)]).is_green());

    let report = run("sm_75", vec![family(SOURCE, &["test::reverse<float, 8>"], PROMISE)]);
    assert!(!report.is_green() && report.to_string().contains("sm_75"), "{report}");
}
