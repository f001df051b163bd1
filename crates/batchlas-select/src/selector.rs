//! Everything an operation needs to select, in one value.

use crate::{
    Asked, Choice, Environment, Observer, Pin, Problem, Refusal, SelectError, Spelling, Tables, Vocabulary,
    choose,
};

/// Tables, environment and observer of a context. Made once, shared by its operations.
#[derive(Debug, Default)]
pub struct Selector {
    /// The tables in force.
    pub tables: Tables,
    /// The environment pins are read from.
    pub environment: Environment,
    /// Where records of executed operations go.
    pub observer: Observer,
    /// Never choose a vendor family.
    pub vendor_free: bool,
}

impl Selector {
    /// A selector as the environment wants it, with `embedded` tables as `(file name, text)`.
    ///
    /// # Errors
    /// As [`Tables::from_environment`] and [`Observer::from_environment`].
    pub fn new(
        vocabularies: &[&'static Vocabulary],
        embedded: &[(&'static str, &'static str)],
        environment: Environment,
        vendor_free: bool,
    ) -> Result<Self, SelectError> {
        let tables = Tables::from_environment(vocabularies, embedded, &environment)?;
        let observer = Observer::from_environment(&environment)?;
        Ok(Self { tables, environment, observer, vendor_free })
    }

    /// Chooses what runs `problem`; the caller's `pin` wins over the environment's.
    ///
    /// # Errors
    /// As [`Asked::resolve`] and [`choose()`].
    pub fn choose(
        &self,
        problem: &Problem<'_>,
        pin: Option<Pin>,
        can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
    ) -> Result<Choice, SelectError> {
        let asked = Asked::resolve(problem.vocabulary, pin, &self.environment)?;
        choose(problem, &self.tables, asked, self.vendor_free, can_run)
    }
}
