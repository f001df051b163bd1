//! Turns ledgers into tables.
//!
//! A row of a table ranks what a ledger timed for one key. A timing counts if it is right (no failed item) and clean
//! (relative deviation at most 10%); the latest of a spelling wins, so that a ledger is only ever appended to. It need not
//! be saturated: a row speaks for its own batch. A key whose fastest spelling was never timed cleanly has no row: the
//! others would win by its absence. Tables of operations and devices without a ledger are left alone.
//!
//! A row keeps the digest of the code of its best spelling. Where the code has changed since, a warning names the row: its
//! times are those of another kernel.

use std::collections::BTreeMap;

use batchlas::{Context, Environment, code_digest};
use batchlas_kernels::Arch;
use batchlas_select::{Header, Row, SelectError, Source, Spelling, Table, Vocabulary};

use crate::measure::{Cell, Row as Timing, kernels};
use crate::sweep::{self, Entry};

/// Largest relative deviation of a timing that counts.
const CLEAN: f64 = 0.10;

/// What was timed of one key: the cell, and of each spelling its time and the digest of its code, or its time alone where
/// that is not clean.
struct Times {
    cell: Cell,
    spellings: BTreeMap<String, (f64, Option<String>)>,
    unclean: BTreeMap<String, f64>,
}

impl Times {
    /// Whether a spelling without a clean time may be the fastest.
    fn undecided(&self) -> bool {
        let best = self.spellings.values().map(|(ns, _)| *ns).fold(f64::INFINITY, f64::min);
        self.unclean.iter().any(|(family, ns)| *ns < best && !self.spellings.contains_key(family))
    }
}

/// Key of a table: operation, element type, architecture. Then key values.
type Grid = BTreeMap<(String, String, String), BTreeMap<(Vec<u64>, Vec<&'static str>), Times>>;

/// Why a ledger makes no table.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TablesError(String);

/// One table as a file.
#[derive(Clone, Debug)]
pub struct TableFile {
    /// `<op>.<dtype>.<arch>.toml`.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Rows whose times are those of code that has changed since.
    pub warnings: Vec<String>,
}

/// The tables of ledgers, each given as its name and its text; `generated_by` is the command that will be named.
///
/// # Errors
/// A line that is no row, or names what is no operation or spelling.
pub fn tables(ledgers: &[(String, String)], generated_by: &str) -> Result<Vec<TableFile>, TablesError> {
    let mut grid = Grid::new();
    for (name, text) in ledgers {
        for (line, text) in (1..).zip(text.lines()) {
            let failed = |what: String| TablesError(format!("{name}:{line}: {what}"));
            let timing: Timing = serde_json::from_str(text).map_err(|e| failed(e.to_string()))?;
            add(&mut grid, timing).map_err(failed)?;
        }
    }
    for cells in grid.values_mut() {
        cells.retain(|_, times| !times.undecided());
    }
    grid.retain(|_, cells| !cells.is_empty());
    let files = grid
        .into_iter()
        .map(|((op, dtype, arch), cells)| file(&op, dtype, &arch, cells, generated_by).map_err(TablesError));
    files.collect()
}

/// The tables of a sweep whose routes are rankings: those that somebody else has published for `arch`. Their rows are marked
/// as transcribed from `reference`.
///
/// # Errors
/// A line that is no cell, or names what is no spelling; a key given twice.
pub fn transcribed(
    name: &str,
    text: &str,
    arch: &str,
    reference: &str,
    generated_by: &str,
) -> Result<Vec<TableFile>, TablesError> {
    let failed = |what: String| TablesError(format!("{name}: {what}"));
    let refused = |error: SelectError| failed(error.to_string());
    let mut tables: BTreeMap<(&str, &str), Vec<Row>> = BTreeMap::new();
    for Entry { cell, routes } in sweep::parse(text).map_err(|error| failed(error.to_string()))? {
        let (exact, log) = cell.key();
        let vocabulary = vocabulary(cell.op.name()).map_err(failed)?;
        let ranking = routes.iter().map(|route| vocabulary.spelling(route)).collect::<Result<_, _>>();
        let (key, ranking) = (vocabulary.key(&exact, &log).map_err(refused)?, ranking.map_err(refused)?);
        let source = Source::Transcribed(reference.to_owned());
        let rows = tables.entry((cell.op.name(), cell.dtype.name())).or_default();
        rows.push(Row { key, ranking, source, ns: Vec::new(), kernel: None, line: 0 });
    }
    let file = |((op, dtype), rows): ((&str, &str), Vec<Row>)| {
        let name = format!("{op}.{dtype}.{arch}.toml");
        let (device, dtype) = (arch.parse().map_err(refused)?, dtype.to_owned());
        let header = Header { dtype, device, generated_by: generated_by.to_owned() };
        let table = Table::new(vocabulary(op).map_err(failed)?, header, rows, &name).map_err(refused)?;
        Ok(TableFile { name, text: table.to_toml(), warnings: Vec::new() })
    };
    tables.into_iter().map(file).collect()
}

fn vocabulary(op: &str) -> Result<&'static Vocabulary, String> {
    let found = batchlas::VOCABULARIES.iter().find(|vocabulary| vocabulary.op == op);
    found.copied().ok_or_else(|| format!("{op} is no operation with a table"))
}

