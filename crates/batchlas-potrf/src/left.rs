//! `left`: fused left-looking tiles of 64 x 64, any order; a launch per column of tiles, no scratch.
//!
//! A tile is read once, updated by all finished columns in registers, solved or factored there, and written once. The
//! launch of a column also factors the next diagonal tile, so that `n` takes `ceil(n / 64)` launches. The algorithm is in
//! `cuda/left.cuh`.
#![allow(unsafe_code)]

use batchlas_core::seam::FactorShape;
use batchlas_core::{
    ArgumentError, Device, Dtype, InfoMut, Kernel, KernelSource, Launch, MatBatchMut, Promise, Queue, Ran,
    Result, Scalar, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};
use bytemuck::{Pod, Zeroable};

/// Order of a tile (`TILE` of the text).
pub const TILE: usize = 64;

/// Bytes of the widest access.
const WIDEST: u64 = 16;

/// Bit that says that items are given by a table (`flag::A_TABLE` of `batchlas/product.cuh`).
const TABLE: u32 = 1;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/left.cuh", text: include_str!("../cuda/left.cuh") };

/// The family and its knobs. Each knob that is left out is decided by [`Knobs::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "left",
    class: Class::Native,
    knobs: &[
        Knob { name: "rows", values: Values::OneOf(&[16, 32]), required: false },
        Knob { name: "depth", values: Values::OneOf(&[8, 16, 32]), required: false },
        Knob { name: "stages", values: Values::OneOf(&[2, 3, 4]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 16, step: 1 }, required: false },
    ],
};

/// The kernel's one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Args {
    /// Address of item 0, or of the table of item addresses.
    a: u64,
    /// Bytes from a column to the next.
    ld_bytes: u64,
    /// Bytes from an item to the next, or from an address in the table to its item.
    item_bytes: u64,
    /// Address of the statuses, or 0.
    info: u64,
    /// Items.
    batch: u32,
    /// Tiles below the diagonal in the launch's column.
    tiles: u32,
    /// Order.
    n: i32,
    /// First column, or minus [`TILE`] for the first diagonal tile alone.
    first: i32,
    /// [`TABLE`] or 0.
    flags: u32,
    unused: u32,
}

/// One setting of the family's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Rows of a tile that a warp holds.
    pub rows: u32,
    /// Columns of a stage of the sum.
    pub depth: u32,
    /// Stages in shared memory.
    pub stages: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Knobs {
    /// The knobs of a spelling; what it leaves out is set so that every kernel compiles without a frame or a spill.
    pub fn new(dtype: Dtype, uplo: Uplo, family: &Spelling) -> Knobs {
        let (rows, depth, stages, blocks) = match (dtype, uplo) {
            (Dtype::F32, Uplo::Lower) => (32, 16, 3, 6),
            (Dtype::F32, Uplo::Upper) => (32, 32, 2, 6),
            (Dtype::F64, Uplo::Lower) => (16, 16, 3, 4),
            (Dtype::F64, Uplo::Upper) => (16, 16, 3, 3),
            (Dtype::C32, _) => (16, 16, 3, 3),
            (Dtype::C64, _) => (16, 8, 3, 2),
        };
        let knob = |name, default| family.int(name).unwrap_or(default);
        Knobs {
            rows: knob("rows", rows),
            depth: knob("depth", depth),
            stages: knob("stages", stages),
            blocks: knob("blocks", blocks),
        }
    }

    fn threads(&self) -> u32 {
        TILE as u32 / self.rows * 32
    }

    /// Dynamic shared memory of a work-group in bytes: the ring of stages, or a diagonal tile (`BYTES` of the text).
    fn shared_bytes(&self, dtype: Dtype, uplo: Uplo) -> u32 {
        let tile = TILE as u32;
        let pad = match (uplo, dtype) {
            (Uplo::Upper, _) => 0,
            (Uplo::Lower, Dtype::F32) => 8,
            (Uplo::Lower, Dtype::F64 | Dtype::C32) => 4,
            (Uplo::Lower, Dtype::C64) => 2,
        };
        let bytes = dtype.bytes() as u32;
        let ring = self.stages * 2 * self.depth * (tile + pad) * bytes;
        ring.max(tile * (tile * bytes + WIDEST as u32))
    }

    /// Columns that a stage must be a multiple of: those of the products whose sum is formed apart.
    fn grain(dtype: Dtype) -> u32 {
        match dtype {
            Dtype::F32 => 16,
            Dtype::F64 | Dtype::C32 => 8,
            Dtype::C64 => 4,
        }
    }
}

