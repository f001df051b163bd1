//! Shared-memory footprints, in bytes, hole padding included, and the ceilings that follow from them.

use crate::budget::{MIN_BLOCKS_PER_SM, QR_MIN_BLOCKS_PER_SM};
use crate::element::Element;
use crate::hole::pad;
use crate::lpanel::MAX_WORK_GROUP_SIZE;
use crate::walk::{Ceilings, N_HI};

/// Bytes a request exceeds its arrays by: alignment of each array and the runtime's own header.
///
/// 64 is not enough: at order 155 in f32 a profiler reads 96,408 bytes, 60 more than a 64-byte slack predicts.
pub const SLACK: usize = 256;

/// Columns of a right-looking panel in the square tile.
pub const TILE_PANEL: usize = 8;

/// Side of the register tile that updates the trailing part of the square tile: 4, or 2 where an element is 16 bytes.
#[must_use]
pub const fn trailing_tile(element: Element) -> usize {
    if element.bytes > 8 { 2 } else { 4 }
}

/// One square matrix held whole by a work-group (Cholesky and LU `cta` families).
///
/// Odd leading dimension against bank conflicts, one panel of real pivots, one `i32` per trailing tile row plus one.
#[must_use]
pub const fn square_tile(element: Element, n: usize) -> usize {
    let matrix = (n | 1).saturating_mul(n).saturating_mul(element.bytes);
    let pivots = TILE_PANEL * element.real_bytes;
    let tiles = n.saturating_sub(TILE_PANEL).div_ceil(trailing_tile(element));
    pad(tiles.saturating_mul(4).saturating_add(pivots + 4 + SLACK).saturating_add(matrix))
}

/// Orders that fit [`square_tile`] under a device budget.
#[must_use]
pub fn square_tile_ceilings(element: Element, budget: usize) -> Ceilings {
    Ceilings::walk(|n| square_tile(element, n), budget, MIN_BLOCKS_PER_SM, N_HI)
}

/// `matrices` left-looking panels in one work-group: `panel` columns of `n` rows and a `panel` x `panel` block each.
///
/// The hole padding applies to the whole request, not to each matrix.
#[must_use]
pub const fn left_panel(element: Element, panel: usize, n: usize, matrices: usize) -> usize {
    let elements = n.saturating_mul(panel).saturating_add(panel.saturating_mul(panel));
    pad(elements.saturating_mul(element.bytes).saturating_mul(matrices).saturating_add(SLACK))
}

/// Orders that fit [`left_panel`] under a device budget, one thread per row: never above the work-group limit.
#[must_use]
pub fn left_panel_ceilings(element: Element, panel: usize, budget: usize) -> Ceilings {
    Ceilings::walk(|n| left_panel(element, panel, n, 1), budget, MIN_BLOCKS_PER_SM, MAX_WORK_GROUP_SIZE)
}

/// `elements` of a QR panel, whatever its shape.
#[must_use]
pub const fn qr_panel(element: Element, elements: usize) -> usize {
    pad(elements.saturating_mul(element.bytes))
}

/// Element counts that fit [`qr_panel`] under a device budget, two work-groups per multiprocessor.
///
/// Walks up to the budget itself: a panel is counted in elements, far beyond [`N_HI`].
#[must_use]
pub fn qr_panel_ceilings(element: Element, budget: usize) -> Ceilings {
    Ceilings::walk(|n| qr_panel(element, n), budget, QR_MIN_BLOCKS_PER_SM, budget)
}
