//! The routed triangular solve: vocabulary, predicate, choice and call.

use batchlas_core::seam::SolveShape;
use batchlas_core::{
    Device, Diag, Error, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar, Side, TrailingUpdate,
    Trans, Uplo,
};
use batchlas_select::{
    Asked, Call, Candidate, Class, ExactField, LogField, Pin, Refusal, Selector, Spelling, Vocabulary,
};

use crate::problem::Problem;
use crate::{blocked, cta, few, fused, rows, sg_left};

const OP: &str = "trsm";

/// What a triangular solve can be run by. The work grows as `n^2 q batch`, hence the weights of the key.
pub static VOCABULARY: Vocabulary = Vocabulary {
    op: OP,
    candidates: &[
        cta::CANDIDATE,
        few::CANDIDATE,
        sg_left::CANDIDATE,
        fused::CANDIDATE,
        blocked::CANDIDATE,
        rows::ROWS,
        batchlas_lanes::LANES,
        Candidate { family: "vendor", class: Class::Vendor, knobs: &[] },
    ],
    last_resort: &["few", "cta", "fused", "blocked", "vendor"],
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
    /// The product that `blocked` updates with.
    pub update: Option<&'s dyn TrailingUpdate<T>>,
}

impl<T: Scalar> Trsm<'_, T> {
    /// What solves the diagonal blocks of `blocked`: this operation, an exact pin taken off. It cannot call itself for
    /// ever, since `blocked` refuses what is a single block.
    fn leaf(&self) -> Result<Self> {
        let asked = Asked::resolve(&VOCABULARY, self.pin, &self.selector.environment)?;
        let pin = if asked.pin.class().is_some() { asked.pin } else { Pin::Auto };
        Ok(Trsm { pin: Some(pin), ..*self })
    }

    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, shape: &SolveShape, family: &Spelling) -> Result<(), Refusal> {
        match (family.family(), self.vendor) {
            ("rows" | "lanes", _) => rows::can_run(device, shape, family),
            ("cta", _) => cta::can_run(device, T::DTYPE, shape, family),
            ("fused", _) => fused::can_run(device, T::DTYPE, shape, family),
            ("blocked", _) => blocked::can_run(device, shape, family, self.update, self),
            ("few", _) => few::can_run(device, T::DTYPE, shape, family),
            ("sg_left", _) => sg_left::can_run(device, T::DTYPE, shape, family),
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
        mut b: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let device = queue.device();
        let problem = Problem::new(side, uplo, trans, diag, &a, &b, device.place)?;
        if problem.is_empty() {
            return Ok(Ran::nothing(OP));
        }
        let shape = &problem.shape;
        let sizes = [shape.n as u64, shape.q as u64, shape.batch as u64];
        let key = VOCABULARY.key(&[side.letter(), shape.trans.key().letter()], &sizes)?;
        let call = Call {
            selector: self.selector,
            vocabulary: &VOCABULARY,
            dtype: problem.dtype,
            device,
            key: &key,
            pin: self.pin,
        };
        call.run(
            |family| self.can_run(device, shape, family),
            |family, _| match (family.family(), self.vendor) {
                ("cta", _) => cta::run(queue, shape, alpha, a, b.rb_mut(), family),
                ("fused", _) => fused::run(queue, shape, alpha, a, b.rb_mut(), family),
                ("blocked", _) => {
                    let update = self.update.ok_or(Error::MissingSeam { op: OP, seam: "update" })?;
                    blocked::run(queue, shape, alpha, a, b.rb_mut(), family, update, &self.leaf()?)
                }
                ("few", _) => few::run(queue, shape, alpha, a, b.rb_mut(), family),
                ("sg_left", _) => sg_left::run(queue, shape, alpha, a, b.rb_mut(), family),
                ("rows" | "lanes", _) => rows::run(queue, shape, alpha, a, b.rb_mut(), family),
                ("vendor", Some(vendor)) => {
                    vendor.solve(queue, side, uplo, shape.trans, diag, alpha, a, b.rb_mut())
                }
                (other, _) => Err(Error::Internal(format!("trsm chose {other}, which it cannot run"))),
            },
        )
    }
}
