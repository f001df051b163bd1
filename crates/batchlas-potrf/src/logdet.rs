//! Logarithm of the determinant from a Cholesky factor: `log det A = 2 sum log d_i` over the factor's diagonal.
//!
//! `a` holds factors as [`Potrf`](crate::Potrf) leaves them (`n x n`; only the diagonal is read, so the triangle does not
//! matter), `out` one real number per item (`1 x 1`). `info[b]` is 0, or the 1-based index of the first diagonal element of
//! item `b` that is not positive and finite, as of an item whose factorisation failed; its result is NaN. The sum is formed
//! in f64 for every type. `n` logarithms per item, no workspace.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{
    Dtype, InfoMut, Kernel, KernelSource, Launch, MatBatch, MatBatchMut, Promise, Queue, Ran, RealOf, Result,
    Scalar,
};
use bytemuck::{Pod, Zeroable};

use crate::operands::grid;

const OP: &str = "logdet";

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/logdet.cuh", text: include_str!("../cuda/logdet.cuh") };

/// Warps, and so items, of a work-group.
const WARPS: u64 = 8;
/// Fewest items worth a task of the CPU's pool.
const GRAIN: usize = 64;

/// The kernel's one parameter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: u64,
    step_bytes: u64,
    item_bytes: u64,
    batch: u64,
    info: u64,
    n: u64,
    out: u64,
    out_bytes: u64,
}

/// The kernel of one type. `tables`: whether the factors, and the results, are pointer-array batches.
fn kernel(dtype: Dtype, tables: [bool; 2]) -> Kernel {
    let [a, out] = tables.map(|table| if table { "Pointers" } else { "Strided" });
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::logdet<batchlas::{}, batchlas::Layout::{a}, batchlas::Layout::{out}, {WARPS}>",
            dtype.name()
        ),
        promise: Promise { threads: 32 * WARPS as u32, min_blocks: 1, max_dynamic_shared: 0 },
    }
}

/// Every kernel of this operation.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let tables = [[false, false], [false, true], [true, false], [true, true]];
    Dtype::ALL.into_iter().flat_map(move |dtype| tables.map(|tables| kernel(dtype, tables)))
}

/// Enqueues the logarithms.
///
/// # Errors
/// `a` not square, `out` not `1 x 1`, batches that differ, operands or `info` that are not where the queue works.
pub fn logdet<T: Scalar>(
    queue: &dyn Queue,
    a: MatBatch<'_, T>,
    out: MatBatchMut<'_, RealOf<T>>,
    mut info: InfoMut<'_>,
) -> Result<Ran> {
    let place = queue.device().place;
    let operand = Operand::of("A", &a).square(OP)?.homogeneous(OP)?.at(OP, place)?;
    operand.same_batch(OP, Operand::of_mut("the result", &out).homogeneous(OP)?.at(OP, place)?)?;
    equal(OP, "the number of rows", ("the result", out.rows()), ("one number", 1))?;
    equal(OP, "the number of columns", ("the result", out.cols()), ("one number", 1))?;
    info.validate(OP, a.batch(), place)?;
    if a.batch() == 0 {
        return Ok(Ran::nothing(OP));
    }
    if let Some(cpu) = queue.cpu() {
        cpu.for_each_chunk(((a, out), info), GRAIN, |((a, mut out), mut info)| {
            for b in 0..a.batch() {
                let (factor, mut result) = (on_host(a.item(b))?, on_host(out.item_mut(b))?);
                let diagonal = || (0..factor.rows()).map(|i| factor.at(i, i).widen().re);
                let bad = diagonal().position(|d| !(d > 0.0 && d.is_finite()));
                let sum = if bad.is_some() { f64::NAN } else { diagonal().map(f64::ln).sum::<f64>() };
                result.set(0, 0, RealOf::<T>::from_parts(2.0 * sum, 0.0));
                info.set(b, bad.map_or(0, |i| i as i32 + 1));
            }
            Ok(())
        })?;
        return Ok(Ran::leaf(OP, "cpu"));
    }
    let (bytes, real) = (size_of::<T>() as u64, size_of::<RealOf<T>>() as u64);
    let ((address, offset), (result, result_offset)) = (a.address(), out.address());
    let args = Args {
        a: address,
        step_bytes: (a.ld() as u64 + 1) * bytes,
        item_bytes: a.stride().unwrap_or(offset) as u64 * bytes,
        batch: a.batch() as u64,
        info: info.rb_mut().address(),
        n: a.rows() as u64,
        out: result,
        out_bytes: out.stride().unwrap_or(result_offset) as u64 * real,
    };
    let kernel = kernel(T::DTYPE, [a.stride().is_none(), out.stride().is_none()]);
    let grid = grid(a.batch().div_ceil(WARPS as usize), &a)?;
    let launch = Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
    // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of views and an `info` span that
    // are borrowed for work on this queue, those that are written exclusively.
    unsafe { queue.launch(&launch)? };
    Ok(Ran::leaf(OP, "warp"))
}
