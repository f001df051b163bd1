//! Lane arithmetic: one function per decoded operation over the 32 lanes of a warp.
//!
//! `.rn` forms of add, subtract, multiply, divide, square root, reciprocal and fma are the IEEE results (the host
//! rounds to nearest even, and `mul_add` is exact). Results that are NaN are the canonical NaN of the
//! device in single precision. What is only approximate on the device is computed here in double precision and
//! rounded once, so it is *more* accurate than the device, whose documented error bounds are: `rcp`, `sqrt`,
//! `rsqrt`, `div.approx` and `div.full` in single precision up to 2 ulp; `ex2` 2 ulp; `lg2` 2^-22 absolute near
//! one; `sin` and `cos` 2^-20.5 absolute; `tanh` 2^-11 relative; `rcp.approx.f64` and `rsqrt.approx.f64` give
//! 20 bits, which is modelled by cutting the result to 20 bits, since kernels refine it.

mod convert;
mod fused;

pub(crate) use convert::{CvtSpec, Round, bf16_to_f32, convert, f16_to_f32};

use crate::ptx::Type;
use convert::{f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16, low_bits};

/// The lanes of one register.
pub(crate) type Lanes = [u64; 32];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UnOp {
    NegF32,
    NegF64,
    AbsF32,
    AbsF64,
    Neg16,
    Neg32,
    Neg64,
    Abs32,
    Abs64,
    Not16,
    Not32,
    Not64,
    Popc,
    Clz32,
    Clz64,
    Brev32,
    Brev64,
    Bfind32,
    Bfind64,
    BfindShift32,
    BfindShift64,
    RcpF32,
    RcpF64,
    RcpApproxF64,
    SqrtF32,
    SqrtF64,
    RsqrtF32,
    RsqrtF64,
    RsqrtApproxF64,
    Ex2F32,
    Lg2F32,
    SinF32,
    CosF32,
    TanhF32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BinOp {
    /// A unary operation that flushes subnormals.
    Unary(UnOp),
    AddF32,
    SubF32,
    MulF32,
    DivF32,
    MinF32,
    MaxF32,
    MinNanF32,
    MaxNanF32,
    CopysignF32,
    AddF64,
    SubF64,
    MulF64,
    DivF64,
    MinF64,
    MaxF64,
    CopysignF64,
    AddF16x2,
    SubF16x2,
    MulF16x2,
    PackBf16x2,
    PackF16x2,
    Add16,
    Add32,
    Add64,
    Sub16,
    Sub32,
    Sub64,
    Mul16,
    Mul32,
    Mul64,
    MulHiU16,
    MulHiS16,
    MulHiU32,
    MulHiS32,
    MulHiU64,
    MulHiS64,
    MulWideU16,
    MulWideS16,
    MulWideU32,
    MulWideS32,
    DivU16,
    DivS16,
    DivU32,
    DivS32,
    DivU64,
    DivS64,
    RemU16,
    RemS16,
    RemU32,
    RemS32,
    RemU64,
    RemS64,
    MinU,
    MaxU,
    MinS16,
    MaxS16,
    MinS32,
    MaxS32,
    MinS64,
    MaxS64,
    And,
    Or,
    Xor,
    Shl16,
    Shl32,
    Shl64,
    ShrU16,
    ShrS16,
    ShrU32,
    ShrS32,
    ShrU64,
    ShrS64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TerOp {
    FmaF32,
    FmaF64,
    FmaF16x2,
    FmaBf16x2,
    MadLo16,
    MadLo32,
    MadLo64,
    MadHiU32,
    MadHiS32,
    MadWideU16,
    MadWideS16,
    MadWideU32,
    MadWideS32,
    BfeU32,
    BfeS32,
    BfeU64,
    BfeS64,
    Prmt,
    ShfLWrap,
    ShfLClamp,
    ShfRWrap,
    ShfRClamp,
    Lop3(u8),
    Dp4aSS,
    Dp4aUU,
    Dp4aSU,
    Dp4aUS,
    SadU32,
    SadS32,
}

const CANONICAL_NAN: u32 = 0x7fff_ffff;

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn pf(x: f32) -> u64 {
    u64::from(if x.is_nan() { CANONICAL_NAN } else { x.to_bits() })
}

fn pd(x: f64) -> u64 {
    x.to_bits()
}

/// Cuts a double to the 20 leading bits of its fraction, the precision of the device's approximate forms.
fn cut(x: f64) -> u64 {
    if x.is_finite() { x.to_bits() & !0xffff_ffff } else { x.to_bits() }
}

fn u32s(x: u32) -> u64 {
    u64::from(x)
}

fn each1(x: &Lanes, out: &mut Lanes, g: impl Fn(u64) -> u64) {
    for l in 0..32 {
        out[l] = g(x[l]);
    }
}

fn each2(x: &Lanes, y: &Lanes, out: &mut Lanes, g: impl Fn(u64, u64) -> u64) {
    for l in 0..32 {
        out[l] = g(x[l], y[l]);
    }
}

#[inline(always)]
fn each3(x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes, g: impl Fn(u64, u64, u64) -> u64) {
    for l in 0..32 {
        out[l] = g(x[l], y[l], z[l]);
    }
}

pub(crate) fn unary(op: UnOp, x: &Lanes, out: &mut Lanes) {
    use UnOp::*;
    match op {
        NegF32 => each1(x, out, |a| a ^ 0x8000_0000),
        NegF64 => each1(x, out, |a| a ^ (1 << 63)),
        AbsF32 => each1(x, out, |a| a & 0x7fff_ffff),
        AbsF64 => each1(x, out, |a| a & !(1 << 63)),
        Neg16 => each1(x, out, |a| u64::from((a as u16).wrapping_neg())),
        Neg32 => each1(x, out, |a| u32s((a as u32).wrapping_neg())),
        Neg64 => each1(x, out, u64::wrapping_neg),
        Abs32 => each1(x, out, |a| u32s((a as i32).unsigned_abs())),
        Abs64 => each1(x, out, |a| (a as i64).unsigned_abs()),
        Not16 => each1(x, out, |a| !a & 0xffff),
        Not32 => each1(x, out, |a| u32s(!(a as u32))),
        Not64 => each1(x, out, |a| !a),
        Popc => each1(x, out, |a| u64::from(a.count_ones())),
        Clz32 => each1(x, out, |a| u64::from((a as u32).leading_zeros())),
        Clz64 => each1(x, out, |a| u64::from(a.leading_zeros())),
        Brev32 => each1(x, out, |a| u32s((a as u32).reverse_bits())),
        Brev64 => each1(x, out, u64::reverse_bits),
        Bfind32 => each1(x, out, |a| u32s(31u32.wrapping_sub((a as u32).leading_zeros()))),
        Bfind64 => each1(x, out, |a| u32s(63u32.wrapping_sub(a.leading_zeros()))),
        BfindShift32 => {
            each1(x, out, |a| u32s(if a as u32 == 0 { u32::MAX } else { (a as u32).leading_zeros() }))
        }
        BfindShift64 => each1(x, out, |a| u32s(if a == 0 { u32::MAX } else { a.leading_zeros() })),
        RcpF32 => each1(x, out, |a| pf(1.0 / f(a))),
        RcpF64 => each1(x, out, |a| pd(1.0 / d(a))),
        RcpApproxF64 => each1(x, out, |a| cut(1.0 / d(a))),
        SqrtF32 => each1(x, out, |a| pf(f(a).sqrt())),
        SqrtF64 => each1(x, out, |a| pd(d(a).sqrt())),
        RsqrtF32 => each1(x, out, |a| pf((1.0 / f64::from(f(a)).sqrt()) as f32)),
        RsqrtF64 => each1(x, out, |a| pd(1.0 / d(a).sqrt())),
        RsqrtApproxF64 => each1(x, out, |a| cut(1.0 / d(a).sqrt())),
        Ex2F32 => each1(x, out, |a| pf(f64::from(f(a)).exp2() as f32)),
        Lg2F32 => each1(x, out, |a| pf(f64::from(f(a)).log2() as f32)),
        SinF32 => each1(x, out, |a| pf(f64::from(f(a)).sin() as f32)),
        CosF32 => each1(x, out, |a| pf(f64::from(f(a)).cos() as f32)),
        TanhF32 => each1(x, out, |a| pf(f64::from(f(a)).tanh() as f32)),
    }
}

/// Minimum or maximum as the device defines it: a number wins over a NaN, and -0 is less than +0.
fn pick<T: PartialOrd + Copy>(x: T, y: T, x_nan: bool, y_nan: bool, x_negative: bool, max: bool) -> T {
    if x_nan {
        y
    } else if y_nan {
        x
    } else if x == y {
        if x_negative == max { y } else { x }
    } else if (x < y) != max {
        x
    } else {
        y
    }
}

fn pick_f32(x: u64, y: u64, max: bool) -> u64 {
    let (x, y) = (f(x), f(y));
    pf(pick(x, y, x.is_nan(), y.is_nan(), x.is_sign_negative(), max))
}

fn pick_f64(x: u64, y: u64, max: bool) -> u64 {
    let (x, y) = (d(x), d(y));
    pd(pick(x, y, x.is_nan(), y.is_nan(), x.is_sign_negative(), max))
}

fn halves(x: u64, y: u64, g: impl Fn(f32, f32) -> f32) -> u64 {
    let one = |shift: u32| {
        let (a, b) = (f16_to_f32((x >> shift) as u16), f16_to_f32((y >> shift) as u16));
        // Exact in f64 for one operation, then one rounding.
        u64::from(f32_to_f16(g(a, b))) << shift
    };
    one(0) | one(16)
}

pub(crate) fn binary(op: BinOp, x: &Lanes, y: &Lanes, out: &mut Lanes) {
    use BinOp::*;
    match op {
        Unary(u) => unary(u, x, out),
        AddF32 => each2(x, y, out, |a, b| pf(f(a) + f(b))),
        SubF32 => each2(x, y, out, |a, b| pf(f(a) - f(b))),
        MulF32 => each2(x, y, out, |a, b| pf(f(a) * f(b))),
        DivF32 => each2(x, y, out, |a, b| pf(f(a) / f(b))),
        MinF32 => each2(x, y, out, |a, b| pick_f32(a, b, false)),
        MaxF32 => each2(x, y, out, |a, b| pick_f32(a, b, true)),
        MinNanF32 | MaxNanF32 => each2(x, y, out, |a, b| {
            if f(a).is_nan() || f(b).is_nan() { u32s(CANONICAL_NAN) } else { pick_f32(a, b, op == MaxNanF32) }
        }),
        CopysignF32 => each2(x, y, out, |a, b| (a & 0x8000_0000) | (b & 0x7fff_ffff)),
        AddF64 => each2(x, y, out, |a, b| pd(d(a) + d(b))),
        SubF64 => each2(x, y, out, |a, b| pd(d(a) - d(b))),
        MulF64 => each2(x, y, out, |a, b| pd(d(a) * d(b))),
        DivF64 => each2(x, y, out, |a, b| pd(d(a) / d(b))),
        MinF64 => each2(x, y, out, |a, b| pick_f64(a, b, false)),
        MaxF64 => each2(x, y, out, |a, b| pick_f64(a, b, true)),
        CopysignF64 => each2(x, y, out, |a, b| (a & (1 << 63)) | (b & !(1 << 63))),
        AddF16x2 => each2(x, y, out, |a, b| halves(a, b, |a, b| a + b)),
        SubF16x2 => each2(x, y, out, |a, b| halves(a, b, |a, b| a - b)),
        MulF16x2 => each2(x, y, out, |a, b| halves(a, b, |a, b| a * b)),
        PackBf16x2 => {
            each2(x, y, out, |a, b| u64::from(f32_to_bf16(f(a))) << 16 | u64::from(f32_to_bf16(f(b))))
        }
        PackF16x2 => each2(x, y, out, |a, b| u64::from(f32_to_f16(f(a))) << 16 | u64::from(f32_to_f16(f(b)))),
        Add16 => each2(x, y, out, |a, b| a.wrapping_add(b) & 0xffff),
        Add32 => each2(x, y, out, |a, b| a.wrapping_add(b) & 0xffff_ffff),
        Add64 => each2(x, y, out, u64::wrapping_add),
        Sub16 => each2(x, y, out, |a, b| a.wrapping_sub(b) & 0xffff),
        Sub32 => each2(x, y, out, |a, b| a.wrapping_sub(b) & 0xffff_ffff),
        Sub64 => each2(x, y, out, u64::wrapping_sub),
        Mul16 => each2(x, y, out, |a, b| a.wrapping_mul(b) & 0xffff),
        Mul32 => each2(x, y, out, |a, b| a.wrapping_mul(b) & 0xffff_ffff),
        Mul64 => each2(x, y, out, u64::wrapping_mul),
        MulHiU16 => each2(x, y, out, |a, b| ((a & 0xffff) * (b & 0xffff)) >> 16),
        MulHiS16 => {
            each2(x, y, out, |a, b| u64::from(((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16))
        }
        MulHiU32 => each2(x, y, out, |a, b| (a & 0xffff_ffff).wrapping_mul(b & 0xffff_ffff) >> 32),
        MulHiS32 => each2(x, y, out, |a, b| u32s(((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)),
        MulHiU64 => each2(x, y, out, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        MulHiS64 => each2(x, y, out, |a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
        MulWideU16 => each2(x, y, out, |a, b| (a & 0xffff) * (b & 0xffff)),
        MulWideS16 => each2(x, y, out, |a, b| u32s((i32::from(a as i16) * i32::from(b as i16)) as u32)),
        MulWideU32 => each2(x, y, out, |a, b| (a & 0xffff_ffff) * (b & 0xffff_ffff)),
        MulWideS32 => each2(x, y, out, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        // Division by zero gives all ones on the device.
        DivU16 => each2(x, y, out, |a, b| u64::from((a as u16).checked_div(b as u16).unwrap_or(u16::MAX))),
        DivU32 => each2(x, y, out, |a, b| u32s((a as u32).checked_div(b as u32).unwrap_or(u32::MAX))),
        DivU64 => each2(x, y, out, |a, b| a.checked_div(b).unwrap_or(u64::MAX)),
        DivS16 => each2(x, y, out, |a, b| {
            u64::from(if b as i16 == 0 { u16::MAX } else { (a as i16).wrapping_div(b as i16) as u16 })
        }),
        DivS32 => each2(x, y, out, |a, b| {
            u32s(if b as i32 == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 })
        }),
        DivS64 => {
            each2(x, y, out, |a, b| if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 })
        }
        RemU16 => each2(x, y, out, |a, b| u64::from((a as u16).checked_rem(b as u16).unwrap_or(a as u16))),
        RemU32 => each2(x, y, out, |a, b| u32s((a as u32).checked_rem(b as u32).unwrap_or(a as u32))),
        RemU64 => each2(x, y, out, |a, b| a.checked_rem(b).unwrap_or(a)),
        RemS16 => each2(x, y, out, |a, b| {
            u64::from(if b as i16 == 0 { a as u16 } else { (a as i16).wrapping_rem(b as i16) as u16 })
        }),
        RemS32 => each2(x, y, out, |a, b| {
            u32s(if b as i32 == 0 { a as u32 } else { (a as i32).wrapping_rem(b as i32) as u32 })
        }),
        RemS64 => each2(x, y, out, |a, b| if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }),
        MinU => each2(x, y, out, u64::min),
        MaxU => each2(x, y, out, u64::max),
        MinS16 => each2(x, y, out, |a, b| u64::from((a as i16).min(b as i16) as u16)),
        MaxS16 => each2(x, y, out, |a, b| u64::from((a as i16).max(b as i16) as u16)),
        MinS32 => each2(x, y, out, |a, b| u32s((a as i32).min(b as i32) as u32)),
        MaxS32 => each2(x, y, out, |a, b| u32s((a as i32).max(b as i32) as u32)),
        MinS64 => each2(x, y, out, |a, b| (a as i64).min(b as i64) as u64),
        MaxS64 => each2(x, y, out, |a, b| (a as i64).max(b as i64) as u64),
        And => each2(x, y, out, |a, b| a & b),
        Or => each2(x, y, out, |a, b| a | b),
        Xor => each2(x, y, out, |a, b| a ^ b),
        Shl16 => each2(x, y, out, |a, b| if b > 15 { 0 } else { (a << b) & 0xffff }),
        Shl32 => each2(x, y, out, |a, b| if b > 31 { 0 } else { (a << b) & 0xffff_ffff }),
        Shl64 => each2(x, y, out, |a, b| if b > 63 { 0 } else { a << b }),
        ShrU16 => each2(x, y, out, |a, b| if b > 15 { 0 } else { (a & 0xffff) >> b }),
        ShrU32 => each2(x, y, out, |a, b| if b > 31 { 0 } else { (a & 0xffff_ffff) >> b }),
        ShrU64 => each2(x, y, out, |a, b| if b > 63 { 0 } else { a >> b }),
        ShrS16 => each2(x, y, out, |a, b| u64::from((i32::from(a as i16) >> b.min(15)) as u16)),
        ShrS32 => each2(x, y, out, |a, b| u32s(((a as i32) >> b.min(31)) as u32)),
        ShrS64 => each2(x, y, out, |a, b| ((a as i64) >> b.min(63)) as u64),
    }
}

fn bfe(a: u64, b: u64, c: u64, bits: u32, signed: bool) -> u64 {
    let (pos, len) = ((b & 0xff) as u32, (c & 0xff) as u32);
    let msb = bits - 1;
    let sign_at = if len == 0 { None } else { Some((pos + len - 1).min(msb)) };
    let sign = signed && sign_at.is_some_and(|at| a >> at & 1 != 0);
    let mut out = 0u64;
    for i in 0..bits {
        let bit = if i < len && pos + i <= msb { a >> (pos + i) & 1 != 0 } else { sign };
        out |= u64::from(bit) << i;
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLo,
    MadHi,
}

/// Unsigned arithmetic of `bits` bits with a carry, or borrow, in and out.
pub(crate) fn carry(f: CarryOp, bits: u32, a: u64, b: u64, c: u64, into: bool) -> (u64, bool) {
    let keep = u128::from(low_bits(bits));
    let [a, b, c] = [a, b, c].map(|v| u128::from(v) & keep);
    let into = u128::from(into);
    let wide = match f {
        CarryOp::Add => a + b + into,
        CarryOp::Sub => a.wrapping_sub(b).wrapping_sub(into),
        CarryOp::MadLo => ((a * b) & keep) + c + into,
        CarryOp::MadHi => ((a * b) >> bits) + c + into,
    };
    ((wide & keep) as u64, wide & !keep != 0)
}

/// Bit field insert: the low `len` bits of `a` into `b` at `pos`.
pub(crate) fn bfi(a: u64, b: u64, pos: u64, len: u64, bits: u32) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    let mut out = b;
    for i in 0..len.min(bits.saturating_sub(pos)) {
        out = out & !(1 << (pos + i)) | (a >> i & 1) << (pos + i);
    }
    out
}

fn prmt(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = ((b & 0xffff_ffff) << 32 | (a & 0xffff_ffff)).to_le_bytes();
    (0..4).fold(0, |out, i| {
        let nibble = selector >> (4 * i) & 0xf;
        let byte = bytes[(nibble & 7) as usize];
        let byte = if nibble & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        out | u64::from(byte) << (8 * i)
    })
}

fn dp4a(a: u64, b: u64, c: u64, a_signed: bool, b_signed: bool) -> u64 {
    let byte = |x: u64, i: u32, signed: bool| {
        let v = (x >> (8 * i)) as u8;
        if signed { i32::from(v as i8) } else { i32::from(v) }
    };
    let sum = (0..4).fold(c as i32, |s, i| s.wrapping_add(byte(a, i, a_signed) * byte(b, i, b_signed)));
    u32s(sum as u32)
}

fn halves3(x: u64, y: u64, z: u64, read: fn(u16) -> f32, write: fn(f64) -> u16) -> u64 {
    let one = |s: u32| {
        let (a, b, c) = (read((x >> s) as u16), read((y >> s) as u16), read((z >> s) as u16));
        u64::from(write(f64::from(a) * f64::from(b) + f64::from(c))) << s
    };
    one(0) | one(16)
}

pub(crate) fn ternary(op: TerOp, x: &Lanes, y: &Lanes, z: &Lanes, out: &mut Lanes) {
    use TerOp::*;
    let lo = |v: u64| v & 0xffff_ffff;
    match op {
        FmaF32 => fused::f32(x, y, z, out),
        FmaF64 => fused::f64(x, y, z, out),
        // The product is exact in double precision; the sum is rounded to double before half.
        FmaF16x2 => each3(x, y, z, out, |a, b, c| halves3(a, b, c, f16_to_f32, f64_to_f16)),
        FmaBf16x2 => each3(x, y, z, out, |a, b, c| halves3(a, b, c, bf16_to_f32, f64_to_bf16)),
        MadLo16 => each3(x, y, z, out, |a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
        MadLo32 => each3(x, y, z, out, |a, b, c| lo(a.wrapping_mul(b).wrapping_add(c))),
        MadLo64 => each3(x, y, z, out, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        MadHiU32 => each3(x, y, z, out, |a, b, c| lo((lo(a).wrapping_mul(lo(b)) >> 32).wrapping_add(c))),
        MadHiS32 => each3(x, y, z, out, |a, b, c| {
            u32s(((i64::from(a as i32) * i64::from(b as i32)) >> 32).wrapping_add(c as i64) as u32)
        }),
        MadWideU16 => each3(x, y, z, out, |a, b, c| lo(((a & 0xffff) * (b & 0xffff)).wrapping_add(c))),
        MadWideS16 => each3(x, y, z, out, |a, b, c| {
            u32s((i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32)
        }),
        MadWideU32 => each3(x, y, z, out, |a, b, c| lo(a).wrapping_mul(lo(b)).wrapping_add(c)),
        MadWideS32 => each3(x, y, z, out, |a, b, c| {
            ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }),
        BfeU32 => each3(x, y, z, out, |a, b, c| bfe(a, b, c, 32, false)),
        BfeS32 => each3(x, y, z, out, |a, b, c| bfe(a, b, c, 32, true)),
        BfeU64 => each3(x, y, z, out, |a, b, c| bfe(a, b, c, 64, false)),
        BfeS64 => each3(x, y, z, out, |a, b, c| bfe(a, b, c, 64, true)),
        Prmt => each3(x, y, z, out, prmt),
        // Funnel shifts move the 64-bit value {b, a}; left takes the upper half of the result.
        ShfLWrap => each3(x, y, z, out, |a, b, c| ((lo(b) << 32 | lo(a)) << (c & 31)) >> 32),
        ShfLClamp => each3(x, y, z, out, |a, b, c| ((lo(b) << 32 | lo(a)) << lo(c).min(32)) >> 32),
        ShfRWrap => each3(x, y, z, out, |a, b, c| lo((lo(b) << 32 | lo(a)) >> (c & 31))),
        ShfRClamp => each3(x, y, z, out, |a, b, c| lo((lo(b) << 32 | lo(a)) >> lo(c).min(32))),
        Lop3(table) => each3(x, y, z, out, |a, b, c| {
            let mut r = 0;
            for row in 0..8u8 {
                if table >> row & 1 != 0 {
                    let a = if row & 4 != 0 { a } else { !a };
                    let b = if row & 2 != 0 { b } else { !b };
                    let c = if row & 1 != 0 { c } else { !c };
                    r |= a & b & c;
                }
            }
            lo(r)
        }),
        Dp4aSS => each3(x, y, z, out, |a, b, c| dp4a(a, b, c, true, true)),
        Dp4aUU => each3(x, y, z, out, |a, b, c| dp4a(a, b, c, false, false)),
        Dp4aSU => each3(x, y, z, out, |a, b, c| dp4a(a, b, c, true, false)),
        Dp4aUS => each3(x, y, z, out, |a, b, c| dp4a(a, b, c, false, true)),
        SadU32 => each3(x, y, z, out, |a, b, c| u32s((a as u32).abs_diff(b as u32).wrapping_add(c as u32))),
        SadS32 => each3(x, y, z, out, |a, b, c| u32s((a as i32).abs_diff(b as i32).wrapping_add(c as u32))),
    }
}

/// Flushes subnormal single-precision values to zero of the same sign.
pub(crate) fn flush(x: &mut Lanes) {
    for v in x {
        if *v & 0x7f80_0000 == 0 {
            *v &= 0x8000_0000;
        }
    }
}

/// Clamps single-precision values to [0, 1]; NaN becomes 0.
pub(crate) fn saturate(x: &mut Lanes) {
    for v in x {
        let value = f(*v);
        *v = pf(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) });
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

impl Cmp {
    pub(crate) fn from_name(name: &str) -> Option<Cmp> {
        Some(match name {
            "eq" => Cmp::Eq,
            "ne" => Cmp::Ne,
            "lt" | "lo" => Cmp::Lt,
            "le" | "ls" => Cmp::Le,
            "gt" | "hi" => Cmp::Gt,
            "ge" | "hs" => Cmp::Ge,
            "equ" => Cmp::Equ,
            "neu" => Cmp::Neu,
            "ltu" => Cmp::Ltu,
            "leu" => Cmp::Leu,
            "gtu" => Cmp::Gtu,
            "geu" => Cmp::Geu,
            "num" => Cmp::Num,
            "nan" => Cmp::Nan,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CmpType {
    Unsigned(u32),
    Signed(u32),
    F32 { ftz: bool },
    F64,
}

impl CmpType {
    pub(crate) fn new(ty: Type, ftz: bool) -> Option<CmpType> {
        let bits = 8 * ty.bytes() as u32;
        Some(match ty {
            Type::F32 => CmpType::F32 { ftz },
            Type::F64 => CmpType::F64,
            _ if ftz || ty.is_float() || bits > 64 || ty == Type::Pred => return None,
            _ if ty.is_signed() => CmpType::Signed(bits),
            _ => CmpType::Unsigned(bits),
        })
    }
}

fn bits_of(x: &Lanes, y: &Lanes, g: impl Fn(u64, u64) -> bool) -> u32 {
    let mut mask = 0;
    for l in 0..32 {
        mask |= u32::from(g(x[l], y[l])) << l;
    }
    mask
}

fn compare_as<T: PartialOrd + Copy>(cmp: Cmp, x: &Lanes, y: &Lanes, read: impl Fn(u64) -> T) -> u32 {
    let num = |a: T, b: T| a.partial_cmp(&b).is_some();
    match cmp {
        Cmp::Eq => bits_of(x, y, |a, b| read(a) == read(b)),
        Cmp::Ne => bits_of(x, y, |a, b| read(a) != read(b) && num(read(a), read(b))),
        Cmp::Lt => bits_of(x, y, |a, b| read(a) < read(b)),
        Cmp::Le => bits_of(x, y, |a, b| read(a) <= read(b)),
        Cmp::Gt => bits_of(x, y, |a, b| read(a) > read(b)),
        Cmp::Ge => bits_of(x, y, |a, b| read(a) >= read(b)),
        Cmp::Equ => bits_of(x, y, |a, b| read(a) == read(b) || !num(read(a), read(b))),
        Cmp::Neu => bits_of(x, y, |a, b| read(a) != read(b)),
        Cmp::Ltu => bits_of(x, y, |a, b| read(a) < read(b) || !num(read(a), read(b))),
        Cmp::Leu => bits_of(x, y, |a, b| read(a) <= read(b) || !num(read(a), read(b))),
        Cmp::Gtu => bits_of(x, y, |a, b| read(a) > read(b) || !num(read(a), read(b))),
        Cmp::Geu => bits_of(x, y, |a, b| read(a) >= read(b) || !num(read(a), read(b))),
        Cmp::Num => bits_of(x, y, |a, b| num(read(a), read(b))),
        Cmp::Nan => bits_of(x, y, |a, b| !num(read(a), read(b))),
    }
}

/// Compares lane by lane; bit `l` of the result is lane `l`.
pub(crate) fn compare(cmp: Cmp, ty: CmpType, x: &Lanes, y: &Lanes) -> u32 {
    match ty {
        CmpType::Unsigned(64) => compare_as(cmp, x, y, |v| v),
        CmpType::Unsigned(32) => compare_as(cmp, x, y, |v| v as u32),
        CmpType::Unsigned(_) => compare_as(cmp, x, y, |v| v as u16),
        CmpType::Signed(64) => compare_as(cmp, x, y, |v| v as i64),
        CmpType::Signed(32) => compare_as(cmp, x, y, |v| v as i32),
        CmpType::Signed(_) => compare_as(cmp, x, y, |v| v as i16),
        CmpType::F32 { ftz: false } => compare_as(cmp, x, y, f),
        CmpType::F32 { ftz: true } => {
            let (mut x, mut y) = (*x, *y);
            flush(&mut x);
            flush(&mut y);
            compare_as(cmp, &x, &y, f)
        }
        CmpType::F64 => compare_as(cmp, x, y, d),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(op: TerOp, a: u64, b: u64, c: u64) -> u64 {
        let mut out = [0; 32];
        ternary(op, &[a; 32], &[b; 32], &[c; 32], &mut out);
        out[31]
    }

    fn two(op: BinOp, a: u64, b: u64) -> u64 {
        let mut out = [0; 32];
        binary(op, &[a; 32], &[b; 32], &mut out);
        out[31]
    }

    #[test]
    fn integers() {
        assert_eq!(two(BinOp::MulHiS32, 0xffff_ffff, 2), 0xffff_ffff);
        assert_eq!(two(BinOp::MulHiU32, 0xffff_ffff, 2), 1);
        assert_eq!(two(BinOp::MulWideS32, 0xffff_ffff, 4), (-4i64) as u64);
        assert_eq!(two(BinOp::ShrS32, 0x8000_0000, 40), 0xffff_ffff);
        assert_eq!(two(BinOp::Shl32, 1, 32), 0);
        assert_eq!(two(BinOp::DivS32, 7, 0xffff_fffe), 0xffff_fffd);
        assert_eq!(two(BinOp::RemS32, 0xffff_fff9, 4), 0xffff_fffd);
        assert_eq!(one(TerOp::BfeS32, 0xf0, 4, 4), 0xffff_ffff);
        assert_eq!(one(TerOp::BfeU32, 0xf0, 4, 4), 0xf);
        assert_eq!(bfi(0b101, 0xff, 2, 3, 32), 0b1111_0111);
        assert_eq!(one(TerOp::Prmt, 0x0403_0201, 0x0807_0605, 0x7531), 0x0806_0402);
        assert_eq!(one(TerOp::Prmt, 0x80, 0, 0x8888), 0xffff_ffff);
        assert_eq!(one(TerOp::ShfLWrap, 0x8000_0000, 1, 1), 3);
        assert_eq!(one(TerOp::ShfRWrap, 2, 1, 1), 0x8000_0001);
        assert_eq!(one(TerOp::Lop3(0x96), 0b1100, 0b1010, 0b1111), 0b1100 ^ 0b1010 ^ 0b1111);
        assert_eq!(one(TerOp::Dp4aSS, 0xff01_ff01, 0x0202_0303, 10), 10);
    }

    #[test]
    fn carries() {
        assert_eq!(carry(CarryOp::Add, 32, 0xffff_ffff, 0, 0, true), (0, true));
        assert_eq!(carry(CarryOp::Add, 64, u64::MAX, 1, 0, false), (0, true));
        assert_eq!(carry(CarryOp::Sub, 32, 0, 0, 0, true), (0xffff_ffff, true));
        assert_eq!(carry(CarryOp::Sub, 32, 5, 3, 0, true), (1, false));
        assert_eq!(carry(CarryOp::MadLo, 32, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff, false), (0, true));
        assert_eq!(carry(CarryOp::MadHi, 32, 0xffff_ffff, 0xffff_ffff, 1, true), (0, true));
        assert_eq!(carry(CarryOp::MadHi, 64, u64::MAX, 2, 0, false), (1, false));
    }

    #[test]
    fn fma_rounds_once() {
        let x = 1.0 + f32::EPSILON;
        let got = f32::from_bits(one(TerOp::FmaF32, pf(x), pf(x), pf(-1.0 - 2.0 * f32::EPSILON)) as u32);
        assert_eq!(got, f32::EPSILON * f32::EPSILON);
        let x = 1.0 + f64::EPSILON;
        let got = f64::from_bits(one(TerOp::FmaF64, pd(x), pd(x), pd(-1.0 - 2.0 * f64::EPSILON)));
        assert_eq!(got, f64::EPSILON * f64::EPSILON);
    }

    #[test]
    fn comparisons_know_nan_and_sign() {
        let (nan, one) = ([pf(f32::NAN); 32], [pf(1.0); 32]);
        let ty = CmpType::F32 { ftz: false };
        assert_eq!(compare(Cmp::Gt, ty, &nan, &one), 0);
        assert_eq!(compare(Cmp::Leu, ty, &nan, &one), u32::MAX);
        assert_eq!(compare(Cmp::Ne, ty, &nan, &one), 0);
        assert_eq!(compare(Cmp::Neu, ty, &nan, &one), u32::MAX);
        assert_eq!(compare(Cmp::Lt, CmpType::Signed(32), &[0xffff_ffff; 32], &[0; 32]), u32::MAX);
        assert_eq!(compare(Cmp::Lt, CmpType::Unsigned(32), &[0xffff_ffff; 32], &[0; 32]), 0);
    }

    #[test]
    fn minimum_prefers_numbers_and_negative_zero() {
        assert_eq!(two(BinOp::MinF32, pf(f32::NAN), pf(2.0)), pf(2.0));
        assert_eq!(two(BinOp::MinF32, pf(0.0), pf(-0.0)), pf(-0.0));
        assert_eq!(two(BinOp::MaxF32, pf(-0.0), pf(0.0)), pf(0.0));
        assert_eq!(two(BinOp::MaxNanF32, pf(f32::NAN), pf(2.0)), u64::from(CANONICAL_NAN));
    }
}
