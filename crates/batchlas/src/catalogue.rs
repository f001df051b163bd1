//! Every device kernel that ships: for ahead-of-time bundles, and for warming up before the first call.

use batchlas_core::seam::UpdateShape;
use batchlas_core::{Device, Dtype, Error, Kernel, Result, Trans, Uplo};
use batchlas_gemm::Variant;
use batchlas_kernels::Arch;
use batchlas_kernels::cuda::{CudaQueue, Graph};
use batchlas_potrf::{Problem, logdet, lpanel, potri, tiny};
use batchlas_select::Spelling;
use batchlas_trsm::{cta, few, fused, sg_left};
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

/// Right-hand sides that fill every work-group.
const MANY: usize = 1024;

/// The kernels that calls can need on an architecture (`sm_90`), for the orders in `orders` (of 1 to [`fused::MAX_N`]) and
/// at most one right-hand side, where no table and no pin gives knobs.
///
/// # Errors
/// None, unless a vocabulary is inconsistent, which a test excludes.
pub fn kernels(arch: &str, orders: impl IntoIterator<Item = usize>) -> Result<Vec<Kernel>> {
    let family = batchlas_potrf::VOCABULARY.spelling("tiny")?;
    let [wide, narrow] = ["cta", "few"].map(|family| batchlas_trsm::VOCABULARY.spelling(family));
    let (wide, narrow) = (wide?, narrow?);
    let (small, large): (Vec<usize>, Vec<usize>) =
        orders.into_iter().filter(|n| (1..=fused::MAX_N).contains(n)).partition(|&n| n <= tiny::MAX_N);
    let blocks = batchlas_trsm::VOCABULARY.spelling("fused")?;
    let device = device(arch)?;
    let solve = batchlas_posv::POSV.spelling("tiny")?;
    let solves = small.iter().flat_map(|&n| posv_tiny(arch, n, 1, &solve));
    Ok(tiny::kernels(arch, small.iter().copied(), &family)
        .chain(cta::kernels(small.iter().copied(), &wide))
        .chain(few::kernels(small.iter().copied(), &[1], &narrow))
        .chain(fused::kernels(large, MANY, &blocks))
        .chain(potri::kernels(&device))
        .chain(logdet::kernels())
        .chain(solves)
        .chain(batchlas_vendor::kernels())
        .chain(batchlas_posv::kernels())
        .chain(batchlas_posv::mixed::kernels())
        .collect())
}

/// The kernels of products on an architecture, where no table and no pin gives knobs.
pub fn product_kernels(arch: &str) -> Vec<Kernel> {
    let families = [&batchlas_gemm::tile::FAMILY, &batchlas_gemm::mma::FAMILY];
    families.into_iter().flat_map(|family| family.catalogue(arch, &[32, 64])).collect()
}

/// The kernels of one pinned route of `op` at order `n` with `q` right-hand sides (where it has any) on an architecture;
/// none for families that launch nothing of ours.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn kernels_of(arch: &str, op: &str, route: &str, n: usize, q: usize) -> Result<Vec<Kernel>> {
    let vocabulary = crate::VOCABULARIES.iter().find(|v| v.op == op);
    let vocabulary = vocabulary.ok_or_else(|| Error::Internal(format!("there is no operation {op}")))?;
    let family = vocabulary.spelling(route)?;
    Ok(match (op, family.family()) {
        ("potrf", "tiny") => tiny::kernels(arch, [n], &family).collect(),
        ("trsm", "cta") => cta::kernels([n], &family).collect(),
        ("trsm", "fused") => fused::kernels([n], q, &family).collect(),
        ("trsm", "few") => few::kernels([n], &[q], &family).collect(),
        ("trsm", "sg_left") => sg_left::kernels([n], &family).collect(),
        ("potrf", "lpanel") => lpanel::kernels(&device(arch)?, [n], &family).collect(),
        ("posv", "tiny") => posv_tiny(arch, n, q, &family).collect(),
        ("posv" | "potrs", "cta") => {
            solves(n, q).map(|p| batchlas_posv::cta::kernel_of(&p, &family, 0)).collect()
        }
        ("potrf", "cta") => batchlas_potrf::cta::kernels(arch, usize::MAX, [n], &family).collect(),
        _ => Vec::new(),
    })
}

/// A device of an architecture, where there is none.
fn device(arch: &str) -> Result<Device> {
    let known = arch.parse::<Arch>().ok().and_then(Arch::device);
    known.ok_or_else(|| Error::Internal(format!("nothing is known of a device of architecture {arch}")))
}

/// The kernels of one pinned route of `gemm` for one type, transpositions of A and B, and sizes `m`, `n`, `k`, batch;
/// none for a family that launches nothing of ours.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn gemm_kernels(
    arch: &str,
    dtype: Dtype,
    [trans_a, trans_b]: [Trans; 2],
    [m, n, k, batch]: [usize; 4],
    route: &str,
) -> Result<Vec<Kernel>> {
    let spelling = batchlas_gemm::GEMM.spelling(route)?;
    let variants = [false, true].map(|aligned| Variant::gemm(dtype, trans_a, trans_b, aligned));
    Ok(batchlas_gemm::kernels(arch, dtype, &variants, &UpdateShape { m, n, k, batch }, &spelling))
}

/// The kernels of one pinned route of `herk` for one type, transposition, and sizes `n`, `k`, batch.
///
/// # Errors
/// The route is not a spelling of the operation.
pub fn herk_kernels(
    arch: &str,
    dtype: Dtype,
    trans: Trans,
    [n, k, batch]: [usize; 3],
    route: &str,
) -> Result<Vec<Kernel>> {
    let spelling = batchlas_gemm::HERK.spelling(route)?;
    let variants = [false, true].map(|aligned| Variant::herk(dtype, trans, aligned));
    Ok(batchlas_gemm::kernels(arch, dtype, &variants, &UpdateShape { m: n, n, k, batch }, &spelling))
}

/// The kernels of posv's `tiny` at one size.
fn posv_tiny(arch: &str, n: usize, nrhs: usize, family: &Spelling) -> impl Iterator<Item = Kernel> {
    let served = solves(n, nrhs).filter(|problem| batchlas_posv::tiny::serves(arch, problem).is_ok());
    served.flat_map(move |problem| batchlas_posv::tiny::kernels(&problem, family))
}

/// The solves of one size: all types, both triangles.
fn solves(n: usize, nrhs: usize) -> impl Iterator<Item = batchlas_posv::Problem> {
    let types = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
    types.map(move |(dtype, uplo)| batchlas_posv::Problem { dtype, uplo, n, nrhs, batch: 1 })
}
