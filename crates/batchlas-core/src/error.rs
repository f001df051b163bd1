//! Errors of the contract. A message says what was wrong, with the numbers, and what would be right.

use std::sync::Arc;

use crate::device::Place;

/// Result of everything that follows the contract.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused or could not be carried out.
///
/// A matrix that is not positive definite is not an error: it is reported per item, through `info`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's operands or options cannot be right. Nothing was launched.
    #[error("invalid argument: {0}")]
    InvalidArgument(#[from] ArgumentError),
    /// The operation was asked for something outside its contract that validation cannot phrase as an argument.
    #[error("internal error: {0}")]
    Internal(String),
    /// A driver needs another operation and was not given one.
    #[error(
        "{op} needs the seam `{seam}`, and none was injected: pass one, or call through the facade, which does"
    )]
    MissingSeam {
        /// The operation that needs it.
        op: &'static str,
        /// The seam's name.
        seam: &'static str,
    },
    /// No family can serve this problem on this device.
    #[error("{op}: nothing can run this problem on {device}: {reasons}")]
    NotRunnable {
        /// The operation.
        op: &'static str,
        /// The device's name.
        device: String,
        /// Every candidate with its reason.
        reasons: String,
    },
    /// The queue could not do its part.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// An operand or option that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// `ld < rows`.
    #[error("{operand}: leading dimension {ld} is less than its {rows} rows: ld must be at least {rows}")]
    LeadingDimension {
        /// Operand name.
        operand: &'static str,
        /// Leading dimension given.
        ld: usize,
        /// Rows of the matrix.
        rows: usize,
    },
    /// The memory ends before the last element.
    #[error(
        "{operand}: the buffer holds {len} elements, but {batch} matrices of {rows} x {cols} with ld {ld} and stride \
         {stride} need {needed}"
    )]
    BufferTooShort {
        /// Operand name.
        operand: &'static str,
        /// Elements present.
        len: usize,
        /// Elements needed.
        needed: usize,
        /// Rows per item.
        rows: usize,
        /// Columns per item.
        cols: usize,
        /// Leading dimension.
        ld: usize,
        /// Distance between items in elements.
        stride: usize,
        /// Number of items.
        batch: usize,
    },
    /// Items of a writable batch share memory.
    #[error(
        "{operand}: stride {stride} makes the {batch} items of {rows} x {cols} with ld {ld} overlap: a writable batch \
         needs a stride of at least {span} (or items interleaved so that ld covers all of them)"
    )]
    Overlap {
        /// Operand name.
        operand: &'static str,
        /// Distance between items in elements.
        stride: usize,
        /// Elements from the first to one past the last of an item.
        span: usize,
        /// Rows per item.
        rows: usize,
        /// Columns per item.
        cols: usize,
        /// Leading dimension.
        ld: usize,
        /// Number of items.
        batch: usize,
    },
    /// The extent of the batch does not fit in the address space.
    #[error(
        "{operand}: {batch} matrices of {rows} x {cols} with ld {ld} and stride {stride} exceed the address space"
    )]
    TooLarge {
        /// Operand name.
        operand: &'static str,
        /// Rows per item.
        rows: usize,
        /// Columns per item.
        cols: usize,
        /// Leading dimension.
        ld: usize,
        /// Distance between items in elements.
        stride: usize,
        /// Number of items.
        batch: usize,
    },
    /// A sub-view reaches outside its parent.
    #[error(
        "sub-view of rows {row}..{row_end} and columns {col}..{col_end} lies outside its {rows} x {cols} parent"
    )]
    SubView {
        /// First row.
        row: usize,
        /// One past the last row.
        row_end: usize,
        /// First column.
        col: usize,
        /// One past the last column.
        col_end: usize,
        /// Rows of the parent.
        rows: usize,
        /// Columns of the parent.
        cols: usize,
    },
    /// A range of items reaches outside the batch.
    #[error("items {start}..{end} lie outside a batch of {batch}")]
    BatchRange {
        /// First item.
        start: usize,
        /// One past the last item.
        end: usize,
        /// Items present.
        batch: usize,
    },
    /// One slice of a pointer-array batch is too short.
    #[error(
        "item {item} of the pointer array holds {len} elements, but {rows} x {cols} with ld {ld} needs {needed}"
    )]
    ItemTooShort {
        /// Which item.
        item: usize,
        /// Elements present.
        len: usize,
        /// Elements needed.
        needed: usize,
        /// Rows per item.
        rows: usize,
        /// Columns per item.
        cols: usize,
        /// Leading dimension.
        ld: usize,
    },
    /// A per-item extent exceeds the view, or their number is not the batch.
    #[error("{0}")]
    Extents(String),
    /// A matrix that must be square is not.
    #[error("{operand} is {rows} x {cols}: {op} needs a square matrix")]
    NotSquare {
        /// The operation.
        op: &'static str,
        /// Operand name.
        operand: &'static str,
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
    },
    /// A matrix is larger than the device can hold for an operation.
    #[error("{op}: n = {n}, and {device} holds {dtype} to n = {most}")]
    OrderTooLarge {
        /// The operation.
        op: &'static str,
        /// The order.
        n: usize,
        /// The largest order that it can hold.
        most: usize,
        /// Element type.
        dtype: &'static str,
        /// The device's name.
        device: String,
    },
    /// Two operands disagree about a dimension.
    #[error("{op}: {what} of {left} is {left_value}, of {right} it is {right_value}: they must be equal")]
    Mismatch {
        /// The operation.
        op: &'static str,
        /// What is compared, e.g. `batch` or `rows`.
        what: &'static str,
        /// First operand.
        left: &'static str,
        /// Its value.
        left_value: usize,
        /// Second operand.
        right: &'static str,
        /// Its value.
        right_value: usize,
    },
    /// An operand lies where the queue cannot reach it.
    #[error(
        "{op}: {operand} lies in {operand_place}, but the queue works in {queue_place}: copy it there first"
    )]
    WrongPlace {
        /// The operation.
        op: &'static str,
        /// Operand name.
        operand: &'static str,
        /// Where it is.
        operand_place: Place,
        /// Where it must be.
        queue_place: Place,
    },
    /// The `info` span has the wrong length.
    #[error("{op}: info holds {len} entries for a batch of {batch}: it must hold {batch}")]
    InfoLength {
        /// The operation.
        op: &'static str,
        /// Entries given.
        len: usize,
        /// Items in the batch.
        batch: usize,
    },
    /// The workspace is smaller than the query said.
    #[error("{op}: the workspace holds {have} bytes, but this problem needs {need}")]
    WorkspaceTooSmall {
        /// The operation.
        op: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The workspace does not start on the alignment it needs.
    #[error(
        "the workspace starts {off} bytes past a multiple of {align}: it must be aligned to {align} bytes"
    )]
    WorkspaceMisaligned {
        /// Distance to the last aligned address.
        off: usize,
        /// Alignment needed.
        align: usize,
    },
    /// The batch mixes sizes, and this operation wants one size.
    #[error(
        "{op}: {operand} is a heterogeneous batch (items of different sizes): it must be homogeneous here"
    )]
    Heterogeneous {
        /// The operation.
        op: &'static str,
        /// Operand name.
        operand: &'static str,
    },
    /// A route pin is malformed, retired or cannot run.
    #[error("{0}")]
    Pin(String),
    /// A table of measured choices could not be used.
    #[error("{0}")]
    Table(String),
}

