//! `mma`: products of f64 and c64 on the FP64 tensor cores.
//!
//! Geometry of `cuda/mma.cuh`, which has the algorithm.

use batchlas_core::{Dtype, KernelSource};
use batchlas_select::Refusal;

use crate::family::{Family, Tiling, Warp};

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-gemm/cuda/mma.cuh", text: include_str!("../cuda/mma.cuh") };

/// The family.
pub static FAMILY: Family = Family {
    name: "mma",
    source: &SOURCE,
    serves,
    warp,
    ring: |dtype| if dtype == Dtype::C64 { (8, 3) } else { (8, 4) },
};

/// A warp holds 2 x 4 tensor-core tiles of 16 x 8, or a row of up to 8 where an element is two accumulators.
fn warp(dtype: Dtype, tiling: &Tiling) -> Warp {
    let (down, across, resident) = match (dtype, tiling.cols) {
        (Dtype::C64, 32) => (1, 4, 384),
        (Dtype::C64, _) => (1, 8, 256),
        _ if tiling.rows == 32 && tiling.cols == 32 => (2, 4, 384),
        _ => (2, 4, 512),
    };
    Warp { tile: [16 * down, 8 * across], arguments: [down, across], resident }
}

/// FP64 tensor cores came with `sm_80`.
fn serves(arch: &str, dtype: Dtype) -> Result<(), Refusal> {
    let digits = arch.strip_prefix("sm_").map(|digits| digits.trim_end_matches(['a', 'f']));
    match (dtype, digits.and_then(|digits| digits.parse::<u32>().ok())) {
        (Dtype::F32 | Dtype::C32, _) => Err(format!("mma computes in f64, the type is {dtype}").into()),
        (_, Some(80..)) => Ok(()),
        _ => Err(format!("FP64 tensor cores start at sm_80, the device is {arch}").into()),
    }
}
