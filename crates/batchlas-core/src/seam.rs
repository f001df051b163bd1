//! Seams: what one operation may ask of another without naming it.
//!
//! A blocked driver is handed trait objects and never knows what is behind them: the routed operation, a library, or a
//! counting mock. Vendor arms implement the same traits. Every call reports what it [`Ran`].

use std::borrow::Cow;
use std::fmt;

use crate::arena::WorkspaceMut;
use crate::device::Device;
use crate::enums::{Diag, Side, Trans, Uplo};
use crate::error::Result;
use crate::info::InfoMut;
use crate::queue::Queue;
use crate::scalar::Scalar;
use crate::view::{MatBatch, MatBatchMut};

/// What was executed: the operation, the family's spelling, and what it called in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The operation, e.g. `potrf`.
    pub op: &'static str,
    /// The family's spelling, e.g. `tiny:lanes=8`, or `none` for an empty problem.
    pub family: Cow<'static, str>,
    /// Operations it called through seams.
    pub children: Vec<Ran>,
}

impl Ran {
    /// A family without children.
    pub fn leaf(op: &'static str, family: impl Into<Cow<'static, str>>) -> Ran {
        Ran { op, family: family.into(), children: Vec::new() }
    }

    /// An empty problem, for which nothing ran.
    pub fn nothing(op: &'static str) -> Ran {
        Ran::leaf(op, "none")
    }

    /// Whether no vendor library took part, here or below.
    pub fn vendor_free(&self) -> bool {
        !self.family.starts_with("vendor") && self.children.iter().all(Ran::vendor_free)
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.op, self.family)?;
        if let [first, rest @ ..] = &self.children[..] {
            write!(f, "({first}")?;
            for child in rest {
                write!(f, ", {child}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// Size of a factorisation, for [`Factor::can_factor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactorShape {
    /// Which triangle.
    pub uplo: Uplo,
    /// Order of the matrices.
    pub n: usize,
    /// Number of items.
    pub batch: usize,
}

/// Size of a triangular solve, for [`PanelSolve::can_solve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolveShape {
    /// Which side the factor is on.
    pub side: Side,
    /// Which triangle it is in.
    pub uplo: Uplo,
    /// Its transposition.
    pub trans: Trans,
    /// Whether its diagonal is implicit.
    pub diag: Diag,
    /// Order of the factor.
    pub n: usize,
    /// Number of independent right-hand sides: columns of B for Left, rows for Right.
    pub q: usize,
    /// Number of items.
    pub batch: usize,
}

/// Size of a product, for [`TrailingUpdate::can_update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateShape {
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Inner dimension.
    pub k: usize,
    /// Number of items.
    pub batch: usize,
}

/// Cholesky factorisation of a batch.
pub trait Factor<T: Scalar>: Sync {
    /// Whether this implementation can serve the problem; the reason if not.
    ///
    /// # Errors
    /// The reason, for the trace.
    fn can_factor(&self, device: &Device, shape: &FactorShape) -> Result<(), String>;

    /// Bytes of workspace that [`Factor::factor`] needs for these operands.
    ///
    /// # Errors
    /// Nothing can run the problem.
    fn factor_workspace(&self, queue: &dyn Queue, uplo: Uplo, a: MatBatch<'_, T>) -> Result<usize>;

    /// `A = L L^H` (Lower) or `A = U^H U` (Upper), in place in the triangle `uplo`; `info` per item.
    ///
    /// # Errors
    /// The implementation's own; a failing item is not an error.
    fn factor(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran>;
}

/// Triangular solve of a batch. Takes no workspace.
pub trait PanelSolve<T: Scalar>: Sync {
    /// Whether this implementation can serve the problem; the reason if not.
    ///
    /// # Errors
    /// The reason, for the trace.
    fn can_solve(&self, device: &Device, shape: &SolveShape) -> Result<(), String>;

    /// `op(A) X = alpha B` (Left) or `X op(A) = alpha B` (Right), X over B.
    ///
    /// # Errors
    /// The implementation's own.
    fn solve(
        &self,
        queue: &dyn Queue,
        side: Side,
        uplo: Uplo,
        trans: Trans,
        diag: Diag,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
    ) -> Result<Ran>;
}

/// Matrix product and Hermitian rank-k update of a batch. Takes no workspace.
pub trait TrailingUpdate<T: Scalar>: Sync {
    /// Whether this implementation can serve the problem; the reason if not.
    ///
    /// # Errors
    /// The reason, for the trace.
    fn can_update(&self, device: &Device, shape: &UpdateShape) -> Result<(), String>;

    /// `C = alpha op(A) op(B) + beta C`. C is not read where `beta` is zero.
    ///
    /// # Errors
    /// The implementation's own.
    fn gemm(
        &self,
        queue: &dyn Queue,
        trans_a: Trans,
        trans_b: Trans,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatch<'_, T>,
        beta: T,
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran>;

    /// `C = alpha A A^H + beta C` (`trans` = N) or `C = alpha A^H A + beta C` (otherwise), in the triangle `uplo` of
    /// C only; the imaginary part of C's diagonal is ignored and written as zero. C is not read where `beta` is zero.
    ///
    /// # Errors
    /// The implementation's own.
    fn herk(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        trans: Trans,
        alpha: T::Real,
        a: MatBatch<'_, T>,
        beta: T::Real,
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_reads_as_a_tree_and_knows_its_vendors() {
        let mut posv = Ran::leaf("posv", "blocked");
        posv.children = vec![Ran::leaf("potrf", "tiny:lanes=8"), Ran::leaf("trsm", "vendor")];
        assert_eq!(posv.to_string(), "posv=blocked(potrf=tiny:lanes=8, trsm=vendor)");
        assert!(!posv.vendor_free());
        posv.children.pop();
        assert!(posv.vendor_free());
    }
}
