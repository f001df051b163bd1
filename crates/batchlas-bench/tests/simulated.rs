//! The corpus on the simulated device: the real kernels, compiled by NVRTC to PTX, under strict checks.
//!
//! A launch with a finding (an access out of bounds, a read of uninitialised memory, a race under the schedule, a
//! collective that lanes miss) is an error of the call, and so a failure here.

use batchlas::{Context, Dtype, Environment};
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::operands::Layout;
use batchlas_core::{Kernel, QueueError};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_sim::lint::unfused;
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

/// Runs `tiny` on the corpus up to a size, which is what bounds the orders; then on plain factorisations of these
/// orders, both triangles.
fn check(dtype: Dtype, max_elements: usize, orders: impl IntoIterator<Item = usize>) {
    let ctx = context();
    let mut filter = Filter {
        ops: vec!["potrf".into()],
        families: vec!["tiny".into()],
        dtypes: vec![dtype],
        max_elements: Some(max_elements),
    };
    let mut corpus = Corpus::committed().expect("a well-formed corpus");
    let report = run(&ctx, &corpus, &filter).expect("a run");
    assert!(report.ok(), "{report}");
    assert!(report.lines.iter().all(|line| line.ran > 60), "{report}");

    let orders: Vec<usize> = orders.into_iter().collect();
    corpus.factor.retain(|case| case.name == "orders");
    corpus.factor.iter_mut().for_each(|case| {
        (case.n, case.layout) = (orders.clone(), vec![Layout::Padded]);
    });
    filter.max_elements = None;
    let report = run(&ctx, &corpus, &filter).expect("a run");
    assert!(report.ok(), "{report}");
    assert_eq!(report.lines[0].ran, 2 * orders.len(), "{report}");
    assert_eq!(report.lines[0].refused, 0, "{report}");

    // The assembler may not choose between one rounding and two: the simulator could not know.
    let queue = ctx.queue().as_any().downcast_ref::<SimQueue>().expect("the simulated queue");
    for kernel in queue.kernels() {
        let (module, entry) = queue.module(&kernel).expect("a module that ran");
        let entry = module.entry(&entry).expect("an entry that ran");
        assert_eq!(unfused(&module, entry), [], "{}", kernel.entry);
    }
}

#[test]
fn tiny_f32_is_clean_and_right() {
    check(Dtype::F32, 3 * 9 * 9, 1..=32);
}

#[test]
fn tiny_f64_is_clean_and_right() {
    check(Dtype::F64, 3 * 9 * 9, [16, 17, 31, 32]);
}

#[test]
fn tiny_c32_is_clean_and_right() {
    check(Dtype::C32, 3 * 9 * 9, [17, 32]);
}

#[test]
fn tiny_c64_is_clean_and_right() {
    check(Dtype::C64, 3 * 9 * 9, [17, 32]);
}
