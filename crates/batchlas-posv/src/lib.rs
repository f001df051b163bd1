//! Batched solve of Hermitian positive definite systems: `posv` factors `A` and solves `A X = B`, `potrs` solves with a
//! factor that is already there.
//!
//! [`Posv`] is the routed pair of operations. What it needs from factorisation and triangular solve arrives through
//! seams.
//!
//! # Contract
//! * On return A holds its Cholesky factor in the triangle `uplo` and B holds X, any number of right-hand sides.
//! * `info` per item as for `potrf`. `nrhs = 0` still factors.
//! * A failed item's B is left bit-unchanged; its A is unspecified in the referenced triangle. Its neighbours are
//!   bit-identical to a run without it.
//! * A heterogeneous batch is refused before any choice is made, whatever is pinned.

mod blocked;
mod lanes;
mod problem;
mod quench;
mod route;

pub use problem::Problem;
pub use quench::kernels;
pub use route::{POSV, POTRS, Posv};
