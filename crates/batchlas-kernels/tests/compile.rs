//! The compile path with the real NVRTC, on any machine: compile, read, cache, bundle.

use std::path::Path;
use std::sync::Arc;

use batchlas_kernels::bundle::{self, Bundle};
use batchlas_kernels::cache::{DEFAULT_LIMIT, DiskCache};
use batchlas_kernels::headers::{HEADERS, Header};
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_kernels::store::KernelStore;
use batchlas_kernels::{Error, Image, Key, cubin};

const SOURCE: &str = include_str!("kernels/copy.cu");
const REVERSE: &str = "test::reverse<float, 32>";

fn nvrtc() -> Nvrtc {
    Nvrtc::load()
        .unwrap_or_else(|error| panic!("{error}\n\nThese tests compile kernels: run `cargo xtask setup`."))
}

fn job<'a>(entries: &'a [&'a str], arch: &str) -> Job<'a> {
    Job {
        source_name: "tests/kernels/copy.cu",
        source: SOURCE,
        headers: HEADERS,
        entries,
        arch: arch.parse().expect("an architecture"),
        options: &[],
    }
}

#[test]
fn name_expressions_become_kernels_of_a_cubin() {
    let entries = [REVERSE, "test::reverse<double, 64>"];
    for arch in ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_120"] {
        let compiled = nvrtc().cubin(&job(&entries, arch)).unwrap();
        let shared: Vec<u32> = compiled.entries.iter().map(|entry| entry.usage.shared).collect();
        assert_eq!(shared, [128, 512], "{arch}: in the order of the job");
        for entry in &compiled.entries {
            assert_eq!(entry.usage.barriers, 1);
            assert!((1..64).contains(&entry.usage.registers), "{entry:?}");
            assert_eq!((entry.usage.frame, entry.usage.spill_stores), (0, 0));
            let code = cubin::code_size(&compiled.image, &entry.lowered).unwrap();
            assert!((64..4096).contains(&code) && code.is_multiple_of(16), "{arch}: {code}");
        }
        assert_ne!(compiled.entries[0].lowered, compiled.entries[1].lowered);
        let message = cubin::code_size(&compiled.image, "absent").unwrap_err().to_string();
        assert!(message.contains("absent") && message.contains(&compiled.entries[0].lowered), "{message}");
    }
    assert!(cubin::code_size(b"not an ELF file", "k").is_err());
}

#[test]
fn ptx_for_the_simulator_has_lines_and_names() {
    let ptx = nvrtc().ptx(&job(&[REVERSE], "sm_90")).unwrap();
    for part in
        [".target sm_90", ".loc", "tests/kernels/copy.cu", "bar.sync", &format!(".entry {}", ptx.lowered[0])]
    {
        assert!(ptx.text.contains(part), "{part} is absent from:\n{}", ptx.text);
    }
    assert!(!ptx.text.contains('\0'));
}

#[test]
fn a_frame_in_a_function_that_is_not_inlined_is_seen() {
    let compiled = nvrtc().cubin(&job(&["test::calls<7>"], "sm_90")).unwrap();
    assert!(compiled.entries[0].usage.frame >= 128, "{:?}", compiled.entries[0]);
}

#[test]
fn errors_name_the_file_and_the_line() {
    let broken = [Header { name: "batchlas/broken.cuh", text: "\n\nint x = y;\n" }];
    let cases = [
        ("int f() { return nothing; }", &[][..], "where/it/is.cuh(1): error"),
        ("#include <batchlas/broken.cuh>", &broken[..], "batchlas/broken.cuh(3): error"),
        ("#include <batchlas/absent.cuh>", &broken[..], "batchlas/absent.cuh"),
    ];
    for (source, headers, expected) in cases {
        let job = Job { source_name: "where/it/is.cuh", source, headers, ..job(&[], "sm_90") };
        let message = nvrtc().cubin(&job).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("NVRTC_ERROR_COMPILATION"), "{message}");
    }
    let message = nvrtc().cubin(&job(&["test::absent<3>"], "sm_90")).unwrap_err().to_string();
    assert!(message.contains("test::absent<3>"), "{message}");
    let message = nvrtc().cubin(&job(&[REVERSE], "sm_12")).unwrap_err().to_string();
    assert!(message.contains("sm_12") && message.contains("gpu-architecture"), "{message}");
}

