//! Factorisation and solve of a group of items at once, one item per lane.
//!
//! A group is packed into row panels (`plan.rs`), factored left-looking panel by panel (diagonal tile, then the rows below
//! it, each tile with its whole sum in registers), and stored back. Right-hand sides are packed in strips of four columns
//! and swept over the same panels. A lane whose pivot is not positive and finite records the pivot's order, gets one in
//! its place and stays in its lane. Entries of a triangle are multiplied by reciprocals of its diagonal.
//!
//! Every element is the same sequence of operations whatever the width of the vectors, so results do not depend on the
//! place of an item in the batch, nor on which of the fused instruction sets runs.
#![allow(unsafe_code)]

use batchlas_core::{Error, InfoMut, MatBatchMut, Result, Scalar, Uplo};

use crate::element::{Cx, Element, Re};
use crate::isa::{Dispatch, Isa, Task};
use crate::items::{Items, parts};
use crate::plan::{Panels, Plan};
use crate::scratch;
use crate::sweep::{Divide, backward, forward, start};
use crate::vector::{MAX_LANES, Vector, low_bits};

/// Columns of a full strip of right-hand sides.
pub(crate) const STRIP: usize = 4;

/// Largest distance in bytes that is fetched ahead: a group has to stay in the second-level cache beside its successor.
const AHEAD_BYTES: usize = 384 << 10;

/// Smallest order whose next group is fetched ahead; the hardware keeps up with smaller items.
const AHEAD_FROM: usize = 8;

/// Whether a solve also stores the factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The factor replaces A.
    Factor,
    /// A is only read: 10 to 30% faster.
    Solution,
}

/// A factorisation of items of one shape, planned.
#[derive(Debug)]
pub struct Cholesky {
    isa: Isa,
    uplo: Uplo,
    panels: Panels,
    ld: usize,
    parts: usize,
    triangle: Plan,
    rhs: Option<Rhs>,
    /// Narrower vectors for a last group that would leave most lanes empty: a group costs the same however few its items.
    tail: Option<Box<Cholesky>>,
}

/// Right-hand sides, planned.
#[derive(Debug)]
struct Rhs {
    ld: usize,
    nrhs: usize,
    keep: Keep,
    full: Plan,
    rest: Plan,
}

impl Cholesky {
    /// Plans the factorisation of `batch` items of order `n` and leading dimension `ld` in the triangle `uplo`.
    /// O(n^2).
    pub fn new<T: Scalar>(isa: Isa, uplo: Uplo, (n, ld): (usize, usize), batch: usize) -> Cholesky {
        // A panel of 4 rows would be half empty; complex tiles have two vectors per element.
        let height = if T::DTYPE.is_complex() || n <= 2 { 2 } else { 4 };
        let (panels, parts) = (Panels { n, height }, parts::<T>());
        let triangle = panels.triangle(Self::width::<T>(isa), parts, uplo, ld);
        let whole = Cholesky { isa, uplo, panels, ld, parts, triangle, rhs: None, tail: None };
        let narrower = isa.narrower(batch % whole.group::<T>() * (T::DTYPE.bytes() / parts));
        let tail = narrower.map(|isa| Box::new(Self::new::<T>(isa, uplo, (n, ld), 0)));
        Cholesky { tail, ..whole }
    }

    /// The same with `nrhs` right-hand sides of leading dimension `ld` that are solved for.
    #[must_use]
    pub fn with_rhs<T: Scalar>(self, nrhs: usize, ld: usize, keep: Keep) -> Cholesky {
        let plan = |cols: usize| {
            let strip = if cols == 1 { 1 } else { STRIP };
            self.panels.strip(Self::width::<T>(self.isa), self.parts, ld, cols, strip)
        };
        let (full, rest) = (plan(STRIP), plan(nrhs % STRIP));
        let rhs = Some(Rhs { ld, nrhs, keep, full, rest });
        let tail = self.tail.map(|tail| Box::new(tail.with_rhs::<T>(nrhs, ld, keep)));
        Cholesky { rhs, tail, ..self }
    }

    fn width<T: Scalar>(isa: Isa) -> usize {
        isa.vector_bytes() / (T::DTYPE.bytes() / parts::<T>())
    }

