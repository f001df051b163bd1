//! Triangular solve of few right-hand sides, item by item: vectors run along the triangle, whichever way it is contiguous.
//!
//! The recurrence is that of `triangular.rs`, a block of steps at a time. Where rows of `M` lie in memory, a solved block is
//! taken from all later entries of `X` at once (*push*); where columns do, a block first gathers its scalar products with all
//! earlier entries (*pull*). Either way the triangle is read once for up to four right-hand sides. They are copied to
//! scratch in the order of memory, so that vectors of a triangle that is run from its end need no reversal, and are
//! conjugated there where the triangle would be: `conj(M)` and `X` give what `M` and `conj(X)` do.
#![allow(unsafe_code)]

use batchlas_core::Side;

use crate::isa::Dispatch;
use crate::lane::{Along, RealOf};
use crate::rows::{Job, Recurrence};
use crate::vector::{Vector, low_bits};

/// Right-hand sides that share a pass over the triangle.
const STRIP: usize = 4;

/// Whether so few right-hand sides are better served by vectors along the triangle (measured on a Zen 4, where one
/// right-hand side wins from the order at which its fixed cost is paid back, and more only where the vectors of `rows` are
/// at least half empty).
#[inline(always)]
pub(crate) fn wins<W: Along>(job: &Job<RealOf<W>>) -> bool
where
    RealOf<W>: Dispatch,
{
    // On the left a vector is of right-hand sides, of either part; on the right of reals.
    let planar = W::COMPLEX && job.case.side == Side::Left;
    let reals = if W::COMPLEX && !planar { 2 * job.q } else { job.q };
    let from = match job.q {
        1 => 32,
        _ if planar => 64,
        _ => 128,
    };
    2 * reals <= W::V::LANES && job.n >= from
}

/// Bytes of scratch for order `n` with reals of `real` bytes: reciprocals, and right-hand sides of at most two parts.
pub(crate) const fn scratch_bytes(n: usize, real: usize) -> usize {
    (2 * n + STRIP * 2 * n) * real
}

/// Solves item by item, `S` steps at a time.
#[inline(always)]
pub(crate) unsafe fn few<W: Along, const S: usize>(job: &Job<RealOf<W>>)
where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    for item in 0..job.batch {
        // SAFETY: entries of the items; the scratch holds reciprocals and a strip.
        unsafe {
            let inverse: *mut RealOf<W> = job.scratch.cast();
            let r = Recurrence::new(job, item, inverse, false);
            let x = inverse.add(2 * job.n);
            let mut done = 0;
            while done < job.q {
                let taken = (job.q - done).min(STRIP);
                copy::<W>(job, item, done, taken, x, true);
                if taken == 1 {
                    strip::<W, S, 1>(&r, job.case.conjugates(), x);
                } else {
                    for spare in taken * job.n * parts..STRIP * job.n * parts {
                        *x.add(spare) = num_traits::Zero::zero();
                    }
                    strip::<W, S, STRIP>(&r, job.case.conjugates(), x);
                }
                copy::<W>(job, item, done, taken, x, false);
                done += taken;
            }
        }
    }
}

/// Copies right-hand sides `done .. done + taken` to scratch, or back.
#[inline(always)]
unsafe fn copy<W: Along>(
    job: &Job<RealOf<W>>,
    item: usize,
    done: usize,
    taken: usize,
    x: *mut RealOf<W>,
    inward: bool,
) where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    let (entry, side) = if job.case.side == Side::Left { (1, job.ldb) } else { (job.ldb, 1) };
    let conj = job.case.conjugates();
    for r in 0..taken {
        let b = job.b.at(item).wrapping_add((done + r) * side * parts);
        for i in 0..job.n {
            // SAFETY: entries of the item and of the strip.
            unsafe {
                let (b, x) = (b.wrapping_add(i * entry * parts), x.add((r * job.n + i) * parts));
                let (from, to) = if inward { (b, x) } else { (x, b) };
                *to = *from;
                if W::COMPLEX {
                    *to.add(1) = if conj { -*from.add(1) } else { *from.add(1) };
                }
            }
        }
    }
}

/// Solves for `Q` right-hand sides, each `n` elements after the other.
#[inline(always)]
unsafe fn strip<W: Along, const S: usize, const Q: usize>(
    r: &Recurrence<RealOf<W>>,
    conj: bool,
    x: *mut RealOf<W>,
) where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    let alpha = r.alpha.map(|(re, im)| (re, if conj { -im } else { im }));
    // SAFETY: the caller's.
    unsafe {
        if let Some(alpha) = alpha {
            for i in 0..Q * r.n {
                let at = x.add(i * parts);
                put::<W>(at, times::<W>(get::<W>(at), alpha));
            }
        }
        let mut done = 0;
        while done + S <= r.n {
            block::<W, S, Q>(r, x, done);
            done += S;
        }
        while done < r.n {
            block::<W, 1, Q>(r, x, done);
            done += 1;
        }
    }
}

