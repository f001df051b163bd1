//! How good the tables' choice is: the time of what they choose today over the best time of the cell.
//!
//! A cell's rows are those of one contest or more. What is chosen is found by making the call on a queue that runs nothing,
//! and its time is that of the row that executed the same.

use std::collections::BTreeMap;

use batchlas::Context;
use batchlas_bench::measure::chosen;
use batchlas_bench::tune;

use super::ledger::Entry;

/// A choice and what it is held against.
pub(super) struct Judged<'e> {
    /// The cell, as a line of a grid.
    pub(super) cell: &'e str,
    /// The row of the choice.
    pub(super) chosen: &'e Entry,
    /// The fastest row.
    pub(super) best: &'e Entry,
    /// The row of the vendor's arm.
    pub(super) vendor: Option<&'e Entry>,
}

impl Judged<'_> {
    /// Time of the choice over the best.
    pub(super) fn loss(&self) -> f64 {
        self.chosen.row.ns_per_item / self.best.row.ns_per_item
    }

    /// Time of the choice over the vendor's arm, where that was timed.
    pub(super) fn against_vendor(&self) -> Option<f64> {
        Some(self.chosen.row.ns_per_item / self.vendor?.row.ns_per_item)
    }
}

/// The cells in which at least two spellings were timed: those whose choice was timed too, and the number of others.
pub(super) fn judge<'e>(
    rehearsal: &Context,
    cells: &'e BTreeMap<String, Vec<Entry>>,
) -> (Vec<Judged<'e>>, usize) {
    let mut judged = Vec::new();
    let mut untimed = 0;
    for (cell, entries) in cells {
        let mut by_time: Vec<&Entry> = entries.iter().collect();
        by_time.sort_by(|a, b| a.row.ns_per_item.total_cmp(&b.row.ns_per_item));
        let [best, _, ..] = by_time[..] else { continue };
        if !tune::ops().any(|op| op == best.row.op) {
            continue;
        }
        let executed = chosen(rehearsal, &best.cell).ok();
        // An arm that left the choice to the tables ran the same as the one that named it.
        let same = by_time.iter().find(|entry| Some(&entry.row.executed) == executed.as_ref());
        match same.copied() {
            Some(chosen) => {
                let vendor = entries.iter().find(|entry| entry.row.family == "vendor");
                judged.push(Judged { cell, chosen, best, vendor });
            }
            None => untimed += 1,
        }
    }
    (judged, untimed)
}
