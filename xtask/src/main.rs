//! Automation for people who work on batchlas. `cargo xtask` lists the verbs.
#![allow(clippy::print_stdout)]

mod ci;
mod probe;
mod setup;
mod tables;

use std::process::ExitCode;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const USAGE: &str = "\
cargo xtask <verb>

  ci      formatting, lints, tests, doctests, documentation, residency, the main job
  setup   fetch NVRTC into target/cuda where it is not found; --check fetches nothing
  probe   compile every kernel and hold it against its promise; --all, --arch sm_90,.., --kernels
  tables  regenerate tuned/*.toml from the ledgers in tuned/ledger";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.split_first() {
        Some((&"ci", rest)) => ci::run(rest),
        Some((&"setup", rest)) => setup::run(rest),
        Some((&"tables", rest)) => tables::run(rest),
        Some((&"probe", rest)) => probe::run(rest),
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
