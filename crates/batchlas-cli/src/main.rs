//! The `batchlas` program: factor and solve batches of matrices in NumPy files.
//!
//! | module | what it does |
//! |---|---|
//! | [`npy`] | `.npy` files as streams of column-major matrices |
//! | [`ops`] | the operations on one chunk, and residuals |
//! | [`run`] | reads, computes and writes chunk by chunk |
//! | [`report`] | the summary, for people or as JSON |
//! | [`devices`] | makes the context; says what was found |
//! | [`lab`] | tests and measurements on a GPU machine, ahead-of-time bundles |
//! | [`error`] | what ends a run early |

mod devices;
mod error;
mod lab;
mod mmq;
mod npy;
mod ops;
mod report;
mod run;
mod tune;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use batchlas::{Diag, Jitter, Side, Trans, Uplo};
use clap::{Args, Parser, Subcommand};
use num_complex::Complex;
use tracing_subscriber::EnvFilter;

use crate::devices::DeviceArg;
use crate::error::{CliError, Result};
use crate::ops::Operation;
use crate::report::Report;
use crate::run::Job;

/// Some items failed; results were written.
const SOME_FAILED: u8 = 1;
/// The input or the arguments were unusable; nothing was written. Also what clap exits with.
const BAD_INPUT: u8 = 2;

const AFTER_HELP: &str = "\
Arrays are .npy files of float32, float64, complex64 or complex128, in C or Fortran order and either endianness. Item b \
is the matrix A[b, :, :], and --uplo names a triangle of it as NumPy indexes it; the other triangle is not read. \
Outputs are written in C order. Files may be larger than memory. A Fortran-order file has the batch index fastest: it \
is read by strips, more slowly for matrices of large order.

An item that cannot be factored (its info is the 1-based order of the first leading minor that is not positive) does not \
disturb the others. It is NaN in the output. With posv --jitter such an item is solved as A + s I instead, with the \
smallest shift s of a growing sequence that makes it positive definite; the report names the shifts, and --check is \
then about A + s I.

--check reports the worst relative residual over the items that did not fail, in Frobenius norms:
  posv   |A X - B| / (|A| |X|)
  trsm   |op(A) X - alpha B| / (|A| |X|), or with X op(A)
  potrf  |A - L L^H| / |A|, or with U^H U

Exit status: 0 if every item succeeded, 1 if some failed (the output is written), 2 if the input or the arguments were \
unusable (the output is left as it was).";

/// Batched dense linear algebra on NumPy files.
#[derive(Debug, Parser)]
#[command(name = "batchlas", version, after_long_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Solve A X = B, A Hermitian positive definite
    #[command(after_long_help = AFTER_HELP)]
    Posv {
        /// A, of shape (batch, n, n)
        a: PathBuf,
        /// B, of shape (batch, n, nrhs) or (batch, n)
        b: PathBuf,
        /// Triangle of A that is read: lower or upper
        #[arg(long, default_value = "lower")]
        uplo: Uplo,
        /// Solve items that are not positive definite once more, with growing shifts on the diagonal, up to LIMIT times
        /// their largest diagonal element
        #[arg(long, value_name = "LIMIT", num_args = 0..=1, default_missing_value = "1e-3")]
        jitter: Option<f64>,
        #[command(flatten)]
        common: Common,
    },
    /// Cholesky factor of A: L of A = L L^H, or U of A = U^H U; the other triangle is written as zeros
    #[command(after_long_help = AFTER_HELP)]
    Potrf {
        /// A, of shape (batch, n, n)
        a: PathBuf,
        /// Triangle of A that is read, and that holds the factor: lower or upper
        #[arg(long, default_value = "lower")]
        uplo: Uplo,
        #[command(flatten)]
        common: Common,
    },
    /// Solve op(A) X = alpha B or X op(A) = alpha B, A triangular; a zero or NaN on the diagonal fails the item
    #[command(after_long_help = AFTER_HELP)]
    Trsm {
        /// A, of shape (batch, n, n)
        a: PathBuf,
        /// B, of shape (batch, n, nrhs) or (batch, n); for --side right (batch, m, n)
        b: PathBuf,
        /// Side of X that A stands on: left or right
        #[arg(long, default_value = "left")]
        side: Side,
        /// Triangle of A: lower or upper
        #[arg(long, default_value = "lower")]
        uplo: Uplo,
        /// op(A): n for A, t for A^T, c for A^H
        #[arg(long, default_value = "n")]
        trans: Trans,
        /// unit if the diagonal is one and not read, else nonunit
        #[arg(long, default_value = "nonunit")]
        diag: Diag,
        /// Factor of B, such as 2 or 1.5-0.5i
        #[arg(long, default_value = "1", allow_hyphen_values = true)]
        alpha: Complex<f64>,
        #[command(flatten)]
        common: Common,
    },
    Mmq(mmq::MmqArgs),
    GpuTest(lab::GpuTest),
    Bench(lab::Bench),
    Aot(lab::Aot),
    Tune(tune::Tune),
    Tables(tune::Tables),
    /// Say what was found, and where a GPU or a library is not usable, why
    Devices {
        /// Threads of the CPU; 0 means one per core
        #[arg(long, default_value_t = 0, value_parser = threads)]
        threads: usize,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// File to write the result to; it appears when the run is complete, in place of what was there
    #[arg(short, long)]
    output: PathBuf,
    /// Where to compute: auto, cpu or cuda:N
    #[arg(long, default_value_t = DeviceArg::Auto)]
    device: DeviceArg,
    /// Threads of the CPU; 0 means one per core
    #[arg(long, default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Kernels that `batchlas aot` compiled, for a CUDA device without NVRTC
    #[arg(long)]
    bundle: Option<PathBuf>,
    /// Compute the worst residual
    #[arg(long)]
    check: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// Kernel family to use instead of the one that the tables choose, such as vendor or blocked
    #[arg(long)]
    route: Option<String>,
}

