//! Device runtime of batchlas: library locator, NVRTC, kernel cache, residency gate and CUDA queue.

mod arch;
pub mod cubin;
mod error;
pub mod headers;
pub mod locate;
pub mod nvrtc;
pub mod ptxas;
pub mod residency;

pub use arch::{Arch, Multiprocessor};
pub use error::Error;
