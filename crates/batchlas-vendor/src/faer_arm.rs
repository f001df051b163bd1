//! faer on the CPU: one item per task over the pool of a [`CpuQueue`].
//!
//! * **Factor.** The referenced triangle is copied into a lower triangle of scratch (conjugate-transposed from Upper),
//!   factored there and copied back. faer's own kernels are free to touch the other triangle of what they are given, and
//!   are much slower on rows that are not contiguous; the copy costs O(n^2) of an O(n^3) operation.
//! * **Solve** and **update** run in place: faer reads only the triangle it is told to, which the corpus checks with
//!   poison. The eight (side, trans) cases reduce to Left by transposing both views.
//!
//! Everything is sequential inside an item, so results do not depend on the number of threads.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::seam::{FactorShape, Ran, SolveShape, UpdateShape};
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{
    Device, Diag, Error, Factor, InfoMut, ItemMut, ItemRef, MatBatch, MatBatchMut, PanelSolve, Queue, RealOf,
    Result, Scalar, Side, TrailingUpdate, Trans, Uplo, WorkspaceMut,
};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltError, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul_with_conj;
use faer::linalg::triangular_solve as solve;
use faer::prelude::ReborrowMut;
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};

/// The element types faer computes with: all four.
pub trait Element: Scalar + faer::traits::ComplexField {}
impl<T: Scalar + faer::traits::ComplexField> Element for T {}

/// The CPU vendor arm.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaerArm;

/// The spelling under which the arm appears in tables and traces.
const FAMILY: &str = "vendor";

fn host_only(device: &Device) -> Result<(), String> {
    if device.is_gpu() { Err("faer runs on a CPU queue only".into()) } else { Ok(()) }
}

fn pool(queue: &dyn Queue) -> Result<&batchlas_core::CpuQueue> {
    queue
        .cpu()
        .ok_or_else(|| Error::Internal("the faer arm was handed a queue that is no thread pool".into()))
}

/// A host item as faer sees it.
fn read<'a, T: Element>(item: ItemRef<'a, T>) -> MatRef<'a, T> {
    // SAFETY: the item's elements are live and readable for `'a` (invariant of batchlas-core's views).
    unsafe { MatRef::from_raw_parts(item.as_ptr(), item.rows(), item.cols(), 1, item.ld().cast_signed()) }
}

/// A writable host item as faer sees it.
fn write<'a, T: Element>(mut item: ItemMut<'a, T>) -> MatMut<'a, T> {
    let (rows, cols, ld) = (item.rows(), item.cols(), item.ld().cast_signed());
    // SAFETY: the item's elements are live and used by nobody else for `'a` (invariant of batchlas-core's views).
    unsafe { MatMut::from_raw_parts_mut(item.as_mut_ptr(), rows, cols, 1, ld) }
}

/// `op` as a view and a conjugation.
fn apply<T: Element>(trans: Trans, a: MatRef<'_, T>) -> (MatRef<'_, T>, Conj) {
    match trans {
        Trans::No => (a, Conj::No),
        Trans::Trans => (a.transpose(), Conj::No),
        Trans::ConjTrans => (a.transpose(), Conj::Yes),
    }
}

/// Scratch of one chunk of a factorisation.
struct Scratch<T: Element> {
    lower: Mat<T>,
    memory: MemBuffer,
}

impl<T: Element> Scratch<T> {
    fn new(n: usize) -> Self {
        let request = cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default());
        Scratch { lower: Mat::zeros(n, n), memory: MemBuffer::new(request) }
    }

    /// Factors one item; returns its `info`.
    fn factor(&mut self, uplo: Uplo, mut a: ItemMut<'_, T>) -> i32 {
        let n = a.rows();
        for j in 0..n {
            self.lower[(j, j)] = T::from_real(a.at(j, j).re());
            for i in j + 1..n {
                self.lower[(i, j)] = match uplo {
                    Uplo::Lower => a.at(i, j),
                    Uplo::Upper => Scalar::conj(a.at(j, i)),
                };
            }
        }
        let stack = MemStack::new(&mut self.memory);
        let factored =
            cholesky_in_place(self.lower.as_mut(), Default::default(), Par::Seq, stack, Default::default());
        for j in 0..n {
            a.set(j, j, T::from_real(self.lower[(j, j)].re()));
            for i in j + 1..n {
                let l = self.lower[(i, j)];
                match uplo {
                    Uplo::Lower => a.set(i, j, l),
                    Uplo::Upper => a.set(j, i, Scalar::conj(l)),
                }
            }
        }
        match factored {
            Ok(_) => 0,
            Err(LltError::NonPositivePivot { index }) => i32::try_from(index + 1).unwrap_or(i32::MAX),
        }
    }
}

