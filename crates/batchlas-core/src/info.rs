//! `info`: one status per item.
#![allow(unsafe_code)]

use crate::device::Place;
use crate::error::{ArgumentError, Result};
use crate::queue::Queue;

/// Where an operation writes one `i32` per item: 0, or the 1-based order of the first leading minor whose pivot
/// is not positive and finite (NaN and Inf therefore fail). Always written, also with 0, unless absent.
#[derive(Debug)]
pub struct InfoMut<'a>(Span<'a>);

#[derive(Debug)]
enum Span<'a> {
    Absent,
    Host(&'a mut [i32]),
    Device { place: Place, address: u64, len: usize },
}

impl<'a> InfoMut<'a> {
    /// No `info`: the caller does not want it.
    pub const fn absent() -> Self {
        InfoMut(Span::Absent)
    }

    /// `info` in host memory.
    pub fn host(entries: &'a mut [i32]) -> Self {
        InfoMut(Span::Host(entries))
    }

    /// `len` entries at a device address.
    ///
    /// # Safety
    /// For `'a`, the entries must be memory of `place` that nothing else uses except work ordered on the queue that
    /// writes them.
    pub unsafe fn from_raw(place: Place, address: u64, len: usize) -> Self {
        InfoMut(Span::Device { place, address, len })
    }

    /// Checks that there is one entry per item and that the queue can reach them.
    ///
    /// # Errors
    /// A length that is not `batch`; memory that is not at `place`.
    pub fn validate(&self, op: &'static str, batch: usize, place: Place) -> Result<()> {
        let (len, at) = match &self.0 {
            Span::Absent => return Ok(()),
            Span::Host(entries) => (entries.len(), Place::Host),
            Span::Device { place, len, .. } => (*len, *place),
        };
        if at != place {
            let (operand, operand_place, queue_place) = ("info", at, place);
            return Err(ArgumentError::WrongPlace { op, operand, operand_place, queue_place }.into());
        }
        if len != batch {
            return Err(ArgumentError::InfoLength { op, len, batch }.into());
        }
        Ok(())
    }

    /// Whether the caller does not want it.
    pub fn is_absent(&self) -> bool {
        matches!(self.0, Span::Absent)
    }

    /// Writes a host entry; does nothing where there is none.
    pub fn set(&mut self, item: usize, value: i32) {
        if let Span::Host(entries) = &mut self.0 {
            entries[item] = value;
        }
    }

    /// Writes the host entries from `first` on; does nothing where there are none.
    ///
    /// # Panics
    /// If an entry is beyond the last.
    pub fn put(&mut self, first: usize, values: &[i32]) {
        if let Span::Host(entries) = &mut self.0 {
            entries[first..first + values.len()].copy_from_slice(values);
        }
    }

    /// A host entry; `None` where absent or in device memory.
    pub fn get(&self, item: usize) -> Option<i32> {
        match &self.0 {
            Span::Host(entries) => Some(entries[item]),
            _ => None,
        }
    }

    /// Enqueues zeros for every entry.
    ///
    /// # Errors
    /// What the queue says.
    pub fn clear(&mut self, queue: &dyn Queue) -> Result<()> {
        match &mut self.0 {
            Span::Absent => {}
            Span::Host(entries) => entries.fill(0),
            // SAFETY: whoever built the span promised that these entries are ours to write on this queue.
            Span::Device { address, len, .. } => unsafe { queue.zero(*address, *len * size_of::<i32>())? },
        }
        Ok(())
    }

    /// A shorter borrow of the same span.
    pub fn rb_mut(&mut self) -> InfoMut<'_> {
        InfoMut(match &mut self.0 {
            Span::Absent => Span::Absent,
            Span::Host(entries) => Span::Host(entries),
            Span::Device { place, address, len } => {
                Span::Device { place: *place, address: *address, len: *len }
            }
        })
    }

    /// Address of the first entry for launch code; 0 where absent.
    pub fn address(&self) -> u64 {
        match &self.0 {
            Span::Absent => 0,
            Span::Host(entries) => entries.as_ptr().addr() as u64,
            Span::Device { address, .. } => *address,
        }
    }

    /// The entries of the first `mid` items and the rest.
    ///
    /// # Panics
    /// If `mid` exceeds the length of a present span.
    pub fn split_at(self, mid: usize) -> (InfoMut<'a>, InfoMut<'a>) {
        let (head, tail) = match self.0 {
            Span::Absent => (Span::Absent, Span::Absent),
            Span::Host(entries) => {
                let (head, tail) = entries.split_at_mut(mid);
                (Span::Host(head), Span::Host(tail))
            }
            Span::Device { place, address, len } => {
                assert!(mid <= len, "info split at {mid} of {len}");
                let after = address + (mid * size_of::<i32>()) as u64;
                (
                    Span::Device { place, address, len: mid },
                    Span::Device { place, address: after, len: len - mid },
                )
            }
        };
        (InfoMut(head), InfoMut(tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_place_are_checked_with_numbers() {
        let mut entries = [7; 3];
        let info = InfoMut::host(&mut entries);
        let message = info.validate("potrf", 4, Place::Host).unwrap_err().to_string();
        assert!(message.contains("3 entries") && message.contains("batch of 4"), "{message}");
        let message = info.validate("potrf", 3, Place::Cuda(0)).unwrap_err().to_string();
        assert!(message.contains("host memory") && message.contains("cuda:0"), "{message}");
        assert!(InfoMut::absent().validate("potrf", 4, Place::Cuda(0)).is_ok());
    }

    #[test]
    fn splitting_keeps_addresses_and_entries() {
        let mut entries = [0; 5];
        let (mut head, mut tail) = InfoMut::host(&mut entries).split_at(2);
        head.set(1, 4);
        tail.set(2, 9);
        assert_eq!(entries, [0, 4, 0, 0, 9]);
        // SAFETY: the span is only split and looked at.
        let (_, tail) = unsafe { InfoMut::from_raw(Place::Cuda(0), 256, 5) }.split_at(2);
        assert_eq!(tail.address(), 264);
    }
}
