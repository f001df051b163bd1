//! `bf16`: both operands in bfloat16, nibbles becoming weights in registers, in tiles.
//!
//! Geometry of `cuda/bf16.cuh`, which has the algorithm. `tokens` and `rows` are those of a block's tile; `splits` blocks share the inner indices of a tile and
//! add their sums in fixed order; `stages` is the depth of the ring in shared memory.

use batchlas_core::{Kernel, KernelSource};

use crate::route::Arithmetic;
use crate::tiling::Tiles;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-mmq/cuda/bf16.cuh", text: include_str!("../cuda/bf16.cuh") };

pub(crate) static TILES: Tiles = Tiles { name: "bf16", source: &SOURCE, arithmetic: Arithmetic::Bf16 };

/// Every kernel of the family with a ring of so many stages.
pub fn kernels(stages: u32) -> impl Iterator<Item = Kernel> {
    TILES.kernels(stages)
}
