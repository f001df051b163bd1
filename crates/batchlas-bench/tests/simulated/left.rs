//! potrf, families `left` and `blocked`: one tile or block, two, and more, whole and not. Barriers are broken by
//! `cargo xtask races`.

use batchlas::{Dtype, PotrfOptions, Uplo};
use batchlas_bench::conform::Report;
use batchlas_bench::corpus::FactorCase;
use batchlas_bench::matrices::{Random, definite};
use batchlas_bench::operands::Layout;

use crate::{committed, context, edited, every_rounding_is_spelled, planted};

/// Runs cases of the committed corpus by name, with other orders and batches of 2.
fn conform(
    ctx: &batchlas::Context,
    family: &str,
    dtype: Dtype,
    cases: &[(&str, &[usize], &[Layout])],
) -> Report {
    let mut corpus = committed();
    let all = std::mem::take(&mut corpus.factor);
    for (name, n, layout) in cases {
        let case = all.iter().find(|case| case.name == *name).expect("a case of this name");
        corpus.factor.push(FactorCase {
            n: n.to_vec(),
            batch: vec![2],
            layout: layout.to_vec(),
            ..case.clone()
        });
    }
    let report = crate::conform(ctx, &corpus, "potrf", family, dtype, None);
    assert!(report.lines.len() == 1 && report.lines[0].ran > 0, "nothing ran\n{report}");
    report
}

fn check(family: &str, dtype: Dtype, cases: &[(&str, &[usize], &[Layout])]) {
    let ctx = context();
    let report = conform(&ctx, family, dtype, cases);
    assert!(report.ok(), "{report}");
    every_rounding_is_spelled(&ctx);
}

#[test]
fn f64_is_clean_and_right() {
    check(
        "left",
        Dtype::F64,
        &[
            ("orders", &[1, 64, 130], &[Layout::Packed]),
            ("orders", &[67], &[Layout::Pointers]),
            ("negative pivots", &[70], &[Layout::Padded]),
            ("NaN pivots", &[130], &[Layout::Padded]),
        ],
    );
}

#[test]
fn f32_is_clean_and_right() {
    check("left", Dtype::F32, &[("orders", &[132], &[Layout::Packed]), ("orders", &[67], &[Layout::Padded])]);
}

#[test]
fn c32_is_clean_and_right() {
    check("left", Dtype::C32, &[("orders", &[130], &[Layout::Packed])]);
}

#[test]
fn c64_is_clean_and_right() {
    check("left", Dtype::C64, &[("orders", &[67], &[Layout::Padded])]);
}

#[test]
fn broken_kernels_are_seen() {
    // The test that the kernel is right must be able to fail.
    for (sound, broken) in [
        // A failed item goes on with what is not finished.
        ("if (last == 0)", "if (false)"),
        // What lies beyond the matrix fails.
        ("return good < size ?", "return good < TILE ?"),
        // The rows of the tile end with the matrix.
        ("Rows::row(place(outer, run, r).i) < left, to", "true, to"),
        // Of a diagonal tile only the triangle is read.
        ("begin + k <= row && row < size", "row < size"),
        // The tile is subtracted, all of it.
        ("stage < OWN_STAGES; stage++", "stage < OWN_STAGES - 1; stage++"),
    ] {
        let report = conform(
            &planted(sound, broken),
            "left",
            Dtype::F64,
            &[("orders", &[67], &[Layout::Padded]), ("negative pivots", &[70], &[Layout::Padded])],
        );
        assert!(!report.ok(), "`{broken}` instead of `{sound}` was not seen");
    }
}

#[test]
fn blocked_is_clean_and_right() {
    let cases: &[(&str, &[usize], &[Layout])] =
        &[("orders", &[33, 40], &[Layout::Padded]), ("negative pivots", &[40], &[Layout::Padded])];
    check("blocked:nb=32", Dtype::F64, cases);
    check("blocked:nb=32", Dtype::C32, &cases[..1]);
}

/// Statuses of an item that fails in both of its blocks, one that fails in the last, and a sound one; and whether all that they hold is finite.
fn failures(ctx: &batchlas::Context) -> (Vec<(usize, i32)>, bool) {
    const N: usize = 40;
    let sound = definite::<f64>(N, &mut Random::new(36, 0));
    let mut last = sound.clone();
    last.set(N - 1, N - 1, -1.0);
    let mut both = last.clone();
    both.set(1, 1, -1.0);
    let mut a = ctx.upload(&[both.data, last.data, sound.data].concat()).expect("a valid call");
    let options = PotrfOptions { uplo: Uplo::Lower, route: Some("blocked:nb=32".into()) };
    let view = a.view_mut(N, N, N, N * N, 3).expect("a valid call");
    let info = ctx.potrf(view, &options).expect("a valid call").wait().expect("a valid call");
    let finite = ctx.download(&a).expect("a valid call").iter().all(|x| x.is_finite());
    (info.failures().collect(), finite)
}

#[test]
fn the_first_failure_wins_and_a_failed_item_stays_finite() {
    let right = (vec![(0, 2), (1, 40)], true);
    assert_eq!(failures(&context()), right);
    for (sound, broken) in [
        ("status != 0 && *info == 0", "status != 0"),
        ("*info = args.first + status", "*info = status"),
        ("from_real<T>(i == j ? 1 : 0)", "from_real<T>(0)"),
    ] {
        // Of several kernels one has the text.
        let ctx = edited(move |text| text.replace(sound, broken));
        assert_ne!(failures(&ctx), right, "`{broken}` instead of `{sound}` was not seen");
    }
}
