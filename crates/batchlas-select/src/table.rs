//! Tuned tables: one TOML file per operation, scalar type and device.
//!
//! ```toml
//! format = 1
//! op = "potrf"
//! dtype = "f32"
//! device = "sm_90"
//! generated_by = "cargo xtask tune potrf"
//! key = ["uplo", "n", "batch"]
//! rows = [
//!     { key = ["L", 8, 1024], ranking = ["tiny:lanes=8", "vendor"], source = "measured", ns = [1.9, 14.0] },
//! ]
//! ```
//!
//! The file is named `<op>.<dtype>.<device>.toml` and its header must agree. `key` lists the operation's key fields in
//! the order the rows give them. A row's `ranking` is best first; `source` is `measured`, `transcribed:<reference>` or
//! `provisional`; `ns` is the time per item of each ranked entry; `kernel` is the hash of the device code that was
//! timed. Everything else (an unknown field or spelling, a repeated key, another format version) is an error that names
//! file and line. Tables are generated from ledgers, never edited.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use crate::{Device, Key, SelectError, Spelling, Vocabulary};

/// The format version this crate reads and writes.
pub const FORMAT: u32 = 1;

/// Distances closer than this are a tie, which the first row in file order wins.
const TIE: f64 = 1e-9;

/// Where the ranking of a row comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// Timed on the table's device.
    Measured,
    /// Copied from elsewhere without timing; the reference says where.
    Transcribed(String),
    /// A guess that keeps the place of a measurement.
    Provisional,
}

impl Source {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "measured" => Some(Self::Measured),
            "provisional" => Some(Self::Provisional),
            _ => text
                .strip_prefix("transcribed:")
                .filter(|reference| !reference.is_empty())
                .map(|reference| Self::Transcribed(reference.to_owned())),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Transcribed(reference) => write!(f, "transcribed:{reference}"),
            Self::Provisional => f.write_str("provisional"),
        }
    }
}

/// A key and the candidates that serve it, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The tabulated point.
    pub key: Key,
    /// Candidates, best first, at least one, none twice.
    pub ranking: Vec<Spelling>,
    /// Where the ranking comes from.
    pub source: Source,
    /// Nanoseconds per item of each ranked candidate; empty if not timed.
    pub ns: Vec<f64>,
    /// Hash of the device code that was timed.
    pub kernel: Option<String>,
    /// 1-based line in the file.
    pub line: usize,
}

/// What a table is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Scalar type, as in the file name.
    pub dtype: String,
    /// Device it was measured on.
    pub device: Device,
    /// The command that generated it.
    pub generated_by: String,
}

/// The rows of one operation, scalar type and device.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    vocabulary: &'static Vocabulary,
    header: Header,
    rows: Vec<Row>,
    groups: Vec<Group>,
}

/// The rows that share their exact fields, with the logarithms of their log fields side by side.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    exact: Vec<&'static str>,
    rows: Vec<usize>,
    log2: Vec<f64>,
}

