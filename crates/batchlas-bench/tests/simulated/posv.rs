//! posv and potrs: families `tiny` and `cta`, and mixed precision.

use batchlas::{Context, Dtype, Element, PosvOptions, PotrfOptions, PotrsOptions, Uplo, WorkspaceMut};
use batchlas_bench::matrices::{Random, Square, definite};
use batchlas_bench::operands::{Layout, Store};
use batchlas_bench::verify::{in_triangle, same_bits, solve_residual, untouched};
use num_complex::Complex;

use crate::{check, check_at_least, context};

#[test]
fn posv_tiny_f32_is_clean_and_right() {
    check("posv", "tiny", Dtype::F32, 3 * 7 * 7);
}

#[test]
fn posv_tiny_f64_is_clean_and_right() {
    check("posv", "tiny", Dtype::F64, 3 * 17 * 17);
}

#[test]
fn posv_tiny_c32_is_clean_and_right() {
    check_at_least(40, "posv", "tiny", Dtype::C32, 3 * 6 * 6);
}

#[test]
fn posv_tiny_c64_is_clean_and_right() {
    check_at_least(40, "posv", "tiny", Dtype::C64, 3 * 6 * 6);
}

/// `cta` needs a factorisation for `posv`: potrf's `tiny`, the only one without a vendor. `potrs` needs nothing.
#[test]
fn posv_cta_is_clean_and_right() {
    check("posv", "cta", Dtype::F32, 3 * 9 * 9);
    check_at_least(40, "posv", "cta", Dtype::C64, 3 * 6 * 6);
}

#[test]
fn potrs_cta_is_clean_and_right() {
    for dtype in Dtype::ALL {
        check_at_least(4, "potrs", "cta", dtype, 50 * 9 * 9);
    }
}

/// Several blocks of rows, the last one partial, by one warp and by several, with more right-hand sides than a unit takes:
/// bit-identical to each other, and right.
#[test]
fn potrs_cta_solves_across_blocks() {
    let (n, nrhs, batch, ld) = (70, 3, 2, 72);
    let (host, device) = (Context::cpu(1).expect("a CPU"), context());
    for uplo in [Uplo::Lower, Uplo::Upper] {
        let items: Vec<Square<f64>> = (0..batch).map(|b| definite(n, &mut Random::new(5, b))).collect();
        let mut a = vec![f64::NAN; ld * n * batch];
        for (b, j, i) in (0..batch).flat_map(|b| (0..n).flat_map(move |j| (0..n).map(move |i| (b, j, i)))) {
            if in_triangle(uplo, i, j) {
                a[(b * n + j) * ld + i] = items[b].at(i, j);
            }
        }
        let mut factor = host.upload(&a).expect("memory");
        let view = factor.view_mut(n, n, ld, ld * n, batch).expect("a view");
        host.potrf(view, &PotrfOptions { uplo, route: None }).expect("a factor").wait().expect("a factor");
        let factor = device.upload(&host.download(&factor).expect("a factor")).expect("memory");
        let rhs = Store::new(Layout::Packed, n, nrhs, batch, 1.0);
        let solved = ["cta:rhs=2:warps=1:units=2", "cta:rhs=4:warps=2"].map(|route| {
            let mut x = rhs.upload(&device).expect("memory");
            let options = PotrsOptions { uplo, route: Some(route.into()) };
            let a = factor.view(n, n, ld, ld * n, batch).expect("a view");
            x.with_mut(&device, |x| device.potrs(a, x, &options)).unwrap_or_else(|e| panic!("{route}: {e}"));
            x.download(&device).expect("X")
        });
        same_bits("X by one warp and by two", &solved[0], &solved[1], |_, _, _| true).expect("the same bits");
        for (b, item) in items.iter().enumerate() {
            let residual = solve_residual(item, &rhs, &solved[0], b);
            assert!(residual < 50.0, "{uplo}: {residual}");
        }
    }
}

