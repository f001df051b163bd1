//! Batches in every layout, surrounded by poison.

use batchlas::{Buffer, Context, Element, MatBatch, MatBatchMut, Result, Scattered};

/// How the items of a batch lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// `ld = rows`, `stride = rows * cols`.
    Packed,
    /// `ld = rows + 3`, `stride = ld * cols + 5`.
    Padded,
    /// Items side by side in the rows of one tall matrix: `stride < ld`.
    Interleaved,
    /// A pointer array over items in reverse order with gaps.
    Pointers,
}

/// A batch in host memory with its geometry. Everything that is not an element of an item is poison.
#[derive(Clone, Debug)]
pub struct Store<T> {
    /// Every element, padding included.
    pub data: Vec<T>,
    layout: Layout,
    rows: usize,
    cols: usize,
    ld: usize,
    stride: usize,
    offsets: Vec<usize>,
}

impl<T: Element> Store<T> {
    /// A batch filled with poison.
    pub fn new(layout: Layout, rows: usize, cols: usize, batch: usize, poison: T) -> Self {
        let (ld, stride) = match layout {
            Layout::Packed => (rows.max(1), rows * cols),
            Layout::Padded | Layout::Pointers => (rows + 3, (rows + 3) * cols + 5),
            Layout::Interleaved => ((rows * batch).max(1), rows),
        };
        let mut offsets: Vec<usize> = (0..batch).map(|b| b * stride).collect();
        if layout == Layout::Pointers {
            offsets.reverse();
        }
        let span = if rows == 0 || cols == 0 { 0 } else { (cols - 1) * ld + rows };
        let len = offsets.iter().max().map_or(0, |last| last + span);
        Store { data: vec![poison; len], layout, rows, cols, ld, stride, offsets }
    }

    /// Number of items.
    pub fn batch(&self) -> usize {
        self.offsets.len()
    }

    /// Rows of every item.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of every item.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Elements from a column to the next.
    pub fn ld(&self) -> usize {
        self.ld
    }

    /// Elements from an item to the next, where that is constant.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Place of element `(i, j)` of item `b` in `data`.
    pub fn index(&self, b: usize, i: usize, j: usize) -> usize {
        self.offsets[b] + j * self.ld + i
    }

    /// Element `(i, j)` of item `b`.
    pub fn at(&self, b: usize, i: usize, j: usize) -> T {
        self.data[self.index(b, i, j)]
    }

    /// Sets element `(i, j)` of item `b`.
    pub fn set(&mut self, b: usize, i: usize, j: usize, value: T) {
        let at = self.index(b, i, j);
        self.data[at] = value;
    }

    /// Copies the batch into the memory of a context.
    ///
    /// # Errors
    /// The device has no memory left; the transfer fails.
    pub fn upload(&self, ctx: &Context) -> Result<Loaded<'_, T>> {
        Ok(Loaded { store: self, buffer: ctx.upload(&self.data)? })
    }
}

/// A [`Store`] in the memory of a context.
#[derive(Debug)]
pub struct Loaded<'s, T> {
    store: &'s Store<T>,
    buffer: Buffer<T>,
}

impl<T: Element> Loaded<'_, T> {
    /// Address of the first element of the array, padding included.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The batch as it was uploaded.
    pub fn store(&self) -> &Store<T> {
        self.store
    }

    /// Calls `run` with the batch as a writable view.
    ///
    /// # Errors
    /// What `run` returns; the view could not be made.
    pub fn with_mut<R>(
        &mut self,
        ctx: &Context,
        run: impl FnOnce(MatBatchMut<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let Store { layout, rows, cols, ld, stride, ref offsets, .. } = *self.store;
        if layout == Layout::Pointers {
            let mut scattered: Scattered<'_, T> =
                self.buffer.scatter(ctx.queue(), offsets, rows, cols, ld)?;
            run(scattered.view_mut()?)
        } else {
            run(self.buffer.view_mut(rows, cols, ld, stride, offsets.len())?)
        }
    }

    /// Calls `run` with the batch as a read-only view.
    ///
    /// # Errors
    /// What `run` returns; the view could not be made.
    pub fn with<R>(&mut self, ctx: &Context, run: impl FnOnce(MatBatch<'_, T>) -> Result<R>) -> Result<R> {
        self.with_mut(ctx, |view| run(view.into_const()))
    }

    /// Calls `run` with item 0 standing for a whole batch (stride 0).
    ///
    /// # Errors
    /// What `run` returns; the view could not be made.
    pub fn with_shared<R>(&self, batch: usize, run: impl FnOnce(MatBatch<'_, T>) -> Result<R>) -> Result<R> {
        let Store { rows, cols, ld, .. } = *self.store;
        run(self.buffer.view(rows, cols, ld, 0, batch)?)
    }

    /// Everything, padding included, as it is now.
    ///
    /// # Errors
    /// The transfer, or work enqueued before it, failed.
    pub fn download(&self, ctx: &Context) -> Result<Store<T>> {
        Ok(Store { data: ctx.download(&self.buffer)?, ..self.store.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_disjoint_in_every_layout() {
        for layout in [Layout::Packed, Layout::Padded, Layout::Interleaved, Layout::Pointers] {
            let mut store = Store::new(layout, 3, 2, 4, -1.0f64);
            for (b, i, j) in (0..4).flat_map(|b| (0..3).flat_map(move |i| (0..2).map(move |j| (b, i, j)))) {
                assert_eq!(store.at(b, i, j), -1.0, "{layout:?}: an element was seen twice");
                store.set(b, i, j, 1.0);
            }
            assert_eq!(store.data.iter().filter(|&&x| x == 1.0).count(), 24);
        }
    }
}
