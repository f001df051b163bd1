//! `cargo xtask report`: `docs/performance.md`, its charts, and the figures of `README.md`, all from `tuned/ledger`.
//!
//! Every figure of the page is a link to the line that it is from; those of the README are the same figures. A test
//! regenerates everything and compares. Between `<!-- report:NAME -->` and `<!-- report -->` the README is generated.

mod ledger;
mod quality;
mod svg;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use batchlas::{Context, Dtype, Environment};
use batchlas_kernels::Arch;

use crate::Result;
use ledger::{ARCH, Entry, Ledgers, Peer, Shape, nearest};
use quality::Judged;
use svg::Chart;

/// Orders that the README shows.
const ROUND: [u64; 14] = [4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048];

/// Peers on the device, with their colours.
const SERIES: &[(&str, &str)] = &[
    ("batchlas", "#222222"),
    ("cuSOLVERDx", "#00798c"),
    ("MAGMA", "#66a182"),
    ("cuSOLVER", "#d1495b"),
    ("cuBLAS", "#d1495b"),
    ("PyTorch", "#edae49"),
];

/// Peers on a CPU.
const CPU_SERIES: &[(&str, &str)] =
    &[("faer", "#d1495b"), ("openblas", "#66a182"), ("mkl", "#00798c"), ("compact", "#edae49")];

/// Operations of the CPU's ledger, as it names them and as the page does.
const CPU_ROWS: [(&str, &str); 5] = [
    ("potrf", "potrf"),
    ("posv1", "posv, 1 right-hand side"),
    ("posv16", "posv, 16"),
    ("left4", "trsm left, 4"),
    ("right32", "trsm right, 32"),
];

/// A family of shapes that differ in their order.
struct Series {
    /// What a heading and a panel call it.
    title: String,
    op: &'static str,
    exact: &'static str,
    nrhs: Option<u64>,
}

/// What the page shows over the order.
fn series() -> Vec<Series> {
    let one = |title: String, op, exact, nrhs| Series { title, op, exact, nrhs };
    let mut all: Vec<Series> = [("Lower", "L"), ("Upper", "U")]
        .map(|(name, exact)| one(format!("potrf, {name}"), "potrf", exact, None))
        .into();
    for (name, exact) in [("Lower", "L"), ("Upper", "U")] {
        all.extend([1, 4, 16].map(|q| one(format!("posv, {name}, q = {q}"), "posv", exact, Some(q))));
    }
    all.push(one("posv without the factor, Lower, q = 1".into(), "posv-discard", "L", Some(1)));
    for (name, exact) in [("Left, A", "LN"), ("Left, A^H", "LT"), ("Right, A", "RN"), ("Right, A^H", "RT")] {
        all.extend(
            [1, 8, 32, 256, 1024].map(|q| one(format!("trsm, {name}, q = {q}"), "trsm", exact, Some(q))),
        );
    }
    all
}

impl Series {
    fn shape(&self, dtype: &str, n: u64) -> Shape {
        let sizes = std::iter::once(n).chain(self.nrhs).collect();
        Shape { op: self.op.into(), dtype: dtype.into(), exact: self.exact.into(), sizes }
    }

    fn holds(&self, shape: &Shape) -> bool {
        (shape.op == self.op && shape.exact == self.exact) && shape.sizes.get(1).copied() == self.nrhs
    }
}

/// Writes everything.
pub(crate) fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        return Err(format!("report takes no arguments, not `{}`", args.join(" ")).into());
    }
    let root = root()?;
    for (file, text) in files(root)? {
        fs::write(root.join(&file), text)?;
        println!("{file}");
    }
    Ok(())
}

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or_else(|| "xtask has no parent folder".into())
}

