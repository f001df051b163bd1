//! Batches in arrays of cudarc, for callers that already hold some.
//!
//! cudarc orders the uses of an array among its own streams by a guard that lives while work is enqueued, so a view
//! exists for the length of a closure. Enqueue on a [`CudaQueue`](super::CudaQueue) made from the array's own stream
//! (`CudaQueue::from_raw_stream(ordinal, slice.stream().cu_stream())`).
#![allow(unsafe_code)]

use batchlas_core::{MatBatch, MatBatchMut, Place, Result, Scalar, view::covers};
use cudarc::driver::{DevicePtr, DevicePtrMut, DeviceSlice};

/// Geometry of a strided batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Rows per item.
    pub rows: usize,
    /// Columns per item.
    pub cols: usize,
    /// Elements from one column to the next.
    pub ld: usize,
    /// Elements from one item to the next.
    pub stride: usize,
    /// Number of items.
    pub batch: usize,
}

impl Strided {
    fn check<T>(self, slice: &impl DeviceSlice<T>) -> Result<Place> {
        let Strided { rows, cols, ld, stride, batch } = self;
        covers("cudarc slice", slice.len(), [rows, cols, ld, stride, batch])?;
        Ok(Place::Cuda(u32::try_from(slice.stream().context().ordinal()).unwrap_or(u32::MAX)))
    }
}

/// Calls `work` with a read-only batch in a slice.
///
/// # Errors
/// A slice too short for the batch, `ld < rows`; what `work` returns.
pub fn with_slice<T: Scalar, R>(
    slice: &impl DevicePtr<T>,
    batch: Strided,
    work: impl FnOnce(MatBatch<'_, T>) -> Result<R>,
) -> Result<R> {
    let place = batch.check(slice)?;
    let stream = slice.stream().clone();
    let (address, _read) = slice.device_ptr(&stream);
    let Strided { rows, cols, ld, stride, batch } = batch;
    // SAFETY: the slice is borrowed for the length of the call, and every item was checked to be inside it.
    work(unsafe { MatBatch::from_raw_strided(place, address, rows, cols, ld, stride, batch)? })
}

/// Calls `work` with a writable batch in a slice.
///
/// # Errors
/// As for [`with_slice`]; items that overlap.
pub fn with_slice_mut<T: Scalar, R>(
    slice: &mut impl DevicePtrMut<T>,
    batch: Strided,
    work: impl FnOnce(MatBatchMut<'_, T>) -> Result<R>,
) -> Result<R> {
    let place = batch.check(slice)?;
    let stream = slice.stream().clone();
    let (address, _written) = slice.device_ptr_mut(&stream);
    let Strided { rows, cols, ld, stride, batch } = batch;
    // SAFETY: the slice is exclusively borrowed for the length of the call, and every item was checked to be inside it.
    work(unsafe { MatBatchMut::from_raw_strided(place, address, rows, cols, ld, stride, batch)? })
}
