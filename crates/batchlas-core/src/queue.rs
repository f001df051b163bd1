//! Where work is enqueued, and in what order.
//!
//! A [`Queue`] is a CUDA stream, a thread pool or a simulated device. Calls on it are asynchronous where the device
//! allows: an operation enqueues and returns. No operation synchronises, and scratch comes and goes in stream order.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::cpu::CpuQueue;
use crate::device::{Device, Place};
use crate::error::{ArgumentError, QueueError, Result};
use crate::info::InfoMut;
use crate::kernel::Launch;
use crate::scalar::Scalar;
use crate::view::{MatBatch, MatBatchMut, covers};

/// A place to enqueue work. Object safe: operations take `&dyn Queue`.
pub trait Queue: Send + Sync {
    /// The device behind the queue.
    fn device(&self) -> &Device;

    /// Whether work runs in the order it was enqueued. Where not, a [`fence`](Queue::fence) is the only order.
    fn in_order(&self) -> bool;

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `launch.args` must be the parameter struct of `launch.kernel`, and all memory that the kernel reaches through
    /// it must be valid on this device, and not used by others, until the work is done in queue order.
    ///
    /// # Errors
    /// The kernel does not compile, breaks its promise, or the device refuses the launch.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError>;

    /// Memory in queue order, aligned to [`crate::WORKSPACE_ALIGN`], contents undefined. It is freed in queue order
    /// when dropped.
    ///
    /// # Errors
    /// The device has no memory left.
    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError>;

    /// Enqueues a copy from the host. The source may be reused on return.
    ///
    /// # Errors
    /// A range outside the memory; the transfer fails.
    fn write(&self, memory: &mut Memory, offset: usize, bytes: &[u8]) -> Result<(), QueueError>;

    /// Copies to the host, waiting for all work enqueued before.
    ///
    /// # Errors
    /// A range outside the memory; the transfer, or work enqueued before it, failed.
    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), QueueError>;

    /// Enqueues zeros over `bytes` bytes at `address`.
    ///
    /// # Safety
    /// The range must be memory of this device that nothing else uses except work in queue order.
    ///
    /// # Errors
    /// The device refuses.
    unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), QueueError>;

    /// Orders everything enqueued so far before everything enqueued later. Free on an in-order queue.
    ///
    /// # Errors
    /// The device refuses.
    fn fence(&self) -> Result<(), QueueError>;

    /// Marks this point of the queue.
    ///
    /// # Errors
    /// The device refuses.
    fn record(&self) -> Result<Event, QueueError>;

    /// Makes work enqueued later wait for an event of another queue of the same kind.
    ///
    /// # Errors
    /// The event belongs to another kind of queue.
    fn wait(&self, event: &Event) -> Result<(), QueueError>;

    /// Seconds from one event of this queue to a later one, waiting for the later one.
    ///
    /// # Errors
    /// An event of another kind of queue; work failed.
    fn seconds_between(&self, earlier: &Event, later: &Event) -> Result<f64, QueueError>;

    /// Enqueues a copy of `from` over the first bytes of `to`, both memory of this queue.
    ///
    /// # Errors
    /// `to` is smaller than `from`, or one belongs to another kind of queue.
    fn copy(&self, from: &Memory, to: &mut Memory) -> Result<(), QueueError>;

    /// Blocks the caller until all work is done.
    ///
    /// # Errors
    /// Work failed.
    fn synchronize(&self) -> Result<(), QueueError>;

    /// The thread pool, if this queue is one.
    fn cpu(&self) -> Option<&CpuQueue> {
        None
    }

    /// For runtimes and vendor arms that need the concrete queue.
    fn as_any(&self) -> &dyn Any;
}

impl fmt::Debug for dyn Queue + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({}, {})", self.device().name, self.device().place)
    }
}

/// A point in a queue, as made by [`Queue::record`].
pub struct Event(pub Box<dyn Any + Send + Sync>);

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}

/// What a queue's allocation must say of itself. Dropping it frees it in queue order.
///
/// # Safety
/// `address()..address() + bytes()` must be memory of `place()`, owned by this value and aligned to
/// [`crate::WORKSPACE_ALIGN`].
pub unsafe trait QueueMemory: Send + Sync {
    /// Address of the first byte.
    fn address(&self) -> u64;
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// Where it is.
    fn place(&self) -> Place;
    /// For the queue that made it.
    fn as_any(&self) -> &dyn Any;
    /// For the queue that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Owned memory of a queue.
pub struct Memory(Box<dyn QueueMemory>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes(), self.place())
    }
}

