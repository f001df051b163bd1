//! The ledgers as the report reads them: rows that count, each with the place it came from.
//!
//! A row counts as it does for the tables: no failed item, a finite residual, relative deviation at most 10%; of one spelling
//! and cell the latest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use batchlas::Dtype;
use batchlas_bench::measure::{Cell, Op, Product, Row};
use batchlas_bench::tables::counts;
use serde_json::Value;

use crate::Result;

/// Bytes of a batch that no cache of the device holds.
const BEYOND_CACHE: usize = 64 << 20;

/// The device of the tables and charts.
pub(super) const ARCH: &str = "sm_90";

/// Where a figure is from: a file under `tuned/ledger` and a line in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    file: String,
    line: usize,
}

impl Place {
    /// `text` as a link from a file in `docs`.
    pub(super) fn link(&self, text: &str) -> String {
        format!("[{text}](../tuned/ledger/{}#L{})", self.file, self.line)
    }
}

/// A row that counts.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) row: Row,
    pub(super) cell: Cell,
    pub(super) place: Place,
}

impl Entry {
    /// Whether it speaks for large batches: in no cache, and its time per item no longer falls.
    pub(super) fn saturated(&self) -> bool {
        self.row.saturated && bytes(&self.cell) > BEYOND_CACHE
    }
}

/// Bytes of the operands of a batch.
fn bytes(cell: &Cell) -> usize {
    let Cell { op, dtype, n, nrhs, batch, .. } = *cell;
    let elements = match op {
        Op::Potrf | Op::Posv(_) | Op::Trsm(..) => n * (n + nrhs),
        Op::Product(Product::Gemm(_, m, k), _) => m * n + (m + n) * k,
        Op::Product(Product::Herk(_, k), _) => n * (n + k),
    };
    elements * dtype.bytes() * batch
}

/// What is compared over batches: operation, type, and the fields of the selection key but the batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub(super) op: String,
    pub(super) dtype: String,
    pub(super) exact: String,
    pub(super) sizes: Vec<u64>,
}

impl Shape {
    pub(super) fn of(cell: &Cell) -> Self {
        let (exact, mut sizes) = cell.key();
        sizes.pop();
        Shape {
            op: cell.op.name().to_owned(),
            dtype: cell.dtype.name().to_owned(),
            exact: exact.concat(),
            sizes,
        }
    }
}

/// A time of another library on the device.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) shape: Shape,
    pub(super) batch: usize,
    pub(super) name: String,
    pub(super) ns: f64,
    pub(super) times_floor: f64,
    pub(super) place: Place,
}

/// Everything that the report is made from.
pub(super) struct Ledgers {
    /// Rows by cell, as a line of a grid.
    pub(super) cells: BTreeMap<String, Vec<Entry>>,
    /// Rows of the off-grid problems.
    pub(super) off_grid: BTreeMap<String, Vec<Entry>>,
    /// Other libraries on the device.
    pub(super) peers: Vec<Peer>,
    /// Other libraries on a CPU.
    pub(super) cpu: Vec<(Value, Place)>,
}

