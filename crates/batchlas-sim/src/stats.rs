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
        // An access is at most a sector long, so it touches two if it is misaligned.
        let mut sectors = [0; 64];
        let mut count = 0;
        for a in addresses {
            for sector in a / 32..=a.saturating_add(bytes as u64 - 1) / 32 {
                if count == 0 || sectors[count - 1] != sector {
                    sectors[count] = sector;
                    count += 1;
                }
            }
        }
        let sectors = &mut sectors[..count];
        if !sectors.is_sorted() {
            sectors.sort_unstable();
        }
        let count = sectors.chunk_by(|a, b| a == b).count() as u64;
        let (r, s) = if store {
            (&mut self.store_requests, &mut self.store_sectors)
        } else {
            (&mut self.load_requests, &mut self.load_sectors)
        };
        *r += 1;
        *s += count;
        count
    }

    /// Counts a shared access of the lanes at `addresses` (lane, address), `bytes` each. Returns the wavefronts.
    ///
    /// A wavefront serves each bank with one word. An access of 8 bytes is made for half-warps, one of 16 bytes for
    /// quarter-warps; a load for parts twice as large where each lane of the warp has the address of its neighbour at
    /// distance 1, or each that of its neighbour at distance 2 (lanes that take no part do not count). Measured on an
    /// H200, see the tests.
    pub(crate) fn shared(&mut self, addresses: &[(u32, u64)], bytes: usize, store: bool) -> u64 {
        let part = 128 / bytes.max(4);
        let words_each = bytes.div_ceil(4) as u64;
        let mut lanes = [None; 32];
        for (lane, address) in addresses {
            lanes[*lane as usize] = Some(*address);
        }
        let part = if bytes > 4 && !store && paired(&lanes) { 2 * part } else { part };
        let (mut passes, mut least) = (0, 0);
        for lanes in lanes.chunks(part) {
            let mut banks = Banks::default();
            for address in lanes.iter().flatten() {
                (0..words_each).for_each(|w| banks.add(address / 4 + w));
            }
            passes += banks.passes();
            least += banks.words.div_ceil(32);
        }
        self.shared_requests += 1;
        self.shared_wavefronts += passes;
        self.shared_wavefronts_least += least;
        passes
    }
}

/// The distinct words that one part of an access asks of each bank.
#[derive(Default)]
struct Banks {
    /// The first word of each bank, plus one.
    first: [u64; 32],
    /// The others.
    more: Vec<u64>,
    words: u64,
}

impl Banks {
    fn add(&mut self, word: u64) {
        let first = &mut self.first[(word % 32) as usize];
        if *first == 0 {
            *first = word + 1;
        } else if *first == word + 1 || self.more.contains(&word) {
            return;
        } else {
            self.more.push(word);
        }
        self.words += 1;
    }

    /// Words of the busiest bank.
    fn passes(&self) -> u64 {
        let of = |bank: u64| self.more.iter().filter(|word| **word % 32 == bank).count() as u64 + 1;
        let least = u64::from(self.words > 0);
        self.more.iter().map(|word| of(word % 32)).max().unwrap_or(least)
    }
}

/// Whether all lanes have the address of their neighbour at distance 1, or all that of the one at distance 2.
fn paired(lanes: &[Option<u64>; 32]) -> bool {
    let alike = |distance: usize| {
        (0..32).all(|l| match (lanes[l], lanes[l ^ distance]) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        })
    };
    alike(1) || alike(2)
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

    /// What an H200 counted for one instruction of a warp, by width: loads of 4, 8 and 16 bytes, then stores. -1 stands
    /// for a lane that takes no part; addresses are in accesses, or bytes where they are `far`.
    #[test]
    fn wavefronts() {
        type Pattern = fn(i64) -> i64;
        let random: [i64; 32] = [
            137, 64, 261, 120, 507, 460, 483, 388, 214, 96, 499, 29, 399, 443, 2, 456, 272, 234, 104, 325,
            31, 22, 26, 9, 390, 221, 432, 29, 227, 448, 507, 238,
        ];
        let patterns: &[(&str, Pattern, [u64; 6])] = &[
            ("uniform", |_| 0, [1, 1, 2, 1, 2, 4]),
            ("contiguous", |l| l, [1, 2, 4, 1, 2, 4]),
            ("pairs at 1", |l| l / 2, [1, 1, 2, 1, 2, 4]),
            ("pairs at 2", |l| l / 4 * 2 + l % 2, [1, 1, 2, 1, 2, 4]),
            ("quads", |l| l / 4, [1, 1, 2, 1, 2, 4]),
            ("pairs at 4", |l| l / 8 * 4 + l % 4, [1, 2, 4, 1, 2, 4]),
            ("stride 2", |l| 2 * l, [2, 4, 8, 2, 4, 8]),
            ("halves uniform", |l| l / 16, [1, 1, 2, 1, 2, 4]),
            ("halves alike", |l| l % 16, [1, 2, 4, 1, 2, 4]),
            ("even lanes", |l| if l % 2 == 0 { l } else { -1 }, [1, 2, 4, 1, 2, 4]),
            ("eight lanes", |l| if l < 8 { l } else { -1 }, [1, 1, 1, 1, 1, 1]),
            ("sixteen lanes", |l| if l < 16 { l } else { -1 }, [1, 1, 2, 1, 1, 2]),
            ("one lane", |l| if l == 5 { 0 } else { -1 }, [1, 1, 1, 1, 1, 1]),
            ("pairs, then not", |l| if l < 16 { l / 2 } else { l }, [1, 2, 4, 1, 2, 4]),
            ("pairs at 1, then at 2", |l| if l < 16 { l / 2 } else { l / 4 * 2 + l % 2 }, [1, 2, 4, 1, 2, 4]),
            ("stride 33", |l| 33 * l, [1, 2, 4, 1, 2, 4]),
        ];
        let count = |lanes: [i64; 32], bytes: i64, store: bool| {
            let lanes = (0..32).zip(lanes).filter(|(_, a)| *a >= 0).map(|(l, a)| (l, 1024 + a as u64));
            Stats::default().shared(&lanes.collect::<Vec<_>>(), bytes as usize, store)
        };
        let check = |name: &str, at: &dyn Fn(i64, i64) -> i64, expected: [u64; 6]| {
            for (i, (store, bytes)) in
                [false, true].iter().flat_map(|s| [4, 8, 16].map(|b| (*s, b))).enumerate()
            {
                let lanes = std::array::from_fn(|l| at(l as i64, bytes));
                assert_eq!(count(lanes, bytes, store), expected[i], "{name}, {bytes} bytes, store {store}");
            }
        };
        for (name, pattern, expected) in patterns {
            let scaled = |l: i64, bytes: i64| if pattern(l) < 0 { -1 } else { pattern(l) * bytes };
            check(name, &scaled, *expected);
        }
        check("pairs, one bank", &|l, _| l / 2 * 128, [16, 16, 16, 16, 16, 16]);
        check("two, one bank", &|l, _| l % 2 * 128, [2, 2, 4, 2, 4, 8]);
        check("random", &|l, bytes| random[l as usize] * bytes, [3, 5, 8, 3, 5, 8]);
        check("random pairs", &|l, bytes| random[l as usize / 2] * bytes, [2, 2, 4, 2, 2, 6]);
    }
}
