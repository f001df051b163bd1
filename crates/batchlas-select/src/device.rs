//! The device a table was measured on.

use std::fmt;
use std::str::FromStr;

use crate::SelectError;

/// A CPU, or a GPU by its compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// Any CPU.
    Cpu,
    /// A GPU: compute capability times ten, so 9.0 is 90.
    Sm(u32),
}

impl Device {
    /// How far another device's measurements are from this one: `None` where they say nothing.
    ///
    /// A CPU borrows from nobody and nobody borrows from it.
    #[must_use]
    pub fn distance(self, other: Self) -> Option<u32> {
        match (self, other) {
            (Self::Sm(a), Self::Sm(b)) => Some(a.abs_diff(b)),
            (Self::Cpu, Self::Cpu) => Some(0),
            _ => None,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Sm(number) => write!(f, "sm_{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        if text == "cpu" {
            return Ok(Self::Cpu);
        }
        text.strip_prefix("sm_")
            .filter(|number| number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0'))
            .and_then(|number| number.parse().ok())
            .map(Self::Sm)
            .ok_or_else(|| SelectError::Device(text.to_owned()))
    }
}
