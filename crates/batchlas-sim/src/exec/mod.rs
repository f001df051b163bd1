//! Runs a decoded kernel, block by block.
//!
//! Every thread has its own program counter. Lanes of a warp at the same place run an instruction together, which
//! is only a way to be fast: the race detector does not count it as an order, and the random schedule breaks
//! the groups up. A lane waits at a block barrier until the barrier releases it, and at a warp operation until
//! all lanes that its mask names are there.

mod collective;
mod mbarrier;
mod memory;
mod step;

use crate::FindingKind;
use crate::alu::Lanes;
use crate::decode::{Fill, Kernel, PredRef, Row};
use crate::device::{Options, Schedule};
use crate::mem::{self, GAP, GlobalMemory, INIT, NO_WRITE, Region, SHARED_BASE};
use crate::ptx::Space;
use crate::race::{Clocks, Rival};
use crate::report::{Finding, Location, Report, Site, SiteCost, ThreadId};
use crate::stats::Stats;
use collective::Barrier;
use mbarrier::PhaseBarrier;
use memory::Copies;
use std::collections::HashMap;
use std::time::Instant;

/// Runs a launch that has been checked.
pub(crate) fn launch(
    kernel: &Kernel,
    memory: &mut GlobalMemory,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: usize,
    params: &[u8],
    options: &Options,
) -> Report {
    let start = Instant::now();
    memory.begin(kernel);
    let threads = block.iter().product::<u32>() as usize;
    let mut run = Run {
        kernel,
        memory,
        options: *options,
        params: parameters(params),
        grid,
        block,
        dynamic_shared,
        threads,
        block_index: 0,
        warps: Vec::new(),
        shared: Region::default(),
        local: Region::default(),
        clocks: Clocks::default(),
        barriers: Vec::new(),
        phases: HashMap::new(),
        yielded: false,
        random: Random(match options.schedule {
            Schedule::Random(seed) => seed ^ 0x9e37_79b9_7f4a_7c15,
            _ => 1,
        }),
        stats: Stats::default(),
        costs: vec![SiteCost::default(); kernel.insts.len()],
        findings: Vec::new(),
        seen: HashMap::new(),
        dropped: 0,
        stopped: false,
    };
    let blocks = grid.iter().product::<u32>();
    let (mut next, step) = run.block_order(blocks);
    for _ in 0..blocks {
        run.run_block(next);
        next = ((u64::from(next) + u64::from(step)) % u64::from(blocks)) as u32;
        if run.stopped {
            break;
        }
    }
    Report {
        findings: run.findings,
        dropped: run.dropped,
        stats: run.stats,
        elapsed: start.elapsed(),
        sites: kernel.sites.clone(),
        costs: run.costs,
    }
}

/// The parameter block as memory that is only read.
fn parameters(bytes: &[u8]) -> Region {
    let mut region = Region::default();
    region.reset(bytes.len(), INIT | NO_WRITE);
    region.bytes.copy_from_slice(bytes);
    region
}

/// Instructions after which a warp that does not wait lets others run: it may be waiting for them in a loop.
const STRETCH: usize = 1 << 14;
/// The same for a turn out of order.
const FAIR_STRETCH: usize = 1 << 8;

/// A small generator (xorshift64*) for schedules.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// One warp: registers, program counters and what each lane waits for.
#[derive(Default)]
struct Warp {
    index: usize,
    rows: Vec<Lanes>,
    preds: Vec<u32>,
    pc: [usize; 32],
    present: u32,
    exited: u32,
    at_barrier: u32,
    at_warp: u32,
    copies: Vec<Copies>,
    /// The calls that each lane is in.
    calls: Vec<Vec<usize>>,
    /// How often its stretch ended before it waited.
    turns: usize,
}

impl Warp {
    fn live(&self) -> u32 {
        self.present & !self.exited
    }

