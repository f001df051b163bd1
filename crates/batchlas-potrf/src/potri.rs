//! Inverse of a Hermitian positive definite matrix from its Cholesky factor (LAPACK `potri`), in place: the triangle that
//! holds the factor comes to hold the same triangle of `A^-1`. The other triangle and the padding are not touched.
//!
//! `info[b]` is 0, or the 1-based index of the first diagonal element of the factor of item `b` that is not positive and
//! finite, as of an item whose factorisation failed; such an item is left unchanged.
//!
//! `block`: an item in a work-group's shared memory, to [`max_n`] (on an H200 240 in f32, 169 in f64 and c32, 119 in c64);
//! `n^3 / 3` multiply-adds for the factor's inverse and as many for its product, no workspace. `blocked`: any order by two
//! seams, the inverse of the factor by a triangular solve with the identity and its product by a rank-k update, `2 n^3`
//! multiply-adds and a workspace of two matrices per item; a kernel before them finds the statuses and writes the identity,
//! one after them puts the inverse of every good item in its place.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::validate::Operand;
use batchlas_core::{
    Arena, Chunk, Device, Diag, Dtype, Error, InfoMut, ItemMut, Kernel, KernelSource, Launch, MatBatch,
    MatBatchMut, PanelSolve, Promise, Queue, Ran, Result, Scalar, Side, TrailingUpdate, Trans, Uplo,
    WorkspaceMut,
};
use bytemuck::{Pod, Zeroable};

use crate::operands::{Args, grid, launch};

const OP: &str = "potri";

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/potri.cuh", text: include_str!("../cuda/potri.cuh") };

/// Largest order that any device's shared memory is asked about.
const SEARCHED: usize = 1024;

/// The parameter of the kernels round the seams: `PotriArgs` of the device code.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Around {
    /// The matrices, and the workspace's statuses.
    factor: Args,
    /// The caller's statuses, or 0.
    info: u64,
    /// Address of the scratch matrices, and bytes from a column and from an item to the next.
    scratch: [u64; 3],
}

/// Threads of the kernels round the seams.
const THREADS: u32 = 256;

/// Shared memory of an item: factor and inverse side by side, `n + 1` columns at an odd pitch.
fn shared_bytes(dtype: Dtype, n: usize) -> usize {
    (n + 1) * (n | 1) * dtype.bytes()
}

/// Largest order on a device; a CPU has none.
pub fn max_n(device: &Device, dtype: Dtype) -> Option<usize> {
    let fits = |n: &usize| shared_bytes(dtype, *n) <= device.slm_budget;
    if device.is_gpu() { (1..=SEARCHED).rev().find(fits) } else { None }
}

/// The kernel of one type, triangle and order. `table`: a pointer-array batch. Its order is an argument; one kernel serves
/// all that need as many threads.
fn kernel(device: &Device, dtype: Dtype, n: usize, uplo: Uplo, table: bool) -> Kernel {
    let threads = if n <= 16 {
        32
    } else if n <= 64 {
        128
    } else {
        256
    };
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let layout = if table { "Pointers" } else { "Strided" };
    let most = match threads {
        32 => 16,
        128 => 64,
        _ => SEARCHED,
    };
    let largest = max_n(device, dtype).unwrap_or(0).min(most);
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potri<batchlas::{}, batchlas::Uplo::{uplo}, batchlas::Layout::{layout}, {threads}>",
            dtype.name()
        ),
        promise: Promise { threads, min_blocks: 1, max_dynamic_shared: shared_bytes(dtype, largest) as u32 },
    }
}

/// The kernel before the seams, or the one after them.
fn around(dtype: Dtype, uplo: Uplo, table: bool, after: bool) -> Kernel {
    let layout = if table { "Pointers" } else { "Strided" };
    let (scalar, name) = (dtype.name(), if after { "close" } else { "open" });
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potri_{name}<batchlas::{scalar}, batchlas::Uplo::{uplo:?}, batchlas::Layout::{layout}, \
             {THREADS}>"
        ),
        promise: Promise { threads: THREADS, min_blocks: 1, max_dynamic_shared: 0 },
    }
}

/// Every kernel of this operation on a device.
pub fn kernels(device: &Device) -> impl Iterator<Item = Kernel> {
    let cases = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
    cases.flat_map(move |(dtype, uplo)| {
        let tables = [false, true].into_iter();
        tables.flat_map(move |table| {
            let block = [16, 64, 65].map(|n| kernel(device, dtype, n, uplo, table));
            block.into_iter().chain([false, true].map(|after| around(dtype, uplo, table, after)))
        })
    })
}

/// The scratch of `blocked`; sizing and running replay this.
struct Scratch<'a, T> {
    inverse: Chunk<'a, T>,
    product: Chunk<'a, T>,
    info: Chunk<'a, i32>,
}

impl<'a, T: Scalar> Scratch<'a, T> {
    fn new(arena: &mut Arena<'a>, n: usize, batch: usize) -> Result<Self> {
        let elements = n.checked_mul(n).and_then(|x| x.checked_mul(batch)).unwrap_or(usize::MAX);
        Ok(Scratch {
            inverse: arena.take(OP, elements)?,
            product: arena.take(OP, elements)?,
            info: arena.take(OP, batch)?,
        })
    }
}

/// The inversion of one element type; the seams serve the orders beyond [`max_n`].
#[derive(Clone, Copy)]
pub struct Potri<'s, T: Scalar> {
    /// Triangular solves.
    pub solve: Option<&'s dyn PanelSolve<T>>,
    /// Rank-k updates.
    pub update: Option<&'s dyn TrailingUpdate<T>>,
}

