//! Instructions as they run: an enum with register rows, decoded from the parsed text before a launch.
//!
//! A warp's registers are rows of 32 lanes. Literals, variable addresses and special registers become rows
//! too, filled once when a warp starts, so that every source operand is a row. Predicates are 32-bit masks,
//! one bit a lane. An opcode, modifier or operand that is not known is an error with its line.

mod arithmetic;
mod control;
mod kernel;
mod memory;
mod op;
mod operand;

pub(crate) use kernel::{Fill, Kernel};
pub(crate) use op::{
    Address, AtomOp, BarrierKind, CARRY, Loaded, LocalCopy, Logic, Op, PredRef, Row, ShflMode, Strength,
    VoteMode, Wait,
};

use crate::SimError;
use crate::ptx::{Instruction, Operand, Type};
use crate::stats::Class;
use kernel::Inst;
use operand::{Decoded, Decoder, Mods, SCOPES};

impl Decoder<'_> {
    pub(super) fn instruction(&mut self, i: &Instruction) -> Result<Inst, SimError> {
        self.line = i.line;
        self.opcode.clone_from(&i.opcode);
        let guard = i.guard.map(|g| PredRef { pred: self.register[g.reg.0 as usize], negated: g.negated });
        let mut parts = i.opcode.split('.');
        let head = parts.next().unwrap_or_default();
        let mut mods = Mods(parts.collect());
        let (op, class) = self.operation(head, &mut mods, &i.operands)?;
        if let Some(left) = mods.0.first() {
            return self.fail(format!("modifier .{left}"));
        }
        Ok(Inst { guard, op, class })
    }

    pub(super) fn operation(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let expected = match head {
            "ret" | "exit" | "trap" | "nop" | "membar" | "fence" => 0,
            "bra" | "activemask" => 1,
            "mov" | "cvta" | "ld" | "ldu" | "st" | "neg" | "abs" | "not" | "popc" | "clz" | "brev"
            | "bfind" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "cvt"
            | "ldmatrix" | "stmatrix" => 2,
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr"
            | "setp" | "copysign" | "vote" | "match" | "redux" => 3,
            "mad" | "fma" | "selp" | "bfe" | "prmt" | "shf" | "mma" | "dp4a" | "sad" => 4,
            "bfi" | "lop3" | "shfl" => 5,
            _ => 0,
        };
        if o.len() < expected {
            return self.fail(format!("{expected} operands were expected, {} are there", o.len()));
        }
        match head {
            "addc" | "subc" | "madc" => self.carry(head, m, o),
            "add" | "sub" | "mad" if m.0.contains(&"cc") => self.carry(head, m, o),
            "mov" => self.mov(m, o),
            "cvta" => self.cvta(m, o),
            "ld" | "ldu" => self.ld(m, o),
            "st" => self.st(m, o),
            "atom" | "red" => self.atom(head, m, o),
            "neg" | "abs" | "not" | "popc" | "clz" | "brev" | "bfind" | "rcp" | "sqrt" | "rsqrt" | "ex2"
            | "lg2" | "sin" | "cos" | "tanh" => self.unary(head, m, o),
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr"
            | "copysign" => self.binary(head, m, o),
            "mad" | "fma" | "bfe" | "prmt" | "shf" | "dp4a" | "sad" => self.ternary(head, m, o),
            "lop3" => self.lop3(m, o),
            "bfi" => {
                let ty = self.ty(m)?;
                let bits = 8 * ty.bytes() as u32;
                let (d, a, b) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?);
                Ok((Op::Bfi { d, a, b, pos: self.src(&o[3])?, len: self.src(&o[4])?, bits }, Class::Integer))
            }
            "cvt" => self.cvt(m, o),
            "setp" => self.setp(m, o),
            "selp" => {
                let ty = self.ty(m)?;
                let (d, a, b) = (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?);
                Ok((Op::Selp { d, a, b, p: self.pred(&o[3])? }, Class::Predicate))
            }
            "bra" => {
                m.take("uni");
                Ok((Op::Bra { target: self.label(&o[0])? }, Class::Branch))
            }
            "brx" => {
                let (true, [index, Operand::Symbol(table, 0)]) = (m.take("idx"), o) else {
                    return self.fail("an index and a list of targets were expected");
                };
                m.take("uni");
                let Some(names) = self.entry.branch_targets.get(table) else {
                    return self.fail(format!("{table} is not a list of targets"));
                };
                let targets: Result<Vec<usize>, SimError> =
                    names.iter().map(|n| self.label(&Operand::Symbol(n.clone(), 0))).collect();
                Ok((Op::BranchTable { targets: targets?, index: self.src(index)? }, Class::Branch))
            }
            "call" => self.call(m, o),
            "ret" if self.part > 0 => {
                m.take("uni");
                Ok((Op::Return, Class::Branch))
            }
            "ret" | "exit" => {
                m.take("uni");
                Ok((Op::Exit, Class::Branch))
            }
            "trap" => Ok((Op::Trap, Class::Branch)),
            "nanosleep" => {
                self.ty(m)?;
                Ok((Op::Yield, Class::Branch))
            }
            "mbarrier" => self.mbarrier(m, o),
            "elect" => {
                if !m.take("sync") || o.len() != 2 {
                    return self.fail("elect.sync with a result and a mask");
                }
                let (d, p) = self.dst_pair(&o[0])?;
                Ok((Op::Elect { d, p, mask: self.src_as(&o[1], Type::B32)? }, Class::Vote))
            }
            "nop" | "prefetch" | "griddepcontrol" | "setmaxnreg" => {
                m.0.clear();
                Ok((Op::Nop, Class::Move))
            }
            "bar" | "barrier" => self.barrier(head, m, o),
            "shfl" | "vote" | "match" | "redux" | "activemask" => self.collective(head, m, o),
            "ldmatrix" | "stmatrix" => self.matrix_access(head, m, o),
            "mma" => self.mma(m, o),
            "cp" => self.cp_async(m, o),
            "membar" | "fence" => {
                m.take_any(SCOPES);
                m.take_any(&["gl", "acq_rel", "sc", "acquire", "release", "proxy", "async", "mbarrier_init"]);
                m.take_any(&["async::global", "async::shared::cta", "shared::cta", "alias"]);
                Ok((Op::Fence, Class::Fence))
            }
            _ => self.fail("unknown opcode"),
        }
    }
}
