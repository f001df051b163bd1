//! Batched Cholesky factorisation (`potrf`): `A = L L^H` or `A = U^H U` for every item of a batch of Hermitian positive
//! definite matrices, in place in the referenced triangle.
//!
//! Data flows one way: [`Potrf::factor`](batchlas_core::Factor::factor) condenses the view into a [`Problem`],
//! `route.rs` chooses a family for it, and the family runs. [`Potrf`] itself implements the seam
//! [`Factor`](batchlas_core::Factor), so a driver that needs a factorisation can be handed the routed operation or any single
//! implementation.
//!
//! # Contract
//! * The other triangle and the padding are neither read nor written.
//! * The imaginary part of the diagonal is ignored on input and zero on output.
//! * `info[b]` is 0, or the 1-based order of the first leading minor of item `b` whose pivot is not positive and
//!   finite: a NaN or an infinite pivot fails, so that success never hides one. It is always written.
//! * The referenced triangle of a failed item is unspecified and may hold non-finite values: `tiny` and `cta` leave the
//!   columns of the factor before the failing one and zeros from it on, `left` does so in tiles up to the failing pivot's
//!   and leaves the rest as it was but for a few zeros, `lanes` puts zeros on the diagonal where a pivot fails, a vendor
//!   arm something else. Every other item is bit-identical to what it would be alone.

pub mod blocked;
pub mod cta;
mod lanes;
pub mod left;
pub mod logdet;
pub mod lpanel;
mod operands;
pub mod potri;
mod problem;
mod route;
pub mod tiny;

pub use problem::Problem;
pub use route::{Potrf, VOCABULARY};
