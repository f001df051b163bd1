//! `cta`: both triangular solves in one launch, the right-hand sides resident in shared memory, any order that fits.
//!
//! A unit of work is up to `rhs` right-hand sides of one item, solved by `warps` warps; more right-hand sides are more
//! units. Small factors are read once and kept in shared memory for the second sweep. As a family of `posv` it runs after the routed factorisation and skips failed items, so that nothing needs to
//! be done about them in between. Geometry and argument list of `cuda/cta.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::{
    Device, Dtype, InfoMut, Kernel, KernelSource, MatBatch, MatBatchMut, Promise, Queue, Ran, Result, Scalar,
    Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands;
use crate::problem::Problem;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/cta.cuh", text: include_str!("../cuda/cta.cuh") };

/// Threads of a warp, and rows of a block (`ROWS` of the text).
const WARP: usize = 32;
/// Elements from a column of a block in shared memory to the next (`PITCH` of the text).
const PITCH: usize = WARP + 1;
/// Largest order whose factor is kept by default. Edge from the ledger `posv.sm_90.jsonl`.
const MAX_N_ONCE: usize = 64;
/// Shared memory that every kernel may ask for.
const COMMON_SHARED: usize = 48 << 10;

/// The promise of a kernel that asks for `bytes` of shared memory on a device with `budget`: one of two, since a promise
/// is part of a kernel's identity, and one that followed the order would compile the same text once per order.
pub(crate) fn promised_shared(bytes: usize, budget: usize) -> u32 {
    if bytes <= COMMON_SHARED { COMMON_SHARED as u32 } else { budget as u32 }
}

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "cta",
    class: Class::Native,
    knobs: &[
        Knob { name: "rhs", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "units", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "read", values: Values::Words(&["once", "twice"]), required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Right-hand sides of a unit of work.
    pub rhs: usize,
    /// Warps of a unit.
    pub warps: usize,
    /// Units of a work-group; one where a unit has several warps.
    pub units: usize,
    /// Whether the whole factor of a unit is kept in shared memory.
    pub once: bool,
}

impl Knobs {
    /// The knobs of a spelling for a problem on a device with `slm_budget` bytes of shared memory per work-group.
    pub fn new(problem: &Problem, family: &Spelling, slm_budget: usize) -> Knobs {
        let knob = |name| family.int(name).map(|value| value as usize);
        let Problem { dtype, n, nrhs, .. } = *problem;
        // Complex elements fill the instruction cache twice as fast.
        let most = if dtype.is_complex() { 4 } else { 8 };
        let rhs = knob("rhs").unwrap_or(nrhs.next_power_of_two().clamp(1, most));
        // Beyond two rows of blocks, too few units fit to hide each other's chains of unknowns; and two must fit at all.
        let alone = Knobs { rhs, warps: 1, units: 1, once: true };
        let pays = n <= MAX_N_ONCE && 2 * alone.shared_bytes(dtype, n) <= slm_budget;
        let once = family.knob("read").map_or(pays, |value| value.to_string() == "once");
        let warps = knob("warps").unwrap_or(match n {
            0..=128 => 1,
            129..=256 => 2,
            257..=767 => 4,
            _ => 8,
        });
        // A factor that is kept is the larger part of a unit, and small work-groups fill what is left better.
        let units = knob("units").unwrap_or(if warps > 1 || once && n > WARP { 1 } else { 4 });
        Knobs { rhs, warps, units, once }
    }

    fn threads(&self) -> usize {
        WARP * self.warps * self.units
    }

    /// Bytes of shared memory of one work-group: for each of its units the right-hand sides and a block per warp, or all
    /// blocks of the triangle and an element for each reciprocal.
    fn shared_bytes(&self, dtype: Dtype, n: usize) -> usize {
        let rows = n.div_ceil(WARP);
        let (blocks, reciprocals) =
            if self.once { (rows * (rows + 1) / 2, rows * WARP) } else { (self.warps, 0) };
        self.units * (rows * WARP * self.rhs + blocks * WARP * PITCH + reciprocals) * dtype.bytes()
    }
}

/// The kernel of one setting.
fn kernel(dtype: Dtype, uplo: Uplo, knobs: &Knobs, max_dynamic_shared: u32) -> Kernel {
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let Knobs { rhs, warps, units, once } = knobs;
    let read = if *once { "Once" } else { "Twice" };
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrs_cta<batchlas::{dtype}, batchlas::Uplo::{uplo}, {rhs}, {warps}, {units}, \
             batchlas::Read::{read}>"
        ),
        promise: Promise { threads: knobs.threads() as u32, min_blocks: 1, max_dynamic_shared },
    }
}

