//! A simulated device: runs CUDA kernels from PTX on a CPU, without a GPU, under strict checks.
//!
//! ```
//! # use batchlas_sim::{Module, Options, SimDevice, DeviceConfig};
//! let ptx = "
//! .version 9.0
//! .target sm_90
//! .address_size 64
//! .visible .entry twice(.param .u64 twice_param_0)
//! {
//!     .reg .b32 %r<3>;
//!     .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [twice_param_0];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r2, [%rd3];
//!     shl.b32 %r2, %r2, 1;
//!     st.global.u32 [%rd3], %r2;
//!     ret;
//! }";
//! let module = Module::parse(ptx)?;
//! let mut device = SimDevice::new(DeviceConfig::default());
//! let x = device.alloc("x", 4 * 32)?;
//! device.write(x, &[1, 0, 0, 0].repeat(32))?;
//! let report = device.launch(&module, "twice", [1; 3], [32, 1, 1], 0, &x.to_le_bytes(), &Options::default())?;
//! assert!(report.is_clean(), "{report}");
//! assert_eq!(device.read(x + 4 * 31, 4)?, [2, 0, 0, 0]);
//! # Ok::<(), batchlas_sim::SimError>(())
//! ```
//!
//! How it works: [`ptx`] parses the text, a decoder turns an entry into an enum over register rows, and the
//! executor runs it warp by warp. Every access to memory is checked: bounds and alignment, initialisation,
//! the [`Permission`] that the host declared, and the order with respect to all other accesses. What is wrong comes
//! back as [`Finding`]s in the [`Report`], with the instruction, the source line, the thread and the element.
//!
//! # The memory model that is enforced
//!
//! Accesses are ordered by program order, by block barriers among the threads that they collect, by
//! `bar.warp.sync` among the lanes of its mask, and by an `mbarrier` from those that arrive to those that see its phase
//! end; by nothing else. This is stricter than the hardware: lanes
//! that run in lock step are not ordered; a shuffle, vote or `mma` orders no memory; fences, atomics and
//! release/acquire pairs order nothing; two blocks of one launch are never ordered; a warp operation is only complete when
//! its lanes are at the same instruction and none that its mask names has left. Strong accesses (atomic,
//! volatile, relaxed, acquire, release) do not race with each other. The data of `cp.async` arrives at the
//! `wait_group` of the thread that issued it, and no access may touch the destination before. Copies that an `mbarrier` tracks,
//! bulk copies among them, land after a wait has found nothing else missing, and are ordered before those only that see
//! the phase end.
//!
//! Blocks run one after the other, so a block that waits for another block in a loop exhausts its budget.

mod alu;
mod decode;
mod device;
mod error;
mod exec;
pub mod lint;
mod mem;
mod mma;
pub mod mutate;
pub mod ptx;
mod queue;
mod race;
mod report;
mod stats;

pub use device::{DeviceConfig, Options, Schedule, SimDevice};
pub use error::SimError;
pub use mem::{Layout, Permission};
pub use ptx::Module;
pub use queue::{Compile, Compiled, Findings, SimQueue};
pub use report::{Finding, FindingKind, Location, Report, Site, SiteCost, ThreadId};
pub use stats::{Class, Stats};
