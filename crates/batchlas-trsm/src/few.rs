//! `few`: at most eight right-hand sides, orders up to 128, lanes of a warp per item, one launch, no scratch.
//!
//! What such a solve costs is reading the triangle, so a warp takes `32 / lanes` items and reads each triangle once.
//! Order and number of right-hand sides (1, 2, 4 or 8) are template parameters. Geometry and argument list of
//! `cuda/few.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    Device, Dtype, Kernel, KernelSource, MatBatch, MatBatchMut, Promise, Queue, Ran, Result, Scalar,
};
use batchlas_resident::registers::blocks_per_sm;
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::{self, Case, Geometry, WARP};

/// Largest number of right-hand sides.
pub const MAX_Q: usize = 8;

/// Numbers of right-hand sides that kernels are compiled for.
pub const COMPILED_Q: &[usize] = &[1, 2, 4, MAX_Q];

/// Largest order.
pub const MAX_N: usize = 128;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-trsm/cuda/few.cuh", text: include_str!("../cuda/few.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "few",
    class: Class::Native,
    knobs: &[
        Knob { name: "lanes", values: Values::OneOf(&[1, 2, 4, 8, 16, 32]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 32, step: 1 }, required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Lanes that share an item.
    pub lanes: u32,
    /// Warps of a work-group. Nothing is shared between them.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that everything compiles without a frame or a spill.
    pub fn new(dtype: Dtype, n: usize, q: usize, family: &Spelling) -> Knobs {
        let lanes = family.int("lanes").unwrap_or_else(|| default_lanes(dtype, n));
        let warps = family.int("warps").unwrap_or(4);
        let blocks = family.int("blocks").unwrap_or_else(|| default_blocks(dtype, n, q, lanes, warps));
        Knobs { lanes, warps, blocks }
    }
}

/// A lane per row, up to a warp; up to half of one for the widest type, of which a lane holds a row of a block.
fn default_lanes(dtype: Dtype, n: usize) -> u32 {
    let most = if dtype == Dtype::C64 { 16 } else { 32 };
    n.next_power_of_two().min(most) as u32
}

/// As many work-groups as fit with a block of the triangle, the solution, and what the compiler was seen to need beside
/// them without a frame.
fn default_blocks(dtype: Dtype, n: usize, q: usize, lanes: u32, warps: u32) -> u32 {
    let (words, lanes) = (dtype.bytes() / 4, lanes as usize);
    let held = (n.div_ceil(lanes) * (compiled(q) + 1) + lanes) * words;
    blocks_per_sm((WARP * warps) as usize, held + 40 + lanes * words / 8).clamp(1, 32) as u32
}

/// Right-hand sides that a kernel for `q` of them is compiled for.
fn compiled(q: usize) -> usize {
    q.next_power_of_two()
}

/// Largest order for a number of right-hand sides: beyond it the solution, or the code, is too large for one thread.
fn max_n(dtype: Dtype, q: usize) -> usize {
    match compiled(q) * dtype.bytes() {
        ..=8 => MAX_N,
        9..=32 => 64,
        _ => 32,
    }
}

/// The kernel of one case, number of right-hand sides and setting.
fn kernel(dtype: Dtype, n: usize, case: Case, q: usize, knobs: &Knobs) -> Kernel {
    let (scalar, columns) = (dtype.name(), compiled(q));
    let Knobs { lanes, warps, blocks } = *knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::trsm_few<batchlas::{scalar}, {n}, {}, {columns}, {lanes}, {warps}, {blocks}>",
            case.arguments()
        ),
        promise: Promise { threads: WARP * warps, min_blocks: blocks, max_dynamic_shared: 0 },
    }
}

/// Every kernel of a spelling for these orders and numbers of right-hand sides: all types and cases.
pub fn kernels<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    right_hand_sides: &'f [usize],
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    orders.into_iter().flat_map(move |n| {
        let types =
            Dtype::ALL.into_iter().flat_map(|dtype| right_hand_sides.iter().map(move |&q| (dtype, q)));
        types.filter(move |&(dtype, q)| q <= MAX_Q && n <= max_n(dtype, q)).flat_map(move |(dtype, q)| {
            let knobs = Knobs::new(dtype, n, q, family);
            Case::all().map(move |case| kernel(dtype, n, case, q, &knobs))
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
    let max = max_n(dtype, q);
    if n > max {
        return Err(format!("n = {n}, few serves q = {q} of {dtype} to n = {max}").into());
    }
    let Knobs { lanes, warps, .. } = Knobs::new(dtype, n, q, family);
    if lanes > 1 && lanes as usize >= 2 * n {
        return Err(format!("{lanes} lanes are more than the {n} rows of an item can use").into());
    }
    let threads = WARP * warps;
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
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
    let knobs = Knobs::new(T::DTYPE, shape.n, shape.q, family);
    let kernel = kernel(T::DTYPE, shape.n, Case::of(shape), shape.q, &knobs);
    let geometry = Geometry { items: WARP / knobs.lanes * knobs.warps, columns: compiled(shape.q) as u32 };
    // SAFETY: the kernel is of this crate and takes the shared argument block; one work-group of it serves as many items and
    // right-hand sides as the geometry says.
    unsafe { operands::launch(queue, &kernel, shape, alpha, &a, b, geometry)? };
    Ok(Ran::leaf("trsm", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use crate::operands::tests::{gpu, shape};

    fn check(text: &str, dtype: Dtype, n: usize, q: usize) -> Result<(), Refusal> {
        can_run(&gpu(), dtype, &shape(n, q, 1000), &VOCABULARY.spelling(text).unwrap())
    }

    #[test]
    fn orders_and_right_hand_sides_end_where_the_registers_do() {
        for (dtype, q) in Dtype::ALL.into_iter().flat_map(|t| (1..=MAX_Q).map(move |q| (t, q))) {
            let max = max_n(dtype, q);
            assert!((32..=MAX_N).contains(&max));
            for n in (1..=max).step_by(7).chain([max]) {
                assert_eq!(check("few", dtype, n, q), Ok(()), "{dtype} n = {n} q = {q}");
            }
            assert!(check("few", dtype, max + 1, q).unwrap_err().to_string().contains("few serves"));
        }
        assert!(check("few", Dtype::F32, 4, MAX_Q + 1).unwrap_err().to_string().contains("up to 8"));
        assert!(check("few:lanes=8", Dtype::F32, 4, 1).is_err(), "half of the lanes would be idle");
    }

    #[test]
    fn right_hand_sides_round_up_to_what_is_compiled() {
        let family = VOCABULARY.spelling("few").unwrap();
        assert_eq!([1, 2, 3, 4, 5, 8].map(compiled), [1, 2, 4, 4, 8, 8]);
        let kernels: Vec<_> = kernels([17, 100], COMPILED_Q, &family).collect();
        // Order 100: f32 with one or two right-hand sides, f64 and c32 with one.
        assert_eq!(kernels.len(), 4 * 4 * 8 + 4 * 8);
        assert!(kernels[0].entry.ends_with("false, 1, 32, 4, 6>"), "{}", kernels[0].entry);
    }
}
