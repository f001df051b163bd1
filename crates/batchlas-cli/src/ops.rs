//! The operations on one chunk of a batch, and how good their results are.
//!
//! Residuals are relative, in Frobenius norms and double precision, without a factor of the order or of the machine's
//! epsilon:
//!
//! | operation | residual |
//! |---|---|
//! | `posv` | `|A X - B| / (|A| |X|)` |
//! | `trsm` | `|op(A) X - alpha B| / (|A| |X|)`, or with `X op(A)` |
//! | `potrf` | `|A - L L^H| / |A|`, or with `U^H U` |

use batchlas::{
    Context, Diag, Element, Info, MatBatch, MatBatchMut, PosvOptions, PotrfOptions, Ran, Side, Trans,
    TrsmOptions, Uplo,
};
use num_complex::Complex;
use num_traits::Zero;

use crate::error::Result;

/// What to compute.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Posv { uplo: Uplo },
    Potrf { uplo: Uplo },
    Trsm { side: Side, uplo: Uplo, trans: Trans, diag: Diag, alpha: Complex<f64> },
}

/// One item on the host, column-major: A, and B and X (or, for `potrf`, no B and the factor as X).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a, T> {
    pub(crate) n: usize,
    pub(crate) rows: usize,
    pub(crate) a: &'a [T],
    pub(crate) b: &'a [T],
    pub(crate) x: &'a [T],
}

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Posv { .. } => "posv",
            Operation::Potrf { .. } => "potrf",
            Operation::Trsm { .. } => "trsm",
        }
    }

    /// Whether the result takes the place of A, and there is no B.
    pub(crate) fn overwrites_a(&self) -> bool {
        matches!(self, Operation::Potrf { .. })
    }

    /// Runs on device memory, where the result takes the place of `b`, or of `a` for `potrf`, which leaves `b` alone.
    /// `host_a` is A in host memory.
    pub(crate) fn run<T: Element>(
        &self,
        ctx: &Context,
        route: Option<&String>,
        host_a: MatBatch<'_, T>,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
    ) -> Result<(Info, Ran)> {
        let route = route.cloned();
        let pending = match *self {
            Operation::Posv { uplo } => ctx.posv(a, b, &PosvOptions { uplo, route, ..Default::default() })?,
            Operation::Potrf { uplo } => ctx.potrf(a, &PotrfOptions { uplo, route })?,
            Operation::Trsm { side, uplo, trans, diag, alpha } => {
                let alpha = T::from_parts(alpha.re, alpha.im);
                let options = TrsmOptions { side, uplo, trans, diag, alpha, route };
                let ran = ctx.trsm(a.into_const(), b, &options)?;
                ctx.synchronize()?;
                return Ok((singular(diag, host_a).into(), ran));
            }
        };
        let ran = pending.ran().clone();
        Ok((pending.wait()?, ran))
    }

    /// Residual of one item; NaN where the result is. `2 n^2 q` operations for `q` right-hand sides, `2 n^3` for
    /// `potrf`.
    pub(crate) fn residual<T: Element>(&self, item: Item<'_, T>) -> f64 {
        let Item { n, rows, a, b, x } = item;
        let cols = b.len().checked_div(rows).unwrap_or(0);
        let at = |m: &[T], ld: usize, i: usize, j: usize| m[j * ld + i].widen();
        let inside = |uplo, i: usize, j: usize| match uplo {
            Uplo::Lower => i >= j,
            Uplo::Upper => i <= j,
        };
        let hermitian = |uplo| {
            Dense::from_fn(n, n, |i, j| match (i == j, inside(uplo, i, j)) {
                (true, _) => at(a, n, i, i).re.into(),
                (_, true) => at(a, n, i, j),
                (_, false) => at(a, n, j, i).conj(),
            })
        };
        let solution = || Dense::from_fn(rows, cols, |i, j| at(x, rows, i, j));
        match *self {
            Operation::Posv { uplo } => {
                let (a, x) = (hermitian(uplo), solution());
                let defect = a.defect(&x, |i, j| at(b, rows, i, j));
                ratio(defect, a.norm() * x.norm())
            }
            Operation::Potrf { uplo } => {
                let factor = |i, j| if inside(uplo, i, j) { at(x, n, i, j) } else { Complex::zero() };
                let (f, h) = (Dense::from_fn(n, n, factor), Dense::from_fn(n, n, |i, j| factor(j, i).conj()));
                let a = hermitian(uplo);
                let target = |i: usize, j: usize| a.at(i, j);
                let defect = match uplo {
                    Uplo::Lower => f.defect(&h, target),
                    Uplo::Upper => h.defect(&f, target),
                };
                ratio(defect, a.norm())
            }
            Operation::Trsm { side, uplo, trans, diag, alpha } => {
                let alpha = T::from_parts(alpha.re, alpha.im).widen();
                let triangle = |i, j| match diag {
                    Diag::Unit if i == j => Complex::from(1.0),
                    _ if inside(uplo, i, j) => at(a, n, i, j),
                    _ => Complex::zero(),
                };
                let op = Dense::from_fn(n, n, |i, j| match trans {
                    Trans::No => triangle(i, j),
                    Trans::Trans => triangle(j, i),
                    Trans::ConjTrans => triangle(j, i).conj(),
                });
                let x = solution();
                // A product with 0 would let a NaN of B, which is not referenced then, into the residual.
                let target = |i, j| if alpha.is_zero() { Complex::zero() } else { alpha * at(b, rows, i, j) };
                let defect = match side {
                    Side::Left => op.defect(&x, target),
                    Side::Right => x.defect(&op, target),
                };
                ratio(defect, op.norm() * x.norm())
            }
        }
    }

    /// Makes the result of `potrf` what its file holds: zeros in the triangle that is not the factor.
    pub(crate) fn finish<T: Element>(&self, n: usize, result: &mut [T]) {
        let Operation::Potrf { uplo } = *self else { return };
        for (j, column) in result.chunks_exact_mut(n.max(1)).enumerate() {
            let j = j % n;
            match uplo {
                Uplo::Lower => column[..j].fill(T::zero()),
                Uplo::Upper => column[j + 1..].fill(T::zero()),
            }
        }
    }
}

