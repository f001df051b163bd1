//! The CUDA stream behind a queue.

use std::ffi::c_void;

use batchlas_core::{Error, Queue, Result};
use batchlas_kernels::cuda::CudaQueue;

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
