//! Device runtime of batchlas: from kernel text to verified machine code.
//!
//! | module | what it does |
//! |---|---|
//! | [`locate`] | finds the CUDA libraries and keeps them loaded |
//! | [`nvrtc`] | compiles kernels in memory, to a cubin or to PTX |
//! | [`ptxas`], [`cubin`] | read what the compiler says and makes: registers, frame, spills, shared memory, code size |
//! | [`residency`] | holds that against what the kernel promises |
//! | [`probe`] | does so for every kernel of the project and every architecture, without a GPU |
//! | [`cache`], [`bundle`], [`store`] | keep compiled kernels: on disk, ahead of time, in the process |
//! | [`headers`] | the shared device headers |
//! | [`cuda`] | runs them: queues over CUDA streams, events, graphs, and what of CUDA this machine has |
//!
//! Nothing here needs a CUDA toolkit to build, or a GPU to compile kernels. A missing library is an error that lists
//! where it was looked for.

mod arch;
pub mod bundle;
pub mod cache;
pub mod cubin;
pub mod cuda;
mod error;
pub mod headers;
mod image;
mod key;
pub mod locate;
pub mod nvrtc;
mod parallel;
pub mod probe;
pub mod ptxas;
pub mod residency;
pub mod store;

pub use arch::{Arch, Multiprocessor};
pub use error::Error;
pub use image::Image;
pub use key::{Key, code_digest};
