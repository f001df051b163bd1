//! A solve as selection and predicates see it.

use batchlas_core::validate::{Operand, equal};
use batchlas_core::{Dtype, Error, MatBatch, MatBatchMut, Place, Result, Scalar, Uplo};

/// What becomes of the factor of a solve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FactorOutput {
    /// It overwrites the referenced triangle of A.
    #[default]
    Stored,
    /// Nobody needs it: half of the memory traffic where a family keeps it on chip. Such a family (`tiny`, `lanes`)
    /// leaves A as it was; after any other the referenced triangle is unspecified.
    Discarded,
}

/// One validated solve of Hermitian positive definite systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Element type.
    pub dtype: Dtype,
    /// Which triangle of A is referenced.
    pub uplo: Uplo,
    /// Order of the systems.
    pub n: usize,
    /// Right-hand sides per system.
    pub nrhs: usize,
    /// Number of systems.
    pub batch: usize,
}

impl Problem {
    /// Condenses the operands of `op` (`posv` or `potrs`) on a queue at `place`.
    ///
    /// # Errors
    /// [`Error::Internal`] for a heterogeneous batch. Otherwise an invalid argument: A not square, A and B that
    /// disagree about the order or the batch, operands that are not where the queue works.
    pub fn new<T: Scalar>(
        op: &'static str,
        uplo: Uplo,
        a: &MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
        place: Place,
    ) -> Result<Self> {
        if a.is_heterogeneous() || b.is_heterogeneous() {
            return Err(Error::Internal(format!(
                "{op} of a heterogeneous batch (items of different sizes): solve each size as its own batch"
            )));
        }
        let rhs = Operand::of_mut("B", b).at(op, place)?;
        Operand::of("A", a).square(op)?.at(op, place)?.same_batch(op, rhs)?;
        equal(op, "the order", ("A", a.rows()), ("rows of B", b.rows()))?;
        Ok(Problem { dtype: T::DTYPE, uplo, n: a.rows(), nrhs: b.cols(), batch: b.batch() })
    }

    /// Whether there is nothing to factor.
    pub fn is_empty(&self) -> bool {
        self.n == 0 || self.batch == 0
    }
}
