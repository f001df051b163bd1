//! The routed solves: vocabularies, predicate, choice and call.

use batchlas_core::seam::{FactorShape, SolveShape};
use batchlas_core::{
    Device, Diag, Error, Factor, InfoMut, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar,
    Side, Trans, Uplo, WorkspaceMut,
};
use batchlas_select::{
    Call, Candidate, Class, ExactField, Key, LogField, Pin, Refusal, Retired, Route, Selector, Spelling,
    Vocabulary,
};

use crate::problem::{FactorOutput, Problem};
use crate::{blocked, cta, lanes, tiny};

const EXACT: &[ExactField] = &[ExactField { name: "uplo", values: &["L", "U"] }];

const BLOCKED: Candidate = Candidate { family: "blocked", class: Class::Native, knobs: &[] };

/// What a solve can be run by. There is no vendor family: children choose for themselves.
pub static POSV: Vocabulary = Vocabulary {
    op: "posv",
    candidates: &[tiny::CANDIDATE, cta::CANDIDATE, batchlas_lanes::LANES, BLOCKED],
    last_resort: &["blocked"],
    retired: &[
        Retired { alias: "native:tiny", instead: "tiny" },
        Retired { alias: "native:cta", instead: "cta" },
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
    candidates: &[cta::CANDIDATE, BLOCKED],
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
    /// What becomes of the factor in `posv`.
    pub output: FactorOutput,
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
        match (op, family.family()) {
            ("posv", "tiny") => tiny::can_run(device, problem, family),
            ("posv", "lanes") => lanes::can_run(device, problem, family),
            (_, "cta") => {
                self.can_factor(op, device, problem)?;
                cta::can_run(device, problem, family)
            }
            (_, "blocked") => {
                let Problem { uplo, n, nrhs, batch, .. } = *problem;
                self.can_factor(op, device, problem)?;
                if let (Some(solve), true) = (self.solve, nrhs > 0) {
                    let (side, trans, diag, q) = (Side::Left, Trans::No, Diag::NonUnit, nrhs);
                    solve.can_solve(device, &SolveShape { side, uplo, trans, diag, n, q, batch })?;
                }
                Ok(())
            }
            (op, other) => Err(format!("{op} has no family {other}").into()),
        }
    }

    /// Whether the factorisation of `posv` can run; `potrs` has none.
    fn can_factor(&self, op: &str, device: &Device, problem: &Problem) -> Result<(), Refusal> {
        let Problem { uplo, n, batch, .. } = *problem;
        match (self.factor, op) {
            (Some(factor), "posv") => Ok(factor.can_factor(device, &FactorShape { uplo, n, batch })?),
            _ => Ok(()),
        }
    }

    /// Sizing and running choose by this one call.
    fn call<'a>(
        &self,
        vocabulary: &'static Vocabulary,
        device: &'a Device,
        problem: &Problem,
        key: &'a Key,
    ) -> Call<'a>
    where
        Self: 'a,
    {
        Call { selector: self.selector, vocabulary, dtype: problem.dtype, device, key, pin: self.pin }
    }

    fn route<'a>(&'a self, device: &'a Device, problem: &Problem, key: &'a Key) -> Result<Route<'a>> {
        let call = self.call(&POSV, device, problem, key);
        Ok(call.route(|family| self.can_run("posv", device, problem, family))?)
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
        match self.route(queue.device(), &problem, &key)?.family() {
            "tiny" | "lanes" => Ok(0),
            _ => {
                let factor = self.factor()?.factor_workspace(queue, uplo, a)?;
                blocked::workspace_bytes(&problem, factor, info_absent)
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
        mut a: MatBatchMut<'_, T>,
        mut b: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        mut workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let problem = Problem::new("posv", uplo, &a.rb(), &b, queue.device().place)?;
        info.validate("posv", problem.batch, queue.device().place)?;
        if problem.is_empty() {
            info.clear(queue)?;
            return Ok(Ran::nothing("posv"));
        }
        let key = Self::key(&POSV, &problem)?;
        let device = queue.device();
        self.call(&POSV, device, &problem, &key).run(
            |family| self.can_run("posv", device, &problem, family),
            |family, _| {
                let (a, b, info, workspace) = (a.rb_mut(), b.rb_mut(), info.rb_mut(), workspace.rb_mut());
                match family.family() {
                    "tiny" => tiny::run(queue, &problem, self.output, a, b, info, family),
                    "lanes" => lanes::run(queue, &problem, self.output, a, b, info, family),
                    "cta" => {
                        let solves = |a: MatBatchMut<'_, T>, info: InfoMut<'_>| {
                            Ok(vec![cta::solve(queue, &problem, a.rb(), b, info, family)?])
                        };
                        let factor = self.factor()?;
                        blocked::factor_then(queue, family, factor, &problem, a, info, workspace, solves)
                    }
                    "blocked" => {
                        let solve = self.solve("posv")?;
                        let solves = |a: MatBatchMut<'_, T>, info: InfoMut<'_>| {
                            blocked::solve(queue, solve, uplo, a, b, info)
                        };
                        let factor = self.factor()?;
                        blocked::factor_then(queue, family, factor, &problem, a, info, workspace, solves)
                    }
                    other => Err(Error::Internal(format!("posv chose {other}, which it cannot run"))),
                }
            },
        )
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
        mut b: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        let problem = Problem::new("potrs", uplo, &a, &b, queue.device().place)?;
        if problem.is_empty() || problem.nrhs == 0 {
            return Ok(Ran::nothing("potrs"));
        }
        let key = Self::key(&POTRS, &problem)?;
        let device = queue.device();
        self.call(&POTRS, device, &problem, &key).run(
            |family| self.can_run("potrs", device, &problem, family),
            |family, _| match family.family() {
                "cta" => cta::solve(queue, &problem, a, b.rb_mut(), InfoMut::absent(), family),
                "blocked" => {
                    let mut ran = Ran::leaf("potrs", "blocked");
                    ran.children.extend(blocked::potrs(queue, self.solve("potrs")?, uplo, a, b.rb_mut())?);
                    Ok(ran)
                }
                other => Err(Error::Internal(format!("potrs chose {other}, which it cannot run"))),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchlas_core::{CpuQueue, Extent};

    const POSV_ALONE: fn(&Selector, Option<Pin>) -> Posv<'_, f64> =
        |selector, pin| Posv { selector, pin, output: FactorOutput::Stored, factor: None, solve: None };

    #[test]
    fn items_of_different_sizes_are_refused_before_anything_is_chosen() {
        let (queue, selector) = (CpuQueue::new(1).unwrap(), Selector::default());
        // No CPU can run `tiny`, which choosing would complain about.
        let pins = [None, Some(POSV.pin("tiny").unwrap()), Some(POSV.pin("blocked").unwrap())];
        for (pin, which) in pins.into_iter().flat_map(|pin| ["A", "B"].map(|which| (pin, which))) {
            let (mut a, mut b) = ([1.0; 8], [1.0; 4]);
            let (square, column) = ([Extent { rows: 1, cols: 1 }; 2], [Extent { rows: 1, cols: 1 }; 2]);
            let mut a = MatBatchMut::packed(&mut a, 2, 2, 2).unwrap();
            let mut b = MatBatchMut::packed(&mut b, 2, 1, 2).unwrap();
            match which {
                "A" => a = a.with_extents(&square).unwrap(),
                _ => b = b.with_extents(&column).unwrap(),
            }
            let posv = POSV_ALONE(&selector, pin);
            let workspace = WorkspaceMut::empty(queue.device().place);
            let error = posv.posv(&queue, Uplo::Lower, a, b, InfoMut::absent(), workspace).unwrap_err();
            assert!(matches!(&error, Error::Internal(text) if text.contains("heterogeneous")), "{error}");
        }
    }

    #[test]
    fn a_missing_seam_is_an_error() {
        let (queue, selector) = (CpuQueue::new(1).unwrap(), Selector::default());
        let posv = POSV_ALONE(&selector, Some(POSV.pin("blocked").unwrap()));
        let (mut a, mut b) = ([1.0], [1.0]);
        let workspace = WorkspaceMut::empty(queue.device().place);
        let a = MatBatchMut::packed(&mut a, 1, 1, 1).unwrap();
        let mut b = MatBatchMut::packed(&mut b, 1, 1, 1).unwrap();
        let solve = Posv { pin: Some(POTRS.pin("blocked").unwrap()), ..posv };
        let error = solve.potrs(&queue, Uplo::Lower, a.rb(), b.rb_mut()).unwrap_err();
        assert!(matches!(error, Error::MissingSeam { op: "potrs", seam: "solve" }), "{error}");
        let error = posv.posv(&queue, Uplo::Lower, a, b, InfoMut::absent(), workspace).unwrap_err();
        assert!(matches!(error, Error::MissingSeam { op: "posv", .. }), "{error}");
    }
}
