//! What the families have in common on the host: knobs, tiles, kernels, the predicate.
//!
//! A block computes a tile of C with a grid of warps; a family says what a warp holds and how many of its threads fit a
//! multiprocessor, and everything else follows.

use batchlas_core::seam::UpdateShape;
use batchlas_core::{Device, Dtype, Kernel, KernelSource, Promise, Queue, Result, Scalar};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::product::{MAX_GRID, MAX_SIZE, Product, Variant};

const fn knob(name: &'static str, values: Values) -> Knob {
    Knob { name, values, required: false }
}

const SIDES: Values = Values::OneOf(&[32, 64, 128]);
const DEPTH: Knob = knob("depth", Values::OneOf(&[8, 16, 32]));
const STAGES: Knob = knob("stages", Values::OneOf(&[2, 3, 4]));
const BLOCKS: Knob = knob("blocks", Values::Range { min: 1, max: 16, step: 1 });

/// A family of kernels for products. Each knob that a spelling leaves out is decided by [`Family::tiling`].
#[derive(Debug)]
pub struct Family {
    /// Its name in spellings, and the end of its kernels' names.
    pub name: &'static str,
    /// The device code.
    pub(crate) source: &'static KernelSource,
    /// Whether there are kernels for a type on an architecture.
    pub(crate) serves: fn(&str, Dtype) -> Result<(), Refusal>,
    /// What a warp holds.
    pub(crate) warp: fn(Dtype, &Tiling) -> Warp,
    /// Inner indices of a stage, and stages, unless knobs say otherwise.
    pub(crate) ring: fn(Dtype) -> (u32, u32),
}

/// What a warp holds of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Warp {
    /// Rows and columns of its tile.
    pub(crate) tile: [u32; 2],
    /// Template arguments that say so.
    pub(crate) arguments: [u32; 2],
    /// Threads of a multiprocessor whose registers hold such tiles without a spill.
    pub(crate) resident: u32,
}

/// The tile of C that a block computes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Rows of the tile.
    pub rows: u32,
    /// Columns of the tile.
    pub cols: u32,
    /// Inner indices of a stage.
    pub depth: u32,
    /// Stages in shared memory.
    pub stages: u32,
    /// Work-groups per multiprocessor that the register allocation must allow.
    pub blocks: u32,
}

impl Tiling {
    /// Dynamic shared memory of a block in bytes; the pitch of a tile is that of `batchlas/staging.cuh`.
    fn shared_bytes(&self, dtype: Dtype) -> u32 {
        let pad = if dtype == Dtype::C64 { 2 } else { 4 };
        self.stages * self.depth * (self.rows + self.cols + 2 * pad) * dtype.bytes() as u32
    }

    /// Tiles along the rows of C, and of one item.
    pub(crate) fn count(&self, shape: &UpdateShape, triangle: bool) -> (u64, u64) {
        let down = (shape.m as u64).div_ceil(self.rows.into());
        let across = (shape.n as u64).div_ceil(self.cols.into());
        (down, if triangle { down * (down + 1) / 2 } else { down * across })
    }
}

impl Family {
    /// The family as a candidate for `gemm`.
    pub(crate) const fn gemm(name: &'static str) -> Candidate {
        const KNOBS: &[Knob] = &[knob("rows", SIDES), knob("cols", SIDES), DEPTH, STAGES, BLOCKS];
        Candidate { family: name, class: Class::Native, knobs: KNOBS }
    }

    /// The family as a candidate for `herk`, whose tiles are square.
    pub(crate) const fn herk(name: &'static str) -> Candidate {
        const KNOBS: &[Knob] = &[knob("side", SIDES), DEPTH, STAGES, BLOCKS];
        Candidate { family: name, class: Class::Native, knobs: KNOBS }
    }

    /// The tile of a spelling for a shape. Left out: tiles of 32 where C has no more, else of 64; the family's ring; as
    /// many blocks as its registers hold.
    pub fn tiling(&self, dtype: Dtype, shape: &UpdateShape, family: &Spelling) -> Tiling {
        self.tiled(dtype, shape, |knob| family.int(knob))
    }

    fn tiled(&self, dtype: Dtype, shape: &UpdateShape, knob: impl Fn(&str) -> Option<u32>) -> Tiling {
        let side =
            |name, extent: usize| knob(name).or(knob("side")).unwrap_or(if extent <= 32 { 32 } else { 64 });
        let (depth, stages) = (self.ring)(dtype);
        let mut tiling = Tiling {
            rows: side("rows", shape.m),
            cols: side("cols", shape.n),
            depth: knob("depth").unwrap_or(depth),
            stages: knob("stages").unwrap_or(stages),
            blocks: 1,
        };
        let resident = (self.warp)(dtype, &tiling).resident;
        tiling.blocks = knob("blocks").unwrap_or(resident / self.threads(dtype, &tiling)).max(1);
        tiling
    }

