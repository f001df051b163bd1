//! Warp operations and block barriers: who waits for whom, and what is handed over.

use super::{Run, Warp, bits};
use crate::FindingKind;
use crate::alu::{self, Lanes};
use crate::decode::{BarrierKind, Logic, Op, Row, ShflMode, VoteMode};

/// A named barrier of a block.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// Threads that have come: thread, instruction, their predicate for a reduction, and whether they wait.
    arrived: Vec<Arrival>,
    expected: Option<usize>,
    /// Knowledge of the threads that came without waiting.
    brought: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    thread: usize,
    pc: usize,
    predicate: bool,
    waits: bool,
}

impl Run<'_> {
    /// Lets `exec` arrive at the warp operation at `pc`, and completes it for the lanes whose mask is complete.
    /// Returns those; the others wait.
    pub(super) fn collective(&mut self, warp: &mut Warp, exec: u32, pc: usize, op: &Op) -> u32 {
        let masks: Lanes = match op {
            Op::WarpSync { mask }
            | Op::Shfl { mask, .. }
            | Op::Vote { mask, .. }
            | Op::Ballot { mask, .. }
            | Op::Match { mask, .. }
            | Op::Elect { mask, .. }
            | Op::Redux { mask, .. } => warp.rows[*mask],
            _ => [u64::from(u32::MAX); 32],
        };
        let ready = self.gather(warp, exec, pc, &masks);
        if ready != 0 {
            self.complete(warp, ready, pc, op, &masks);
        }
        ready
    }

    /// The lanes that have all the company they asked for.
    fn gather(&mut self, warp: &mut Warp, exec: u32, pc: usize, masks: &Lanes) -> u32 {
        if warp.at_warp == 0 && bits(exec).all(|l| masks[l] as u32 == exec) {
            return exec;
        }
        warp.at_warp |= exec;
        warp.set_pc(exec, pc);
        let waiting = bits(warp.at_warp).filter(|l| warp.pc[*l] == pc).fold(0, |m, l| m | 1 << l);
        let mut ready = 0;
        for l in bits(exec) {
            if ready >> l & 1 != 0 {
                continue;
            }
            let mask = masks[l] as u32;
            let thread = 32 * warp.index + l;
            if mask >> l & 1 == 0 {
                let detail = format!("mask {mask:#010x} does not name lane {l} itself");
                self.find(FindingKind::Collective, thread, pc, None, None, &detail);
            }
            let members = bits(waiting).filter(|m| masks[*m] as u32 == mask).fold(0, |m, l| m | 1 << l);
            if mask & warp.live() & !members == 0 {
                let gone = mask & warp.exited;
                if gone != 0 {
                    let detail = format!("mask {mask:#010x} names lanes {gone:#010x} that have left");
                    self.find(FindingKind::Collective, thread, pc, None, None, &detail);
                }
                ready |= members;
            }
        }
        warp.at_warp &= !ready;
        ready
    }

    fn complete(&mut self, warp: &mut Warp, ready: u32, pc: usize, op: &Op, masks: &Lanes) {
        // The lanes that take part with lane `l`.
        let team = |l: usize| bits(ready).filter(|m| masks[*m] == masks[l]).fold(0u32, |m, l| m | 1 << l);
        let one_team = bits(ready).all(|l| masks[l] as u32 == ready);
        let teams = |l: usize| if one_team { ready } else { team(l) };
        let mut out = [0u64; 32];
        match op {
            Op::WarpSync { .. } => {
                let mut left = ready;
                while left != 0 {
                    let members = team(left.trailing_zeros() as usize);
                    left &= !members;
                    let threads: Vec<usize> = bits(members).map(|l| 32 * warp.index + l).collect();
                    let all = self.warps.len() == 1 && members == warp.live();
                    self.clocks.synchronise(&threads, all);
                }
            }
            Op::Shfl { mode, d, p, a, b, c, .. } => {
                let (a, b, c) = (&warp.rows[*a], &warp.rows[*b], &warp.rows[*c]);
                let (mut valid, mut wrong) = (0, None);
                for l in bits(ready) {
                    let (from, ok) = shuffle_source(*mode, l, b[l] as u32, c[l] as u32);
                    valid |= u32::from(ok) << l;
                    out[l] = a[from];
                    if teams(l) >> from & 1 == 0 {
                        wrong = wrong.or(Some((l, from)));
                    }
                }
                warp.set(*d, ready, &out);
                if let Some(p) = p {
                    warp.set_pred(*p, ready, valid);
                }
                if let Some((l, from)) = wrong {
                    let detail = format!("lane {l} reads lane {from}, which takes no part");
                    self.find(FindingKind::Collective, 32 * warp.index + l, pc, None, None, &detail);
                }
            }
            Op::Vote { mode, d, a, .. } => {
                let votes = warp.pred(*a);
                let result = bits(ready).fold(0, |r, l| {
                    let team = teams(l);
                    let yes = match mode {
                        VoteMode::All => votes & team == team,
                        VoteMode::Any => votes & team != 0,
                        VoteMode::Uni => votes & team == team || votes & team == 0,
                    };
                    r | u32::from(yes) << l
                });
                warp.set_pred(*d, ready, result);
            }
            Op::Ballot { d, a, .. } => {
                let votes = warp.pred(*a);
                bits(ready).for_each(|l| out[l] = u64::from(votes & teams(l)));
                warp.set(*d, ready, &out);
            }
            Op::Match { all, d, p, a, .. } => {
                let a = warp.rows[*a];
                let mut agree = 0;
                for l in bits(ready) {
                    let team = teams(l);
                    let same = bits(team).filter(|m| a[*m] == a[l]).fold(0u32, |m, l| m | 1 << l);
                    agree |= u32::from(same == team) << l;
                    out[l] = u64::from(if *all && same != team { 0 } else { same });
                }
                warp.set(*d, ready, &out);
                if let Some(p) = p {
                    warp.set_pred(*p, ready, agree);
                }
            }
            Op::Redux { f, d, a, .. } => {
                let a = warp.rows[*a];
                for l in bits(ready) {
                    out[l] = bits(teams(l))
                        .map(|m| a[m])
                        .reduce(|x, y| {
                            let mut r = [0; 32];
                            alu::binary(*f, &[x; 32], &[y; 32], &mut r);
                            r[0]
                        })
                        .unwrap_or(0);
                }
                warp.set(*d, ready, &out);
            }
            Op::Elect { d, p, .. } => {
                bits(ready).for_each(|l| out[l] = u64::from(teams(l).trailing_zeros()));
                let chosen = bits(ready).filter(|l| out[*l] == *l as u64).fold(0, |m, l| m | 1 << l);
                warp.set(*d, ready, &out);
                if let Some(p) = p {
                    warp.set_pred(*p, ready, chosen);
                }
            }
            Op::LdMatrix { at, d, trans } => self.load_matrix(warp, ready, pc, *at, d, *trans),
            Op::StMatrix { at, a, trans } => self.store_matrix(warp, ready, pc, *at, a, *trans),
            Op::Mma { shape, d, a, b, c } => {
                if ready != u32::MAX {
                    let detail = format!("lanes {ready:#010x} are there, all 32 must be");
                    let thread = 32 * warp.index + ready.trailing_zeros() as usize;
                    self.find(FindingKind::Collective, thread, pc, None, None, &detail);
                }
                let fragment = |rows: &[Row]| rows.iter().map(|r| warp.rows[*r]).collect::<Vec<Lanes>>();
                let result = shape.multiply(&fragment(a), &fragment(b), &fragment(c));
                for (d, value) in d.iter().zip(&result) {
                    warp.set(*d, ready, value);
                }
            }
            _ => {}
        }
    }

    /// Lets lanes arrive at a block barrier. Returns whether they wait there.
    pub(super) fn barrier_arrive(
        &mut self,
        warp: &mut Warp,
        exec: u32,
        pc: usize,
        kind: BarrierKind,
        id: Row,
        count: Option<Row>,
    ) -> bool {
        let waits = kind != BarrierKind::Arrive;
        for l in bits(exec) {
            let thread = 32 * warp.index + l;
            let id = warp.rows[id][l] as usize;
            let predicate = match kind {
                BarrierKind::Popc(_, p) | BarrierKind::Test(_, _, p) => warp.pred(p) >> l & 1 != 0,
                _ => false,
            };
            let Some(barrier) = self.barriers.get_mut(id) else {
                let detail = format!("barrier {id}; there are 16");
                self.find(FindingKind::Deadlock, thread, pc, None, None, &detail);
                self.stopped = true;
                return true;
            };
            barrier.arrived.push(Arrival { thread, pc, predicate, waits });
            if let Some(count) = count {
                barrier.expected = Some(warp.rows[count][l] as usize);
            }
            if !waits {
                let joined = barrier.brought.get_or_insert_with(|| self.clocks.blank());
                self.clocks.collect(&[thread], joined);
                self.clocks.advance(thread);
            }
        }
        if waits {
            warp.at_barrier |= exec;
        }
        waits
    }

    /// Releases the barriers that all expected threads have reached. Returns whether there was one.
    pub(super) fn release_barriers(&mut self) -> bool {
        let live: usize = self.warps.iter().map(|w| w.live().count_ones() as usize).sum();
        let mut released = false;
        for id in 0..self.barriers.len() {
            let barrier = &self.barriers[id];
            let expected = barrier.expected.unwrap_or(live);
            if !barrier.arrived.is_empty() && barrier.arrived.len() >= expected {
                let barrier = std::mem::take(&mut self.barriers[id]);
                self.release(barrier, live);
                released = true;
            }
        }
        released
    }

    fn release(&mut self, barrier: Barrier, live: usize) {
        self.check_alignment(&barrier);
        let waiting: Vec<Arrival> = barrier.arrived.iter().filter(|a| a.waits).copied().collect();
        let members: Vec<usize> = waiting.iter().map(|a| a.thread).collect();
        match barrier.brought {
            None => self.clocks.synchronise(&members, members.len() == live),
            Some(mut joined) => {
                self.clocks.collect(&members, &mut joined);
                self.clocks.acquire(&members, &joined);
            }
        }
        let votes = waiting.iter().filter(|a| a.predicate).count();
        for a in &waiting {
            let (warp, lane) = (&mut self.warps[a.thread / 32], a.thread % 32);
            warp.at_barrier &= !(1 << lane);
            match self.kernel.insts[a.pc].op {
                Op::Barrier { kind: BarrierKind::Popc(d, _), .. } => warp.rows[d][lane] = votes as u64,
                Op::Barrier { kind: BarrierKind::Test(f, d, _), .. } => {
                    let yes = if f == Logic::And { votes == waiting.len() } else { votes > 0 };
                    warp.set_pred(d, 1 << lane, u32::from(yes) << lane);
                }
                _ => {}
            }
        }
    }

    /// An aligned barrier must be reached by all lanes of a warp, at one instruction.
    fn check_alignment(&mut self, barrier: &Barrier) {
        let mut seen: Vec<Option<(usize, u32)>> = vec![None; self.warps.len()];
        for a in &barrier.arrived {
            let aligned = matches!(self.kernel.insts[a.pc].op, Op::Barrier { aligned: true, .. });
            let entry = seen[a.thread / 32].get_or_insert((a.pc, 0));
            entry.1 |= 1 << (a.thread % 32);
            if aligned && entry.0 != a.pc {
                let other = self.site(entry.0);
                let detail = format!("other lanes of the warp are at {other}");
                self.find(FindingKind::BarrierDivergence, a.thread, a.pc, None, None, &detail);
            }
        }
        for (w, entry) in seen.iter().enumerate() {
            let Some((pc, lanes)) = *entry else { continue };
            let missing = self.warps[w].live() & !lanes;
            if missing != 0 && matches!(self.kernel.insts[pc].op, Op::Barrier { aligned: true, .. }) {
                let detail = format!("lanes {missing:#010x} of the warp are not there");
                let thread = 32 * w + lanes.trailing_zeros() as usize;
                self.find(FindingKind::BarrierDivergence, thread, pc, None, None, &detail);
            }
        }
    }

    /// Nobody can go on: says what each group waits for, and gives the launch up.
    pub(super) fn report_stuck(&mut self) {
        self.stopped = true;
        for w in 0..self.warps.len() {
            let warp = &self.warps[w];
            let Some(lane) = bits(warp.at_warp).next() else { continue };
            let pc = warp.pc[lane];
            let here = bits(warp.at_warp).filter(|l| warp.pc[*l] == pc).fold(0u32, |m, l| m | 1 << l);
            let elsewhere: Vec<String> = bits(warp.live() & !here)
                .take(1)
                .map(|l| {
                    let at = if warp.at_barrier >> l & 1 != 0 { warp.pc[l] - 1 } else { warp.pc[l] };
                    format!("lane {l} waits at {}", self.site(at))
                })
                .collect();
            let detail = format!(
                "lanes {here:#010x} wait here for others of their mask; {}",
                elsewhere.first().map_or("no other lane is there", |s| s.as_str())
            );
            self.find(FindingKind::Collective, 32 * w + lane, pc, None, None, &detail);
        }
        for id in 0..self.barriers.len() {
            let Some(first) = self.barriers[id].arrived.first().copied() else { continue };
            let live: usize = self.warps.iter().map(|w| w.live().count_ones() as usize).sum();
            let expected = self.barriers[id].expected.unwrap_or(live);
            let detail = format!(
                "{} of {expected} threads have come to barrier {id} and nobody else can",
                self.barriers[id].arrived.len()
            );
            self.find(FindingKind::Deadlock, first.thread, first.pc, None, None, &detail);
        }
    }
}

/// The lane that a shuffle reads, and whether it is in range.
fn shuffle_source(mode: ShflMode, lane: usize, b: u32, c: u32) -> (usize, bool) {
    let (lane, b) = (lane as u32, b & 31);
    let (clamp, segment) = (c & 31, c >> 8 & 31);
    let last = lane & segment | clamp & !segment & 31;
    let first = lane & segment;
    let (from, ok) = match mode {
        ShflMode::Up => (lane.wrapping_sub(b), lane as i32 - b as i32 >= last as i32),
        ShflMode::Down => (lane + b, lane + b <= last),
        ShflMode::Bfly => (lane ^ b, lane ^ b <= last),
        ShflMode::Idx => {
            let from = first | b & !segment;
            (from, from <= last)
        }
    };
    (if ok { from as usize & 31 } else { lane as usize }, ok)
}
