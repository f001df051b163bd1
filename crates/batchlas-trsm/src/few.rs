//! `few`: at most eight right-hand sides, orders up to 128, lanes of a warp per item, one launch, no scratch.
//!
//! What such a solve costs is reading the triangle, so a warp takes `32 / lanes` items and reads each triangle once; where
//! all right-hand sides are too many for a thread's registers, neighbouring warps take `rhs` each of the same items. Order and
//! number of right-hand sides (1, 2, 4 or 8) are template parameters. Geometry and argument list of
//! `cuda/few.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    Device, Dtype, Kernel, KernelSource, MatBatch, MatBatchMut, Promise, Queue, Ran, Result, Scalar, Uplo,
};
use batchlas_resident::registers::blocks_per_sm;
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::{self, Case, Geometry, SHARED_BYTES, WARP};

/// Largest number of right-hand sides.
pub const MAX_Q: usize = 8;

/// Numbers of right-hand sides that kernels are compiled for.
pub const COMPILED_Q: &[u32] = &[1, 2, 4, MAX_Q as u32];

/// Largest order.
pub const MAX_N: usize = 128;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-trsm/cuda/few.cuh", text: include_str!("../cuda/few.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "few",
    class: Class::Native,
    knobs: &[
        Knob { name: "rhs", values: Values::OneOf(COMPILED_Q), required: false },
        Knob { name: "lanes", values: Values::OneOf(&[1, 2, 4, 8, 16, 32]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 32, step: 1 }, required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Right-hand sides of a warp.
    pub rhs: u32,
    /// Lanes that share an item.
    pub lanes: u32,
    /// Warps of a work-group. They share nothing but cached triangles.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that everything compiles without a frame or a spill.
    fn new(dtype: Dtype, n: usize, case: Case, q: usize, family: &Spelling) -> Knobs {
        let rhs = family.int("rhs").unwrap_or_else(|| default_rhs(dtype, n, q));
        let lanes = family.int("lanes").unwrap_or_else(|| default_lanes(dtype, n, case, rhs));
        let mut knobs = Knobs { rhs, lanes, warps: family.int("warps").unwrap_or(4), blocks: 1 };
        knobs.blocks = family.int("blocks").unwrap_or_else(|| knobs.default_blocks(dtype, n, case));
        knobs
    }

    /// As many work-groups as fit with a block of the triangle, the solution, and what the compiler was seen to need beside
    /// them without a frame.
    fn default_blocks(&self, dtype: Dtype, n: usize, case: Case) -> u32 {
        let (words, lanes) = (dtype.bytes() / 4, self.lanes as usize);
        let held = (n.div_ceil(lanes) * (self.rhs as usize + 1) + lanes) * words;
        // Several blocks keep addresses, and where they go through a tile the copy of the next one goes on beside the use of this.
        let copies = case.transposed && n > lanes;
        let more = match self.rhs {
            2.. if copies && n > 64 => 48,
            // Rows that only part of the lanes have, or that come from the last block to the first.
            2 if n > 64 && (case.uplo == Uplo::Upper || !n.is_multiple_of(lanes)) => 16,
            4.. if copies && n > 32 && dtype.is_complex() => 48,
            _ if copies => 16,
            8.. if n > 32 => 16,
            _ => 0,
        };
        let registers = held + 40 + lanes * words / 8 + more;
        blocks_per_sm((WARP * self.warps) as usize, registers).clamp(1, 32) as u32
    }

    /// Bytes of shared memory of one work-group: a tile per item where E is the transpose of A.
    fn shared(&self, dtype: Dtype, case: Case) -> usize {
        let tiles = (self.warps * WARP * (self.lanes + 1)) as usize * dtype.bytes();
        if case.transposed { tiles } else { 0 }
    }
}

/// All right-hand sides, or as many as a warp takes of a larger order.
fn default_rhs(dtype: Dtype, n: usize, q: usize) -> u32 {
    let all = q.next_power_of_two().min(MAX_Q) as u32;
    COMPILED_Q.iter().rev().copied().find(|&rhs| rhs <= all && n <= max_n(dtype, rhs)).unwrap_or(1)
}

/// A lane per row, up to a warp; up to half of one where a lane holds much of each row, or a block goes through a tile.
fn default_lanes(dtype: Dtype, n: usize, case: Case, rhs: u32) -> u32 {
    let bytes = rhs as usize * dtype.bytes();
    let most = match n {
        ..=16 if case.transposed && rhs > 1 && bytes > 8 => 8,
        ..=32 if case.transposed || bytes >= 32 => 16,
        _ => 32,
    };
    n.next_power_of_two().min(if dtype == Dtype::C64 { 16 } else { most }) as u32
}

/// Largest order for a number of right-hand sides: beyond it the solution, or the code, is too large for one thread.
fn max_n(dtype: Dtype, rhs: u32) -> usize {
    match rhs as usize * dtype.bytes() {
        ..=8 => MAX_N,
        9..=32 => 64,
        _ => 32,
    }
}

/// The kernel of one case and setting.
fn kernel(dtype: Dtype, n: usize, case: Case, knobs: &Knobs) -> Kernel {
    let Knobs { rhs, lanes, warps, blocks } = *knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::trsm_few<batchlas::{dtype}, {n}, {}, {rhs}, {lanes}, {warps}, {blocks}>",
            case.arguments()
        ),
        promise: Promise { threads: WARP * warps, min_blocks: blocks, max_dynamic_shared: 0 },
    }
}

