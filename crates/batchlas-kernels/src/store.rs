//! Where compiled kernels come from: bundles first, then this process's memory, then the disk, then the compiler.
//!
//! A kernel is made once: callers that ask for one that is being made wait for it, and callers that ask for others
//! do not. A failure is not kept, so a later call tries again.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};

use batchlas_core::Kernel;

use crate::Error;
use crate::arch::Arch;
use crate::bundle::Bundle;
use crate::cache::DiskCache;
use crate::image::Image;
use crate::key::Key;
use crate::nvrtc::{Job, Nvrtc};

/// Bundles that are read before anything is compiled.
pub const BUNDLE_VARIABLE: &str = "BATCHLAS_BUNDLE";

type Slot = Arc<Mutex<Option<Arc<Image>>>>;

/// A source of compiled kernels, shared by the queues of a process.
#[derive(Debug, Default)]
pub struct KernelStore {
    bundles: Vec<Bundle>,
    disk: Option<DiskCache>,
    slots: Mutex<HashMap<Key, Slot>>,
}

impl KernelStore {
    /// A store over these bundles and this cache.
    pub fn new(bundles: Vec<Bundle>, disk: Option<DiskCache>) -> KernelStore {
        KernelStore { bundles, disk, slots: Mutex::default() }
    }

    /// The store that the environment asks for: the bundles of `BATCHLAS_BUNDLE`, a list of files as `PATH` is of
    /// directories, over the cache of [`DiskCache::from_env`].
    ///
    /// # Errors
    /// [`Error::Bundle`] for a bundle that cannot be read.
    pub fn from_env() -> Result<KernelStore, Error> {
        let list = env::var_os(BUNDLE_VARIABLE).unwrap_or_default();
        let paths = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
        let bundles = paths.map(Bundle::open).collect::<Result<Vec<_>, _>>()?;
        Ok(KernelStore::new(bundles, DiskCache::from_env()))
    }

    /// The kernel for this architecture, with the shared headers.
    ///
    /// # Errors
    /// As for [`KernelStore::get`].
    pub fn kernel(&self, kernel: &Kernel, arch: Arch) -> Result<Arc<Image>, Error> {
        self.get(&Job::of(kernel, &[kernel.entry.as_str()], arch))
    }

    /// The kernel of `job`, which asks for one. NVRTC is loaded only where no bundle and no earlier call has it.
    ///
    /// # Errors
    /// Those of [`Nvrtc::load`] and [`Nvrtc::cubin`]; [`Error::NotBundled`] where there are bundles and no compiler;
    /// [`Error::Bundle`] for a damaged bundle.
    pub fn get(&self, job: &Job<'_>) -> Result<Arc<Image>, Error> {
        let key = Key::of(job);
        let slot = Arc::clone(lock(&self.slots).entry(key).or_default());
        let mut slot = lock(&slot);
        if let Some(image) = &*slot {
            return Ok(Arc::clone(image));
        }
        let image = Arc::new(self.make(job, &key)?);
        *slot = Some(Arc::clone(&image));
        Ok(image)
    }

    fn make(&self, job: &Job<'_>, key: &Key) -> Result<Image, Error> {
        for bundle in &self.bundles {
            if let Some(image) = bundle.get(key)? {
                return Ok(image);
            }
        }
        let nvrtc = Nvrtc::load().map_err(|source| self.no_compiler(job, source))?;
        let filed = key.with_compiler(&nvrtc.version());
        if let Some(image) = self.disk.as_ref().and_then(|disk| disk.load(&filed)) {
            tracing::debug!(entries = ?job.entries, "from the cache");
            return Ok(image);
        }
        let image = Image::of(nvrtc.cubin(job)?)?;
        if let Some(disk) = &self.disk {
            disk.store(&filed, &image);
        }
        Ok(image)
    }

    fn no_compiler(&self, job: &Job<'_>, source: Error) -> Error {
        if self.bundles.is_empty() {
            return source;
        }
        let paths: Vec<String> =
            self.bundles.iter().map(|bundle| bundle.path().display().to_string()).collect();
        Error::NotBundled {
            entry: job.entries.join(", "),
            arch: job.arch,
            bundles: paths.join(", "),
            source: Box::new(source),
        }
    }
}

/// Locks past a panic of another thread: a slot is either empty or whole, so there is nothing to distrust.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
