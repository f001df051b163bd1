//! Every device kernel that ships: for ahead-of-time bundles, and for warming up before the first call.

use batchlas_core::{Dtype, Error, Kernel, Result, Uplo};
use batchlas_kernels::cuda::{CudaQueue, Graph};
use batchlas_posv::cta;
use batchlas_potrf::{Problem, tiny};
use batchlas_select::Spelling;
use batchlas_vendor::Element;
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
    /// Right-hand sides of a solve; 0 for a factorisation alone.
    pub nrhs: usize,
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
        for &Call { dtype, uplo, n, nrhs, batch } in calls.iter().filter(|call| call.n > 0 && call.batch > 0)
        {
            let solve = batchlas_posv::Problem { dtype, uplo, n, nrhs, batch };
            kernels.extend(match dtype {
                Dtype::F32 => self.launched::<f32>(&solve),
                Dtype::F64 => self.launched::<f64>(&solve),
                Dtype::C32 => self.launched::<Complex<f32>>(&solve),
                Dtype::C64 => self.launched::<Complex<f64>>(&solve),
            }?);
        }
        cuda.prepare(&kernels)?;
        self.prepare_vendor()?;
        Ok(kernels.len())
    }

    /// The kernels of a factorisation, and of a solve if there are right-hand sides.
    fn launched<T: Element>(&self, solve: &batchlas_posv::Problem) -> Result<Vec<Kernel>> {
        let &batchlas_posv::Problem { dtype, uplo, n, nrhs, batch } = solve;
        let problem = Problem { dtype, uplo, n, batch };
        let mut kernels = self.potrf_with::<T>(None).kernels(self.device(), &problem)?;
        if nrhs > 0 {
            kernels.extend(self.posv_with::<T, _>(None, |posv| posv.kernels(self.device(), solve))?);
        }
        Ok(kernels)
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
/// [`tiny::MAX_N`]) and at most one right-hand side, where no table and no pin gives knobs.
///
/// # Errors
/// None, unless a vocabulary is inconsistent, which a test excludes.
pub fn kernels(arch: &str, orders: impl IntoIterator<Item = usize>) -> Result<Vec<Kernel>> {
    let family = batchlas_potrf::VOCABULARY.spelling("tiny")?;
    let solve = batchlas_posv::POSV.spelling("tiny")?;
    let small = orders.into_iter().filter(|n| (1..=tiny::MAX_N).contains(n)).collect::<Vec<_>>();
    let solves = small.clone().into_iter().flat_map(|n| posv_tiny(n, 1, &solve).collect::<Vec<_>>());
    Ok(tiny::kernels(arch, small, &family)
        .chain(solves)
        .chain(batchlas_vendor::kernels())
        .chain(batchlas_posv::kernels())
        .chain(batchlas_posv::mixed::kernels())
        .collect())
}

/// The kernels of one pinned route of `op` at order `n` with `nrhs` right-hand sides on an architecture; none for families that launch nothing of
/// ours.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn kernels_of(arch: &str, op: &str, route: &str, n: usize, nrhs: usize) -> Result<Vec<Kernel>> {
    let vocabulary = crate::VOCABULARIES.iter().find(|v| v.op == op);
    let vocabulary = vocabulary.ok_or_else(|| Error::Internal(format!("there is no operation {op}")))?;
    let family = vocabulary.spelling(route)?;
    Ok(match (op, family.family()) {
        ("potrf", "tiny") => tiny::kernels(arch, [n], &family).collect(),
        ("posv", "tiny") => posv_tiny(n, nrhs, &family).collect(),
        ("posv" | "potrs", "cta") => solves(n, nrhs).map(|p| cta::kernel_of(&p, &family, 0)).collect(),
        _ => Vec::new(),
    })
}

/// The kernels of posv's `tiny` at one size.
fn posv_tiny(n: usize, nrhs: usize, family: &Spelling) -> impl Iterator<Item = Kernel> {
    let served = solves(n, nrhs).filter(|problem| batchlas_posv::tiny::serves(problem).is_ok());
    served.flat_map(move |problem| batchlas_posv::tiny::kernels(&problem, family))
}

/// The solves of one size: all types, both triangles.
fn solves(n: usize, nrhs: usize) -> impl Iterator<Item = batchlas_posv::Problem> {
    let types = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
    types.map(move |(dtype, uplo)| batchlas_posv::Problem { dtype, uplo, n, nrhs, batch: 1 })
}
