//! A matrix of Q4_K weights, as a view.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use batchlas_core::{Buffer, Place};

use crate::error::{Error, Result};
use crate::q4k::{BLOCK, BLOCK_BYTES};

/// Alignment of weights in device memory, in bytes.
const ALIGN: u64 = 16;

/// `rows x k` weights: rows of `k / 256` super-blocks, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Q4kMatrix<'a> {
    address: u64,
    place: Place,
    rows: usize,
    k: usize,
    memory: PhantomData<&'a [u8]>,
}

/// Bytes of a matrix of weights.
///
/// # Errors
/// [`Error::InnerDimension`]; [`Error::TooLarge`].
pub(crate) fn bytes(rows: usize, k: usize) -> Result<usize> {
    if k == 0 || !k.is_multiple_of(BLOCK) {
        return Err(Error::InnerDimension { k });
    }
    rows.checked_mul(k / BLOCK).and_then(|n| n.checked_mul(BLOCK_BYTES)).ok_or(Error::TooLarge { rows, k })
}

fn check(have: usize, rows: usize, k: usize) -> Result<()> {
    let need = bytes(rows, k)?;
    if have == need { Ok(()) } else { Err(Error::WeightBytes { have, rows, k, need }) }
}

impl<'a> Q4kMatrix<'a> {
    /// Weights in host memory, at any alignment.
    ///
    /// # Errors
    /// `k` is no positive multiple of 256; the slice is not of that size.
    pub fn from_slice(data: &'a [u8], rows: usize, k: usize) -> Result<Self> {
        check(data.len(), rows, k)?;
        let address = data.as_ptr().expose_provenance() as u64;
        Ok(Q4kMatrix { address, place: Place::Host, rows, k, memory: PhantomData })
    }

    /// Weights in the memory of a queue.
    ///
    /// # Errors
    /// As for [`Q4kMatrix::from_slice`].
    pub fn from_buffer(data: &'a Buffer<u8>, rows: usize, k: usize) -> Result<Self> {
        check(data.len(), rows, k)?;
        Ok(Q4kMatrix { address: data.address(), place: data.place(), rows, k, memory: PhantomData })
    }

    /// Weights at an address.
    ///
    /// # Safety
    /// The memory there must be of the size of such a matrix, initialised, in `place`, and unchanged for the lifetime of the view and until work that
    /// was enqueued with it is done.
    ///
    /// # Errors
    /// `k` is no positive multiple of 256; on a device an address that is no multiple of 16.
    pub unsafe fn from_raw(place: Place, address: u64, rows: usize, k: usize) -> Result<Self> {
        bytes(rows, k)?;
        if place != Place::Host && !address.is_multiple_of(ALIGN) {
            return Err(Error::Misaligned { off: address % ALIGN });
        }
        Ok(Q4kMatrix { address, place, rows, k, memory: PhantomData })
    }

    /// Rows, which are rows of the result.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inner dimension.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Where the memory is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The super-blocks of a row, if the weights are in host memory.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> Option<&'a [[u8; BLOCK_BYTES]]> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let blocks = self.k / BLOCK;
        (self.place == Place::Host).then(|| {
            let first: *const [u8; BLOCK_BYTES] = std::ptr::with_exposed_provenance(self.address as usize);
            // SAFETY: the constructors made sure that `rows` rows are there for the lifetime, and arrays of bytes have no alignment.
            unsafe { std::slice::from_raw_parts(first.add(row * blocks), blocks) }
        })
    }
}
