//! A kernel ready to run: instructions of the entry and of what it calls, and where its variables are.

use super::op::{Address, CARRY, Op, PredId, PredRef, Row, TRUE};
use super::operand::{Decoder, Part};
use crate::SimError;
use crate::mem::{CONST_SLOT, SHARED_BASE, slot_base};
use crate::ptx::{Entry, Instruction, Module, Operand, Param, Space, Variable};
use crate::report::Site;
use crate::stats::Class;
use std::collections::HashMap;
use std::sync::Arc;

/// A decoded instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub(crate) guard: Option<PredRef>,
    pub(crate) op: Op,
    pub(crate) class: Class,
}

/// What a row holds when a warp starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fill {
    Value(u64),
    Special(String),
}

/// A variable with its place in its space.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) variable: Variable,
    pub(crate) address: u64,
}

/// A kernel ready to run.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) sites: Arc<[Site]>,
    pub(crate) insts: Vec<Inst>,
    pub(crate) rows: usize,
    pub(crate) preds: usize,
    pub(crate) fills: Vec<(Row, Fill)>,
    pub(crate) true_pred: PredId,
    pub(crate) param_bytes: usize,
    /// Static shared variables; the dynamic array follows the last one.
    pub(crate) shared: Vec<Placed>,
    pub(crate) dynamic_shared_at: u64,
    pub(crate) dynamic_name: Option<String>,
    pub(crate) local: Vec<Placed>,
    pub(crate) local_bytes: usize,
    pub(crate) constants: Vec<Placed>,
    pub(crate) max_threads: Option<u32>,
    /// The finest access to shared and to global memory, the grain of race detection.
    pub(crate) shared_grain: usize,
    pub(crate) global_grain: usize,
}

/// Unused bytes between shared variables, so that running off one of them is seen.
const SHARED_GUARD: u64 = 128;

impl Kernel {
    pub(crate) fn decode(module: &Module, entry: &Entry) -> Result<Kernel, SimError> {
        let parts = parts(module, entry)?;
        let mut layout = Layout::default();
        let globals: HashMap<String, u64> =
            module.variables.iter().map(|v| (v.name.clone(), layout.place(v))).collect();
        let mut decoder = Decoder {
            entry,
            parts: Vec::new(),
            part: 0,
            globals,
            register: Vec::new(),
            mentions: Vec::new(),
            rows: 0,
            preds: CARRY + 1,
            fills: HashMap::new(),
            line: 0,
            opcode: String::new(),
        };
        let mut base = 0;
        for (index, function) in parts.iter().enumerate() {
            let mut symbols: HashMap<String, u64> =
                function.variables.iter().map(|v| (v.name.clone(), layout.place(v))).collect();
            for p in function.params.iter().chain(&function.results) {
                // The kernel's parameters are a block of their own; a function's live with each thread.
                let address = if index == 0 { p.offset as u64 } else { layout.place_param(p) };
                symbols.insert(p.name.clone(), address);
            }
            decoder.parts.push(Part { entry: function, base, symbols });
            base += function.body.len();
        }
        // The dynamic array follows all others, so its address is known only now.
        let dynamic_shared_at =
            layout.shared_end.max(SHARED_BASE).next_multiple_of(layout.dynamic_align.max(16));
        for v in module.variables.iter().filter(|v| v.space == Space::Shared && v.size == 0) {
            decoder.globals.insert(v.name.clone(), dynamic_shared_at);
        }
        let Layout { shared, local, local_end, constants, dynamic_name, .. } = layout;
        let mut insts = Vec::with_capacity(base);
        let mut sites = Vec::with_capacity(base);
        for (index, function) in parts.iter().enumerate() {
            decoder.enter(index);
            for (at, instruction) in function.body.iter().enumerate() {
                insts.push(decoder.instruction(instruction)?);
                sites.push(Site { index: sites.len(), ..module.site(function, at) });
            }
        }
        let mut fills: Vec<(Row, Fill)> = decoder.fills.iter().map(|(f, r)| (*r, f.clone())).collect();
        fills.sort_by_key(|f| f.0);
        let grain = |shared: bool| {
            insts
                .iter()
                .filter_map(|i| finest_access(&i.op, shared))
                .min()
                .unwrap_or(MAX_GRAIN)
                .min(MAX_GRAIN)
        };
        Ok(Kernel {
            name: entry.name.clone(),
            sites: sites.into(),
            rows: decoder.rows,
            preds: decoder.preds,
            fills,
            true_pred: TRUE,
            param_bytes: entry.param_bytes(),
            shared,
            dynamic_shared_at,
            dynamic_name,
            local,
            local_bytes: local_end as usize,
            constants,
            max_threads: entry.max_threads,
            shared_grain: grain(true),
            global_grain: grain(false),
            insts,
        })
    }
}