impl Memory {
    /// Wraps an allocation.
    pub fn new(inner: impl QueueMemory + 'static) -> Self {
        Memory(Box::new(inner))
    }
    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.address()
    }
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
    /// Where it is.
    pub fn place(&self) -> Place {
        self.0.place()
    }
    /// The concrete allocation, for the queue that made it.
    pub fn inner(&self) -> &dyn Any {
        self.0.as_any()
    }
    /// The concrete allocation, for the queue that made it.
    pub fn inner_mut(&mut self) -> &mut dyn Any {
        self.0.as_any_mut()
    }
    /// Checks that a transfer stays inside.
    ///
    /// # Errors
    /// [`QueueError::TransferRange`].
    pub fn check_range(&self, offset: usize, len: usize) -> Result<(), QueueError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(QueueError::TransferRange { offset, len, bytes: self.bytes() }),
        }
    }
}

/// An array in the memory of a queue, wherever that is: what code generic over host and device works on.
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// An array of `len` elements with undefined contents.
    ///
    /// # Errors
    /// The device has no memory left.
    pub fn new(queue: &dyn Queue, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| QueueError::OutOfMemory {
            bytes: usize::MAX,
            place: queue.device().place,
            reason: format!("{len} elements of {} bytes exceed the address space", size_of::<T>()),
        })?;
        Ok(Buffer { memory: queue.alloc(bytes)?, len, element: PhantomData })
    }

    /// An array with these contents.
    ///
    /// # Errors
    /// The device has no memory left; the transfer fails.
    pub fn from_slice(queue: &dyn Queue, data: &[T]) -> Result<Self> {
        let mut buffer = Buffer::new(queue, data.len())?;
        buffer.write(queue, 0, data)?;
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.memory.place()
    }

    /// Enqueues a copy of `data` to element `start` and following.
    ///
    /// # Errors
    /// A range outside the array; the transfer fails.
    pub fn write(&mut self, queue: &dyn Queue, start: usize, data: &[T]) -> Result<()> {
        Ok(queue.write(&mut self.memory, start.saturating_mul(size_of::<T>()), bytemuck::cast_slice(data))?)
    }

    /// Copies the elements from `start` on to the host, waiting for work enqueued before.
    ///
    /// # Errors
    /// A range outside the array; the transfer, or work enqueued before it, failed.
    pub fn read(&self, queue: &dyn Queue, start: usize, data: &mut [T]) -> Result<()> {
        Ok(queue.read(&self.memory, start.saturating_mul(size_of::<T>()), bytemuck::cast_slice_mut(data))?)
    }

    /// Enqueues a copy of `from` over the first elements of this array.
    ///
    /// # Errors
    /// `from` is longer, or belongs to another kind of queue.
    pub fn copy_from(&mut self, queue: &dyn Queue, from: &Buffer<T>) -> Result<()> {
        Ok(queue.copy(&from.memory, &mut self.memory)?)
    }

    /// All elements, waiting for work enqueued before.
    ///
    /// # Errors
    /// The transfer, or work enqueued before it, failed.
    pub fn to_vec(&self, queue: &dyn Queue) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len];
        self.read(queue, 0, &mut data)?;
        Ok(data)
    }
}

impl<T: Scalar> Buffer<T> {
    /// A read-only batch in this array.
    ///
    /// # Errors
    /// As for [`MatBatch::from_slice`].
    pub fn view(
        &self,
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<MatBatch<'_, T>> {
        covers("matrix batch", self.len, [rows, cols, ld, stride, batch])?;
        // SAFETY: the array is borrowed for the view's lifetime, and every item is inside it.
        unsafe {
            MatBatch::from_raw_strided(self.memory.place(), self.address(), rows, cols, ld, stride, batch)
        }
    }

