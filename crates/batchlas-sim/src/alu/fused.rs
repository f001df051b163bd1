//! Fused multiply-add of a row of lanes, with the CPU's own instruction where it has one: the library function that
//! stands for it otherwise costs a call for every lane, a quarter of the time of a factorisation. Both are exact.
#![allow(unsafe_code)]

use super::{Lanes, d, each3, f, pd, pf};

/// `x y + z` in single precision.
pub(super) fn f32(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") {
        // SAFETY: the instruction set was just found.
        return unsafe { x86::f32(x, y, z, out) };
    }
    f32_anywhere(x, y, z, out);
}

/// `x y + z` in double precision.
pub(super) fn f64(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") {
        // SAFETY: the instruction set was just found.
        return unsafe { x86::f64(x, y, z, out) };
    }
    f64_anywhere(x, y, z, out);
}

#[inline(always)]
fn f32_anywhere(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
    each3(x, y, z, out, |a, b, c| pf(f(a).mul_add(f(b), f(c))));
}

#[inline(always)]
fn f64_anywhere(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
    each3(x, y, z, out, |a, b, c| pd(d(a).mul_add(d(b), d(c))));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;

    #[target_feature(enable = "fma")]
    pub(super) fn f32(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
        super::f32_anywhere(x, y, z, out);
    }

    #[target_feature(enable = "fma")]
    pub(super) fn f64(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
        super::f64_anywhere(x, y, z, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_bits() {
        let mut state = 1u64;
        let mut row = || -> Lanes {
            std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state
            })
        };
        for _ in 0..1000 {
            let (x, y, z) = (row(), row(), row());
            let (mut here, mut anywhere) = ([0; 32], [0; 32]);
            // The payload of a NaN is not specified.
            let same = |a: u64, b: u64, nan: &dyn Fn(u64) -> bool| a == b || nan(a) && nan(b);
            f64(&x, &y, &z, &mut here);
            f64_anywhere(&x, &y, &z, &mut anywhere);
            assert!(here.iter().zip(&anywhere).all(|(a, b)| same(*a, *b, &|v| d(v).is_nan())));
            let single = |row: Lanes| row.map(|v| v >> 32);
            f32(&single(x), &single(y), &single(z), &mut here);
            f32_anywhere(&single(x), &single(y), &single(z), &mut anywhere);
            assert!(here.iter().zip(&anywhere).all(|(a, b)| same(*a, *b, &|v| f(v).is_nan())));
        }
    }
}
