//! Instances of `gemm` and `herk`.

use batchlas::{Context, Element, GemmOptions, HerkOptions, RealOf, Scalar, Trans, Uplo};

use super::{Line, Outcome, Trouble, poisons, within};
use crate::corpus::ProductCase;
use crate::matrices::Random;
use crate::operands::{Layout, Store};
use crate::verify::{in_triangle, product_error, same_bits, untouched};

#[derive(Clone, Copy)]
struct Instance<'c> {
    route: &'c str,
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    layout: Layout,
    alpha: [f64; 2],
    beta: [f64; 2],
}

pub(super) fn run<T: Element>(
    ctx: &Context,
    cases: &[ProductCase],
    fits: &impl Fn(usize, usize) -> bool,
    line: &mut Line,
) {
    let (op, route) = (line.op, line.family.clone());
    for case in cases {
        for (&m, &n) in case.m.iter().flat_map(|m| case.n.iter().map(move |n| (m, n))) {
            // An update has one order: it takes the list of n once.
            if op == "herk" && Some(&m) != case.m.first() {
                continue;
            }
            for (&k, &batch) in case.k.iter().flat_map(|k| case.batch.iter().map(move |b| (k, b))) {
                for (&layout, (&alpha, &beta)) in case.layout.iter().flat_map(|l| {
                    case.alpha.iter().flat_map(move |a| case.beta.iter().map(move |b| (l, (a, b))))
                }) {
                    if !fits(n, batch * m.max(n) * k.max(n)) {
                        continue;
                    }
                    let instance = Instance { route: &route, m, n, k, batch, layout, alpha, beta };
                    instance.run::<T>(ctx, op, line, &case.name);
                }
            }
        }
    }
}

