//! cuSOLVER and cuBLAS on a CUDA queue.
//!
//! | seam | small items, many of them | few or large items |
//! |---|---|---|
//! | factor | `potrfBatched` | `potrf` per item |
//! | solve | `trsmBatched` | `trsm` per item |
//! | gemm | `gemmStridedBatched`, `gemmBatched` for tables | the same |
//! | herk | `gemmBatched` into scratch, one triangle folded | `herk` (`syrk`) per item |
//!
//! Everything is enqueued on the caller's stream and nothing waits for it. Scratch comes from the queue, in stream order;
//! pointer arrays are built on the device. A library that is missing, or too old, is a reason in `can_*` and an error in a
//! call; neither needs the other (a machine without cuSOLVER still solves and multiplies).

mod factor;
mod handle;
mod library;
mod solve;
mod staging;
mod stream;
mod update;

use batchlas_core::{Device, MatBatch, Memory, Place, Queue, Result, Scalar};

use self::handle::{At, Blas, Solver};
use self::library::Vendor;
use self::staging::Items;
use self::stream::Stream;

pub use self::staging::kernels;

/// The spelling under which the arm appears in tables and traces.
const FAMILY: &str = "vendor";

/// Most items of one library call. The batch is a grid dimension in some of the libraries' kernels, and those but the
/// first end here.
const CALL_ITEMS: usize = 65_535;

/// Most scratch for packed or full squares, in bytes, beyond one item: larger batches take turns. Enough to fill any
/// device many times over.
const SCRATCH_BYTES: usize = 256 << 20;

/// From this order on a batch of up to [`FEW_LARGE`] items is run item by item.
const LARGE: usize = 1024;
/// See [`LARGE`].
const FEW_LARGE: usize = 8;
/// A batch of up to this many items is run item by item.
const FEW: usize = 2;

/// Whether a batch of items of order `n` is run item by item, with the entry for one matrix: the batched ones give a
/// multiprocessor or less to each.
fn item_by_item(n: usize, batch: usize) -> bool {
    batch <= FEW || (n > LARGE && batch <= FEW_LARGE)
}

/// How many squares of order `n` and `element` bytes are worked on at once.
fn squares_at_once(n: usize, element: usize, batch: usize) -> usize {
    let bytes = n.saturating_mul(n).saturating_mul(element).max(1);
    (SCRATCH_BYTES / bytes).clamp(1, batch.max(1))
}

/// The parts of `0..batch`, each of at most `part` items, as (start, length).
fn parts(batch: usize, part: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..batch).step_by(part).map(move |start| (start, part.min(batch - start)))
}

/// The GPU vendor arm of one device.
#[derive(Clone, Copy, Debug)]
pub struct CudaArm {
    ordinal: u32,
}

impl CudaArm {
    /// The arm of the device with this ordinal. Nothing is loaded yet: what is missing is said by `can_*`.
    pub fn new(ordinal: u32) -> CudaArm {
        CudaArm { ordinal }
    }

    /// The libraries, each with its release or the reason why it cannot be used.
    pub fn report() -> Vec<(&'static str, Result<String, String>)> {
        let own = |ready: Result<&str, &str>| ready.map(str::to_owned).map_err(str::to_owned);
        Vendor::ALL.map(|vendor| (vendor.name(), own(vendor.ready()))).into()
    }

    /// Makes the library handles of this device now. The first call does so otherwise, which takes tens of milliseconds
    /// and must not happen while the stream is being captured.
    ///
    /// # Errors
    /// The queue is no CUDA stream; a library that is present refuses a handle.
    pub fn prepare(&self, queue: &dyn Queue) -> Result<()> {
        let stream = stream::of(queue)?;
        if Vendor::Cublas.ready().is_ok() {
            Scratch::new(queue, 0)?.blas(stream)?;
        }
        if Vendor::Cusolver.ready().is_ok() {
            solver(stream)?;
        }
        Ok(())
    }

    /// Whether the arm works on a device with a library.
    fn can(&self, device: &Device, vendor: Vendor) -> Result<(), String> {
        match device.place {
            Place::Cuda(ordinal) if ordinal == self.ordinal => {}
            place => {
                return Err(format!(
                    "this vendor arm serves cuda:{}, and the queue works in {place}",
                    self.ordinal
                ));
            }
        }
        vendor.ready().map(drop).map_err(str::to_owned)
    }
}

/// cuSOLVER on a stream.
#[allow(unsafe_code)]
fn solver(stream: Stream) -> Result<Solver> {
    // SAFETY: a `Stream` is live, with its context current.
    Ok(unsafe { Solver::on(stream) }?)
}

/// Scratch of one call: the workspace of cuBLAS, then whatever the call needs.
struct Scratch {
    memory: Memory,
    workspace: usize,
}

#[allow(unsafe_code)]
impl Scratch {
    /// Workspace and `bytes` more, in stream order.
    fn new(queue: &dyn Queue, bytes: usize) -> Result<Scratch> {
        let workspace = Blas::workspace_bytes(&queue.device().arch);
        Ok(Scratch { memory: queue.alloc(workspace.saturating_add(bytes))?, workspace })
    }

    /// Address of byte `offset` behind the workspace.
    fn at(&self, offset: usize) -> u64 {
        self.memory.address() + (self.workspace + offset) as u64
    }

    /// cuBLAS on a stream, with the workspace.
    fn blas(&self, stream: Stream) -> Result<Blas> {
        // SAFETY: a `Stream` is live, with its context current. The memory is freed in stream order, after every call
        // that is enqueued while this value lives.
        Ok(unsafe { Blas::on(stream, self.memory.address(), self.workspace) }?)
    }

    /// The table of a batch's items: the caller's own where it serves, else written `offset` bytes behind the workspace.
    fn table<T: Scalar>(&self, queue: &dyn Queue, view: &MatBatch<'_, T>, offset: usize) -> Result<At> {
        let ld = view.ld();
        if let Some(address) = Items::of(view).table() {
            return Ok(At { address, ld });
        }
        let address = self.at(offset);
        // SAFETY: callers ask `Scratch::new` for a table per offset they use. The memory lives to the end of the call and
        // is freed in stream order.
        unsafe { staging::addresses(queue, view, address)? };
        Ok(At { address, ld })
    }
}

/// Bytes of a table of `batch` addresses, rounded so that what follows is aligned.
fn table_bytes(batch: usize) -> usize {
    batch.saturating_mul(size_of::<u64>()).next_multiple_of(batchlas_core::WORKSPACE_ALIGN)
}

/// Item `item` of a strided batch as a library operand; `None` for a table.
fn item_at<T: Scalar>(view: &MatBatch<'_, T>, item: usize) -> Option<At> {
    let stride = view.stride()?;
    let (address, _) = view.address();
    Some(At { address: address + (item * stride * size_of::<T>()) as u64, ld: view.ld() })
}

#[cfg(test)]
mod tests;
