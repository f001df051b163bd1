//! The corpus on the simulated device: the real kernels, compiled by NVRTC to PTX, under strict checks.
//!
//! A launch with a finding (an access out of bounds, a read of uninitialised memory, a race under the schedule, a
//! collective that lanes miss) is an error of the call, and so a failure here.

use batchlas::{Context, Dtype, Environment};
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
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

/// Runs a family of `potrf` on the corpus up to a size, which is what bounds the orders.
fn check(family: &str, dtype: Dtype, max_elements: usize) {
    let queue = SimQueue::new(ARCH, DeviceConfig::default(), compile);
    let ctx = Context::on(Box::new(queue), Environment::default()).expect("a context");
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

// One warp and one phase; and, in f64, two warps, tensor cores and two phases.

#[test]
fn cta_f32_is_clean_and_right() {
    check("cta", Dtype::F32, 3 * 33 * 33);
}

#[test]
fn cta_f64_is_clean_and_right() {
    check("cta", Dtype::F64, 3 * 70 * 70);
}

#[test]
fn cta_c32_is_clean_and_right() {
    check("cta", Dtype::C32, 3 * 33 * 33);
}

#[test]
fn cta_c64_is_clean_and_right() {
    check("cta", Dtype::C64, 3 * 33 * 33);
}
