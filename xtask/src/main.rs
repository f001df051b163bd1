//! Automation for people who work on batchlas: `cargo xtask ci`.

fn main() {}
