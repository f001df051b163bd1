//! Where things lie: activations in memory, and the planes of [`wide`](crate::wide) in shared memory. Pure functions; tests hold them to the tensor cores.
//!
//! # Cells
//! A panel is `[step][cell]`: a *step* is 128 inner indices (half a super-block), a *cell* 8 tokens of it. All that a kernel needs of a cell is contiguous, and a
//! range of tokens of one step is contiguous too, so that staging is a copy.
//!
//! Tensor cores take the inner indices of a chunk in any order that is the same for both operands. The order is chosen for the weights: a lane
//! reads 8 bytes of packed nibbles and has its fragments of two chunks. For bytes that puts element `e` of a chunk into half `h = e / 4 % 2`, word `i = e / 8`, byte `e % 4`;
//! 16 bytes of a half of a token are one row of a matrix that `ldmatrix` reads, and the eight tokens' rows are 128 contiguous bytes: no bank conflicts. For bfloat16,
//! element `e` is in part `s = e / 4 % 2`, half `h = e / 2 % 2`, word `i = e / 8`, position `e % 2`.

use crate::q4k::CHUNK;

/// Inner indices of a step.
pub const STEP: usize = 128;
/// Tokens of a cell.
pub const CELL_TOKENS: usize = 8;
/// Chunks of a step.
pub const STEP_CHUNKS: usize = STEP / CHUNK;

/// Bytes of a cell of signed bytes.
pub const BYTES_CELL: usize = 1536;
/// Bytes of a cell of bfloat16.
pub const BF16_CELL: usize = STEP * CELL_TOKENS * 2;

/// Offset in a cell of the byte of element `e` of chunk `c` of token `t`.
pub fn byte(c: usize, t: usize, e: usize) -> usize {
    256 * c + 128 * (e / 4 % 2) + 16 * t + 4 * (e / 8) + e % 4
}

/// Offset in a cell of the leading part of the scaled sum of chunk `c` of token `t`, f32.
pub fn lead(c: usize, t: usize) -> usize {
    1024 + 16 * t + 4 * c
}

/// Offset in a cell of what is left of the scaled sum, f32.
pub fn rest(c: usize, t: usize) -> usize {
    1152 + 16 * t + 4 * c
}

/// Offset in a cell of the scale of chunk `c` of token `t`, f32.
pub fn scale(c: usize, t: usize) -> usize {
    1280 + 32 * c + 4 * t
}

/// Offset in a cell of the sum of the bytes of chunk `c` of token `t`, i32.
pub fn sum(c: usize, t: usize) -> usize {
    1408 + 32 * c + 4 * t
}

/// Offset in a cell of bfloat16 of element `e` of chunk `c` of token `t`.
pub fn bf16(c: usize, t: usize, e: usize) -> usize {
    512 * c + 256 * (e / 4 % 2) + 128 * (e / 2 % 2) + 16 * t + 4 * (e / 8) + 2 * (e % 2)
}

/// The planes of `wide` in shared memory, in bytes.
pub mod planes {
    /// Tokens, and rows, of a block.
    pub const SIDE: usize = 128;
    /// Distance of two rows of a chunk of weights: 32 bytes, and 16 that keep eight rows on all banks.
    pub const SLOT: usize = 48;

    /// First byte of each plane, and their end: activations, their scales, weights, their scales. `depth` is that of the block in chunks.
    pub fn starts(depth: usize) -> [usize; 5] {
        let sizes = [depth * SIDE * 32, depth * SIDE * 8, 8 * SIDE * SLOT, depth * SIDE * 8];
        let mut starts = [0; 5];
        for (i, size) in sizes.into_iter().enumerate() {
            starts[i + 1] = starts[i] + size;
        }
        starts
    }

    /// Offset in the plane of weights of half `h` of row `r` of chunk `j` of the super-block.
    pub fn weight(j: usize, r: usize, h: usize) -> usize {
        (j * SIDE + r) * SLOT + 16 * h
    }