/// Of four items, the first is refined, the second has no factor in half the precision, the third has none at all, and the
/// fourth has one that refinement gains too little with.
fn mixed<T: Element>(uplo: Uplo, n: usize) {
    let (ctx, nrhs, batch) = (context(), 2, 4);
    let mut items: Vec<Square<T>> = (0..batch).map(|b| definite(n, &mut Random::new(7, b))).collect();
    for i in 0..n {
        for j in 0..n {
            // The last pivot is 1e-9 after the loss of n - 1, which single precision does not see.
            let arrow = match (i.max(j) == n - 1, i == j) {
                (true, true) => (n - 1) as f64 + 1e-9,
                (true, false) | (false, true) => 1.0,
                (false, false) => 0.0,
            };
            // The second pivot is 2.0e-7, and 2.4e-7 in single precision.
            let near = if i + j == 1 { 1.0 - 1e-7 } else { f64::from(u8::from(i == j)) };
            items[1].set(i, j, T::from_parts(arrow, 0.0));
            items[3].set(i, j, T::from_parts(near, 0.0));
        }
    }
    items[2].set(n / 2, n / 2, T::from_parts(-1.0, 0.0));
    let mut a = Store::new(Layout::Padded, n, n, batch, T::from_parts(f64::NAN, f64::NAN));
    let mut b = Store::new(Layout::Padded, n, nrhs, batch, T::from_parts(-999.0, 777.0));
    let mut random = Random::new(8, 0);
    for (item, matrix) in items.iter().enumerate() {
        for (i, j) in
            (0..n).flat_map(|j| (0..n).map(move |i| (i, j))).filter(|&(i, j)| in_triangle(uplo, i, j))
        {
            a.set(item, i, j, matrix.at(i, j));
        }
        (0..nrhs).for_each(|s| (0..n).for_each(|i| b.set(item, i, s, random.scalar())));
    }
    let options = PosvOptions { uplo, ..Default::default() };
    let (mut on_a, mut on_b) = (a.upload(&ctx).expect("memory"), b.upload(&ctx).expect("memory"));
    let mut info = ctx.upload(&[77; 4]).expect("memory");
    let mut iterations = ctx.upload(&[77; 4]).expect("memory");
    on_a.with_mut(&ctx, |a| {
        on_b.with_mut(&ctx, |b| {
            let bytes = ctx.posv_mixed_workspace(a.rb(), &b, &options)?;
            let mut memory = ctx.queue().alloc(bytes)?;
            ctx.queue().write(&mut memory, 0, &vec![0xFF; bytes])?;
            let workspace = WorkspaceMut::over(&mut memory);
            ctx.posv_mixed_in(a, b, info.info_mut(), iterations.info_mut(), workspace, &options)
        })
    })
    .unwrap_or_else(|error| panic!("{uplo}: {error}"));
    let (after_a, after_b) = (on_a.download(&ctx).expect("A"), on_b.download(&ctx).expect("B"));
    let iterations = ctx.download(&iterations).expect("iterations");
    assert_eq!(ctx.download(&info).expect("info"), [0, 0, n as i32 / 2 + 1, 0], "{uplo} n = {n}");
    assert!(
        (2..6).contains(&iterations[0]) && iterations[1..] == [-1, -1, -1],
        "{uplo} n = {n}: {iterations:?}"
    );
    untouched("A", &a, &after_a, |item, i, j| item > 0 && in_triangle(uplo, i, j)).expect("A as it was");
    untouched("B", &b, &after_b, |item, _, _| item != 2).expect("B as it was");
    for item in [0, 1, 3] {
        let residual = solve_residual(&items[item], &b, &after_b, item);
        assert!(residual < 50.0, "{uplo} n = {n}, item {item}: {residual}");
    }
}

#[test]
fn mixed_precision_refines_falls_back_and_reports() {
    for uplo in [Uplo::Lower, Uplo::Upper] {
        mixed::<f64>(uplo, 5);
        mixed::<Complex<f64>>(uplo, 20);
    }
}