/// Everything that is generated: paths from the root, and texts.
fn files(root: &Path) -> Result<Vec<(String, String)>> {
    let ledgers = Ledgers::read(root)?;
    let device = ARCH.parse::<Arch>()?.device().ok_or("the device of the report is not known")?;
    let rehearsal = Context::rehearsing(device, Environment::default())?;
    let report = Report::new(&ledgers, &rehearsal);
    let readme = filled(&fs::read_to_string(root.join("README.md"))?, &report)?;
    let page = report.page()?;
    Ok(vec![
        ("README.md".into(), readme),
        ("docs/performance.md".into(), page),
        ("docs/floor-potrf.svg".into(), report.floors("potrf").draw()?),
        ("docs/floor-posv.svg".into(), report.floors("posv").draw()?),
        ("docs/floor-trsm.svg".into(), report.floors("trsm").draw()?),
        ("docs/peers-cpu.svg".into(), report.cpu_chart().draw()?),
    ])
}

/// The README with its generated parts replaced.
fn filled(readme: &str, report: &Report<'_>) -> Result<String> {
    const END: &str = "<!-- report -->";
    let mut out = String::new();
    let mut rest = readme;
    while let Some((before, after)) = rest.split_once("<!-- report:") {
        let (name, after) = after.split_once(" -->").ok_or("a mark of the README is not closed")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("report:{name} has no end"))?;
        let part = report.part(name)?;
        write!(out, "{before}<!-- report:{name} -->\n\n{part}\n{END}")?;
        rest = after;
    }
    Ok(out + rest)
}

/// A comparison of ours with a peer at one shape.
struct Duel<'r> {
    peer: &'r Peer,
    ours: &'r Entry,
}

impl Duel<'_> {
    /// Time of the peer over ours.
    fn ratio(&self) -> f64 {
        self.peer.ns / self.ours.row.ns_per_item
    }
}