/// The entry and the functions that it calls, directly or not.
fn parts<'a>(module: &'a Module, entry: &'a Entry) -> Result<Vec<&'a Entry>, SimError> {
    let mut parts = vec![entry];
    let mut at = 0;
    while let Some(part) = parts.get(at).copied() {
        at += 1;
        for i in calls(part) {
            let fail = |what: String| SimError::Unsupported { line: i.line, opcode: i.opcode.clone(), what };
            let name = callee(i).ok_or_else(|| fail("only direct calls".into()))?;
            let Some(function) = module.functions.iter().find(|f| f.name == name) else {
                return Err(fail(format!("function {name} is not defined")));
            };
            if !parts.iter().any(|p| std::ptr::eq(*p, function)) {
                parts.push(function);
            }
        }
    }
    // A function that can reach itself would need a frame for every activation.
    for function in &parts[1..] {
        let mut reached: Vec<&Entry> = Vec::new();
        let mut open = vec![*function];
        while let Some(f) = open.pop() {
            for i in calls(f) {
                let next = callee(i).and_then(|n| parts.iter().find(|p| p.name == n));
                let Some(next) = next.filter(|n| !reached.iter().any(|r| std::ptr::eq(*r, **n))) else {
                    continue;
                };
                if std::ptr::eq(*next, *function) {
                    let what = format!("{} calls itself", function.name);
                    return Err(SimError::Unsupported { line: i.line, opcode: i.opcode.clone(), what });
                }
                reached.push(next);
                open.push(next);
            }
        }
    }
    Ok(parts)
}

fn calls(entry: &Entry) -> impl Iterator<Item = &Instruction> {
    entry.body.iter().filter(|i| i.opcode.split('.').next() == Some("call"))
}

/// The function that a call names.
fn callee(i: &Instruction) -> Option<&str> {
    i.operands.iter().find_map(|o| match o {
        Operand::Symbol(name, 0) => Some(name.as_str()),
        _ => None,
    })
}

/// Where variables go.
#[derive(Default)]
struct Layout {
    shared: Vec<Placed>,
    shared_end: u64,
    local: Vec<Placed>,
    local_end: u64,
    constants: Vec<Placed>,
    dynamic_name: Option<String>,
    dynamic_align: u64,
}

impl Layout {
    /// The address of a variable in its space; that of the dynamic array is set later.
    fn place(&mut self, v: &Variable) -> u64 {
        let align = v.align.max(1) as u64;
        let placed = |address| Placed { variable: v.clone(), address };
        match v.space {
            Space::Shared if v.size == 0 => {
                self.dynamic_name.get_or_insert(v.name.clone());
                self.dynamic_align = self.dynamic_align.max(align);
                0
            }
            Space::Shared => {
                let address = self.shared_end.max(SHARED_BASE).next_multiple_of(align);
                self.shared_end = address + v.size as u64 + SHARED_GUARD;
                self.shared.push(placed(address));
                address
            }
            Space::Local | Space::Param => {
                let address = self.local_end.next_multiple_of(align);
                self.local_end = address + v.size as u64;
                self.local.push(placed(address));
                address
            }
            _ => {
                let address = slot_base(CONST_SLOT + self.constants.len() as u64);
                self.constants.push(placed(address));
                address
            }
        }
    }

    /// A parameter or result of a function, which every thread has for itself.
    fn place_param(&mut self, p: &Param) -> u64 {
        let (name, size) = (p.name.clone(), p.size);
        self.place(&Variable { name, space: Space::Param, align: 16, size, init: None })
    }
}

/// The widest grain of race detection, the widest access there is.
const MAX_GRAIN: usize = 16;

/// Bytes of the access that `op` makes to shared (or else global) memory.
fn finest_access(op: &Op, shared: bool) -> Option<usize> {
    let counts = |at: &Address| at.space == Space::Generic || (at.space == Space::Shared) == shared;
    match op {
        Op::Ld { at, value, .. } => counts(at).then_some(value.bytes),
        Op::St { at, ty, .. } | Op::Atom { at, ty, .. } => counts(at).then(|| ty.bytes()),
        Op::CpAsync { bytes, .. } => Some(*bytes),
        _ => None,
    }
}
