//! Address spaces and allocations, with a shadow for every byte.
//!
//! Each allocation sits alone in the middle of a 2^40-byte slot, so an index that is wrong by any 32-bit
//! amount, in either direction, is seen and is attributed to the buffer that it missed. Bases are multiples
//! of 256 but not of 512, like the worst that a device allocator returns. Fresh memory reads as all ones (NaN).

use crate::SimError;
use crate::decode::Kernel;
use crate::ptx::Space;
use crate::race::Shadow;
use crate::report::Location;

/// First byte of shared memory in its own space; 0 is never valid.
pub(crate) const SHARED_BASE: u64 = 1024;
const GLOBAL_BASE: u64 = 1 << 52;
const SLOT_BITS: u32 = 40;
/// Slots from here on hold the variables of the running kernel's module.
pub(crate) const CONST_SLOT: u64 = 1 << 20;
const SHARED_WINDOW: u64 = 1 << 48;
const LOCAL_WINDOW: u64 = 1 << 49;
const PARAM_WINDOW: u64 = 1 << 50;
const WINDOW_BITS: u32 = 32;

/// What a state space adds to an address to make it generic.
pub(crate) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => 0,
    }
}

/// Address of the first byte of slot `index`.
pub(crate) fn slot_base(index: u64) -> u64 {
    GLOBAL_BASE + (index << SLOT_BITS) + (1 << (SLOT_BITS - 1)) + 256 * (2 * (index % 8) + 1)
}

/// Byte flags.
pub(crate) const INIT: u8 = 1;
const NO_READ: u8 = 2;
pub(crate) const NO_WRITE: u8 = 4;
/// Not part of any variable.
pub(crate) const GAP: u8 = 8;
/// The destination of an asynchronous copy that is not waited for.
pub(crate) const IN_FLIGHT: u8 = 16;

/// What a kernel may do with a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Anything.
    ReadWrite,
    /// Reads only, for instance the triangle that an operation must leave alone.
    ReadOnly,
    /// Writes only.
    WriteOnly,
    /// Nothing, for instance padding between columns.
    None,
}

impl Permission {
    fn flags(self) -> u8 {
        match self {
            Permission::ReadWrite => 0,
            Permission::ReadOnly => NO_WRITE,
            Permission::WriteOnly => NO_READ,
            Permission::None => NO_READ | NO_WRITE,
        }
    }
}

/// How a buffer's elements are arranged, for reports: a batch of column-major matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of an element.
    pub element: usize,
    /// Elements between columns.
    pub ld: usize,
    /// Elements between items of the batch.
    pub stride: usize,
}

impl Layout {
    fn describe(self, offset: i64) -> String {
        let element = self.element.max(1) as i64;
        let (index, ld) = (offset.div_euclid(element), self.ld.max(1) as i64);
        let stride = if self.stride == 0 { i64::MAX } else { self.stride as i64 };
        let (item, within) = (index.div_euclid(stride), index.rem_euclid(stride));
        format!("item {item} row {} column {}", within % ld, within / ld)
    }
}

/// Bytes with their flags and history.
#[derive(Debug, Default)]
pub(crate) struct Region {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flags: Vec<u8>,
    pub(crate) shadow: Shadow,
}

impl Region {
    pub(crate) fn reset(&mut self, bytes: usize, flags: u8) {
        self.bytes.clear();
        self.bytes.resize(bytes, 0xff);
        self.flags.clear();
        self.flags.resize(bytes, flags);
    }

    /// The union of the flags of a range and of what they lack of `INIT`.
    pub(crate) fn flags_of(&self, offset: usize, bytes: usize) -> (u8, bool) {
        let mut any = 0;
        let mut all = u8::MAX;
        for f in &self.flags[offset..offset + bytes] {
            any |= f;
            all &= f;
        }
        (any, all & INIT != 0)
    }
}

/// What is wrong with an access, from the flags of its bytes.
pub(crate) fn fault(any: u8, initialised: bool, reads: bool, writes: bool) -> Option<crate::FindingKind> {
    use crate::FindingKind::*;
    if any & GAP != 0 {
        Some(OutOfBounds)
    } else if any & IN_FLIGHT != 0 {
        Some(AsyncInFlight)
    } else if reads && any & NO_READ != 0 {
        Some(ForbiddenRead)
    } else if writes && any & NO_WRITE != 0 {
        Some(ReadOnlyWrite)
    } else if reads && !initialised {
        Some(Uninitialised)
    } else {
        None
    }
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) region: Region,
    pub(crate) layout: Option<Layout>,
    pub(crate) live: bool,
}

/// Global memory: what the host allocated, and the variables of the module that runs.
#[derive(Debug, Default)]
pub(crate) struct GlobalMemory {
    user: Vec<Allocation>,
    module: Vec<Allocation>,
}

