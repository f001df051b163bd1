//! Why a kernel could not be found, compiled, read or admitted.

use std::path::PathBuf;

use crate::arch::Arch;
use crate::locate::NotFound;
use crate::residency::ResidencyError;

/// An error of the device runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A CUDA library is missing.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// Not an architecture.
    #[error("`{given}` is not an architecture: write it as sm_90, or sm_90a with that chip's own features")]
    Arch {
        /// What was given.
        given: String,
    },
    /// The loader resolved NVRTC to a release this crate is not built for.
    #[error(
        "NVRTC {major}.{minor} was loaded, but release {needed} or newer is needed: remove the older libnvrtc.so \
         from the loader's path, which hides {located}"
    )]
    NvrtcTooOld {
        /// Major release loaded.
        major: i32,
        /// Minor release loaded.
        minor: i32,
        /// Oldest major release that serves.
        needed: i32,
        /// The copy that the locator found.
        located: PathBuf,
    },
    /// An NVRTC call failed outside a compile.
    #[error("{call} failed with {code} while compiling {source_name}")]
    Nvrtc {
        /// The function.
        call: &'static str,
        /// NVRTC's name for the result.
        code: String,
        /// Name of the source file.
        source_name: String,
    },
    /// The text handed to NVRTC contains a NUL byte.
    #[error("{what} of {source_name} contains a NUL byte at offset {offset}: C strings end there")]
    Nul {
        /// Which text.
        what: &'static str,
        /// Name of the source file.
        source_name: String,
        /// Offset of the first NUL byte.
        offset: usize,
    },
    /// The source does not compile. The log names its file and line.
    #[error("{source_name} does not compile for {arch} ({code}), asked for {entries}:\n{log}")]
    Compile {
        /// Name of the source file.
        source_name: String,
        /// The architecture.
        arch: String,
        /// NVRTC's name for the result.
        code: String,
        /// The name expressions, separated by commas.
        entries: String,
        /// Everything the compiler wrote.
        log: String,
    },
    /// The compiler's report stops before the report of a kernel is complete.
    #[error("the ptxas report of `{entry}` ends without its line `{missing}`: the log is truncated")]
    LogTruncated {
        /// Lowered name of the kernel.
        entry: String,
        /// What is absent.
        missing: &'static str,
    },
    /// A line of the compiler's report cannot be read.
    #[error("line {line} of the ptxas log cannot be read ({why}): `{text}`")]
    LogLine {
        /// Line number from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
        /// The line.
        text: String,
    },
    /// The compiler's report and the kernels asked for are not the same set.
    #[error(
        "the ptxas log does not match what was compiled: no report of [{}], unasked reports of [{}]",
        .missing.join(", "), .unexpected.join(", ")
    )]
    EntriesUnmatched {
        /// Asked for and not reported.
        missing: Vec<String>,
        /// Reported and not asked for.
        unexpected: Vec<String>,
    },
    /// A compiled image cannot be read as a cubin.
    #[error("the cubin cannot be read: {0}")]
    Cubin(String),
    /// The kernel breaks its promise.
    #[error(transparent)]
    Residency(#[from] Box<ResidencyError>),
    /// The probe has no limits for this architecture.
    #[error("no occupancy limits are known for {arch}: add it to Arch::multiprocessor")]
    UnknownMultiprocessor {
        /// The architecture.
        arch: Arch,
    },
    /// Bundles were given, the kernel is in none of them, and there is no compiler.
    #[error(
        "`{entry}` for {arch} is in none of the bundles [{bundles}], and it cannot be compiled: {source}\nA bundle \
         serves the exact release of batchlas that wrote it: write it again"
    )]
    NotBundled {
        /// The kernel's name expression.
        entry: String,
        /// The architecture.
        arch: Arch,
        /// The bundles' files.
        bundles: String,
        /// Why it cannot be compiled.
        source: Box<Error>,
    },
    /// An ahead-of-time bundle cannot be used.
    #[error("bundle {}: {why}", .path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}
