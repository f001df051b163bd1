//! potrf, family `tiny`.

use batchlas::Dtype;
use batchlas_bench::operands::Layout;

use crate::{committed, conform, context, every_rounding_is_spelled};

/// The corpus up to a size; then plain factorisations of these orders, both triangles.
fn check(dtype: Dtype, max_elements: usize, orders: impl IntoIterator<Item = usize>) {
    crate::check("potrf", "tiny", dtype, max_elements);

    let ctx = context();
    let orders: Vec<usize> = orders.into_iter().collect();
    let mut corpus = committed();
    corpus.factor.retain(|case| case.name == "orders");
    corpus.factor.iter_mut().for_each(|case| {
        (case.n, case.layout) = (orders.clone(), vec![Layout::Padded]);
    });
    let report = conform(&ctx, &corpus, "potrf", "tiny", dtype, None);
    assert!(report.ok(), "{report}");
    assert_eq!(report.lines[0].ran, 2 * orders.len(), "{report}");
    assert_eq!(report.lines[0].refused, 0, "{report}");
    every_rounding_is_spelled(&ctx);
}

#[test]
fn f32_is_clean_and_right() {
    check(Dtype::F32, 3 * 9 * 9, 1..=32);
}

#[test]
fn f64_is_clean_and_right() {
    check(Dtype::F64, 3 * 9 * 9, 1..=32);
}

#[test]
fn c32_is_clean_and_right() {
    check(Dtype::C32, 3 * 9 * 9, 1..=32);
}

#[test]
fn c64_is_clean_and_right() {
    check(Dtype::C64, 3 * 9 * 9, 1..=32);
}
