//! `cta`: orders up to 32, each thread owning one to four right-hand sides in registers, one launch, no scratch.
//!
//! A group of `lanes` threads takes `lanes * cols` right-hand sides of one item and stages its triangle in shared memory;
//! groups of up to 32 share a work-group with groups of other items and synchronise by warp. The exact order is a
//! template parameter. Geometry and argument list of `cuda/cta.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    Device, Dtype, Kernel, KernelSource, MatBatch, MatBatchMut, Promise, Queue, Ran, Result, Scalar, Side,
    Uplo,
};
use batchlas_resident::registers::blocks_per_sm;
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::{self, Case, Geometry, SHARED_BYTES, WARP};

/// Largest order.
pub const MAX_N: usize = 32;

/// Most groups that every multiprocessor should get before they are made smaller.
const GROUPS_PER_UNIT: usize = 4;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-trsm/cuda/cta.cuh", text: include_str!("../cuda/cta.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "cta",
    class: Class::Native,
    knobs: &[
        Knob { name: "cols", values: Values::OneOf(&[1, 2, 4]), required: false },
        Knob { name: "lanes", values: Values::OneOf(&[8, 16, 32, 64, 128, 256]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 32, step: 1 }, required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Right-hand sides of a thread.
    pub cols: u32,
    /// Threads of a group.
    pub lanes: u32,
    /// Warps of a work-group.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling for a problem; what it leaves out is set so that every order compiles without a frame or a
    /// spill and the device is filled.
    pub fn new(compute_units: u32, dtype: Dtype, shape: &SolveShape, family: &Spelling) -> Knobs {
        let cols = family.int("cols").unwrap_or_else(|| default_cols(dtype, shape.n, shape.q));
        let columns = shape.q.div_ceil(cols as usize);
        let lanes = family.int("lanes").unwrap_or_else(|| {
            let rung = ladder(compute_units as usize, shape.batch, columns);
            rung.max(least_lanes(dtype, shape.n))
        });
        Knobs::of_group(dtype, shape.n, Case::of(shape), cols, lanes, family)
    }

    /// The knobs of a spelling for groups that are given.
    pub(crate) fn of_group(
        dtype: Dtype,
        n: usize,
        case: Case,
        cols: u32,
        lanes: u32,
        family: &Spelling,
    ) -> Knobs {
        let warps = family.int("warps").unwrap_or_else(|| default_warps(dtype, n, lanes));
        let mut knobs = Knobs { cols, lanes, warps, blocks: 1 };
        knobs.blocks = family.int("blocks").unwrap_or_else(|| knobs.default_blocks(dtype, n, case));
        knobs
    }

    /// As many work-groups as fit with the registers of the right-hand sides and what the compiler was seen to need beside
    /// them without a frame.
    fn default_blocks(&self, dtype: Dtype, n: usize, case: Case) -> u32 {
        let solution = n * self.cols as usize * dtype.bytes() / 4;
        let backward = case.side == Side::Right && case.uplo == Uplo::Upper && case.transposed;
        // f64, 32 unknowns: a group that is the whole work-group.
        let more = if backward && dtype == Dtype::F64 && n == MAX_N && self.groups() == 1 { 8 } else { 0 };
        let registers = solution + (40 + solution).min(64) + more;
        blocks_per_sm(self.threads() as usize, registers).clamp(1, 32) as u32
    }

    fn threads(&self) -> u32 {
        WARP * self.warps
    }

    /// Items of one work-group.
    fn groups(&self) -> u32 {
        self.threads() / self.lanes
    }

    /// Bytes of shared memory of one work-group.
    fn shared(&self, dtype: Dtype, n: usize) -> usize {
        let quanta = (n * (n * dtype.bytes()).div_ceil(16)) | usize::from(self.lanes < WARP);
        self.groups() as usize * quanta * 16
    }
}

/// Two right-hand sides per thread where there are enough of them and their registers are at most 64: one broadcast then
/// serves twice the arithmetic.
fn default_cols(dtype: Dtype, n: usize, q: usize) -> u32 {
    if q >= 64 && 2 * n * dtype.bytes() <= 256 { 2 } else { 1 }
}

/// Threads of a group for `columns` threads' worth of right-hand sides per item: the smallest rung that holds all, if one
/// warp does; otherwise the largest that leaves at most an eighth of its threads idle and the device enough groups.
pub fn ladder(compute_units: usize, batch: usize, columns: usize) -> u32 {
    if let Some(rung) = [8, 16, 32].into_iter().find(|&rung| columns <= rung) {
        return rung as u32;
    }
    let fits = |&rung: &usize| {
        let groups = columns.div_ceil(rung);
        8 * (groups * rung - columns) <= groups * rung && batch * groups >= GROUPS_PER_UNIT * compute_units
    };
    [256, 128, 64].into_iter().find(fits).unwrap_or(32) as u32
}

/// Fewest threads of a group for which the groups of one warp fit into shared memory.
fn least_lanes(dtype: Dtype, n: usize) -> u32 {
    let fits = |&lanes: &u32| Knobs { cols: 1, lanes, warps: 1, blocks: 1 }.shared(dtype, n) <= SHARED_BYTES;
    [8, 16].into_iter().find(fits).unwrap_or(WARP)
}

/// Four warps, or as many as shared memory and the group ask for.
fn default_warps(dtype: Dtype, n: usize, lanes: u32) -> u32 {
    let fits = |&warps: &u32| {
        let knobs = Knobs { cols: 1, lanes, warps, blocks: 1 };
        knobs.threads() >= lanes && knobs.shared(dtype, n) <= SHARED_BYTES
    };
    [4, 2, 1].into_iter().find(fits).unwrap_or(lanes.div_ceil(WARP))
}

/// The kernel of one case and setting.
pub(crate) fn kernel(dtype: Dtype, n: usize, case: Case, knobs: &Knobs) -> Kernel {
    let scalar = dtype.name();
    let Knobs { cols, lanes, warps, blocks } = *knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::trsm_cta<batchlas::{scalar}, {n}, {}, {cols}, {lanes}, {warps}, {blocks}>",
            case.arguments()
        ),
        promise: Promise { threads: knobs.threads(), min_blocks: blocks, max_dynamic_shared: 0 },
    }
}

