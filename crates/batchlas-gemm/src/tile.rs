//! `tile`: products by fused multiply-adds on tiles in registers, for every element type and size.
//!
//! Geometry of `cuda/tile.cuh`, which has the algorithm.

use batchlas_core::{Dtype, KernelSource};

use crate::family::{Family, Tiling, Warp};

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-gemm/cuda/tile.cuh", text: include_str!("../cuda/tile.cuh") };

/// The family.
pub static FAMILY: Family = Family {
    name: "tile",
    source: &SOURCE,
    serves: |_, _| Ok(()),
    warp,
    ring: |dtype| if dtype.is_complex() { (8, 3) } else { (16, 3) },
};

/// A warp is 4 x 8 lanes. A lane holds 8 x 8 elements of 4 bytes, half as many larger ones, and half of that in narrow
/// tiles, and of c64.
fn warp(dtype: Dtype, tiling: &Tiling) -> Warp {
    let wide = dtype != Dtype::C64 && tiling.cols > 32;
    let (height, width) = (if dtype == Dtype::F32 { 8 } else { 4 }, if wide { 8 } else { 4 });
    let resident = match (dtype, wide) {
        (_, true) | (Dtype::C64, _) => 384,
        _ => 512,
    };
    Warp { tile: [4 * height, 8 * width], arguments: [height, width], resident }
}
