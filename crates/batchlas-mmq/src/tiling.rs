//! What [`tile`](crate::tile) and [`bf16`](crate::bf16) have in common on the host: tiles, kernels, the predicate, the grid.

use batchlas_core::{Device, Kernel, KernelSource, MatBatchMut, Promise, Queue, Result};
use batchlas_select::{Knob, Refusal, Spelling, Values};

use crate::launch::{Grid, launch};
use crate::layout::{CELL_TOKENS, STEP};
use crate::panel::{COUNTERS, Panel};
use crate::route::{Arithmetic, Problem, shared_memory, tensor_cores};
use crate::weights::Q4kMatrix;

/// Knobs of both families.
pub(crate) const KNOBS: &[Knob] = &[
    Knob { name: "tokens", values: Values::OneOf(&[16, 32, 64, 128]), required: false },
    Knob { name: "rows", values: Values::OneOf(&[64, 128]), required: false },
    Knob { name: "splits", values: Values::OneOf(&[1, 2, 4, 8, 16]), required: false },
    Knob { name: "stages", values: Values::OneOf(&[2, 3, 4]), required: false },
];

/// Warps along the rows of a tile (`WARPS_ACROSS` of the text).
const WARPS_ACROSS: u32 = 4;
/// Bytes of packed nibbles of a row of a step (`STEP_BYTES` of the text).
const STEP_BYTES: u32 = STEP as u32 / 2;
/// Bytes of the decoded scales of a row of a step (`SCALE_BYTES` of the text).
const SCALE_BYTES: u32 = 32;

/// A family of tile kernels.
#[derive(Debug)]
pub(crate) struct Tiles {
    pub(crate) name: &'static str,
    pub(crate) source: &'static KernelSource,
    pub(crate) arithmetic: Arithmetic,
}

/// The tile that a block computes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tiling {
    /// Tokens of the tile.
    pub(crate) tokens: u32,
    /// Rows of the tile.
    pub(crate) rows: u32,
    /// Blocks that share the steps of a tile.
    pub(crate) splits: u32,
    /// Stages in shared memory.
    pub(crate) stages: u32,
}

impl Tiling {
    /// Tiles of 16 tokens that a warp holds, and warps along the tokens.
    fn down(&self) -> (u32, u32) {
        let held = (self.tokens / 16).min(4);
        (held, self.tokens / (16 * held))
    }

    fn threads(&self) -> u32 {
        32 * WARPS_ACROSS * self.down().1
    }

    /// Tiles of 8 rows that a warp holds.
    fn across(&self) -> u32 {
        self.rows / (8 * WARPS_ACROSS)
    }

    /// Blocks whose registers a multiprocessor holds without spills: a thread has 4 sums per tile of 16 x 8, and about as many registers beside them.
    fn blocks(&self) -> u32 {
        match (self.down(), self.across()) {
            ((4, 2), _) => 1,
            ((4, _), 4) => 2,
            ((4, _), _) | ((2, _), 4) => 3,
            ((2, _), _) | ((1, _), 4) => 4,
            _ => 5,
        }
    }

    /// Dynamic shared memory of a block in bytes (`SHARED` of the text).
    fn shared_bytes(&self, arithmetic: Arithmetic) -> u32 {
        let cells = self.tokens / CELL_TOKENS as u32 * arithmetic.cell() as u32;
        self.stages * (cells + self.rows * STEP_BYTES) + 2 * self.rows * SCALE_BYTES
    }

    fn tiles(&self, problem: &Problem) -> u64 {
        (problem.m as u64).div_ceil(self.tokens.into()) * (problem.n as u64).div_ceil(self.rows.into())
    }
}

impl Tiles {
    /// The tile of a spelling for a problem. Left out: no more tokens than there are, and the steps dealt to so many blocks that a device of
    /// `units` multiprocessors is busy.
    pub(crate) fn tiling(&self, units: u32, problem: &Problem, spelling: &Spelling) -> Tiling {
        let tokens = spelling.int("tokens").unwrap_or(match problem.m {
            0..=16 => 16,
            17..=32 => 32,
            33..=64 => 64,
            _ => 128,
        });
        let rows = spelling.int("rows").unwrap_or(if tokens < 64 { 64 } else { 128 });
        let stages = spelling.int("stages").unwrap_or(3);
        let mut tiling = Tiling { tokens, rows, splits: 1, stages };
        let steps = problem.k / STEP;
        tiling.splits = spelling.int("splits").unwrap_or_else(|| {
            let missing = u64::from(units) / tiling.tiles(problem).max(1);
            [4u32, 2].into_iter().find(|&z| missing >= u64::from(z) && steps >= 4 * z as usize).unwrap_or(1)
        });
        tiling
    }

