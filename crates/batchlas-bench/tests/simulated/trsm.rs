//! trsm: `cta`, `few`, `sg_left`, `fused`.

use std::cmp::Ordering;

use batchlas::{Context, Dtype, Element, Error, TrsmOptions};
use batchlas_bench::conform::{Filter, Report, run};
use num_complex::Complex;

use crate::{committed, context, every_rounding_is_spelled, planted, simulated};

/// The committed corpus at orders of every kind (below, at and above a vector access, a quad, a block), up to a size. A kernel
/// is compiled for each order, which takes longer than running it, and a GPU runs them all.
fn check(family: &str, dtype: Dtype, orders: &[usize], max_elements: usize) {
    let ctx = context();
    let report = conform(&ctx, family, dtype, orders, max_elements);
    assert!(report.ok(), "{report}");
    assert!(report.lines.iter().all(|line| line.ran >= 60), "{report}");
    every_rounding_is_spelled(&ctx);
}

fn conform(ctx: &Context, family: &str, dtype: Dtype, orders: &[usize], max_elements: usize) -> Report {
    let filter = Filter {
        ops: vec!["trsm".into()],
        families: vec![family.into()],
        dtypes: vec![dtype],
        orders: orders.to_vec(),
        max_elements: Some(max_elements),
    };
    run(ctx, &committed(), &filter).expect("a run")
}

#[test]
fn cta_f32_is_clean_and_right() {
    check("cta", Dtype::F32, &[1, 3, 6, 8, 9, 17], 2 * 9 * 33);
}

#[test]
fn cta_f64_is_clean_and_right() {
    check("cta", Dtype::F64, &[2, 5, 7], 2 * 7 * 7);
}

#[test]
fn cta_c32_is_clean_and_right() {
    check("cta", Dtype::C32, &[1, 2, 3], 2 * 3 * 8);
}

#[test]
fn cta_c64_is_clean_and_right() {
    check("cta", Dtype::C64, &[1, 3, 6], 2 * 7 * 7);
}

#[test]
fn few_f32_is_clean_and_right() {
    check("few", Dtype::F32, &[1, 3, 8, 17], 2 * 17 * 17);
}

#[test]
fn few_f64_is_clean_and_right() {
    check("few", Dtype::F64, &[2, 3], 2 * 3 * 8);
}

#[test]
fn few_c32_is_clean_and_right() {
    check("few", Dtype::C32, &[1, 3], 2 * 3 * 8);
}

#[test]
fn few_c64_is_clean_and_right() {
    check("few", Dtype::C64, &[2, 3], 2 * 3 * 8);
}

#[test]
fn sg_left_c32_is_clean_and_right() {
    check("sg_left", Dtype::C32, &[1, 2, 3], 2 * 3 * 8);
}

#[test]
fn fused_f32_is_clean_and_right() {
    check("fused", Dtype::F32, &[1, 8, 17, 33], 2 * 33 * 33);
}

#[test]
fn fused_f64_is_clean_and_right() {
    check("fused", Dtype::F64, &[1, 8, 17, 33], 2 * 33 * 33);
}

#[test]
fn fused_c32_is_clean_and_right() {
    check("fused", Dtype::C32, &[1, 8, 17, 33], 2 * 33 * 33);
}

#[test]
fn fused_c64_is_clean_and_right() {
    check("fused", Dtype::C64, &[1, 8, 17, 33], 2 * 33 * 33);
}

/// The corpus sees each of these breaks: the direction of the elimination, conjugation, alpha, the end of the right-hand
/// sides.
#[test]
fn broken_solves_are_seen() {
    let direction = ("(U == Uplo::Lower) != Transposed", "(U == Uplo::Lower) == Transposed");
    for (family, dtype, (sound, broken)) in [
        ("cta", Dtype::F32, direction),
        ("few", Dtype::F32, direction),
        ("cta", Dtype::C32, ("x[i][c] = conj_if(conjugate, x[i][c]);", "")),
        ("cta", Dtype::F32, ("if (args.flags & ALPHA_ZERO)", "if (false)")),
        ("cta", Dtype::F32, ("live ? args.q : 0", "live ? args.q + 1 : 0")),
    ] {
        let report = conform(&planted(sound, broken), family, dtype, &[3], 3 * 3 * 3);
        assert!(!report.ok(), "{family} with `{broken}` for `{sound}`:\n{report}");
    }
}

