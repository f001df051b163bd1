//! Selection in the terms of `batchlas-core`: one call from a problem to a family that runs, traced.

use batchlas_core::{ArgumentError, Dtype, Error, QueueError, Ran};

use crate::{Choice, Key, Pin, Problem, Refusal, SelectError, Selector, Spelling, Vocabulary};

impl From<SelectError> for Error {
    fn from(error: SelectError) -> Self {
        let text = error.to_string();
        match error {
            SelectError::Spelling { .. }
            | SelectError::Retired { .. }
            | SelectError::Environment { .. }
            | SelectError::PinCannotRun { .. } => ArgumentError::Pin(text).into(),
            SelectError::NothingRuns { op, problem, refusals } => {
                Error::NotRunnable { op, device: problem, reasons: refusals }
            }
            SelectError::Table { .. } | SelectError::File { .. } => ArgumentError::Table(text).into(),
            _ => Error::Internal(text),
        }
    }
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        refusal.to_string()
    }
}

impl Vocabulary {
    /// The first candidate, in vocabulary order, that can run.
    ///
    /// # Errors
    /// Every candidate's refusal.
    pub fn first_runnable(
        &'static self,
        mut can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
    ) -> Result<Spelling, String> {
        let mut refusals = Vec::new();
        for spelling in self.spellings() {
            match can_run(&spelling) {
                Ok(()) => return Ok(spelling),
                Err(refusal) => refusals.push(format!("{spelling}: {refusal}")),
            }
        }
        Err(refusals.join("; "))
    }
}

/// A choice that waits to be carried out.
#[derive(Debug)]
#[must_use = "a route does nothing until it is run"]
pub struct Route<'a> {
    selector: &'a Selector,
    problem: Problem<'a>,
    choice: Choice,
}

impl Route<'_> {
    /// Name of the chosen family.
    pub fn family(&self) -> &'static str {
        self.choice.spelling.family()
    }

    /// The choice itself.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Carries the choice out. The trace records it only if `run` succeeds.
    fn run(&self, run: impl FnOnce(&Spelling) -> Result<Ran, Error>) -> Result<Ran, Error> {
        let scope = self.selector.observer.begin(&self.problem, &self.choice);
        let ran = run(&self.choice.spelling)?;
        scope.executed();
        Ok(ran)
    }
}

/// One call of an operation that is to be routed: everything a choice depends on but the operands.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Tables, environment and trace.
    pub selector: &'a Selector,
    /// The operation.
    pub vocabulary: &'static Vocabulary,
    /// Scalar type.
    pub dtype: Dtype,
    /// Where it runs.
    pub device: &'a batchlas_core::Device,
    /// Its selection key.
    pub key: &'a Key,
    /// Route pin of the call; overrides the environment's.
    pub pin: Option<Pin>,
}

impl<'a> Call<'a> {
    /// Chooses a family.
    ///
    /// # Errors
    /// As for [`Selector::choose`]; a device architecture that tables cannot name.
    pub fn route(
        &self,
        can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
    ) -> Result<Route<'a>, SelectError> {
        let Self { selector, vocabulary, dtype, device, key, pin } = *self;
        let problem = Problem { vocabulary, dtype: dtype.name(), device: device.arch.parse()?, key };
        let choice = selector.choose(&problem, pin, can_run)?;
        Ok(Route { selector, problem, choice })
    }

    /// Chooses a family and runs it. One whose compiled kernel broke its promise launched nothing and gives way to the
    /// next choice; an exact pin has none and says so.
    ///
    /// `run` is told the families that were refused before it: resources of the call were sized for the first of them.
    ///
    /// # Errors
    /// As for [`Call::route`]; what `run` returned.
    pub fn run(
        &self,
        mut can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
        mut run: impl FnMut(&Spelling, &[(Spelling, Refusal)]) -> Result<Ran, Error>,
    ) -> Result<Ran, Error> {
        let mut refused: Vec<(Spelling, Refusal)> = Vec::new();
        loop {
            let route =
                self.route(|family| match refused.iter().find(|(spelling, _)| spelling == family) {
                    Some((_, refusal)) => Err(refusal.clone()),
                    None => can_run(family),
                })?;
            match route.run(|family| run(family, &refused)) {
                Err(Error::Queue(error @ QueueError::Refused { .. })) => {
                    refused.push((route.choice.spelling, error.to_string().into()));
                }
                done => return done,
            }
        }
    }
}
