//! The routed products: vocabularies, predicate, choice and call.

use batchlas_core::seam::UpdateShape;
use batchlas_core::{
    Device, Error, MatBatch, MatBatchMut, Queue, Ran, RealOf, Result, Scalar, TrailingUpdate, Trans, Uplo,
};
use batchlas_select::{
    Call, Candidate, Class, ExactField, Key, LogField, Pin, Refusal, Selector, Spelling, Vocabulary,
};

use crate::family::Family;
use crate::problem::{GemmProblem, HerkProblem};
use crate::product::Product;
use crate::{mma, tile};

const VENDOR: Candidate = Candidate { family: "vendor", class: Class::Vendor, knobs: &[] };
const LAST_RESORT: &[&str] = &["vendor", "tile"];

/// What a product can be run by.
pub static GEMM: Vocabulary = Vocabulary {
    op: "gemm",
    candidates: &[Family::gemm(tile::FAMILY.name), Family::gemm(mma::FAMILY.name), VENDOR],
    last_resort: LAST_RESORT,
    retired: &[],
    exact: &[
        ExactField { name: "trans_a", values: &["N", "T"] },
        ExactField { name: "trans_b", values: &["N", "T"] },
    ],
    log: &[
        LogField { name: "m", weight: 1.0 },
        LogField { name: "n", weight: 1.0 },
        LogField { name: "k", weight: 1.0 },
        LogField { name: "batch", weight: 1.0 },
    ],
};

/// What a rank-k update can be run by.
pub static HERK: Vocabulary = Vocabulary {
    op: "herk",
    candidates: &[Family::herk(tile::FAMILY.name), Family::herk(mma::FAMILY.name), VENDOR],
    last_resort: LAST_RESORT,
    retired: &[],
    exact: &[
        ExactField { name: "uplo", values: &["L", "U"] },
        ExactField { name: "trans", values: &["N", "T"] },
    ],
    log: &[
        LogField { name: "n", weight: 2.0 },
        LogField { name: "k", weight: 1.0 },
        LogField { name: "batch", weight: 1.0 },
    ],
};

/// The routed product and rank-k update of one element type.
#[derive(Clone, Copy)]
pub struct Gemm<'s, T: Scalar> {
    /// Tables, environment and trace.
    pub selector: &'s Selector,
    /// Route pin of this call; overrides the environment's.
    pub pin: Option<Pin>,
    /// The vendor arm, where there is one.
    pub vendor: Option<&'s dyn TrailingUpdate<T>>,
}

/// The native family of this name.
pub(crate) fn native(name: &str) -> Option<&'static Family> {
    [&tile::FAMILY, &mma::FAMILY].into_iter().find(|family| family.name == name)
}

impl<T: Scalar> Gemm<'_, T> {
    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, shape: &UpdateShape, family: &Spelling) -> Result<(), Refusal> {
        match (native(family.family()), self.vendor) {
            (Some(native), _) => native.can_run(device, T::DTYPE, shape, family),
            (None, Some(vendor)) => Ok(vendor.can_update(device, shape)?),
            (None, None) => Err("no vendor arm is wired".into()),
        }
    }

    /// Runs the best family for a problem.
    fn routed(
        &self,
        vocabulary: &'static Vocabulary,
        device: &Device,
        shape: &UpdateShape,
        key: &Key,
        mut run: impl FnMut(&Spelling, Option<&'static Family>) -> Result<Ran>,
    ) -> Result<Ran> {
        let call = Call { selector: self.selector, vocabulary, dtype: T::DTYPE, device, key, pin: self.pin };
        call.run(
            |family| self.can_run(device, shape, family),
            |family, _| run(family, native(family.family())),
        )
    }

    fn vendor(&self, op: &'static str) -> Result<&dyn TrailingUpdate<T>> {
        self.vendor.ok_or(Error::MissingSeam { op, seam: "vendor" })
    }
}

/// A key value: an inner dimension of 0 is as cheap as 1.
fn extent(value: usize) -> u64 {
    value.max(1) as u64
}

impl<T: Scalar> TrailingUpdate<T> for Gemm<'_, T> {
    fn can_update(&self, device: &Device, shape: &UpdateShape) -> Result<(), String> {
        GEMM.first_runnable(|family| self.can_run(device, shape, family)).map(drop)
    }

    fn gemm(
        &self,
        queue: &dyn Queue,
        trans_a: Trans,
        trans_b: Trans,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatch<'_, T>,
        beta: T,
        mut c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = GemmProblem::new(trans_a, trans_b, &a, &b, &c, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing("gemm"));
        }
        let GemmProblem { trans_a, trans_b, shape, .. } = problem;
        let key = GEMM.key(
            &[trans_a.key().letter(), trans_b.key().letter()],
            &[shape.m, shape.n, shape.k, shape.batch].map(extent),
        )?;
        self.routed(&GEMM, device, &shape, &key, |spelling, native| match native {
            Some(family) => {
                let product = Product::gemm(shape, (trans_a, trans_b), (alpha, beta), a, b, c.rb_mut());
                family.run(queue, product, spelling)?;
                Ok(Ran::leaf("gemm", spelling.to_string()))
            }
            None => self.vendor("gemm")?.gemm(queue, trans_a, trans_b, alpha, a, b, beta, c.rb_mut()),
        })
    }

    fn herk(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        trans: Trans,
        alpha: RealOf<T>,
        a: MatBatch<'_, T>,
        beta: RealOf<T>,
        mut c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = HerkProblem::new(uplo, trans, &a, &c, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing("herk"));
        }
        let HerkProblem { uplo, trans, shape, .. } = problem;
        let key =
            HERK.key(&[uplo.letter(), trans.key().letter()], &[shape.n, shape.k, shape.batch].map(extent))?;
        self.routed(&HERK, device, &shape, &key, |spelling, native| match native {
            Some(family) => {
                let product = Product::herk(shape, (uplo, trans), (alpha, beta), a, c.rb_mut());
                family.run(queue, product, spelling)?;
                Ok(Ran::leaf("herk", spelling.to_string()))
            }
            None => self.vendor("herk")?.herk(queue, uplo, trans, alpha, a, beta, c.rb_mut()),
        })
    }
}
