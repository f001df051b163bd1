//! Workspaces: one layout function, replayed to measure and to run.
//!
//! An operation lays out its scratch by taking chunks from an [`Arena`]. A measuring arena only counts; an arena over
//! memory hands out the same chunks at the same offsets. Sizes are therefore never summed by hand, and the query is
//! exact. The capacity check looks at the unaligned cursor: the last chunk is not rounded up.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use bytemuck::Pod;

use crate::device::Place;
use crate::error::{ArgumentError, Error, Result};
use crate::info::InfoMut;
use crate::queue::Memory;
use crate::scalar::Scalar;
use crate::view::MatBatchMut;

/// Every chunk, and every workspace, starts on a multiple of this many bytes.
pub const WORKSPACE_ALIGN: usize = 256;

/// Memory that a caller lends for one call.
#[derive(Debug)]
pub struct WorkspaceMut<'a> {
    place: Place,
    address: u64,
    bytes: usize,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> WorkspaceMut<'a> {
    /// No memory: enough for operations whose query is 0.
    pub fn empty(place: Place) -> Self {
        WorkspaceMut { place, address: 0, bytes: 0, life: PhantomData }
    }

    /// Memory of a queue.
    pub fn over(memory: &'a mut Memory) -> Self {
        WorkspaceMut {
            place: memory.place(),
            address: memory.address(),
            bytes: memory.bytes(),
            life: PhantomData,
        }
    }

    /// Host memory of the caller.
    ///
    /// # Errors
    /// It is not aligned to [`WORKSPACE_ALIGN`].
    pub fn host(bytes: &'a mut [u8]) -> Result<Self> {
        let address = bytes.as_mut_ptr().expose_provenance();
        let off = address % WORKSPACE_ALIGN;
        if off != 0 {
            return Err(ArgumentError::WorkspaceMisaligned { off, align: WORKSPACE_ALIGN }.into());
        }
        Ok(WorkspaceMut {
            place: Place::Host,
            address: address as u64,
            bytes: bytes.len(),
            life: PhantomData,
        })
    }

    /// Memory at a raw address.
    ///
    /// # Safety
    /// For `'a`, the range must be memory of `place` that nothing else uses except work ordered on the queue that
    /// uses the workspace.
    ///
    /// # Errors
    /// It is not aligned to [`WORKSPACE_ALIGN`].
    pub unsafe fn from_raw(place: Place, address: u64, bytes: usize) -> Result<Self> {
        let off = (address % WORKSPACE_ALIGN as u64) as usize;
        if off != 0 {
            return Err(ArgumentError::WorkspaceMisaligned { off, align: WORKSPACE_ALIGN }.into());
        }
        Ok(WorkspaceMut { place, address, bytes, life: PhantomData })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A shorter borrow of the same memory.
    pub fn rb_mut(&mut self) -> WorkspaceMut<'_> {
        WorkspaceMut { place: self.place, address: self.address, bytes: self.bytes, life: PhantomData }
    }

    /// Checks the size and the place before anything is launched.
    ///
    /// # Errors
    /// Too small, or not where the queue works.
    pub fn validate(&self, op: &'static str, need: usize, place: Place) -> Result<()> {
        if self.bytes < need {
            return Err(ArgumentError::WorkspaceTooSmall { op, have: self.bytes, need }.into());
        }
        if need > 0 && self.place != place {
            let (operand, operand_place, queue_place) = ("the workspace", self.place, place);
            return Err(ArgumentError::WrongPlace { op, operand, operand_place, queue_place }.into());
        }
        Ok(())
    }
}

/// A bump allocator over a workspace, or over nothing to measure one.
#[derive(Debug)]
pub struct Arena<'a> {
    memory: Option<WorkspaceMut<'a>>,
    used: usize,
}

impl<'a> Arena<'a> {
    /// An arena that only counts.
    pub fn measuring() -> Self {
        Arena { memory: None, used: 0 }
    }

    /// An arena over memory.
    pub fn over(memory: WorkspaceMut<'a>) -> Self {
        Arena { memory: Some(memory), used: 0 }
    }

    /// Bytes from the start to the end of the last chunk.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The next `len` elements.
    ///
    /// # Errors
    /// The memory ends before the chunk does, or the sum overflows.
    pub fn take<T: Pod>(&mut self, op: &'static str, len: usize) -> Result<Chunk<'a, T>> {
        let end = |start: usize| start.checked_add(len.checked_mul(size_of::<T>())?);
        let start =
            if len == 0 { Some(self.used) } else { self.used.checked_next_multiple_of(WORKSPACE_ALIGN) };
        let (start, end) = start
            .and_then(|s| Some((s, end(s)?)))
            .ok_or(ArgumentError::WorkspaceTooSmall { op, have: self.used, need: usize::MAX })?;
        let at = match &self.memory {
            None => None,
            Some(memory) if end <= memory.bytes => Some((memory.place, memory.address + start as u64)),
            Some(memory) => {
                return Err(ArgumentError::WorkspaceTooSmall { op, have: memory.bytes, need: end }.into());
            }
        };
        self.used = end;
        Ok(Chunk { at, len, life: PhantomData })
    }

    /// What is left, for whoever sizes it; nothing of a measuring arena.
    pub fn rest(self) -> Option<WorkspaceMut<'a>> {
        let WorkspaceMut { place, address, bytes, life } = self.memory?;
        let start = self.used.next_multiple_of(WORKSPACE_ALIGN).min(bytes);
        Some(WorkspaceMut { place, address: address + start as u64, bytes: bytes - start, life })
    }
}

/// Part of a workspace. A chunk of a measuring arena has a length and no address.
#[derive(Debug)]
pub struct Chunk<'a, T> {
    at: Option<(Place, u64)>,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

