//! Batched solve of symmetric or Hermitian positive definite systems (posv, potrs).
