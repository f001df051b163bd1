//! The shared device headers, embedded, as NVRTC takes them: by include name, with no file system.
//!
//! A kernel writes `#include <batchlas/integers.cuh>` and finds the text here. A header is added by naming it in
//! [`HEADERS`]; a test holds the table against the folder, so a forgotten one is red.

/// One header: the name between the angle brackets, and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header<'a> {
    /// Include name, e.g. `batchlas/integers.cuh`.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
}

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(Header { name: $name, text: include_str!(concat!("../cuda/", $name)) }),*]
    };
}

/// Every shared header, sorted by name.
pub const HEADERS: &[Header<'static>] = embed![
    "batchlas/arch.cuh",
    "batchlas/cholesky.cuh",
    "batchlas/cyclic.cuh",
    "batchlas/factor.cuh",
    "batchlas/fragment.cuh",
    "batchlas/instructions.cuh",
    "batchlas/integers.cuh",
    "batchlas/memory.cuh",
    "batchlas/operand.cuh",
    "batchlas/partition.cuh",
    "batchlas/product.cuh",
    "batchlas/q4k.cuh",
    "batchlas/q4k_tile.cuh",
    "batchlas/scalar.cuh",
    "batchlas/shared.cuh",
    "batchlas/solve.cuh",
    "batchlas/staging.cuh",
    "batchlas/substitution.cuh",
    "batchlas/systems.cuh",
    "batchlas/tile.cuh",
    "batchlas/triangle.cuh",
    "batchlas/unroll.cuh",
    "batchlas/uplo.cuh",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::HEADERS;

    fn collect(root: &Path, dir: &Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, names);
            } else {
                names.push(path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
    }

    #[test]
    fn the_table_lists_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        let mut names = Vec::new();
        collect(&root, &root, &mut names);
        names.sort();
        assert_eq!(HEADERS.iter().map(|h| h.name).collect::<Vec<_>>(), names);
    }
}
