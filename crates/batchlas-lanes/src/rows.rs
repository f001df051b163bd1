//! Triangular solve item by item, one right-hand side per lane; few of them are `few.rs`'s.
//!
//! The recurrence is that of `triangular.rs`: `M` is read through two strides, which are negative where the triangle is run
//! from its end. Vectors run down the rows of `X`; entries of `M` are broadcast.
//!
//! * **Right** works in place: rows of B are right-hand sides and lie side by side. Complex numbers stay interleaved: the
//!   products with real and imaginary parts of `M` are summed apart and meet once per column.
//! * **Left** takes strips of columns of B, transposed into scratch in registers and back; complex numbers are split into
//!   real and imaginary vectors on the way.
//!
//! A diagonal entry is inverted once an item and multiplied by.
#![allow(unsafe_code)]

use batchlas_core::{Error, MatBatch, MatBatchMut, Real, Result, Scalar, Side};

use crate::few::{self, few};
use crate::isa::{Dispatch, Isa, Task};
use crate::items::{Items, parts};
use crate::lane::{Interleaved, Lane, Planar, RealOf, Single};
use crate::plan::Chunk;
use crate::scratch;
use crate::triangular::{Case, Triangle};
use crate::vector::{MAX_LANES, Vector, low_bits};

/// A triangular solve of items of one case.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Instruction set.
    pub isa: Isa,
    /// The case.
    pub case: Case,
}

