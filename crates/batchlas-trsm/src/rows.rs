//! `rows` and `lanes`: on a CPU, item by item with one right-hand side per lane, or, for few right-hand sides, as many items
//! at once as a vector has lanes. The kernels are in batchlas-lanes.

use batchlas_core::seam::SolveShape;
use batchlas_core::{Device, Error, MatBatch, MatBatchMut, Queue, Ran, Result, Scalar};
use batchlas_lanes::{Case, GRAIN_BYTES, ISA, LANES, Rows, Substitution, isa, pool};
use batchlas_select::{Candidate, Class, Refusal, Spelling};

/// One right-hand side per lane.
pub(crate) const ROWS: Candidate = Candidate { family: "rows", class: Class::Native, knobs: &[ISA] };

/// Whether one of the families serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, shape: &SolveShape, family: &Spelling) -> Result<(), Refusal> {
    isa(device, shape.n, family).map(drop)
}

/// Solves the batch, spread over the pool.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: MatBatch<'_, T>,
    mut b: MatBatchMut<'_, T>,
    family: &Spelling,
) -> Result<Ran> {
    let SolveShape { side, uplo, trans, diag, n, q, .. } = *shape;
    let pool = pool(queue)?;
    let grain = GRAIN_BYTES / (n * (n + q) * size_of::<T>());
    if alpha == T::zero() {
        // Neither operand may be read.
        pool.for_each_run((a, b.rb_mut()), 1, grain, |(_, mut b)| {
            for item in 0..b.batch() {
                let mut x = batchlas_core::cpu::on_host(b.item_mut(item))?;
                let (rows, cols) = (x.rows(), x.cols());
                for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                    x.set(i, j, T::zero());
                }
            }
            Ok(())
        })?;
        return Ok(Ran::leaf("trsm", family.to_string()));
    }
    let case = Case { side, uplo, trans, diag };
    let isa = isa(queue.device(), n, family).map_err(String::from).map_err(Error::Internal)?;
    if family.family() == LANES.family {
        let plan = Substitution::new::<T>(isa, case, (n, q), (a.ld(), b.ld()));
        pool.for_each_run((a, b), plan.group::<T>(), grain, |(a, b)| plan.solve(alpha, a, b))?;
    } else {
        pool.for_each_run((a, b), 1, grain, |(a, b)| Rows { isa, case }.solve(alpha, a, b))?;
    }
    Ok(Ran::leaf("trsm", format!("{}:isa={isa}", family.family())))
}
