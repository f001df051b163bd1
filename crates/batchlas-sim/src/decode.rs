//! Instructions as they run: an enum with register rows, decoded from the parsed text before a launch.
//!
//! A warp's registers are rows of 32 lanes. Literals, variable addresses and special registers become rows
//! too, filled once when a warp starts, so that every source operand is a row. Predicates are 32-bit masks,
//! one bit a lane. An opcode, modifier or operand that is not known is an error with its line.

use crate::SimError;
use crate::alu::{BinOp, CarryOp, Cmp, CmpType, CvtSpec, Round, TerOp, UnOp};
use crate::mem::{CONST_SLOT, SHARED_BASE, slot_base};
use crate::mma::MmaShape;
use crate::ptx::{Entry, Instruction, Module, Operand, Param, Space, Type, Variable};
use crate::report::Site;
use crate::stats::Class;
use std::collections::HashMap;
use std::sync::Arc;

/// Index of a register row.
pub(crate) type Row = usize;
/// The predicate that is always true, and the carry.
const TRUE: PredId = 0;
pub(crate) const CARRY: PredId = 1;

/// Index of a predicate mask.
pub(crate) type PredId = usize;

/// A predicate operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PredRef {
    pub(crate) pred: PredId,
    pub(crate) negated: bool,
}

/// `[base + offset]` in a space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Row,
    pub(crate) offset: i64,
}

/// How strong an access is: strong accesses never race with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    Weak,
    /// Volatile, relaxed, acquire and release forms, and atomics.
    Strong,
    /// Through the read-only path: the location must not be written during the launch.
    NonCoherent,
}

/// What a load makes of the bytes that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Bytes of one value.
    pub(crate) bytes: usize,
    /// For a signed type, the bits of the register to extend it to.
    signed_to: Option<u64>,
}

