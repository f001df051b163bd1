//! The error of factors, family by family, against that of the vendor's on the same matrices: relative to a factorisation
//! in twice the precision of `f64`, in the Frobenius norm.

use std::fmt::Write as _;

use batchlas::{ArgumentError, Context, Element, Error, PotrfOptions, Uplo, VOCABULARIES};
use num_complex::Complex;

use super::{Outcome, text};
use crate::exact::Sum;
use crate::matrices::{Random, Square, conditioned};
use crate::verify::in_triangle;

const ORDERS: [usize; 9] = [8, 32, 48, 64, 96, 128, 192, 256, 512];
const CONDITION: f64 = 100.0;
/// Columns of all items of an order.
const COLUMNS: usize = 768;
/// Times the vendor's error that a family may have.
const MOST: f64 = 2.0;

pub(super) fn of_factors(ctx: &Context) -> Outcome {
    if !ctx.device().is_gpu() {
        return Ok("the library to compare with is a GPU's".into());
    }
    let (mut report, mut worst) = (String::from("error, and the families' in units of it"), 0.0f64);
    for n in ORDERS {
        for &uplo in Uplo::ALL {
            let lines = [
                of_type::<f32>(ctx, n, uplo, &mut worst)?,
                of_type::<f64>(ctx, n, uplo, &mut worst)?,
                of_type::<Complex<f32>>(ctx, n, uplo, &mut worst)?,
                of_type::<Complex<f64>>(ctx, n, uplo, &mut worst)?,
            ];
            for line in lines {
                write!(report, "\n       {line}").map_err(|e| e.to_string())?;
            }
        }
    }
    if worst <= MOST { Ok(report) } else { Err(report) }
}

/// One type and order: the vendor's error, and that of every family that serves it.
fn of_type<T: Element>(ctx: &Context, n: usize, uplo: Uplo, worst: &mut f64) -> Outcome {
    let items: Vec<Square<T>> =
        (0..COLUMNS.div_ceil(n)).map(|b| conditioned(n, CONDITION, &mut Random::new(51, b))).collect();
    let exact: Vec<Vec<Twofold>> = items.iter().map(factor).collect();
    let error = |family: &str| error_of(ctx, family, uplo, &items, &exact);
    let vendor = error("vendor")?.ok_or("the vendor's library is not there")?;
    let mut line = format!("{} {uplo:?} n = {n}: {vendor:.2e}", T::DTYPE);
    let vocabulary = VOCABULARIES.iter().find(|vocabulary| vocabulary.op == "potrf");
    for family in vocabulary.into_iter().flat_map(|vocabulary| vocabulary.spellings()) {
        let family = family.to_string();
        if let Some(own) = error(&family)?.filter(|_| family != "vendor") {
            write!(line, ", {family} {:.2}", own / vendor).map_err(|e| e.to_string())?;
            *worst = if own.is_nan() { f64::INFINITY } else { worst.max(own / vendor) };
        }
    }
    Ok(line)
}

/// The error of one family's factors; nothing if it does not serve them.
fn error_of<T: Element>(
    ctx: &Context,
    family: &str,
    uplo: Uplo,
    items: &[Square<T>],
    exact: &[Vec<Twofold>],
) -> Result<Option<f64>, String> {
    let n = items[0].n;
    let given: Vec<T> = items.iter().flat_map(|item| item.data.iter().copied()).collect();
    let mut a = ctx.upload(&given).map_err(text)?;
    let options = PotrfOptions { uplo, route: Some(family.to_owned()) };
    match ctx.potrf(a.view_mut(n, n, n, n * n, items.len()).map_err(text)?, &options) {
        Err(Error::InvalidArgument(ArgumentError::Pin(_))) => return Ok(None),
        factored => factored.map_err(text)?.wait().map_err(text)?,
    };
    let found = ctx.download(&a).map_err(text)?;
    let (mut error, mut norm) = (0.0, 0.0);
    for (found, exact) in found.chunks(n * n).zip(exact) {
        for (i, j) in
            (0..n).flat_map(|j| (0..n).map(move |i| (i, j))).filter(|&(i, j)| in_triangle(uplo, i, j))
        {
            let (row, k) = (i.max(j), i.min(j));
            let element = found[j * n + i].widen();
            let [lead, rest] = exact[row * n + k];
            let difference = (if uplo == Uplo::Lower { element } else { element.conj() } - lead) - rest;
            error += difference.norm_sqr();
            norm += lead.norm_sqr();
        }
    }
    Ok(Some((error / norm).sqrt()))
}

/// A number and the rest that it leaves.
type Twofold = [Complex<f64>; 2];

/// The rows of the lower factor.
fn factor<T: Element>(a: &Square<T>) -> Vec<Twofold> {
    let n = a.n;
    let mut l = vec![Twofold::default(); n * n];
    for j in 0..n {
        for i in j..n {
            let mut sum = Sum::from(a.at(i, j).widen());
            for k in 0..j {
                subtract(&mut sum, l[i * n + k], l[j * n + k]);
            }
            l[i * n + j] = if i == j { root(sum) } else { quotient(sum, l[j * n + j]) };
        }
    }
    l
}

/// `sum -= x conj(y)`, but for the product of the rests.
fn subtract(sum: &mut Sum, x: Twofold, y: Twofold) {
    sum.sub(x[0], y[0].conj());
    sum.sub(x[0], y[1].conj());
    sum.sub(x[1], y[0].conj());
}

/// The root of a real number.
fn root(mut square: Sum) -> Twofold {
    let lead = Complex::from(square.value().re.sqrt());
    square.sub(lead, lead);
    [lead, Complex::from(square.value().re / (2.0 * lead.re))]
}

/// A number divided by a real one.
fn quotient(mut dividend: Sum, divisor: Twofold) -> Twofold {
    let lead = dividend.value() / divisor[0].re;
    subtract(&mut dividend, [lead, Complex::default()], divisor);
    [lead, dividend.value() / divisor[0].re]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_twice_the_digits() {
        let a: Square<Complex<f64>> = conditioned(12, CONDITION, &mut Random::new(52, 0));
        let l = factor(&a);
        let mut largest = 0.0f64;
        for (i, j) in (0..12).flat_map(|j| (j..12).map(move |i| (i, j))) {
            let mut sum = Sum::from(a.at(i, j));
            for k in 0..=j {
                subtract(&mut sum, l[i * 12 + k], l[j * 12 + k]);
            }
            largest = largest.max(sum.value().norm());
        }
        assert!(largest < 1e-30, "{largest:e}");
    }
}
