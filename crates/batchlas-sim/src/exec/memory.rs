//! Loads, stores, atomics, asynchronous copies and matrix accesses, each checked.

use super::{Run, Warp, bits};
use crate::FindingKind;
use crate::alu::{self, BinOp, Lanes};
use crate::decode::{Address, AtomOp, Loaded, LocalCopy, Row, Strength};
use crate::mem::{self, Allocation, IN_FLIGHT, INIT, Region, SHARED_BASE};
use crate::ptx::{Space, Type};
use crate::race::{Access, Kind};
use std::collections::VecDeque;

/// An asynchronous copy that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: usize,
    /// Bytes that are read; the rest is zero.
    pub(super) live: usize,
    pub(super) pc: usize,
}

/// The asynchronous copies of one thread: those not committed yet, and the committed groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    /// Takes all copies, committed or not.
    pub(super) fn take(&mut self) -> Vec<Copy> {
        self.groups.drain(..).flatten().chain(self.open.drain(..)).collect()
    }
}

/// Where checked bytes are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    space: Space,
    /// Address in the space, or of the allocation's slot.
    address: u64,
    offset: usize,
}

/// Who accesses, with which instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    pub(super) warp: usize,
    pub(super) lanes: u32,
    pub(super) pc: usize,
    /// When, if not now.
    pub(super) time: Option<u32>,
}

impl Actor {
    pub(super) fn one(warp: usize, lane: usize, pc: usize) -> Actor {
        Actor { warp, lanes: 1 << lane, pc, time: None }
    }

    /// The first of the lanes, which stands for them in reports.
    pub(super) fn thread(self) -> usize {
        32 * self.warp + self.lanes.trailing_zeros() as usize
    }
}

