//! What the kernels of this crate share: the argument block and the launch.
#![allow(unsafe_code)]

use batchlas_core::{ArgumentError, InfoMut, Kernel, Launch, MatBatch, MatBatchMut, Queue, Result, Scalar};
use bytemuck::{Pod, Zeroable};

/// The kernels' one parameter (`FactorArgs` of the device code, which describes it).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Args {
    a: u64,
    ld_bytes: u64,
    item_bytes: u64,
    batch: u64,
    info: u64,
    n: u64,
}

impl Args {
    pub(crate) fn new<T: Scalar>(a: &MatBatch<'_, T>, info: u64) -> Args {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = a.address();
        Args {
            a: address,
            ld_bytes: a.ld() as u64 * bytes,
            item_bytes: a.stride().unwrap_or(offset) as u64 * bytes,
            batch: a.batch() as u64,
            info,
            n: a.rows() as u64,
        }
    }

    /// Whether all columns of a strided batch start on 16 bytes.
    pub(crate) fn is_aligned(&self) -> bool {
        [self.a, self.ld_bytes, self.item_bytes].iter().all(|address| address.is_multiple_of(16))
    }
}

/// A number of work-groups as a launch takes it.
///
/// # Errors
/// More than 31 bits count.
pub(crate) fn grid<T: Scalar>(groups: usize, a: &MatBatch<'_, T>) -> Result<u32> {
    let groups = i32::try_from(groups).map_err(|_| ArgumentError::TooLarge {
        operand: "A",
        rows: a.rows(),
        cols: a.cols(),
        ld: a.ld(),
        stride: a.stride().unwrap_or(0),
        batch: a.batch(),
    })?;
    Ok(groups.unsigned_abs())
}

/// Enqueues a kernel over a batch, `per_group` items to a work-group.
///
/// # Errors
/// More work-groups than 31 bits count; the queue's own.
///
/// # Safety
/// The kernel takes [`Args`], and one work-group of it touches `per_group` items and their statuses and no others.
pub(crate) unsafe fn launch<T: Scalar>(
    queue: &dyn Queue,
    kernel: &Kernel,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    per_group: usize,
    dynamic_shared: u32,
) -> Result<()> {
    let a = a.into_const();
    let grid = grid(a.batch().div_ceil(per_group), &a)?;
    let args = Args::new(&a, info.address());
    let launch = Launch { kernel, grid, dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: the addresses are those of a view and an `info` span that are exclusively borrowed for work on this queue;
    // the rest is the caller's promise.
    unsafe { queue.launch(&launch)? };
    Ok(())
}
