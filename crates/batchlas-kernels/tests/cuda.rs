//! What the CUDA queue does where there is no driver, and the ahead-of-time path. What needs a device is in
//! `batchlas_kernels::cuda::selftest`.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use batchlas_core::{Kernel, KernelSource, Promise};
use batchlas_kernels::bundle::{self, Bundle};
use batchlas_kernels::cuda::{CudaDevice, CudaQueue, device_count, probe_devices, selftest};
use batchlas_kernels::residency::Breach;
use batchlas_kernels::store::{BUNDLE_VARIABLE, KernelStore};
use batchlas_kernels::{Arch, Error};

/// In a process of its own, since a library that is found stays found: true there, and false in the process that
/// starts it, after it succeeded.
fn in_child(test: &str, environment: &[(&str, &Path)]) -> bool {
    const CHILD: &str = "BATCHLAS_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let child = Command::new(std::env::current_exe().expect("a test has a file"))
        .args(["--exact", test])
        .env(CHILD, "1")
        .envs(environment.iter().copied())
        .output()
        .expect("a test can be started");
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

#[test]
fn without_a_driver_everything_is_an_error_that_says_so() {
    let hidden = [("BATCHLAS_CUDA_HIDE", Path::new("cuda"))];
    if !in_child("without_a_driver_everything_is_an_error_that_says_so", &hidden) {
        return;
    }
    let store = Arc::new(KernelStore::default());
    let errors = [
        device_count().unwrap_err(),
        CudaQueue::new(0).unwrap_err(),
        CudaDevice::open(7, store).unwrap_err(),
        CudaDevice::shared(0).unwrap_err(),
    ];
    for error in errors {
        let message = error.to_string();
        for part in ["libcuda.so.1 was not found", "install the NVIDIA driver", "hidden by"] {
            assert!(message.contains(part), "{part} is absent from: {message}");
        }
    }
    let report = probe_devices();
    assert!(report.driver.is_err() && report.devices.is_empty());
    assert_eq!(report.libraries.len(), 6);
    let text = report.to_string();
    for part in ["driver   unusable: libcuda.so.1 was not found", "libnvrtc.so.13   /", "libcublas.so.13   "]
    {
        assert!(text.contains(part), "{part} is absent from: {text}");
    }
    for (name, check) in selftest::all() {
        let message = check().expect_err(name);
        assert!(message.contains("libcuda.so.1 was not found"), "{name}: {message}");
    }
}

#[test]
fn a_bundle_of_the_environment_is_read_first_and_a_bad_one_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (good, bad) = (root.path().join("good.bundle"), root.path().join("bad.bundle"));
    let test = "a_bundle_of_the_environment_is_read_first_and_a_bad_one_is_named";
    if std::env::var_os(BUNDLE_VARIABLE).is_some() {
        let store = KernelStore::from_env();
        if std::env::var_os("BATCHLAS_TEST_BAD").is_some() {
            let message = store.unwrap_err().to_string();
            assert!(message.contains("bad.bundle") && message.contains("not a bundle"), "{message}");
        } else {
            // The compiler is hidden, so only the bundle can have it.
            store.unwrap().kernel(&reverse(32, 1), sm_90()).unwrap();
        }
        return;
    }
    let bytes = bundle::compile([reverse(32, 1)], sm_90(), 1, |_, _| ()).unwrap().bytes;
    bundle::write(&good, &bytes).unwrap();
    std::fs::write(&bad, "something else").unwrap();
    let hide = ("BATCHLAS_CUDA_HIDE", Path::new("nvrtc"));
    assert!(!in_child(test, &[(BUNDLE_VARIABLE, &good), hide]));
    let both = std::env::join_paths([&good, &bad]).unwrap();
    assert!(!in_child(test, &[(BUNDLE_VARIABLE, Path::new(&both)), ("BATCHLAS_TEST_BAD", Path::new("1"))]));
}

static SOURCE: KernelSource =
    KernelSource { name: "tests/kernels/copy.cu", text: include_str!("kernels/copy.cu") };

fn sm_90() -> Arch {
    "sm_90".parse().expect("an architecture")
}

fn reverse(threads: u32, min_blocks: u32) -> Kernel {
    let promise = Promise { threads, min_blocks, max_dynamic_shared: 0 };
    Kernel { source: &SOURCE, entry: format!("test::reverse<float, {threads}>"), promise }
}

#[test]
fn a_bundle_is_compiled_on_several_threads() {
    let kernels: Vec<Kernel> = (1..=5).map(|i| reverse(32 * i, 1)).collect();
    let seen = Mutex::new(Vec::new());
    let bytes = bundle::compile(kernels.clone(), sm_90(), 2, |done, total| {
        seen.lock().unwrap().push((done, total));
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (1..=5).map(|done| (done, 5)).collect::<Vec<_>>());
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("kernels.bundle");
    bundle::write(&path, &bytes.unwrap().bytes).unwrap();
    assert_eq!(Bundle::open(&path).unwrap().len(), 5);
    let store = KernelStore::new(vec![Bundle::open(&path).unwrap()], None);
    for (i, kernel) in (1..).zip(&kernels) {
        assert_eq!(store.kernel(kernel, sm_90()).unwrap().usage.shared, 128 * i);
    }
}

#[test]
fn a_bundle_refuses_a_kernel_that_breaks_its_promise() {
    let kernels = [reverse(32, 1), reverse(64, 1 << 20)];
    let compiled = bundle::compile(kernels, sm_90(), 2, |_, _| ()).unwrap();
    match &compiled.refused[..] {
        [Error::Residency(error)] => {
            assert_eq!(error.kernel, "test::reverse<float, 64>");
            assert!(matches!(error.breaches[..], [Breach::Registers { .. }]), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("kernels.bundle");
    bundle::write(&path, &compiled.bytes).unwrap();
    assert_eq!(Bundle::open(&path).unwrap().len(), 1, "the other kernel is in the bundle");
}
