//! CPU kernels: one lane of a vector is one item of the batch, or one right-hand side.
//!
//! ```text
//! isa      which instruction sets this CPU has; the one dispatch
//! vector   what a kernel may ask of a vector; pairs; portable arrays     x86  AVX-512, AVX-512VL, AVX2
//! element  real and complex elements over vectors
//! plan     which reals of an item are wanted and where they go: packing by masked loads and transposes in registers
//! family   knobs
//! cholesky factorisation and solve, lane = item
//! rows     triangular solve, lane = right-hand side
//! ```
//!
//! A kernel is written once over [`vector`](self) and compiled for every instruction set. It works on a run of items on
//! the calling thread; the operation crates own families, choice and the spreading over a pool. The crate is apart from
//! them because `potrf` and `posv` share the factorisation, and an operation must not name a sibling.

mod cholesky;
mod element;
mod family;
mod isa;
mod items;
mod plan;
mod rows;
mod scratch;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cholesky::{Cholesky, Keep};
pub use family::{GRAIN_BYTES, ISA, LANES, Lanes, MAX_N, isa, pool};
pub use isa::Isa;
pub use rows::Rows;
