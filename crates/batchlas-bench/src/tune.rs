//! The tuner: for every cell of a grid, which spelling is fastest here.
//!
//! Rows go to a ledger, all rows of a cell in one write, each saying its place among them. So a run that was killed leaves
//! a ledger whose last cell may be incomplete and nothing else in doubt: [`Ledger::open`] takes an incomplete tail off and
//! knows what is done.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use batchlas::{Context, Result, code_digest};

use crate::measure::{Cell, Row, kernels};
use crate::sweep;

/// The committed grids, by operation.
static GRIDS: &[(&str, &str)] = &[
    ("potrf", include_str!("../grids/potrf.txt")),
    ("posv", include_str!("../grids/posv.txt")),
    ("trsm", include_str!("../grids/trsm.txt")),
    ("gemm", include_str!("../grids/gemm.txt")),
    ("herk", include_str!("../grids/herk.txt")),
];

/// See [`off_grid`].
static QUALITY: &str = include_str!("../grids/quality.txt");

/// The committed grid of an operation, if it has one.
pub fn grid(op: &str) -> Option<Vec<Cell>> {
    let (_, text) = GRIDS.iter().find(|(name, _)| *name == op)?;
    // A test reads all of them.
    sweep::grid(text).ok()
}

/// Problems that no grid has, by which the tables' choice is judged: `grids/quality.txt`, drawn from a seed (a test draws
/// them again).
pub fn off_grid() -> Vec<Cell> {
    sweep::grid(QUALITY).unwrap_or_default()
}

/// The operations with a committed grid.
pub fn ops() -> impl Iterator<Item = &'static str> {
    GRIDS.iter().map(|(op, _)| *op)
}

/// The spellings that are to be timed for a cell, each with the digest of the code that it launches; with `every`, all
/// that there are. Those that a device cannot run are left out; on a CPU nobody is asked before the contest.
///
/// # Errors
/// As for [`Context::contenders`].
pub fn arms(
    ctx: &Context,
    rehearsal: &Context,
    cell: &Cell,
    every: bool,
) -> Result<Vec<(String, Option<String>)>> {
    let (exact, log) = cell.key();
    let names = ctx.contenders(cell.op.name(), cell.dtype, (&exact, &log), every)?;
    if !ctx.device().is_gpu() {
        return Ok(names.into_iter().map(|name| (name, None)).collect());
    }
    let launched = |name: String| {
        let digest = kernels(rehearsal, cell, &name).map(|kernels| code_digest(&kernels));
        digest.ok().map(|digest| (name, (!digest.is_empty()).then_some(digest)))
    };
    Ok(names.into_iter().filter_map(launched).collect())
}

/// A ledger that is appended to cell by cell.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    done: HashSet<String>,
}

/// What [`Ledger::open`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Cells that are complete.
    pub cells: usize,
    /// Bytes of an incomplete last cell, taken off.
    pub dropped: u64,
}

