//! Products as selection and predicates see them.

use batchlas_core::seam::UpdateShape;
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{Dtype, MatBatch, MatBatchMut, Place, Result, Scalar, Trans, Uplo};

/// Conjugation changes the arithmetic of complex types only.
fn fold<T: Scalar>(trans: Trans) -> Trans {
    if T::DTYPE.is_complex() { trans } else { trans.key() }
}

/// Rows and columns of `op(A)`.
fn applied<T: Scalar>(trans: Trans, a: &MatBatch<'_, T>) -> (usize, usize) {
    if trans.transposes() { (a.cols(), a.rows()) } else { (a.rows(), a.cols()) }
}

/// One validated matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmProblem {
    /// Element type.
    pub dtype: Dtype,
    /// Transposition of A.
    pub trans_a: Trans,
    /// Transposition of B.
    pub trans_b: Trans,
    /// Sizes.
    pub shape: UpdateShape,
}

impl GemmProblem {
    /// Condenses the operands of a product on a queue at `place`.
    ///
    /// # Errors
    /// Operands that disagree about a dimension or the batch; heterogeneous; not where the queue works.
    pub fn new<T: Scalar>(
        trans_a: Trans,
        trans_b: Trans,
        a: &MatBatch<'_, T>,
        b: &MatBatch<'_, T>,
        c: &MatBatchMut<'_, T>,
        place: Place,
    ) -> Result<Self> {
        const OP: &str = "gemm";
        let out = Operand::of_mut("C", c).homogeneous(OP)?.at(OP, place)?;
        Operand::of("A", a).homogeneous(OP)?.at(OP, place)?.same_batch(OP, out)?;
        Operand::of("B", b).homogeneous(OP)?.at(OP, place)?.same_batch(OP, out)?;
        let ((m, k), (k_b, n)) = (applied(trans_a, a), applied(trans_b, b));
        equal(OP, "the number of rows", ("op(A)", m), ("C", c.rows()))?;
        equal(OP, "the inner dimension", ("op(A)", k), ("op(B)", k_b))?;
        equal(OP, "the number of columns", ("op(B)", n), ("C", c.cols()))?;
        let shape = UpdateShape { m, n, k, batch: c.batch() };
        Ok(GemmProblem { dtype: T::DTYPE, trans_a: fold::<T>(trans_a), trans_b: fold::<T>(trans_b), shape })
    }

    /// Whether C is empty.
    pub fn is_empty(&self) -> bool {
        self.shape.m == 0 || self.shape.n == 0 || self.shape.batch == 0
    }
}

/// One validated rank-k update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HerkProblem {
    /// Element type.
    pub dtype: Dtype,
    /// The triangle of C that is updated.
    pub uplo: Uplo,
    /// Whether A is adjoint on the left.
    pub trans: Trans,
    /// Sizes; `m = n`.
    pub shape: UpdateShape,
}

impl HerkProblem {
    /// Condenses the operands of an update on a queue at `place`.
    ///
    /// # Errors
    /// C not square; operands that disagree; heterogeneous; not where the queue works.
    pub fn new<T: Scalar>(
        uplo: Uplo,
        trans: Trans,
        a: &MatBatch<'_, T>,
        c: &MatBatchMut<'_, T>,
        place: Place,
    ) -> Result<Self> {
        const OP: &str = "herk";
        let out = Operand::of_mut("C", c).square(OP)?.homogeneous(OP)?.at(OP, place)?;
        Operand::of("A", a).homogeneous(OP)?.at(OP, place)?.same_batch(OP, out)?;
        let (n, k) = applied(trans, a);
        equal(OP, "the order", ("op(A)", n), ("C", c.rows()))?;
        let shape = UpdateShape { m: n, n, k, batch: c.batch() };
        Ok(HerkProblem { dtype: T::DTYPE, uplo, trans: fold::<T>(trans), shape })
    }

    /// Whether C is empty.
    pub fn is_empty(&self) -> bool {
        self.shape.n == 0 || self.shape.batch == 0
    }
}