/// A number of threads that a machine could have.
fn threads(text: &str) -> Result<usize, String> {
    const MOST: usize = 4096;
    text.parse().ok().filter(|&n| n <= MOST).ok_or_else(|| format!("a number from 0 to {MOST} is needed"))
}

fn main() -> ExitCode {
    if let Some(outcome) = batchlas_kernels::cuda::selftest::child() {
        let _ = writeln!(io::stdout(), "{}", outcome.as_deref().unwrap_or_else(|why| why));
        return if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Warnings (a borrowed table, a cache that cannot be written) go to stderr; BATCHLAS_LOG=info shows compiles too.
    let filter = EnvFilter::try_from_env("BATCHLAS_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time().init();
    match execute(Cli::parse().command) {
        Ok(failed) if failed > 0 => ExitCode::from(SOME_FAILED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be reading; the status says it too.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Runs a command and returns how many items failed.
fn execute(command: Command) -> Result<usize> {
    let (operation, a, b, common) = match command {
        Command::Posv { a, b, uplo, jitter, common } => {
            let jitter = jitter.map(|limit| Jitter { limit, ..Jitter::default() });
            (Operation::Posv { uplo, jitter }, a, Some(b), common)
        }
        Command::Potrf { a, uplo, common } => (Operation::Potrf { uplo }, a, None, common),
        Command::Trsm { a, b, side, uplo, trans, diag, alpha, common } => {
            (Operation::Trsm { side, uplo, trans, diag, alpha }, a, Some(b), common)
        }
        Command::Mmq(args) => return mmq::mmq(&args),
        Command::GpuTest(args) => return lab::gpu_test(&args),
        Command::Bench(args) => return lab::bench(&args),
        Command::Aot(args) => return lab::aot(&args),
        Command::Tune(args) => return tune::tune(&args),
        Command::Tables(args) => return tune::tables(&args),
        Command::Devices { threads } => {
            print(&devices::describe(threads)?)?;
            return Ok(0);
        }
    };
    let Common { output, device, threads, bundle, check, json, route } = common;
    let report = Job { operation, a, b, output, route, check }.run(&devices::context(
        device,
        threads,
        bundle.as_slice(),
    )?)?;
    print(&render(&report, json)?)?;
    Ok(report.failed)
}

fn render(report: &Report, json: bool) -> Result<String> {
    if json {
        serde_json::to_string(report).map_err(|error| CliError::Stdout(error.into()))
    } else {
        Ok(report.to_string())
    }
}

/// Prints a line, content that nobody reads it (`batchlas devices | head -1`).
fn print(text: &str) -> Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Stdout(error)),
        _ => Ok(()),
    }
}
