//! Calls, barriers, warp operations and matrix products.

use super::kernel::Fill;
use super::op::{Address, BarrierKind, LocalCopy, Logic, Op, ShflMode, VoteMode, Wait};
use super::operand::{Decoded, Decoder, Mods, SCOPES, SPACES};
use crate::SimError;
use crate::alu::BinOp;
use crate::mma::MmaShape;
use crate::ptx::{Operand, Param, Space, Type};
use crate::stats::Class;

impl Decoder<'_> {
    /// `call (results), function, (arguments)`: the arguments are copied to the function's parameters, and its results
    /// back when it returns.
    pub(super) fn call(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        m.take("uni");
        let Some(at) = o.iter().position(|o| matches!(o, Operand::Symbol(..))) else {
            return self.fail("only direct calls");
        };
        let Operand::Symbol(name, _) = &o[at] else { return self.fail("only direct calls") };
        let Some(callee) = self.parts[1..].iter().find(|p| p.entry.name == *name) else {
            return self.fail(format!("function {name} is not defined"));
        };
        let copies = |list: Option<&Operand>, formal: &[Param], back: bool| -> Option<Vec<LocalCopy>> {
            let list: &[Operand] = match list {
                Some(Operand::Vector(v)) => v,
                _ => &[],
            };
            if list.len() != formal.len() {
                return None;
            }
            let one = |(o, p): (&Operand, &Param)| {
                let Operand::Symbol(name, 0) = o else { return None };
                let own = self.entry.variables.iter().map(|v| (&v.name, v.size));
                let formal = self.entry.params.iter().map(|p| (&p.name, p.size));
                let known = self.part > 0;
                own.chain(formal.filter(|_| known)).find(|(n, size)| *n == name && *size == p.size)?;
                let (outer, inner) = (self.symbol(name)? as usize, *callee.symbols.get(&p.name)? as usize);
                let (from, to) = if back { (inner, outer) } else { (outer, inner) };
                Some(LocalCopy { from, to, bytes: p.size })
            };
            list.iter().zip(formal).map(one).collect()
        };
        let results = if at > 0 { o.first() } else { None };
        let into = copies(o.get(at + 1), &callee.entry.params, false);
        let back = copies(results, &callee.entry.results, true);
        let (Some(into), Some(back)) = (into, back) else {
            return self.fail("arguments that are not those of the function");
        };
        Ok((Op::Call { target: callee.base, into, back }, Class::Branch))
    }

    pub(super) fn barrier(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        if m.take("warp") {
            m.take("sync");
            let Some(mask) = o.first() else { return self.fail("a member mask") };
            return Ok((Op::WarpSync { mask: self.src_as(mask, Type::B32)? }, Class::WarpSync));
        }
        m.take("cta");
        let aligned = m.take("aligned") || head == "bar";
        let red = m.take("red");
        let (kind, rest) = if red {
            let f = m.first(&[("and", Some(Logic::And)), ("or", Some(Logic::Or)), ("popc", None)]).flatten();
            m.take_any(&["pred", "u32"]);
            if o.len() < 3 {
                return self.fail("too few operands");
            }
            let (last, d) = (self.pred(&o[o.len() - 1])?, &o[0]);
            let kind = match f {
                Some(f) => BarrierKind::Test(f, self.pred(d)?.pred, last),
                None => BarrierKind::Popc(self.dst(d)?, last),
            };
            (kind, &o[1..o.len() - 1])
        } else if m.take("arrive") {
            (BarrierKind::Arrive, o)
        } else {
            m.take("sync");
            (BarrierKind::Sync, o)
        };
        let id = match rest.first() {
            Some(id) => self.src(id)?,
            None => self.fill(Fill::Value(0)),
        };
        let count = rest.get(1).map(|c| self.src(c)).transpose()?;
        if kind == BarrierKind::Arrive && count.is_none() {
            return self.fail("an arrival names its thread count");
        }
        Ok((Op::Barrier { kind, id, count, aligned }, Class::Barrier))
    }

    pub(super) fn collective(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        if head == "activemask" {
            self.ty(m)?;
            return Ok((Op::ActiveMask { d: self.dst(&o[0])? }, Class::Vote));
        }
        if !m.take("sync") {
            return self.fail("only the .sync form exists on these targets");
        }
        let ty = self.ty(m)?;
        let Some(last) = o.last() else { return self.fail("too few operands") };
        let mask = self.src_as(last, Type::B32)?;
        match head {
            "shfl" => {
                let Some(mode) = m.first(&[
                    ("idx", ShflMode::Idx),
                    ("up", ShflMode::Up),
                    ("down", ShflMode::Down),
                    ("bfly", ShflMode::Bfly),
                ]) else {
                    return self.fail("the shuffle mode");
                };
                let (d, p) = self.dst_pair(&o[0])?;
                let (a, b, c) =
                    (self.src_as(&o[1], ty)?, self.src_as(&o[2], Type::U32)?, self.src_as(&o[3], Type::U32)?);
                Ok((Op::Shfl { mode, d, p, a, b, c, mask }, Class::Shuffle))
            }
            "vote" => {
                let a = self.pred(&o[1])?;
                if m.take("ballot") {
                    return Ok((Op::Ballot { d: self.dst(&o[0])?, a, mask }, Class::Vote));
                }
                let Some(mode) =
                    m.first(&[("all", VoteMode::All), ("any", VoteMode::Any), ("uni", VoteMode::Uni)])
                else {
                    return self.fail("the vote mode");
                };
                Ok((Op::Vote { mode, d: self.pred(&o[0])?.pred, a, mask }, Class::Vote))
            }
            "match" => {
                let all = m.take("all");
                if !all && !m.take("any") {
                    return self.fail("the match mode");
                }
                let (d, p) = self.dst_pair(&o[0])?;
                Ok((Op::Match { all, d, p, a: self.src_as(&o[1], ty)?, mask }, Class::Vote))
            }
            _ => {
                use BinOp::*;
                let signed = ty.is_signed();
                let f = match m.pop() {
                    Some("add") => Add32,
                    Some("min") if signed => MinS32,
                    Some("min") => MinU,
                    Some("max") if signed => MaxS32,
                    Some("max") => MaxU,
                    Some("and") => And,
                    Some("or") => Or,
                    Some("xor") => Xor,
                    _ => return self.fail("the reduction"),
                };
                if ty.is_float() {
                    return self.fail("reductions of floating-point values");
                }
                Ok((Op::Redux { f, d: self.dst(&o[0])?, a: self.src_as(&o[1], ty)?, mask }, Class::Vote))
            }
        }
    }

    pub(super) fn mbarrier(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        if self.ty(m)?.bytes() != 8 {
            return self.fail("barriers are 64 bits wide");
        }
        m.take_any(SCOPES);
        m.take_any(&["acquire", "release", "relaxed"]);
        let class = Class::Barrier;
        let one = self.fill(Fill::Value(1));
        if m.take("init") {
            let Some(count) = o.get(1) else { return self.fail("a count was expected") };
            return Ok((
                Op::PhaseInit { at: self.shared_address(m, o.first())?, count: self.src(count)? },
                class,
            ));
        }
        if m.take("inval") {
            return Ok((Op::PhaseInval { at: self.shared_address(m, o.first())? }, class));
        }
        if m.take("test_wait") || m.take("try_wait") {
            let parity = m.take("parity");
            let (Some(p), Some(value)) = (o.first(), o.get(2)) else { return self.fail("too few operands") };
            let row = self.src(value)?;
            let wait = if parity { Wait::Parity(row) } else { Wait::Token(row) };
            let p = self.pred(p)?.pred;
            return Ok((Op::PhaseWait { at: self.shared_address(m, o.get(1))?, p, wait }, class));
        }
        let arrive = m.take("arrive");
        let announce = m.take("expect_tx");
        let no_complete = m.0.contains(&"noComplete");
        if no_complete || !(arrive || announce) {
            return self.fail("this operation on a barrier");
        }
        let (d, rest) = match o.first() {
            Some(Operand::Address(..)) | None => (None, o),
            Some(d) => (Some(self.dst(d)?), &o[1..]),
        };
        let at = self.shared_address(m, rest.first())?;
        let value = rest.get(1).map(|v| self.src(v)).transpose()?;
        let (count, bytes) = match (arrive, announce) {
            (true, false) => (Some(value.unwrap_or(one)), None),
            (arrive, _) => (arrive.then_some(one), value),
        };
        Ok((Op::PhaseArrive { at, d, count, bytes }, class))
    }

    /// An address in shared memory, by name or generic.
    pub(super) fn shared_address(
        &mut self,
        m: &mut Mods<'_>,
        o: Option<&Operand>,
    ) -> Result<Address, SimError> {
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        match o {
            Some(o) if matches!(space, Space::Shared | Space::Generic) => self.address(o, space),
            _ => self.fail("an address in shared memory was expected"),
        }
    }

    pub(super) fn mma(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let known = m.take("sync") & m.take("aligned") & m.take("row") & m.take("col");
        let (tc, tb, ta, td) = (self.ty(m)?, self.ty(m)?, self.ty(m)?, self.ty(m)?);
        let sat = m.take("satfinite");
        m.take("rn");
        let extent = m.pop().unwrap_or_default();
        let shape = MmaShape::new(extent, ta, tb, td);
        let (Some(shape), true) = (shape, known && tc == td && !sat) else {
            return self.fail("this shape and these types");
        };
        let (d, a, b, c) = (self.rows(&o[0])?, self.rows(&o[1])?, self.rows(&o[2])?, self.rows(&o[3])?);
        let (na, nb, nc) = shape.registers();
        if (a.len(), b.len(), c.len(), d.len()) != (na, nb, nc, nc) {
            return self.fail(format!("fragments of {na}, {nb} and {nc} registers were expected"));
        }
        Ok((Op::Mma { shape, d, a, b, c }, Class::Matrix))
    }
}
