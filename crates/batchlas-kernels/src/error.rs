//! Why a kernel could not be found, compiled, read or admitted.

use std::path::PathBuf;

use batchlas_core::QueueError;

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
    /// The driver is older than the compiler whose code it would run.
    #[error(
        "the driver supports CUDA {found}, and {needed} or newer is needed: install NVIDIA driver 580 or newer"
    )]
    DriverTooOld {
        /// What the driver supports.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// A driver call failed.
    #[error("{call} failed with {name} ({code}): {text}{}", advice(*.code))]
    Driver {
        /// The function.
        call: &'static str,
        /// The driver's number for the result.
        code: i32,
        /// Its name for it.
        name: String,
        /// Its explanation.
        text: String,
    },
    /// There is no device of this number.
    #[error("there is no device cuda:{ordinal}: {}", present(*.count))]
    Ordinal {
        /// What was asked for.
        ordinal: u32,
        /// Devices that the driver shows.
        count: u32,
    },
    /// The device cannot allocate in stream order.
    #[error(
        "cuda:{ordinal} ({name}) has no memory pools, which allocations in stream order need: some virtual GPUs lack \
         them; use the whole GPU or a MIG slice"
    )]
    NoMemoryPools {
        /// The device.
        ordinal: u32,
        /// Its name.
        name: String,
    },
    /// A raw stream is not of the context that kernels are loaded into.
    #[error(
        "the stream was not made in the primary context of cuda:{ordinal}: pass the ordinal of the stream's device, \
         and a stream of the CUDA runtime or of that device's primary context"
    )]
    ForeignStream {
        /// The ordinal given.
        ordinal: u32,
    },
    /// The grid is empty or too large.
    #[error("`{entry}`: a grid of {grid} work-groups, where 1 to {most} are legal")]
    Grid {
        /// The kernel's name expression.
        entry: String,
        /// Work-groups asked for.
        grid: u32,
        /// Most that the device takes along x.
        most: u32,
    },
    /// A launch asks for more dynamic shared memory than the kernel promised.
    #[error(
        "`{entry}`: a launch with {asked} B of dynamic shared memory, where at most {promised} were promised"
    )]
    DynamicShared {
        /// The kernel's name expression.
        entry: String,
        /// Bytes asked for.
        asked: u32,
        /// Bytes promised.
        promised: u32,
    },
    /// The argument bytes are not the kernel's parameter struct.
    #[error("`{entry}`: a launch with {given} B of arguments, where its parameter struct has {expected}")]
    Arguments {
        /// The kernel's name expression.
        entry: String,
        /// Bytes given.
        given: usize,
        /// Bytes of the compiled kernel's parameter.
        expected: usize,
    },
    /// A kernel does not take exactly one parameter.
    #[error("`{entry}` takes {count} parameters: a kernel takes one, a plain struct by value")]
    Parameters {
        /// The kernel's name expression.
        entry: String,
        /// Parameters of the compiled kernel.
        count: usize,
    },
    /// Something that a capture cannot hold was asked for while the stream captures a graph.
    #[error("{what} is not possible while the stream captures a graph: {remedy}")]
    Capturing {
        /// What was asked for.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
}

impl Error {
    /// This crate's error behind that of a queue, if it is one: how to tell a refused kernel from a failed call.
    /// `std::error::Error::source` does not lead here, since it passes through an `Arc`.
    pub fn behind(error: &QueueError) -> Option<&Error> {
        match error {
            QueueError::Runtime { source, .. } | QueueError::Refused { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

fn present(count: u32) -> String {
    match count {
        0 => "the driver shows none; see nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned(),
        1 => "the driver shows cuda:0 alone".to_owned(),
        _ => format!("the driver shows cuda:0 to cuda:{}", count - 1),
    }
}

/// What a result of the driver usually means, where its own text does not say it.
fn advice(code: i32) -> &'static str {
    match code {
        34 => "; a stub libcuda was loaded: remove the toolkit's stubs directory from the loader's path",
        46 => "; another process holds the device exclusively, or it is in a prohibited mode",
        100 => "; see nvidia-smi and CUDA_VISIBLE_DEVICES",
        209 => "; the code was compiled for another architecture",
        214 | 220 | 226 => "; the hardware reports a fault: see nvidia-smi -q and the system log",
        // Faults of a kernel that was launched before; the context is lost with it.
        700 | 702 | 714..=719 => {
            "; work enqueued earlier failed, and this call is the first to see it. Nothing more can run in this \
             process on this device. compute-sanitizer names the kernel"
        }
        802 => "; the NVLink fabric manager is not running",
        803 => "; the driver's library and kernel module are of different releases: reboot after the update",
        901 => "; the stream captures a graph, and what was done is not allowed meanwhile",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, QueueError};

    #[test]
    fn an_error_is_found_behind_that_of_a_queue() {
        let queue = QueueError::runtime("launching", Error::Cubin("short".into()));
        assert!(matches!(Error::behind(&queue), Some(Error::Cubin(why)) if why == "short"));
        assert!(Error::behind(&QueueError::runtime("launching", std::fmt::Error)).is_none());
        assert!(Error::behind(&QueueError::TransferRange { offset: 0, len: 1, bytes: 0 }).is_none());
    }

    #[test]
    fn driver_results_say_what_to_do() {
        let message = |code| {
            let (name, text) = ("CUDA_ERROR_X".to_owned(), "the driver's text".to_owned());
            Error::Driver { call: "cuLaunchKernel", code, name, text }.to_string()
        };
        assert_eq!(message(1), "cuLaunchKernel failed with CUDA_ERROR_X (1): the driver's text");
        for (code, part) in
            [(700, "enqueued earlier"), (719, "enqueued earlier"), (100, "CUDA_VISIBLE_DEVICES")]
        {
            assert!(message(code).contains(part), "{}", message(code));
        }
        let message = |count| Error::Ordinal { ordinal: 4, count }.to_string();
        assert!(
            message(0).contains("shows none") && message(4).contains("cuda:0 to cuda:3"),
            "{}",
            message(4)
        );
    }
}
