//! Status per item, as the caller sees it.

use batchlas_core::{Buffer, Queue, Ran, Result};

/// The status of every item: 0, or the 1-based order of the first leading minor whose pivot is not positive and
/// finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info(Vec<i32>);

impl Info {
    /// Whether every item succeeded.
    pub fn ok(&self) -> bool {
        self.0.iter().all(|&status| status == 0)
    }

    /// Index and status of the first item that failed.
    pub fn first_failure(&self) -> Option<(usize, i32)> {
        self.failures().next()
    }

    /// Index and status of every item that failed.
    pub fn failures(&self) -> impl Iterator<Item = (usize, i32)> {
        self.iter().enumerate().filter(|&(_, status)| status != 0)
    }

    /// The status of every item, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = i32> {
        self.0.iter().copied()
    }

    /// The statuses as a slice.
    pub fn as_slice(&self) -> &[i32] {
        &self.0
    }
}

impl From<Vec<i32>> for Info {
    fn from(statuses: Vec<i32>) -> Self {
        Info(statuses)
    }
}

/// An operation that was enqueued.
#[derive(Debug)]
#[must_use = "items can fail: call `wait` and look at the info"]
pub struct Pending<'c> {
    pub(crate) queue: &'c dyn Queue,
    pub(crate) info: Buffer<i32>,
    pub(crate) ran: Ran,
}

impl Pending<'_> {
    /// What was executed.
    pub fn ran(&self) -> &Ran {
        &self.ran
    }

    /// Waits for the operation, and everything enqueued before it, and returns the status of every item.
    ///
    /// # Errors
    /// Work enqueued earlier failed.
    pub fn wait(self) -> Result<Info> {
        Ok(Info(self.info.to_vec(self.queue)?))
    }
}

/// What [`Context::posv_jittered`](crate::Context::posv_jittered) did.
#[derive(Clone, Debug)]
pub struct Jittered {
    /// Status of each item: 0 if it was solved, with or without a shift, otherwise that of A as it was given.
    pub info: Info,
    /// Shift of each item, in units of A: 0 if it was solved as given, `s` if `(A + s I) X = B` was solved, NaN if nothing
    /// was.
    pub shifts: Vec<f64>,
    /// What was executed: the whole batch, then each retry.
    pub ran: Ran,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_found_with_their_index() {
        let info = Info::from(vec![0, 0, 3, 0, 1]);
        assert!(!info.ok());
        assert_eq!(info.first_failure(), Some((2, 3)));
        assert_eq!(info.failures().collect::<Vec<_>>(), [(2, 3), (4, 1)]);
        assert!(Info::from(vec![0; 3]).ok());
        assert_eq!(Info::from(vec![]).first_failure(), None);
    }
}
