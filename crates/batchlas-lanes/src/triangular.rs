//! The 24 cases of a triangular solve as one recurrence.
//!
//! With right-hand sides as rows of `X`, every case is `X M = alpha B` with an upper triangle `M` once the order of columns
//! may be reversed: `X_j = (alpha B_j - sum of X_k M_kj over k < j) / M_jj`.

use batchlas_core::{Diag, Side, Trans, Uplo};

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which side the triangle is on.
    pub side: Side,
    /// Which triangle.
    pub uplo: Uplo,
    /// Its transposition.
    pub trans: Trans,
    /// Whether its diagonal is implicit.
    pub diag: Diag,
}

/// Where `M` is in memory, in reals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triangle {
    /// Entry (0, 0), from the start of the item.
    pub(crate) first: usize,
    /// From a row of `M` to the next.
    pub(crate) row: isize,
    /// From a column of `M` to the next.
    pub(crate) col: isize,
    /// Whether columns of the right-hand sides are run from the last.
    pub(crate) backward: bool,
}

impl Case {
    /// `M` for order `n`, leading dimension `ld` and `parts` reals per element.
    #[inline(always)]
    pub(crate) fn triangle(&self, n: usize, ld: usize, parts: usize) -> Triangle {
        // M is op(A) on the right and its transpose on the left.
        let along = self.trans.transposes() == (self.side == Side::Left);
        let (next, over) = (parts.cast_signed(), (ld * parts).cast_signed());
        let (row, col) = if along { (next, over) } else { (over, next) };
        if (self.uplo == Uplo::Upper) == along {
            Triangle { first: 0, row, col, backward: false }
        } else {
            Triangle { first: (n - 1) * (ld + 1) * parts, row: -row, col: -col, backward: true }
        }
    }

    /// Whether entries are conjugated.
    #[inline(always)]
    pub(crate) fn conjugates(&self) -> bool {
        self.trans == Trans::ConjTrans
    }

    /// Whether the diagonal is one.
    #[inline(always)]
    pub(crate) fn is_unit(&self) -> bool {
        self.diag == Diag::Unit
    }
}
