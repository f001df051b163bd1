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
//! * Division by the diagonal is multiplication by its reciprocal: one rounding more per solved row. A diagonal element
//!   whose reciprocal overflows (a subnormal one) counts as zero.
//! * No workspace.
//!
//! # Families
//! With `E = op(A)` on the left and `op(A)^T` on the right, every case is `E x = alpha b` for vectors b that are columns or
//! rows of B. Side, stored triangle and whether E is A or its transpose are compiled for, eight kernels per order and type
//! (`fused` tells them apart by strides);
//! conjugation, unit diagonal, alpha, leading dimensions, strides and pointer arrays are facts of a launch.
//!
//! | family | serves | a thread owns |
//! |---|---|---|
//! | [`cta`] | orders to 32, any number of right-hand sides | whole right-hand sides |
//! | [`sg_left`] | the same on the left, a warp per slice of columns | whole right-hand sides |
//! | [`few`] | at most 8 right-hand sides, orders to 128 (c64: 64) | rows of all right-hand sides, or of its warp's share |
//! | [`fused`] | orders to 128 (c64: 88), any number of right-hand sides | blocks of rows of a tile, on tensor cores |
//! | `blocked` | any order, over a product and the families above | |
//! | `vendor` | what its library serves | |

mod blocked;
pub mod cta;
pub mod few;
pub mod fused;
mod operands;
mod problem;
mod route;
mod rows;
pub mod sg_left;

pub use blocked::Blocks;
pub use problem::Problem;
pub use route::{Trsm, VOCABULARY};