/// Steps `first .. first + S`.
#[inline(always)]
unsafe fn block<W: Along, const S: usize, const Q: usize>(
    r: &Recurrence<RealOf<W>>,
    x: *mut RealOf<W>,
    first: usize,
) where
    RealOf<W>: Dispatch,
{
    let parts = if W::COMPLEX { 2 } else { 1 };
    let (n, lanes) = (r.n, W::V::LANES);
    let at = |step: usize| if r.backward { n - 1 - step } else { step };
    let pushes = r.col.unsigned_abs() == parts;
    // The contiguous line of `M` of a step, from the element that lies first in memory.
    let line = |step: usize| {
        let apart = if pushes { r.row } else { r.col };
        let back = if r.backward { (n - 1) * parts } else { 0 };
        r.m.wrapping_offset(step.cast_signed() * apart).wrapping_sub(back)
    };
    let zero: RealOf<W> = num_traits::Zero::zero();
    // SAFETY: entries of the triangle of a view's item, under masks, and of the scratch.
    unsafe {
        let mut t = [[(zero, zero); Q]; S];
        for s in 0..S {
            for q in 0..Q {
                t[s][q] = get::<W>(x.add((q * n + at(first + s)) * parts));
            }
        }
        if !pushes {
            let (from, to) = if r.backward { (n - first, n) } else { (0, first) };
            let (mut i, to) = (from * parts, to * parts);
            let mut sums = [[W::none(); Q]; S];
            while i < to {
                let present = lanes.min(to - i);
                if present == lanes {
                    pull::<W, S, Q>(&mut sums, &line, first, x, n * parts, i, low_bits(W::V::LANES));
                } else {
                    pull::<W, S, Q>(&mut sums, &line, first, x, n * parts, i, low_bits(present));
                }
                i += lanes;
            }
            for s in 0..S {
                for q in 0..Q {
                    let (re, im) = W::total(sums[s][q]);
                    t[s][q] = (t[s][q].0 - re, t[s][q].1 - im);
                }
            }
        }
        for s in 0..S {
            for q in 0..Q {
                let mut sum = t[s][q];
                for earlier in 0..s {
                    let entry = r.m.wrapping_offset(
                        (first + earlier).cast_signed() * r.row + (first + s).cast_signed() * r.col,
                    );
                    let (re, im) = times::<W>(get::<W>(entry), t[earlier][q]);
                    sum = (sum.0 - re, sum.1 - im);
                }
                if !r.unit {
                    let inverse = r.inverse.add(2 * (first + s));
                    sum = times::<W>(sum, (*inverse, *inverse.add(1)));
                }
                t[s][q] = sum;
                put::<W>(x.add((q * n + at(first + s)) * parts), sum);
            }
        }
        if pushes {
            let (from, to) = if r.backward { (0, n - first - S) } else { (first + S, n) };
            let (mut i, to) = (from * parts, to * parts);
            while i < to {
                let present = lanes.min(to - i);
                if present == lanes {
                    push::<W, S, Q>(&t, &line, first, x, n * parts, i, low_bits(W::V::LANES));
                } else {
                    push::<W, S, Q>(&t, &line, first, x, n * parts, i, low_bits(present));
                }
                i += lanes;
            }
        }
    }
}

/// Adds a vector's products to the sums of a block: reals `i ..` of its lines with those of the solved right-hand sides.
#[inline(always)]
unsafe fn pull<W: Along, const S: usize, const Q: usize>(
    sums: &mut [[W::Dot; Q]; S],
    line: &impl Fn(usize) -> *const RealOf<W>,
    first: usize,
    x: *const RealOf<W>,
    apart: usize,
    i: usize,
    mask: u32,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut solved = [W::empty(W::V::splat(num_traits::Zero::zero())); Q];
        for q in 0..Q {
            solved[q] = W::load(x.wrapping_add(q * apart + i), mask);
        }
        for s in 0..S {
            let m = W::load(line(first + s).wrapping_add(i), mask);
            for q in 0..Q {
                sums[s][q] = m.dot(solved[q], sums[s][q]);
            }
        }
    }
}

/// Takes a solved block from a vector of what is left: reals `i ..` of every right-hand side.
#[inline(always)]
unsafe fn push<W: Along, const S: usize, const Q: usize>(
    solved: &[[(RealOf<W>, RealOf<W>); Q]; S],
    line: &impl Fn(usize) -> *const RealOf<W>,
    first: usize,
    x: *mut RealOf<W>,
    apart: usize,
    i: usize,
    mask: u32,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut m = [W::empty(W::V::splat(num_traits::Zero::zero())); S];
        for s in 0..S {
            m[s] = W::load(line(first + s).wrapping_add(i), mask);
        }
        for q in 0..Q {
            let rest = x.wrapping_add(q * apart + i);
            let mut sum = W::load(rest, mask).start();
            for s in 0..S {
                let (re, im) = solved[s][q];
                sum = m[s].subtract(sum, (W::V::splat(re), W::V::splat(im)));
            }
            W::finish(sum).store(rest, mask);
        }
    }
}

/// The element at `p`; a real one has no imaginary part.
#[inline(always)]
unsafe fn get<W: Along>(p: *const RealOf<W>) -> (RealOf<W>, RealOf<W>) {
    // SAFETY: the caller's.
    unsafe { (*p, if W::COMPLEX { *p.add(1) } else { num_traits::Zero::zero() }) }
}

/// Stores an element.
#[inline(always)]
unsafe fn put<W: Along>(p: *mut RealOf<W>, (re, im): (RealOf<W>, RealOf<W>)) {
    // SAFETY: the caller's.
    unsafe {
        *p = re;
        if W::COMPLEX {
            *p.add(1) = im;
        }
    }
}

/// The product of two elements.
#[inline(always)]
fn times<W: Along>((a, b): (RealOf<W>, RealOf<W>), (c, d): (RealOf<W>, RealOf<W>)) -> (RealOf<W>, RealOf<W>) {
    if W::COMPLEX { (a * c - b * d, a * d + b * c) } else { (a * c, b) }
}
