//! A triangular solve as selection and predicates see it.

use batchlas_core::seam::SolveShape;
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{Diag, Dtype, MatBatch, MatBatchMut, Place, Result, Scalar, Side, Trans, Uplo};

/// One validated triangular solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Element type.
    pub dtype: Dtype,
    /// Everything else.
    pub shape: SolveShape,
}

impl Problem {
    /// Condenses the operands of a solve on a queue at `place`.
    ///
    /// # Errors
    /// A not square; A and B disagree about the order or the batch; heterogeneous; not where the queue works.
    pub fn new<T: Scalar>(
        side: Side,
        uplo: Uplo,
        trans: Trans,
        diag: Diag,
        a: &MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
        place: Place,
    ) -> Result<Self> {
        let rhs = Operand::of_mut("B", b).homogeneous("trsm")?.at("trsm", place)?;
        Operand::of("A", a)
            .square("trsm")?
            .homogeneous("trsm")?
            .at("trsm", place)?
            .same_batch("trsm", rhs)?;
        let (order, q) = match side {
            Side::Left => (("rows of B", b.rows()), b.cols()),
            Side::Right => (("columns of B", b.cols()), b.rows()),
        };
        equal("trsm", "the order", ("A", a.rows()), order)?;
        // Conjugation changes the arithmetic of complex types only.
        let trans = if T::DTYPE.is_complex() { trans } else { trans.key() };
        Ok(Problem {
            dtype: T::DTYPE,
            shape: SolveShape { side, uplo, trans, diag, n: a.rows(), q, batch: b.batch() },
        })
    }

    /// Whether there is nothing to solve.
    pub fn is_empty(&self) -> bool {
        self.shape.n == 0 || self.shape.q == 0 || self.shape.batch == 0
    }
}
