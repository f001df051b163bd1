//! Facts about a table that no parser can judge: what ranks first where, and what looks odd.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Class, Source, Spelling, Table};

/// Counts over a group of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Rows in the group.
    pub rows: usize,
    /// How often each candidate ranks first.
    pub first: BTreeMap<String, usize>,
    /// How often each ranking occurs, written `a | b | c`.
    pub rankings: BTreeMap<String, usize>,
    /// How often each source occurs.
    pub sources: BTreeMap<String, usize>,
}

/// Counts over the groups that `group` sorts rows into, by key field values.
#[must_use]
pub fn facts(table: &Table, group: impl Fn(&BTreeMap<&str, String>) -> String) -> BTreeMap<String, Facts> {
    let mut groups: BTreeMap<String, Facts> = BTreeMap::new();
    for row in table.rows() {
        let facts = groups.entry(group(&table.vocabulary().key_values(&row.key).collect())).or_default();
        let names: Vec<String> = row.ranking.iter().map(Spelling::to_string).collect();
        facts.rows += 1;
        *facts.first.entry(names[0].clone()).or_default() += 1;
        *facts.rankings.entry(names.join(" | ")).or_default() += 1;
        *facts.sources.entry(row.source.to_string()).or_default() += 1;
    }
    groups
}

/// Something odd in a table. None of these makes it wrong to use.
#[derive(Debug, Clone, PartialEq)]
pub enum Lint {
    /// A candidate is in no row, so automatic choice never takes it here.
    NeverRanked(Spelling),
    /// A row's times are not ascending: the ranking is not the fastest first.
    TimesDisagree {
        /// Line of the row.
        line: usize,
        /// The candidate that is slower than its successor.
        slower: Spelling,
        /// That successor.
        faster: Spelling,
    },
    /// A measured row has no times, so nothing can check it.
    MeasuredWithoutTimes {
        /// Line of the row.
        line: usize,
    },
    /// A row ranks vendor families only: a build without them falls to the last resort.
    NoNative {
        /// Line of the row.
        line: usize,
    },
    /// Rows that were not timed on this device.
    NotMeasured {
        /// How many.
        rows: usize,
    },
    /// Within the rows of some exact fields, combinations of the tabulated log values are missing.
    Holes {
        /// Values of the exact fields.
        exact: Vec<&'static str>,
        /// How many combinations have no row.
        missing: usize,
    },
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverRanked(spelling) => write!(f, "{spelling} is in no row"),
            Self::TimesDisagree { line, slower, faster } => {
                write!(f, "line {line}: {slower} ranks before {faster} but is slower")
            }
            Self::MeasuredWithoutTimes { line } => write!(f, "line {line}: measured, but without times"),
            Self::NoNative { line } => write!(f, "line {line}: ranks no native family"),
            Self::NotMeasured { rows } => write!(f, "{rows} rows are not measured"),
            Self::Holes { exact, missing } => write!(f, "{}: {missing} grid points missing", exact.join(" ")),
        }
    }
}

/// Everything odd about a table: row by row, then about the whole.
#[must_use]
pub fn lint(table: &Table) -> Vec<Lint> {
    let rows = table.rows();
    let mut lints = Vec::new();
    for row in rows {
        let line = row.line;
        for (pair, ns) in row.ranking.windows(2).zip(row.ns.windows(2)) {
            if ns[0] > ns[1] {
                lints.push(Lint::TimesDisagree { line, slower: pair[0], faster: pair[1] });
            }
        }
        if row.source == Source::Measured && row.ns.is_empty() {
            lints.push(Lint::MeasuredWithoutTimes { line });
        }
        if row.ranking.iter().all(|spelling| spelling.class() == Class::Vendor) {
            lints.push(Lint::NoNative { line });
        }
    }
    let not_measured = rows.iter().filter(|row| row.source != Source::Measured).count();
    if not_measured > 0 {
        lints.push(Lint::NotMeasured { rows: not_measured });
    }
    lints.extend(holes(table));
    let ranked = |spelling: &Spelling| rows.iter().any(|row| row.ranking.contains(spelling));
    lints.extend(table.vocabulary().spellings().filter(|spelling| !ranked(spelling)).map(Lint::NeverRanked));
    lints
}

/// Per combination of exact fields: rows against the product of the distinct values of each log field.
fn holes(table: &Table) -> Vec<Lint> {
    let mut groups: BTreeMap<Vec<&'static str>, Vec<&[u64]>> = BTreeMap::new();
    for row in table.rows() {
        groups.entry(row.key.exact().to_vec()).or_default().push(row.key.log());
    }
    let distinct = |points: &[&[u64]], field: usize| {
        let mut values: Vec<u64> = points.iter().map(|point| point[field]).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let missing = |points: &[&[u64]]| {
        let grid: usize = (0..table.vocabulary().log.len()).map(|field| distinct(points, field)).product();
        grid - points.len()
    };
    let holes = groups.into_iter().map(|(exact, points)| (exact, missing(&points)));
    holes.filter(|(_, missing)| *missing > 0).map(|(exact, missing)| Lint::Holes { exact, missing }).collect()
}
