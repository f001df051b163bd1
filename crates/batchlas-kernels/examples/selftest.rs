//! Runs the checks of the runtime on the device 0: `cargo run --release -p batchlas-kernels --example selftest`.
//! An argument runs only the checks whose names contain it.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use batchlas_kernels::cuda::selftest;

fn main() -> ExitCode {
    if let Some(outcome) = selftest::child() {
        println!("{}", outcome.as_ref().unwrap_or_else(|error| error));
        return ExitCode::from(u8::from(outcome.is_err()));
    }
    let only = std::env::args().nth(1).unwrap_or_default();
    let mut failed = 0;
    for (name, check) in selftest::all().iter().filter(|(name, _)| name.contains(&only)) {
        match check() {
            Ok(figure) => println!("ok    {name}: {figure}"),
            Err(error) => {
                failed += 1;
                println!("FAIL  {name}: {error}");
            }
        }
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
