//! Vendor arms: the libraries that operations can hand a batch over to.
//!
//! * [`FaerArm`]: faer on a CPU, one item per task.
//! * [`CudaArm`]: cuSOLVER and cuBLAS on a GPU, on the caller's stream.
//!
//! An arm implements the seams of `batchlas-core` ([`Factor`](batchlas_core::Factor),
//! [`PanelSolve`](batchlas_core::PanelSolve), [`TrailingUpdate`](batchlas_core::TrailingUpdate)) under the same contract
//! as every family: the other triangle is neither read nor written, `info` is always written, empty problems return.

mod cuda;
mod faer_arm;

pub use cuda::{CudaArm, kernels};
pub use faer_arm::{Element, FaerArm};
