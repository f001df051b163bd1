//! `tiny`: factorisation and both solves in one launch, the matrix in registers, orders up to 32, real types up to 48
//! (f64) and 64 (f32), any number of right-hand sides, no scratch.
//!
//! `lanes` lanes of a warp share one system, so a warp holds `32 / lanes` of them; right-hand sides are solved `rhs` at a
//! time. The factor is bit-identical to that of potrf's family of the same name. Geometry and argument list of
//! `cuda/tiny.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::{
    ArgumentError, Device, Dtype, InfoMut, Kernel, KernelSource, Launch, MatBatchMut, Promise, Queue, Ran,
    Result, Scalar, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};
use bytemuck::{Pod, Zeroable};

use crate::operand::Operand;
use crate::problem::{FactorOutput, Problem};

/// Largest order of c64 where the code of an f64 operation is so long (`sm_120` and its kin) that a larger kernel leaves
/// the instruction cache: 144 KiB at order 17, and at most 128 KiB are allowed.
const MAX_N_C64_SM_12X: usize = 12;

/// Largest order of a type: the largest whose kernels have no frame and fit the instruction cache. Half of the tile's
/// registers, or of the code, is all that complex types leave.
pub const fn max_n(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F32 => 64,
        Dtype::F64 => 48,
        Dtype::C32 | Dtype::C64 => 32,
    }
}

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/tiny.cuh", text: include_str!("../cuda/tiny.cuh") };

/// Threads of a warp.
const WARP: u32 = 32;

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "tiny",
    class: Class::Native,
    knobs: &[
        Knob { name: "lanes", values: Values::OneOf(&[1, 2, 4, 8, 16, 32]), required: false },
        Knob { name: "rhs", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "pace", values: Values::Words(&["free", "stepwise"]), required: false },
        Knob { name: "store", values: Values::Words(&["eager", "late"]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
    ],
};

/// The kernel's one parameter (`PosvTinyArgs` of the text).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Operand,
    b: Operand,
    nrhs: u64,
    batch: u64,
    info: u64,
}

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Lanes that share a system.
    pub lanes: u32,
    /// Right-hand sides that are solved at a time.
    pub rhs: u32,
    /// Whether the compiler may mix the work of several columns.
    pub free: bool,
    /// Whether the factor is stored at the end; otherwise each column as soon as it is final.
    pub late: bool,
    /// Warps of a work-group. Nothing is shared between them.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that every order compiles without a frame or a spill.
    pub fn new(dtype: Dtype, n: usize, nrhs: usize, family: &Spelling) -> Knobs {
        let word = |name, given: &str| family.knob(name).map(|value| value.to_string() == given);
        let lanes = family.int("lanes").unwrap_or(default_lanes(dtype, n));
        let rhs = family.int("rhs").unwrap_or(default_rhs(dtype, n, nrhs));
        // Knobs that are given bring their own.
        let tuned = family.int("lanes").is_none() && family.int("warps").is_none();
        Knobs {
            lanes,
            rhs,
            free: word("pace", "free").unwrap_or(n <= 4),
            late: word("store", "late").unwrap_or(n < 16),
            warps: family.int("warps").unwrap_or(if n <= 16 { 4 } else { 2 }),
            blocks: family.int("blocks").unwrap_or(if tuned { default_blocks(dtype, n, rhs) } else { 1 }),
        }
    }

    fn threads(&self) -> u32 {
        WARP * self.warps
    }

    /// Systems of one work-group.
    fn per_group(&self) -> u32 {
        self.threads() / self.lanes
    }

    /// Bytes of shared memory of one work-group: `Columns` of the text, which asserts the same number.
    fn shared_bytes(&self, dtype: Dtype, n: usize) -> u32 {
        if self.lanes == 1 {
            return 0;
        }
        let (bytes, lanes) = (dtype.bytes() as u32, self.lanes);
        let rows = (n as u32).next_multiple_of(lanes);
        let pitch = |slot: u32| 16 * (((rows - slot * lanes) * bytes).div_ceil(16) | 1);
        let columns: u32 = (0..rows / lanes).map(|slot| lanes * pitch(slot)).sum();
        let span = lanes * bytes;
        let phase = if (16..128).contains(&span) { span } else { 16 };
        self.per_group() * ((columns.saturating_sub(phase)).next_multiple_of(128) + phase)
    }
}

/// Two or three rows per lane, so that each value read from shared memory serves several; one where traffic is all that
/// counts, or where two would not fit the registers. Edges from the ledger `posv.sm_90.jsonl`.
fn default_lanes(dtype: Dtype, n: usize) -> u32 {
    match (dtype, n) {
        (_, 1..=4) => (n as u32).next_power_of_two(),
        (_, 5..=6) | (Dtype::F32, 7..=8) => 4,
        (_, 7..=16) => 8,
        (Dtype::C64, 17..=24) => 16,
        (Dtype::C64, _) => WARP,
        (_, 17..=24) => 8,
        (_, 25..=32) | (Dtype::F32, 33..=48) => 16,
        _ => WARP,
    }
}