#[derive(Deserialize)]
struct RawFormat {
    format: Spanned<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    #[serde(rename = "format")]
    _format: u32,
    op: Spanned<String>,
    dtype: Spanned<String>,
    device: Spanned<String>,
    generated_by: String,
    key: Spanned<Vec<String>>,
    rows: Vec<Spanned<RawRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    key: Vec<RawValue>,
    ranking: Vec<String>,
    source: String,
    #[serde(default)]
    ns: Vec<f64>,
    kernel: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawValue {
    Exact(String),
    Log(u64),
}

impl Table {
    /// A table from rows, checked. `file` names it in errors.
    ///
    /// # Errors
    /// [`SelectError::Table`] for a repeated key, an empty ranking, a candidate ranked twice, or times that are not one
    /// non-negative number per candidate.
    pub fn new(
        vocabulary: &'static Vocabulary,
        header: Header,
        rows: Vec<Row>,
        file: &str,
    ) -> Result<Self, SelectError> {
        let mut first_line: HashMap<&Key, usize> = HashMap::with_capacity(rows.len());
        for row in &rows {
            let bad = |what| Err(SelectError::Table { file: file.to_owned(), line: row.line, what });
            if let Some(line) = first_line.insert(&row.key, row.line) {
                return bad(format!("key {} repeats line {line}", vocabulary.describe(&row.key)));
            }
            if row.ranking.is_empty() {
                return bad("empty ranking, expected at least one spelling".to_owned());
            }
            if let Some((_, twice)) =
                row.ranking.iter().enumerate().find(|(i, spelling)| row.ranking[..*i].contains(spelling))
            {
                return bad(format!("'{twice}' is ranked twice"));
            }
            if !row.ns.is_empty() && row.ns.len() != row.ranking.len() {
                return bad(format!("{} times for {} ranked spellings", row.ns.len(), row.ranking.len()));
            }
            if let Some(ns) = row.ns.iter().find(|ns| !(ns.is_finite() && **ns >= 0.0)) {
                return bad(format!("time {ns} is not a non-negative number of nanoseconds"));
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let place = groups.iter().position(|group| group.exact == row.key.exact()).unwrap_or_else(|| {
                groups.push(Group { exact: row.key.exact().to_vec(), rows: Vec::new(), log2: Vec::new() });
                groups.len() - 1
            });
            groups[place].rows.push(index);
            groups[place].log2.extend(row.key.log2());
        }
        Ok(Self { vocabulary, header, rows, groups })
    }

    /// Reads a table whose file is called `file`.
    ///
    /// # Errors
    /// [`SelectError::Table`] with the line of the first thing that is wrong.
    pub fn parse(vocabulary: &'static Vocabulary, file: &str, text: &str) -> Result<Self, SelectError> {
        let at = |span: Option<Range<usize>>, what: String| {
            let start = span.map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
            SelectError::Table { file: file.to_owned(), line, what }
        };
        let syntax = |error: toml::de::Error| at(error.span(), error.message().to_owned());

        let RawFormat { format } = toml::from_str(text).map_err(syntax)?;
        if *format.get_ref() != FORMAT {
            let what = format!("format is {}, this version reads {FORMAT}", format.get_ref());
            return Err(at(Some(format.span()), what));
        }
        let raw: RawTable = toml::from_str(text).map_err(syntax)?;

        let name = FileName::parse(file)?;
        for (field, given, expected) in [
            ("op", &raw.op, vocabulary.op),
            ("op", &raw.op, name.op),
            ("dtype", &raw.dtype, name.dtype),
            ("device", &raw.device, name.device_text),
        ] {
            if given.get_ref() != expected {
                let what = format!("{field} is '{}', expected '{expected}'", given.get_ref());
                return Err(at(Some(given.span()), what));
            }
        }
        let order =
            field_order(vocabulary, raw.key.get_ref()).map_err(|what| at(Some(raw.key.span()), what))?;

        let mut rows = Vec::with_capacity(raw.rows.len());
        for spanned in raw.rows {
            let span = spanned.span();
            let bad = |what: String| at(Some(span.clone()), what);
            let raw = spanned.into_inner();
            let key = row_key(vocabulary, &order, &raw.key).map_err(bad)?;
            let spellings = raw.ranking.iter().map(|text| vocabulary.spelling(text));
            let ranking = spellings.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
            let source = Source::parse(&raw.source).ok_or_else(|| {
                bad(format!(
                    "source '{}': expected measured, transcribed:<reference> or provisional",
                    raw.source
                ))
            })?;
            let line = match bad(String::new()) {
                SelectError::Table { line, .. } => line,
                _ => 0,
            };
            rows.push(Row { key, ranking, source, ns: raw.ns, kernel: raw.kernel, line });
        }
        let header =
            Header { dtype: raw.dtype.into_inner(), device: name.device, generated_by: raw.generated_by };
        Self::new(vocabulary, header, rows, file)
    }

    /// The table as TOML: what [`Table::parse`] reads back equal, one row a line.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let quote = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
        let Header { dtype, device, generated_by } = &self.header;
        let mut out = format!("format = {FORMAT}\n");
        let mut line = |args: fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            let _ = out.write_fmt(args);
        };
        line(format_args!("op = {}\n", quote(self.vocabulary.op)));
        line(format_args!("dtype = {}\n", quote(dtype)));
        line(format_args!("device = {}\n", quote(&device.to_string())));
        line(format_args!("generated_by = {}\n", quote(generated_by)));
        line(format_args!("key = [{}]\n", list(&mut self.vocabulary.key_fields().map(quote))));
        line(format_args!("rows = [\n"));
        for row in &self.rows {
            let exact = row.key.exact().iter().map(|value| quote(value));
            let key = list(&mut exact.chain(row.key.log().iter().map(u64::to_string)));
            let ranking = list(&mut row.ranking.iter().map(|spelling| quote(&spelling.to_string())));
            let source = quote(&row.source.to_string());
            line(format_args!("    {{ key = [{key}], ranking = [{ranking}], source = {source}"));
            if !row.ns.is_empty() {
                line(format_args!(", ns = [{}]", list(&mut row.ns.iter().map(|ns| format!("{ns:?}")))));
            }
            if let Some(kernel) = &row.kernel {
                line(format_args!(", kernel = {}", quote(kernel)));
            }
            line(format_args!(" }},\n"));
        }
        line(format_args!("]\n"));
        out
    }

