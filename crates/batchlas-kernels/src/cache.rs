//! The on-disk cache of compiled kernels: one file per kernel, named by its key.
//!
//! A cache may be slow or absent, never wrong, and never a reason to fail. Files are written beside their place and
//! renamed into it, so a reader sees a whole entry or none. An entry that does not decode is dropped, and the caller
//! compiles again. A directory that cannot be written, or a full disk, costs a warning and the next process's
//! compile. When the total size passes the bound, the entries used longest ago go first.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::image::Image;
use crate::key::Key;

/// Directory of the cache; set and empty, it turns the cache off.
pub const CACHE_DIR_VARIABLE: &str = "BATCHLAS_CACHE_DIR";
/// Most bytes that a cache keeps unless told otherwise.
pub const DEFAULT_LIMIT: u64 = 256 * 1024 * 1024;

const ENTRY: &str = "kernel";
const UNFINISHED: &str = "unfinished";

/// A directory of compiled kernels.
#[derive(Clone, Debug)]
pub struct DiskCache {
    directory: PathBuf,
    limit: u64,
}

impl DiskCache {
    /// A cache in `directory`, made on the first store, of at most `limit` bytes.
    pub fn new(directory: impl Into<PathBuf>, limit: u64) -> DiskCache {
        DiskCache { directory: directory.into(), limit }
    }

    /// The cache that the environment asks for: `BATCHLAS_CACHE_DIR`, else `XDG_CACHE_HOME/batchlas`, else
    /// `~/.cache/batchlas`; none where the first is set and empty or no home is known.
    pub fn from_env() -> Option<DiskCache> {
        directory(|name| env::var_os(name)).map(|directory| DiskCache::new(directory, DEFAULT_LIMIT))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{key}.{ENTRY}"))
    }

    /// The kernel filed under `key`. A corrupt entry is removed and counts as absent.
    pub fn load(&self, key: &Key) -> Option<Image> {
        let path = self.path(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the kernel cache cannot be read; compiling instead");
                return None;
            }
        };
        match Image::decode(&bytes) {
            Ok(image) => {
                // The time of last use decides what is evicted; a read-only cache just keeps its order.
                let touched =
                    File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
                if let Err(error) = touched {
                    tracing::debug!(path = %path.display(), %error, "time of use not recorded");
                }
                Some(image)
            }
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "corrupt kernel cache entry dropped; compiling again");
                if let Err(error) = fs::remove_file(&path) {
                    tracing::warn!(path = %path.display(), %error, "the corrupt entry cannot be removed");
                }
                None
            }
        }
    }

    /// Files `image` under `key`, then evicts down to the bound. Failure costs a warning.
    pub fn store(&self, key: &Key, image: &Image) {
        let stored = fs::create_dir_all(&self.directory)
            .and_then(|()| write_atomically(&self.path(key), &image.encode()))
            .and_then(|()| self.evict());
        if let Err(error) = stored {
            tracing::warn!(
                directory = %self.directory.display(), %error,
                "the kernel cache cannot be written; kernels are kept in memory and will be compiled again next time"
            );
        }
    }

    /// Removes the entries used longest ago until the rest fit the bound. Unfinished files of processes that died
    /// are old, so they go the same way.
    fn evict(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == ENTRY || extension == UNFINISHED) {
                // Another process may have removed it since.
                if let Ok(data) = path.metadata() {
                    files.push((data.modified()?, data.len(), path));
                }
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= self.limit {
                break;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => total -= size,
            }
        }
        Ok(())
    }
}

fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(own) = variable(CACHE_DIR_VARIABLE) {
        return (!own.is_empty()).then(|| own.into());
    }
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("batchlas"))
}

