//! What the kernels of this crate share: the cases they are compiled for, the argument block and the launch.
#![allow(unsafe_code)]

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    ArgumentError, Diag, Kernel, Launch, MatBatch, MatBatchMut, Queue, Result, Scalar, Side, Trans, Uplo,
};
use bytemuck::{Pod, Zeroable};

/// Threads of a warp.
pub(crate) const WARP: u32 = 32;

/// The triangular system `E x = alpha b` that a case stands for: E is A or its transpose, possibly conjugated, and the
/// vectors b are the columns of B (Left) or its rows (Right). 24 cases fold to eight kernels: side, stored triangle and
/// `transposed`; the rest is [`Flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) side: Side,
    pub(crate) uplo: Uplo,
    /// Whether E is the transpose of A: `op` transposes, or the side does, but not both.
    pub(crate) transposed: bool,
}

impl Case {
    pub(crate) fn of(shape: &SolveShape) -> Case {
        let transposed = shape.trans.transposes() != (shape.side == Side::Right);
        Case { side: shape.side, uplo: shape.uplo, transposed }
    }

    /// Every case that a kernel is compiled for.
    pub(crate) fn all() -> impl Iterator<Item = Case> {
        Side::ALL.iter().flat_map(|&side| {
            Uplo::ALL.iter().flat_map(move |&uplo| {
                [false, true].into_iter().map(move |transposed| Case { side, uplo, transposed })
            })
        })
    }

    /// The template arguments.
    pub(crate) fn arguments(self) -> String {
        let Case { side, uplo, transposed } = self;
        format!("batchlas::Side::{side:?}, batchlas::Uplo::{uplo:?}, {transposed}")
    }
}

/// Where the items of an operand lie (`Items` of the device code).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Items {
    address: u64,
    item_bytes: u64,
    table: u64,
    ld_bytes: u64,
}

impl Items {
    fn of<T: Scalar>(operand: &MatBatch<'_, T>) -> Items {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = operand.address();
        let ld_bytes = operand.ld() as u64 * bytes;
        match operand.stride() {
            Some(stride) => Items { address, item_bytes: stride as u64 * bytes, table: 0, ld_bytes },
            None => Items { address: offset as u64 * bytes, item_bytes: 0, table: address, ld_bytes },
        }
    }

    /// Whether all columns of all items are known to start on 16 bytes.
    fn is_aligned(&self) -> bool {
        let multiple = [self.address, self.item_bytes, self.ld_bytes].iter().all(|x| x.is_multiple_of(16));
        self.table == 0 && multiple
    }
}

/// The kernels' one parameter (`TrsmArgs` of the device code).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Items,
    b: Items,
    batch: u64,
    q: u32,
    /// Work-groups that the right-hand sides of one item take.
    slices: u32,
    alpha: [f64; 2],
    flags: u32,
    unused: u32,
}

/// `Flag` of the device code.
const UNIT: u32 = 1;
const CONJUGATE: u32 = 2;
const ALIGNED_A: u32 = 4;
const ALIGNED_B: u32 = 8;
const ALPHA_ZERO: u32 = 16;
const ALPHA_ONE: u32 = 32;

impl Args {
    fn new<T: Scalar>(shape: &SolveShape, q: u32, slices: u32, alpha: T, a: Items, b: Items) -> Args {
        let flags = [
            (UNIT, shape.diag == Diag::Unit),
            (CONJUGATE, shape.trans == Trans::ConjTrans),
            (ALIGNED_A, a.is_aligned()),
            (ALIGNED_B, b.is_aligned()),
            (ALPHA_ZERO, alpha == T::zero()),
            (ALPHA_ONE, alpha == T::one()),
        ];
        let flags = flags.iter().filter(|(_, holds)| *holds).map(|(bit, _)| bit).sum();
        let alpha = alpha.widen();
        Args { a, b, batch: shape.batch as u64, q, slices, alpha: [alpha.re, alpha.im], flags, unused: 0 }
    }
}

