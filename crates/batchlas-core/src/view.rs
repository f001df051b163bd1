//! Batched matrix views: where the numbers lie.
//!
//! A view is column-major and describes `batch` matrices of `rows x cols`. Element `(i, j)` of item `b` is
//!
//! * strided layout: `base[b * stride + j * ld + i]`,
//! * pointer-array layout: `table[b][offset + j * ld + i]`.
//!
//! All offsets are 64-bit. A sub-view keeps its parent's `ld`. A read-only view may have `stride == 0`: one matrix
//! shared by the whole batch. The memory may be the host's or a device's; only host items can be looked into.
//!
//! A batch may be *heterogeneous*: an [`Extent`] per item then says how much of the `rows x cols` frame is in use.
//!
//! Invariant that the `unsafe` blocks of this module stand on: a view is only ever built by a checked constructor
//! (which borrows memory covering every element of every item) or by an `unsafe` one whose caller promises the same;
//! and the items of a writable view never overlap.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use crate::device::Place;
use crate::error::{ArgumentError, Result};
use crate::scalar::Scalar;

/// Rows and columns in use of one item of a heterogeneous batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Rows in use, at most the view's.
    pub rows: usize,
    /// Columns in use, at most the view's.
    pub cols: usize,
}

/// Where the items are.
#[derive(Debug, PartialEq, Eq)]
enum Items<T> {
    Strided { base: *mut T, stride: usize },
    Table { table: *const *mut T, offset: usize },
}

impl<T> Clone for Items<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Items<T> {}

/// Geometry shared by the two kinds of view.
#[derive(Debug)]
struct Raw<'a, T> {
    place: Place,
    items: Items<T>,
    rows: usize,
    cols: usize,
    ld: usize,
    batch: usize,
    extents: Option<&'a [Extent]>,
}

impl<T> Clone for Raw<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Raw<'_, T> {}

/// Elements from the first to one past the last of one item; `None` on overflow.
pub(crate) fn span(rows: usize, cols: usize, ld: usize) -> Option<usize> {
    if rows == 0 || cols == 0 { Some(0) } else { (cols - 1).checked_mul(ld)?.checked_add(rows) }
}

/// An array of `len` elements covers every item of a strided batch.
///
/// # Errors
/// [`ArgumentError::TooLarge`] or [`ArgumentError::BufferTooShort`], with the numbers.
pub fn covers(operand: &'static str, len: usize, [rows, cols, ld, stride, batch]: [usize; 5]) -> Result<()> {
    let needed = strided_len(rows, cols, ld, stride, batch).ok_or(ArgumentError::TooLarge {
        operand,
        rows,
        cols,
        ld,
        stride,
        batch,
    })?;
    if needed > len {
        return Err(
            ArgumentError::BufferTooShort { operand, len, needed, rows, cols, ld, stride, batch }.into()
        );
    }
    Ok(())
}

/// Elements from the first to one past the last of a strided batch; `None` on overflow.
fn strided_len(rows: usize, cols: usize, ld: usize, stride: usize, batch: usize) -> Option<usize> {
    let span = span(rows, cols, ld)?;
    if batch == 0 || span == 0 { Some(0) } else { (batch - 1).checked_mul(stride)?.checked_add(span) }
}

impl<'a, T: Scalar> Raw<'a, T> {
    /// Checks a strided geometry; `len` is the number of elements present, where known.
    fn strided(
        place: Place,
        base: *mut T,
        len: Option<usize>,
        [rows, cols, ld, stride, batch]: [usize; 5],
    ) -> Result<Self> {
        let operand = "matrix batch";
        if ld < rows.max(1) {
            return Err(ArgumentError::LeadingDimension { operand, ld, rows: rows.max(1) }.into());
        }
        let needed = strided_len(rows, cols, ld, stride, batch)
            .filter(|n| n.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize))
            .ok_or(ArgumentError::TooLarge { operand, rows, cols, ld, stride, batch })?;
        if let Some(len) = len.filter(|&len| len < needed) {
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
        Ok(Raw { place, items: Items::Strided { base, stride }, rows, cols, ld, batch, extents: None })
    }

