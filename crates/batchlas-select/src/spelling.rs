//! Spellings: the one name of a way to run an operation, `family[:knob=value]*`.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::{Candidate, Class, SelectError, Vocabulary};

/// Most knobs a family may declare.
pub const MAX_KNOBS: usize = 6;

/// The value of a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A number.
    Int(u32),
    /// An identifier.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Word(value) => f.write_str(value),
        }
    }
}

/// The values a knob accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Any of these numbers.
    OneOf(&'static [u32]),
    /// `min`, `min + step`, ... up to `max`.
    Range {
        /// Smallest value.
        min: u32,
        /// Largest value.
        max: u32,
        /// Distance of neighbours, at least 1.
        step: u32,
    },
    /// Any of these identifiers.
    Words(&'static [&'static str]),
}

impl Values {
    /// Every legal value, in declared order.
    pub fn iter(self) -> impl Iterator<Item = Value> {
        let (ints, range, words): (&[u32], _, &[&str]) = match self {
            Self::OneOf(ints) => (ints, None, &[]),
            Self::Range { min, max, step } => (&[], Some((min..=max).step_by(step.max(1) as usize)), &[]),
            Self::Words(words) => (&[], None, words),
        };
        let ints = ints.iter().copied().chain(range.into_iter().flatten()).map(Value::Int);
        ints.chain(words.iter().copied().map(Value::Word))
    }

    /// The legal value that `text` denotes.
    fn parse(self, text: &str) -> Option<Value> {
        let number = || text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match self {
            Self::OneOf(ints) => number().filter(|value| ints.contains(value)).map(Value::Int),
            Self::Range { min, max, step } => number()
                .filter(|value| (min..=max).contains(value) && (value - min) % step.max(1) == 0)
                .map(Value::Int),
            Self::Words(words) => words.iter().find(|word| **word == text).copied().map(Value::Word),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Range { min, max, step } = self {
            return write!(f, "{min}..{max} step {step}");
        }
        for (i, value) in self.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "" } else { "|" })?;
        }
        Ok(())
    }
}

/// A tuning parameter of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Name.
    pub name: &'static str,
    /// Legal values.
    pub values: Values,
    /// Whether a spelling must give it. An optional knob left out is the family's own choice.
    pub required: bool,
}

/// A family of one operation with its knobs. Exists only if its vocabulary knows it, and prints canonically.
#[derive(Clone, Copy)]
pub struct Spelling {
    candidate: &'static Candidate,
    values: [Option<Value>; MAX_KNOBS],
}

impl Spelling {
    /// Family name.
    #[must_use]
    pub const fn family(&self) -> &'static str {
        self.candidate.family
    }

    /// Native or vendor.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.candidate.class
    }

    /// This family with every knob left to it; `None` where that is this spelling itself, or a knob must be given.
    #[must_use]
    pub fn family_default(&self) -> Option<Self> {
        let free = self.candidate.knobs.iter().all(|knob| !knob.required);
        let given = self.values.iter().any(Option::is_some);
        (free && given).then_some(Self { candidate: self.candidate, values: [None; MAX_KNOBS] })
    }

    /// Value of a knob; `None` where it was left out or does not exist.
    #[must_use]
    pub fn knob(&self, name: &str) -> Option<Value> {
        let position = self.candidate.knobs.iter().position(|knob| knob.name == name)?;
        self.values.get(position).copied().flatten()
    }

    /// Value of a numeric knob.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<u32> {
        match self.knob(name) {
            Some(Value::Int(value)) => Some(value),
            _ => None,
        }
    }
}

impl PartialEq for Spelling {
    fn eq(&self, other: &Self) -> bool {
        self.family() == other.family() && self.values == other.values
    }
}

impl Eq for Spelling {}

impl Hash for Spelling {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.family(), self.values).hash(state);
    }
}

