//! The driver's functions as owned handles and results: the only file that calls libcuda.
//!
//! [`Driver::load`] is the only way in, and succeeds only where the library is loaded and its release serves, so that
//! neither cudarc's panic for a missing library nor that for a missing symbol can be reached. Every handle keeps the
//! [`Context`] it belongs to alive, and every call makes that context the thread's current one first: which thread a
//! queue is used from does not matter.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute as DeviceAttribute, CUfunction_attribute, CUresult};

use crate::Error;
use crate::arch::Multiprocessor;
use crate::cuda::device::Attributes;
use crate::locate::{self, Library, NotFound};

/// Oldest release of CUDA that the driver must support, as it numbers them: that of the compiler, 13.0.
const OLDEST: c_int = 13_000;

/// The loaded and initialised driver.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: c_int,
    path: &'static Path,
}

impl Driver {
    /// Finds, loads and initialises the driver. Cheap when it was done before.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::DriverTooOld`], or [`Error::Driver`] where it does not initialise: without a GPU,
    /// `CUDA_ERROR_NO_DEVICE`.
    pub fn load() -> Result<Driver, Error> {
        let loaded = locate::load(Library::Cuda)?;
        // SAFETY: opens libraries by the names of the driver, as the locator just did.
        if !unsafe { sys::is_culib_present() } {
            let tried = vec![(loaded.path.clone(), "loaded, but cudarc cannot open it by name".to_owned())];
            return Err(NotFound { library: Library::Cuda, tried }.into());
        }
        let mut version = 0;
        // SAFETY: the pointer is to a live integer; the function may be called before cuInit.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        if version < OLDEST {
            return Err(Error::DriverTooOld { found: release(version), needed: release(OLDEST) });
        }
        // SAFETY: takes no pointer.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        Ok(Driver { version, path: &loaded.path })
    }

    /// The release of CUDA that it supports, e.g. `13.0`.
    pub fn version(&self) -> String {
        release(self.version)
    }

    /// The file, or the bare name where the system loader found it.
    pub fn path(&self) -> &'static Path {
        self.path
    }

    /// Number of devices.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn device_count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: the driver is initialised; the pointer is to a live integer.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    fn device(&self, ordinal: u32) -> Result<sys::CUdevice, Error> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::Ordinal { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: the driver is initialised; the pointer is to a live integer.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
        Ok(device)
    }

    /// What the driver says of a device. Makes no context.
    pub(crate) fn attributes(&self, ordinal: u32) -> Result<Attributes, Error> {
        let device = self.device(ordinal)?;
        let mut name = [0 as c_char; 256];
        // SAFETY: the buffer has the length given.
        check("cuDeviceGetName", unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device)
        })?;
        // SAFETY: the buffer was zeroed and its last byte was not offered, so a NUL byte ends the string.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let get = |attribute: DeviceAttribute| {
            let mut value = 0;
            // SAFETY: the device came from cuDeviceGet; the pointer is to a live integer.
            check("cuDeviceGetAttribute", unsafe {
                sys::cuDeviceGetAttribute(&mut value, attribute, device)
            })?;
            Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
        };
        Ok(Attributes {
            name,
            ordinal,
            capability: (
                get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            block_threads: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            warp: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            registers: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            block_shared: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            multiprocessor: Multiprocessor {
                shared: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
                shared_reserved: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
                threads: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
                blocks: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
            },
            memory_pools: get(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
        })
    }
}

fn release(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The result of `call`. Only for calls of a loaded driver: it is asked what its result means.
fn check(call: &'static str, result: CUresult) -> Result<(), Error> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: the pointer is to a live pointer; the driver is loaded, since it just returned this result.
    let known = unsafe { sys::cuGetErrorString(result, &mut text) } == CUresult::CUDA_SUCCESS;
    let text = if known && !text.is_null() {
        // SAFETY: on success the driver gives a NUL-terminated string that it never frees.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        "the driver has no text for it".to_owned()
    };
    Err(Error::Driver { call, code: result as i32, name: format!("{result:?}"), text })
}

/// Whether an error is the driver's word that memory ran out.
pub(crate) fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::Driver { code, .. } if *code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32)
}

