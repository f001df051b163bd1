//! Inverse of a Hermitian positive definite matrix from its Cholesky factor (LAPACK `potri`), in place: the triangle that
//! holds the factor comes to hold the same triangle of `A^-1`. The other triangle and the padding are not touched.
//!
//! `info[b]` is 0, or the 1-based index of the first diagonal element of the factor of item `b` that is not positive and
//! finite, as of an item whose factorisation failed; such an item is left unchanged. `n^3 / 3` multiply-adds for the
//! factor's inverse and as many for its product, no workspace. On a GPU an item must fit a work-group's shared memory:
//! [`max_n`], on an H200 240 in f32, 169 in f64 and c32, 119 in c64.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::validate::Operand;
use batchlas_core::{
    ArgumentError, Device, Dtype, InfoMut, ItemMut, Kernel, KernelSource, Launch, MatBatchMut, Promise,
    Queue, Ran, Result, Scalar, Uplo,
};
use bytemuck::{Pod, Zeroable};

use crate::logdet::grid;

const OP: &str = "potri";

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/potri.cuh", text: include_str!("../cuda/potri.cuh") };

/// Largest order that any device's shared memory is asked about.
const SEARCHED: usize = 1024;

/// The kernel's one parameter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: u64,
    ld_bytes: u64,
    item_bytes: u64,
    batch: u64,
    info: u64,
    n: u64,
}

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

/// Every kernel of this operation on a device.
pub fn kernels(device: &Device) -> impl Iterator<Item = Kernel> {
    Dtype::ALL.into_iter().flat_map(move |dtype| {
        Uplo::ALL.iter().flat_map(move |&uplo| {
            [16, 64, 65]
                .into_iter()
                .flat_map(move |n| [false, true].map(move |table| kernel(device, dtype, n, uplo, table)))
        })
    })
}

/// Enqueues the inversion.
///
/// # Errors
/// `a` not square, too large for the device, not where the queue works; an `info` that does not fit.
pub fn potri<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    mut info: InfoMut<'_>,
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
    let most = max_n(queue.device(), T::DTYPE).unwrap_or(0);
    let grid = grid(a.batch() as u64, &a.rb())?;
    if n > most {
        return Err(ArgumentError::OrderTooLarge {
            op: OP,
            n,
            most,
            dtype: T::DTYPE.name(),
            device: queue.device().name.clone(),
        }
        .into());
    }
    let bytes = size_of::<T>() as u64;
    let (address, offset) = a.address();
    let args = Args {
        a: address,
        ld_bytes: a.ld() as u64 * bytes,
        item_bytes: a.stride().unwrap_or(offset) as u64 * bytes,
        batch: a.batch() as u64,
        info: info.address(),
        n: n as u64,
    };
    let kernel = kernel(queue.device(), T::DTYPE, n, uplo, a.stride().is_none());
    let dynamic_shared = shared_bytes(T::DTYPE, n) as u32;
    let launch = Launch { kernel: &kernel, grid, dynamic_shared, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of a view and an `info` span
    // that are exclusively borrowed for work on this queue.
    unsafe { queue.launch(&launch)? };
    Ok(Ran::leaf(OP, "block"))
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
