//! Operands: registers to rows and predicates, literals and addresses to filled rows.

use super::kernel::Fill;
use super::op::Op;
use super::op::{Address, PredId, PredRef, Row, TRUE};
use crate::SimError;
use crate::ptx::{Entry, Operand, Space, Type};
use crate::stats::Class;
use std::collections::HashMap;

/// The dot-separated modifiers of an opcode, taken one by one; what is left at the end is unknown.
pub(super) struct Mods<'a>(pub(super) Vec<&'a str>);

impl<'a> Mods<'a> {
    pub(super) fn take(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|m| *m == name);
        if let Some(at) = at {
            self.0.remove(at);
        }
        at.is_some()
    }

    pub(super) fn take_any(&mut self, names: &[&str]) -> bool {
        let before = self.0.len();
        self.0.retain(|m| !names.contains(m));
        self.0.len() < before
    }

    pub(super) fn first<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let found = table.iter().find(|(name, _)| self.0.contains(name)).copied();
        found.map(|(name, value)| {
            self.take(name);
            value
        })
    }

    pub(super) fn pop(&mut self) -> Option<&'a str> {
        self.0.pop()
    }
}

/// An entry or function with the place of its first instruction and the addresses of its variables.
pub(super) struct Part<'a> {
    pub(super) entry: &'a Entry,
    pub(super) base: usize,
    pub(super) symbols: HashMap<String, u64>,
}

pub(super) struct Decoder<'a> {
    /// What is being decoded: the kernel is part 0.
    pub(super) entry: &'a Entry,
    pub(super) part: usize,
    pub(super) parts: Vec<Part<'a>>,
    pub(super) globals: HashMap<String, u64>,
    /// Row or predicate of each declared register.
    pub(super) register: Vec<usize>,
    /// How often each declared register stands in the code of the part.
    pub(super) mentions: Vec<u32>,
    pub(super) rows: usize,
    pub(super) preds: usize,
    pub(super) fills: HashMap<Fill, Row>,
    pub(super) line: u32,
    pub(super) opcode: String,
}

pub(super) type Decoded = Result<(Op, Class), SimError>;

pub(super) const SPACES: &[(&str, Space)] = &[
    ("param::func", Space::Param),
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("const", Space::Const),
    ("param", Space::Param),
    ("param::entry", Space::Param),
];
pub(super) const CACHE_HINTS: &[&str] = &[
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "L1::evict_last",
    "L1::evict_first",
    "L1::no_allocate",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L2::evict_last",
    "L2::evict_first",
    "L2::evict_normal",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];
pub(super) const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

fn mention(operand: &Operand, mentions: &mut [u32]) {
    match operand {
        Operand::Reg(r) => mentions[r.0 as usize] += 1,
        Operand::Address(inner, _) | Operand::Not(inner) => mention(inner, mentions),
        Operand::Vector(list) => list.iter().for_each(|o| mention(o, mentions)),
        Operand::Pair(a, b) => [a, b].into_iter().for_each(|o| mention(o, mentions)),
        Operand::Imm(_) | Operand::Special(_) | Operand::Symbol(..) | Operand::Sink => {}
    }
}

