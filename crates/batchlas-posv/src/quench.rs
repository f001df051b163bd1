//! Keeps failed items from disturbing what follows.
//!
//! Between factorisation and solve, the triangle of every item whose `info` is not 0 becomes the identity. Both solves
//! then leave its right-hand sides bit-unchanged, and no NaN is ever divided by.

use batchlas_core::cpu::on_host;
use batchlas_core::{Error, InfoMut, ItemMut, MatBatchMut, Queue, Result, Scalar, Uplo};

/// Enqueues the replacement. `info` must be present.
pub(crate) fn quench<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
) -> Result<()> {
    let Some(cpu) = queue.cpu() else {
        return Err(Error::Internal("posv:blocked runs on a CPU queue only".into()));
    };
    cpu.for_each_chunk((a, info), 64, |(mut a, info)| {
        for b in 0..a.batch() {
            if info.get(b).is_some_and(|status| status != 0) {
                identity(uplo, on_host(a.item_mut(b))?);
            }
        }
        Ok(())
    })
}

fn identity<T: Scalar>(uplo: Uplo, mut a: ItemMut<'_, T>) {
    let n = a.rows();
    for j in 0..n {
        let rows = if uplo == Uplo::Lower { j..n } else { 0..j + 1 };
        for i in rows {
            a.set(i, j, if i == j { T::one() } else { T::zero() });
        }
    }
}