/// What a kernel is compiled for beside its knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The stored triangle: along which index memory is contiguous.
    pub uplo: Uplo,
    /// All columns of all items start, and end, on multiples of 16 bytes.
    pub aligned: bool,
}

impl Variant {
    /// Every variant of a type. An element of 16 bytes is always aligned.
    pub fn all(dtype: Dtype) -> impl Iterator<Item = Variant> {
        let alignments = if dtype == Dtype::C64 { &[false][..] } else { &[false, true] };
        alignments.iter().flat_map(|&aligned| Uplo::ALL.iter().map(move |&uplo| Variant { uplo, aligned }))
    }

    /// The variant of an operand. What a table holds is not known here.
    fn of<T: Scalar>(uplo: Uplo, a: &MatBatchMut<'_, T>) -> Variant {
        let bytes = |elements: usize| (elements * size_of::<T>()) as u64;
        let (address, _) = a.address();
        let aligned = T::DTYPE != Dtype::C64
            && a.stride().is_some_and(|stride| {
                let distances = [address, bytes(stride), bytes(a.ld()), bytes(a.rows())];
                distances.iter().all(|x| x.is_multiple_of(WIDEST))
            });
        Variant { uplo, aligned }
    }
}

/// The kernel of one setting.
pub fn kernel(dtype: Dtype, variant: Variant, knobs: &Knobs) -> Kernel {
    let Knobs { rows, depth, stages, blocks } = *knobs;
    let shared = knobs.shared_bytes(dtype, variant.uplo);
    let uplo = if variant.uplo == Uplo::Lower { "Lower" } else { "Upper" };
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrf_left<batchlas::{dtype}, {}, {depth}, {stages}, {shared}, \
             batchlas::Uplo::{uplo}, {}, {blocks}>",
            rows / 16,
            variant.aligned
        ),
        promise: Promise { threads: knobs.threads(), min_blocks: blocks, max_dynamic_shared: shared },
    }
}

/// Every kernel that a spelling of this family launches for one type and triangle.
pub fn layouts(dtype: Dtype, uplo: Uplo, family: &Spelling) -> impl Iterator<Item = Kernel> {
    let knobs = Knobs::new(dtype, uplo, family);
    let served = knobs.depth.is_multiple_of(Knobs::grain(dtype));
    let variants = Variant::all(dtype).filter(move |variant| served && variant.uplo == uplo);
    variants.map(move |variant| kernel(dtype, variant, &knobs))
}

/// Every kernel that a spelling of this family launches for one type.
pub fn kernels(dtype: Dtype, family: &Spelling) -> impl Iterator<Item = Kernel> {
    Uplo::ALL.iter().flat_map(move |&uplo| layouts(dtype, uplo, family))
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &FactorShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("left needs a GPU with 32-wide warps".into());
    }
    // 282 KiB, and at most 128 KiB are allowed: an f64 operation is long code there.
    if dtype == Dtype::C64 && device.arch.starts_with("sm_12") {
        return Err(
            format!("{dtype} has more code than the instruction cache of {} holds", device.arch).into()
        );
    }
    let knobs = Knobs::new(dtype, shape.uplo, family);
    let grain = Knobs::grain(dtype);
    if !knobs.depth.is_multiple_of(grain) {
        return Err(format!("depth={} must be a multiple of {grain} for {dtype}", knobs.depth).into());
    }
    let (need, budget) = (knobs.shared_bytes(dtype, shape.uplo) as usize, device.slm_budget);
    if need > budget {
        return Err(format!("{dtype} needs {need} B of shared memory of {budget} B").into());
    }
    if knobs.threads() > device.max_work_group {
        let (threads, most) = (knobs.threads(), device.max_work_group);
        return Err(format!("work-groups of {threads} exceed the device's {most}").into());
    }
    grid(shape.n, shape.batch).map(drop).ok_or_else(|| {
        format!("n = {}, batch = {} make more tiles than a grid has work-groups", shape.n, shape.batch).into()
    })
}

