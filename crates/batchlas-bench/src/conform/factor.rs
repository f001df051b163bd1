//! Instances of `potrf`, `posv` and `potrs`.

use batchlas::{
    Buffer, Context, Element, FactorOutput, InfoMut, PosvOptions, PotrfOptions, PotrsOptions, Result, Uplo,
    WorkspaceMut,
};

use super::{Line, Outcome, Trouble, poisons, sampled, within};
use crate::corpus::FactorCase;
use crate::matrices::{Kind, Random, Square, item};
use crate::operands::{Layout, Store};
use crate::verify::{factor_residual, in_triangle, same_bits, solve_residual, statuses, untouched};

/// Bounds of the contract, in units of `n eps`.
const FACTOR_BOUND: f64 = 4.0;
const SOLVE_BOUND: f64 = 50.0;

/// What `info` holds before a call: nothing may be left of it.
const STALE_INFO: i32 = 77;

/// One instance of a case.
#[derive(Clone, Copy)]
struct Instance<'c> {
    case: &'c FactorCase,
    op: &'static str,
    route: &'c str,
    uplo: Uplo,
    n: usize,
    nrhs: usize,
    batch: usize,
    layout: Layout,
    at: usize,
}

pub(super) fn run<T: Element>(
    ctx: &Context,
    cases: &[FactorCase],
    fits: &impl Fn(usize, usize) -> bool,
    line: &mut Line,
) {
    let (op, route) = (line.op, line.family.clone());
    let belongs = |case: &&FactorCase| match op {
        "potrf" => case.nrhs.is_empty(),
        "posv" => !case.nrhs.is_empty() && !case.shared,
        _ => case.shared,
    };
    for case in cases.iter().filter(belongs) {
        let nrhs = if case.nrhs.is_empty() { &[0][..] } else { &case.nrhs };
        for (&n, &nrhs) in case.n.iter().flat_map(|n| nrhs.iter().map(move |q| (n, q))) {
            for (&batch, &layout) in case.batch.iter().flat_map(|b| case.layout.iter().map(move |l| (b, l))) {
                for (&at, &uplo) in case.at.iter().flat_map(|at| Uplo::ALL.iter().map(move |u| (at, u))) {
                    let at = if n == 0 { 0 } else { at.order(n) };
                    if !case.kind.exists(n, at) || !fits(n, batch * n * n.max(nrhs)) {
                        continue;
                    }
                    let instance = Instance { case, op, route: &route, uplo, n, nrhs, batch, layout, at };
                    line.record(instance.outcome::<T>(ctx), || {
                        format!("{} {uplo} n={n} nrhs={nrhs} batch={batch} {layout:?} at={at}", case.name)
                    });
                }
            }
        }
    }
}

/// Data after one call.
struct After<T> {
    a: Store<T>,
    b: Store<T>,
    info: Option<Vec<i32>>,
}

