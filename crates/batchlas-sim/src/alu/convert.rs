//! Conversions between types, and the 16-bit floating-point formats.

use super::{Lanes, d, each1, f, pd, pf};
use crate::ptx::Type;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Round {
    Nearest,
    NearestAway,
    Zero,
    Down,
    Up,
}

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CvtSpec {
    from: Type,
    to: Type,
    round: Round,
    sat: bool,
    ftz: bool,
    /// Width of the destination register, to which a narrow integer result is extended.
    register_bits: u32,
}

impl CvtSpec {
    pub(crate) fn new(
        from: Type,
        to: Type,
        round: Round,
        sat: bool,
        ftz: bool,
        register_bits: u32,
    ) -> Option<CvtSpec> {
        use Type::*;
        let scalar = |t: Type| !matches!(t, Pred | F16x2 | Bf16x2 | B128 | B8 | B16 | B32 | B64);
        let narrow = matches!(to, F16 | Bf16 | Tf32) || (to == F32 && from == F64);
        let directed = narrow && matches!(round, Round::Down | Round::Up);
        let away = round == Round::NearestAway && to != Tf32;
        let known = scalar(from)
            && scalar(to)
            && from != Tf32
            && !directed
            && !away
            && !(sat && to.is_float() && to != F32);
        known.then_some(CvtSpec { from, to, round, sat, ftz, register_bits })
    }
}

fn sign_extend(v: u64, bits: u32) -> i64 {
    ((v << (64 - bits)) as i64) >> (64 - bits)
}

