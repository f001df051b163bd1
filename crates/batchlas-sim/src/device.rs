//! The simulated device as the host sees it.

use crate::SimError;
use crate::decode::Kernel;
use crate::exec;
use crate::mem::{GlobalMemory, INIT, Layout, Permission};
use crate::ptx::Module;
use crate::report::Report;
use std::sync::Arc;

/// Limits of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Threads in a block.
    pub max_threads: u32,
    /// Bytes of static and dynamic shared memory of a block.
    pub max_shared: usize,
}

impl Default for DeviceConfig {
    /// An H200: 1024 threads and 227 KiB of shared memory a block.
    fn default() -> Self {
        DeviceConfig { max_threads: 1024, max_shared: 227 * 1024 }
    }
}

/// In which order blocks, warps and lanes that could run do run. A correct kernel gives the same result under
/// each of them; races are found under all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Lowest first, each warp until it waits.
    #[default]
    Forward,
    /// Highest first.
    Reverse,
    /// Seeded: blocks in random order, warps for random stretches, and warps split into groups of lanes that
    /// run apart until they meet at a synchronisation.
    Random(u64),
}

/// Options of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The order of execution.
    pub schedule: Schedule,
    /// Warp instructions after which the launch is given up as hanging; some tens of seconds by default.
    pub max_instructions: u64,
    /// Distinct findings that are kept.
    pub max_findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { schedule: Schedule::Forward, max_instructions: 1 << 28, max_findings: 100 }
    }
}

impl Options {
    /// The default options with another schedule.
    pub fn with_schedule(schedule: Schedule) -> Options {
        Options { schedule, ..Options::default() }
    }
}

/// A device with its memory.
#[derive(Debug, Default)]
pub struct SimDevice {
    config: DeviceConfig,
    memory: GlobalMemory,
}

impl SimDevice {
    /// A device without allocations.
    pub fn new(config: DeviceConfig) -> SimDevice {
        SimDevice { config, memory: GlobalMemory::default() }
    }

    /// Allocates uninitialised memory; `name` appears in reports.
    ///
    /// # Errors
    /// [`SimError::Allocation`] past 2^20 allocations or 2^38 bytes.
    pub fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, SimError> {
        self.memory.alloc(name, bytes)
    }

