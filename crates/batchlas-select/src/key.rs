//! Selection keys: what a table row is looked up by, and how far two keys are apart.
//!
//! Exact fields (a triangle, a side) must match. Log fields (orders, right-hand sides, batch) are compared by ratio:
//! the distance of two keys is the sum over log fields of `weight * |log2(a / b)|`. The weight says how strongly the
//! work depends on the field, so an order that enters the work cubed weighs 3.

use crate::{SelectError, Vocabulary};

/// A key field that must match exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExactField {
    /// Name, as in table headers.
    pub name: &'static str,
    /// Legal values.
    pub values: &'static [&'static str],
}

/// A key field compared by ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogField {
    /// Name, as in table headers.
    pub name: &'static str,
    /// Distance per factor of two.
    pub weight: f64,
}

/// A point in an operation's key space. Made by [`Vocabulary::key`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    exact: Vec<&'static str>,
    log: Vec<u64>,
}

impl Key {
    /// Values of the exact fields, in the vocabulary's order.
    #[must_use]
    pub fn exact(&self) -> &[&'static str] {
        &self.exact
    }

    /// Values of the log fields, in the vocabulary's order.
    #[must_use]
    pub fn log(&self) -> &[u64] {
        &self.log
    }

    /// Base-2 logarithms of the log fields.
    pub(crate) fn log2(&self) -> impl Iterator<Item = f64> {
        self.log.iter().map(|&value| (value as f64).log2())
    }
}

impl Vocabulary {
    /// A key from the values of the exact and the log fields, each in the vocabulary's order.
    ///
    /// # Errors
    /// [`SelectError::Key`] for a wrong number of values, an illegal exact value, or a zero (an empty problem has
    /// nothing to select; it returns before).
    pub fn key(&self, exact: &[&str], log: &[u64]) -> Result<Key, SelectError> {
        let bad = |what: String| SelectError::Key { op: self.op, what };
        if exact.len() != self.exact.len() || log.len() != self.log.len() {
            let (e, l) = (self.exact.len(), self.log.len());
            return Err(bad(format!(
                "{} exact and {} log values, expected {e} and {l}",
                exact.len(),
                log.len()
            )));
        }
        let interned = self.exact.iter().zip(exact).map(|(field, given)| {
            field.values.iter().find(|legal| *legal == given).copied().ok_or_else(|| {
                bad(format!("{} is '{given}', expected one of: {}", field.name, field.values.join(", ")))
            })
        });
        if let Some((field, _)) = self.log.iter().zip(log).find(|(_, value)| **value == 0) {
            return Err(bad(format!("{} is 0, expected at least 1", field.name)));
        }
        Ok(Key { exact: interned.collect::<Result<_, _>>()?, log: log.to_vec() })
    }

    /// Distance of two keys; `None` where an exact field differs.
    #[must_use]
    pub fn distance(&self, a: &Key, b: &Key) -> Option<f64> {
        (a.exact == b.exact).then(|| self.log_distance(a.log2(), b.log2()))
    }

    /// The distance over log fields, from their logarithms.
    pub(crate) fn log_distance(
        &self,
        a: impl IntoIterator<Item = f64>,
        b: impl IntoIterator<Item = f64>,
    ) -> f64 {
        self.log.iter().zip(a.into_iter().zip(b)).map(|(field, (a, b))| field.weight * (a - b).abs()).sum()
    }

    /// Names of the key fields: exact ones, then log ones.
    pub fn key_fields(&self) -> impl Iterator<Item = &'static str> {
        self.exact.iter().map(|field| field.name).chain(self.log.iter().map(|field| field.name))
    }

    /// Field names of `key` with their values.
    pub fn key_values(&self, key: &Key) -> impl Iterator<Item = (&'static str, String)> {
        let exact = key.exact.iter().map(|value| (*value).to_owned());
        self.key_fields().zip(exact.chain(key.log.iter().map(u64::to_string)))
    }

    /// `key` for messages: `uplo=L n=17 batch=1024`.
    #[must_use]
    pub fn describe(&self, key: &Key) -> String {
        let fields: Vec<String> =
            self.key_values(key).map(|(name, value)| format!("{name}={value}")).collect();
        fields.join(" ")
    }
}
