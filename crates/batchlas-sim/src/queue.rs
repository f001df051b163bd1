//! The simulated device as a queue, so that whole operations run on it.
//!
//! A [`SimQueue`] compiles a kernel with the function that it was given (NVRTC, in practice), keeps the parsed module,
//! and runs every launch before the call returns. A launch with findings is an error that lists them; the reports of
//! all launches are kept for tests that look closer. Memory that is dropped is freed, so a late use is seen.
#![allow(unsafe_code)]

use crate::device::{DeviceConfig, Options, SimDevice};
use crate::error::SimError;
use crate::ptx::Module;
use crate::report::Report;
use batchlas_core::{Device, Event, Kernel, Launch, Memory, Place, Queue, QueueError, QueueMemory};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A kernel as PTX with line information.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The text.
    pub ptx: String,
    /// The mangled name of the entry.
    pub entry: String,
}

/// Compiles a kernel for the architecture of the queue.
pub type Compile = dyn Fn(&Kernel) -> Result<Compiled, QueueError> + Send + Sync;

/// A launch that the simulator has something to say about.
#[derive(Debug, thiserror::Error)]
#[error("the launch has findings:\n{0}")]
pub struct Findings(pub Report);

struct State {
    device: SimDevice,
    options: Options,
    modules: HashMap<Kernel, (Arc<Module>, String)>,
    reports: VecDeque<(String, Report)>,
}

/// Reports that are kept for [`SimQueue::take_reports`].
const KEPT: usize = 64;

/// A queue on a simulated device. Work is done when a call returns.
pub struct SimQueue {
    device: Device,
    compile: Box<Compile>,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for SimQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimQueue({})", self.device.name)
    }
}

