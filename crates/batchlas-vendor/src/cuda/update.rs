//! Products and Hermitian updates by cuBLAS.
//!
//! * **gemm** goes to `gemmStridedBatched` where all three operands are strided (one call, no scratch of ours), else to
//!   `gemmBatched` over tables. Where there is no product (`k` = 0 or `alpha` = 0) C is scaled by a kernel of ours.
//! * **herk** has no batched entry. The full product goes into squares of scratch, and a kernel of ours folds one
//!   triangle of it into C: twice the operations, and 2 n^2 elements moved per item beside C itself. Few or large items
//!   of a strided batch go to `herk` (`syrk` for real types) one by one instead, which needs neither.
#![allow(unsafe_code)]

use batchlas_core::seam::{Ran, UpdateShape};
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{
    Device, MatBatch, MatBatchMut, Queue, RealOf, Result, Scalar, TrailingUpdate, Trans, Uplo,
};

use super::handle::{At, Blas};
use super::library::Vendor;
use super::{
    CALL_ITEMS, CudaArm, FAMILY, Scratch, item_at, item_by_item, parts, squares_at_once, staging, stream,
    table_bytes,
};

/// Rows and columns of `op(X)`.
fn applied<T: Scalar>(trans: Trans, x: &MatBatch<'_, T>) -> (usize, usize) {
    if trans.transposes() { (x.cols(), x.rows()) } else { (x.rows(), x.cols()) }
}

/// Operands of a product, each strided or a table.
#[derive(Clone, Copy)]
enum Operands {
    Strided([At; 3], [usize; 3]),
    Tables([At; 3]),
}

/// Enqueues a product of any batch.
///
/// # Safety
/// As for [`Blas::gemm_strided`] and [`Blas::gemm_batched`]; strides are in elements.
unsafe fn product<T: Scalar>(
    blas: &Blas,
    trans: [Trans; 2],
    sizes: [usize; 3],
    scalars: [T; 2],
    operands: Operands,
    batch: usize,
) -> Result<()> {
    for (start, items) in parts(batch, CALL_ITEMS) {
        let skip = |at: At, bytes: usize| At { address: at.address + (start * bytes) as u64, ..at };
        // SAFETY: the items of a part are items of the batch; the rest is the caller's promise.
        unsafe {
            match operands {
                Operands::Strided([a, b, c], strides @ [sa, sb, sc]) => {
                    let [a, b, c] = [(a, sa), (b, sb), (c, sc)].map(|(at, s)| skip(at, s * size_of::<T>()));
                    blas.gemm_strided(trans, sizes, scalars, [a, b, c], strides, items)?;
                }
                Operands::Tables(tables) => {
                    let tables = tables.map(|table| skip(table, size_of::<u64>()));
                    blas.gemm_batched(trans, sizes, scalars, tables, items)?;
                }
            }
        }
    }
    Ok(())
}

impl<T: Scalar> TrailingUpdate<T> for CudaArm {
    fn can_update(&self, device: &Device, _shape: &UpdateShape) -> Result<(), String> {
        self.can(device, Vendor::Cublas)
    }

    fn gemm(
        &self,
        queue: &dyn Queue,
        trans_a: Trans,
        trans_b: Trans,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatch<'_, T>,
        beta: T,
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let place = queue.device().place;
        let out = Operand::of_mut("C", &c).homogeneous("gemm")?.at("gemm", place)?;
        Operand::of("A", &a).homogeneous("gemm")?.at("gemm", place)?.same_batch("gemm", out)?;
        Operand::of("B", &b).homogeneous("gemm")?.at("gemm", place)?.same_batch("gemm", out)?;
        let ((m, k), (inner, n)) = (applied(trans_a, &a), applied(trans_b, &b));
        equal("gemm", "the number of rows", ("op(A)", m), ("C", c.rows()))?;
        equal("gemm", "the number of columns", ("op(B)", n), ("C", c.cols()))?;
        equal("gemm", "the inner dimension", ("op(A)", k), ("op(B)", inner))?;
        if c.is_empty() {
            return Ok(Ran::nothing("gemm"));
        }
        let (batch, c) = (c.batch(), c.into_const());
        if k == 0 || alpha == T::zero() {
            if beta != T::one() {
                // SAFETY: the view came from one that may be written, on this device.
                unsafe { staging::scale(queue, beta, &c)? };
            }
            return Ok(Ran::leaf("gemm", FAMILY));
        }
        let stream = stream::of(queue)?;
        let strides = (a.stride(), b.stride(), c.stride());
        let tables = if let (Some(_), Some(_), Some(_)) = strides { 0 } else { table_bytes(batch) };
        let scratch = Scratch::new(queue, 3 * tables)?;
        let operands = match strides {
            (Some(sa), Some(sb), Some(sc)) => {
                let first = |view: &MatBatch<'_, T>| At { address: view.address().0, ld: view.ld() };
                Operands::Strided([first(&a), first(&b), first(&c)], [sa, sb, sc])
            }
            _ => Operands::Tables([
                scratch.table(queue, &a, 0)?,
                scratch.table(queue, &b, tables)?,
                scratch.table(queue, &c, 2 * tables)?,
            ]),
        };
        let blas = scratch.blas(stream)?;
        // SAFETY: views on this device, of the shapes that were checked; C's came from one that may be written, whose items
        // are disjoint.
        unsafe { product(&blas, [trans_a, trans_b], [m, n, k], [alpha, beta], operands, batch)? };
        Ok(Ran::leaf("gemm", FAMILY))
    }

