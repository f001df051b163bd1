//! Data races by happens-before.
//!
//! The crate's documentation says what is ordered and what is not. Here is how it is kept.
//!
//! Instead of a full vector clock per thread, a block counts synchronisation events. A thread's time is the
//! event of its latest synchronisation. A barrier of the whole block raises a floor below which everything is
//! ordered, so the common case costs one comparison; a synchronisation of a whole warp raises a floor of that warp in the
//! same way. The matrix of what each thread knows of each other is only made when anything else synchronises.

/// Threads of a warp.
const WARP: usize = 32;

/// The synchronisation state of one block.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    threads: usize,
    event: u32,
    floor: u32,
    settled: u32,
    now: Vec<u32>,
    /// The floor when a thread left, or `u32::MAX`: a later barrier does not order what it did.
    exit_floor: Vec<u32>,
    /// For each whole warp that synchronised its 32 lanes: what they did before this time is ordered among them.
    warp_floor: Vec<u32>,
    /// `known[t * threads + u]`: accesses of `u` before this time happened before what `t` does now. Empty until
    /// something else than a whole block or a whole warp synchronises.
    known: Vec<u32>,
}

impl Clocks {
    /// Starts a block of `threads` threads. One more stands for the asynchronous copies that barriers in shared
    /// memory track: whoever has not seen such a barrier's phase end is not ordered after them.
    pub(crate) fn reset(&mut self, threads: usize) {
        let threads = threads + 1;
        self.threads = threads;
        (self.event, self.floor, self.settled) = (1, 1, 1);
        self.now.clear();
        self.now.resize(threads, 1);
        self.exit_floor.clear();
        self.exit_floor.resize(threads, u32::MAX);
        self.warp_floor.clear();
        self.warp_floor.resize(threads.div_ceil(WARP), 0);
        self.known.clear();
    }

    pub(crate) fn now(&self, thread: usize) -> u32 {
        self.now[thread]
    }

    /// Whether these lanes of a warp stand at the same time, so that one record can speak for all of them.
    pub(crate) fn abreast(&self, warp: usize, set: u32) -> bool {
        let mut times = lanes(warp as u32, set).map(|t| self.now[t as usize]);
        let first = times.next();
        times.all(|t| Some(t) == first)
    }

    /// Knowledge of nothing.
    pub(crate) fn blank(&self) -> Vec<u32> {
        vec![0; self.threads]
    }

    /// The thread that stands for tracked copies.
    pub(crate) fn agent(&self) -> usize {
        self.threads - 1
    }

    /// Starts a new time for tracked copies, which no barrier orders, and hands it to those who learn `joined`.
    pub(crate) fn land(&mut self, joined: &mut [u32]) -> u32 {
        let agent = self.agent();
        self.exit_floor[agent] = 0;
        self.settled = 0;
        self.advance(agent);
        joined[agent] = self.now[agent] + 1;
        self.now[agent]
    }

    pub(crate) fn exit(&mut self, thread: usize) {
        self.exit_floor[thread] = self.floor;
        self.settled = self.settled.min(self.floor);
    }

    /// Whether an access of `u` at `time` happened before what `t` does now.
    fn ordered(&self, u: usize, time: u32, t: usize) -> bool {
        u == t
            || time < self.floor.min(self.exit_floor[u])
            || (u / WARP == t / WARP && time < self.warp_floor[u / WARP])
            || self.known.get(t * self.threads + u).is_some_and(|known| time < *known)
    }

    /// Orders everything that `members` did before everything that they do from now on. `all` says that they
    /// are all threads that have not left.
    pub(crate) fn synchronise(&mut self, members: &[usize], all: bool) {
        if all {
            self.gather_departed(members);
            self.event += 1;
            self.floor = self.event;
            let departed = self.exit_floor.iter().min().copied().unwrap_or(u32::MAX);
            self.settled = self.floor.min(departed);
            self.now.fill(self.event);
            return;
        }
        if let Some(warp) = self.whole_warp(members) {
            self.warp_floor[warp] = self.event + 1;
            if self.known.is_empty() {
                self.event += 1;
                self.now[warp * WARP..][..WARP].fill(self.event);
                return;
            }
        }
        let mut joined = self.blank();
        self.collect(members, &mut joined);
        self.acquire(members, &joined);
    }

