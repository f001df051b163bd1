//! Barriers in shared memory (`mbarrier`), and the asynchronous copies that complete on them.
//!
//! A phase ends when all arrivals and all announced bytes are in. Whoever then sees the phase ended is ordered after
//! all that arrived. Copies land as late as they may: after a wait has found that nothing else is missing from
//! the phase that tracks them, so that a wait that is not repeated fails; until then their destination is in
//! flight. To make a barrier track copies hands over the copies only, not what the thread did before.

use super::memory::{Actor, Copy};
use super::{Run, Warp, bits};
use crate::FindingKind;
use crate::decode::{Address, Row, Wait};
use crate::mem::SHARED_BASE;
use crate::ptx::Space;
use crate::race::Kind;

const BYTES: usize = 8;

/// The state behind a barrier object.
#[derive(Debug, Default)]
pub(super) struct PhaseBarrier {
    expected: i64,
    /// Arrivals that the phase still needs.
    pending: i64,
    /// Announced bytes less those that have landed.
    bytes: i64,
    /// Phases that have ended.
    phase: u64,
    /// Knowledge of those that arrived so far, and as it was when the last phase ended.
    joined: Vec<u32>,
    handed: Vec<u32>,
    tracked: Vec<Tracked>,
}

/// Copies that are on their way.
#[derive(Debug)]
struct Tracked {
    copies: Vec<Copy>,
    /// What the thread that issued them knew then.
    known: Vec<u32>,
    /// Arrivals and bytes that their landing counts for.
    arrivals: i64,
    bytes: i64,
}

