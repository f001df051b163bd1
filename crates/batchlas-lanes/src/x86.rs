//! AVX-512 (512-bit registers), AVX-512VL (256-bit registers with its masks and its 32 registers) and AVX2 with FMA.
//!
//! Intrinsics and not arrays: a register tile over arrays is not kept in registers (5 to 38 times slower, measured).
//! The obligations of `vector.rs` hold for every function here.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use crate::plan::Chunk;
use crate::vector::{Vector, low_bits};

/// 16 f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Z32(__m512);
/// 8 f64.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Z64(__m512d);
/// 8 f32; `VL`: with the masks and registers of AVX-512VL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Y32<const VL: bool>(__m256);
/// 4 f64; `VL`: with the masks and registers of AVX-512VL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Y64<const VL: bool>(__m256d);

/// A vector type from its intrinsics. What needs masks or shuffles is an inherent method of the type.
macro_rules! register {
    ([$($generic:tt)*] $type:ty, $real:ty, $lanes:literal, wide $wide:expr, $splat:ident, $fma:ident, $fnma:ident,
     $mul:ident, $div:ident, $sqrt:ident, $max:ident, $subadd:ident, $addsub:ident) => {
        impl<$($generic)*> Vector for $type {
            type Real = $real;
            const LANES: usize = $lanes;
            const WIDE: bool = $wide;

            #[inline(always)]
            unsafe fn splat(x: $real) -> Self {
                Self($splat(x))
            }
            #[inline(always)]
            unsafe fn fma(self, b: Self, c: Self) -> Self {
                Self($fma(self.0, b.0, c.0))
            }
            #[inline(always)]
            unsafe fn fnma(self, b: Self, c: Self) -> Self {
                Self($fnma(self.0, b.0, c.0))
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                Self($mul(self.0, b.0))
            }
            #[inline(always)]
            unsafe fn div(self, b: Self) -> Self {
                Self($div(self.0, b.0))
            }
            #[inline(always)]
            unsafe fn sqrt(self) -> Self {
                Self($sqrt(self.0))
            }
            #[inline(always)]
            unsafe fn larger(self, b: Self) -> Self {
                let minus = Self::splat(-1.0);
                Self($max($max(self.0, self.mul(minus).0), $max(b.0, b.mul(minus).0)))
            }
            #[inline(always)]
            unsafe fn sum(self) -> $real {
                self.summed()
            }
            #[inline(always)]
            unsafe fn positive_finite(self) -> u32 {
                self.between(Self::splat(0.0), Self::splat(<$real>::INFINITY))
            }
            #[inline(always)]
            unsafe fn or_one(self, mask: u32) -> Self {
                self.select(mask, Self::splat(1.0))
            }
            #[inline(always)]
            unsafe fn pack(items: *const *mut $real, chunk: &Chunk, scratch: *mut Self) {
                let mut block = [Self::splat(0.0); $lanes];
                for l in 0..$lanes {
                    block[l] = Self::load((*items.add(l)).wrapping_add(chunk.offset), chunk.mask);
                }
                let block = Self::transpose(block);
                for v in 0..$lanes {
                    *scratch.add(chunk.slots[v] as usize) = block[v];
                }
            }
            #[inline(always)]
            unsafe fn unpack(items: *const *mut $real, lanes: u32, chunk: &Chunk, scratch: *const Self) {
                let mut block = [Self::splat(0.0); $lanes];
                for v in 0..$lanes {
                    block[v] = *scratch.add(chunk.slots[v] as usize);
                }
                let block = Self::transpose(block);
                if lanes == low_bits($lanes) {
                    for l in 0..$lanes {
                        block[l].store((*items.add(l)).wrapping_add(chunk.offset), chunk.mask);
                    }
                } else {
                    for l in (0..$lanes).filter(|l| lanes >> l & 1 == 1) {
                        block[l].store((*items.add(l)).wrapping_add(chunk.offset), chunk.mask);
                    }
                }
            }
            #[inline(always)]
            unsafe fn load(p: *const $real, mask: u32) -> Self {
                Self::load_masked(p, mask)
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $real, mask: u32) {
                if mask == low_bits($lanes) { self.store_all(p) } else { self.store_masked(p, mask) }
            }
            #[inline(always)]
            unsafe fn swap(self) -> Self {
                self.swapped()
            }
            #[inline(always)]
            unsafe fn add_sub(self, b: Self) -> Self {
                Self($subadd(self.0, $splat(1.0), b.0))
            }
            #[inline(always)]
            unsafe fn mul_complex(self, re: Self, im: Self) -> Self {
                Self($addsub(self.0, re.0, self.swapped().mul(im).0))
            }
        }
    };
}