/// Reports a failure where there is nobody to return it to.
fn log(what: &str, result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what}");
    }
}

/// The primary context of a device, shared with the CUDA runtime and with other libraries of the process.
#[derive(Debug)]
pub(crate) struct Context {
    raw: sys::CUcontext,
    device: sys::CUdevice,
    ordinal: u32,
}

// SAFETY: contexts may be used from any thread; which one is current is a property of the thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the context, and lets the device's memory pool keep what is freed into it, so that allocations do not
    /// go to the operating system again after each synchronisation.
    pub(crate) fn retain(driver: &Driver, ordinal: u32) -> Result<Arc<Context>, Error> {
        let device = driver.device(ordinal)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the device came from cuDeviceGet; the pointer is to a live handle.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        let context = Context { raw, device, ordinal };
        context.bind()?;
        let mut pool = ptr::null_mut();
        // SAFETY: as above.
        check("cuDeviceGetDefaultMemPool", unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) })?;
        let mut threshold = u64::MAX;
        // SAFETY: the pool is the device's own, and this attribute is a 64-bit integer, copied by the call.
        check("cuMemPoolSetAttribute", unsafe {
            sys::cuMemPoolSetAttribute(
                pool,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut threshold).cast(),
            )
        })?;
        Ok(Arc::new(context))
    }

    /// Makes it the current context of this thread; only a comparison where it is already.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        let mut current = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut current) })?;
        if current == self.raw {
            return Ok(());
        }
        // SAFETY: the context is retained.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Waits for all work of the device.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: takes no pointer.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: undoes the one retain of this value.
        log(
            "context not released",
            check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) }),
        );
    }
}