/// The kernel that a spelling of this family launches for a problem on a device with `slm_budget` bytes of shared memory
/// per work-group.
pub fn kernel_of(problem: &Problem, family: &Spelling, slm_budget: usize) -> Kernel {
    let knobs = Knobs::new(problem, family, slm_budget);
    let shared = promised_shared(knobs.shared_bytes(problem.dtype, problem.n), slm_budget);
    kernel(problem.dtype, problem.uplo, &knobs, shared)
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, problem: &Problem, family: &Spelling) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("cta needs a GPU with 32-wide warps".into());
    }
    if problem.nrhs == 0 {
        return Err("there are no right-hand sides, which cta does not serve".into());
    }
    let knobs = Knobs::new(problem, family, device.slm_budget);
    if knobs.warps > 1 && knobs.units > 1 {
        return Err("a unit of several warps has a work-group to itself".into());
    }
    let (threads, shared) = (knobs.threads(), knobs.shared_bytes(problem.dtype, problem.n));
    if (device.max_work_group as usize) < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    if device.slm_budget < shared {
        return Err(
            format!("{shared} bytes of shared memory exceed the device's {}", device.slm_budget).into()
        );
    }
    Ok(())
}

/// Enqueues the solves with the factor in `a` of all items whose `info` is 0; of all, if it is absent.
pub(crate) fn solve<T: Scalar>(
    queue: &dyn Queue,
    problem: &Problem,
    a: MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let budget = queue.device().slm_budget;
    let knobs = Knobs::new(problem, family, budget);
    let slices = problem.nrhs.div_ceil(knobs.rhs) as u64;
    let blocks = slices.saturating_mul(problem.batch.div_ceil(knobs.units) as u64);
    let (kernel, shared) =
        (kernel_of(problem, family, budget), knobs.shared_bytes(problem.dtype, problem.n) as u32);
    // SAFETY: this family's kernels take that argument and keep to it; B is exclusively borrowed, A and `info` are read.
    unsafe { operands::launch(queue, &kernel, shared, blocks, a, b, &info)? };
    Ok(Ran::leaf("potrs", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::POTRS;
    use batchlas_core::Place;

    fn gpu() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 200_000,
            ..Device::cpu(1)
        }
    }

    fn check(text: &str, n: usize, nrhs: usize) -> Result<(), String> {
        let problem = Problem { dtype: Dtype::F64, uplo: Uplo::Lower, n, nrhs, batch: 1 };
        let family = POTRS.spelling(text).unwrap();
        can_run(&gpu(), &problem, &family).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn orders_end_where_shared_memory_does() {
        // One right-hand side: 200,000 bytes are 25,000 elements, 8 blocks of 1056 and 16,544 rows, whole blocks of them.
        let most = 16_544;
        assert_eq!(check("cta", most, 1), Ok(()));
        assert!(check("cta", most + 1, 1).unwrap_err().contains("200192 bytes"));
        assert_eq!(check("cta:warps=1:units=1", most + 32 * 33 * 7, 1), Ok(()));
        assert!(check("cta", 8, 0).unwrap_err().contains("no right-hand sides"));
        assert!(check("cta:warps=2:units=2", 8, 1).unwrap_err().contains("to itself"));
        let cpu = Problem { dtype: Dtype::F32, uplo: Uplo::Upper, n: 8, nrhs: 1, batch: 1 };
        assert!(can_run(&Device::cpu(1), &cpu, &POTRS.spelling("cta").unwrap()).is_err());
    }

    #[test]
    fn a_kernel_does_not_depend_on_the_order_until_it_needs_much_shared_memory() {
        let family = POTRS.spelling("cta:rhs=2:warps=4:read=twice").unwrap();
        let of = |n| {
            let problem = Problem { dtype: Dtype::C32, uplo: Uplo::Upper, n, nrhs: 9, batch: 3 };
            kernel_of(&problem, &family, 200_000)
        };
        assert_eq!(of(5), of(700));
        let entry =
            "batchlas::potrs_cta<batchlas::c32, batchlas::Uplo::Upper, 2, 4, 1, batchlas::Read::Twice>";
        assert_eq!(of(5).entry, entry);
        assert_eq!(
            (of(5).promise.max_dynamic_shared, of(1200).promise.max_dynamic_shared),
            (49_152, 200_000)
        );
    }

    #[test]
    fn small_factors_are_kept_while_two_fit() {
        let family = POTRS.spelling("cta").unwrap();
        let of = |n| {
            let problem = Problem { dtype: Dtype::F64, uplo: Uplo::Lower, n, nrhs: 1, batch: 1 };
            Knobs::new(&problem, &family, 200_000)
        };
        // 2 rows of blocks: 3 of 8448 bytes, and 64 right-hand sides and reciprocals.
        assert_eq!((of(64).once, of(64).shared_bytes(Dtype::F64, 64)), (true, 3 * 8448 + 1024));
        assert!(!of(65).once && of(65).shared_bytes(Dtype::F64, 65) == 4 * (8448 + 96 * 8));
        assert_eq!((of(32).units, of(33).units, of(65).units), (4, 1, 4));
        let small = Problem { dtype: Dtype::F64, uplo: Uplo::Lower, n: 64, nrhs: 1, batch: 1 };
        assert!(!Knobs::new(&small, &family, 50_000).once);
        // The largest factor that fits at all may be kept by request: 21 blocks.
        assert_eq!(check("cta:read=once:warps=1", 192, 1), Ok(()));
        assert!(check("cta:read=once:warps=1", 193, 1).unwrap_err().contains("240128 bytes"));
    }

    #[test]
    fn constants_are_those_of_the_text() {
        assert!(SOURCE.text.contains("constexpr int ROWS = arch::WARP;"));
        assert!(SOURCE.text.contains("constexpr int PITCH = ROWS + 1;"));
    }
}
