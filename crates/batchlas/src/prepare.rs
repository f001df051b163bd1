//! Ahead of the first call: compiling what it launches, and recording it into a graph.

use batchlas_core::{Error, Kernel, Result};
use batchlas_kernels::cuda::{CudaQueue, Graph};

use crate::context::Context;

impl Context {
    /// Compiles and loads what `calls` launch, on all cores, so that none of them waits for a compiler; returns the
    /// number of kernels. The calls are made on a context that runs nothing ([`Context::rehearsal`]): what they would
    /// launch for operands of these shapes is what gets compiled. Progress is told through `tracing`. A first call at a
    /// new order costs a compile of about half a second otherwise, unless it is in the disk cache or in a bundle. A CPU
    /// has nothing to prepare.
    ///
    /// # Errors
    /// What `calls` returns; there is no compiler and no bundle that has a kernel; a kernel breaks its promise; a vendor
    /// library fails.
    pub fn prepare(&self, calls: impl FnOnce(&Context) -> Result<()>) -> Result<usize> {
        let Some(cuda) = self.queue().as_any().downcast_ref::<CudaQueue>() else { return Ok(0) };
        let rehearsal = self.rehearsal();
        calls(&rehearsal)?;
        let mut kernels = rehearsal.rehearsed();
        kernels.extend(common_kernels());
        cuda.prepare(&kernels)?;
        self.prepare_vendor()?;
        Ok(kernels.len())
    }

    /// Records what `work` enqueues into a CUDA graph instead of running it. Kernels must have been prepared, and
    /// operations be given their `info` and workspace: nothing can be compiled or allocated while recording.
    ///
    /// # Errors
    /// The context is not on a CUDA device; what `work` returns; something that a graph cannot hold.
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        match self.queue().as_any().downcast_ref::<CudaQueue>() {
            Some(cuda) => cuda.capture(work),
            None => Err(Error::Internal("only a context on a CUDA device can record a graph".into())),
        }
    }
}

/// The kernels that may be launched whatever the shape: those round the calls of vendor libraries, and those that mend
/// what a failing item leaves.
pub fn common_kernels() -> impl Iterator<Item = Kernel> {
    batchlas_vendor::kernels().chain(batchlas_posv::kernels())
}