    /// Refuses a strided geometry whose items share elements. Items follow each other (`stride >= span`) or are
    /// interleaved within one column (`ld` covers all of them).
    fn require_disjoint(self) -> Result<Self> {
        let Items::Strided { stride, .. } = self.items else { return Ok(self) };
        let Raw { rows, cols, ld, batch, .. } = self;
        let span = span(rows, cols, ld).unwrap_or(usize::MAX);
        let sequential = stride >= span;
        let interleaved = stride >= rows
            && (batch.saturating_sub(1))
                .checked_mul(stride)
                .and_then(|x| x.checked_add(rows))
                .is_some_and(|x| x <= ld);
        if batch > 1 && span > 0 && !sequential && !interleaved {
            let operand = "writable matrix batch";
            return Err(ArgumentError::Overlap { operand, stride, span, rows, cols, ld, batch }.into());
        }
        Ok(self)
    }

    fn with_extents(mut self, extents: &'a [Extent]) -> Result<Self> {
        if extents.len() != self.batch {
            return Err(ArgumentError::Extents(format!(
                "{} extents were given for a batch of {}: give one per item",
                extents.len(),
                self.batch
            ))
            .into());
        }
        if let Some((i, e)) =
            extents.iter().enumerate().find(|(_, e)| e.rows > self.rows || e.cols > self.cols)
        {
            return Err(ArgumentError::Extents(format!(
                "item {i} is {} x {}, but the view is {} x {}: an item cannot exceed its view",
                e.rows, e.cols, self.rows, self.cols
            ))
            .into());
        }
        self.extents = Some(extents);
        Ok(self)
    }

    fn sub(mut self, rows: Range<usize>, cols: Range<usize>) -> Result<Self> {
        let inside = rows.start <= rows.end
            && rows.end <= self.rows
            && cols.start <= cols.end
            && cols.end <= self.cols;
        if !inside {
            return Err(ArgumentError::SubView {
                row: rows.start,
                row_end: rows.end,
                col: cols.start,
                col_end: cols.end,
                rows: self.rows,
                cols: self.cols,
            }
            .into());
        }
        if self.extents.is_some() {
            return Err(ArgumentError::Extents(
                "a heterogeneous batch has no sub-views: its items differ in size".into(),
            )
            .into());
        }
        // An empty sub-view may start one past the last column, outside the memory: it keeps the parent's base.
        let (empty, skip) = (rows.is_empty() || cols.is_empty(), cols.start * self.ld + rows.start);
        if !empty {
            match &mut self.items {
                Items::Strided { base, .. } => *base = base.wrapping_add(skip),
                Items::Table { offset, .. } => *offset += skip,
            }
        }
        self.rows = rows.len();
        self.cols = cols.len();
        Ok(self)
    }

    fn range(mut self, items: Range<usize>) -> Result<Self> {
        if items.start > items.end || items.end > self.batch {
            return Err(
                ArgumentError::BatchRange { start: items.start, end: items.end, batch: self.batch }.into()
            );
        }
        if !items.is_empty() {
            match &mut self.items {
                Items::Strided { base, stride } => *base = base.wrapping_add(items.start * *stride),
                Items::Table { table, .. } => *table = table.wrapping_add(items.start),
            }
        }
        self.extents = self.extents.map(|e| &e[items.clone()]);
        self.batch = items.len();
        Ok(self)
    }

    fn extent(&self, item: usize) -> Extent {
        self.extents.map_or(Extent { rows: self.rows, cols: self.cols }, |e| e[item])
    }

    /// Address of element (0, 0) of a host item, with its extent; `None` for device memory.
    fn host_item(&self, item: usize) -> Option<(*mut T, Extent)> {
        assert!(item < self.batch, "item {item} of a batch of {}", self.batch);
        if self.place != Place::Host {
            return None;
        }
        let extent = self.extent(item);
        let first = match self.items {
            Items::Strided { base, stride } => base.wrapping_add(item * stride),
            // SAFETY: the table of a host view holds `batch` pointers (module invariant) and `item < batch`.
            Items::Table { table, offset } => unsafe { *table.add(item) }.wrapping_add(offset),
        };
        Some((first, extent))
    }
}

