//! Batched dense linear algebra: one call solves them all, with a status per item.
//!
//! ```
//! use batchlas::{Context, PosvOptions};
//!
//! # fn main() -> batchlas::Result<()> {
//! let ctx = Context::new()?; // a GPU if one is usable, else the CPU
//! let (n, nrhs, batch) = (2, 1, 3);
//! let a = [4.0f32, 1.0, 1.0, 3.0].repeat(batch); // column-major items, one after the other
//! let b = [1.0f32, 2.0].repeat(batch);
//!
//! let (mut a, mut x) = (ctx.upload(&a)?, ctx.upload(&b)?);
//! let pending = ctx.posv(
//!     a.view_mut(n, n, n, n * n, batch)?,
//!     x.view_mut(n, nrhs, n, n * nrhs, batch)?,
//!     &PosvOptions::default(),
//! )?;
//! let info = pending.wait()?;
//! assert!(info.ok(), "first failure: {:?}", info.first_failure());
//! assert!((ctx.download(&x)?[1] - 7.0 / 11.0).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! Every operation comes in two tiers. `posv` draws `info` and workspace from the context's pool; `posv_in` takes the
//! caller's, which [`Context::posv_workspace`] sizes, and so neither allocates nor waits.
//!
//! What is promised of every item is in the documentation of the operations' crates: [`potrf`](batchlas_potrf),
//! [`posv`](batchlas_posv), [`trsm`](batchlas_trsm), [`gemm`](batchlas_gemm), [`mmq`](batchlas_mmq).

/// The README's example compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod context;
mod info;
mod mmq;
mod operations;
mod options;
mod prepare;
mod rehearsal;

pub use batchlas_core::{
    ArgumentError, Buffer, Device, Diag, Dtype, Error, InfoMut, Kernel, MatBatch, MatBatchMut, Place,
    PointerTable, PointerTableMut, Queue, Ran, Real, RealOf, Result, Scalar, Scattered, Side, Trans, Uplo,
    WORKSPACE_ALIGN, WorkspaceMut,
};
pub use batchlas_kernels::code_digest;
pub use batchlas_kernels::cuda::Graph;
pub use batchlas_mmq::{Arithmetic, Panel, Q4kMatrix, gguf};
pub use batchlas_posv::FactorOutput;
pub use batchlas_posv::jitter::Jitter;
pub use batchlas_select::{Environment, Executed, Recorder};
pub use batchlas_vendor::Element;
pub use context::{Context, TABLES, VOCABULARIES};
pub use info::{Info, Jittered, Pending};
pub use mmq::{MmqError, MmqOptions};
pub use options::{
    GemmOptions, HerkOptions, PosvOptions, PotrfOptions, PotriOptions, PotrsOptions, TrsmOptions,
};
pub use prepare::common_kernels;
