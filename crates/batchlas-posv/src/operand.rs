//! An operand as device code takes it.

use batchlas_core::{MatBatch, Scalar};
use bytemuck::{Pod, Zeroable};

/// A batch of matrices, distances in bytes (`Operand` of `batchlas/operand.cuh`).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Operand {
    address: u64,
    stride: u64,
    offset: u64,
    ld: u64,
}

/// Stride that says that an address is that of a table (`TABLE` of the text).
const TABLE: u64 = u64::MAX;

impl Operand {
    pub(crate) fn new<T: Scalar>(view: MatBatch<'_, T>) -> Operand {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = view.address();
        Operand {
            address,
            stride: view.stride().map_or(TABLE, |stride| stride as u64 * bytes),
            offset: offset as u64 * bytes,
            ld: view.ld() as u64 * bytes,
        }
    }

    /// Whether every column of every item starts on a 16-byte boundary.
    pub(crate) fn is_aligned(&self) -> bool {
        self.stride != TABLE && [self.address, self.stride, self.ld].iter().all(|x| x.is_multiple_of(16))
    }
}
