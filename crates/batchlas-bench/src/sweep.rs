//! Sweep files: which cells to time by which routes.
//!
//! One cell a line, words separated by blanks; `#` starts a comment:
//!
//! ```text
//! potrf DTYPE UPLO N BATCH ROUTE...
//! posv  DTYPE UPLO N NRHS BATCH ROUTE...
//! trsm  DTYPE SIDE UPLO TRANS DIAG N Q BATCH ROUTE...
//! gemm  DTYPE TRANS_A TRANS_B M N K BATCH ROUTE...
//! herk  DTYPE UPLO TRANS N K BATCH ROUTE...
//! ```
//!
//! Every word before the routes may be a list (`f32,f64`): the line then stands for all combinations. A batch of `auto`
//! takes as many items as fit 512 MiB of A (and B), at most 2^20 and at least 1024 (64 of a product): enough to leave the
//! caches and to saturate. A grid, for the tuner, is a sweep without routes.

use std::fmt;
use std::str::FromStr;

use batchlas::{Diag, Dtype, Side, Trans, Uplo};

use crate::measure::{Cell, Op};

/// Bytes that a batch of `auto` fills.
const AUTO_BYTES: usize = 512 << 20;

/// A line that is no cell.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the sweep: {what}")]
pub struct SweepError {
    line: usize,
    what: String,
}

/// A cell and the routes to time it by.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The problem.
    pub cell: Cell,
    /// Routes, in the spelling of pins.
    pub routes: Vec<String>,
}

/// A cell as a line of a grid.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { op, dtype, uplo, n, nrhs, batch } = *self;
        write!(f, "{} {dtype} ", op.name())?;
        match op {
            Op::Potrf => write!(f, "{uplo} {n}")?,
            Op::Posv => write!(f, "{uplo} {n} {nrhs}")?,
            Op::Trsm(side, trans, diag) => write!(f, "{side} {uplo} {trans} {diag} {n} {nrhs}")?,
            Op::Gemm([a, b], m, k) => write!(f, "{a} {b} {m} {n} {k}")?,
            Op::Herk(trans, k) => write!(f, "{uplo} {trans} {n} {k}")?,
        }
        write!(f, " {batch}")
    }
}

/// Reads a sweep.
///
/// # Errors
/// The first line that is no cell or has no route, and why.
pub fn parse(text: &str) -> Result<Vec<Entry>, SweepError> {
    let with_routes = |entry: &Entry| match entry.routes.is_empty() {
        true => Err("there is no route to time".to_owned()),
        false => Ok(()),
    };
    entries(text, with_routes)
}

/// Reads a grid: the cells of a sweep without routes, each once.
///
/// # Errors
/// The first line that is no cell or names a route, and why.
pub fn grid(text: &str) -> Result<Vec<Cell>, SweepError> {
    let without_routes = |entry: &Entry| match entry.routes.first() {
        Some(route) => Err(format!("a grid names no routes, not {route}")),
        None => Ok(()),
    };
    let mut cells: Vec<Cell> = Vec::new();
    for entry in entries(text, without_routes)? {
        if !cells.contains(&entry.cell) {
            cells.push(entry.cell);
        }
    }
    Ok(cells)
}

fn entries(text: &str, fits: impl Fn(&Entry) -> Result<(), String>) -> Result<Vec<Entry>, SweepError> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or("")));
    let mut all = Vec::new();
    for (line, words) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |what| SweepError { line, what };
        for words in combinations(words) {
            let entry = entry(&words).map_err(failed)?;
            fits(&entry).map_err(failed)?;
            all.push(entry);
        }
    }
    Ok(all)
}

/// A line for every combination of the values that its words list, the last word varying fastest.
fn combinations(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let append = |line: String| word.split(',').map(move |value| format!("{line} {value}"));
        lines = lines.into_iter().flat_map(append).collect();
    }
    lines
}

/// What users of the orders `orders` are likely to call: every operation, type and triangle, one right-hand side and many,
/// a small batch and a large one, by the tables' choice.
pub fn usual(orders: impl IntoIterator<Item = usize>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for n in orders.into_iter().filter(|&n| n > 0) {
        for (dtype, uplo) in
            Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&u| (dtype, u)))
        {
            let mut ops = vec![(Op::Potrf, 0), (Op::Posv, 1), (Op::Posv, 8), (Op::Herk(Trans::No, n), 0)];
            for (&side, &trans) in
                Side::ALL.iter().flat_map(|s| [Trans::No, Trans::ConjTrans].iter().map(move |t| (s, t)))
            {
                ops.extend([1, 8, 256].map(|q| (Op::Trsm(side, trans, Diag::NonUnit), q)));
            }
            ops.push((Op::Gemm([Trans::No; 2], n, n), 0));
            for ((op, nrhs), batch) in ops.into_iter().flat_map(|op| [128, 1 << 17].map(|batch| (op, batch)))
            {
                let cell = Cell { op, dtype, uplo, n, nrhs, batch };
                entries.push(Entry { cell, routes: vec!["auto".to_owned()] });
            }
        }
    }
    entries
}

fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is {text:?}"))
}

