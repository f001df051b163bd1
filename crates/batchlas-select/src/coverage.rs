//! Coverage rows: what ran, as JSON lines, and the difference of two runs.
//!
//! One row per executed operation, children included. `path` says inside what it ran (`posv/potrf`), `chosen_algo` is
//! the spelling that ran. A run covers a cell (path, type, device, key) whenever a row names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Executed, SelectError};

/// One executed operation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The point that was reached.
    #[serde(flatten)]
    pub cell: Cell,
    /// The pin that was asked for.
    pub asked: String,
    /// The spelling that ran.
    pub chosen_algo: String,
    /// What the choice rests on.
    pub why: String,
    /// Distance of the table row that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<f64>,
    /// Warnings of the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A point that a run can reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Operations from the outermost one down, joined by `/`.
    pub path: String,
    /// Scalar type.
    pub dtype: String,
    /// Device.
    pub device: String,
    /// Selection key.
    pub key: BTreeMap<String, String>,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.path, self.dtype, self.device)?;
        self.key.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// The rows of a record and everything below it, one JSON object a line.
#[must_use]
pub fn to_json_lines(record: &Executed) -> String {
    let mut out = String::new();
    push_lines(record, "", &mut out);
    out
}

fn push_lines(record: &Executed, parent: &str, out: &mut String) {
    let path = if parent.is_empty() { record.op.to_owned() } else { format!("{parent}/{}", record.op) };
    let row = Row {
        cell: Cell {
            path: path.clone(),
            dtype: record.dtype.clone(),
            device: record.device.clone(),
            key: record.key.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        },
        asked: record.asked.clone(),
        chosen_algo: record.spelling.to_string(),
        why: record.choice.why.to_string(),
        distance: record.distance(),
        warnings: record.choice.warnings.iter().map(ToString::to_string).collect(),
    };
    match serde_json::to_string(&row) {
        Ok(json) => {
            out.push_str(&json);
            out.push('\n');
        }
        Err(error) => tracing::warn!("cannot write coverage: {error}"),
    }
    for child in &record.children {
        push_lines(child, &path, out);
    }
}

/// Reads coverage rows; `file` names the text in errors. Blank lines are skipped.
///
/// # Errors
/// [`SelectError::Table`] with the line that is not a row.
pub fn parse(file: &str, text: &str) -> Result<Vec<Row>, SelectError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| SelectError::Table {
            file: file.to_owned(),
            line: index + 1,
            what: format!("not a coverage row: {error}"),
        })
    };
    lines.map(row).collect()
}

/// Reads a coverage file.
///
/// # Errors
/// [`SelectError::File`] if it cannot be read, else as [`parse`].
pub fn read(path: &Path) -> Result<Vec<Row>, SelectError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&file, &text),
        Err(error) => Err(SelectError::File { file, what: error.to_string() }),
    }
}

/// How the spellings that ran differ between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteDiff {
    /// Cells that both runs reached with other spellings: those of the first and of the second run.
    pub changed: BTreeMap<Cell, (BTreeSet<String>, BTreeSet<String>)>,
    /// Cells that only the first run reached.
    pub only_a: BTreeSet<Cell>,
    /// Cells that only the second run reached.
    pub only_b: BTreeSet<Cell>,
    /// Number of cells that both runs reached with the same spellings.
    pub same: usize,
}

impl RouteDiff {
    /// Whether both runs reached the same cells with the same spellings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.only_a.is_empty() && self.only_b.is_empty()
    }
}

impl fmt::Display for RouteDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        for (cell, (a, b)) in &self.changed {
            writeln!(f, "{cell}: {} -> {}", list(a), list(b))?;
        }
        self.only_a.iter().try_for_each(|cell| writeln!(f, "{cell}: only in the first run"))?;
        self.only_b.iter().try_for_each(|cell| writeln!(f, "{cell}: only in the second run"))?;
        writeln!(f, "{} cells are the same", self.same)
    }
}

/// Compares two runs cell by cell.
#[must_use]
pub fn route_diff(a: &[Row], b: &[Row]) -> RouteDiff {
    let mut a = spellings_by_cell(a);
    let mut diff = RouteDiff::default();
    for (cell, in_b) in spellings_by_cell(b) {
        match a.remove(&cell) {
            None => _ = diff.only_b.insert(cell),
            Some(in_a) if in_a == in_b => diff.same += 1,
            Some(in_a) => _ = diff.changed.insert(cell, (in_a, in_b)),
        }
    }
    diff.only_a = a.into_keys().collect();
    diff
}

fn spellings_by_cell(rows: &[Row]) -> BTreeMap<Cell, BTreeSet<String>> {
    let mut cells: BTreeMap<Cell, BTreeSet<String>> = BTreeMap::new();
    for row in rows {
        cells.entry(row.cell.clone()).or_default().insert(row.chosen_algo.clone());
    }
    cells
}