    fn threads(&self, dtype: Dtype, tiling: &Tiling) -> u32 {
        let [rows, cols] = (self.warp)(dtype, tiling).tile;
        32 * (tiling.rows / rows) * (tiling.cols / cols)
    }

    /// The kernel of one setting.
    pub fn kernel(&self, dtype: Dtype, variant: &Variant, tiling: &Tiling) -> Kernel {
        let Tiling { rows, cols, depth, stages, blocks } = *tiling;
        let [down, across] = (self.warp)(dtype, tiling).arguments;
        let (op, tile) =
            if variant.triangle { ("herk", rows.to_string()) } else { ("gemm", format!("{rows}, {cols}")) };
        Kernel {
            source: self.source,
            entry: format!(
                "batchlas::{op}_{}<batchlas::{dtype}, {tile}, {down}, {across}, {depth}, {stages}, {blocks}, {}>",
                self.name,
                variant.arguments()
            ),
            promise: Promise {
                threads: self.threads(dtype, tiling),
                min_blocks: blocks,
                max_dynamic_shared: tiling.shared_bytes(dtype),
            },
        }
    }

    /// What ships for an architecture: the kernels of the default tilings of every type and variant, for rows and columns of
    /// C in `sizes`. Tiles change between 32 and 33.
    pub fn catalogue(&self, arch: &str, sizes: &[usize]) -> Vec<Kernel> {
        let mut kernels = Vec::new();
        for dtype in Dtype::ALL.into_iter().filter(|&dtype| (self.serves)(arch, dtype).is_ok()) {
            for (&m, &n) in sizes.iter().flat_map(|m| sizes.iter().map(move |n| (m, n))) {
                let shape = UpdateShape { m, n, k: 1, batch: 1 };
                for triangle in [false, true].into_iter().filter(|triangle| !triangle || m == n) {
                    let tiling = self.tiled(dtype, &shape, |_| None);
                    kernels.extend(Variant::all(dtype, triangle).map(|v| self.kernel(dtype, &v, &tiling)));
                }
            }
        }
        kernels
    }

    /// Whether the family serves a problem: correctness only.
    pub(crate) fn can_run(
        &self,
        device: &Device,
        dtype: Dtype,
        shape: &UpdateShape,
        family: &Spelling,
    ) -> Result<(), Refusal> {
        let name = self.name;
        if !device.is_gpu() || !device.has_sg32 {
            return Err(format!("{name} needs a GPU with 32-wide warps").into());
        }
        (self.serves)(&device.arch, dtype)?;
        let tiling = self.tiling(dtype, shape, family);
        let (threads, shared) = (self.threads(dtype, &tiling), tiling.shared_bytes(dtype));
        if device.max_work_group < threads {
            return Err(
                format!("work-groups of {threads} exceed the device's {}", device.max_work_group).into()
            );
        }
        if device.slm_budget < shared as usize {
            let budget = device.slm_budget;
            return Err(format!("{shared} bytes of shared memory exceed the device's {budget}").into());
        }
        let UpdateShape { m, n, k, .. } = *shape;
        let tiles = tiling.count(shape, false).1;
        if m.max(n).max(k) > MAX_SIZE || tiles > MAX_GRID {
            return Err(format!(
                "m = {m}, n = {n}, k = {k} in {tiles} tiles: {name} serves sizes to {MAX_SIZE} and {MAX_GRID} tiles"
            )
            .into());
        }
        Ok(())
    }

    /// Enqueues a product.
    pub(crate) fn run<T: Scalar>(
        &self,
        queue: &dyn Queue,
        product: Product<'_, T>,
        family: &Spelling,
    ) -> Result<()> {
        let tiling = self.tiling(T::DTYPE, &product.shape, family);
        let kernel = self.kernel(T::DTYPE, &product.variant, &tiling);
        product.launch(queue, &kernel, &tiling)
    }
}