    /// The warp whose 32 lanes `members` are, if none of them has left.
    fn whole_warp(&self, members: &[usize]) -> Option<usize> {
        let warp = members.first()? / WARP;
        let own = self.exit_floor.get(warp * WARP..(warp + 1) * WARP)?;
        // The members of a warp's synchronisation come in order.
        let whole = members.len() == WARP && members[WARP - 1] == warp * WARP + WARP - 1;
        (whole && own.iter().all(|floor| *floor == u32::MAX)).then_some(warp)
    }

    /// Adds to `joined` all that `members` did and know.
    pub(crate) fn collect(&mut self, members: &[usize], joined: &mut [u32]) {
        self.make_known();
        for &t in members {
            let row = &self.known[t * self.threads..][..self.threads];
            for (j, k) in joined.iter_mut().zip(row) {
                *j = (*j).max(*k);
            }
            joined[t] = joined[t].max(self.now[t] + 1);
        }
    }

    /// Gives `members` the knowledge in `joined`, and starts a new time for them.
    pub(crate) fn acquire(&mut self, members: &[usize], joined: &[u32]) {
        self.make_known();
        self.event += 1;
        for &t in members {
            self.now[t] = self.event;
            let row = &mut self.known[t * self.threads..][..self.threads];
            for (k, j) in row.iter_mut().zip(joined) {
                *k = (*k).max(*j);
            }
        }
    }

    /// Starts a new time for a thread that told others but learnt nothing.
    pub(crate) fn advance(&mut self, thread: usize) {
        self.event += 1;
        self.now[thread] = self.event;
    }

    fn make_known(&mut self) {
        if !self.known.is_empty() {
            return;
        }
        self.known.resize(self.threads * self.threads, 0);
        for t in 0..self.threads {
            let first = t / WARP * WARP;
            let last = (first + WARP).min(self.threads);
            self.known[t * self.threads..][first..last].fill(self.warp_floor[t / WARP]);
        }
    }

    /// What one member knows of a thread that left, all know after a barrier.
    fn gather_departed(&mut self, members: &[usize]) {
        if self.known.is_empty() {
            return;
        }
        for u in (0..self.threads).filter(|u| self.exit_floor[*u] != u32::MAX) {
            let most = members.iter().map(|t| self.known[t * self.threads + u]).max().unwrap_or(0);
            for t in members {
                self.known[t * self.threads + u] = most;
            }
        }
    }
}

/// How an access takes part in races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    StrongRead,
    StrongWrite,
    /// Reads and writes, strongly.
    Atomic,
    /// A read through the non-coherent path.
    NonCoherentRead,
}

impl Kind {
    pub(crate) fn reads(self) -> bool {
        !matches!(self, Kind::Write | Kind::StrongWrite)
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::StrongWrite | Kind::Atomic)
    }

    /// Strong accesses do not race with each other.
    fn strong(self) -> bool {
        matches!(self, Kind::StrongRead | Kind::StrongWrite | Kind::Atomic)
    }

    fn clashes(self, other: Kind) -> bool {
        (self.writes() || other.writes()) && !(self.strong() && other.strong())
    }
}

/// An access, by whom and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) kind: Kind,
    pub(crate) block: u32,
    pub(crate) warp: u32,
    /// The lanes that access the same bytes; a plain write is by one lane.
    pub(crate) lanes: u32,
    pub(crate) time: u32,
    pub(crate) pc: u32,
}

/// The other side of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rival {
    pub(crate) block: u32,
    pub(crate) thread: u32,
    pub(crate) pc: u32,
    pub(crate) writes: bool,
    /// Ordered, but one side used the non-coherent path.
    pub(crate) non_coherent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    block: u32,
    thread: u32,
    time: u32,
    pc: u32,
}

/// Accesses that need not exclude each other, by lanes of one warp at one time.
#[derive(Clone, Copy, Debug)]
struct Shared {
    kind: Kind,
    block: u32,
    warp: u32,
    time: u32,
    lanes: u32,
    pc: u32,
}

