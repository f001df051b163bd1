//! Sweep files: which cells to time by which routes.
//!
//! One cell a line, words separated by blanks; `#` starts a comment:
//!
//! ```text
//! potrf DTYPE UPLO N BATCH ROUTE...
//! posv  DTYPE UPLO N NRHS BATCH ROUTE...
//! trsm  DTYPE SIDE UPLO TRANS DIAG N Q BATCH ROUTE...
//! ```
//!
//! A batch of `auto` takes as many items as fit 512 MiB of A (and B), at most 2^20 and at least 1024: enough to leave
//! the caches and to saturate.

use std::str::FromStr;

use batchlas::{Dtype, Uplo};

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

/// Reads a sweep.
///
/// # Errors
/// The first line that is no cell, and why.
pub fn parse(text: &str) -> Result<Vec<Entry>, SweepError> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or("")));
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(line, words)| entry(words).map_err(|what| SweepError { line, what }))
        .collect()
}

fn entry(line: &str) -> Result<Entry, String> {
    let mut words = line.split_whitespace();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("{what} is {text:?}"))
    }
    let op = next("the operation")?;
    let dtype: Dtype = next("the element type")?.parse()?;
    let (op, uplo) = match op {
        "potrf" => (Op::Potrf, parsed::<Uplo>(next("the triangle")?, "the triangle")?),
        "posv" => (Op::Posv, parsed(next("the triangle")?, "the triangle")?),
        "trsm" => {
            let side = parsed(next("the side")?, "the side")?;
            let uplo = parsed(next("the triangle")?, "the triangle")?;
            let trans = parsed(next("the transposition")?, "the transposition")?;
            (Op::Trsm(side, trans, parsed(next("the diagonal")?, "the diagonal")?), uplo)
        }
        other => return Err(format!("{other:?} is not one of potrf, posv, trsm")),
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
    let routes: Vec<String> = words.map(str::to_owned).collect();
    if routes.is_empty() {
        return Err("there is no route to time".into());
    }
    Ok(Entry { cell: Cell { op, dtype, uplo, n, nrhs, batch }, routes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchlas::{Diag, Side, Trans};

    #[test]
    fn cells_of_every_operation_parse() {
        let text = "# head\npotrf f32 L 8 auto tiny:lanes=4 vendor # two\n\nposv c64 U 9 3 500 blocked\n\
                    trsm f64 R L C N 32 256 2048 vendor\n";
        let entries = parse(text).unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!((entries[0].cell.batch, &entries[0].routes[0][..]), (1 << 20, "tiny:lanes=4"));
        assert_eq!(entries[1].cell.nrhs, 3);
        assert_eq!(entries[2].cell.op, Op::Trsm(Side::Right, Trans::ConjTrans, Diag::NonUnit));
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
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
