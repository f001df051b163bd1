//! `lpanel`: left-looking panels, one thread per row; the simple family of little shared memory.
//!
//! Any order up to what a quarter of a multiprocessor's shared memory and a work-group hold (on an H200: 1024 in f32, 880
//! in f64 and c32, 436 in c64), both triangles, one launch, no scratch. `panel` columns are factored at a time. The order
//! is an argument of the kernel: one kernel serves all orders that need the same number of warps. Argument list of
//! `cuda/lpanel.cuh`, which has the algorithm; its geometry is [`batchlas_resident::lpanel`].
#![allow(unsafe_code)]

use batchlas_core::seam::FactorShape;
use batchlas_core::{
    Device, Dtype, Error, InfoMut, Kernel, KernelSource, MatBatchMut, Promise, Queue, Ran, Result, Scalar,
    Uplo,
};
use batchlas_resident::Element;
use batchlas_resident::footprint::left_panel;
use batchlas_resident::lpanel::{Geometry, MAX_WORK_GROUP_SIZE, geometry};
use batchlas_resident::pack::PackLimits;
use batchlas_resident::registers::{WARP, blocks_per_sm};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::operands::launch;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/lpanel.cuh", text: include_str!("../cuda/lpanel.cuh") };

/// The family and its knob: the columns of a panel, 16 in f32 only.
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "lpanel",
    class: Class::Native,
    knobs: &[Knob { name: "panel", values: Values::OneOf(&[8, 16]), required: true }],
};

fn element(dtype: Dtype) -> Element {
    match dtype {
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        Dtype::C32 => Element::C32,
        Dtype::C64 => Element::C64,
    }
}

fn panel(family: &Spelling) -> usize {
    // The knob is required; its values are positive.
    family.int("panel").map_or(0, |panel| panel as usize)
}

/// Largest order that a spelling of this family serves on a device; `None` if it serves none.
pub fn max_n(device: &Device, dtype: Dtype, family: &Spelling) -> Option<usize> {
    (1..=MAX_WORK_GROUP_SIZE).rev().find(|&n| geometry_of(device, dtype, n, family).is_ok())
}

/// The launch of one order: capability check and launch are this one function.
fn geometry_of(device: &Device, dtype: Dtype, n: usize, family: &Spelling) -> Result<Geometry, Refusal> {
    let limits = PackLimits::for_device(device.max_work_group as usize);
    geometry(element(dtype), panel(family), n, device.slm_budget, limits).ok_or_else(|| {
        format!(
            "{family} does not serve {dtype} at n = {n} with {} B of shared memory and work-groups of {}",
            device.slm_budget, device.max_work_group
        )
        .into()
    })
}

/// Work-groups per multiprocessor that the register allocation must allow: as many as fit at the registers per thread that
/// never make the compiler spill. Where not even one fits with these, 0: the compiler then finds the fewest by itself,
/// which elsewhere it would trade for a few spilled bytes and one work-group more.
fn min_blocks(dtype: Dtype, panel: usize, threads: usize) -> u32 {
    let registers = match (dtype, panel) {
        (Dtype::F32, 16) => 88,
        (Dtype::F32, _) => 72,
        (Dtype::F64, _) => 88,
        (Dtype::C32, _) => 80,
        (Dtype::C64, _) => 128,
    };
    blocks_per_sm(threads, registers) as u32
}

/// The kernel of one type, triangle and launch. `table`: a pointer-array batch.
fn kernel(dtype: Dtype, uplo: Uplo, table: bool, family: &Spelling, geometry: &Geometry) -> Kernel {
    let Geometry { lanes, matrices, .. } = *geometry;
    let (scalar, panel) = (dtype.name(), panel(family));
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let layout = if table { "Pointers" } else { "Strided" };
    let min_blocks = min_blocks(dtype, panel, geometry.work_group());
    // The kernel serves every order of these lanes.
    let bytes = (lanes - WARP..=lanes).map(|n| left_panel(element(dtype), panel, n, matrices)).max();
    Kernel {
        source: &SOURCE,
        entry: format!(
            "batchlas::potrf_lpanel<batchlas::{scalar}, {panel}, batchlas::Uplo::{uplo}, \
             batchlas::Layout::{layout}, {lanes}, {matrices}, {min_blocks}>"
        ),
        promise: Promise {
            threads: geometry.work_group() as u32,
            min_blocks: min_blocks.max(1),
            max_dynamic_shared: bytes.unwrap_or(0) as u32,
        },
    }
}

/// Every kernel that a spelling of this family launches for one type, order and triangle on a device: one per layout,
/// none where it does not serve the order.
pub fn layouts(
    device: &Device,
    dtype: Dtype,
    n: usize,
    uplo: Uplo,
    family: &Spelling,
) -> impl Iterator<Item = Kernel> + use<> {
    let geometry = geometry_of(device, dtype, n, family).ok();
    let family = *family;
    geometry
        .into_iter()
        .flat_map(move |geometry| [false, true].map(|table| kernel(dtype, uplo, table, &family, &geometry)))
}

