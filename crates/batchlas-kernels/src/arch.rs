//! The architecture a kernel is compiled for, and what one multiprocessor of it holds.

use std::fmt;
use std::str::FromStr;

use batchlas_core::{Device, Place};
use batchlas_resident::budget::{RESERVE, device_slm_budget};

use crate::Error;

/// A GPU architecture as NVRTC spells it: `sm_90`, or `sm_90a` with the features of that chip alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    sm: u32,
    suffix: Option<char>,
}

impl Arch {
    /// The architecture of compute capability `major.minor`.
    pub fn from_capability(major: u32, minor: u32) -> Arch {
        Arch { sm: major * 10 + minor, suffix: None }
    }

    /// The virtual architecture, for which NVRTC stops at PTX: `compute_90`.
    pub fn virtual_name(self) -> String {
        self.to_string().replacen("sm_", "compute_", 1)
    }

    /// What a multiprocessor of this architecture holds; `None` for one that is not in the table.
    ///
    /// Source: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
    pub fn multiprocessor(self) -> Option<Multiprocessor> {
        let (shared_kib, threads, blocks) = self.capacities()?.0;
        Some(Multiprocessor { shared: shared_kib * 1024, shared_reserved: 1024, threads, blocks })
    }

    /// Shared memory in KiB, threads and work-groups of a multiprocessor, and the multiprocessors of the largest device of
    /// the architecture that is widely sold (A100, A40, L40S, H200, B200, B300, RTX PRO 6000, GB10).
    fn capacities(self) -> Option<((u32, u32, u32), u32)> {
        Some(match self.sm {
            80 => ((164, 2048, 32), 108),
            86 => ((100, 1536, 16), 84),
            89 => ((100, 1536, 24), 142),
            90 => ((228, 2048, 32), 132),
            100 => ((228, 2048, 32), 148),
            103 => ((228, 2048, 32), 160),
            120 => ((100, 1536, 24), 188),
            121 => ((100, 1536, 24), 48),
            _ => return None,
        })
    }

    /// A device of this architecture as operations see it, for compiling where there is none. `None` for an architecture that is not in the table.
    pub fn device(self) -> Option<Device> {
        let sm = self.multiprocessor()?;
        Some(Device {
            name: self.to_string(),
            place: Place::Cuda(0),
            arch: self.to_string(),
            compute_units: self.capacities()?.1,
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: device_slm_budget((sm.shared - sm.shared_reserved) as usize, RESERVE),
            registers: 65_536,
        })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Arch, Error> {
        let invalid = || Error::Arch { given: text.to_owned() };
        let digits = text.strip_prefix("sm_").ok_or_else(invalid)?;
        let (digits, suffix) = match digits.strip_suffix(['a', 'f']) {
            Some(rest) => (rest, digits.chars().last()),
            None => (digits, None),
        };
        if !(2..=3).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid());
        }
        Ok(Arch { sm: digits.parse().map_err(|_| invalid())?, suffix })
    }
}

/// What one multiprocessor holds, beside the registers, which are the same everywhere:
/// [`batchlas_resident::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Shared memory in bytes.
    pub shared: u32,
    /// Shared memory in bytes that the system takes from each resident block.
    pub shared_reserved: u32,
    /// Resident threads.
    pub threads: u32,
    /// Resident blocks.
    pub blocks: u32,
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn what_a_multiprocessor_holds() {
        // NVIDIA's table: shared memory of a multiprocessor and of a block in KiB, threads, blocks.
        for (arch, shared, per_block, threads, blocks) in [
            ("sm_80", 164, 163, 2048, 32),
            ("sm_86", 100, 99, 1536, 16),
            ("sm_89", 100, 99, 1536, 24),
            ("sm_90", 228, 227, 2048, 32),
            ("sm_90a", 228, 227, 2048, 32),
            ("sm_100", 228, 227, 2048, 32),
            ("sm_120", 100, 99, 1536, 24),
        ] {
            let sm = arch.parse::<Arch>().unwrap().multiprocessor().unwrap();
            let kib = (sm.shared / 1024, (sm.shared - sm.shared_reserved) / 1024);
            assert_eq!((kib, sm.threads, sm.blocks), ((shared, per_block), threads, blocks), "{arch}");
            let device = arch.parse::<Arch>().unwrap().device().unwrap();
            assert_eq!((&*device.arch, device.slm_budget), (arch, per_block as usize * 1024 - 4096));
        }
        assert_eq!("sm_75".parse::<Arch>().unwrap().device(), None);
        assert_eq!("sm_75".parse::<Arch>().unwrap().multiprocessor(), None);
    }

    #[test]
    fn spelling() {
        for text in ["sm_80", "sm_90", "sm_90a", "sm_120", "sm_100f"] {
            assert_eq!(text.parse::<Arch>().unwrap().to_string(), text);
        }
        for text in ["", "sm_", "sm_9", "90", "sm_90b", "sm_1200", "compute_90", "sm_+9", "sm_9a"] {
            let message = text.parse::<Arch>().unwrap_err().to_string();
            assert!(message.contains("sm_90"), "{message}");
        }
        assert_eq!(Arch::from_capability(12, 0).to_string(), "sm_120");
        assert_eq!("sm_90a".parse::<Arch>().unwrap().virtual_name(), "compute_90a");
    }
}
