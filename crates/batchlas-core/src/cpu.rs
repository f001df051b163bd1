//! The CPU as a queue: a pool with a chosen number of threads. Work runs where it is enqueued, before the call returns.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::time::Instant;

use bytemuck::{Pod, Zeroable};

use crate::device::{Device, Place};
use crate::error::{Error, QueueError, Result};
use crate::kernel::Launch;
use crate::queue::{Event, Memory, Queue, QueueMemory};
use crate::split::Split;

/// A pool of threads that CPU arms spread a batch over.
pub struct CpuQueue {
    pool: rayon::ThreadPool,
    device: Device,
}

impl fmt::Debug for CpuQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuQueue({} threads)", self.threads())
    }
}

impl CpuQueue {
    /// A pool of `threads` threads; 0 means one per available core.
    ///
    /// # Errors
    /// The system refuses to start the threads.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("batchlas-{i}"))
            .build()
            .map_err(|e| QueueError::Pool { threads, reason: e.to_string() })?;
        let device = Device::cpu(pool.current_num_threads());
        Ok(CpuQueue { pool, device })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Cuts the operands along the batch into chunks of at least `grain` items and runs `work` on each, spread over
    /// the pool. Returns when all are done; if several fail, one of the errors.
    ///
    /// # Errors
    /// What `work` returned.
    pub fn for_each_chunk<S: Split>(
        &self,
        operands: S,
        grain: usize,
        work: impl Fn(S) -> Result<()> + Sync,
    ) -> Result<()> {
        self.for_each_run(operands, 1, grain, work)
    }

    /// As [`CpuQueue::for_each_chunk`], cutting only at multiples of `unit` items, for work that takes items in groups.
    /// What is a single chunk runs on the calling thread.
    ///
    /// # Errors
    /// What `work` returned.
    pub fn for_each_run<S: Split>(
        &self,
        operands: S,
        unit: usize,
        grain: usize,
        work: impl Fn(S) -> Result<()> + Sync,
    ) -> Result<()> {
        // Eight chunks a thread even out items of unequal cost without making the pieces too small to matter.
        let grain = grain.max(operands.batch() / (self.threads() * 8)).max(unit).max(1);
        if operands.batch() <= grain || self.threads() == 1 {
            return work(operands);
        }
        self.pool.install(|| halve(operands, unit.max(1), grain, &work))
    }
}

fn halve<S: Split>(
    operands: S,
    unit: usize,
    grain: usize,
    work: &(impl Fn(S) -> Result<()> + Sync),
) -> Result<()> {
    let batch = operands.batch();
    let middle = (batch / 2).next_multiple_of(unit);
    if batch <= grain || middle >= batch {
        return work(operands);
    }
    let (head, tail) = operands.split_at(middle);
    let (a, b) = rayon::join(|| halve(head, unit, grain, work), || halve(tail, unit, grain, work));
    a.and(b)
}

/// The unit of host allocations: its alignment is what [`crate::WORKSPACE_ALIGN`] promises.
#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Block([u8; 256]);

const _: () = assert!(align_of::<Block>() == crate::WORKSPACE_ALIGN);

// SAFETY: a block is an array of bytes without padding: its size equals its alignment.
unsafe impl Zeroable for Block {}
// SAFETY: as above; every bit pattern is a block.
unsafe impl Pod for Block {}

struct HostMemory {
    blocks: Vec<Block>,
    address: u64,
    bytes: usize,
}