impl GlobalMemory {
    pub(crate) fn alloc(&mut self, name: &str, bytes: usize) -> Result<u64, SimError> {
        let index = self.user.len() as u64;
        if index >= CONST_SLOT || bytes as u64 >= 1 << (SLOT_BITS - 2) {
            return Err(SimError::Allocation {
                what: format!(
                    "allocation {index} of {bytes} bytes; at most {CONST_SLOT} of {} bytes each",
                    1u64 << (SLOT_BITS - 2)
                ),
            });
        }
        self.user.push(allocation(name, slot_base(index), bytes));
        Ok(slot_base(index))
    }

    /// The allocation whose slot holds `addr`.
    pub(crate) fn slot(&self, addr: u64) -> Option<&Allocation> {
        let index = addr.checked_sub(GLOBAL_BASE)? >> SLOT_BITS;
        match index.checked_sub(CONST_SLOT) {
            Some(i) => self.module.get(i as usize),
            None => self.user.get(index as usize),
        }
    }

    pub(crate) fn slot_mut(&mut self, addr: u64) -> Option<&mut Allocation> {
        let index = addr.checked_sub(GLOBAL_BASE)? >> SLOT_BITS;
        match index.checked_sub(CONST_SLOT) {
            Some(i) => self.module.get_mut(i as usize),
            None => self.user.get_mut(index as usize),
        }
    }

    /// The live allocation that holds all of a range, and the offset in it.
    pub(crate) fn host(&mut self, addr: u64, bytes: usize) -> Result<(&mut Allocation, usize), SimError> {
        let error = SimError::HostAccess { addr, bytes };
        let a = self.slot_mut(addr).ok_or(error.clone())?;
        let offset = a.offset(addr, bytes).ok_or(error)?;
        Ok((a, offset))
    }

    /// Starts a launch: forgets histories and places the module's variables.
    pub(crate) fn begin(&mut self, kernel: &Kernel) {
        self.module.clear();
        for placed in &kernel.constants {
            let v = &placed.variable;
            let mut a = allocation(&v.name, placed.address, v.size);
            let init = v.init.as_deref().unwrap_or(&[]);
            let zeroed = v.space == Space::Global || v.init.is_some();
            if zeroed {
                a.region.bytes.fill(0);
                let n = init.len().min(v.size);
                a.region.bytes[..n].copy_from_slice(&init[..n]);
            }
            let writable = if v.space == Space::Const { NO_WRITE } else { 0 };
            a.region.flags.fill(writable | if zeroed { INIT } else { 0 });
            self.module.push(a);
        }
        for a in self.user.iter_mut().chain(&mut self.module) {
            let bytes = a.region.bytes.len();
            a.region.shadow.restart(bytes, kernel.global_grain);
        }
    }
}

fn allocation(name: &str, base: u64, bytes: usize) -> Allocation {
    let mut region = Region::default();
    region.reset(bytes, 0);
    Allocation { name: name.to_string(), base, region, layout: None, live: true }
}

impl Allocation {
    /// Offset of a range that lies wholly inside the live allocation.
    pub(crate) fn offset(&self, addr: u64, bytes: usize) -> Option<usize> {
        let offset = addr.checked_sub(self.base)? as usize;
        (self.live && offset.checked_add(bytes)? <= self.region.bytes.len()).then_some(offset)
    }

    pub(crate) fn protect(&mut self, offset: usize, bytes: usize, permission: Permission) {
        for f in &mut self.region.flags[offset..offset + bytes] {
            *f = *f & !(NO_READ | NO_WRITE) | permission.flags();
        }
    }
}

/// The space and the space's own address that an access means.
pub(crate) fn resolve(space: Space, addr: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, addr);
    }
    match addr >> WINDOW_BITS {
        w if w == SHARED_WINDOW >> WINDOW_BITS => (Space::Shared, addr - SHARED_WINDOW),
        w if w == LOCAL_WINDOW >> WINDOW_BITS => (Space::Local, addr - LOCAL_WINDOW),
        w if w == PARAM_WINDOW >> WINDOW_BITS => (Space::Param, addr - PARAM_WINDOW),
        _ => (Space::Global, addr),
    }
}

/// Describes an address for a report.
pub(crate) fn locate(
    memory: &GlobalMemory,
    kernel: &Kernel,
    dynamic: usize,
    space: Space,
    address: u64,
) -> Location {
    let mut location = Location { space, address, buffer: None, offset: 0, element: None };
    match space {
        Space::Shared | Space::Local => {
            let list = if space == Space::Shared { &kernel.shared } else { &kernel.local };
            let mut found = list
                .iter()
                .rev()
                .find(|p| address >= p.address)
                .map(|p| (p.variable.name.clone(), p.address));
            if space == Space::Shared && address >= kernel.dynamic_shared_at && dynamic > 0 {
                let name = kernel.dynamic_name.clone().unwrap_or_else(|| "dynamic".into());
                found = Some((name, kernel.dynamic_shared_at));
            }
            if let Some((name, base)) = found {
                location.buffer = Some(name);
                location.offset = (address - base) as i64;
            }
        }
        Space::Param => location.offset = address as i64,
        _ => {
            if let Some(a) = memory.slot(address) {
                location.buffer = Some(a.name.clone());
                location.offset = address.wrapping_sub(a.base) as i64;
                location.element = a.layout.map(|l| l.describe(location.offset));
            }
        }
    }
    location
}
