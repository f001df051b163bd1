//! `fused`: orders up to 128, one launch that reads and writes B once, on tensor cores, no scratch.
//!
//! A work-group stages the triangle of one item, packed, in shared memory; then each warp solves for `8 * tiles` (complex)
//! or `16 * tiles` (real) right-hand sides at a time, all their unknowns in registers. The order is rounded up to a
//! multiple of 8 and completed by the identity: registers and instructions come in blocks of 8, so an exact order would
//! cost eight times as many kernels and save nothing. All 24 cases are one kernel, by strides with a sign. Geometry and
//! argument list of `cuda/fused.cuh`, which has the algorithm.
#![allow(unsafe_code)]

use std::collections::BTreeSet;

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    ArgumentError, Device, Diag, Dtype, Kernel, KernelSource, Launch, MatBatch, MatBatchMut, Promise, Queue,
    Ran, Result, Scalar, Side, Trans, Uplo,
};
use batchlas_resident::hole;
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};
use bytemuck::{Pod, Zeroable};

/// Largest order.
pub const MAX_N: usize = 128;

/// Largest order of c64: beyond, the unknowns and what a step needs exceed a thread's registers.
const MAX_N_C64: usize = 88;

/// Unknowns of a block.
const BLOCK: usize = 8;

/// Shared memory of a multiprocessor, in bytes, on every architecture served.
const LEAST_SHARED: u32 = 96 << 10;

/// Work-groups that every multiprocessor should get before an item's right-hand sides are dealt to several.
const GROUPS_PER_UNIT: usize = 4;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-trsm/cuda/fused.cuh", text: include_str!("../cuda/fused.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "fused",
    class: Class::Native,
    knobs: &[
        Knob { name: "tiles", values: Values::OneOf(&[1, 2]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
    ],
};

/// How B is accessed (`Access` of the device code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Access {
    Single,
    Pairs,
    ReversedPairs,
    RightHandSides,
}

/// Where the items of an operand lie (`Items` of the device code).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Items {
    address: u64,
    item_bytes: u64,
    table: u64,
}

impl Items {
    /// `first`: bytes from an item's element (0, 0) to the one that elimination starts with.
    fn of<T: Scalar>(operand: &MatBatch<'_, T>, first: i64) -> Items {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = operand.address();
        match operand.stride() {
            Some(stride) => Items {
                address: address.wrapping_add_signed(first),
                item_bytes: stride as u64 * bytes,
                table: 0,
            },
            None => Items {
                address: (offset as u64 * bytes).wrapping_add_signed(first),
                item_bytes: 0,
                table: address,
            },
        }
    }
}

/// The kernel's one parameter (`TrsmFusedArgs` of the device code).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Items,
    b: Items,
    a_equation: i64,
    a_unknown: i64,
    b_unknown: i64,
    b_rhs: i64,
    b_block: i64,
    b_eight: i64,
    b_next: i64,
    n: u32,
    q: u32,
    next: u32,
    slices: u32,
    alpha: [f64; 2],
    flags: u32,
    unused: u32,
}

/// `Flag` of the device code.
const UNIT: u32 = 1;
const CONJUGATE: u32 = 2;
const ALPHA_ZERO: u32 = 4;
const ALPHA_ONE: u32 = 8;
const EQUATIONS: u32 = 16;

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Tiles of 16 rows that a warp solves at once.
    pub tiles: u32,
    /// Warps of a work-group.
    pub warps: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling for `q` right-hand sides; what it leaves out is set so that every order compiles without a
    /// frame or a spill. Two warps are all that few right-hand sides occupy.
    pub fn new(dtype: Dtype, n: usize, q: usize, family: &Spelling) -> Knobs {
        let mut knobs = Knobs { tiles: family.int("tiles").unwrap_or(1), warps: 4, blocks: 1 };
        let few = q <= 2 * BLOCK * knobs.per_lane(dtype) as usize;
        knobs.warps = family.int("warps").unwrap_or(if few { 2 } else { 4 });
        knobs.blocks = family.int("blocks").unwrap_or((resident_warps(dtype, n) / knobs.warps).max(1));
        knobs
    }

    fn threads(&self) -> u32 {
        32 * self.warps
    }

    /// Right-hand sides that a lane holds, of which there are eight times as many in a warp.
    fn per_lane(&self, dtype: Dtype) -> u32 {
        if dtype.is_complex() { self.tiles } else { 2 * self.tiles }
    }
}

/// Warps of a multiprocessor whose registers hold what one tile needs at this order.
fn resident_warps(dtype: Dtype, n: usize) -> u32 {
    match (dtype, n <= 64) {
        (Dtype::F32, true) => 16,
        (Dtype::F32, false) | (Dtype::F64 | Dtype::C32, true) => 12,
        (Dtype::F64 | Dtype::C32, false) | (Dtype::C64, _) => 8,
    }
}