/// A stream, and what is done in its order.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: sys::CUstream,
    owned: bool,
    context: Arc<Context>,
    /// Memory dropped while the stream was capturing: freeing it then would become part of the graph.
    parked: Mutex<Vec<u64>>,
}

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of our own that does not wait for the legacy default stream.
    pub(crate) fn new(context: Arc<Context>) -> Result<Stream, Error> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32)
        })?;
        Ok(Stream { raw, owned: true, context, parked: Mutex::default() })
    }

    /// A stream of the caller's, which is not destroyed.
    ///
    /// # Safety
    /// It is a live stream, or one of the driver's default streams, for as long as this value and all that was made
    /// from it.
    pub(crate) unsafe fn borrowed(context: Arc<Context>, raw: *mut c_void) -> Result<Stream, Error> {
        context.bind()?;
        // Null, 1 and 2 name the default streams, which are those of the current context.
        if raw.addr() > 2 {
            let mut of = ptr::null_mut();
            // SAFETY: the caller promises a live stream; the pointer is to a live handle.
            check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(raw.cast(), &mut of) })?;
            if of != context.raw {
                return Err(Error::ForeignStream { ordinal: context.ordinal });
            }
        }
        Ok(Stream { raw: raw.cast(), owned: false, context, parked: Mutex::default() })
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    pub(crate) fn bind(&self) -> Result<(), Error> {
        self.context.bind()
    }

    pub(crate) fn is_capturing(&self) -> Result<bool, Error> {
        self.bind()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live; the pointer is to a live integer of that enumeration.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.free_parked();
        self.bind()?;
        let mut address = 0;
        // SAFETY: the stream is live; the pointer is to a live integer.
        check("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&mut address, bytes, self.raw) })?;
        Ok(address)
    }

    /// Frees memory in stream order; after the capture, if there is one.
    pub(crate) fn free(&self, address: u64) {
        match self.is_capturing() {
            Ok(true) => self.parked.lock().unwrap_or_else(PoisonError::into_inner).push(address),
            _ => self.free_now(address),
        }
    }

    pub(crate) fn free_parked(&self) {
        let parked = std::mem::take(&mut *self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        for address in parked {
            self.free(address);
        }
    }

    fn free_now(&self, address: u64) {
        // SAFETY: the address came from `allocate`, and its owner frees it once.
        let freed = self
            .bind()
            .and_then(|()| check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, self.raw) }));
        log("device memory not freed", freed);
    }

    /// Enqueues a copy to the device. The source may be reused on return: the driver copies pageable memory into a
    /// staging buffer before it returns, and for memory that it knows, pinned or managed, from which it would copy
    /// later, this waits.
    ///
    /// # Safety
    /// The range at `address` is device memory of this context.
    pub(crate) unsafe fn upload(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the destination is the caller's promise; the source is a live slice.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.raw)
        })?;
        let mut kind = 0_u32;
        // SAFETY: the attribute is a 32-bit integer. A pointer that the driver does not know is an error, not a fault.
        let pageable = unsafe {
            sys::cuPointerGetAttribute(
                (&raw mut kind).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                bytes.as_ptr().addr() as u64,
            )
        } == CUresult::CUDA_ERROR_INVALID_VALUE;
        if pageable { Ok(()) } else { self.synchronize() }
    }

    /// Copies to the host and waits.
    ///
    /// # Safety
    /// The range at `address` is device memory of this context.
    pub(crate) unsafe fn download(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the source is the caller's promise; the destination is a live slice, which stays borrowed until the
        // copy is done below.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), self.raw)
        })?;
        self.synchronize()
    }

    /// Enqueues zeros.
    ///
    /// # Safety
    /// The range is device memory of this context that nothing else uses except work in stream order.
    pub(crate) unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the caller's promise.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.raw) })
    }

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the stream is live.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    pub(crate) fn record(&self) -> Result<Event, Error> {
        self.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
        })?;
        let event = Event { raw, context: Arc::clone(&self.context) };
        // SAFETY: both are live and of one context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw) })?;
        Ok(event)
    }

    /// Seconds from one event to a later one, waiting for the later one. The resolution is about half a microsecond.
    pub(crate) fn seconds_between(&self, earlier: &Event, later: &Event) -> Result<f64, Error> {
        self.bind()?;
        let mut milliseconds = 0f32;
        // SAFETY: both events are live and recorded.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(later.raw) })?;
        // SAFETY: as above; the pointer is to a live float.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&mut milliseconds, earlier.raw, later.raw)
        })?;
        Ok(f64::from(milliseconds) * 1e-3)
    }

    /// Enqueues a copy between two ranges of device memory.
    ///
    /// # Safety
    /// Both ranges are device memory of this context; nothing else uses the destination except work in stream order.
    pub(crate) unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.raw) })
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: both are live; an event may be of another device.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    /// Enqueues a kernel: `grid` blocks of `threads` threads, with `shared` bytes of dynamic shared memory.
    ///
    /// # Safety
    /// `args` is the function's one parameter, of its size, and what the kernel reaches through it is valid in stream
    /// order.
    pub(crate) unsafe fn launch(
        &self,
        function: &Function,
        grid: u32,
        threads: u32,
        shared: u32,
        args: &[u8],
    ) -> Result<(), Error> {
        self.bind()?;
        let mut parameters = [args.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the function is loaded in this context; the one parameter is copied before the call returns.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function.raw,
                grid,
                1,
                1,
                threads,
                1,
                1,
                shared,
                self.raw,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    /// Starts a capture. Only this thread's calls can invalidate it.
    pub(crate) fn begin_capture(&self) -> Result<(), Error> {
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })
    }

    /// Ends a capture.
    pub(crate) fn end_capture(&self) -> Result<Captured, Error> {
        self.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the stream is live; the pointer is to a live handle.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &mut raw) })?;
        Ok(Captured { raw })
    }

    /// Launches a graph.
    ///
    /// # Safety
    /// What the graph reaches is valid in stream order.
    pub(crate) unsafe fn launch_graph(&self, graph: &Executable) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: both are live and of one context.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.raw, self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.free_parked();
        if self.owned {
            // SAFETY: made by this value and destroyed once; the driver finishes the stream's work first.
            let destroyed = self
                .bind()
                .and_then(|()| check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.raw) }));
            log("stream not destroyed", destroyed);
        }
    }
}