/// Order and items as the kernel takes them, if its largest grid, that of the first column, exists.
fn grid(n: usize, batch: usize) -> Option<(i32, u32)> {
    let tiles = n.div_ceil(TILE).saturating_sub(1).max(1);
    let blocks = i32::try_from(batch.checked_mul(tiles)?).ok()?;
    let order = i32::try_from(n.checked_next_multiple_of(TILE)?).ok()?;
    debug_assert!(blocks >= 0 && order >= 0);
    Some((i32::try_from(n).ok()?, u32::try_from(batch).ok()?))
}

/// Enqueues the factorisation.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let bytes = size_of::<T>() as u64;
    let (n, batch) = grid(a.rows(), a.batch()).ok_or(ArgumentError::TooLarge {
        operand: "A",
        rows: a.rows(),
        cols: a.cols(),
        ld: a.ld(),
        stride: a.stride().unwrap_or(0),
        batch: a.batch(),
    })?;
    let (address, offset) = a.address();
    let kernel = kernel(T::DTYPE, Variant::of(uplo, &a), &Knobs::new(T::DTYPE, uplo, family));
    let columns = a.rows().div_ceil(TILE) as u32;
    for column in 0..columns {
        // The first launch has no finished column and one tile; the one of column c does the tiles below diagonal tile c.
        let tiles = if column == 0 { 1 } else { columns - column };
        let args = Args {
            a: address,
            ld_bytes: a.ld() as u64 * bytes,
            item_bytes: a.stride().unwrap_or(offset) as u64 * bytes,
            info: info.address(),
            batch,
            tiles,
            n,
            first: (column as i32 - 1) * TILE as i32,
            flags: if a.stride().is_none() { TABLE } else { 0 },
            unused: 0,
        };
        let launch = Launch {
            kernel: &kernel,
            grid: batch * tiles,
            dynamic_shared: kernel.promise.max_dynamic_shared,
            args: bytemuck::bytes_of(&args),
        };
        // SAFETY: `Args` is the parameter struct of this kernel, and its addresses are those of a view and an `info` span
        // that are exclusively borrowed for work on this queue; there is one work-group per item and tile.
        unsafe { queue.launch(&launch)? };
        queue.fence()?;
    }
    Ok(Ran::leaf("potrf", family.to_string()))
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;

    use batchlas_core::{Event, Memory, Place, QueueError};

    use super::*;
    use crate::VOCABULARY;

    const PLACE: Place = Place::Simulated(0);

    fn gpu() -> Device {
        Device {
            place: PLACE,
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 227 * 1024 - 4096,
            ..Device::cpu(1)
        }
    }

    fn check(text: &str, dtype: Dtype, n: usize, batch: usize, device: &Device) -> Result<(), Refusal> {
        let family = VOCABULARY.spelling(text).unwrap();
        can_run(device, dtype, &FactorShape { uplo: Uplo::Lower, n, batch }, &family)
    }

    #[test]
    fn any_order_runs_and_what_cannot_is_refused_with_its_numbers() {
        for dtype in Dtype::ALL {
            for n in [1, 64, 65, 12_161, 100_000] {
                assert_eq!(check("left", dtype, n, 2, &gpu()), Ok(()), "{dtype} n = {n}");
            }
        }
        for (text, dtype, n, batch, device, part) in [
            ("left:depth=8", Dtype::F32, 64, 1, gpu(), "multiple of 16 for f32"),
            ("left", Dtype::F32, 1 << 20, 1 << 18, gpu(), "n = 1048576, batch = 262144"),
            ("left", Dtype::F32, usize::MAX, 1, gpu(), "more tiles"),
            ("left", Dtype::C64, 64, 1, Device { slm_budget: 50_000, ..gpu() }, "of 50000 B"),
            ("left", Dtype::F64, 64, 1, Device { max_work_group: 64, ..gpu() }, "work-groups of 128"),
            ("left", Dtype::F32, 64, 1, Device::cpu(1), "GPU"),
            (
                "left",
                Dtype::C64,
                64,
                1,
                Device { arch: "sm_120".into(), ..gpu() },
                "instruction cache of sm_120",
            ),
        ] {
            let refusal = check(text, dtype, n, batch, &device).unwrap_err().to_string();
            assert!(refusal.contains(part), "{text} {dtype}: {refusal}");
        }
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let family = VOCABULARY.spelling("left:rows=16:depth=32:stages=2:blocks=5").unwrap();
        let variant = Variant { uplo: Uplo::Upper, aligned: true };
        let kernel = kernel(Dtype::F32, variant, &Knobs::new(Dtype::F32, variant.uplo, &family));
        assert_eq!(
            kernel.entry,
            "batchlas::potrf_left<batchlas::f32, 1, 32, 2, 32768, batchlas::Uplo::Upper, true, 5>"
        );
        assert_eq!(kernel.promise, Promise { threads: 128, min_blocks: 5, max_dynamic_shared: 32_768 });
        let default = VOCABULARY.spelling("left").unwrap();
        assert_eq!(Dtype::ALL.map(|dtype| kernels(dtype, &default).count()), [4, 4, 4, 2]);
    }

    /// A queue that keeps what is launched on it.
    struct Notes(Device, Mutex<Vec<(u32, Args, bool)>>);

    impl Queue for Notes {
        fn device(&self) -> &Device {
            &self.0
        }
        fn in_order(&self) -> bool {
            true
        }
        unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
            let aligned = launch.kernel.entry.contains("true");
            self.1.lock().unwrap().push((launch.grid, bytemuck::pod_read_unaligned(launch.args), aligned));
            Ok(())
        }
        fn alloc(&self, _: usize) -> Result<Memory, QueueError> {
            unreachable!("left allocates nothing")
        }
        fn write(&self, _: &mut Memory, _: usize, _: &[u8]) -> Result<(), QueueError> {
            unreachable!("left uploads nothing")
        }
        fn read(&self, _: &Memory, _: usize, _: &mut [u8]) -> Result<(), QueueError> {
            unreachable!("left waits for nothing")
        }
        unsafe fn zero(&self, _: u64, _: usize) -> Result<(), QueueError> {
            unreachable!("left zeroes nothing")
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
            unreachable!("left waits for nothing")
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn a_launch_per_column_of_tiles_and_a_block_per_tile() {
        let family = VOCABULARY.spelling("left").unwrap();
        let launches = |address, n, ld, stride| {
            let queue = Notes(gpu(), Mutex::default());
            // SAFETY: nothing here is accessed: the queue only looks at the launches.
            unsafe {
                let a = MatBatchMut::<f32>::from_raw_strided(PLACE, address, n, n, ld, stride, 3).unwrap();
                run(&queue, Uplo::Lower, a, InfoMut::from_raw(PLACE, 256, 3), &family).unwrap();
            }
            queue.1.into_inner().unwrap()
        };
        let shape = |all: &[(u32, Args, bool)]| -> Vec<_> {
            all.iter().map(|(grid, args, _)| (*grid, args.tiles, args.first)).collect()
        };
        assert_eq!(shape(&launches(4096, 64, 64, 4096)), [(3, 1, -64)]);
        let four = [(3, 1, -64), (9, 3, 0), (6, 2, 64), (3, 1, 128)];
        assert_eq!(shape(&launches(4096, 200, 200, 40_000)), four);
        // Wide accesses: every distance counts.
        for (address, n, ld, stride, aligned) in [
            (4096, 200, 200, 40_000, true),
            (4100, 200, 200, 40_000, false),
            (4096, 200, 201, 40_200, false),
            (4096, 200, 200, 40_001, false),
            (4096, 199, 200, 40_000, false),
        ] {
            assert!(launches(address, n, ld, stride).iter().all(|launch| launch.2 == aligned), "{n} {ld}");
        }
    }
}
