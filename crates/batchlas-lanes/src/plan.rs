//! Plans: which reals of an item a kernel works on, and where each goes.
//!
//! An item is seen as a line of reals in memory. A plan lists the stretches of one register's width that hold a wanted
//! real, which of their reals are wanted, and the scratch slot of each. Packing reads a stretch of every item of a group
//! under the mask, transposes in registers, and stores one vector per real; unpacking is the inverse. Triangle, leading
//! dimension, complex numbers, right-hand sides and tails are nothing but different plans: what is not wanted is neither
//! read nor written.

use batchlas_core::Uplo;

use crate::vector::MAX_LANES;

/// One stretch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// Reals from the start of the item.
    pub(crate) offset: usize,
    /// Wanted reals.
    pub(crate) mask: u32,
    /// Scratch slot of each real, in vectors; unwanted reals share a slot that nobody reads.
    pub(crate) slots: [u32; MAX_LANES],
}

/// The stretches of an item, in address order.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) chunks: Vec<Chunk>,
}

impl Plan {
    /// The plan of the wanted reals, given as (offset, slot) in ascending order of offsets. Stretches start at multiples
    /// of `width`, so that an aligned item is read by aligned loads. `spare`: the slot that nobody reads.
    pub(crate) fn new(width: usize, spare: usize, wanted: impl Iterator<Item = (usize, usize)>) -> Plan {
        let mut chunks: Vec<Chunk> = Vec::new();
        for (offset, slot) in wanted {
            let start = offset - offset % width;
            if chunks.last().is_none_or(|chunk| chunk.offset != start) {
                chunks.push(Chunk { offset: start, mask: 0, slots: [spare as u32; MAX_LANES] });
            }
            if let Some(chunk) = chunks.last_mut() {
                chunk.mask |= 1 << (offset - start);
                chunk.slots[offset - start] = slot as u32;
            }
        }
        Plan { chunks }
    }
}

/// Row panels: how the lower triangle of every item of a group lies in scratch.
///
/// Panel `p` holds rows `p * height ..` and columns `0 .. (p + 1) * height`, column by column: every inner loop of a
/// factorisation or a solve then runs through consecutive vectors, and half of the square is never there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    /// Order of the items.
    pub(crate) n: usize,
    /// Rows of a panel.
    pub(crate) height: usize,
}

impl Panels {
    /// Panels.
    pub(crate) fn count(self) -> usize {
        self.n.div_ceil(self.height)
    }

    /// The order with the last panel filled up.
    pub(crate) fn padded(self) -> usize {
        self.count() * self.height
    }

    /// Elements of all panels.
    pub(crate) fn elements(self) -> usize {
        self.start(self.count())
    }

    /// Elements before a panel.
    fn start(self, panel: usize) -> usize {
        self.height * self.height * panel * (panel + 1) / 2
    }

    /// Element `(i, j)`, `i >= j`.
    pub(crate) fn at(self, i: usize, j: usize) -> usize {
        self.start(i / self.height) + j * self.height + i % self.height
    }

    /// The triangle `uplo` of an item with `parts` reals per element, as a lower one. An upper triangle is transposed
    /// without conjugation: its factor is then the transpose of what is computed.
    pub(crate) fn triangle(self, width: usize, parts: usize, uplo: Uplo, ld: usize) -> Plan {
        let wanted = (0..self.n).flat_map(move |j| {
            let rows = if uplo == Uplo::Lower { j..self.n } else { 0..j + 1 };
            rows.flat_map(move |i| {
                let slot = if uplo == Uplo::Lower { self.at(i, j) } else { self.at(j, i) };
                (0..parts).map(move |part| ((j * ld + i) * parts + part, slot * parts + part))
            })
        });
        Plan::new(width, self.elements() * parts, wanted)
    }

    /// `cols` right-hand sides, right-hand side `r` of row `i` at element `i * strip + r`.
    pub(crate) fn strip(self, width: usize, parts: usize, ld: usize, cols: usize, strip: usize) -> Plan {
        let n = self.n;
        let wanted = (0..cols).flat_map(move |r| {
            (0..n).flat_map(move |i| {
                (0..parts).map(move |part| ((r * ld + i) * parts + part, (i * strip + r) * parts + part))
            })
        });
        Plan::new(width, self.padded() * strip * parts, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wanted_real_is_in_one_stretch_and_no_other_real_is() {
        for (n, height, width, parts, ld) in [
            (1, 4, 16, 1, 1),
            (5, 4, 8, 1, 5),
            (7, 2, 16, 2, 9),
            (16, 4, 16, 1, 16),
            (33, 4, 4, 1, 36),
            (9, 2, 2, 2, 70),
        ] {
            for uplo in [Uplo::Lower, Uplo::Upper] {
                let panels = Panels { n, height };
                let plan = panels.triangle(width, parts, uplo, ld);
                let mut seen = std::collections::BTreeMap::new();
                for chunk in &plan.chunks {
                    assert!(chunk.mask != 0 && chunk.offset.is_multiple_of(width));
                    for v in 0..width {
                        if chunk.mask >> v & 1 == 1 {
                            assert!(seen.insert(chunk.offset + v, chunk.slots[v]).is_none());
                        } else {
                            assert_eq!(chunk.slots[v] as usize, panels.elements() * parts);
                        }
                    }
                }
                let mut slots: Vec<u32> = seen.values().copied().collect();
                slots.sort_unstable();
                slots.dedup();
                assert_eq!(slots.len(), n * (n + 1) / 2 * parts, "two reals in one slot");
                for offset in 0..ld * n * parts {
                    let (i, j) = (offset / parts % ld, offset / parts / ld);
                    let wanted = i < n && if uplo == Uplo::Lower { i >= j } else { i <= j };
                    assert_eq!(seen.contains_key(&offset), wanted, "n={n} ({i}, {j})");
                }
            }
        }
    }

    #[test]
    fn strips_hold_every_right_hand_side() {
        let panels = Panels { n: 5, height: 4 };
        let plan = panels.strip(8, 1, 6, 3, 4);
        let wanted: u32 = plan.chunks.iter().map(|chunk| chunk.mask.count_ones()).sum();
        assert_eq!(wanted, 15);
        assert_eq!(plan.chunks[1].slots[0], 2 * 4 + 1, "row 2 of right-hand side 1");
    }
}