pub(super) fn low_bits(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn round_to_integer(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest | Round::NearestAway => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// Converts the lanes of a register.
pub(crate) fn convert(spec: CvtSpec, x: &Lanes, out: &mut Lanes) {
    let (from, to) = (spec.from, spec.to);
    let (from_bits, to_bits) = (8 * from.bytes() as u32, 8 * to.bytes() as u32);
    if !from.is_float() && !to.is_float() && !spec.sat {
        let (keep, register) = (low_bits(to_bits), low_bits(spec.register_bits));
        let extend =
            |v: u64| if to.is_signed() { sign_extend(v & keep, to_bits) as u64 & register } else { v & keep };
        if from.is_signed() {
            each1(x, out, |v| extend(sign_extend(v, from_bits) as u64));
        } else {
            each1(x, out, |v| extend(v & low_bits(from_bits)));
        }
        return;
    }
    each1(x, out, |v| convert_one(spec, v));
}

fn convert_one(spec: CvtSpec, v: u64) -> u64 {
    let (from, to) = (spec.from, spec.to);
    let (from_bits, to_bits) = (8 * from.bytes() as u32, 8 * to.bytes() as u32);
    let clamp_store = |value: i128| {
        let (low, high) = if to.is_signed() {
            (-(1i128 << (to_bits - 1)), (1i128 << (to_bits - 1)) - 1)
        } else {
            (0, (1i128 << to_bits) - 1)
        };
        let value = value.clamp(low, high) as u64;
        if to.is_signed() {
            sign_extend(value & low_bits(to_bits), to_bits) as u64 & low_bits(spec.register_bits)
        } else {
            value
        }
    };
    if !from.is_float() {
        let value = if from.is_signed() {
            i128::from(sign_extend(v, from_bits))
        } else {
            i128::from(v & low_bits(from_bits))
        };
        return match to {
            Type::F32 => pf(match spec.round {
                Round::Nearest | Round::NearestAway => value as f32,
                round => directed_f32(value, round),
            }),
            Type::F64 => pd(value as f64),
            Type::F16 => u64::from(f64_to_f16(value as f64)),
            Type::Bf16 => u64::from(f64_to_bf16(value as f64)),
            _ => clamp_store(value),
        };
    }
    let mut value = match from {
        Type::F32 => f64::from(f(v)),
        Type::F64 => d(v),
        Type::F16 => f64::from(f16_to_f32(v as u16)),
        _ => f64::from(bf16_to_f32(v as u16)),
    };
    if spec.ftz && from == Type::F32 && value != 0.0 && value.abs() < f64::from(f32::MIN_POSITIVE) {
        value = 0f64.copysign(value);
    }
    match to {
        Type::F32 => {
            // The same type on both sides rounds to an integer.
            let value = if from == Type::F32 { round_to_integer(value, spec.round) } else { value };
            let single = if spec.round == Round::Zero { truncate_f32(value) } else { value as f32 };
            let single =
                if spec.sat { if single.is_nan() { 0.0 } else { single.clamp(0.0, 1.0) } } else { single };
            let single = if spec.ftz && single.is_subnormal() { 0f32.copysign(single) } else { single };
            pf(single)
        }
        Type::F64 => pd(if from == Type::F64 { round_to_integer(value, spec.round) } else { value }),
        Type::F16 => u64::from(if from == Type::F32 && spec.round == Round::Zero {
            truncate_f16(value)
        } else {
            f64_to_f16(value)
        }),
        Type::Bf16 => u64::from(if spec.round == Round::Zero {
            (truncate_f32(value).to_bits() >> 16) as u16
        } else {
            f64_to_bf16(value)
        }),
        Type::Tf32 => u64::from(to_tf32(value as f32, spec.round)),
        _ if value.is_nan() => {
            // The device converts NaN to 0, and to the lowest value for the 64-bit types.
            if to_bits == 64 { 1 << 63 } else { 0 }
        }
        _ => clamp_store(round_to_integer(value, spec.round) as i128),
    }
}

fn directed_f32(value: i128, round: Round) -> f32 {
    let near = value as f32;
    let exact = near as i128;
    let toward_zero = round == Round::Zero;
    if exact > value && (round == Round::Down || (toward_zero && value > 0)) {
        near.next_down()
    } else if exact < value && (round == Round::Up || (toward_zero && value < 0)) {
        near.next_up()
    } else {
        near
    }
}

fn truncate_f32(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near).abs() > x.abs() {
        if near > 0.0 { near.next_down() } else { near.next_up() }
    } else {
        near
    }
}

fn truncate_f16(x: f64) -> u16 {
    let near = f64_to_f16(x);
    // Magnitudes are ordered like their bits.
    if f64::from(f16_to_f32(near)).abs() > x.abs() { near - 1 } else { near }
}

/// Rounds to the 10-bit fraction of tf32, kept in the upper bits of a single.
fn to_tf32(x: f32, round: Round) -> u32 {
    let bits = x.to_bits();
    if !x.is_finite() {
        return bits & 0xffff_e000 | if x.is_nan() { 0x0040_0000 } else { 0 };
    }
    let rounded = match round {
        Round::NearestAway => bits.wrapping_add(0x1000),
        Round::Zero => bits,
        _ => bits.wrapping_add(0x0fff + (bits >> 13 & 1)),
    };
    rounded & 0xffff_e000
}

/// The value of a bf16.
pub(crate) fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// The value of a half.
pub(crate) fn f16_to_f32(x: u16) -> f32 {
    let sign = if x & 0x8000 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(x >> 10 & 0x1f), f32::from(x & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        e => (1024.0 + fraction) * 2f32.powi(e - 25),
    }
}

pub(super) fn f32_to_f16(x: f32) -> u16 {
    f64_to_f16(f64::from(x))
}

pub(super) fn f32_to_bf16(x: f32) -> u16 {
    if x.is_nan() {
        return 0x7fff;
    }
    let bits = x.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

pub(super) fn f64_to_bf16(x: f64) -> u16 {
    // Round to odd in single precision first, so that the second rounding is the only one that counts.
    let near = x as f32;
    let cut = truncate_f32(x);
    let odd = if f64::from(near) == x || !x.is_finite() { near } else { f32::from_bits(cut.to_bits() | 1) };
    f32_to_bf16(odd)
}

/// Rounds to nearest even half; overflow gives infinity.
pub(super) fn f64_to_f16(x: f64) -> u16 {
    if x.is_nan() {
        return 0x7fff;
    }
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = x.abs();
    // The unit in the last place: 2^(e-10), and not below 2^-24.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
    if exponent > 15 {
        return sign | 0x7c00;
    }
    let steps = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() as u32;
    // `steps` holds the hidden bit, and a carry out of the fraction moves into the exponent by itself.
    let bits = if exponent == -14 { steps } else { ((exponent + 14) as u32) * 1024 + steps };
    sign | bits.min(0x7c00) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_conversions_are_inverse_and_round_to_even() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if !value.is_nan() {
                assert_eq!(f32_to_f16(value), bits, "{value}");
            }
        }
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(65519.0), 0x7bff);
        assert_eq!(f32_to_f16(1.0 + 2f32.powi(-11)), 0x3c00);
        assert_eq!(f32_to_f16(1.0 + 3.0 * 2f32.powi(-11)), 0x3c02);
        assert_eq!(f32_to_f16(2f32.powi(-25)), 0);
        assert_eq!(f32_to_f16(2f32.powi(-25) * 1.01), 1);
    }

    #[test]
    fn bf16_and_tf32_round() {
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        // Just above a tie in double precision, and the tie itself in single.
        assert_eq!(f64_to_bf16(1.0 + 2f64.powi(-8) + 2f64.powi(-40)), 0x3f81);
        assert_eq!(f64_to_bf16(1.0 + 2f64.powi(-8)), 0x3f80);
        assert_eq!(to_tf32(f32::from_bits(0x3f80_1000), Round::NearestAway), 0x3f80_2000);
        assert_eq!(to_tf32(f32::from_bits(0x3f80_1000), Round::Nearest), 0x3f80_0000);
    }

    #[test]
    fn conversions() {
        let cvt = |from, to, round, sat, bits, v: u64| {
            let spec = CvtSpec::new(from, to, round, sat, false, bits).unwrap();
            let mut out = [0; 32];
            convert(spec, &[v; 32], &mut out);
            out[0]
        };
        assert_eq!(cvt(Type::S32, Type::S64, Round::Zero, false, 64, 0xffff_ffff), u64::MAX);
        assert_eq!(cvt(Type::U32, Type::U64, Round::Zero, false, 64, 0xffff_ffff), 0xffff_ffff);
        assert_eq!(cvt(Type::U32, Type::S8, Round::Zero, false, 32, 0x80), 0xffff_ff80);
        assert_eq!(cvt(Type::F32, Type::S32, Round::Nearest, false, 32, pf(2.5)), 2);
        assert_eq!(cvt(Type::F32, Type::S32, Round::Zero, false, 32, pf(-2.9)), 0xffff_fffe);
        assert_eq!(cvt(Type::F32, Type::S32, Round::Zero, false, 32, pf(1e20)), 0x7fff_ffff);
        assert_eq!(cvt(Type::S32, Type::S8, Round::Zero, true, 32, 300), 127);
        assert_eq!(cvt(Type::F64, Type::F32, Round::Nearest, false, 32, pd(0.1)), pf(0.1));
        assert_eq!(cvt(Type::S32, Type::F64, Round::Nearest, false, 64, 0xffff_ffff), pd(-1.0));
        assert_eq!(cvt(Type::F32, Type::F32, Round::Down, false, 32, pf(-0.5)), pf(-1.0));
    }
}
