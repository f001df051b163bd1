//! `lanes`: on a CPU, as many systems at once as a vector has lanes: factorisation and both solves over one packed
//! triangle. The kernel is in batchlas-lanes, which `potrf` shares.

use batchlas_core::{Device, Error, InfoMut, MatBatchMut, Queue, Ran, Result, Scalar};
use batchlas_lanes::{Cholesky, GRAIN_BYTES, Keep, isa, pool};
use batchlas_select::{Refusal, Spelling};

use crate::problem::{FactorOutput, Problem};

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, problem: &Problem, family: &Spelling) -> Result<(), Refusal> {
    isa(device, problem.n, family).map(drop)
}

/// Factors and solves the batch, spread over the pool.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    problem: &Problem,
    output: FactorOutput,
    a: MatBatchMut<'_, T>,
    b: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let Problem { uplo, n, nrhs, .. } = *problem;
    let isa = isa(queue.device(), n, family).map_err(String::from).map_err(Error::Internal)?;
    let plan = Cholesky::new::<T>(isa, uplo, (n, a.ld()), a.batch());
    let keep = match output {
        FactorOutput::Stored => Keep::Factor,
        FactorOutput::Discarded => Keep::Solution,
    };
    let grain = GRAIN_BYTES / (n * (n + nrhs) * size_of::<T>());
    let (pool, group) = (pool(queue)?, plan.group::<T>());
    if nrhs == 0 {
        pool.for_each_run((a, info), group, grain, |(a, info)| plan.factor(a, info))?;
    } else {
        let plan = plan.with_rhs::<T>(nrhs, b.ld(), keep);
        pool.for_each_run(((a, b), info), group, grain, |((a, b), info)| plan.solve(a, b, info))?;
    }
    Ok(Ran::leaf("posv", format!("lanes:isa={isa}")))
}