impl<T: Element> Factor<T> for FaerArm {
    fn can_factor(&self, device: &Device, _shape: &FactorShape) -> Result<(), String> {
        host_only(device)
    }

    fn factor_workspace(&self, _queue: &dyn Queue, _uplo: Uplo, _a: MatBatch<'_, T>) -> Result<usize> {
        Ok(0)
    }

    fn factor(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        _workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        Operand::of_mut("A", &a).square("potrf")?.homogeneous("potrf")?;
        let n = a.rows();
        pool(queue)?.for_each_chunk((a, info), 1, |(mut a, mut info)| {
            let mut scratch = Scratch::new(n);
            for b in 0..a.batch() {
                info.set(b, scratch.factor(uplo, on_host(a.item_mut(b))?));
            }
            Ok(())
        })?;
        Ok(Ran::leaf("potrf", FAMILY))
    }
}

impl<T: Element> PanelSolve<T> for FaerArm {
    fn can_solve(&self, device: &Device, _shape: &SolveShape) -> Result<(), String> {
        host_only(device)
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
        Operand::of("A", &a)
            .square("trsm")?
            .homogeneous("trsm")?
            .same_batch("trsm", Operand::of_mut("B", &b))?;
        let order = if side == Side::Left { ("rows of B", b.rows()) } else { ("columns of B", b.cols()) };
        equal("trsm", "the order", ("A", a.rows()), order)?;
        pool(queue)?.for_each_chunk((a, b), 1, |(a, mut b)| {
            for i in 0..b.batch() {
                let rhs = write(on_host(b.item_mut(i))?);
                solve_item(side, uplo, trans, diag, alpha, read(on_host(a.item(i))?), rhs);
            }
            Ok(())
        })?;
        Ok(Ran::leaf("trsm", FAMILY))
    }
}

fn solve_item<T: Element>(
    side: Side,
    uplo: Uplo,
    trans: Trans,
    diag: Diag,
    alpha: T,
    a: MatRef<'_, T>,
    mut b: MatMut<'_, T>,
) {
    // alpha = 0 must not read B (nor A): 0 * NaN is NaN.
    if alpha == T::zero() {
        b.fill(T::zero());
        return;
    }
    if alpha != T::one() {
        scale(b.rb_mut(), alpha);
    }
    // X op(A) = B is op(A)^T X^T = B^T: the transposed view of op(A), with the same conjugation.
    let (triangle, conj) = apply(trans, a);
    let (triangle, rhs) = match side {
        Side::Left => (triangle, b),
        Side::Right => (triangle.transpose(), b.transpose_mut()),
    };
    let lower = (uplo == Uplo::Lower) ^ trans.transposes() ^ (side == Side::Right);
    let run = match (lower, diag) {
        (true, Diag::NonUnit) => solve::solve_lower_triangular_in_place_with_conj,
        (true, Diag::Unit) => solve::solve_unit_lower_triangular_in_place_with_conj,
        (false, Diag::NonUnit) => solve::solve_upper_triangular_in_place_with_conj,
        (false, Diag::Unit) => solve::solve_unit_upper_triangular_in_place_with_conj,
    };
    run(triangle, conj, rhs, Par::Seq);
}

fn scale<T: Element>(mut c: MatMut<'_, T>, by: T) {
    for j in 0..c.ncols() {
        for i in 0..c.nrows() {
            c[(i, j)] *= by;
        }
    }
}