impl Rows {
    /// Replaces every item of `b` by the solution of `op(A) X = alpha B` or `X op(A) = alpha B`.
    ///
    /// # Errors
    /// [`Error::Internal`] for operands that do not fit each other or are not in host memory.
    pub fn solve<T: Scalar>(&self, alpha: T, a: MatBatch<'_, T>, mut b: MatBatchMut<'_, T>) -> Result<()> {
        let order = if self.case.side == Side::Left { b.rows() } else { b.cols() };
        if (a.rows(), a.cols(), a.batch()) != (order, order, b.batch()) {
            return Err(Error::Internal("a triangle and right-hand sides of different orders".into()));
        }
        if b.is_empty() {
            return Ok(());
        }
        if T::DTYPE.bytes() / parts::<T>() == 4 {
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
        let (n, q) = match self.case.side {
            Side::Left => (b.rows(), b.cols()),
            Side::Right => (b.cols(), b.rows()),
        };
        let [re, im] = [alpha.widen().re, alpha.widen().im].map(|x| <R as Scalar>::from_parts(x, 0.0));
        let job = Job {
            case: self.case,
            complex: T::DTYPE.is_complex(),
            n,
            q,
            lda: a.ld(),
            ldb: b.ld(),
            alpha: (re, im),
            batch: b.batch(),
            a: Items::of(a)?,
            b: Items::of_mut(b)?,
            scratch: std::ptr::null_mut(),
        };
        // A strip of up to four vectors of one part or two of two, its spare slot, and the reciprocals.
        let bytes = (n + 1) * 4 * self.isa.vector_bytes() + 2 * n * size_of::<R>();
        let bytes = bytes.max(few::scratch_bytes(n, size_of::<R>()));
        scratch::with(bytes, |scratch| R::rows(self.isa, Job { scratch, ..job }));
        Ok(())
    }
}

/// One call over a run of items.
pub(crate) struct Job<R> {
    pub(crate) case: Case,
    complex: bool,
    pub(crate) n: usize,
    pub(crate) q: usize,
    lda: usize,
    pub(crate) ldb: usize,
    alpha: (R, R),
    pub(crate) batch: usize,
    a: Items<R>,
    pub(crate) b: Items<R>,
    /// Of this thread, enough for a strip.
    pub(crate) scratch: *mut u8,
}

impl<R: Dispatch> Task<R> for Job<R> {
    #[inline(always)]
    unsafe fn run<V: Vector<Real = R>>(self) {
        // SAFETY: what the caller promised of `V`.
        unsafe {
            match self.complex {
                false if few::wins::<Single<V>>(&self) => return few::<Single<V>, 4>(&self),
                true if few::wins::<Interleaved<V>>(&self) => return few::<Interleaved<V>, 2>(&self),
                _ => {}
            }
            match (self.case.side, self.complex, V::WIDE) {
                (Side::Right, false, true) => right::<Single<V>, 4, 4>(&self),
                (Side::Right, false, false) => right::<Single<V>, 4, 2>(&self),
                (Side::Right, true, true) => right::<Interleaved<V>, 2, 4>(&self),
                (Side::Right, true, false) => right::<Interleaved<V>, 2, 2>(&self),
                (Side::Left, false, true) => left::<Single<V>, 4, 4>(&self),
                (Side::Left, false, false) => left::<Single<V>, 4, 2>(&self),
                (Side::Left, true, true) => left::<Planar<V>, 4, 2>(&self),
                (Side::Left, true, false) => left::<Planar<V>, 4, 1>(&self),
            }
        }
    }
}

/// The recurrence of one item: `M` and its inverted diagonal.
pub(crate) struct Recurrence<R> {
    pub(crate) n: usize,
    /// Entry (0, 0), and the reals to the next row and column.
    pub(crate) m: *const R,
    pub(crate) row: isize,
    pub(crate) col: isize,
    /// Whether entries are conjugated.
    conj: bool,
    pub(crate) unit: bool,
    /// Reciprocals of the diagonal, two reals each.
    pub(crate) inverse: *mut R,
    /// None where it is one.
    pub(crate) alpha: Option<(R, R)>,
    /// Whether columns of the right-hand sides are run from the last.
    pub(crate) backward: bool,
}

impl<R: Dispatch> Recurrence<R> {
    /// Of item `item`, with the conjugated triangle if `conj`; `inverse` has room for `2 n` reals, which are written.
    #[inline(always)]
    pub(crate) unsafe fn new(job: &Job<R>, item: usize, inverse: *mut R, conj: bool) -> Self {
        let parts = 1 + usize::from(job.complex);
        let (n, Triangle { first, row, col, backward }) = (job.n, job.case.triangle(job.n, job.lda, parts));
        let m = job.a.at(item).cast_const().wrapping_add(first);
        let unit = job.case.is_unit();
        let alpha = (job.alpha != (R::one(), R::zero())).then_some(job.alpha);
        let new = Recurrence { n, m, row, col, conj, unit, inverse, alpha, backward };
        if !unit {
            for j in 0..n {
                // SAFETY: the diagonal of a view's item; room for the reciprocals is the caller's promise.
                unsafe {
                    let entry = m.wrapping_offset(j.cast_signed() * (row + col));
                    let im = if job.complex { *entry.wrapping_add(1) } else { R::zero() };
                    let (re, im) = reciprocal(*entry, if conj { -im } else { im });
                    *inverse.add(2 * j) = re;
                    *inverse.add(2 * j + 1) = im;
                }
            }
        }
        new
    }
}

/// `1 / (re + im i)`, without overflow where the result has none.
#[inline(always)]
fn reciprocal<R: Real>(re: R, im: R) -> (R, R) {
    if im == R::zero() {
        return (R::one() / re, R::zero());
    }
    let largest = re.abs().max(im.abs());
    let (x, y) = (re / largest, im / largest);
    let square = (x * x + y * y) * largest;
    (x / square, -y / square)
}

/// Solves for `RV` vectors of right-hand sides: column `j` of them at `x + j * step`. `mask`: of the last vector.
#[inline(always)]
unsafe fn strip<W: Lane, const CG: usize, const RV: usize>(
    r: &Recurrence<RealOf<W>>,
    x: *mut RealOf<W>,
    step: isize,
    mask: u32,
) {
    let (x, step) =
        if r.backward { (x.wrapping_offset(step * (r.n.cast_signed() - 1)), -step) } else { (x, step) };
    let mut c = 0;
    // SAFETY: columns of the item or the scratch, under the mask.
    unsafe {
        while c + CG <= r.n {
            tile::<W, CG, RV>(r, x, step, c, mask);
            c += CG;
        }
        while c < r.n {
            tile::<W, 1, RV>(r, x, step, c, mask);
            c += 1;
        }
    }
}

/// Columns `c0 .. c0 + CG`.
#[inline(always)]
unsafe fn tile<W: Lane, const CG: usize, const RV: usize>(
    r: &Recurrence<RealOf<W>>,
    x: *mut RealOf<W>,
    step: isize,
    c0: usize,
    mask: u32,
) {
    let full = low_bits(<W::V as Vector>::LANES);
    let masks: [u32; RV] = std::array::from_fn(|v| if v + 1 < RV { full } else { mask });
    let column = |c: usize| x.wrapping_offset(c.cast_signed() * step);
    // SAFETY: the vectors' obligations and the addresses are the caller's.
    unsafe {
        // Plain loops: the closures of `from_fn` would be compiled without the vectors' instructions.
        let zero = <W::V as Vector>::splat(num_traits::Zero::zero());
        let mut t = [[W::empty(zero).start(); RV]; CG];
        for c in 0..CG {
            for v in 0..RV {
                let mut b = W::load(column(c0 + c).wrapping_add(v * W::REALS), masks[v]);
                if let Some((re, im)) = r.alpha {
                    b = b.times((<W::V as Vector>::splat(re), <W::V as Vector>::splat(im)));
                }
                t[c][v] = b.start();
            }
        }
        for k in 0..c0 {
            let solved = column(k);
            let mut x = [W::empty(zero); RV];
            for v in 0..RV {
                x[v] = W::load(solved.wrapping_add(v * W::REALS), masks[v]);
            }
            for c in 0..CG {
                let entry = entry::<W>(r, k, c0 + c);
                for v in 0..RV {
                    t[c][v] = x[v].subtract(t[c][v], entry);
                }
            }
        }
        for c in 0..CG {
            let inverse = r.inverse.add(2 * (c0 + c));
            let mut x = [W::empty(zero); RV];
            for v in 0..RV {
                x[v] = W::finish(t[c][v]);
                if !r.unit {
                    let factor =
                        (<W::V as Vector>::splat(*inverse), <W::V as Vector>::splat(*inverse.add(1)));
                    x[v] = x[v].times(factor);
                }
                x[v].store(column(c0 + c).wrapping_add(v * W::REALS), masks[v]);
            }
            for c2 in c + 1..CG {
                let entry = entry::<W>(r, c0 + c, c0 + c2);
                for v in 0..RV {
                    t[c2][v] = x[v].subtract(t[c2][v], entry);
                }
            }
        }
    }
}

/// Entry `(k, c)` of `M`, in every lane.
#[inline(always)]
unsafe fn entry<W: Lane>(r: &Recurrence<RealOf<W>>, k: usize, c: usize) -> (W::V, W::V) {
    let p = r.m.wrapping_offset(k.cast_signed() * r.row + c.cast_signed() * r.col);
    // SAFETY: an entry of the triangle of a view's item.
    unsafe {
        let re = <W::V as Vector>::splat(*p);
        if !W::COMPLEX {
            return (re, re);
        }
        let im = *p.wrapping_add(1);
        (re, <W::V as Vector>::splat(if r.conj { -im } else { im }))
    }
}

/// Right: rows of B in place, up to `RV` vectors at once.
#[inline(always)]
unsafe fn right<W: Lane, const CG: usize, const RV: usize>(job: &Job<RealOf<W>>)
where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    let (reals, step) = (job.q * parts, (job.ldb * parts).cast_signed());
    let width = <W::V as Vector>::LANES;
    for item in 0..job.batch {
        // SAFETY: rows of the items, under the mask; the scratch holds the reciprocals.
        unsafe {
            let r = Recurrence::new(job, item, job.scratch.cast(), job.case.conjugates());
            let mut done = 0;
            while done < reals {
                let (x, left) = (job.b.at(item).wrapping_add(done), reals - done);
                let vectors = left.div_ceil(width);
                let taken = if RV >= 4 && vectors >= 4 { 4 } else { vectors.min(2) };
                let mask = low_bits((left - (taken - 1) * width).min(width));
                match taken {
                    4 if RV >= 4 => strip::<W, CG, 4>(&r, x, step, mask),
                    2 => strip::<W, CG, 2>(&r, x, step, mask),
                    _ => strip::<W, CG, 1>(&r, x, step, mask),
                }
                done += taken * width;
            }
        }
    }
}

