//! A queue that runs nothing and notes every kernel that it is asked for.
//!
//! An operation that is called on a [`Rehearsal`] takes every decision that it would take on the device, children behind
//! seams included, and launches into a list. So what must be compiled before a call, or into a bundle, is known from the
//! one place that decides it, the call itself.
//!
//! Its memory is addresses without anything behind them. Operands may as well be those of a real queue: nothing reaches
//! them. Transfers are checked for their range, writes vanish, and reads find zeros.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Device, Event, Kernel, Launch, Memory, Place, Queue, QueueError, QueueMemory, WORKSPACE_ALIGN};

/// First address that is given out: no host address, so that nobody takes it for one.
const BASE: u64 = 1 << 60;

/// A queue on a device that need not be there.
pub struct Rehearsal {
    device: Device,
    next: AtomicU64,
    kernels: Mutex<Vec<Kernel>>,
}

impl fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rehearsal({})", self.device.name)
    }
}

impl Rehearsal {
    /// A queue that answers for `device`.
    pub fn new(device: Device) -> Self {
        Rehearsal { device, next: AtomicU64::new(BASE), kernels: Mutex::new(Vec::new()) }
    }

    /// The kernels launched since the last call, each once, in order of their first launch.
    pub fn take_kernels(&self) -> Vec<Kernel> {
        std::mem::take(&mut *self.kernels.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An address range with nothing behind it.
struct Nothing {
    address: u64,
    bytes: usize,
    place: Place,
}

// SAFETY: the range is handed out once and aligned, and the only queue that takes it reaches no memory through it.
unsafe impl QueueMemory for Nothing {
    fn address(&self) -> u64 {
        self.address
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn place(&self) -> Place {
        self.place
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Queue for Rehearsal {
    fn device(&self) -> &Device {
        &self.device
    }

    fn in_order(&self) -> bool {
        true
    }

    // Nothing is unsafe about a note.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if !kernels.contains(launch.kernel) {
            kernels.push(launch.kernel.clone());
        }
        Ok(())
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError> {
        let size = bytes.next_multiple_of(WORKSPACE_ALIGN) as u64;
        let address = self.next.fetch_add(size, Ordering::Relaxed);
        Ok(Memory::new(Nothing { address, bytes, place: self.device.place }))
    }

    fn write(&self, memory: &mut Memory, offset: usize, bytes: &[u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())?;
        bytes.fill(0);
        Ok(())
    }

    // No memory is behind the address.
    unsafe fn zero(&self, _: u64, _: usize) -> Result<(), QueueError> {
        Ok(())
    }

    fn fence(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn record(&self) -> Result<Event, QueueError> {
        Ok(Event(Box::new(())))
    }

    fn wait(&self, _: &Event) -> Result<(), QueueError> {
        Ok(())
    }

    fn seconds_between(&self, _: &Event, _: &Event) -> Result<f64, QueueError> {
        Ok(0.0)
    }

    fn copy(&self, from: &Memory, to: &mut Memory) -> Result<(), QueueError> {
        to.check_range(0, from.bytes())
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
