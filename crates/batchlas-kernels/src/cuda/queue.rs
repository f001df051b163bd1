//! A queue over a CUDA stream.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use batchlas_core as core;
use batchlas_core::{Device, Kernel, Launch, Memory, Place, Queue, QueueError, QueueMemory};

use crate::Error;
use crate::cuda::device::{CudaDevice, Loaded};
use crate::cuda::driver::{Event, Stream, is_out_of_memory};
use crate::cuda::graph::Graph;

/// A CUDA stream as a queue: in order, asynchronous, usable from any thread.
///
/// Nothing in [`Queue::launch`] synchronises or allocates once its kernel is loaded, so operations can be captured
/// into a graph: [`CudaQueue::prepare`] their kernels, lend them a workspace, and [`CudaQueue::capture`].
///
/// A failed call is a [`QueueError`]; [`Error::behind`] gives what was wrong, such as
/// [`Error::Residency`] for a kernel that breaks its promise.
///
/// [`Queue::write`] returns when the driver has copied the source into its staging memory. From pinned or managed
/// memory the driver would copy later, so there it waits for the stream.
#[derive(Debug)]
pub struct CudaQueue {
    // Fields drop in this order: the stream before the modules that its work may be in.
    stream: Arc<Stream>,
    device: Arc<CudaDevice>,
}

impl CudaQueue {
    /// A queue with a stream of its own, which does not wait for the legacy default stream, on the device `ordinal` as
    /// [`CudaDevice::shared`] opens it.
    ///
    /// # Errors
    /// No driver, no such device, or a bundle named by the environment that cannot be read.
    pub fn new(ordinal: u32) -> Result<CudaQueue, Error> {
        CudaQueue::on(CudaDevice::shared(ordinal)?)
    }

    /// A queue with a stream of its own on a device that the caller opened, with a store of the caller's.
    ///
    /// # Errors
    /// The driver refuses to make a stream.
    pub fn on(device: Arc<CudaDevice>) -> Result<CudaQueue, Error> {
        let stream = Arc::new(Stream::new(Arc::clone(device.context()))?);
        Ok(CudaQueue { stream, device })
    }

    /// A queue over the caller's `CUstream` or `cudaStream_t`, null being the legacy default stream. It is not
    /// destroyed on drop.
    ///
    /// # Safety
    /// `stream` is a live stream or one of CUDA's default streams, for as long as the queue and all memory, events
    /// and graphs made from it.
    ///
    /// # Errors
    /// No driver, no such device, or a stream of another device or of another context than the primary one.
    pub unsafe fn from_raw_stream(ordinal: u32, stream: *mut c_void) -> Result<CudaQueue, Error> {
        let device = CudaDevice::shared(ordinal)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { Stream::borrowed(Arc::clone(device.context()), stream) }?;
        Ok(CudaQueue { stream: Arc::new(stream), device })
    }

    /// The stream, as `CUstream` or `cudaStream_t`, for libraries that take one. It lives as long as the queue.
    pub fn raw_stream(&self) -> *mut c_void {
        self.stream.raw()
    }

    /// The device's number.
    pub fn ordinal(&self) -> u32 {
        self.device.context().ordinal()
    }

    /// The device and the kernels loaded on it.
    pub fn cuda_device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// Makes the device's context current on this thread, for libraries that expect it. The queue's own calls do so
    /// themselves.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn bind(&self) -> Result<(), QueueError> {
        self.stream.bind().map_err(|error| self.failed("binding the context", error))
    }

    /// Compiles, where nothing holds them yet, and loads these kernels, on all cores. A later launch of one costs no
    /// compile. Progress is logged through `tracing` at the level `info`.
    ///
    /// # Errors
    /// That of the first kernel, in the order given, that does not compile or breaks its promise. The others are
    /// loaded.
    pub fn prepare(&self, kernels: &[Kernel]) -> Result<(), QueueError> {
        self.refuse_in_capture("preparing kernels", "prepare them before")?;
        match self.device.prepare(kernels).into_iter().next() {
            Some((kernel, error)) => Err(self.kernel_failed(kernel, error)),
            None => Ok(()),
        }
    }

    /// Captures what `work` enqueues on this queue into a graph, without running it.
    ///
    /// Kernels must be prepared, and memory allocated, before: workspaces are lent. Memory dropped meanwhile is freed
    /// after the capture.
    ///
    /// # Errors
    /// What `work` returned; the stream is the legacy default stream, or captures already; the driver cannot make the
    /// graph. Nothing is left capturing.
    pub fn capture(&self, work: impl FnOnce() -> core::Result<()>) -> core::Result<Graph> {
        self.refuse_in_capture("starting a capture", "end the running one first")?;
        Graph::capture(&self.stream, &self.device, work)
    }

    fn place(&self) -> Place {
        self.device.device().place
    }

    fn failed(&self, doing: &str, error: Error) -> QueueError {
        QueueError::runtime(format!("{doing} on {}", self.device.device().name), error)
    }

    fn kernel_failed(&self, kernel: &Kernel, error: Error) -> QueueError {
        if let Error::Residency(_) = error {
            return QueueError::Refused { entry: kernel.entry.clone(), source: Arc::new(error) };
        }
        self.failed(&format!("kernel `{}` of {}", kernel.entry, kernel.source.name), error)
    }

    fn refuse_in_capture(&self, what: &str, remedy: &'static str) -> Result<(), QueueError> {
        match self.stream.is_capturing() {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.failed(what, Error::Capturing { what: what.to_owned(), remedy })),
            Err(error) => Err(self.failed(what, error)),
        }
    }

    /// A kernel that is not loaded yet.
    #[cold]
    fn load(&self, kernel: &Kernel) -> Result<Arc<Loaded>, QueueError> {
        let what = format!("loading the kernel `{}`", kernel.entry);
        self.refuse_in_capture(&what, "prepare it before the capture")?;
        self.device.load(kernel).map_err(|error| self.kernel_failed(kernel, error))
    }

    fn event<'e>(&self, event: &'e core::Event) -> Result<&'e Event, QueueError> {
        event.0.downcast_ref().ok_or(QueueError::Foreign { what: "event", place: self.place() })
    }

    fn memory<'m>(&self, memory: &'m Memory) -> Result<&'m DeviceMemory, QueueError> {
        let place = self.place();
        let own = memory.inner().downcast_ref::<DeviceMemory>().filter(|own| own.place == place);
        own.ok_or(QueueError::Foreign { what: "buffer", place })
    }
}