register!([] Z32, f32, 16, wide true, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps, _mm512_div_ps,
    _mm512_sqrt_ps, _mm512_max_ps, _mm512_fmsubadd_ps, _mm512_fmaddsub_ps);
register!([] Z64, f64, 8, wide true, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_fnmadd_pd, _mm512_mul_pd, _mm512_div_pd,
    _mm512_sqrt_pd, _mm512_max_pd, _mm512_fmsubadd_pd, _mm512_fmaddsub_pd);
register!([const VL: bool] Y32<VL>, f32, 8, wide VL, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_mul_ps,
    _mm256_div_ps, _mm256_sqrt_ps, _mm256_max_ps, _mm256_fmsubadd_ps, _mm256_fmaddsub_ps);
register!([const VL: bool] Y64<VL>, f64, 4, wide VL, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_fnmadd_pd, _mm256_mul_pd,
    _mm256_div_pd, _mm256_sqrt_pd, _mm256_max_pd, _mm256_fmsubadd_pd, _mm256_fmaddsub_pd);

impl Z32 {
    #[inline(always)]
    unsafe fn summed(self) -> f32 {
        _mm512_reduce_add_ps(self.0)
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, mask: u32) -> Self {
        Self(_mm512_maskz_loadu_ps(mask as u16, p))
    }
    #[inline(always)]
    unsafe fn store_all(self, p: *mut f32) {
        _mm512_storeu_ps(p, self.0);
    }
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut f32, mask: u32) {
        _mm512_mask_storeu_ps(p, mask as u16, self.0);
    }
    #[inline(always)]
    unsafe fn between(self, low: Self, high: Self) -> u32 {
        let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, low.0);
        u32::from(_mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(above, self.0, high.0))
    }
    #[inline(always)]
    unsafe fn select(self, mask: u32, other: Self) -> Self {
        Self(_mm512_mask_blend_ps(mask as u16, other.0, self.0))
    }
    #[inline(always)]
    unsafe fn swapped(self) -> Self {
        Self(_mm512_permute_ps::<0b10_11_00_01>(self.0))
    }
    /// 4 x 4 blocks inside the 128-bit quarters, then the quarters.
    #[inline(always)]
    unsafe fn transpose(r: [Self; 16]) -> [Self; 16] {
        let (mut t, mut out) = (r, r);
        for q in 0..4 {
            let [a, b, c, d] = [r[4 * q].0, r[4 * q + 1].0, r[4 * q + 2].0, r[4 * q + 3].0];
            let low =
                [_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpacklo_ps(c, d))];
            let high =
                [_mm512_castps_pd(_mm512_unpackhi_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d))];
            t[4 * q] = Self(_mm512_castpd_ps(_mm512_unpacklo_pd(low[0], low[1])));
            t[4 * q + 1] = Self(_mm512_castpd_ps(_mm512_unpackhi_pd(low[0], low[1])));
            t[4 * q + 2] = Self(_mm512_castpd_ps(_mm512_unpacklo_pd(high[0], high[1])));
            t[4 * q + 3] = Self(_mm512_castpd_ps(_mm512_unpackhi_pd(high[0], high[1])));
        }
        for v in 0..4 {
            let [w, x, y, z] = [t[v].0, t[4 + v].0, t[8 + v].0, t[12 + v].0];
            let (wx, wx1) = (_mm512_shuffle_f32x4::<0x44>(w, x), _mm512_shuffle_f32x4::<0xee>(w, x));
            let (yz, yz1) = (_mm512_shuffle_f32x4::<0x44>(y, z), _mm512_shuffle_f32x4::<0xee>(y, z));
            out[v] = Self(_mm512_shuffle_f32x4::<0x88>(wx, yz));
            out[4 + v] = Self(_mm512_shuffle_f32x4::<0xdd>(wx, yz));
            out[8 + v] = Self(_mm512_shuffle_f32x4::<0x88>(wx1, yz1));
            out[12 + v] = Self(_mm512_shuffle_f32x4::<0xdd>(wx1, yz1));
        }
        out
    }
}

