//! What a compiled kernel is filed under: a digest of everything that decides its machine code.

use std::collections::BTreeMap;
use std::fmt;

use batchlas_core::Kernel;
use sha2::{Digest, Sha256};

use crate::headers::{HEADERS, Header};
use crate::image::DIGEST;
use crate::nvrtc::{BASE_OPTIONS, Job};

/// A digest of source, headers, name expressions, options and architecture. The compiler's release is added by
/// [`Key::with_compiler`] for the on-disk cache; a bundle is read where there may be no compiler to ask, so it is
/// filed without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) [u8; DIGEST]);

impl Key {
    /// The key of what `job` compiles to.
    pub fn of(job: &Job<'_>) -> Key {
        let arch = job.arch.to_string();
        let headers: Vec<&str> = job.headers.iter().flat_map(|header| [header.name, header.text]).collect();
        digest(&[&[job.source_name, job.source, &arch], &headers, job.entries, job.options, BASE_OPTIONS])
    }

    /// The key of the same, compiled by this release of NVRTC.
    #[must_use]
    pub fn with_compiler(self, version: &str) -> Key {
        digest(&[&[&self.to_string(), version]])
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest of the device code of kernels whatever they are compiled for: their texts, the shared headers that those
/// include, and their instantiations. 16 hexadecimal digits; empty for no kernels.
pub fn code_digest(kernels: &[Kernel]) -> String {
    if kernels.is_empty() {
        return String::new();
    }
    let mut entries: Vec<&str> = kernels.iter().map(|kernel| &kernel.entry[..]).collect();
    entries.sort_unstable();
    let mut texts = BTreeMap::new();
    let mut open: Vec<(&str, &str)> = kernels.iter().map(|k| (k.source.name, k.source.text)).collect();
    while let Some((name, text)) = open.pop() {
        if texts.insert(name, text).is_none() {
            let included = |header: &&Header<'_>| text.contains(&format!("#include <{}>", header.name));
            open.extend(HEADERS.iter().filter(included).map(|header| (header.name, header.text)));
        }
    }
    let texts: Vec<&str> = texts.into_iter().flat_map(|(name, text)| [name, text]).collect();
    digest(&[&texts, &entries]).to_string()[..16].to_owned()
}

/// Digest of lists of strings. Each list and string is preceded by its length, so that no two inputs run together.
fn digest(lists: &[&[&str]]) -> Key {
    let mut hash = Sha256::new();
    for list in lists {
        hash.update((list.len() as u64).to_le_bytes());
        for text in *list {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
    }
    Key(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn device_code_is_told_by_text_headers_and_instantiation() {
        use batchlas_core::{KernelSource, Promise};
        let promise = Promise { threads: 32, min_blocks: 1, max_dynamic_shared: 0 };
        let kernel = |text: &'static str, entry: &str| {
            let source: &'static KernelSource = Box::leak(Box::new(KernelSource { name: "t.cuh", text }));
            Kernel { source, entry: entry.to_owned(), promise }
        };
        let (bare, includes) = ("int a;", "#include <batchlas/arch.cuh>\nint a;");
        let digests: HashSet<String> = [
            code_digest(&[kernel(bare, "a")]),
            code_digest(&[kernel(bare, "b")]),
            code_digest(&[kernel(includes, "a")]),
            code_digest(&[kernel(bare, "a"), kernel(bare, "b")]),
        ]
        .into();
        assert_eq!(digests.len(), 4);
        let [a, b] = ["a", "b"].map(|entry| kernel(bare, entry));
        assert_eq!(code_digest(&[a.clone(), b.clone()]), code_digest(&[b, a]), "the order says nothing");
        assert!(HEADERS.iter().any(|header| header.name == "batchlas/arch.cuh"));
        assert_eq!(code_digest(&[]), "");
    }

    #[test]
    fn everything_that_decides_the_code_is_in_the_key() {
        let headers = [Header { name: "a.cuh", text: "int a;" }];
        let other_text = [Header { name: "a.cuh", text: "int b;" }];
        let other_name = [Header { name: "b.cuh", text: "int a;" }];
        let arch = "sm_90".parse().unwrap();
        let base = Job {
            source_name: "s",
            source: "t",
            headers: &headers,
            entries: &["k<1>"],
            arch,
            options: &["-DA"],
        };
        let jobs = [
            base,
            Job { source_name: "st", source: "", ..base },
            Job { source: "u", ..base },
            Job { headers: &[], ..base },
            Job { headers: &other_text, ..base },
            Job { headers: &other_name, ..base },
            Job { entries: &["k<2>"], ..base },
            Job { entries: &["k<1>", "-DA"], options: &[], ..base },
            Job { options: &["-DB"], ..base },
            Job { options: &[], ..base },
            Job { arch: "sm_90a".parse().unwrap(), ..base },
        ];
        let keys: HashSet<Key> = jobs.iter().map(Key::of).collect();
        assert_eq!(keys.len(), jobs.len());
        let key = Key::of(&base);
        assert_eq!(key, Key::of(&base.clone()));
        assert_ne!(key.with_compiler("13.0"), key.with_compiler("13.1"));
        assert_eq!(key.to_string().len(), 64);
    }
}