/// Writes a file so that its name never stands for a part of it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("{}-{serial}.{UNFINISHED}", std::process::id()));
    let written = File::create(&unfinished)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // Nothing is lost if this fails as well: the next eviction takes it.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::image::tests::sample;

    fn key(byte: u8) -> Key {
        Key([byte; 32])
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// What is logged at the level of a warning or above while `act` runs.
    fn warnings(act: impl FnOnce()) -> String {
        let (mut reader, writer) = io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(Mutex::new(writer))
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    }

    #[test]
    fn store_and_load() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(root.path().join("made/on/demand"), DEFAULT_LIMIT);
        assert_eq!(cache.load(&key(1)), None);
        cache.store(&key(1), &sample(100));
        assert_eq!(cache.load(&key(1)), Some(sample(100)));
        assert_eq!(cache.load(&key(2)), None);
        assert_eq!(names(cache.directory()), [format!("{}.kernel", key(1))]);
    }

    #[test]
    fn a_corrupt_entry_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(root.path(), DEFAULT_LIMIT);
        cache.store(&key(1), &sample(100));
        let mut bytes = fs::read(cache.path(&key(1))).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(cache.path(&key(1)), bytes).unwrap();
        let log = warnings(|| assert_eq!(cache.load(&key(1)), None));
        assert!(log.contains("corrupt") && log.contains("checksum"), "{log}");
        assert!(names(root.path()).is_empty());
        cache.store(&key(1), &sample(100));
        assert_eq!(cache.load(&key(1)), Some(sample(100)));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let root = tempfile::tempdir().unwrap();
        let size = sample(1000).encode().len() as u64;
        let cache = DiskCache::new(root.path(), 3 * size);
        let age = |path: &Path, seconds| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        };
        let dead = root.path().join("x.1-1.unfinished");
        fs::write(&dead, [0; 10]).unwrap();
        age(&dead, 5000);
        let foreign = root.path().join("notes.txt");
        fs::write(&foreign, [0; 10]).unwrap();
        age(&foreign, 9000);
        for (byte, seconds) in [(1, 300), (2, 400), (3, 200)] {
            cache.store(&key(byte), &sample(1000));
            age(&cache.path(&key(byte)), seconds);
        }
        assert!(cache.load(&key(2)).is_some());
        cache.store(&key(4), &sample(1000));
        assert!(cache.load(&key(1)).is_none(), "1 was used longest ago");
        for byte in [2, 3, 4] {
            assert!(cache.load(&key(byte)).is_some(), "{byte}");
        }
        assert!(!dead.exists());
        assert!(foreign.exists(), "only files of the cache are its own to remove");
    }

    #[test]
    fn an_unwritable_directory_only_warns() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = DiskCache::new(file.join("below/a/file"), DEFAULT_LIMIT);
        let log = warnings(|| cache.store(&key(1), &sample(10)));
        assert!(log.contains("cannot be written") && log.contains("below/a/file"), "{log}");
        assert_eq!(cache.load(&key(1)), None);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("entry.kernel");
        // A directory that is not empty cannot be replaced, so the rename fails after the write.
        fs::create_dir_all(path.join("occupied")).unwrap();
        assert!(write_atomically(&path, b"bytes").is_err());
        assert_eq!(names(root.path()), ["entry.kernel"]);
    }

    #[test]
    fn the_directory_that_the_environment_asks_for() {
        let with = |pairs: &[(&str, &str)]| {
            directory(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let all = [(CACHE_DIR_VARIABLE, "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/u")];
        assert_eq!(with(&all), Some("/own".into()));
        assert_eq!(with(&all[1..]), Some("/xdg/batchlas".into()));
        assert_eq!(with(&all[2..]), Some("/home/u/.cache/batchlas".into()));
        assert_eq!(
            with(&[("XDG_CACHE_HOME", ""), ("HOME", "/home/u")]),
            Some("/home/u/.cache/batchlas".into())
        );
        assert_eq!(with(&[(CACHE_DIR_VARIABLE, ""), ("HOME", "/home/u")]), None);
        assert_eq!(with(&[]), None);
    }
}
