//! What is checked of a result: pure functions of the data before and after.
//!
//! Residuals are formed in twice the working precision ([`crate::exact`]) and given in units of `n * eps`, the scale of
//! the classic backward error bounds (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 10).

use batchlas::{Diag, Element, Scalar, Side, Trans, Uplo};
use num_complex::Complex;

use crate::exact::Sum;
use crate::matrices::{Random, Square};
use crate::operands::Store;

/// Whether `(i, j)` is in the referenced triangle, diagonal included.
pub fn in_triangle(uplo: Uplo, i: usize, j: usize) -> bool {
    if uplo == Uplo::Lower { i >= j } else { i <= j }
}

/// `op` of one element.
fn apply<T: Scalar>(trans: Trans, x: T) -> Complex<f64> {
    if trans == Trans::ConjTrans { x.widen().conj() } else { x.widen() }
}

fn is_same<T: Element>(a: T, b: T) -> bool {
    bytemuck::bytes_of(&a) == bytemuck::bytes_of(&b)
}

/// Everything outside the elements that may be written has the bits it had. `writable(b, i, j)` says which elements
/// of item `b` may change.
///
/// # Errors
/// The first place that changed.
pub fn untouched<T: Element>(
    name: &str,
    before: &Store<T>,
    after: &Store<T>,
    writable: impl Fn(usize, usize, usize) -> bool,
) -> Result<(), String> {
    let mut frozen = vec![true; before.data.len()];
    for b in 0..before.batch() {
        for j in 0..before.cols() {
            for i in 0..before.rows() {
                if writable(b, i, j) {
                    frozen[before.index(b, i, j)] = false;
                }
            }
        }
    }
    let changed = (0..frozen.len()).find(|&at| frozen[at] && !is_same(before.data[at], after.data[at]));
    match changed {
        None => Ok(()),
        Some(at) => Err(format!(
            "{name}: element {at} of the buffer, which must not be written, went from {:?} to {:?}",
            before.data[at], after.data[at]
        )),
    }
}