/// The kernels that a spelling of `gemm` or `herk` launches for a type and a shape on an architecture, one a variant;
/// none where the architecture has none, or the family is a library.
pub fn kernels(
    arch: &str,
    dtype: Dtype,
    variants: &[Variant],
    shape: &UpdateShape,
    spelling: &Spelling,
) -> Vec<Kernel> {
    let family = crate::route::native(spelling.family());
    let Some(family) = family.filter(|family| (family.serves)(arch, dtype).is_ok()) else {
        return Vec::new();
    };
    let tiling = family.tiling(dtype, shape, spelling);
    let mut kernels: Vec<Kernel> =
        variants.iter().map(|variant| family.kernel(dtype, variant, &tiling)).collect();
    kernels.dedup();
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GEMM, HERK, mma, tile};
    use batchlas_core::Place;

    fn gpu() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_90".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 227 * 1024,
            ..Device::cpu(1)
        }
    }

    const SHAPE: UpdateShape = UpdateShape { m: 100, n: 20, k: 7, batch: 3 };

    #[test]
    fn every_type_runs_by_default_and_mma_where_there_are_tensor_cores() {
        for dtype in Dtype::ALL {
            let wide = matches!(dtype, Dtype::F64 | Dtype::C64);
            for vocabulary in [&GEMM, &HERK] {
                let spelling = |name| vocabulary.spelling(name).unwrap();
                assert_eq!(tile::FAMILY.can_run(&gpu(), dtype, &SHAPE, &spelling("tile")), Ok(()));
                let mma = mma::FAMILY.can_run(&gpu(), dtype, &SHAPE, &spelling("mma"));
                assert_eq!(mma.is_ok(), wide, "{dtype}: {mma:?}");
            }
        }
        let mma = GEMM.spelling("mma").unwrap();
        for (arch, ok) in [("sm_80", true), ("sm_100a", true), ("sm_75", false), ("cpu", false)] {
            let device = Device { arch: arch.into(), ..gpu() };
            assert_eq!(mma::FAMILY.can_run(&device, Dtype::F64, &SHAPE, &mma).is_ok(), ok, "{arch}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_numbers() {
        let family = GEMM.spelling("tile:rows=128:cols=128:depth=32:stages=4").unwrap();
        let refusal = |device: &Device, shape: &UpdateShape| {
            tile::FAMILY.can_run(device, Dtype::F64, shape, &family).unwrap_err().to_string()
        };
        assert!(refusal(&gpu(), &SHAPE).contains("270336 bytes of shared memory exceed the device's 232448"));
        assert!(refusal(&Device { max_work_group: 256, ..gpu() }, &SHAPE).contains("work-groups of 512"));
        assert!(refusal(&Device::cpu(1), &SHAPE).contains("needs a GPU"));
        let roomy = Device { slm_budget: 1 << 20, ..gpu() };
        assert!(refusal(&roomy, &UpdateShape { k: MAX_SIZE + 1, ..SHAPE }).contains("k = 1073741825"));
        let many = UpdateShape { m: MAX_SIZE, n: 1 << 20, k: 1, batch: 1 };
        assert!(refusal(&roomy, &many).contains("68719476736 tiles"));
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let family = GEMM.spelling("tile:rows=64:cols=32:depth=8:stages=2:blocks=5").unwrap();
        let tiling = tile::FAMILY.tiling(Dtype::C32, &SHAPE, &family);
        assert_eq!(tiling, Tiling { rows: 64, cols: 32, depth: 8, stages: 2, blocks: 5 });
        let variant = Variant { triangle: false, inner: [true, false], mixed: true, aligned: false };
        let kernel = tile::FAMILY.kernel(Dtype::C32, &variant, &tiling);
        assert_eq!(
            kernel.entry,
            "batchlas::gemm_tile<batchlas::c32, 64, 32, 4, 4, 8, 2, 5, batchlas::Contiguous::Inner, \
             batchlas::Contiguous::Outer, false, true>"
        );
        assert_eq!(kernel.promise, Promise { threads: 128, min_blocks: 5, max_dynamic_shared: 13_312 });
        let family = HERK.spelling("mma:side=64").unwrap();
        let variant = Variant::herk(Dtype::F64, batchlas_core::Trans::No, true);
        let tiling = mma::FAMILY.tiling(Dtype::F64, &SHAPE, &family);
        assert_eq!(
            mma::FAMILY.kernel(Dtype::F64, &variant, &tiling).entry,
            "batchlas::herk_mma<batchlas::f64, 64, 2, 4, 8, 4, 4, batchlas::Contiguous::Outer, true>"
        );
    }

    #[test]
    fn tiles_cover_c_and_no_more() {
        let tiling = Tiling { rows: 64, cols: 32, depth: 8, stages: 2, blocks: 1 };
        assert_eq!(tiling.count(&UpdateShape { m: 65, n: 64, k: 1, batch: 1 }, false), (2, 4));
        let square = Tiling { cols: 64, ..tiling };
        assert_eq!(square.count(&UpdateShape { m: 129, n: 129, k: 1, batch: 1 }, true), (3, 6));
    }
}
