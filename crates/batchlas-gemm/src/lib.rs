//! Batched matrix product (`gemm`) and Hermitian rank-k update (`herk`; `syrk` for real types).
//!
//! * `gemm`: `C = alpha op(A) op(B) + beta C`.
//! * `herk`: `C = alpha A A^H + beta C` or `C = alpha A^H A + beta C`, in one triangle of C.
//!
//! [`Gemm`] is the routed pair of operations; it implements the seam [`TrailingUpdate`](batchlas_core::TrailingUpdate).
//!
//! | family | what it is | serves |
//! |---|---|---|
//! | [`tile`] | fused multiply-adds on register tiles, operands staged by asynchronous copies | every type and size on a GPU |
//! | [`mma`] | the same with FP64 tensor cores | f64 and c64 from `sm_80` on |
//! | `vendor` | cuBLAS or faer | what the injected arm serves |
//!
//! # Contract
//! * `beta = 0` never reads C; `alpha = 0` reads neither A nor B. Real `ConjTrans` is `Trans`.
//! * `herk` neither reads nor writes the other triangle; the imaginary part of C's diagonal is ignored and written as 0.
//! * A and B may be shared by the whole batch (stride 0). C must not overlap them.
//! * An inner dimension of 0 scales C by `beta`. No workspace.

mod family;
pub mod mma;
mod problem;
mod product;
mod route;
pub mod tile;

pub use family::{Family, Tiling, kernels};
pub use problem::{GemmProblem, HerkProblem};
pub use product::Variant;
pub use route::{GEMM, Gemm, HERK};
