//! Pins of the capacity arithmetic: budgets, the launch hole, the walk and the ceilings at the reference budget.

use batchlas_resident::Element;
use batchlas_resident::budget::{
    MIN_BLOCKS_PER_SM, QR_MIN_BLOCKS_PER_SM, RESERVE, device_slm_budget, occupancy_budget,
};
use batchlas_resident::footprint::{
    left_panel, left_panel_ceilings, qr_panel, qr_panel_ceilings, square_tile, square_tile_ceilings,
};
use batchlas_resident::hole::{HOLE_HI, HOLE_LO, HOLE_PAD_TO, pad};
use batchlas_resident::walk::{Ceilings, N_HI, resident_max_n};

/// An `sm_89` device: 101,376 bytes opt-in. The published figures are at this budget; no code reads it.
const REFERENCE_BUDGET: usize = 97_280;
/// Its slice at four work-groups per multiprocessor.
const REFERENCE_SLICE: usize = 24_320;

fn pair(ceilings: Ceilings) -> (usize, usize) {
    (ceilings.advertised.expect("order 1 fits"), ceilings.resident.expect("order 1 fits"))
}

#[test]
fn budget_is_local_memory_minus_the_reserve() {
    assert_eq!(RESERVE, 4096);
    assert_eq!(device_slm_budget(101_376, RESERVE), 97_280);
    assert_eq!(device_slm_budget(49_152, RESERVE), 45_056);
    assert_eq!(device_slm_budget(1_000, RESERVE), 0);
}

#[test]
fn occupancy_slices() {
    assert_eq!((MIN_BLOCKS_PER_SM, QR_MIN_BLOCKS_PER_SM), (4, 2));
    assert_eq!(occupancy_budget(97_280, 1), 97_280);
    assert_eq!(occupancy_budget(97_280, 4), REFERENCE_SLICE);
    assert_eq!(occupancy_budget(97_280, 2), 48_640);
    assert_eq!(occupancy_budget(97_280, 0), 97_280);
}

/// A baked 49,152 is 2.06 times too small on `sm_89`: no item of this crate may hold it.
#[test]
fn no_architecture_constant_stands_in_for_the_live_budget() {
    assert_eq!((101_376.0_f64 / 49_152.0 * 100.0).round(), 206.0);
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut seen = 0;
    for source in sources {
        let text = std::fs::read_to_string(source.unwrap().path()).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for constant in ["49_152", "49152", "97_280", "97280"] {
                assert!(!line.contains(constant), "baked budget: {line}");
            }
        }
        seen += 1;
    }
    assert!(seen >= 9, "only {seen} sources scanned");
}

#[test]
fn the_hole_is_one_band() {
    assert_eq!((HOLE_LO, HOLE_HI, HOLE_PAD_TO), (47_104, 49_664, 49_920));
    for (bytes, padded) in [
        (0, 0),
        (47_104, 47_104),
        (47_105, 49_920),
        (47_200, 49_920),
        (49_664, 49_920),
        (49_665, 49_665),
        (49_700, 49_700),
        (49_920, 49_920),
        (65_536, 65_536),
    ] {
        assert_eq!(pad(bytes), padded, "pad({bytes})");
    }
}

/// 128 bytes per order, padded.
fn synthetic(n: usize) -> usize {
    pad(128 * n)
}

/// The defect: the largest order that fits, whatever lies below it.
fn skipping_walk(budget: usize) -> Option<usize> {
    (1..=N_HI).filter(|&n| synthetic(n) <= budget).max()
}

#[test]
fn the_walk_stops_at_the_first_miss() {
    assert_eq!(synthetic(368), 47_104);
    assert!((369..=388).all(|n| synthetic(n) == 49_920));
    assert_eq!(synthetic(389), 49_792);

    assert_eq!(resident_max_n(synthetic, 49_850, 1, N_HI), Some(368));
    assert_eq!(skipping_walk(49_850), Some(389));
}

#[test]
fn budgets_that_tell_a_skipping_walk_apart() {
    let differing: Vec<usize> =
        (49_000..50_500).filter(|&b| resident_max_n(synthetic, b, 1, N_HI) != skipping_walk(b)).collect();
    assert_eq!(differing, (49_792..49_920).collect::<Vec<_>>());
    assert_eq!(resident_max_n(synthetic, 49_920, 1, N_HI), Some(390));
    assert_eq!(skipping_walk(49_920), Some(390));
    // Any grain: a footprint can only be non-monotone where the band is.
    let byte_grain: Vec<usize> = (49_000..50_500)
        .filter(|&b| resident_max_n(pad, b, 1, 60_000) != (1..60_000).filter(|&n| pad(n) <= b).max())
        .collect();
    assert_eq!(byte_grain, (HOLE_HI + 1..HOLE_PAD_TO).collect::<Vec<_>>());
}

#[test]
fn nothing_fits_is_none() {
    assert_eq!(resident_max_n(synthetic, 127, 1, N_HI), None);
    assert_eq!(resident_max_n(synthetic, 97_280, 1, 7), Some(7));
}

#[test]
fn square_tile_bytes_at_each_ceiling_and_first_miss() {
    for (element, n, bytes, miss) in [
        (Element::F32, 155, 96_540, 98_408),
        (Element::F64, 109, 95_476, 98_108),
        (Element::C32, 109, 95_444, 98_076),
        (Element::C64, 77, 95_328, 99_056),
    ] {
        assert_eq!(square_tile(element, n), bytes, "{element:?}");
        assert_eq!(square_tile(element, n + 1), miss, "{element:?}");
        assert!(bytes <= REFERENCE_BUDGET && REFERENCE_BUDGET < miss);
    }
    // At or below one panel there is no trailing tile, only the terminating entry.
    for n in 1..=8 {
        assert_eq!(square_tile(Element::F32, n), (n | 1) * n * 4 + 32 + 4 + 256);
    }
    assert_eq!(square_tile(Element::F32, usize::MAX), usize::MAX);
}

