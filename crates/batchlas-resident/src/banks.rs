//! Shared-memory banks: a simulator for one access, and the pitch rule for 16-byte rows that follows from it.
//!
//! Shared memory is 32 banks of 4 bytes. An access is served in phases of at most 128 bytes: a whole warp for 4-byte
//! words, half of it for 8, a quarter for 16; `ldmatrix` reads one 8 x 16 byte matrix per phase. Within a phase, a bank
//! delivers one 4-byte word; lanes that want the same word share it, different words of one bank take turns.
//!
//! Distinct *start* banks do not make 16-byte rows conflict-free, because each row covers four banks. Rows whose pitch is
//! a multiple of 16 bytes fall on four-bank groups, of which there are eight, so eight rows are disjoint **if and only
//! if `pitch / 16` is odd**. A pitch of 44 or 52 bytes has eight distinct start banks and still conflicts (and `ldmatrix`
//! refuses it for alignment). 32 bytes is a 2-way conflict; the 8-way case is a pitch of 256 bytes.

/// Banks of shared memory.
pub const BANKS: usize = 32;
/// Bytes a bank delivers at a time.
pub const BANK_BYTES: usize = 4;
/// Bytes one phase can deliver.
pub const PHASE_BYTES: usize = BANKS * BANK_BYTES;
/// Bytes of a row of an `ldmatrix` tile, and the alignment of its address.
pub const MATRIX_ROW_BYTES: usize = 16;
/// Rows of an `ldmatrix` tile.
pub const MATRIX_ROWS: usize = 8;

/// Bank of the first word of row `row` at a pitch of `pitch` bytes.
#[must_use]
pub const fn start_bank(pitch: usize, row: usize) -> usize {
    pitch / BANK_BYTES * row % BANKS
}

/// How often one phase is replayed: the most distinct words that any bank must deliver.
///
/// `addresses` are the byte addresses of the lanes of this phase, each reading `width` bytes. 1 is conflict-free,
/// 0 is no access. Quadratic in the words read, which are at most 32 for a real phase.
#[must_use]
pub const fn phase_conflicts(addresses: &[usize], width: usize) -> usize {
    let words = width.div_ceil(BANK_BYTES);
    let mut load = [0; BANKS];
    let mut worst = 0;
    let mut access = 0;
    while access < addresses.len() * words {
        let word = nth_word(addresses, words, access);
        let mut earlier = 0;
        while earlier < access && nth_word(addresses, words, earlier) != word {
            earlier += 1;
        }
        if earlier == access {
            load[word % BANKS] += 1;
            if load[word % BANKS] > worst {
                worst = load[word % BANKS];
            }
        }
        access += 1;
    }
    worst
}

const fn nth_word(addresses: &[usize], words: usize, access: usize) -> usize {
    addresses[access / words] / BANK_BYTES + access % words
}

/// Phases a warp access takes, replays included: the sum of [`phase_conflicts`] over its phases.
///
/// A warp-wide access of `width` bytes per lane (4, 8 or 16) is free of conflicts when this is `width / 4`.
#[must_use]
pub fn warp_phases(addresses: &[usize], width: usize) -> usize {
    let lanes_per_phase = (PHASE_BYTES / width.max(BANK_BYTES)).max(1);
    addresses.chunks(lanes_per_phase).map(|lanes| phase_conflicts(lanes, width)).sum()
}

/// Conflicts of one `ldmatrix` tile whose rows are `pitch` bytes apart.
#[must_use]
pub const fn matrix_conflicts(pitch: usize) -> usize {
    let mut rows = [0; MATRIX_ROWS];
    let mut row = 0;
    while row < MATRIX_ROWS {
        rows[row] = row * pitch;
        row += 1;
    }
    phase_conflicts(&rows, MATRIX_ROW_BYTES)
}

/// Whether `ldmatrix` accepts rows `pitch` bytes apart and reads them without conflict.
#[must_use]
pub const fn is_matrix_pitch(pitch: usize) -> bool {
    pitch.is_multiple_of(MATRIX_ROW_BYTES) && pitch / MATRIX_ROW_BYTES % 2 == 1
}

/// Smallest conflict-free `ldmatrix` pitch that holds `payload` bytes.
#[must_use]
pub const fn matrix_pitch(payload: usize) -> usize {
    let units = payload.div_ceil(MATRIX_ROW_BYTES);
    (units | 1) * MATRIX_ROW_BYTES
}