/// Work-groups per multiprocessor where the register allocation can be held to more than it would take by itself, without
/// a frame: one right-hand side, orders 17 to 32.
fn default_blocks(dtype: Dtype, n: usize, rhs: u32) -> u32 {
    match (dtype, n, rhs) {
        (Dtype::F32, 25..=32, 1) => 10,
        (Dtype::F64, 25..=32, 1) => 6,
        _ => 1,
    }
}

/// All right-hand sides at once as long as registers and the instruction cache take it.
fn default_rhs(dtype: Dtype, n: usize, nrhs: usize) -> u32 {
    let most = match dtype {
        Dtype::F32 if n > 48 => 2,
        Dtype::F32 if n > 32 => 4,
        Dtype::F64 if n > 32 => 2,
        Dtype::F32 | Dtype::F64 => 8,
        Dtype::C32 | Dtype::C64 if n <= 16 => 4,
        Dtype::C32 | Dtype::C64 => 2,
    };
    nrhs.next_power_of_two().clamp(1, most) as u32
}

/// The kernel of one setting. `aligned`: all columns of A start on 16 bytes, which only a single lane profits from.
pub fn kernel(problem: &Problem, output: FactorOutput, aligned: bool, knobs: &Knobs) -> Kernel {
    let Problem { dtype, uplo, n, nrhs, .. } = *problem;
    let scalar = dtype.name();
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let pace = if knobs.free { "Free" } else { "Stepwise" };
    let output = match output {
        FactorOutput::Discarded => "Discard",
        FactorOutput::Stored if knobs.late => "Late",
        FactorOutput::Stored => "Eager",
    };
    let aligned = aligned && knobs.lanes == 1;
    let Knobs { lanes, rhs, warps, blocks, .. } = *knobs;
    let (slices, shared) = (nrhs > rhs as usize, knobs.shared_bytes(dtype, n));
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::posv_tiny<batchlas::{scalar}, {n}, {lanes}, batchlas::Uplo::{uplo}, {aligned}, {rhs}, \
             {slices}, batchlas::Output::{output}, batchlas::Pace::{pace}, {warps}, {blocks}, {shared}>"
        ),
        promise: Promise { threads: knobs.threads(), min_blocks: blocks, max_dynamic_shared: shared },
    }
}

/// Every kernel that a spelling of this family launches for one type, order, number of right-hand sides and triangle.
pub fn kernels(problem: &Problem, family: &Spelling) -> impl Iterator<Item = Kernel> + use<> {
    let knobs = Knobs::new(problem.dtype, problem.n, problem.nrhs, family);
    let problem = *problem;
    // Alignment matters to a single lane only.
    let aligned = if knobs.lanes == 1 { &[false, true][..] } else { &[false] };
    let outputs = [FactorOutput::Stored, FactorOutput::Discarded];
    let all = outputs.into_iter().flat_map(|output| aligned.iter().map(move |&aligned| (output, aligned)));
    all.map(move |(output, aligned)| kernel(&problem, output, aligned, &knobs))
}

/// Whether the family has kernels without a frame for a size.
///
/// # Errors
/// The reason why not.
pub fn serves(arch: &str, problem: &Problem) -> Result<(), Refusal> {
    let Problem { dtype, uplo, n, nrhs, .. } = *problem;
    let max = match dtype {
        Dtype::C64 if arch.starts_with("sm_12") => MAX_N_C64_SM_12X,
        _ => max_n(dtype),
    };
    if n > max {
        return Err(format!("n = {n}, tiny serves {dtype} to n = {max} on {arch}").into());
    }
    if nrhs == 0 {
        return Err("there are no right-hand sides, which tiny does not serve".into());
    }
    if (dtype, uplo) == (Dtype::F64, Uplo::Upper) && n > 40 && nrhs > 1 {
        return Err(format!("n = {n}, tiny serves {nrhs} right-hand sides of f64 Upper to n = 40").into());
    }
    Ok(())
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, problem: &Problem, family: &Spelling) -> Result<(), Refusal> {
    let Problem { dtype, n, nrhs, .. } = *problem;
    if !device.is_gpu() || !device.has_sg32 {
        return Err("tiny needs a GPU with 32-wide warps".into());
    }
    serves(&device.arch, problem)?;
    let knobs = Knobs::new(dtype, n, nrhs, family);
    let (threads, shared, lanes) = (knobs.threads(), knobs.shared_bytes(dtype, n), knobs.lanes);
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    if device.slm_budget < shared as usize {
        return Err(
            format!("{shared} bytes of shared memory exceed the device's {}", device.slm_budget).into()
        );
    }
    if lanes > 1 && lanes as usize >= 2 * n {
        return Err(format!("{lanes} lanes are more than the {n} rows of a matrix can use").into());
    }
    Ok(())
}

