//! What can be seen without a GPU: arithmetic, refusals, and the launches that no library takes part in.

use std::any::Any;
use std::sync::Mutex;

use batchlas_core::seam::{FactorShape, SolveShape, UpdateShape};
use batchlas_core::{
    Diag, Event, Factor, InfoMut, Launch, MatBatchMut, PanelSolve, QueueError, Side, TrailingUpdate, Trans,
    Uplo, WorkspaceMut,
};
use num_complex::Complex;

use super::*;

const PLACE: Place = Place::Cuda(0);

fn device(place: Place) -> Device {
    Device { place, arch: "sm_90".into(), ..Device::cpu(1) }
}

/// A queue that notes the kernels launched and the zeros written on it, and has no memory.
struct Notes {
    device: Device,
    seen: Mutex<Vec<String>>,
}

impl Notes {
    fn new() -> Notes {
        Notes { device: device(PLACE), seen: Mutex::new(Vec::new()) }
    }

    fn note(&self, what: String) -> Result<(), QueueError> {
        self.seen.lock().unwrap().push(what);
        Ok(())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

#[allow(unsafe_code)]
impl Queue for Notes {
    fn device(&self) -> &Device {
        &self.device
    }
    fn in_order(&self) -> bool {
        true
    }
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), QueueError> {
        let name = launch.kernel.entry.trim_start_matches("batchlas::staging::");
        self.note(format!("{name} x {}, {} B", launch.grid, launch.args.len()))
    }
    fn alloc(&self, bytes: usize) -> Result<Memory, QueueError> {
        Err(QueueError::OutOfMemory { bytes, place: PLACE, reason: "there is none".into() })
    }
    fn write(&self, _: &mut Memory, _: usize, _: &[u8]) -> Result<(), QueueError> {
        unreachable!("the arm uploads nothing")
    }
    fn read(&self, _: &Memory, _: usize, _: &mut [u8]) -> Result<(), QueueError> {
        unreachable!("the arm waits for nothing")
    }
    unsafe fn zero(&self, address: u64, bytes: usize) -> Result<(), QueueError> {
        self.note(format!("zero {address} {bytes}"))
    }
    fn fence(&self) -> Result<(), QueueError> {
        Ok(())
    }
    fn record(&self) -> Result<Event, QueueError> {
        Ok(Event(Box::new(())))
    }
    fn wait(&self, _: &Event) -> Result<(), QueueError> {
        Ok(())
    }
    fn seconds_between(&self, _: &Event, _: &Event) -> Result<f64, QueueError> {
        unreachable!("nothing is timed")
    }
    fn copy(&self, _: &Memory, _: &mut Memory) -> Result<(), QueueError> {
        unreachable!("nothing is copied")
    }
    fn synchronize(&self) -> Result<(), QueueError> {
        unreachable!("the arm waits for nothing")
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[allow(unsafe_code)]
fn view<T: Scalar>(rows: usize, cols: usize, batch: usize) -> MatBatch<'static, T> {
    // SAFETY: the memory is never accessed: nothing in these tests runs on a device.
    unsafe { MatBatch::from_raw_strided(PLACE, 4096, rows, cols, rows.max(1), rows * cols, batch) }.unwrap()
}

#[allow(unsafe_code)]
fn view_mut<T: Scalar>(rows: usize, cols: usize, batch: usize) -> MatBatchMut<'static, T> {
    // SAFETY: as above.
    unsafe { MatBatchMut::from_raw_strided(PLACE, 4096, rows, cols, rows.max(1), rows * cols, batch) }
        .unwrap()
}

#[test]
fn parts_cover_the_batch_once() {
    for (batch, part) in
        [(0, 3), (1, 3), (3, 3), (4, 3), (CALL_ITEMS, CALL_ITEMS), (CALL_ITEMS + 1, CALL_ITEMS)]
    {
        let mut next = 0;
        for (start, items) in parts(batch, part) {
            assert_eq!(start, next);
            assert!((1..=part).contains(&items));
            next += items;
        }
        assert_eq!(next, batch, "{batch} by {part}");
    }
    assert_eq!(parts(1 << 20, CALL_ITEMS).count(), 17);
}

#[test]
fn scratch_stays_bounded_and_serves_at_least_one_item() {
    assert_eq!(squares_at_once(32, 8, 100), 100);
    assert_eq!(squares_at_once(32, 8, 1 << 20), 32_768, "256 MiB of 8 KiB squares");
    assert_eq!(squares_at_once(12_161, 16, 2), 1, "one square of 2.2 GiB");
    assert_eq!(squares_at_once(0, 8, 0), 1);
    assert_eq!(squares_at_once(usize::MAX, 16, 5), 1);
}

#[test]
fn few_or_large_items_are_run_one_by_one() {
    let cases = [(4, 2, true), (4, 3, false), (1024, 8, false), (1025, 8, true), (1025, 9, false)];
    for (n, batch, expected) in cases {
        assert_eq!(item_by_item(n, batch), expected, "n {n}, batch {batch}");
    }
}

#[test]
#[allow(unsafe_code)]
fn a_table_of_the_callers_is_used_as_it_is_unless_the_origin_moved() {
    // SAFETY: as in `view`.
    let table: MatBatch<'_, f64> = unsafe { MatBatch::from_raw_table(PLACE, 512, 8, 8, 9, 3) }.unwrap();
    assert_eq!(Items::of(&table).table(), Some(512));
    assert_eq!(Items::of(&table.items(1..3).unwrap()).table(), Some(520));
    assert_eq!(Items::of(&table.sub(0..4, 1..8).unwrap()).table(), None);
    assert_eq!(Items::of(&view::<f64>(8, 8, 3)).table(), None);
    assert!(item_at(&table, 0).is_none());
    let second = item_at(&view::<Complex<f64>>(8, 7, 3), 2).unwrap();
    assert_eq!((second.address, second.ld), (4096 + 2 * 56 * 16, 8));
}

#[test]
fn empty_problems_return_at_once_with_info_zeroed() {
    let (arm, queue) = (CudaArm::new(0), Notes::new());
    #[allow(unsafe_code)]
    // SAFETY: as in `view`.
    let info = unsafe { InfoMut::from_raw(PLACE, 256, 5) };
    let ran =
        arm.factor(&queue, Uplo::Lower, view_mut::<f32>(0, 0, 5), info, WorkspaceMut::empty(PLACE)).unwrap();
    assert_eq!((ran.to_string(), queue.take()), ("potrf=none".into(), vec!["zero 256 20".into()]));
    assert_eq!(arm.factor_workspace(&queue, Uplo::Lower, view::<f32>(0, 0, 5)).unwrap(), 0);
    let (side, uplo, trans, diag) = (Side::Left, Uplo::Lower, Trans::No, Diag::Unit);
    let ran =
        arm.solve(&queue, side, uplo, trans, diag, 1.0, view::<f64>(4, 4, 2), view_mut(4, 0, 2)).unwrap();
    assert_eq!((ran.to_string(), queue.take()), ("trsm=none".into(), vec![]));
}

#[test]
fn without_a_product_no_library_is_asked_and_nothing_is_read() {
    let (arm, queue) = (CudaArm::new(0), Notes::new());
    let (side, uplo, trans, diag) = (Side::Right, Uplo::Upper, Trans::No, Diag::NonUnit);
    arm.solve(&queue, side, uplo, trans, diag, 0.0, view::<f32>(4, 4, 200), view_mut(3, 4, 200)).unwrap();
    // 4 lanes for 3 rows, 4 columns, 200 items: 3200 threads.
    assert_eq!(queue.take(), ["scale<float> x 13, 80 B"]);
    let no = Trans::No;
    let gemm = |k, alpha, beta| {
        arm.gemm(&queue, no, no, alpha, view::<f64>(3, k, 2), view(k, 5, 2), beta, view_mut(3, 5, 2))
            .unwrap();
        queue.take()
    };
    assert_eq!(gemm(0, 1.0, 0.5), ["scale<double> x 1, 80 B"]);
    assert_eq!(gemm(4, 0.0, 0.0), ["scale<double> x 1, 80 B"]);
    assert_eq!(gemm(0, 1.0, 1.0), Vec::<String>::new(), "C stays as it is");
    arm.herk(&queue, Uplo::Lower, no, 0.0, view::<Complex<f32>>(3, 4, 2), 1.0, view_mut(3, 3, 2)).unwrap();
    assert_eq!(
        queue.take(),
        ["fold<batchlas::staging::Complex<float>> x 1, 88 B"],
        "the diagonal becomes real with beta = 1 too"
    );
}

#[test]
fn operands_that_do_not_fit_are_refused_before_any_launch() {
    let (arm, queue) = (CudaArm::new(0), Notes::new());
    let no = Trans::No;
    let gemm = |a: [usize; 2], b: [usize; 2], c: [usize; 2], batch| {
        let (a, b, c) = (view::<f64>(a[0], a[1], 2), view(b[0], b[1], batch), view_mut(c[0], c[1], 2));
        arm.gemm(&queue, no, Trans::Trans, 1.0, a, b, 1.0, c).unwrap_err().to_string()
    };
    for (message, words) in [
        (gemm([3, 4], [5, 4], [2, 5], 2), ["op(A)", "3"]),
        (gemm([3, 4], [5, 4], [3, 4], 2), ["op(B)", "5"]),
        (gemm([3, 4], [5, 6], [3, 5], 2), ["inner", "6"]),
        (gemm([3, 4], [5, 4], [3, 5], 3), ["batch", "3"]),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    let mut host = [0.0f64; 4];
    let a = MatBatchMut::packed(&mut host, 2, 2, 1).unwrap();
    let message = arm
        .factor(&queue, Uplo::Lower, a, InfoMut::absent(), WorkspaceMut::empty(PLACE))
        .unwrap_err()
        .to_string();
    assert!(message.contains("A lies in host memory"), "{message}");
    assert!(queue.take().is_empty());
}

#[test]
fn another_device_is_refused_by_name() {
    let arm = CudaArm::new(1);
    let shape = UpdateShape { m: 1, n: 1, k: 1, batch: 1 };
    for place in [PLACE, Place::Host] {
        let why = TrailingUpdate::<f32>::can_update(&arm, &device(place), &shape).unwrap_err();
        assert!(why.contains("serves cuda:1") && why.contains(&place.to_string()), "{why}");
    }
}

#[test]
fn a_queue_that_is_no_stream_is_an_error() {
    let message = CudaArm::new(0).prepare(&Notes::new()).unwrap_err().to_string();
    assert!(message.contains("no CUDA stream"), "{message}");
}

/// In processes of their own, since a library that is found stays found. The child is this test with a variable set.
#[test]
fn a_missing_library_refuses_only_the_arms_that_need_it() {
    const CHILD: &str = "BATCHLAS_TEST_HIDDEN";
    let arm = CudaArm::new(0);
    let device = device(PLACE);
    if let Ok(hidden) = std::env::var(CHILD) {
        let factor = FactorShape { uplo: Uplo::Lower, n: 4, batch: 4 };
        let (side, uplo, trans, diag) = (Side::Left, Uplo::Lower, Trans::No, Diag::Unit);
        let solve = SolveShape { side, uplo, trans, diag, n: 4, q: 1, batch: 4 };
        let update = UpdateShape { m: 1, n: 1, k: 1, batch: 1 };
        let refusals = [
            ("cusolver", Factor::<f64>::can_factor(&arm, &device, &factor)),
            ("cublas", PanelSolve::<f64>::can_solve(&arm, &device, &solve)),
            ("cublas", TrailingUpdate::<f64>::can_update(&arm, &device, &update)),
        ];
        for (library, can) in refusals {
            let said = can.err().unwrap_or_default();
            assert_eq!(
                said.contains("hidden by BATCHLAS_CUDA_HIDE"),
                hidden.contains(library),
                "{library}: {said}"
            );
        }
        let report = CudaArm::report();
        assert_eq!(report.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["cuBLAS", "cuSOLVER"]);
        let absent = |name: &str| report.iter().any(|(n, r)| *n == name && r.is_err());
        assert!(!hidden.contains("cublas") || absent("cuBLAS"));
        assert!(!hidden.contains("cusolver") || absent("cuSOLVER"));
        return;
    }
    for hidden in ["cusolver", "cublas", "cublas,cusolver"] {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cuda::tests::a_missing_library_refuses_only_the_arms_that_need_it"])
            .env(CHILD, hidden)
            .env("BATCHLAS_CUDA_HIDE", hidden)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{hidden}: {output}");
    }
}