/// Solves `batch` systems `A X = B` in place, all A in one array.
fn solve<T: Element>(
    ctx: &Context,
    route: &str,
    n: usize,
    q: usize,
    a: &[T],
    b: &[T],
) -> Result<Vec<T>, Error> {
    let batch = a.len() / (n * n);
    let options = TrsmOptions { route: Some(route.to_owned()), ..TrsmOptions::default() };
    let (factors, mut x) = (ctx.upload(a)?, ctx.upload(b)?);
    ctx.trsm(factors.view(n, n, n, n * n, batch)?, x.view_mut(n, q, n, n * q, batch)?, &options)?;
    ctx.download(&x)
}

/// The barrier behind the staging of the triangle, one of the whole group: DEF-01.
#[test]
fn a_staged_triangle_is_read_behind_a_barrier() {
    const N: usize = 16;
    let a: Vec<f32> = (0..N * N).map(|e| if e % (N + 1) == 0 { 2.0 } else { 0.25 }).collect();
    for (route, warps, barrier) in [
        ("cta:lanes=64:cols=1:warps=2", 2, "arch::sync_block();"),
        ("sg_left:warps=1", 1, "arch::sync_warp();"),
        ("fused:warps=2", 2, "arch::sync_block();"),
    ] {
        let b = vec![1.0f32; N * 64];
        let sound = context();
        let x = solve(&sound, route, N, 64, &a, &b).expect("a clean run");
        assert!((x[0] - 0.5).abs() < 1e-6 && (x[1] - 0.4375).abs() < 1e-6, "{:?}", &x[..2]);
        let threads: Vec<u32> =
            simulated(&sound).kernels().iter().map(|kernel| kernel.promise.threads).collect();
        assert_eq!(threads, [32 * warps], "{route}");

        let message = solve(&planted(barrier, ""), route, N, 64, &a, &b).expect_err("a race").to_string();
        assert!(message.contains("race"), "{route} without its barrier: {message}");
    }
}

/// What `fused` does for orders and right-hand sides that fill no block: each part of it left out is seen.
#[test]
fn every_guard_of_ragged_blocks_is_needed() {
    const N: usize = 13;
    const Q: usize = 5;
    let element = |e: usize| match (e % N).cmp(&(e / N % N)) {
        Ordering::Equal => 2.0,
        Ordering::Greater => 0.25,
        Ordering::Less => f64::NAN,
    };
    let a: Vec<f64> = (0..2 * N * N).map(element).collect();
    let b: Vec<f64> = (0..2 * N * Q).map(|e| e as f64).collect();
    let sound = solve(&context(), "fused", N, Q, &a, &b).expect("a clean run");
    assert!(sound.iter().all(|x| x.is_finite()), "{sound:?}");
    for (guard, broken) in [
        ("const bool inside = p < s && s < n;", "const bool inside = p < s;"),
        ("const bool inside = p < s && s < n;", "const bool inside = s < n;"),
        ("*element = zero<T>();", ""),
        ("load(s < n, e + s * step, one<T>())", "load(true, e + s * step, one<T>())"),
        ("store_run(live && left > 0, at, v);", "store_run(live, at, v);"),
        ("load_run(live && left > 1, at + args.b_unknown", "load_run(live, at + args.b_unknown"),
        ("const bool live = rhs + i * STEP < end;", "const bool live = true;"),
        ("arch::wait_async<0>();", ""),
    ] {
        let outcome = solve(&planted(guard, broken), "fused", N, Q, &a, &b);
        assert!(outcome.is_err() || outcome.is_ok_and(|x| x != sound), "{guard} can be left out");
    }
}