impl Decoder<'_> {
    /// Goes on to a part: its registers get rows and predicates of their own.
    pub(super) fn enter(&mut self, part: usize) {
        self.part = part;
        self.entry = self.parts[part].entry;
        self.register.clear();
        for r in &self.entry.registers {
            let next = if r.ty == Type::Pred { &mut self.preds } else { &mut self.rows };
            self.register.push(*next);
            *next += 1;
        }
        self.mentions.clear();
        self.mentions.resize(self.entry.registers.len(), 0);
        for i in &self.entry.body {
            i.operands.iter().for_each(|o| mention(o, &mut self.mentions));
            if let Some(guard) = i.guard {
                self.mentions[guard.reg.0 as usize] += 1;
            }
        }
    }

    /// The bytes of a vector load from the first value that is used to the last, widened to a power of two that is
    /// aligned: where they start, and how many they are.
    pub(super) fn kept(&self, d: &Operand, each: usize) -> (usize, usize) {
        let list = self.list(d);
        let used = |o: &Operand| match o {
            Operand::Reg(r) => self.mentions[r.0 as usize] > 1,
            other => *other != Operand::Sink,
        };
        let first = list.iter().position(used).unwrap_or(0);
        let last = list.iter().rposition(used).unwrap_or(0);
        let width = (0..).map(|bits| 1 << bits).find(|width| first / width == last / width).unwrap_or(1);
        (first / width * width * each, width * each)
    }

    pub(super) fn symbol(&self, name: &str) -> Option<u64> {
        self.parts[self.part].symbols.get(name).or(self.globals.get(name)).copied()
    }

    /// Parameters of a function and of calls are in the thread's own memory.
    pub(super) fn param_space(&self, o: &Operand) -> Space {
        let kernel = match o {
            Operand::Address(base, _) => match &**base {
                Operand::Symbol(name, _) => {
                    self.part == 0 && self.entry.params.iter().any(|p| p.name == *name)
                }
                _ => self.part == 0,
            },
            _ => true,
        };
        if kernel { Space::Param } else { Space::Local }
    }

    pub(super) fn fail<T>(&self, what: impl Into<String>) -> Result<T, SimError> {
        Err(SimError::Unsupported { line: self.line, opcode: self.opcode.clone(), what: what.into() })
    }

    pub(super) fn fill(&mut self, fill: Fill) -> Row {
        let rows = &mut self.rows;
        *self.fills.entry(fill).or_insert_with(|| {
            *rows += 1;
            *rows - 1
        })
    }

    /// A source row.
    pub(super) fn src(&mut self, o: &Operand) -> Result<Row, SimError> {
        match o {
            Operand::Reg(id) if self.entry.registers[id.0 as usize].ty != Type::Pred => {
                Ok(self.register[id.0 as usize])
            }
            Operand::Imm(v) => Ok(self.fill(Fill::Value(*v))),
            Operand::Symbol(name, offset) => match self.symbol(name) {
                Some(address) => {
                    let value = address.wrapping_add_signed(*offset);
                    Ok(self.fill(Fill::Value(value)))
                }
                None => self.fail(format!("{name} is not a variable whose address is known")),
            },
            Operand::Special(name) => {
                const KNOWN: &[&str] = &[
                    "%tid.x",
                    "%tid.y",
                    "%tid.z",
                    "%ntid.x",
                    "%ntid.y",
                    "%ntid.z",
                    "%ctaid.x",
                    "%ctaid.y",
                    "%ctaid.z",
                    "%nctaid.x",
                    "%nctaid.y",
                    "%nctaid.z",
                    "%laneid",
                    "%warpid",
                    "%nwarpid",
                    "%lanemask_eq",
                    "%lanemask_lt",
                    "%lanemask_le",
                    "%lanemask_gt",
                    "%lanemask_ge",
                    "%dynamic_smem_size",
                ];
                if KNOWN.contains(&name.as_str()) {
                    Ok(self.fill(Fill::Special(name.clone())))
                } else {
                    self.fail(format!("{name} is not a known register"))
                }
            }
            _ => self.fail(format!("source operand {o:?}")),
        }
    }

    /// A 32-bit literal of an instruction on signed or short values, cut to the width of the type.
    pub(super) fn src_as(&mut self, o: &Operand, ty: Type) -> Result<Row, SimError> {
        match o {
            Operand::Imm(v) if ty.bytes() < 8 => {
                let mask = (1u64 << (8 * ty.bytes())) - 1;
                Ok(self.fill(Fill::Value(v & mask)))
            }
            _ => self.src(o),
        }
    }

    pub(super) fn dst(&mut self, o: &Operand) -> Result<Row, SimError> {
        match o {
            Operand::Reg(id) if self.entry.registers[id.0 as usize].ty != Type::Pred => {
                Ok(self.register[id.0 as usize])
            }
            Operand::Sink => {
                self.rows += 1;
                Ok(self.rows - 1)
            }
            _ => self.fail(format!("destination operand {o:?}")),
        }
    }

    pub(super) fn pred(&self, o: &Operand) -> Result<PredRef, SimError> {
        match o {
            Operand::Reg(id) if self.entry.registers[id.0 as usize].ty == Type::Pred => {
                Ok(PredRef { pred: self.register[id.0 as usize], negated: false })
            }
            Operand::Not(inner) => {
                let inner = self.pred(inner)?;
                Ok(PredRef { negated: !inner.negated, ..inner })
            }
            Operand::Imm(v) => Ok(PredRef { pred: TRUE, negated: *v == 0 }),
            _ => self.fail(format!("predicate operand {o:?}")),
        }
    }

    pub(super) fn pred_dst(&self, o: &Operand) -> Result<Option<PredId>, SimError> {
        if *o == Operand::Sink {
            return Ok(None);
        }
        self.pred(o).map(|p| Some(p.pred))
    }

    pub(super) fn dst_pair(&mut self, o: &Operand) -> Result<(Row, Option<PredId>), SimError> {
        match o {
            Operand::Pair(d, p) => Ok((self.dst(d)?, self.pred_dst(p)?)),
            o => Ok((self.dst(o)?, None)),
        }
    }

    pub(super) fn list(&self, o: &Operand) -> Vec<Operand> {
        match o {
            Operand::Vector(v) => v.clone(),
            o => vec![o.clone()],
        }
    }

    pub(super) fn dst_list(&mut self, o: &Operand) -> Result<Vec<Option<Row>>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| if *i == Operand::Sink { Ok(None) } else { self.dst(i).map(Some) }).collect()
    }

    pub(super) fn src_list(&mut self, o: &Operand, ty: Type) -> Result<Vec<Row>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| self.src_as(i, ty)).collect()
    }

    pub(super) fn rows(&mut self, o: &Operand) -> Result<Vec<Row>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| self.src(i)).collect()
    }

    pub(super) fn address(&mut self, o: &Operand, space: Space) -> Result<Address, SimError> {
        match o {
            Operand::Address(base, offset) => Ok(Address { space, base: self.src(base)?, offset: *offset }),
            _ => self.fail("an address in brackets was expected"),
        }
    }

    pub(super) fn is_pred(&self, o: &Operand) -> bool {
        matches!(o, Operand::Reg(id) if self.entry.registers[id.0 as usize].ty == Type::Pred)
    }

    pub(super) fn ty(&self, m: &mut Mods<'_>) -> Result<Type, SimError> {
        match m.pop().and_then(Type::from_name) {
            Some(ty) => Ok(ty),
            None => self.fail("a type was expected at the end"),
        }
    }

    /// The bits of the register that a signed value is extended to.
    pub(super) fn signed_to(&self, ty: Type, o: &Operand) -> Option<u64> {
        let items = self.list(o);
        let widths = items.iter().filter_map(|i| match i {
            Operand::Reg(id) => Some(self.entry.registers[id.0 as usize].ty.bytes()),
            _ => None,
        });
        let bits = 8 * widths.max().unwrap_or(ty.bytes()).min(8) as u32;
        ty.is_signed().then_some(u64::MAX >> (64 - bits))
    }

    /// A type that a register holds in memory, and a vector of it that exists.
    pub(super) fn check_vector(&self, ty: Type, count: usize) -> Result<(), SimError> {
        // No access moves more than 32 bytes a thread.
        if ty.bytes() > 8 || ty == Type::Pred || !matches!(count, 1 | 2 | 4 | 8) || count * ty.bytes() > 32 {
            return self.fail(format!("a vector of {count} of this type"));
        }
        Ok(())
    }

    pub(super) fn label(&self, o: &Operand) -> Result<usize, SimError> {
        match o {
            Operand::Symbol(name, 0) => match self.entry.labels.get(name) {
                Some(at) => Ok(self.parts[self.part].base + at),
                None => self.fail(format!("label {name} is not defined")),
            },
            _ => self.fail("a label was expected"),
        }
    }
}