macro_rules! shared_accessors {
    () => {
        /// Rows of each item (the frame, for a heterogeneous batch).
        pub fn rows(&self) -> usize {
            self.raw.rows
        }
        /// Columns of each item (the frame, for a heterogeneous batch).
        pub fn cols(&self) -> usize {
            self.raw.cols
        }
        /// Leading dimension: elements from one column to the next.
        pub fn ld(&self) -> usize {
            self.raw.ld
        }
        /// Elements from one item to the next; `None` for a pointer-array batch.
        pub fn stride(&self) -> Option<usize> {
            match self.raw.items {
                Items::Strided { stride, .. } => Some(stride),
                Items::Table { .. } => None,
            }
        }
        /// Number of items.
        pub fn batch(&self) -> usize {
            self.raw.batch
        }
        /// Where the memory is.
        pub fn place(&self) -> Place {
            self.raw.place
        }
        /// Whether the items may differ in size.
        pub fn is_heterogeneous(&self) -> bool {
            self.raw.extents.is_some()
        }
        /// Whether there is nothing to compute: no item, no row or no column.
        pub fn is_empty(&self) -> bool {
            self.raw.batch == 0 || self.raw.rows == 0 || self.raw.cols == 0
        }
        /// Size of one item.
        ///
        /// # Panics
        /// If `item >= batch`.
        pub fn extent(&self, item: usize) -> Extent {
            assert!(item < self.raw.batch, "item {item} of a batch of {}", self.raw.batch);
            self.raw.extent(item)
        }
        /// Address of element (0, 0) of item 0 for a strided batch, or of the pointer table; and the offset in
        /// elements that every pointer of a table is advanced by. For launch code.
        pub fn address(&self) -> (u64, usize) {
            match self.raw.items {
                Items::Strided { base, .. } => (base.addr() as u64, 0),
                Items::Table { table, offset } => (table.addr() as u64, offset),
            }
        }
    };
}

/// A read-only batch of matrices. `Copy`, like a shared reference.
#[derive(Debug)]
pub struct MatBatch<'a, T> {
    raw: Raw<'a, T>,
    life: PhantomData<&'a T>,
}

impl<T> Clone for MatBatch<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for MatBatch<'_, T> {}

/// A writable batch of matrices whose items do not overlap.
#[derive(Debug)]
pub struct MatBatchMut<'a, T> {
    raw: Raw<'a, T>,
    life: PhantomData<&'a mut T>,
}

// SAFETY: a `MatBatch` gives shared access to `T`s only, as `&[T]` does.
unsafe impl<T: Sync> Send for MatBatch<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for MatBatch<'_, T> {}
// SAFETY: a `MatBatchMut` gives exclusive access to its elements, as `&mut [T]` does.
unsafe impl<T: Send> Send for MatBatchMut<'_, T> {}
// SAFETY: through a shared `MatBatchMut` elements can only be read.
unsafe impl<T: Sync> Sync for MatBatchMut<'_, T> {}

impl<'a, T: Scalar> MatBatch<'a, T> {
    shared_accessors!();

    /// A strided batch in host memory.
    ///
    /// # Errors
    /// `ld < rows`, a slice too short for the last item, or an extent beyond the address space.
    pub fn from_slice(
        data: &'a [T],
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<Self> {
        let base = data.as_ptr().cast_mut();
        let raw = Raw::strided(Place::Host, base, Some(data.len()), [rows, cols, ld, stride, batch])?;
        Ok(MatBatch { raw, life: PhantomData })
    }

    /// A packed batch in host memory: `ld = rows`, `stride = rows * cols`.
    ///
    /// # Errors
    /// A slice shorter than `rows * cols * batch`.
    pub fn packed(data: &'a [T], rows: usize, cols: usize, batch: usize) -> Result<Self> {
        Self::from_slice(data, rows, cols, rows.max(1), rows.saturating_mul(cols), batch)
    }

    /// A strided batch at a raw address of `place`.
    ///
    /// # Safety
    /// For `'a`, every element of every item must be readable memory of `place` and not be written except by work
    /// ordered on the queue that uses the view.
    ///
    /// # Errors
    /// `ld < rows`, or an extent beyond the address space.
    pub unsafe fn from_raw_strided(
        place: Place,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<Self> {
        let raw = Raw::strided(place, foreign(place, address), None, [rows, cols, ld, stride, batch])?;
        Ok(MatBatch { raw, life: PhantomData })
    }

    /// A pointer-array batch in the memory of a device: `table` is the address of `batch` addresses there.
    ///
    /// # Safety
    /// As for [`MatBatch::from_raw_strided`], and the table itself must be readable for `'a`.
    ///
    /// # Errors
    /// `ld < rows`.
    pub unsafe fn from_raw_table(
        place: Place,
        table: u64,
        rows: usize,
        cols: usize,
        ld: usize,
        batch: usize,
    ) -> Result<Self> {
        let mut raw = Raw::strided(place, std::ptr::null_mut(), None, [rows, cols, ld, 0, batch])?;
        raw.items = Items::Table { table: foreign(place, table), offset: 0 };
        Ok(MatBatch { raw, life: PhantomData })
    }

    /// The same memory with a size per item.
    ///
    /// # Errors
    /// A number of extents that is not the batch, or one larger than the view.
    pub fn with_extents(self, extents: &'a [Extent]) -> Result<Self> {
        Ok(MatBatch { raw: self.raw.with_extents(extents)?, life: PhantomData })
    }

    /// Rows `rows` and columns `cols` of every item, with the parent's `ld`.
    ///
    /// # Errors
    /// A range outside the parent; a heterogeneous parent.
    pub fn sub(&self, rows: Range<usize>, cols: Range<usize>) -> Result<Self> {
        Ok(MatBatch { raw: self.raw.sub(rows, cols)?, life: PhantomData })
    }

    /// The items of a range.
    ///
    /// # Errors
    /// A range outside the batch.
    pub fn items(&self, range: Range<usize>) -> Result<Self> {
        Ok(MatBatch { raw: self.raw.range(range)?, life: PhantomData })
    }

    /// One host item; `None` for device memory.
    ///
    /// # Panics
    /// If `item >= batch`.
    pub fn item(&self, item: usize) -> Option<ItemRef<'a, T>> {
        let (first, Extent { rows, cols }) = self.raw.host_item(item)?;
        Some(ItemRef { first, rows, cols, ld: self.raw.ld, life: PhantomData })
    }
}

impl<'a, T: Scalar> MatBatchMut<'a, T> {
    shared_accessors!();