/// Every kernel of a spelling for these orders: all types and cases, with as many right-hand sides as fill a warp.
pub fn kernels<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    let knobs = move |dtype, n, case| {
        let cols = family.int("cols").unwrap_or_else(|| default_cols(dtype, n, WARP as usize));
        Knobs::of_group(dtype, n, case, cols, family.int("lanes").unwrap_or(WARP / cols), family)
    };
    kernels_of(orders, Side::ALL, knobs)
}

/// The kernels of every type for some orders and sides.
pub(crate) fn kernels_of<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    sides: &'f [Side],
    knobs: impl Fn(Dtype, usize, Case) -> Knobs + 'f,
) -> impl Iterator<Item = Kernel> + 'f {
    let types = orders.into_iter().flat_map(|n| Dtype::ALL.map(|dtype| (dtype, n)));
    types.flat_map(move |(dtype, n)| {
        let cases = Case::all().filter(|case| sides.contains(&case.side));
        cases.map(|case| kernel(dtype, n, case, &knobs(dtype, n, case))).collect::<Vec<_>>()
    })
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &SolveShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    serves(device, dtype, shape.n, &Knobs::new(device.compute_units, dtype, shape, family))
}

/// Whether a device has the kernel of one setting.
pub(crate) fn serves(device: &Device, dtype: Dtype, n: usize, knobs: &Knobs) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("a GPU with 32-wide warps is needed".into());
    }
    if n > MAX_N {
        return Err(format!("n = {n}, which is more than {MAX_N}").into());
    }
    let (threads, most) = (knobs.threads(), device.max_work_group);
    if most < threads {
        return Err(format!("work-groups of {threads} exceed the device's {most}").into());
    }
    if threads % knobs.lanes != 0 {
        return Err(format!("groups of {} do not fill a work-group of {threads}", knobs.lanes).into());
    }
    let shared = knobs.shared(dtype, n);
    if shared > SHARED_BYTES {
        return Err(format!("{} triangles take {shared} B of {SHARED_BYTES} B", knobs.groups()).into());
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
    let knobs = Knobs::new(queue.device().compute_units, T::DTYPE, shape, family);
    launch(queue, shape, alpha, &a, b, &knobs)?;
    Ok(Ran::leaf("trsm", family.to_string()))
}

