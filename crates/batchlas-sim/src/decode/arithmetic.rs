//! Arithmetic, logic, conversions and comparisons.

use super::kernel::Fill;
use super::op::{Logic, Op, PredRef};
use super::operand::{Decoded, Decoder, Mods};
use crate::alu::{BinOp, CarryOp, Cmp, CmpType, CvtSpec, Round, TerOp, UnOp};
use crate::ptx::{Operand, Type};
use crate::stats::Class;

impl Decoder<'_> {
    pub(super) fn mov(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        if ty == Type::Pred {
            let Some(d) = self.pred_dst(&o[0])? else { return Ok((Op::Nop, Class::Move)) };
            return Ok((Op::MovPred { d, a: self.pred(&o[1])? }, Class::Predicate));
        }
        let parts = match (&o[0], &o[1]) {
            (Operand::Vector(v), _) | (_, Operand::Vector(v)) => v.len(),
            _ => return Ok((Op::Mov { d: self.dst(&o[0])?, a: self.src_as(&o[1], ty)? }, Class::Move)),
        };
        self.check_vector(ty, parts)?;
        let bits = (8 * ty.bytes() / parts) as u32;
        if !matches!(bits, 8 | 16 | 32 | 64) {
            return self.fail(format!("{parts} parts of {} bytes", ty.bytes()));
        }
        let op = match (&o[0], &o[1]) {
            (Operand::Vector(_), a) => Op::Unpack { d: self.dst_list(&o[0])?, a: self.src(a)?, bits },
            (d, _) => Op::Pack { d: self.dst(d)?, a: self.rows(&o[1])?, bits },
        };
        Ok((op, Class::Move))
    }

    pub(super) fn unary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        if head == "not" && ty == Type::Pred {
            let Some(d) = self.pred_dst(&o[0])? else { return Ok((Op::Nop, Class::Predicate)) };
            let a = self.pred(&o[1])?;
            return Ok((Op::MovPred { d, a: PredRef { negated: !a.negated, ..a } }, Class::Predicate));
        }
        let approx = m.take("approx");
        let rounded = m.take("rn");
        let ftz = m.take("ftz");
        let bits = ty.bytes() * 8;
        use UnOp::*;
        let (f, class) = match (head, ty) {
            ("neg", Type::F32) => (NegF32, Class::Fp32),
            ("neg", Type::F64) => (NegF64, Class::Fp64),
            ("abs", Type::F32) => (AbsF32, Class::Fp32),
            ("abs", Type::F64) => (AbsF64, Class::Fp64),
            ("neg", Type::S16) => (Neg16, Class::Integer),
            ("neg", Type::S32) => (Neg32, Class::Integer),
            ("neg", Type::S64) => (Neg64, Class::Integer),
            ("abs", Type::S32) => (Abs32, Class::Integer),
            ("abs", Type::S64) => (Abs64, Class::Integer),
            ("not", _) if bits == 16 => (Not16, Class::Integer),
            ("not", _) if bits == 32 => (Not32, Class::Integer),
            ("not", _) if bits == 64 => (Not64, Class::Integer),
            ("popc", _) => (Popc, Class::Integer),
            ("clz", _) if bits == 32 => (Clz32, Class::Integer),
            ("clz", _) if bits == 64 => (Clz64, Class::Integer),
            ("brev", _) if bits == 32 => (Brev32, Class::Integer),
            ("brev", _) if bits == 64 => (Brev64, Class::Integer),
            ("bfind", Type::U32) => (if m.take("shiftamt") { BfindShift32 } else { Bfind32 }, Class::Integer),
            ("bfind", Type::U64) => (if m.take("shiftamt") { BfindShift64 } else { Bfind64 }, Class::Integer),
            ("rcp", Type::F32) if approx || rounded => (RcpF32, Class::Special),
            ("rcp", Type::F64) if rounded || (approx && ftz) => {
                (if rounded { RcpF64 } else { RcpApproxF64 }, Class::Special)
            }
            ("sqrt", Type::F32) if approx || rounded => (SqrtF32, Class::Special),
            ("sqrt", Type::F64) if rounded => (SqrtF64, Class::Special),
            ("rsqrt", Type::F32) if approx => (RsqrtF32, Class::Special),
            ("rsqrt", Type::F64) if approx => (if ftz { RsqrtApproxF64 } else { RsqrtF64 }, Class::Special),
            ("ex2", Type::F32) if approx => (Ex2F32, Class::Special),
            ("lg2", Type::F32) if approx => (Lg2F32, Class::Special),
            ("sin", Type::F32) if approx => (SinF32, Class::Special),
            ("cos", Type::F32) if approx => (CosF32, Class::Special),
            ("tanh", Type::F32) if approx => (TanhF32, Class::Special),
            _ => return self.fail("this operation on this type"),
        };
        let (d, a) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?);
        if ftz && ty == Type::F32 {
            // A subnormal result can only come out of rcp, ex2 and abs/neg: flush after the operation too.
            let b = self.fill(Fill::Value(0));
            return Ok((Op::Bin { f: BinOp::Unary(f), ftz: true, sat: false, d, a, b }, class));
        }
        Ok((Op::Un { f, d, a }, class))
    }

    pub(super) fn binary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        use BinOp::*;
        if ty == Type::Pred {
            let f = match head {
                "and" => Logic::And,
                "or" => Logic::Or,
                "xor" => Logic::Xor,
                _ => return self.fail("this operation on predicates"),
            };
            let Some(d) = self.pred_dst(&o[0])? else { return Ok((Op::Nop, Class::Predicate)) };
            return Ok((
                Op::LogicPred { f, d, a: self.pred(&o[1])?, b: self.pred(&o[2])? },
                Class::Predicate,
            ));
        }
        let (mut ftz, mut sat, mut class) = (false, false, Class::Integer);
        let signed = ty.is_signed();
        let f = if ty.is_float() {
            ftz = m.take("ftz");
            sat = m.take("sat");
            m.take("rn");
            class = if ty == Type::F64 { Class::Fp64 } else { Class::Fp32 };
            if head == "div" {
                m.take_any(&["approx", "full"]);
                class = Class::Special;
            }
            let nan = matches!(head, "min" | "max") && m.take("NaN");
            match (head, ty) {
                ("add", Type::F32) => AddF32,
                ("sub", Type::F32) => SubF32,
                ("mul", Type::F32) => MulF32,
                ("div", Type::F32) => DivF32,
                ("min", Type::F32) => {
                    if nan {
                        MinNanF32
                    } else {
                        MinF32
                    }
                }
                ("max", Type::F32) => {
                    if nan {
                        MaxNanF32
                    } else {
                        MaxF32
                    }
                }
                ("copysign", Type::F32) => CopysignF32,
                ("add", Type::F64) => AddF64,
                ("sub", Type::F64) => SubF64,
                ("mul", Type::F64) => MulF64,
                ("div", Type::F64) => DivF64,
                ("min", Type::F64) => MinF64,
                ("max", Type::F64) => MaxF64,
                ("copysign", Type::F64) => CopysignF64,
                ("add", Type::F16x2) => AddF16x2,
                ("sub", Type::F16x2) => SubF16x2,
                ("mul", Type::F16x2) => MulF16x2,
                ("add", Type::F16) => AddF16x2,
                ("sub", Type::F16) => SubF16x2,
                ("mul", Type::F16) => MulF16x2,
                _ => return self.fail("this operation on this type"),
            }
        } else {
            let (lo, hi, wide) = (m.take("lo"), m.take("hi"), m.take("wide"));
            match (head, ty.bytes(), signed) {
                ("add", 2, _) => Add16,
                ("add", 4, _) => Add32,
                ("add", 8, _) => Add64,
                ("sub", 2, _) => Sub16,
                ("sub", 4, _) => Sub32,
                ("sub", 8, _) => Sub64,
                ("mul", 2, _) if lo => Mul16,
                ("mul", 4, _) if lo => Mul32,
                ("mul", 8, _) if lo => Mul64,
                ("mul", 2, false) if hi => MulHiU16,
                ("mul", 2, true) if hi => MulHiS16,
                ("mul", 4, false) if hi => MulHiU32,
                ("mul", 4, true) if hi => MulHiS32,
                ("mul", 8, false) if hi => MulHiU64,
                ("mul", 8, true) if hi => MulHiS64,
                ("mul", 2, false) if wide => MulWideU16,
                ("mul", 2, true) if wide => MulWideS16,
                ("mul", 4, false) if wide => MulWideU32,
                ("mul", 4, true) if wide => MulWideS32,
                ("div", 2, false) => DivU16,
                ("div", 2, true) => DivS16,
                ("div", 4, false) => DivU32,
                ("div", 4, true) => DivS32,
                ("div", 8, false) => DivU64,
                ("div", 8, true) => DivS64,
                ("rem", 2, false) => RemU16,
                ("rem", 2, true) => RemS16,
                ("rem", 4, false) => RemU32,
                ("rem", 4, true) => RemS32,
                ("rem", 8, false) => RemU64,
                ("rem", 8, true) => RemS64,
                ("min", 2, false) | ("min", 4, false) | ("min", 8, false) => MinU,
                ("max", 2, false) | ("max", 4, false) | ("max", 8, false) => MaxU,
                ("min", 2, true) => MinS16,
                ("max", 2, true) => MaxS16,
                ("min", 4, true) => MinS32,
                ("max", 4, true) => MaxS32,
                ("min", 8, true) => MinS64,
                ("max", 8, true) => MaxS64,
                ("and", ..) => And,
                ("or", ..) => Or,
                ("xor", ..) => Xor,
                ("shl", 2, _) => Shl16,
                ("shl", 4, _) => Shl32,
                ("shl", 8, _) => Shl64,
                ("shr", 2, false) => ShrU16,
                ("shr", 2, true) => ShrS16,
                ("shr", 4, false) => ShrU32,
                ("shr", 4, true) => ShrS32,
                ("shr", 8, false) => ShrU64,
                ("shr", 8, true) => ShrS64,
                _ => return self.fail("this operation on this type"),
            }
        };
        let amount = matches!(head, "shl" | "shr");
        let b_ty = if amount { Type::U32 } else { ty };
        let (d, a, b) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], b_ty)?);
        Ok((Op::Bin { f, ftz, sat, d, a, b }, class))
    }

    pub(super) fn carry(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let (reads, writes) = (head.ends_with('c'), m.take("cc"));
        let (lo, hi) = (m.take("lo"), m.take("hi"));
        let f = match (head, lo, hi, ty.is_signed()) {
            ("add" | "addc", false, false, _) => CarryOp::Add,
            ("sub" | "subc", false, false, _) => CarryOp::Sub,
            ("mad" | "madc", true, false, _) => CarryOp::MadLo,
            ("mad" | "madc", false, true, false) => CarryOp::MadHi,
            _ => return self.fail("this multi-word operation"),
        };
        let last = if head.starts_with("mad") { 3 } else { 2 };
        if o.len() != last + 1 || ty.is_float() || !matches!(ty.bytes(), 4 | 8) {
            return self.fail("these operands");
        }
        let (d, a, b) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?);
        let (c, bits) = (self.src_as(&o[last], ty)?, 8 * ty.bytes() as u32);
        Ok((Op::Carry { f, bits, d, a, b, c, reads, writes }, Class::Integer))
    }

    pub(super) fn ternary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        use TerOp::*;
        let (mut ftz, mut sat, mut class) = (false, false, Class::Integer);
        let mut c_ty = ty;
        let f = match (head, ty) {
            ("fma" | "mad", Type::F32 | Type::F64 | Type::F16x2 | Type::F16 | Type::Bf16x2) => {
                if !m.take("rn") {
                    return self.fail("only round-to-nearest is implemented");
                }
                ftz = m.take("ftz");
                sat = m.take("sat");
                class = if ty == Type::F64 { Class::Fp64 } else { Class::Fp32 };
                match ty {
                    Type::F32 => FmaF32,
                    Type::F64 => FmaF64,
                    Type::Bf16x2 => FmaBf16x2,
                    _ => FmaF16x2,
                }
            }
            ("mad", _) => {
                let (lo, hi, wide) = (m.take("lo"), m.take("hi"), m.take("wide"));
                if wide {
                    c_ty = Type::U64;
                }
                match (ty.bytes(), ty.is_signed()) {
                    (2, _) if lo => MadLo16,
                    (4, _) if lo => MadLo32,
                    (8, _) if lo => MadLo64,
                    (4, false) if hi => MadHiU32,
                    (4, true) if hi => MadHiS32,
                    (4, false) if wide => MadWideU32,
                    (4, true) if wide => MadWideS32,
                    (2, false) if wide => MadWideU16,
                    (2, true) if wide => MadWideS16,
                    _ => return self.fail("this multiply-add"),
                }
            }
            ("bfe", Type::U32) => BfeU32,
            ("bfe", Type::S32) => BfeS32,
            ("bfe", Type::U64) => BfeU64,
            ("bfe", Type::S64) => BfeS64,
            ("prmt", Type::B32) => Prmt,
            ("shf", Type::B32) => match (m.take("l"), m.take("r"), m.take("wrap"), m.take("clamp")) {
                (true, false, true, false) => ShfLWrap,
                (true, false, false, true) => ShfLClamp,
                (false, true, true, false) => ShfRWrap,
                (false, true, false, true) => ShfRClamp,
                _ => return self.fail("funnel shift mode"),
            },
            ("dp4a", _) => {
                let a_ty = m.pop();
                match (a_ty, ty) {
                    (Some("s32"), Type::S32) => Dp4aSS,
                    (Some("u32"), Type::U32) => Dp4aUU,
                    (Some("u32"), Type::S32) => Dp4aUS,
                    (Some("s32"), Type::U32) => Dp4aSU,
                    _ => return self.fail("operand types"),
                }
            }
            ("sad", Type::U32) => SadU32,
            ("sad", Type::S32) => SadS32,
            _ => return self.fail("this operation on this type"),
        };
        let field = head == "bfe";
        if field {
            c_ty = Type::U32;
        }
        let b_ty = if field { Type::U32 } else { ty };
        let (d, a) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?);
        let (b, c) = (self.src_as(&o[2], b_ty)?, self.src_as(&o[3], c_ty)?);
        Ok((Op::Ter { f, ftz, sat, d, a, b, c }, class))
    }

    pub(super) fn lop3(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let Operand::Imm(table) = o[4] else { return self.fail("the table must be a literal") };
        let (d, a, b, c) =
            (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?, self.src_as(&o[3], ty)?);
        Ok((Op::Ter { f: TerOp::Lop3(table as u8), ftz: false, sat: false, d, a, b, c }, Class::Integer))
    }

    pub(super) fn cvt(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let from = self.ty(m)?;
        if m.0.last() == Some(&"bf16x2") || m.0.last() == Some(&"f16x2") {
            // Two f32 into one packed register: the first source is the upper half.
            let to = self.ty(m)?;
            if !m.take("rn") || from != Type::F32 || o.len() != 3 {
                return self.fail("only cvt.rn from two f32");
            }
            let (d, a, b) = (self.dst(&o[0])?, self.src_as(&o[1], from)?, self.src_as(&o[2], from)?);
            let f = if to == Type::Bf16x2 { BinOp::PackBf16x2 } else { BinOp::PackF16x2 };
            return Ok((Op::Bin { f, ftz: false, sat: false, d, a, b }, Class::Convert));
        }
        let to = self.ty(m)?;
        let round = m
            .first(&[
                ("rn", Round::Nearest),
                ("rna", Round::NearestAway),
                ("rz", Round::Zero),
                ("rm", Round::Down),
                ("rp", Round::Up),
                ("rni", Round::Nearest),
                ("rzi", Round::Zero),
                ("rmi", Round::Down),
                ("rpi", Round::Up),
            ])
            .unwrap_or(Round::Zero);
        let (sat, ftz) = (m.take("sat"), m.take("ftz"));
        let (d, a) = (self.dst(&o[0])?, self.src_as(&o[1], from)?);
        let mut to_bits = 8 * to.bytes();
        if let Operand::Reg(id) = &o[0] {
            to_bits = to_bits.max(8 * self.entry.registers[id.0 as usize].ty.bytes());
        }
        let Some(spec) = CvtSpec::new(from, to, round, sat, ftz, to_bits as u32) else {
            return self.fail("this conversion");
        };
        Ok((Op::Cvt { spec, d, a }, Class::Convert))
    }

    pub(super) fn setp(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let ftz = m.take("ftz");
        let logic = m.first(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        let Some(cmp) = m.pop().and_then(Cmp::from_name) else { return self.fail("the comparison") };
        let Some(cmp_ty) = CmpType::new(ty, ftz) else { return self.fail("this type") };
        let (d, q) = match &o[0] {
            Operand::Pair(d, q) => (self.pred_dst(d)?, self.pred_dst(q)?),
            d => (self.pred_dst(d)?, None),
        };
        let (a, b) = (self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?);
        let with = match (logic, o.get(3)) {
            (Some(f), Some(c)) => Some((f, self.pred(c)?)),
            (None, None) => None,
            _ => return self.fail("the predicate to combine with"),
        };
        Ok((Op::Setp { cmp, ty: cmp_ty, d, q, a, b, with }, Class::Predicate))
    }
}
