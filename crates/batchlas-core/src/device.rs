//! What selection and launch code may know about a device.

use std::fmt;

/// Where memory lies, and where a queue runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Ordinary process memory; a [`crate::CpuQueue`] works here.
    Host,
    /// The memory of the CUDA device with this ordinal.
    Cuda(u32),
    /// The memory of a simulated device.
    Simulated(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("host memory"),
            Place::Cuda(ordinal) => write!(f, "device memory of cuda:{ordinal}"),
            Place::Simulated(ordinal) => write!(f, "device memory of sim:{ordinal}"),
        }
    }
}

/// A device as predicates see it: capacities, never speeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Human-readable name, as the driver or the operating system gives it.
    pub name: String,
    /// Where its memory is.
    pub place: Place,
    /// Architecture as tables spell it: `sm_90`, or `cpu`.
    pub arch: String,
    /// Streaming multiprocessors, or threads of a CPU pool.
    pub compute_units: u32,
    /// Largest work-group (threads per block); 1 on a CPU.
    pub max_work_group: u32,
    /// Whether 32-wide sub-groups (warps) exist.
    pub has_sg32: bool,
    /// Shared memory in bytes that one work-group may ask for, less the reserve; 0 on a CPU.
    pub slm_budget: usize,
    /// 32-bit registers of one streaming multiprocessor; 0 on a CPU.
    pub registers: u32,
}

impl Device {
    /// Whether device kernels can run here.
    pub fn is_gpu(&self) -> bool {
        !matches!(self.place, Place::Host)
    }

    /// A CPU with a pool of `threads` threads.
    pub fn cpu(threads: usize) -> Device {
        Device {
            name: "CPU".into(),
            place: Place::Host,
            arch: "cpu".into(),
            compute_units: u32::try_from(threads).unwrap_or(u32::MAX),
            max_work_group: 1,
            has_sg32: false,
            slm_budget: 0,
            registers: 0,
        }
    }
}