/// Enqueues factorisation and solves.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    problem: &Problem,
    output: FactorOutput,
    a: MatBatchMut<'_, T>,
    b: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let args = Args {
        a: Operand::new(a.rb()),
        b: Operand::new(b.rb()),
        nrhs: problem.nrhs as u64,
        batch: problem.batch as u64,
        info: info.address(),
    };
    let knobs = Knobs::new(T::DTYPE, problem.n, problem.nrhs, family);
    let kernel = kernel(problem, output, args.a.is_aligned(), &knobs);
    let grid = args.batch.div_ceil(knobs.per_group().into());
    let grid = u32::try_from(grid).map_err(|_| ArgumentError::TooLarge {
        operand: "A",
        rows: a.rows(),
        cols: a.cols(),
        ld: a.ld(),
        stride: a.stride().unwrap_or(0),
        batch: a.batch(),
    })?;
    let dynamic_shared = kernel.promise.max_dynamic_shared;
    let launch = Launch { kernel: &kernel, grid, dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of views and an `info` span that
    // are exclusively borrowed for work on this queue.
    unsafe { queue.launch(&launch)? };
    Ok(Ran::leaf("posv", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::POSV;
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

    fn problem(dtype: Dtype, n: usize, nrhs: usize) -> Problem {
        Problem { dtype, uplo: Uplo::Lower, n, nrhs, batch: 1 }
    }

    fn check(text: &str, n: usize, nrhs: usize, device: &Device) -> Result<(), String> {
        let family = POSV.spelling(text).unwrap();
        can_run(device, &problem(Dtype::F32, n, nrhs), &family).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn every_order_and_number_of_right_hand_sides_runs_by_default() {
        for n in 1..=max_n(Dtype::F32) {
            for nrhs in [1, 2, 3, 8, 9, 1000] {
                assert_eq!(check("tiny", n, nrhs, &gpu()), Ok(()), "n = {n}, nrhs = {nrhs}");
            }
        }
        assert!(check("tiny", 65, 1, &gpu()).unwrap_err().contains("tiny serves f32 to n = 64"));
        assert!(check("tiny", 5, 0, &gpu()).unwrap_err().contains("no right-hand sides"));
        let upper = |n, nrhs| serves("sm_90", &Problem { uplo: Uplo::Upper, ..problem(Dtype::F64, n, nrhs) });
        assert!(upper(48, 1).is_ok() && upper(40, 9).is_ok() && upper(41, 2).is_err());
    }

    #[test]
    fn devices_and_knobs_without_a_kernel_are_refused() {
        assert!(check("tiny", 4, 1, &Device::cpu(1)).is_err());
        assert!(check("tiny", 4, 1, &Device { max_work_group: 64, ..gpu() }).unwrap_err().contains("exceed"));
        assert_eq!(check("tiny:warps=2", 4, 1, &Device { max_work_group: 64, ..gpu() }), Ok(()));
        assert!(check("tiny", 32, 1, &Device { slm_budget: 4096, ..gpu() }).unwrap_err().contains("shared"));
        assert_eq!(check("tiny:lanes=8", 5, 1, &gpu()), Ok(()));
        assert!(check("tiny:lanes=8", 4, 1, &gpu()).unwrap_err().contains("more than the 4 rows"));
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let family = POSV.spelling("tiny:lanes=8:rhs=2:pace=free:store=late:warps=2:blocks=7").unwrap();
        let of = |nrhs, output| {
            let problem = Problem { uplo: Uplo::Upper, ..problem(Dtype::C32, 17, nrhs) };
            kernel(&problem, output, true, &Knobs::new(Dtype::C32, 17, nrhs, &family))
        };
        // Slots of 8 columns, an odd number of 16-byte chunks (13, 9, 5) apart: 3456 bytes, 64 more than whole banks.
        let stored = of(2, FactorOutput::Stored);
        assert_eq!(
            stored.entry,
            "batchlas::posv_tiny<batchlas::c32, 17, 8, batchlas::Uplo::Upper, false, 2, false, \
             batchlas::Output::Late, batchlas::Pace::Free, 2, 7, 28160>"
        );
        assert_eq!(stored.promise.max_dynamic_shared, 28160);
        assert!(of(3, FactorOutput::Discarded).entry.contains("2, true, batchlas::Output::Discard"));
    }

    #[test]
    fn a_single_lane_has_a_kernel_for_aligned_columns_and_no_shared_memory() {
        let family = POSV.spelling("tiny:lanes=1").unwrap();
        let all: Vec<Kernel> = kernels(&problem(Dtype::F64, 4, 1), &family).collect();
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|kernel| kernel.promise.max_dynamic_shared == 0));
        assert_eq!(all.iter().filter(|kernel| kernel.entry.contains("Uplo::Lower, true, 1")).count(), 2);
    }
}
