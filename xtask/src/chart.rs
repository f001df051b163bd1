//! `cargo xtask chart`: draws `tuned/ledger/peers/cpu.jsonl`, times of peers over ours on one thread, as `docs/peers-cpu.svg`.
//!
//! A panel per operation and element type; order across, ratio up, both logarithmic. Above the line at 1 we are faster.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Result;

/// Operations from top to bottom, as the ledger names them and as the chart does.
const ROWS: [(&str, &str); 5] = [
    ("potrf", "potrf"),
    ("posv1", "posv, 1 right-hand side"),
    ("posv16", "posv, 16"),
    ("left4", "trsm left, 4"),
    ("right32", "trsm right, 32"),
];
const COLUMNS: [&str; 4] = ["f32", "f64", "c32", "c64"];
const PEERS: [(&str, &str); 4] =
    [("faer", "#d1495b"), ("openblas", "#66a182"), ("mkl", "#00798c"), ("compact", "#edae49")];

/// A panel's plot, and the room around it, in pixels.
const PLOT: (f64, f64) = (190.0, 120.0);
const GAP: (f64, f64) = (48.0, 46.0);
/// Powers of two at the edges: orders, and ratios; what is beyond is drawn on the edge.
const ORDERS: (f64, f64) = (1.0, 8.0);
const RATIOS: (f64, f64) = (-1.0, 6.0);

/// Points of a line: order and ratio.
type Lines = BTreeMap<(String, String, String), BTreeMap<u64, f64>>;

/// Draws the chart.
pub(crate) fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        return Err(format!("chart takes no arguments, not `{}`", args.join(" ")).into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let text = fs::read_to_string(root.join("tuned/ledger/peers/cpu.jsonl"))?;
    let mut lines = Lines::new();
    let mut cpu = String::new();
    for row in text.lines() {
        let row: Value = serde_json::from_str(row)?;
        if row["set"] == "cache" && row["threads"] == 1 {
            let word = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
            cpu = format!("{}, {}", word("cpu"), word("date"));
            let times = &row["ns_per_item"];
            let (Some(n), Some(ours)) = (row["n"].as_u64(), times["ours"].as_f64()) else {
                return Err(format!("a row without an order or a time of ours: {row}").into());
            };
            for (peer, _) in PEERS {
                if let Some(theirs) = times[peer].as_f64() {
                    let line = lines.entry((word("op"), word("dtype"), peer.to_owned())).or_default();
                    line.insert(n, theirs / ours);
                }
            }
        }
    }
    fs::write(root.join("docs/peers-cpu.svg"), draw(&lines, &cpu)?)?;
    println!("docs/peers-cpu.svg");
    Ok(())
}

/// Places of a panel's logarithmic axes.
fn across(log: f64) -> f64 {
    (log - ORDERS.0) / (ORDERS.1 - ORDERS.0) * PLOT.0
}

fn up(log: f64) -> f64 {
    (1.0 - (log.clamp(RATIOS.0, RATIOS.1) - RATIOS.0) / (RATIOS.1 - RATIOS.0)) * PLOT.1
}

fn draw(lines: &Lines, cpu: &str) -> Result<String, std::fmt::Error> {
    let cell = (PLOT.0 + GAP.0, PLOT.1 + GAP.1);
    let (width, height) = (COLUMNS.len() as f64 * cell.0 + 20.0, ROWS.len() as f64 * cell.1 + 50.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<!-- drawn by cargo xtask chart from tuned/ledger/peers/cpu.jsonl -->\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\">Time of a peer over ours, one thread, operands in cache ({cpu})</text>\n"
    );
    for (i, (peer, colour)) in PEERS.iter().enumerate() {
        let x = width - 320.0 + 80.0 * i as f64;
        writeln!(svg, "<text x=\"{x}\" y=\"34\" fill=\"{colour}\">&#9632; {peer}</text>")?;
    }
    for (r, (op, title)) in ROWS.iter().enumerate() {
        for (c, dtype) in COLUMNS.iter().enumerate() {
            let (x, y) = (c as f64 * cell.0 + 36.0, r as f64 * cell.1 + 62.0);
            writeln!(svg, "<g transform=\"translate({x},{y})\"><text y=\"-5\">{title}, {dtype}</text>")?;
            for power in (RATIOS.0 as i32)..=(RATIOS.1 as i32) {
                let (at, ratio) = (up(f64::from(power)), 2f64.powi(power));
                let stroke = if power == 0 { "#333" } else { "#ddd" };
                writeln!(svg, "<path d=\"M0 {at:.1}H{}\" stroke=\"{stroke}\"/>", PLOT.0)?;
                writeln!(svg, "<text x=\"-4\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>", at + 4.0)?;
            }
            for power in (ORDERS.0 as i32)..=(ORDERS.1 as i32) {
                let (at, n) = (across(f64::from(power)), 1 << power);
                writeln!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{n}</text>",
                    PLOT.1 + 14.0
                )?;
            }
            for (peer, colour) in PEERS {
                let key = ((*op).to_owned(), (*dtype).to_owned(), peer.to_owned());
                let points: Vec<String> = lines
                    .get(&key)
                    .into_iter()
                    .flatten()
                    .map(|(&n, ratio)| format!("{:.1},{:.1}", across((n as f64).log2()), up(ratio.log2())))
                    .collect();
                let points = points.join(" ");
                writeln!(
                    svg,
                    "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"
                )?;
            }
            svg.push_str("</g>\n");
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}
