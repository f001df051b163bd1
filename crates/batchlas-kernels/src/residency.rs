//! The residency gate: what a kernel promises about itself, against what the compiler made of it.
//!
//! A register array that the compiler could not keep in registers still gives right answers, only many times slower,
//! so no numerical test sees it. Every kernel therefore promises: no stack frame, no spills, code that fits the
//! instruction cache, and a number of blocks whose registers one multiprocessor holds. A kernel that breaks any of
//! these is refused by name and number.

use std::fmt;

use batchlas_core::Promise;
use batchlas_resident::registers::{SUB_PARTITION_REGISTERS, WARP, blocks_per_sm, sub_partition_use};

use crate::arch::Multiprocessor;
use crate::ptxas::Usage;

/// Most machine code of one kernel, in bytes. Larger code runs from beyond the instruction cache at about half the
/// speed, as measured on an H200.
pub const MAX_CODE_BYTES: u64 = 128 * 1024;

/// Shared memory is given out in multiples of this many bytes.
const SHARED_GRANULE: u32 = 128;
/// Most threads of one block.
const MAX_THREADS: u32 = 1024;

/// One broken rule, with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Breach {
    /// There is a stack frame: an array or a saved value lives in local memory.
    Frame {
        /// Bytes per thread.
        bytes: u32,
    },
    /// Registers were spilled.
    Spill {
        /// Bytes of stores per thread.
        stores: u32,
        /// Bytes of loads per thread.
        loads: u32,
    },
    /// There is too much code.
    Code {
        /// Bytes.
        bytes: u64,
    },
    /// A block of this many threads cannot be launched.
    Threads {
        /// Threads promised.
        threads: u32,
    },
    /// The promised blocks need more registers than a sub-partition has.
    Registers {
        /// Registers per thread.
        per_thread: u32,
        /// Threads per block.
        threads: u32,
        /// Blocks promised.
        blocks: u32,
        /// Registers needed of the fullest sub-partition.
        needed: usize,
        /// Registers it has.
        available: usize,
    },
    /// The function was compiled for smaller blocks.
    LaunchBound {
        /// Threads promised.
        threads: u32,
        /// Most threads that the driver launches it with.
        most: u32,
    },
    /// A block's shared memory exceeds what a multiprocessor can give to one.
    Shared {
        /// Static bytes.
        fixed: u32,
        /// Dynamic bytes.
        dynamic: u32,
        /// Bytes available to a block.
        available: u32,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Frame { bytes } => write!(f, "a stack frame of {bytes} B, where 0 is promised"),
            Breach::Spill { stores, loads } => {
                write!(f, "spills of {stores} B in stores and {loads} B in loads, where 0 is promised")
            }
            Breach::Code { bytes } => {
                write!(f, "{bytes} B of code, where at most {MAX_CODE_BYTES} are allowed")
            }
            Breach::Threads { threads } => {
                write!(f, "{threads} threads per block, where 1 to {MAX_THREADS} are legal")
            }
            Breach::Registers { per_thread, threads, blocks, needed, available } => write!(
                f,
                "{per_thread} registers in {threads} threads: {blocks} block(s) need {needed} registers of a \
                 sub-partition that has {available}"
            ),
            Breach::LaunchBound { threads, most } => {
                write!(f, "{threads} threads per block, where the compiled function takes at most {most}")
            }
            Breach::Shared { fixed, dynamic, available } => write!(
                f,
                "{fixed} B of static and {dynamic} B of dynamic shared memory, where a block can have {available}"
            ),
        }
    }
}

/// A kernel that breaks its promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` breaks its residency promise: {}", list(.breaches))]
pub struct ResidencyError {
    /// The kernel's name expression.
    pub kernel: String,
    /// Every broken rule.
    pub breaches: Vec<Breach>,
}

fn list(breaches: &[Breach]) -> String {
    breaches.iter().map(Breach::to_string).collect::<Vec<_>>().join("; ")
}

