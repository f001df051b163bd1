//! `gemm` and `herk` as they are timed: C is updated by `C - op(A) op(B)`, and restored before every call.

use batchlas::{
    Buffer, Context, Element, GemmOptions, HerkOptions, MatBatch, Ran, RealOf, Result, Scalar, Trans,
};

use super::{CHECKED, Cell, Copies, Effort, Product, Subject, spread, timed};
use crate::matrices::Random;
use crate::operands::{Layout, Store};
use crate::verify::{in_triangle, product_error};

/// Multiply-adds of an item's check.
const CHECK_WORK: usize = 1 << 17;

/// One operand: its shape, the distinct items, and the batch on the device.
struct Operand<T> {
    rows: usize,
    cols: usize,
    ld: usize,
    items: Vec<T>,
    pristine: Buffer<T>,
}

impl<T: Element> Operand<T> {
    fn new(
        ctx: &Context,
        seed: u64,
        (effort, [batch, all]): (Effort, [usize; 2]),
        pad: usize,
        [rows, cols]: [usize; 2],
    ) -> Result<Self> {
        let ld = rows + pad;
        let (queue, size) = (ctx.queue(), ld * cols);
        let distinct = effort.distinct(batch, size);
        let mut random = Random::new(seed, 0);
        let items: Vec<T> = (0..distinct * size).map(|_| random.scalar()).collect();
        let mut pristine = Buffer::new(queue, all * size)?;
        for start in (0..all).step_by(distinct.max(1)).take_while(|_| distinct > 0) {
            let count = distinct.min(all - start);
            pristine.write(queue, start * size, &items[..count * size])?;
        }
        Ok(Operand { rows, cols, ld, items, pristine })
    }

    fn view(&self, batch: usize) -> Result<MatBatch<'_, T>> {
        self.pristine.view(self.rows, self.cols, self.ld, self.ld * self.cols, batch)
    }

    /// Item `item` of the batch, as it was at first.
    fn store(&self, item: usize) -> Store<T> {
        let size = self.ld * self.cols;
        let at = item % (self.items.len() / size) * size;
        self.packed(&self.items[at..at + size])
    }

    /// An item without its padding.
    fn packed(&self, item: &[T]) -> Store<T> {
        let mut store = Store::new(Layout::Packed, self.rows, self.cols, 1, T::default());
        for (to, from) in store.data.chunks_mut(self.rows).zip(item.chunks(self.ld)) {
            to.copy_from_slice(&from[..self.rows]);
        }
        store
    }
}

/// The buffers of a cell.
pub(super) struct Products<'c, T> {
    ctx: &'c Context,
    cell: &'c Cell,
    product: Product,
    a: Operand<T>,
    b: Operand<T>,
    c: Operand<T>,
    out: Buffer<T>,
    copies: Copies,
}

impl<'c, T: Element> Products<'c, T> {
    pub(super) fn new(
        ctx: &'c Context,
        cell: &'c Cell,
        product: Product,
        pad: usize,
        effort: Effort,
    ) -> Result<Self> {
        let Cell { n, batch, .. } = *cell;
        let shape = |trans: Trans, [rows, cols]: [usize; 2]| {
            if trans.transposes() { [cols, rows] } else { [rows, cols] }
        };
        // The adjoint of A takes no memory of its own.
        let (m, a, b) = match product {
            Product::Gemm([ta, tb], m, k) => (m, shape(ta, [m, k]), shape(tb, [k, n])),
            Product::Herk(trans, k) => (n, shape(trans, [n, k]), [1, 1]),
        };
        let bytes = [a, b, [m, n]].map(|[rows, cols]| (rows + pad) * cols * T::DTYPE.bytes());
        let copies = Copies::new(batch, &bytes);
        let all = copies.items(batch, copies.count);
        let operand = |seed, shape| Operand::new(ctx, seed, (effort, [batch, all]), pad, shape);
        let (a, b, c) = (operand(5, a)?, operand(6, b)?, operand(7, [m, n])?);
        let out = Buffer::new(ctx.queue(), c.pristine.len())?;
        Ok(Products { ctx, cell, product, a, b, c, out, copies })
    }
}

impl<T: Element> Subject for Products<'_, T> {
    fn call(&mut self, family: &str, batch: usize, calls: usize) -> Result<(f64, Ran)> {
        let Products { ctx, a, b, c, out, .. } = self;
        out.copy_from(ctx.queue(), &c.pristine)?;
        let (copies, each) = (self.copies, [batch, calls]);
        let (route, all) = (Some(family.to_owned()), copies.items(batch, calls));
        let mut c = out.view_mut(c.rows, c.cols, c.ld, c.ld * c.cols, all)?;
        let (a, b) = (a.view(all)?, b.view(all)?);
        match self.product {
            Product::Herk(trans, _) => {
                let (alpha, beta) = (RealOf::<T>::from_parts(-1.0, 0.0), RealOf::<T>::from_parts(1.0, 0.0));
                let options = HerkOptions { uplo: self.cell.uplo, trans, alpha, beta, route };
                timed(ctx.queue(), copies, each, |items| {
                    ctx.herk(a.items(items.clone())?, c.rb_mut().items(items)?, &options)
                })
            }
            Product::Gemm([trans_a, trans_b], ..) => {
                let (alpha, beta) = (T::from_parts(-1.0, 0.0), T::from_parts(1.0, 0.0));
                let options = GemmOptions { trans_a, trans_b, alpha, beta, route };
                timed(ctx.queue(), copies, each, |items| {
                    let (a, b) = (a.items(items.clone())?, b.items(items.clone())?);
                    ctx.gemm(a, b, c.rb_mut().items(items)?, &options)
                })
            }
        }
    }

    fn copies(&self) -> usize {
        self.copies.count
    }

    /// Worst relative error of the checked elements, in terms of the moduli that went into them.
    fn check(&self) -> Result<(f64, usize)> {
        let Products { cell, product, a, b, c, .. } = self;
        let (m, n) = (c.rows, c.cols);
        let (trans, k) = match *product {
            Product::Gemm(trans, _, k) => (trans, k),
            Product::Herk(trans, k) if trans.transposes() => ([Trans::ConjTrans, Trans::No], k),
            Product::Herk(_, k) => ([Trans::No, Trans::ConjTrans], k),
        };
        let step = (m * n * k).div_ceil(CHECK_WORK);
        let (minus, one) = (T::from_parts(-1.0, 0.0), T::from_parts(1.0, 0.0));
        let triangle = matches!(product, Product::Herk(..));
        let mut worst = 0.0f64;
        for item in spread(CHECKED, cell.batch) {
            let mut out = vec![T::default(); c.ld * n];
            self.out.read(self.ctx.queue(), item * c.ld * n, &mut out)?;
            let out = c.packed(&out);
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
