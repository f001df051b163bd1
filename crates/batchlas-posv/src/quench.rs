//! Keeps failed items from disturbing what follows.
//!
//! Between factorisation and solve, the triangle of every item whose `info` is not 0 becomes the identity. Both solves
//! then leave its right-hand sides bit-unchanged, and no NaN is ever divided by. On a device that is one launch of the
//! kernel in `cuda/quench.cuh`, since only the device knows which items failed.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::{
    Dtype, InfoMut, ItemMut, Kernel, KernelSource, Launch, MatBatchMut, Promise, Queue, Result, Scalar, Uplo,
};
use bytemuck::{Pod, Zeroable};

/// The text.
static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/quench.cuh", text: include_str!("../cuda/quench.cuh") };

/// Threads of a block (`THREADS` of the text).
const THREADS: u32 = 256;
/// Threads of a warp.
const WARP: u32 = 32;
/// Blocks of the largest grid; beyond it warps take several turns.
const MAX_BLOCKS: u64 = 1 << 16;
/// Stride that says that an address is that of a table (`TABLE` of the text).
const TABLE: u64 = u64::MAX;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Args {
    address: u64,
    stride: u64,
    offset: u64,
    ld: u64,
    info: u64,
    n: u64,
    batch: u64,
    upper: u64,
}

// The text asserts the same number.
const _: () = assert!(size_of::<Args>() == 64);

fn kernel(dtype: Dtype) -> Kernel {
    let element = match dtype {
        Dtype::F32 => "float",
        Dtype::F64 => "double",
        Dtype::C32 => "batchlas::posv::Complex<float>",
        Dtype::C64 => "batchlas::posv::Complex<double>",
    };
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::posv::quench<{element}>"),
        promise: Promise { threads: THREADS, min_blocks: 4, max_dynamic_shared: 0 },
    }
}

/// Every kernel of this crate, for the residency probe and for ahead-of-time bundles.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    Dtype::ALL.into_iter().map(kernel)
}

/// Enqueues the replacement. `info` must be present.
pub(crate) fn quench<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
) -> Result<()> {
    match queue.cpu() {
        Some(cpu) => cpu.for_each_chunk((a, info), 64, |(mut a, info)| {
            for b in 0..a.batch() {
                if info.get(b).is_some_and(|status| status != 0) {
                    identity(uplo, on_host(a.item_mut(b))?);
                }
            }
            Ok(())
        }),
        None => launch(queue, uplo, &a, &info),
    }
}

fn launch<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: &MatBatchMut<'_, T>,
    info: &InfoMut<'_>,
) -> Result<()> {
    let (address, offset) = a.address();
    let args = Args {
        address,
        stride: a.stride().map_or(TABLE, |stride| stride as u64),
        offset: offset as u64,
        ld: a.ld() as u64,
        info: info.address(),
        n: a.rows() as u64,
        batch: a.batch() as u64,
        upper: (uplo == Uplo::Upper).into(),
    };
    let blocks = args.batch.div_ceil((THREADS / WARP).into()).clamp(1, MAX_BLOCKS);
    let (kernel, args) = (kernel(T::DTYPE), bytemuck::bytes_of(&args));
    let launch = Launch { kernel: &kernel, grid: blocks as u32, dynamic_shared: 0, args };
    // SAFETY: the bytes are the kernel's argument struct. The view and `info`, both exclusively borrowed, lie on the
    // queue's device with one entry per item: the operation checked it before it called anything.
    Ok(unsafe { queue.launch(&launch) }?)
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
