//! Decodes the PTX files named on the command line and says what the simulator does not know.

#![allow(clippy::print_stdout)]

use batchlas_sim::Module;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let module = Module::parse(&std::fs::read_to_string(&path)?);
        match module.and_then(|m| m.check().map(|()| m.entries().len())) {
            Ok(entries) => println!("{path}: {entries} entries"),
            Err(error) => println!("{path}: {error}"),
        }
    }
    Ok(())
}