    /// A writable batch in this array.
    ///
    /// # Errors
    /// As for [`MatBatchMut::from_slice`].
    pub fn view_mut(
        &mut self,
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<MatBatchMut<'_, T>> {
        covers("matrix batch", self.len, [rows, cols, ld, stride, batch])?;
        // SAFETY: the array is exclusively borrowed for the view's lifetime, and every item is inside it.
        unsafe {
            MatBatchMut::from_raw_strided(self.memory.place(), self.address(), rows, cols, ld, stride, batch)
        }
    }

    /// A pointer-array batch: item `b` starts at element `offsets[b]` of this array. The table of addresses is built in
    /// the queue's memory.
    ///
    /// # Errors
    /// `ld < rows`; items that overlap or leave the array; no memory for the table.
    pub fn scatter(
        &mut self,
        queue: &dyn Queue,
        offsets: &[usize],
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Scattered<'_, T>> {
        let (operand, batch, stride) = ("pointer array", offsets.len(), 0);
        if ld < rows.max(1) {
            return Err(ArgumentError::LeadingDimension { operand, ld, rows: rows.max(1) }.into());
        }
        let span = crate::view::span(rows, cols, ld).ok_or(ArgumentError::TooLarge {
            operand,
            rows,
            cols,
            ld,
            stride,
            batch,
        })?;
        let mut sorted = offsets.to_vec();
        sorted.sort_unstable();
        let needed = sorted.last().map_or(0, |last| last.saturating_add(span));
        if needed > self.len {
            let len = self.len;
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
        if let Some(pair) = sorted.windows(2).find(|pair| pair[1] - pair[0] < span) {
            let stride = pair[1] - pair[0];
            return Err(ArgumentError::Overlap { operand, stride, span, rows, cols, ld, batch }.into());
        }
        let place = self.memory.place();
        let addresses = offsets.iter().map(|&at| self.address() + (at * size_of::<T>()) as u64);
        let table = match place {
            Place::Host => Table::Host(
                addresses.map(|address| std::ptr::with_exposed_provenance_mut(address as usize)).collect(),
            ),
            _ => Table::Device(Buffer::from_slice(queue, &addresses.collect::<Vec<u64>>())?),
        };
        Ok(Scattered { table, place, rows, cols, ld, batch, array: PhantomData })
    }
}

/// The addresses of a pointer-array batch, where the queue can read them.
#[derive(Debug)]
enum Table<T> {
    Host(Vec<*mut T>),
    Device(Buffer<u64>),
}

/// A pointer-array batch over a [`Buffer`], as made by [`Buffer::scatter`].
#[derive(Debug)]
pub struct Scattered<'b, T> {
    table: Table<T>,
    place: Place,
    rows: usize,
    cols: usize,
    ld: usize,
    batch: usize,
    array: PhantomData<&'b mut Buffer<T>>,
}

impl<T: Scalar> Scattered<'_, T> {
    /// The batch, writable.
    ///
    /// # Errors
    /// None that [`Buffer::scatter`] has not excluded.
    pub fn view_mut(&mut self) -> Result<MatBatchMut<'_, T>> {
        let Scattered { place, rows, cols, ld, batch, .. } = *self;
        // SAFETY: the array and the table are exclusively borrowed, and `scatter` checked that the items are disjoint
        // and inside the array.
        unsafe {
            match &self.table {
                Table::Host(pointers) => Ok(MatBatchMut::from_host_table(pointers, rows, cols, ld)),
                Table::Device(table) => {
                    MatBatchMut::from_raw_table(place, table.address(), rows, cols, ld, batch)
                }
            }
        }
    }

    /// The batch, read-only.
    ///
    /// # Errors
    /// None that [`Buffer::scatter`] has not excluded.
    pub fn view(&mut self) -> Result<MatBatch<'_, T>> {
        Ok(self.view_mut()?.into_const())
    }
}

impl Buffer<i32> {
    /// The array as `info` of a batch of `len` items.
    pub fn info_mut(&mut self) -> InfoMut<'_> {
        // SAFETY: the array is exclusively borrowed for the span's lifetime. A host array is a live allocation of
        // `len` initialised integers, aligned far beyond 4 bytes.
        unsafe {
            match self.memory.place() {
                Place::Host => InfoMut::host(std::slice::from_raw_parts_mut(
                    std::ptr::with_exposed_provenance_mut(self.memory.address() as usize),
                    self.len,
                )),
                place => InfoMut::from_raw(place, self.memory.address(), self.len),
            }
        }
    }
}
