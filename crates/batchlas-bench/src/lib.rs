//! Conformance corpus and measurement harness.
//!
//! * [`corpus`]: the cases, in one TOML file, independent of any implementation.
//! * [`conform`]: runs every case against every family that a context has, each forced by its spelling.
//! * [`verify`]: what is checked, as pure functions of the data before and after, in higher precision.
//! * [`measure`]: times problems by interleaved arms, with residuals; [`floor`] is what they are held against.
//! * [`tune`]: ranks the spellings of every cell of a grid, to be killed and resumed at will.
//!   [`tables`] makes of its ledger what selection reads.
//! * [`operands`]: batches in every layout, surrounded by poison.

pub mod conform;
pub mod corpus;
pub mod exact;
pub mod floor;
pub mod large;
pub mod matrices;
pub mod measure;
pub mod once;
pub mod operands;
pub mod sweep;
pub mod tables;
pub mod tune;
pub mod verify;