/// Left: strips of columns of B, transposed into scratch and back.
#[inline(always)]
unsafe fn left<W: Lane, const CG: usize, const RV: usize>(job: &Job<RealOf<W>>)
where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    let width = <W::V as Vector>::LANES;
    // The strip, the slot that nobody reads, the reciprocals.
    let strip_vectors = (job.n + 1) * RV * parts;
    let bytes = job.scratch;
    let strip_at: *mut W::V = bytes.cast();
    for item in 0..job.batch {
        // SAFETY: columns of the items, under masks; the scratch holds strip and reciprocals.
        unsafe {
            let r = Recurrence::new(job, item, strip_at.add(strip_vectors).cast(), job.case.conjugates());
            let mut done = 0;
            while done < job.q {
                let vectors = (job.q - done).div_ceil(width);
                let taken = if RV >= 4 && vectors >= 4 { 4 } else { vectors.min(RV.min(2)) };
                move_strip::<W>(job, item, done, taken, strip_at, true);
                let (x, step) = (bytes.cast(), (taken * parts * width).cast_signed());
                let all = low_bits(width);
                match taken {
                    4 if RV >= 4 => strip::<W, CG, 4>(&r, x, step, all),
                    2 if RV >= 2 => strip::<W, CG, 2>(&r, x, step, all),
                    _ => strip::<W, CG, 1>(&r, x, step, all),
                }
                move_strip::<W>(job, item, done, taken, strip_at, false);
                done += taken * width;
            }
        }
    }
}

