//! `tiny`: the whole matrix in registers, orders up to 32, one launch, no scratch.
//!
//! `lanes` lanes of a warp share one matrix, so a warp holds `32 / lanes` of them; lane `l` owns rows `l`, `l + lanes`,
//! ... The exact order is a template parameter: order 17 does not pay for 32. Geometry and argument list of
//! `cuda/tiny.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use batchlas_core::seam::FactorShape;
use batchlas_core::{
    Device, Dtype, InfoMut, Kernel, KernelSource, MatBatchMut, Promise, Queue, Ran, Result, Scalar, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::{Args, launch};

/// Largest order.
pub const MAX_N: usize = 32;

/// Largest order of c64 where the code of an f64 operation is so long (`sm_120` and its kin) that a larger kernel leaves
/// the instruction cache: 223 KiB at order 32, and at most 128 KiB are allowed.
const MAX_N_C64_SM_12X: usize = 20;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/tiny.cuh", text: include_str!("../cuda/tiny.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "tiny",
    class: Class::Native,
    knobs: &[
        Knob { name: "lanes", values: Values::OneOf(&[1, 2, 4, 8, 16, 32]), required: false },
        Knob { name: "send", values: Values::Words(&["shuffle", "shared"]), required: false },
        Knob { name: "pace", values: Values::Words(&["free", "stepwise"]), required: false },
        Knob { name: "store", values: Values::Words(&["eager", "late"]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
    ],
};

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Lanes that share a matrix.
    pub lanes: u32,
    /// Whether a column reaches the other lanes through shared memory; otherwise by shuffles.
    pub shared: bool,
    /// Whether the compiler may mix the work of several columns.
    pub free: bool,
    /// Whether the factor is stored at the end; otherwise each column as soon as it is final.
    pub late: bool,
    /// Warps of a work-group. Nothing is shared between them: fewer fill a multiprocessor's registers more evenly, more
    /// cost fewer work-groups.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that every order compiles without a frame or a spill.
    pub fn new(dtype: Dtype, n: usize, family: &Spelling) -> Knobs {
        let word = |name, given: &str| family.knob(name).map(|value| value.to_string() == given);
        let lanes = family.int("lanes").unwrap_or(default_lanes(dtype, n));
        Knobs {
            lanes,
            shared: word("send", "shared").unwrap_or(false) && lanes > 1,
            free: word("pace", "free").unwrap_or(n <= 4),
            late: word("store", "late").unwrap_or(false),
            warps: family.int("warps").unwrap_or(4),
            blocks: family.int("blocks").unwrap_or(1),
        }
    }

    fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Matrices of one work-group.
    fn per_group(&self) -> u64 {
        u64::from(self.threads() / self.lanes)
    }
}

/// Few rows per lane for wide types, so that the tile stays within the register budget; at most one idle lane row.
fn default_lanes(dtype: Dtype, n: usize) -> u32 {
    let rows = match dtype {
        Dtype::F32 => 4,
        Dtype::F64 | Dtype::C32 => 2,
        Dtype::C64 => 1,
    };
    let lanes = n.div_ceil(rows).next_power_of_two().clamp(1, 32);
    u32::try_from(lanes).unwrap_or(32)
}

/// The kernel of one setting. `table`: a pointer-array batch; `aligned`: all columns start on 16 bytes, which only a
/// single lane profits from.
pub fn kernel(dtype: Dtype, n: usize, uplo: Uplo, table: bool, aligned: bool, knobs: &Knobs) -> Kernel {
    let scalar = dtype.name();
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let layout = if table { "Pointers" } else { "Strided" };
    let send = if knobs.shared { "Shared" } else { "Shuffle" };
    let pace = if knobs.free { "Free" } else { "Stepwise" };
    let store = if knobs.late { "Late" } else { "Eager" };
    let aligned = aligned && knobs.lanes == 1;
    let Knobs { lanes, warps, blocks, .. } = *knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrf_tiny<batchlas::{scalar}, {n}, {lanes}, batchlas::Uplo::{uplo}, \
             batchlas::Layout::{layout}, {aligned}, batchlas::Broadcast::{send}, batchlas::Stores::{store}, \
             batchlas::Pace::{pace}, {warps}, {blocks}>"
        ),
        promise: Promise { threads: knobs.threads(), min_blocks: blocks, max_dynamic_shared: 0 },
    }
}

/// Every kernel that a spelling of this family launches for one type, order and triangle: one per layout.
pub fn layouts(dtype: Dtype, n: usize, uplo: Uplo, family: &Spelling) -> impl Iterator<Item = Kernel> {
    let knobs = Knobs::new(dtype, n, family);
    // Alignment matters to a single lane only.
    let all = [(false, false), (true, false), (false, true)];
    let distinct = if knobs.lanes == 1 { 3 } else { 2 };
    all.into_iter().take(distinct).map(move |(table, aligned)| kernel(dtype, n, uplo, table, aligned, &knobs))
}

