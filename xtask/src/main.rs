//! Automation for people who work on batchlas. `cargo xtask` lists the verbs.
#![allow(clippy::print_stdout)]

mod ci;
mod cost;
mod probe;
mod races;
mod report;
mod setup;
mod simulate;
mod tables;

use std::process::ExitCode;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const USAGE: &str = "\
cargo xtask <verb>

  ci      formatting, lints, tests, doctests, documentation, residency, races, the main job
  setup   fetch NVRTC into target/cuda where it is not found; --check fetches nothing
  probe   compile every kernel and hold it against its promise; --all, --arch sm_90,.., --kernels
  races   break every barrier of every kernel in the simulator, and plant known defects; --all, [OP:FAMILY..]
  cost    what a kernel costs, from the simulator: cost potrf:tiny --n 32 --dtype f32; cost --help
  tables  regenerate tuned/*.toml from the ledgers in tuned/ledger
  report  regenerate docs/performance.md, its charts and the figures of README.md from tuned/ledger";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.split_first() {
        Some((&"ci", rest)) => ci::run(rest),
        Some((&"setup", rest)) => setup::run(rest),
        Some((&"tables", rest)) => tables::run(rest),
        Some((&"report", rest)) => report::run(rest),
        Some((&"probe", rest)) => probe::run(rest),
        Some((&"races", rest)) => races::run(rest),
        Some((&"cost", rest)) => cost::run(rest),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