/// What one work-group takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Items.
    pub(crate) items: u32,
    /// Right-hand sides of each item.
    pub(crate) columns: u32,
}

/// Enqueues a kernel over all items and right-hand sides: work-groups of the same items are neighbours.
///
/// # Errors
/// More right-hand sides or work-groups than 31 bits count; the queue's own.
///
/// # Safety
/// The kernel takes the argument block of this module, and one work-group of it touches the items and right-hand sides
/// that `geometry` gives to it and no others.
pub(crate) unsafe fn launch<T: Scalar>(
    queue: &dyn Queue,
    kernel: &Kernel,
    shape: &SolveShape,
    alpha: T,
    a: &MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    geometry: Geometry,
) -> Result<()> {
    let b = b.into_const();
    let too_large = || ArgumentError::TooLarge {
        operand: "B",
        rows: b.rows(),
        cols: b.cols(),
        ld: b.ld(),
        stride: b.stride().unwrap_or(0),
        batch: b.batch(),
    };
    let q = i32::try_from(shape.q).map_err(|_| too_large())?.unsigned_abs();
    let slices = q.div_ceil(geometry.columns);
    let grid = (shape.batch as u64).div_ceil(geometry.items.into()) * u64::from(slices);
    let grid = i32::try_from(grid).map_err(|_| too_large())?.unsigned_abs();
    let args = Args::new(shape, q, slices, alpha, Items::of(a), Items::of(&b));
    let launch = Launch { kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
    // SAFETY: the addresses are those of a view that is borrowed and of one that is exclusively borrowed for work on this
    // queue, of the sizes in `shape`, which a validated problem has condensed them to; the rest is the caller's promise.
    unsafe { queue.launch(&launch)? };
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use batchlas_core::{Device, Place};

    pub(crate) fn gpu() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            compute_units: 132,
            max_work_group: 1024,
            has_sg32: true,
            ..Device::cpu(1)
        }
    }

    pub(crate) fn shape(n: usize, q: usize, batch: usize) -> SolveShape {
        let (side, uplo) = (Side::Left, Uplo::Lower);
        SolveShape { side, uplo, trans: Trans::No, diag: Diag::NonUnit, n, q, batch }
    }

    #[test]
    fn cases_fold_to_eight_kernels_and_three_flags() {
        let items = Items { address: 32, item_bytes: 64, table: 0, ld_bytes: 16 };
        let mut cases = Vec::new();
        for (&side, &uplo) in Side::ALL.iter().flat_map(|s| Uplo::ALL.iter().map(move |u| (s, u))) {
            for (&trans, &diag) in Trans::ALL.iter().flat_map(|t| Diag::ALL.iter().map(move |d| (t, d))) {
                let shape = SolveShape { side, uplo, trans, diag, ..shape(4, 4, 4) };
                let flags = Args::new(&shape, 4, 1, 1.0f64, items, items).flags;
                assert_eq!(flags & UNIT != 0, diag == Diag::Unit);
                assert_eq!(flags & CONJUGATE != 0, trans == Trans::ConjTrans);
                assert_eq!(flags & (ALPHA_ONE | ALPHA_ZERO), ALPHA_ONE);
                cases.push(Case::of(&shape));
            }
        }
        assert_eq!(cases.len(), 24);
        cases.sort_by_key(|case| case.arguments());
        cases.dedup();
        assert_eq!(cases.len(), 8);
        assert!(Case::all().all(|case| cases.contains(&case)));
    }

    #[test]
    fn alignment_is_claimed_only_where_every_column_has_it() {
        let whole = Items { address: 32, item_bytes: 64, table: 0, ld_bytes: 16 };
        assert!(whole.is_aligned());
        assert!(Items { item_bytes: 0, ..whole }.is_aligned(), "one factor for all");
        for part in [
            Items { address: 40, ..whole },
            Items { item_bytes: 72, ..whole },
            Items { ld_bytes: 24, ..whole },
            Items { table: 1024, ..whole },
        ] {
            assert!(!part.is_aligned(), "{part:?}");
        }
    }
}