/// Status of triangular systems, as LAPACK's `trtrs` has it: the 1-based index of the first diagonal element that
/// cannot be divided by, here zero or NaN.
fn singular<T: Element>(diag: Diag, a: MatBatch<'_, T>) -> Vec<i32> {
    let usable = |d: T| !d.is_zero() && !d.widen().is_nan();
    let status = |b| {
        let item = a.item(b)?;
        (0..item.rows()).find(|&i| !usable(item.at(i, i))).and_then(|i| i32::try_from(i + 1).ok())
    };
    match diag {
        Diag::Unit => vec![0; a.batch()],
        Diag::NonUnit => (0..a.batch()).map(|b| status(b).unwrap_or(0)).collect(),
    }
}

/// `defect / scale`, where an exact result has residual 0 whatever the scale.
fn ratio(defect: f64, scale: f64) -> f64 {
    if defect == 0.0 { 0.0 } else { defect / scale }
}

/// A column-major matrix in double precision.
struct Dense {
    rows: usize,
    cols: usize,
    data: Vec<Complex<f64>>,
}

impl Dense {
    fn from_fn(rows: usize, cols: usize, f: impl Fn(usize, usize) -> Complex<f64>) -> Self {
        let data = (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| f(i, j)).collect();
        Dense { rows, cols, data }
    }

    fn at(&self, i: usize, j: usize) -> Complex<f64> {
        self.data[j * self.rows + i]
    }

    fn norm(&self) -> f64 {
        self.data.iter().map(Complex::norm_sqr).sum::<f64>().sqrt()
    }

    /// `|self * right - target|`.
    fn defect(&self, right: &Dense, target: impl Fn(usize, usize) -> Complex<f64>) -> f64 {
        let mut sum = 0.0;
        let mut column = vec![Complex::zero(); self.rows];
        for j in 0..right.cols {
            for (i, element) in column.iter_mut().enumerate() {
                *element = -target(i, j);
            }
            for k in 0..self.cols {
                let factor = right.at(k, j);
                let from = &self.data[k * self.rows..(k + 1) * self.rows];
                for (element, &a) in column.iter_mut().zip(from) {
                    *element += a * factor;
                }
            }
            sum += column.iter().map(Complex::norm_sqr).sum::<f64>();
        }
        sum.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A right result has a residual near 0, which the tests of the program see; a wrong one has the defined number.
    #[test]
    fn a_wrong_result_has_the_residual_that_the_definition_gives() {
        let residual = |operation: Operation, a: f64, b: &[f64], x: f64| {
            operation.residual(Item { n: 1, rows: 1, a: &[a], b, x: &[x] })
        };
        let uplo = Uplo::Upper;
        assert_eq!(residual(Operation::Posv { uplo }, 2.0, &[8.0], 2.0), 1.0);
        assert_eq!(residual(Operation::Potrf { uplo }, 4.0, &[], 1.0), 0.75);
        for side in [Side::Left, Side::Right] {
            let trsm = |diag, alpha| Operation::Trsm { side, uplo, trans: Trans::No, diag, alpha };
            assert_eq!(residual(trsm(Diag::NonUnit, 3.0.into()), 4.0, &[4.0], 2.0), 0.5);
            assert_eq!(residual(trsm(Diag::Unit, 1.0.into()), f64::NAN, &[4.0], 2.0), 1.0);
            assert_eq!(residual(trsm(Diag::NonUnit, 0.0.into()), 4.0, &[f64::NAN], 0.0), 0.0);
        }
        assert!(residual(Operation::Posv { uplo }, 2.0, &[8.0], f64::NAN).is_nan());
        assert_eq!(residual(Operation::Posv { uplo }, 2.0, &[8.0], 0.0), f64::INFINITY);
    }
}