impl SimQueue {
    /// A queue on a fresh device of architecture `arch` (as tables spell it, e.g. `sm_90`), whose kernels
    /// `compile` turns into PTX.
    pub fn new(
        arch: &str,
        config: DeviceConfig,
        compile: impl Fn(&Kernel) -> Result<Compiled, QueueError> + Send + Sync + 'static,
    ) -> SimQueue {
        let device = Device {
            name: format!("simulated {arch}"),
            place: Place::Simulated(0),
            arch: arch.to_string(),
            compute_units: 1,
            max_work_group: config.max_threads,
            has_sg32: true,
            slm_budget: config.max_shared,
            registers: 65_536,
        };
        let state = State {
            device: SimDevice::new(config),
            options: Options::default(),
            modules: HashMap::new(),
            reports: VecDeque::new(),
        };
        SimQueue { device, compile: Box::new(compile), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the options of the launches from now on.
    pub fn set_options(&self, options: Options) {
        self.state().options = options;
    }

    /// The device, for instance to protect memory.
    pub fn with_device<R>(&self, f: impl FnOnce(&mut SimDevice) -> R) -> R {
        f(&mut self.state().device)
    }

    /// The reports of the launches since the last call, at most the latest 64, each with the kernel's name expression.
    pub fn take_reports(&self) -> Vec<(String, Report)> {
        std::mem::take(&mut self.state().reports).into()
    }

    /// The kernels launched so far.
    pub fn kernels(&self) -> Vec<Kernel> {
        self.state().modules.keys().cloned().collect()
    }

    /// The module of a kernel and its entry, compiled on first use.
    ///
    /// # Errors
    /// The kernel does not compile, or the simulator does not know what the compiler wrote.
    pub fn module(&self, kernel: &Kernel) -> Result<(Arc<Module>, String), QueueError> {
        if let Some(found) = self.state().modules.get(kernel) {
            return Ok(found.clone());
        }
        let compiled = (self.compile)(kernel)?;
        let parsed = Module::parse(&compiled.ptx).map_err(|e| self.error(kernel, e))?;
        let module = (Arc::new(parsed), compiled.entry);
        self.state().modules.insert(kernel.clone(), module.clone());
        Ok(module)
    }

    /// Replaces the module of a kernel, for instance by a broken one of [`crate::mutate`].
    pub fn install(&self, kernel: &Kernel, module: Arc<Module>, entry: String) {
        self.state().modules.insert(kernel.clone(), (module, entry));
    }

    fn error(&self, kernel: &Kernel, error: impl std::error::Error + Send + Sync + 'static) -> QueueError {
        QueueError::runtime(format!("kernel `{}` on {}", kernel.entry, self.device.place), error)
    }

    fn foreign(&self, what: &'static str) -> QueueError {
        QueueError::Foreign { what, place: self.device.place }
    }

    /// Address of a range of memory that this queue made.
    fn range(&self, memory: &Memory, offset: usize, bytes: usize) -> Result<u64, QueueError> {
        memory.check_range(offset, bytes)?;
        let ours = memory.inner().downcast_ref::<SimMemory>();
        let ours = ours.filter(|m| Arc::ptr_eq(&m.state, &self.state));
        ours.map(|m| m.address + offset as u64).ok_or_else(|| self.foreign("buffer"))
    }

    fn access(&self, error: SimError) -> QueueError {
        QueueError::runtime(format!("an access from the host to {}", self.device.place), error)
    }
}

struct SimMemory {
    state: Arc<Mutex<State>>,
    address: u64,
    bytes: usize,
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The address is that of a live allocation: it was made with this value and is freed here only.
        let _ = state.device.free(self.address);
    }
}

// SAFETY: the range is an allocation of the simulated device, owned by this value; its bases are multiples of 256.
unsafe impl QueueMemory for SimMemory {
    fn address(&self) -> u64 {
        self.address
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn place(&self) -> Place {
        Place::Simulated(0)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Queue for SimQueue {
    fn device(&self) -> &Device {
        &self.device
    }

    fn in_order(&self) -> bool {
        true
    }

    // The simulator checks every access, so nothing is unsafe about it.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
        let kernel = launch.kernel;
        let (module, entry) = self.module(kernel)?;
        let promise = kernel.promise;
        if launch.dynamic_shared > promise.max_dynamic_shared {
            let what = format!(
                "{} bytes of dynamic shared memory; the kernel promises at most {}",
                launch.dynamic_shared, promise.max_dynamic_shared
            );
            return Err(self.error(kernel, SimError::Geometry { name: entry, what }));
        }
        let mut state = self.state();
        let options = state.options;
        let (grid, block) = ([launch.grid, 1, 1], [promise.threads, 1, 1]);
        let shared = launch.dynamic_shared as usize;
        let report = state
            .device
            .launch(&module, &entry, grid, block, shared, launch.args, &options)
            .map_err(|e| self.error(kernel, e))?;
        if state.reports.len() == KEPT {
            state.reports.pop_front();
        }
        state.reports.push_back((kernel.entry.clone(), report.clone()));
        if report.is_clean() { Ok(()) } else { Err(self.error(kernel, Findings(report))) }
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError> {
        let place = self.device.place;
        let address = self.state().device.alloc("memory", bytes);
        let address = address.map_err(|e| QueueError::OutOfMemory { bytes, place, reason: e.to_string() })?;
        Ok(Memory::new(SimMemory { state: self.state.clone(), address, bytes }))
    }

    fn write(&self, memory: &mut Memory, offset: usize, bytes: &[u8]) -> Result<(), QueueError> {
        let at = self.range(memory, offset, bytes.len())?;
        self.state().device.write(at, bytes).map_err(|e| self.access(e))
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), QueueError> {
        let at = self.range(memory, offset, bytes.len())?;
        bytes.copy_from_slice(&self.state().device.read(at, bytes.len()).map_err(|e| self.access(e))?);
        Ok(())
    }

    unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), QueueError> {
        self.state().device.write(address, &vec![0; bytes]).map_err(|e| self.access(e))
    }

    fn fence(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn record(&self) -> Result<Event, QueueError> {
        Ok(Event(Box::new(SimEvent(Instant::now()))))
    }

    fn wait(&self, event: &Event) -> Result<(), QueueError> {
        // Work is done when a call returns, so every event has already happened.
        event.0.downcast_ref::<SimEvent>().map(|_| ()).ok_or_else(|| self.foreign("event"))
    }

    fn seconds_between(&self, earlier: &Event, later: &Event) -> Result<f64, QueueError> {
        match (earlier.0.downcast_ref::<SimEvent>(), later.0.downcast_ref::<SimEvent>()) {
            (Some(a), Some(b)) => Ok(b.0.saturating_duration_since(a.0).as_secs_f64()),
            _ => Err(self.foreign("event")),
        }
    }

    fn copy(&self, from: &Memory, to: &mut Memory) -> Result<(), QueueError> {
        let source = self.range(from, 0, from.bytes())?;
        let target = self.range(to, 0, from.bytes())?;
        self.state().device.copy(source, target, from.bytes()).map_err(|e| self.access(e))
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// When a point of the queue was reached.
struct SimEvent(Instant);
