//! Warp matrix operations: fragment layouts and products.
//!
//! With `g = lane / 4`, `t = lane % 4` and `e` elements in a 32-bit register (or one double), register `r` of A
//! holds row `g + 8 (r mod 2)` and columns `4 e (r / 2) + e t + ..`; of B, column `g` and rows
//! `4 e r + e t + ..`; of C, row `g + 8 (r / 2)` and column `2 t + r mod 2`. One rule covers all shapes here.
//!
//! Doubles are summed by fma in the order of k, which is what an H200 does, bit for bit. Products of bf16, f16 and tf32 are exact and are summed in double
//! precision, then rounded once to single: the device rounds more often, so results agree to a few single
//! ulps of the largest partial sum. Integers are exact and wrap.

use crate::alu::{Lanes, bf16_to_f32, f16_to_f32};
use crate::ptx::Type;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    F64,
    Tf32,
    Bf16,
    F16,
    S8,
    U8,
}

/// A supported shape with its element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmaShape {
    m: usize,
    k: usize,
    a: Element,
    b: Element,
}

impl MmaShape {
    pub(crate) fn new(extent: &str, a: Type, b: Type, d: Type) -> Option<MmaShape> {
        let element = |t| {
            Some(match t {
                Type::F64 => Element::F64,
                Type::Tf32 => Element::Tf32,
                Type::Bf16 => Element::Bf16,
                Type::F16 => Element::F16,
                Type::S8 => Element::S8,
                Type::U8 => Element::U8,
                _ => return None,
            })
        };
        let (m, k) = match extent {
            "m8n8k4" => (8, 4),
            "m16n8k4" => (16, 4),
            "m16n8k8" => (16, 8),
            "m16n8k16" => (16, 16),
            "m16n8k32" => (16, 32),
            _ => return None,
        };
        let (a, b) = (element(a)?, element(b)?);
        let known = match a {
            Element::F64 => k <= 16 && a == b && d == Type::F64,
            Element::Tf32 => m == 16 && k <= 8 && a == b && d == Type::F32,
            Element::Bf16 | Element::F16 => m == 16 && (k == 8 || k == 16) && a == b && d == Type::F32,
            Element::S8 | Element::U8 => {
                m == 16 && k >= 16 && matches!(b, Element::S8 | Element::U8) && d == Type::S32
            }
        };
        known.then_some(MmaShape { m, k, a, b })
    }

    /// Elements in one register.
    fn packed(self) -> usize {
        match self.a {
            Element::F64 | Element::Tf32 => 1,
            Element::Bf16 | Element::F16 => 2,
            Element::S8 | Element::U8 => 4,
        }
    }

    /// Registers of the A, B and C fragments.
    pub(crate) fn registers(self) -> (usize, usize, usize) {
        let per_warp = 32 * self.packed();
        (self.m * self.k / per_warp, 8 * self.k / per_warp, self.m * 8 / 32)
    }

    fn value(self, element: Element, register: u64, part: usize) -> f64 {
        match element {
            Element::F64 => f64::from_bits(register),
            Element::Tf32 => f64::from(f32::from_bits(register as u32 & 0xffff_e000)),
            Element::Bf16 => f64::from(bf16_to_f32((register >> (16 * part)) as u16)),
            Element::F16 => f64::from(f16_to_f32((register >> (16 * part)) as u16)),
            Element::S8 => f64::from((register >> (8 * part)) as i8),
            Element::U8 => f64::from((register >> (8 * part)) as u8),
        }
    }

    /// D = A B + C, fragments by register.
    pub(crate) fn multiply(self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        let e = self.packed();
        let (mut am, mut bm) = ([[0f64; 32]; 16], [[0f64; 8]; 32]);
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for part in 0..e {
                for (r, row) in a.iter().enumerate() {
                    am[g + 8 * (r % 2)][4 * e * (r / 2) + e * t + part] = self.value(self.a, row[lane], part);
                }
                for (r, row) in b.iter().enumerate() {
                    bm[4 * e * r + e * t + part][g] = self.value(self.b, row[lane], part);
                }
            }
        }
        let mut out = vec![[0u64; 32]; c.len()];
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for r in 0..c.len() {
                let (i, j) = (g + 8 * (r / 2), 2 * t + r % 2);
                let terms = (0..self.k).map(|k| (am[i][k], bm[k][j]));
                let bits = c[r][lane];
                out[r][lane] = match self.a {
                    Element::F64 => terms.fold(f64::from_bits(bits), |s, (x, y)| x.mul_add(y, s)).to_bits(),
                    Element::S8 | Element::U8 => {
                        let sum = terms.fold(0f64, |s, (x, y)| s + x * y) as i32;
                        u64::from((bits as i32).wrapping_add(sum) as u32)
                    }
                    _ => {
                        let start = f64::from(f32::from_bits(bits as u32));
                        let sum = terms.fold(start, |s, (x, y)| x.mul_add(y, s));
                        u64::from((sum as f32).to_bits())
                    }
                };
            }
        }
        out
    }
}
