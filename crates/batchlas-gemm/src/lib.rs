//! Batched matrix product and Hermitian rank-k update (gemm, herk).
