//! `rows`: on a CPU, item by item with one right-hand side per lane. The kernel is in batchlas-lanes.

use batchlas_core::seam::SolveShape;
use batchlas_core::{Device, Error, MatBatch, MatBatchMut, Queue, Ran, Result, Scalar};
use batchlas_lanes::{GRAIN_BYTES, ISA, MAX_N, Rows, isa, pool};
use batchlas_select::{Candidate, Class, Refusal, Spelling};

/// The family.
pub(crate) const CANDIDATE: Candidate = Candidate { family: "rows", class: Class::Native, knobs: &[ISA] };

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(device: &Device, shape: &SolveShape, family: &Spelling) -> Result<(), Refusal> {
    isa(device, family)?;
    if shape.n > MAX_N {
        return Err(format!("n = {}, rows serves n = 1 to {MAX_N}", shape.n).into());
    }
    Ok(())
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
    let isa = isa(queue.device(), family).map_err(String::from).map_err(Error::Internal)?;
    let ran = Ran::leaf("trsm", format!("rows:isa={isa}"));
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
        return Ok(ran);
    }
    let rows = Rows { isa, side, uplo, trans, diag };
    pool.for_each_run((a, b), 1, grain, |(a, b)| rows.solve(alpha, a, b))?;
    Ok(ran)
}