/// Beyond the static limit of shared memory the compiler fails and its log says nothing of the kind.
#[test]
fn too_much_shared_memory_is_an_error_with_the_whole_log() {
    let source = "__global__ void k(float *p) { __shared__ float s[30000]; s[threadIdx.x] = *p; __syncthreads(); *p = s[3]; }";
    let job = Job { source, ..job(&["k"], "sm_90") };
    match nvrtc().cubin(&job) {
        Err(Error::Compile { log, .. }) => assert!(log.contains("120000 bytes smem"), "{log}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_that_was_not_asked_for_is_unmatched() {
    let source = "__global__ void asked() {} \n __global__ void unasked() {}";
    let job = Job { source, ..job(&["asked"], "sm_90") };
    match nvrtc().cubin(&job) {
        Err(Error::EntriesUnmatched { missing, unexpected }) => {
            assert!(missing.is_empty());
            assert!(unexpected[0].contains("unasked"), "{unexpected:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_that_c_cannot_hold_is_an_error() {
    let job = Job { source: "int x;\0int y;", ..job(&[], "sm_90") };
    let message = nvrtc().cubin(&job).unwrap_err().to_string();
    assert!(message.contains("offset 6"), "{message}");
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(directory).expect("a directory");
    files.map(|file| file.expect("an entry").path()).collect()
}

#[test]
fn the_store_keeps_kernels_in_memory_and_on_disk() {
    let root = tempfile::tempdir().unwrap();
    let store = || KernelStore::new(Vec::new(), Some(DiskCache::new(root.path(), DEFAULT_LIMIT)));
    let entries = [REVERSE];
    let job = job(&entries, "sm_90");
    let first = store();
    let image = first.get(&job).unwrap();
    assert!(Arc::ptr_eq(&image, &first.get(&job).unwrap()), "the second call is served from memory");
    let [path] = &files(root.path())[..] else { panic!("one entry") };
    // Another process reads the file: plant a different kernel there and see it come back.
    let planted = Image { lowered: "planted".into(), ..(*image).clone() };
    std::fs::write(path, planted.encode()).unwrap();
    assert_eq!(store().get(&job).unwrap().lowered, "planted");
    // A corrupt file is compiled again and replaced.
    std::fs::write(path, &planted.encode()[..100]).unwrap();
    assert_eq!(*store().get(&job).unwrap(), *image);
    assert_eq!(Image::decode(&std::fs::read(path).unwrap()), Ok((*image).clone()));
    // A different release of the compiler has files of its own.
    assert!(path.to_str().unwrap().contains(&Key::of(&job).with_compiler(&nvrtc().version()).to_string()));
}

#[test]
fn a_cache_that_cannot_be_written_changes_nothing() {
    let store = KernelStore::new(Vec::new(), Some(DiskCache::new("/dev/null/cache", DEFAULT_LIMIT)));
    assert_eq!(store.get(&job(&[REVERSE], "sm_90")).unwrap().usage.shared, 128);
}

#[test]
fn concurrent_callers_share_one_compile() {
    let store = KernelStore::default();
    let entries = [REVERSE];
    let job = job(&entries, "sm_90");
    let images: Vec<Arc<Image>> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(|| store.get(&job).unwrap())).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for image in &images {
        assert!(Arc::ptr_eq(image, &images[0]), "each compile makes its own");
    }
}

#[test]
fn a_failure_is_not_kept() {
    let store = KernelStore::default();
    let broken = Job { source: "__global__ void k() { nothing; }", ..job(&["k"], "sm_90") };
    for _ in 0..2 {
        assert!(matches!(store.get(&broken), Err(Error::Compile { .. })));
    }
}

#[test]
fn a_bundle_is_read_before_anything_else() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("kernels.bundle");
    let entries = [REVERSE];
    let job = job(&entries, "sm_90");
    let image = Image::of(nvrtc().cubin(&job).unwrap()).unwrap();
    let marked = Image { lowered: "bundled".into(), ..image };
    bundle::write(&path, &bundle::encode(&nvrtc().version(), &[(Key::of(&job), marked)])).unwrap();
    let store = KernelStore::new(vec![Bundle::open(&path).unwrap()], None);
    assert_eq!(store.get(&job).unwrap().lowered, "bundled");
    let other = ["test::reverse<float, 64>"];
    assert_ne!(store.get(&Job { entries: &other, ..job }).unwrap().lowered, "bundled");
}

/// In a process of its own, since a library that is found stays found. The child is this test with a variable set.
#[test]
fn without_the_compiler_a_bundle_serves_and_the_rest_is_a_clear_error() {
    const CHILD: &str = "BATCHLAS_TEST_BUNDLE";
    let entries = [REVERSE];
    let job = job(&entries, "sm_90");
    if let Some(path) = std::env::var_os(CHILD) {
        let store = KernelStore::new(vec![Bundle::open(&path).unwrap()], None);
        assert_eq!(store.get(&job).unwrap().usage.shared, 128);
        let other = ["test::reverse<float, 64>"];
        let message = store.get(&Job { entries: &other, ..job }).unwrap_err().to_string();
        for part in
            ["test::reverse<float, 64>", "sm_90", path.to_str().unwrap(), "hidden by", "cargo xtask setup"]
        {
            assert!(message.contains(part), "{part} is absent from: {message}");
        }
        let message = KernelStore::default().get(&job).unwrap_err().to_string();
        assert!(message.contains("libnvrtc.so.13 was not found"), "{message}");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("kernels.bundle");
    let image = Image::of(nvrtc().cubin(&job).unwrap()).unwrap();
    bundle::write(&path, &bundle::encode(&nvrtc().version(), &[(Key::of(&job), image)])).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_the_compiler_a_bundle_serves_and_the_rest_is_a_clear_error"])
        .env(CHILD, &path)
        .env("BATCHLAS_CUDA_HIDE", "nvrtc")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}