    /// Offset in its plane of the scales of token `t` of chunk `c`: a pair `t`, `t + 8` is 16 bytes.
    pub fn token_scale(c: usize, t: usize) -> usize {
        c * SIDE * 8 + t / 16 * 128 + t % 8 * 16 + t / 8 % 2 * 8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use batchlas_resident::banks;

    use super::*;

    #[test]
    fn a_cell_is_full_and_nothing_overlaps() {
        let mut bytes = BTreeSet::new();
        for (c, t) in (0..STEP_CHUNKS).flat_map(|c| (0..CELL_TOKENS).map(move |t| (c, t))) {
            let words = [lead(c, t), rest(c, t), scale(c, t), sum(c, t)];
            assert!(words.iter().all(|at| at % 4 == 0));
            bytes
                .extend((0..CHUNK).map(|e| byte(c, t, e)).chain(words.into_iter().flat_map(|at| at..at + 4)));
        }
        assert_eq!(bytes.into_iter().collect::<Vec<_>>(), (0..BYTES_CELL).collect::<Vec<_>>());
        let halves: BTreeSet<usize> = (0..STEP * CELL_TOKENS)
            .map(|i| bf16(i / (CHUNK * CELL_TOKENS), i / CHUNK % CELL_TOKENS, i % CHUNK))
            .collect();
        assert_eq!(halves.into_iter().collect::<Vec<_>>(), (0..BF16_CELL).step_by(2).collect::<Vec<_>>());
    }

    /// Element that lane `t4 = lane % 4` multiplies in byte `b` of register `h` of its fragment of a chunk, by the order in which it takes packed nibbles:
    /// bytes `8 t4 ..` of the chunk, four to a register.
    fn taken(t4: usize, h: usize, b: usize) -> usize {
        8 * t4 + 4 * h + b
    }

    #[test]
    fn matrices_deliver_the_elements_that_the_nibbles_have() {
        for lane in 0..32 {
            let (g, t4) = (lane / 4, lane % 4);
            for h in 0..2 {
                // Lane 8 i + r gives row r; the lane receives bytes 4 t4 .. of row g.
                let row = 128 * h + 16 * g;
                for b in 0..4 {
                    assert_eq!(row + 4 * t4 + b, byte(0, g, taken(t4, h, b)), "lane {lane}");
                }
                for s in 0..2 {
                    for b in 0..2 {
                        // Weights 8 t4 + 4 s .. are two registers of pairs.
                        assert_eq!(256 * s + row + 4 * t4 + 2 * b, bf16(0, g, 8 * t4 + 4 * s + 2 * h + b));
                    }
                }
            }
        }
    }

    #[test]
    fn one_matrix_load_equals_the_scalar_map_of_weights() {
        // What lane L receives in register i: bytes 4 (L % 4) .. of row L / 4 of matrix i, whose row r lane 8 i + r addresses.
        let address = |warp: usize, j: usize, lane: usize| {
            planes::weight(j, 16 * warp + lane / 16 * 8 + lane % 8, lane / 8 % 2)
        };
        for (warp, j) in (0..8).flat_map(|warp| (0..8).map(move |j| (warp, j))) {
            for (lane, register) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
                let delivered = address(warp, j, 8 * register + lane / 4) + 4 * (lane % 4);
                let (n, h) = (register / 2, register % 2);
                let scalar = (j * 128 + 16 * warp + 8 * n + lane / 4) * 48 + 16 * h + 4 * (lane % 4);
                assert_eq!(delivered, scalar, "warp {warp} chunk {j} lane {lane} register {register}");
            }
        }
    }

    #[test]
    fn eight_rows_of_a_slot_meet_all_banks() {
        // Rows of 16 bytes miss each other exactly where their pitch is an odd multiple of 16; distinct first banks do not suffice (44, 52).
        let worst = |pitch: usize| banks::phase_conflicts(&std::array::from_fn::<_, 8, _>(|r| r * pitch), 16);
        for (pitch, conflicts) in [(16, 1), (32, 2), (44, 3), (48, 1), (52, 2), (80, 1), (256, 8)] {
            assert_eq!(worst(pitch), conflicts, "{pitch}");
        }
        assert_eq!(worst(planes::SLOT), 1);
    }

    #[test]
    fn planes_do_not_overlap_and_fit_a_block() {
        for (depth, total) in [(4, 73_728), (8, 98_304)] {
            let starts = planes::starts(depth);
            assert!(starts.is_sorted_by(|a, b| a < b) && starts.iter().all(|at| at % 16 == 0));
            assert_eq!(starts[4], total);
            let most = |at: fn(usize, usize) -> usize| {
                (0..depth).flat_map(|c| (0..128).map(move |t| at(c, t))).max()
            };
            assert_eq!(
                most(planes::token_scale),
                Some(starts[2] - starts[1] - 8),
                "the last pair ends with the plane"
            );
            let distinct: BTreeSet<_> = (0..128).map(|t| planes::token_scale(0, t)).collect();
            assert_eq!(distinct.len(), 128);
            assert_eq!(planes::weight(7, 127, 1) + 16 + 16, starts[3] - starts[2]);
            // A whole super-block is there whatever the depth; 227 KiB is what a block of sm_90 can have, 99 KiB the least among sm_86, 89 and 120.
            assert!(total <= 99 * 1024);
        }
    }
}