/// The history of one grain of memory.
#[derive(Clone, Debug, Default)]
struct Cell {
    generation: u32,
    non_coherent: bool,
    /// Whether some of the shared accesses write.
    strong_writes: bool,
    write: Option<Write>,
    first: Option<Shared>,
    /// More of them, when there are more.
    #[allow(clippy::box_collection, reason = "a cell is there for every grain: 16 bytes less count")]
    rest: Option<Box<Vec<Shared>>>,
}

/// Blocks other than the running one whose reads of a grain are kept: one is enough to prove a race.
const FOREIGN_KEPT: usize = 2;
const PAGE: usize = 256;

/// The history of a memory, by grains of 1, 2 or 4 bytes, made page by page as it is touched.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    shift: u32,
    generation: u32,
    pages: Vec<Option<Box<[Cell]>>>,
}

impl Shadow {
    /// Forgets everything and sets the grain.
    pub(crate) fn restart(&mut self, bytes: usize, grain: usize) {
        let shift = grain.trailing_zeros();
        let pages = bytes.div_ceil(grain).div_ceil(PAGE);
        if shift != self.shift || pages != self.pages.len() {
            self.pages.clear();
            self.pages.resize(pages, None);
            self.shift = shift;
        }
        self.generation += 1;
    }

    /// Records an access to `bytes` bytes at `offset` and returns a rival if it races.
    pub(crate) fn access(
        &mut self,
        clocks: &Clocks,
        offset: usize,
        bytes: usize,
        a: Access,
    ) -> Option<Rival> {
        let mut rival = None;
        for grain in offset >> self.shift..=(offset + bytes - 1) >> self.shift {
            let page = self.pages[grain / PAGE]
                .get_or_insert_with(|| vec![Cell::default(); PAGE].into_boxed_slice());
            let cell = &mut page[grain % PAGE];
            if cell.generation != self.generation {
                cell.generation = self.generation;
                cell.non_coherent = false;
                cell.strong_writes = false;
                cell.write = None;
                cell.first = None;
                cell.rest = None;
            }
            let found = cell.access(clocks, a);
            rival = rival.or(found);
        }
        rival
    }
}

impl Access {
    /// The first of its lanes that the access of `u` at `time` did not happen before.
    fn unordered(self, clocks: &Clocks, u: u32, time: u32) -> Option<u32> {
        let warp = self.warp as usize;
        if u as usize / WARP == warp && time < clocks.warp_floor[warp] {
            return None;
        }
        lanes(self.warp, self.lanes).find(|t| !clocks.ordered(u as usize, time, *t as usize))
    }
}

/// The threads of the set lanes of a warp.
fn lanes(warp: u32, mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let lane = set.trailing_zeros();
            set &= set - 1;
            warp * 32 + lane
        })
    })
}

impl Cell {
    fn shared(&self) -> impl Iterator<Item = &Shared> {
        self.first.iter().chain(self.rest.iter().flat_map(|r| r.iter()))
    }

    fn access(&mut self, clocks: &Clocks, a: Access) -> Option<Rival> {
        let settled = |block: u32, time: u32| block == a.block && time < clocks.settled;
        let mut rival = self.write.and_then(|w| {
            let stale = a.kind == Kind::NonCoherentRead;
            let ordered = settled(w.block, w.time)
                || (w.block == a.block && a.unordered(clocks, w.thread, w.time).is_none());
            (!ordered || stale).then_some(Rival {
                block: w.block,
                thread: w.thread,
                pc: w.pc,
                writes: true,
                non_coherent: ordered,
            })
        });
        // Reads cannot clash with reads, which are most of what is shared.
        if rival.is_none() && (a.kind.writes() || self.strong_writes) {
            rival = self
                .shared()
                .filter(|s| s.kind.clashes(a.kind) && !settled(s.block, s.time))
                .find_map(|s| s.conflict(clocks, a));
        }
        if rival.is_none() && a.kind.writes() && self.non_coherent {
            rival = self.shared().next().map(|s| s.rival(s.warp * 32 + s.lanes.trailing_zeros(), true));
        }
        self.non_coherent |= a.kind == Kind::NonCoherentRead;
        let thread = a.warp * 32 + a.lanes.trailing_zeros();
        let time = a.time;
        if a.kind == Kind::Write {
            self.write = Some(Write { block: a.block, thread, time, pc: a.pc });
            self.first = None;
            self.rest = None;
            self.strong_writes = false;
        } else {
            self.strong_writes |= a.kind.writes();
            let Access { kind, block, warp, lanes, time, pc } = a;
            self.share(clocks, Shared { kind, block, warp, time, lanes, pc });
        }
        rival
    }

