//! The one error type of selection.

/// Why a selection, a pin or a table was rejected. Messages name what was given and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// A spelling is not in the operation's vocabulary.
    #[error("{op}: '{text}' is not a valid spelling: {what}; valid are: {valid}")]
    Spelling {
        /// Operation.
        op: &'static str,
        /// What was given.
        text: String,
        /// What is wrong with it.
        what: String,
        /// The valid spellings.
        valid: String,
    },
    /// A spelling that was valid once and must not be silently reinterpreted.
    #[error("{op}: '{alias}' is retired, use '{instead}'; valid are: {valid}")]
    Retired {
        /// Operation.
        op: &'static str,
        /// The alias given.
        alias: &'static str,
        /// What replaces it.
        instead: &'static str,
        /// The valid spellings.
        valid: String,
    },
    /// A pin from the environment does not parse.
    #[error("{variable}: {cause}")]
    Environment {
        /// Name of the variable.
        variable: String,
        /// What is wrong with its value.
        cause: Box<SelectError>,
    },
    /// A pinned spelling cannot run this problem.
    #[error("{op}: the pinned '{spelling}' cannot run {problem}: {reason}; valid spellings are: {valid}")]
    PinCannotRun {
        /// Operation.
        op: &'static str,
        /// The pinned spelling.
        spelling: String,
        /// The problem, as its selection key.
        problem: String,
        /// Why the family refuses it.
        reason: String,
        /// The valid spellings.
        valid: String,
    },
    /// No candidate can run this problem.
    #[error("{op}: nothing can run {problem}: {refusals}")]
    NothingRuns {
        /// Operation.
        op: &'static str,
        /// The problem, as its selection key.
        problem: String,
        /// Each candidate and why it refuses.
        refusals: String,
    },
    /// A selection key does not match the operation's key fields.
    #[error("{op}: bad selection key: {what}")]
    Key {
        /// Operation.
        op: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A vocabulary contradicts itself.
    #[error("{op}: bad vocabulary: {what}")]
    Vocabulary {
        /// Operation.
        op: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A device name is neither `cpu` nor `sm_<number>`.
    #[error("'{0}' is not a device: expected cpu or sm_<number>, as in sm_90")]
    Device(String),
    /// A tuned table or a coverage file is malformed.
    #[error("{file}:{line}: {what}")]
    Table {
        /// File name.
        file: String,
        /// 1-based line.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A file could not be read or written, or its name says nothing.
    #[error("{file}: {what}")]
    File {
        /// File or directory.
        file: String,
        /// What is wrong with it.
        what: String,
    },
}
