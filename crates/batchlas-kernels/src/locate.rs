//! Finds the CUDA libraries, loads them by absolute path and keeps them loaded.
//!
//! cudarc opens libraries by plain name and panics when that fails. A library that is already loaded satisfies a
//! later open by its SONAME, so everything here happens before cudarc's first call: [`load`] finds the file, opens
//! what it depends on, opens it, and keeps the handles for the life of the process. A caller asks [`load`] first and
//! touches cudarc only if it succeeds.
//!
//! Order of search, the first hit wins:
//! 1. `BATCHLAS_CUDA_LIB_DIR`, a list of directories (as `PATH` is);
//! 2. `CUDA_HOME` and `CUDA_PATH`: `lib64` and `targets/{x86_64,sbsa}-linux/lib`;
//! 3. `VIRTUAL_ENV` and `CONDA_PREFIX`: pip's `nvidia/cu13/lib`, and `lib` for conda packages;
//! 4. the system loader;
//! 5. pip's `nvidia/cu13/lib` for the `python3` on `PATH`. Last, as it starts a process.
//!
//! The driver, libcuda, belongs to the system: only 1 and 4 apply to it.
//! `BATCHLAS_CUDA_HIDE`, a comma-separated list such as `nvrtc,cusolver`, makes libraries count as absent, to see
//! what a machine without them would do.
#![allow(unsafe_code)]

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Directories searched first.
pub const LIB_DIR_VARIABLE: &str = "BATCHLAS_CUDA_LIB_DIR";
/// Libraries treated as absent.
pub const HIDE_VARIABLE: &str = "BATCHLAS_CUDA_HIDE";

/// Where pip's CUDA 13 wheels put libraries, below `site-packages`.
const WHEEL_LIB: &str = "nvidia/cu13/lib";

/// A CUDA library this project can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver.
    Cuda,
    /// The run-time compiler.
    Nvrtc,
    /// The link-time optimiser that cuSPARSE and cuSOLVER are linked against.
    NvJitLink,
    /// cuBLASLt, which cuBLAS is linked against.
    CublasLt,
    /// cuBLAS.
    Cublas,
    /// cuSPARSE, which cuSOLVER is linked against.
    Cusparse,
    /// cuSOLVER.
    Cusolver,
}

impl Library {
    /// Every library.
    pub const ALL: [Library; 7] = [
        Library::Cuda,
        Library::Nvrtc,
        Library::NvJitLink,
        Library::CublasLt,
        Library::Cublas,
        Library::Cusparse,
        Library::Cusolver,
    ];

    /// The name as `BATCHLAS_CUDA_HIDE` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Library::Cuda => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::NvJitLink => "nvjitlink",
            Library::CublasLt => "cublaslt",
            Library::Cublas => "cublas",
            Library::Cusparse => "cusparse",
            Library::Cusolver => "cusolver",
        }
    }

    /// The SONAME in CUDA 13, which is also the file name.
    pub fn soname(self) -> &'static str {
        match self {
            Library::Cuda => "libcuda.so.1",
            Library::Nvrtc => "libnvrtc.so.13",
            Library::NvJitLink => "libnvJitLink.so.13",
            Library::CublasLt => "libcublasLt.so.13",
            Library::Cublas => "libcublas.so.13",
            Library::Cusparse => "libcusparse.so.12",
            Library::Cusolver => "libcusolver.so.12",
        }
    }

    /// What must be loaded before it, in order.
    fn dependencies(self) -> &'static [Library] {
        match self {
            Library::Cuda | Library::Nvrtc | Library::NvJitLink | Library::CublasLt => &[],
            Library::Cublas => &[Library::CublasLt],
            Library::Cusparse => &[Library::NvJitLink],
            Library::Cusolver => &[Library::Cublas, Library::Cusparse],
        }
    }

    /// Prefix of files in the same directory that the library opens by plain name at run time. libnvrtc has no
    /// RPATH, so each compile fails unless its builtins are loaded already.
    fn companions(self) -> Option<&'static str> {
        (self == Library::Nvrtc).then_some("libnvrtc-builtins.so.13")
    }

    /// How to get it.
    fn remedy(self) -> &'static str {
        match self {
            Library::Cuda => "install the NVIDIA driver",
            Library::Nvrtc => {
                "pip install nvidia-cuda-nvrtc==13.0.88, or in this repository `cargo xtask setup`, or use an \
                 ahead-of-time bundle"
            }
            Library::NvJitLink => "pip install nvidia-nvjitlink",
            Library::CublasLt | Library::Cublas => "pip install nvidia-cublas",
            Library::Cusparse => "pip install nvidia-cusparse",
            Library::Cusolver => "pip install nvidia-cusolver",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.soname())
    }
}

