//! What a launch found: typed findings that say where, who and which element.

use crate::ptx::Space;
use crate::stats::Stats;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// An access outside every buffer, or past the end of one.
    OutOfBounds,
    /// An address that is not a multiple of the access size.
    Misaligned,
    /// A read of bytes that nobody wrote.
    Uninitialised,
    /// A write to memory declared read-only.
    ReadOnlyWrite,
    /// A read of memory declared unreadable.
    ForbiddenRead,
    /// Two accesses that no synchronisation orders.
    Race,
    /// An access to the destination of an asynchronous copy that is not waited for.
    AsyncInFlight,
    /// Memory read through the non-coherent path and written in the same launch.
    NonCoherent,
    /// An aligned barrier that the lanes of a warp reached at different places, or not all.
    BarrierDivergence,
    /// A warp operation whose mask does not match the lanes that reach it.
    Collective,
    /// Threads that wait for each other for ever.
    Deadlock,
    /// More instructions than the launch was allowed.
    Budget,
    /// The kernel executed a trap.
    Trap,
}

impl FindingKind {
    fn title(self) -> &'static str {
        match self {
            FindingKind::OutOfBounds => "out-of-bounds access",
            FindingKind::Misaligned => "misaligned access",
            FindingKind::Uninitialised => "read of uninitialised memory",
            FindingKind::ReadOnlyWrite => "write to read-only memory",
            FindingKind::ForbiddenRead => "read of unreadable memory",
            FindingKind::Race => "data race",
            FindingKind::AsyncInFlight => "access to the destination of a pending asynchronous copy",
            FindingKind::NonCoherent => "non-coherent load of memory that the kernel writes",
            FindingKind::BarrierDivergence => "barrier divergence",
            FindingKind::Collective => "warp operation reached by the wrong lanes",
            FindingKind::Deadlock => "deadlock",
            FindingKind::Budget => "instruction budget exhausted",
            FindingKind::Trap => "trap",
        }
    }
}

/// A place in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Linear index of the instruction in the kernel.
    pub index: usize,
    /// 1-based line of the PTX text.
    pub ptx_line: u32,
    /// The opcode.
    pub opcode: String,
    /// File and 1-based line of the CUDA source.
    pub source: Option<(String, u32)>,
    /// File and 1-based line of the call that the instruction was inlined from.
    pub inlined_at: Option<(String, u32)>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (PTX line {}", self.opcode, self.ptx_line)?;
        if let Some((file, line)) = &self.source {
            write!(f, ", {file}:{line}")?;
        }
        if let Some((file, line)) = &self.inlined_at {
            write!(f, " inlined at {file}:{line}")?;
        }
        write!(f, ")")
    }
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The state space.
    pub space: Space,
    /// The address as the kernel computed it.
    pub address: u64,
    /// The buffer or variable that it is in or next to.
    pub buffer: Option<String>,
    /// Byte offset from the start of the buffer.
    pub offset: i64,
    /// The element there, in the terms of the buffer's layout.
    pub element: Option<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.buffer {
            Some(name) => {
                write!(f, "{} `{name}` byte {} (address {:#x})", self.space, self.offset, self.address)?;
            }
            None => write!(f, "{} address {:#x}", self.space, self.address)?,
        }
        if let Some(element) = &self.element {
            write!(f, " = {element}")?;
        }
        Ok(())
    }
}

/// A thread of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId {
    /// The block, as `blockIdx`.
    pub block: [u32; 3],
    /// The thread, as `threadIdx`.
    pub thread: [u32; 3],
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [x, y, z] = self.thread;
        write!(f, "block ({bx},{by},{bz}) thread ({x},{y},{z})")
    }
}

/// One thing that is wrong, the first time that it happened at its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The kernel.
    pub kernel: String,
    /// The instruction.
    pub site: Site,
    /// Who executed it.
    pub who: ThreadId,
    /// The memory concerned.
    pub location: Option<Location>,
    /// The other side of a race.
    pub other: Option<(ThreadId, Site)>,
    /// More, in words.
    pub detail: String,
    /// How often it happened with this instruction (and, for a race, this other instruction).
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}: {} by {}", self.kind.title(), self.kernel, self.site, self.who)?;
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        if let Some((who, site)) = &self.other {
            write!(f, "; the other side is {site} by {who}")?;
        }
        if !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        if self.count > 1 {
            write!(f, " [{} times]", self.count)?;
        }
        Ok(())
    }
}

/// What an instruction cost in a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteCost {
    /// Times issued, one for each group of lanes that ran it together.
    pub issues: u64,
    /// Shared-memory wavefronts.
    pub wavefronts: u64,
    /// Global 32-byte sectors.
    pub sectors: u64,
}

/// The outcome of a launch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, in the order met, one for each kind and place.
    pub findings: Vec<Finding>,
    /// Findings that were met but not kept because there were too many.
    pub dropped: u64,
    /// What was executed.
    pub stats: Stats,
    /// How long the simulator took.
    pub elapsed: Duration,
    pub(crate) sites: Arc<[Site]>,
    pub(crate) costs: Vec<SiteCost>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.dropped == 0
    }

    /// Every instruction of the kernel with what it cost.
    pub fn sites(&self) -> impl Iterator<Item = (&Site, &SiteCost)> {
        self.sites.iter().zip(&self.costs)
    }

    /// What each source line cost, as a table: issues, shared wavefronts and global sectors, dearest lines first.
    /// Lines that touch no memory are summed up in `issues` only.
    pub fn lines(&self) -> Vec<(String, u32, SiteCost)> {
        let mut lines: BTreeMap<(String, u32), SiteCost> = BTreeMap::new();
        for (site, cost) in self.sites() {
            let sum = lines.entry(site.source.clone().unwrap_or_default()).or_default();
            sum.issues += cost.issues;
            sum.wavefronts += cost.wavefronts;
            sum.sectors += cost.sectors;
        }
        let mut lines: Vec<_> = lines.into_iter().map(|((file, line), cost)| (file, line, cost)).collect();
        lines.retain(|(.., cost)| cost.issues > 0);
        lines.sort_by_key(|(.., cost)| Reverse((cost.sectors + cost.wavefronts, cost.issues)));
        lines
    }

    /// Whether something of this kind was found.
    pub fn has(&self, kind: FindingKind) -> bool {
        self.findings.iter().any(|f| f.kind == kind)
    }

    /// The kinds found, each once, in order.
    pub fn kinds(&self) -> Vec<FindingKind> {
        let mut kinds: Vec<FindingKind> = self.findings.iter().map(|f| f.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.dropped > 0 {
            writeln!(f, "and {} more", self.dropped)?;
        }
        write!(f, "{}", self.stats)
    }
}
