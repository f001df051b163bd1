//! Queues over CUDA streams: our own kernels, launched where the caller's work is.
//!
//! ```text
//! Driver -> CudaDevice -> CudaQueue -> launch
//!            |  context, loaded kernels    |  stream, memory, events, graphs
//!            KernelStore: bundle, memory, disk, NVRTC
//! ```
//!
//! A kernel is looked up by the address of its source and its name expression, so a launch hashes no source text and
//! costs the driver's call and little more. One that is not loaded yet is fetched from the store, held against its
//! promise by what the driver says of the loaded function, and refused by name and number if it breaks it.
//! [`CudaQueue::prepare`] does that ahead of time, on several threads; inside a graph capture it is the only way.

mod device;
mod driver;
mod functions;
mod graph;
mod queue;
mod report;
pub mod selftest;
mod slices;

pub use device::CudaDevice;
pub use driver::Driver;
pub use graph::Graph;
pub use queue::CudaQueue;
pub use report::{DeviceReport, device_count, probe_devices};
pub use slices::{Strided, with_slice, with_slice_mut};