/// A library was found nowhere; carries every place that was tried.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{library} was not found: {}, or set {LIB_DIR_VARIABLE} to its directory. Tried:{}",
    .library.remedy(), list(.tried)
)]
pub struct NotFound {
    /// The library.
    pub library: Library,
    /// Each place, and why it did not serve.
    pub tried: Vec<(PathBuf, String)>,
}

fn list(tried: &[(PathBuf, String)]) -> String {
    tried.iter().map(|(path, why)| format!("\n  {}: {why}", path.display())).collect()
}

/// A library that is loaded for the rest of the process.
#[derive(Debug)]
pub struct Loaded {
    /// The file, or the bare SONAME where the system loader found it.
    pub path: PathBuf,
    /// Keeps the library and its companions mapped, so that cudarc's open by name resolves to this copy.
    _handles: Vec<libloading::Library>,
}

/// Loads a library, or says where it was looked for. Searched once per process; later calls return the first answer.
pub fn load(library: Library) -> Result<&'static Loaded, NotFound> {
    static LOADED: [OnceLock<Result<Loaded, NotFound>>; Library::ALL.len()] =
        [const { OnceLock::new() }; Library::ALL.len()];
    LOADED[library as usize].get_or_init(|| find(library)).as_ref().map_err(NotFound::clone)
}

fn find(library: Library) -> Result<Loaded, NotFound> {
    let _span = tracing::debug_span!("locate", library = library.name()).entered();
    let mut tried = Vec::new();
    if hidden(library, &env::var(HIDE_VARIABLE).unwrap_or_default()) {
        tried.push((library.soname().into(), format!("hidden by {HIDE_VARIABLE}")));
        return Err(NotFound { library, tried });
    }
    for &dependency in library.dependencies() {
        // Absent here, it may still be found by the library's own RPATH; if not, opening the library says so.
        if let Err(error) = load(dependency) {
            tracing::debug!(%dependency, %error, "dependency not located");
        }
    }
    let system = library == Library::Cuda;
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let directories = configured(variable, system);
    let found = open_in(library, &directories, &mut tried)
        .or_else(|| open_by_name(library, &mut tried))
        .or_else(|| if system { None } else { open_in(library, &ask_python(&mut tried), &mut tried) });
    match found {
        Some(loaded) => {
            tracing::debug!(path = %loaded.path.display(), "loaded");
            Ok(loaded)
        }
        None => Err(NotFound { library, tried }),
    }
}

fn hidden(library: Library, list: &str) -> bool {
    list.split(',').any(|name| name.trim().eq_ignore_ascii_case(library.name()))
}

/// The directories that environment variables name, in order of preference.
fn configured(variable: impl Fn(&str) -> Option<std::ffi::OsString>, system: bool) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        variable(LIB_DIR_VARIABLE).iter().flat_map(|list| env::split_paths(list)).collect();
    if system {
        return directories;
    }
    for home in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(&variable) {
        directories.push(Path::new(&home).join("lib64"));
        for target in ["x86_64-linux", "sbsa-linux"] {
            directories.push(Path::new(&home).join("targets").join(target).join("lib"));
        }
    }
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(&variable) {
        let lib = Path::new(&prefix).join("lib");
        let pythons = std::fs::read_dir(&lib).into_iter().flatten().flatten();
        let mut wheels: Vec<PathBuf> = pythons
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
            .map(|entry| entry.path().join("site-packages").join(WHEEL_LIB))
            .collect();
        wheels.sort();
        directories.append(&mut wheels);
        directories.push(lib);
    }
    directories
}

/// pip's library directories of the `python3` on `PATH`.
fn ask_python(tried: &mut Vec<(PathBuf, String)>) -> Vec<PathBuf> {
    const SITE_PACKAGES: &str =
        "import site; print('\\n'.join(site.getsitepackages() + [site.getusersitepackages()]))";
    match Command::new("python3").args(["-c", SITE_PACKAGES]).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| Path::new(line).join(WHEEL_LIB))
            .collect(),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            tried.push(("python3".into(), format!("cannot list its site-packages: {why}")));
            Vec::new()
        }
        Err(error) => {
            tried.push(("python3".into(), format!("cannot be started: {error}")));
            Vec::new()
        }
    }
}