/// A queue could not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// Memory ran out.
    #[error("could not allocate {bytes} bytes of {place}: {reason}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Where.
        place: Place,
        /// What the allocator said.
        reason: String,
    },
    /// A transfer would leave its buffer.
    #[error("a transfer of {len} bytes at offset {offset} leaves a buffer of {bytes} bytes")]
    TransferRange {
        /// First byte.
        offset: usize,
        /// Bytes to move.
        len: usize,
        /// Bytes in the buffer.
        bytes: usize,
    },
    /// The queue cannot run device kernels at all.
    #[error("kernel `{entry}` was launched on {place}, which runs no device kernels")]
    NoKernels {
        /// The kernel's name expression.
        entry: String,
        /// The queue's place.
        place: Place,
    },
    /// The compiled kernel breaks its promise and does not run here; another family may.
    #[error("kernel `{entry}` is refused: {source}")]
    Refused {
        /// The kernel's name expression.
        entry: String,
        /// Which rules it breaks.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// An event or a buffer of one kind of queue was given to another.
    #[error("the {what} belongs to another kind of queue than one on {place}")]
    Foreign {
        /// `event` or `buffer`.
        what: &'static str,
        /// The queue's place.
        place: Place,
    },
    /// The thread pool could not be built.
    #[error("a pool of {threads} threads could not be started: {reason}")]
    Pool {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
    /// The device runtime failed; the source says how.
    #[error("{context}: {source}")]
    Runtime {
        /// What was being done.
        context: String,
        /// The runtime's own error.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl QueueError {
    /// Wraps a runtime's own error with what was being done.
    pub fn runtime(
        context: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        QueueError::Runtime { context: context.into(), source: Arc::new(source) }
    }
}
