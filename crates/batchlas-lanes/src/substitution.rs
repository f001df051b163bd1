//! Triangular solve of a group of items at once, one item per lane: for few right-hand sides, where a vector along them
//! would be nearly empty.
//!
//! The triangle `M^T` of `triangular.rs` is packed into row panels like a factor, in the order in which it is run, and
//! right-hand sides in strips of four; then all 24 cases are one forward substitution.
#![allow(unsafe_code)]

use batchlas_core::{Error, MatBatch, MatBatchMut, Result, Scalar, Side};

use crate::cholesky::{Ahead, STRIP, addresses, fill_up, pack, unpack};
use crate::element::{Cx, Element, Re};
use crate::isa::{Dispatch, Isa, Task};
use crate::items::{Items, parts};
use crate::plan::{Panels, Plan};
use crate::scratch;
use crate::sweep::{Divide, forward, start};
use crate::triangular::{Case, Triangle};
use crate::vector::{MAX_LANES, Vector, low_bits};

/// A triangular solve of items of one shape, planned.
#[derive(Debug)]
pub struct Substitution {
    isa: Isa,
    case: Case,
    panels: Panels,
    q: usize,
    ld: (usize, usize),
    parts: usize,
    triangle: Plan,
    full: Plan,
    rest: Plan,
}

impl Substitution {
    /// Plans the solve of order `n` with `q` right-hand sides and the leading dimensions of A and B. O(n^2 + n q).
    pub fn new<T: Scalar>(isa: Isa, case: Case, (n, q): (usize, usize), ld: (usize, usize)) -> Substitution {
        let height = if T::DTYPE.is_complex() || n <= 2 { 2 } else { 4 };
        let (panels, parts) = (Panels { n, height }, parts::<T>());
        let width = isa.vector_bytes() / (T::DTYPE.bytes() / parts);
        let Triangle { first, row, col, backward } = case.triangle(n, ld.0, parts);
        let mut entries: Vec<(usize, usize)> = Vec::with_capacity(n * (n + 1) / 2 * parts);
        for (j, k) in (0..n).flat_map(|j| (0..j + 1).map(move |k| (j, k))) {
            if j != k || !case.is_unit() {
                let offset = first.wrapping_add_signed(k.cast_signed() * row + j.cast_signed() * col);
                entries.extend((0..parts).map(|part| (offset + part, panels.at(j, k) * parts + part)));
            }
        }
        entries.sort_unstable();
        let triangle = Plan::new(width, panels.elements() * parts, entries.into_iter());
        let strip = |cols: usize| {
            let strip = if cols == 1 { 1 } else { STRIP };
            let mut entries: Vec<(usize, usize)> = Vec::with_capacity(n * cols * parts);
            for (j, r) in (0..n).flat_map(|j| (0..cols).map(move |r| (j, r))) {
                let at = if backward { n - 1 - j } else { j };
                let offset = if case.side == Side::Left { r * ld.1 + at } else { at * ld.1 + r };
                entries
                    .extend((0..parts).map(|part| (offset * parts + part, (j * strip + r) * parts + part)));
            }
            entries.sort_unstable();
            Plan::new(width, panels.padded() * strip * parts, entries.into_iter())
        };
        let (full, rest) = (strip(STRIP), strip(q % STRIP));
        Substitution { isa, case, panels, q, ld, parts, triangle, full, rest }
    }

    /// Items that are worked on at once.
    pub fn group<T: Scalar>(&self) -> usize {
        self.isa.vector_bytes() / (T::DTYPE.bytes() / self.parts)
    }

    /// Bytes of scratch: the panels and the slot that nobody reads, the inverted diagonal, a strip and its slot.
    fn scratch_bytes(&self) -> usize {
        let (padded, elements) = (self.panels.padded(), self.panels.elements());
        let vectors = (elements + padded * (STRIP + 1)) * self.parts + 2;
        vectors * self.isa.vector_bytes()
    }

    /// Replaces every item of `b` by the solution of `op(A) X = alpha B` or `X op(A) = alpha B`.
    ///
    /// # Errors
    /// [`Error::Internal`] for operands of another shape than planned, or not in host memory.
    pub fn solve<T: Scalar>(&self, alpha: T, a: MatBatch<'_, T>, mut b: MatBatchMut<'_, T>) -> Result<()> {
        let n = self.panels.n;
        let shape = if self.case.side == Side::Left { (n, self.q) } else { (self.q, n) };
        let fits = (a.rows(), a.cols(), a.batch()) == (n, n, b.batch())
            && (b.rows(), b.cols()) == shape
            && (a.ld(), b.ld(), parts::<T>()) == (self.ld.0, self.ld.1, self.parts);
        if !fits {
            return Err(Error::Internal("a triangular solve was planned for another shape".into()));
        }
        if b.is_empty() {
            return Ok(());
        }
        if T::DTYPE.bytes() / self.parts == 4 {
            self.start::<T, f32>(alpha, &a, &mut b)
        } else {
            self.start::<T, f64>(alpha, &a, &mut b)
        }
    }

