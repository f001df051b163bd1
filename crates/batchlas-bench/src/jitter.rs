//! The contract of retries with a shifted diagonal, on any device.

use batchlas::{Context, Element, Jitter, PosvOptions, Uplo};
use num_complex::Complex;

use crate::matrices::{Kind, Random, Square, definite, item};
use crate::operands::{Layout, Store};
use crate::verify::{in_triangle, same_bits, solve_residual, untouched};

const N: usize = 9;
const NRHS: usize = 2;
/// Place of the failing pivots, 1-based.
const AT: usize = 5;
/// Relative size of the negative eigenvalue of the item that needs several shifts.
const NEGATIVE: f64 = 3e-5;
/// Factor of the singular item: shifts are relative to the largest diagonal element.
const SCALE: f64 = 4.0;

/// Solves a batch with items that are definite, that the first or a later shift makes definite, and that none does, in all
/// types and both triangles.
///
/// # Errors
/// What did not hold.
pub fn check(ctx: &Context) -> Result<String, String> {
    for uplo in [Uplo::Lower, Uplo::Upper] {
        typed::<f32>(ctx, uplo)?;
        typed::<f64>(ctx, uplo)?;
        typed::<Complex<f32>>(ctx, uplo)?;
        typed::<Complex<f64>>(ctx, uplo)?;
    }
    Ok("all types, both triangles".into())
}

fn typed<T: Element>(ctx: &Context, uplo: Uplo) -> Result<(), String> {
    let mut random = Random::new(51, 0);
    let one = |x: f64| T::from_parts(x, 0.0);
    let mut singular: Square<T> = item(Kind::ZeroMinor, N, AT, 1, &mut random);
    singular.data.iter_mut().for_each(|x| *x *= one(SCALE));
    let mut indefinite: Square<T> = Square::identity(N);
    indefinite.set(AT - 1, AT - 1, one(-NEGATIVE));
    let items = [
        definite(N, &mut random),
        singular,
        indefinite,
        item(Kind::NanPivot, N, AT, 3, &mut random),
        item(Kind::NegativePivot, N, AT, 4, &mut random),
        definite(N, &mut random),
    ];
    let mut a = Store::new(Layout::Padded, N, N, items.len(), T::from_parts(-999.0, 777.0));
    let mut b = Store::new(Layout::Padded, N, NRHS, items.len(), T::from_parts(-999.0, 777.0));
    for (index, matrix) in items.iter().enumerate() {
        let places = (0..N).flat_map(|j| (0..N).map(move |i| (i, j)));
        places
            .filter(|&(i, j)| in_triangle(uplo, i, j))
            .for_each(|(i, j)| a.set(index, i, j, matrix.at(i, j)));
        (0..NRHS).for_each(|s| (0..N).for_each(|i| b.set(index, i, s, random.scalar())));
    }
    let jitter = Jitter { first: 16.0, growth: 10.0, limit: 1e-3 };
    let options = PosvOptions { uplo, ..Default::default() };
    let text = |error: batchlas::Error| format!("{} {uplo}: {error}", T::DTYPE);
    let failed = |what: String| format!("{} {uplo}: {what}", T::DTYPE);

    let (mut on_a, mut on_b) = (a.upload(ctx).map_err(text)?, b.upload(ctx).map_err(text)?);
    let jittered = on_a.with_mut(ctx, |a| on_b.with_mut(ctx, |b| ctx.posv_jittered(a, b, &options, &jitter)));
    let jittered = jittered.map_err(text)?;
    let (after_a, after_b) = (on_a.download(ctx).map_err(text)?, on_b.download(ctx).map_err(text)?);
    let (mut on_a, mut on_b) = (a.upload(ctx).map_err(text)?, b.upload(ctx).map_err(text)?);
    on_a.with_mut(ctx, |a| on_b.with_mut(ctx, |b| ctx.posv(a, b, &options)?.wait())).map_err(text)?;
    let (plain_a, plain_b) = (on_a.download(ctx).map_err(text)?, on_b.download(ctx).map_err(text)?);

    let at = AT as i32;
    if jittered.info.as_slice() != [0, 0, 0, at, at, 0] {
        return Err(failed(format!("info is {:?}", jittered.info)));
    }
    let relative = relative_shifts(&jitter, T::DTYPE.epsilon());
    let enough = relative.iter().find(|&&shift| shift > NEGATIVE).copied().unwrap_or(f64::NAN);
    let expected = [0.0, SCALE * relative[0], enough, f64::NAN, f64::NAN, 0.0];
    let rounded = |x: f64| one(x).widen().re;
    let shifts_hold = jittered
        .shifts
        .iter()
        .zip(expected)
        .all(|(&found, expected)| found == rounded(expected) || found.is_nan() && expected.is_nan());
    if !shifts_hold {
        return Err(failed(format!("shifts are {:?} instead of {expected:?}", jittered.shifts)));
    }
    // One retry for each shift, since two items never become definite, and the whole batch before them.
    if jittered.ran.children.len() != relative.len() + 1 {
        return Err(failed(format!("it ran {}", jittered.ran)));
    }
    let solved = |index: usize| index != 3 && index != 4;
    untouched("A", &a, &after_a, |index, i, j| solved(index) && in_triangle(uplo, i, j)).map_err(failed)?;
    untouched("B", &b, &after_b, |index, _, _| solved(index)).map_err(failed)?;
    let clean = |index: usize, i: usize, j: usize| (index == 0 || index == 5) && in_triangle(uplo, i, j);
    same_bits("A of items that did not fail", &plain_a, &after_a, clean).map_err(failed)?;
    same_bits("X of items that did not fail", &plain_b, &after_b, |index, _, _| index == 0 || index == 5)
        .map_err(failed)?;
    for index in [0, 1, 2, 5] {
        let mut shifted = items[index].clone();
        (0..N).for_each(|i| shifted.set(i, i, shifted.at(i, i) + one(jittered.shifts[index])));
        let residual = solve_residual(&shifted, &b, &after_b, index);
        if residual.is_nan() || residual > 4.0 {
            return Err(failed(format!("item {index} has residual {residual} n eps")));
        }
    }
    Ok(())
}

/// The documented sequence.
fn relative_shifts(jitter: &Jitter, epsilon: f64) -> Vec<f64> {
    let mut shifts = vec![jitter.first * epsilon];
    while let Some(next) = shifts.last().map(|last| last * jitter.growth).filter(|&next| next < jitter.limit)
    {
        shifts.push(next);
    }
    shifts.push(jitter.limit);
    shifts
}