    /// A strided batch in host memory.
    ///
    /// # Errors
    /// `ld < rows`, overlapping items, a slice too short for the last item, or an extent beyond the address space.
    pub fn from_slice(
        data: &'a mut [T],
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<Self> {
        let (base, len) = (data.as_mut_ptr(), data.len());
        let raw = Raw::strided(Place::Host, base, Some(len), [rows, cols, ld, stride, batch])?
            .require_disjoint()?;
        Ok(MatBatchMut { raw, life: PhantomData })
    }

    /// A packed batch in host memory: `ld = rows`, `stride = rows * cols`.
    ///
    /// # Errors
    /// A slice shorter than `rows * cols * batch`.
    pub fn packed(data: &'a mut [T], rows: usize, cols: usize, batch: usize) -> Result<Self> {
        Self::from_slice(data, rows, cols, rows.max(1), rows.saturating_mul(cols), batch)
    }

    /// A strided batch at a raw address of `place`.
    ///
    /// # Safety
    /// For `'a`, every element of every item must be memory of `place` that nothing else uses except work ordered on
    /// the queue that uses the view.
    ///
    /// # Errors
    /// `ld < rows`, overlapping items, or an extent beyond the address space.
    pub unsafe fn from_raw_strided(
        place: Place,
        address: u64,
        rows: usize,
        cols: usize,
        ld: usize,
        stride: usize,
        batch: usize,
    ) -> Result<Self> {
        let raw = Raw::strided(place, foreign(place, address), None, [rows, cols, ld, stride, batch])?;
        Ok(MatBatchMut { raw: raw.require_disjoint()?, life: PhantomData })
    }

    /// A pointer-array batch in the memory of a device: `table` is the address of `batch` addresses there.
    ///
    /// # Safety
    /// As for [`MatBatchMut::from_raw_strided`]; the table must be readable for `'a` and its items disjoint.
    ///
    /// # Errors
    /// `ld < rows`.
    pub unsafe fn from_raw_table(
        place: Place,
        table: u64,
        rows: usize,
        cols: usize,
        ld: usize,
        batch: usize,
    ) -> Result<Self> {
        let mut raw = Raw::strided(place, std::ptr::null_mut(), None, [rows, cols, ld, 0, batch])?;
        raw.items = Items::Table { table: foreign(place, table), offset: 0 };
        Ok(MatBatchMut { raw, life: PhantomData })
    }

    /// The same memory with a size per item.
    ///
    /// # Errors
    /// A number of extents that is not the batch, or one larger than the view.
    pub fn with_extents(self, extents: &'a [Extent]) -> Result<Self> {
        Ok(MatBatchMut { raw: self.raw.with_extents(extents)?, life: PhantomData })
    }

    /// A shorter borrow of the same view, to hand on without giving it away.
    pub fn rb_mut(&mut self) -> MatBatchMut<'_, T> {
        MatBatchMut { raw: self.raw, life: PhantomData }
    }