    fn herk(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        trans: Trans,
        alpha: RealOf<T>,
        a: MatBatch<'_, T>,
        beta: RealOf<T>,
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let place = queue.device().place;
        let out = Operand::of_mut("C", &c).square("herk")?.homogeneous("herk")?.at("herk", place)?;
        Operand::of("A", &a).homogeneous("herk")?.at("herk", place)?.same_batch("herk", out)?;
        let (n, k) = applied(trans, &a);
        equal("herk", "the order", ("op(A)", n), ("C", c.rows()))?;
        if c.is_empty() {
            return Ok(Ran::nothing("herk"));
        }
        let (batch, c) = (c.batch(), c.into_const());
        let zero = <RealOf<T> as Scalar>::from_parts(0.0, 0.0);
        let old = beta.widen().re;
        if k == 0 || alpha == zero {
            // SAFETY: the view came from one that may be written, on this device, and is square.
            unsafe { staging::fold(queue, uplo, 0, old, &c)? };
            return Ok(Ran::leaf("herk", FAMILY));
        }
        let stream = stream::of(queue)?;
        if item_by_item(n, batch) && a.stride().is_some() && c.stride().is_some() {
            let scratch = Scratch::new(queue, 0)?;
            let blas = scratch.blas(stream)?;
            for (a, c) in (0..batch).filter_map(|item| item_at(&a, item).zip(item_at(&c, item))) {
                // SAFETY: items of views on this device, of the shapes that were checked; C's view came from one that may
                // be written.
                unsafe { blas.herk::<T>(uplo, trans, [n, k], [alpha, beta], a, c)? };
            }
            return Ok(Ran::leaf("herk", FAMILY));
        }
        // X^H is conjugate where X is, which for real types is the transpose.
        let sides =
            if trans.transposes() { [Trans::ConjTrans, Trans::No] } else { [Trans::No, Trans::ConjTrans] };
        let at_once = squares_at_once(n, size_of::<T>(), batch);
        let square_bytes =
            (at_once * n * n * size_of::<T>()).next_multiple_of(batchlas_core::WORKSPACE_ALIGN);
        let tables = if a.stride().is_some() { 0 } else { table_bytes(at_once) };
        let scratch = Scratch::new(queue, square_bytes + 2 * tables)?;
        let square = At { address: scratch.at(0), ld: n };
        for (start, items) in parts(batch, at_once) {
            let (a, c) = (a.items(start..start + items)?, c.items(start..start + items)?);
            let operands = match a.stride() {
                Some(stride) => {
                    let first = At { address: a.address().0, ld: a.ld() };
                    Operands::Strided([first, first, square], [stride, stride, n * n])
                }
                None => {
                    // SAFETY: the squares lie in scratch of this call, packed, on this device.
                    let squares = unsafe {
                        MatBatch::<T>::from_raw_strided(place, square.address, n, n, n, n * n, items)?
                    };
                    let first = scratch.table(queue, &a, square_bytes)?;
                    Operands::Tables([first, first, scratch.table(queue, &squares, square_bytes + tables)?])
                }
            };
            let scalars = [T::from_real(alpha), T::zero()];
            // SAFETY: A is a view on this device; there is a square in scratch for each item of the part, and parts follow
            // each other in stream order. C's view came from one that may be written.
            unsafe {
                product(&scratch.blas(stream)?, sides, [n, n, k], scalars, operands, items)?;
                staging::fold(queue, uplo, square.address, old, &c)?;
            }
        }
        Ok(Ran::leaf("herk", FAMILY))
    }
}
