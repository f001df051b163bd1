//! Capacity walks: the largest order that fits, given that every smaller one must fit too.

use crate::budget::occupancy_budget;

/// Largest order a walk tries for matrix-shaped footprints.
pub const N_HI: usize = 4096;

/// The largest `n <= n_hi` such that `bytes(m)` fits `budget / min_blocks` for **every** `m` in `1..=n`.
///
/// Stops at the first miss. Padding makes footprints non-monotone, so an order above a miss can fit again; advertising
/// it would also advertise the dead orders below it. `None` when order 1 does not fit. O(n).
#[must_use]
pub fn resident_max_n(
    bytes: impl Fn(usize) -> usize,
    budget: usize,
    min_blocks: usize,
    n_hi: usize,
) -> Option<usize> {
    let slice = occupancy_budget(budget, min_blocks);
    let mut largest = None;
    for n in 1..=n_hi {
        if bytes(n) > slice {
            break;
        }
        largest = Some(n);
    }
    largest
}

/// The two capacities of one footprint under one device budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Largest order a family admits: several work-groups per multiprocessor.
    pub advertised: Option<usize>,
    /// Largest order the leaf of a blocked driver may hold: one work-group per multiprocessor.
    pub resident: Option<usize>,
}

impl Ceilings {
    /// Walks `bytes` twice: with `min_blocks` work-groups per multiprocessor, and with one.
    #[must_use]
    pub fn walk(bytes: impl Fn(usize) -> usize, budget: usize, min_blocks: usize, n_hi: usize) -> Self {
        Self {
            advertised: resident_max_n(&bytes, budget, min_blocks, n_hi),
            resident: resident_max_n(&bytes, budget, 1, n_hi),
        }
    }
}
