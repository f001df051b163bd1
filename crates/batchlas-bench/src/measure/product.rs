//! `gemm` and `herk` as they are timed: C is updated by `C - op(A) op(B)`, packed, and restored before every call.

use batchlas::{
    Buffer, Context, Element, GemmOptions, HerkOptions, MatBatch, Ran, RealOf, Result, Scalar, Trans,
};

use super::{CHECKED, Cell, DISTINCT_ELEMENTS, Op, Subject, spread, timed};
use crate::matrices::Random;
use crate::operands::{Layout, Store};
use crate::verify::{in_triangle, product_error};

/// Multiply-adds of an item's check.
const CHECK_WORK: usize = 1 << 21;

/// One operand: its shape, the distinct items, and the batch on the device.
struct Operand<T> {
    rows: usize,
    cols: usize,
    items: Vec<T>,
    pristine: Buffer<T>,
}

impl<T: Element> Operand<T> {
    fn new(
        ctx: &Context,
        seed: u64,
        [distinct, batch]: [usize; 2],
        [rows, cols]: [usize; 2],
    ) -> Result<Self> {
        let (queue, size) = (ctx.queue(), rows * cols);
        let distinct = (DISTINCT_ELEMENTS / size).max(1).min(distinct).min(batch);
        let mut random = Random::new(seed, 0);
        let items: Vec<T> = (0..distinct * size).map(|_| random.scalar()).collect();
        let mut pristine = Buffer::new(queue, batch * size)?;
        for start in (0..batch).step_by(distinct.max(1)).take_while(|_| distinct > 0) {
            let count = distinct.min(batch - start);
            pristine.write(queue, start * size, &items[..count * size])?;
        }
        Ok(Operand { rows, cols, items, pristine })
    }

    fn view(&self, batch: usize) -> Result<MatBatch<'_, T>> {
        self.pristine.view(self.rows, self.cols, self.rows, self.rows * self.cols, batch)
    }

    /// Item `item` of the batch, as it was at first.
    fn store(&self, item: usize) -> Store<T> {
        let size = self.rows * self.cols;
        let at = item % (self.items.len() / size) * size;
        let mut store = Store::new(Layout::Packed, self.rows, self.cols, 1, T::default());
        store.data.copy_from_slice(&self.items[at..at + size]);
        store
    }
}

/// The buffers of a cell.
pub(super) struct Products<'c, T> {
    ctx: &'c Context,
    cell: &'c Cell,
    a: Operand<T>,
    b: Operand<T>,
    c: Operand<T>,
    out: Buffer<T>,
}

impl<'c, T: Element> Products<'c, T> {
    pub(super) fn new(ctx: &'c Context, cell: &'c Cell, distinct: usize) -> Result<Self> {
        let Cell { n, batch, .. } = *cell;
        let shape = |trans: Trans, [rows, cols]: [usize; 2]| {
            if trans.transposes() { [cols, rows] } else { [rows, cols] }
        };
        // The adjoint of A takes no memory of its own.
        let (m, a, b) = match cell.op {
            Op::Gemm([ta, tb], m, k) => (m, shape(ta, [m, k]), shape(tb, [k, n])),
            Op::Herk(trans, k) => (n, shape(trans, [n, k]), [1, 1]),
            _ => unreachable!("only products come here"),
        };
        let operand = |seed, shape| Operand::new(ctx, seed, [distinct, batch], shape);
        let (a, b, c) = (operand(5, a)?, operand(6, b)?, operand(7, [m, n])?);
        let out = Buffer::new(ctx.queue(), c.pristine.len())?;
        Ok(Products { ctx, cell, a, b, c, out })
    }
}

impl<T: Element> Subject for Products<'_, T> {
    fn call(&mut self, family: &str, batch: usize) -> Result<(f64, Ran)> {
        let Products { ctx, a, b, c, out, .. } = self;
        out.copy_from(ctx.queue(), &c.pristine)?;
        let route = Some(family.to_owned());
        let mut c = out.view_mut(c.rows, c.cols, c.rows, c.rows * c.cols, batch)?;
        let (a, b) = (a.view(batch)?, b.view(batch)?);
        timed(ctx.queue(), || match self.cell.op {
            Op::Herk(trans, _) => {
                let (alpha, beta) = (RealOf::<T>::from_parts(-1.0, 0.0), RealOf::<T>::from_parts(1.0, 0.0));
                let options = HerkOptions { uplo: self.cell.uplo, trans, alpha, beta, route: route.clone() };
                ctx.herk(a, c.rb_mut(), &options)
            }
            Op::Gemm([trans_a, trans_b], ..) => {
                let (alpha, beta) = (T::from_parts(-1.0, 0.0), T::from_parts(1.0, 0.0));
                let options = GemmOptions { trans_a, trans_b, alpha, beta, route: route.clone() };
                ctx.gemm(a, b, c.rb_mut(), &options)
            }
            _ => unreachable!("only products come here"),
        })
    }

    /// Worst relative error of the checked elements, in terms of the moduli that went into them.
    fn check(&self) -> Result<(f64, usize)> {
        let Products { cell, a, b, c, .. } = self;
        let (m, n) = (c.rows, c.cols);
        let (trans, k) = match cell.op {
            Op::Gemm(trans, _, k) => (trans, k),
            Op::Herk(trans, k) if trans.transposes() => ([Trans::ConjTrans, Trans::No], k),
            Op::Herk(_, k) => ([Trans::No, Trans::ConjTrans], k),
            _ => unreachable!("only products come here"),
        };
        let step = (m * n * k).div_ceil(CHECK_WORK);
        let (minus, one) = (T::from_parts(-1.0, 0.0), T::from_parts(1.0, 0.0));
        let triangle = matches!(cell.op, Op::Herk(..));
        let mut worst = 0.0f64;
        for item in spread(CHECKED, cell.batch) {
            let mut out = Store::new(Layout::Packed, m, n, 1, T::default());
            self.out.read(self.ctx.queue(), item * m * n, &mut out.data)?;
            let (left, mut old) = (a.store(item), c.store(item));
            let right = if triangle { left.clone() } else { b.store(item) };
            if triangle {
                (0..n).for_each(|j| old.set(0, j, j, T::from_real(Scalar::re(old.at(0, j, j)))));
            }
            let compared = |i: usize, j: usize| {
                let sampled = (7 * i + 13 * j).is_multiple_of(step) || (i + 1, j + 1) == (m, n);
                sampled && (!triangle || in_triangle(cell.uplo, i, j))
            };
            let operands = (&left, &right, &old);
            let error = product_error(trans.into(), (minus, one), operands, &out, 0, compared);
            worst = if error.is_nan() || worst.is_nan() { f64::NAN } else { worst.max(error) };
        }
        Ok((worst * (k + 2) as f64 * T::DTYPE.epsilon(), 0))
    }
}
