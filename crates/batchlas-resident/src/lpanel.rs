//! Work-group geometry of the left-looking panel: one thread per row, several matrices per work-group.
//!
//! The panel (`sA`, leading dimension n) is factored in shared memory while earlier columns are read again from global
//! memory through a square broadcast block (`sB`). A lane carries its row's registers through the whole k loop, so the
//! lanes of a matrix must cover its rows: fewer would corrupt results silently.

use crate::element::Element;
use crate::footprint::left_panel;
use crate::hole::{HOLE_LO, HOLE_PAD_TO};
use crate::pack::{PackLimits, pack_matrices_per_wg};
use crate::registers::WARP;

/// Work-group size limit of every CUDA device.
pub const MAX_WORK_GROUP_SIZE: usize = 1024;

/// What one launch of the panel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Lanes per matrix: whole warps, at least one lane per row.
    pub lanes: usize,
    /// Matrices per work-group.
    pub matrices: usize,
    /// Dynamic shared memory of the work-group, padded.
    pub bytes: usize,
}

impl Geometry {
    /// Lanes of the work-group.
    #[must_use]
    pub const fn work_group(&self) -> usize {
        self.lanes * self.matrices
    }
}

/// Panel widths that are built for a type: 8 for all, 16 for f32 as well.
#[must_use]
pub const fn panels(element: Element) -> &'static [usize] {
    if element.bytes <= 4 { &[8, 16] } else { &[8] }
}

/// The launch for order `n` under a device budget: `None` exactly where the family must refuse the order.
/// `limits` is normally [`PackLimits::for_device`].
///
/// Capability check and launcher are this one function, so they cannot disagree. It is called several times per
/// factorisation, so it does not walk: O(matrices of a work-group).
#[must_use]
pub fn geometry(
    element: Element,
    panel: usize,
    n: usize,
    budget: usize,
    limits: PackLimits,
) -> Option<Geometry> {
    let slice = crate::budget::occupancy_budget(budget, crate::budget::MIN_BLOCKS_PER_SM);
    let built = panels(element).contains(&panel);
    let bytes = left_panel(element, panel, n, 1);
    // Every smaller order must fit too (`left_panel_ceilings` walks them). Footprints grow with the order but for the hole,
    // and by less than its width from one order to the next: orders beyond it have one below them that is padded.
    let smaller_fit = slice >= HOLE_PAD_TO || bytes <= HOLE_LO;
    if !built || n > MAX_WORK_GROUP_SIZE || bytes > slice || !smaller_fit {
        return None;
    }
    let lanes = n.next_multiple_of(WARP);
    let packing = pack_matrices_per_wg(left_panel(element, panel, n, 1), lanes, slice, limits)?;
    // Two panels can land in the launch hole although one does not; a padded request may need a smaller pack.
    (1..=packing.matrices)
        .rev()
        .map(|matrices| Geometry { lanes, matrices, bytes: left_panel(element, panel, n, matrices) })
        .find(|geometry| geometry.bytes <= slice)
}
