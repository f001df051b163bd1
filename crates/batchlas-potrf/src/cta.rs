//! `cta`: a work-group per matrix, finished columns in shared memory, the rest in registers; one launch, no scratch.
//!
//! A grid of warps holds one phase of columns at a time in a register tile. [`Plan`] cuts the columns into phases, which
//! decides registers, shared memory and code: it is the one place that does, and `cuda/cta.cuh`, which has the algorithm,
//! is instantiated with it and checks the shared memory. The exact order is a template parameter.
#![allow(unsafe_code)]

use std::fmt::Write as _;

use batchlas_core::seam::FactorShape;
use batchlas_core::{
    Device, Dtype, InfoMut, Kernel, KernelSource, MatBatchMut, Promise, Queue, Ran, Result, Scalar, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::launch;

/// Smallest order: `tiny` serves those below.
pub const MIN_N: usize = 33;
/// Largest order.
pub const MAX_N: usize = 256;

/// The widths of phases are multiples of this, which is one of every grid of threads.
const PHASE: usize = 32;

/// Bytes of a sector of global memory, the unit of its traffic.
const SECTOR: usize = 32;

/// Bytes of a panel row that tensor cores take at once.
const TENSOR_ROW: usize = 64;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/cta.cuh", text: include_str!("../cuda/cta.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "cta",
    class: Class::Native,
    knobs: &[
        Knob { name: "unit", values: Values::Words(&["vector", "tensor"]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8, 16]), required: false },
        Knob { name: "steps", values: Values::OneOf(&[1, 2, 4]), required: false },
        Knob { name: "solvers", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
        Knob { name: "tile", values: Values::Range { min: 1, max: 255, step: 1 }, required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Whether tensor cores update the tile: f64 and c64 only.
    pub tensor: bool,
    /// Warps that share a matrix.
    pub warps: u32,
    /// Parts in which a panel is applied to the tile: more parts, fewer registers.
    pub steps: u32,
    /// Warps that solve for the rows of a panel.
    pub solvers: u32,
    /// Elements of a phase that a thread should hold at most; the first phase may exceed it.
    pub tile: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that every order compiles without a frame or a spill.
    pub fn new(dtype: Dtype, n: usize, uplo: Uplo, family: &Spelling) -> Knobs {
        let tensor = match family.knob("unit") {
            Some(unit) => unit.to_string() == "tensor",
            None => matches!(dtype, Dtype::F64 | Dtype::C64),
        };
        let (upper, complex) = (uplo == Uplo::Upper, dtype.is_complex());
        let (warps, steps, tile, blocks) = match (dtype, n) {
            (Dtype::F32, ..=64) => (1, 1, 47, 16),
            (Dtype::F32, ..=96) => (1, 1, 47, 12),
            (Dtype::F32, ..=128) => (2, 1, 56, 6),
            (Dtype::F32, ..=200) => (4, 1, 44, 4),
            (Dtype::F32, _) => (8, 1, 32, 2),
            (Dtype::F64, ..=64) => (1, 1, 47, 8),
            (Dtype::F64, ..=96) => (2, 1, 32, 4),
            // Elsewhere one register of the lower triangle would be spilled by two warps.
            (Dtype::F64, 99..=107 | 112 | 128) => (2, 1, 16, 4),
            (Dtype::F64, ..=128) if upper => (2, 1, 16, 4),
            (Dtype::F64, ..=128) => (4, 1, 16, 3),
            (Dtype::F64, ..=192) => (4, 1, 44, 2),
            (Dtype::F64, _) => (8, 1, 40, 1),
            (Dtype::C32, ..=64) => (1, 1, 47, 8),
            (Dtype::C32, ..=96) => (2, 1, 40, 6),
            (Dtype::C32, ..=128) => (2, 1, 56, 4),
            (Dtype::C32, ..=150) => (4, 1, 35, 2),
            (Dtype::C32, ..=192) => (8, 1, 22, 2),
            (Dtype::C32, _) => (8, 1, 40, 1),
            (Dtype::C64, ..=40) => (1, 1, 16, 8),
            (Dtype::C64, ..=64) => (2, 1, 23, 4),
            (Dtype::C64, ..=128) => (4, 1, 28, 2),
            (Dtype::C64, _) => (8, 1, 22, 1),
        };
        let warps = family.int("warps").unwrap_or(warps);
        Knobs {
            tensor,
            warps,
            steps: family.int("steps").unwrap_or(steps),
            // Half of eight warps solve two rows each in the time of one.
            solvers: family.int("solvers").unwrap_or(if n > 192 && !complex { warps.min(4) } else { warps }),
            tile: family.int("tile").unwrap_or(tile),
            blocks: family.int("blocks").unwrap_or(blocks),
        }
    }

    /// Warps along the rows and along the columns of a matrix: as square as a power of two allows.
    fn grid(&self) -> [u32; 2] {
        let down = 1 << (self.warps.ilog2() / 2);
        [down, self.warps / down]
    }

    /// Rows and columns of the grid of threads, in elements.
    fn extent(&self) -> [usize; 2] {
        let [down, across] = self.grid().map(|warps| warps as usize);
        [8 * down, if self.tensor { 8 } else { 4 } * across]
    }

    /// Columns that are factored between two barriers.
    fn panel(&self, dtype: Dtype) -> usize {
        match dtype {
            _ if self.tensor => TENSOR_ROW / dtype.bytes(),
            Dtype::F32 | Dtype::F64 => 4,
            Dtype::C32 | Dtype::C64 => 2,
        }
    }

    fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Whether there is a kernel of these knobs.
    ///
    /// # Errors
    /// The numbers that do not go together.
    fn check(&self, dtype: Dtype) -> Result<(), Refusal> {
        let Knobs { tensor, warps, steps, solvers, .. } = *self;
        let panel = self.panel(dtype);
        if tensor && (!matches!(dtype, Dtype::F64 | Dtype::C64) || steps != 1) {
            return Err(format!(
                "tensor cores take f64 and c64, a panel at once: {dtype} in {steps} step(s)"
            )
            .into());
        }
        if !panel.is_multiple_of(steps as usize) {
            return Err(format!("steps={steps} must divide a panel of {panel} columns").into());
        }
        if solvers > warps {
            return Err(format!("solvers={solvers} are more than the {warps} warps").into());
        }
        Ok(())
    }
}

/// How the columns of a matrix are cut into phases, and what that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Columns of each phase.
    pub widths: Vec<usize>,
    /// Shared memory of a work-group in bytes.
    pub shared: usize,
}

impl Plan {
    /// The plan of one type, order and setting. A phase is the widest multiple of 32 columns whose trapezoid leaves a thread
    /// at most `tile` elements; what remains when the rest is narrow enough is the last.
    pub fn new(dtype: Dtype, n: usize, knobs: &Knobs) -> Plan {
        let (panel, [rows, cols]) = (knobs.panel(dtype), knobs.extent());
        let grain = rows.max(cols);
        let most = (knobs.tile * knobs.threads()) as usize;
        let area = |rest: usize, width: usize| width.min(rest) * rest - width.min(rest).pow(2) / 2;
        let mut widths = Vec::new();
        let mut rest = n;
        while rest > 0 {
            let mut width = PHASE;
            while width < rest && area(rest, width + PHASE) <= most {
                width += PHASE;
            }
            widths.push(width.min(rest));
            rest -= width.min(rest);
        }
        // Rows of a phase, filled up to the grid, and those of them that are kept when it is finished.
        let mut first = 0;
        let (mut history, mut buffer) = (0, 0);
        for &width in &widths {
            let rows = (n - first).next_multiple_of(grain);
            first += width;
            let kept = if first == n { 0 } else { rows - width };
            history += kept * width;
            buffer = buffer.max(rows - kept);
        }
        // As many panels as make up a sector of memory, twice, and the diagonal block of one.
        let buffers = 2 * (SECTOR / (panel * dtype.bytes())).max(1);
        let elements = history + buffers * buffer * panel + panel * panel;
        Plan { widths, shared: elements * dtype.bytes() }
    }
}

/// The kernel of one setting. `table`: a pointer-array batch.
pub fn kernel(dtype: Dtype, n: usize, uplo: Uplo, table: bool, knobs: &Knobs) -> Kernel {
    let plan = Plan::new(dtype, n, knobs);
    let widths = plan.widths.iter().fold(String::new(), |mut text, width| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{width}", if text.is_empty() { "" } else { ", " });
        text
    });
    let scalar = dtype.name();
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let layout = if table { "Pointers" } else { "Strided" };
    let Knobs { tensor, steps, solvers, blocks, .. } = *knobs;
    let ([down, across], panel) = (knobs.grid(), knobs.panel(dtype));
    let grid = if tensor { "TensorGrid" } else { "VectorGrid" };
    let solvers = 32 * solvers;
    let shared = u32::try_from(plan.shared).unwrap_or(u32::MAX);
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrf_cta<batchlas::CholeskyPlan<batchlas::{scalar}, {n}, \
             batchlas::{grid}<{down}, {across}>, {panel}, {steps}, {solvers}, batchlas::Phases<{widths}>>, {shared}, \
             batchlas::Uplo::{uplo}, batchlas::Layout::{layout}, {blocks}>"
        ),
        promise: Promise { threads: knobs.threads(), min_blocks: blocks, max_dynamic_shared: shared },
    }
}