    pub(crate) fn kernel(&self, tiling: &Tiling) -> Kernel {
        let (down, warps) = tiling.down();
        let (across, stages, blocks) = (tiling.across(), tiling.stages, tiling.blocks());
        Kernel {
            source: self.source,
            entry: format!("batchlas::mmq_{}<{down}, {across}, {warps}, {stages}, {blocks}>", self.name),
            promise: Promise {
                threads: tiling.threads(),
                min_blocks: blocks,
                max_dynamic_shared: tiling.shared_bytes(self.arithmetic),
            },
        }
    }

    /// Every kernel; `stages` of the ring.
    pub(crate) fn kernels(&self, stages: u32) -> impl Iterator<Item = Kernel> {
        let sizes = [16, 32, 64, 128].into_iter().flat_map(|tokens| [64, 128].map(|rows| (tokens, rows)));
        sizes.map(move |(tokens, rows)| self.kernel(&Tiling { tokens, rows, splits: 1, stages }))
    }

    pub(crate) fn can_run(
        &self,
        device: &Device,
        problem: &Problem,
        spelling: &Spelling,
    ) -> Result<(), Refusal> {
        tensor_cores(device, 80)?;
        let tiling = self.tiling(device.compute_units, problem, spelling);
        shared_memory(device, tiling.shared_bytes(self.arithmetic) as usize)?;
        let (tiles, steps) = (tiling.tiles(problem), problem.k / STEP);
        if tiling.splits as usize > steps {
            return Err(format!("{} splits of {steps} steps of {STEP} inner indices", tiling.splits).into());
        }
        if tiling.splits > 1 && tiles > COUNTERS as u64 {
            return Err(format!("{tiles} tiles, and only {COUNTERS} can be split").into());
        }
        Ok(())
    }

    pub(crate) fn run(
        &self,
        queue: &dyn Queue,
        problem: &Problem,
        spelling: &Spelling,
        w: Q4kMatrix<'_>,
        panel: &mut Panel,
        y: &MatBatchMut<'_, f32>,
    ) -> Result<()> {
        let tiling = self.tiling(queue.device().compute_units, problem, spelling);
        let (tiles, splits) = (tiling.tiles(problem), u64::from(tiling.splits));
        let partial = tiles as usize * tiling.splits as usize * (tiling.tokens * tiling.rows * 4) as usize;
        launch(
            queue,
            &self.kernel(&tiling),
            Grid { tiles, splits, blocks: tiles * splits, partial },
            w,
            panel,
            y,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VOCABULARY, bf16, tile};

    fn problem(m: usize, n: usize, k: usize) -> Problem {
        Problem { arithmetic: Arithmetic::Int8, m, n, k }
    }

    #[test]
    fn steps_are_dealt_to_several_blocks_where_tiles_are_few() {
        let spelling = VOCABULARY.spelling("tile").unwrap();
        let splits = |m, n, k| tile::TILES.tiling(132, &problem(m, n, k), &spelling).splits;
        assert_eq!(splits(64, 4096, 4096), 4, "32 tiles");
        assert_eq!(splits(128, 8192, 4096), 2, "64 tiles");
        assert_eq!(splits(128, 14_336, 4096), 1, "112 tiles");
        assert_eq!(splits(64, 4096, 256), 1, "two steps");
        assert_eq!(splits(4096, 4096, 4096), 1);
    }

    #[test]
    fn the_entry_names_every_template_parameter_and_the_promise_is_that_of_the_text() {
        let spelling = VOCABULARY.spelling("tile:tokens=128:rows=64:splits=2:stages=4").unwrap();
        let tiling = tile::TILES.tiling(132, &problem(5, 5, 512), &spelling);
        let kernel = tile::TILES.kernel(&tiling);
        assert_eq!(kernel.entry, "batchlas::mmq_tile<4, 2, 2, 4, 1>");
        assert_eq!(kernel.promise, Promise { threads: 256, min_blocks: 1, max_dynamic_shared: 118_784 });
        let text = bf16::TILES.kernel(&Tiling { tokens: 16, rows: 128, splits: 1, stages: 2 });
        assert_eq!(text.promise.max_dynamic_shared, 2 * (2 * 2048 + 128 * 64) + 2 * 128 * 32);
    }
}
