//! The loaded kernels of a device, found without touching their source text.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use batchlas_core::{Kernel, Promise};

/// Where a kernel's text is, and its promise. The text is `'static`, so an address stands for one text for good.
/// One text at two addresses would be loaded twice, and still be right. So would one kernel with two promises: the
/// most dynamic shared memory is state of a loaded function, and must not change under a launch.
type Origin = (usize, Promise);

/// A map from kernel to what it was loaded as.
#[derive(Debug)]
pub(crate) struct Functions<F> {
    by_origin: RwLock<HashMap<Origin, HashMap<String, Arc<F>>>>,
}

impl<F> Default for Functions<F> {
    fn default() -> Self {
        Functions { by_origin: RwLock::default() }
    }
}

fn origin(kernel: &Kernel) -> Origin {
    (std::ptr::from_ref(kernel.source).addr(), kernel.promise)
}

impl<F> Functions<F> {
    /// The kernel, if it was inserted.
    pub(crate) fn get(&self, kernel: &Kernel) -> Option<Arc<F>> {
        let map = self.by_origin.read().unwrap_or_else(PoisonError::into_inner);
        map.get(&origin(kernel))?.get(kernel.entry.as_str()).cloned()
    }

    /// Files what `kernel` was loaded as. Of two threads that load one kernel, both get what the first filed.
    pub(crate) fn insert(&self, kernel: &Kernel, function: F) -> Arc<F> {
        let mut map = self.by_origin.write().unwrap_or_else(PoisonError::into_inner);
        let entries = map.entry(origin(kernel)).or_default();
        Arc::clone(entries.entry(kernel.entry.clone()).or_insert_with(|| Arc::new(function)))
    }
}

#[cfg(test)]
mod tests {
    use batchlas_core::KernelSource;

    use super::*;

    static A: KernelSource = KernelSource { name: "a.cuh", text: "text" };
    static B: KernelSource = KernelSource { name: "b.cuh", text: "text of b" };

    fn kernel(source: &'static KernelSource, entry: &str, threads: u32) -> Kernel {
        let promise = Promise { threads, min_blocks: 1, max_dynamic_shared: 0 };
        Kernel { source, entry: entry.into(), promise }
    }

    #[test]
    fn source_entry_and_promise_tell_kernels_apart() {
        let functions = Functions::default();
        let kernels =
            [kernel(&A, "k<1>", 32), kernel(&A, "k<2>", 32), kernel(&B, "k<1>", 32), kernel(&A, "k<1>", 64)];
        for (number, kernel) in kernels.iter().enumerate() {
            assert!(functions.get(kernel).is_none(), "{kernel:?}");
            functions.insert(kernel, number);
        }
        for (number, kernel) in kernels.iter().enumerate() {
            // An equal kernel finds it, not only the same value.
            assert_eq!(functions.get(&kernel.clone()).as_deref(), Some(&number));
        }
    }

    #[test]
    fn the_first_of_two_stays() {
        let functions = Functions::default();
        let first = functions.insert(&kernel(&A, "k", 32), 1);
        let second = functions.insert(&kernel(&A, "k", 32), 2);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(*second, 1);
    }
}
