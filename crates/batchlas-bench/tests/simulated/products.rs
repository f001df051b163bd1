//! gemm and herk: families `tile` and `mma`. Sizes are bounded by three tiles of 64 a side, and by a ring of stages that
//! has come round.

use batchlas::Dtype;

fn check(family: &str, dtype: Dtype) {
    for op in ["gemm", "herk"] {
        crate::check(op, family, dtype, 150 * 150);
    }
}

#[test]
fn tile_f32_is_clean_and_right() {
    check("tile", Dtype::F32);
}

#[test]
fn tile_f64_is_clean_and_right() {
    check("tile", Dtype::F64);
}

#[test]
fn tile_c32_is_clean_and_right() {
    check("tile", Dtype::C32);
}

#[test]
fn tile_c64_is_clean_and_right() {
    check("tile", Dtype::C64);
}

#[test]
fn mma_f64_is_clean_and_right() {
    check("mma", Dtype::F64);
}

#[test]
fn mma_c64_is_clean_and_right() {
    check("mma", Dtype::C64);
}
