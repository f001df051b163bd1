//! The routed solves: vocabularies, predicate, choice and call.

use batchlas_core::seam::{FactorShape, SolveShape};
use batchlas_core::{
    Device, Diag, Error, Factor, InfoMut, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar,
    Side, Trans, Uplo, WorkspaceMut,
};
use batchlas_select::{
    Candidate, Class, ExactField, Key, LogField, Pin, Refusal, Retired, Route, Selector, Spelling, Vocabulary,
};

use crate::problem::Problem;
use crate::{blocked, lanes};

const EXACT: &[ExactField] = &[ExactField { name: "uplo", values: &["L", "U"] }];

/// What a solve can be run by. There is no vendor family: children choose for themselves.
pub static POSV: Vocabulary = Vocabulary {
    op: "posv",
    candidates: &[batchlas_lanes::LANES, Candidate { family: "blocked", class: Class::Native, knobs: &[] }],
    last_resort: &["blocked"],
    retired: &[
        Retired { alias: "native:tiny", instead: "blocked" },
        Retired { alias: "native:cta", instead: "blocked" },
        Retired { alias: "native:blocked", instead: "blocked" },
    ],
    exact: EXACT,
    log: &[
        LogField { name: "n", weight: 3.0 },
        LogField { name: "nrhs", weight: 1.0 },
        LogField { name: "batch", weight: 1.0 },
    ],
};

/// What a solve with a factor can be run by.
pub static POTRS: Vocabulary = Vocabulary {
    op: "potrs",
    candidates: &[Candidate { family: "blocked", class: Class::Native, knobs: &[] }],
    last_resort: &["blocked"],
    retired: &[],
    exact: EXACT,
    log: &[
        LogField { name: "n", weight: 2.0 },
        LogField { name: "nrhs", weight: 1.0 },
        LogField { name: "batch", weight: 1.0 },
    ],
};

/// The routed `posv` and `potrs` of one element type.
#[derive(Clone, Copy)]
pub struct Posv<'s, T: Scalar> {
    /// Tables, environment and trace.
    pub selector: &'s Selector,
    /// Route pin of this call; overrides the environment's.
    pub pin: Option<Pin>,
    /// Factorisation.
    pub factor: Option<&'s dyn Factor<T>>,
    /// Triangular solve.
    pub solve: Option<&'s dyn PanelSolve<T>>,
}

impl<'s, T: Scalar> Posv<'s, T> {
    fn factor(&self) -> Result<&'s dyn Factor<T>> {
        self.factor.ok_or(Error::MissingSeam { op: "posv", seam: "factor" })
    }

    fn solve(&self, op: &'static str) -> Result<&'s dyn PanelSolve<T>> {
        self.solve.ok_or(Error::MissingSeam { op, seam: "solve" })
    }

    /// Whether a family of `op` serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(
        &self,
        op: &'static str,
        device: &Device,
        problem: &Problem,
        family: &Spelling,
    ) -> Result<(), Refusal> {
        match family.family() {
            "lanes" => lanes::can_run(op, device, problem, family),
            "blocked" => {
                let Problem { uplo, n, nrhs, batch, .. } = *problem;
                if let (Some(factor), "posv") = (self.factor, op) {
                    factor.can_factor(device, &FactorShape { uplo, n, batch })?;
                }
                if let (Some(solve), true) = (self.solve, nrhs > 0) {
                    let (side, trans, diag, q) = (Side::Left, Trans::No, Diag::NonUnit, nrhs);
                    solve.can_solve(device, &SolveShape { side, uplo, trans, diag, n, q, batch })?;
                }
                Ok(())
            }
            other => Err(format!("{op} has no family {other}").into()),
        }
    }

    fn route<'a>(
        &'a self,
        vocabulary: &'static Vocabulary,
        device: &Device,
        problem: &Problem,
        key: &'a Key,
    ) -> Result<Route<'a>> {
        Ok(self.selector.route(vocabulary, problem.dtype, device, key, self.pin, |family| {
            self.can_run(vocabulary.op, device, problem, family)
        })?)
    }

    fn key(vocabulary: &'static Vocabulary, problem: &Problem) -> Result<Key> {
        let Problem { uplo, n, nrhs, batch, .. } = *problem;
        // A factorisation without right-hand sides is keyed like one with a single one.
        Ok(vocabulary.key(&[uplo.letter()], &[n as u64, nrhs.max(1) as u64, batch as u64])?)
    }

    /// Bytes of workspace that [`Posv::posv`] needs for these operands.
    ///
    /// # Errors
    /// As for [`Posv::posv`].
    pub fn posv_workspace(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
        info_absent: bool,
    ) -> Result<usize> {
        let problem = Problem::new("posv", uplo, &a, b, queue.device().place)?;
        if problem.is_empty() {
            return Ok(0);
        }
        let key = Self::key(&POSV, &problem)?;
        match self.route(&POSV, queue.device(), &problem, &key)?.family() {
            "lanes" => Ok(0),
            _ => {
                let factor_bytes = self.factor()?.factor_workspace(queue, uplo, a)?;
                blocked::workspace_bytes(&problem, factor_bytes, info_absent)
            }
        }
    }

    /// Factors `A` in place and replaces B by X; `info` per item.
    ///
    /// # Errors
    /// Operands that do not fit each other or the queue, a workspace smaller than [`Posv::posv_workspace`] says, a
    /// missing seam, a bad pin. A failing item is not an error.
    pub fn posv(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let problem = Problem::new("posv", uplo, &a.rb(), &b, queue.device().place)?;
        info.validate("posv", problem.batch, queue.device().place)?;
        if problem.is_empty() {
            info.clear(queue)?;
            return Ok(Ran::nothing("posv"));
        }
        let (factor, solve) = (self.factor()?, self.solve("posv")?);
        let key = Self::key(&POSV, &problem)?;
        self.route(&POSV, queue.device(), &problem, &key)?.run(|family| match family.family() {
            "lanes" => lanes::posv(queue, &problem, a, b, info, family),
            "blocked" => blocked::posv(queue, factor, solve, &problem, a, b, info, workspace),
            other => Err(Error::Internal(format!("posv chose {other}, which it cannot run"))),
        })
    }

    /// Replaces B by the solution of `A X = B`, given the Cholesky factor of A in the triangle `uplo`. A may be shared
    /// by the whole batch. No workspace.
    ///
    /// # Errors
    /// As for [`Posv::posv`].
    pub fn potrs(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let problem = Problem::new("potrs", uplo, &a, &b, queue.device().place)?;
        if problem.is_empty() || problem.nrhs == 0 {
            return Ok(Ran::nothing("potrs"));
        }
        let solve = self.solve("potrs")?;
        let key = Self::key(&POTRS, &problem)?;
        self.route(&POTRS, queue.device(), &problem, &key)?.run(|family| match family.family() {
            "blocked" => {
                let mut ran = Ran::leaf("potrs", "blocked");
                ran.children.extend(blocked::potrs(queue, solve, uplo, a, b)?);
                Ok(ran)
            }
            other => Err(Error::Internal(format!("potrs chose {other}, which it cannot run"))),
        })
    }
}
