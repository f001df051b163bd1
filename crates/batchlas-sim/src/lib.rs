//! A simulated device for batchlas: runs the real kernels from PTX on a CPU under strict checks.