// SAFETY: the address is that of the vector's own storage, which neither grows nor moves while it is owned here.
unsafe impl QueueMemory for HostMemory {
    fn address(&self) -> u64 {
        self.address
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn place(&self) -> Place {
        Place::Host
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Queue for CpuQueue {
    fn device(&self) -> &Device {
        &self.device
    }

    fn in_order(&self) -> bool {
        true
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
        Err(QueueError::NoKernels { entry: launch.kernel.entry.clone(), place: Place::Host })
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError> {
        let count = bytes.div_ceil(size_of::<Block>());
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count).map_err(|e| QueueError::OutOfMemory {
            bytes,
            place: Place::Host,
            reason: e.to_string(),
        })?;
        blocks.resize(count, Block::zeroed());
        let address = blocks.as_mut_ptr().expose_provenance() as u64;
        Ok(Memory::new(HostMemory { blocks, address, bytes }))
    }

    fn write(&self, memory: &mut Memory, offset: usize, bytes: &[u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())?;
        let host = memory.inner_mut().downcast_mut::<HostMemory>();
        let host = host.ok_or(QueueError::Foreign { what: "buffer", place: Place::Host })?;
        bytemuck::cast_slice_mut(&mut host.blocks)[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), QueueError> {
        memory.check_range(offset, bytes.len())?;
        let host = memory.inner().downcast_ref::<HostMemory>();
        let host = host.ok_or(QueueError::Foreign { what: "buffer", place: Place::Host })?;
        bytes.copy_from_slice(&bytemuck::cast_slice(&host.blocks)[offset..offset + bytes.len()]);
        Ok(())
    }

    unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), QueueError> {
        let first: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller promises that the range is memory of this process and ours to write.
        unsafe { first.write_bytes(0, bytes) };
        Ok(())
    }

    fn fence(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn record(&self) -> Result<Event, QueueError> {
        Ok(Event(Box::new(Instant::now())))
    }

    fn wait(&self, event: &Event) -> Result<(), QueueError> {
        // Work is done when a call returns, so every event of a CPU queue has already happened.
        instant(event).map(drop)
    }

    fn seconds_between(&self, earlier: &Event, later: &Event) -> Result<f64, QueueError> {
        Ok(instant(later)?.saturating_duration_since(instant(earlier)?).as_secs_f64())
    }

    fn copy(&self, from: &Memory, to: &mut Memory) -> Result<(), QueueError> {
        to.check_range(0, from.bytes())?;
        let source = from.inner().downcast_ref::<HostMemory>();
        let source = source.ok_or(QueueError::Foreign { what: "buffer", place: Place::Host })?;
        self.write(to, 0, &bytemuck::cast_slice(&source.blocks)[..from.bytes()])
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        Ok(())
    }

    fn cpu(&self) -> Option<&CpuQueue> {
        Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn instant(event: &Event) -> Result<Instant, QueueError> {
    event.0.downcast_ref().copied().ok_or(QueueError::Foreign { what: "event", place: Place::Host })
}

/// The host items of a view inside a CPU arm, where validation has already established that they are on the host.
///
/// # Errors
/// [`Error::Internal`] if it has not.
pub fn on_host<I>(item: Option<I>) -> Result<I> {
    item.ok_or_else(|| Error::Internal("a CPU arm was handed device memory".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::InfoMut;
    use crate::queue::Buffer;
    use crate::view::MatBatchMut;

    #[test]
    fn every_item_is_visited_once_whatever_the_pool() {
        for threads in [1, 3] {
            let queue = CpuQueue::new(threads).unwrap();
            assert_eq!(queue.threads(), threads);
            let mut data = vec![0f64; 4 * 1013];
            let mut info = vec![0; 1013];
            let a = MatBatchMut::packed(&mut data, 2, 2, 1013).unwrap();
            queue
                .for_each_chunk((a, InfoMut::host(&mut info)), 1, |(mut a, mut info)| {
                    for b in 0..a.batch() {
                        let mut item = on_host(a.item_mut(b))?;
                        let before = item.at(1, 1);
                        item.set(1, 1, before + 1.0);
                        info.set(b, 1 + info.get(b).unwrap());
                    }
                    Ok(())
                })
                .unwrap();
            assert!(info.iter().all(|&i| i == 1));
            assert!(data.chunks(4).all(|m| m == [0.0, 0.0, 0.0, 1.0]));
        }
    }

    #[test]
    fn an_error_in_one_chunk_comes_back() {
        let queue = CpuQueue::new(2).unwrap();
        let mut data = vec![0f32; 64];
        let a = MatBatchMut::packed(&mut data, 1, 1, 64).unwrap();
        let result = queue.for_each_chunk((a, InfoMut::absent()), 1, |(a, _)| match a.item(0) {
            Some(item) if item.at(0, 0) == 0.0 => Err(Error::Internal("seen".into())),
            _ => Ok(()),
        });
        assert!(matches!(result, Err(Error::Internal(_))));
    }

    #[test]
    fn buffers_round_trip_and_check_their_ranges() {
        let queue = CpuQueue::new(1).unwrap();
        let mut buffer = Buffer::from_slice(&queue, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!(buffer.address() % crate::WORKSPACE_ALIGN as u64, 0);
        buffer.view_mut(2, 3, 2, 6, 1).unwrap().item_mut(0).unwrap().set(1, 2, 9.0);
        assert_eq!(buffer.to_vec(&queue).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]);
        assert!(buffer.view(2, 4, 2, 8, 1).is_err());
        assert!(buffer.write(&queue, 5, &[0.0, 0.0]).is_err());
        let message = buffer.read(&queue, 6, &mut [0.0]).unwrap_err().to_string();
        assert!(message.contains("4 bytes at offset 24 leaves a buffer of 24"), "{message}");
        let mut info = Buffer::from_slice(&queue, &[7i32; 3]).unwrap();
        info.info_mut().clear(&queue).unwrap();
        assert_eq!(info.to_vec(&queue).unwrap(), [0; 3]);
    }

    #[test]
    fn scattered_items_are_disjoint_and_inside() {
        let queue = CpuQueue::new(1).unwrap();
        let mut buffer = Buffer::from_slice(&queue, &[0f64; 12]).unwrap();
        let mut scattered = buffer.scatter(&queue, &[8, 1], 2, 2, 2).unwrap();
        scattered.view_mut().unwrap().item_mut(0).unwrap().set(1, 1, 5.0);
        scattered.view_mut().unwrap().item_mut(1).unwrap().set(0, 0, 6.0);
        assert_eq!(scattered.view().unwrap().item(0).unwrap().at(1, 1), 5.0);
        let data = buffer.to_vec(&queue).unwrap();
        assert_eq!((data[11], data[1]), (5.0, 6.0));
        assert!(buffer.scatter(&queue, &[9, 0], 2, 2, 2).is_err(), "leaves the array");
        assert!(buffer.scatter(&queue, &[3, 0], 2, 2, 2).is_err(), "items overlap");
        assert!(buffer.scatter(&queue, &[0], 3, 2, 2).is_err(), "ld below rows");
    }

    #[test]
    fn events_of_another_kind_are_refused() {
        let queue = CpuQueue::new(1).unwrap();
        queue.wait(&queue.record().unwrap()).unwrap();
        assert!(queue.wait(&Event(Box::new(5i32))).is_err());
        let start = queue.record().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let seconds = queue.seconds_between(&start, &queue.record().unwrap()).unwrap();
        assert!((0.002..1.0).contains(&seconds), "{seconds}");
        assert!(queue.seconds_between(&start, &Event(Box::new(5i32))).is_err());
    }
}
