//! What a run did, as a line for people or as one JSON object.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// Failures, and shifts, that a report lists; the rest is a count.
pub(crate) const LISTED_FAILURES: usize = 10;

/// An item whose factorisation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// Index of the item.
    pub(crate) item: usize,
    /// 1-based order of the leading minor that is not positive, or index of the zero on the diagonal.
    pub(crate) info: i32,
}

/// An item that was solved with a shifted diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Shift {
    /// Index of the item.
    pub(crate) item: usize,
    /// What was added to its diagonal.
    pub(crate) shift: f64,
}

/// The largest residual. JSON has no NaN: it is written as null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Worst {
    /// Index of the item.
    pub(crate) item: usize,
    /// Its residual.
    pub(crate) residual: f64,
}

impl Worst {
    /// The worse of two; NaN is worse than any number.
    pub(crate) fn or(self, other: Worst) -> Worst {
        let key = |w: Worst| (w.residual.is_nan(), w.residual);
        if key(other) > key(self) { other } else { self }
    }
}

/// Everything a run has to say.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) operation: &'static str,
    pub(crate) dtype: &'static str,
    pub(crate) items: usize,
    pub(crate) n: usize,
    pub(crate) failed: usize,
    /// The first [`LISTED_FAILURES`].
    pub(crate) failures: Vec<Failure>,
    /// Items that were solved with a shift, and the first [`LISTED_FAILURES`] of them.
    pub(crate) shifted: usize,
    pub(crate) shifts: Vec<Shift>,
    /// With `--check`, over the items that did not fail; null if there are none.
    pub(crate) worst: Option<Worst>,
    pub(crate) checked: bool,
    pub(crate) seconds: f64,
    /// Time inside the operation, without files and checks.
    pub(crate) compute_seconds: f64,
    /// Every distinct thing that ran, over the chunks.
    pub(crate) executed: BTreeSet<String>,
    pub(crate) device: String,
    pub(crate) output: PathBuf,
}

impl Report {
    /// Counts the statuses of items `first..`.
    pub(crate) fn count(&mut self, first: usize, statuses: impl Iterator<Item = (usize, i32)>) {
        for (item, info) in statuses {
            self.failed += 1;
            if self.failures.len() < LISTED_FAILURES {
                self.failures.push(Failure { item: first + item, info });
            }
        }
    }

    /// Counts the shifts of items `first..`; a failed item has NaN.
    pub(crate) fn count_shifts(&mut self, first: usize, shifts: &[f64]) {
        for (item, &shift) in shifts.iter().enumerate().filter(|(_, shift)| **shift > 0.0) {
            self.shifted += 1;
            if self.shifts.len() < LISTED_FAILURES {
                self.shifts.push(Shift { item: first + item, shift });
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executed: Vec<&str> = self.executed.iter().map(String::as_str).collect();
        write!(
            f,
            "{}: {} items of order {} in {}, {} failed",
            self.operation, self.items, self.n, self.dtype, self.failed
        )?;
        if self.checked {
            match self.worst {
                Some(Worst { item, residual }) => write!(f, ", worst residual {residual:.2e} (item {item})")?,
                None => f.write_str(", nothing to check")?,
            }
        }
        write!(
            f,
            ", {} ({} computing), ran {} on {}",
            seconds(self.seconds),
            seconds(self.compute_seconds),
            if executed.is_empty() { "nothing".into() } else { executed.join(" and ") },
            self.device
        )?;
        for Shift { item, shift } in &self.shifts {
            write!(f, "\n  item {item} was solved with {shift:.2e} added to its diagonal")?;
        }
        if self.shifted > self.shifts.len() {
            write!(f, "\n  and {} more", self.shifted - self.shifts.len())?;
        }
        for Failure { item, info } in &self.failures {
            write!(f, "\n  item {item} failed: info {info}")?;
        }
        if self.failed > self.failures.len() {
            write!(
                f,
                "\n  and {} more; failed items are NaN in the output",
                self.failed - self.failures.len()
            )?;
        }
        Ok(())
    }
}

fn seconds(seconds: f64) -> String {
    format!("{:.3?}", Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_worse_than_any_number_and_ties_keep_the_first() {
        let worst = |item, residual| Worst { item, residual };
        assert_eq!(worst(0, 1.0).or(worst(1, 2.0)).item, 1);
        assert_eq!(worst(0, 2.0).or(worst(1, 1.0)).item, 0);
        assert_eq!(worst(0, 1.0).or(worst(1, 1.0)).item, 0);
        assert_eq!(worst(0, f64::INFINITY).or(worst(1, f64::NAN)).item, 1);
        assert_eq!(worst(0, f64::NAN).or(worst(1, 3.0)).item, 0);
        assert_eq!(worst(0, f64::NAN).or(worst(1, f64::NAN)).item, 0);
    }
}
