//! A bundle: one file of kernels compiled ahead of time, for machines where nothing may or can be compiled.
//!
//! It holds an index from key to position, sorted by key, with a checksum of its own, and then the kernels as
//! [`Image`] bytes. Opening reads the file once; a kernel is decoded and checked when it is asked for.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use batchlas_core::Kernel;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::arch::Arch;
use crate::cache::write_atomically;
use crate::image::{DIGEST, Image, Reader};
use crate::key::Key;
use crate::nvrtc::{Job, Nvrtc};
use crate::parallel;
use crate::residency::admit;

/// Format of the file; raised when the fields change.
const MAGIC: &[u8; 8] = b"BLBUND01";

/// Where each kernel's bytes are, sorted by key.
type Index = Vec<(Key, Range<usize>)>;

/// An open bundle.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    compiler: String,
    index: Index,
    bytes: Vec<u8>,
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// # Errors
    /// [`Error::Bundle`] if the file cannot be read or its index is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, Error> {
        let path = path.as_ref().to_owned();
        let fail = |why: String| Error::Bundle { path: path.clone(), why };
        let bytes = fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let (compiler, index) = read_index(&bytes).map_err(|why| fail(why.to_owned()))?;
        tracing::debug!(path = %path.display(), kernels = index.len(), %compiler, "bundle opened");
        Ok(Bundle { path, compiler, index, bytes })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The release of NVRTC that compiled it.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }

    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether it holds no kernel.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The kernel filed under `key`, if there is one. O(log kernels) and a copy.
    ///
    /// # Errors
    /// [`Error::Bundle`] if its bytes are damaged.
    pub fn get(&self, key: &Key) -> Result<Option<Image>, Error> {
        let Ok(position) = self.index.binary_search_by_key(key, |(known, _)| *known) else {
            return Ok(None);
        };
        let range = self.index[position].1.clone();
        match Image::decode(&self.bytes[range]) {
            Ok(image) => Ok(Some(image)),
            Err(why) => Err(Error::Bundle { path: self.path.clone(), why: format!("kernel {key}: {why}") }),
        }
    }
}

fn read_index(bytes: &[u8]) -> Result<(String, Index), &'static str> {
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err("it is not a bundle of this format");
    }
    let digest = reader.take(DIGEST)?;
    let length = usize::try_from(reader.u64()?).map_err(|_| "a length is out of range")?;
    let head = reader.take(length)?;
    if Sha256::digest(head).as_slice() != digest {
        return Err("the checksum of its index does not match");
    }
    let start = bytes.len() - reader.0.len();
    let mut reader = Reader(head);
    let compiler = reader.string()?;
    let mut index = Vec::new();
    let mut end = start;
    while !reader.0.is_empty() {
        let key = Key(reader.array()?);
        let size = usize::try_from(reader.u64()?).map_err(|_| "a length is out of range")?;
        let next = end.checked_add(size).filter(|&next| next <= bytes.len()).ok_or("it is truncated")?;
        index.push((key, end..next));
        end = next;
    }
    Ok((compiler, index))
}

/// The bytes of a bundle of kernels, filed under [`Key::of`], that this release of NVRTC compiled. Of two kernels with
/// one key the first is kept.
pub fn encode(compiler: &str, kernels: &[(Key, Image)]) -> Vec<u8> {
    let mut sorted: Vec<(Key, Vec<u8>)> = kernels.iter().map(|(key, image)| (*key, image.encode())).collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted.dedup_by_key(|(key, _)| *key);
    let mut head = (compiler.len() as u64).to_le_bytes().to_vec();
    head.extend(compiler.as_bytes());
    for (key, bytes) in &sorted {
        head.extend(key.0);
        head.extend((bytes.len() as u64).to_le_bytes());
    }
    let mut file = MAGIC.to_vec();
    file.extend(Sha256::digest(&head));
    file.extend((head.len() as u64).to_le_bytes());
    file.extend(head);
    for (_, bytes) in &sorted {
        file.extend(bytes);
    }
    file
}