/// Every kernel that a spelling of this family launches for one type, order and triangle: one per layout.
pub fn layouts(dtype: Dtype, n: usize, uplo: Uplo, family: &Spelling) -> impl Iterator<Item = Kernel> {
    let knobs = Knobs::new(dtype, n, uplo, family);
    [false, true].into_iter().map(move |table| kernel(dtype, n, uplo, table, &knobs))
}

/// Whether a spelling has a kernel for a type and an order on an architecture, as tables spell it, within `budget` bytes
/// of shared memory.
///
/// # Errors
/// The reason why not.
pub fn serves(
    arch: &str,
    dtype: Dtype,
    n: usize,
    uplo: Uplo,
    budget: usize,
    family: &Spelling,
) -> Result<(), Refusal> {
    if !(MIN_N..=MAX_N).contains(&n) {
        return Err(format!("n = {n}, cta serves n = {MIN_N} to {MAX_N}").into());
    }
    if arch.starts_with("sm_12") && matches!(dtype, Dtype::F64 | Dtype::C64) {
        return Err(format!("the code of {dtype} on {arch} is larger than the instruction cache").into());
    }
    let knobs = Knobs::new(dtype, n, uplo, family);
    knobs.check(dtype)?;
    let plan = Plan::new(dtype, n, &knobs);
    if plan.shared > budget {
        return Err(format!("{dtype} n = {n} needs {} B of shared memory of {budget} B", plan.shared).into());
    }
    Ok(())
}