impl<T: Pod> Chunk<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn located(&self) -> Result<(Place, u64)> {
        self.at.ok_or_else(|| Error::Internal("a chunk of a measuring arena has no memory".into()))
    }

    /// Address of the first element, for launch code.
    ///
    /// # Errors
    /// The chunk was only measured.
    pub fn address(&self) -> Result<u64> {
        Ok(self.located()?.1)
    }
}

impl<T: Scalar> Chunk<'_, T> {
    /// The chunk as a batch of packed matrices.
    ///
    /// # Errors
    /// The chunk was only measured, or is too short.
    pub fn matrices(&mut self, rows: usize, cols: usize, batch: usize) -> Result<MatBatchMut<'_, T>> {
        let (place, address) = self.located()?;
        let (ld, stride) = (rows.max(1), rows.saturating_mul(cols));
        let (needed, len) = (stride.saturating_mul(batch), self.len);
        if needed > len {
            let operand = "workspace chunk";
            return Err(ArgumentError::BufferTooShort {
                operand,
                len,
                needed,
                rows,
                cols,
                ld,
                stride,
                batch,
            }
            .into());
        }
        // SAFETY: the chunk is exclusively borrowed, lies in memory lent for `'a`, and covers every item.
        unsafe { MatBatchMut::from_raw_strided(place, address, rows, cols, ld, stride, batch) }
    }
}

impl Chunk<'_, u8> {
    /// The chunk as the workspace of a nested call.
    ///
    /// # Errors
    /// The chunk was only measured.
    pub fn workspace(&mut self) -> Result<WorkspaceMut<'_>> {
        let (place, address) = self.located()?;
        Ok(WorkspaceMut { place, address, bytes: self.len, life: PhantomData })
    }
}

impl Chunk<'_, i32> {
    /// The chunk as `info` entries.
    ///
    /// # Errors
    /// The chunk was only measured.
    pub fn info(&mut self) -> Result<InfoMut<'_>> {
        let (place, address) = self.located()?;
        // SAFETY: the chunk is exclusively borrowed and lies in memory lent for `'a`, aligned beyond 4 bytes; host
        // memory of a workspace is initialised because it was lent as bytes.
        unsafe {
            Ok(match place {
                Place::Host => InfoMut::host(std::slice::from_raw_parts_mut(
                    std::ptr::with_exposed_provenance_mut(address as usize),
                    self.len,
                )),
                place => InfoMut::from_raw(place, address, self.len),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuQueue;
    use crate::queue::Queue;

    /// Two chunks with a gap between them, as a blocked driver lays out.
    fn layout<'a>(arena: &mut Arena<'a>) -> Result<(Chunk<'a, f64>, Chunk<'a, i32>)> {
        Ok((arena.take("test", 33)?, arena.take("test", 5)?))
    }

    #[test]
    fn the_measured_size_is_exact() {
        let mut measuring = Arena::measuring();
        layout(&mut measuring).unwrap();
        // 33 * 8 = 264, rounded to 512, then 20 bytes that are not rounded.
        assert_eq!(measuring.used(), 532);
        let queue = CpuQueue::new(1).unwrap();
        let mut memory = queue.alloc(532).unwrap();
        let (mut product, mut info) = layout(&mut Arena::over(WorkspaceMut::over(&mut memory))).unwrap();
        product.matrices(11, 3, 1).unwrap().item_mut(0).unwrap().set(10, 2, 1.0);
        info.info().unwrap().set(4, 8);
        assert_eq!(info.address().unwrap() - product.address().unwrap(), 512);
        assert!(product.matrices(12, 3, 1).is_err());
        let mut short = queue.alloc(531).unwrap();
        let message = layout(&mut Arena::over(WorkspaceMut::over(&mut short))).unwrap_err().to_string();
        assert!(message.contains("531") && message.contains("532"), "{message}");
    }

    #[test]
    fn a_measured_chunk_has_no_memory() {
        let mut chunk: Chunk<'_, f32> = Arena::measuring().take("test", 4).unwrap();
        assert!(chunk.matrices(2, 2, 1).is_err() && chunk.address().is_err());
    }

    #[test]
    fn the_rest_starts_aligned_after_the_last_chunk() {
        assert!(Arena::measuring().rest().is_none());
        let queue = CpuQueue::new(1).unwrap();
        let mut memory = queue.alloc(1000).unwrap();
        let mut after = |elements: usize| {
            let mut arena = Arena::over(WorkspaceMut::over(&mut memory));
            arena.take::<i32>("test", elements).unwrap();
            let rest = arena.rest().unwrap();
            (rest.address % WORKSPACE_ALIGN as u64, rest.bytes)
        };
        assert_eq!((after(0), after(3), after(64), after(250)), ((0, 1000), (0, 744), (0, 744), (232, 0)));
    }

    #[test]
    fn misalignment_and_wrong_places_are_named() {
        let queue = CpuQueue::new(1).unwrap();
        let mut memory = queue.alloc(1024).unwrap();
        assert!(WorkspaceMut::over(&mut memory).validate("potrf", 1024, Place::Host).is_ok());
        let message =
            WorkspaceMut::over(&mut memory).validate("potrf", 8, Place::Cuda(1)).unwrap_err().to_string();
        assert!(message.contains("cuda:1"), "{message}");
        // SAFETY: the workspace is refused before it is used.
        let off = unsafe { WorkspaceMut::from_raw(Place::Cuda(0), 257, 8) };
        assert!(off.unwrap_err().to_string().contains("1 bytes past a multiple of 256"));
    }

    #[test]
    fn an_absurd_size_is_an_error_and_not_a_wrap() {
        assert!(Arena::measuring().take::<f64>("test", usize::MAX / 4).is_err());
    }
}
