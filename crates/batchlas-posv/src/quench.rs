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

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;

    use batchlas_core::{Device, Event, Memory, Place, QueueError};

    use super::*;

    const PLACE: Place = Place::Simulated(0);

    /// A queue that keeps what is launched on it.
    struct Notes(Device, Mutex<Vec<(String, u32, Args)>>);

    impl Queue for Notes {
        fn device(&self) -> &Device {
            &self.0
        }
        fn in_order(&self) -> bool {
            true
        }
        unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
            let args = bytemuck::pod_read_unaligned(launch.args);
            self.1.lock().unwrap().push((launch.kernel.entry.clone(), launch.grid, args));
            Ok(())
        }
        fn alloc(&self, _: usize) -> Result<Memory, QueueError> {
            unreachable!("quench allocates nothing")
        }
        fn write(&self, _: &mut Memory, _: usize, _: &[u8]) -> Result<(), QueueError> {
            unreachable!("quench uploads nothing")
        }
        fn read(&self, _: &Memory, _: usize, _: &mut [u8]) -> Result<(), QueueError> {
            unreachable!("quench waits for nothing")
        }
        unsafe fn zero(&self, _: u64, _: usize) -> Result<(), QueueError> {
            unreachable!("quench zeroes nothing")
        }
        fn fence(&self) -> Result<(), QueueError> {
            Ok(())
        }
        fn record(&self) -> Result<Event, QueueError> {
            Ok(Event(Box::new(())))
        }
        fn wait(&self, _: &Event) -> Result<(), QueueError> {
            Ok(())
        }
        fn seconds_between(&self, _: &Event, _: &Event) -> Result<f64, QueueError> {
            unreachable!("nothing is timed")
        }
        fn copy(&self, _: &Memory, _: &mut Memory) -> Result<(), QueueError> {
            unreachable!("nothing is copied")
        }
        fn synchronize(&self) -> Result<(), QueueError> {
            unreachable!("quench waits for nothing")
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn a_device_gets_one_launch_with_the_operands_as_they_lie() {
        let queue = Notes(Device { place: PLACE, ..Device::cpu(1) }, Mutex::default());
        let (n, batch) = (5, 1_000_000);
        // SAFETY: nothing here is accessed: the queue only looks at the launch.
        unsafe {
            let strided = MatBatchMut::<f64>::from_raw_strided(PLACE, 4096, n, n, 7, 40, batch).unwrap();
            quench(&queue, Uplo::Upper, strided, InfoMut::from_raw(PLACE, 256, batch)).unwrap();
            let table = MatBatchMut::<f32>::from_raw_table(PLACE, 512, 8, 8, 9, 3).unwrap();
            let table = table.sub(1..6, 1..6).unwrap();
            quench(&queue, Uplo::Lower, table, InfoMut::from_raw(PLACE, 256, 3)).unwrap();
        }
        let seen = queue.1.into_inner().unwrap();
        let [(first, grid, strided), (second, one, table)] = &seen[..] else { panic!("two launches") };
        assert_eq!(
            (&**first, &**second),
            ("batchlas::posv::quench<double>", "batchlas::posv::quench<float>")
        );
        assert_eq!((*grid, *one), (65_536, 1), "bounded, and one warp per item below that");
        let Args { address, stride, offset, ld, info, n, batch, upper } = *strided;
        assert_eq!(
            [address, stride, offset, ld, info, n, batch, upper],
            [4096, 40, 0, 7, 256, 5, 1_000_000, 1]
        );
        let Args { address, stride, offset, ld, info, n, batch, upper } = *table;
        assert_eq!([address, stride, offset, ld, info, n, batch, upper], [512, TABLE, 10, 9, 256, 5, 3, 0]);
    }

    #[test]
    fn constants_are_those_of_the_text() {
        for line in [format!("THREADS = {THREADS};"), format!("WARP = {WARP};"), "TABLE = ~0ull;".to_owned()]
        {
            assert!(SOURCE.text.contains(&line), "{line}");
        }
        assert_eq!(kernels().count(), 4);
    }
}
