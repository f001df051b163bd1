//! The `BATCHLAS_*` environment variables, read once and passed around as a value.
//!
//! | variable | effect | read by |
//! |---|---|---|
//! | `BATCHLAS_<OP>_ROUTE` | pin of an operation: `auto`, `native`, `vendor` or a spelling | [`crate::Asked::resolve`] |
//! | `BATCHLAS_TUNED_DIR` | directory of tables that replaces the built-in ones | [`crate::Tables::from_environment`] |
//! | `BATCHLAS_SELECT_TRACE` | `1` prints each executed decision to stderr | [`crate::Observer::from_environment`] |
//! | `BATCHLAS_COVERAGE_OUT` | file that coverage rows are appended to | [`crate::Observer::from_environment`] |
//!
//! Tuning variables of a driver (a block size, say) are the driver's own; selection never reads them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Prefix of every variable of this project.
const PREFIX: &str = "BATCHLAS_";

/// A snapshot of the project's environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The process environment, as it was when first asked for. The only place that reads it.
    #[must_use]
    pub fn process() -> &'static Self {
        static PROCESS: OnceLock<Environment> = OnceLock::new();
        PROCESS.get_or_init(|| {
            let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
            std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
        })
    }

    /// The value of `name`, trimmed; a blank value counts as unset.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    /// Keeps the project's variables, drops all others.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let variables = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        Self { variables }
    }
}
