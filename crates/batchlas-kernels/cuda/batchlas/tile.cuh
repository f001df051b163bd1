// The register tile of a partition: the lower triangle S of one Hermitian matrix of order N, by rows.
//
// Lane l of P holds rows l, l + P, l + 2P, ... (slot r holds row r P + l) in a[slot][column]. Column c exists in the slots that reach the diagonal,
// r >= c / P; the rest of the array is never touched and takes no registers. In the diagonal block of a slot the elements right of a row's
// diagonal hold garbage after the first update: no lane ever sends or stores them.
//
// Upper is a transform of the loads and stores, not another algorithm: S(i, c) = conj(A(c, i)). Memory is still walked along A's columns, the direction
// in which lanes coalesce, and each P x P block is transposed across the lanes. The other triangle of A is neither read nor written.
//
// All indices are compile-time constants under full unrolling; the array is passed by reference only to functions that are inlined.
#pragma once
#include <batchlas/memory.cuh>
#include <batchlas/partition.cuh>
#include <batchlas/unroll.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

/// Stands for the lane number in a partition that has no item: such a partition takes part in every collective on zeros, and touches no memory.
constexpr int IDLE = -1;

/// Loads and stores of the row tile of one item. `Aligned`: every column of every item starts on a 16-byte boundary; only P = 1 profits.
template <class T, int N, int P, Uplo U, bool Aligned> struct RowTile {
  /// Rows per lane.
  static constexpr int SLOTS = (N + P - 1) / P;
  static constexpr int WIDEST = Aligned ? PER_16_BYTES<T> : 1;
  /// Upper, elements of 16 bytes, beyond order 16: lanes walk their rows of S down the columns of A, where a shuffle would cost four instructions per exchange.
  static constexpr bool DOWN_COLUMNS = U == Uplo::Upper && P > 1 && sizeof(T) == 16 && N > 16;
  using Lanes = Partition<P>;

  /// Reads the triangle. `l` is this thread's lane in its partition, or IDLE; `item` is the address of A(l, 0) (of A(0, 0) for P = 1).
  static BATCHLAS_DEVICE void load_triangle(T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    if constexpr (P == 1) {
      load_single(a, item, ld_bytes, l != IDLE);
    } else if constexpr (U == Uplo::Lower) {
      load_lower(a, l, item, ld_bytes);
    } else if constexpr (DOWN_COLUMNS) {
      load_down_columns(a, l, item, ld_bytes);
    } else {
      load_upper(a, l, item, ld_bytes);
    }
    // Every load is issued before the first is waited for; without the fence the compiler sinks them to their first use, one latency each.
    arch::fence_block();
    if constexpr (P > 1 && U == Uplo::Upper && !DOWN_COLUMNS) {
      transpose_blocks(a);
    }
  }

  /// Writes what became final with column J of S; `column` is the address of A(l, J). Lower: that column. Upper: the block of P columns that J
  /// completes, if it completes one; with P = 1, row J of S, which is memory column J.
  template <int J> static BATCHLAS_DEVICE void store_final(const T (&a)[SLOTS][N], Index<J>, int l, u64 item, u64 column, u64 ld_bytes) {
    if constexpr (P == 1) {
      store_run<J, first(J)>(a, column, l != IDLE);
    } else if constexpr (U == Uplo::Lower) {
      store_lower<J>(a, l, column);
    } else if constexpr (DOWN_COLUMNS) {
      store_down_columns<J>(a, l, item, ld_bytes);
    } else if constexpr (J % P == P - 1 || J == N - 1) {
      store_upper<J / P>(a, l, item, ld_bytes);
    }
  }

private:
  /// Whether lane `l` lies in [first, end), by one comparison; never if `l` is IDLE.
  static BATCHLAS_DEVICE bool within(int l, int first, int end) {
    if (end >= P) {
      return first == 0 ? l != IDLE : l >= first;
    }
    return static_cast<u32>(l - first) < static_cast<u32>(end - first);
  }

  static BATCHLAS_DEVICE T zero() { return from_real<T>(0); }

  static BATCHLAS_DEVICE void load_lower(T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    u64 column = item;
    unroll<0, N>([&](auto index) {
      constexpr int c = decltype(index)::VALUE;
#pragma unroll
      for (int r = c / P; r < SLOTS; r++) {
        a[r][c] = load(within(l, r == c / P ? c % P : 0, N - r * P), column + r * P * sizeof(T), zero());
      }
      column += ld_bytes;
    });
  }

  template <int J> static BATCHLAS_DEVICE void store_lower(const T (&a)[SLOTS][N], int l, u64 column) {
#pragma unroll
    for (int r = J / P; r < SLOTS; r++) {
      store(within(l, r == J / P ? J % P : 0, N - r * P), column + r * P * sizeof(T), a[r][J]);
    }
  }

  // Row r P + l of S is column r P + l of A: contiguous for a lane, a leading dimension apart between lanes. A sector is read by two accesses and
  // comes from the L1 cache the second time.

  static BATCHLAS_DEVICE u64 first_column(u64 item, u64 ld_bytes) { return item + Lanes::lane() * (ld_bytes - sizeof(T)); }

  static BATCHLAS_DEVICE void load_down_columns(T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    u64 column = first_column(item, ld_bytes);
    unroll<0, SLOTS>([&](auto index) {
      constexpr int r = decltype(index)::VALUE;
#pragma unroll
      for (int c = 0; c < N && c < (r + 1) * P; c++) {
        a[r][c] = conj(load(within(l, c < r * P ? 0 : c - r * P, N - r * P), column + c * sizeof(T), zero()));
      }
      column += P * ld_bytes;
    });
  }

  template <int J> static BATCHLAS_DEVICE void store_down_columns(const T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    u64 column = first_column(item, ld_bytes) + J / P * P * ld_bytes;
#pragma unroll
    for (int r = J / P; r < SLOTS; r++) {
      store(within(l, r == J / P ? J % P : 0, N - r * P), column + J * sizeof(T), conj(a[r][J]));
      column += P * ld_bytes;
    }
  }

  // Block (r, q) of S is the conjugate transpose of block (q, r) of A. Lane l reads element q P + l of each memory column i of block r, parks it as
  // register i % P of its block, and the lanes then transpose.

  static BATCHLAS_DEVICE void load_upper(T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    u64 column = item;
    unroll<0, SLOTS * P>([&](auto index) {
      constexpr int i = decltype(index)::VALUE;
      constexpr int r = i / P;
#pragma unroll
      for (int q = 0; q <= r; q++) {
        if (q * P + i % P < N) {
          a[r][q * P + i % P] = load(i < N && (q < r ? l != IDLE : within(l, 0, i % P + 1)), column + q * P * sizeof(T), zero());
        }
      }
      column += ld_bytes;
    });
  }

  static BATCHLAS_DEVICE void transpose_blocks(T (&a)[SLOTS][N]) {
    unroll<0, SLOTS>([&](auto index) {
      constexpr int r = decltype(index)::VALUE;
#pragma unroll
      for (int q = 0; q <= r; q++) {
        T block[P];
        take_block(block, a, r, q);
        Lanes::transpose(block);
#pragma unroll
        for (int i = 0; i < P; i++) {
          if (q * P + i < N) {
            a[r][q * P + i] = block[i];
          }
        }
      }
    });
  }

  /// The conjugate of block (r, q) of the tile, zeros beyond column N.
  static BATCHLAS_DEVICE void take_block(T (&block)[P], const T (&a)[SLOTS][N], int r, int q) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      block[i] = q * P + i < N ? conj(a[r][q * P + i]) : zero();
    }
  }

  template <int Q> static BATCHLAS_DEVICE void store_upper(const T (&a)[SLOTS][N], int l, u64 item, u64 ld_bytes) {
    u64 column = item + Q * P * ld_bytes + Q * P * sizeof(T);
#pragma unroll
    for (int r = Q; r < SLOTS; r++) {
      T block[P];
      take_block(block, a, r, Q);
      Lanes::transpose(block);
#pragma unroll
      for (int i = 0; i < P; i++) {
        if (r * P + i < N) {
          store(Q < r ? l != IDLE : within(l, 0, i + 1), column, block[i]);
        }
        column += ld_bytes;
      }
    }
  }

  // One lane holds the whole triangle: memory column c is the run of rows [c, N) or [0, c], read and written in the widest aligned pieces.

  static BATCHLAS_DEVICE constexpr int first(int c) { return U == Uplo::Lower ? c : 0; }
  static BATCHLAS_DEVICE constexpr int end(int c) { return U == Uplo::Lower ? N : c + 1; }
  /// Row and column in S of element `k` of memory column `c`.
  static BATCHLAS_DEVICE constexpr int row(int c, int k) { return U == Uplo::Lower ? k : c; }
  static BATCHLAS_DEVICE constexpr int col(int c, int k) { return U == Uplo::Lower ? c : k; }
  static BATCHLAS_DEVICE T oriented(T a) { return U == Uplo::Lower ? a : conj(a); }

  template <int C, int K> static BATCHLAS_DEVICE void load_run(T (&a)[SLOTS][N], u64 column, bool live) {
    if constexpr (K < end(C)) {
      constexpr int W = piece(K, end(C), WIDEST);
      T x[W];
#pragma unroll
      for (int w = 0; w < W; w++) {
        x[w] = zero();
      }
      if constexpr (W == 1) {
        x[0] = load(live, column + K * sizeof(T), x[0]);
      } else if constexpr (W == 2) {
        load2(live, column + K * sizeof(T), x[0], x[1]);
      } else {
        load4(live, column + K * sizeof(T), x[0], x[1], x[2], x[3]);
      }
#pragma unroll
      for (int w = 0; w < W; w++) {
        a[row(C, K + w)][col(C, K + w)] = oriented(x[w]);
      }
      load_run<C, K + W>(a, column, live);
    }
  }

  static BATCHLAS_DEVICE void load_single(T (&a)[SLOTS][N], u64 column, u64 ld_bytes, bool live) {
    unroll<0, N>([&](auto index) {
      constexpr int c = decltype(index)::VALUE;
      load_run<c, first(c)>(a, column, live);
      column += ld_bytes;
    });
  }

  template <int C, int K> static BATCHLAS_DEVICE void store_run(const T (&a)[SLOTS][N], u64 column, bool live) {
    if constexpr (K < end(C)) {
      constexpr int W = piece(K, end(C), WIDEST);
      T x[W];
#pragma unroll
      for (int w = 0; w < W; w++) {
        x[w] = oriented(a[row(C, K + w)][col(C, K + w)]);
      }
      if constexpr (W == 1) {
        store(live, column + K * sizeof(T), x[0]);
      } else if constexpr (W == 2) {
        store2(live, column + K * sizeof(T), x[0], x[1]);
      } else {
        store4(live, column + K * sizeof(T), x[0], x[1], x[2], x[3]);
      }
      store_run<C, K + W>(a, column, live);
    }
  }
};

} // namespace batchlas
