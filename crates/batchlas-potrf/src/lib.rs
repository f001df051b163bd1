//! Batched Cholesky factorisation (potrf).
