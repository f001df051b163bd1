//! Batched solve of Hermitian positive definite systems: `posv` factors `A` and solves `A X = B`, `potrs` solves with a
//! factor that is already there.
//!
//! [`Posv`] is the routed pair of operations. What it needs from factorisation and triangular solve arrives through
//! seams.
//!
//! Families: [`tiny`] fuses factorisation and solves for small orders, [`cta`] fuses the two solves after a routed
//! factorisation, `blocked` composes three routed operations. [`mixed`] solves f64 and c64 by way of half the precision. [`jitter`] solves what
//! failed once more, with a shifted diagonal.
//!
//! # Contract
//! * On return A holds its Cholesky factor in the triangle `uplo` and B holds X, any number of right-hand sides.
//! * `info` per item as for `potrf`. `nrhs = 0` still factors.
//! * A failed item's B is left bit-unchanged; its A is unspecified in the referenced triangle. Its neighbours are
//!   bit-identical to a run without it.
//! * A heterogeneous batch is refused before any choice is made, whatever is pinned.

mod blocked;
pub mod cta;
pub mod jitter;
mod lanes;
pub mod mixed;
mod operands;
mod problem;
mod quench;
mod route;
pub mod tiny;

pub use problem::{FactorOutput, Problem};
pub use quench::kernels;
pub use route::{POSV, POTRS, Posv};