impl Loaded {
    pub(crate) fn value(self, bytes: &[u8]) -> u64 {
        let mut value = [0; 8];
        value[..self.bytes].copy_from_slice(&bytes[..self.bytes]);
        let value = u64::from_le_bytes(value);
        let unused = 64 - 8 * self.bytes as u32;
        match self.signed_to {
            Some(keep) => ((value << unused) as i64 >> unused) as u64 & keep,
            None => value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShflMode {
    Idx,
    Up,
    Down,
    Bfly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uni,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Reduction of a predicate: population count into a row.
    Popc(Row, PredRef),
    /// Reduction of a predicate: all or any into a predicate.
    Test(Logic, PredId, PredRef),
}

/// A decoded operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Nop,
    Mov {
        d: Row,
        a: Row,
    },
    MovPred {
        d: PredId,
        a: PredRef,
    },
    /// Splits a value into parts of `bits` bits, low part first.
    Unpack {
        d: Vec<Option<Row>>,
        a: Row,
        bits: u32,
    },
    /// Joins parts of `bits` bits, low part first.
    Pack {
        d: Row,
        a: Vec<Row>,
        bits: u32,
    },
    Un {
        f: UnOp,
        d: Row,
        a: Row,
    },
    Bin {
        f: BinOp,
        ftz: bool,
        sat: bool,
        d: Row,
        a: Row,
        b: Row,
    },
    Ter {
        f: TerOp,
        ftz: bool,
        sat: bool,
        d: Row,
        a: Row,
        b: Row,
        c: Row,
    },
    /// Multi-word arithmetic: reads the carry, writes it, or both.
    Carry {
        f: CarryOp,
        bits: u32,
        d: Row,
        a: Row,
        b: Row,
        c: Row,
        reads: bool,
        writes: bool,
    },
    Bfi {
        d: Row,
        a: Row,
        b: Row,
        pos: Row,
        len: Row,
        bits: u32,
    },
    Cvt {
        spec: CvtSpec,
        d: Row,
        a: Row,
    },
    Setp {
        cmp: Cmp,
        ty: CmpType,
        d: Option<PredId>,
        q: Option<PredId>,
        a: Row,
        b: Row,
        with: Option<(Logic, PredRef)>,
    },
    Selp {
        d: Row,
        a: Row,
        b: Row,
        p: PredRef,
    },
    LogicPred {
        f: Logic,
        d: PredId,
        a: PredRef,
        b: PredRef,
    },
    Ld {
        at: Address,
        d: Vec<Option<Row>>,
        value: Loaded,
        strength: Strength,
    },
    St {
        at: Address,
        a: Vec<Row>,
        ty: Type,
        strength: Strength,
    },
    LdParam {
        d: Vec<Option<Row>>,
        value: Loaded,
        offset: usize,
    },
    Atom {
        at: Address,
        f: AtomOp,
        ty: Type,
        d: Option<Row>,
        b: Row,
        c: Row,
    },
    Bra {
        target: usize,
    },
    /// Jumps to the target that the index names.
    BranchTable {
        targets: Vec<usize>,
        index: Row,
    },
    /// Calls a function; the results are copied when it returns.
    Call {
        target: usize,
        into: Vec<LocalCopy>,
        back: Vec<LocalCopy>,
    },
    Return,
    Exit,
    Trap,
    Barrier {
        kind: BarrierKind,
        id: Row,
        count: Option<Row>,
        aligned: bool,
    },
    WarpSync {
        mask: Row,
    },
    Shfl {
        mode: ShflMode,
        d: Row,
        p: Option<PredId>,
        a: Row,
        b: Row,
        c: Row,
        mask: Row,
    },
    Vote {
        mode: VoteMode,
        d: PredId,
        a: PredRef,
        mask: Row,
    },
    Ballot {
        d: Row,
        a: PredRef,
        mask: Row,
    },
    Match {
        all: bool,
        d: Row,
        p: Option<PredId>,
        a: Row,
        mask: Row,
    },
    Redux {
        f: BinOp,
        d: Row,
        a: Row,
        mask: Row,
    },
    ActiveMask {
        d: Row,
    },
    LdMatrix {
        at: Address,
        d: Vec<Row>,
        trans: bool,
    },
    StMatrix {
        at: Address,
        a: Vec<Row>,
        trans: bool,
    },
    Mma {
        shape: MmaShape,
        d: Vec<Row>,
        a: Vec<Row>,
        b: Vec<Row>,
        c: Vec<Row>,
    },
    CpAsync {
        to: Address,
        from: Address,
        bytes: usize,
        live: Option<Row>,
    },
    CpCommit,
    /// Waits until at most this many committed groups are pending; `None` waits for everything.
    CpWait(Option<usize>),
    Fence,
    /// Other warps should run.
    Yield,
    Elect {
        d: Row,
        p: Option<PredId>,
        mask: Row,
    },
    PhaseInit {
        at: Address,
        count: Row,
    },
    PhaseInval {
        at: Address,
    },
    /// `count` is `None` for a mere announcement of bytes.
    PhaseArrive {
        at: Address,
        d: Option<Row>,
        count: Option<Row>,
        bytes: Option<Row>,
    },
    PhaseWait {
        at: Address,
        p: PredId,
        wait: Wait,
    },
    CpBulk {
        to: Address,
        from: Address,
        bytes: Row,
        bar: Address,
    },
    /// `cp.async.mbarrier.arrive`; `extra` when the arrival is not part of the expected count.
    CpTrack {
        at: Address,
        extra: bool,
    },
}

/// A copy inside a thread's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalCopy {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: usize,
}

/// What a wait on a barrier in shared memory names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wait {
    Parity(Row),
    Token(Row),
}

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

/// The dot-separated modifiers of an opcode, taken one by one; what is left at the end is unknown.
struct Mods<'a>(Vec<&'a str>);

impl<'a> Mods<'a> {
    fn take(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|m| *m == name);
        if let Some(at) = at {
            self.0.remove(at);
        }
        at.is_some()
    }

    fn take_any(&mut self, names: &[&str]) -> bool {
        let before = self.0.len();
        self.0.retain(|m| !names.contains(m));
        self.0.len() < before
    }

    fn first<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let found = table.iter().find(|(name, _)| self.0.contains(name)).copied();
        found.map(|(name, value)| {
            self.take(name);
            value
        })
    }

    fn pop(&mut self) -> Option<&'a str> {
        self.0.pop()
    }
}

