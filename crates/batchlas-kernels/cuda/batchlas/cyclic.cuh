// A group of warps that works on one matrix: its threads as a grid over the matrix, its barrier, and panels of columns in shared memory.
//
// The grid is laid cyclically over rows and columns: thread (y, x) owns the elements (r ROWS + y, c COLS + x). In a warp of a vector grid the bits of the
// lane number alternate between the two directions, so that lanes i and i ^ 1, or i and i ^ 2, ask for the same 16 bytes of a panel whether a fragment is
// indexed by rows or by columns: such a load costs half of what it costs otherwise (measured on an H200).
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

/// `Down` x `Across` warps that share a matrix.
template <int Down, int Across> struct Warps {
  static constexpr int WARPS = Down * Across;
  static constexpr int THREADS = arch::WARP * WARPS;

  /// This thread in its group, and its warp. A group of one warp may share its block with others.
  static BATCHLAS_DEVICE int thread() { return WARPS == 1 ? arch::lane() : static_cast<int>(threadIdx.x); }
  static BATCHLAS_DEVICE int warp_row() { return WARPS == 1 ? 0 : arch::warp() / Across; }
  static BATCHLAS_DEVICE int warp_col() { return WARPS == 1 ? 0 : arch::warp() % Across; }

  /// Every thread of the group arrives; accesses before it are seen by every thread after it.
  static BATCHLAS_DEVICE void sync() {
    if constexpr (WARPS == 1) {
      arch::sync_warp();
    } else {
      arch::sync_block();
    }
  }
};

/// A grid for vector arithmetic: warps of 8 x 4 lanes, an element each.
template <int Down, int Across> struct VectorGrid : Warps<Down, Across> {
  static constexpr bool TENSOR = false;
  static constexpr int ROWS = 8 * Down, COLS = 4 * Across;
  /// Elements of a thread in a grid position, side by side.
  static constexpr int PER_THREAD = 1;
  using Base = Warps<Down, Across>;

  static BATCHLAS_DEVICE int row() { return 8 * Base::warp_row() + ((arch::lane() >> 1 & 1) | (arch::lane() >> 2 & 6)); }
  static BATCHLAS_DEVICE int col() { return 4 * Base::warp_col() + ((arch::lane() & 1) | (arch::lane() >> 1 & 2)); }
  /// The row of L whose conjugate multiplies this thread's columns.
  static BATCHLAS_DEVICE int right_row() { return col(); }
};

/// A grid of tensor-core accumulators: warps of 8 x 8 elements, lane l holding (l / 4, 2 (l % 4)) and the element right of it.
template <int Down, int Across> struct TensorGrid : Warps<Down, Across> {
  static constexpr bool TENSOR = true;
  static constexpr int ROWS = 8 * Down, COLS = 8 * Across;
  static constexpr int PER_THREAD = 2;
  using Base = Warps<Down, Across>;

  static BATCHLAS_DEVICE int row() { return 8 * Base::warp_row() + arch::lane() / 4; }
  static BATCHLAS_DEVICE int col() { return 8 * Base::warp_col() + arch::lane() % 4 * 2; }
  static BATCHLAS_DEVICE int right_row() { return 8 * Base::warp_col() + arch::lane() / 4; }
};

/// K consecutive elements, aligned for the widest access.
template <class T, int K> struct alignas(K * sizeof(T) < 16 ? K * sizeof(T) : 16) Vector {
  T at[K];
};

/// A panel of NB columns in shared memory, row by row. A row is one or more chunks of 16 bytes, permuted so that eight threads that each read a chunk
/// of a row of their own meet on no bank.
template <class T, int NB> struct Panel {
  /// Elements of a chunk, chunks of a row.
  static constexpr int CHUNK = NB * int(sizeof(T)) < 16 ? NB : PER_16_BYTES<T>;
  static constexpr int CHUNKS = NB / CHUNK;
  static_assert(NB % CHUNK == 0 && CHUNKS <= 8 && (CHUNKS & (CHUNKS - 1)) == 0, "a row is 1, 2, 4 or 8 chunks");

  /// Elements from the start of the panel to element k of a row.
  static BATCHLAS_DEVICE u32 offset(u32 row, u32 k) { return row * NB + ((k / CHUNK) ^ (row / (8 / CHUNKS) % CHUNKS)) * CHUNK + k % CHUNK; }

  /// Elements [k, k + K) of a row, K and k multiples of a chunk or within one.
  template <int K> static BATCHLAS_DEVICE void load(T (&to)[K], const T *panel, u32 row, u32 k) {
    constexpr int W = K < CHUNK ? K : CHUNK;
#pragma unroll
    for (int i = 0; i < K; i += W) {
      const Vector<T, W> v = *reinterpret_cast<const Vector<T, W> *>(panel + offset(row, k + i));
#pragma unroll
      for (int w = 0; w < W; w++) {
        to[i + w] = v.at[w];
      }
    }
  }
  /// Writes elements [k, k + K) of a row.
  template <int K> static BATCHLAS_DEVICE void store(T *panel, u32 row, u32 k, const T (&from)[K]) {
    constexpr int W = K < CHUNK ? K : CHUNK;
#pragma unroll
    for (int i = 0; i < K; i += W) {
      Vector<T, W> v;
#pragma unroll
      for (int w = 0; w < W; w++) {
        v.at[w] = from[i + w];
      }
      *reinterpret_cast<Vector<T, W> *>(panel + offset(row, k + i)) = v;
    }
  }
};

} // namespace batchlas
