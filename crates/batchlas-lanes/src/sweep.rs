//! Substitution over packed row panels, one item per lane: right-hand side `r` of row `k` at element `k * Q + r`.
//!
//! Dot form both ways: a tile of the solution is in registers for its whole sum. `by` divides by a diagonal entry.
#![allow(unsafe_code)]

use crate::element::Element;

/// Division by the diagonal.
pub(crate) trait Divide<E>: Copy {
    /// `t` over diagonal entry `k`.
    unsafe fn divide(self, k: usize, t: E) -> E;
}

/// First element of a panel.
#[inline(always)]
pub(crate) const fn start<const P: usize>(panel: usize) -> usize {
    P * P * panel * (panel + 1) / 2
}

/// `t - l b`, or with the conjugate of `l`.
#[inline(always)]
unsafe fn eliminate<E: Element, const CONJ: bool>(t: E, l: E, b: E) -> E {
    // SAFETY: the vectors' obligations are the caller's.
    unsafe { if CONJ { t.sub_mul_conj(b, l) } else { t.sub_mul(l, b) } }
}

/// Solves with the lower triangle, or its conjugate.
#[inline(always)]
pub(crate) unsafe fn forward<E: Element, const P: usize, const Q: usize, const CONJ: bool>(
    tiles: *const E,
    y: *mut E,
    count: usize,
    by: impl Divide<E>,
) {
    // SAFETY: the caller's: elements of the first `count` panels and of their rows of the strip.
    unsafe {
        for j in 0..count {
            let panel = tiles.add(start::<P>(j));
            let own = y.add(j * P * Q);
            let mut t = [[E::zero(); Q]; P];
            for c in 0..P {
                for r in 0..Q {
                    t[c][r] = *own.add(c * Q + r);
                }
            }
            for k in 0..j * P {
                let mut b = [E::zero(); Q];
                for r in 0..Q {
                    b[r] = *y.add(k * Q + r);
                }
                for c in 0..P {
                    let l = *panel.add(k * P + c);
                    for r in 0..Q {
                        t[c][r] = eliminate::<E, CONJ>(t[c][r], l, b[r]);
                    }
                }
            }
            for c in 0..P {
                for m in 0..c {
                    let l = *panel.add((j * P + m) * P + c);
                    for r in 0..Q {
                        t[c][r] = eliminate::<E, CONJ>(t[c][r], l, t[m][r]);
                    }
                }
                for r in 0..Q {
                    t[c][r] = by.divide(j * P + c, t[c][r]);
                    *own.add(c * Q + r) = t[c][r];
                }
            }
        }
    }
}

/// Solves with the transpose of the lower triangle, or its conjugate.
#[inline(always)]
pub(crate) unsafe fn backward<E: Element, const P: usize, const Q: usize, const CONJ: bool>(
    tiles: *const E,
    y: *mut E,
    count: usize,
    by: impl Divide<E>,
) {
    // SAFETY: the caller's: elements of the first `count` panels and of their rows of the strip.
    unsafe {
        for j in (0..count).rev() {
            let own = y.add(j * P * Q);
            let mut t = [[E::zero(); Q]; P];
            for c in 0..P {
                for r in 0..Q {
                    t[c][r] = *own.add(c * Q + r);
                }
            }
            for i in j + 1..count {
                let tile = tiles.add(start::<P>(i) + j * P * P);
                for m in 0..P {
                    let mut b = [E::zero(); Q];
                    for r in 0..Q {
                        b[r] = *y.add((i * P + m) * Q + r);
                    }
                    for c in 0..P {
                        let l = *tile.add(c * P + m);
                        for r in 0..Q {
                            t[c][r] = eliminate::<E, CONJ>(t[c][r], l, b[r]);
                        }
                    }
                }
            }
            let corner = tiles.add(start::<P>(j) + j * P * P);
            for c in (0..P).rev() {
                for m in c + 1..P {
                    let l = *corner.add(c * P + m);
                    for r in 0..Q {
                        t[c][r] = eliminate::<E, CONJ>(t[c][r], l, t[m][r]);
                    }
                }
                for r in 0..Q {
                    t[c][r] = by.divide(j * P + c, t[c][r]);
                    *own.add(c * Q + r) = t[c][r];
                }
            }
        }
    }
}
