//! The floor: what a problem costs if nothing but its memory traffic, or nothing but its arithmetic, took time.
//!
//! `max(bytes / copy bandwidth, flops / peak)` per item. Reads move in 64-byte units and writes in 32-byte sectors (both
//! measured on an H200: `ncu` counts DRAM reads in pairs of sectors), so a packed triangle costs more than its elements.
//! The sectors of a whole batch are counted exactly over as many items as it takes for the alignment to repeat.

use batchlas::{Dtype, Uplo};

/// Measured copy bandwidth of an H200 in bytes per nanosecond.
pub const BANDWIDTH: f64 = 4295.0;

/// Peak of FP32 vector and FP64 tensor arithmetic of an H200, in operations per nanosecond.
pub const PEAK: f64 = 67_000.0;

/// Bytes of one DRAM read.
const READ_UNIT: usize = 64;

/// Bytes of one DRAM write.
const WRITE_UNIT: usize = 32;

/// Bytes that move if the byte ranges `runs` of every item, `stride` bytes apart, are touched in units of `unit`.
fn traffic(stride: usize, unit: usize, runs: &[(usize, usize)]) -> f64 {
    if runs.is_empty() {
        return 0.0;
    }
    // Offsets modulo the unit repeat after `unit / gcd` items.
    let items = (1..=unit).find(|items| (items * stride).is_multiple_of(unit)).unwrap_or(unit).max(1);
    let mut units: Vec<usize> = Vec::new();
    for item in 0..items {
        for &(start, end) in runs {
            units.extend((item * stride + start) / unit..(item * stride + end).div_ceil(unit));
        }
    }
    units.sort_unstable();
    units.dedup();
    // The last item may share its unit with the first of the next period.
    let period = items * stride / unit;
    let shared = units
        .iter()
        .filter(|&&u| u >= period)
        .filter(|&&u| units.binary_search(&(u - period)).is_ok())
        .count();
    ((units.len() - shared) * unit) as f64 / items as f64
}

/// Byte ranges of the columns of a triangle of order `n` in a packed square.
fn triangle(dtype: Dtype, uplo: Uplo, n: usize) -> Vec<(usize, usize)> {
    let bytes = dtype.bytes();
    let column = |j: usize| match uplo {
        Uplo::Lower => ((j * n + j) * bytes, (j + 1) * n * bytes),
        Uplo::Upper => (j * n * bytes, (j * n + j + 1) * bytes),
    };
    (0..n).map(column).collect()
}

fn floor(bytes: f64, dtype: Dtype, multiply_adds: f64) -> f64 {
    let flops = multiply_adds * if dtype.is_complex() { 8.0 } else { 2.0 };
    (bytes / BANDWIDTH).max(flops / PEAK)
}

/// Nanoseconds per item of a packed factorisation.
pub fn potrf(dtype: Dtype, uplo: Uplo, n: usize) -> f64 {
    let (stride, runs) = (n * n * dtype.bytes(), triangle(dtype, uplo, n));
    let bytes = traffic(stride, READ_UNIT, &runs) + traffic(stride, WRITE_UNIT, &runs);
    floor(bytes, dtype, (n as f64).powi(3) / 6.0)
}

/// Nanoseconds per item of a packed solve that stores the factor.
pub fn posv(dtype: Dtype, uplo: Uplo, n: usize, nrhs: usize) -> f64 {
    let (stride, runs) = (n * n * dtype.bytes(), triangle(dtype, uplo, n));
    let rhs = n * nrhs * dtype.bytes();
    let bytes = traffic(stride, READ_UNIT, &runs)
        + traffic(stride, WRITE_UNIT, &runs)
        + traffic(rhs, READ_UNIT, &[(0, rhs)])
        + traffic(rhs, WRITE_UNIT, &[(0, rhs)]);
    floor(bytes, dtype, (n as f64).powi(3) / 6.0 + (n * n * nrhs) as f64)
}

