//! Batched triangular solve (trsm).