    /// Items that are worked on at once: a batch is best cut at multiples of it.
    pub fn group<T: Scalar>(&self) -> usize {
        Self::width::<T>(self.isa)
    }

    /// Bytes of scratch: the panels and the slot that nobody reads, reciprocals of the diagonal, a strip and its slot.
    fn scratch_bytes(&self) -> usize {
        let (padded, elements) = (self.panels.padded(), self.panels.elements());
        let vectors = (elements + padded * STRIP) * self.parts + padded + 2;
        vectors * self.isa.vector_bytes()
    }

    /// Factors every item of `a` in place; `info` per item.
    ///
    /// # Errors
    /// The views are not in host memory.
    pub fn factor<T: Scalar>(&self, mut a: MatBatchMut<'_, T>, info: InfoMut<'_>) -> Result<()> {
        self.call::<T>(&mut a, None, info)
    }

    /// Factors every item of `a` and solves for the right-hand sides `b`, those of a failed item excepted.
    ///
    /// # Errors
    /// The views are not in host memory.
    pub fn solve<T: Scalar>(
        &self,
        mut a: MatBatchMut<'_, T>,
        mut b: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
    ) -> Result<()> {
        self.call::<T>(&mut a, Some(&mut b), info)
    }

    fn call<T: Scalar>(
        &self,
        a: &mut MatBatchMut<'_, T>,
        b: Option<&mut MatBatchMut<'_, T>>,
        info: InfoMut<'_>,
    ) -> Result<()> {
        // The plan's offsets are those of one shape: with another it would address what is outside the views.
        let planned = |order, ld| (self.panels.n, order, ld, self.parts);
        let fits = (a.rows(), a.cols(), a.ld(), parts::<T>()) == planned(self.panels.n, self.ld)
            && match (&b, &self.rhs) {
                (None, None) => true,
                (Some(b), Some(rhs)) => {
                    (b.rows(), b.cols(), b.ld(), parts::<T>()) == planned(rhs.nrhs, rhs.ld)
                        && b.batch() == a.batch()
                }
                _ => false,
            };
        if !fits {
            return Err(Error::Internal("a factorisation was planned for another shape".into()));
        }
        if a.is_empty() {
            return Ok(());
        }
        if T::DTYPE.bytes() / self.parts == 4 {
            self.start::<T, f32>(a, b, info)
        } else {
            self.start::<T, f64>(a, b, info)
        }
    }

    fn start<T: Scalar, R: Dispatch>(
        &self,
        a: &mut MatBatchMut<'_, T>,
        b: Option<&mut MatBatchMut<'_, T>>,
        mut info: InfoMut<'_>,
    ) -> Result<()> {
        let batch = a.batch();
        let b = match b {
            Some(b) if b.cols() > 0 => Some(Items::of_mut(b)?),
            _ => None,
        };
        let a = Items::<R>::of_mut(a)?;
        let last = self.tail.as_deref().map(|tail| (tail, batch - batch % self.group::<T>()));
        let end = last.map_or(batch, |(_, end)| end);
        let mut run = |plan: &Cholesky, first, end| {
            let info = info.rb_mut();
            scratch::with(plan.scratch_bytes(), |scratch| {
                R::cholesky(plan.isa, Job { plan, first, end, a: &a, b: b.as_ref(), info, scratch });
            });
        };
        run(self, 0, end);
        if let Some((tail, end)) = last {
            run(tail, end, batch);
        }
        Ok(())
    }
}

/// One call over a run of items.
pub(crate) struct Job<'j, R> {
    plan: &'j Cholesky,
    first: usize,
    end: usize,
    a: &'j Items<R>,
    b: Option<&'j Items<R>>,
    info: InfoMut<'j>,
    /// [`Cholesky::scratch_bytes`] bytes.
    scratch: *mut u8,
}

impl<R: Dispatch> Task<R> for Job<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Vector<Real = R>>(self) {
        // SAFETY: what the caller promised of `V`; the plan is one of these items (checked in `call`), and its panel
        // height is that of the chosen tile.
        unsafe {
            match (self.plan.parts, self.plan.panels.height) {
                (1, 2) => groups::<Re<V>, 2, 1, 2>(self),
                (1, _) if V::WIDE => groups::<Re<V>, 4, 1, 4>(self),
                (1, _) => groups::<Re<V>, 4, 1, 2>(self),
                _ if V::WIDE => groups::<Cx<V>, 2, 2, 2>(self),
                _ => groups::<Cx<V>, 2, 1, 2>(self),
            }
        }
    }
}