/// Whether the family has a kernel for a type and an order on an architecture, as tables spell it.
///
/// # Errors
/// The reason why not.
pub fn serves(arch: &str, dtype: Dtype, n: usize) -> Result<(), Refusal> {
    let max = match dtype {
        Dtype::C64 if arch.starts_with("sm_12") => MAX_N_C64_SM_12X,
        _ => MAX_N,
    };
    if n <= max { Ok(()) } else { Err(format!("n = {n}, tiny serves {dtype} to n = {max} on {arch}").into()) }
}

/// Every kernel that a spelling of this family launches on an architecture for these orders: all types that are served
/// there, both triangles, all layouts.
pub fn kernels<'f>(
    arch: &'f str,
    orders: impl IntoIterator<Item = usize> + 'f,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    orders.into_iter().flat_map(move |n| {
        let served = Dtype::ALL.into_iter().filter(move |&dtype| serves(arch, dtype, n).is_ok());
        let types = served.flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
        types.flat_map(move |(dtype, uplo)| layouts(dtype, n, uplo, family))
    })
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &FactorShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    let FactorShape { n, .. } = *shape;
    if !device.is_gpu() || !device.has_sg32 {
        return Err("tiny needs a GPU with 32-wide warps".into());
    }
    let threads = Knobs::new(dtype, n, family).threads();
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    serves(&device.arch, dtype, n)?;
    let lanes = Knobs::new(dtype, n, family).lanes as usize;
    if lanes > 1 && lanes >= 2 * n {
        return Err(format!("{lanes} lanes are more than the {n} rows of a matrix can use").into());
    }
    if lanes == 1 && family.knob("send").is_some_and(|send| send.to_string() == "shared") {
        return Err("a single lane has nobody to send a column to".into());
    }
    Ok(())
}

/// Enqueues the factorisation.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let knobs = Knobs::new(T::DTYPE, a.rows(), family);
    let aligned = a.stride().is_some() && Args::new(&a.rb(), 0).is_aligned();
    let kernel = kernel(T::DTYPE, a.rows(), uplo, a.stride().is_none(), aligned, &knobs);
    // SAFETY: the kernel takes the shared argument block, and a work-group has `per_group` items.
    unsafe { launch(queue, &kernel, a, info, knobs.per_group() as usize, 0)? };
    Ok(Ran::leaf("potrf", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use batchlas_core::Place;

    fn gpu() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            ..Device::cpu(1)
        }
    }

    fn check(text: &str, n: usize, device: &Device) -> Result<(), Refusal> {
        let family = VOCABULARY.spelling(text).unwrap();
        can_run(device, Dtype::F32, &FactorShape { uplo: Uplo::Lower, n, batch: 1 }, &family)
    }

    #[test]
    fn every_order_runs_by_default_and_the_next_does_not() {
        for n in 1..=MAX_N {
            assert_eq!(check("tiny", n, &gpu()), Ok(()), "n = {n}");
        }
        assert!(check("tiny", MAX_N + 1, &gpu()).unwrap_err().to_string().contains("to n = 32"));
        assert!(serves("sm_90", Dtype::C64, 32).is_ok() && serves("sm_120", Dtype::C64, 20).is_ok());
        assert!(serves("sm_120", Dtype::C64, 21).unwrap_err().to_string().contains("to n = 20"));
        let family = VOCABULARY.spelling("tiny").unwrap();
        let entries = |arch| kernels(arch, [32], &family).map(|k| k.entry).collect::<Vec<_>>();
        assert!(entries("sm_90").iter().any(|e| e.contains("c64")));
        assert!(!entries("sm_120").iter().any(|e| e.contains("c64")));
        assert!(check("tiny", 4, &Device::cpu(1)).is_err());
        assert!(check("tiny", 4, &Device { max_work_group: 64, ..gpu() }).is_err());
    }

    #[test]
    fn knobs_that_make_no_kernel_are_refused() {
        assert_eq!(check("tiny:lanes=8", 5, &gpu()), Ok(()));
        assert!(check("tiny:lanes=8", 4, &gpu()).is_err(), "half of the lanes would be idle");
        assert_eq!(check("tiny:lanes=1", 1, &gpu()), Ok(()));
        assert!(check("tiny:lanes=1:send=shared", 4, &gpu()).is_err());
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let family =
            VOCABULARY.spelling("tiny:lanes=8:send=shared:pace=free:store=late:warps=2:blocks=7").unwrap();
        let knobs = Knobs::new(Dtype::C32, 17, &family);
        assert_eq!(knobs, Knobs { lanes: 8, shared: true, free: true, late: true, warps: 2, blocks: 7 });
        let kernel = kernel(Dtype::C32, 17, Uplo::Upper, true, true, &knobs);
        assert_eq!(
            kernel.entry,
            "batchlas::potrf_tiny<batchlas::c32, 17, 8, batchlas::Uplo::Upper, batchlas::Layout::Pointers, false, \
             batchlas::Broadcast::Shared, batchlas::Stores::Late, batchlas::Pace::Free, 2, 7>"
        );
        assert_eq!(knobs.per_group(), 8);
    }
}
