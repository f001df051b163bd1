//! What of CUDA this machine has, and why the rest is unusable: for a person who wonders why no GPU is used.

use std::fmt;
use std::path::PathBuf;

use batchlas_core::Device;

use crate::Error;
use crate::cuda::driver::Driver;
use crate::locate::{self, Library, NotFound};

/// Number of CUDA devices.
///
/// # Errors
/// No driver, or one that does not initialise. A driver without a device is the error `CUDA_ERROR_NO_DEVICE`.
pub fn device_count() -> Result<u32, Error> {
    Driver::load()?.device_count()
}

/// What was found. Its `Display` is a report of several lines.
#[derive(Debug)]
pub struct DeviceReport {
    /// The driver, or why there is none that serves.
    pub driver: Result<Driver, Error>,
    /// Each device by ordinal, or why it is unusable.
    pub devices: Vec<Result<Device, Error>>,
    /// Each library but the driver, with its file or every place where it was looked for.
    pub libraries: Vec<(Library, Result<PathBuf, NotFound>)>,
}

/// Looks for the driver, the devices and the libraries. Makes no context, but loads each library that is found, which
/// takes up to seconds. Never panics.
pub fn probe_devices() -> DeviceReport {
    let driver = Driver::load();
    let devices = match &driver {
        Err(_) => Vec::new(),
        Ok(driver) => match driver.device_count() {
            Err(error) => vec![Err(error)],
            Ok(count) => (0..count).map(|ordinal| describe(driver, ordinal)).collect(),
        },
    };
    let others = Library::ALL.into_iter().filter(|library| *library != Library::Cuda);
    let libraries =
        others.map(|library| (library, locate::load(library).map(|loaded| loaded.path.clone()))).collect();
    DeviceReport { driver, devices, libraries }
}

fn describe(driver: &Driver, ordinal: u32) -> Result<Device, Error> {
    let attributes = driver.attributes(ordinal)?;
    if attributes.memory_pools {
        Ok(attributes.device())
    } else {
        Err(Error::NoMemoryPools { ordinal, name: attributes.name })
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(driver) => {
                writeln!(f, "driver   for CUDA {} from {}", driver.version(), driver.path().display())?;
            }
            Err(error) => writeln!(f, "driver   unusable: {error}")?,
        }
        for (ordinal, device) in self.devices.iter().enumerate() {
            match device {
                Ok(device) => writeln!(
                    f,
                    "cuda:{ordinal}   {}, {}: {} multiprocessors of {} registers, {} B of shared memory per \
                     work-group of up to {} threads",
                    device.name,
                    device.arch,
                    device.compute_units,
                    device.registers,
                    device.slm_budget,
                    device.max_work_group
                )?,
                Err(error) => writeln!(f, "cuda:{ordinal}   unusable: {error}")?,
            }
        }
        for (library, found) in &self.libraries {
            match found {
                Ok(path) => writeln!(f, "{library}   {}", path.display())?,
                Err(error) => writeln!(f, "{library}   absent: {error}")?,
            }
        }
        Ok(())
    }
}
