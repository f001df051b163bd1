//! Operands that can be cut in two along the batch, so that a thread pool can share them without locks.

use crate::info::InfoMut;
use crate::scalar::Scalar;
use crate::view::{MatBatch, MatBatchMut};

/// A set of operands with one batch.
pub trait Split: Sized + Send {
    /// Number of items.
    fn batch(&self) -> usize;

    /// The first `mid` items and the rest.
    ///
    /// # Panics
    /// If `mid > batch`.
    fn split_at(self, mid: usize) -> (Self, Self);
}

impl<T: Scalar> Split for MatBatch<'_, T> {
    fn batch(&self) -> usize {
        MatBatch::batch(self)
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let part = |range| self.items(range).expect("the caller's `mid` is within the batch");
        (part(0..mid), part(mid..self.batch()))
    }
}

impl<T: Scalar> Split for MatBatchMut<'_, T> {
    fn batch(&self) -> usize {
        MatBatchMut::batch(self)
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        MatBatchMut::split_at(self, mid)
    }
}

/// An operand together with its `info`.
impl<A: Split> Split for (A, InfoMut<'_>) {
    fn batch(&self) -> usize {
        self.0.batch()
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let (a0, a1) = self.0.split_at(mid);
        let (i0, i1) = self.1.split_at(mid);
        ((a0, i0), (a1, i1))
    }
}

/// Two writable operands.
impl<T: Scalar> Split for (MatBatchMut<'_, T>, MatBatchMut<'_, T>) {
    fn batch(&self) -> usize {
        self.0.batch()
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let (a0, a1) = self.0.split_at(mid);
        let (b0, b1) = self.1.split_at(mid);
        ((a0, b0), (a1, b1))
    }
}

/// A read-only operand and a writable one.
impl<T: Scalar, U: Scalar> Split for (MatBatch<'_, T>, MatBatchMut<'_, U>) {
    fn batch(&self) -> usize {
        self.1.batch()
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let (a0, a1) = Split::split_at(self.0, mid);
        let (b0, b1) = self.1.split_at(mid);
        ((a0, b0), (a1, b1))
    }
}

/// Two read-only operands and a writable one.
impl<T: Scalar> Split for (MatBatch<'_, T>, MatBatch<'_, T>, MatBatchMut<'_, T>) {
    fn batch(&self) -> usize {
        self.2.batch()
    }

    fn split_at(self, mid: usize) -> (Self, Self) {
        let (a0, a1) = Split::split_at(self.0, mid);
        let (b0, b1) = Split::split_at(self.1, mid);
        let (c0, c1) = self.2.split_at(mid);
        ((a0, b0, c0), (a1, b1, c1))
    }
}
