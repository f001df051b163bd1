//! Where a run can take place: the one function that makes a context, and what `batchlas devices` prints.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use batchlas::{Context, Environment};
use batchlas_kernels::bundle::Bundle;
use batchlas_kernels::cache::DiskCache;
use batchlas_kernels::cuda::{CudaDevice, CudaQueue, probe_devices};
use batchlas_kernels::store::KernelStore;
use batchlas_vendor::CudaArm;

use crate::error::{CliError, Result};

/// The argument of `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// The best there is.
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device by ordinal.
    Cuda(u32),
}

impl fmt::Display for DeviceArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceArg::Auto => f.write_str("auto"),
            DeviceArg::Cpu => f.write_str("cpu"),
            DeviceArg::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(DeviceArg::Auto),
            "cpu" => Ok(DeviceArg::Cpu),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(DeviceArg::Cuda)
                .ok_or_else(|| format!("{text:?} is not a device: use auto, cpu or cuda:N")),
        }
    }
}

/// The context of a run; `threads` is the size of the CPU's pool, 0 for one per core.
///
/// # Errors
/// The device cannot be used.
pub(crate) fn context(device: DeviceArg, threads: usize, bundles: &[PathBuf]) -> Result<Context> {
    if !bundles.is_empty() {
        let ordinal = if let DeviceArg::Cuda(ordinal) = device { ordinal } else { 0 };
        return with_bundles(ordinal, bundles)
            .map_err(|error| CliError::Device { device: device.to_string(), reason: error.to_string() });
    }
    match device {
        DeviceArg::Auto if threads == 0 => Ok(Context::new()?),
        DeviceArg::Auto | DeviceArg::Cpu => Ok(Context::cpu(threads)?),
        DeviceArg::Cuda(ordinal) => Context::cuda(ordinal)
            .map_err(|error| CliError::Device { device: device.to_string(), reason: error.to_string() }),
    }
}

/// A context on a CUDA device that takes kernels from bundles before it compiles any.
fn with_bundles(ordinal: u32, paths: &[PathBuf]) -> Result<Context, Box<dyn std::error::Error>> {
    let bundles = paths.iter().map(Bundle::open).collect::<Result<_, _>>()?;
    let store = KernelStore::new(bundles, DiskCache::from_env());
    let queue = CudaQueue::on(CudaDevice::open(ordinal, Arc::new(store))?)?;
    Ok(Context::on(Box::new(queue), Environment::process().clone())?)
}

/// What was found, and why not where something was not.
pub(crate) fn describe(threads: usize) -> Result<String> {
    let cpu = Context::cpu(threads)?;
    let mut lines =
        vec![format!("cpu     {} threads, {}", cpu.device().compute_units, simd_level()), "cuda".into()];
    lines.extend(gpu_report().iter().map(|entry| format!("  {}", entry.replace('\n', "\n  "))));
    Ok(lines.join("\n"))
}

/// The devices, and the state of each library that a GPU needs.
pub(crate) fn gpu_report() -> Vec<String> {
    let mut lines = vec![probe_devices().to_string().trim_end().to_owned()];
    for (library, state) in CudaArm::report() {
        lines.push(match state {
            Ok(version) => format!("{library} {version}"),
            Err(reason) => format!("{library} is not usable: {reason}"),
        });
    }
    lines
}

/// The widest vector instructions of this CPU that the compiler can ask for.
fn simd_level() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return "AVX2 and FMA";
        }
        if is_x86_feature_detected!("avx") {
            return "AVX";
        }
        "SSE2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "NEON"
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        "no known vector instructions"
    }
}
