//! Properties of the choice over random tables, refusals and pins.

use std::cell::RefCell;

use batchlas_select::{
    Class, Device, Header, Pin, Problem, Row, SelectError, Source, Spelling, Table, Tables, Why, choose,
};
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::ops::{ALL, POTRF, by_caller};

fn candidates() -> Vec<Spelling> {
    POTRF.spellings().collect()
}

/// Rows with distinct keys, at most 12.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let ranking = subsequence(candidates(), 1..=candidates().len()).prop_shuffle();
    let row = (any::<bool>(), 1..64_u64, 1..1024_u64, ranking);
    prop::collection::vec(row, 0..12).prop_map(|rows| {
        let mut kept: Vec<Row> = Vec::new();
        for (upper, n, batch, ranking) in rows {
            let key = POTRF.key(&[if upper { "U" } else { "L" }], &[n, batch]).unwrap();
            if kept.iter().all(|row| row.key != key) {
                let (source, ns, kernel, line) = (Source::Measured, Vec::new(), None, 0);
                kept.push(Row { key, ranking, source, ns, kernel, line });
            }
        }
        kept
    })
}

fn table(rows: Vec<Row>) -> Table {
    let header = Header { dtype: "f32".to_owned(), device: Device::Sm(90), generated_by: "test".to_owned() };
    Table::new(&POTRF, header, rows, "potrf.f32.sm_90.toml").unwrap()
}

fn pin() -> impl Strategy<Value = Pin> {
    let exact = any::<Index>().prop_map(|index| Pin::Exact(candidates()[index.index(candidates().len())]));
    prop_oneof![Just(Pin::Auto), Just(Pin::Native), Just(Pin::Vendor), exact]
}

proptest! {
    /// Total where anything runs, never a refused candidate, deterministic, and asks nobody twice.
    #[test]
    fn choice_is_total_sound_and_deterministic(
        rows in rows(),
        runs in subsequence(candidates(), 0..=6),
        pin in pin(),
        vendor_free: bool,
        device in prop_oneof![Just(Device::Cpu), (70..130_u32).prop_map(Device::Sm)],
        upper: bool,
        n in 1..64_u64,
        batch in 1..1024_u64,
    ) {
        let text = table(rows).to_toml();
        let tables = Tables::from_texts(&ALL, [("potrf.f32.sm_90.toml", text)]).unwrap();
        let key = POTRF.key(&[if upper { "U" } else { "L" }], &[n, batch]).unwrap();
        let problem = Problem { vocabulary: &POTRF, dtype: "f32", device, key: &key };
        let asked = RefCell::new(Vec::new());
        let go = || {
            asked.borrow_mut().clear();
            choose(&problem, &tables, by_caller(pin), vendor_free, |spelling| {
                asked.borrow_mut().push(*spelling);
                if runs.contains(spelling) { Ok(()) } else { Err("refused".into()) }
            })
        };
        let result = go();
        prop_assert_eq!(&result, &go());

        let asked = asked.borrow();
        prop_assert!(asked.iter().enumerate().all(|(i, spelling)| !asked[..i].contains(spelling)));
        let usable = |spelling: &Spelling| runs.contains(spelling) && !(vendor_free && spelling.class() == Class::Vendor);
        match (&result, pin) {
            (Ok(choice), Pin::Exact(pinned)) => prop_assert!(choice.spelling == pinned && usable(&pinned)),
            (Err(SelectError::PinCannotRun { .. }), Pin::Exact(pinned)) => prop_assert!(!usable(&pinned)),
            (Ok(choice), pin) => {
                prop_assert!(usable(&choice.spelling));
                prop_assert!(choice.skipped.iter().all(|(spelling, _)| !usable(spelling)));
                // A class pin is only left when nothing of its class is usable.
                if let Some(class) = pin.class() {
                    let served = candidates().iter().any(|spelling| spelling.class() == class && usable(spelling));
                    prop_assert_eq!(served, choice.spelling.class() == class);
                }
            }
            (Err(error), _) => {
                prop_assert!(matches!(error, SelectError::NothingRuns { .. }), "{}", error);
                prop_assert!(!candidates().iter().any(usable), "{}", error);
            }
        }
    }

    /// The nearest row is the first of least distance: a plain search over all rows agrees.
    #[test]
    fn nearest_is_the_first_row_of_least_distance(rows in rows(), upper: bool, n in 1..64_u64, batch in 1..1024_u64) {
        let table = table(rows);
        let key = POTRF.key(&[if upper { "U" } else { "L" }], &[n, batch]).unwrap();
        let distances: Vec<Option<f64>> = table.rows().iter().map(|row| POTRF.distance(&key, &row.key)).collect();
        let least = distances.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let first = distances.iter().position(|distance| distance.is_some_and(|d| d <= least + 1e-9));
        match (table.nearest(&key), first) {
            (Some((row, distance)), Some(first)) => {
                prop_assert!((distance - least).abs() <= 1e-9);
                prop_assert_eq!(&row.key, &table.rows()[first].key);
            }
            (found, first) => prop_assert!(found.is_none() && first.is_none()),
        }
    }

    /// Every candidate, and every pin, parses back from what it prints.
    #[test]
    fn text_round_trips(pin in pin(), rows in rows()) {
        // The spelling `vendor` and the class pin `vendor` share their text; the class is what a user means.
        if pin != Pin::Exact(POTRF.spelling("vendor").unwrap()) {
            prop_assert_eq!(POTRF.pin(&pin.to_string()), Ok(pin));
        }
        let table = table(rows);
        let again = Table::parse(&POTRF, "potrf.f32.sm_90.toml", &table.to_toml()).unwrap();
        prop_assert_eq!(table.to_toml(), again.to_toml());
        prop_assert_eq!(table.rows().len(), again.rows().len());
    }

    /// Ranked choices name a row that exists and holds the choice at the rank given.
    #[test]
    fn ranked_choices_can_be_looked_up(rows in rows(), n in 1..64_u64, batch in 1..1024_u64) {
        let text = table(rows).to_toml();
        let parsed = Table::parse(&POTRF, "potrf.f32.sm_90.toml", &text).unwrap();
        let tables = Tables::from_texts(&ALL, [("potrf.f32.sm_90.toml", text)]).unwrap();
        let key = POTRF.key(&["L"], &[n, batch]).unwrap();
        let problem = Problem { vocabulary: &POTRF, dtype: "f32", device: Device::Sm(90), key: &key };
        let choice = choose(&problem, &tables, by_caller(Pin::Auto), false, |_| Ok(())).unwrap();
        if let Why::Ranked(ranking) = choice.why {
            let row = parsed.rows().iter().find(|row| row.line == ranking.line).unwrap();
            prop_assert_eq!(row.ranking[ranking.rank], choice.spelling);
            prop_assert_eq!(POTRF.distance(&key, &row.key), Some(ranking.distance));
        }
    }
}
