//! The routed factorisation: vocabulary, predicate, choice and call.

use std::sync::Arc;

use batchlas_core::seam::FactorShape;
use batchlas_core::{
    Device, Error, Factor, InfoMut, MatBatch, MatBatchMut, PanelSolve, Queue, QueueError, Ran, Result,
    Scalar, TrailingUpdate, Uplo, WorkspaceMut,
};
use batchlas_select::{
    Asked, Call, Candidate, Class, ExactField, Key, LogField, Pin, Refusal, Retired, Route, Selector,
    Spelling, Vocabulary,
};

use crate::problem::Problem;
use crate::{blocked, cta, lanes, left, lpanel, tiny};

const OP: &str = "potrf";

/// What a factorisation can be run by. The work grows as `n^3 * batch`, hence the weights of the key.
pub static VOCABULARY: Vocabulary = Vocabulary {
    op: OP,
    candidates: &[
        tiny::CANDIDATE,
        cta::CANDIDATE,
        lpanel::CANDIDATE,
        left::CANDIDATE,
        blocked::CANDIDATE,
        batchlas_lanes::LANES,
        Candidate { family: "vendor", class: Class::Vendor, knobs: &[] },
    ],
    last_resort: &["vendor", "lpanel:panel=8"],
    retired: &[
        Retired { alias: "native:tiny", instead: "tiny" },
        Retired { alias: "native:cta", instead: "cta" },
        Retired { alias: "native:lpanel", instead: "lpanel:panel=8" },
        Retired { alias: "native:blocked", instead: "blocked:nb=128" },
        Retired { alias: "lpanel", instead: "lpanel:panel=8" },
    ],
    exact: &[ExactField { name: "uplo", values: &["L", "U"] }],
    log: &[LogField { name: "n", weight: 3.0 }, LogField { name: "batch", weight: 1.0 }],
};

/// The routed factorisation of one element type.
#[derive(Clone, Copy)]
pub struct Potrf<'s, T: Scalar> {
    /// Tables, environment and trace.
    pub selector: &'s Selector,
    /// Route pin of this call; overrides the environment's.
    pub pin: Option<Pin>,
    /// The vendor arm, where there is one.
    pub vendor: Option<&'s dyn Factor<T>>,
    /// The triangular solve of `blocked`.
    pub solve: Option<&'s dyn PanelSolve<T>>,
    /// The rank-k update of `blocked`.
    pub update: Option<&'s dyn TrailingUpdate<T>>,
}

impl<T: Scalar> Potrf<'_, T> {
    /// What factors the diagonal blocks of `blocked`: this operation, an exact pin taken off. It cannot call itself for
    /// ever, since `blocked` refuses what is a single block.
    fn leaf(&self) -> Result<Self> {
        let asked = Asked::resolve(&VOCABULARY, self.pin, &self.selector.environment)?;
        let pin = if asked.pin.class().is_some() { asked.pin } else { Pin::Auto };
        Ok(Potrf { pin: Some(pin), ..*self })
    }

    /// Calls `call` with what `blocked` is made of.
    fn with_steps<R>(&self, call: impl FnOnce(&blocked::Steps<'_, T>) -> Result<R>) -> Result<R> {
        let seam = |seam| Error::MissingSeam { op: OP, seam };
        let (solve, update) = (self.solve.ok_or(seam("solve"))?, self.update.ok_or(seam("update"))?);
        call(&blocked::Steps { leaf: &self.leaf()?, solve, update })
    }

    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, shape: &FactorShape, family: &Spelling) -> Result<(), Refusal> {
        match (family.family(), self.vendor) {
            ("tiny", _) => tiny::can_run(device, T::DTYPE, shape, family),
            ("lanes", _) => lanes::can_run(device, shape, family),
            ("cta", _) => cta::can_run(device, T::DTYPE, shape, family),
            ("lpanel", _) => lpanel::can_run(device, T::DTYPE, shape, family),
            ("left", _) => left::can_run(device, T::DTYPE, shape, family),
            ("blocked", _) => self
                .with_steps(|steps| Ok(blocked::can_run(device, shape, family, steps)))
                .unwrap_or_else(|error| Err(error.to_string().into())),
            ("vendor", Some(vendor)) => Ok(vendor.can_factor(device, shape)?),
            ("vendor", None) => Err("no vendor arm is wired".into()),
            (other, _) => Err(format!("potrf has no family {other}").into()),
        }
    }

    fn key(problem: &Problem) -> Result<Key> {
        Ok(VOCABULARY.key(&[problem.uplo.letter()], &[problem.n as u64, problem.batch as u64])?)
    }

    fn vendor(&self) -> Result<&dyn Factor<T>> {
        self.vendor.ok_or(Error::MissingSeam { op: OP, seam: "vendor" })
    }

    /// Sizing and running choose by this one call.
    fn call<'a>(&self, device: &'a Device, problem: &Problem, key: &'a Key) -> Call<'a>
    where
        Self: 'a,
    {
        Call {
            selector: self.selector,
            vocabulary: &VOCABULARY,
            dtype: problem.dtype,
            device,
            key,
            pin: self.pin,
        }
    }

    fn route<'a>(&'a self, device: &'a Device, problem: &Problem, key: &'a Key) -> Result<Route<'a>> {
        Ok(self.call(device, problem, key).route(|family| self.can_run(device, &problem.shape(), family))?)
    }
}