const SPACES: &[(&str, Space)] = &[
    ("param::func", Space::Param),
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("local", Space::Local),
    ("const", Space::Const),
    ("param", Space::Param),
    ("param::entry", Space::Param),
];
const CACHE_HINTS: &[&str] = &[
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
const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

/// An entry or function with the place of its first instruction and the addresses of its variables.
struct Part<'a> {
    entry: &'a Entry,
    base: usize,
    symbols: HashMap<String, u64>,
}

struct Decoder<'a> {
    /// What is being decoded: the kernel is part 0.
    entry: &'a Entry,
    part: usize,
    parts: Vec<Part<'a>>,
    globals: HashMap<String, u64>,
    /// Row or predicate of each declared register.
    register: Vec<usize>,
    rows: usize,
    preds: usize,
    fills: HashMap<Fill, Row>,
    line: u32,
    opcode: String,
}

type Decoded = Result<(Op, Class), SimError>;

impl Decoder<'_> {
    /// Goes on to a part: its registers get rows and predicates of their own.
    fn enter(&mut self, part: usize) {
        self.part = part;
        self.entry = self.parts[part].entry;
        self.register.clear();
        for r in &self.entry.registers {
            let next = if r.ty == Type::Pred { &mut self.preds } else { &mut self.rows };
            self.register.push(*next);
            *next += 1;
        }
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        self.parts[self.part].symbols.get(name).or(self.globals.get(name)).copied()
    }

    /// Parameters of a function and of calls are in the thread's own memory.
    fn param_space(&self, o: &Operand) -> Space {
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

    /// `call (results), function, (arguments)`: the arguments are copied to the function's parameters, and its results
    /// back when it returns.
    fn call(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, SimError> {
        Err(SimError::Unsupported { line: self.line, opcode: self.opcode.clone(), what: what.into() })
    }

    fn fill(&mut self, fill: Fill) -> Row {
        let rows = &mut self.rows;
        *self.fills.entry(fill).or_insert_with(|| {
            *rows += 1;
            *rows - 1
        })
    }

    /// A source row.
    fn src(&mut self, o: &Operand) -> Result<Row, SimError> {
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
    fn src_as(&mut self, o: &Operand, ty: Type) -> Result<Row, SimError> {
        match o {
            Operand::Imm(v) if ty.bytes() < 8 => {
                let mask = (1u64 << (8 * ty.bytes())) - 1;
                Ok(self.fill(Fill::Value(v & mask)))
            }
            _ => self.src(o),
        }
    }

    fn dst(&mut self, o: &Operand) -> Result<Row, SimError> {
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

    fn pred(&self, o: &Operand) -> Result<PredRef, SimError> {
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

    fn pred_dst(&self, o: &Operand) -> Result<Option<PredId>, SimError> {
        if *o == Operand::Sink {
            return Ok(None);
        }
        self.pred(o).map(|p| Some(p.pred))
    }

    fn dst_pair(&mut self, o: &Operand) -> Result<(Row, Option<PredId>), SimError> {
        match o {
            Operand::Pair(d, p) => Ok((self.dst(d)?, self.pred_dst(p)?)),
            o => Ok((self.dst(o)?, None)),
        }
    }

    fn list(&self, o: &Operand) -> Vec<Operand> {
        match o {
            Operand::Vector(v) => v.clone(),
            o => vec![o.clone()],
        }
    }

    fn dst_list(&mut self, o: &Operand) -> Result<Vec<Option<Row>>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| if *i == Operand::Sink { Ok(None) } else { self.dst(i).map(Some) }).collect()
    }

    fn src_list(&mut self, o: &Operand, ty: Type) -> Result<Vec<Row>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| self.src_as(i, ty)).collect()
    }

    fn rows(&mut self, o: &Operand) -> Result<Vec<Row>, SimError> {
        let items = self.list(o);
        items.iter().map(|i| self.src(i)).collect()
    }

    fn address(&mut self, o: &Operand, space: Space) -> Result<Address, SimError> {
        match o {
            Operand::Address(base, offset) => Ok(Address { space, base: self.src(base)?, offset: *offset }),
            _ => self.fail("an address in brackets was expected"),
        }
    }

    fn is_pred(&self, o: &Operand) -> bool {
        matches!(o, Operand::Reg(id) if self.entry.registers[id.0 as usize].ty == Type::Pred)
    }

    fn instruction(&mut self, i: &Instruction) -> Result<Inst, SimError> {
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

    fn operation(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn ty(&self, m: &mut Mods<'_>) -> Result<Type, SimError> {
        match m.pop().and_then(Type::from_name) {
            Some(ty) => Ok(ty),
            None => self.fail("a type was expected at the end"),
        }
    }

    /// The bits of the register that a signed value is extended to.
    fn signed_to(&self, ty: Type, o: &Operand) -> Option<u64> {
        let items = self.list(o);
        let widths = items.iter().filter_map(|i| match i {
            Operand::Reg(id) => Some(self.entry.registers[id.0 as usize].ty.bytes()),
            _ => None,
        });
        let bits = 8 * widths.max().unwrap_or(ty.bytes()).min(8) as u32;
        ty.is_signed().then_some(u64::MAX >> (64 - bits))
    }

    /// A type that a register holds in memory, and a vector of it that exists.
    fn check_vector(&self, ty: Type, count: usize) -> Result<(), SimError> {
        if ty.bytes() > 8 || ty == Type::Pred || !matches!(count, 1 | 2 | 4 | 8) {
            return self.fail(format!("a vector of {count} of this type"));
        }
        Ok(())
    }

    fn label(&self, o: &Operand) -> Result<usize, SimError> {
        match o {
            Operand::Symbol(name, 0) => match self.entry.labels.get(name) {
                Some(at) => Ok(self.parts[self.part].base + at),
                None => self.fail(format!("label {name} is not defined")),
            },
            _ => self.fail("a label was expected"),
        }
    }

    fn mov(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn cvta(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn strength(&self, m: &mut Mods<'_>) -> Strength {
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

    fn access_class(space: Space, store: bool) -> Class {
        match (space, store) {
            (Space::Shared, false) => Class::LoadShared,
            (Space::Shared, true) => Class::StoreShared,
            (Space::Local, _) => Class::Local,
            (Space::Const | Space::Param, _) => Class::Constant,
            (_, false) => Class::LoadGlobal,
            (_, true) => Class::StoreGlobal,
        }
    }

    fn ld(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let strength = self.strength(m);
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        m.take_any(CACHE_HINTS);
        m.take_any(&["v2", "v4", "v8"]);
        let d = self.dst_list(&o[0])?;
        self.check_vector(ty, d.len())?;
        let value = Loaded { bytes: ty.bytes(), signed_to: self.signed_to(ty, &o[0]) };
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

    fn st(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn atom(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn unary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn binary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn carry(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn ternary(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn lop3(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
        let ty = self.ty(m)?;
        let Operand::Imm(table) = o[4] else { return self.fail("the table must be a literal") };
        let (d, a, b, c) =
            (self.dst(&o[0])?, self.src_as(&o[1], ty)?, self.src_as(&o[2], ty)?, self.src_as(&o[3], ty)?);
        Ok((Op::Ter { f: TerOp::Lop3(table as u8), ftz: false, sat: false, d, a, b, c }, Class::Integer))
    }

    fn cvt(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn setp(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn barrier(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn collective(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn matrix_access(&mut self, head: &str, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn mma(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    /// An address in shared memory, by name or generic.
    fn shared_address(&mut self, m: &mut Mods<'_>, o: Option<&Operand>) -> Result<Address, SimError> {
        let space = m.first(SPACES).unwrap_or(Space::Generic);
        match o {
            Some(o) if matches!(space, Space::Shared | Space::Generic) => self.address(o, space),
            _ => self.fail("an address in shared memory was expected"),
        }
    }

    fn mbarrier(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn cp_bulk(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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

    fn cp_async(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Decoded {
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
