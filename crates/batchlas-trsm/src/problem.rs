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

#[cfg(test)]
mod tests {
    use batchlas_core::Extent;
    use batchlas_core::{ArgumentError, Error};

    use super::*;

    /// CON-18: no family solves items of different sizes, so the operation says so before it looks for one.
    #[test]
    fn a_heterogeneous_batch_is_refused_whichever_operand_it_is() {
        const N: usize = 3;
        let (a, mut b) = ([1f64; 2 * N * N], [1f64; 2 * N]);
        let (orders, sides) = ([Extent { rows: N, cols: N }; 2], [Extent { rows: N, cols: 1 }; 2]);
        for (uneven_a, uneven_b) in [(true, false), (false, true), (false, false)] {
            let mut factor = MatBatch::packed(&a, N, N, 2).unwrap();
            let mut rhs = MatBatchMut::packed(&mut b, N, 1, 2).unwrap();
            if uneven_a {
                factor = factor.with_extents(&orders).unwrap();
            }
            if uneven_b {
                rhs = rhs.with_extents(&sides).unwrap();
            }
            let (side, uplo, trans, diag) = (Side::Left, Uplo::Lower, Trans::No, Diag::NonUnit);
            let problem = Problem::new(side, uplo, trans, diag, &factor, &rhs, Place::Host);
            let refused = match &problem {
                Err(Error::InvalidArgument(ArgumentError::Heterogeneous { op: "trsm", operand })) => {
                    Some(*operand)
                }
                _ => None,
            };
            let expected = if uneven_a { Some("A") } else { uneven_b.then_some("B") };
            assert_eq!(refused, expected, "{problem:?}");
        }
    }
}