/// Enqueues the kernel of one setting.
pub(crate) fn launch<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: &MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    knobs: &Knobs,
) -> Result<()> {
    let kernel = kernel(T::DTYPE, shape.n, Case::of(shape), knobs);
    let geometry = Geometry { items: knobs.groups(), columns: knobs.lanes * knobs.cols, shares: 1 };
    // SAFETY: the kernel is of this crate and takes the shared argument block; one work-group of it serves as many items and
    // right-hand sides as the geometry says.
    unsafe { operands::launch(queue, &kernel, shape, alpha, a, b, geometry) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use crate::operands::tests::{gpu, shape};

    fn knobs(text: &str, dtype: Dtype, n: usize, q: usize, batch: usize) -> Knobs {
        Knobs::new(132, dtype, &shape(n, q, batch), &VOCABULARY.spelling(text).unwrap())
    }

    fn check(text: &str, dtype: Dtype, n: usize, q: usize) -> Result<(), Refusal> {
        can_run(&gpu(), dtype, &shape(n, q, 1000), &VOCABULARY.spelling(text).unwrap())
    }

    #[test]
    fn every_order_runs_by_default_and_the_next_is_refused() {
        for (dtype, n) in Dtype::ALL.into_iter().flat_map(|t| (1..=MAX_N).map(move |n| (t, n))) {
            for q in [1, 8, 9, 31, 33, 70, 257, 1025, 100_000] {
                assert_eq!(check("cta", dtype, n, q), Ok(()), "{dtype} n = {n} q = {q}");
            }
            assert!(check("cta", dtype, MAX_N + n, 32).unwrap_err().to_string().contains("more than 32"));
        }
        let family = VOCABULARY.spelling("cta").unwrap();
        assert!(can_run(&Device::cpu(1), Dtype::F32, &shape(4, 4, 4), &family).is_err());
        assert!(
            can_run(&Device { max_work_group: 64, ..gpu() }, Dtype::F32, &shape(4, 4, 4), &family).is_err()
        );
    }

    #[test]
    fn the_ladder_fills_the_device_and_its_groups() {
        // 128 multiprocessors: batch, threads' worth of right-hand sides, rung.
        for (batch, columns, rung) in [
            (128, 976, 256),
            (3, 257, 32),
            (256, 896, 256),
            (100_000, 32, 32),
            (100_000, 16, 16),
            (100_000, 9, 16),
            (100_000, 8, 8),
            (100_000, 1, 8),
            (100_000, 96, 32),
            (100_000, 257, 32),
            (100_000, 33, 32),
            (100_000, 120, 128),
            (1, 1 << 20, 256),
        ] {
            assert_eq!(ladder(128, batch, columns), rung, "batch {batch}, {columns}");
        }
        // A larger device asks for more groups: a shape for a race must come from the device.
        assert_eq!(ladder(132, 128, 976), 128);
    }

    #[test]
    fn knobs_follow_type_order_and_problem() {
        let Knobs { cols, lanes, warps, blocks } = knobs("cta", Dtype::F32, 32, 32, 10_000);
        assert_eq!((cols, lanes, warps, blocks), (1, 32, 4, 5), "a matrix per warp");
        let Knobs { cols, lanes, warps, blocks } = knobs("cta", Dtype::F32, 32, 256, 10_000);
        assert_eq!((cols, lanes, warps, blocks), (2, 128, 4, 4), "two right-hand sides a thread");
        let Knobs { cols, lanes, warps, .. } = knobs("cta", Dtype::C64, 32, 1024, 10_000);
        assert_eq!((cols, lanes, warps), (1, 256, 8), "a group is a work-group of several warps");
        let Knobs { cols, lanes, warps, .. } = knobs("cta", Dtype::C64, 32, 32, 10_000);
        assert_eq!((cols, lanes, warps), (1, 32, 2), "48 KiB hold three triangles of 16 KiB");
        let Knobs { cols, lanes, warps, .. } = knobs("cta", Dtype::C64, 32, 8, 10_000);
        assert_eq!((cols, lanes, warps), (1, 16, 1), "and of narrower groups as many as share a warp");
        let upper = SolveShape { side: Side::Right, uplo: Uplo::Upper, ..shape(32, 128, 10_000) };
        let family = VOCABULARY.spelling("cta:lanes=128").unwrap();
        assert_eq!(Knobs::new(132, Dtype::F64, &upper, &family).blocks, 3, "four of them leave a frame");
        assert_eq!(Knobs::new(132, Dtype::F64, &shape(32, 128, 10_000), &family).blocks, 4);
        assert!(
            check("cta:lanes=64:warps=1", Dtype::F32, 8, 64).unwrap_err().to_string().contains("do not fill")
        );
        assert!(
            check("cta:lanes=8:warps=4", Dtype::F64, 32, 8).unwrap_err().to_string().contains("triangles")
        );
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let knobs = knobs("cta:cols=2:lanes=64:warps=4:blocks=7", Dtype::C32, 17, 100, 10);
        let case = Case { side: Side::Right, uplo: Uplo::Upper, transposed: true };
        let kernel = kernel(Dtype::C32, 17, case, &knobs);
        assert_eq!(
            kernel.entry,
            "batchlas::trsm_cta<batchlas::c32, 17, batchlas::Side::Right, batchlas::Uplo::Upper, true, 2, 64, 4, 7>"
        );
        assert_eq!((kernel.promise.threads, kernel.promise.min_blocks, knobs.groups()), (128, 7, 2));
        let family = VOCABULARY.spelling("cta").unwrap();
        assert_eq!(kernels([5, 6], &family).count(), 2 * 4 * 8, "eight kernels per order and type");
    }
}