/// A point of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: events may be used from any thread; the driver locks.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by this value and destroyed once; waits that were enqueued on it are kept by the driver.
        let destroyed = self
            .context
            .bind()
            .and_then(|()| check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) }));
        log("event not destroyed", destroyed);
    }
}

/// What the driver says of a loaded function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionAttributes {
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Local memory per thread in bytes.
    pub(crate) local: u32,
    /// Static shared memory per block in bytes.
    pub(crate) shared: u32,
    /// Most threads per block.
    pub(crate) threads: u32,
}

/// A kernel, loaded in a context.
#[derive(Debug)]
pub(crate) struct Function {
    raw: sys::CUfunction,
    module: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: functions may be used from any thread, and their attributes are set before they are shared.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Loads the kernel `lowered` of a cubin now, not at its first launch, which may be inside a capture.
    pub(crate) fn load(context: &Arc<Context>, cubin: &[u8], lowered: &str) -> Result<Function, Error> {
        let name = CString::new(lowered).map_err(|error| Error::Nul {
            what: "the lowered name",
            source_name: lowered.to_owned(),
            offset: error.nul_position(),
        })?;
        context.bind()?;
        let mut module = ptr::null_mut();
        // SAFETY: the bytes are a whole cubin: they came from NVRTC, or carry the checksum of what did.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        let mut function = Function { raw: ptr::null_mut(), module, context: Arc::clone(context) };
        // SAFETY: the module is live, the name NUL-terminated, the pointer to a live handle.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&mut function.raw, module, name.as_ptr())
        })?;
        // SAFETY: the function is of a live module.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(function.raw) })?;
        Ok(function)
    }

    pub(crate) fn attributes(&self) -> Result<FunctionAttributes, Error> {
        self.context.bind()?;
        let get = |attribute: CUfunction_attribute| {
            let mut value = 0;
            // SAFETY: the function is live; the pointer is to a live integer.
            check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.raw) })?;
            Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
        };
        Ok(FunctionAttributes {
            registers: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            threads: get(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    /// Size in bytes of each parameter.
    pub(crate) fn parameters(&self) -> Result<Vec<usize>, Error> {
        self.context.bind()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is live; both pointers are to live integers.
            match unsafe { sys::cuFuncGetParamInfo(self.raw, sizes.len(), &mut offset, &mut size) } {
                // The driver's answer for a number past the last parameter.
                CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
                result => check("cuFuncGetParamInfo", result)?,
            }
            sizes.push(size);
        }
    }

    /// Most dynamic shared memory that launches may ask for: state of the function, so it is set once, before the
    /// function is shared.
    pub(crate) fn set_max_dynamic_shared(&mut self, bytes: u32) -> Result<(), Error> {
        self.context.bind()?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the function is live.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes) })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: loaded by this value and unloaded once.
        let unloaded = self
            .context
            .bind()
            .and_then(|()| check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) }));
        log("module not unloaded", unloaded);
    }
}

/// A captured graph that cannot be launched yet.
#[derive(Debug)]
pub(crate) struct Captured {
    raw: sys::CUgraph,
}

impl Captured {
    /// The graph, ready to launch in `stream`.
    pub(crate) fn instantiate(&self, stream: &Stream) -> Result<Executable, Error> {
        stream.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the graph is live; the pointer is to a live handle.
        check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, self.raw, 0) })?;
        Ok(Executable { raw })
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> Result<usize, Error> {
        let mut count = 0;
        // SAFETY: without an array, the driver only writes the number.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.raw, ptr::null_mut(), &mut count) })?;
        Ok(count)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: owned by this value and destroyed once; executables made from it do not need it.
        log("graph not destroyed", check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.raw) }));
    }
}

/// A graph that can be launched. It must not outlive its stream's context.
#[derive(Debug)]
pub(crate) struct Executable {
    raw: sys::CUgraphExec,
}

// SAFETY: a graph may move between threads; it is not `Sync`, since the driver does not lock it.
unsafe impl Send for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: owned by this value and destroyed once; the driver finishes running launches first.
        log("graph not destroyed", check("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.raw) }));
    }
}
