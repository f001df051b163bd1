//! Selection in the terms of `batchlas-core`: one call from a problem to a family that runs, traced.

use batchlas_core::{ArgumentError, Dtype, Error, Ran};

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
    ///
    /// # Errors
    /// What `run` returned.
    pub fn run(self, run: impl FnOnce(&Spelling) -> Result<Ran, Error>) -> Result<Ran, Error> {
        let scope = self.selector.observer.begin(&self.problem, &self.choice);
        let ran = run(&self.choice.spelling)?;
        scope.executed();
        Ok(ran)
    }
}

impl Selector {
    /// Chooses a family for a problem on a device.
    ///
    /// # Errors
    /// As for [`Selector::choose`]; a device architecture that tables cannot name.
    pub fn route<'a>(
        &'a self,
        vocabulary: &'static Vocabulary,
        dtype: Dtype,
        device: &batchlas_core::Device,
        key: &'a Key,
        pin: Option<Pin>,
        can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
    ) -> Result<Route<'a>, SelectError> {
        let problem = Problem { vocabulary, dtype: dtype.name(), device: device.arch.parse()?, key };
        let choice = self.choose(&problem, pin, can_run)?;
        Ok(Route { selector: self, problem, choice })
    }
}
