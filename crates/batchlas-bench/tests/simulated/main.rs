//! The corpus on the simulated device: the real kernels, compiled by NVRTC to PTX, under strict checks.
//!
//! A launch with a finding (an access out of bounds, a read of uninitialised memory, a race under the schedule, a
//! collective that lanes miss) is an error of the call, and so a failure here. One module per family or operation.

mod cta;
mod inverse;
mod left;
mod lpanel;
mod posv;
mod products;
mod tiny;
mod trsm;

use batchlas::{Context, Dtype, Environment};
use batchlas_bench::conform::{Filter, Report, run};
use batchlas_bench::corpus::Corpus;
use batchlas_core::{Kernel, KernelSource, QueueError};
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

fn on(
    compile: impl Fn(&Kernel) -> Result<Compiled, QueueError> + Send + Sync + 'static,
    environment: Environment,
) -> Context {
    Context::on(Box::new(SimQueue::new(ARCH, DeviceConfig::default(), compile)), environment)
        .expect("a context")
}

fn context() -> Context {
    on(compile, Environment::default())
}

/// The compiler of kernels whose text `edit` has changed.
fn editing(
    edit: impl Fn(&str) -> String + Send + Sync + 'static,
) -> impl Fn(&Kernel) -> Result<Compiled, QueueError> + Send + Sync + 'static {
    move |kernel| {
        let text: &'static str = edit(kernel.source.text).leak();
        let source: &'static KernelSource =
            Box::leak(Box::new(KernelSource { name: kernel.source.name, text }));
        compile(&Kernel { source, ..kernel.clone() })
    }
}

/// A context on a simulated device whose kernels are compiled from a text that `edit` has changed.
fn edited(edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Context {
    on(editing(edit), Environment::default())
}

/// A context whose kernels have `broken` where they had `sound`.
fn planted(sound: &'static str, broken: &'static str) -> Context {
    edited(move |text| {
        assert!(text.contains(sound), "`{sound}` is not in the kernel");
        text.replace(sound, broken)
    })
}

fn simulated(ctx: &Context) -> &SimQueue {
    ctx.queue().as_any().downcast_ref::<SimQueue>().expect("the simulated queue")
}

/// Runs a family of an operation on a corpus up to a size, which is what bounds the orders.
fn conform(
    ctx: &Context,
    corpus: &Corpus,
    op: &str,
    family: &str,
    dtype: Dtype,
    max_elements: Option<usize>,
) -> Report {
    let (ops, families, dtypes) = (vec![op.into()], vec![family.into()], vec![dtype]);
    let filter = Filter { ops, families, dtypes, max_elements, ..Filter::default() };
    run(ctx, corpus, &filter).expect("a run")
}

fn committed() -> Corpus {
    Corpus::committed().expect("a well-formed corpus")
}

/// The committed corpus up to a size: clean, right, and nothing left to the assembler.
fn check(op: &str, family: &str, dtype: Dtype, max_elements: usize) {
    check_at_least(60, op, family, dtype, max_elements);
}

/// [`check`], where the corpus has fewer instances.
fn check_at_least(least: usize, op: &str, family: &str, dtype: Dtype, max_elements: usize) {
    let ctx = context();
    let report = conform(&ctx, &committed(), op, family, dtype, Some(max_elements));
    assert!(report.ok(), "{report}");
    assert!(report.lines.iter().all(|line| line.ran >= least), "{report}");
    every_rounding_is_spelled(&ctx);
}

/// The assembler may not choose between one rounding and two: the simulator could not know.
fn every_rounding_is_spelled(ctx: &Context) {
    let queue = simulated(ctx);
    for kernel in queue.kernels() {
        let (module, entry) = queue.module(&kernel).expect("a module that ran");
        let entry = module.entry(&entry).expect("an entry that ran");
        assert_eq!(unfused(&module, entry), [], "{}", kernel.entry);
    }
}