impl Run<'_> {
    fn region(&mut self, place: Place) -> Option<&mut Region> {
        match place.space {
            Space::Shared => Some(&mut self.shared),
            Space::Local => Some(&mut self.local),
            Space::Param => Some(&mut self.params),
            _ => self.memory.slot_mut(place.address).map(|a| &mut a.region),
        }
    }

    fn bytes(&mut self, place: Place, count: usize) -> [u8; 16] {
        let mut out = [0xff; 16];
        if let Some(region) = self.region(place) {
            out[..count].copy_from_slice(&region.bytes[place.offset..place.offset + count]);
        }
        out
    }

    pub(super) fn put(&mut self, place: Place, bytes: &[u8]) {
        if let Some(region) = self.region(place) {
            let range = place.offset..place.offset + bytes.len();
            region.bytes[range.clone()].copy_from_slice(bytes);
            region.flags[range].iter_mut().for_each(|f| *f |= INIT);
        }
    }

    /// Checks an access and records it. Returns where the bytes are, unless there are none.
    pub(super) fn touch(
        &mut self,
        actor: Actor,
        space: Space,
        addr: u64,
        bytes: usize,
        kind: Kind,
    ) -> Option<Place> {
        let (space, addr) = mem::resolve(space, addr);
        let at = Some((space, addr));
        if !addr.is_multiple_of(bytes as u64) {
            let detail = format!("{bytes} bytes at an address that is not a multiple of {bytes}");
            self.find(FindingKind::Misaligned, actor.thread(), actor.pc, at, None, &detail);
        }
        let offset = match space {
            Space::Shared => inside(addr, SHARED_BASE, self.shared.bytes.len(), bytes),
            Space::Local => inside(addr, 0, self.kernel.local_bytes, bytes)
                .map(|o| o + actor.thread() * self.kernel.local_bytes),
            Space::Param => inside(addr, 0, self.params.bytes.len(), bytes),
            _ => self.memory.slot(addr).and_then(|a: &Allocation| a.offset(addr, bytes)),
        };
        let Some(offset) = offset else {
            let detail = format!("{bytes} bytes{}", self.extent(space, addr));
            self.find(FindingKind::OutOfBounds, actor.thread(), actor.pc, at, None, &detail);
            return None;
        };
        let place = Place { space, address: addr, offset };
        let (reads, writes) = (kind.reads(), kind.writes());
        let access = Access {
            kind,
            block: self.block_index,
            warp: actor.warp as u32,
            lanes: actor.lanes,
            time: actor.time.unwrap_or_else(|| self.clocks.now(actor.thread())),
            pc: actor.pc as u32,
        };
        let region = match space {
            Space::Shared => &mut self.shared,
            Space::Local => &mut self.local,
            Space::Param => &mut self.params,
            _ => &mut self.memory.slot_mut(addr)?.region,
        };
        let (any, initialised) = region.flags_of(offset, bytes);
        let rival = if matches!(space, Space::Local | Space::Param) {
            None
        } else {
            region.shadow.access(&self.clocks, offset, bytes, access)
        };
        if let Some(fault) = mem::fault(any, initialised, reads, writes) {
            let detail = match fault {
                FindingKind::OutOfBounds => format!("{bytes} bytes{}", self.extent(space, addr)),
                _ => format!("{bytes} bytes"),
            };
            self.find(fault, actor.thread(), actor.pc, at, None, &detail);
            if matches!(fault, FindingKind::OutOfBounds | FindingKind::ReadOnlyWrite) {
                return None;
            }
        }
        if let Some(rival) = rival {
            let (kind, detail) = if rival.non_coherent {
                (FindingKind::NonCoherent, "")
            } else {
                let other = if rival.writes { "a write" } else { "a read" };
                let this = if writes { "write" } else { "read" };
                (
                    FindingKind::Race,
                    if rival.block == self.block_index {
                        match (this, other) {
                            ("write", "a write") => "a write after a write",
                            ("write", _) => "a write after a read",
                            _ => "a read after a write",
                        }
                    } else {
                        "the threads are in different blocks"
                    },
                )
            };
            self.find(kind, actor.thread(), actor.pc, at, Some(rival), detail);
        }
        Some(place)
    }

    /// The size of the buffer that an address is in or next to, in words.
    fn extent(&self, space: Space, addr: u64) -> String {
        match space {
            Space::Shared | Space::Local => {
                let list = if space == Space::Shared { &self.kernel.shared } else { &self.kernel.local };
                let dynamic = space == Space::Shared && addr >= self.kernel.dynamic_shared_at;
                let found = list.iter().rev().find(|p| addr >= p.address);
                match found {
                    _ if dynamic => format!(" in a dynamic array of {} bytes", self.dynamic_shared),
                    Some(p) => format!(" in a variable of {} bytes", p.variable.size),
                    None => String::new(),
                }
            }
            Space::Param => format!(" in a parameter block of {} bytes", self.params.bytes.len()),
            _ => match self.memory.slot(addr) {
                Some(a) if a.live => format!(" in a buffer of {} bytes", a.region.bytes.len()),
                Some(_) => " in a buffer that was freed".to_string(),
                None => " where no buffer is".to_string(),
            },
        }
    }

    /// Copies inside a thread's own memory, with what is initialised.
    pub(super) fn copy_local(&mut self, thread: usize, copies: &[LocalCopy]) {
        let base = thread * self.kernel.local_bytes;
        for c in copies {
            let from = base + c.from..base + c.from + c.bytes;
            self.local.bytes.copy_within(from.clone(), base + c.to);
            self.local.flags.copy_within(from, base + c.to);
        }
    }

    fn addresses(warp: &Warp, at: Address) -> Lanes {
        warp.rows[at.base].map(|a| a.wrapping_add_signed(at.offset))
    }

    /// Counts sectors or wavefronts of a warp's access.
    fn count_cost(
        &mut self,
        exec: u32,
        pc: usize,
        space: Space,
        addresses: &Lanes,
        bytes: usize,
        store: bool,
    ) {
        let mut global = [0u64; 32];
        let mut shared = [(0u32, 0u64); 32];
        let (mut g, mut s) = (0, 0);
        for l in bits(exec) {
            match mem::resolve(space, addresses[l]) {
                (Space::Global, a) => {
                    global[g] = a;
                    g += 1;
                }
                (Space::Shared, a) => {
                    shared[s] = (l as u32, a);
                    s += 1;
                }
                _ => {}
            }
        }
        if g > 0 {
            self.costs[pc].sectors += self.stats.global(&global[..g], bytes, store);
        }
        if s > 0 {
            self.costs[pc].wavefronts += self.stats.shared(&shared[..s], bytes, store);
        }
    }

    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        at: Address,
        d: &[Option<Row>],
        value: Loaded,
        strength: Strength,
    ) {
        let addresses = Self::addresses(warp, at);
        let each = value.bytes;
        let total = each * d.len();
        let (skipped, kept) = value.kept;
        let from = addresses.map(|a| a.wrapping_add(skipped as u64));
        self.count_cost(exec, pc, at.space, &from, kept, false);
        let kind = match strength {
            Strength::Weak => Kind::Read,
            Strength::Strong => Kind::StrongRead,
            Strength::NonCoherent => Kind::NonCoherentRead,
        };
        let mut left = exec;
        while left != 0 {
            let l = left.trailing_zeros();
            // Neighbours that read the same bytes are checked together; a thread's local memory is its own.
            let run =
                bits(left).take_while(|m| addresses[*m] == addresses[l as usize]).fold(0, |m, l| m | 1 << l);
            let together = mem::resolve(at.space, addresses[l as usize]).0 != Space::Local
                && self.clocks.abreast(warp.index, run);
            let lanes = if together { run } else { 1 << l };
            left &= !lanes;
            let actor = Actor { warp: warp.index, lanes, pc, time: None };
            for first in (0..total).step_by(16) {
                let count = (total - first).min(16);
                let addr = addresses[l as usize].wrapping_add(first as u64);
                let bytes = match self.touch(actor, at.space, addr, count, kind) {
                    Some(place) => self.bytes(place, count),
                    None => [0xff; 16],
                };
                for (i, d) in d.iter().enumerate().skip(first / each).take(count / each) {
                    let Some(d) = d else { continue };
                    let value = value.value(&bytes[i * each - first..]);
                    for l in bits(lanes) {
                        warp.rows[*d][l] = value;
                    }
                }
            }
        }
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        at: Address,
        a: &[Row],
        ty: Type,
        strength: Strength,
    ) {
        let addresses = Self::addresses(warp, at);
        let each = ty.bytes();
        let total = each * a.len();
        self.count_cost(exec, pc, at.space, &addresses, total, true);
        let kind = if strength == Strength::Strong { Kind::StrongWrite } else { Kind::Write };
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            for first in (0..total).step_by(16) {
                let count = (total - first).min(16);
                let addr = addresses[l].wrapping_add(first as u64);
                let Some(place) = self.touch(actor, at.space, addr, count, kind) else { continue };
                let mut bytes = [0; 16];
                for (i, a) in a.iter().enumerate().skip(first / each).take(count / each) {
                    let value = warp.rows[*a][l].to_le_bytes();
                    bytes[i * each - first..][..each].copy_from_slice(&value[..each]);
                }
                self.put(place, &bytes[..count]);
            }
        }
    }

    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        at: Address,
        f: AtomOp,
        ty: Type,
        d: Option<Row>,
        b: Row,
        c: Row,
    ) {
        let addresses = Self::addresses(warp, at);
        self.count_cost(exec, pc, at.space, &addresses, ty.bytes(), true);
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let Some(place) = self.touch(actor, at.space, addresses[l], ty.bytes(), Kind::Atomic) else {
                continue;
            };
            let mut old = [0; 8];
            old[..ty.bytes()].copy_from_slice(&self.bytes(place, ty.bytes())[..ty.bytes()]);
            let old = u64::from_le_bytes(old);
            let new = combine(f, ty, old, warp.rows[b][l], warp.rows[c][l]);
            self.put(place, &new.to_le_bytes()[..ty.bytes()]);
            if let Some(d) = d {
                warp.rows[d][l] = old;
            }
        }
    }

    pub(super) fn copy_async(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        to: Address,
        from: Address,
        bytes: usize,
        live: Option<Row>,
    ) {
        let (to, from) = (Self::addresses(warp, to), Self::addresses(warp, from));
        self.count_cost(exec, pc, Space::Global, &from, bytes, false);
        warp.copies.resize_with(32, Copies::default);
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let live = live.map_or(bytes, |r| (warp.rows[r][l] as u32 as usize).min(bytes));
            let copy = Copy { to: to[l], from: from[l], bytes, live, pc };
            if self.copy_leaves(actor, copy) {
                warp.copies[l].open.push(copy);
            }
        }
    }

    /// Checks both ends of a copy and marks its destination as in flight. Returns whether there is one.
    pub(super) fn copy_leaves(&mut self, actor: Actor, copy: Copy) -> bool {
        let Some(place) = self.touch(actor, Space::Shared, copy.to, copy.bytes, Kind::Write) else {
            return false;
        };
        if copy.live > 0 {
            self.source(actor, copy);
        }
        for f in &mut self.shared.flags[place.offset..place.offset + copy.bytes] {
            *f = *f & !INIT | IN_FLIGHT;
        }
        true
    }

    /// Reads the live bytes of a copy's source.
    fn source(&mut self, actor: Actor, copy: Copy) -> [u8; 16] {
        let mut out = [0; 16];
        if !copy.from.is_multiple_of(copy.bytes as u64) {
            let detail = format!("{} bytes at an address that is not a multiple", copy.bytes);
            let at = Some((Space::Global, copy.from));
            self.find(FindingKind::Misaligned, actor.thread(), actor.pc, at, None, &detail);
        }
        // By the largest pieces that the address allows, so that a partial copy is not called misaligned.
        let piece = [16, 8, 4, 2, 1]
            .into_iter()
            .find(|p| copy.live.is_multiple_of(*p) && copy.from.is_multiple_of(*p as u64));
        let piece = piece.unwrap_or(1);
        for first in (0..copy.live).step_by(piece) {
            let place =
                self.touch(actor, Space::Global, copy.from.wrapping_add(first as u64), piece, Kind::Read);
            let bytes = place.map_or([0xff; 16], |p| self.bytes(p, piece));
            out[first..first + piece].copy_from_slice(&bytes[..piece]);
        }
        out
    }

    pub(super) fn copy_commit(&mut self, warp: &mut Warp, exec: u32) {
        warp.copies.resize_with(32, Copies::default);
        for l in bits(exec) {
            let open = std::mem::take(&mut warp.copies[l].open);
            warp.copies[l].groups.push_back(open);
        }
    }

    /// Completes the oldest groups until at most `pending` are left; `None` completes everything.
    pub(super) fn copy_wait(&mut self, warp: &mut Warp, exec: u32, pending: Option<usize>) {
        warp.copies.resize_with(32, Copies::default);
        for l in bits(exec) {
            let mut copies = std::mem::take(&mut warp.copies[l]);
            while copies.groups.len() > pending.unwrap_or(0) {
                let group = copies.groups.pop_front().unwrap_or_default();
                let actor = |c: &Copy| Actor::one(warp.index, l, c.pc);
                group.into_iter().for_each(|c| self.copy_arrives(actor(&c), c));
            }
            if pending.is_none() {
                let actor = |c: &Copy| Actor::one(warp.index, l, c.pc);
                copies.open.drain(..).for_each(|c| self.copy_arrives(actor(&c), c));
            }
            warp.copies[l] = copies;
        }
    }

    /// The data of a copy arrives: a read of the source and a write by the waiting thread, now.
    pub(super) fn copy_arrives(&mut self, actor: Actor, copy: Copy) {
        let data = if copy.live > 0 { self.source(actor, copy) } else { [0; 16] };
        if let Some(offset) = inside(copy.to, SHARED_BASE, self.shared.bytes.len(), copy.bytes) {
            self.shared.flags[offset..offset + copy.bytes].iter_mut().for_each(|f| *f &= !IN_FLIGHT);
        }
        if let Some(place) = self.touch(actor, Space::Shared, copy.to, copy.bytes, Kind::Write) {
            self.put(place, &data[..copy.bytes]);
        }
    }

    /// `ldmatrix`: lane `8 i + r` gives the address of row `r` of matrix `i`; lane `l` receives elements
    /// `(l / 4, 2 (l mod 4) ..)` of each, or of its transpose.
    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp,
        ready: u32,
        pc: usize,
        at: Address,
        d: &[Row],
        trans: bool,
    ) {
        let addresses = Self::addresses(warp, at);
        let used = matrix_lanes(d.len());
        self.count_cost(used & ready, pc, at.space, &addresses, 16, false);
        for (i, d) in d.iter().enumerate() {
            let mut rows = [[0xffu8; 16]; 8];
            for (r, row) in rows.iter_mut().enumerate() {
                let lane = 8 * i + r;
                let actor = Actor::one(warp.index, lane, pc);
                if let Some(place) = self.touch(actor, at.space, addresses[lane], 16, Kind::Read) {
                    *row = self.bytes(place, 16);
                }
            }
            let element =
                |r: usize, c: usize| u64::from(u16::from_le_bytes([rows[r][2 * c], rows[r][2 * c + 1]]));
            let mut out = [0; 32];
            for (l, o) in out.iter_mut().enumerate() {
                let (g, t) = (l / 4, 2 * (l % 4));
                *o = if trans {
                    element(t, g) | element(t + 1, g) << 16
                } else {
                    element(g, t) | element(g, t + 1) << 16
                };
            }
            warp.set(*d, ready, &out);
        }
    }

    /// `stmatrix`: the reverse of [`Run::load_matrix`].
    pub(super) fn store_matrix(
        &mut self,
        warp: &mut Warp,
        ready: u32,
        pc: usize,
        at: Address,
        a: &[Row],
        trans: bool,
    ) {
        let addresses = Self::addresses(warp, at);
        let used = matrix_lanes(a.len());
        self.count_cost(used & ready, pc, at.space, &addresses, 16, true);
        for (i, a) in a.iter().enumerate() {
            let mut matrix = [[0u16; 8]; 8];
            for l in 0..32 {
                let (g, t) = (l / 4, 2 * (l % 4));
                for (half, c) in [(0, t), (16, t + 1)] {
                    let value = (warp.rows[*a][l] >> half) as u16;
                    if trans {
                        matrix[c][g] = value;
                    } else {
                        matrix[g][c] = value;
                    }
                }
            }
            for (r, row) in matrix.iter().enumerate() {
                let lane = 8 * i + r;
                let actor = Actor::one(warp.index, lane, pc);
                if let Some(place) = self.touch(actor, at.space, addresses[lane], 16, Kind::Write) {
                    let bytes: Vec<u8> = row.iter().flat_map(|v| v.to_le_bytes()).collect();
                    self.put(place, &bytes);
                }
            }
        }
    }
}