/// The ledgers, and what the page says of them more than once.
struct Report<'r> {
    ledgers: &'r Ledgers,
    fastest: BTreeMap<Shape, &'r Entry>,
    duels: Vec<Duel<'r>>,
    grid: (Vec<Judged<'r>>, usize),
    off_grid: (Vec<Judged<'r>>, usize),
}

impl<'r> Report<'r> {
    fn new(ledgers: &'r Ledgers, rehearsal: &Context) -> Self {
        let near = ledgers.near();
        let duel = |peer: &'r Peer| Some(Duel { peer, ours: nearest(near.get(&peer.shape)?, peer.batch)? });
        Report {
            ledgers,
            fastest: ledgers.fastest(),
            duels: ledgers.peers.iter().filter_map(duel).collect(),
            grid: quality::judge(rehearsal, &ledgers.cells),
            off_grid: quality::judge(rehearsal, &ledgers.off_grid),
        }
    }

    /// A generated part of the README.
    fn part(&self, name: &str) -> Result<String> {
        let table = |title: &str| {
            let series = series().into_iter().find(|series| series.title == title);
            let table = series.and_then(|series| self.table(&series, |n| ROUND.contains(&n), |_, text| text));
            table.ok_or_else(|| format!("there are no rows of {title}").into())
        };
        match name {
            "potrf" => table("potrf, Lower"),
            "posv" => table("posv, Lower, q = 1"),
            "trsm" => table("trsm, Left, A, q = 256"),
            "peers" => self.standing(),
            "vendor" => Ok(self.vendor_arms() + &self.residuals()),
            "choice" => Ok(choice("the timed cells", 5, &self.grid) + &choice(OFF_GRID, 15, &self.off_grid)),
            "cpu" => self.cpu_standing(),
            other => Err(format!("the README asks for a part {other}, which there is not").into()),
        }
    }

    /// The page.
    fn page(&self) -> Result<String> {
        let mut out = String::from(PREFACE);
        for op in ["potrf", "posv", "trsm"] {
            write!(
                out,
                "\n## {op}\n\n![Times the floor against the order](floor-{op}.svg)\n\nOwn kernels, ns per item (times the floor).\n"
            )?;
            for series in series().iter().filter(|series| series.op.starts_with(op)) {
                if let Some(table) = self.table(series, |_| true, |entry, text| entry.place.link(&text)) {
                    write!(out, "\n### {}\n\n{table}", series.title)?;
                }
            }
        }
        write!(out, "\n## gemm and herk\n\n{}", self.products()?)?;
        write!(out, "\n## Peers on the same device\n\n{PEERS}\n{}\n{}", self.standing()?, self.duels()?)?;
        let vendor = self.vendor_arms();
        write!(out, "\n## Vendor arms and residuals\n\n{vendor}{}", self.residuals())?;
        write!(out, "\n## What the tables choose\n\n{CHOICE}\n")?;
        out += &choice("the timed cells", 5, &self.grid);
        out += &choice(OFF_GRID, 15, &self.off_grid);
        out += &self.coverage();
        out += &losses("Timed cells in which the choice loses more than 5%", &self.grid.0, |judged| {
            (judged.loss() > 1.05).then(|| (judged.loss(), judged.best))
        });
        out +=
            &losses("Timed cells in which the vendor's arm is more than 3% faster", &self.grid.0, |judged| {
                Some((judged.against_vendor()?, judged.vendor?)).filter(|(loss, _)| *loss > 1.03)
            });
        out += &losses(
            "Off-grid problems in which the choice loses more than 15%",
            &self.off_grid.0,
            |judged| (judged.loss() > 1.15).then(|| (judged.loss(), judged.best)),
        );
        write!(out, "\n## CPU\n\n![Peers over ours](peers-cpu.svg)\n\n{}", self.cpu_standing()?)?;
        out += &self.cpu_losses();
        Ok(out)
    }

    /// Orders down, types across, a figure each.
    fn table(
        &self,
        series: &Series,
        wanted: impl Fn(u64) -> bool,
        figure: impl Fn(&Entry, String) -> String,
    ) -> Option<String> {
        let held = self.fastest.keys().filter(|shape| series.holds(shape));
        let orders: BTreeSet<u64> = held.map(|shape| shape.sizes[0]).filter(|&n| wanted(n)).collect();
        if orders.is_empty() {
            return None;
        }
        let mut out = String::from("| n | f32 | f64 | c32 | c64 |\n|---|---|---|---|---|\n");
        for n in orders {
            let cell = |dtype: Dtype| {
                let Some(entry) = self.fastest.get(&series.shape(dtype.name(), n)) else {
                    return " |".to_owned();
                };
                let row = &entry.row;
                let text = format!("{} ({:.2})", short(row.ns_per_item), row.times_floor());
                let mark = if entry.saturated() { "" } else { "\\*" };
                format!(" {}{mark} |", figure(entry, text))
            };
            out += &format!("| {n} |{}\n", Dtype::ALL.map(cell).concat());
        }
        Some(out)
    }

    /// Products with a square C: useful work, and that of the vendor's arm at the same cell.
    fn products(&self) -> Result<String> {
        let mut out = String::from(
            "Own kernels, useful TFLOP/s (times those of the cuBLAS arm on the same cell); C square, Lower for `herk`.\n\n\
             | | n | k | f32 | f64 | c32 | c64 |\n|---|---|---|---|---|---|---|\n",
        );
        for (title, op, exact) in [
            ("gemm, A B", "gemm", "NN"),
            ("gemm, A B^H", "gemm", "NT"),
            ("gemm, A^H B", "gemm", "TN"),
            ("herk, A A^H", "herk", "LN"),
            ("herk, A^H A", "herk", "LT"),
        ] {
            let square = |shape: &&Shape| match shape.sizes[..] {
                [m, n, _] => m == n,
                _ => true,
            };
            let held = self.fastest.keys().filter(|shape| shape.op == op && shape.exact == exact);
            let sizes: BTreeSet<Vec<u64>> = held.filter(square).map(|shape| shape.sizes.clone()).collect();
            for size in sizes {
                let cell = |dtype: Dtype| {
                    let shape = Shape {
                        op: op.into(),
                        dtype: dtype.name().into(),
                        exact: exact.into(),
                        sizes: size.clone(),
                    };
                    let Some(entry) = self.fastest.get(&shape) else { return " |".to_owned() };
                    let rate = entry.row.tflops().unwrap_or(f64::NAN);
                    let ratio = self
                        .vendor(entry)
                        .map(|vendor| format!(" ({:.2})", vendor.row.ns_per_item / entry.row.ns_per_item));
                    let text = format!("{rate:.1}{}", ratio.unwrap_or_default());
                    format!(" {} |", entry.place.link(&text))
                };
                let (n, k) = (size[size.len() - 2], size[size.len() - 1]);
                writeln!(out, "| {title} | {n} | {k} |{}", Dtype::ALL.map(cell).concat())?;
            }
        }
        Ok(out)
    }

    /// The vendor's arm of the cell of an entry.
    fn vendor(&self, entry: &Entry) -> Option<&'r Entry> {
        let entries = self.ledgers.cells.get(&entry.cell.to_string())?;
        entries.iter().find(|other| other.row.family == "vendor")
    }

    /// One line for each peer: how often ours is the faster, and the ratios.
    fn standing(&self) -> Result<String> {
        let mut out = String::from(
            "| peer | operation | cells | ours faster | least ratio | median | greatest |\n|---|---|---|---|---|---|---|\n",
        );
        for (peer, _) in SERIES {
            for (op, what) in [
                ("potrf", "potrf"),
                ("posv", "posv"),
                ("posv-discard", "posv without the factor"),
                ("trsm", "trsm"),
            ] {
                let duels =
                    self.duels.iter().filter(|duel| duel.peer.name == *peer && duel.peer.shape.op == op);
                let mut ratios: Vec<f64> = duels.map(Duel::ratio).collect();
                ratios.sort_by(f64::total_cmp);
                if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
                    let ahead = ratios.iter().filter(|ratio| **ratio > 1.0).count();
                    let median = ratios[ratios.len() / 2];
                    writeln!(
                        out,
                        "| {peer} | {what} | {} | {ahead} | {least:.2} | {median:.2} | {most:.1} |",
                        ratios.len()
                    )?;
                }
            }
        }
        Ok(out)
    }

    /// Every comparison, lost ones first.
    fn duels(&self) -> Result<String> {
        let mut out = String::new();
        let head = "| | type | n | q | peer | its batch | its ns | ours, ns | its time over ours |\n|---|---|---|---|---|---|---|---|---|\n";
        let (mut lost, won): (Vec<&Duel<'_>>, Vec<&Duel<'_>>) =
            self.duels.iter().partition(|duel| duel.ratio() < 1.0);
        lost.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        for (title, duels) in [("Where a peer is faster", lost), ("Where ours are faster", won)] {
            write!(out, "### {title}: {}\n\n{head}", duels.len())?;
            for duel in duels {
                let Duel { peer, ours } = duel;
                let Shape { op, dtype, exact, sizes } = &peer.shape;
                let q = sizes.get(1).map_or_else(String::new, u64::to_string);
                writeln!(
                    out,
                    "| {op} {exact} | {dtype} | {} | {q} | {} | {} | {} | {} | {:.2} |",
                    sizes[0],
                    peer.name,
                    peer.batch,
                    peer.place.link(&short(peer.ns)),
                    ours.place.link(&short(ours.row.ns_per_item)),
                    duel.ratio()
                )?;
            }
            out.push('\n');
        }
        let missing = self.ledgers.peers.len() - self.duels.len();
        writeln!(out, "{missing} more times of peers have no row of ours within four times their batch.")?;
        Ok(out)
    }

    /// Ranges of the vendor's arms over ours, by operation.
    fn vendor_arms(&self) -> String {
        let mut out = String::new();
        for (op, arm, from) in [
            ("potrf", "cuSOLVER arm, which has to protect the other triangle,", 33),
            ("trsm", "cuBLAS arm", 1),
            ("gemm", "cuBLAS arm", 1),
            ("herk", "cuBLAS arm, which computes the whole square,", 1),
        ] {
            let wanted = |shape: &Shape| shape.op == op && shape.sizes[0] >= from;
            let best = self.fastest.iter().filter(|(shape, _)| wanted(shape));
            let pairs = best.filter_map(|(_, ours)| Some((*ours, self.vendor(ours)?)));
            let mut ratios: Vec<f64> =
                pairs.map(|(ours, vendor)| vendor.row.ns_per_item / ours.row.ns_per_item).collect();
            ratios.sort_by(f64::total_cmp);
            if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
                let from = if from > 1 { format!(" from n = {from}") } else { String::new() };
                out += &format!(
                    "* `{op}`{from}: the {arm} takes {least:.2} to {most:.1} times as long as our fastest kernel (median {:.2}, {} shapes).\n",
                    ratios[ratios.len() / 2],
                    ratios.len()
                );
            }
        }
        out
    }

    /// The worst residuals behind the figures.
    fn residuals(&self) -> String {
        let worst = |dtypes: [&str; 2]| {
            let rows = self.fastest.values().map(|entry| &entry.row);
            let held = rows.filter(|row| dtypes.contains(&&row.dtype[..]));
            held.map(|row| row.residual).fold(0.0, f64::max)
        };
        format!(
            "* Normwise residuals behind the figures: at most {:.1e} (f32, c32) and {:.1e} (f64, c64).\n",
            worst(["f32", "c32"]),
            worst(["f64", "c64"])
        )
    }

    /// How much of the tuner's grids the ledgers have.
    fn coverage(&self) -> String {
        let mut out = String::from("* Cells of the tuner's grids with a row:");
        for op in batchlas_bench::tune::ops() {
            let grid = batchlas_bench::tune::grid(op).unwrap_or_default();
            let timed = grid.iter().filter(|cell| self.ledgers.cells.contains_key(&cell.to_string())).count();
            out += &format!(" {op} {timed} of {},", grid.len());
        }
        out.pop();
        out + ".\n"
    }

    /// Times the floor over the order: ours, and peers.
    fn floors(&self, op: &str) -> Chart {
        let fastest = &self.fastest;
        let shown: Vec<Series> = series()
            .into_iter()
            .filter(|series| {
                series.op == op && fastest.keys().filter(|shape| series.holds(shape)).count() > 4
            })
            .collect();
        let mut points: BTreeMap<_, BTreeMap<u64, f64>> = BTreeMap::new();
        for (r, series) in shown.iter().enumerate() {
            for (c, dtype) in Dtype::ALL.iter().enumerate() {
                for (shape, entry) in fastest {
                    if series.holds(shape) && shape.dtype == dtype.name() {
                        let line = points.entry((r, c, 0)).or_default();
                        line.insert(shape.sizes[0], entry.row.times_floor());
                    }
                }
                for peer in &self.ledgers.peers {
                    let place = SERIES.iter().position(|(name, _)| *name == peer.name);
                    if let Some(s) = place
                        && series.holds(&peer.shape)
                        && peer.shape.dtype == dtype.name()
                    {
                        let line = points.entry((r, c, s)).or_default();
                        let best = line.entry(peer.shape.sizes[0]).or_insert(f64::INFINITY);
                        *best = best.min(peer.times_floor);
                    }
                }
            }
        }
        Chart {
            title: format!("{op} on an H200: times the floor against the order, best batch"),
            rows: shown.into_iter().map(|series| series.title).collect(),
            columns: Dtype::ALL.iter().map(|dtype| dtype.name()).collect(),
            series: SERIES,
            orders: (1.0, 11.0),
            ratios: (-1.0, 7.0),
            points,
        }
    }

    /// Rows of the CPU's ledger for one thread, operands in cache.
    fn cpu_chart(&self) -> Chart {
        let mut points: BTreeMap<_, BTreeMap<u64, f64>> = BTreeMap::new();
        let mut cpu = String::new();
        for (row, _) in &self.ledgers.cpu {
            let place = CPU_ROWS.iter().position(|(op, _)| row["op"] == **op);
            let column = Dtype::ALL.iter().position(|dtype| row["dtype"] == dtype.name());
            let times = &row["ns_per_item"];
            if let (Some(r), Some(c), Some(n), Some(ours)) =
                (place, column, row["n"].as_u64(), times["ours"].as_f64())
                && (row["set"] == "cache" && row["threads"] == 1)
            {
                for (s, (peer, _)) in CPU_SERIES.iter().enumerate() {
                    if let Some(theirs) = times[*peer].as_f64() {
                        points.entry((r, c, s)).or_default().insert(n, theirs / ours);
                    }
                }
                cpu = [&row["cpu"], &row["date"]].map(|v| v.as_str().unwrap_or_default()).join(", ");
            }
        }
        Chart {
            title: format!("Time of a peer over ours, one thread, operands in cache ({cpu})"),
            rows: CPU_ROWS.map(|(_, title)| title.to_owned()).into(),
            columns: Dtype::ALL.iter().map(|dtype| dtype.name()).collect(),
            series: CPU_SERIES,
            orders: (1.0, 8.0),
            ratios: (-1.0, 6.0),
            points,
        }
    }

    /// The best peer over ours, by operation and threads.
    fn cpu_standing(&self) -> Result<String> {
        let mut ratios: BTreeMap<(usize, u64), Vec<f64>> = BTreeMap::new();
        for (row, _) in &self.ledgers.cpu {
            let place = CPU_ROWS.iter().position(|(op, _)| row["op"] == **op);
            if let (Some(op), Some(threads), Some(ratio)) =
                (place, row["threads"].as_u64(), row["ratio"].as_f64())
            {
                ratios.entry((op, threads)).or_default().push(ratio);
            }
        }
        let mut out = String::from(
            "| operation | threads | cells | ours fastest | best peer over ours: least | median | greatest |\n|---|---|---|---|---|---|---|\n",
        );
        for ((op, threads), mut ratios) in ratios {
            ratios.sort_by(f64::total_cmp);
            let ahead = ratios.iter().filter(|ratio| **ratio > 1.0).count();
            let (cells, title) = (ratios.len(), CPU_ROWS[op].1);
            let (least, median, most) = (ratios[0], ratios[cells / 2], ratios[cells - 1]);
            writeln!(
                out,
                "| {title} | {threads} | {cells} | {ahead} | {least:.2} | {median:.2} | {most:.1} |"
            )?;
        }
        Ok(out)
    }

    /// Every cell of the CPU in which a peer is faster.
    fn cpu_losses(&self) -> String {
        let ratio = |row: &serde_json::Value| row["ratio"].as_f64().filter(|ratio| *ratio < 1.0);
        let mut lost: Vec<_> =
            self.ledgers.cpu.iter().filter_map(|(row, place)| Some((ratio(row)?, row, place))).collect();
        lost.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut out = format!(
            "\n### Where a peer is faster: {} of {}\n\n| operation | type | n | threads | operands in | peer | its time over ours |\n|---|---|---|---|---|---|---|\n",
            lost.len(),
            self.ledgers.cpu.len()
        );
        for (ratio, row, place) in lost {
            let word = |field: &str| row[field].as_str().unwrap_or_default();
            let place = place.link(&format!("{ratio:.2}"));
            out += &format!(
                "| {} | {} | {} | {} | {} | {} | {place} |\n",
                word("op"),
                word("dtype"),
                row["n"],
                row["threads"],
                word("set"),
                word("best_peer")
            );
        }
        out
    }
}

