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
//! Two accesses to the same bytes of global or shared memory race if at least one writes, they are not both strong
//! (atomic, volatile, relaxed, acquire, release), and neither happened before the other. Happened-before is the
//! transitive closure of:
//!
//! | edge | from | to |
//! |---|---|---|
//! | program order | an access of a thread | its later accesses |
//! | `bar.sync`, `barrier.sync` | what the threads that it collects did | what those that waited do; `bar.arrive` only tells |
//! | `bar.warp.sync` | what the lanes of its mask did | what they do |
//! | `mbarrier` | what those that arrived did, and the copies that it tracks | what those that saw the phase end do |
//! | `cp.async` | the copy | what its thread does after its `wait_group`; before, nothing may touch the destination |
//! | a launch | all of it | the next launch |
//!
//! Knowledge is handed on: a thread that learns something from one barrier tells it at the next. What a thread did is
//! not ordered by barriers that come after it left.
//!
//! ## Where this is stricter than the hardware
//!
//! The PTX memory model (PTX ISA, "Memory Consistency Model") has the same data races at its core: conflicting accesses
//! that are not both morally strong and not ordered by causality are undefined behaviour there too. It orders more:
//!
//! * *Lock step.* On a device the lanes of a warp mostly run together, and code that relies on it mostly works. The
//!   model promises nothing of the kind, nor does this crate: an exchange through memory inside a warp needs
//!   `bar.warp.sync`, and deleting it is reported although no device would show it.
//! * *Shuffles, votes, `match`, `redux`, `mma`* order no memory, in PTX or here, although they make lanes meet.
//! * *Fences and atomics.* PTX builds causality from release and acquire patterns (`st.release` or `fence; st.relaxed`,
//!   seen by `ld.acquire` or `ld.relaxed; fence`). Here fences and strong accesses order nothing else; strong accesses
//!   only do not race with each other. A flag in memory that guards plain data is reported.
//! * *Blocks of one launch* are never ordered, not even through atomics or cluster barriers.
//! * *Scopes.* Strong accesses count as morally strong whatever their scopes, and mixed sizes are compared by bytes: there
//!   this is laxer than PTX, which asks for scopes that include each other and for complete overlap.
//! * *Meeting.* `bar.sync` in its aligned form must be reached by a whole warp at one instruction, and a warp
//!   operation is complete only when all lanes that its mask names are at the same instruction and none of them has
//!   left. A device may get away with either.
//! * *Uninitialised memory* is an error to read, in shared and local memory and in fresh allocations.
//!
//! # The limits of the method
//!
//! A race is found when both accesses are executed by the launch that is made, whatever the schedule: happens-before
//! does not depend on who was faster, so one run covers all interleavings of the same control flow. What no launch
//! executes is not checked: sizes must reach every barrier in every role. Control flow that depends on a race may
//! hide others; the schedules ([`Schedule`]) run warps and lanes in other orders for that, and show results that depend
//! on the order. [`mutate`] measures what a set of launches proves: a synchronisation whose loss nobody sees
//! is either superfluous or not tested.
//!
//! Blocks run one after the other, so a block that waits for another in a loop exhausts its budget. Only
//! two readers of other blocks are remembered for a byte: enough to prove a race, not to list all.
//! Caches, the reordering of strong accesses and timing are not simulated: values of racing accesses are those of some
//! interleaving. The text is PTX, before the assembler: what it merges, narrows or moves is not seen, and [`lint`] tells
//! where it may choose the rounding.
//!
//! # What agrees with a device
//!
//! Measured on an H200: results bit for bit for IEEE arithmetic, shuffles, `cp.async`, and `mma` in f64 (8x8x4, 16x8x8,
//! 16x8x16) and s8; products of bf16 and tf32 differ by a few ulps of the partial sums, since the device rounds inside.
//! Approximate functions are computed in double precision here and are within their documented error there. The
//! shared wavefronts, bank conflicts and global sectors of [`Stats`] equal the device's counters, unless the assembler
//! merged accesses.

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
