//! Work captured once and launched many times.
#![allow(unsafe_code)]

use std::sync::Arc;

use batchlas_core as core;
use batchlas_core::QueueError;

use crate::Error;
use crate::cuda::device::CudaDevice;
use crate::cuda::driver::{Captured, Executable, Stream};

/// A captured sequence of launches. Dropping it waits for nothing: the driver finishes launches that are running.
#[derive(Debug)]
pub struct Graph {
    // Fields drop in this order: the executable before its stream and the modules of its kernels.
    executable: Executable,
    nodes: usize,
    stream: Arc<Stream>,
    device: Arc<CudaDevice>,
}

/// Ends the capture also where the captured code fails or panics.
struct Capture<'a>(Option<&'a Stream>);

impl Capture<'_> {
    fn end(mut self) -> Option<Result<Captured, Error>> {
        let stream = self.0.take()?;
        let captured = stream.end_capture();
        stream.free_parked();
        Some(captured)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            // What was captured is dropped, and an invalidated capture is an error that the caller has already seen.
            if let Err(error) = stream.end_capture() {
                tracing::debug!(%error, "abandoned capture");
            }
            stream.free_parked();
        }
    }
}

impl Graph {
    pub(crate) fn capture(
        stream: &Arc<Stream>,
        device: &Arc<CudaDevice>,
        work: impl FnOnce() -> core::Result<()>,
    ) -> core::Result<Graph> {
        let failed = |error| QueueError::runtime("capturing a graph", error);
        stream.begin_capture().map_err(failed)?;
        let capture = Capture(Some(stream));
        work()?;
        let Some(captured) = capture.end() else {
            return Err(core::Error::Internal("a capture ended twice".into()));
        };
        let captured = captured.map_err(failed)?;
        let nodes = captured.nodes().map_err(failed)?;
        let executable = captured.instantiate(stream).map_err(failed)?;
        Ok(Graph { executable, nodes, stream: Arc::clone(stream), device: Arc::clone(device) })
    }

    /// Number of launches, fills and copies in it.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Enqueues the captured work, on the queue it was captured from.
    ///
    /// # Safety
    /// All memory that the captured work reaches is still valid, and not used by others until the work is done in
    /// queue order.
    ///
    /// # Errors
    /// The driver refuses.
    pub unsafe fn launch(&self) -> Result<(), QueueError> {
        // SAFETY: the caller's promise.
        unsafe { self.stream.launch_graph(&self.executable) }.map_err(|error| {
            let name = &self.device.device().name;
            QueueError::runtime(format!("launching a graph of {} nodes on {name}", self.nodes), error)
        })
    }
}
