//! A device kernel as a value: its text, the instantiation asked for, and what it promises.
//!
//! An operation crate owns its device code as text and describes one instantiation by a C++ name expression. A queue
//! compiles it on first use, checks the promise against the compiled function and keeps it.

/// One device source file, embedded in the crate that owns it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct KernelSource {
    /// Path that compile errors and simulator reports name, e.g. `batchlas-potrf/cuda/tiny.cuh`.
    pub name: &'static str,
    /// The text. It may include the shared headers as `<batchlas/...>` and nothing else.
    pub text: &'static str,
}

/// What a kernel promises about its residency. Stack frame and spills are promised to be zero by every kernel and
/// are therefore not stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// Threads of one work-group.
    pub threads: u32,
    /// Work-groups that fit on one multiprocessor by registers.
    pub min_blocks: u32,
    /// Largest dynamic shared memory, in bytes, that a launch will ask for.
    pub max_dynamic_shared: u32,
}

/// One instantiation of a kernel template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The file it is in.
    pub source: &'static KernelSource,
    /// The C++ name expression, e.g. `batchlas::potrf_tiny<float, 17, 4, batchlas::Uplo::Lower>`.
    pub entry: String,
    /// What the compiled function is checked against.
    pub promise: Promise,
}

/// One launch of a kernel.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What to run.
    pub kernel: &'a Kernel,
    /// Work-groups along x: the only grid axis in use, since y and z end at 65,535.
    pub grid: u32,
    /// Dynamic shared memory of one work-group, in bytes.
    pub dynamic_shared: u32,
    /// The bytes of the kernel's one parameter, a plain struct passed by value.
    pub args: &'a [u8],
}
