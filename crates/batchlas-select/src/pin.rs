//! Pins: what a caller or the environment asks selection for.

use std::fmt;

use crate::{Class, Environment, SelectError, Spelling, Vocabulary};

/// A demand on selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pin {
    /// The tables decide.
    #[default]
    Auto,
    /// The tables decide among this project's families. Degrades to [`Pin::Auto`] with a warning if none runs.
    Native,
    /// A library's family. Degrades to [`Pin::Auto`] with a warning if none runs.
    Vendor,
    /// Exactly this one, or an error.
    Exact(Spelling),
}

impl Pin {
    /// The class that a class pin asks for.
    #[must_use]
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Native => Some(Class::Native),
            Self::Vendor => Some(Class::Vendor),
            Self::Auto | Self::Exact(_) => None,
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Native => f.write_str("native"),
            Self::Vendor => f.write_str("vendor"),
            Self::Exact(spelling) => spelling.fmt(f),
        }
    }
}

/// A pin and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// The pin.
    pub pin: Pin,
    /// Who asked.
    pub by: AskedBy,
}

/// Who asked for a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AskedBy {
    /// Nobody.
    #[default]
    Nobody,
    /// The caller.
    Caller,
    /// `BATCHLAS_<OP>_ROUTE`.
    Environment,
}

impl Asked {
    /// The pin in force: the caller's if there is one, else the environment's, else [`Pin::Auto`].
    ///
    /// # Errors
    /// [`SelectError::Environment`] when the variable is in force and does not parse.
    pub fn resolve(
        vocabulary: &'static Vocabulary,
        caller: Option<Pin>,
        environment: &Environment,
    ) -> Result<Self, SelectError> {
        if let Some(pin) = caller {
            return Ok(Self { pin, by: AskedBy::Caller });
        }
        let variable = vocabulary.route_variable();
        match environment.get(&variable) {
            None => Ok(Self::default()),
            Some(text) => match vocabulary.pin(text) {
                Ok(pin) => Ok(Self { pin, by: AskedBy::Environment }),
                Err(cause) => Err(SelectError::Environment { variable, cause: Box::new(cause) }),
            },
        }
    }
}

impl Vocabulary {
    /// Parses a pin: `auto`, `native`, `vendor` or a spelling.
    ///
    /// # Errors
    /// As [`Vocabulary::spelling`], listing the classes as well.
    pub fn pin(&'static self, text: &str) -> Result<Pin, SelectError> {
        match text.trim() {
            "auto" => Ok(Pin::Auto),
            "native" => Ok(Pin::Native),
            "vendor" => Ok(Pin::Vendor),
            spelling => self.spelling(spelling).map(Pin::Exact).map_err(|mut error| {
                if let SelectError::Spelling { valid, .. } | SelectError::Retired { valid, .. } = &mut error {
                    *valid = self.valid_pins();
                }
                error
            }),
        }
    }
}
