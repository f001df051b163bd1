//! The commands for people who test or measure on a GPU machine: `gpu-test`, `bench`, `aot`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use batchlas::{Context, Dtype, Environment, Kernel};
use batchlas_bench::conform::{self, Filter};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::measure::{Provenance, Row, kernels, measure};
use batchlas_bench::sweep::Entry;
use batchlas_bench::{large, sweep};
use batchlas_kernels::cuda::{Driver, selftest};
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::{Arch, bundle};
use clap::Args;

use crate::devices::{DeviceArg, context};
use crate::error::{CliError, Result};
use crate::print;

/// Run every check of the device runtime and the conformance corpus, each family forced by its spelling
#[derive(Debug, Args)]
pub(crate) struct GpuTest {
    /// Where to run: auto, cpu or cuda:N
    #[arg(long, default_value_t = DeviceArg::Cuda(0))]
    device: DeviceArg,
    /// Only these operations
    #[arg(long, value_delimiter = ',')]
    op: Vec<String>,
    /// Only these families
    #[arg(long, value_delimiter = ',')]
    family: Vec<String>,
    /// Only these element types
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<Dtype>,
    /// Only corpus instances of these orders
    #[arg(long, value_delimiter = ',')]
    order: Vec<usize>,
    /// Leave out corpus instances of more than this many elements
    #[arg(long)]
    max_elements: Option<usize>,
    /// Cases to run instead of the committed ones, in the format of corpus.toml
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Leave out the checks of the device runtime
    #[arg(long)]
    no_runtime: bool,
    /// Leave out the cases that need a whole GPU
    #[arg(long)]
    no_large: bool,
    /// Of the cases that need a whole GPU, only those whose name contains this
    #[arg(long)]
    large: Option<String>,
}

/// Runs the suite; the number of failures.
pub(crate) fn gpu_test(args: &GpuTest) -> Result<usize> {
    let mut failures = 0;
    let mut report = |name: &str, outcome: Result<String, String>| {
        failures += usize::from(outcome.is_err());
        let (word, text) = match &outcome {
            Ok(text) => ("ok    ", text),
            Err(text) => ("FAILED", text),
        };
        print(&format!("{word} {name}: {text}"))
    };
    if !args.no_runtime {
        for (name, check) in selftest::all() {
            report(name, check())?;
        }
    }
    let ctx = context(args.device, 0, &[])?;
    if !args.no_large {
        let wanted = args.large.as_deref().unwrap_or("");
        for (name, check) in large::all().iter().filter(|(name, _)| name.contains(wanted)) {
            report(name, check(&ctx))?;
        }
    }
    let corpus = match &args.corpus {
        Some(path) => Corpus::parse(&fs::read_to_string(path).map_err(CliError::reading(path))?),
        None => Corpus::committed(),
    };
    let corpus = corpus.map_err(|e| CliError::Lab(e.to_string()))?;
    let filter = Filter {
        ops: args.op.clone(),
        families: args.family.clone(),
        dtypes: args.dtype.clone(),
        orders: args.order.clone(),
        max_elements: args.max_elements,
    };
    let conformance = conform::run(&ctx, &corpus, &filter)?;
    print(&conformance.to_string())?;
    failures += conformance.lines.iter().map(|line| line.failures.len()).sum::<usize>();
    print(&format!("{} on {}: {failures} failures", ctx.device().name, ctx.device().arch))?;
    Ok(failures)
}

/// Time the cells of a sweep file by interleaved arms; append rows to a ledger
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Cells and routes; the format is documented in batchlas-bench's sweep.rs
    sweep: PathBuf,
    /// Ledger to append to, one JSON object a line
    #[arg(short, long)]
    output: PathBuf,
    /// Timed calls of each arm
    #[arg(long, default_value_t = 7)]
    reps: usize,
    /// Where to run: auto, cpu or cuda:N
    #[arg(long, default_value_t = DeviceArg::Cuda(0))]
    device: DeviceArg,
    /// Threads of the CPU; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Commit that the rows are recorded under
    #[arg(long)]
    commit: Option<String>,
}

/// What this machine and build add to a row.
pub(crate) fn provenance(commit: Option<String>) -> Provenance {
    Provenance {
        driver: Driver::load().ok().map(|driver| driver.version()),
        nvrtc: Nvrtc::load().ok().map(|nvrtc| nvrtc.version()),
        commit,
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string()[..10].to_owned(),
    }
}

