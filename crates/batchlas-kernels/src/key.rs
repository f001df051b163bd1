//! What a compiled kernel is filed under: a digest of everything that decides its machine code.

use std::fmt;

use sha2::{Digest, Sha256};

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
    use crate::headers::Header;

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
