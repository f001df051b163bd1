//! Flat kernel selection: which family runs an operation, and a record of what did.
//!
//! # Model
//!
//! An operation owns a [`Vocabulary`]: its candidate [`Spelling`]s in tie-break order, each native or vendor, the fields
//! of its selection [`Key`], and what to try when all else fails. Speed lives only in [`Table`]s, generated from
//! measurements; correctness lives only in the operation's `can_run`. [`choose()`] joins them:
//!
//! 1. the row nearest to the key, by the sum of `weight * |log2 ratio|` over the key's log fields;
//! 2. the first candidate of its ranking that can run, a family's own defaults standing in for knobs that cannot;
//! 3. failing that, the vocabulary's last resort, then its order.
//!
//! There is no other rule: no thresholds, no nested routers, no per-operation exceptions. What an operation cannot say
//! in `can_run` it must say in a table.
//!
//! A [`Pin`] overrides this, from the caller or from `BATCHLAS_<OP>_ROUTE`. Naming a family is a demand: it runs or the
//! call fails. Naming a class (`native`, `vendor`) is a preference: if nothing of it runs, the choice is automatic and
//! says so. An operation without vendor families therefore answers `vendor` with a warning.
//!
//! A device without tables borrows those of the closest compute capability and warns; a CPU never does.
//! `BATCHLAS_TUNED_DIR` replaces all tables without a rebuild.
//!
//! Workspace sizing and running call the same [`choose()`] with the same arguments; it depends on nothing else, so they
//! agree. What ran is a separate fact, recorded by [`Observer`] and compared between runs by [`coverage::route_diff`].
//!
//! # Invariants
//!
//! - Nothing is chosen that `can_run` refuses, and something is chosen whenever a candidate that the pin admits runs.
//! - Equal inputs give equal choices: ties go to the first row in file order.
//! - A malformed table, pin or key is an error that names the file and line, or lists what is valid. None is skipped.
//! - This crate knows no operation, no device and no view; the process environment is read in [`Environment::process`]
//!   alone.

mod choose;
mod contract;
pub mod coverage;
mod device;
mod environment;
mod error;
mod key;
pub mod lint;
mod pin;
mod selector;
mod spelling;
mod table;
mod tables;
mod trace;
mod vocabulary;

pub use choose::{Choice, Problem, Ranking, Refusal, Warning, Why, choose};
pub use contract::{Call, Route};
pub use device::Device;
pub use environment::Environment;
pub use error::SelectError;
pub use key::{ExactField, Key, LogField};
pub use pin::{Asked, AskedBy, Pin};
pub use selector::Selector;
pub use spelling::{Knob, MAX_KNOBS, Spelling, Value, Values};
pub use table::{FORMAT, Header, Row, Source, Table};
pub use tables::{Found, Tables};
pub use trace::{Executed, Observer, Recorder, Scope};
pub use vocabulary::{Candidate, Class, Retired, Vocabulary};
