//! The corpus on the simulated device: the real kernels, compiled by NVRTC to PTX, under strict checks.
//!
//! A launch with a finding (an access out of bounds, a read of uninitialised memory, a race under the schedule, a
//! collective that lanes miss) is an error of the call, and so a failure here.

use batchlas::{Context, Dtype, Environment, InfoMut, PotrfOptions, Uplo, WorkspaceMut};
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::matrices::{Kind, Random, item};
use batchlas_bench::operands::{Layout, Store};
use batchlas_core::{Kernel, QueueError};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_sim::{Compiled, DeviceConfig, SimQueue};

const ARCH: &str = "sm_90";

fn compile(kernel: &Kernel) -> Result<Compiled, QueueError> {
    let failed =
        |error| QueueError::runtime("compiling for the simulator (`cargo xtask setup` fetches NVRTC)", error);
    let arch: Arch = ARCH.parse().map_err(failed)?;
    let entry = [kernel.entry.as_str()];
    let ptx = Nvrtc::load().and_then(|nvrtc| nvrtc.ptx(&Job::of(kernel, &entry, arch))).map_err(failed)?;
    Ok(Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text })
}

fn context() -> Context {
    let queue = SimQueue::new(ARCH, DeviceConfig::default(), compile);
    Context::on(Box::new(queue), Environment::default()).expect("a context")
}

/// Runs a family of `potrf` on the corpus up to a size, which is what bounds the orders.
fn check(family: &str, dtype: Dtype, max_elements: usize) {
    let ctx = context();
    let filter = Filter {
        ops: vec!["potrf".into()],
        families: vec![family.into()],
        dtypes: vec![dtype],
        max_elements: Some(max_elements),
    };
    let report = run(&ctx, &Corpus::committed().expect("a well-formed corpus"), &filter).expect("a run");
    assert!(report.ok(), "{report}");
    assert!(report.lines.iter().all(|line| line.ran > 20), "{report}");
}

#[test]
fn tiny_f32_is_clean_and_right() {
    check("tiny", Dtype::F32, 3 * 17 * 17);
}

#[test]
fn tiny_f64_is_clean_and_right() {
    check("tiny", Dtype::F64, 3 * 9 * 9);
}

#[test]
fn tiny_c32_is_clean_and_right() {
    check("tiny", Dtype::C32, 3 * 9 * 9);
}

#[test]
fn tiny_c64_is_clean_and_right() {
    check("tiny", Dtype::C64, 3 * 9 * 9);
}

// f32: one warp, two phases; f64: four warps, tensor cores, three phases.

#[test]
fn cta_f32_is_clean_and_right() {
    check("cta", Dtype::F32, 3 * 64 * 64);
}

#[test]
fn cta_f64_is_clean_and_right() {
    check("cta", Dtype::F64, 3 * 100 * 100);
}

#[test]
fn cta_c32_is_clean_and_right() {
    check("cta", Dtype::C32, 3 * 33 * 33);
}

#[test]
fn cta_c64_is_clean_and_right() {
    check("cta", Dtype::C64, 3 * 33 * 33);
}

#[test]
fn a_failed_item_holds_the_factor_before_the_failure_and_zeros() {
    let ctx = context();
    let factored = |route: &str, uplo, kind, n, at| {
        let matrix = item::<f64>(kind, n, at, 0, &mut Random::new(1, 0));
        let mut a = Store::new(Layout::Packed, n, n, 1, 0.0);
        for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
            a.set(0, i, j, matrix.at(i, j));
        }
        let mut on_device = a.upload(&ctx).expect("an upload");
        let options = PotrfOptions { uplo, route: Some(route.into()) };
        let run = |a: batchlas::MatBatchMut<'_, f64>| {
            ctx.potrf_in(a, InfoMut::absent(), WorkspaceMut::empty(ctx.device().place), &options)
        };
        on_device.with_mut(&ctx, run).expect("a factorisation");
        on_device.download(&ctx).expect("a download")
    };
    for (route, n) in [("tiny", 17), ("cta", 70), ("cta", 97)] {
        for (uplo, at) in Uplo::ALL.iter().flat_map(|&u| [1, n / 2 + 1, n].map(|at| (u, at))) {
            let clean = factored(route, uplo, Kind::Definite, n, at);
            let failed = factored(route, uplo, Kind::NegativePivot, n, at);
            for (i, j) in (0..n).flat_map(|j| (j..n).map(move |i| (i, j))) {
                let (row, col) = if uplo == Uplo::Lower { (i, j) } else { (j, i) };
                let expected = if j + 1 < at { clean.at(0, row, col) } else { 0.0 };
                assert_eq!(
                    failed.at(0, row, col),
                    expected,
                    "{route} {uplo} n = {n} at {at}: ({row}, {col})"
                );
            }
        }
    }
}
