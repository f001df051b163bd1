//! The routed solves: vocabularies, predicate, choice and call.

use batchlas_core::seam::{FactorShape, SolveShape};
use batchlas_core::{
    Device, Diag, Error, Factor, InfoMut, Kernel, MatBatch, MatBatchMut, PanelSolve, Queue, QueueError, Ran,
    Result, Scalar, Side, Trans, Uplo, WorkspaceMut,
};
use batchlas_select::{
    Candidate, Class, ExactField, Key, LogField, Pin, Refusal, Retired, Route, Selector, Spelling, Vocabulary,
};

use crate::problem::{FactorOutput, Problem};
use crate::{blocked, cta, lanes, quench, tiny};

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

    fn route<'a>(
        &'a self,
        vocabulary: &'static Vocabulary,
        device: &Device,
        problem: &Problem,
        key: &'a Key,
        refused: &[(Spelling, Refusal)],
    ) -> Result<Route<'a>> {
        Ok(self.selector.route(vocabulary, problem.dtype, device, key, self.pin, |family| {
            match refused.iter().find(|(spelling, _)| spelling == family) {
                Some((_, refusal)) => Err(refusal.clone()),
                None => self.can_run(vocabulary.op, device, problem, family),
            }
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
        match self.route(&POSV, queue.device(), &problem, &key, &[])?.family() {
            "tiny" | "lanes" => Ok(0),
            _ => {
                let factor = self.factor()?.factor_workspace(queue, uplo, a)?;
                blocked::workspace_bytes(&problem, factor, info_absent)
            }
        }
    }

    /// The device kernels that `posv` itself would launch for a problem, whatever becomes of the factor; those of its
    /// children are not among them.
    ///
    /// # Errors
    /// Nothing can run the problem; a bad pin.
    pub fn kernels(&self, device: &Device, problem: &Problem) -> Result<Vec<Kernel>> {
        let key = Self::key(&POSV, problem)?;
        let route = self.route(&POSV, device, problem, &key, &[])?;
        Ok(match route.family() {
            "tiny" => tiny::kernels(problem, &route.choice().spelling).collect(),
            "cta" => vec![cta::kernel_of(problem, &route.choice().spelling, device.slm_budget)],
            _ => quench::kernels().collect(),
        })
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
        let mut refused = Vec::new();
        loop {
            let route = self.route(&POSV, queue.device(), &problem, &key, &refused)?;
            let family = route.choice().spelling;
            let (a, b, info) = (a.rb_mut(), b.rb_mut(), info.rb_mut());
            let ran = route.run(|family| match family.family() {
                "tiny" => tiny::run(queue, &problem, self.output, a, b, info, family),
                "lanes" => lanes::run(queue, &problem, self.output, a, b, info, family),
                "cta" => {
                    let solves = |a: MatBatchMut<'_, T>, info: InfoMut<'_>| {
                        Ok(vec![cta::solve(queue, &problem, a.rb(), b, info, family)?])
                    };
                    blocked::factor_then(
                        queue,
                        family,
                        self.factor()?,
                        &problem,
                        a,
                        info,
                        workspace.rb_mut(),
                        solves,
                    )
                }
                "blocked" => {
                    let solve = self.solve("posv")?;
                    let solves = |a: MatBatchMut<'_, T>, info: InfoMut<'_>| {
                        blocked::solve(queue, solve, uplo, a, b, info)
                    };
                    blocked::factor_then(
                        queue,
                        family,
                        self.factor()?,
                        &problem,
                        a,
                        info,
                        workspace.rb_mut(),
                        solves,
                    )
                }
                other => Err(Error::Internal(format!("posv chose {other}, which it cannot run"))),
            });
            if !note_refusal(&ran, family, &mut refused) {
                return ran;
            }
        }
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
        let mut refused = Vec::new();
        loop {
            let route = self.route(&POTRS, queue.device(), &problem, &key, &refused)?;
            let family = route.choice().spelling;
            let b = b.rb_mut();
            let ran = route.run(|family| match family.family() {
                "cta" => cta::solve(queue, &problem, a, b, InfoMut::absent(), family),
                "blocked" => {
                    let mut ran = Ran::leaf("potrs", "blocked");
                    ran.children.extend(blocked::potrs(queue, self.solve("potrs")?, uplo, a, b)?);
                    Ok(ran)
                }
                other => Err(Error::Internal(format!("potrs chose {other}, which it cannot run"))),
            });
            if !note_refusal(&ran, family, &mut refused) {
                return ran;
            }
        }
    }
}

/// Whether a family's compiled kernel broke its promise; it is then noted, and the next candidate has its turn. An exact
/// pin has none and says so.
fn note_refusal(ran: &Result<Ran>, family: Spelling, refused: &mut Vec<(Spelling, Refusal)>) -> bool {
    let Err(Error::Queue(QueueError::Refused { entry, source })) = ran else { return false };
    refused.push((family, format!("`{entry}` is refused: {source}").into()));
    true
}
