//! potrf, families `left` and `blocked`: one tile or block, two, and more, whole and not. Barriers are broken by
//! `cargo xtask races`.

use batchlas::Dtype;
use batchlas_bench::conform::Report;
use batchlas_bench::corpus::FactorCase;
use batchlas_bench::operands::Layout;

use crate::{committed, context, every_rounding_is_spelled, planted};

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
