//! A device: what it can hold, its context, and the kernels loaded on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use batchlas_core::{Device, Kernel, Launch, Place, Promise};
use batchlas_resident::budget::{RESERVE, device_slm_budget};
use batchlas_resident::registers::WARP;

use crate::Error;
use crate::arch::{Arch, Multiprocessor};
use crate::cuda::driver::{Context, Driver, Function, FunctionAttributes};
use crate::cuda::functions::Functions;
use crate::image::Image;
use crate::parallel;
use crate::ptxas::Usage;
use crate::residency::{Breach, ResidencyError, admit};
use crate::store::KernelStore;

/// Most work-groups along x.
const MAX_GRID: u32 = (1 << 31) - 1;

/// What the driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) name: String,
    pub(crate) ordinal: u32,
    /// Compute capability.
    pub(crate) capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    /// Most threads of a block.
    pub(crate) block_threads: u32,
    /// Threads of a warp.
    pub(crate) warp: u32,
    /// 32-bit registers of a multiprocessor.
    pub(crate) registers: u32,
    /// Most shared memory in bytes that a block can opt in to.
    pub(crate) block_shared: u32,
    pub(crate) multiprocessor: Multiprocessor,
    /// Whether memory can be allocated in stream order.
    pub(crate) memory_pools: bool,
}

impl Attributes {
    pub(crate) fn arch(&self) -> Arch {
        Arch::from_capability(self.capability.0, self.capability.1)
    }

    /// The device as selection sees it.
    pub(crate) fn device(&self) -> Device {
        Device {
            name: self.name.clone(),
            place: Place::Cuda(self.ordinal),
            arch: self.arch().to_string(),
            compute_units: self.multiprocessors,
            max_work_group: self.block_threads,
            has_sg32: self.warp as usize == WARP,
            slm_budget: device_slm_budget(self.block_shared as usize, RESERVE),
            registers: self.registers,
        }
    }
}

/// A kernel that was loaded and keeps its promise.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) function: Function,
    /// Bytes of its parameter struct.
    parameter: usize,
}

impl Loaded {
    /// Checks a launch against what the kernel promised and takes.
    pub(crate) fn check(&self, launch: &Launch<'_>) -> Result<(), Error> {
        check_launch(launch, self.parameter)
    }
}

fn check_launch(launch: &Launch<'_>, parameter: usize) -> Result<(), Error> {
    let Launch { kernel: Kernel { entry, promise, .. }, grid, dynamic_shared: asked, args } = *launch;
    if !(1..=MAX_GRID).contains(&grid) {
        return Err(Error::Grid { entry: entry.clone(), grid, most: MAX_GRID });
    }
    if asked > promise.max_dynamic_shared {
        let promised = promise.max_dynamic_shared;
        return Err(Error::DynamicShared { entry: entry.clone(), asked, promised });
    }
    if args.len() != parameter {
        return Err(Error::Arguments { entry: entry.clone(), given: args.len(), expected: parameter });
    }
    Ok(())
}

/// Holds a promise against what the driver says of the loaded function. Spills are in its local memory; how many
/// bytes of it they are only the compiler said.
fn check_function(
    entry: &str,
    promise: &Promise,
    found: &FunctionAttributes,
    image: &Image,
    sm: &Multiprocessor,
) -> Result<u32, Box<ResidencyError>> {
    let usage = Usage { registers: found.registers, frame: found.local, shared: found.shared, ..image.usage };
    let blocks = admit(entry, promise, &usage, image.code, sm)?;
    if promise.threads > found.threads {
        let breaches = vec![Breach::LaunchBound { threads: promise.threads, most: found.threads }];
        return Err(Box::new(ResidencyError { kernel: entry.to_owned(), breaches }));
    }
    Ok(blocks)
}

/// One device of this process: its primary context and the kernels loaded into it. Queues share it.
#[derive(Debug)]
pub struct CudaDevice {
    // Fields drop in this order: modules before their context.
    functions: Functions<Loaded>,
    /// Kernels that broke their promise, so that a table that names one costs no load in every call.
    refused: Mutex<HashMap<Kernel, Box<ResidencyError>>>,
    context: Arc<Context>,
    device: Device,
    arch: Arch,
    sm: Multiprocessor,
    store: Arc<KernelStore>,
}

