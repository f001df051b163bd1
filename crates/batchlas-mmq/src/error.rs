//! Why a product is refused.

use crate::q4k::{BLOCK, BLOCK_BYTES};

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was wrong, with its numbers. Nothing was launched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Rows of weights do not consist of whole super-blocks.
    #[error(
        "the inner dimension is {k}: it must be a positive multiple of {BLOCK}, the weights of a super-block"
    )]
    InnerDimension {
        /// The inner dimension.
        k: usize,
    },
    /// Memory of weights is not of the size that the shape says.
    #[error(
        "the weights are {have} bytes: {rows} rows of {k} weights are {need} ({BLOCK_BYTES} per {BLOCK})"
    )]
    WeightBytes {
        /// Bytes given.
        have: usize,
        /// Rows.
        rows: usize,
        /// Inner dimension.
        k: usize,
        /// Bytes that these are.
        need: usize,
    },
    /// A shape has more bytes than there are addresses.
    #[error("{rows} rows of {k} weights exceed the address space")]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Inner dimension.
        k: usize,
    },
    /// Weights in device memory start at an address that wide loads do not take.
    #[error(
        "the weights start {off} bytes past a multiple of 16: on a device they must start at a multiple of 16"
    )]
    Misaligned {
        /// Distance to the last aligned address.
        off: u64,
    },
    /// A panel is of the other arithmetic.
    #[error("the panel holds activations for {have}, the call asks for {want}")]
    Arithmetic {
        /// What the panel holds.
        have: &'static str,
        /// What was asked.
        want: &'static str,
    },
    /// Operands, selection or the queue.
    #[error(transparent)]
    Call(#[from] batchlas_core::Error),
}

impl From<batchlas_core::QueueError> for Error {
    fn from(error: batchlas_core::QueueError) -> Self {
        Error::Call(error.into())
    }
}