const OFF_GRID: &str = "off-grid problems, drawn once and timed afresh";

/// How many choices are within so many per cent of the best.
fn choice(what: &str, per_cent: u32, (judged, untimed): &(Vec<Judged<'_>>, usize)) -> String {
    let bound = 1.0 + f64::from(per_cent) / 100.0;
    let within = judged.iter().filter(|judged| judged.loss() <= bound).count();
    let vendor = judged.iter().filter_map(Judged::against_vendor);
    let (with, slower) =
        vendor.fold((0, 0), |(all, slower), loss| (all + 1, slower + u32::from(loss > 1.03)));
    format!(
        "* Of {what}: in {within} of {} ({:.1}%) the choice is within {per_cent}% of the best spelling; in {slower} of {with} \
         the vendor's arm is more than 3% faster. The choice of {untimed} more was not timed.\n",
        judged.len(),
        100.0 * within as f64 / judged.len().max(1) as f64
    )
}

/// A table of choices that lose, worst first.
fn losses<'e>(
    title: &str,
    judged: &[Judged<'e>],
    loss: impl Fn(&Judged<'e>) -> Option<(f64, &'e Entry)>,
) -> String {
    let mut lost: Vec<_> = judged.iter().filter_map(|judged| Some((loss(judged)?, judged))).collect();
    lost.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
    let head = "| cell | chosen | ns | better | ns | loss |\n|---|---|---|---|---|---|\n";
    let mut out = format!("\n### {title}: {}\n\n{head}", lost.len());
    for ((loss, better), judged) in lost {
        let of = |entry: &Entry| {
            let name = entry.row.executed.split('(').next().unwrap_or_default();
            let name = name.split_once('=').map_or(name, |(_, spelling)| spelling);
            format!("`{name}` | {}", entry.place.link(&short(entry.row.ns_per_item)))
        };
        out += &format!("| {} | {} | {} | {loss:.2} |\n", judged.cell, of(judged.chosen), of(better));
    }
    out
}

/// Three significant digits, without an exponent.
fn short(value: f64) -> String {
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 8.0) as usize;
    format!("{value:.digits$}")
}