    /// The same items, read-only, for as long as this borrow lasts.
    pub fn rb(&self) -> MatBatch<'_, T> {
        MatBatch { raw: self.raw, life: PhantomData }
    }

    /// The same items, read-only, giving up the right to write.
    pub fn into_const(self) -> MatBatch<'a, T> {
        MatBatch { raw: self.raw, life: PhantomData }
    }

    /// Rows `rows` and columns `cols` of every item, with the parent's `ld`.
    ///
    /// # Errors
    /// A range outside the parent; a heterogeneous parent.
    pub fn sub(self, rows: Range<usize>, cols: Range<usize>) -> Result<Self> {
        Ok(MatBatchMut { raw: self.raw.sub(rows, cols)?, life: PhantomData })
    }

    /// Two disjoint blocks of every item, the first read-only: what a blocked driver needs to update one part of a
    /// matrix by another.
    ///
    /// # Errors
    /// A block outside the parent, or blocks that share an element; a heterogeneous parent.
    pub fn block_pair(
        &mut self,
        read: (Range<usize>, Range<usize>),
        write: (Range<usize>, Range<usize>),
    ) -> Result<(MatBatch<'_, T>, MatBatchMut<'_, T>)> {
        let meets = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        if meets(&read.0, &write.0) && meets(&read.1, &write.1) {
            return Err(crate::error::Error::Internal(format!(
                "blocks {read:?} and {write:?} of one matrix overlap: a block cannot be read and written at once"
            )));
        }
        let from = MatBatch { raw: self.raw.sub(read.0, read.1)?, life: PhantomData };
        let to = MatBatchMut { raw: self.raw.sub(write.0, write.1)?, life: PhantomData };
        Ok((from, to))
    }

    /// The items of a range.
    ///
    /// # Errors
    /// A range outside the batch.
    pub fn items(self, range: Range<usize>) -> Result<Self> {
        Ok(MatBatchMut { raw: self.raw.range(range)?, life: PhantomData })
    }

    /// The first `mid` items and the rest.
    ///
    /// # Panics
    /// If `mid > batch`.
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        let batch = self.raw.batch;
        let part = |range| self.raw.range(range).expect("the caller's `mid` is within the batch");
        let (head, tail) = (part(0..mid), part(mid..batch));
        (MatBatchMut { raw: head, life: PhantomData }, MatBatchMut { raw: tail, life: PhantomData })
    }

    /// One host item; `None` for device memory.
    ///
    /// # Panics
    /// If `item >= batch`.
    pub fn item(&self, item: usize) -> Option<ItemRef<'_, T>> {
        self.rb().item(item)
    }

    /// One host item, writable; `None` for device memory.
    ///
    /// # Panics
    /// If `item >= batch`.
    pub fn item_mut(&mut self, item: usize) -> Option<ItemMut<'_, T>> {
        let (first, Extent { rows, cols }) = self.raw.host_item(item)?;
        Some(ItemMut { first, rows, cols, ld: self.raw.ld, life: PhantomData })
    }
}

/// A pointer from an address: host addresses take part in Rust's memory, device addresses are only passed on.
fn foreign<P>(place: Place, address: u64) -> *mut P {
    match place {
        Place::Host => std::ptr::with_exposed_provenance_mut(address as usize),
        _ => std::ptr::without_provenance_mut(address as usize),
    }
}

/// One matrix of a host batch, read-only.
#[derive(Clone, Copy, Debug)]
pub struct ItemRef<'a, T> {
    first: *const T,
    rows: usize,
    cols: usize,
    ld: usize,
    life: PhantomData<&'a T>,
}

/// One matrix of a host batch, writable.
#[derive(Debug)]
pub struct ItemMut<'a, T> {
    first: *mut T,
    rows: usize,
    cols: usize,
    ld: usize,
    life: PhantomData<&'a mut T>,
}