impl Instance<'_> {
    fn outcome<T: Element>(&self, ctx: &Context) -> Outcome {
        if self.op == "potrs" { self.solve_with_shared::<T>(ctx) } else { self.factor::<T>(ctx) }.into()
    }

    fn fails(&self, b: usize) -> bool {
        self.n > 0 && self.case.kind.fails() && self.case.only_item.is_none_or(|only| only == b)
    }

    fn expected(&self, b: usize) -> i32 {
        if self.fails(b) { self.at as i32 } else { 0 }
    }

    fn matrices<T: Element>(&self, all_clean: bool) -> Vec<Square<T>> {
        (0..self.batch)
            .map(|b| {
                let special = !all_clean && self.case.only_item.is_none_or(|only| only == b);
                let kind = if special { self.case.kind } else { Kind::Definite };
                let seed = if self.case.clones { 0 } else { b };
                item(kind, self.n, self.at, b, &mut Random::new(1, seed))
            })
            .collect()
    }

    /// A with poison in the other triangle, the padding, and the imaginary part of the diagonal.
    fn store_a<T: Element>(&self, matrices: &[Square<T>], poison: T) -> Store<T> {
        let mut a = Store::new(self.layout, self.n, self.n, matrices.len(), poison);
        let stray = poison.widen().im;
        for (b, matrix) in matrices.iter().enumerate() {
            for (i, j) in (0..self.n).flat_map(|j| (0..self.n).map(move |i| (i, j))) {
                if i == j {
                    a.set(b, j, j, T::from_parts(matrix.at(j, j).widen().re, stray));
                } else if in_triangle(self.uplo, i, j) {
                    a.set(b, i, j, matrix.at(i, j));
                }
            }
        }
        a
    }

    fn store_b<T: Element>(&self, poison: T) -> Store<T> {
        let mut x = Store::new(self.layout, self.n, self.nrhs, self.batch, poison);
        for b in 0..self.batch {
            let mut random = Random::new(2, if self.case.clones { 0 } else { b });
            for (i, j) in (0..self.nrhs).flat_map(|j| (0..self.n).map(move |i| (i, j))) {
                x.set(b, i, j, random.scalar());
            }
        }
        x
    }

    fn call<T: Element>(
        &self,
        ctx: &Context,
        a: &Store<T>,
        b: &Store<T>,
        with_info: bool,
        workspace_byte: u8,
    ) -> Result<After<T>> {
        self.call_for(ctx, a, b, with_info, workspace_byte, FactorOutput::Stored)
    }

    fn call_for<T: Element>(
        &self,
        ctx: &Context,
        a: &Store<T>,
        b: &Store<T>,
        with_info: bool,
        workspace_byte: u8,
        factor: FactorOutput,
    ) -> Result<After<T>> {
        let (route, uplo) = (Some(self.route.to_owned()), self.uplo);
        let (mut on_a, mut on_b) = (a.upload(ctx)?, b.upload(ctx)?);
        let mut info = Buffer::from_slice(ctx.queue(), &vec![STALE_INFO; self.batch])?;
        let workspace = |bytes: usize| -> Result<_> {
            let mut memory = ctx.queue().alloc(bytes)?;
            ctx.queue().write(&mut memory, 0, &vec![workspace_byte; bytes])?;
            Ok(memory)
        };
        let span = if with_info { info.info_mut() } else { InfoMut::absent() };
        on_a.with_mut(ctx, |a| {
            if self.op == "potrf" {
                let options = PotrfOptions { uplo, route };
                let mut memory = workspace(ctx.potrf_workspace(a.rb(), &options)?)?;
                ctx.potrf_in(a, span, WorkspaceMut::over(&mut memory), &options)
            } else {
                let options = PosvOptions { uplo, factor, route };
                on_b.with_mut(ctx, |b| {
                    let mut memory = workspace(ctx.posv_workspace(a.rb(), &b, !with_info, &options)?)?;
                    ctx.posv_in(a, b, span, WorkspaceMut::over(&mut memory), &options)
                })
            }
        })?;
        let info = if with_info { Some(ctx.download(&info)?) } else { None };
        Ok(After { a: on_a.download(ctx)?, b: on_b.download(ctx)?, info })
    }

    fn factor<T: Element>(&self, ctx: &Context) -> std::result::Result<f64, Trouble> {
        let matrices = self.matrices::<T>(false);
        let [sentinel, nan] = poisons::<T>();
        let (a, b) = (self.store_a(&matrices, sentinel), self.store_b(sentinel));
        let first = self.call(ctx, &a, &b, true, 0xFF)?;
        let worst = self.check(&matrices, &a, &b, &first)?;

        // NaN wherever nothing may be read, a clean workspace, the same bits.
        let triangle = |b: usize, i: usize, j: usize| !self.fails(b) && in_triangle(self.uplo, i, j);
        let (a2, b2) = (self.store_a(&matrices, nan), self.store_b(nan));
        let second = self.call(ctx, &a2, &b2, true, 0)?;
        self.check(&matrices, &a2, &b2, &second)?;
        same_bits("A under NaN poison", &first.a, &second.a, triangle)?;
        same_bits("B under NaN poison", &first.b, &second.b, |_, _, _| true)?;

        // Without info, nothing else changes.
        let third = self.call(ctx, &a, &b, false, 0xFF)?;
        same_bits("A without info", &first.a, &third.a, triangle)?;
        same_bits("B without info", &first.b, &third.b, |_, _, _| true)?;

        if self.op == "posv" {
            self.with_and_without_factor(ctx, &a, &b, &first)?;
        }
        if let Some(only) = self.case.only_item {
            let clean = self.call(ctx, &self.store_a(&self.matrices(true), sentinel), &b, true, 0)?;
            same_bits("A beside a bad item", &first.a, &clean.a, |b, i, j| b != only && triangle(b, i, j))?;
            same_bits("B beside a bad item", &first.b, &clean.b, |b, _, _| b != only)?;
        }
        if self.case.clones {
            for _ in 0..19 {
                let again = self.call(ctx, &a, &b, true, 0)?;
                same_bits("A of a repeat", &first.a, &again.a, triangle)?;
            }
            let mut of_first = first.a.clone();
            for (b, j) in (0..self.batch).flat_map(|b| (0..self.n).map(move |j| (b, j))) {
                for i in 0..self.n {
                    of_first.set(b, i, j, first.a.at(0, i, j));
                }
            }
            same_bits("A of a clone", &first.a, &of_first, triangle)?;
        }
        Ok(worst)
    }

    /// A solve that discards its factor gives the same bits of X. What `tiny` stores is what potrf's `tiny` stores, bit for
    /// bit, failed items included; what it does not store, it does not touch.
    fn with_and_without_factor<T: Element>(
        &self,
        ctx: &Context,
        a: &Store<T>,
        b: &Store<T>,
        stored: &After<T>,
    ) -> std::result::Result<(), Trouble> {
        let discarded = self.call_for(ctx, a, b, true, 0xFF, FactorOutput::Discarded)?;
        same_bits("B without the factor", &stored.b, &discarded.b, |_, _, _| true)?;
        if discarded.info != stored.info {
            return Err(Trouble::Check("info changes when the factor is discarded".into()));
        }
        let tiny = self.route.starts_with("tiny");
        untouched("A", a, &discarded.a, |_, i, j| !tiny && in_triangle(self.uplo, i, j))?;
        if tiny {
            let factored = Instance { op: "potrf", route: "tiny", ..*self }.call(ctx, a, b, true, 0)?;
            same_bits("A of potrf", &factored.a, &stored.a, |_, i, j| in_triangle(self.uplo, i, j))?;
        }
        Ok(())
    }

    /// Statuses, what must not change, and residuals, in units of their bounds.
    fn check<T: Element>(
        &self,
        matrices: &[Square<T>],
        a: &Store<T>,
        b: &Store<T>,
        after: &After<T>,
    ) -> std::result::Result<f64, Trouble> {
        if let Some(info) = &after.info {
            statuses(info, |b| self.expected(b))?;
        }
        untouched("A", a, &after.a, |_, i, j| in_triangle(self.uplo, i, j))?;
        untouched("B", b, &after.b, |b, _, _| !self.fails(b))?;
        let mut worst = 0.0f64;
        let items = sampled(self.batch, self.case.only_item);
        for b_item in items.into_iter().filter(|&b| self.n > 0 && !self.fails(b)) {
            let matrix = &matrices[b_item];
            let factor = factor_residual(matrix, self.uplo, &after.a, b_item) / FACTOR_BOUND;
            worst = worst.max(within(&format!("the factor's residual of item {b_item}"), factor)?);
            if self.nrhs > 0 {
                let solve = solve_residual(matrix, b, &after.b, b_item) / SOLVE_BOUND;
                worst = worst.max(within(&format!("the solution's residual of item {b_item}"), solve)?);
            }
        }
        Ok(worst)
    }

    /// `potrs` with one factor for all items agrees bit for bit with a copy of the factor per item.
    fn solve_with_shared<T: Element>(&self, ctx: &Context) -> std::result::Result<f64, Trouble> {
        let one = self.matrices::<T>(false).swap_remove(0);
        let [sentinel, _] = poisons::<T>();
        let lone = Instance { batch: 1, ..*self };
        let source = lone.store_a(std::slice::from_ref(&one), sentinel);
        let mut factor = source.upload(ctx)?;
        let options = PotrfOptions { uplo: self.uplo, route: None };
        factor.with_mut(ctx, |a| ctx.potrf(a, &options)?.wait())?;

        let rhs = self.store_b(sentinel);
        let options = PotrsOptions { uplo: self.uplo, route: Some(self.route.to_owned()) };
        let mut shared = rhs.upload(ctx)?;
        shared.with_mut(ctx, |b| factor.with_shared(self.batch, |a| ctx.potrs(a, b, &options)))?;
        let shared = shared.download(ctx)?;
        untouched("B", &rhs, &shared, |_, _, _| true)?;

        let factored = factor.download(ctx)?;
        let mut copies = Store::new(self.layout, self.n, self.n, self.batch, sentinel);
        for (b, j) in (0..self.batch).flat_map(|b| (0..self.n).map(move |j| (b, j))) {
            for i in (0..self.n).filter(|&i| in_triangle(self.uplo, i, j)) {
                copies.set(b, i, j, factored.at(0, i, j));
            }
        }
        let (mut a, mut copied) = (copies.upload(ctx)?, rhs.upload(ctx)?);
        copied.with_mut(ctx, |b| a.with(ctx, |a| ctx.potrs(a, b, &options)))?;
        untouched("A", &copies, &a.download(ctx)?, |_, _, _| false)?;
        same_bits("X with a shared factor", &shared, &copied.download(ctx)?, |_, _, _| true)?;

        let mut worst = 0.0f64;
        for b in sampled(self.batch, None) {
            let residual = solve_residual(&one, &rhs, &shared, b) / SOLVE_BOUND;
            worst = worst.max(within(&format!("the solution's residual of item {b}"), residual)?);
        }
        Ok(worst)
    }
}