impl Z64 {
    #[inline(always)]
    unsafe fn summed(self) -> f64 {
        _mm512_reduce_add_pd(self.0)
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f64, mask: u32) -> Self {
        Self(_mm512_maskz_loadu_pd(mask as u8, p))
    }
    #[inline(always)]
    unsafe fn store_all(self, p: *mut f64) {
        _mm512_storeu_pd(p, self.0);
    }
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut f64, mask: u32) {
        _mm512_mask_storeu_pd(p, mask as u8, self.0);
    }
    #[inline(always)]
    unsafe fn between(self, low: Self, high: Self) -> u32 {
        let above = _mm512_cmp_pd_mask::<_CMP_GT_OQ>(self.0, low.0);
        u32::from(_mm512_mask_cmp_pd_mask::<_CMP_LT_OQ>(above, self.0, high.0))
    }
    #[inline(always)]
    unsafe fn select(self, mask: u32, other: Self) -> Self {
        Self(_mm512_mask_blend_pd(mask as u8, other.0, self.0))
    }
    #[inline(always)]
    unsafe fn swapped(self) -> Self {
        Self(_mm512_permute_pd::<0x55>(self.0))
    }
    /// 2 x 2 blocks inside the 128-bit quarters, then the quarters.
    #[inline(always)]
    unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
        let (mut t, mut out) = (r, r);
        for q in 0..4 {
            t[2 * q] = Self(_mm512_unpacklo_pd(r[2 * q].0, r[2 * q + 1].0));
            t[2 * q + 1] = Self(_mm512_unpackhi_pd(r[2 * q].0, r[2 * q + 1].0));
        }
        for v in 0..2 {
            let [w, x, y, z] = [t[v].0, t[2 + v].0, t[4 + v].0, t[6 + v].0];
            let (wx, wx1) = (_mm512_shuffle_f64x2::<0x44>(w, x), _mm512_shuffle_f64x2::<0xee>(w, x));
            let (yz, yz1) = (_mm512_shuffle_f64x2::<0x44>(y, z), _mm512_shuffle_f64x2::<0xee>(y, z));
            out[v] = Self(_mm512_shuffle_f64x2::<0x88>(wx, yz));
            out[2 + v] = Self(_mm512_shuffle_f64x2::<0xdd>(wx, yz));
            out[4 + v] = Self(_mm512_shuffle_f64x2::<0x88>(wx1, yz1));
            out[6 + v] = Self(_mm512_shuffle_f64x2::<0xdd>(wx1, yz1));
        }
        out
    }
}

/// The bits of `mask` as a vector of 32-bit integers, for AVX2.
#[inline(always)]
unsafe fn wide_mask32(mask: u32) -> __m256i {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask as i32), bits), bits)
}

/// The bits of `mask` as a vector of 64-bit integers, for AVX2.
#[inline(always)]
unsafe fn wide_mask64(mask: u32) -> __m256i {
    let bits = _mm256_setr_epi64x(1, 2, 4, 8);
    _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(i64::from(mask)), bits), bits)
}