impl<T: Scalar> Factor<T> for Potrf<'_, T> {
    fn can_factor(&self, device: &Device, shape: &FactorShape) -> Result<(), String> {
        VOCABULARY.first_runnable(|family| self.can_run(device, shape, family)).map(drop)
    }

    fn factor_workspace(&self, queue: &dyn Queue, uplo: Uplo, a: MatBatch<'_, T>) -> Result<usize> {
        let problem = Problem::new(uplo, &a, queue.device().place)?;
        if problem.is_empty() {
            return Ok(0);
        }
        let key = Self::key(&problem)?;
        let route = self.route(queue.device(), &problem, &key)?;
        match route.family() {
            "vendor" => self.vendor()?.factor_workspace(queue, uplo, a),
            "blocked" => self.with_steps(|steps| {
                blocked::workspace_bytes(queue, uplo, a, &route.choice().spelling, steps.leaf)
            }),
            _ => Ok(0),
        }
    }

    fn factor(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        mut a: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        mut workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let problem = Problem::new(uplo, &a.rb(), queue.device().place)?;
        info.validate(OP, problem.batch, queue.device().place)?;
        if problem.is_empty() {
            info.clear(queue)?;
            return Ok(Ran::nothing(OP));
        }
        let key = Self::key(&problem)?;
        let device = queue.device();
        self.call(device, &problem, &key).run(
            |family| self.can_run(device, &problem.shape(), family),
            |family, refused| match family.family() {
                "tiny" => tiny::run(queue, uplo, a.rb_mut(), info.rb_mut(), family),
                "lanes" => lanes::run(queue, uplo, a.rb_mut(), info.rb_mut(), family),
                "cta" => cta::run(queue, uplo, a.rb_mut(), info.rb_mut(), family),
                "lpanel" => lpanel::run(queue, uplo, a.rb_mut(), info.rb_mut(), family),
                "left" => left::run(queue, uplo, a.rb_mut(), info.rb_mut(), family),
                "blocked" => self.with_steps(|steps| {
                    let need = blocked::workspace_bytes(queue, uplo, a.rb(), family, steps.leaf)?;
                    workspace.validate(OP, need, device.place).map_err(|error| {
                        if refused.is_empty() { error } else { cannot_stand_in(family, error) }
                    })?;
                    blocked::run(queue, uplo, a.rb_mut(), info.rb_mut(), workspace.rb_mut(), family, steps)
                }),
                "vendor" => {
                    let vendor = self.vendor()?;
                    let need = vendor.factor_workspace(queue, uplo, a.rb())?;
                    workspace.validate(OP, need, device.place).map_err(|error| {
                        // The workspace was sized for the first choice, which launched nothing: a library that needs more
                        // than there is cannot stand in.
                        if refused.is_empty() { error } else { cannot_stand_in(family, error) }
                    })?;
                    vendor.factor(queue, uplo, a.rb_mut(), info.rb_mut(), workspace.rb_mut())
                }
                other => Err(Error::Internal(format!("potrf chose {other}, which it cannot run"))),
            },
        )
    }
}

/// A candidate that lacks what the first choice did not need: refused, so that another may.
fn cannot_stand_in(family: &Spelling, error: Error) -> Error {
    QueueError::Refused { entry: family.to_string(), source: Arc::new(error) }.into()
}
