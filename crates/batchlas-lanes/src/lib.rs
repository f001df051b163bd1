//! CPU kernels: one lane of a vector is one item of the batch, or one right-hand side.
//!
//! ```text
//! isa      which instruction sets this CPU has; the one dispatch
//! vector   what a kernel may ask of a vector; portable arrays     x86  AVX-512, AVX-512VL, AVX2
//! element  real and complex elements over vectors
//! plan     which reals of an item are wanted and where they go: packing by masked loads and transposes in registers
//! family   knobs
//! cholesky factorisation and solve, lane = item
//! triangular  the 24 cases of a triangular solve as one recurrence
//! rows        it, lane = right-hand side                  few    it, lanes along the triangle, for few right-hand sides
//! lane        real and complex elements in those lanes
//! substitution  it, lane = item, over the panels of a factor     sweep  substitution over panels
//! ```
//!
//! A kernel is written once over [`vector`](self) and compiled for every instruction set. It works on a run of items on
//! the calling thread; the operation crates own families, choice and the spreading over a pool. The crate is apart from
//! them because `potrf` and `posv` share the factorisation, and an operation must not name a sibling.

mod cholesky;
mod element;
mod family;
mod few;
mod isa;
mod items;
mod lane;
mod plan;
mod rows;
mod scratch;
mod substitution;
mod sweep;
mod triangular;
mod vector;
// Unit tests are of plans and names; the kernels of x86 are tested from outside, and compiled once.
#[cfg(all(target_arch = "x86_64", not(test)))]
mod x86;

pub use cholesky::{Cholesky, Keep};
pub use family::{GRAIN_BYTES, ISA, LANES, MAX_N, isa, pool};
pub use isa::Isa;
pub use rows::Rows;
pub use substitution::Substitution;
pub use triangular::Case;
