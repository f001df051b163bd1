//! Cholesky factorisation by cuSOLVER.
//!
//! cuSOLVER writes into the triangle that it is told to leave alone, trusts the imaginary part of the diagonal, and does
//! not promise to notice NaN. So it never sees the caller's matrices: the referenced triangle is packed into squares of
//! scratch, factored there, and copied back, and every pivot is looked at once more. That moves 2.5 n^2 elements per item
//! where the triangle itself is n^2 (read n^2/2 and write n^2, read n^2/2 and write n^2/2), beside n^3/3 operations.
//!
//! Order of scratch: squares, their table, their statuses, and for the entry of one matrix its workspace.
#![allow(unsafe_code)]

use batchlas_core::seam::{FactorShape, Ran};
use batchlas_core::validate::Operand;
use batchlas_core::{
    Arena, Chunk, Device, Error, Factor, InfoMut, MatBatch, MatBatchMut, Queue, Result, Scalar, Uplo,
    WorkspaceMut,
};

use super::library::Vendor;
use super::staging::Squares;
use super::{CALL_ITEMS, CudaArm, FAMILY, item_by_item, parts, solver, squares_at_once, stream};

/// Largest order: cuSOLVER counts in 32 bits, and n^2 must not exceed them.
const MAX_ORDER: usize = 46_340;

/// How a batch is factored.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Items worked on at once.
    at_once: usize,
    /// Elements of workspace of the entry for one matrix; `None` for the batched entry.
    single: Option<usize>,
}

/// Scratch of one call.
struct Layout<'a, T> {
    square: Chunk<'a, T>,
    table: Chunk<'a, u64>,
    reported: Chunk<'a, i32>,
    work: Chunk<'a, T>,
}

impl<'a, T: Scalar> Layout<'a, T> {
    fn new(arena: &mut Arena<'a>, n: usize, plan: &Plan) -> Result<Self> {
        let squares = n.saturating_mul(n).saturating_mul(plan.at_once);
        Ok(Layout {
            square: arena.take("potrf", squares)?,
            table: arena.take("potrf", plan.at_once)?,
            reported: arena.take("potrf", plan.at_once)?,
            work: arena.take("potrf", plan.single.unwrap_or(0))?,
        })
    }

    fn bytes(n: usize, plan: &Plan) -> Result<usize> {
        let mut arena = Arena::measuring();
        Self::new(&mut arena, n, plan)?;
        Ok(arena.used())
    }
}

/// Whether cuSOLVER takes an order.
fn fits(n: usize) -> Result<(), String> {
    if n <= MAX_ORDER {
        return Ok(());
    }
    Err(format!("cuSOLVER counts in 32 bits: order {n} exceeds {MAX_ORDER}"))
}

fn plan<T: Scalar>(queue: &dyn Queue, uplo: Uplo, n: usize, batch: usize) -> Result<Plan> {
    fits(n).map_err(|reasons| Error::NotRunnable {
        op: "potrf",
        device: queue.device().name.clone(),
        reasons,
    })?;
    let single = match item_by_item(n, batch) {
        true => Some(solver(stream::of(queue)?)?.potrf_workspace::<T>(uplo, n)?),
        false => None,
    };
    Ok(Plan { at_once: squares_at_once(n, size_of::<T>(), batch), single })
}

impl<T: Scalar> Factor<T> for CudaArm {
    fn can_factor(&self, device: &Device, shape: &FactorShape) -> Result<(), String> {
        self.can(device, Vendor::Cusolver)?;
        fits(shape.n)
    }

    fn factor_workspace(&self, queue: &dyn Queue, uplo: Uplo, a: MatBatch<'_, T>) -> Result<usize> {
        if a.is_empty() {
            return Ok(0);
        }
        Layout::<T>::bytes(a.rows(), &plan::<T>(queue, uplo, a.rows(), a.batch())?)
    }

