//! Instances of `trsm`: all sides, triangles, transpositions and diagonals against a closed form.
//!
//! Factors hold small integers and powers of two, and the solution small integers, so that the right-hand side is exact
//! in every type and so is the expected result: `alpha` times the integers.

use batchlas::{Context, Diag, Element, Side, Trans, TrsmOptions, Uplo};
use num_complex::Complex;

use super::{Line, Outcome, Trouble, poisons, within};
use crate::corpus::SolveCase;
use crate::matrices::{Random, Square, exact_triangle};
use crate::operands::{Layout, Store};
use crate::verify::{same_bits, triangle_product, untouched};

/// Bound on the error relative to the largest element of the solution, in units of `n eps`. The factors' condition
/// numbers are small but not 1.
const BOUND: f64 = 50.0;

#[derive(Clone, Copy)]
struct Instance<'c> {
    route: &'c str,
    side: Side,
    uplo: Uplo,
    trans: Trans,
    diag: Diag,
    n: usize,
    q: usize,
    batch: usize,
    layout: Layout,
    alpha: [f64; 2],
    shared: bool,
}

pub(super) fn run<T: Element>(
    ctx: &Context,
    cases: &[SolveCase],
    fits: &impl Fn(usize, usize) -> bool,
    line: &mut Line,
) {
    let route = line.family.clone();
    let mut variants = Vec::new();
    for (&side, &uplo) in Side::ALL.iter().flat_map(|s| Uplo::ALL.iter().map(move |u| (s, u))) {
        for (&trans, &diag) in Trans::ALL.iter().flat_map(|t| Diag::ALL.iter().map(move |d| (t, d))) {
            variants.push((side, uplo, trans, diag));
        }
    }
    for case in cases {
        for (&n, &q) in case.n.iter().flat_map(|n| case.q.iter().map(move |q| (n, q))) {
            for (&batch, &layout) in case.batch.iter().flat_map(|b| case.layout.iter().map(move |l| (b, l))) {
                if !fits(n, batch * n * n.max(q)) {
                    continue;
                }
                for (&alpha, &(side, uplo, trans, diag)) in
                    case.alpha.iter().flat_map(|a| variants.iter().map(move |v| (a, v)))
                {
                    let (route, shared) = (&route[..], case.shared);
                    let instance =
                        Instance { route, side, uplo, trans, diag, n, q, batch, layout, alpha, shared };
                    line.record(instance.outcome::<T>(ctx), || {
                        format!(
                            "{} {side}{uplo}{trans}{diag} n={n} q={q} batch={batch} {layout:?} alpha={alpha:?}",
                            case.name
                        )
                    });
                }
            }
        }
    }
}

impl Instance<'_> {
    fn outcome<T: Element>(&self, ctx: &Context) -> Outcome {
        self.solve::<T>(ctx).into()
    }

    fn shape(&self) -> (usize, usize) {
        if self.side == Side::Left { (self.n, self.q) } else { (self.q, self.n) }
    }

    fn triangle<T: Element>(&self, b: usize, unread: T) -> Square<T> {
        let item = if self.shared { 0 } else { b };
        exact_triangle(self.n, self.uplo, self.diag == Diag::Unit, unread, &mut Random::new(3, item))
    }

    fn store_a<T: Element>(&self, batch: usize, unread: T) -> Store<T> {
        let mut a = Store::new(self.layout, self.n, self.n, batch, unread);
        for b in 0..batch {
            let triangle = self.triangle(b, unread);
            for (i, j) in (0..self.n).flat_map(|j| (0..self.n).map(move |i| (i, j))) {
                a.set(b, i, j, triangle.at(i, j));
            }
        }
        a
    }

    /// The integers that the solution is made of, item by item.
    fn integers<T: Element>(&self, b: usize) -> Vec<Complex<f64>> {
        let mut random = Random::new(4, b);
        let (rows, cols) = self.shape();
        (0..rows * cols).map(|_| T::from_parts(random.integer(2), random.integer(2)).widen()).collect()
    }

    fn solve<T: Element>(&self, ctx: &Context) -> std::result::Result<f64, Trouble> {
        let (rows, cols) = self.shape();
        let alpha = T::from_parts(self.alpha[0], self.alpha[1]);
        let [sentinel, nan] = poisons::<T>();
        let zero_alpha = alpha == T::default();
        let at = |i: usize, j: usize| j * rows + i;

        let mut rhs = Store::new(self.layout, rows, cols, self.batch, sentinel);
        for b in 0..self.batch {
            let triangle = self.triangle(b, T::default());
            let product = triangle_product(
                self.side,
                self.uplo,
                self.trans,
                self.diag,
                &triangle,
                &self.integers::<T>(b),
                (rows, cols),
            );
            for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                let x = product[at(i, j)];
                // alpha = 0 must not read B.
                rhs.set(b, i, j, if zero_alpha { nan } else { T::from_parts(x.re, x.im) });
            }
        }
        let options = TrsmOptions {
            side: self.side,
            uplo: self.uplo,
            trans: self.trans,
            diag: self.diag,
            alpha,
            route: Some(self.route.to_owned()),
        };
        let call = |unread: T, shared: bool| -> std::result::Result<Store<T>, Trouble> {
            let source = self.store_a(if shared { 1 } else { self.batch }, unread);
            let (mut a, mut b) = (source.upload(ctx)?, rhs.upload(ctx)?);
            if shared {
                b.with_mut(ctx, |b| a.with_shared(self.batch, |a| ctx.trsm(a, b, &options)))?;
            } else {
                b.with_mut(ctx, |b| a.with(ctx, |a| ctx.trsm(a, b, &options)))?;
            }
            untouched("A", &source, &a.download(ctx)?, |_, _, _| false)?;
            let x = b.download(ctx)?;
            untouched("B", &rhs, &x, |_, _, _| true)?;
            Ok(x)
        };
        let x = call(sentinel, self.shared)?;
        same_bits("X under NaN poison", &x, &call(nan, false)?, |_, _, _| true)?;

        let mut worst = 0.0f64;
        for b in 0..self.batch {
            let expected: Vec<Complex<f64>> =
                self.integers::<T>(b).into_iter().map(|x| alpha.widen() * x).collect();
            let scale = expected.iter().map(|x| x.norm()).fold(0.0, f64::max);
            let mut error = 0.0f64;
            for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                let off = (x.at(b, i, j).widen() - expected[at(i, j)]).norm();
                error = if off.is_nan() { f64::NAN } else { error.max(off) };
                if error.is_nan() {
                    break;
                }
            }
            // A solution of zeros must be exactly zero.
            if error != 0.0 {
                let relative = error / (scale * BOUND * self.n as f64 * T::DTYPE.epsilon());
                worst = worst.max(within(&format!("the error of item {b}"), relative)?);
            }
        }
        Ok(worst)
    }
}
