//! gemm and herk: families `tile` and `mma`. Sizes are bounded by three tiles of 64 a side, and by a ring of stages that
//! has come round; by two tiles for the element types that share a source with one that has gone so far.
//!
//! The guards of the contract are named below: each breaks one line of the kernels and demands that the corpus sees it.

use batchlas::Dtype;
use batchlas_bench::corpus::Corpus;
use batchlas_kernels::headers::HEADERS;

const THREE_TILES: usize = 150 * 150;
const TWO_TILES: usize = 100 * 100;

fn check(family: &str, dtype: Dtype, max_elements: usize) {
    for op in ["gemm", "herk"] {
        crate::check(op, family, dtype, max_elements);
    }
}

#[test]
fn tile_f32_is_clean_and_right() {
    check("tile", Dtype::F32, THREE_TILES);
}

#[test]
fn tile_f64_is_clean_and_right() {
    check("tile", Dtype::F64, TWO_TILES);
}

#[test]
fn tile_c32_is_clean_and_right() {
    check("tile", Dtype::C32, TWO_TILES);
}

#[test]
fn tile_c64_is_clean_and_right() {
    check("tile", Dtype::C64, TWO_TILES);
}

#[test]
fn mma_f64_is_clean_and_right() {
    check("mma", Dtype::F64, TWO_TILES);
}

#[test]
fn mma_c64_is_clean_and_right() {
    check("mma", Dtype::C64, THREE_TILES);
}

const BOTH: [(&str, Dtype); 2] = [("tile", Dtype::F32), ("mma", Dtype::C64)];

/// The text of a kernel with the headers that make up its body in place of their names.
fn whole(text: &str) -> String {
    let inlined =
        ["batchlas/product.cuh", "batchlas/staging.cuh"].into_iter().fold(text.to_owned(), |text, name| {
            let header = HEADERS.iter().find(|header| header.name == name).expect("a header");
            text.replace(&format!("#include <{name}>"), header.text)
        });
    inlined.replace("#pragma once", "")
}

/// With `broken` where the kernels have `sound`, one case of the corpus is red for `op` by `family`, and says `symptom`.
fn guard(case: &str, op: &str, (family, dtype): (&str, Dtype), sound: &str, broken: &str, symptom: &str) {
    let (from, to) = (sound.to_owned(), broken.to_owned());
    let ctx = crate::edited(move |text| {
        let text = whole(text);
        assert!(text.contains(&from), "`{from}` is not in the kernel");
        text.replace(&from, &to)
    });
    let product = crate::committed().product.into_iter().filter(|known| known.name == case).collect();
    let corpus = Corpus { factor: Vec::new(), solve: Vec::new(), product };
    let report = crate::conform(&ctx, &corpus, op, family, dtype, None);
    let failures: Vec<&String> = report.lines.iter().flat_map(|line| &line.failures).collect();
    assert!(failures.iter().any(|failure| failure.contains(symptom)), "{op} {family} {dtype}: {failures:?}");
}

#[test]
fn beta_zero_never_reads_c() {
    for arm in BOTH {
        for op in ["gemm", "herk"] {
            let sound = "if ((args.flags & flag::READ_C) != 0) {";
            guard("every alpha and beta", op, arm, sound, "if (true) {", "C with NaN in what is not read");
        }
    }
}

#[test]
fn the_other_triangle_is_neither_read_nor_written() {
    for arm in BOTH {
        let sound = "(!Diagonal || (upper ? below <= 0 : below >= 0))";
        guard("every alpha and beta", "herk", arm, sound, "true", "C");
    }
}

#[test]
fn the_diagonal_of_a_hermitian_c_is_real() {
    for arm in [("tile", Dtype::C32), ("mma", Dtype::C64)] {
        let sound = "real ? from_real<T>(real_part(run[i])) : run[i]";
        guard("every alpha and beta", "herk", arm, sound, "run[i]", "imaginary part");
    }
}

#[test]
fn transposing_is_not_conjugating() {
    let mixed = "Mixed ? add_mul_conj(c[q][r], x, y) : add_mul(c[q][r], x, y)";
    guard("every alpha and beta", "gemm", ("tile", Dtype::C32), mixed, "add_mul(c[q][r], x, y)", "error");
    guard(
        "every alpha and beta",
        "gemm",
        ("mma", Dtype::C64),
        "Mixed ? minus : right_im",
        "right_im",
        "error",
    );
    for arm in [("tile", Dtype::C64), ("mma", Dtype::C64)] {
        guard("every alpha and beta", "gemm", arm, "conjugate ? conj(x) : x", "x", "error");
    }
}

#[test]
fn nothing_beyond_the_inner_index_takes_part() {
    let case = "wide copies up to the edge of the inner index";
    let (sound, broken) = ("min(rest, WIDTH)", "(rest > 0 ? WIDTH : 0)");
    guard(case, "herk", ("mma", Dtype::F64), sound, broken, "out-of-bounds access");
    for arm in [("tile", Dtype::F32), ("mma", Dtype::C64)] {
        let (case, sound) = ("every alpha and beta", "inner + k < left && e < room");
        guard(case, "gemm", arm, sound, "e < room", "");
    }
}