impl<T: Element> TrailingUpdate<T> for FaerArm {
    fn can_update(&self, device: &Device, _shape: &UpdateShape) -> Result<(), String> {
        host_only(device)
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
        pool(queue)?.for_each_chunk((a, b, c), 1, |(a, b, mut c)| {
            for i in 0..c.batch() {
                let mut out = write(on_host(c.item_mut(i))?);
                let accum = if beta == T::zero() {
                    Accum::Replace
                } else {
                    if beta != T::one() {
                        scale(out.rb_mut(), beta);
                    }
                    Accum::Add
                };
                // alpha = 0 reads neither A nor B.
                if alpha == T::zero() {
                    if matches!(accum, Accum::Replace) {
                        out.fill(T::zero());
                    }
                    continue;
                }
                let (left, conj_left) = apply(trans_a, read(on_host(a.item(i))?));
                let (right, conj_right) = apply(trans_b, read(on_host(b.item(i))?));
                matmul_with_conj(out, accum, left, conj_left, right, conj_right, alpha, Par::Seq);
            }
            Ok(())
        })?;
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
        pool(queue)?.for_each_chunk((a, c), 1, |(a, mut c)| {
            let block = HERK_BLOCK.min(c.rows());
            let mut diagonal = Mat::zeros(block, block);
            for i in 0..c.batch() {
                let source = read(on_host(a.item(i))?);
                herk_item(uplo, trans, alpha, source, beta, on_host(c.item_mut(i))?, &mut diagonal);
            }
            Ok(())
        })?;
        Ok(Ran::leaf("herk", FAMILY))
    }
}

/// Columns of C that a rank-k update takes at a time.
const HERK_BLOCK: usize = 64;

/// A block of columns at a time: its diagonal block in scratch, of which the triangle is added, the rest in place. faer's own
/// products into a triangle write elements of the other one in c64 where a vector has two of them (AVX2, faer 0.24.4).
fn herk_item<T: Element>(
    uplo: Uplo,
    trans: Trans,
    alpha: RealOf<T>,
    a: MatRef<'_, T>,
    beta: RealOf<T>,
    mut c: ItemMut<'_, T>,
    diagonal: &mut Mat<T>,
) {
    let n = c.rows();
    let zero = <RealOf<T> as Scalar>::from_parts(0.0, 0.0);
    // Scale the triangle first: with beta = 0 it is overwritten unread.
    for j in 0..n {
        let rows = if uplo == Uplo::Lower { j..n } else { 0..j + 1 };
        for i in rows {
            // Component by component: NaN in the imaginary part of the diagonal must not reach the real part.
            let scaled = match (beta == zero, i == j) {
                (true, _) => T::zero(),
                (false, true) => T::from_real(c.at(i, j).re() * beta),
                (false, false) => c.at(i, j) * T::from_real(beta),
            };
            c.set(i, j, scaled);
        }
    }
    if alpha == zero {
        return;
    }
    let (left, right, conj_left, conj_right) = if trans.transposes() {
        (a.transpose(), a, Conj::Yes, Conj::No)
    } else {
        (a, a.transpose(), Conj::No, Conj::Yes)
    };
    let (alpha, mut out) = (T::from_real(alpha), write(c));
    for start in (0..n).step_by(HERK_BLOCK) {
        let size = HERK_BLOCK.min(n - start);
        let end = start + size;
        let (rows, cols) = (left.subrows(start, size), right.subcols(start, size));
        let mut square = diagonal.as_mut().submatrix_mut(0, 0, size, size);
        matmul_with_conj(square.rb_mut(), Accum::Replace, rows, conj_left, cols, conj_right, alpha, Par::Seq);
        for j in 0..size {
            for i in if uplo == Uplo::Lower { j..size } else { 0..j + 1 } {
                out[(start + i, start + j)] += square[(i, j)];
            }
        }
        let (rest, rows, cols) = if uplo == Uplo::Lower {
            (out.rb_mut().submatrix_mut(end, start, n - end, size), left.subrows(end, n - end), cols)
        } else {
            (out.rb_mut().submatrix_mut(start, end, size, n - end), rows, right.subcols(end, n - end))
        };
        matmul_with_conj(rest, Accum::Add, rows, conj_left, cols, conj_right, alpha, Par::Seq);
    }
    for i in 0..n {
        out[(i, i)] = T::from_real(out[(i, i)].re());
    }
}