impl CudaDevice {
    /// The device `ordinal` with kernels from `store`.
    ///
    /// # Errors
    /// No driver, no such device, or one without memory pools.
    pub fn open(ordinal: u32, store: Arc<KernelStore>) -> Result<Arc<CudaDevice>, Error> {
        let driver = Driver::load()?;
        let attributes = driver.attributes(ordinal)?;
        if !attributes.memory_pools {
            return Err(Error::NoMemoryPools { ordinal, name: attributes.name });
        }
        let context = Context::retain(&driver, ordinal)?;
        let (device, arch, sm) = (attributes.device(), attributes.arch(), attributes.multiprocessor);
        tracing::debug!(?device, driver = driver.version(), "device opened");
        let (functions, refused) = (Functions::default(), Mutex::default());
        Ok(Arc::new(CudaDevice { functions, refused, context, device, arch, sm, store }))
    }

    /// The device `ordinal` with kernels from [`KernelStore::from_env`]. It is opened once per process and stays open,
    /// and all devices share the store.
    ///
    /// # Errors
    /// As for [`CudaDevice::open`] and [`KernelStore::from_env`]; a later call tries again.
    pub fn shared(ordinal: u32) -> Result<Arc<CudaDevice>, Error> {
        type Shared = (Option<Arc<KernelStore>>, Option<HashMap<u32, Arc<CudaDevice>>>);
        static SHARED: Mutex<Shared> = Mutex::new((None, None));
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let (store, devices) = &mut *shared;
        let devices = devices.get_or_insert_default();
        if let Some(device) = devices.get(&ordinal) {
            return Ok(Arc::clone(device));
        }
        let store = match store {
            Some(store) => store,
            None => store.insert(Arc::new(KernelStore::from_env()?)),
        };
        let device = CudaDevice::open(ordinal, Arc::clone(store))?;
        devices.insert(ordinal, Arc::clone(&device));
        Ok(device)
    }

    /// What selection may know about it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The architecture that its kernels are compiled for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// What one of its multiprocessors holds, by the driver.
    pub fn multiprocessor(&self) -> Multiprocessor {
        self.sm
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// A kernel that is already loaded.
    pub(crate) fn find(&self, kernel: &Kernel) -> Option<Arc<Loaded>> {
        self.functions.get(kernel)
    }

    /// Fetches, loads and admits a kernel. A refusal is final; any other failure is tried again.
    pub(crate) fn load(&self, kernel: &Kernel) -> Result<Arc<Loaded>, Error> {
        let refused = || self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = refused().get(kernel) {
            return Err(Error::Residency(error.clone()));
        }
        let loaded = self.load_anew(kernel);
        if let Err(Error::Residency(error)) = &loaded {
            refused().insert(kernel.clone(), error.clone());
        }
        loaded
    }

    fn load_anew(&self, kernel: &Kernel) -> Result<Arc<Loaded>, Error> {
        let Kernel { entry, promise, .. } = kernel;
        let image = self.store.kernel(kernel, self.arch)?;
        let mut function = Function::load(&self.context, &image.cubin, &image.lowered)?;
        let blocks = check_function(entry, promise, &function.attributes()?, &image, &self.sm)?;
        let parameter = match function.parameters()?[..] {
            [bytes] => bytes,
            ref several => return Err(Error::Parameters { entry: entry.clone(), count: several.len() }),
        };
        function.set_max_dynamic_shared(promise.max_dynamic_shared)?;
        tracing::debug!(%entry, blocks, parameter, "kernel loaded");
        Ok(self.functions.insert(kernel, Loaded { function, parameter }))
    }

    /// Fetches and loads the kernels that are not loaded yet, compiling on all cores; those that failed, in the order
    /// given. Progress is logged at the level `info`.
    pub(crate) fn prepare<'k>(&self, kernels: &'k [Kernel]) -> Vec<(&'k Kernel, Error)> {
        let missing: Vec<&Kernel> = kernels.iter().filter(|kernel| self.find(kernel).is_none()).collect();
        let total = missing.len();
        let done = AtomicUsize::new(0);
        let results = parallel::map(&missing, parallel::cores(), |_, kernel| {
            let result = self.load(kernel);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::info!(entry = %kernel.entry, done, total, ok = result.is_ok(), "kernel prepared");
            result
        });
        missing
            .into_iter()
            .zip(results)
            .filter_map(|(kernel, result)| Some((kernel, result.err()?)))
            .collect()
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Its kernels are unloaded next, and a stream that is gone may still have work with them.
        if let Err(error) = self.context.synchronize() {
            tracing::warn!(%error, "device closed with failed work");
        }
    }
}

