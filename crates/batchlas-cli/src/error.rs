//! Why a run was refused or broke off. Every message says what was found, with the numbers, and what would be right.

use std::io;
use std::path::{Path, PathBuf};

/// Result of everything in this program.
pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

/// An error that ends the program. Items that cannot be factored are not errors: they are counted in the report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("{}: cannot be read: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: cannot be written: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: is not a regular file: give the name of a .npy file", .path.display())]
    NotRegular { path: PathBuf },
    #[error("{}: not a .npy file of numbers: {reason}; numpy.save writes one", .path.display())]
    NotNpy { path: PathBuf, reason: String },
    #[error(
        "{}: element type {found} cannot be computed with: convert it to float32, float64, complex64 or complex128 \
         (f4, f8, c8, c16) with astype", .path.display()
    )]
    UnsupportedDtype { path: PathBuf, found: String },
    #[error(
        "{}: truncated: shape {shape} of {element} bytes an element needs {needed} bytes after the header, and the \
         file holds {found}", .path.display()
    )]
    Truncated { path: PathBuf, shape: String, element: usize, needed: u64, found: u64 },
    #[error("{}: shape {shape} exceeds the address space", .path.display())]
    TooLarge { path: PathBuf, shape: String },
    #[error("{}: shape {shape}: {wanted}", .path.display())]
    Shape { path: PathBuf, shape: String, wanted: String },
    #[error(
        "{} holds {a_dtype} and {} holds {b_dtype}: both must have one element type", .a.display(), .b.display()
    )]
    DtypeMismatch { a: PathBuf, a_dtype: &'static str, b: PathBuf, b_dtype: &'static str },
    #[error("{}: {reason}", .path.display())]
    Weights { path: PathBuf, reason: String },
    #[error("{}: element type {found}: activations must be float32, convert them with astype", .path.display())]
    Activations { path: PathBuf, found: &'static str },
    #[error("--alpha {alpha} is complex, but the arrays hold {dtype}: its imaginary part must be 0")]
    ComplexAlpha { alpha: String, dtype: &'static str },
    #[error("--device {device}: {reason}")]
    Device { device: String, reason: String },
    #[error("{bytes} bytes of memory for one chunk of {items} items could not be allocated")]
    OutOfMemory { bytes: usize, items: usize },
    #[error("{0}")]
    Lab(String),
    #[error("the report cannot be written to standard output: {0}")]
    Stdout(io::Error),
    #[error(transparent)]
    Batchlas(#[from] batchlas::Error),
    #[error(transparent)]
    Mmq(#[from] batchlas::MmqError),
}

impl CliError {
    /// For `map_err` of reads from `path`.
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> CliError {
        move |source| CliError::Read { path: path.to_owned(), source }
    }

    /// For `map_err` of writes to `path`.
    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> CliError {
        move |source| CliError::Write { path: path.to_owned(), source }
    }
}