    fn factor(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let place = queue.device().place;
        Operand::of_mut("A", &a).square("potrf")?.homogeneous("potrf")?.at("potrf", place)?;
        info.validate("potrf", a.batch(), place)?;
        if a.is_empty() {
            info.clear(queue)?;
            return Ok(Ran::nothing("potrf"));
        }
        let (n, batch, a) = (a.rows(), a.batch(), a.into_const());
        let stream = stream::of(queue)?;
        let plan = plan::<T>(queue, uplo, n, batch)?;
        workspace.validate("potrf", Layout::<T>::bytes(n, &plan)?, place)?;
        let layout = Layout::<T>::new(&mut Arena::over(workspace), n, &plan)?;
        let squares = Squares {
            square: layout.square.address()?,
            table: layout.table.address()?,
            reported: layout.reported.address()?,
        };
        for (start, items) in parts(batch, plan.at_once) {
            let part = a.items(start..start + items)?;
            // SAFETY: the layout holds a square, a table entry and a status for each of the part's items. They lie in the
            // caller's workspace and the view in the caller's matrix, both ours until the end of the call in stream
            // order; parts follow each other in that order. The view was checked to be square and homogeneous.
            unsafe { squares.pack(queue, uplo, &part)? };
            // Scoped: the handle is locked only while cuSOLVER's part is enqueued.
            {
                let solver = solver(stream)?;
                match plan.single {
                    Some(elements) => {
                        for item in 0..items {
                            let square = squares.square + (item * n * n * size_of::<T>()) as u64;
                            let reported = squares.reported + (item * size_of::<i32>()) as u64;
                            // SAFETY: as above; the workspace has the size that cuSOLVER asked for, and its users follow
                            // each other in stream order.
                            unsafe {
                                solver.potrf::<T>(
                                    uplo,
                                    n,
                                    square,
                                    layout.work.address()?,
                                    elements,
                                    reported,
                                )?;
                            }
                        }
                    }
                    None => {
                        for (first, items) in parts(items, CALL_ITEMS) {
                            let table = squares.table + (first * size_of::<u64>()) as u64;
                            let reported = squares.reported + (first * size_of::<i32>()) as u64;
                            // SAFETY: as above; `pack` filled the table.
                            unsafe { solver.potrf_batched::<T>(uplo, n, table, reported, items)? };
                        }
                    }
                }
            }
            // SAFETY: as for `pack`; the view came from one that may be written. `info` has an entry per item of the batch,
            // which was checked.
            unsafe {
                squares.unpack(queue, uplo, &part)?;
                if !info.is_absent() {
                    let entries = info.address() + (start * size_of::<i32>()) as u64;
                    squares.status::<T>(queue, n, items, entries)?;
                }
            }
        }
        Ok(Ran::leaf("potrf", FAMILY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex;

    #[test]
    fn the_layout_is_squares_table_statuses_workspace() {
        let bytes = |n, at_once, single| Layout::<f64>::bytes(n, &Plan { at_once, single }).unwrap();
        // 3 squares of 4 x 4 f64 are 384 B; each chunk starts on a multiple of 256; the last is not rounded up.
        assert_eq!(bytes(4, 3, None), 512 + 256 + 3 * 4);
        assert_eq!(bytes(4, 3, Some(10)), 512 + 256 + 256 + 80);
        assert_eq!(bytes(4, 3, Some(0)), bytes(4, 3, None));
        let plan = Plan { at_once: usize::MAX / 32, single: None };
        assert!(Layout::<Complex<f64>>::bytes(46_340, &plan).is_err(), "an absurd size is an error");
    }

    #[test]
    fn the_largest_order_squares_into_32_bits() {
        assert!(fits(MAX_ORDER).is_ok());
        let why = fits(MAX_ORDER + 1).unwrap_err();
        assert!(why.contains("46341") && why.contains("46340"), "{why}");
        assert!(MAX_ORDER * MAX_ORDER <= i32::MAX as usize);
        assert!((MAX_ORDER + 1) * (MAX_ORDER + 1) > i32::MAX as usize);
    }
}