/// Nanoseconds per item of a packed triangular solve with `q` right-hand sides.
pub fn trsm(dtype: Dtype, uplo: Uplo, n: usize, q: usize) -> f64 {
    let (stride, runs) = (n * n * dtype.bytes(), triangle(dtype, uplo, n));
    let rhs = n * q * dtype.bytes();
    let bytes = traffic(stride, READ_UNIT, &runs)
        + traffic(rhs, READ_UNIT, &[(0, rhs)])
        + traffic(rhs, WRITE_UNIT, &[(0, rhs)]);
    floor(bytes, dtype, (n * n * q) as f64 / 2.0)
}

/// Nanoseconds per item of a packed product that updates an `m x n` C with `k` inner indices.
pub fn gemm(dtype: Dtype, m: usize, n: usize, k: usize) -> f64 {
    let whole = |size: usize, unit: usize| {
        let bytes = size * dtype.bytes();
        traffic(bytes, unit, &[(0, bytes)])
    };
    let read = whole(m * k, READ_UNIT) + whole(k * n, READ_UNIT) + whole(m * n, READ_UNIT);
    floor(read + whole(m * n, WRITE_UNIT), dtype, (m * n * k) as f64)
}

/// Nanoseconds per item of a packed update of rank `k` of one triangle of order `n`.
pub fn herk(dtype: Dtype, uplo: Uplo, n: usize, k: usize) -> f64 {
    let (stride, runs) = (n * n * dtype.bytes(), triangle(dtype, uplo, n));
    let a = n * k * dtype.bytes();
    let bytes = traffic(a, READ_UNIT, &[(0, a)])
        + traffic(stride, READ_UNIT, &runs)
        + traffic(stride, WRITE_UNIT, &runs);
    floor(bytes, dtype, (n * (n + 1) / 2 * k) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_floors_are_reproduced() {
        // performance.md: f32 0.12, 0.42, 1.31, 4.53, 16.7; f64 0.21, 0.66, 2.26, 8.34 for n = 8, 16, 32, 64, 128.
        for (n, ns) in [(8, 0.12), (32, 1.31), (64, 4.53), (128, 16.7)] {
            let found = potrf(Dtype::F32, Uplo::Lower, n);
            assert!((found / ns - 1.0).abs() < 0.08, "f32 n={n}: {found} against {ns}");
        }
        for (n, ns) in [(32, 2.26), (64, 8.34)] {
            let found = potrf(Dtype::F64, Uplo::Lower, n);
            assert!((found / ns - 1.0).abs() < 0.08, "f64 n={n}: {found} against {ns}");
        }
    }

    #[test]
    fn products_are_bound_by_traffic_or_by_arithmetic() {
        // A, B and C read, C written: four squares of 128 KiB.
        let bytes = 4.0 * 128.0 * 128.0 * 8.0;
        assert_eq!(gemm(Dtype::F64, 128, 128, 128), bytes / BANDWIDTH);
        let flops = 8.0 * 64.0 * 128.0 * 2048.0;
        assert_eq!(gemm(Dtype::C32, 64, 128, 2048), flops / PEAK);
        assert_eq!(herk(Dtype::C64, Uplo::Lower, 512, 256), 4.0 * 512.0 * 513.0 * 256.0 / PEAK);
        // Half of C twice, and A.
        let half = herk(Dtype::F32, Uplo::Upper, 512, 1) * BANDWIDTH;
        assert!((half / (2.0 * 512.0 * 513.0 / 2.0 * 4.0 + 512.0 * 4.0) - 1.0).abs() < 0.07, "{half}");
    }

    #[test]
    fn units_are_counted_once_whatever_the_alignment() {
        // 12-byte items: 16 items fill three 64-byte units.
        assert_eq!(traffic(12, 64, &[(0, 12)]), 12.0);
        assert_eq!(traffic(256, 64, &[(0, 4), (8, 12)]), 64.0);
        assert_eq!(traffic(64, 32, &[(28, 36)]), 64.0);
        assert_eq!(traffic(100, 32, &[]), 0.0);
        // Large orders are bound by arithmetic.
        let flops = 2.0 * 2048f64.powi(3) / 6.0;
        assert!((potrf(Dtype::F64, Uplo::Lower, 2048) - flops / PEAK).abs() < 1e-6);
    }
}
