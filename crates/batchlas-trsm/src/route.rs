//! The routed triangular solve: vocabulary, predicate, choice and call.

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    Device, Diag, Error, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar, Side, Trans, Uplo,
};
use batchlas_select::{Candidate, Class, ExactField, LogField, Pin, Refusal, Selector, Spelling, Vocabulary};

use crate::problem::Problem;
use crate::rows;

const OP: &str = "trsm";

/// What a triangular solve can be run by. The work grows as `n^2 q batch`, hence the weights of the key.
pub static VOCABULARY: Vocabulary = Vocabulary {
    op: OP,
    candidates: &[
        rows::ROWS,
        batchlas_lanes::LANES,
        Candidate { family: "vendor", class: Class::Vendor, knobs: &[] },
    ],
    last_resort: &["vendor"],
    retired: &[],
    exact: &[
        ExactField { name: "side", values: &["L", "R"] },
        ExactField { name: "trans", values: &["N", "T"] },
    ],
    log: &[
        LogField { name: "n", weight: 2.0 },
        LogField { name: "q", weight: 1.0 },
        LogField { name: "batch", weight: 1.0 },
    ],
};

/// The routed triangular solve of one element type.
#[derive(Clone, Copy)]
pub struct Trsm<'s, T: Scalar> {
    /// Tables, environment and trace.
    pub selector: &'s Selector,
    /// Route pin of this call; overrides the environment's.
    pub pin: Option<Pin>,
    /// The vendor arm, where there is one.
    pub vendor: Option<&'s dyn PanelSolve<T>>,
}

impl<T: Scalar> Trsm<'_, T> {
    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, shape: &SolveShape, family: &Spelling) -> Result<(), Refusal> {
        match (family.family(), self.vendor) {
            ("rows" | "lanes", _) => rows::can_run(device, shape, family),
            ("vendor", Some(vendor)) => Ok(vendor.can_solve(device, shape)?),
            ("vendor", None) => Err("no vendor arm is wired".into()),
            (other, _) => Err(format!("trsm has no family {other}").into()),
        }
    }
}

impl<T: Scalar> PanelSolve<T> for Trsm<'_, T> {
    fn can_solve(&self, device: &Device, shape: &SolveShape) -> Result<(), String> {
        VOCABULARY.first_runnable(|family| self.can_run(device, shape, family)).map(drop)
    }

    fn solve(
        &self,
        queue: &dyn Queue,
        side: Side,
        uplo: Uplo,
        trans: Trans,
        diag: Diag,
        alpha: T,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = Problem::new(side, uplo, trans, diag, &a, &b, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing(OP));
        }
        let SolveShape { trans, n, q, batch, .. } = problem.shape;
        let key =
            VOCABULARY.key(&[side.letter(), trans.key().letter()], &[n as u64, q as u64, batch as u64])?;
        let route = self.selector.route(&VOCABULARY, problem.dtype, device, &key, self.pin, |family| {
            self.can_run(device, &problem.shape, family)
        })?;
        route.run(|family| match (family.family(), self.vendor) {
            ("rows" | "lanes", _) => rows::run(queue, &problem.shape, alpha, a, b, family),
            ("vendor", Some(vendor)) => vendor.solve(queue, side, uplo, trans, diag, alpha, a, b),
            (other, _) => Err(Error::Internal(format!("trsm chose {other}, which it cannot run"))),
        })
    }
}
