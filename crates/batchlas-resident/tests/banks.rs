//! Pins of the bank arithmetic of 16-byte rows, and the simulator against the layouts of the quantised matmul.

use batchlas_resident::banks::{
    is_matrix_pitch, matrix_conflicts, matrix_pitch, phase_conflicts, start_bank, warp_phases,
};

/// Bytes of one 128-row slot of the quantised matmul at a pitch of 48.
const SLOT: usize = 128 * 48;

#[test]
fn start_banks_of_a_48_byte_pitch() {
    let banks: Vec<usize> = (0..8).map(|row| start_bank(48, row)).collect();
    assert_eq!(banks, [0, 12, 24, 4, 16, 28, 8, 20]);
    let banks: Vec<usize> = (0..8).map(|row| start_bank(32, row)).collect();
    assert_eq!(banks, [0, 8, 16, 24, 0, 8, 16, 24], "two rows a bank, not eight");
}

#[test]
fn conflicts_by_pitch() {
    for (pitch, conflicts) in [(16, 1), (32, 2), (44, 3), (48, 1), (52, 2), (80, 1), (256, 8)] {
        assert_eq!(matrix_conflicts(pitch), conflicts, "pitch {pitch}");
    }
}

/// 44 and 52 have eight distinct start banks: start phases alone prove nothing.
#[test]
fn distinct_start_banks_are_not_sufficient() {
    for pitch in [44, 52] {
        let mut banks: Vec<usize> = (0..8).map(|row| start_bank(pitch, row)).collect();
        banks.sort_unstable();
        banks.dedup();
        assert_eq!(banks.len(), 8);
        assert!(matrix_conflicts(pitch) > 1);
    }
}

#[test]
fn a_pitch_is_free_of_conflicts_iff_its_sixteenth_is_odd() {
    for pitch in (16..=8192).step_by(16) {
        assert_eq!(matrix_conflicts(pitch) == 1, pitch / 16 % 2 == 1, "pitch {pitch}");
        assert_eq!(is_matrix_pitch(pitch), matrix_conflicts(pitch) == 1, "pitch {pitch}");
    }
    assert!(!is_matrix_pitch(44) && !is_matrix_pitch(52), "misaligned");
}

#[test]
fn the_pitch_for_a_payload() {
    assert_eq!([1, 16, 17, 32, 33, 48, 64, 128].map(matrix_pitch), [16, 16, 48, 48, 48, 48, 80, 144]);
    for payload in 1..1024 {
        let smallest = (payload..).find(|&p| is_matrix_pitch(p)).unwrap();
        assert_eq!(matrix_pitch(payload), smallest, "{payload}");
    }
}

#[test]
fn simulator_on_textbook_accesses() {
    let lanes = |f: fn(usize) -> usize| (0..32).map(f).collect::<Vec<_>>();
    assert_eq!(phase_conflicts(&[], 4), 0);
    assert_eq!(warp_phases(&lanes(|l| 4 * l), 4), 1, "unit stride");
    assert_eq!(warp_phases(&lanes(|_| 64), 4), 1, "broadcast");
    assert_eq!(warp_phases(&lanes(|l| 8 * l), 4), 2, "stride two");
    assert_eq!(warp_phases(&lanes(|l| 128 * l), 4), 32, "one column of a 32-wide tile");
    assert_eq!(warp_phases(&lanes(|l| 132 * l), 4), 1, "one column of a 33-wide tile");
    assert_eq!(warp_phases(&lanes(|l| 8 * l), 8), 2, "unit stride, f64");
    assert_eq!(warp_phases(&lanes(|l| 16 * l), 16), 4, "unit stride, complex f64");
    assert_eq!(warp_phases(&lanes(|l| 16 * 32 * l), 16), 32, "one column of a 32-wide complex f64 tile");
}

/// Scales of the quantised matmul: four lanes read one contiguous 64 bytes, the other lanes the same again.
#[test]
fn wide_scale_reads_are_free_of_conflicts() {
    let lanes: Vec<usize> = (0..32).map(|lane| (lane & 3) * 16).collect();
    assert_eq!(warp_phases(&lanes, 16), 4);
}

/// Staging: neighbouring lanes in different slots are 12,288 bytes apart, the same bank; row-fastest is free.
#[test]
fn staging_stores_conflict_four_ways_unless_rows_run_fastest() {
    assert_eq!(2 * SLOT, 12_288);
    let pair_fastest: Vec<usize> = (0..8).map(|x| x % 4 * 2 * SLOT + x / 4 * 48).collect();
    let row_fastest: Vec<usize> = (0..8).map(|x| x * 48).collect();
    assert_eq!(phase_conflicts(&pair_fastest, 16), 4);
    assert_eq!(phase_conflicts(&row_fastest, 16), 1);
}