/// What [`compile`] made.
#[derive(Debug)]
pub struct Compiled {
    /// The bundle's bytes, for [`write()`].
    pub bytes: Vec<u8>,
    /// Kernels that did not compile or break their promise, and are therefore not in the bundle.
    pub refused: Vec<Error>,
}

/// Compiles `kernels` for `arch` on at most `threads` threads. `progress` is told after each kernel how many are done,
/// of how many. A kernel that breaks its promise there is refused, where the table of [`Arch::multiprocessor`] has the
/// architecture.
///
/// # Errors
/// There is no compiler.
pub fn compile(
    kernels: impl IntoIterator<Item = Kernel>,
    arch: Arch,
    threads: usize,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Compiled, Error> {
    let nvrtc = Nvrtc::load()?;
    let kernels: Vec<Kernel> = kernels.into_iter().collect();
    let done = AtomicUsize::new(0);
    let compiled = parallel::map(&kernels, threads, |_, kernel| {
        let entry = [kernel.entry.as_str()];
        let job = Job::of(kernel, &entry, arch);
        let image = nvrtc.cubin(&job).and_then(Image::of).and_then(|image| {
            if let Some(sm) = arch.multiprocessor() {
                admit(&kernel.entry, &kernel.promise, &image.usage, image.code, &sm)?;
            }
            Ok(image)
        });
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, kernels.len());
        Ok((Key::of(&job), image?))
    });
    let (mut images, mut refused) = (Vec::new(), Vec::new());
    for result in compiled {
        match result {
            Ok(image) => images.push(image),
            Err(error) => refused.push(error),
        }
    }
    Ok(Compiled { bytes: encode(&nvrtc.version(), &images), refused })
}

/// Writes a bundle's bytes to a file, whole or not at all.
///
/// # Errors
/// [`Error::Bundle`] if the file cannot be written.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    let path = path.as_ref();
    write_atomically(path, bytes)
        .map_err(|error| Error::Bundle { path: path.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::sample;

    fn key(byte: u8) -> Key {
        Key([byte; 32])
    }

    fn written() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("kernels.bundle");
        let (small, large) = (sample(10), sample(500));
        write(&path, &encode("13.0", &[(key(9), large), (key(3), small.clone()), (key(9), small)])).unwrap();
        (root, path)
    }

    #[test]
    fn round_trip() {
        let (_root, path) = written();
        let bundle = Bundle::open(&path).unwrap();
        assert_eq!((bundle.compiler(), bundle.len(), bundle.is_empty()), ("13.0", 2, false));
        assert_eq!(bundle.get(&key(3)).unwrap(), Some(sample(10)));
        assert_eq!(bundle.get(&key(9)).unwrap(), Some(sample(500)), "the first of two");
        assert_eq!(bundle.get(&key(4)).unwrap(), None);
    }

    #[test]
    fn damage_is_an_error_that_names_the_file() {
        let (root, path) = written();
        let good = fs::read(&path).unwrap();
        let kernels = [(key(3), sample(10)), (key(9), sample(500))];
        let intact = |bytes: &[u8]| {
            let path = root.path().join("damaged.bundle");
            fs::write(&path, bytes).unwrap();
            let bundle = Bundle::open(&path)?;
            for (key, image) in &kernels {
                assert_eq!(bundle.get(key)?.as_ref(), Some(image));
            }
            Ok::<_, Error>(())
        };
        intact(&good).unwrap();
        for position in 0..good.len() {
            let mut bytes = good.clone();
            bytes[position] ^= 1;
            let message = intact(&bytes).expect_err("a changed byte").to_string();
            assert!(message.contains("damaged.bundle"), "{message}");
        }
        for length in (0..good.len()).step_by(7) {
            assert!(intact(&good[..length]).is_err(), "cut to {length} bytes");
        }
        let message = Bundle::open(root.path().join("absent")).unwrap_err().to_string();
        assert!(message.contains("absent"), "{message}");
    }
}
