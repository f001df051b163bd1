//! `CholQR2`: an orthonormal basis for the columns of every item of a batch of tall matrices, by products and triangular
//! solves alone.
//!
//! With the Gram matrix `X^T X = L L^T`, the columns of `Q = X L^-T` are orthonormal up to `cond(X)^2 eps`: not good enough
//! by itself, but Q has a condition number near 1 as long as `cond(X)` stays below about `1 / sqrt(eps)`, and the same step
//! on Q then ends at the level of a Householder factorisation (Yamamoto, Nakatsukasa, Yanagisawa and Fukaya, "Roundoff
//! error analysis of the `CholeskyQR2` algorithm", 2015). What it asks of the solve is backward stability, column by column:
//! a solve by an inverted triangle would lose what the second step needs.
//!
//! ```text
//! cargo run --release -p batchlas --example cholqr
//! ```
//!
//! prints, for rising condition numbers, how far `Q^T Q` is from the identity after one step, after two, and for a Householder
//! factorisation.
#![allow(clippy::print_stdout)]

use std::error::Error;

use batchlas::{Buffer, Context, HerkOptions, PotrfOptions, Side, Trans, TrsmOptions, Uplo};

/// Rows and columns of every item, and the number of items.
const M: usize = 240;
const N: usize = 48;
const BATCH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let ctx = Context::new()?;
    println!("{BATCH} matrices of {M} x {N} on {}", ctx.device().name);
    println!("cond(X)    |Q^T Q - I| after one step   after two   Householder");
    for exponent in 0..=7 {
        let x = tall(10f64.powi(exponent));
        let mut q = ctx.upload(&x)?;
        orthonormalise(&ctx, &mut q)?;
        let once = departure(&ctx.download(&q)?);
        orthonormalise(&ctx, &mut q)?;
        let twice = departure(&ctx.download(&q)?);
        println!("1e{exponent} {once:>32.1e} {twice:>11.1e} {:>13.1e}", departure(&householder(&x)));
    }
    Ok(())
}

/// One step of CholQR: replaces every item by an approximately orthonormal basis of its columns. Returns the factors L, whose
/// transposes are the triangles R of `X = Q R`.
fn orthonormalise(ctx: &Context, x: &mut Buffer<f64>) -> Result<Buffer<f64>, Box<dyn Error>> {
    let mut gram = ctx.upload(&vec![0.0; N * N * BATCH])?;
    ctx.herk(
        x.view(M, N, M, M * N, BATCH)?,
        gram.view_mut(N, N, N, N * N, BATCH)?,
        &HerkOptions { uplo: Uplo::Lower, trans: Trans::Trans, ..HerkOptions::default() },
    )?;
    let info = ctx.potrf(gram.view_mut(N, N, N, N * N, BATCH)?, &PotrfOptions::default())?.wait()?;
    if let Some((item, order)) = info.first_failure() {
        return Err(
            format!("the columns of item {item} are dependent to working precision at {order}").into()
        );
    }
    ctx.trsm(
        gram.view(N, N, N, N * N, BATCH)?,
        x.view_mut(M, N, M, M * N, BATCH)?,
        &TrsmOptions { side: Side::Right, uplo: Uplo::Lower, trans: Trans::Trans, ..TrsmOptions::default() },
    )?;
    Ok(gram)
}

/// Matrices whose singular values fall from 1 to `1 / condition`: a diagonal between reflections on either side.
fn tall(condition: f64) -> Vec<f64> {
    let mut x = vec![0.0; M * N * BATCH];
    for (item, x) in x.chunks_exact_mut(M * N).enumerate() {
        for j in 0..N {
            x[j * M + j] = condition.powf(-(j as f64) / (N - 1) as f64);
        }
        for round in 0..3 {
            reflect(x, &direction(M, 7 * item + round), true);
            reflect(x, &direction(N, 7 * item + round + 3), false);
        }
    }
    x
}

/// A unit vector without structure.
fn direction(len: usize, seed: usize) -> Vec<f64> {
    let v: Vec<f64> = (0..len).map(|i| ((i + 1) as f64 * (seed + 2) as f64 * 0.618_034).sin()).collect();
    let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
    v.into_iter().map(|x| x / norm).collect()
}