macro_rules! item_accessors {
    () => {
        /// Rows.
        pub fn rows(&self) -> usize {
            self.rows
        }
        /// Columns.
        pub fn cols(&self) -> usize {
            self.cols
        }
        /// Elements from one column to the next.
        pub fn ld(&self) -> usize {
            self.ld
        }
        /// Address of element (0, 0), for libraries that take column-major pointers.
        pub fn as_ptr(&self) -> *const T {
            self.first
        }
        /// Element `(i, j)`.
        ///
        /// # Panics
        /// If the element is outside the item.
        pub fn at(&self, i: usize, j: usize) -> T {
            assert!(i < self.rows && j < self.cols, "({i}, {j}) of a {} x {} item", self.rows, self.cols);
            // SAFETY: the element is inside the item, which the view's constructor checked to be inside memory
            // borrowed for the view's lifetime.
            unsafe { *self.first.add(j * self.ld + i) }
        }
    };
}

impl<T: Scalar> ItemRef<'_, T> {
    item_accessors!();
}

impl<T: Scalar> ItemMut<'_, T> {
    item_accessors!();

    /// Address of element (0, 0), for libraries that take column-major pointers.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.first
    }

    /// Sets element `(i, j)`.
    ///
    /// # Panics
    /// If the element is outside the item.
    pub fn set(&mut self, i: usize, j: usize, value: T) {
        assert!(i < self.rows && j < self.cols, "({i}, {j}) of a {} x {} item", self.rows, self.cols);
        // SAFETY: as in `at`; a writable view is the only user of its elements.
        unsafe { *self.first.add(j * self.ld + i) = value }
    }
}

/// The pointers of a read-only pointer-array batch in host memory.
#[derive(Debug)]
pub struct PointerTable<'a, T> {
    pointers: Vec<*mut T>,
    rows: usize,
    cols: usize,
    ld: usize,
    life: PhantomData<&'a T>,
}

/// The pointers of a writable pointer-array batch in host memory.
#[derive(Debug)]
pub struct PointerTableMut<'a, T> {
    pointers: Vec<*mut T>,
    rows: usize,
    cols: usize,
    ld: usize,
    life: PhantomData<&'a mut T>,
}

/// Checks the slices of a pointer array and keeps their addresses.
fn pointers<T>(
    slices: impl Iterator<Item = (*mut T, usize)>,
    rows: usize,
    cols: usize,
    ld: usize,
) -> Result<Vec<*mut T>> {
    let operand = "matrix batch";
    if ld < rows.max(1) {
        return Err(ArgumentError::LeadingDimension { operand, ld, rows: rows.max(1) }.into());
    }
    let needed = span(rows, cols, ld).ok_or(ArgumentError::TooLarge {
        operand,
        rows,
        cols,
        ld,
        stride: 0,
        batch: 1,
    })?;
    slices
        .enumerate()
        .map(|(item, (pointer, len))| {
            if len < needed {
                return Err(ArgumentError::ItemTooShort { item, len, needed, rows, cols, ld }.into());
            }
            Ok(pointer)
        })
        .collect()
}

impl<'a, T: Scalar> MatBatchMut<'a, T> {
    /// A pointer-array batch in host memory.
    ///
    /// # Safety
    /// As for [`MatBatchMut::from_raw_table`].
    pub(crate) unsafe fn from_host_table(
        pointers: &'a [*mut T],
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Self {
        MatBatchMut { raw: table_raw(pointers, rows, cols, ld), life: PhantomData }
    }
}

impl<'a, T: Scalar> PointerTable<'a, T> {
    /// One slice per item; the same slice may stand for several items.
    ///
    /// # Errors
    /// `ld < rows`, or a slice too short for its matrix.
    pub fn new(
        slices: impl IntoIterator<Item = &'a [T]>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self> {
        let raw = slices.into_iter().map(|s| (s.as_ptr().cast_mut(), s.len()));
        Ok(PointerTable { pointers: pointers(raw, rows, cols, ld)?, rows, cols, ld, life: PhantomData })
    }

    /// The batch that these pointers describe.
    pub fn view(&self) -> MatBatch<'_, T> {
        MatBatch { raw: table_raw(&self.pointers, self.rows, self.cols, self.ld), life: PhantomData }
    }
}

impl<'a, T: Scalar> PointerTableMut<'a, T> {
    /// One exclusive slice per item.
    ///
    /// # Errors
    /// `ld < rows`, or a slice too short for its matrix.
    pub fn new(
        slices: impl IntoIterator<Item = &'a mut [T]>,
        rows: usize,
        cols: usize,
        ld: usize,
    ) -> Result<Self> {
        let raw = slices.into_iter().map(|s| (s.as_mut_ptr(), s.len()));
        Ok(PointerTableMut { pointers: pointers(raw, rows, cols, ld)?, rows, cols, ld, life: PhantomData })
    }

