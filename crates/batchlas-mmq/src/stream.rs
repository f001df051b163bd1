//! `stream`: up to 16 tokens, as fast as memory delivers the weights.
//!
//! Geometry of `cuda/stream.cuh`, which has the algorithm. `stages` is the depth of the ring of weights in shared memory.

use batchlas_core::{Device, Kernel, KernelSource, MatBatchMut, Promise, Queue, Result};
use batchlas_select::{Knob, Refusal, Spelling, Values};

use crate::launch::{Grid, launch};
use crate::layout::CELL_TOKENS;
use crate::panel::Panel;
use crate::q4k::BLOCK_BYTES;
use crate::route::{Problem, shared_memory, tensor_cores};
use crate::weights::Q4kMatrix;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-mmq/cuda/stream.cuh", text: include_str!("../cuda/stream.cuh") };

pub(crate) const KNOBS: &[Knob] =
    &[Knob { name: "stages", values: Values::OneOf(&[2, 3, 4]), required: false }];

/// Most tokens.
pub const MAX_TOKENS: usize = 2 * CELL_TOKENS;

/// Rows of a tile (`ROWS` of the text).
const ROWS: u32 = 16;

fn kernel(cells: u32, stages: u32) -> Kernel {
    // `WARPS` of the text: each has one super-block of a segment.
    let warps = if cells == 1 { 16 } else { 8 };
    let stage = ROWS * (warps * BLOCK_BYTES as u32 + 32);
    let sums = 4 * warps * (ROWS * CELL_TOKENS as u32 * cells + 4);
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::mmq_stream<{cells}, {stages}>"),
        promise: Promise {
            threads: 32 * warps,
            min_blocks: 1,
            max_dynamic_shared: stages * stage + 2 * sums + 8 * stages,
        },
    }
}

/// The kernel of a spelling for a problem.
pub(crate) fn of(problem: &Problem, spelling: &Spelling) -> Kernel {
    kernel(problem.m.div_ceil(CELL_TOKENS) as u32, spelling.int("stages").unwrap_or(3))
}

/// The kernels with a ring of so many stages.
pub fn kernels(stages: u32) -> impl Iterator<Item = Kernel> {
    [1, 2].into_iter().map(move |cells| kernel(cells, stages))
}

pub(crate) fn can_run(device: &Device, problem: &Problem, spelling: &Spelling) -> Result<(), Refusal> {
    // Bulk copies came with sm_90.
    tensor_cores(device, 90)?;
    if problem.m > MAX_TOKENS {
        return Err(format!("{} tokens: stream serves {MAX_TOKENS}", problem.m).into());
    }
    shared_memory(device, of(problem, spelling).promise.max_dynamic_shared as usize)
}

pub(crate) fn run(
    queue: &dyn Queue,
    problem: &Problem,
    spelling: &Spelling,
    w: Q4kMatrix<'_>,
    panel: &mut Panel,
    y: &MatBatchMut<'_, f32>,
) -> Result<()> {
    let tiles = (problem.n as u64).div_ceil(ROWS.into());
    let blocks = tiles.min(queue.device().compute_units.into());
    launch(queue, &of(problem, spelling), Grid { tiles, splits: 1, blocks, partial: 0 }, w, panel, y)
}
