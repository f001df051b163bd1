//! The one launch of all products.
#![allow(unsafe_code)]

use batchlas_core::{ArgumentError, Kernel, Launch, MatBatchMut, Queue, Result};
use bytemuck::{Pod, Zeroable};

use crate::panel::Panel;
use crate::weights::Q4kMatrix;

/// The kernels' one parameter (`MmqArgs` of `batchlas/q4k.cuh`).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    weights: u64,
    panel: u64,
    y: u64,
    ldy: u64,
    partial: u64,
    counters: u64,
    tokens: i32,
    rows: i32,
    steps: i32,
    paired: i32,
    splits: i32,
    tiles: i32,
}

// The text asserts the same number.
const _: () = assert!(size_of::<Args>() == 72);

/// How a kernel's grid is laid over a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Tiles of the result.
    pub(crate) tiles: u64,
    /// Blocks that share the steps of a tile.
    pub(crate) splits: u64,
    /// Blocks, where they are not one for each part of a tile.
    pub(crate) blocks: u64,
    /// Bytes of the sums of all parts.
    pub(crate) partial: usize,
}

/// Enqueues a product. The panel is exclusively borrowed because it holds the counters and the sums of blocks that share a tile.
pub(crate) fn launch(
    queue: &dyn Queue,
    kernel: &Kernel,
    grid: Grid,
    w: Q4kMatrix<'_>,
    panel: &mut Panel,
    y: &MatBatchMut<'_, f32>,
) -> Result<()> {
    let size = |x: u64| {
        i32::try_from(x).map_err(|_| ArgumentError::TooLarge {
            operand: "Y",
            rows: y.rows(),
            cols: y.cols(),
            ld: y.ld(),
            stride: 0,
            batch: 1,
        })
    };
    let (y_address, ldy) = (y.address().0, y.ld() as u64 * 4);
    let partial = if grid.splits > 1 { panel.scratch(queue, grid.partial)? } else { 0 };
    let args = Args {
        weights: w.address(),
        panel: panel.address(),
        y: y_address,
        ldy,
        partial,
        counters: panel.counters(),
        tokens: size(y.cols() as u64)?,
        rows: size(y.rows() as u64)?,
        steps: size(panel.steps() as u64)?,
        paired: (y_address.is_multiple_of(8) && ldy.is_multiple_of(8)).into(),
        splits: size(grid.splits)?,
        tiles: size(grid.tiles)?,
    };
    let launch = Launch {
        kernel,
        grid: size(grid.blocks)?.unsigned_abs(),
        dynamic_shared: kernel.promise.max_dynamic_shared,
        args: bytemuck::bytes_of(&args),
    };
    // SAFETY: `Args` is the parameter struct of every product of this crate. The weights are a view that is borrowed for work on this queue, the panel and Y
    // are borrowed exclusively and were validated to fit each other.
    unsafe { queue.launch(&launch)? };
    Ok(())
}