impl fmt::Display for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family())?;
        for (knob, value) in self.candidate.knobs.iter().zip(self.values) {
            if let Some(value) = value {
                write!(f, ":{}={value}", knob.name)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Spelling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Vocabulary {
    /// Parses a spelling: `family`, then knobs as `name=value` in any order or as bare values in declared order.
    ///
    /// # Errors
    /// [`SelectError::Retired`] for a retired alias, else [`SelectError::Spelling`]; both list the valid spellings.
    pub fn spelling(&'static self, text: &str) -> Result<Spelling, SelectError> {
        let text = text.trim();
        if let Some(retired) = self.retired.iter().find(|retired| retired.alias == text) {
            return Err(SelectError::Retired {
                op: self.op,
                alias: retired.alias,
                instead: retired.instead,
                valid: self.valid(),
            });
        }
        self.parse(text).map_err(|what| SelectError::Spelling {
            op: self.op,
            text: text.to_owned(),
            what,
            valid: self.valid(),
        })
    }

    fn parse(&'static self, text: &str) -> Result<Spelling, String> {
        let mut parts = text.split(':');
        let family = parts.next().unwrap_or_default();
        let candidate = self
            .candidates
            .iter()
            .find(|candidate| candidate.family == family)
            .ok_or_else(|| format!("no family '{family}'"))?;
        let mut values = [None; MAX_KNOBS];
        for (place, part) in parts.enumerate() {
            let (place, value) = match part.split_once('=') {
                Some((name, value)) => {
                    let named = candidate.knobs.iter().position(|knob| knob.name == name);
                    (named.ok_or_else(|| format!("{family} has no knob '{name}'"))?, value)
                }
                None => (place, part),
            };
            let (Some(knob), Some(slot)) = (candidate.knobs.get(place), values.get_mut(place)) else {
                return Err(format!("{family} takes {} knobs", candidate.knobs.len()));
            };
            if slot.is_some() {
                return Err(format!("knob '{}' is given twice", knob.name));
            }
            *slot = Some(knob.values.parse(value).ok_or_else(|| {
                format!("knob '{}' is '{value}', expected one of {}", knob.name, knob.values)
            })?);
        }
        match candidate.knobs.iter().zip(values).find(|(knob, value)| knob.required && value.is_none()) {
            Some((knob, _)) => Err(format!("{family} needs knob '{}'", knob.name)),
            None => Ok(Spelling { candidate, values }),
        }
    }

    /// Every candidate in tie-break order: required knobs take each legal value, optional ones are left out.
    pub fn spellings(&'static self) -> impl Iterator<Item = Spelling> {
        self.expanded(|knob| knob.required)
    }

    /// Every spelling that there is, optional knobs left out and given.
    pub fn all_spellings(&'static self) -> impl Iterator<Item = Spelling> {
        self.expanded(|_| true)
    }

    /// Every candidate with each legal value of the knobs that `varied` picks, an optional one also left out.
    fn expanded(&'static self, varied: fn(&Knob) -> bool) -> impl Iterator<Item = Spelling> {
        self.candidates.iter().flat_map(move |candidate| {
            let mut expanded = vec![Spelling { candidate, values: [None; MAX_KNOBS] }];
            for (place, knob) in candidate.knobs.iter().enumerate().take(MAX_KNOBS) {
                if varied(knob) {
                    let absent = (!knob.required).then_some(None);
                    let values: Vec<_> = absent.into_iter().chain(knob.values.iter().map(Some)).collect();
                    let vary = |spelling: Spelling| {
                        values.iter().map(move |&value| {
                            let mut varied = spelling;
                            varied.values[place] = value;
                            varied
                        })
                    };
                    expanded = expanded.into_iter().flat_map(vary).collect();
                }
            }
            expanded
        })
    }

    /// The valid spellings, for messages.
    fn valid(&self) -> String {
        let family = |candidate: &Candidate| {
            let knobs = candidate.knobs.iter().map(|knob| match knob.required {
                true => format!(":{}={}", knob.name, knob.values),
                false => format!("[:{}={}]", knob.name, knob.values),
            });
            format!("{}{}", candidate.family, knobs.collect::<String>())
        };
        self.candidates.iter().map(family).collect::<Vec<_>>().join(", ")
    }

    /// What a pin of this operation may say, for messages.
    #[must_use]
    pub fn valid_pins(&self) -> String {
        format!("auto, native, vendor, {}", self.valid())
    }
}
