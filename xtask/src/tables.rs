//! `cargo xtask tables`: turns the ledgers of `tuned/ledger` into the tables of `tuned`.
//!
//! A row of a table ranks what a ledger timed for one key. A timing counts if it is right (no failed item), clean
//! (relative deviation at most 10%) and saturated, which a CPU always is; the latest of a spelling wins, so that a ledger is
//! only ever appended to. Tables of operations and devices without a ledger are left alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use batchlas_bench::measure::Row as Timing;
use batchlas_select::{Header, Row, Source, Spelling, Table, Vocabulary};

use crate::Result;

/// Largest relative deviation of a timing that counts.
const CLEAN: f64 = 0.10;

/// Key of a table: operation, element type, architecture. Then key values, and the time of each spelling.
type Grid = BTreeMap<(String, String, String), BTreeMap<(Vec<u64>, Vec<String>), BTreeMap<String, f64>>>;

/// Regenerates every table that a ledger has rows for.
pub(crate) fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        return Err(format!("tables takes no arguments, not `{}`", args.join(" ")).into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let mut ledgers: Vec<_> = fs::read_dir(root.join("tuned/ledger"))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    ledgers.sort();
    let mut grid = Grid::new();
    for ledger in ledgers.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")) {
        for (line, text) in (1..).zip(fs::read_to_string(ledger)?.lines()) {
            let timing: Timing =
                serde_json::from_str(text).map_err(|e| format!("{}:{line}: {e}", ledger.display()))?;
            add(&mut grid, &timing);
        }
    }
    for ((op, dtype, arch), cells) in grid {
        let vocabulary = batchlas::VOCABULARIES.iter().find(|v| v.op == op);
        let vocabulary = vocabulary.ok_or_else(|| format!("a ledger times {op}, which is no operation"))?;
        let file = format!("{op}.{dtype}.{arch}.toml");
        let rows =
            cells.into_iter().map(|(key, times)| row(vocabulary, key, &times)).collect::<Result<_>>()?;
        let header = Header { dtype, device: arch.parse()?, generated_by: "cargo xtask tables".into() };
        let table = Table::new(vocabulary, header, rows, &file)?;
        fs::write(root.join("tuned").join(&file), table.to_toml())?;
        println!("{file}");
    }
    Ok(())
}

fn add(grid: &mut Grid, timing: &Timing) {
    let saturated = timing.saturated || timing.arch == "cpu";
    if timing.bad_items > 0 || timing.rel_sd > CLEAN || !saturated || !timing.residual.is_finite() {
        return;
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let folded = |value: &Option<String>| text(value).replace('C', "T");
    let (n, nrhs, batch) = (timing.n as u64, timing.nrhs.unwrap_or(0).max(1) as u64, timing.batch as u64);
    let letters = || folded(&timing.trans).chars().map(String::from).collect::<Vec<_>>();
    let [m, k] = [timing.m, timing.k].map(|size| size.unwrap_or(0) as u64);
    let key = match timing.op.as_str() {
        "gemm" => (vec![m, n, k, batch], letters()),
        "herk" => (vec![n, k, batch], vec![text(&timing.uplo), folded(&timing.trans)]),
        "potrf" => (vec![n, batch], vec![text(&timing.uplo)]),
        "trsm" => (vec![n, nrhs, batch], vec![text(&timing.side), folded(&timing.trans)]),
        _ => (vec![n, nrhs, batch], vec![text(&timing.uplo)]),
    };
    let table = (timing.op.clone(), timing.dtype.clone(), timing.arch.clone());
    let times = grid.entry(table).or_default().entry(key).or_default();
    times.insert(timing.family.clone(), timing.ns_per_item);
}

fn row(
    vocabulary: &'static Vocabulary,
    (log, exact): (Vec<u64>, Vec<String>),
    times: &BTreeMap<String, f64>,
) -> Result<Row> {
    let exact: Vec<&str> = exact.iter().map(String::as_str).collect();
    let mut ranked: Vec<(Spelling, f64)> =
        times.iter().map(|(family, &ns)| Ok((vocabulary.spelling(family)?, ns))).collect::<Result<_>>()?;
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (ranking, ns) = ranked.into_iter().unzip();
    Ok(Row {
        key: vocabulary.key(&exact, &log)?,
        ranking,
        source: Source::Measured,
        ns,
        kernel: None,
        line: 0,
    })
}
