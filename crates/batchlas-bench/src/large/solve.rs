//! Triangular solves that need a whole GPU: every grid limit, work-groups of several warps, offsets beyond 2^31.

use std::cmp::Ordering;

use batchlas::{Buffer, Context, Element, TrsmOptions};

use super::{Outcome, text};
use crate::matrices::{Random, Square, exact_triangle};

fn options<T: Element>(route: &str) -> TrsmOptions<T> {
    TrsmOptions { route: Some(route.to_owned()), ..TrsmOptions::default() }
}

/// `A_b = (b + 1) I`, `B = 1`: the solution of item b is `1 / (b + 1)`.
pub(super) fn scaled_identities(ctx: &Context) -> Outcome {
    const N: usize = 4;
    const BATCHES: [usize; 6] = [65_535, 65_536, 65_537, 70_000, 262_141, 524_281];
    const ROUTES: [&str; 4] = ["cta:lanes=32:warps=1", "few:lanes=4", "sg_left", "fused"];
    if !ctx.device().is_gpu() {
        return Ok("families of a GPU".into());
    }
    for (batch, route) in BATCHES.into_iter().flat_map(|batch| ROUTES.map(|route| (batch, route))) {
        // Below the diagonal zeros, above it poison.
        let element = |b: usize, e: usize| match (e % N).cmp(&(e / N)) {
            Ordering::Equal => (b + 1) as f32,
            Ordering::Greater => 0.0,
            Ordering::Less => f32::NAN,
        };
        let a: Vec<f32> = (0..batch).flat_map(|b| (0..N * N).map(move |e| element(b, e))).collect();
        let (a, mut x) = (ctx.upload(&a).map_err(text)?, ctx.upload(&vec![1.0f32; batch * N]).map_err(text)?);
        let a = a.view(N, N, N, N * N, batch).map_err(text)?;
        ctx.trsm(a, x.view_mut(N, 1, N, N, batch).map_err(text)?, &options(route)).map_err(text)?;
        let solved = ctx.download(&x).map_err(text)?;
        let wrong = solved.chunks(N).zip(1..).position(|(x, b)| x.iter().any(|&x| x != 1.0 / b as f32));
        if let Some(item) = wrong {
            return Err(format!("{route}, batch {batch}: item {item} is {:?}", &solved[item * N..][..N]));
        }
    }
    Ok("up to 524,281 items, four families".into())
}

/// Clones in work-groups of several warps, more than the device holds at once: a triangle that is read before it is staged
/// shows as an item that differs.
pub(super) fn several_warps(ctx: &Context) -> Outcome {
    const REPEATS: usize = 20;
    const ROUTES: [(&str, usize, usize); 3] =
        [("cta:cols=1:lanes=256:warps=8", 32, 256), ("fused:warps=8", 128, 256), ("few", 128, 3)];
    if !ctx.device().is_gpu() {
        return Ok("families of a GPU".into());
    }
    let batch = 16 * ctx.device().compute_units as usize;
    for (n, (route, most, q)) in
        [7, 16, 31, 32, 33, 64, 127, 128].into_iter().flat_map(|n| ROUTES.map(|r| (n, r)))
    {
        if n > most {
            continue;
        }
        let one = triangle(n);
        let x: Vec<f32> = {
            let mut random = Random::new(32, n);
            (0..n * q).map(|_| random.integer(2) as f32).collect()
        };
        let b: Vec<f32> =
            (0..n * q).map(|e| (0..=e % n).map(|k| one.at(e % n, k) * x[e / n * n + k]).sum()).collect();
        // Every item is the same system, with its own copy of the factor.
        let factors = ctx.upload(&one.data.repeat(batch)).map_err(text)?;
        let pristine = ctx.upload(&b.repeat(batch)).map_err(text)?;
        let mut solved = Buffer::<f32>::new(ctx.queue(), pristine.len()).map_err(text)?;
        for repeat in 0..REPEATS {
            solved.copy_from(ctx.queue(), &pristine).map_err(text)?;
            let a = factors.view(n, n, n, n * n, batch).map_err(text)?;
            let view = solved.view_mut(n, q, n, n * q, batch).map_err(text)?;
            ctx.trsm(a, view, &options(route)).map_err(text)?;
            let solved = ctx.download(&solved).map_err(text)?;
            let wrong = solved.chunks(n * q).filter(|item| item != &&x[..]).count();
            if wrong > 0 {
                return Err(format!("{route}, n = {n}, repeat {repeat}: {wrong} of {batch} items are wrong"));
            }
        }
    }
    Ok(format!("{batch} items, 8 orders, {REPEATS} repeats, exact"))
}

/// Offsets of right-hand sides beyond 2^31 elements, with one factor for all.
pub(super) fn offsets(ctx: &Context) -> Outcome {
    const N: usize = 32;
    const Q: usize = 64;
    const BATCH: usize = (1 << 20) + 3;
    if !ctx.device().is_gpu() {
        return Ok("families of a GPU".into());
    }
    let one = triangle(N);
    let factor = ctx.upload(&one.data).map_err(text)?;
    for route in ["cta", "sg_left", "fused"] {
        let mut b = Buffer::<f32>::new(ctx.queue(), BATCH * N * Q).map_err(text)?;
        let items = [0, BATCH / 2, BATCH - 2, BATCH - 1];
        let expected: Vec<f32> = (0..N * Q).map(|e| (e % 5) as f32 - 2.0).collect();
        let given: Vec<f32> = (0..N * Q)
            .map(|e| (0..=e % N).map(|k| one.at(e % N, k) * expected[e / N * N + k]).sum())
            .collect();
        for item in items {
            b.write(ctx.queue(), item * N * Q, &given).map_err(text)?;
        }
        let a = factor.view(N, N, N, 0, BATCH).map_err(text)?;
        ctx.trsm(a, b.view_mut(N, Q, N, N * Q, BATCH).map_err(text)?, &options(route)).map_err(text)?;
        for item in items {
            let mut solved = vec![0.0; N * Q];
            b.read(ctx.queue(), item * N * Q, &mut solved).map_err(text)?;
            if solved != expected {
                return Err(format!("{route}: item {item} is wrong"));
            }
        }
    }
    Ok(format!("{} elements", BATCH * N * Q))
}

/// A lower triangle whose solves are exact, NaN above it.
fn triangle(n: usize) -> Square<f32> {
    exact_triangle(n, batchlas::Uplo::Lower, false, f32::NAN, &mut Random::new(31, n))
}
