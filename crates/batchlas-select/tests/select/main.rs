//! Tests of selection, on vocabularies shaped like those of the operations.

// A helper that cannot set up its test should panic with the line.
#![allow(clippy::unwrap_used)]

mod calls;
mod choice;
mod lints;
mod ops;
mod pins;
mod properties;
mod spellings;
mod tables;
mod trace;
