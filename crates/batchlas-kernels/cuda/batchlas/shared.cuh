// Shared memory: the block's dynamic array under any element type, and accesses of 16 bytes.
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

/// 16 bytes of consecutive scalars: what one shared-memory access moves.
template <class T> struct alignas(16) Chunk {
  T at[PER_16_BYTES<T>];
};

/// The dynamic shared memory of the block, aligned to 16 bytes.
template <class T> BATCHLAS_DEVICE T *dynamic_shared() {
  // One declaration for all types: two external arrays of one name must agree.
  extern __shared__ Chunk<f32> batchlas_dynamic_shared[];
  return reinterpret_cast<T *>(batchlas_dynamic_shared);
}

} // namespace batchlas