/// The lanes whose addresses a matrix access of `count` matrices uses.
fn matrix_lanes(count: usize) -> u32 {
    u32::MAX >> (32 - 8 * count)
}

fn inside(addr: u64, base: u64, size: usize, bytes: usize) -> Option<usize> {
    let offset = addr.checked_sub(base)? as usize;
    (offset.checked_add(bytes)? <= size).then_some(offset)
}

fn combine(f: AtomOp, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    let keep = if ty.bytes() == 8 { u64::MAX } else { 0xffff_ffff };
    let apply = |op: BinOp| {
        let mut out = [0; 32];
        alu::binary(op, &[old; 32], &[b; 32], &mut out);
        out[0]
    };
    let value = match (f, ty) {
        (AtomOp::Add, Type::F32) => apply(BinOp::AddF32),
        (AtomOp::Add, Type::F64) => apply(BinOp::AddF64),
        (AtomOp::Add, _) => old.wrapping_add(b),
        (AtomOp::Min, Type::S32) => apply(BinOp::MinS32),
        (AtomOp::Max, Type::S32) => apply(BinOp::MaxS32),
        (AtomOp::Min, Type::S64) => apply(BinOp::MinS64),
        (AtomOp::Max, Type::S64) => apply(BinOp::MaxS64),
        (AtomOp::Min, _) => old.min(b & keep),
        (AtomOp::Max, _) => old.max(b & keep),
        (AtomOp::And, _) => old & b,
        (AtomOp::Or, _) => old | b,
        (AtomOp::Xor, _) => old ^ b,
        (AtomOp::Exch, _) => b,
        (AtomOp::Cas, _) => {
            if old == b & keep {
                c
            } else {
                old
            }
        }
        (AtomOp::Inc, _) => {
            if old >= b & keep {
                0
            } else {
                old + 1
            }
        }
        (AtomOp::Dec, _) => {
            if old == 0 || old > b & keep {
                b
            } else {
                old - 1
            }
        }
    };
    value & keep
}
