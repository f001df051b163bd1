//! `wide`: the published kernel of 128 tokens x 128 rows, as a baseline.
//!
//! Geometry of `cuda/wide.cuh`, which has the algorithm. `depth` chunks of 32 inner indices are staged at a time; both depths round in the same
//! order and give the same bits. Published: the design of the r14 note of yusiwen/minfer, whose code is not used.

use batchlas_core::{Device, Kernel, KernelSource, MatBatchMut, Promise, Queue, Result};
use batchlas_select::{Knob, Refusal, Spelling, Values};

use crate::launch::{Grid, launch};
use crate::layout::planes;
use crate::panel::Panel;
use crate::route::{Problem, shared_memory, tensor_cores};
use crate::weights::Q4kMatrix;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-mmq/cuda/wide.cuh", text: include_str!("../cuda/wide.cuh") };

pub(crate) const KNOBS: &[Knob] = &[Knob { name: "depth", values: Values::OneOf(&[4, 8]), required: true }];

/// Threads of a block.
const THREADS: u32 = 256;

/// A spelling's depth; the vocabulary makes sure that there is one.
fn depth(spelling: &Spelling) -> u32 {
    spelling.int("depth").unwrap_or(4)
}

fn kernel(depth: u32) -> Kernel {
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::mmq_wide<{depth}, 1>"),
        promise: Promise {
            threads: THREADS,
            min_blocks: 1,
            max_dynamic_shared: planes::starts(depth as usize)[4] as u32,
        },
    }
}

/// The kernel of a spelling.
pub(crate) fn of(spelling: &Spelling) -> Kernel {
    kernel(depth(spelling))
}

/// Both kernels.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    [4, 8].into_iter().map(kernel)
}

pub(crate) fn can_run(device: &Device, spelling: &Spelling) -> Result<(), Refusal> {
    tensor_cores(device, 80)?;
    shared_memory(device, planes::starts(depth(spelling) as usize)[4])
}

pub(crate) fn run(
    queue: &dyn Queue,
    problem: &Problem,
    spelling: &Spelling,
    w: Q4kMatrix<'_>,
    panel: &mut Panel,
    y: &MatBatchMut<'_, f32>,
) -> Result<()> {
    let tiles = problem.m.div_ceil(planes::SIDE) as u64 * problem.n.div_ceil(planes::SIDE) as u64;
    launch(queue, &of(spelling), Grid { tiles, splits: 1, blocks: tiles, partial: 0 }, w, panel, y)
}
