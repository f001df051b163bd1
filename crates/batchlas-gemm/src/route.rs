//! The routed products: vocabularies, predicate, choice and call.

use batchlas_core::seam::UpdateShape;
use batchlas_core::{
    Device, Error, MatBatch, MatBatchMut, Queue, Ran, RealOf, Result, Scalar, TrailingUpdate, Trans, Uplo,
};
use batchlas_select::{Candidate, Class, ExactField, LogField, Pin, Refusal, Selector, Spelling, Vocabulary};

use crate::problem::{GemmProblem, HerkProblem};

const CANDIDATES: &[Candidate] = &[Candidate { family: "vendor", class: Class::Vendor, knobs: &[] }];
const LAST_RESORT: &[&str] = &["vendor"];

/// What a product can be run by.
pub static GEMM: Vocabulary = Vocabulary {
    op: "gemm",
    candidates: CANDIDATES,
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
    candidates: CANDIDATES,
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

impl<T: Scalar> Gemm<'_, T> {
    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, shape: &UpdateShape, family: &Spelling) -> Result<(), Refusal> {
        match (family.family(), self.vendor) {
            ("vendor", Some(vendor)) => Ok(vendor.can_update(device, shape)?),
            ("vendor", None) => Err("no vendor arm is wired".into()),
            (other, _) => Err(format!("gemm has no family {other}").into()),
        }
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
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = GemmProblem::new(trans_a, trans_b, &a, &b, &c, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing("gemm"));
        }
        let GemmProblem { dtype, trans_a, trans_b, shape } = problem;
        let key = GEMM.key(
            &[trans_a.key().letter(), trans_b.key().letter()],
            &[shape.m, shape.n, shape.k, shape.batch].map(extent),
        )?;
        let route = self
            .selector
            .route(&GEMM, dtype, device, &key, self.pin, |family| self.can_run(device, &shape, family))?;
        route.run(|family| match (family.family(), self.vendor) {
            ("vendor", Some(vendor)) => vendor.gemm(queue, trans_a, trans_b, alpha, a, b, beta, c),
            (other, _) => Err(Error::Internal(format!("gemm chose {other}, which it cannot run"))),
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
        c: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = HerkProblem::new(uplo, trans, &a, &c, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing("herk"));
        }
        let HerkProblem { dtype, uplo, trans, shape } = problem;
        let key =
            HERK.key(&[uplo.letter(), trans.key().letter()], &[shape.n, shape.k, shape.batch].map(extent))?;
        let route = self
            .selector
            .route(&HERK, dtype, device, &key, self.pin, |family| self.can_run(device, &shape, family))?;
        route.run(|family| match (family.family(), self.vendor) {
            ("vendor", Some(vendor)) => vendor.herk(queue, uplo, trans, alpha, a, beta, c),
            (other, _) => Err(Error::Internal(format!("herk chose {other}, which it cannot run"))),
        })
    }
}