impl Instance<'_> {
    fn run<T: Element>(&self, ctx: &Context, op: &str, line: &mut Line, name: &str) {
        let Instance { m, n, k, layout, alpha, beta, .. } = *self;
        if op == "gemm" {
            for (&ta, &tb) in Trans::ALL.iter().flat_map(|a| Trans::ALL.iter().map(move |b| (a, b))) {
                line.record(self.gemm::<T>(ctx, ta, tb).into(), || {
                    format!("{name} {ta}{tb} m={m} n={n} k={k} {layout:?} alpha={alpha:?} beta={beta:?}")
                });
            }
        } else {
            for (&uplo, &trans) in Uplo::ALL.iter().flat_map(|u| Trans::ALL.iter().map(move |t| (u, t))) {
                let outcome: Outcome = self.herk::<T>(ctx, uplo, trans).into();
                line.record(outcome, || {
                    format!("{name} {uplo}{trans} n={n} k={k} {layout:?} alpha={alpha:?} beta={beta:?}")
                });
            }
        }
    }

    fn operand<T: Element>(
        &self,
        trans: Trans,
        (rows, cols): (usize, usize),
        seed: u64,
        poison: T,
    ) -> Store<T> {
        let (rows, cols) = if trans.transposes() { (cols, rows) } else { (rows, cols) };
        self.fill(rows, cols, seed, poison)
    }

    fn fill<T: Element>(&self, rows: usize, cols: usize, seed: u64, poison: T) -> Store<T> {
        let mut x = Store::new(self.layout, rows, cols, self.batch, poison);
        for b in 0..self.batch {
            let mut random = Random::new(seed, b);
            for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                x.set(b, i, j, random.scalar());
            }
        }
        x
    }

    /// Replaces what a call may not read by NaN.
    fn spoil<T: Element>(x: &Store<T>, spoilt: bool) -> Store<T> {
        let mut x = x.clone();
        if spoilt {
            x.data.fill(T::from_parts(f64::NAN, f64::NAN));
        }
        x
    }

    fn gemm<T: Element>(&self, ctx: &Context, trans_a: Trans, trans_b: Trans) -> Result<f64, Trouble> {
        let [sentinel, _] = poisons::<T>();
        let alpha = T::from_parts(self.alpha[0], self.alpha[1]);
        let beta = T::from_parts(self.beta[0], self.beta[1]);
        let a = self.operand(trans_a, (self.m, self.k), 5, sentinel);
        let b = self.operand(trans_b, (self.k, self.n), 6, sentinel);
        let c = self.fill(self.m, self.n, 7, sentinel);
        let options = GemmOptions { trans_a, trans_b, alpha, beta, route: Some(self.route.to_owned()) };
        let call = |a: &Store<T>, b: &Store<T>, c: &Store<T>| -> Result<Store<T>, Trouble> {
            let (mut on_a, mut on_b, mut on_c) = (a.upload(ctx)?, b.upload(ctx)?, c.upload(ctx)?);
            on_c.with_mut(ctx, |c| on_a.with(ctx, |a| on_b.with(ctx, |b| ctx.gemm(a, b, c, &options))))?;
            untouched("A", a, &on_a.download(ctx)?, |_, _, _| false)?;
            untouched("B", b, &on_b.download(ctx)?, |_, _, _| false)?;
            let out = on_c.download(ctx)?;
            untouched("C", c, &out, |_, _, _| true)?;
            Ok(out)
        };
        let out = call(&a, &b, &c)?;
        let unread = alpha == T::default();
        let spoilt =
            call(&Self::spoil(&a, unread), &Self::spoil(&b, unread), &Self::spoil(&c, beta == T::default()))?;
        same_bits("C with NaN in what is not read", &out, &spoilt, |_, _, _| true)?;
        let mut worst = 0.0f64;
        for item in 0..self.batch {
            let error =
                product_error((trans_a, trans_b), (alpha, beta), (&a, &b, &c), &out, item, |_, _| true);
            worst = worst.max(within(&format!("the error of item {item}"), error)?);
        }
        Ok(worst)
    }

    fn herk<T: Element>(&self, ctx: &Context, uplo: Uplo, trans: Trans) -> Result<f64, Trouble> {
        let [sentinel, nan] = poisons::<T>();
        let (alpha, beta) = (T::from_parts(self.alpha[0], 0.0), T::from_parts(self.beta[0], 0.0));
        let a = self.operand(trans, (self.n, self.k), 5, sentinel);
        let (real_alpha, real_beta) = (Scalar::re(alpha), Scalar::re(beta));
        let options: HerkOptions<T> = HerkOptions {
            uplo,
            trans,
            alpha: real_alpha,
            beta: real_beta,
            route: Some(self.route.to_owned()),
        };
        // The other triangle and the imaginary diagonal hold poison; what counts is the Hermitian matrix without.
        let source = |poison: T| {
            let mut c = self.fill(self.n, self.n, 7, poison);
            for (b, j) in (0..self.batch).flat_map(|b| (0..self.n).map(move |j| (b, j))) {
                for i in (0..self.n).filter(|&i| !in_triangle(uplo, i, j)) {
                    c.set(b, i, j, poison);
                }
                c.set(b, j, j, T::from_parts(c.at(b, j, j).widen().re, poison.widen().im));
            }
            c
        };
        let call = |a: &Store<T>, c: &Store<T>| -> Result<Store<T>, Trouble> {
            let (mut on_a, mut on_c) = (a.upload(ctx)?, c.upload(ctx)?);
            on_c.with_mut(ctx, |c| on_a.with(ctx, |a| ctx.herk(a, c, &options)))?;
            untouched("A", a, &on_a.download(ctx)?, |_, _, _| false)?;
            let out = on_c.download(ctx)?;
            untouched("C", c, &out, |_, i, j| in_triangle(uplo, i, j))?;
            Ok(out)
        };
        let zero = RealOf::<T>::default();
        let c = source(sentinel);
        let out = call(&a, &c)?;
        let spoilt = call(&Self::spoil(&a, real_alpha == zero), &{
            let mut c = source(nan);
            if real_beta == zero {
                c.data.fill(nan);
            }
            c
        })?;
        let triangle = |_: usize, i: usize, j: usize| in_triangle(uplo, i, j);
        same_bits("C with NaN in what is not read", &out, &spoilt, triangle)?;

        let mut hermitian = c.clone();
        for (b, j) in (0..self.batch).flat_map(|b| (0..self.n).map(move |j| (b, j))) {
            hermitian.set(b, j, j, T::from_parts(c.at(b, j, j).widen().re, 0.0));
            if Scalar::im(out.at(b, j, j)) != zero {
                return Err(Trouble::Check(format!("({j}, {j}) of item {b} has an imaginary part")));
            }
        }
        let both =
            if trans.transposes() { (Trans::ConjTrans, Trans::No) } else { (Trans::No, Trans::ConjTrans) };
        let mut worst = 0.0f64;
        for item in 0..self.batch {
            let error = product_error(both, (alpha, beta), (&a, &a, &hermitian), &out, item, |i, j| {
                in_triangle(uplo, i, j)
            });
            worst = worst.max(within(&format!("the error of item {item}"), error)?);
        }
        Ok(worst)
    }
}
