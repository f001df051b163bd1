//! The decoded operations.

use crate::alu::{BinOp, CarryOp, Cmp, CmpType, CvtSpec, TerOp, UnOp};
use crate::mma::MmaShape;
use crate::ptx::{Space, Type};

/// Index of a register row.
pub(crate) type Row = usize;
/// The predicate that is always true, and the carry.
pub(crate) const TRUE: PredId = 0;
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
    pub(crate) signed_to: Option<u64>,
    /// Bytes of the access before those that the assembler keeps, and how many it keeps: it narrows a vector load to what
    /// is used of it.
    pub(crate) kept: (usize, usize),
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