fn entry(line: &str) -> Result<Entry, String> {
    let mut words = line.split_whitespace();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let op = next("the operation")?;
    let dtype: Dtype = next("the element type")?.parse()?;
    let (op, uplo) = match op {
        "gemm" | "herk" => {
            let cell = product(dtype, op == "gemm", &mut next)?;
            return Ok(Entry { cell, routes: words.map(str::to_owned).collect() });
        }
        "potrf" => (Op::Potrf, parsed::<Uplo>(next("the triangle")?, "the triangle")?),
        "posv" => (Op::Posv, parsed(next("the triangle")?, "the triangle")?),
        "trsm" => {
            let side = parsed(next("the side")?, "the side")?;
            let uplo = parsed(next("the triangle")?, "the triangle")?;
            let trans = parsed(next("the transposition")?, "the transposition")?;
            (Op::Trsm(side, trans, parsed(next("the diagonal")?, "the diagonal")?), uplo)
        }
        other => return Err(format!("{other:?} is not one of potrf, posv, trsm, gemm, herk")),
    };
    let n: usize = parsed(next("the order")?, "the order")?;
    let nrhs =
        if op == Op::Potrf { 0 } else { parsed(next("the right-hand sides")?, "the right-hand sides")? };
    let batch = match next("the batch")? {
        "auto" => (AUTO_BYTES / (n * (n + nrhs) * dtype.bytes()).max(1)).clamp(1024, 1 << 20),
        text => parsed(text, "the batch")?,
    };
    if n == 0 || batch == 0 {
        return Err(format!("n = {n} and batch = {batch} must be at least 1"));
    }
    let cell = Cell { op, dtype, uplo, n, nrhs, batch };
    Ok(Entry { cell, routes: words.map(str::to_owned).collect() })
}

/// The cell of a product, from its words after the element type.
fn product<'w>(
    dtype: Dtype,
    full: bool,
    mut next: impl FnMut(&str) -> Result<&'w str, String>,
) -> Result<Cell, String> {
    let uplo = if full { Uplo::Lower } else { parsed(next("the triangle")?, "the triangle")? };
    let left = parsed(next("the transposition")?, "the transposition")?;
    let right = if full { parsed(next("B's transposition")?, "B's transposition")? } else { left };
    let mut size = |what: &str| parsed::<usize>(next(what)?, what);
    let m = if full { size("the number of rows")? } else { 0 };
    let (n, k) = (size("the order")?, size("the inner dimension")?);
    let m_or_n = if full { m } else { n };
    let batch = match next("the batch")? {
        "auto" => {
            let elements = m_or_n * n + (m_or_n + if full { n } else { 0 }) * k;
            (AUTO_BYTES / (elements * dtype.bytes()).max(1)).clamp(64, 1 << 20)
        }
        text => parsed(text, "the batch")?,
    };
    if m_or_n == 0 || n == 0 || k == 0 || batch == 0 {
        return Err(format!("m = {m_or_n}, n = {n}, k = {k} and batch = {batch} must be at least 1"));
    }
    let op = if full { Op::Gemm([left, right], m, k) } else { Op::Herk(left, k) };
    Ok(Cell { op, dtype, uplo, n, nrhs: 0, batch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_every_operation_parse() {
        let text = "# head\npotrf f32 L 8 auto tiny:lanes=4 vendor # two\n\nposv c64 U 9 3 500 blocked\n\
                    trsm f64 R L C N 32 256 2048 vendor\ngemm c32 N C 64 32 128 auto tile\n\
                    herk f64 U T 896 128 77 mma vendor\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries.len(), 5);
        assert_eq!(entries[3].cell.op, Op::Gemm([Trans::No, Trans::ConjTrans], 64, 128));
        assert_eq!(
            (entries[3].cell.n, entries[3].cell.batch),
            (32, (512 << 20) / (8 * (64 * 32 + 96 * 128)))
        );
        assert_eq!((entries[4].cell.op, entries[4].cell.batch), (Op::Herk(Trans::Trans, 128), 77));
        assert_eq!((entries[0].cell.batch, &entries[0].routes[0][..]), (1 << 20, "tiny:lanes=4"));
        assert_eq!(entries[1].cell.nrhs, 3);
        assert_eq!(entries[2].cell.op, Op::Trsm(Side::Right, Trans::ConjTrans, Diag::NonUnit));
    }

    #[test]
    fn lists_stand_for_all_combinations() {
        let cells =
            grid("potrf f32,c64 L,U 8,16 auto # 8\nposv f32 L 8 1,4 1,128\npotrf f32 U 16 auto").unwrap();
        assert_eq!(cells.len(), 8 + 4, "the last line repeats a cell");
        assert_eq!((cells[7].dtype, cells[7].uplo, cells[7].n), (Dtype::C64, Uplo::Upper, 16));
        assert_eq!((cells[9].nrhs, cells[9].batch), (1, 128));
        let message = grid("potrf f32 L 8 auto vendor").unwrap_err().to_string();
        assert!(message.contains("line 1") && message.contains("vendor"), "{message}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, part) in [
            ("potrf f32 L 8 auto", "no route"),
            ("\ngetrf f32 L 8 auto x", "line 2"),
            ("potrf f16 L 8 auto x", "f16"),
            ("potrf f32 X 8 auto x", "the triangle is \"X\""),
            ("potrf f32 L 0 auto x", "n = 0"),
            ("posv f32 L 8", "right-hand sides is missing"),
            ("gemm f32 N N 8 8 0 4 x", "k = 0"),
            ("herk f32 L N 8 8", "the batch is missing"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