    /// Frees an allocation by its address; later accesses to it are out of bounds.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when `addr` is not the start of a live allocation.
    pub fn free(&mut self, addr: u64) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(addr, 0)?;
        if offset != 0 {
            return Err(SimError::HostAccess { addr, bytes: 0 });
        }
        a.live = false;
        a.region.reset(0, 0);
        Ok(())
    }

    /// Copies `data` to the device and marks it initialised, whatever its permission.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(addr, data.len())?;
        a.region.bytes[offset..offset + data.len()].copy_from_slice(data);
        a.region.flags[offset..offset + data.len()].iter_mut().for_each(|f| *f |= INIT);
        Ok(())
    }

    /// Copies `bytes` bytes from the device. Bytes never written read as `0xff`.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn read(&mut self, addr: u64, bytes: usize) -> Result<Vec<u8>, SimError> {
        let (a, offset) = self.memory.host(addr, bytes)?;
        Ok(a.region.bytes[offset..offset + bytes].to_vec())
    }

    /// Whether every byte of a range has been written by the host or by a kernel.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn is_initialised(&mut self, addr: u64, bytes: usize) -> Result<bool, SimError> {
        let (a, offset) = self.memory.host(addr, bytes)?;
        Ok(a.region.flags_of(offset, bytes).1)
    }

    /// Copies a range inside the device; what is uninitialised stays so.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when a range is not inside one live allocation.
    pub fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(from, bytes)?;
        let data = a.region.bytes[offset..offset + bytes].to_vec();
        let init: Vec<u8> = a.region.flags[offset..offset + bytes].iter().map(|f| f & INIT).collect();
        let (a, offset) = self.memory.host(to, bytes)?;
        a.region.bytes[offset..offset + bytes].copy_from_slice(&data);
        for (f, i) in a.region.flags[offset..].iter_mut().zip(init) {
            *f = *f & !INIT | i;
        }
        Ok(())
    }

    /// Declares a range uninitialised again, as scratch is between two uses.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn forget(&mut self, addr: u64, bytes: usize) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(addr, bytes)?;
        a.region.bytes[offset..offset + bytes].fill(0xff);
        a.region.flags[offset..offset + bytes].iter_mut().for_each(|f| *f &= !INIT);
        Ok(())
    }

    /// Declares what kernels may do with a range.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn protect(&mut self, addr: u64, bytes: usize, permission: Permission) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(addr, bytes)?;
        a.protect(offset, bytes, permission);
        Ok(())
    }

    /// Declares what kernels may do with each of `count` elements of `element` bytes from `addr` on, for instance
    /// one triangle of each matrix of a batch.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when the range is not inside one live allocation.
    pub fn protect_elements(
        &mut self,
        addr: u64,
        element: usize,
        count: usize,
        mask: impl Fn(usize) -> Permission,
    ) -> Result<(), SimError> {
        let (a, offset) = self.memory.host(addr, element.saturating_mul(count))?;
        for index in 0..count {
            a.protect(offset + index * element, element, mask(index));
        }
        Ok(())
    }

    /// Names an allocation in reports.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when `addr` is not in a live allocation.
    pub fn set_name(&mut self, addr: u64, name: &str) -> Result<(), SimError> {
        self.memory.host(addr, 0)?.0.name = name.to_string();
        Ok(())
    }

    /// Describes an allocation as a batch of matrices, so that reports name items, rows and columns.
    ///
    /// # Errors
    /// [`SimError::HostAccess`] when `addr` is not in a live allocation.
    pub fn set_layout(&mut self, addr: u64, layout: Layout) -> Result<(), SimError> {
        self.memory.host(addr, 0)?.0.layout = Some(layout);
        Ok(())
    }

    /// Runs an entry to its end. `params` is the parameter block, laid out as the entry declares it
    /// ([`Entry::params`](crate::ptx::Entry)). What the kernel did wrong is in the report; a launch with findings has
    /// still changed the memory.
    ///
    /// # Errors
    /// [`SimError`] when the entry does not exist, uses what the simulator does not know, or the launch does not
    /// fit the device or the entry.
    pub fn launch(
        &mut self,
        module: &Module,
        entry: &str,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: usize,
        params: &[u8],
        options: &Options,
    ) -> Result<Report, SimError> {
        let kernel = module.kernel(entry)?;
        self.check(&kernel, grid, block, dynamic_shared, params)?;
        Ok(exec::launch(&kernel, &mut self.memory, grid, block, dynamic_shared, params, options))
    }

    fn check(
        &self,
        kernel: &Arc<Kernel>,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: usize,
        params: &[u8],
    ) -> Result<(), SimError> {
        let name = kernel.name.clone();
        if params.len() != kernel.param_bytes {
            return Err(SimError::ParamBytes { name, expected: kernel.param_bytes, given: params.len() });
        }
        let volume = |d: [u32; 3]| d.iter().map(|x| u64::from(*x)).product::<u64>();
        let most = self.config.max_threads.min(kernel.max_threads.unwrap_or(u32::MAX));
        let what = if volume(block) == 0 || volume(block) > u64::from(most) {
            format!("a block of {} threads; 1 to {most} are allowed", volume(block))
        } else if volume(grid) == 0 || volume(grid) >= 1 << 31 || grid[1].max(grid[2]) > 65535 {
            format!("grid {grid:?}; 1 to 2^31 - 1 blocks, 65535 in y and z")
        } else {
            let fixed: usize = kernel.shared.iter().map(|p| p.variable.size).sum();
            if fixed.saturating_add(dynamic_shared) <= self.config.max_shared {
                return Ok(());
            }
            format!(
                "{fixed} static and {dynamic_shared} dynamic bytes of shared memory; {} are there",
                self.config.max_shared
            )
        };
        Err(SimError::Geometry { name, what })
    }
}
