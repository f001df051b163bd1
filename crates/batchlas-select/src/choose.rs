//! The choice itself.
//!
//! 1. An exact pin is taken, or is an error: it never turns into something else.
//! 2. Otherwise the nearest row of the table is walked, best first, for a candidate that runs; one whose knobs were
//!    measured at a neighbour and do not fit here gives way to its family's own defaults before the next rank has its
//!    turn. Then the vocabulary's last resort; then all candidates in vocabulary order. So something is chosen whenever
//!    anything runs.
//! 3. A class pin walks the same path over its class only and, if nothing there runs, degrades to automatic choice with
//!    a warning. A build without vendor libraries walks it over native families only, without that way out.
//!
//! `can_run` states correctness. It is asked at most once per candidate, and what it refuses is never chosen.

use std::borrow::Cow;
use std::fmt;

use crate::{Asked, Class, Device, Key, Pin, SelectError, Source, Spelling, Tables, Vocabulary};

/// What is to be run where.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// The operation.
    pub vocabulary: &'static Vocabulary,
    /// Scalar type, as in table file names.
    pub dtype: &'a str,
    /// Where it will run.
    pub device: Device,
    /// Its selection key.
    pub key: &'a Key,
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.dtype, self.device, self.vocabulary.describe(self.key))
    }
}

/// Why a family cannot run a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Cow<'static, str>);

impl From<&'static str> for Refusal {
    fn from(reason: &'static str) -> Self {
        Self(Cow::Borrowed(reason))
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self(Cow::Owned(reason))
    }
}

/// The table entry a choice rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// File of the table.
    pub file: String,
    /// Line of the row.
    pub line: usize,
    /// Place in the row's ranking, from 0.
    pub rank: usize,
    /// Distance of the row from the problem; 0 is on the grid, above is extrapolated.
    pub distance: f64,
    /// Where the row comes from.
    pub source: Source,
    /// The device it was measured on, if that is another one.
    pub borrowed_from: Option<Device>,
}

impl Ranking {
    /// Whether this very problem was timed on this very device.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.distance == 0.0 && self.source == Source::Measured && self.borrowed_from.is_none()
    }
}

/// What a choice rests on.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// An exact pin.
    Pinned,
    /// A table row.
    Ranked(Ranking),
    /// The same family as a table row, with its own defaults: the knobs of the row do not run here.
    FamilyDefault(Ranking),
    /// The vocabulary's last resort, because no ranked candidate runs.
    LastResort,
    /// The first candidate that runs, because the last resort does not either.
    VocabularyOrder,
}

impl Why {
    /// The table row that decided, if one did.
    #[must_use]
    pub const fn ranking(&self) -> Option<&Ranking> {
        match self {
            Self::Ranked(ranking) | Self::FamilyDefault(ranking) => Some(ranking),
            Self::Pinned | Self::LastResort | Self::VocabularyOrder => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned => f.write_str("pinned"),
            Self::LastResort => f.write_str("last resort"),
            Self::VocabularyOrder => f.write_str("vocabulary order"),
            Self::Ranked(row) | Self::FamilyDefault(row) => {
                if matches!(self, Self::FamilyDefault(_)) {
                    f.write_str("defaults of ")?;
                }
                let grid = if row.distance == 0.0 { "on the grid" } else { "extrapolated" };
                let Ranking { file, line, rank, distance, source, .. } = row;
                write!(f, "rank {rank} of {file}:{line}, {source}, distance {distance:.3} ({grid})")?;
                row.borrowed_from.map_or(Ok(()), |device| write!(f, ", borrowed from {device}"))
            }
        }
    }
}

/// Something the user should know about a choice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Warning {
    /// Another device's table was used.
    Borrowed {
        /// The device without a table.
        device: Device,
        /// The device whose table was used.
        from: Device,
    },
    /// There is no table to go by.
    NoTable {
        /// The device without a table.
        device: Device,
    },
    /// A class pin matched nothing that runs.
    PinDegraded {
        /// The pin.
        pin: Pin,
        /// Whether the operation has no family of that class that this build may use, whatever the shape.
        class_is_empty: bool,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Borrowed { device, from } => write!(f, "no table for {device}, using that of {from}"),
            Self::NoTable { device } => write!(f, "no table for {device}, choosing by last resort"),
            Self::PinDegraded { pin, class_is_empty: true } => {
                write!(f, "there is no {pin} family here, choosing automatically")
            }
            Self::PinDegraded { pin, class_is_empty: false } => {
                write!(f, "no {pin} family runs this problem, choosing automatically")
            }
        }
    }
}

/// What to run, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The candidate to run.
    pub spelling: Spelling,
    /// What the choice rests on.
    pub why: Why,
    /// What was asked for.
    pub asked: Asked,
    /// The class the choice was limited to, by a pin or by a build without vendor libraries.
    pub limited_to: Option<Class>,
    /// Better-placed candidates that refused, in the order they were asked.
    pub skipped: Vec<(Spelling, Refusal)>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// Chooses what runs `problem`.
