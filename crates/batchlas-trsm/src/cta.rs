//! `cta`: orders up to 32, each thread owning one to four right-hand sides in registers, one launch, no scratch.
//!
//! A group of `lanes` threads takes `lanes * cols` right-hand sides of one item and stages its triangle in shared memory;
//! groups of up to 32 share a work-group with groups of other items and synchronise by warp. The exact order is a
//! template parameter. Geometry and argument list of `cuda/cta.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    ArgumentError, Device, Dtype, Kernel, KernelSource, Launch, MatBatch, MatBatchMut, Promise, Queue, Ran,
    Result, Scalar,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::{Args, Case, Items};

/// Largest order.
pub const MAX_N: usize = 32;

/// Threads of a warp.
pub(crate) const WARP: u32 = 32;

/// Static shared memory of a work-group ends here.
const SHARED_BYTES: usize = 48 << 10;

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
        let lanes = family
            .int("lanes")
            .unwrap_or_else(|| ladder(compute_units as usize, shape.batch, shape.q.div_ceil(cols as usize)));
        Knobs::with(dtype, shape.n, cols, lanes, family)
    }

    fn with(dtype: Dtype, n: usize, cols: u32, lanes: u32, family: &Spelling) -> Knobs {
        let warps = family.int("warps").unwrap_or_else(|| default_warps(dtype, n, lanes));
        Knobs { cols, lanes, warps, blocks: family.int("blocks").unwrap_or(1) }
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
        let quanta = n * (n * dtype.bytes()).div_ceil(16) | usize::from(self.lanes < WARP);
        self.groups() as usize * quanta * 16
    }
}

/// Two right-hand sides per thread as long as they fit 64 registers: one broadcast then serves twice the arithmetic.
fn default_cols(dtype: Dtype, n: usize, q: usize) -> u32 {
    if q > 16 && 2 * n * dtype.bytes() <= 256 { 2 } else { 1 }
}

/// Threads of a group for `columns` threads' worth of right-hand sides per item: the largest rung that is at least half
/// used to its end and leaves the device enough groups; below 32 the smallest that holds all.
pub fn ladder(compute_units: usize, batch: usize, columns: usize) -> u32 {
    if let Some(small) = [8, 16].into_iter().find(|&rung| columns <= rung) {
        return small as u32;
    }
    let fits = |&rung: &usize| {
        let groups = columns.div_ceil(rung);
        groups * rung - columns <= rung / 2 && batch * groups >= GROUPS_PER_UNIT * compute_units
    };
    [256, 128, 64].into_iter().find(fits).unwrap_or(32) as u32
}

/// Four warps, or as many as shared memory and the group ask for.
fn default_warps(dtype: Dtype, n: usize, lanes: u32) -> u32 {
    let fits = |&warps: &u32| {
        let knobs = Knobs { cols: 1, lanes, warps, blocks: 1 };
        knobs.threads() >= lanes && (knobs.groups() == 1 || knobs.shared(dtype, n) <= SHARED_BYTES)
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
    orders.into_iter().flat_map(move |n| {
        Dtype::ALL.into_iter().flat_map(move |dtype| {
            let cols = family.int("cols").unwrap_or_else(|| default_cols(dtype, n, WARP as usize));
            let lanes = family.int("lanes").unwrap_or(WARP / cols);
            let knobs = Knobs::with(dtype, n, cols, lanes, family);
            Case::all().map(move |case| kernel(dtype, n, case, &knobs))
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
        return Err("cta needs a GPU with 32-wide warps".into());
    }
    if shape.n > MAX_N {
        return Err(format!("n = {}, cta serves orders to {MAX_N}", shape.n).into());
    }
    let knobs = Knobs::new(device.compute_units, dtype, shape, family);
    if device.max_work_group < knobs.threads() {
        return Err(format!(
            "work-groups of {} exceed the device's {}",
            knobs.threads(),
            device.max_work_group
        )
        .into());
    }
    if knobs.threads() % knobs.lanes != 0 {
        return Err(
            format!("groups of {} do not fill a work-group of {}", knobs.lanes, knobs.threads()).into()
        );
    }
    let shared = knobs.shared(dtype, shape.n);
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
    launch(queue, shape, alpha, &a, &b, &knobs)?;
    Ok(Ran::leaf("trsm", family.to_string()))
}

/// Enqueues the kernel of one setting. `b` is exclusively borrowed by the caller for work on this queue.
fn launch<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: &MatBatch<'_, T>,
    b: &MatBatchMut<'_, T>,
    knobs: &Knobs,
) -> Result<()> {
    let b = b.rb();
    let too_large = || ArgumentError::TooLarge {
        operand: "B",
        rows: b.rows(),
        cols: b.cols(),
        ld: b.ld(),
        stride: b.stride().unwrap_or(0),
        batch: b.batch(),
    };
    // 31 bits, so that a thread's last right-hand side is a number of 32.
    let q = i32::try_from(shape.q).map_err(|_| too_large())?.unsigned_abs();
    let slices = q.div_ceil(knobs.lanes * knobs.cols);
    let grid = (shape.batch as u64).div_ceil(knobs.groups().into()) * u64::from(slices);
    let grid = i32::try_from(grid).map_err(|_| too_large())?.unsigned_abs();
    let args = Args::new(shape, q, slices, alpha, Items::of(a), Items::of(&b));
    let kernel = kernel(T::DTYPE, shape.n, Case::of(shape), knobs);
    let launch = Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of a view that is borrowed and of
    // one that is exclusively borrowed for work on this queue; the problem was validated, so they do not overlap.
    Ok(unsafe { queue.launch(&launch)? })
}