impl Ledgers {
    /// Reads `tuned/ledger` of the workspace at `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let folder = root.join("tuned/ledger");
        let text = |file: &str| fs::read_to_string(folder.join(file)).map_err(|e| format!("{file}: {e}"));
        let mut cells = BTreeMap::new();
        for op in batchlas_bench::tune::ops() {
            let file = format!("{op}.{ARCH}.jsonl");
            add(&mut cells, &file, &text(&file)?, |_| true)?;
        }
        // Other ways to solve have no tables; what else is there compares children of a route.
        let untabled = format!("untabled/posv.{ARCH}.jsonl");
        add(&mut cells, &untabled, &text(&untabled)?, |row| row.op.starts_with("posv-"))?;
        let mut off_grid = BTreeMap::new();
        let quality = format!("untabled/quality.{ARCH}.jsonl");
        add(&mut off_grid, &quality, &text(&quality)?, |_| true)?;
        let file = format!("peers/{ARCH}.csv");
        let peers = numbered(&file, &text(&file)?)
            .skip(1)
            .map(|(line, place)| peer(line, place))
            .collect::<Result<_>>()?;
        let cpu = numbered("peers/cpu.jsonl", &text("peers/cpu.jsonl")?)
            .map(|(line, place)| Ok((serde_json::from_str(line)?, place)))
            .collect::<Result<_>>()?;
        Ok(Ledgers { cells, off_grid, peers, cpu })
    }

    /// The fastest rows of our own kernels: for each shape by the one that speaks for large batches, or, where none
    /// does, at the largest batch.
    pub(super) fn fastest(&self) -> BTreeMap<Shape, &Entry> {
        let rank = |entry: &Entry| match entry.saturated() {
            true => (false, 0),
            false => (true, usize::MAX - entry.cell.batch),
        };
        let mut best: BTreeMap<Shape, &Entry> = BTreeMap::new();
        for entry in self.own() {
            let old = best.entry(Shape::of(&entry.cell)).or_insert(entry);
            let (new, known) = (rank(entry), rank(old));
            if new < known || (new == known && entry.row.ns_per_item < old.row.ns_per_item) {
                *old = entry;
            }
        }
        best
    }

    /// The fastest rows of our own kernels by shape and batch.
    pub(super) fn near(&self) -> BTreeMap<Shape, BTreeMap<usize, &Entry>> {
        let mut near: BTreeMap<Shape, BTreeMap<usize, &Entry>> = BTreeMap::new();
        for entry in self.own() {
            let batches = near.entry(Shape::of(&entry.cell)).or_default();
            let old = batches.entry(entry.cell.batch).or_insert(entry);
            if entry.row.ns_per_item < old.row.ns_per_item {
                *old = entry;
            }
        }
        near
    }

    fn own(&self) -> impl Iterator<Item = &Entry> {
        self.cells.values().flatten().filter(|entry| entry.row.vendor_free)
    }
}

/// Of the batches of a shape the nearest one, at most four times off.
pub(super) fn nearest<'e>(batches: &BTreeMap<usize, &'e Entry>, batch: usize) -> Option<&'e Entry> {
    let off = |other: usize| (other as f64 / batch as f64).log2().abs();
    let (&at, entry) = batches.iter().min_by(|a, b| off(*a.0).total_cmp(&off(*b.0)))?;
    (off(at) <= 2.0).then_some(*entry)
}

fn numbered<'t>(file: &'t str, text: &'t str) -> impl Iterator<Item = (&'t str, Place)> {
    let place = move |line| Place { file: file.to_owned(), line };
    (1..).zip(text.lines()).map(move |(line, text)| (text, place(line)))
}

fn add(
    cells: &mut BTreeMap<String, Vec<Entry>>,
    file: &str,
    text: &str,
    wanted: impl Fn(&Row) -> bool,
) -> Result {
    for (line, place) in numbered(file, text) {
        let failed = |what: String| format!("{file}:{}: {what}", place.line);
        let row: Row = serde_json::from_str(line).map_err(|e| failed(e.to_string()))?;
        let cell = row.cell().map_err(failed)?;
        if wanted(&row) && counts(&row) && row.arch == ARCH {
            let entries = cells.entry(cell.to_string()).or_default();
            entries.retain(|old| old.row.family != row.family);
            entries.push(Entry { row, cell, place });
        }
    }
    Ok(())
}

/// A line of the peers' table: `op,dtype,n,nrhs,batch,peer,ns_per_item,rel_sd,residual,floor_ns,times_floor`.
fn peer(line: &str, place: Place) -> Result<Peer> {
    let words: Vec<&str> = line.split(',').collect();
    let [op, dtype, n, nrhs, batch, name, ns, _, _, _, times_floor] = words[..] else {
        return Err(format!("{place:?}: {} fields, expected 11", words.len()).into());
    };
    dtype.parse::<Dtype>().map_err(|e| format!("{place:?}: {e}"))?;
    let (n, nrhs): (u64, u64) = (n.parse()?, nrhs.parse()?);
    let (op, exact, sizes) = match op.split_once('_') {
        // Side, triangle, and H for the conjugate transpose; the key has no triangle.
        Some((op, case)) => {
            let (side, trans) = (&case[..1], if case.ends_with('N') { "N" } else { "T" });
            (op, format!("{side}{trans}"), vec![n, nrhs])
        }
        None if op == "potrf" => (op, "L".to_owned(), vec![n]),
        None => (op, "L".to_owned(), vec![n, nrhs]),
    };
    let (name, op) = match name.strip_suffix(" (x only)") {
        Some(name) => (name, format!("{op}-discard")),
        None => (name, op.to_owned()),
    };
    let shape = Shape { op, dtype: dtype.to_owned(), exact, sizes };
    let (batch, ns, times_floor) = (batch.parse()?, ns.parse()?, times_floor.parse()?);
    Ok(Peer { shape, batch, name: name.to_owned(), ns, times_floor, place })
}