/// Holds `promise` (beside a stack frame of zero, no spills and at most [`MAX_CODE_BYTES`] of code) against `usage` and
/// `code` bytes on the multiprocessor `sm`; the number of blocks that are
/// resident when a launch asks for all the dynamic shared memory promised.
///
/// # Errors
/// Every broken rule.
pub fn admit(
    kernel: &str,
    promise: &Promise,
    usage: &Usage,
    code: u64,
    sm: &Multiprocessor,
) -> Result<u32, Box<ResidencyError>> {
    let mut breaches = Vec::new();
    if usage.frame > 0 {
        breaches.push(Breach::Frame { bytes: usage.frame });
    }
    if usage.spill_stores > 0 || usage.spill_loads > 0 {
        breaches.push(Breach::Spill { stores: usage.spill_stores, loads: usage.spill_loads });
    }
    if code > MAX_CODE_BYTES {
        breaches.push(Breach::Code { bytes: code });
    }
    let threads = promise.threads;
    if threads == 0 || threads > MAX_THREADS {
        breaches.push(Breach::Threads { threads });
        return Err(Box::new(ResidencyError { kernel: kernel.to_owned(), breaches }));
    }
    let (available, blocks) = (SUB_PARTITION_REGISTERS, promise.min_blocks.max(1));
    let needed = sub_partition_use(
        threads.next_multiple_of(WARP as u32) as usize * blocks as usize,
        usage.registers as usize,
    );
    if needed > available {
        breaches.push(Breach::Registers { per_thread: usage.registers, threads, blocks, needed, available });
    }
    let shared = u64::from(usage.shared) + u64::from(promise.max_dynamic_shared);
    let per_block = sm.shared - sm.shared_reserved;
    if shared > u64::from(per_block) {
        let (fixed, dynamic) = (usage.shared, promise.max_dynamic_shared);
        breaches.push(Breach::Shared { fixed, dynamic, available: per_block });
    }
    if !breaches.is_empty() {
        return Err(Box::new(ResidencyError { kernel: kernel.to_owned(), breaches }));
    }
    let by_registers = blocks_per_sm(threads as usize, usage.registers.max(1) as usize);
    let by_registers = u32::try_from(by_registers).unwrap_or(u32::MAX).min(sm.blocks);
    let footprint = (shared as u32).next_multiple_of(SHARED_GRANULE) + sm.shared_reserved;
    let by_threads = sm.threads / threads.next_multiple_of(WARP as u32);
    Ok(by_registers.min(sm.shared / footprint).min(by_threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> Multiprocessor {
        "sm_90".parse::<crate::Arch>().unwrap().multiprocessor().unwrap()
    }

    fn usage(registers: u32) -> Usage {
        Usage { registers, ..Usage::default() }
    }

    fn promise(threads: u32, min_blocks: u32) -> Promise {
        Promise { threads, min_blocks, max_dynamic_shared: 0 }
    }

    fn check(promise: Promise, usage: Usage, code: u64) -> Result<u32, Vec<Breach>> {
        admit("k", &promise, &usage, code, &h200()).map_err(|error| error.breaches)
    }

    #[test]
    fn the_sub_partition_rule() {
        // 64 warps of 32 registers fill the multiprocessor: 16 in each sub-partition, 1024 registers each.
        assert_eq!(check(promise(256, 8), usage(32), 0), Ok(8));
        let breach = Breach::Registers {
            per_thread: 33,
            threads: 256,
            blocks: 8,
            needed: 16 * 32 * 40,
            available: 16_384,
        };
        assert_eq!(check(promise(256, 8), usage(33), 0), Err(vec![breach]));
        // 33 counts as 40, of which a sub-partition holds 12 warps.
        assert_eq!(check(promise(256, 6), usage(33), 0), Ok(6));
        // One block of five warps needs two in one sub-partition: 2 x 32 x 256 is all there is.
        assert_eq!(check(promise(160, 1), usage(255), 0), Ok(1));
        assert!(check(promise(288, 1), usage(255), 0).is_err());
        // A warp of one thread takes the registers of 32: 16 blocks of 33 threads are 32 warps.
        assert_eq!(check(promise(33, 16), usage(64), 0), Ok(16));
        assert!(check(promise(33, 16), usage(72), 0).is_err());
        // Single warps are limited by the blocks a multiprocessor takes.
        assert_eq!(check(promise(32, 32), usage(16), 0), Ok(32));
        // No promise of blocks still means one.
        assert!(check(promise(1024, 0), usage(72), 0).is_err());
    }

    #[test]
    fn frame_spill_and_code() {
        let spiller = Usage { frame: 8, spill_stores: 8, spill_loads: 12, ..usage(32) };
        let breaches = check(promise(32, 1), spiller, MAX_CODE_BYTES + 1).unwrap_err();
        assert_eq!(
            breaches,
            [
                Breach::Frame { bytes: 8 },
                Breach::Spill { stores: 8, loads: 12 },
                Breach::Code { bytes: MAX_CODE_BYTES + 1 },
            ]
        );
        assert_eq!(check(promise(32, 1), usage(32), MAX_CODE_BYTES), Ok(32));
        for (stores, loads) in [(4, 0), (0, 4)] {
            let usage = Usage { spill_stores: stores, spill_loads: loads, ..usage(32) };
            assert_eq!(check(promise(32, 1), usage, 0), Err(vec![Breach::Spill { stores, loads }]));
        }
    }

    #[test]
    fn shared_memory() {
        let promise = |dynamic| Promise { threads: 32, min_blocks: 1, max_dynamic_shared: dynamic };
        let fixed = Usage { shared: 1024, ..usage(32) };
        assert_eq!(check(promise(226 * 1024), fixed, 0), Ok(1));
        assert_eq!(
            check(promise(226 * 1024 + 1), fixed, 0),
            Err(vec![Breach::Shared { fixed: 1024, dynamic: 226 * 1024 + 1, available: 227 * 1024 }])
        );
        // 1 B takes a granule and the reserve: 228 KiB / 1152 B, but no more than 32 blocks.
        assert_eq!(check(promise(8 * 1024), usage(32), 0), Ok(25));
    }

    #[test]
    fn threads() {
        for threads in [0, 1025] {
            assert_eq!(check(promise(threads, 1), usage(32), 0), Err(vec![Breach::Threads { threads }]));
        }
        assert_eq!(check(promise(1024, 1), usage(16), 0), Ok(2));
        assert_eq!(check(promise(33, 1), usage(8), 0), Ok(32));
    }

    #[test]
    fn the_message_names_the_kernel_and_each_number() {
        let spiller = Usage { frame: 280, spill_stores: 536, spill_loads: 560, ..usage(64) };
        let message =
            admit("batchlas::k<4>", &promise(1024, 2), &spiller, 7, &h200()).unwrap_err().to_string();
        for part in ["batchlas::k<4>", "280", "536", "560", "64 registers", "1024 threads", "32768", "16384"]
        {
            assert!(message.contains(part), "{part} is absent from: {message}");
        }
    }
}
