//! The CUDA stream behind a queue.

use std::ffi::c_void;

use batchlas_core::{Error, Queue, QueueError, Result};

/// A stream whose context is current in the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The driver's handle.
    pub(crate) raw: *mut c_void,
    /// The device.
    pub(crate) ordinal: u32,
}

/// The stream of a CUDA queue, with its context made current.
pub(crate) fn of(queue: &dyn Queue) -> Result<Stream> {
    let queue = queue.as_any().downcast_ref::<CudaQueue>().ok_or_else(|| {
        Error::Internal("the CUDA vendor arm was handed a queue that is no CUDA stream".into())
    })?;
    queue.bind()?;
    Ok(Stream { raw: queue.raw_stream(), ordinal: queue.ordinal() })
}

// Stands in for `batchlas_kernels::CudaQueue` until that lands: delete this type and import that one.
struct CudaQueue {
    raw: usize,
    ordinal: u32,
}

impl CudaQueue {
    fn bind(&self) -> Result<(), QueueError> {
        Ok(())
    }
    fn raw_stream(&self) -> *mut c_void {
        self.raw as *mut c_void
    }
    fn ordinal(&self) -> u32 {
        self.ordinal
    }
}
