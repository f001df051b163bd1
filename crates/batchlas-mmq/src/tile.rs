//! `tile`: signed bytes times packed nibbles on the tensor cores, in tiles.
//!
//! Geometry of `cuda/tile.cuh`, which has the algorithm. `tokens` and `rows` are those of a block's tile; `splits` blocks share the inner indices of a tile and
//! add their sums in fixed order; `stages` is the depth of the ring in shared memory.

use batchlas_core::{Kernel, KernelSource};

use crate::route::Arithmetic;
use crate::tiling::Tiles;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-mmq/cuda/tile.cuh", text: include_str!("../cuda/tile.cuh") };

pub(crate) static TILES: Tiles = Tiles { name: "tile", source: &SOURCE, arithmetic: Arithmetic::Int8 };

/// Every kernel of the family with a ring of so many stages.
pub fn kernels(stages: u32) -> impl Iterator<Item = Kernel> {
    TILES.kernels(stages)
}