/// Every kernel of a spelling for these orders and numbers of right-hand sides of a warp: all types and cases.
pub fn kernels<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    right_hand_sides: &'f [u32],
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    orders.into_iter().flat_map(move |n| {
        let types =
            Dtype::ALL.into_iter().flat_map(|dtype| right_hand_sides.iter().map(move |&rhs| (dtype, rhs)));
        types.filter(move |&(dtype, rhs)| n <= max_n(dtype, rhs)).flat_map(move |(dtype, rhs)| {
            let knobs = move |case| Knobs::new(dtype, n, case, rhs as usize, family);
            Case::all().map(move |case| kernel(dtype, n, case, &knobs(case)))
        })
    })
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &SolveShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("few needs a GPU with 32-wide warps".into());
    }
    let SolveShape { n, q, .. } = *shape;
    if q > MAX_Q {
        return Err(format!("q = {q}, few serves up to {MAX_Q} right-hand sides").into());
    }
    let case = Case::of(shape);
    let knobs = Knobs::new(dtype, n, case, q, family);
    let Knobs { rhs, lanes, warps, .. } = knobs;
    let max = max_n(dtype, rhs);
    if n > max {
        return Err(
            format!("n = {n}, few serves {rhs} right-hand sides a warp of {dtype} to n = {max}").into()
        );
    }
    if lanes > 1 && lanes as usize >= 2 * n {
        return Err(format!("{lanes} lanes are more than the {n} rows of an item can use").into());
    }
    let threads = WARP * warps;
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    let shared = knobs.shared(dtype, case);
    if shared > SHARED_BYTES {
        return Err(format!("the tiles of {warps} warps take {shared} B of {SHARED_BYTES} B").into());
    }
    Ok(())
}

/// Enqueues the solve.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    family: &Spelling,
) -> Result<Ran> {
    let case = Case::of(shape);
    let knobs = Knobs::new(T::DTYPE, shape.n, case, shape.q, family);
    let kernel = kernel(T::DTYPE, shape.n, case, &knobs);
    let geometry = Geometry { items: WARP / knobs.lanes, columns: knobs.rhs, shares: knobs.warps };
    // SAFETY: the kernel is of this crate and takes the shared argument block; one warp of it serves as many items and
    // right-hand sides as the geometry says.
    unsafe { operands::launch(queue, &kernel, shape, alpha, &a, b, geometry)? };
    Ok(Ran::leaf("trsm", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use crate::operands::tests::{gpu, shape};
    use batchlas_core::{Side, Trans};

    fn check(text: &str, dtype: Dtype, n: usize, q: usize) -> Result<(), Refusal> {
        can_run(&gpu(), dtype, &shape(n, q, 1000), &VOCABULARY.spelling(text).unwrap())
    }

    #[test]
    fn orders_end_where_the_registers_do() {
        for (dtype, q) in Dtype::ALL.into_iter().flat_map(|t| (1..=MAX_Q).map(move |q| (t, q))) {
            let max = max_n(dtype, 1);
            assert!((64..=MAX_N).contains(&max));
            for n in (1..=max).step_by(7).chain([max]) {
                assert_eq!(check("few", dtype, n, q), Ok(()), "{dtype} n = {n} q = {q}");
            }
            assert!(check("few", dtype, max + 1, q).unwrap_err().to_string().contains("1 right-hand sides"));
        }
        assert!(check("few", Dtype::F32, 4, MAX_Q + 1).unwrap_err().to_string().contains("up to 8"));
        assert!(check("few:rhs=4", Dtype::F64, 65, 4).is_err(), "more of them need more registers");
        assert!(check("few:lanes=8", Dtype::F32, 4, 1).is_err(), "half of the lanes would be idle");
        let transposed = SolveShape { trans: Trans::Trans, ..shape(64, 1, 1000) };
        let wide = VOCABULARY.spelling("few:warps=8").unwrap();
        let message = can_run(&gpu(), Dtype::F64, &transposed, &wide).unwrap_err().to_string();
        assert!(message.contains("67584 B of 49152 B"), "{message}");
        assert_eq!(check("few:warps=8", Dtype::F64, 64, 1), Ok(()), "A as it is needs no tile");
    }

    #[test]
    fn right_hand_sides_round_up_to_what_is_compiled_or_are_shared_by_warps() {
        let family = VOCABULARY.spelling("few").unwrap();
        assert_eq!([1, 2, 3, 4, 5, 8].map(|q| default_rhs(Dtype::F32, 32, q)), [1, 2, 4, 4, 8, 8]);
        assert_eq!([64, 65, 128].map(|n| default_rhs(Dtype::F64, n, 8)), [4, 1, 1]);
        let blocks = |n, uplo| {
            let case = Case { side: Side::Left, uplo, transposed: false };
            Knobs::new(Dtype::F32, n, case, 2, &family).blocks
        };
        assert_eq!([blocks(128, Uplo::Lower), blocks(127, Uplo::Lower), blocks(128, Uplo::Upper)], [5, 4, 4]);
        let kernels: Vec<_> = kernels([17, 100], COMPILED_Q, &family).collect();
        // Order 100: f32 with one or two right-hand sides, f64 and c32 with one.
        assert_eq!(kernels.len(), 4 * 4 * 8 + 4 * 8);
        assert!(kernels[0].entry.ends_with("false, 1, 32, 4, 6>"), "{}", kernels[0].entry);
        assert!(kernels[1].entry.contains("true, 1, 16, 4, "), "{}", kernels[1].entry);
    }
}
