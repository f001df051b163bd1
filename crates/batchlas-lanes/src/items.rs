//! The addresses of the items of a batch, as lines of reals.

use batchlas_core::cpu::on_host;
use batchlas_core::{MatBatch, MatBatchMut, Result, Scalar};

/// Where the items of a batch start.
pub(crate) enum Items<R> {
    Strided { first: *mut R, stride: usize },
    Table(Vec<*mut R>),
}

impl<R> Items<R> {
    /// The items of a writable batch with at least one item.
    pub(crate) fn of_mut<T: Scalar>(batch: &mut MatBatchMut<'_, T>) -> Result<Self> {
        Ok(match batch.stride() {
            Some(stride) => {
                let first = on_host(batch.item_mut(0))?.as_mut_ptr().cast();
                Items::Strided { first, stride: stride * parts::<T>() }
            }
            None => Items::Table(
                (0..batch.batch())
                    .map(|b| Ok(on_host(batch.item_mut(b))?.as_mut_ptr().cast()))
                    .collect::<Result<_>>()?,
            ),
        })
    }

    /// The items of a read-only batch with at least one item. They are only read from.
    pub(crate) fn of<T: Scalar>(batch: &MatBatch<'_, T>) -> Result<Self> {
        Ok(match batch.stride() {
            Some(stride) => {
                let first = on_host(batch.item(0))?.as_ptr().cast_mut().cast();
                Items::Strided { first, stride: stride * parts::<T>() }
            }
            None => Items::Table(
                (0..batch.batch())
                    .map(|b| Ok(on_host(batch.item(b))?.as_ptr().cast_mut().cast()))
                    .collect::<Result<_>>()?,
            ),
        })
    }

    /// The first real of an item.
    #[inline(always)]
    pub(crate) fn at(&self, item: usize) -> *mut R {
        match self {
            Items::Strided { first, stride } => first.wrapping_add(item * stride),
            Items::Table(table) => table[item],
        }
    }

    /// Reals from an item to the next, where they follow each other.
    pub(crate) fn stride(&self) -> Option<usize> {
        match self {
            Items::Strided { stride, .. } => Some(*stride),
            Items::Table(_) => None,
        }
    }
}

/// Reals per element.
pub(crate) const fn parts<T: Scalar>() -> usize {
    if T::DTYPE.is_complex() { 2 } else { 1 }
}
