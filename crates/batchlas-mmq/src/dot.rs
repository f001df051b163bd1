//! `dot`: the product on a CPU. Chunks are summed exactly as integers; scales, minima and the sum over chunks are f64; a result is rounded to f32 once.
//!
//! That makes it the reference of the other families too. A row of weights is unpacked once, in the order of the panel's cells, and meets all
//! tokens; rows are spread over the pool.
#![allow(unsafe_code)]

use batchlas_core::cpu::{CpuQueue, on_host};
use batchlas_core::split::Split;
use batchlas_core::{MatBatchMut, Place, Result};

use crate::layout::{self, CELL_TOKENS, STEP_CHUNKS};
use crate::panel::Panel;
use crate::q4k::{Block, CHUNK, CHUNKS};
use crate::weights::Q4kMatrix;

/// Rows of the result, each an item of one row, and which of them is the first.
struct Rows<'a> {
    y: MatBatchMut<'a, f32>,
    first: usize,
}

impl Split for Rows<'_> {
    fn batch(&self) -> usize {
        self.y.batch()
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let (head, tail) = self.y.split_at(mid);
        (Rows { y: head, first: self.first }, Rows { y: tail, first: self.first + mid })
    }
}

/// Activations of a cell, and what belongs to its chunks.
struct Cell {
    q: [[[i16; CHUNK]; CELL_TOKENS]; STEP_CHUNKS],
    d: [[f64; CELL_TOKENS]; STEP_CHUNKS],
    sum: [[f64; CELL_TOKENS]; STEP_CHUNKS],
}

impl Cell {
    fn read(bytes: &[u8]) -> Cell {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let each =
            |of: &dyn Fn(usize, usize) -> f64| std::array::from_fn(|c| std::array::from_fn(|t| of(c, t)));
        Cell {
            q: std::array::from_fn(|c| {
                std::array::from_fn(|t| {
                    std::array::from_fn(|e| i16::from(bytes[layout::byte(c, t, e)].cast_signed()))
                })
            }),
            d: each(&|c, t| f32::from_le_bytes(word(layout::scale(c, t))).into()),
            sum: each(&|c, t| i32::from_le_bytes(word(layout::sum(c, t))).into()),
        }
    }
}

/// A row's chunk: its nibbles, `d sc` and `dmin m`.
struct Weights {
    q: [i16; CHUNK],
    scale: f64,
    minimum: f64,
}

fn unpack(block: Block<'_>, j: usize) -> Weights {
    let (scale, minimum) = block.sixes(j);
    Weights {
        q: block.nibbles(j).map(i16::from),
        scale: f64::from(block.d()) * f64::from(scale),
        minimum: f64::from(block.dmin()) * f64::from(minimum),
    }
}

/// The exact sum of the products of a chunk.
fn dot(w: &[i16; CHUNK], x: &[i16; CHUNK]) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum()
}

/// Computes `y` from a panel of bytes.
pub(crate) fn run(
    cpu: &CpuQueue,
    w: Q4kMatrix<'_>,
    panel: &Panel,
    y: &mut MatBatchMut<'_, f32>,
) -> Result<()> {
    let (n, m) = (y.rows(), y.cols());
    // SAFETY: the elements are those of `y`, which is exclusively borrowed; as `y` is column-major with `ld >= n`, rows do not overlap.
    let rows = unsafe { MatBatchMut::from_raw_strided(Place::Host, y.address().0, 1, m, y.ld(), 1, n)? };
    let steps = w.k() / layout::STEP;
    let cells: Vec<Vec<Cell>> = (0..m.div_ceil(CELL_TOKENS))
        .map(|cell| (0..steps).map(|step| Ok(Cell::read(on_host(panel.cell(step, cell))?))).collect())
        .collect::<Result<_>>()?;
    cpu.for_each_chunk(Rows { y: rows, first: 0 }, 1, |Rows { mut y, first }| {
        let mut row = Vec::with_capacity(w.k() / CHUNK);
        for index in 0..y.batch() {
            row.clear();
            for block in on_host(w.row(first + index))? {
                row.extend((0..CHUNKS).map(|j| unpack(Block(block), j)));
            }
            let mut item = on_host(y.item_mut(index))?;
            for (cell, steps) in cells.iter().enumerate() {
                let mut sums = [0f64; CELL_TOKENS];
                let live = CELL_TOKENS.min(m - cell * CELL_TOKENS);
                for (chunk, weights) in row.iter().enumerate() {
                    let (step, c) = (&steps[chunk / STEP_CHUNKS], chunk % STEP_CHUNKS);
                    for t in 0..live {
                        let product = weights.scale * f64::from(dot(&weights.q, &step.q[c][t]));
                        sums[t] += step.d[c][t] * (product - weights.minimum * step.sum[c][t]);
                    }
                }
                for t in 0..live {
                    item.set(0, cell * CELL_TOKENS + t, sums[t] as f32);
                }
            }
        }
        Ok(())
    })
}