/// Times a sweep; the number of arms without a row.
pub(crate) fn bench(args: &Bench) -> Result<usize> {
    let ctx = context(args.device, args.threads, &[])?;
    let entries = read_sweep(&args.sweep)?;
    let provenance = provenance(args.commit.clone());
    let ledger = OpenOptions::new().create(true).append(true).open(&args.output);
    let mut ledger = ledger.map_err(CliError::writing(&args.output))?;
    let mut missing = 0;
    for entry in &entries {
        for timed in measure(&ctx, &entry.cell, &entry.routes, args.reps, &provenance)? {
            let line = match timed.outcome {
                Ok(row) => {
                    let json = serde_json::to_string(&row).map_err(|e| CliError::Lab(e.to_string()))?;
                    writeln!(ledger, "{json}").map_err(CliError::writing(&args.output))?;
                    format!(
                        "{:<5} {} {}{:<2} n={:<4} {:<12} batch={:<8} {:>10.4} ns  x{:<6.2} sd {:.3} {} res {:.1e} bad {} {}",
                        row.op,
                        row.dtype,
                        row.uplo.as_deref().unwrap_or("-"),
                        row.trans.as_deref().unwrap_or(""),
                        row.n,
                        sizes(&row),
                        row.batch,
                        row.ns_per_item,
                        row.times_floor(),
                        row.rel_sd,
                        if row.saturated { "sat" } else { "---" },
                        row.residual,
                        row.bad_items,
                        row.executed,
                    )
                }
                Err(error) => {
                    missing += 1;
                    format!("none  {:?} by {}: {error}", entry.cell, timed.family)
                }
            };
            print(&line)?;
        }
    }
    Ok(missing)
}

/// The sizes of a row beside its order, and the rate of a product.
fn sizes(row: &Row) -> String {
    match (row.m, row.k, row.tflops()) {
        (Some(m), Some(k), Some(rate)) => format!("m={m} k={k} {rate:.1} TF/s"),
        (None, Some(k), Some(rate)) => format!("k={k} {rate:.1} TF/s"),
        _ => format!("nrhs={}", row.nrhs.unwrap_or(0)),
    }
}

fn read_sweep(path: &Path) -> Result<Vec<sweep::Entry>> {
    let text = fs::read_to_string(path).map_err(CliError::reading(path))?;
    sweep::parse(&text).map_err(|e| CliError::Lab(format!("{}: {e}", path.display())))
}

/// Compile kernels ahead of time, for machines without NVRTC (`--bundle` or `BATCHLAS_BUNDLE` names the file there)
#[derive(Debug, Args)]
pub(crate) struct Aot {
    /// Architecture, such as `sm_90`
    #[arg(long)]
    arch: String,
    /// The bundle
    #[arg(short, long)]
    output: PathBuf,
    /// Orders whose kernels are wanted: what the tables choose for small and large batches of each operation; 1 to 32 if
    /// left out
    #[arg(long, value_delimiter = ',')]
    n: Vec<usize>,
    /// Instead, the kernels that the routes of a sweep file launch
    #[arg(long)]
    sweep: Option<PathBuf>,
    /// Multiprocessors of the device, which some launches depend on; those of a data-centre device if left out
    #[arg(long)]
    multiprocessors: Option<u32>,
    /// Compilers to run at once; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Only every Nth kernel, from the Ith (counted from 0), so that N processes share the work without repeating any
    #[arg(long, value_name = "I/N", value_parser = part, default_value = "0/1")]
    part: (usize, usize),
}

/// `I/N` with I < N.
fn part(text: &str) -> std::result::Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    numbers.filter(|(i, n)| i < n).ok_or_else(|| format!("{text} is not I/N with I below N, such as 0/16"))
}

/// Compiles a bundle; the number of kernels that were refused.
pub(crate) fn aot(args: &Aot) -> Result<usize> {
    let lab = |error: batchlas_kernels::Error| CliError::Lab(error.to_string());
    let arch: Arch = args.arch.parse().map_err(lab)?;
    let mut device = arch.device().ok_or_else(|| CliError::Lab(format!("{arch} is not known here")))?;
    device.compute_units = args.multiprocessors.unwrap_or(device.compute_units);
    let rehearsal = Context::rehearsing(device, Environment::process().clone())?;
    let entries = match &args.sweep {
        Some(path) => read_sweep(path)?,
        None if args.n.is_empty() => sweep::usual(1..=32),
        None => sweep::usual(args.n.iter().copied()),
    };
    let mut wanted: Vec<Kernel> = batchlas::common_kernels().collect();
    for Entry { cell, routes } in &entries {
        for route in routes {
            match kernels(&rehearsal, cell, route) {
                Ok(launched) => wanted.extend(launched),
                Err(error) => print(&format!("none: {cell:?} by {route}: {error}"))?,
            }
        }
    }
    wanted.sort_by(|a, b| (a.source.name, &a.entry).cmp(&(b.source.name, &b.entry)));
    wanted.dedup();
    let ((first, step), all) = (args.part, wanted.len());
    let wanted: Vec<Kernel> = wanted.into_iter().skip(first).step_by(step).collect();
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        given => given,
    };
    let count = wanted.len();
    let bar = indicatif::ProgressBar::new(count as u64);
    let compiled =
        bundle::compile(wanted, arch, threads, |done, _| bar.set_position(done as u64)).map_err(lab)?;
    bar.finish_and_clear();
    for refused in &compiled.refused {
        print(&format!("refused: {refused}"))?;
    }
    bundle::write(&args.output, &compiled.bytes).map_err(lab)?;
    print(&format!(
        "{}: {count} of {all} kernels, {} bytes, {} refused",
        args.output.display(),
        compiled.bytes.len(),
        compiled.refused.len()
    ))?;
    Ok(compiled.refused.len())
}