#[cfg(test)]
mod tests {
    use batchlas_core::KernelSource;

    use super::*;

    fn h200() -> Attributes {
        Attributes {
            name: "NVIDIA H200".into(),
            ordinal: 3,
            capability: (9, 0),
            multiprocessors: 132,
            block_threads: 1024,
            warp: 32,
            registers: 65_536,
            block_shared: 227 * 1024,
            multiprocessor: "sm_90".parse::<Arch>().unwrap().multiprocessor().unwrap(),
            memory_pools: true,
        }
    }

    #[test]
    fn attributes_become_a_device() {
        let expected = Device {
            name: "NVIDIA H200".into(),
            place: Place::Cuda(3),
            arch: "sm_90".into(),
            compute_units: 132,
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 227 * 1024 - 4096,
            registers: 65_536,
        };
        assert_eq!(h200().device(), expected);
        let consumer = Attributes { capability: (12, 0), warp: 64, block_shared: 1000, ..h200() }.device();
        assert_eq!((consumer.arch.as_str(), consumer.has_sg32, consumer.slm_budget), ("sm_120", false, 0));
    }

    static SOURCE: KernelSource = KernelSource { name: "a.cuh", text: "" };

    #[test]
    fn a_launch_is_held_against_the_promise() {
        let promise = Promise { threads: 32, min_blocks: 1, max_dynamic_shared: 1000 };
        let kernel = Kernel { source: &SOURCE, entry: "k<7>".into(), promise };
        let fits = Launch { kernel: &kernel, grid: MAX_GRID, dynamic_shared: 1000, args: &[0; 24] };
        check_launch(&fits, 24).unwrap();
        check_launch(&Launch { grid: 1, dynamic_shared: 0, ..fits }, 24).unwrap();
        let refused = |launch: &Launch<'_>, parts: [&str; 3]| {
            let message = check_launch(launch, 24).unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{part} is absent from: {message}");
            }
        };
        refused(&Launch { grid: MAX_GRID + 1, ..fits }, ["k<7>", "2147483648", "2147483647"]);
        refused(&Launch { grid: 0, ..fits }, ["k<7>", "grid of 0", "2147483647"]);
        refused(&Launch { dynamic_shared: 1001, ..fits }, ["k<7>", "1001", "1000"]);
        refused(&Launch { args: &[0; 16], ..fits }, ["k<7>", "16 B", "24"]);
        refused(&Launch { args: &[0; 25], ..fits }, ["k<7>", "25 B", "24"]);
    }

    #[test]
    fn the_loaded_function_is_held_against_the_promise() {
        let promise = Promise { threads: 256, min_blocks: 2, max_dynamic_shared: 0 };
        let usage = Usage { registers: 32, ..Usage::default() };
        let image = Image { lowered: "k".into(), usage, code: 100, cubin: vec![] };
        let found = FunctionAttributes { registers: 40, local: 0, shared: 64, threads: 256 };
        let breaches = |found: FunctionAttributes, image: &Image| {
            check_function("k<7>", &promise, &found, image, &h200().multiprocessor)
                .map_err(|error| (error.kernel, error.breaches))
        };
        // The driver's count of registers decides, not the compiler's.
        assert_eq!(breaches(found, &image), Ok(6));
        let refused = |breach| Err(("k<7>".to_owned(), vec![breach]));
        let frame = FunctionAttributes { local: 16, ..found };
        assert_eq!(breaches(frame, &image), refused(Breach::Frame { bytes: 16 }));
        let bound = FunctionAttributes { threads: 128, ..found };
        assert_eq!(breaches(bound, &image), refused(Breach::LaunchBound { threads: 256, most: 128 }));
        let spilled = Image { usage: Usage { spill_loads: 4, ..usage }, ..image.clone() };
        assert_eq!(breaches(found, &spilled), refused(Breach::Spill { stores: 0, loads: 4 }));
        let registers = FunctionAttributes { registers: 200, ..found };
        assert!(matches!(&breaches(registers, &image).unwrap_err().1[..], [Breach::Registers { .. }]));
        let shared = FunctionAttributes { shared: 300_000, ..found };
        assert!(matches!(
            &breaches(shared, &image).unwrap_err().1[..],
            [Breach::Shared { fixed: 300_000, .. }]
        ));
    }
}
