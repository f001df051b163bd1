// potrf, family `tiny`: Cholesky factorisation of a batch of small Hermitian positive definite matrices, the whole matrix in registers.
//
// P lanes of a warp share one matrix of order N <= 32 as a row tile (batchlas/tile.cuh), so a warp holds 32 / P matrices and a block of `Warps` warps
// `Warps` times as many. Right-looking: for each column, the pivot (the diagonal element of the Schur complement, after all earlier updates) gives
// the scale of the column; the scaled column is made known to all lanes of the partition; every lane updates its rows, one broadcast value serving
// all rows of the lane that lie below it. Of a diagonal element only the real part is used, and its root is stored with imaginary part zero.
//
// info[item] = 0, or the 1-based order of the first leading minor whose pivot is not positive and finite. A failed item is
// finished like every other, by value selection: from the failing column k on all multipliers are zero. It then holds, in the stored triangle, columns
// 1 .. k-1 of the factor of its leading minor and zeros from column k on (or NaN where the trailing matrix was not finite). No other item is touched.
//
// The answer does not depend on P, on how columns are broadcast, on when they are stored, on the layout or on the triangle (Upper is the conjugate
// transpose of Lower, bit for bit): every element sees the same operations in the same order.
#pragma once
#include <batchlas/factor.cuh>
#include <batchlas/shared.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

/// How a finished column reaches the other lanes of its partition: one shuffle per element, or one shared-memory store per row and 16-byte loads.
enum class Broadcast { Shuffle, Shared };
/// When the factor is stored: each column as soon as it is final, or all at the end.
enum class Stores { Eager, Late };
/// Whether the compiler may mix the work of several columns (more work in flight, many more registers) or finishes one before the next.
enum class Pace { Free, Stepwise };

/// A scaled column of a matrix in shared memory: two buffers per partition, so that one warp barrier per column suffices. The pitch puts the rows that
/// the partitions of a warp write at once on different banks (32 banks of 4 bytes), and the chunks they read at once too.
template <class T, int N, int P> struct ColumnBuffer {
  static constexpr int SPAN = P * int(sizeof(T));
  static constexpr int PHASE = SPAN >= 128 || SPAN < 16 ? 16 : SPAN;
  static constexpr int ROWS = (N + P - 1) / P * P;
  static constexpr int BYTES = (ROWS * int(sizeof(T)) - PHASE + 127) / 128 * 128 + PHASE;
  /// Elements from a partition's buffer to the next partition's.
  static constexpr int PITCH = BYTES / int(sizeof(T));
  /// Chunks of a warp.
  static constexpr int CHUNKS = 2 * (arch::WARP / P) * BYTES / 16;
};

template <class T, int N, int P, Uplo U, Layout L, bool Aligned, Broadcast B, Stores S, Pace Rate, int Warps, int MinBlocks>
__global__ void __launch_bounds__(arch::WARP *Warps, MinBlocks) potrf_tiny(const FactorArgs args) {
  static_assert(N >= 1 && N <= 32, "potrf tiny serves orders 1 to 32");
  static_assert(P < 2 * N || P == 1, "more lanes than rows");
  static_assert(P > 1 || B == Broadcast::Shuffle, "a single lane has nobody to send to");
  using Lanes = Partition<P>;
  using Tile = RowTile<T, N, P, U, Aligned>;
  using R = Real<T>;
  constexpr int SLOTS = Tile::SLOTS;
  constexpr int W = PER_16_BYTES<T>;

  T *buffers = nullptr;
  if constexpr (B == Broadcast::Shared) {
    using Buffer = ColumnBuffer<T, N, P>;
    __shared__ Chunk<T> columns[Warps * Buffer::CHUNKS];
    buffers = columns[arch::warp() * Buffer::CHUNKS].at + Lanes::index() * Buffer::PITCH;
  }

  const u64 matrix = (arch::block() * Warps + arch::warp()) * Lanes::PER_WARP + Lanes::index();
  const bool live = matrix < args.batch;
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, live);

  T a[SLOTS][N];
  const int l = Lanes::lane();
  const int reader = live ? l : IDLE;
  const u64 first = item + l * sizeof(T);
  Tile::load_triangle(a, reader, first, args.ld_bytes);
  // Stores compute their addresses and predicates anew instead of keeping those of the loads.
  const u64 out = arch::renamed(first);
  const int writer = arch::renamed(reader);

  i32 info = 0;
  u64 column = out;
  unroll<0, N>([&](auto column_index) {
    constexpr int j = decltype(column_index)::VALUE;
    // Stepwise: always true, which the compiler cannot know. All of the tile is live on both sides of the branch, so arithmetic stays in its column.
    if (Rate == Pace::Free || args.ld_bytes > j * sizeof(T)) {
      const R d = Lanes::broadcast(real_part(a[j / P][j]), j % P);
      const bool positive = info == 0 && positive_and_finite(d);
      info = positive || info != 0 ? info : j + 1;
      const Pivot<R> p = pivot(d, positive);
#pragma unroll
      for (int r = j / P; r < SLOTS; r++) {
        a[r][j] = scale(a[r][j], p.inverse);
      }

      if constexpr (B == Broadcast::Shuffle) {
#pragma unroll
        for (int k = j + 1; k < N; k++) {
          const T v = Lanes::broadcast(a[k / P][j], k % P);
#pragma unroll
          for (int r = k / P; r < SLOTS; r++) {
            a[r][k] = sub_mul_conj(a[r][k], a[r][j], v);
          }
        }
      } else if (j + 1 < N) {
        T *const shared = buffers + (j % 2) * (Lanes::PER_WARP * ColumnBuffer<T, N, P>::PITCH);
#pragma unroll
        for (int r = j / P; r < SLOTS; r++) {
          shared[r * P + l] = a[r][j];
        }
        arch::sync_warp();
#pragma unroll
        for (int k0 = (j + 1) / W * W; k0 < N; k0 += W) {
          const Chunk<T> chunk = *reinterpret_cast<const Chunk<T> *>(shared + k0);
#pragma unroll
          for (int k = k0; k < k0 + W; k++) {
            if (k > j && k < N) {
#pragma unroll
              for (int r = k / P; r < SLOTS; r++) {
                a[r][k] = sub_mul_conj(a[r][k], a[r][j], chunk.at[k - k0]);
              }
            }
          }
        }
      }

      a[j / P][j] = select(l == j % P, from_real<T>(p.root), a[j / P][j]);
      if constexpr (S == Stores::Eager) {
        Tile::store_final(a, column_index, writer, out, column, args.ld_bytes);
        column += args.ld_bytes;
      }
    }
  });
  if constexpr (S == Stores::Late) {
    unroll<0, N>([&](auto column_index) {
      Tile::store_final(a, column_index, writer, out, column, args.ld_bytes);
      column += args.ld_bytes;
    });
  }
  arch::store(live && l == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
}

} // namespace batchlas
