//! Every synchronisation of the correct kernels is needed, and the simulator sees when one is missing.

#![allow(clippy::unwrap_used)]

mod common;

use batchlas_sim::mutate::{Mutation, sites};
use batchlas_sim::{FindingKind, Module, Options, Report, Schedule};
use common::{Bench, Params, module};

type Launch = fn(&Module, Schedule) -> Report;

fn trsm(m: &Module, schedule: Schedule) -> Report {
    let (n, q) = (12usize, 5usize);
    let mut bench = Bench::new();
    let l = bench.filled("L", &vec![1f32; n * n]);
    let b = bench.filled("B", &vec![1f32; n * q]);
    let params = Params::default().u64(l).u64(b).i32(n as i32).i32(q as i32);
    bench.run(m, "trsm_shared", [1; 3], 64, 4 * (n * n + n * q), params, schedule)
}

fn gemm(m: &Module, schedule: Schedule) -> Report {
    let mut bench = Bench::new();
    let (a, b) = (bench.filled("A", &vec![1f32; 32 * 96]), bench.filled("B", &vec![1f32; 96 * 32]));
    let c = bench.empty::<f32>("C", 32 * 32);
    let params = Params::default().u64(a).u64(b).u64(c).i32(32).i32(32).i32(96);
    bench.run(m, "gemm_async", [1; 3], 256, 0, params, schedule)
}

fn mma_bf16(m: &Module, schedule: Schedule) -> Report {
    let mut bench = Bench::new();
    let (a, b) = (bench.filled("A", &[0u32; 128]), bench.filled("B", &[0u32; 64]));
    let (c, d) = (bench.filled("C", &[0f32; 128]), bench.empty::<f32>("D", 128));
    let params = Params::default().u64(a).u64(b).u64(c).u64(d);
    bench.run(m, "mma_bf16_m16n8k16", [1; 3], 32, 0, params, schedule)
}

fn one_way(m: &Module, schedule: Schedule) -> Report {
    let mut bench = Bench::new();
    let out = bench.empty::<i32>("out", 32);
    bench.run(m, "one_way", [1; 3], 64, 0, Params::default().u64(out).i32(7), schedule)
}

#[test]
fn every_deleted_or_weakened_synchronisation_is_reported() {
    let kernels: [(&str, &str, usize, Launch); 4] = [
        ("trsm", "trsm_shared", 6, trsm),
        ("gemm", "gemm_async", 8, gemm),
        ("mma", "mma_bf16_m16n8k16", 2, mma_bf16),
        ("warp", "one_way", 3, one_way),
    ];
    for arch in ["sm_90", "sm_100"] {
        for (file, entry, expected, launch) in &kernels {
            let m = module(&format!("{file}.{arch}"));
            let mut count = 0;
            for target in sites(&m, m.entry(entry).unwrap()) {
                if matches!(target.mutation, Mutation::DropGuard | Mutation::NeverBranch) {
                    continue;
                }
                count += 1;
                let broken = m.mutated(entry, &target).unwrap();
                for schedule in [Schedule::Forward, Schedule::Reverse, Schedule::Random(7)] {
                    let report = launch(&broken, schedule);
                    let seen = [
                        FindingKind::Race,
                        FindingKind::AsyncInFlight,
                        FindingKind::Collective,
                        FindingKind::Deadlock,
                    ];
                    assert!(
                        report.findings.iter().any(|f| seen.contains(&f.kind)),
                        "{arch} {entry}: {target} is not reported under {schedule:?}: {report}"
                    );
                }
            }
            assert_eq!(count, *expected, "{arch} {entry}");
        }
    }
}

/// The loop is unrolled by four: every copy of the body runs, and the last barrier of each protects something.
const TILES: usize = 11;

#[test]
fn every_arrival_and_wait_on_a_barrier_in_shared_memory_is_needed() {
    let source = include_str!("ptx/phases.cu");
    let run = |m: &Module, entry: &str, schedule| {
        let mut bench = Bench::new();
        let (a, b) = (bench.filled("a", &[1i32; 64 * TILES]), bench.empty::<i32>("b", 64 * TILES));
        let params = Params::default().u64(a).u64(b).i32(TILES as i32);
        let options = Options { max_instructions: 20_000, ..Options::with_schedule(schedule) };
        bench.device.launch(m, entry, [1; 3], [64, 1, 1], 0, &params.0, &options).unwrap()
    };
    let waits = |line: u32| source.lines().nth(line as usize - 1).is_some_and(|l| l.contains("_wait"));
    // The other dialect unrolls further, so that its last barrier guards nothing at this number of tiles.
    for arch in ["sm_90"] {
        let m = module(&format!("phases.{arch}"));
        for (entry, least) in [("bulk_stream", 5), ("tracked", 4), ("tokens", 3)] {
            let whole = run(&m, entry, Schedule::Forward);
            let mut count = 0;
            for target in sites(&m, m.entry(entry).unwrap()) {
                let wait = target.site.source.as_ref().is_some_and(|(_, line)| waits(*line));
                let wanted = match target.mutation {
                    Mutation::Delete => true,
                    Mutation::NeverBranch => wait,
                    _ => false,
                };
                if !wanted {
                    continue;
                }
                if whole.sites().nth(target.site.index).is_none_or(|(_, cost)| cost.issues == 0) {
                    continue;
                }
                count += 1;
                let broken = m.mutated(entry, &target).unwrap();
                // A wait that would not be repeated may succeed at once under one schedule: another shows it.
                let reported = [Schedule::Forward, Schedule::Reverse, Schedule::Random(7)]
                    .map(|schedule| !run(&broken, entry, schedule).is_clean());
                assert!(reported.contains(&true), "{arch} {entry}: {target} is not reported");
            }
            assert!(count >= least, "{arch} {entry}: {count} sites");
        }
    }
}

#[test]
fn an_opened_guard_is_reported() {
    // `good_bounds` skips its last thread with a branch.
    let m = module("broken.sm_90");
    let targets = sites(&m, m.entry("good_bounds").unwrap());
    assert_eq!(targets.len(), 1, "{targets:?}");
    let broken = m.mutated("good_bounds", &targets[0]).unwrap();
    let mut bench = Bench::new();
    let a = bench.filled("a", &[1i32; 64]);
    let report =
        bench.run(&broken, "good_bounds", [1; 3], 64, 0, Params::default().u64(a).i32(64), Schedule::Forward);
    assert_eq!(report.kinds(), [FindingKind::OutOfBounds]);
}

#[test]
fn a_mutation_that_does_not_apply_is_refused() {
    let m = module("broken.sm_90");
    let mut target = sites(&m, m.entry("good_bounds").unwrap()).remove(0);
    target.mutation = Mutation::Delete;
    assert!(m.mutated("good_bounds", &target).is_err());
    assert!(m.mutated("no such kernel", &target).is_err());
}