/// Two results agree bit for bit in the elements that `compared(b, i, j)` selects.
///
/// # Errors
/// The first element that differs.
pub fn same_bits<T: Element>(
    name: &str,
    left: &Store<T>,
    right: &Store<T>,
    compared: impl Fn(usize, usize, usize) -> bool,
) -> Result<(), String> {
    for b in 0..left.batch() {
        for j in 0..left.cols() {
            for i in 0..left.rows() {
                let (x, y) = (left.at(b, i, j), right.at(b, i, j));
                if compared(b, i, j) && !is_same(x, y) {
                    return Err(format!(
                        "{name}: ({i}, {j}) of item {b} is {x:?} in one run and {y:?} in the other"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The statuses are the expected ones.
///
/// # Errors
/// The first item that differs.
pub fn statuses(found: &[i32], expected: impl Fn(usize) -> i32) -> Result<(), String> {
    match found.iter().enumerate().find(|&(b, &status)| status != expected(b)) {
        None => Ok(()),
        Some((b, status)) => Err(format!("info of item {b} is {status}, expected {}", expected(b))),
    }
}

/// `||A - L L^H||_F / (||A||_F n eps)` of item `b` (`U^H U` for Upper), from the factor's own triangle. NaN if anything
/// is not finite or the diagonal is not real and positive.
pub fn factor_residual<T: Element>(a: &Square<T>, uplo: Uplo, factor: &Store<T>, b: usize) -> f64 {
    let n = a.n;
    // Rows of L, whichever triangle it is kept in.
    let mut l = vec![Complex::default(); n * n];
    for (i, k) in (0..n).flat_map(|i| (0..=i).map(move |k| (i, k))) {
        l[i * n + k] = match uplo {
            Uplo::Lower => factor.at(b, i, k).widen(),
            Uplo::Upper => factor.at(b, k, i).widen().conj(),
        };
    }
    let (mut error, mut norm) = (0.0, 0.0);
    for j in 0..n {
        let d = factor.at(b, j, j);
        if Scalar::im(d) != <T as Scalar>::Real::default() || d.widen().re <= 0.0 {
            return f64::NAN;
        }
        for i in j..n {
            let mut sum = Sum::from(a.at(i, j).widen());
            for (&x, y) in l[i * n..].iter().zip(&l[j * n..=j * n + j]) {
                sum.sub(x, y.conj());
            }
            let twice = if i == j { 1.0 } else { 2.0 };
            error += twice * sum.value().norm_sqr();
            norm += twice * a.at(i, j).widen().norm_sqr();
        }
    }
    (error / norm).sqrt() / (n as f64 * T::DTYPE.epsilon())
}

/// An estimate of [`factor_residual`] in `O(n^2)`, for orders at which the product takes seconds: with signs `v`,
/// `sqrt(n) ||(A - L L^H) v|| / ||v||` has the square of the Frobenius norm for its mean square. Rounding of `L^H v` adds about
/// a quarter of `eps`. NaN as there.
pub fn estimated_factor_residual<T: Element>(a: &Square<T>, uplo: Uplo, factor: &Store<T>, b: usize) -> f64 {
    const PROBES: usize = 4;
    let n = a.n;
    let real = |d: T| Scalar::im(d) == <T as Scalar>::Real::default() && d.widen().re > 0.0;
    if !(0..n).all(|j| real(factor.at(b, j, j))) {
        return f64::NAN;
    }
    let l = |i: usize, k: usize| match uplo {
        Uplo::Lower => factor.at(b, i, k).widen(),
        Uplo::Upper => factor.at(b, k, i).widen().conj(),
    };
    let mut random = Random::new(31, n);
    let (mut error, mut size) = (0.0, 0.0);
    for _ in 0..PROBES {
        let v: Vec<Complex<f64>> =
            (0..n).map(|_| Complex::from(if random.real() < 0.0 { -1.0 } else { 1.0 })).collect();
        let y: Vec<Complex<f64>> = (0..n)
            .map(|k| {
                let mut sum = Sum::from(Complex::default());
                (k..n).for_each(|i| sum.sub(-l(i, k).conj(), v[i]));
                sum.value()
            })
            .collect();
        for i in 0..n {
            let mut sum = Sum::from(Complex::default());
            (0..n).for_each(|k| sum.sub(-a.at(i, k).widen(), v[k]));
            (0..=i).for_each(|k| sum.sub(l(i, k), y[k]));
            error += sum.value().norm_sqr();
        }
        size += n as f64;
    }
    let norm: f64 = a.data.iter().map(|e| e.widen().norm_sqr()).sum();
    (n as f64 * error / size / norm).sqrt() / (n as f64 * T::DTYPE.epsilon())
}

/// `||B - A X||_F / (||A||_F ||X||_F n eps)` of item `b`, for a Hermitian A given in full.
pub fn solve_residual<T: Element>(a: &Square<T>, rhs: &Store<T>, x: &Store<T>, b: usize) -> f64 {
    let n = a.n;
    let (mut error, mut norm_x) = (0.0, 0.0);
    for j in 0..rhs.cols() {
        for i in 0..n {
            let mut sum = Sum::from(rhs.at(b, i, j).widen());
            for k in 0..n {
                sum.sub(a.at(i, k).widen(), x.at(b, k, j).widen());
            }
            error += sum.value().norm_sqr();
            norm_x += x.at(b, i, j).widen().norm_sqr();
        }
    }
    let norm_a: f64 = a.data.iter().map(|e| e.widen().norm_sqr()).sum();
    (error / (norm_a * norm_x)).sqrt() / (n as f64 * T::DTYPE.epsilon())
}

/// `op(A) X'` (Left) or `X' op(A)` (Right) in `f64`, from the triangle of A that a solve references.
pub fn triangle_product<T: Element>(
    side: Side,
    uplo: Uplo,
    trans: Trans,
    diag: Diag,
    a: &Square<T>,
    x: &[Complex<f64>],
    (rows, cols): (usize, usize),
) -> Vec<Complex<f64>> {
    // Row i of a lower op(A) ends at the diagonal and its column j starts there; of an upper one the other way round.
    let lower = (uplo == Uplo::Lower) != trans.transposes();
    let element = |i: usize, k: usize| match (i == k, diag) {
        (true, Diag::Unit) => Complex::new(1.0, 0.0),
        _ if trans.transposes() => apply(trans, a.at(k, i)),
        _ => a.at(i, k).widen(),
    };
    let mut out = Vec::with_capacity(rows * cols);
    for j in 0..cols {
        for i in 0..rows {
            let mut sum = Sum::default();
            match side {
                Side::Left => {
                    let row = if lower { 0..i + 1 } else { i..rows };
                    row.for_each(|k| sum.add(element(i, k), x[j * rows + k]));
                }
                Side::Right => {
                    let column = if lower { j..cols } else { 0..j + 1 };
                    column.for_each(|k| sum.add(x[k * rows + i], element(k, j)));
                }
            }
            out.push(sum.value());
        }
    }
    out
}

/// Largest `|C - reference| / ((k + 2) eps bound)` over the elements that `compared` selects, where `bound` is the sum of
/// the moduli that went into the element. NaN if an element is not finite.
pub fn product_error<T: Element>(
    (trans_a, trans_b): (Trans, Trans),
    (alpha, beta): (T, T),
    (a, b, c): (&Store<T>, &Store<T>, &Store<T>),
    out: &Store<T>,
    item: usize,
    compared: impl Fn(usize, usize) -> bool,
) -> f64 {
    let left = |i: usize, k: usize| {
        let x = if trans_a.transposes() { a.at(item, k, i) } else { a.at(item, i, k) };
        apply(trans_a, x)
    };
    let right = |k: usize, j: usize| {
        let x = if trans_b.transposes() { b.at(item, j, k) } else { b.at(item, k, j) };
        apply(trans_b, x)
    };
    let inner = if trans_a.transposes() { a.rows() } else { a.cols() };
    let (alpha, beta) = (alpha.widen(), beta.widen());
    let mut worst = 0.0f64;
    for j in 0..out.cols() {
        for i in (0..out.rows()).filter(|&i| compared(i, j)) {
            let (mut sum, mut bound) = (Sum::default(), 0.0);
            if beta != Complex::default() {
                sum.add(beta, c.at(item, i, j).widen());
                bound += beta.norm() * c.at(item, i, j).widen().norm();
            }
            if alpha != Complex::default() {
                for k in 0..inner {
                    let product = left(i, k) * right(k, j);
                    sum.add(alpha * left(i, k), right(k, j));
                    bound += alpha.norm() * product.norm();
                }
            }
            let error = (out.at(item, i, j).widen() - sum.value()).norm();
            let relative =
                if error == 0.0 { 0.0 } else { error / ((inner + 2) as f64 * T::DTYPE.epsilon() * bound) };
            worst = if relative.is_nan() || worst.is_nan() { f64::NAN } else { worst.max(relative) };
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrices::definite;
    use crate::operands::Layout;

    /// A textbook factorisation, right enough to have a residual near zero.
    fn cholesky(a: &Square<f64>) -> Store<f64> {
        let n = a.n;
        let mut l = Store::new(Layout::Padded, n, n, 1, -7.0);
        for j in 0..n {
            for i in j..n {
                let s: f64 = (0..j).map(|k| l.at(0, i, k) * l.at(0, j, k)).sum();
                let x = a.at(i, j) - s;
                let value = if i == j { x.sqrt() } else { x / l.at(0, j, j) };
                l.set(0, i, j, value);
            }
        }
        l
    }

    #[test]
    fn the_estimate_of_a_residual_is_near_it() {
        let a = definite::<f64>(40, &mut Random::new(6, 0));
        let good = cholesky(&a);
        let mut bad = good.clone();
        bad.set(0, 39, 2, good.at(0, 39, 2) + 1e-9);
        for factor in [&good, &bad] {
            let exact = factor_residual(&a, Uplo::Lower, factor, 0);
            let estimate = estimated_factor_residual(&a, Uplo::Lower, factor, 0);
            assert!((0.4..2.5).contains(&(estimate / exact)), "{estimate} for {exact}");
        }
        bad.set(0, 7, 7, -1.0);
        assert!(estimated_factor_residual(&a, Uplo::Lower, &bad, 0).is_nan());
        bad.set(0, 7, 7, f64::NAN);
        assert!(estimated_factor_residual(&a, Uplo::Lower, &bad, 0).is_nan());
    }

    #[test]
    fn a_right_factor_passes_and_every_wrong_one_does_not() {
        let a = definite::<f64>(9, &mut Random::new(5, 0));
        let good = cholesky(&a);
        assert!(factor_residual(&a, Uplo::Lower, &good, 0) < 1.0);
        for (i, j) in [(0, 0), (8, 0), (8, 8), (5, 3)] {
            let mut bad = good.clone();
            bad.set(0, i, j, good.at(0, i, j) * (1.0 + 1e-12));
            assert!(factor_residual(&a, Uplo::Lower, &bad, 0) > 4.0, "({i}, {j}) is not looked at");
            bad.set(0, i, j, f64::NAN);
            let broken = factor_residual(&a, Uplo::Lower, &bad, 0);
            assert!(broken.is_nan(), "NaN at ({i}, {j}) gives {broken}");
        }
        let mut negative = good.clone();
        negative.set(0, 8, 8, -good.at(0, 8, 8));
        assert!(factor_residual(&a, Uplo::Lower, &negative, 0).is_nan(), "a negative diagonal is no factor");
    }

    #[test]
    fn writes_outside_are_seen_wherever_they_are() {
        let before = Store::new(Layout::Padded, 3, 3, 2, -999.0f32);
        let lower = |_: usize, i: usize, j: usize| in_triangle(Uplo::Lower, i, j);
        for at in 0..before.data.len() {
            let mut after = before.clone();
            after.data[at] = -998.0;
            let allowed = (0..2).any(|b| (0..3).any(|j| (j..3).any(|i| before.index(b, i, j) == at)));
            assert_eq!(untouched("A", &before, &after, lower).is_ok(), allowed, "element {at}");
        }
        // A changed sign of zero or NaN payload is a write too.
        let zeros = Store::new(Layout::Packed, 1, 1, 1, 0.0f32);
        let mut minus = zeros.clone();
        minus.data[0] = -0.0;
        assert!(untouched("A", &zeros, &minus, |_, _, _| false).is_err());
        assert!(same_bits("A", &zeros, &minus, |_, _, _| true).is_err());
    }

    #[test]
    fn a_wrong_status_in_the_last_item_is_seen() {
        assert!(statuses(&[0, 0, 0], |_| 0).is_ok());
        assert!(statuses(&[0, 0, 2], |_| 0).unwrap_err().contains("item 2"));
        assert!(statuses(&[0, 77], |_| 0).is_err());
    }

    #[test]
    fn a_wrong_solution_or_product_is_seen() {
        let n = 6;
        let a = definite::<f64>(n, &mut Random::new(2, 0));
        let mut x = Store::new(Layout::Padded, n, 2, 1, 0.0);
        let mut b = x.clone();
        for (i, j) in (0..n).flat_map(|i| (0..2).map(move |j| (i, j))) {
            x.set(0, i, j, (i + 2 * j) as f64 - 2.0);
        }
        for (i, j) in (0..n).flat_map(|i| (0..2).map(move |j| (i, j))) {
            b.set(0, i, j, (0..n).map(|k| a.at(i, k) * x.at(0, k, j)).sum());
        }
        assert!(solve_residual(&a, &b, &x, 0) < 1.0);
        x.set(0, n - 1, 1, x.at(0, n - 1, 1) + 1e-9);
        assert!(solve_residual(&a, &b, &x, 0) > 50.0);

        let c = Store::new(Layout::Packed, 2, 2, 1, 1.0f64);
        let mut out = c.clone();
        out.data.fill(5.0); // 1*[1 1; 1 1]*[1 1; 1 1] + 3*1
        let error = |out: &Store<f64>| {
            product_error((Trans::No, Trans::No), (1.0, 3.0), (&c, &c, &c), out, 0, |_, _| true)
        };
        assert_eq!(error(&out), 0.0);
        out.data[3] = 5.0 + 1e-13;
        assert!(error(&out) > 1.0);
        out.data[3] = f64::NAN;
        assert!(error(&out).is_nan());
    }
}
