//! `sg_left`: the warp-scope kernel for `Side::Left`, orders up to 32.
//!
//! One warp per (item, slice of `32 * cols` right-hand sides) that synchronises with nobody else: its four-lane groups
//! read 64 contiguous bytes of each of their columns and transpose by shuffles, so that no staging tile is needed. That is
//! the kernel of `cta` with groups of one warp, whatever the batch; `cta` itself picks its groups by the size of the
//! problem and the device.
use batchlas_core::seam::SolveShape;
use batchlas_core::{Device, Dtype, Kernel, MatBatch, MatBatchMut, Queue, Ran, Result, Scalar, Side};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::cta::{self, Knobs};
use crate::operands::{Case, WARP};

/// The family and its knobs, as those of `cta`.
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "sg_left",
    class: Class::Native,
    knobs: &[
        Knob { name: "cols", values: Values::OneOf(&[1, 2, 4]), required: false },
        Knob { name: "warps", values: Values::OneOf(&[1, 2, 4, 8]), required: false },
        Knob { name: "blocks", values: Values::Range { min: 1, max: 32, step: 1 }, required: false },
    ],
};

fn knobs(dtype: Dtype, n: usize, case: Case, family: &Spelling) -> Knobs {
    Knobs::of_group(dtype, n, case, family.int("cols").unwrap_or(1), WARP, family)
}

/// Every kernel of a spelling for these orders, of all types.
pub fn kernels<'f>(
    orders: impl IntoIterator<Item = usize> + 'f,
    family: &'f Spelling,
) -> impl Iterator<Item = Kernel> + 'f {
    cta::kernels_of(orders, &[Side::Left], move |dtype, n, case| knobs(dtype, n, case, family))
}

/// Whether the family serves a problem: correctness only.
pub(crate) fn can_run(
    device: &Device,
    dtype: Dtype,
    shape: &SolveShape,
    family: &Spelling,
) -> Result<(), Refusal> {
    match shape.side {
        Side::Left => cta::serves(device, dtype, shape.n, &knobs(dtype, shape.n, Case::of(shape), family)),
        Side::Right => Err("sg_left serves side L".into()),
    }
}

/// Enqueues the solve.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: MatBatch<'_, T>,
    b: MatBatchMut<'_, T>,
    family: &Spelling,
) -> Result<Ran> {
    cta::launch(queue, shape, alpha, &a, b, &knobs(T::DTYPE, shape.n, Case::of(shape), family))?;
    Ok(Ran::leaf("trsm", family.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VOCABULARY;
    use crate::operands::tests::{gpu, shape};

    #[test]
    fn a_warp_per_slice_of_columns_and_nothing_on_the_right() {
        let family = VOCABULARY.spelling("sg_left:cols=2").unwrap();
        let left = shape(32, 1024, 10);
        assert_eq!(can_run(&gpu(), Dtype::F32, &left, &family), Ok(()));
        assert!(can_run(&gpu(), Dtype::F32, &SolveShape { side: Side::Right, ..left }, &family).is_err());
        assert!(can_run(&gpu(), Dtype::F32, &SolveShape { n: 33, ..left }, &family).is_err());
        let entries: Vec<_> = kernels([32], &family).map(|kernel| kernel.entry).collect();
        assert_eq!(entries.len(), 4 * 4);
        assert!(entries.iter().all(|e| e.contains("Side::Left") && e.contains(", 2, 32, ")), "{entries:?}");
    }
}