/// Dynamic shared memory of a work-group in bytes: the packed triangle and the reciprocals of its diagonal.
fn shared(dtype: Dtype, n: usize) -> u32 {
    let blocks = n.div_ceil(BLOCK);
    let elements = blocks * (blocks + 1) / 2 * BLOCK * BLOCK + blocks * BLOCK;
    u32::try_from(hole::pad(elements * dtype.bytes())).unwrap_or(u32::MAX)
}

fn kernel(dtype: Dtype, n: usize, access: Access, knobs: &Knobs) -> Kernel {
    let (scalar, count) = (dtype.name(), n.div_ceil(BLOCK));
    let Knobs { tiles, warps, blocks } = *knobs;
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::trsm_fused<batchlas::{scalar}, {count}, {tiles}, batchlas::Access::{access:?}, {warps}, {blocks}>"
        ),
        promise: Promise {
            threads: knobs.threads(),
            // `blocks` bounds the registers; how many fit by shared memory depends on the device.
            min_blocks: blocks.min(LEAST_SHARED / shared(dtype, n)).max(1),
            max_dynamic_shared: shared(dtype, n),
        },
    }
}

/// Largest order of a type.
fn max_n(dtype: Dtype) -> usize {
    if dtype == Dtype::C64 { MAX_N_C64 } else { MAX_N }
}