/// The lanes that failed, and where.
struct Status {
    first: [i32; MAX_LANES],
    failed: u32,
}

/// Fetches the next group's bytes in address order, some lines at every step of the current one: the hardware does not
/// follow as many streams as a group has items.
pub(crate) struct Ahead {
    next: *const u8,
    lines: usize,
}

impl Ahead {
    pub(crate) const fn nothing() -> Ahead {
        Ahead { next: std::ptr::null(), lines: 0 }
    }

    #[inline(always)]
    fn step(&mut self) {
        for _ in 0..self.lines {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch touches no memory, whatever its address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T1>(self.next.cast());
            }
            self.next = self.next.wrapping_add(64);
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn pack<V: Vector>(
    items: *const *mut V::Real,
    plan: &Plan,
    scratch: *mut V,
    ahead: &mut Ahead,
) {
    for chunk in &plan.chunks {
        ahead.step();
        // SAFETY: the plan names reals of the items and slots of the scratch.
        unsafe { V::pack(items, chunk, scratch) };
    }
}

#[inline(always)]
pub(crate) unsafe fn unpack<V: Vector>(
    items: *const *mut V::Real,
    lanes: u32,
    plan: &Plan,
    scratch: *const V,
    ahead: &mut Ahead,
) {
    for chunk in &plan.chunks {
        ahead.step();
        // SAFETY: the plan names reals of the items and slots of the scratch.
        unsafe { V::unpack(items, lanes, chunk, scratch) };
    }
}

/// Group by group: pack, factor, store, and the right-hand sides likewise.
///
/// `P`: rows of a panel. `RP`: panels of a tile. `CG`: columns of a tile.
#[inline(always)]
unsafe fn groups<E: Element, const P: usize, const RP: usize, const CG: usize>(
    mut job: Job<'_, <E::V as Vector>::Real>,
) where
    <E::V as Vector>::Real: Dispatch,
{
    let plan = job.plan;
    let Panels { n, .. } = plan.panels;
    let (count, padded, elements) = (plan.panels.count(), plan.panels.padded(), plan.panels.elements());
    // In vectors: the panels and the slot that nobody reads, reciprocals of the diagonal, a strip and its spare slot.
    let inverse_at = elements * E::PARTS + 1;
    let strip_at = inverse_at + padded;
    let steps = 2 * plan.triangle.chunks.len() + count * (count / RP + 1) / 2;
    let bytes = job.scratch;
    let panels: *mut E::V = bytes.cast();
    let tiles: *mut E = bytes.cast();
    // SAFETY: the scratch holds all parts; vectors are aligned because its start is and their size is a multiple of
    // their alignment. Items are those of the views. The vectors' obligations are the caller's.
    unsafe {
        let (inverse, strip) = (panels.add(inverse_at), panels.add(strip_at));
        for first in (job.first..job.end).step_by(E::V::LANES) {
            let present = E::V::LANES.min(job.end - first);
            let lanes = low_bits(present);
            let items = addresses::<_, MAX_LANES>(job.a, first, present, E::V::LANES);
            let mut ahead = ahead(&job, first + E::V::LANES, steps);
            pack(items.as_ptr(), &plan.triangle, panels, &mut ahead);
            fill_up::<E, P>(tiles, n, count);
            let mut status = Status { first: [0; MAX_LANES], failed: 0 };
            factor::<E, P, RP, CG>(tiles, count, inverse, &mut status, &mut ahead);
            if plan.rhs.as_ref().is_none_or(|rhs| rhs.keep == Keep::Factor) {
                unpack(items.as_ptr(), lanes, &plan.triangle, panels, &mut ahead);
            }
            if let (Some(rhs), Some(b)) = (&plan.rhs, job.b) {
                let (mut column, wanted) = (0, lanes & !status.failed);
                while column < rhs.nrhs {
                    let cols = STRIP.min(rhs.nrhs - column);
                    let chunks = if cols == STRIP { &rhs.full } else { &rhs.rest };
                    let items = addresses::<_, MAX_LANES>(b, first, present, E::V::LANES)
                        .map(|item| item.wrapping_add(column * rhs.ld * E::PARTS));
                    pack(items.as_ptr(), chunks, strip, &mut Ahead::nothing());
                    let (y, upper) = (strip.cast::<E>(), plan.uplo == Uplo::Upper);
                    if cols == 1 {
                        sweeps::<E, P, 1>(tiles, y, n, count, inverse, upper);
                    } else {
                        sweeps::<E, P, STRIP>(tiles, y, n, count, inverse, upper);
                    }
                    unpack(items.as_ptr(), wanted, chunks, strip, &mut Ahead::nothing());
                    column += cols;
                }
            }
            job.info.put(first, &status.first[..present]);
        }
    }
}

/// Addresses of a group; lanes without an item of their own read that of the last.
#[inline(always)]
pub(crate) fn addresses<R, const N: usize>(
    items: &Items<R>,
    first: usize,
    present: usize,
    lanes: usize,
) -> [*mut R; N] {
    let mut out = [std::ptr::null_mut(); N];
    for l in 0..lanes {
        out[l] = items.at(first + l.min(present - 1));
    }
    out
}

/// The cursor over the group that starts at item `next`.
#[inline(always)]
fn ahead<R>(job: &Job<'_, R>, next: usize, steps: usize) -> Ahead {
    let Some(stride) = job.a.stride().filter(|_| next < job.end && job.plan.panels.n >= AHEAD_FROM) else {
        return Ahead::nothing();
    };
    let items = (job.end - next).min(MAX_LANES);
    let bytes = stride * size_of::<R>() * items;
    if bytes > AHEAD_BYTES {
        return Ahead::nothing();
    }
    Ahead { next: job.a.at(next).cast_const().cast(), lines: (bytes / 64).div_ceil(steps.max(1)) }
}

/// Rows of the last panel beyond the order: those of the identity.
#[inline(always)]
pub(crate) unsafe fn fill_up<E: Element, const P: usize>(tiles: *mut E, n: usize, count: usize) {
    let last = count - 1;
    // SAFETY: elements of the last panel.
    unsafe {
        let panel = tiles.add(start::<P>(last));
        for r in n - last * P..P {
            for c in 0..count * P {
                *panel.add(c * P + r) = if c == last * P + r { E::one() } else { E::zero() };
            }
        }
    }
}

/// Factors the packed triangle of every lane. `inverse`: reciprocals of the diagonal, for the solves.
#[inline(always)]
unsafe fn factor<E: Element, const P: usize, const RP: usize, const CG: usize>(
    tiles: *mut E,
    count: usize,
    inverse: *mut E::V,
    status: &mut Status,
    ahead: &mut Ahead,
) {
    let all = low_bits(E::V::LANES);
    // SAFETY: every element named is one of the first `count` panels.
    unsafe {
        let one = E::one().real();
        for j in 0..count {
            ahead.step();
            let panel = tiles.add(start::<P>(j));
            let corner = panel.add(j * P * P);
            // Columns of the diagonal tile, rows from the diagonal on.
            let mut t = [[E::zero(); P]; P];
            for c in 0..P {
                for r in c..P {
                    t[c][r] = *corner.add(c * P + r);
                }
            }
            for k in 0..j * P {
                let column = panel.add(k * P);
                let mut a = [E::zero(); P];
                for r in 0..P {
                    a[r] = *column.add(r);
                }
                for c in 0..P {
                    for r in c..P {
                        t[c][r] = t[c][r].sub_mul_conj(a[r], a[c]);
                    }
                }
            }
            let mut reciprocal = [one; P];
            for c in 0..P {
                let mut pivot = t[c][c].real();
                let good = pivot.positive_finite();
                if good != all {
                    let new = all & !good & !status.failed;
                    for l in (0..E::V::LANES).filter(|l| new >> l & 1 == 1) {
                        status.first[l] = (j * P + c + 1) as i32;
                    }
                    status.failed |= new;
                    pivot = pivot.or_one(good);
                }
                let root = pivot.sqrt();
                reciprocal[c] = one.div(root);
                t[c][c] = E::from_real(root);
                if good != all {
                    // The place of the failure is told by the factor too: its diagonal is zero there.
                    t[c][c] = E::from_real(E::zero().real().or_one(good).fnma(one, root));
                }
                for r in c + 1..P {
                    t[c][r] = t[c][r].scale(reciprocal[c]);
                }
                for c2 in c + 1..P {
                    for r in c2..P {
                        t[c2][r] = t[c2][r].sub_mul_conj(t[c][r], t[c][c2]);
                    }
                }
            }
            for c in 0..P {
                *inverse.add(j * P + c) = reciprocal[c];
                for r in c..P {
                    *corner.add(c * P + r) = t[c][r];
                }
            }
            let mut i = j + 1;
            while i + RP <= count {
                ahead.step();
                below::<E, P, RP, CG>(tiles, j, i, inverse);
                i += RP;
            }
            while RP > 1 && i < count {
                ahead.step();
                below::<E, P, 1, CG>(tiles, j, i, inverse);
                i += 1;
            }
        }
    }
}

/// The tiles of panels `i .. i + RP` against the diagonal tile of panel `j`.
#[inline(always)]
unsafe fn below<E: Element, const P: usize, const RP: usize, const CG: usize>(
    tiles: *mut E,
    j: usize,
    i: usize,
    inverse: *const E::V,
) {
    // SAFETY: every element named is one of the panels `j` and `i .. i + RP`.
    unsafe {
        let above = tiles.add(start::<P>(j)).cast_const();
        let rows: [*mut E; RP] = std::array::from_fn(|x| tiles.add(start::<P>(i + x)));
        for g in (0..P).step_by(CG) {
            let first = j * P + g;
            let mut t = [[[E::zero(); P]; CG]; RP];
            for x in 0..RP {
                for c in 0..CG {
                    for r in 0..P {
                        t[x][c][r] = *rows[x].add((first + c) * P + r);
                    }
                }
            }
            for k in 0..first {
                let b = above.add(k * P + g);
                for x in 0..RP {
                    let column = rows[x].add(k * P);
                    let mut a = [E::zero(); P];
                    for r in 0..P {
                        a[r] = *column.add(r);
                    }
                    for c in 0..CG {
                        let b = *b.add(c);
                        for r in 0..P {
                            t[x][c][r] = t[x][c][r].sub_mul_conj(a[r], b);
                        }
                    }
                }
            }
            for c in 0..CG {
                let reciprocal = *inverse.add(first + c);
                for m in 0..c {
                    let l = *above.add((first + m) * P + g + c);
                    for x in 0..RP {
                        for r in 0..P {
                            t[x][c][r] = t[x][c][r].sub_mul_conj(t[x][m][r], l);
                        }
                    }
                }
                for x in 0..RP {
                    for r in 0..P {
                        t[x][c][r] = t[x][c][r].scale(reciprocal);
                        *rows[x].add((first + c) * P + r) = t[x][c][r];
                    }
                }
            }
        }
    }
}

/// Division by the diagonal of a factor.
#[derive(Clone, Copy)]
struct Reciprocals<V>(*const V);

impl<E: Element> Divide<E> for Reciprocals<E::V> {
    #[inline(always)]
    unsafe fn divide(self, k: usize, t: E) -> E {
        // SAFETY: there is one for every row.
        unsafe { t.scale(*self.0.add(k)) }
    }
}

/// `L Y = B`, then `L^H X = Y`, for `Q` right-hand sides, number `r` of row `k` at `k * Q + r`. `upper`: the panels hold
/// the transpose of an upper factor, `U^T`, so that it is its conjugate that goes first.
#[inline(always)]
unsafe fn sweeps<E: Element, const P: usize, const Q: usize>(
    tiles: *const E,
    y: *mut E,
    n: usize,
    count: usize,
    inverse: *const E::V,
    upper: bool,
) {
    // SAFETY: every element named is one of the first `count` panels, or of their rows of the strip.
    unsafe {
        for k in n * Q..count * P * Q {
            *y.add(k) = E::zero();
        }
        let divide = Reciprocals(inverse);
        // Conjugation is nothing to a real type: one instance of its code is enough.
        if upper && E::PARTS == 2 {
            forward::<E, P, Q, true>(tiles, y, count, divide);
            backward::<E, P, Q, false>(tiles, y, count, divide);
        } else {
            forward::<E, P, Q, false>(tiles, y, count, divide);
            backward::<E, P, Q, true>(tiles, y, count, divide);
        }
    }
}
