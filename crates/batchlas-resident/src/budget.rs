//! Shared-memory budgets: from what a device grants to the slice one work-group may own.

/// Shared memory left to the runtime: static allocations, the driver's own bytes, alignment. In bytes.
pub const RESERVE: usize = 4096;

/// Work-groups that must be able to live on one multiprocessor for a family to advertise an order.
pub const MIN_BLOCKS_PER_SM: usize = 4;

/// The same for the QR panel, whose work-groups are large enough to hide latency in pairs.
pub const QR_MIN_BLOCKS_PER_SM: usize = 2;

/// Shared memory that kernels may use on a device that grants `local_mem_bytes` to one work-group (the opt-in limit).
///
/// ```
/// use batchlas_resident::budget::{device_slm_budget, RESERVE};
/// assert_eq!(device_slm_budget(101_376, RESERVE), 97_280);
/// ```
#[must_use]
pub const fn device_slm_budget(local_mem_bytes: usize, reserve: usize) -> usize {
    local_mem_bytes.saturating_sub(reserve)
}

/// The slice of `budget` one work-group may own when `min_blocks` of them share a multiprocessor. Zero counts as one.
#[must_use]
pub const fn occupancy_budget(budget: usize, min_blocks: usize) -> usize {
    budget / if min_blocks == 0 { 1 } else { min_blocks }
}