    fn share(&mut self, clocks: &Clocks, new: Shared) {
        let joins = |s: &Shared| {
            s.kind == new.kind && s.block == new.block && s.warp == new.warp && s.time == new.time
        };
        match &mut self.first {
            None => {
                self.first = Some(new);
                return;
            }
            Some(first) if joins(first) => {
                first.lanes |= new.lanes;
                first.pc = new.pc;
                return;
            }
            // Settled accesses are ordered before all that follows in this block; `new` speaks for them to
            // the other blocks.
            Some(first) if first.settled(clocks, new) && self.rest.is_none() => {
                *first = new;
                return;
            }
            Some(_) => {}
        }
        let rest = self.rest.get_or_insert_default();
        if let Some(s) = rest.iter_mut().find(|s| joins(s)) {
            s.lanes |= new.lanes;
            s.pc = new.pc;
            return;
        }
        // What is ordered after the new access of a lane is ordered after its earlier ones.
        for s in self.first.iter_mut().chain(rest.iter_mut()) {
            if s.kind == new.kind && s.block == new.block && s.warp == new.warp {
                s.lanes &= !new.lanes;
            }
        }
        rest.retain(|s| s.lanes != 0 && !s.settled(clocks, new));
        if let Some(first) = self.first.as_mut().filter(|f| f.lanes == 0) {
            *first = new;
            return;
        }
        let foreign = |s: &&Shared| s.kind == new.kind && s.block != new.block;
        while rest.iter().filter(foreign).count() > FOREIGN_KEPT {
            let at = rest.iter().position(|s| foreign(&s)).unwrap_or(0);
            rest.swap_remove(at);
        }
        rest.push(new);
    }
}

impl Shared {
    fn settled(&self, clocks: &Clocks, new: Shared) -> bool {
        self.kind == new.kind && self.block == new.block && self.time < clocks.settled
    }

    fn conflict(&self, clocks: &Clocks, a: Access) -> Option<Rival> {
        if self.block == a.block && self.warp == a.warp && self.time < clocks.warp_floor[a.warp as usize] {
            return None;
        }
        lanes(self.warp, self.lanes)
            .find(|u| self.block != a.block || a.unordered(clocks, *u, self.time).is_some())
            .map(|u| self.rival(u, false))
    }

