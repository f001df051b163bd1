//! Every device kernel that ships: for ahead-of-time bundles, and for warming up before the first call.

use batchlas_core::{Dtype, Error, Kernel, Result, Uplo};
use batchlas_kernels::cuda::{CudaQueue, Graph};
use batchlas_potrf::{Problem, cta, tiny};
use num_complex::Complex;

use crate::context::Context;

/// A kind of call that [`Context::prepare`] warms up: a factorisation, alone or inside a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Element type.
    pub dtype: Dtype,
    /// Triangle.
    pub uplo: Uplo,
    /// Order.
    pub n: usize,
    /// Number of items: the tables choose by it.
    pub batch: usize,
}

impl Context {
    /// Compiles and loads what these calls will launch, on all cores, so that none of them waits for a compiler; returns
    /// the number of kernels. Progress is told through `tracing`. A first call at a new order costs a compile of about
    /// half a second otherwise, unless it is in the disk cache or in a bundle. A CPU has nothing to prepare.
    ///
    /// # Errors
    /// There is no compiler and no bundle that has a kernel; a kernel breaks its promise; a vendor library fails.
    pub fn prepare(&self, calls: &[Call]) -> Result<usize> {
        let Some(cuda) = self.queue().as_any().downcast_ref::<CudaQueue>() else { return Ok(0) };
        let mut kernels: Vec<Kernel> = batchlas_vendor::kernels().chain(batchlas_posv::kernels()).collect();
        for &Call { dtype, uplo, n, batch } in calls.iter().filter(|call| call.n > 0 && call.batch > 0) {
            let (problem, device) = (Problem { dtype, uplo, n, batch }, self.device());
            kernels.extend(match dtype {
                Dtype::F32 => self.potrf_with::<f32>(None).kernels(device, &problem),
                Dtype::F64 => self.potrf_with::<f64>(None).kernels(device, &problem),
                Dtype::C32 => self.potrf_with::<Complex<f32>>(None).kernels(device, &problem),
                Dtype::C64 => self.potrf_with::<Complex<f64>>(None).kernels(device, &problem),
            }?);
        }
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

/// The kernels that calls can need on an architecture (`sm_90`), for orders of `tiny` in `orders` (of 1 to
/// [`tiny::MAX_N`]), where no table and no pin gives knobs.
///
/// # Errors
/// None, unless a vocabulary is inconsistent, which a test excludes.
pub fn kernels(arch: &str, orders: impl IntoIterator<Item = usize>) -> Result<Vec<Kernel>> {
    let family = batchlas_potrf::VOCABULARY.spelling("tiny")?;
    let small = orders.into_iter().filter(|n| (1..=tiny::MAX_N).contains(n)).collect::<Vec<_>>();
    Ok(tiny::kernels(arch, small, &family)
        .chain(batchlas_vendor::kernels())
        .chain(batchlas_posv::kernels())
        .collect())
}

/// The kernels of one pinned route of `op` at order `n` on an architecture; none for families that launch nothing of
/// ours.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn kernels_of(arch: &str, op: &str, route: &str, n: usize) -> Result<Vec<Kernel>> {
    let vocabulary = crate::VOCABULARIES.iter().find(|v| v.op == op);
    let vocabulary = vocabulary.ok_or_else(|| Error::Internal(format!("there is no operation {op}")))?;
    let family = vocabulary.spelling(route)?;
    Ok(match (op, family.family()) {
        ("potrf", "tiny") => tiny::kernels(arch, [n], &family).collect(),
        ("potrf", "cta") => cta::kernels(arch, usize::MAX, [n], &family).collect(),
        _ => Vec::new(),
    })
}