    /// Whether, after a long stretch, lanes get a short turn out of order, in case those that ran wait for them.
    fn fair(&self) -> bool {
        self.turns % 2 == 1
    }

    fn ready(&self) -> u32 {
        self.live() & !self.at_barrier & !self.at_warp
    }

    fn pred(&self, p: PredRef) -> u32 {
        if p.negated { !self.preds[p.pred] } else { self.preds[p.pred] }
    }

    fn set_pc(&mut self, lanes: u32, pc: usize) {
        for l in bits(lanes) {
            self.pc[l] = pc;
        }
    }

    fn set_pred(&mut self, pred: usize, lanes: u32, value: u32) {
        self.preds[pred] = self.preds[pred] & !lanes | value & lanes;
    }

    /// Writes `value` to the lanes of a row.
    fn set(&mut self, row: Row, lanes: u32, value: &Lanes) {
        if lanes == u32::MAX {
            self.rows[row] = *value;
        } else {
            for l in bits(lanes) {
                self.rows[row][l] = value[l];
            }
        }
    }
}

/// The indices of the set bits.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let l = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            l
        })
    })
}

struct Run<'a> {
    kernel: &'a Kernel,
    memory: &'a mut GlobalMemory,
    options: Options,
    params: Region,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: usize,
    threads: usize,
    block_index: u32,
    warps: Vec<Warp>,
    shared: Region,
    local: Region,
    clocks: Clocks,
    barriers: Vec<Barrier>,
    /// `mbarrier` objects by their address in shared memory.
    phases: HashMap<u64, PhaseBarrier>,
    /// A lane waits in a loop: others should run.
    yielded: bool,
    random: Random,
    stats: Stats,
    costs: Vec<SiteCost>,
    findings: Vec<Finding>,
    seen: HashMap<(FindingKind, usize, usize), Option<usize>>,
    dropped: u64,
    stopped: bool,
}

