//! potrf, family `cta`.

use batchlas::{Dtype, InfoMut, PotrfOptions, Uplo, WorkspaceMut};
use batchlas_bench::matrices::{Kind, Random, definite, item};
use batchlas_bench::operands::{Layout, Store};
use batchlas_bench::verify::factor_residual;

use crate::{check_at_least, context};

// f32: one warp, two phases; f64: four warps, tensor cores, three phases.

#[test]
fn f32_is_clean_and_right() {
    check_at_least(20, "potrf", "cta", Dtype::F32, 3 * 64 * 64);
}

#[test]
fn f64_is_clean_and_right() {
    check_at_least(20, "potrf", "cta", Dtype::F64, 3 * 100 * 100);
}

#[test]
fn c32_is_clean_and_right() {
    check_at_least(20, "potrf", "cta", Dtype::C32, 3 * 33 * 33);
}

#[test]
fn c64_is_clean_and_right() {
    check_at_least(20, "potrf", "cta", Dtype::C64, 3 * 33 * 33);
}

#[test]
fn a_failed_item_holds_the_factor_before_the_failure_and_zeros() {
    let ctx = context();
    let factored = |route: &str, uplo, kind, n, at| {
        let matrix = item::<f64>(kind, n, at, 0, &mut Random::new(1, 0));
        let mut a = Store::new(Layout::Packed, n, n, 1, 0.0);
        for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
            a.set(0, i, j, matrix.at(i, j));
        }
        let mut on_device = a.upload(&ctx).expect("an upload");
        let options = PotrfOptions { uplo, route: Some(route.into()) };
        let run = |a: batchlas::MatBatchMut<'_, f64>| {
            ctx.potrf_in(a, InfoMut::absent(), WorkspaceMut::empty(ctx.device().place), &options)
        };
        on_device.with_mut(&ctx, run).expect("a factorisation");
        on_device.download(&ctx).expect("a download")
    };
    for (route, n) in [("tiny", 17), ("cta", 70), ("cta", 97)] {
        for (uplo, at) in Uplo::ALL.iter().flat_map(|&u| [1, n / 2 + 1, n].map(|at| (u, at))) {
            let clean = factored(route, uplo, Kind::Definite, n, at);
            let failed = factored(route, uplo, Kind::NegativePivot, n, at);
            for (i, j) in (0..n).flat_map(|j| (j..n).map(move |i| (i, j))) {
                let (row, col) = if uplo == Uplo::Lower { (i, j) } else { (j, i) };
                let expected = if j + 1 < at { clean.at(0, row, col) } else { 0.0 };
                assert_eq!(
                    failed.at(0, row, col),
                    expected,
                    "{route} {uplo} n = {n} at {at}: ({row}, {col})"
                );
            }
        }
    }
}

/// Products added to A one by one are each rounded to A's last place, and the residual grows as the root of the order: 2.5e-7
/// in f32 at order 128 (measured on an H200), where a library's is 1.0e-7.
#[test]
fn the_residual_does_not_grow_with_the_order() {
    let ctx = context();
    let n = 128;
    let matrix = definite::<f32>(n, &mut Random::new(1, 0));
    for route in ["cta", "lpanel:panel=8"] {
        let mut a = Store::new(Layout::Packed, n, n, 1, 0.0);
        for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
            a.set(0, i, j, matrix.at(i, j));
        }
        let mut on_device = a.upload(&ctx).expect("an upload");
        let options = PotrfOptions { uplo: Uplo::Lower, route: Some(route.into()) };
        on_device.with_mut(&ctx, |a| ctx.potrf(a, &options)?.wait()).expect("a factorisation");
        let factor = on_device.download(&ctx).expect("a download");
        let residual = n as f64 * Dtype::F32.epsilon() * factor_residual(&matrix, Uplo::Lower, &factor, 0);
        assert!(residual < 1.8e-7, "{route}: {residual:.2e}");
    }
}
