//! Triangular solve by cuBLAS: `trsmBatched` over tables, `trsm` per item where items are few or large.
//!
//! A shared factor (stride 0) is a table of equal addresses. With `alpha` = 0 the library is not asked: B becomes zero
//! unread.
#![allow(unsafe_code)]

use batchlas_core::seam::{Ran, SolveShape};
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{
    Device, Diag, MatBatch, MatBatchMut, PanelSolve, Queue, Result, Scalar, Side, Trans, Uplo,
};

use super::handle::{At, Triangle};
use super::library::Vendor;
use super::{
    CALL_ITEMS, CudaArm, FAMILY, Scratch, item_at, item_by_item, parts, staging, stream, table_bytes,
};

impl<T: Scalar> PanelSolve<T> for CudaArm {
    fn can_solve(&self, device: &Device, _shape: &SolveShape) -> Result<(), String> {
        self.can(device, Vendor::Cublas)
    }

    fn solve(
        &self,
        queue: &dyn Queue,
        side: Side,
        uplo: Uplo,
        trans: Trans,
        diag: Diag,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let place = queue.device().place;
        let rhs = Operand::of_mut("B", &b).homogeneous("trsm")?.at("trsm", place)?;
        Operand::of("A", &a)
            .square("trsm")?
            .homogeneous("trsm")?
            .at("trsm", place)?
            .same_batch("trsm", rhs)?;
        let order = if side == Side::Left { ("rows of B", b.rows()) } else { ("columns of B", b.cols()) };
        equal("trsm", "the order", ("A", a.rows()), order)?;
        if b.is_empty() {
            return Ok(Ran::nothing("trsm"));
        }
        let (m, n, batch, b) = (b.rows(), b.cols(), b.batch(), b.into_const());
        if alpha == T::zero() {
            // SAFETY: the view came from one that may be written, on this device.
            unsafe { staging::scale(queue, T::zero(), &b)? };
            return Ok(Ran::leaf("trsm", FAMILY));
        }
        let stream = stream::of(queue)?;
        let triangle = Triangle { side, uplo, trans, diag };
        if item_by_item(a.rows(), batch) && a.stride().is_some() && b.stride().is_some() {
            let scratch = Scratch::new(queue, 0)?;
            let blas = scratch.blas(stream)?;
            for (a, b) in (0..batch).filter_map(|item| item_at(&a, item).zip(item_at(&b, item))) {
                // SAFETY: items of views on this device, of the shapes that were checked; B's view came from one that may
                // be written.
                unsafe { blas.trsm(triangle, [m, n], alpha, a, b)? };
            }
            return Ok(Ran::leaf("trsm", FAMILY));
        }
        let scratch = Scratch::new(queue, 2 * table_bytes(batch))?;
        let (a, b) = (scratch.table(queue, &a, 0)?, scratch.table(queue, &b, table_bytes(batch))?);
        let blas = scratch.blas(stream)?;
        for (start, items) in parts(batch, CALL_ITEMS) {
            let skip = |table: At| At { address: table.address + (start * size_of::<u64>()) as u64, ..table };
            // SAFETY: the tables hold the addresses of the items of views on this device, of the shapes that were checked;
            // B's view came from one that may be written.
            unsafe { blas.trsm_batched(triangle, [m, n], alpha, skip(a), skip(b), items)? };
        }
        Ok(Ran::leaf("trsm", FAMILY))
    }
}