/// Every kernel that a spelling of this family launches for these orders within `budget` bytes of shared memory: all types,
/// both triangles, all layouts.
pub fn kernels<'f>(
    arch: &'f str,
    budget: usize,
    orders: impl IntoIterator<Item = usize> + 'f,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    orders.into_iter().flat_map(move |n| {
        let cases = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
        let served = cases.filter(move |&(dtype, uplo)| serves(arch, dtype, n, uplo, budget, family).is_ok());
        served.flat_map(move |(dtype, uplo)| layouts(dtype, n, uplo, family))
    })
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &FactorShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("cta needs a GPU with 32-wide warps".into());
    }
    let threads = Knobs::new(dtype, shape.n, shape.uplo, family).threads();
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    serves(&device.arch, dtype, shape.n, shape.uplo, device.slm_budget, family)
}

/// Enqueues the factorisation.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let knobs = Knobs::new(T::DTYPE, a.rows(), uplo, family);
    let kernel = kernel(T::DTYPE, a.rows(), uplo, a.stride().is_none(), &knobs);
    // SAFETY: the kernel takes the shared argument block, and a work-group has one item.
    unsafe { launch(queue, &kernel, a, info, 1, kernel.promise.max_dynamic_shared)? };
    Ok(Ran::leaf("potrf", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use batchlas_core::Place;

    /// Shared memory of an H200, less the reserve.
    const BUDGET: usize = 227 * 1024 - 4096;

    fn gpu() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: BUDGET,
            ..Device::cpu(1)
        }
    }

    fn check(text: &str, dtype: Dtype, n: usize, device: &Device) -> Result<(), Refusal> {
        let family = VOCABULARY.spelling(text).unwrap();
        can_run(device, dtype, &FactorShape { uplo: Uplo::Lower, n, batch: 1 }, &family)
    }

    #[test]
    fn every_order_has_a_plan_and_the_edges_are_refused() {
        let family = VOCABULARY.spelling("cta").unwrap();
        for dtype in Dtype::ALL {
            for n in MIN_N..=MAX_N {
                let knobs = Knobs::new(dtype, n, Uplo::Upper, &family);
                assert_eq!(knobs.check(dtype), Ok(()), "{dtype} n = {n}");
                let plan = Plan::new(dtype, n, &knobs);
                assert_eq!(plan.widths.iter().sum::<usize>(), n);
                let (_, whole) = plan.widths.split_last().unwrap();
                assert!(whole.iter().all(|w| w % PHASE == 0), "{dtype} n = {n}: {plan:?}");
                // The panels of all phases and their buffers: never more than the whole lower triangle, filled up, and those.
                assert!(plan.shared <= (n + 32).pow(2) / 2 * dtype.bytes() + 4 * (n + 32) * 64 + 1024);
            }
        }
        for dtype in [Dtype::F32, Dtype::F64, Dtype::C32] {
            assert_eq!(check("cta", dtype, MAX_N, &gpu()), Ok(()));
        }
        for n in [MIN_N - 1, MAX_N + 1] {
            assert!(check("cta", Dtype::F32, n, &gpu()).unwrap_err().to_string().contains("33 to 256"));
        }
        assert!(check("cta", Dtype::F32, 64, &Device::cpu(1)).is_err());
        let other = Device { arch: "sm_120".into(), ..gpu() };
        assert_eq!(check("cta", Dtype::C32, 64, &other), Ok(()));
        assert!(check("cta", Dtype::F64, 64, &other).unwrap_err().to_string().contains("instruction cache"));
        assert!(check("cta", Dtype::F32, 128, &Device { max_work_group: 32, ..gpu() }).is_err());
    }

    #[test]
    fn phases_widen_as_rows_run_out() {
        let widths = |text: &str, dtype, n| {
            let family = VOCABULARY.spelling(text).unwrap();
            Plan::new(dtype, n, &Knobs::new(dtype, n, Uplo::Lower, &family)).widths
        };
        assert_eq!(widths("cta", Dtype::F32, 48), [48]);
        assert_eq!(widths("cta", Dtype::F32, 64), [32, 32]);
        assert_eq!(widths("cta", Dtype::F32, 128), [32, 32, 64]);
        assert_eq!(widths("cta", Dtype::F32, 192), [32, 32, 32, 96]);
        assert_eq!(widths("cta", Dtype::F32, 256), [32, 32, 32, 64, 96]);
        assert_eq!(widths("cta", Dtype::F64, 256), [32, 32, 64, 128]);
        assert_eq!(widths("cta:tile=1", Dtype::F32, 97), [32, 32, 32, 1]);
    }

    #[test]
    fn shared_memory_holds_the_finished_rows_and_panels_under_way() {
        // f32, 8 x 8 threads: 96 rows of 32 columns, 64 of 32, four buffers of 64 rows of 4, a block of 4 x 4.
        let knobs = Knobs::new(Dtype::F32, 128, Uplo::Lower, &VOCABULARY.spelling("cta").unwrap());
        let elements = 96 * 32 + 64 * 32 + 4 * 64 * 4 + 16;
        assert_eq!(Plan::new(Dtype::F32, 128, &knobs).shared, 4 * elements);
        // The largest order of c64 is where a work-group's shared memory ends.
        let served: Vec<usize> =
            (MIN_N..=MAX_N).filter(|&n| check("cta", Dtype::C64, n, &gpu()).is_ok()).collect();
        assert_eq!(served, (MIN_N..=*served.last().unwrap()).collect::<Vec<_>>());
        let last = *served.last().unwrap();
        assert!((192..=224).contains(&last), "{last}");
        let refusal = check("cta", Dtype::C64, last + 1, &gpu()).unwrap_err().to_string();
        assert!(refusal.contains("of shared memory"), "{refusal}");
    }

    #[test]
    fn knobs_that_make_no_kernel_are_refused() {
        for (text, dtype, part) in [
            ("cta:unit=tensor", Dtype::F32, "f64 and c64"),
            ("cta:unit=tensor:steps=2", Dtype::F64, "in 2 step(s)"),
            ("cta:steps=4", Dtype::C32, "steps=4 must divide a panel of 2"),
            ("cta:solvers=2", Dtype::F32, "more than the 1 warps"),
        ] {
            let refusal = check(text, dtype, 64, &gpu()).unwrap_err().to_string();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        assert_eq!(check("cta:unit=vector", Dtype::F64, 64, &gpu()), Ok(()));
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let text = "cta:unit=vector:warps=4:steps=2:solvers=3:tile=44:blocks=3";
        let family = VOCABULARY.spelling(text).unwrap();
        let knobs = Knobs::new(Dtype::F32, 97, Uplo::Upper, &family);
        let kernel = kernel(Dtype::F32, 97, Uplo::Upper, true, &knobs);
        assert_eq!(
            kernel.entry,
            "batchlas::potrf_cta<batchlas::CholeskyPlan<batchlas::f32, 97, batchlas::VectorGrid<2, 2>, 4, 2, 96, \
             batchlas::Phases<97>>, 7232, batchlas::Uplo::Upper, batchlas::Layout::Pointers, 3>"
        );
        assert_eq!(kernel.promise, Promise { threads: 128, min_blocks: 3, max_dynamic_shared: 7232 });
    }
}