    fn rival(&self, thread: u32, non_coherent: bool) -> Rival {
        Rival { block: self.block, thread, pc: self.pc, writes: self.kind.writes(), non_coherent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        clocks: Clocks,
        shadow: Shadow,
    }

    fn world(threads: usize) -> World {
        let mut w = World { clocks: Clocks::default(), shadow: Shadow::default() };
        w.clocks.reset(threads);
        w.shadow.restart(64, 4);
        w
    }

    impl World {
        fn does(&mut self, kind: Kind, thread: u32) -> bool {
            self.in_block(kind, thread, 0)
        }

        fn in_block(&mut self, kind: Kind, thread: u32, block: u32) -> bool {
            let time = self.clocks.now(thread as usize);
            let a = Access { kind, block, warp: thread / 32, lanes: 1 << (thread % 32), time, pc: 0 };
            self.shadow.access(&self.clocks, 4, 4, a).is_some()
        }
    }

    #[test]
    fn a_barrier_orders() {
        let mut w = world(64);
        assert!(!w.does(Kind::Write, 0));
        assert!(w.does(Kind::Read, 33));
        w.clocks.synchronise(&(0..64).collect::<Vec<_>>(), true);
        assert!(!w.does(Kind::Read, 34));
        assert!(!w.does(Kind::Read, 2));
        assert!(w.does(Kind::Write, 2));
    }

    #[test]
    fn a_partial_synchronisation_orders_its_members_only() {
        let mut w = world(64);
        w.does(Kind::Write, 0);
        w.clocks.synchronise(&[0, 1], false);
        assert!(!w.does(Kind::Read, 1));
        assert!(w.does(Kind::Read, 2));
        // Knowledge is handed on.
        w.clocks.synchronise(&[1, 3], false);
        assert!(!w.does(Kind::Read, 3));
        // Thread 3 now also knows of the reads of 1, but not of 2's.
        assert!(w.does(Kind::Write, 3));
    }

    #[test]
    fn every_reader_counts() {
        // The writer has synchronised with all readers but one, whichever that is.
        for missing in 0..64 {
            let mut w = world(65);
            for thread in 0..64 {
                w.does(Kind::Read, thread);
            }
            w.clocks.synchronise(&(0..65).filter(|t| *t != missing).collect::<Vec<_>>(), false);
            assert!(w.does(Kind::Write, 64), "{missing}");
        }
        let mut w = world(64);
        for thread in 0..63 {
            w.does(Kind::Read, thread);
        }
        w.clocks.synchronise(&(0..63).collect::<Vec<_>>(), false);
        assert!(!w.does(Kind::Write, 5));
    }

    #[test]
    fn arrival_is_one_way() {
        let mut w = world(2);
        w.does(Kind::Write, 0);
        let mut joined = w.clocks.blank();
        w.clocks.collect(&[0], &mut joined);
        w.clocks.advance(0);
        w.clocks.acquire(&[1], &joined);
        assert!(!w.does(Kind::Read, 1));
        assert!(w.does(Kind::Write, 0));
    }

    #[test]
    fn a_landed_copy_is_ordered_by_its_barrier_only() {
        let mut w = world(64);
        let mut joined = w.clocks.blank();
        let time = w.clocks.land(&mut joined);
        let agent = w.clocks.agent() as u32;
        let copy =
            Access { kind: Kind::Write, block: 0, warp: agent / 32, lanes: 1 << (agent % 32), time, pc: 0 };
        assert!(w.shadow.access(&w.clocks, 4, 4, copy).is_none());
        let everyone: Vec<usize> = (0..64).collect();
        w.clocks.synchronise(&everyone, true);
        assert!(w.does(Kind::Read, 3));
        w.clocks.acquire(&[5], &joined);
        assert!(!w.does(Kind::Read, 5));
        // Whoever saw the phase end tells the others at a barrier.
        w.clocks.synchronise(&everyone, true);
        assert!(!w.does(Kind::Read, 4));
    }

    #[test]
    fn strong_accesses_do_not_race_with_each_other() {
        let mut w = world(64);
        for thread in 0..64 {
            assert!(!w.does(Kind::StrongWrite, thread));
            assert!(!w.does(Kind::StrongRead, thread));
        }
        assert!(w.does(Kind::Read, 63));
    }

    #[test]
    fn a_thread_that_left_is_not_ordered_by_a_later_barrier() {
        let mut w = world(4);
        w.does(Kind::Write, 0);
        w.clocks.exit(0);
        w.clocks.synchronise(&[1, 2, 3], true);
        assert!(w.does(Kind::Read, 1));
    }

    #[test]
    fn blocks_are_never_ordered() {
        let mut w = world(4);
        assert!(!w.in_block(Kind::Read, 0, 0));
        w.clocks.reset(4);
        assert!(!w.in_block(Kind::Read, 0, 1));
        w.clocks.synchronise(&[0, 1, 2, 3], true);
        assert!(!w.in_block(Kind::Read, 0, 1));
        assert!(w.in_block(Kind::Write, 0, 1));
    }

    #[test]
    fn the_non_coherent_path_forbids_even_ordered_writes() {
        let mut w = world(4);
        assert!(!w.does(Kind::NonCoherentRead, 0));
        assert!(w.does(Kind::Write, 0));
        let mut w = world(4);
        assert!(!w.does(Kind::Write, 0));
        assert!(w.does(Kind::NonCoherentRead, 0));
    }
}