/// Right-hand sides dealt to several warps are those that one warp would have solved, to the bit; the last share is ragged, and
/// there are warps without one.
#[test]
fn right_hand_sides_shared_by_warps_are_the_same() {
    const N: usize = 6;
    const Q: usize = 5;
    let element = |e: usize| match (e % N).cmp(&(e / N % N)) {
        Ordering::Equal => 3.0,
        Ordering::Greater => 0.3 + e as f32 / 64.0,
        Ordering::Less => f32::NAN,
    };
    let a: Vec<f32> = (0..3 * N * N).map(element).collect();
    let b: Vec<f32> = (0..3 * N * Q).map(|e| e as f32).collect();
    let whole = solve(&context(), "few:rhs=8:lanes=8", N, Q, &a, &b).expect("a run");
    assert!(whole.iter().all(|x| x.is_finite()), "{whole:?}");
    for route in ["few:rhs=1:lanes=8:warps=2", "few:rhs=2:lanes=8", "few:rhs=4:lanes=8:warps=1"] {
        assert_eq!(solve(&context(), route, N, Q, &a, &b).expect("a run"), whole, "{route}");
    }
    let broken = planted("const u32 end = args.q - first_rhs;", "const u32 end = args.q;");
    let beyond = solve(&broken, "few:rhs=2:lanes=8", N, Q, &a, &b);
    assert!(beyond.is_err() || beyond.is_ok_and(|x| x != whole), "the last share has no end");
}

/// A zero on the diagonal gives what division gives, where it is divided by, and disturbs nothing else.
#[test]
fn a_zero_diagonal_disturbs_what_depends_on_it_alone() {
    fn check<T: Element>(route: &str) {
        const N: usize = 5;
        let triangle = |singular: bool| -> Vec<T> {
            let element = |e: usize| match (e % N).cmp(&(e / N)) {
                Ordering::Equal if singular && e / N == 2 => T::default(),
                Ordering::Equal => T::from_parts(2.0, 0.5),
                Ordering::Greater => T::from_parts(1.0, -0.25),
                Ordering::Less => T::from_parts(f64::NAN, f64::NAN),
            };
            (0..N * N).map(element).collect()
        };
        let ctx = context();
        let b: Vec<T> = (0..3 * N).map(|e| T::from_parts(1.0 + e as f64, 0.0)).collect();
        let clean = solve(&ctx, route, N, 1, &triangle(false).repeat(3), &b).expect("a run");
        let a = [triangle(false), triangle(true), triangle(false)].concat();
        let x = solve(&ctx, route, N, 1, &a, &b).expect("a run");
        for (e, (x, clean)) in x.iter().zip(&clean).enumerate() {
            let touched = (N + 2..2 * N).contains(&e);
            assert!(
                if touched { !x.finite() } else { x == clean },
                "{route} element {e}: {x} against {clean}"
            );
        }
    }
    for route in ["cta", "few", "sg_left", "fused"] {
        check::<f32>(route);
        check::<Complex<f32>>(route);
    }
}

/// Diagonals whose squares overflow or vanish are divided by like any other.
#[test]
fn complex_diagonals_of_any_size_are_inverted() {
    for size in [1e30f32, 1e-30] {
        let a = [Complex::new(3.0 * size, -4.0 * size), Complex::new(-3.0 * size, 4e-3 * size)];
        let b = [Complex::new(25.0 * size, 0.0), Complex::new(3.0 * size, 0.0)];
        for route in ["cta", "few", "fused"] {
            let x = solve(&context(), route, 1, 1, &a, &b).expect("a run");
            let expected = [Complex::new(3.0f32, 4.0), Complex::new(-1.0, -4e-3 / 3.0)];
            for (x, expected) in x.iter().zip(expected) {
                assert!((x - expected).norm() < 1e-5, "{route}: {x} against {expected}");
            }
        }
    }
}

/// One more than the last order is refused, not solved as the last: DEF-02.
#[test]
fn over_capacity_is_refused() {
    let (a, b) = (vec![1.0f32; 129 * 129], vec![1.0f32; 129]);
    for (route, n) in [("cta", 33), ("sg_left", 33), ("fused", 129)] {
        let (a, b) = (&a[..n * n], &b[..n]);
        let message = solve(&context(), route, n, 1, a, b).expect_err("a refusal").to_string();
        assert!(message.contains(&format!("n = {n}")), "{message}");
    }
}
