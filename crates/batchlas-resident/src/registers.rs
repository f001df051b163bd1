//! The register file: four sub-partitions per multiprocessor, each with its own registers.
//!
//! A warp lives in one sub-partition. A work-group of w warps puts `ceil(w / 4)` of them into one, and those must fit its
//! 16,384 registers. The familiar product `registers * lanes <= 65,536` is only a first screen: the two agree for
//! work-groups of whole multiples of four warps and part elsewhere.

/// Lanes of a warp (the sub-group of every kernel here).
pub const WARP: usize = 32;
/// Sub-partitions of a multiprocessor.
pub const SUB_PARTITIONS: usize = 4;
/// Registers of one sub-partition.
pub const SUB_PARTITION_REGISTERS: usize = 16_384;
/// Registers per thread are handed out in multiples of this.
pub const ALLOCATION_UNIT: usize = 8;
/// Most registers a thread can name. A declared bound above it is vacuous.
pub const MAX_REGISTERS_PER_THREAD: usize = 255;

/// Registers the hardware sets aside for a thread that uses `registers`.
#[must_use]
pub const fn allocated(registers: usize) -> usize {
    registers.next_multiple_of(ALLOCATION_UNIT)
}

/// Registers a work-group takes in its fullest sub-partition.
#[must_use]
pub const fn sub_partition_use(work_group: usize, registers: usize) -> usize {
    work_group.div_ceil(WARP).div_ceil(SUB_PARTITIONS) * WARP * allocated(registers)
}

/// The binding rule: the work-group fits the register file.
#[must_use]
pub const fn fits(work_group: usize, registers: usize) -> bool {
    registers <= MAX_REGISTERS_PER_THREAD
        && sub_partition_use(work_group, registers) <= SUB_PARTITION_REGISTERS
}

/// The first screen: necessary, not sufficient.
#[must_use]
pub const fn passes_first_screen(work_group: usize, registers: usize) -> bool {
    registers * work_group <= SUB_PARTITIONS * SUB_PARTITION_REGISTERS
}

/// Most registers per thread that still let one work-group fit: the bound to compile a kernel for.
///
/// `None` when the work-group is empty or too wide to fit with one allocation unit.
#[must_use]
pub const fn max_registers(work_group: usize) -> Option<usize> {
    let warps = work_group.div_ceil(WARP).div_ceil(SUB_PARTITIONS);
    if warps == 0 {
        return None;
    }
    let registers = SUB_PARTITION_REGISTERS / (warps * WARP) / ALLOCATION_UNIT * ALLOCATION_UNIT;
    match registers {
        0 => None,
        r if r > MAX_REGISTERS_PER_THREAD => Some(MAX_REGISTERS_PER_THREAD),
        r => Some(r),
    }
}

/// Work-groups per multiprocessor that the registers allow.
#[must_use]
pub const fn blocks_per_sm(work_group: usize, registers: usize) -> usize {
    if work_group == 0 || registers == 0 || !fits(work_group, registers) {
        return 0;
    }
    let warps = SUB_PARTITIONS * (SUB_PARTITION_REGISTERS / (WARP * allocated(registers)));
    warps / work_group.div_ceil(WARP)
}