fn open_in(library: Library, directories: &[PathBuf], tried: &mut Vec<(PathBuf, String)>) -> Option<Loaded> {
    directories.iter().find_map(|directory| {
        let path = directory.join(library.soname());
        // Opening by absolute path is the point: a relative one would be searched by the loader.
        match path.canonicalize() {
            Ok(absolute) => open(library, absolute, tried),
            Err(error) => {
                tried.push((path, error.to_string()));
                None
            }
        }
    })
}

/// Opens `path` after its companions beside it.
fn open(library: Library, path: PathBuf, tried: &mut Vec<(PathBuf, String)>) -> Option<Loaded> {
    let mut handles = Vec::new();
    if let (Some(prefix), Some(directory)) = (library.companions(), path.parent()) {
        let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix)) {
            match open_one(&file.path()) {
                Ok(handle) => handles.push(handle),
                Err(why) => tried.push((file.path(), why)),
            }
        }
    }
    match open_one(&path) {
        Ok(handle) => {
            handles.push(handle);
            Some(Loaded { path, _handles: handles })
        }
        Err(why) => {
            tried.push((path, why));
            None
        }
    }
}

fn open_by_name(library: Library, tried: &mut Vec<(PathBuf, String)>) -> Option<Loaded> {
    let path = PathBuf::from(library.soname());
    match open_one(&path) {
        Ok(handle) => Some(Loaded { path, _handles: vec![handle] }),
        Err(why) => {
            tried.push((path, format!("system loader: {why}")));
            None
        }
    }
}

fn open_one(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: opening runs the library's initialisers. Only the CUDA libraries, under their SONAMEs, in directories
    // that the user or the system names, are opened, and they are built to be opened this way.
    unsafe { libloading::Library::new(path) }.map_err(|error| {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        why
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn the_search_order() {
        let env_root = tempfile::tempdir().unwrap();
        let wheel = env_root.path().join("lib/python3.12/site-packages");
        std::fs::create_dir_all(&wheel).unwrap();
        let prefix = env_root.path().to_str().unwrap().to_owned();
        let variable = |name: &str| -> Option<OsString> {
            match name {
                LIB_DIR_VARIABLE => Some("/own/a:/own/b".into()),
                "CUDA_HOME" => Some("/toolkit".into()),
                "VIRTUAL_ENV" => Some(prefix.clone().into()),
                _ => None,
            }
        };
        let expected = [
            PathBuf::from("/own/a"),
            "/own/b".into(),
            "/toolkit/lib64".into(),
            "/toolkit/targets/x86_64-linux/lib".into(),
            "/toolkit/targets/sbsa-linux/lib".into(),
            wheel.join(WHEEL_LIB),
            env_root.path().join("lib"),
        ];
        assert_eq!(configured(variable, false), expected);
        assert_eq!(configured(variable, true), expected[..2]);
    }

    #[test]
    fn a_missing_library_lists_every_place() {
        let empty = tempfile::tempdir().unwrap();
        let broken = tempfile::tempdir().unwrap();
        let file = broken.path().canonicalize().unwrap().join(Library::Cusolver.soname());
        std::fs::write(&file, "not an ELF file").unwrap();
        let mut tried = Vec::new();
        let directories = [empty.path().to_owned(), broken.path().to_owned()];
        assert!(open_in(Library::Cusolver, &directories, &mut tried).is_none());
        let message = NotFound { library: Library::Cusolver, tried }.to_string();
        for part in [
            empty.path().to_str().unwrap(),
            file.to_str().unwrap(),
            LIB_DIR_VARIABLE,
            "pip install nvidia-cusolver",
        ] {
            assert!(message.contains(part), "{part} is absent from: {message}");
        }
        assert!(message.contains("file too short") || message.contains("ELF"), "{message}");
    }

    #[test]
    fn the_driver_is_not_looked_for_among_wheels() {
        // Where there is a driver, the loader finds it first and there is nothing to see.
        if let Err(NotFound { tried, .. }) = find(Library::Cuda) {
            for (path, why) in &tried {
                assert!(path.ends_with(Library::Cuda.soname()), "{}: {why}", path.display());
                assert!(!path.to_string_lossy().contains("site-packages"), "{}: {why}", path.display());
            }
        }
    }

    #[test]
    fn hiding_is_by_whole_name() {
        assert!(hidden(Library::Cublas, "nvrtc, cuBLAS"));
        assert!(!hidden(Library::Cublas, "cublaslt"));
        assert!(!hidden(Library::Cublas, ""));
    }

    #[test]
    fn each_library_has_its_own_cell() {
        for (position, library) in Library::ALL.into_iter().enumerate() {
            assert_eq!(library as usize, position);
        }
    }
}
