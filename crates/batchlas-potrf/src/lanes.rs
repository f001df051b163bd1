//! `lanes`: on a CPU, as many items at once as a vector has lanes. The kernel is in batchlas-lanes, which `posv` shares.

use batchlas_core::seam::FactorShape;
use batchlas_core::{Device, Error, InfoMut, MatBatchMut, Queue, Ran, Result, Scalar, Uplo};
use batchlas_lanes::{Cholesky, GRAIN_BYTES, isa, pool};
use batchlas_select::{Refusal, Spelling};

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, shape: &FactorShape, family: &Spelling) -> Result<(), Refusal> {
    isa(device, shape.n, family).map(drop)
}

/// Factors the batch, spread over the pool.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let n = a.rows();
    let isa = isa(queue.device(), n, family).map_err(String::from).map_err(Error::Internal)?;
    let plan = Cholesky::new::<T>(isa, uplo, (n, a.ld()), a.batch());
    let grain = GRAIN_BYTES / (n * n * size_of::<T>());
    pool(queue)?.for_each_run((a, info), plan.group::<T>(), grain, |(a, info)| plan.factor(a, info))?;
    Ok(Ran::leaf("potrf", format!("lanes:isa={isa}")))
}