const PREFACE: &str = "\
# Performance

Generated by `cargo xtask report` from `tuned/ledger`; a test holds it against the ledgers. A figure is a link to the line that
it is from, which has the device, versions, commit, date, residual and deviation.

Measured on an H200 with CUDA 13.0: medians of calls on inputs restored before each, between events. The floor is the memory
traffic at the measured copy bandwidth or the arithmetic at 67 TFLOP/s, whichever takes longer
(`crates/batchlas-bench/src/floor.rs`). A figure is the fastest of our own kernels over batches that no cache holds and whose
time per item no longer falls with the batch; \\* marks those for which there is no such batch, which show the largest one.
";

const PEERS: &str = "\
Times of other libraries on an H200 with CUDA 13.0, beside the fastest of our own kernels for the same shape at the nearest
batch, at most four times off. A ratio above 1 is in our favour.
";

const CHOICE: &str = "\
The time of what the tables choose today over the best time of the cell. The tables are made from the timed cells, so that
the figure for those shows only how well choosing works; the off-grid problems (`crates/batchlas-bench/grids/quality.txt`) are in no
table.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_generated_is_what_the_ledgers_say() {
        let root = root().unwrap();
        for (file, text) in files(root).unwrap() {
            let committed = fs::read_to_string(root.join(&file)).unwrap();
            let line = committed.lines().zip(text.lines()).position(|(old, new)| old != new);
            assert!(
                committed == text,
                "{file} differs from line {} on: run cargo xtask report",
                line.unwrap_or(0) + 1
            );
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let written = [0.03571, 1.234, 12.34, 0.5, 1234.5, 99.96, 185_569.3].map(short);
        assert_eq!(written, ["0.0357", "1.23", "12.3", "0.500", "1234", "100.0", "185569"]);
    }
}