/// Every kernel of a spelling for these orders and `q` right-hand sides: all types that are served, all ways to access B.
pub fn kernels<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    q: usize,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    let orders: BTreeSet<usize> = orders.into_iter().map(|n| n.next_multiple_of(BLOCK)).collect();
    orders.into_iter().flat_map(move |n| {
        Dtype::ALL.into_iter().filter(move |&dtype| n <= max_n(dtype)).flat_map(move |dtype| {
            let knobs = Knobs::new(dtype, n, q, family);
            // A c64 is an access by itself.
            let all = [Access::Single, Access::Pairs, Access::ReversedPairs, Access::RightHandSides];
            let distinct = if dtype == Dtype::C64 { 1 } else { all.len() };
            all.into_iter().take(distinct).map(move |access| kernel(dtype, n, access, &knobs))
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
        return Err("fused needs a GPU with 32-wide warps".into());
    }
    if shape.n > max_n(dtype) {
        return Err(format!("n = {}, fused serves {dtype} to n = {}", shape.n, max_n(dtype)).into());
    }
    let threads = Knobs::new(dtype, shape.n, shape.q, family).threads();
    if device.max_work_group < threads {
        return Err(format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into());
    }
    let bytes = shared(dtype, shape.n);
    if bytes as usize > device.slm_budget {
        return Err(
            format!("its triangle takes {bytes} B of {} B of shared memory", device.slm_budget).into()
        );
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
    let SolveShape { side, uplo, trans, diag, n, q, batch } = *shape;
    let knobs = Knobs::new(T::DTYPE, n, q, family);
    let b = b.rb();
    let too_large = || ArgumentError::TooLarge {
        operand: "B",
        rows: b.rows(),
        cols: b.cols(),
        ld: b.ld(),
        stride: b.stride().unwrap_or(0),
        batch,
    };
    let element = size_of::<T>().cast_signed() as i64;
    // Strides are below the address space, which the views have checked.
    let (a_ld, b_ld) = (a.ld() as i64 * element, b.ld() as i64 * element);
    let forward = (uplo == Uplo::Lower) ^ trans.transposes() ^ (side == Side::Right);
    // E is A where neither or both of the side and `op` transpose.
    let rows = trans.transposes() == (side == Side::Right);
    let (unknown, rhs) = if side == Side::Left { (element, b_ld) } else { (b_ld, element) };
    let sign = if forward { 1 } else { -1 };
    let last = if forward { 0 } else { n as i64 - 1 };
    let (equation, coefficient) = if rows { (element, a_ld) } else { (a_ld, element) };

    let per_lane = knobs.per_lane(T::DTYPE);
    let width = 16u64.min(u64::from(per_lane) * element.cast_unsigned());
    let pair = 2 * element.cast_unsigned();
    let aligned = |bytes: u64| {
        let items = b.stride().map(|stride| stride as u64 * element.cast_unsigned());
        items.is_some_and(|items| {
            [b.address().0, items, b_ld.cast_unsigned()].iter().all(|x| x.is_multiple_of(bytes))
        })
    };
    let access = match side {
        Side::Left if pair <= 16 && n.is_multiple_of(2) && aligned(pair) => {
            if forward {
                Access::Pairs
            } else {
                Access::ReversedPairs
            }
        }
        Side::Right
            if width > element.cast_unsigned()
                && (q as u64 * element.cast_unsigned()).is_multiple_of(width)
                && aligned(width) =>
        {
            Access::RightHandSides
        }
        _ => Access::Single,
    };

    let per_group = (BLOCK as u32 * per_lane * knobs.warps) as usize;
    let fill = GROUPS_PER_UNIT * queue.device().compute_units as usize;
    let slices = fill.div_ceil(batch).clamp(1, q.div_ceil(per_group));
    let grid = i32::try_from(batch as u64 * slices as u64).map_err(|_| too_large())?.unsigned_abs();
    let next = u32::try_from(per_group * slices).map_err(|_| too_large())?;
    let alpha_value = alpha.widen();
    let flags = [
        (UNIT, diag == Diag::Unit),
        (CONJUGATE, trans == Trans::ConjTrans),
        (ALPHA_ZERO, alpha == T::zero()),
        (ALPHA_ONE, alpha == T::one()),
        (EQUATIONS, rows),
    ];
    let args = Args {
        a: Items::of(&a, last * (a_ld + element)),
        b: Items::of(&b, last * unknown),
        a_equation: sign * equation,
        a_unknown: sign * coefficient,
        b_unknown: sign * unknown,
        b_rhs: rhs,
        b_block: BLOCK as i64 * sign * unknown,
        b_eight: 8 * rhs,
        b_next: next as i64 * rhs,
        n: n as u32,
        // 31 bits, so that the next right-hand sides of a warp have a number of 32.
        q: i32::try_from(q).map_err(|_| too_large())?.unsigned_abs(),
        next,
        slices: slices as u32,
        unused: 0,
        flags: flags.iter().filter(|(_, holds)| *holds).map(|(bit, _)| bit).sum(),
        alpha: [alpha_value.re, alpha_value.im],
    };
    let kernel = kernel(T::DTYPE, n, access, &knobs);
    let dynamic_shared = shared(T::DTYPE, n);
    let launch = Launch { kernel: &kernel, grid, dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of a view that is borrowed and of
    // one that is exclusively borrowed for work on this queue; the problem was validated, so they do not overlap.
    unsafe { queue.launch(&launch)? };
    Ok(Ran::leaf("trsm", family.to_string()))
}

#[cfg(test)]
mod tests {
    use batchlas_core::Place;

    use super::*;
    use crate::VOCABULARY;

    fn gpu(slm_budget: usize) -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget,
            ..Device::cpu(1)
        }
    }

    fn check(device: &Device, dtype: Dtype, n: usize) -> Result<(), Refusal> {
        let (side, uplo, trans, diag) = (Side::Left, Uplo::Lower, Trans::No, Diag::NonUnit);
        let shape = SolveShape { side, uplo, trans, diag, n, q: 1, batch: 1 };
        can_run(device, dtype, &shape, &VOCABULARY.spelling("fused").unwrap())
    }

    #[test]
    fn every_order_runs_to_the_last_of_its_type_and_no_further() {
        let hopper = gpu(227 * 1024 - 4096);
        for dtype in Dtype::ALL {
            for n in 1..=max_n(dtype) {
                assert_eq!(check(&hopper, dtype, n), Ok(()), "{dtype} n = {n}");
            }
            let message = check(&hopper, dtype, max_n(dtype) + 1).unwrap_err().to_string();
            assert!(message.contains(&format!("to n = {}", max_n(dtype))), "{message}");
        }
        assert!(check(&gpu(48 << 10), Dtype::F64, 128).unwrap_err().to_string().contains("70656 B"));
        assert!(check(&Device::cpu(1), Dtype::F64, 8).is_err());
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let family = VOCABULARY.spelling("fused:tiles=2:warps=8:blocks=3").unwrap();
        let knobs = Knobs::new(Dtype::C32, 65, 1, &family);
        assert_eq!(knobs, Knobs { tiles: 2, warps: 8, blocks: 3 });
        assert_eq!(
            kernel(Dtype::C32, 65, Access::ReversedPairs, &knobs).entry,
            "batchlas::trsm_fused<batchlas::c32, 9, 2, batchlas::Access::ReversedPairs, 8, 3>"
        );
        let family = VOCABULARY.spelling("fused").unwrap();
        assert_eq!(Knobs::new(Dtype::F32, 64, 32, &family), Knobs { tiles: 1, warps: 2, blocks: 8 });
        assert_eq!(Knobs::new(Dtype::F32, 64, 33, &family), Knobs { tiles: 1, warps: 4, blocks: 4 });
    }
}
