//! What a launch did, counted: instructions by class, shared-memory wavefronts, global sectors.

use std::fmt;

/// Classes of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
#[repr(usize)]
pub enum Class {
    Fp32,
    Fp64,
    Matrix,
    /// Division, square root, reciprocal and the approximate functions.
    Special,
    Integer,
    Convert,
    Move,
    Predicate,
    Branch,
    Shuffle,
    Vote,
    WarpSync,
    Barrier,
    Fence,
    LoadGlobal,
    StoreGlobal,
    LoadShared,
    StoreShared,
    Local,
    Constant,
    Async,
    Atomic,
}

impl Class {
    /// All classes in order.
    pub const ALL: [Class; 22] = [
        Class::Fp32,
        Class::Fp64,
        Class::Matrix,
        Class::Special,
        Class::Integer,
        Class::Convert,
        Class::Move,
        Class::Predicate,
        Class::Branch,
        Class::Shuffle,
        Class::Vote,
        Class::WarpSync,
        Class::Barrier,
        Class::Fence,
        Class::LoadGlobal,
        Class::StoreGlobal,
        Class::LoadShared,
        Class::StoreShared,
        Class::Local,
        Class::Constant,
        Class::Async,
        Class::Atomic,
    ];
}

/// Counts of one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions issued, one for each group of lanes that ran it together.
    pub warp_instructions: u64,
    /// Lanes that took part, summed over the instructions.
    pub thread_instructions: u64,
    /// `warp_instructions` by class, indexed by `Class as usize`.
    pub by_class: [u64; Class::ALL.len()],
    /// Shared-memory instructions issued.
    pub shared_requests: u64,
    /// Passes that the shared memory needs for them: 32 banks of 4 bytes, one word a bank and pass.
    pub shared_wavefronts: u64,
    /// Passes that the same bytes would need without bank conflicts.
    pub shared_wavefronts_least: u64,
    /// Global load instructions issued, asynchronous copies included.
    pub load_requests: u64,
    /// 32-byte sectors that they touch.
    pub load_sectors: u64,
    /// Global store and atomic instructions issued.
    pub store_requests: u64,
    /// 32-byte sectors that they touch.
    pub store_sectors: u64,
}

impl Stats {
    /// Instructions of one class.
    pub fn of(&self, class: Class) -> u64 {
        self.by_class[class as usize]
    }

    pub(crate) fn issue(&mut self, class: Class, lanes: u32) {
        self.warp_instructions += 1;
        self.thread_instructions += u64::from(lanes.count_ones());
        self.by_class[class as usize] += 1;
    }

    /// Counts a global access of the lanes at `addresses`, `bytes` each. Returns the sectors.
    pub(crate) fn global(&mut self, addresses: &[u64], bytes: usize, store: bool) -> u64 {
        let mut sectors: Vec<u64> = Vec::with_capacity(addresses.len());
        for a in addresses {
            for sector in a / 32..=a.saturating_add(bytes as u64 - 1) / 32 {
                if sectors.last() != Some(&sector) {
                    sectors.push(sector);
                }
            }
        }
        sort_distinct(&mut sectors);
        let count = sectors.len() as u64;
        let (r, s) = if store {
            (&mut self.store_requests, &mut self.store_sectors)
        } else {
            (&mut self.load_requests, &mut self.load_sectors)
        };
        *r += 1;
        *s += count;
        count
    }

    /// Counts a shared access of the lanes at `addresses` (lane, address), `bytes` each. An access wider than a
    /// word is made by half-warps or quarter-warps. Returns the wavefronts.
    pub(crate) fn shared(&mut self, addresses: &[(u32, u64)], bytes: usize) -> u64 {
        let group = (128 / bytes.max(4)) as u32;
        let words_each = bytes.div_ceil(4) as u64;
        let (mut passes, mut least) = (0, 0);
        let mut words: Vec<u64> = Vec::with_capacity(64);
        for first in (0..32).step_by(group as usize) {
            words.clear();
            for (_, address) in addresses.iter().filter(|(l, _)| (first..first + group).contains(l)) {
                words.extend((0..words_each).map(|w| address / 4 + w));
            }
            sort_distinct(&mut words);
            let mut banks = [0u64; 32];
            for w in &words {
                banks[(w % 32) as usize] += 1;
            }
            passes += banks.iter().max().copied().unwrap_or(0);
            least += words.len().div_ceil(32) as u64;
        }
        self.shared_requests += 1;
        self.shared_wavefronts += passes;
        self.shared_wavefronts_least += least;
        passes
    }
}

/// Sorts and removes repetitions; most accesses come sorted.
fn sort_distinct(values: &mut Vec<u64>) {
    if !values.is_sorted() {
        values.sort_unstable();
    }
    values.dedup();
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} warp instructions, {:.1} lanes each",
            self.warp_instructions,
            self.thread_instructions as f64 / self.warp_instructions.max(1) as f64
        )?;
        for class in Class::ALL {
            if self.of(class) > 0 {
                writeln!(f, "  {class:?}: {}", self.of(class))?;
            }
        }
        writeln!(
            f,
            "shared: {} requests, {} wavefronts ({} without conflicts)",
            self.shared_requests, self.shared_wavefronts, self.shared_wavefronts_least
        )?;
        writeln!(f, "global loads: {} requests, {} sectors", self.load_requests, self.load_sectors)?;
        write!(f, "global stores: {} requests, {} sectors", self.store_requests, self.store_sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors() {
        let check = |stride: u64, bytes: usize, expected: u64| {
            let addresses: Vec<u64> = (0..32).map(|l| 256 + l * stride).collect();
            assert_eq!(Stats::default().global(&addresses, bytes, false), expected, "{stride} {bytes}");
        };
        check(4, 4, 4);
        check(8, 8, 8);
        check(16, 16, 16);
        check(32, 4, 32);
        check(0, 4, 1);
    }

    #[test]
    fn wavefronts() {
        let check = |stride: u64, bytes: usize, expected: u64| {
            let addresses: Vec<(u32, u64)> = (0..32).map(|l| (l, 1024 + u64::from(l) * stride)).collect();
            assert_eq!(Stats::default().shared(&addresses, bytes), expected, "{stride} {bytes}");
        };
        check(4, 4, 1);
        check(0, 4, 1);
        check(8, 4, 2);
        check(128, 4, 32);
        check(132, 4, 1);
        check(8, 8, 2);
        check(0, 8, 2);
        check(16, 8, 4);
        check(16, 16, 4);
    }
}
