//! The argument block that the kernels of this crate share: operands, alpha, and what a case folds to.

use batchlas_core::seam::SolveShape;
use batchlas_core::{Diag, MatBatch, Scalar, Side, Trans, Uplo};
use bytemuck::{Pod, Zeroable};

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
pub(crate) struct Items {
    address: u64,
    item_bytes: u64,
    table: u64,
    ld_bytes: u64,
}

impl Items {
    pub(crate) fn of<T: Scalar>(operand: &MatBatch<'_, T>) -> Items {
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
pub(crate) struct Args {
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
    pub(crate) fn new<T: Scalar>(
        shape: &SolveShape,
        q: u32,
        slices: u32,
        alpha: T,
        a: Items,
        b: Items,
    ) -> Args {
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