fn file(
    op: &str,
    dtype: String,
    arch: &str,
    cells: BTreeMap<(Vec<u64>, Vec<&'static str>), Times>,
    generated_by: &str,
) -> Result<TableFile, String> {
    let text = |error: SelectError| error.to_string();
    let vocabulary = vocabulary(op)?;
    let name = format!("{op}.{dtype}.{arch}.toml");
    let device = arch.parse::<Arch>().ok().and_then(Arch::device);
    let rehearsal = device.map(|device| Context::rehearsing(device, Environment::default()));
    let rehearsal = rehearsal.transpose().map_err(|error| error.to_string())?;
    let stale = cells.values().filter_map(|times| Some((times, stale(times, rehearsal.as_ref()?)?)));
    let warnings = stale
        .map(|(times, best)| format!("{name}: the code of {best} has changed since {} was timed", times.cell))
        .collect();
    let rows = cells.into_iter().map(|(key, times)| row(vocabulary, key, times.spellings).map_err(text));
    let rows = rows.collect::<Result<_, _>>()?;
    let device = arch.parse().map_err(text)?;
    let header = Header { dtype, device, generated_by: generated_by.to_owned() };
    let table = Table::new(vocabulary, header, rows, &name).map_err(text)?;
    Ok(TableFile { name, text: table.to_toml(), warnings })
}

/// Whether a timing is right and clean.
pub fn counts(timing: &Timing) -> bool {
    timing.bad_items == 0 && timing.residual.is_finite() && timing.rel_sd <= CLEAN
}

fn add(grid: &mut Grid, timing: Timing) -> Result<(), String> {
    if timing.bad_items > 0 || !timing.residual.is_finite() {
        return Ok(());
    }
    let cell = timing.cell()?;
    let (exact, log) = cell.key();
    // Knobs in any order are one spelling. What cannot be read is told with the table.
    let vocabulary = batchlas::VOCABULARIES.iter().find(|vocabulary| vocabulary.op == timing.op);
    let read = vocabulary.and_then(|vocabulary| vocabulary.spelling(&timing.family).ok());
    let spelling = read.map_or(timing.family, |spelling| spelling.to_string());
    let table = (timing.op, timing.dtype, timing.arch);
    let cells = grid.entry(table).or_default();
    let nothing = || Times { cell, spellings: BTreeMap::new(), unclean: BTreeMap::new() };
    let times = cells.entry((log, exact)).or_insert_with(nothing);
    if timing.rel_sd <= CLEAN {
        times.spellings.insert(spelling, (timing.ns_per_item, timing.code));
    } else {
        times.unclean.insert(spelling, timing.ns_per_item);
    }
    Ok(())
}

/// The best spelling of a key, if its code is known and is no longer what was timed.
fn stale(times: &Times, rehearsal: &Context) -> Option<String> {
    let (best, (_, code)) = times.spellings.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let code = code.as_ref()?;
    let now = kernels(rehearsal, &times.cell, best).map(|kernels| code_digest(&kernels));
    (now.ok().as_ref() != Some(code)).then(|| best.clone())
}

fn row(
    vocabulary: &'static Vocabulary,
    (log, exact): (Vec<u64>, Vec<&'static str>),
    times: BTreeMap<String, (f64, Option<String>)>,
) -> Result<Row, SelectError> {
    let mut ranked: Vec<(Spelling, f64, Option<String>)> = times
        .into_iter()
        .map(|(family, (ns, code))| Ok((vocabulary.spelling(&family)?, ns, code)))
        .collect::<Result<_, SelectError>>()?;
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    let kernel = ranked.first().and_then(|(_, _, code)| code.clone());
    let (ranking, ns) = ranked.into_iter().map(|(spelling, ns, _)| (spelling, ns)).unzip();
    Ok(Row { key: vocabulary.key(&exact, &log)?, ranking, source: Source::Measured, ns, kernel, line: 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::measure::{Op, Provenance, chosen, rank};
    use batchlas::{Dtype, Executed, Uplo};

    /// What was transcribed is chosen on that device without borrowing, and the trace says what it rests on.
    #[test]
    fn transcribed_rows_say_so_in_the_trace() {
        let text = include_str!("../../../tuned/ledger/sm_89.txt");
        for file in transcribed("sm_89.txt", text, "sm_89", "BatchLAS", "cargo xtask tables").unwrap() {
            let committed = batchlas::TABLES.iter().find(|(name, _)| *name == file.name);
            assert_eq!(committed.map(|(_, text)| *text), Some(&file.text[..]), "run cargo xtask tables");
        }
        let device = "sm_89".parse::<Arch>().unwrap().device().unwrap();
        let records = Arc::new(Mutex::new(Vec::<Executed>::new()));
        let ctx = Context::rehearsing(device, Environment::default()).unwrap().with_recorder(records.clone());
        let cell = Cell { op: Op::Potrf, dtype: Dtype::F32, uplo: Uplo::Lower, n: 16, nrhs: 0, batch: 32768 };
        assert!(chosen(&ctx, &cell).unwrap().starts_with("potrf=tiny"));
        let why = records.lock().unwrap()[0].choice.why.to_string();
        assert!(why.starts_with("rank 0 of potrf.f32.sm_89.toml:"), "{why}");
        assert!(why.contains("transcribed:BatchLAS, distance 0.000") && !why.contains("borrowed"), "{why}");
        let error = transcribed("x", "potrf f32 L 8 4 nonsense", "sm_89", "y", "z").unwrap_err().to_string();
        assert!(error.starts_with("x: ") && error.contains("nonsense"), "{error}");
    }

    #[test]
    fn clean_rows_are_ranked_the_latest_of_a_spelling_counts_and_changed_code_is_told() {
        let cpu = Context::cpu(1).unwrap();
        let cell = Cell { op: Op::Potrf, dtype: Dtype::F64, uplo: Uplo::Lower, n: 6, nrhs: 0, batch: 4 };
        let arms = [("vendor".to_owned(), None)];
        let timed = rank(&cpu, &cell, &arms, 1, &Provenance::default()).unwrap().remove(0);
        let device = "sm_90".parse::<Arch>().unwrap().device().unwrap();
        let rehearsal = Context::rehearsing(device, Environment::default()).unwrap();
        let code = |family: &str| code_digest(&kernels(&rehearsal, &cell, family).unwrap());
        let row = |family: &str, ns: f64, code: &str| Timing {
            arch: "sm_90".into(),
            family: family.into(),
            ns_per_item: ns,
            rel_sd: 0.0,
            saturated: false,
            code: Some(code.to_owned()),
            ..timed.clone()
        };
        let good = code("tiny:lanes=8");
        let bad = [
            Timing { rel_sd: 0.2, ..row("tiny:lanes=4", 0.6, "x") },
            Timing { rel_sd: 0.2, ..row("tiny:lanes=8", 0.1, "x") },
            Timing { bad_items: 1, ..row("tiny:lanes=2", 0.1, "x") },
            Timing { residual: f64::NAN, ..row("tiny:lanes=1", 0.1, "x") },
        ];
        let ledger = |rows: &[Timing]| {
            let lines: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
            [("l.jsonl".to_owned(), lines.join("\n"))]
        };
        let mut rows =
            vec![row("vendor", 1.0, ""), row("tiny:lanes=8", 9.0, "old"), row("tiny:lanes=8", 0.5, &good)];
        rows.extend(bad);
        let [file] = &tables(&ledger(&rows), "test").unwrap()[..] else { panic!("one table") };
        assert_eq!(file.name, "potrf.f64.sm_90.toml");
        let ranking = "key = [\"L\", 6, 4], ranking = [\"tiny:lanes=8\", \"vendor\"]";
        assert!(file.text.contains(ranking) && file.text.contains(&good), "{}", file.text);
        assert!(file.warnings.is_empty(), "{:?}", file.warnings);
        // As merged by union of lines: others' rows between, rows twice.
        let mut merged: Vec<Timing> = rows.iter().flat_map(|row| [row.clone(), row.clone()]).collect();
        merged.sort_by_key(|row| row.family.len());
        let [again] = &tables(&ledger(&merged), "test").unwrap()[..] else { panic!("one table") };
        assert_eq!(again.text, file.text);
        rows.push(Timing { rel_sd: 0.2, ..row("tiny:lanes=2", 0.1, "x") });
        assert!(
            tables(&ledger(&rows), "test").unwrap().is_empty(),
            "its fastest spelling may be tiny:lanes=2"
        );
        let [file] = &tables(&ledger(&[row("tiny:lanes=8", 0.5, "old")]), "test").unwrap()[..] else {
            panic!("one table")
        };
        let [warning] = &file.warnings[..] else { panic!("{:?}", file.warnings) };
        assert!(warning.contains("tiny:lanes=8") && warning.contains("potrf f64 L 6 4"), "{warning}");
        let error = tables(&[("l.jsonl".to_owned(), "{}".to_owned())], "test").unwrap_err().to_string();
        assert!(error.starts_with("l.jsonl:1: "), "{error}");
    }
}
