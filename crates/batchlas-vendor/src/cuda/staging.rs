//! The device kernels of `cuda/staging.cuh` and their launches: pointer arrays, triangles in and out, status, scaling.
#![allow(unsafe_code)]

use std::sync::LazyLock;

use batchlas_core::{Dtype, Kernel, KernelSource, Launch, MatBatch, Promise, Queue, Result, Scalar, Uplo};
use bytemuck::{Pod, Zeroable};

/// The text.
static SOURCE: KernelSource =
    KernelSource { name: "batchlas-vendor/cuda/staging.cuh", text: include_str!("../../cuda/staging.cuh") };

/// Threads of a block (`THREADS` of the text).
const THREADS: u32 = 256;
/// Threads of a warp.
const WARP: u64 = 32;
/// Blocks of the largest grid. Beyond it every thread takes several turns: this many blocks fill any device many times
/// over, and more would only cost their launch.
const MAX_BLOCKS: u64 = 1 << 16;
/// Stride that says that an address is that of a table (`TABLE` of the text).
const TABLE: u64 = u64::MAX;

/// The kernels, each a template over the element type. One that is no template would be part of every compile, asked
/// for or not, which the residency gate refuses.
#[derive(Clone, Copy)]
enum Typed {
    Addresses,
    Pack,
    Unpack,
    Fold,
    Status,
    Scale,
}

impl Typed {
    const ALL: [(Typed, &str); 6] = [
        (Typed::Addresses, "addresses"),
        (Typed::Pack, "pack"),
        (Typed::Unpack, "unpack"),
        (Typed::Fold, "fold"),
        (Typed::Status, "status"),
        (Typed::Scale, "scale"),
    ];

    fn kernel(self, dtype: Dtype) -> &'static Kernel {
        &KERNELS[self as usize * Dtype::ALL.len() + dtype as usize]
    }
}

/// Every instantiation: each template for each element type.
static KERNELS: LazyLock<Vec<Kernel>> = LazyLock::new(|| {
    let templates = Typed::ALL.iter().flat_map(|(_, name)| {
        Dtype::ALL.map(|dtype| {
            let element = match dtype {
                Dtype::F32 => "float",
                Dtype::F64 => "double",
                Dtype::C32 => "batchlas::staging::Complex<float>",
                Dtype::C64 => "batchlas::staging::Complex<double>",
            };
            format!("{name}<{element}>")
        })
    });
    let kernel = |name| Kernel {
        source: &SOURCE,
        entry: format!("batchlas::staging::{name}"),
        // Memory latency is hidden by threads: half of what a multiprocessor can hold is enough.
        promise: Promise { threads: THREADS, min_blocks: 4, max_dynamic_shared: 0 },
    };
    templates.map(kernel).collect()
});

/// Every kernel that the GPU arm launches, for the residency probe and for ahead-of-time bundles. They are the same on
/// every architecture.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    KERNELS.iter().cloned()
}

/// A batch as the kernels see it; distances in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Items {
    address: u64,
    stride: u64,
    offset: u64,
    ld: u64,
}

impl Items {
    pub(crate) fn of<T: Scalar>(view: &MatBatch<'_, T>) -> Items {
        let (address, offset) = view.address();
        let stride = view.stride().map_or(TABLE, |stride| stride as u64);
        Items { address, stride, offset: offset as u64, ld: view.ld() as u64 }
    }

