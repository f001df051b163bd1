//! Batched triangular solve (`trsm`): `op(A) X = alpha B` or `X op(A) = alpha B` for every item of a batch, X over B.
//!
//! [`Trsm`] is the routed operation; it implements the seam [`PanelSolve`](batchlas_core::PanelSolve).
//!
//! # Contract
//! * All 24 cases of side, triangle, transposition and diagonal. Real `ConjTrans` is `Trans`.
//! * Only the triangle named by `uplo` is read; `Diag::Unit` never reads the diagonal.
//! * `alpha = 0` writes zeros and reads neither A nor B.
//! * A may be shared by the whole batch (stride 0). A and B must not overlap.
//! * A zero on the diagonal is not tested for: the item's result is then what IEEE division makes of it, and other
//!   items are not disturbed.
//! * No workspace.

mod problem;
mod route;
mod rows;

pub use problem::Problem;
pub use route::{Trsm, VOCABULARY};