    /// The row nearest to `key` and its distance; of equally near ones the first in file order.
    ///
    /// `None` where no row shares the exact fields. O(rows of that group).
    #[must_use]
    pub fn nearest(&self, key: &Key) -> Option<(&Row, f64)> {
        let group = self.groups.iter().find(|group| group.exact == key.exact())?;
        let wanted: Vec<f64> = key.log2().collect();
        let fields = wanted.len().max(1);
        let mut best: Option<(usize, f64)> = None;
        for (place, &row) in group.rows.iter().enumerate() {
            let here = group.log2.iter().skip(place * fields).take(wanted.len()).copied();
            let distance = self.vocabulary.log_distance(wanted.iter().copied(), here);
            if best.is_none_or(|(_, least)| distance < least - TIE) {
                best = Some((row, distance));
            }
        }
        best.map(|(row, distance)| (&self.rows[row], distance))
    }

    /// The rows that share the exact fields of `key`, nearest first.
    #[must_use]
    pub fn around(&self, key: &Key) -> Vec<&Row> {
        let distance = |row: &&Row| self.vocabulary.distance(&row.key, key);
        let mut rows: Vec<_> = self.rows.iter().filter_map(|row| Some((distance(&row)?, row))).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// The operation's vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> &'static Vocabulary {
        self.vocabulary
    }

    /// What the table is about.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Its rows, in file order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
}

/// The parts of `<op>.<dtype>.<device>.toml`.
pub(crate) struct FileName<'a> {
    pub(crate) op: &'a str,
    pub(crate) dtype: &'a str,
    pub(crate) device: Device,
    device_text: &'a str,
}

impl<'a> FileName<'a> {
    pub(crate) fn parse(file: &'a str) -> Result<Self, SelectError> {
        let parts: Vec<&str> = file.split('.').collect();
        match parts[..] {
            [op, dtype, device_text, "toml"] if !op.is_empty() && !dtype.is_empty() => {
                device_text.parse().ok()
            }
            _ => None,
        }
        .map(|device| Self { op: parts[0], dtype: parts[1], device, device_text: parts[2] })
        .ok_or_else(|| SelectError::File {
            file: file.to_owned(),
            what: "a table is called <op>.<dtype>.<device>.toml, as in potrf.f32.sm_90.toml".to_owned(),
        })
    }
}

/// For each key field of the vocabulary, its place in the rows of a file whose header lists `given`.
fn field_order(vocabulary: &Vocabulary, given: &[String]) -> Result<Vec<usize>, String> {
    let fields: Vec<&str> = vocabulary.key_fields().collect();
    if let Some(unknown) = given.iter().find(|name| !fields.contains(&name.as_str())) {
        return Err(format!("unknown key field '{unknown}', expected {}", fields.join(", ")));
    }
    if given.len() != fields.len() {
        return Err(format!("{} key fields, expected each of {} once", given.len(), fields.join(", ")));
    }
    let place = |field: &&str| given.iter().position(|name| name == field);
    fields.iter().map(|field| place(field).ok_or_else(|| format!("key field '{field}' is missing"))).collect()
}

fn row_key(vocabulary: &Vocabulary, order: &[usize], values: &[RawValue]) -> Result<Key, String> {
    if values.len() != order.len() {
        return Err(format!("{} key values, expected {}", values.len(), order.len()));
    }
    let (mut exact, mut log) = (Vec::new(), Vec::new());
    for (field, (name, &place)) in vocabulary.key_fields().zip(order).enumerate() {
        match (&values[place], field < vocabulary.exact.len()) {
            (RawValue::Exact(text), true) => exact.push(text.as_str()),
            (RawValue::Log(number), false) => log.push(*number),
            (RawValue::Exact(text), false) => return Err(format!("{name} is '{text}', expected a number")),
            (RawValue::Log(number), true) => return Err(format!("{name} is {number}, expected a string")),
        }
    }
    vocabulary.key(&exact, &log).map_err(|error| error.to_string())
}