    /// Where a table of the items' addresses already lies, if one does.
    pub(crate) fn table(&self) -> Option<u64> {
        (self.stride == TABLE && self.offset == 0).then_some(self.address)
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AddressesArgs {
    items: Items,
    table: u64,
    batch: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct TriangleArgs {
    items: Items,
    square: u64,
    table: u64,
    reported: u64,
    n: u64,
    batch: u64,
    beta: f64,
    upper: u32,
    log2_lanes: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct StatusArgs {
    square: u64,
    reported: u64,
    info: u64,
    n: u64,
    batch: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ScaleArgs {
    items: Items,
    rows: u64,
    cols: u64,
    batch: u64,
    beta_re: f64,
    beta_im: f64,
    log2_lanes: u64,
}

// The text asserts the same numbers.
const _: () = {
    assert!(size_of::<Items>() == 32);
    assert!(size_of::<AddressesArgs>() == 48);
    assert!(size_of::<TriangleArgs>() == 88);
    assert!(size_of::<StatusArgs>() == 40);
    assert!(size_of::<ScaleArgs>() == 80);
};

/// Threads that share a column of `rows` rows, as a power of two: enough for all rows, at most a warp.
fn log2_lanes(rows: usize) -> u32 {
    (rows as u64).clamp(1, WARP).next_power_of_two().trailing_zeros()
}

/// Blocks for this many threads.
fn grid(threads: u64) -> u32 {
    threads.div_ceil(THREADS.into()).clamp(1, MAX_BLOCKS) as u32
}

/// # Safety
/// As for [`Queue::launch`].
unsafe fn launch<A: Pod>(queue: &dyn Queue, kernel: &Kernel, threads: u64, args: &A) -> Result<()> {
    let launch = Launch { kernel, grid: grid(threads), dynamic_shared: 0, args: bytemuck::bytes_of(args) };
    // SAFETY: the caller's promise.
    Ok(unsafe { queue.launch(&launch) }?)
}

/// Writes the address of each item of `view` to `table`.
///
/// # Safety
/// `table` has room for one address per item, in memory of the queue's device that nothing else uses except work in
/// queue order.
pub(crate) unsafe fn addresses<T: Scalar>(
    queue: &dyn Queue,
    view: &MatBatch<'_, T>,
    table: u64,
) -> Result<()> {
    let batch = view.batch() as u64;
    let args = AddressesArgs { items: Items::of(view), table, batch };
    // SAFETY: the arguments are those of the kernel; a caller's table is readable (invariant
    // of views), and ours is the caller's promise.
    unsafe { launch(queue, Typed::Addresses.kernel(T::DTYPE), batch, &args) }
}

/// Packed squares of one order in device memory, with what a batched factorisation wants beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Squares {
    /// Address of the first. They follow each other without gaps.
    pub(crate) square: u64,
    /// Address of a table of as many addresses.
    pub(crate) table: u64,
    /// Address of as many statuses.
    pub(crate) reported: u64,
}

impl Squares {
    fn args<T: Scalar>(&self, uplo: Uplo, view: &MatBatch<'_, T>, beta: f64) -> (TriangleArgs, u64) {
        let (n, batch) = (view.rows(), view.batch() as u64);
        let args = TriangleArgs {
            items: Items::of(view),
            square: self.square,
            table: self.table,
            reported: self.reported,
            n: n as u64,
            batch,
            beta,
            upper: (uplo == Uplo::Upper).into(),
            log2_lanes: log2_lanes(n),
        };
        (args, (n as u64 * batch) << args.log2_lanes)
    }

    /// Copies the triangle `uplo` in with a real diagonal, zeroes the other triangle and the statuses, fills the table.
    ///
    /// # Safety
    /// There is a square, a table entry and a status per item of `view`, in memory of the queue's device that nothing
    /// else uses except work in queue order. The view is square and homogeneous, and lies there too.
    pub(crate) unsafe fn pack<T: Scalar>(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        view: &MatBatch<'_, T>,
    ) -> Result<()> {
        let (args, threads) = self.args(uplo, view, 0.0);
        // SAFETY: the arguments are those of the kernel; the rest is the caller's promise.
        unsafe { launch(queue, Typed::Pack.kernel(T::DTYPE), threads, &args) }
    }

    /// Copies the triangle `uplo` out with a real diagonal.
    ///
    /// # Safety
    /// As for [`Squares::pack`], and `view` is the caller's to write.
    pub(crate) unsafe fn unpack<T: Scalar>(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        view: &MatBatch<'_, T>,
    ) -> Result<()> {
        let (args, threads) = self.args(uplo, view, 0.0);
        // SAFETY: the arguments are those of the kernel; the rest is the caller's promise.
        unsafe { launch(queue, Typed::Unpack.kernel(T::DTYPE), threads, &args) }
    }

    /// Writes `info` of `batch` factored squares of order `n` to `info`.
    ///
    /// # Safety
    /// As for [`Squares::pack`], with room for `batch` entries at `info`.
    pub(crate) unsafe fn status<T: Scalar>(
        &self,
        queue: &dyn Queue,
        n: usize,
        batch: usize,
        info: u64,
    ) -> Result<()> {
        let (square, reported, n, batch) = (self.square, self.reported, n as u64, batch as u64);
        let args = StatusArgs { square, reported, info, n, batch };
        // SAFETY: the arguments are those of the kernel; the rest is the caller's promise.
        unsafe { launch(queue, Typed::Status.kernel(T::DTYPE), batch * WARP, &args) }
    }
}

/// Triangle `uplo` of `view` = square + `beta` times the triangle, with a real diagonal. The square at `square` is taken
/// as zero where the address is 0; the triangle is not read where `beta` is zero.
///
/// # Safety
/// As for [`Squares::unpack`]; no table and no status is needed.
pub(crate) unsafe fn fold<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    square: u64,
    beta: f64,
    view: &MatBatch<'_, T>,
) -> Result<()> {
    let (args, threads) = Squares { square, table: 0, reported: 0 }.args(uplo, view, beta);
    // SAFETY: the arguments are those of the kernel; the rest is the caller's promise.
    unsafe { launch(queue, Typed::Fold.kernel(T::DTYPE), threads, &args) }
}

/// `view` = `beta` times `view`, which is not read where `beta` is zero.
///
/// # Safety
/// The view lies in memory of the queue's device and is the caller's to write.
pub(crate) unsafe fn scale<T: Scalar>(queue: &dyn Queue, beta: T, view: &MatBatch<'_, T>) -> Result<()> {
    let (beta, log2_lanes) = (beta.widen(), log2_lanes(view.rows()));
    let (rows, cols, batch) = (view.rows() as u64, view.cols() as u64, view.batch() as u64);
    let (beta_re, beta_im) = (beta.re, beta.im);
    let items = Items::of(view);
    let args = ScaleArgs { items, rows, cols, batch, beta_re, beta_im, log2_lanes: log2_lanes.into() };
    // SAFETY: the arguments are those of the kernel; the rest is the caller's promise.
    unsafe { launch(queue, Typed::Scale.kernel(T::DTYPE), (cols * batch) << log2_lanes, &args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_grids() {
        let lanes: Vec<u32> = [0, 1, 2, 3, 4, 5, 31, 32, 33, 5000].map(log2_lanes).into();
        assert_eq!(lanes, [0, 0, 1, 2, 2, 3, 5, 5, 5, 5]);
        assert_eq!([0, 1, 256, 257].map(grid), [1, 1, 1, 2]);
        // Grid.x ends at 2^31 - 1, and a product in 32 bits would have wrapped long before.
        assert_eq!([1 << 24, (1 << 24) + 1, 1 << 40].map(grid), [1 << 16; 3]);
    }

    #[test]
    fn each_launch_finds_its_kernel() {
        for (kind, name) in Typed::ALL {
            for (dtype, element) in
                Dtype::ALL.into_iter().zip(["<float>", "<double>", "Complex<float>>", "Complex<double>>"])
            {
                let entry = &kind.kernel(dtype).entry;
                assert!(entry.contains(&format!("::{name}<")) && entry.ends_with(element), "{entry}");
            }
        }
        assert_eq!(kernels().count(), 24);
    }

    #[test]
    fn constants_are_those_of_the_text() {
        for line in [format!("THREADS = {THREADS};"), format!("WARP = {WARP};"), "TABLE = ~0ull;".to_owned()]
        {
            assert!(SOURCE.text.contains(&line), "{line}");
        }
    }
}