impl<const VL: bool> Y32<VL> {
    #[inline(always)]
    unsafe fn summed(self) -> f32 {
        let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f32, mask: u32) -> Self {
        if VL {
            Self(_mm256_maskz_loadu_ps(mask as u8, p))
        } else if mask == low_bits(8) {
            Self(_mm256_loadu_ps(p))
        } else {
            Self(_mm256_maskload_ps(p, wide_mask32(mask)))
        }
    }
    #[inline(always)]
    unsafe fn store_all(self, p: *mut f32) {
        _mm256_storeu_ps(p, self.0);
    }
    /// Without AVX-512VL one by one: masked stores of AVX2 are very slow on some CPUs.
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut f32, mask: u32) {
        if VL {
            _mm256_mask_storeu_ps(p, mask as u8, self.0);
        } else {
            let mut reals = [0.0; 8];
            _mm256_storeu_ps(reals.as_mut_ptr(), self.0);
            for l in (0..8).filter(|l| mask >> l & 1 == 1) {
                *p.wrapping_add(l) = reals[l];
            }
        }
    }
    #[inline(always)]
    unsafe fn between(self, low: Self, high: Self) -> u32 {
        let above = _mm256_cmp_ps::<_CMP_GT_OQ>(self.0, low.0);
        let below = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, high.0);
        _mm256_movemask_ps(_mm256_and_ps(above, below)) as u32
    }
    #[inline(always)]
    unsafe fn select(self, mask: u32, other: Self) -> Self {
        Self(_mm256_blendv_ps(other.0, self.0, _mm256_castsi256_ps(wide_mask32(mask))))
    }
    #[inline(always)]
    unsafe fn swapped(self) -> Self {
        Self(_mm256_permute_ps::<0b10_11_00_01>(self.0))
    }
    /// 4 x 4 blocks inside the 128-bit halves, then the halves.
    #[inline(always)]
    unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
        let (mut t, mut out) = (r, r);
        for q in 0..2 {
            let [a, b, c, d] = [r[4 * q].0, r[4 * q + 1].0, r[4 * q + 2].0, r[4 * q + 3].0];
            let low =
                [_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpacklo_ps(c, d))];
            let high =
                [_mm256_castps_pd(_mm256_unpackhi_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(c, d))];
            t[4 * q] = Self(_mm256_castpd_ps(_mm256_unpacklo_pd(low[0], low[1])));
            t[4 * q + 1] = Self(_mm256_castpd_ps(_mm256_unpackhi_pd(low[0], low[1])));
            t[4 * q + 2] = Self(_mm256_castpd_ps(_mm256_unpacklo_pd(high[0], high[1])));
            t[4 * q + 3] = Self(_mm256_castpd_ps(_mm256_unpackhi_pd(high[0], high[1])));
        }
        for v in 0..4 {
            out[v] = Self(_mm256_permute2f128_ps::<0x20>(t[v].0, t[4 + v].0));
            out[4 + v] = Self(_mm256_permute2f128_ps::<0x31>(t[v].0, t[4 + v].0));
        }
        out
    }
}

impl<const VL: bool> Y64<VL> {
    #[inline(always)]
    unsafe fn summed(self) -> f64 {
        let two = _mm_add_pd(_mm256_castpd256_pd128(self.0), _mm256_extractf128_pd::<1>(self.0));
        _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const f64, mask: u32) -> Self {
        if VL {
            Self(_mm256_maskz_loadu_pd(mask as u8, p))
        } else if mask == low_bits(4) {
            Self(_mm256_loadu_pd(p))
        } else {
            Self(_mm256_maskload_pd(p, wide_mask64(mask)))
        }
    }
    #[inline(always)]
    unsafe fn store_all(self, p: *mut f64) {
        _mm256_storeu_pd(p, self.0);
    }
    /// As for f32.
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut f64, mask: u32) {
        if VL {
            _mm256_mask_storeu_pd(p, mask as u8, self.0);
        } else {
            let mut reals = [0.0; 4];
            _mm256_storeu_pd(reals.as_mut_ptr(), self.0);
            for l in (0..4).filter(|l| mask >> l & 1 == 1) {
                *p.wrapping_add(l) = reals[l];
            }
        }
    }
    #[inline(always)]
    unsafe fn between(self, low: Self, high: Self) -> u32 {
        let above = _mm256_cmp_pd::<_CMP_GT_OQ>(self.0, low.0);
        let below = _mm256_cmp_pd::<_CMP_LT_OQ>(self.0, high.0);
        _mm256_movemask_pd(_mm256_and_pd(above, below)) as u32
    }
    #[inline(always)]
    unsafe fn select(self, mask: u32, other: Self) -> Self {
        Self(_mm256_blendv_pd(other.0, self.0, _mm256_castsi256_pd(wide_mask64(mask))))
    }
    #[inline(always)]
    unsafe fn swapped(self) -> Self {
        Self(_mm256_permute_pd::<0x5>(self.0))
    }
    /// 2 x 2 blocks inside the 128-bit halves, then the halves.
    #[inline(always)]
    unsafe fn transpose(r: [Self; 4]) -> [Self; 4] {
        let (mut t, mut out) = (r, r);
        for q in 0..2 {
            t[2 * q] = Self(_mm256_unpacklo_pd(r[2 * q].0, r[2 * q + 1].0));
            t[2 * q + 1] = Self(_mm256_unpackhi_pd(r[2 * q].0, r[2 * q + 1].0));
        }
        for v in 0..2 {
            out[v] = Self(_mm256_permute2f128_pd::<0x20>(t[v].0, t[2 + v].0));
            out[2 + v] = Self(_mm256_permute2f128_pd::<0x31>(t[v].0, t[2 + v].0));
        }
        out
    }
}
