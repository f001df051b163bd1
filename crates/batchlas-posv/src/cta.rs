//! `cta`: both triangular solves in one launch, the right-hand sides resident in shared memory, any order that fits.
//!
//! A unit of work is up to `rhs` right-hand sides of one item, solved by `warps` warps; more right-hand sides are more
//! units. As a family of `posv` it runs after the routed factorisation and skips failed items, so that nothing needs to
//! be done about them in between. Geometry and argument list of `cuda/cta.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::{
    ArgumentError, Device, Dtype, InfoMut, Kernel, KernelSource, Launch, MatBatch, MatBatchMut, Promise,
    Queue, Ran, Result, Scalar, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};
use bytemuck::{Pod, Zeroable};

use crate::operand::Operand;
use crate::problem::Problem;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/cta.cuh", text: include_str!("../cuda/cta.cuh") };

/// Threads of a warp, and rows of a block (`ROWS` of the text).
const WARP: usize = 32;
/// Elements from a column of a block in shared memory to the next (`PITCH` of the text).
const PITCH: usize = WARP + 1;
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
    ],
};

/// The kernel's one parameter (`PotrsCtaArgs` of the text).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Operand,
    b: Operand,
    n: u64,
    nrhs: u64,
    batch: u64,
    info: u64,
}

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Right-hand sides of a unit of work.
    pub rhs: usize,
    /// Warps of a unit.
    pub warps: usize,
    /// Units of a work-group; one where a unit has several warps.
    pub units: usize,
}

impl Knobs {
    /// The knobs of a spelling for a problem.
    pub fn new(problem: &Problem, family: &Spelling) -> Knobs {
        let knob = |name| family.int(name).map(|value| value as usize);
        // Complex elements fill the instruction cache twice as fast.
        let most = if problem.dtype.is_complex() { 4 } else { 8 };
        let warps = knob("warps").unwrap_or(match problem.n {
            0..=128 => 1,
            129..=511 => 4,
            _ => 8,
        });
        Knobs {
            rhs: knob("rhs").unwrap_or(problem.nrhs.next_power_of_two().clamp(1, most)),
            warps,
            units: knob("units").unwrap_or(if warps == 1 { 4 } else { 1 }),
        }
    }

    fn threads(&self) -> usize {
        WARP * self.warps * self.units
    }

    /// Bytes of shared memory of one work-group: the right-hand sides of its units, and a block per warp.
    fn shared_bytes(&self, dtype: Dtype, n: usize) -> usize {
        let rows = n.next_multiple_of(WARP);
        self.units * (rows * self.rhs + self.warps * WARP * PITCH) * dtype.bytes()
    }
}

/// The kernel of one setting.
fn kernel(dtype: Dtype, uplo: Uplo, knobs: &Knobs, max_dynamic_shared: u32) -> Kernel {
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let Knobs { rhs, warps, units } = knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrs_cta<batchlas::{dtype}, batchlas::Uplo::{uplo}, {rhs}, {warps}, {units}>"
        ),
        promise: Promise { threads: knobs.threads() as u32, min_blocks: 1, max_dynamic_shared },
    }
}

/// The kernel that a spelling of this family launches for a problem on a device with `slm_budget` bytes of shared memory
/// per work-group.
pub fn kernel_of(problem: &Problem, family: &Spelling, slm_budget: usize) -> Kernel {
    let knobs = Knobs::new(problem, family);
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
    let knobs = Knobs::new(problem, family);
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
    let knobs = Knobs::new(problem, family);
    let args = Args {
        a: Operand::new(a),
        b: Operand::new(b.rb()),
        n: problem.n as u64,
        nrhs: problem.nrhs as u64,
        batch: problem.batch as u64,
        info: info.address(),
    };
    let slices = problem.nrhs.div_ceil(knobs.rhs) as u64;
    let blocks = slices.saturating_mul(problem.batch.div_ceil(knobs.units) as u64);
    let grid = u32::try_from(blocks).map_err(|_| ArgumentError::TooLarge {
        operand: "B",
        rows: b.rows(),
        cols: b.cols(),
        ld: b.ld(),
        stride: b.stride().unwrap_or(0),
        batch: b.batch(),
    })?;
    let kernel = kernel_of(problem, family, queue.device().slm_budget);
    let dynamic_shared = knobs.shared_bytes(problem.dtype, problem.n) as u32;
    let launch = Launch { kernel: &kernel, grid, dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of views and an `info` span on the
    // queue's device; B is exclusively borrowed for work on it.
    unsafe { queue.launch(&launch)? };
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
        let family = POTRS.spelling("cta:rhs=2:warps=4").unwrap();
        let of = |n| {
            let problem = Problem { dtype: Dtype::C32, uplo: Uplo::Upper, n, nrhs: 9, batch: 3 };
            kernel_of(&problem, &family, 200_000)
        };
        assert_eq!(of(5), of(700));
        assert_eq!(of(5).entry, "batchlas::potrs_cta<batchlas::c32, batchlas::Uplo::Upper, 2, 4, 1>");
        assert_eq!(
            (of(5).promise.max_dynamic_shared, of(1200).promise.max_dynamic_shared),
            (49_152, 200_000)
        );
    }

    #[test]
    fn constants_are_those_of_the_text() {
        assert!(SOURCE.text.contains("constexpr int ROWS = arch::WARP;"));
        assert!(SOURCE.text.contains("constexpr int PITCH = ROWS + 1;"));
    }
}
