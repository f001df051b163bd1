//! Device runtime of batchlas: library locator, NVRTC, kernel cache, residency gate and CUDA queue.