/// A profiler reads 96,408 bytes for f32 at order 155: the prediction must not be below what is used.
#[test]
fn slack_covers_what_a_profiler_reads() {
    assert!(square_tile(Element::F32, 155) >= 96_408);
}

#[test]
fn square_tile_ceilings_at_the_reference_budget() {
    // Cholesky and LU hold the same tile.
    let expected = [(77, 155), (54, 109), (54, 109), (38, 77)];
    for (element, expected) in Element::ALL.into_iter().zip(expected) {
        assert_eq!(pair(square_tile_ceilings(element, REFERENCE_BUDGET)), expected, "{element:?}");
    }
}

#[test]
fn square_tile_ceilings_at_other_budgets() {
    for (budget, expected) in [
        (24_320, [77, 54, 54, 38]),
        (45_056, [105, 74, 74, 52]),
        (97_280, [155, 109, 109, 77]),
        (101_120, [158, 111, 111, 79]),
    ] {
        for (element, expected) in Element::ALL.into_iter().zip(expected) {
            assert_eq!(pair(square_tile_ceilings(element, budget)).1, expected, "{element:?} at {budget}");
        }
    }
}

#[test]
fn qr_panel_ceilings_are_cut_by_the_hole() {
    let expected = [(11_776, 24_320), (5_888, 12_160), (5_888, 12_160), (2_944, 6_080)];
    for (element, expected) in Element::ALL.into_iter().zip(expected) {
        let got = pair(qr_panel_ceilings(element, REFERENCE_BUDGET));
        assert_eq!(got, expected, "{element:?}");
        assert_eq!(got.0, HOLE_LO / element.bytes);
        // The slice would hold more, were the next element not padded past it.
        assert!((got.0 + 1) * element.bytes <= 48_640 && qr_panel(element, got.0 + 1) > 48_640);
    }
}

#[test]
fn left_panel_ceilings_at_the_reference_budget() {
    let expected = [(744, 1024), (368, 1024), (368, 1024), (180, 750)];
    for (element, expected) in Element::ALL.into_iter().zip(expected) {
        assert_eq!(pair(left_panel_ceilings(element, 8, REFERENCE_BUDGET)), expected, "{element:?}");
    }
    assert_eq!(pair(left_panel_ceilings(Element::F32, 16, REFERENCE_BUDGET)).0, 360);
    assert_eq!(left_panel(Element::F32, 8, 744, 1), (744 * 8 + 64) * 4 + 256);
}

/// Advertised below resident, and each predicate true at its ceiling and false one above.
#[test]
fn the_two_scales_are_distinct_and_sharp() {
    for element in Element::ALL {
        let tile = square_tile_ceilings(element, REFERENCE_BUDGET);
        sharp("tile", |n| square_tile(element, n), tile, MIN_BLOCKS_PER_SM);
        let panel = left_panel_ceilings(element, 8, REFERENCE_BUDGET);
        sharp("panel", |n| left_panel(element, 8, n, 1), panel, MIN_BLOCKS_PER_SM);
        let qr = qr_panel_ceilings(element, REFERENCE_BUDGET);
        sharp("qr", |n| qr_panel(element, n), qr, QR_MIN_BLOCKS_PER_SM);
    }
}

fn sharp(name: &str, bytes: impl Fn(usize) -> usize, ceilings: Ceilings, blocks: usize) {
    let (advertised, resident) = pair(ceilings);
    assert!(advertised < resident, "{name}");
    let slice = REFERENCE_BUDGET / blocks;
    assert!(bytes(advertised) <= slice && bytes(advertised + 1) > slice, "{name}");
    let capped = name == "panel" && resident == 1024;
    assert!(
        capped || bytes(resident) <= REFERENCE_BUDGET && bytes(resident + 1) > REFERENCE_BUDGET,
        "{name}"
    );
}

#[test]
fn ceilings_grow_with_the_budget() {
    for element in Element::ALL {
        for (small, large) in [
            (square_tile_ceilings(element, 97_280), square_tile_ceilings(element, 101_376)),
            (qr_panel_ceilings(element, 97_280), qr_panel_ceilings(element, 101_376)),
        ] {
            assert!(small.resident < large.resident, "{element:?}");
            assert!(small.advertised <= large.advertised, "{element:?}");
        }
    }
}

/// Derived, not pinned: what the same formulas give where an `sm_90` device grants 232,448 bytes.
///
/// The figures below are the derivation written out by hand. A device may answer with another opt-in limit; then this
/// test stays right and the live ceilings differ.
#[test]
fn sm_90_figures_are_derived_from_the_opt_in_limit() {
    let budget = device_slm_budget(232_448, RESERVE);
    assert_eq!((budget, occupancy_budget(budget, MIN_BLOCKS_PER_SM)), (228_352, 57_088));
    let tile = [(119, 238), (83, 168), (83, 168), (59, 119)];
    let panel = [1024, 880, 880, 436];
    for (i, element) in Element::ALL.into_iter().enumerate() {
        assert_eq!(pair(square_tile_ceilings(element, budget)), tile[i], "{element:?}");
        assert_eq!(pair(left_panel_ceilings(element, 8, budget)).0, panel[i], "{element:?}");
    }
    let walked = resident_max_n(|n| left_panel(Element::F32, 8, n, 1), budget, MIN_BLOCKS_PER_SM, N_HI);
    assert_eq!(walked, Some(1768), "the work-group limit, not memory, stops f32 at 1024");
    assert_eq!(pair(left_panel_ceilings(Element::F32, 16, budget)).0, 872);
}
