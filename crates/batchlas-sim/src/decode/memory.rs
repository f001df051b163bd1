//! Loads, stores, atomics, asynchronous copies and address conversions.

use super::kernel::Fill;
use super::op::{AtomOp, Loaded, Op, Strength};
use super::operand::{CACHE_HINTS, Decoded, Decoder, Mods, SCOPES, SPACES};
use crate::alu::BinOp;
use crate::ptx::{Operand, Space, Type};
use crate::stats::Class;

impl Decoder<'_> {
    pub(super) fn cvta(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let to = m.take("to");
        let Some(space) = m.first(SPACES) else { return self.fail("a state space was expected") };
        let (d, a) = (self.dst(&o[0])?, self.src(&o[1])?);
        if ty.bytes() != 8 {
            return self.fail("addresses are 64 bits wide");
        }
        let window = crate::mem::window(space);
        if window == 0 {
            return Ok((Op::Mov { d, a }, Class::Move));
        }
        let b = self.fill(Fill::Value(window));
        let f = if to { BinOp::Sub64 } else { BinOp::Add64 };
        Ok((Op::Bin { f, ftz: false, sat: false, d, a, b }, Class::Integer))
    }

    pub(super) fn strength(&self, m: &mut Mods<'_>) -> Strength {
        m.take_any(SCOPES);
        m.take("weak");
        if m.take("nc") {
            Strength::NonCoherent
        } else if m.take_any(&["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]) {
            Strength::Strong
        } else {
            Strength::Weak
        }
    }

    pub(super) fn access_class(space: Space, store: bool) -> Class {
        match (space, store) {
            (Space::Shared, false) => Class::LoadShared,
            (Space::Shared, true) => Class::StoreShared,
            (Space::Local, _) => Class::Local,
            (Space::Const | Space::Param, _) => Class::Constant,
            (_, false) => Class::LoadGlobal,
            (_, true) => Class::StoreGlobal,
        }
    }

    pub(super) fn ld(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let strength = self.strength(m);
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        m.take_any(CACHE_HINTS);
        m.take_any(&["v2", "v4", "v8"]);
        let d = self.dst_list(&o[0])?;
        self.check_vector(ty, d.len())?;
        let all = (0, d.len() * ty.bytes());
        let kept = if strength == Strength::Strong { all } else { self.kept(&o[0], ty.bytes()) };
        let value = Loaded { bytes: ty.bytes(), signed_to: self.signed_to(ty, &o[0]), kept };
        let class = Self::access_class(space, false);
        let space = if space == Space::Param { self.param_space(&o[1]) } else { space };
        if space == Space::Param {
            let named = match &o[1] {
                Operand::Address(base, offset) => match &**base {
                    Operand::Symbol(name, _) => Some((name, *offset)),
                    _ => None,
                },
                _ => None,
            };
            if let Some((name, offset)) = named {
                let Some(param) = self.entry.params.iter().find(|p| p.name == *name) else {
                    return self.fail(format!("{name} is not a parameter"));
                };
                let end = offset.saturating_add((d.len() * ty.bytes()) as i64);
                if offset < 0 || end > param.size as i64 {
                    return self
                        .fail(format!("bytes {offset}..{end} of parameter {name} of {} bytes", param.size));
                }
                return Ok((Op::LdParam { d, value, offset: param.offset + offset as usize }, class));
            }
        }
        Ok((Op::Ld { at: self.address(&o[1], space)?, d, value, strength }, class))
    }

    pub(super) fn st(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let strength = self.strength(m);
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        m.take_any(CACHE_HINTS);
        m.take_any(&["v2", "v4", "v8"]);
        let space = if space == Space::Param { self.param_space(&o[0]) } else { space };
        let at = self.address(&o[0], space)?;
        self.check_vector(ty, self.list(&o[1]).len())?;
        Ok((Op::St { at, a: self.src_list(&o[1], ty)?, ty, strength }, Self::access_class(space, true)))
    }

    pub(super) fn atom(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        self.strength(m);
        m.take_any(CACHE_HINTS);
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        let Some(f) = m.first(&[
            ("add", AtomOp::Add),
            ("min", AtomOp::Min),
            ("max", AtomOp::Max),
            ("and", AtomOp::And),
            ("or", AtomOp::Or),
            ("xor", AtomOp::Xor),
            ("exch", AtomOp::Exch),
            ("cas", AtomOp::Cas),
            ("inc", AtomOp::Inc),
            ("dec", AtomOp::Dec),
        ]) else {
            return self.fail("an atomic operation was expected");
        };
        let known = match f {
            AtomOp::Add => {
                matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64 | Type::F32 | Type::F64)
            }
            AtomOp::Min | AtomOp::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            AtomOp::Inc | AtomOp::Dec => ty == Type::U32,
            _ => matches!(ty.bytes(), 4 | 8),
        };
        if !known {
            return self.fail("this operation on this type");
        }
        let (d, rest) = if head == "atom" {
            (Some(self.dst(o.first().unwrap_or(&Operand::Sink))?), o.get(1..).unwrap_or(&[]))
        } else {
            (None, o)
        };
        if rest.len() < 2 + usize::from(f == AtomOp::Cas) {
            return self.fail("too few operands");
        }
        let at = self.address(&rest[0], space)?;
        let b = self.src_as(&rest[1], ty)?;
        let c = if f == AtomOp::Cas { self.src_as(&rest[2], ty)? } else { b };
        Ok((Op::Atom { at, f, ty, d, b, c }, Class::Atomic))
    }

    pub(super) fn matrix_access(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let known = m.take("sync") & m.take("aligned") & m.take("m8n8") & (ty == Type::B16);
        let trans = m.take("trans");
        let Some(space) = m.first(SPACES) else { return self.fail("the shared space") };
        let Some(count) = m.first(&[("x1", 1), ("x2", 2), ("x4", 4)]) else { return self.fail("the count") };
        if !known || space != Space::Shared {
            return self.fail("only m8n8 b16 in shared memory");
        }
        let (list, at) = if head == "ldmatrix" { (&o[0], &o[1]) } else { (&o[1], &o[0]) };
        let at = self.address(at, space)?;
        let rows = self.rows(list)?;
        if rows.len() != count {
            return self.fail(format!("{count} registers were expected"));
        }
        Ok(if head == "ldmatrix" {
            (Op::LdMatrix { at, d: rows, trans }, Class::LoadShared)
        } else {
            (Op::StMatrix { at, a: rows, trans }, Class::StoreShared)
        })
    }

    pub(super) fn cp_bulk(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let known = m.take("mbarrier::complete_tx::bytes") & m.take("global");
        let shared = m.take("shared::cluster") | m.take("shared::cta");
        let (true, true, [to, from, bytes, bar]) = (known, shared, o) else {
            return self.fail("only copies from global to shared memory that complete on a barrier");
        };
        let (to, from) = (self.address(to, Space::Shared)?, self.address(from, Space::Global)?);
        Ok((
            Op::CpBulk { to, from, bytes: self.src(bytes)?, bar: self.address(bar, Space::Shared)? },
            Class::Async,
        ))
    }

    pub(super) fn cp_async(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        if !m.take("async") {
            return self.fail("only cp.async");
        }
        if m.take("mbarrier") {
            let extra = !m.take("noinc");
            if !m.take("arrive") || self.ty(m)?.bytes() != 8 {
                return self.fail("cp.async.mbarrier.arrive on a 64-bit barrier");
            }
            let at = self.shared_address(m, o.first())?;
            return Ok((Op::CpTrack { at, extra }, Class::Async));
        }
        if m.take("bulk") {
            return self.cp_bulk(m, o);
        }
        if m.take("commit_group") {
            return Ok((Op::CpCommit, Class::Async));
        }
        if m.take("wait_all") {
            return Ok((Op::CpWait(None), Class::Async));
        }
        if m.take("wait_group") {
            let Some(Operand::Imm(n)) = o.first() else { return self.fail("a literal count") };
            return Ok((Op::CpWait(Some(*n as usize)), Class::Async));
        }
        let known = m.take("shared") | m.take("shared::cta");
        if !(known && m.take("global")) {
            return self.fail("only copies from global to shared memory");
        }
        m.take_any(CACHE_HINTS);
        let (Some(to), Some(from), Some(Operand::Imm(bytes))) = (o.first(), o.get(1), o.get(2)) else {
            return self.fail("destination, source and a literal size");
        };
        if !matches!(bytes, 4 | 8 | 16) {
            return self.fail("a size of 4, 8 or 16 bytes");
        }
        if o.get(3).is_some_and(|p| self.is_pred(p)) {
            return self.fail("the ignore-source predicate");
        }
        let live = o.get(3).map(|l| self.src(l)).transpose()?;
        let to = self.address(to, Space::Shared)?;
        let from = self.address(from, Space::Global)?;
        Ok((Op::CpAsync { to, from, bytes: *bytes as usize, live }, Class::Async))
    }
}