impl Run<'_> {
    /// The checked address of a lane's barrier, recorded as an atomic access.
    fn phase_barrier(&mut self, actor: Actor, at: Address, warp: &Warp) -> Option<u64> {
        let lane = actor.lanes.trailing_zeros() as usize;
        let address = warp.rows[at.base][lane].wrapping_add_signed(at.offset);
        let (_, address) = crate::mem::resolve(at.space, address);
        self.touch(actor, Space::Shared, address, BYTES, Kind::Atomic)?;
        if !self.phases.contains_key(&address) {
            let place = Some((Space::Shared, address));
            self.find(
                FindingKind::Uninitialised,
                actor.thread(),
                actor.pc,
                place,
                None,
                "no barrier was initialised here",
            );
            return None;
        }
        Some(address)
    }

    pub(super) fn phase_init(&mut self, warp: &Warp, exec: u32, pc: usize, at: Address, count: Row) {
        for l in bits(exec) {
            let address = warp.rows[at.base][l].wrapping_add_signed(at.offset);
            let (_, address) = crate::mem::resolve(at.space, address);
            if let Some(place) =
                self.touch(Actor::one(warp.index, l, pc), Space::Shared, address, BYTES, Kind::Write)
            {
                self.put(place, &[0; BYTES]);
                let count = i64::from(warp.rows[count][l] as u32);
                let fresh = || self.clocks.blank();
                let barrier = PhaseBarrier {
                    expected: count,
                    pending: count,
                    joined: fresh(),
                    handed: fresh(),
                    ..PhaseBarrier::default()
                };
                self.phases.insert(address, barrier);
            }
        }
    }

    /// Announces bytes, arrives, or both.
    pub(super) fn phase_arrive(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        at: Address,
        d: Option<Row>,
        count: Option<Row>,
        bytes: Option<Row>,
    ) {
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let Some(address) = self.phase_barrier(actor, at, warp) else { continue };
            let Some(barrier) = self.phases.get_mut(&address) else { continue };
            barrier.bytes += bytes.map_or(0, |r| i64::from(warp.rows[r][l] as u32));
            if let Some(d) = d {
                warp.rows[d][l] = barrier.phase;
            }
            if let Some(count) = count {
                barrier.pending -= i64::from(warp.rows[count][l] as u32);
                self.clocks.collect(&[actor.thread()], &mut barrier.joined);
                self.clocks.advance(actor.thread());
            }
            self.phase_progress(address, actor, false);
        }
    }

    /// Lets a barrier track all copies that a thread has under way.
    pub(super) fn phase_track(&mut self, warp: &mut Warp, exec: u32, pc: usize, at: Address, extra: bool) {
        warp.copies.resize_with(32, Default::default);
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let Some(address) = self.phase_barrier(actor, at, warp) else { continue };
            let copies = warp.copies[l].take();
            self.phase_add(address, actor, copies, (1, 0), i64::from(extra));
        }
    }

    /// A bulk copy from global to shared memory that completes on a barrier.
    pub(super) fn copy_bulk(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        to: Address,
        from: Address,
        bytes: Row,
        at: Address,
    ) {
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let Some(address) = self.phase_barrier(actor, at, warp) else { continue };
            let lane = |a: Address| warp.rows[a.base][l].wrapping_add_signed(a.offset);
            let (to, from) = (crate::mem::resolve(to.space, lane(to)).1, lane(from));
            let size = warp.rows[bytes][l] as u32 as usize;
            if size > self.shared.bytes.len() {
                let detail = format!("a bulk copy of {size} bytes");
                self.find(
                    FindingKind::OutOfBounds,
                    actor.thread(),
                    pc,
                    Some((Space::Shared, to)),
                    None,
                    &detail,
                );
                continue;
            }
            if !size.is_multiple_of(16) {
                let detail = format!("a bulk copy of {size} bytes, which is not a multiple of 16");
                self.find(
                    FindingKind::Misaligned,
                    actor.thread(),
                    pc,
                    Some((Space::Shared, to)),
                    None,
                    &detail,
                );
            }
            let pieces = (0..size as u64 / 16).map(|i| Copy {
                to: to.wrapping_add(16 * i),
                from: from.wrapping_add(16 * i),
                bytes: 16,
                live: 16,
                pc,
            });
            let copies: Vec<Copy> = pieces.filter(|c| self.copy_leaves(actor, *c)).collect();
            self.phase_add(address, actor, copies, (0, size as i64), 0);
        }
    }

    /// Adds copies that count for so many arrivals and bytes, and `extra` arrivals to wait for.
    fn phase_add(
        &mut self,
        address: u64,
        actor: Actor,
        copies: Vec<Copy>,
        (arrivals, bytes): (i64, i64),
        extra: i64,
    ) {
        let Some(barrier) = self.phases.get_mut(&address) else { return };
        let mut known = self.clocks.blank();
        self.clocks.collect(&[actor.thread()], &mut known);
        self.clocks.advance(actor.thread());
        barrier.pending += extra;
        barrier.tracked.push(Tracked { copies, known, arrivals, bytes });
        self.phase_progress(address, actor, false);
    }

    /// Ends the phase when nothing is missing. Copies that are all that is missing land only if `land`.
    fn phase_progress(&mut self, address: u64, actor: Actor, land: bool) {
        let Some(barrier) = self.phases.get_mut(&address) else { return };
        let outstanding: i64 = barrier.tracked.iter().map(|t| t.arrivals).sum();
        if barrier.pending > outstanding || (!barrier.tracked.is_empty() && !land) {
            return;
        }
        let tracked = std::mem::take(&mut barrier.tracked);
        barrier.pending -= outstanding;
        barrier.bytes -= tracked.iter().map(|t| t.bytes).sum::<i64>();
        let pending = barrier.pending;
        let agent = self.clocks.agent();
        tracked.iter().for_each(|t| self.clocks.acquire(&[agent], &t.known));
        let time = if tracked.is_empty() { None } else { Some(self.clocks.land(&mut barrier.joined)) };
        if barrier.pending <= 0 && barrier.bytes == 0 {
            barrier.phase += 1;
            barrier.pending = barrier.expected;
            barrier.handed.clone_from(&barrier.joined);
        }
        if pending < 0 {
            let place = Some((Space::Shared, address));
            self.find(
                FindingKind::Collective,
                actor.thread(),
                actor.pc,
                place,
                None,
                "more arrivals than the barrier expects",
            );
        }
        for c in tracked.into_iter().flat_map(|t| t.copies) {
            self.copy_arrives(Actor { time, ..Actor::one(agent / 32, agent % 32, c.pc) }, c);
        }
    }

    /// Tests whether a phase has ended; the lanes that find so are ordered after it.
    pub(super) fn phase_wait(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        at: Address,
        p: usize,
        wait: Wait,
    ) {
        let (mut ended, mut waited) = (0, Vec::new());
        for l in bits(exec) {
            let actor = Actor::one(warp.index, l, pc);
            let Some(address) = self.phase_barrier(actor, at, warp) else { continue };
            let Some(barrier) = self.phases.get(&address) else { continue };
            let done = match wait {
                Wait::Parity(row) => barrier.phase & 1 != warp.rows[row][l] & 1,
                Wait::Token(row) => barrier.phase > warp.rows[row][l],
            };
            if done {
                ended |= 1 << l;
                self.clocks.acquire(&[actor.thread()], &barrier.handed);
            } else {
                waited.push((address, actor));
            }
        }
        warp.set_pred(p, exec, ended);
        for (address, actor) in waited {
            self.phase_progress(address, actor, true);
        }
        // Those that wait let the others run.
        self.yielded |= ended != exec;
    }

    /// Forgets the barriers of a block, and those whose memory is put to other use.
    pub(super) fn phase_inval(&mut self, warp: &Warp, exec: u32, pc: usize, at: Address) {
        for l in bits(exec) {
            if let Some(address) = self.phase_barrier(Actor::one(warp.index, l, pc), at, warp) {
                self.phases.remove(&address);
                let offset = (address - SHARED_BASE) as usize;
                self.shared.flags[offset..offset + BYTES].iter_mut().for_each(|f| *f &= !crate::mem::INIT);
            }
        }
    }
}