/// `(I - 2 v v^T) X`, or `X (I - 2 v v^T)`.
fn reflect(x: &mut [f64], v: &[f64], from_left: bool) {
    let (lines, stride, step) = if from_left { (N, M, 1) } else { (M, 1, M) };
    for line in 0..lines {
        let dot: f64 = v.iter().enumerate().map(|(k, v)| v * x[line * stride + k * step]).sum();
        for (k, v) in v.iter().enumerate() {
            x[line * stride + k * step] -= 2.0 * dot * v;
        }
    }
}

/// The thin Q of a Householder factorisation of every item.
fn householder(x: &[f64]) -> Vec<f64> {
    let mut q = vec![0.0; x.len()];
    for (x, q) in x.chunks_exact(M * N).zip(q.chunks_exact_mut(M * N)) {
        let mut a = x.to_vec();
        let mut vectors = Vec::new();
        for j in 0..N {
            let mut v: Vec<f64> = (0..M).map(|i| if i < j { 0.0 } else { a[j * M + i] }).collect();
            v[j] += v[j].signum() * v.iter().map(|x| x * x).sum::<f64>().sqrt();
            let norm = v.iter().map(|x| x * x).sum::<f64>().sqrt();
            v.iter_mut().for_each(|x| *x /= norm);
            reflect(&mut a, &v, true);
            vectors.push(v);
        }
        (0..N).for_each(|j| q[j * M + j] = 1.0);
        vectors.iter().rev().for_each(|v| reflect(q, v, true));
    }
    q
}

/// The largest `||Q^T Q - I||_F` of a batch.
fn departure(q: &[f64]) -> f64 {
    let of_item = |q: &[f64]| {
        let column = |j: usize| &q[j * M..(j + 1) * M];
        let entry = |i: usize, j: usize| {
            let dot: f64 = column(i).iter().zip(column(j)).map(|(a, b)| a * b).sum();
            if i == j { dot - 1.0 } else { dot }
        };
        (0..N * N).map(|e| entry(e % N, e / N).powi(2)).sum::<f64>().sqrt()
    };
    q.chunks_exact(M * N).map(of_item).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best device there is, and the CPU if that is another.
    fn contexts() -> Vec<Context> {
        let (best, cpu) = (Context::new().unwrap(), Context::cpu(2).unwrap());
        if best.device().is_gpu() { vec![best, cpu] } else { vec![cpu] }
    }

    #[test]
    fn two_steps_are_as_orthonormal_as_householder_where_one_is_not() {
        for ctx in contexts() {
            for condition in [1.0, 1e3, 1e5, 1e7] {
                let x = tall(condition);
                let mut q = ctx.upload(&x).unwrap();
                let first = orthonormalise(&ctx, &mut q).unwrap();
                let once = departure(&ctx.download(&q).unwrap());
                let second = orthonormalise(&ctx, &mut q).unwrap();
                let q = ctx.download(&q).unwrap();
                let level = departure(&householder(&x));
                let twice = departure(&q);
                assert!(twice <= 2.0 * level, "cond {condition:e}: {twice:e}, Householder {level:e}");
                assert!(condition < 1e5 || once > 1e3 * twice, "cond {condition:e}: one step gives {once:e}");

                // X = Q (L1 L2)^T, since R = L2^T L1^T.
                let (first, second) = (ctx.download(&first).unwrap(), ctx.download(&second).unwrap());
                for item in 0..BATCH {
                    let at = |l: &[f64], i: usize, j: usize| {
                        if i >= j { l[item * N * N + j * N + i] } else { 0.0 }
                    };
                    let r = |k: usize, j: usize| {
                        (0..N).map(|p| at(&first, j, p) * at(&second, p, k)).sum::<f64>()
                    };
                    for j in [0, N / 2, N - 1] {
                        let column: Vec<f64> = (0..N).map(|k| r(k, j)).collect();
                        for i in [0, 1, M - 1] {
                            let product: f64 = (0..N).map(|k| q[item * M * N + k * M + i] * column[k]).sum();
                            let error = (product - x[item * M * N + j * M + i]).abs();
                            assert!(error < 1e-14, "cond {condition:e}: X differs from Q R by {error:e}");
                        }
                    }
                }
            }
        }
    }
}
