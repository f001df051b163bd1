//! Every check has a kernel that trips it and a twin that does not.

#![allow(clippy::unwrap_used)]

mod common;

use batchlas_sim::FindingKind::{self, *};
use batchlas_sim::{Layout, Options, Permission, Report, Schedule};
use common::{Bench, Params, SCHEDULES, module};

const N: usize = 64;

/// Launches a kernel of the broken.cu kind: `a` of n elements (twice that for reads past n), n, `b`.
fn launch(arch: &str, entry: &str, schedule: Schedule) -> Report {
    let m = module(&format!("broken.{arch}"));
    let mut bench = Bench::new();
    let uninitialised =
        entry.ends_with("_uninitialised") && !entry.contains("shared") && !entry.contains("local");
    let filled = vec![1i32; N];
    let a = if uninitialised { bench.empty::<i32>("a", 2 * N) } else { bench.filled("a", &filled) };
    let b = bench.empty::<i32>("b", N);
    // Items of four columns of eight rows.
    bench.device.set_layout(a, Layout { element: 4, ld: 8, stride: 32 }).unwrap();
    if entry.ends_with("read_only") {
        bench.device.protect(a, 4 * N / 2, Permission::ReadOnly).unwrap();
    }
    if entry.ends_with("forbidden") {
        bench.device.protect(a + 4 * N as u64 / 2, 4 * N / 2, Permission::WriteOnly).unwrap();
    }
    let (threads, n) = match entry {
        _ if entry.ends_with("aligned") => (32, 1),
        _ if entry.ends_with("warp_race") => (32, N),
        _ => (N, N),
    };
    let grid = if entry.ends_with("block_race") { 2 } else { 1 };
    let entry = m.entry(entry).unwrap();
    let mut params = Params::default().u64(a).i32(n as i32).u64(b).0;
    params.truncate(entry.param_bytes());
    let options = Options { max_instructions: 100_000, ..Options::with_schedule(schedule) };
    bench.device.launch(&m, &entry.name, [grid, 1, 1], [threads as u32, 1, 1], 0, &params, &options).unwrap()
}

const CASES: &[(&str, FindingKind)] = &[
    ("bounds", OutOfBounds),
    ("shared_bounds", OutOfBounds),
    ("local_bounds", OutOfBounds),
    ("aligned", Misaligned),
    ("shared_aligned", Misaligned),
    ("local_aligned", Misaligned),
    ("uninitialised", Uninitialised),
    ("shared_uninitialised", Uninitialised),
    ("local_uninitialised", Uninitialised),
    ("read_only", ReadOnlyWrite),
    ("forbidden", ForbiddenRead),
    ("race", Race),
    ("warp_race", Race),
    ("warp_scope", Race),
    ("mask_scope", Race),
    ("block_race", Race),
    ("reuse", Race),
    ("async", AsyncInFlight),
    ("async_group", AsyncInFlight),
    ("async_barrier", Race),
    ("non_coherent", NonCoherent),
    ("divergent", BarrierDivergence),
    ("deadlock", Deadlock),
    ("collective", Collective),
    ("departed", Collective),
    ("budget", Budget),
    ("trap", Trap),
];

#[test]
fn each_check_is_tripped_by_its_kernel_and_not_by_the_twin() {
    for arch in ["sm_90", "sm_100"] {
        for (name, kind) in CASES {
            for schedule in SCHEDULES {
                let bad = launch(arch, &format!("bad_{name}"), schedule);
                assert!(bad.has(*kind), "{arch} {name} {schedule:?} should give {kind:?}: {bad}");
                let good = launch(arch, &format!("good_{name}"), schedule);
                assert!(good.is_clean(), "{arch} {name} {schedule:?} should be clean: {good}");
            }
        }
    }
}

#[test]
fn every_kernel_of_the_fixture_is_used() {
    let m = module("broken.sm_90");
    let mut expected: Vec<String> =
        CASES.iter().flat_map(|(n, _)| [format!("bad_{n}"), format!("good_{n}")]).collect();
    let mut names: Vec<String> = m.entries().iter().map(|e| e.name.clone()).collect();
    expected.sort();
    names.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_finding_names_places_threads_and_elements() {
    let report = launch("sm_90", "bad_race", Schedule::Forward);
    let race = report.findings.iter().find(|f| f.kind == Race).unwrap();
    assert_eq!(race.kernel, "bad_race");
    let (file, line) = race.site.source.clone().unwrap();
    assert_eq!(file, "broken.cu");
    let source =
        std::fs::read_to_string(format!("{}/tests/ptx/broken.cu", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(source.lines().nth(line as usize - 1).unwrap().contains("bad_race"));
    let (rival, site) = race.other.clone().unwrap();
    assert_ne!(rival.thread[0] / 32, race.who.thread[0] / 32);
    assert!(site.opcode.starts_with("st.shared") || race.site.opcode.starts_with("st.shared"));
    assert!(race.location.as_ref().unwrap().buffer.as_ref().unwrap().contains('s'));

    let report = launch("sm_90", "bad_bounds", Schedule::Forward);
    let text = report.findings[0].to_string();
    let address = report.findings[0].location.as_ref().unwrap().address;
    let end =
        format!("byte 256 (address {address:#x}) = item 2 row 0 column 0; 4 bytes in a buffer of 256 bytes");
    assert!(text.contains("thread (63,0,0) at global `a`") && text.ends_with(&end), "{text}");
}
