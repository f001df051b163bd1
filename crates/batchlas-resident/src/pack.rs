//! Packing several small matrices into one work-group.
//!
//! A multiprocessor holds a limited number of work-groups (24 on `sm_89`), so one-warp work-groups leave half of its
//! warps unused. Packing is the remedy wherever barriers allow it.

/// Work-group width packing aims for.
pub const TARGET_WG: usize = 128;
/// Most matrices per work-group unless a family asks for more.
pub const MAX_PACK: usize = 4;

/// The barriers a kernel uses, which decide whether several matrices may share its work-group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barriers {
    /// Every barrier is within one warp: neighbours do not meet.
    Warp,
    /// Work-group barriers that every slot executes the same number of times, dead slots included.
    UniformWorkGroup,
    /// Work-group barriers inside one matrix' own control flow: a second matrix would deadlock or race.
    WorkGroup,
}

impl Barriers {
    /// Whether `matrices` may share one work-group.
    #[must_use]
    pub const fn allow(self, matrices: usize) -> bool {
        match self {
            Self::Warp | Self::UniformWorkGroup => matrices >= 1,
            Self::WorkGroup => matrices == 1,
        }
    }
}

/// The limits that do not depend on the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackLimits {
    /// Largest work-group of the device or kernel, in lanes.
    pub max_wg: usize,
    /// Work-group width to aim for, in lanes.
    pub target_wg: usize,
    /// Most matrices per work-group.
    pub max_pack: usize,
}

impl PackLimits {
    /// The usual target and cap on a device with work-groups of up to `max_wg` lanes.
    #[must_use]
    pub const fn for_device(max_wg: usize) -> Self {
        Self { max_wg, target_wg: TARGET_WG, max_pack: MAX_PACK }
    }
}

/// What stopped a pack from growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Shared memory of the slice.
    SharedMemory,
    /// The target width.
    TargetWidth,
    /// The device's largest work-group.
    DeviceWidth,
    /// The cap on matrices.
    Cap,
}

/// Matrices per work-group, and why not more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Matrices per work-group, at least one.
    pub matrices: usize,
    /// The binding limit; of equal ones, the first in the order of [`Bound`].
    pub bound: Bound,
}

/// How many matrices of `bytes` shared memory and `lanes` lanes share a work-group that owns `wg_budget` bytes.
///
/// `None` when not even one fits the budget or the device's work-group. One matrix may exceed the target width.
#[must_use]
pub const fn pack_matrices_per_wg(
    bytes: usize,
    lanes: usize,
    wg_budget: usize,
    limits: PackLimits,
) -> Option<Packing> {
    if bytes > wg_budget || lanes == 0 || lanes > limits.max_wg {
        return None;
    }
    let memory = match wg_budget.checked_div(bytes) {
        Some(memory) => memory,
        None => usize::MAX,
    };
    let (width, width_bound) = if limits.target_wg <= limits.max_wg {
        (limits.target_wg / lanes, Bound::TargetWidth)
    } else {
        (limits.max_wg / lanes, Bound::DeviceWidth)
    };
    let (matrices, bound) = if memory <= width && memory <= limits.max_pack {
        (memory, Bound::SharedMemory)
    } else if width <= limits.max_pack {
        (width, width_bound)
    } else {
        (limits.max_pack, Bound::Cap)
    };
    Some(Packing { matrices: if matrices == 0 { 1 } else { matrices }, bound })
}
