//! A factorisation as selection and predicates see it.

use batchlas_core::seam::FactorShape;
use batchlas_core::validate::Operand;
use batchlas_core::{Dtype, MatBatch, Place, Result, Scalar, Uplo};

/// One validated factorisation problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Element type.
    pub dtype: Dtype,
    /// Which triangle is referenced.
    pub uplo: Uplo,
    /// Order of the matrices.
    pub n: usize,
    /// Number of items.
    pub batch: usize,
}

impl Problem {
    /// Condenses a view that a queue at `place` is to factor.
    ///
    /// # Errors
    /// Not square, heterogeneous, or not where the queue works.
    pub fn new<T: Scalar>(uplo: Uplo, a: &MatBatch<'_, T>, place: Place) -> Result<Self> {
        Operand::of("A", a).square("potrf")?.homogeneous("potrf")?.at("potrf", place)?;
        Ok(Problem { dtype: T::DTYPE, uplo, n: a.rows(), batch: a.batch() })
    }

    /// Whether there is nothing to factor.
    pub fn is_empty(&self) -> bool {
        self.n == 0 || self.batch == 0
    }

    /// The size alone.
    pub fn shape(&self) -> FactorShape {
        FactorShape { uplo: self.uplo, n: self.n, batch: self.batch }
    }
}