impl<T: Scalar> Potri<'_, T> {
    /// Bytes of workspace that [`Potri::invert`] needs for these operands.
    ///
    /// # Errors
    /// The sum overflows.
    pub fn workspace(&self, queue: &dyn Queue, a: &MatBatch<'_, T>) -> Result<usize> {
        let (n, batch) = (a.rows(), a.batch());
        if n == 0 || batch == 0 || max_n(queue.device(), T::DTYPE).is_none_or(|most| n <= most) {
            return Ok(0);
        }
        let mut arena = Arena::measuring();
        Scratch::<T>::new(&mut arena, n, batch)?;
        Ok(arena.used())
    }

    /// Enqueues the inversion.
    ///
    /// # Errors
    /// `a` not square or not where the queue works; an `info` or a workspace that does not fit; a missing seam; what the
    /// seams refuse.
    pub fn invert(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let place = queue.device().place;
        Operand::of_mut("A", &a).square(OP)?.homogeneous(OP)?.at(OP, place)?;
        info.validate(OP, a.batch(), place)?;
        let n = a.rows();
        if n == 0 || a.batch() == 0 {
            info.clear(queue)?;
            return Ok(Ran::nothing(OP));
        }
        if let Some(cpu) = queue.cpu() {
            cpu.for_each_chunk((a, info), 1, |(mut a, mut info)| {
                let mut scratch = vec![T::zero(); n * n];
                for b in 0..a.batch() {
                    info.set(b, invert(uplo, on_host(a.item_mut(b))?, &mut scratch));
                }
                Ok(())
            })?;
            return Ok(Ran::leaf(OP, "cpu"));
        }
        if max_n(queue.device(), T::DTYPE).is_none_or(|most| n > most) {
            return self.blocked(queue, uplo, a, info, workspace);
        }
        let kernel = kernel(queue.device(), T::DTYPE, n, uplo, a.stride().is_none());
        // SAFETY: the kernel takes the shared argument block, and a work-group has one item.
        unsafe { launch(queue, &kernel, a, info, 1, shared_bytes(T::DTYPE, n) as u32)? };
        Ok(Ran::leaf(OP, "block"))
    }

    fn blocked(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        mut a: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let solve = self.solve.ok_or(Error::MissingSeam { op: OP, seam: "solve" })?;
        let update = self.update.ok_or(Error::MissingSeam { op: OP, seam: "update" })?;
        let (n, batch, table) = (a.rows(), a.batch(), a.stride().is_none());
        workspace.validate(OP, self.workspace(queue, &a.rb())?, queue.device().place)?;
        let mut arena = Arena::over(workspace);
        let mut scratch = Scratch::<T>::new(&mut arena, n, batch)?;
        let grid = grid(batch, &a.rb())?;
        let run =
            |after: bool, a: &MatBatchMut<'_, T>, scratch: &MatBatchMut<'_, T>, status: u64| -> Result<()> {
                let bytes = size_of::<T>() as u64;
                let (address, _) = scratch.address();
                let (ld, stride) = (scratch.ld() as u64, scratch.stride().unwrap_or(0) as u64);
                let args = Around {
                    factor: Args::new(&a.rb(), status),
                    info: info.address(),
                    scratch: [address, ld * bytes, stride * bytes],
                };
                let kernel = around(T::DTYPE, uplo, table, after);
                let launch =
                    Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
                // SAFETY: `Around` is the parameter struct of this kernel, and its addresses are those of a view, an `info` span and
                // a workspace that are exclusively borrowed for work on this queue; there is one work-group per item.
                unsafe { queue.launch(&launch) }?;
                Ok(())
            };
        let status = scratch.info.address()?;
        let mut inverse = scratch.inverse.matrices(n, n, batch)?;
        run(false, &a, &inverse, status)?;
        let one = T::one();
        let solved =
            solve.solve(queue, Side::Left, uplo, Trans::No, Diag::NonUnit, one, a.rb(), inverse.rb_mut())?;
        // A^-1 = X^H X with X = L^-1, or Y Y^H with Y = U^-1.
        let trans = if uplo == Uplo::Lower { Trans::ConjTrans } else { Trans::No };
        let mut product = scratch.product.matrices(n, n, batch)?;
        let (one, zero) = (one.re(), T::zero().re());
        let updated = update.herk(queue, uplo, trans, one, inverse.rb(), zero, product.rb_mut())?;
        run(true, &a.rb_mut(), &product, status)?;
        Ok(Ran { children: vec![solved, updated], ..Ran::leaf(OP, "blocked") })
    }
}

/// One item on the CPU; its status. `x` takes the inverse of the factor, `n x n`.
fn invert<T: Scalar>(uplo: Uplo, mut a: ItemMut<'_, T>, x: &mut [T]) -> i32 {
    let n = a.rows();
    // The factor L by its lower triangle; of Upper the transpose, which is the factor of the conjugate matrix.
    let place = |i: usize, j: usize| if uplo == Uplo::Lower { (i, j) } else { (j, i) };
    let diagonal = |i: usize| a.at(i, i).widen().re;
    if let Some(i) = (0..n).find(|&i| !(diagonal(i) > 0.0 && diagonal(i).is_finite())) {
        return i as i32 + 1;
    }
    for j in 0..n {
        for i in j..n {
            let mut sum = if i == j { T::one() } else { T::zero() };
            for k in j..i {
                let (row, column) = place(i, k);
                sum -= a.at(row, column) * x[j * n + k];
            }
            x[j * n + i] = sum / T::from_real(a.at(i, i).re());
        }
    }
    for j in 0..n {
        for i in j..n {
            let sum = (i..n).fold(T::zero(), |sum, k| sum + x[i * n + k].conj() * x[j * n + k]);
            let (row, column) = place(i, j);
            a.set(row, column, if i == j { T::from_real(sum.re()) } else { sum });
        }
    }
    0
}
