//! Vocabularies: what an operation can be run by. Owned by the operation's crate, as one `static`.

use std::collections::BTreeSet;

use crate::{ExactField, Knob, LogField, MAX_KNOBS, SelectError, Values};

/// Who wrote the kernels of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// This project.
    Native,
    /// A library.
    Vendor,
}

/// A family and its knobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Family name.
    pub family: &'static str,
    /// Native or vendor.
    pub class: Class,
    /// Knobs, in the order of the short form.
    pub knobs: &'static [Knob],
}

/// A spelling that older versions accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    /// The old spelling.
    pub alias: &'static str,
    /// What to write now.
    pub instead: &'static str,
}

/// Everything selection knows about an operation.
///
/// ```
/// use batchlas_select::{Candidate, Class, ExactField, Knob, LogField, Retired, Values, Vocabulary};
///
/// static POTRF: Vocabulary = Vocabulary {
///     op: "potrf",
///     candidates: &[
///         Candidate { family: "tiny", class: Class::Native, knobs: &[] },
///         Candidate {
///             family: "lpanel",
///             class: Class::Native,
///             knobs: &[Knob { name: "panel", values: Values::OneOf(&[8, 16]), required: true }],
///         },
///         Candidate { family: "vendor", class: Class::Vendor, knobs: &[] },
///     ],
///     last_resort: &["vendor"],
///     retired: &[Retired { alias: "lpanel", instead: "lpanel:panel=8" }],
///     exact: &[ExactField { name: "uplo", values: &["L", "U"] }],
///     log: &[LogField { name: "n", weight: 3.0 }, LogField { name: "batch", weight: 1.0 }],
/// };
///
/// assert_eq!(POTRF.check(), Ok(()));
/// assert_eq!(POTRF.spelling("lpanel:8")?.to_string(), "lpanel:panel=8");
/// # Ok::<(), batchlas_select::SelectError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vocabulary {
    /// Operation, in lower case.
    pub op: &'static str,
    /// Families; their order breaks ties.
    pub candidates: &'static [Candidate],
    /// Spellings to try, in order, when no ranked one runs.
    pub last_resort: &'static [&'static str],
    /// Spellings that must be refused with advice.
    pub retired: &'static [Retired],
    /// Key fields that must match.
    pub exact: &'static [ExactField],
    /// Key fields compared by ratio.
    pub log: &'static [LogField],
}

impl Vocabulary {
    /// Name of the environment variable that pins this operation: `BATCHLAS_POTRF_ROUTE`.
    #[must_use]
    pub fn route_variable(&self) -> String {
        format!("BATCHLAS_{}_ROUTE", self.op.to_ascii_uppercase())
    }

    /// Checks that the vocabulary is consistent. Each operation's tests call this once.
    ///
    /// # Errors
    /// [`SelectError::Vocabulary`] for a name that is not an identifier or is used twice, a family that collides with a
    /// pin class, too many knobs, a knob without values, a last resort that is not a spelling, a retired alias that
    /// still parses, or a weight that is not positive.
    pub fn check(&'static self) -> Result<(), SelectError> {
        self.inconsistency().map_or(Ok(()), |what| Err(SelectError::Vocabulary { op: self.op, what }))
    }

    fn inconsistency(&'static self) -> Option<String> {
        let families = self.candidates.iter().map(|candidate| candidate.family);
        if let Some(name) = unfit(families).or_else(|| unfit(self.key_fields())) {
            return Some(format!("'{name}' is not an identifier, or is used twice"));
        }
        for Candidate { family, class, knobs } in self.candidates {
            if matches!(*family, "auto" | "native") || (*family == "vendor" && *class != Class::Vendor) {
                return Some(format!("family '{family}' collides with a class pin"));
            }
            if knobs.len() > MAX_KNOBS {
                return Some(format!(
                    "{family} has {} knobs, at most {MAX_KNOBS} are supported",
                    knobs.len()
                ));
            }
            if let Some(name) = unfit(knobs.iter().map(|knob| knob.name)) {
                return Some(format!("{family}: knob '{name}' is not an identifier, or is used twice"));
            }
            if let Some(knob) = knobs.iter().find(|knob| !well_formed(knob.values)) {
                return Some(format!("{family}: knob '{}' has no legal values", knob.name));
            }
        }
        if let Some(bad) = self.last_resort.iter().find(|text| self.spelling(text).is_err()) {
            return Some(format!("last resort '{bad}' is not a spelling"));
        }
        if let Some(bad) = self.retired.iter().find(|retired| self.spelling(retired.instead).is_err()) {
            return Some(format!("'{}', which replaces '{}', is not a spelling", bad.instead, bad.alias));
        }
        let canonical: Vec<String> = self.spellings().map(|spelling| spelling.to_string()).collect();
        if let Some(bad) = self.retired.iter().find(|r| canonical.iter().any(|name| name == r.alias)) {
            return Some(format!("retired alias '{}' is a candidate", bad.alias));
        }
        let bad = self.log.iter().find(|field| !(field.weight.is_finite() && field.weight > 0.0));
        bad.map(|field| format!("weight of {} is {}, expected a positive number", field.name, field.weight))
    }
}

/// The first name that is not an identifier or was seen before.
fn unfit(names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let mut seen = BTreeSet::new();
    let identifier = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    names.into_iter().find(|name| !identifier(name) || !seen.insert(*name))
}

fn well_formed(values: Values) -> bool {
    !matches!(values, Values::Range { step: 0, .. }) && values.iter().next().is_some()
}