/// Moves `taken` vectors of columns of B, from column `done` on, to the strip or back.
#[inline(always)]
unsafe fn move_strip<W: Lane>(
    job: &Job<RealOf<W>>,
    item: usize,
    done: usize,
    taken: usize,
    strip: *mut W::V,
    inward: bool,
) {
    let (parts, width) = (if W::COMPLEX { 2 } else { 1 }, <W::V as Vector>::LANES);
    for v in 0..taken {
        let first = done + v * width;
        let present = width.min(job.q - first);
        let mut columns = [std::ptr::null_mut(); MAX_LANES];
        for l in 0..width {
            let column = first + l.min(present - 1);
            columns[l] = job.b.at(item).wrapping_add(column * job.ldb * parts);
        }
        // SAFETY: columns of the item; slots of the strip.
        unsafe {
            let slots = strip.add(v * parts);
            transpose::<W::V>(&columns, low_bits(present), job.n, parts, taken, slots, inward);
        }
    }
}

/// Moves the `n * parts` reals of some columns to slots or back: real `part` of row `i` to slot
/// `i * taken * parts + part`.
#[inline(always)]
unsafe fn transpose<V: Vector>(
    columns: &[*mut V::Real; MAX_LANES],
    lanes: u32,
    n: usize,
    parts: usize,
    taken: usize,
    slots: *mut V,
    inward: bool,
) {
    let spare = (n * taken * parts) as u32;
    for offset in (0..n * parts).step_by(V::LANES) {
        let present = V::LANES.min(n * parts - offset);
        let slot = |v: usize| {
            let real = offset + v;
            ((real / parts) * taken * parts + real % parts) as u32
        };
        let chunk = Chunk {
            offset,
            mask: low_bits(present),
            slots: std::array::from_fn(|v| if v < present { slot(v) } else { spare }),
        };
        // SAFETY: the caller's.
        unsafe {
            if inward {
                V::pack(columns.as_ptr(), &chunk, slots);
            } else {
                V::unpack(columns.as_ptr(), lanes, &chunk, slots);
            }
        }
    }
}