impl Run<'_> {
    /// The order of `n` blocks: the first one, and the distance to the next, which has no common factor with `n`.
    fn block_order(&mut self, n: u32) -> (u32, u32) {
        match self.options.schedule {
            Schedule::Forward => (0, 1),
            Schedule::Reverse => (n - 1, n - 1),
            Schedule::Random(_) => {
                let gcd = |mut a: u32, mut b: u32| {
                    while b != 0 {
                        (a, b) = (b, a % b);
                    }
                    a
                };
                let first = self.random.below(n as usize) as u32;
                let step = 1 + self.random.below(n as usize) as u32;
                (first, (step..).find(|s| gcd(*s, n) == 1).unwrap_or(1))
            }
        }
    }

    fn run_block(&mut self, index: u32) {
        self.block_index = index;
        self.start_block();
        loop {
            let ready: Vec<usize> = (0..self.warps.len()).filter(|w| self.warps[*w].ready() != 0).collect();
            if ready.is_empty() {
                if self.release_barriers() {
                    continue;
                }
                if self.warps.iter().any(|w| w.live() != 0) {
                    self.report_stuck();
                }
                break;
            }
            let fewest = ready.iter().map(|w| self.warps[*w].turns).min().unwrap_or(0);
            let mut first = ready.iter().filter(|w| self.warps[**w].turns == fewest);
            let w = match self.options.schedule {
                Schedule::Forward => first.next().copied(),
                Schedule::Reverse => first.next_back().copied(),
                Schedule::Random(_) => ready.get(self.random.below(ready.len())).copied(),
            }
            .unwrap_or(ready[0]);
            let quantum = match self.options.schedule {
                Schedule::Random(_) => 1 + self.random.below(64),
                _ if self.warps[w].fair() => FAIR_STRETCH,
                _ => STRETCH,
            };
            self.run_warp(w, quantum);
            if self.stopped {
                break;
            }
            self.release_barriers();
        }
    }

    fn start_block(&mut self) {
        let kernel = self.kernel;
        self.clocks.reset(self.threads);
        self.barriers.clear();
        self.phases.clear();
        self.barriers.resize_with(16, Barrier::default);
        let shared_end = (kernel.dynamic_shared_at - SHARED_BASE) as usize + self.dynamic_shared;
        self.shared.reset(shared_end, GAP);
        for p in &kernel.shared {
            let at = (p.address - SHARED_BASE) as usize;
            self.shared.flags[at..at + p.variable.size].fill(0);
        }
        self.shared.flags[(kernel.dynamic_shared_at - SHARED_BASE) as usize..].fill(0);
        self.shared.shadow.restart(shared_end, kernel.shared_grain);
        self.local.reset(kernel.local_bytes * self.threads, GAP);
        for t in 0..self.threads {
            for p in &kernel.local {
                let at = t * kernel.local_bytes + p.address as usize;
                self.local.flags[at..at + p.variable.size].fill(0);
            }
        }
        self.warps.resize_with(self.threads.div_ceil(32), Warp::default);
        for w in 0..self.warps.len() {
            let count = (self.threads - 32 * w).min(32);
            let mut warp = std::mem::take(&mut self.warps[w]);
            warp.index = w;
            // Registers start as a recognisable NaN, once a launch: a kernel that reads a register before it
            // writes it gives a wrong answer in the first block already.
            let fresh = warp.rows.is_empty();
            if fresh {
                warp.rows.resize(kernel.rows, [0x7ff4_dead_7fa4_dead; 32]);
            }
            warp.preds.clear();
            warp.preds.resize(kernel.preds, 0);
            warp.preds[kernel.true_pred] = u32::MAX;
            warp.pc = [0; 32];
            warp.present = if count == 32 { u32::MAX } else { (1 << count) - 1 };
            (warp.exited, warp.at_barrier, warp.at_warp) = (0, 0, 0);
            warp.copies.clear();
            warp.calls.clear();
            warp.turns = 0;
            for (row, fill) in &kernel.fills {
                match fill {
                    Fill::Value(v) if fresh => warp.rows[*row] = [*v; 32],
                    Fill::Value(_) => {}
                    Fill::Special(name) => {
                        warp.rows[*row] = std::array::from_fn(|l| self.special(name, 32 * w + l));
                    }
                }
            }
            self.warps[w] = warp;
        }
    }

    fn special(&self, name: &str, thread: usize) -> u64 {
        let who = self.thread_id(self.block_index, thread as u32);
        let axis = match name.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let lane = thread as u32 % 32;
        u64::from(match name {
            "%tid.x" | "%tid.y" | "%tid.z" => who.thread[axis],
            "%ntid.x" | "%ntid.y" | "%ntid.z" => self.block[axis],
            "%ctaid.x" | "%ctaid.y" | "%ctaid.z" => who.block[axis],
            "%nctaid.x" | "%nctaid.y" | "%nctaid.z" => self.grid[axis],
            "%laneid" => lane,
            "%warpid" => thread as u32 / 32,
            "%nwarpid" => self.threads.div_ceil(32) as u32,
            "%lanemask_eq" => 1 << lane,
            "%lanemask_lt" => (1 << lane) - 1,
            "%lanemask_le" => (2u64 << lane).wrapping_sub(1) as u32,
            "%lanemask_gt" => !((2u64 << lane).wrapping_sub(1) as u32),
            "%lanemask_ge" => !((1 << lane) - 1),
            _ => self.dynamic_shared as u32,
        })
    }

    /// Picks the lanes of a warp that run next: a group at one place.
    fn choose(&mut self, warp: &Warp) -> (u32, usize) {
        let ready = warp.ready();
        let mut places = bits(ready).map(|l| warp.pc[l]);
        let pc = match self.options.schedule {
            _ if warp.fair() => places.nth(warp.turns / 2 % ready.count_ones() as usize),
            // The lowest place first lets lanes that went ahead be caught up with.
            Schedule::Forward => places.min(),
            Schedule::Reverse => places.max(),
            Schedule::Random(_) => places.nth(self.random.below(ready.count_ones() as usize)),
        }
        .unwrap_or(0);
        let mut group = bits(ready).filter(|l| warp.pc[*l] == pc).fold(0, |m, l| m | 1 << l);
        if matches!(self.options.schedule, Schedule::Random(_)) && self.random.below(4) == 0 {
            let part = group & self.random.next() as u32;
            group = if part == 0 { group } else { part };
        }
        (group, pc)
    }

    fn run_warp(&mut self, w: usize, quantum: usize) {
        let mut warp = std::mem::take(&mut self.warps[w]);
        let mut left = quantum;
        while warp.ready() != 0 && left > 0 && !self.stopped {
            let (group, mut pc) = self.choose(&warp);
            let others = bits(warp.ready() & !group).map(|l| warp.pc[l]);
            let meet = match self.options.schedule {
                Schedule::Forward if !warp.fair() => others.min().unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let budget = self.options.max_instructions;
            while let Some(next) = self.step(&mut warp, group, pc) {
                pc = next;
                left = if std::mem::take(&mut self.yielded) { 0 } else { left - 1 };
                if pc >= meet || left == 0 || self.stats.warp_instructions > budget {
                    warp.set_pc(group, pc);
                    break;
                }
            }
            if self.stats.warp_instructions > self.options.max_instructions {
                let thread = 32 * w + group.trailing_zeros() as usize;
                let pc = pc.min(self.kernel.insts.len() - 1);
                let detail = format!("after {} warp instructions", self.stats.warp_instructions);
                self.find(FindingKind::Budget, thread, pc, None, None, &detail);
                self.stopped = true;
            }
        }
        let random = matches!(self.options.schedule, Schedule::Random(_));
        warp.turns = if left == 0 && !random { warp.turns + 1 } else { 0 };
        self.warps[w] = warp;
    }

    fn thread_id(&self, block: u32, thread: u32) -> ThreadId {
        let split = |i: u32, d: [u32; 3]| [i % d[0], i / d[0] % d[1], i / d[0] / d[1]];
        ThreadId { block: split(block, self.grid), thread: split(thread, self.block) }
    }

    fn site(&self, pc: usize) -> Site {
        self.kernel.sites[pc].clone()
    }

    fn locate(&self, space: Space, address: u64) -> Location {
        mem::locate(self.memory, self.kernel, self.dynamic_shared, space, address)
    }

    /// Reports something, unless the same was reported at the same place.
    fn find(
        &mut self,
        kind: FindingKind,
        thread: usize,
        pc: usize,
        at: Option<(Space, u64)>,
        rival: Option<Rival>,
        detail: &str,
    ) {
        let key = (kind, pc, rival.map_or(usize::MAX, |r| r.pc as usize));
        if let Some(index) = self.seen.get(&key) {
            match index {
                Some(index) => self.findings[*index].count += 1,
                None => self.dropped += 1,
            }
            return;
        }
        if self.findings.len() >= self.options.max_findings {
            self.seen.insert(key, None);
            self.dropped += 1;
            return;
        }
        let copied = rival.is_some_and(|r| r.thread as usize == self.threads);
        let detail = if copied {
            "the other side is an asynchronous copy whose barrier was not waited for"
        } else {
            detail
        };
        self.seen.insert(key, Some(self.findings.len()));
        let finding = Finding {
            kind,
            kernel: self.kernel.name.clone(),
            site: self.site(pc),
            who: self.thread_id(self.block_index, thread as u32),
            location: at.map(|(space, address)| self.locate(space, address)),
            other: rival.map(|r| (self.thread_id(r.block, r.thread), self.site(r.pc as usize))),
            detail: detail.to_string(),
            count: 1,
        };
        self.findings.push(finding);
    }
}