    fn start<T: Scalar, R: Dispatch>(
        &self,
        alpha: T,
        a: &MatBatch<'_, T>,
        b: &mut MatBatchMut<'_, T>,
    ) -> Result<()> {
        let [re, im] = [alpha.widen().re, alpha.widen().im].map(|x| <R as Scalar>::from_parts(x, 0.0));
        let alpha = (alpha != T::one()).then_some((re, im));
        let (batch, a, b) = (b.batch(), Items::of(a)?, Items::of_mut(b)?);
        scratch::with(self.scratch_bytes(), |scratch| {
            R::substitution(self.isa, Job { plan: self, alpha, batch, a, b, scratch });
        });
        Ok(())
    }
}

/// One call over a run of items.
pub(crate) struct Job<'j, R> {
    plan: &'j Substitution,
    /// None where it is one.
    alpha: Option<(R, R)>,
    batch: usize,
    a: Items<R>,
    b: Items<R>,
    /// [`Substitution::scratch_bytes`] bytes.
    scratch: *mut u8,
}

impl<R: Dispatch> Task<R> for Job<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Vector<Real = R>>(self) {
        // SAFETY: what the caller promised of `V`; panels have the height of the chosen tile.
        unsafe {
            match (self.plan.parts, self.plan.panels.height) {
                (1, 2) => groups::<Re<V>, 2>(&self),
                (1, _) => groups::<Re<V>, 4>(&self),
                _ => groups::<Cx<V>, 2>(&self),
            }
        }
    }
}

/// Group by group: pack the triangle, invert its diagonal, and solve strip by strip.
#[inline(always)]
unsafe fn groups<E: Element, const P: usize>(job: &Job<'_, <E::V as Vector>::Real>)
where
    <E::V as Vector>::Real: Dispatch,
{
    let plan = job.plan;
    let n = plan.panels.n;
    let (count, padded, elements) = (plan.panels.count(), plan.panels.padded(), plan.panels.elements());
    // In vectors: the panels and the slot that nobody reads, the inverted diagonal, a strip and its spare slot.
    let inverse_at = elements * E::PARTS + 1;
    let strip_at = inverse_at + padded * E::PARTS;
    let bytes = job.scratch;
    let (panels, tiles): (*mut E::V, *mut E) = (bytes.cast(), bytes.cast());
    // SAFETY: as for a factorisation: the scratch holds all parts, items are those of the views, and the plan names
    // nothing outside either.
    unsafe {
        let (inverse, strip) = (panels.add(inverse_at).cast::<E>(), panels.add(strip_at));
        for first in (0..job.batch).step_by(E::V::LANES) {
            let present = E::V::LANES.min(job.batch - first);
            let items = addresses::<_, MAX_LANES>(&job.a, first, present, E::V::LANES);
            pack(items.as_ptr(), &plan.triangle, panels, &mut Ahead::nothing());
            fill_up::<E, P>(tiles, n, count);
            for k in 0..padded {
                let unit = k >= n || plan.case.is_unit();
                let entry = tiles.add(start::<P>(k / P) + k * P + k % P);
                *inverse.add(k) = if unit { E::one() } else { (*entry).reciprocal(plan.case.conjugates()) };
            }
            let mut done = 0;
            while done < plan.q {
                let cols = STRIP.min(plan.q - done);
                let chunks = if cols == STRIP { &plan.full } else { &plan.rest };
                let apart = if plan.case.side == Side::Left { plan.ld.1 } else { 1 };
                let items = addresses::<_, MAX_LANES>(&job.b, first, present, E::V::LANES)
                    .map(|item| item.wrapping_add(done * apart * E::PARTS));
                pack(items.as_ptr(), chunks, strip, &mut Ahead::nothing());
                let y: *mut E = strip.cast();
                if cols == 1 {
                    solve::<E, P, 1>(job, tiles, y, inverse);
                } else {
                    solve::<E, P, STRIP>(job, tiles, y, inverse);
                }
                unpack(items.as_ptr(), low_bits(present), chunks, strip, &mut Ahead::nothing());
                done += cols;
            }
        }
    }
}

/// Division by the diagonal.
#[derive(Clone, Copy)]
struct Inverses<E> {
    inverse: *const E,
    unit: bool,
}

impl<E: Element> Divide<E> for Inverses<E> {
    #[inline(always)]
    unsafe fn divide(self, k: usize, t: E) -> E {
        // SAFETY: there is one for every row.
        unsafe { if self.unit { t } else { t.mul(*self.inverse.add(k)) } }
    }
}

/// One strip.
#[inline(always)]
unsafe fn solve<E: Element, const P: usize, const Q: usize>(
    job: &Job<'_, <E::V as Vector>::Real>,
    tiles: *const E,
    y: *mut E,
    inverse: *const E,
) {
    let Panels { n, .. } = job.plan.panels;
    let count = job.plan.panels.count();
    // SAFETY: the caller's.
    unsafe {
        for k in n * Q..count * P * Q {
            *y.add(k) = E::zero();
        }
        if let Some((re, im)) = job.alpha {
            let alpha = E::splat(re, im);
            for k in 0..n * Q {
                *y.add(k) = (*y.add(k)).mul(alpha);
            }
        }
        let divide = Inverses { inverse, unit: job.plan.case.is_unit() };
        if job.plan.case.conjugates() && E::PARTS == 2 {
            forward::<E, P, Q, true>(tiles, y, count, divide);
        } else {
            forward::<E, P, Q, false>(tiles, y, count, divide);
        }
    }
}