impl Ledger {
    /// Opens a ledger, which need not exist.
    ///
    /// # Errors
    /// The file cannot be read or written; a line that is no row, unless it is the last one and was cut off.
    pub fn open(path: &Path) -> io::Result<(Ledger, Found)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (mut done, mut kept, mut end) = (HashSet::new(), 0, 0);
        for (line, text) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
            let row = serde_json::from_slice::<Row>(text).map_err(|error| error.to_string());
            let row = row.and_then(|row| row.cell().map(|cell| (cell, row.part)));
            end += text.len();
            match row {
                _ if !text.ends_with(b"\n") => {}
                Ok((cell, Some([place, of]))) if place == of => {
                    done.insert(cell.to_string());
                    kept = end;
                }
                Ok((_, Some(_))) => {}
                Ok((_, None)) => kept = end,
                Err(what) => return Err(io::Error::other(format!("line {line}: {what}"))),
            }
        }
        file.set_len(kept as u64)?;
        file.seek(SeekFrom::End(0))?;
        let found = Found { cells: done.len(), dropped: (bytes.len() - kept) as u64 };
        Ok((Ledger { file, done }, found))
    }

    /// Whether the rows of a cell are there.
    pub fn has(&self, cell: &Cell) -> bool {
        self.done.contains(&cell.to_string())
    }

    /// Appends all rows of one cell and waits until they are stored.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, cell: &Cell, mut rows: Vec<Row>) -> io::Result<()> {
        let of = rows.len();
        let mut text = Vec::new();
        for (place, row) in (1..).zip(&mut rows) {
            row.part = Some([place, of]);
            serde_json::to_writer(&mut text, row)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        self.file.sync_data()?;
        self.done.insert(cell.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrices::Random;
    use crate::measure::{Op, Product, Provenance, Solve, rank};
    use batchlas::{Diag, Dtype, Side, Trans, Uplo};

    /// Problems as a user may have them: every operation and type in turn, sizes and batches log-uniform, at most 96 MiB.
    fn draw(seed: u64, count: usize) -> Vec<Cell> {
        const BYTES: f64 = (96 << 20) as f64;
        let mut random = Random::new(seed, 0);
        let mut uniform = || (random.real() + 1.0) / 2.0;
        let log =
            |uniform: f64, low: f64, high: f64| (low * (high / low).powf(uniform) + 0.5).floor() as usize;
        let gridded: HashSet<String> =
            ops().filter_map(grid).flatten().map(|cell| cell.to_string()).collect();
        let mut cells: Vec<Cell> = Vec::new();
        while cells.len() < count {
            let mut either = || usize::from(uniform() >= 0.5);
            let (uplo, side) = (Uplo::ALL[either()], Side::ALL[either()]);
            let trans = [either(), either()].map(|i| [Trans::No, Trans::ConjTrans][i]);
            let (n, m) = (log(uniform(), 2.0, 400.0), log(uniform(), 16.0, 400.0));
            let (k, nrhs, q) =
                (log(uniform(), 16.0, 160.0), log(uniform(), 1.0, 64.0), log(uniform(), 1.0, 1024.0));
            let square = n.max(16);
            // Of twenty: five factorisations, six solves, six triangular solves, two products, one update.
            let (op, uplo, n, nrhs, elements) = match cells.len() / 4 % 20 {
                0 | 4 | 8 | 12 | 16 => (Op::Potrf, uplo, n, 0, n * n),
                1 | 5 | 9 | 13 | 17 | 19 => (Op::Posv(Solve::Storing), uplo, n, nrhs, n * (n + nrhs)),
                2 | 6 | 10 | 14 | 18 | 3 => {
                    (Op::Trsm(side, trans[0], Diag::NonUnit), uplo, n, q, n * (n + q))
                }
                7 | 15 => {
                    let elements = m * square + (m + square) * k;
                    (Op::Product(Product::Gemm(trans, m, k), 0), Uplo::Lower, square, 0, elements)
                }
                _ => (Op::Product(Product::Herk(trans[0], k), 0), uplo, m, 0, m * (m + k)),
            };
            let dtype = Dtype::ALL[cells.len() % 4];
            let most = BYTES / (elements * dtype.bytes()) as f64;
            let cell = Cell { op, dtype, uplo, n, nrhs, batch: log(uniform(), 1.0, most.max(2.0)) };
            if !gridded.contains(&cell.to_string()) {
                cells.push(cell);
            }
        }
        cells
    }

    #[test]
    fn the_off_grid_problems_are_a_seeded_draw() {
        let cells = draw(9, 200);
        let text: String = cells.iter().map(|cell| format!("{cell}\n")).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/grids/quality.txt");
        if std::env::var_os("BATCHLAS_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text, "run again with BATCHLAS_BLESS=1");
        assert_eq!(off_grid().len(), 200);
    }

    #[test]
    fn the_grids_parse_and_name_their_operation() {
        for op in ops() {
            let cells = grid(op).unwrap_or_else(|| panic!("the grid of {op}"));
            assert!(
                cells.len() > 100 && cells.iter().all(|cell| cell.op.name() == op),
                "{op}: {}",
                cells.len()
            );
            let written: Vec<String> = cells.iter().map(Cell::to_string).collect();
            assert_eq!(sweep::grid(&written.join("\n")).unwrap(), cells, "a cell reads as it is written");
        }
    }

    /// A ledger cut at any byte loses the cell that the cut is in, and no other; going on gives the same cells again.
    #[test]
    fn a_ledger_that_was_cut_anywhere_goes_on_without_a_lost_or_doubled_row() {
        let ctx = Context::cpu(1).unwrap();
        let cells: Vec<Cell> = [3, 4, 5]
            .map(|n| Cell { op: Op::Potrf, dtype: Dtype::F64, uplo: Uplo::Lower, n, nrhs: 0, batch: 4 })
            .into();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        // The first row is not the tuner's and stays.
        let arms = [("vendor".to_owned(), None), ("auto".to_owned(), None)];
        let row = |cell: &Cell| rank(&ctx, cell, &arms, 1, &Provenance::default()).unwrap();
        let foreign = serde_json::to_string(&row(&cells[0])[0]).unwrap() + "\n";
        let run = |path: &Path| {
            let (mut ledger, found) = Ledger::open(path).unwrap();
            for cell in cells.iter().filter(|cell| !ledger.has(cell)).collect::<Vec<_>>() {
                ledger.append(cell, row(cell)).unwrap();
            }
            found
        };
        std::fs::write(&path, &foreign).unwrap();
        run(&path);
        let whole = std::fs::read(&path).unwrap();
        let lines: Vec<usize> = (1..=whole.len()).filter(|&end| whole[end - 1] == b'\n').collect();
        assert_eq!(lines.len(), 7);
        for cut in (foreign.len()..=whole.len()).step_by(97).chain(lines.iter().copied()) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = run(&path);
            let complete = [lines[2], lines[4], lines[6]].iter().filter(|&&end| end <= cut).count();
            assert_eq!(found.cells, complete, "cut at {cut} of {}", whole.len());
            let text = std::fs::read_to_string(&path).unwrap();
            let rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(rows.len(), 7, "cut at {cut}");
            let keys: Vec<_> = rows[1..].iter().map(|row| (row.n, row.part)).collect();
            let expected: Vec<_> =
                [3, 4, 5].iter().flat_map(|&n| [1, 2].map(|i| (n, Some([i, 2])))).collect();
            assert_eq!(keys, expected, "cut at {cut}");
            assert!(text.starts_with(&foreign));
        }
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Ledger::open(&path).unwrap_err().to_string().contains("line 1"));
    }
}
