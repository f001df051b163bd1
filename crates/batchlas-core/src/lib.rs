//! Contracts of batchlas: what a batch, a device, a queue, a workspace and an operation are.
//!
//! Data flows one way through every operation of this workspace:
//!
//! ```text
//! view  ->  problem  ->  choice  ->  launch
//! ```
//!
//! A caller describes its operands as *views* ([`MatBatch`], [`MatBatchMut`]): where the numbers lie, never a copy
//! of them. An operation validates the views ([`validate`]) and condenses them into its own problem description;
//! selection turns that into a choice of kernel family; the family enqueues work on a [`Queue`]. What a blocked
//! driver needs from a sibling operation arrives as a trait object, a [*seam*](seam).
//!
//! This crate knows nothing of CUDA, of any operation and of any library: it is the vocabulary they share.

pub mod arena;
pub mod cpu;
pub mod device;
pub mod enums;
pub mod error;
pub mod info;
pub mod kernel;
pub mod queue;
pub mod rehearsal;
pub mod scalar;
pub mod seam;
pub mod split;
pub mod validate;
pub mod view;

pub use arena::{Arena, Chunk, WORKSPACE_ALIGN, WorkspaceMut};
pub use cpu::CpuQueue;
pub use device::{Device, Place};
pub use enums::{Diag, Side, Trans, Uplo};
pub use error::{ArgumentError, Error, QueueError, Result};
pub use info::InfoMut;
pub use kernel::{Kernel, KernelSource, Launch, Promise};
pub use queue::{Buffer, Event, Memory, Queue, QueueMemory, Scattered};
pub use rehearsal::Rehearsal;
pub use scalar::{Dtype, Real, RealOf, Scalar};
pub use seam::{Factor, PanelSolve, Ran, TrailingUpdate};
pub use view::{Extent, ItemMut, ItemRef, MatBatch, MatBatchMut, PointerTable, PointerTableMut};
