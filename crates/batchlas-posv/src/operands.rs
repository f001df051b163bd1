//! Operands as device code takes them, and the launch that `tiny` and `cta` share.
#![allow(unsafe_code)]

use batchlas_core::{ArgumentError, InfoMut, Kernel, Launch, MatBatch, MatBatchMut, Queue, Result, Scalar};
use bytemuck::{Pod, Zeroable};

/// A batch of matrices, distances in bytes (`Operand` of `batchlas/operand.cuh`).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Operand {
    address: u64,
    stride: u64,
    offset: u64,
    ld: u64,
}

/// Stride that says that an address is that of a table (`TABLE` of the text).
const TABLE: u64 = u64::MAX;

impl Operand {
    pub(crate) fn new<T: Scalar>(view: MatBatch<'_, T>) -> Operand {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = view.address();
        Operand {
            address,
            stride: view.stride().map_or(TABLE, |stride| stride as u64 * bytes),
            offset: offset as u64 * bytes,
            ld: view.ld() as u64 * bytes,
        }
    }

    /// Whether every column of every item starts on a 16-byte boundary.
    pub(crate) fn is_aligned(&self) -> bool {
        self.stride != TABLE && [self.address, self.stride, self.ld].iter().all(|x| x.is_multiple_of(16))
    }
}

/// The kernels' one parameter (`Systems` of `batchlas/systems.cuh`).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Systems {
    a: Operand,
    b: Operand,
    n: u64,
    nrhs: u64,
    batch: u64,
    info: u64,
}

/// Enqueues `blocks` work-groups of a kernel over a batch of systems.
///
/// # Errors
/// More work-groups than a grid has; the queue's own.
///
/// # Safety
/// The kernel takes a `Systems`, and touches nothing but A, B and the statuses of the items that it says.
pub(crate) unsafe fn launch<T: Scalar>(
    queue: &dyn Queue,
    kernel: &Kernel,
    dynamic_shared: u32,
    blocks: u64,
    a: MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    info: &InfoMut<'_>,
) -> Result<()> {
    let grid = i32::try_from(blocks).map_err(|_| ArgumentError::TooLarge {
        operand: "B",
        rows: b.rows(),
        cols: b.cols(),
        ld: b.ld(),
        stride: b.stride().unwrap_or(0),
        batch: b.batch(),
    })?;
    let args = Systems {
        a: Operand::new(a),
        b: Operand::new(b.rb()),
        n: b.rows() as u64,
        nrhs: b.cols() as u64,
        batch: b.batch() as u64,
        info: info.address(),
    };
    let launch =
        Launch { kernel, grid: grid.unsigned_abs(), dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: the addresses are those of views and of a span that are borrowed for work on this queue, of the sizes that
    // the arguments say; the rest is the caller's promise.
    unsafe { queue.launch(&launch)? };
    Ok(())
}