/// Every kernel that a spelling of this family launches on a device for these orders: all types, both triangles, both
/// layouts; one kernel may serve several orders and is then repeated.
pub fn kernels<'f>(
    device: &'f Device,
    orders: impl IntoIterator<Item = usize> + 'f,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    orders.into_iter().flat_map(move |n| {
        let types = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
        types.flat_map(move |(dtype, uplo)| layouts(device, dtype, n, uplo, family))
    })
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &FactorShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    if !device.is_gpu() || !device.has_sg32 {
        return Err("lpanel needs a GPU with 32-wide warps".into());
    }
    geometry_of(device, dtype, shape.n, family).map(drop)
}

/// Enqueues the factorisation.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
    family: &Spelling,
) -> Result<Ran> {
    let geometry = geometry_of(queue.device(), T::DTYPE, a.rows(), family)
        .map_err(|refusal| Error::Internal(refusal.to_string()))?;
    let kernel = kernel(T::DTYPE, uplo, a.stride().is_none(), family, &geometry);
    // SAFETY: the kernel takes the shared argument block, and a work-group has the items of its geometry.
    unsafe { launch(queue, &kernel, a, info, geometry.matrices, geometry.bytes as u32)? };
    Ok(Ran::leaf("potrf", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use batchlas_core::Place;

    /// The device whose ceilings the reference prints.
    fn reference() -> Device {
        Device {
            place: Place::Simulated(0),
            arch: "sm_89".into(),
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 97_280,
            ..Device::cpu(1)
        }
    }

    fn family(text: &str) -> Spelling {
        VOCABULARY.spelling(text).unwrap()
    }

    #[test]
    fn ceilings_are_those_of_the_budget() {
        let device = reference();
        let of = |text, device: &Device| Dtype::ALL.map(|dtype| max_n(device, dtype, &family(text)));
        assert_eq!(of("lpanel:panel=8", &device), [744, 368, 368, 180].map(Some));
        assert_eq!(of("lpanel:panel=16", &device), [Some(360), None, None, None]);
        let h200 = Device { slm_budget: 228_352, ..device };
        assert_eq!(of("lpanel:panel=8", &h200), [1024, 880, 880, 436].map(Some));
        assert_eq!(of("lpanel:panel=16", &h200), [Some(872), None, None, None]);
    }

    #[test]
    fn what_can_run_is_what_the_launch_takes() {
        let device = reference();
        for (text, dtype) in [("lpanel:panel=8", Dtype::C64), ("lpanel:panel=16", Dtype::F32)] {
            let family = family(text);
            let most = max_n(&device, dtype, &family).unwrap();
            for n in 1..=most + 1 {
                let shape = FactorShape { uplo: Uplo::Upper, n, batch: 1 };
                assert_eq!(can_run(&device, dtype, &shape, &family).is_ok(), n <= most, "{text} n = {n}");
                let Ok(geometry) = geometry_of(&device, dtype, n, &family) else { continue };
                let promise = kernel(dtype, Uplo::Upper, true, &family, &geometry).promise;
                assert!(geometry.lanes >= n && promise.threads as usize == geometry.work_group());
                assert!(geometry.bytes <= promise.max_dynamic_shared as usize, "{text} n = {n}");
            }
        }
        let shape = FactorShape { uplo: Uplo::Lower, n: 4, batch: 1 };
        assert!(can_run(&Device::cpu(1), Dtype::F32, &shape, &family("lpanel:panel=8")).is_err());
        let wide = Device { has_sg32: false, ..reference() };
        assert!(can_run(&wide, Dtype::F32, &shape, &family("lpanel:panel=8")).is_err());
    }

    #[test]
    fn the_entry_names_every_template_parameter() {
        let mut all = layouts(&reference(), Dtype::F32, 64, Uplo::Upper, &family("lpanel:panel=16"));
        assert_eq!(
            all.nth(1).unwrap().entry,
            "batchlas::potrf_lpanel<batchlas::f32, 16, batchlas::Uplo::Upper, batchlas::Layout::Pointers, 64, 2, 5>"
        );
        assert_eq!(layouts(&reference(), Dtype::F64, 64, Uplo::Upper, &family("lpanel:panel=16")).count(), 0);
    }

    #[test]
    fn retired_spellings_name_this_family() {
        for alias in ["lpanel", "native:lpanel"] {
            let message = VOCABULARY.spelling(alias).unwrap_err().to_string();
            assert!(message.contains("lpanel:panel=8"), "{message}");
        }
        VOCABULARY.check().unwrap();
    }
}