///
/// With `vendor_free`, vendor families are never chosen.
///
/// # Errors
/// [`SelectError::PinCannotRun`] for an exact pin that refuses; [`SelectError::NothingRuns`] if all refuse;
/// [`SelectError::Table`] if the table that would decide is malformed.
pub fn choose(
    problem: &Problem<'_>,
    tables: &Tables,
    asked: Asked,
    vendor_free: bool,
    can_run: impl FnMut(&Spelling) -> Result<(), Refusal>,
) -> Result<Choice, SelectError> {
    let vocabulary = problem.vocabulary;
    let mut interview = Interview { can_run, vendor_free, refused: Vec::new() };

    if let Pin::Exact(spelling) = asked.pin {
        interview.admit(spelling).map_err(|refusal| SelectError::PinCannotRun {
            op: vocabulary.op,
            spelling: spelling.to_string(),
            problem: problem.to_string(),
            reason: refusal.to_string(),
            valid: vocabulary.valid_pins(),
        })?;
        let (why, skipped, warnings) = (Why::Pinned, Vec::new(), Vec::new());
        return Ok(Choice { spelling, why, asked, limited_to: None, skipped, warnings });
    }

    let found = tables.find(vocabulary.op, problem.dtype, problem.device)?;
    let mut warnings = Vec::new();
    match &found {
        None => warnings.push(Warning::NoTable { device: problem.device }),
        Some(found) => warnings
            .extend(found.borrowed_from.map(|from| Warning::Borrowed { device: problem.device, from })),
    }
    let row = found
        .and_then(|found| found.table.nearest(problem.key).map(|(row, distance)| (found, row, distance)));
    // A last resort that is not a spelling is rejected by `Vocabulary::check`.
    let resort = vocabulary.last_resort.iter().filter_map(|text| vocabulary.spelling(text).ok());
    let ranking = row.map_or(&[][..], |(_, row, _)| &row.ranking);
    let candidates = || {
        let ranked = ranking.iter().enumerate().flat_map(|(rank, spelling)| {
            let default = spelling.family_default().map(|default| (default, Stage::FamilyDefault(rank)));
            std::iter::once((*spelling, Stage::Ranked(rank))).chain(default)
        });
        ranked
            .chain(resort.clone().map(|spelling| (spelling, Stage::LastResort)))
            .chain(vocabulary.spellings().map(|spelling| (spelling, Stage::VocabularyOrder)))
    };

    let build = vendor_free.then_some(Class::Native);
    let mut limits = vec![asked.pin.class().or(build)];
    if asked.pin.class().is_some() {
        limits.push(build);
    }
    for (attempt, limited_to) in limits.into_iter().enumerate() {
        if attempt > 0 {
            let usable = |class| !(vendor_free && class == Class::Vendor);
            let class_is_empty = !asked.pin.class().is_some_and(|class| {
                usable(class) && vocabulary.candidates.iter().any(|candidate| candidate.class == class)
            });
            warnings.push(Warning::PinDegraded { pin: asked.pin, class_is_empty });
        }
        let runs = candidates()
            .filter(|(spelling, _)| limited_to.is_none_or(|class| spelling.class() == class))
            .find(|(spelling, _)| interview.admit(*spelling).is_ok());
        if let Some((spelling, stage)) = runs {
            let at = |rank| {
                row.map(|(found, row, distance)| Ranking {
                    file: found.file.to_owned(),
                    line: row.line,
                    rank,
                    distance,
                    source: row.source.clone(),
                    borrowed_from: found.borrowed_from,
                })
            };
            let why = match stage {
                Stage::Ranked(rank) => at(rank).map(Why::Ranked),
                Stage::FamilyDefault(rank) => at(rank).map(Why::FamilyDefault),
                Stage::LastResort => Some(Why::LastResort),
                Stage::VocabularyOrder => None,
            }
            .unwrap_or(Why::VocabularyOrder);
            let skipped = interview.refused;
            return Ok(Choice { spelling, why, asked, limited_to, skipped, warnings });
        }
    }
    let refusals = interview.refused.iter().map(|(spelling, refusal)| format!("{spelling}: {refusal}"));
    Err(SelectError::NothingRuns {
        op: vocabulary.op,
        problem: problem.to_string(),
        refusals: refusals.collect::<Vec<_>>().join("; "),
    })
}

/// Where in the walk a candidate was met.
#[derive(Clone, Copy)]
enum Stage {
    Ranked(usize),
    FamilyDefault(usize),
    LastResort,
    VocabularyOrder,
}

/// Asks candidates whether they run, each at most once.
struct Interview<F> {
    can_run: F,
    vendor_free: bool,
    refused: Vec<(Spelling, Refusal)>,
}

impl<F: FnMut(&Spelling) -> Result<(), Refusal>> Interview<F> {
    fn admit(&mut self, spelling: Spelling) -> Result<(), Refusal> {
        if let Some((_, refusal)) = self.refused.iter().find(|(refused, _)| *refused == spelling) {
            return Err(refusal.clone());
        }
        let answer = if self.vendor_free && spelling.class() == Class::Vendor {
            Err("this build has no vendor libraries".into())
        } else {
            (self.can_run)(&spelling)
        };
        if let Err(refusal) = &answer {
            self.refused.push((spelling, refusal.clone()));
        }
        answer
    }
}