    /// The batch that these pointers describe.
    pub fn view_mut(&mut self) -> MatBatchMut<'_, T> {
        MatBatchMut { raw: table_raw(&self.pointers, self.rows, self.cols, self.ld), life: PhantomData }
    }
}

fn table_raw<'t, T>(pointers: &'t [*mut T], rows: usize, cols: usize, ld: usize) -> Raw<'t, T> {
    let items = Items::Table { table: pointers.as_ptr(), offset: 0 };
    Raw { place: Place::Host, items, rows, cols, ld, batch: pointers.len(), extents: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use proptest::prelude::*;

    fn argument(result: Result<impl Sized>) -> ArgumentError {
        match result.err().expect("an error") {
            Error::InvalidArgument(e) => e,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn elements_of_every_layout_are_where_the_formula_says() {
        let data: Vec<f64> = (0..100).map(f64::from).collect();
        let strided = MatBatch::from_slice(&data, 2, 3, 4, 13, 4).unwrap();
        assert_eq!(strided.item(3).unwrap().at(1, 2), (3 * 13 + 2 * 4 + 1) as f64);
        let shared = MatBatch::from_slice(&data, 2, 3, 4, 0, 1000).unwrap();
        assert_eq!(shared.item(999).unwrap().at(1, 2), 9.0);
        let table = PointerTable::new([&data[50..], &data[7..30]], 2, 3, 4).unwrap();
        assert_eq!(table.view().item(0).unwrap().at(0, 1), 54.0);
        assert_eq!(table.view().item(1).unwrap().at(1, 2), 16.0);
        assert_eq!(table.view().stride(), None);
    }

    #[test]
    fn a_sub_view_keeps_the_ld_and_moves_the_origin() {
        let mut data: Vec<f32> = (0..60).map(|x| x as f32).collect();
        let mut whole = MatBatchMut::from_slice(&mut data, 5, 4, 5, 20, 3).unwrap();
        let sub = whole.rb().sub(1..4, 2..4).unwrap();
        assert_eq!((sub.rows(), sub.cols(), sub.ld(), sub.batch()), (3, 2, 5, 3));
        assert_eq!(sub.item(2).unwrap().at(0, 0), 51.0);
        let last = whole.rb().items(2..3).unwrap();
        assert_eq!(last.item(0).unwrap().at(4, 3), 59.0);
        whole.rb_mut().sub(1..2, 1..2).unwrap().item_mut(1).unwrap().set(0, 0, -1.0);
        assert_eq!(data[26], -1.0);
    }

    #[test]
    fn sub_views_of_pointer_arrays_move_the_origin_too() {
        let (mut x, mut y) = ([0f32; 12], [0f32; 12]);
        let mut table = PointerTableMut::new([&mut x[..], &mut y[..]], 3, 4, 3).unwrap();
        let mut corner = table.view_mut().sub(2..3, 3..4).unwrap();
        corner.item_mut(1).unwrap().set(0, 0, 5.0);
        assert_eq!((x[11], y[11]), (0.0, 5.0));
    }

    #[test]
    fn bad_geometry_is_named_with_its_numbers() {
        let mut data = [0f32; 10];
        assert_eq!(
            argument(MatBatch::from_slice(&data, 3, 2, 2, 6, 1)),
            ArgumentError::LeadingDimension { operand: "matrix batch", ld: 2, rows: 3 }
        );
        let short = argument(MatBatch::packed(&data, 3, 2, 2));
        assert!(matches!(short, ArgumentError::BufferTooShort { len: 10, needed: 12, .. }), "{short}");
        let overlap = argument(MatBatchMut::from_slice(&mut data, 2, 2, 2, 0, 2));
        assert!(matches!(overlap, ArgumentError::Overlap { stride: 0, span: 4, .. }), "{overlap}");
        let huge = argument(MatBatch::from_slice(&data, usize::MAX / 2, 3, usize::MAX / 2, 0, 1));
        assert!(matches!(huge, ArgumentError::TooLarge { .. }), "{huge}");
        let view = MatBatch::from_slice(&data, 3, 3, 3, 0, 4).unwrap();
        assert!(matches!(argument(view.sub(1..4, 0..1)), ArgumentError::SubView { row_end: 4, rows: 3, .. }));
        assert!(matches!(argument(view.items(2..5)), ArgumentError::BatchRange { end: 5, batch: 4, .. }));
        let short = argument(PointerTable::new([&data[..9], &data[..8]], 3, 3, 3));
        assert!(matches!(short, ArgumentError::ItemTooShort { item: 1, len: 8, needed: 9, .. }), "{short}");
    }

    #[test]
    fn interleaved_items_are_disjoint_and_allowed() {
        let mut data = [0f64; 24];
        // Three 2 x 4 matrices side by side in the rows of one 6 x 4 matrix.
        let mut v = MatBatchMut::from_slice(&mut data, 2, 4, 6, 2, 3).unwrap();
        v.item_mut(2).unwrap().set(1, 3, 1.0);
        assert_eq!(data[23], 1.0);
        assert!(
            MatBatchMut::from_slice(&mut data, 2, 4, 5, 2, 3).is_err(),
            "ld 5 does not cover three items of 2"
        );
    }

    #[test]
    fn empty_extents_need_no_memory() {
        let none: [f32; 0] = [];
        for (rows, cols, batch) in [(0, 0, 5), (0, 4, 4), (5, 0, 3), (5, 5, 0)] {
            let v = MatBatch::packed(&none, rows, cols, batch).unwrap();
            assert!(v.is_empty());
            assert_eq!(v.batch(), batch);
        }
    }

    #[test]
    fn one_matrix_beyond_46341_does_not_wrap() {
        // 46,341^2 exceeds 2^31: a 32-bit index product would wrap and accept the short buffer.
        let data = [0f32; 4];
        let short = argument(MatBatch::packed(&data, 46_341, 46_341, 1));
        assert!(matches!(short, ArgumentError::BufferTooShort { needed: 2_147_488_281, .. }), "{short}");
    }

    #[test]
    fn heterogeneous_batches_know_their_sizes_and_have_no_sub_views() {
        let data = [0f32; 18];
        let sizes = [Extent { rows: 3, cols: 3 }, Extent { rows: 2, cols: 1 }];
        let v = MatBatch::packed(&data, 3, 3, 2).unwrap().with_extents(&sizes).unwrap();
        assert!(v.is_heterogeneous());
        assert_eq!(v.item(1).unwrap().rows(), 2);
        assert_eq!(v.items(1..2).unwrap().extent(0), sizes[1]);
        assert!(v.sub(0..1, 0..1).is_err());
        let plain = MatBatch::packed(&data, 3, 3, 2).unwrap();
        assert!(plain.with_extents(&sizes[..1]).is_err());
        assert!(plain.with_extents(&[Extent { rows: 4, cols: 1 }; 2]).is_err());
    }

    #[test]
    fn block_pairs_must_not_overlap() {
        let mut data = [0f32; 16];
        let mut v = MatBatchMut::packed(&mut data, 4, 4, 1).unwrap();
        assert!(v.block_pair((0..2, 0..2), (1..3, 1..3)).is_err());
        let (read, mut write) = v.block_pair((0..2, 0..2), (2..4, 0..2)).unwrap();
        let x = read.item(0).unwrap().at(1, 1);
        write.item_mut(0).unwrap().set(0, 0, x + 1.0);
        assert_eq!(data[2], 1.0);
    }

    proptest! {
        #[test]
        fn the_last_element_fits_exactly(
            rows in 1usize..9, cols in 1usize..9, pad in 0usize..4, gap in 0usize..7, batch in 1usize..6,
        ) {
            let ld = rows + pad;
            let stride = (cols - 1) * ld + rows + gap;
            let needed = (batch - 1) * stride + (cols - 1) * ld + rows;
            let mut data: Vec<f64> = (0..needed).map(|x| x as f64).collect();
            let v = MatBatch::from_slice(&data, rows, cols, ld, stride, batch).unwrap();
            prop_assert_eq!(v.item(batch - 1).unwrap().at(rows - 1, cols - 1), (needed - 1) as f64);
            prop_assert!(MatBatch::from_slice(&data[..needed - 1], rows, cols, ld, stride, batch).is_err());
            let (mut head, mut tail) =
                MatBatchMut::from_slice(&mut data, rows, cols, ld, stride, batch).unwrap().split_at(batch / 2);
            prop_assert_eq!(head.batch() + tail.batch(), batch);
            if batch > 1 { head.item_mut(0).unwrap().set(0, 0, -1.0); }
            tail.item_mut(tail.batch() - 1).unwrap().set(0, 0, -2.0);
        }
    }
}
