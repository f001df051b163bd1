//! Are the libraries there? Found and loaded once per process, by the locator of batchlas-kernels.
//!
//! cudarc panics where a library, or a symbol in it, is missing. Nothing in this arm calls it before [`Vendor::ready`]
//! has said yes: the file is loaded, cudarc finds it by name, and it is of a release that has every symbol we use.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use batchlas_core::{Error, QueueError, Result};
use batchlas_kernels::locate::{self, Library};
use cudarc::{cublas::sys as blas, cusolver::sys as solver};

/// A library of the GPU arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Cublas,
    Cusolver,
}

impl Vendor {
    pub(crate) const ALL: [Vendor; 2] = [Vendor::Cublas, Vendor::Cusolver];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Vendor::Cublas => "cuBLAS",
            Vendor::Cusolver => "cuSOLVER",
        }
    }

    fn library(self) -> Library {
        match self {
            Vendor::Cublas => Library::Cublas,
            Vendor::Cusolver => Library::Cusolver,
        }
    }

    /// The major release that CUDA 13 brings, whose interface the bindings describe.
    fn oldest_major(self) -> i32 {
        match self {
            Vendor::Cublas => 13,
            Vendor::Cusolver => 12,
        }
    }

    /// The release, e.g. `13.0.2`; or why the library cannot be used, with every place that was tried.
    pub(crate) fn ready(self) -> Result<&'static str, &'static str> {
        static READY: [OnceLock<Result<String, String>>; Vendor::ALL.len()] =
            [const { OnceLock::new() }; Vendor::ALL.len()];
        let ready = READY[self as usize].get_or_init(|| self.find());
        ready.as_ref().map(String::as_str).map_err(String::as_str)
    }

    fn find(self) -> Result<String, String> {
        let loaded = locate::load(self.library()).map_err(|error| error.to_string())?;
        // SAFETY: opens libraries by the vendor's names, as the locator just did.
        let present = unsafe {
            match self {
                Vendor::Cublas => blas::is_culib_present(),
                Vendor::Cusolver => solver::is_culib_present(),
            }
        };
        let (name, path) = (self.name(), loaded.path.display());
        if !present {
            return Err(format!("{name}: {path} is loaded, but cannot be opened again by its name"));
        }
        let [major, minor, patch] = [0, 1, 2].map(|part| self.property(part));
        let oldest = self.oldest_major();
        if major < oldest {
            return Err(format!(
                "{name} {major}.{minor}.{patch} is what the system loader finds first, and {oldest}.0 or later is \
                 needed (located: {path}): remove the older one from the loader's path"
            ));
        }
        Ok(format!("{major}.{minor}.{patch}"))
    }

    /// Major, minor or patch number; -1 where the library does not say.
    fn property(self, part: usize) -> i32 {
        use blas::libraryPropertyType_t as B;
        use solver::libraryPropertyType_t as S;
        let mut value = -1;
        // SAFETY: the library is loaded, both functions exist in every release, and the pointer is to a live integer. A
        // failed call leaves the integer as it is.
        unsafe {
            match self {
                Vendor::Cublas => {
                    let parts = [B::MAJOR_VERSION, B::MINOR_VERSION, B::PATCH_LEVEL];
                    blas::cublasGetProperty(parts[part], &mut value);
                }
                Vendor::Cusolver => {
                    let parts = [S::MAJOR_VERSION, S::MINOR_VERSION, S::PATCH_LEVEL];
                    solver::cusolverGetProperty(parts[part], &mut value);
                }
            }
        }
        value
    }
}

/// What a library call said of itself.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It is not there. Choosing asks first, so this is seen only where an arm is called without asking.
    #[error("{0}")]
    Absent(&'static str),
    /// A status that is not success.
    #[error("{call} returned {status}")]
    Status { call: &'static str, status: String },
    /// A workspace size that cannot be one.
    #[error(
        "{call} asks for {elements} elements of workspace for order {n}: a matrix of this order is too large for it"
    )]
    Workspace { call: &'static str, elements: i32, n: usize },
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        QueueError::runtime("the vendor arm", failure).into()
    }
}

/// The status of a library call.
pub(crate) trait Status: std::fmt::Debug + Sized {
    fn is_success(&self) -> bool;

    fn check(self, call: &'static str) -> Result<(), Failure> {
        if self.is_success() { Ok(()) } else { Err(Failure::Status { call, status: format!("{self:?}") }) }
    }
}

impl Status for blas::cublasStatus_t {
    fn is_success(&self) -> bool {
        *self == blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS
    }
}

impl Status for solver::cusolverStatus_t {
    fn is_success(&self) -> bool {
        *self == solver::cusolverStatus_t::CUSOLVER_STATUS_SUCCESS
    }
}