/// Device memory, freed in the order of the stream that it was allocated in.
struct DeviceMemory {
    address: u64,
    bytes: usize,
    place: Place,
    stream: Arc<Stream>,
}

// SAFETY: the range came from the driver's allocator, which aligns to at least 256 bytes, and is freed on drop only.
// An empty one has the address 0.
unsafe impl QueueMemory for DeviceMemory {
    fn address(&self) -> u64 {
        self.address
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn place(&self) -> Place {
        self.place
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.stream.free(self.address);
        }
    }
}

impl Queue for CudaQueue {
    fn device(&self) -> &Device {
        self.device.device()
    }

    fn in_order(&self) -> bool {
        true
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
        let loaded = match self.device.find(launch.kernel) {
            Some(loaded) => loaded,
            None => self.load(launch.kernel)?,
        };
        let Launch { kernel, grid, dynamic_shared, args } = *launch;
        loaded
            .check(launch)
            // SAFETY: the size of the arguments was checked; the rest is the caller's promise.
            .and_then(|()| unsafe {
                self.stream.launch(&loaded.function, grid, kernel.promise.threads, dynamic_shared, args)
            })
            .map_err(|error| self.kernel_failed(kernel, error))
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError> {
        let place = self.place();
        let mut address = 0;
        if bytes > 0 {
            self.refuse_in_capture("allocating memory", "allocate before, and lend operations a workspace")?;
            address = self.stream.allocate(bytes).map_err(|error| {
                if is_out_of_memory(&error) {
                    QueueError::OutOfMemory { bytes, place, reason: error.to_string() }
                } else {
                    self.failed(&format!("allocating {bytes} bytes"), error)
                }
            })?;
        }
        Ok(Memory::new(DeviceMemory { address, bytes, place, stream: Arc::clone(&self.stream) }))
    }

    fn write(&self, memory: &mut Memory, offset: usize, bytes: &[u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())?;
        let own = self.memory(memory)?;
        if bytes.is_empty() {
            return Ok(());
        }
        // A graph would read the source again at each launch, when it may be gone.
        self.refuse_in_capture(
            "copying from the host",
            "copy before, or let a kernel copy from device memory",
        )?;
        // SAFETY: the range is inside an allocation of this device.
        unsafe { self.stream.upload(own.address + offset as u64, bytes) }
            .map_err(|error| self.failed(&format!("copying {} bytes to the device", bytes.len()), error))
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())?;
        let own = self.memory(memory)?;
        self.refuse_in_capture("copying to the host", "copy after the graph was launched")?;
        if bytes.is_empty() {
            // There is nothing to copy, but work enqueued before is still waited for.
            return self.synchronize();
        }
        let what = format!("copying {} bytes to the host", bytes.len());
        // SAFETY: the range is inside an allocation of this device.
        unsafe { self.stream.download(own.address + offset as u64, bytes) }
            .map_err(|error| self.failed(&what, error))
    }

    unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), QueueError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.stream.zero(address, bytes) }
            .map_err(|error| self.failed(&format!("zeroing {bytes} bytes at {address:#x}"), error))
    }

    fn fence(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn record(&self) -> Result<core::Event, QueueError> {
        let event = self.stream.record().map_err(|error| self.failed("recording an event", error))?;
        Ok(core::Event(Box::new(event)))
    }

    fn seconds_between(&self, earlier: &core::Event, later: &core::Event) -> Result<f64, QueueError> {
        self.stream
            .seconds_between(self.event(earlier)?, self.event(later)?)
            .map_err(|error| self.failed("timing between two events", error))
    }

    fn copy(&self, from: &Memory, to: &mut Memory) -> Result<(), QueueError> {
        to.check_range(0, from.bytes())?;
        let (source, target) = (self.memory(from)?, self.memory(to)?);
        if source.bytes == 0 {
            return Ok(());
        }
        // SAFETY: both are allocations of this device, and the target is at least as large.
        unsafe { self.stream.copy(source.address, target.address, source.bytes) }
            .map_err(|error| self.failed(&format!("copying {} bytes on the device", source.bytes), error))
    }

    fn wait(&self, event: &core::Event) -> Result<(), QueueError> {
        let event = self.event(event)?;
        self.stream.wait(event).map_err(|error| self.failed("waiting for an event", error))
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        self.stream.synchronize().map_err(|error| self.failed("waiting for enqueued work", error))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
