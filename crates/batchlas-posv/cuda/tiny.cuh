// posv, family `tiny`: factorisation and both solves of a batch of small Hermitian positive definite systems in one launch, the matrix in registers.
//
// P lanes of a warp share one system as a row tile (batchlas/tile.cuh); the lane that holds row i of the matrix holds row i of the right-hand sides too.
// The factorisation is that of potrf `tiny`, operation for operation, so the stored factor is the same bit for bit. The forward solve L Y = B rides
// along: when column j is final, row j of Y is, and one broadcast of it updates the rows below.
//
// A final column goes to shared memory, by which the other lanes receive it, and stays there. The backward solve L^H X = Y then needs no transpose: the
// lane of row i reads its own column i, a chunk of rows at a time. Columns lie an odd number of 16-byte chunks apart, so that these reads of
// different columns at one row fall on different banks. Each x_j takes one broadcast. Only warp barriers are used.
//
// More right-hand sides than fit in registers are solved `Width` at a time, the later ones from the columns in shared memory.
//
// info as in potrf. A failed item's right-hand sides are not stored; its A holds what potrf `tiny` leaves.
#pragma once
#include <batchlas/operand.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

/// The operands of a launch.
struct PosvTinyArgs {
  Operand a, b;
  /// Number of right-hand sides, at least 1.
  u64 nrhs;
  /// Number of items.
  u64 batch;
  /// Address of `batch` 32-bit integers, or 0 if the caller does not want them.
  u64 info;
};

/// What becomes of the factor: A's triangle receives it with each column or all at the end, or stays as it was.
enum class Output { Eager, Late, Discard };
/// Whether the compiler may mix the work of several columns (more work in flight, many more registers) or finishes one before the next.
enum class Pace { Free, Stepwise };

/// W contiguous elements, one shared-memory access.
template <class T, int W> struct alignas(W * sizeof(T)) Chunk {
  T at[W];
};

/// The factor of one item in shared memory, diagonal and upper triangle zero: column j from the first row of its slot on.
template <class T, int N, int P> struct Columns {
  static constexpr int SLOTS = (N + P - 1) / P;
  /// Rows, those of idle lanes included.
  static constexpr int ROWS = SLOTS * P;
  /// Elements of a chunk.
  static constexpr int W = PER_16_BYTES<T> < P ? PER_16_BYTES<T> : P;

  /// Elements from a column of slot `r` to the next: an odd number of 16-byte chunks.
  static BATCHLAS_DEVICE constexpr int pitch(int r) {
    return (((ROWS - r * P) * int(sizeof(T)) + 15) / 16 | 1) * PER_16_BYTES<T>;
  }
  /// Where (virtual) row 0 of the first column of slot `r` lies.
  static BATCHLAS_DEVICE constexpr int slot(int r) {
    int start = 0;
    for (int q = 0; q < r; q++) {
      start += P * pitch(q);
    }
    return start - r * P;
  }
  /// Where (virtual) row 0 of column `j` lies.
  static BATCHLAS_DEVICE constexpr int column(int j) { return slot(j / P) + j % P * pitch(j / P); }

  // From an item to the next of a warp: the rows that all items of a warp write at once fall on different banks (32 of 4 bytes), and so do the
  // chunks that they read at once.
  static constexpr int SPAN = P * int(sizeof(T));
  static constexpr int PHASE = SPAN >= 128 || SPAN < 16 ? 16 : SPAN;
  static constexpr int BYTES = ((slot(SLOTS) + ROWS) * int(sizeof(T)) - PHASE + 127) / 128 * 128 + PHASE;
  static constexpr int ITEM = BYTES / int(sizeof(T));
};

/// The right-hand sides of one item, `Width` columns of them at a time, and the steps of both solves. L is unit scaled throughout: row i of y holds the
/// unknown times the i-th diagonal element until it is scaled.
template <class T, int N, int P, int Width> struct Rows {
  static constexpr int SLOTS = (N + P - 1) / P;
  using Lanes = Partition<P>;
  using R = Real<T>;
  T y[SLOTS][Width];

  /// Whether slot `r` of lane `l` is a row of the system; never if `l` is IDLE.
  static BATCHLAS_DEVICE bool exists(int l, int r) { return static_cast<u32>(l) < static_cast<u32>(N - r * P < P ? N - r * P : P); }

  /// Reads `count` columns (more than Width: Width); `column` is the address of row l of the first.
  BATCHLAS_DEVICE void load_columns(int l, u64 column, u64 ld_bytes, u64 count) {
#pragma unroll
    for (int w = 0; w < Width; w++) {
#pragma unroll
      for (int r = 0; r < SLOTS; r++) {
        y[r][w] = load(exists(l, r) && (w == 0 || w < count), column + r * P * sizeof(T), from_real<T>(0));
      }
      column += ld_bytes;
    }
  }
  BATCHLAS_DEVICE void store_columns(int l, u64 column, u64 ld_bytes, u64 count) const {
#pragma unroll
    for (int w = 0; w < Width; w++) {
#pragma unroll
      for (int r = 0; r < SLOTS; r++) {
        store(exists(l, r) && (w == 0 || w < count), column + r * P * sizeof(T), y[r][w]);
      }
      column += ld_bytes;
    }
  }

  BATCHLAS_DEVICE void scale_rows(const R (&inverse)[SLOTS]) {
#pragma unroll
    for (int r = 0; r < SLOTS; r++) {
#pragma unroll
      for (int w = 0; w < Width; w++) {
        y[r][w] = scale(y[r][w], inverse[r]);
      }
    }
  }

  /// Forward: row J, scaled, leaves the rows below it. `below[r]` is the element of column J in slot r, zero down to the diagonal.
  template <int J> BATCHLAS_DEVICE void eliminate_below(Index<J>, R inverse, const T (&below)[SLOTS]) {
#pragma unroll
    for (int w = 0; w < Width; w++) {
      const T x = conj(Lanes::broadcast(scale(y[J / P][w], inverse), J % P));
#pragma unroll
      for (int r = J / P; r < SLOTS; r++) {
        y[r][w] = sub_mul_conj(y[r][w], below[r], x);
      }
    }
  }
  /// Backward: row J, scaled, leaves the rows above it. `left[r]` is the element of row J in the column that slot r numbers, zero from the diagonal on.
  template <int J> BATCHLAS_DEVICE void eliminate_above(Index<J>, R inverse, const T (&left)[SLOTS]) {
#pragma unroll
    for (int w = 0; w < Width; w++) {
      const T x = Lanes::broadcast(scale(y[J / P][w], inverse), J % P);
#pragma unroll
      for (int r = 0; r <= J / P; r++) {
        y[r][w] = sub_mul_conj(y[r][w], x, left[r]);
      }
    }
  }
};

template <class T, int N, int P, Uplo U, bool Aligned, int Width, bool Slices, Output Out, Pace Rate, int Warps, int MinBlocks, int SharedBytes>
__global__ void __launch_bounds__(arch::WARP *Warps, MinBlocks) posv_tiny(const PosvTinyArgs args) {
  static_assert(N >= 1 && N <= 64, "posv tiny serves orders 1 to 64");
  static_assert(P < 2 * N || P == 1, "more lanes than rows");
  static_assert(SharedBytes == (P > 1 ? Warps * (arch::WARP / P) * Columns<T, N, P>::BYTES : 0), "what the launch asks for");
  using Lanes = Partition<P>;
  using Tile = RowTile<T, N, P, U, Aligned>;
  using Kept = Columns<T, N, P>;
  using R = Real<T>;
  constexpr int SLOTS = Tile::SLOTS;
  constexpr int W = Kept::W;

  extern __shared__ __align__(16) unsigned char posv_tiny_shared[];
  T *const columns = reinterpret_cast<T *>(posv_tiny_shared) + (arch::warp() * Lanes::PER_WARP + Lanes::index()) * Kept::ITEM;

  const u64 matrix = (arch::block() * Warps + arch::warp()) * Lanes::PER_WARP + Lanes::index();
  const bool live = matrix < args.batch;
  const int l = Lanes::lane();
  const int reader = live ? l : IDLE;
  const u64 first = args.a.item(matrix, live) + l * sizeof(T);
  const u64 first_rhs = args.b.item(matrix, live) + l * sizeof(T);

  Rows<T, N, P, Width> rows;
  rows.load_columns(reader, first_rhs, args.b.ld, args.nrhs);
  T a[SLOTS][N];
  Tile::load_triangle(a, reader, first, args.a.ld);
  // Stores compute their addresses and predicates anew instead of keeping those of the loads.
  const u64 out = arch::renamed(first);
  u64 rhs = arch::renamed(first_rhs);
  int writer = arch::renamed(reader);

  i32 info = 0;
  R inverse[SLOTS];
  u64 column = out;
  unroll<0, N>([&](auto column_index) {
    constexpr int j = decltype(column_index)::VALUE;
    constexpr int r0 = j / P;
    // Stepwise: always true, which the compiler cannot know. All of the tile is live on both sides of the branch, so arithmetic stays in its column.
    if (Rate == Pace::Free || args.a.ld > j * sizeof(T)) {
      const R d = Lanes::broadcast(real_part(a[r0][j]), j % P);
      const bool positive = info == 0 && positive_and_finite(d);
      info = positive || info != 0 ? info : j + 1;
      const Pivot<R> p = pivot(d, positive);
      T below[SLOTS];
#pragma unroll
      for (int r = r0; r < SLOTS; r++) {
        a[r][j] = scale(a[r][j], p.inverse);
        below[r] = r == r0 ? select(l > j % P, a[r][j], from_real<T>(0)) : a[r][j];
        if constexpr (P > 1) {
          columns[Kept::column(j) + r * P + l] = below[r];
        }
      }
      inverse[r0] = j % P == 0 ? p.inverse : select(l == j % P, p.inverse, inverse[r0]);
      rows.eliminate_below(column_index, p.inverse, below);

      if constexpr (P == 1) {
#pragma unroll
        for (int k = j + 1; k < N; k++) {
#pragma unroll
          for (int r = k; r < SLOTS; r++) {
            a[r][k] = sub_mul_conj(a[r][k], a[r][j], a[k][j]);
          }
        }
      } else {
        arch::sync_warp();
#pragma unroll
        for (int k0 = (j + 1) / W * W; k0 < N; k0 += W) {
          const Chunk<T, W> chunk = *reinterpret_cast<const Chunk<T, W> *>(columns + Kept::column(j) + k0);
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

      if constexpr (Out != Output::Discard) {
        a[r0][j] = select(l == j % P, from_real<T>(p.root), a[r0][j]);
      }
      if constexpr (Out == Output::Eager) {
        Tile::store_final(a, column_index, writer, out, column, args.a.ld);
        column += args.a.ld;
      }
    }
  });
  if constexpr (Out == Output::Late) {
    unroll<0, N>([&](auto column_index) {
      Tile::store_final(a, column_index, writer, out, column, args.a.ld);
      column += args.a.ld;
    });
  }
  arch::store(live && l == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);

  // A failed item keeps its right-hand sides.
  writer = info == 0 ? writer : IDLE;
  const T *own[SLOTS];
#pragma unroll
  for (int r = 0; r < SLOTS; r++) {
    own[r] = columns + Kept::slot(r) + (N - r * P < P ? min(l, N - 1 - r * P) : l) * Kept::pitch(r);
  }
  const auto backward = [&] {
    rows.scale_rows(inverse);
    Chunk<T, W> next[SLOTS];
    const auto fetch = [&](auto row) {
      constexpr int j = decltype(row)::VALUE;
#pragma unroll
      for (int r = 0; r <= j / P; r++) {
        next[r] = *reinterpret_cast<const Chunk<T, W> *>(own[r] + j);
      }
    };
    constexpr int CHUNKS = (N + W - 1) / W;
    if constexpr (P > 1) {
      fetch(Index<(CHUNKS - 1) * W>());
    }
    unroll<0, CHUNKS>([&](auto step) {
      constexpr int j0 = (CHUNKS - 1 - decltype(step)::VALUE) * W;
      if (Rate == Pace::Free || args.a.ld > j0 * sizeof(T)) {
        Chunk<T, W> chunk[SLOTS];
#pragma unroll
        for (int r = 0; P > 1 && r <= j0 / P; r++) {
          chunk[r] = next[r];
        }
        if constexpr (P > 1 && j0 > 0) {
          fetch(Index<j0 - W>());
        }
        unroll<0, W>([&](auto back) {
          constexpr int w = W - 1 - decltype(back)::VALUE;
          constexpr int j = j0 + w;
          if constexpr (j < N) {
            T left[SLOTS];
#pragma unroll
            for (int r = 0; r <= j / P; r++) {
              left[r] = P > 1 ? chunk[r].at[w] : r < j ? a[j][r] : from_real<T>(0);
            }
            rows.eliminate_above(Index<j>(), inverse[j / P], left);
          }
        });
      }
    });
    rows.scale_rows(inverse);
  };
  for (u64 done = 0;;) {
    backward();
    rows.store_columns(writer, rhs, args.b.ld, args.nrhs - done);
    done += Width;
    if (!Slices || done >= args.nrhs) {
      break;
    }
    rhs += Width * args.b.ld;
    rows.load_columns(writer, rhs, args.b.ld, args.nrhs - done);
    unroll<0, N>([&](auto column_index) {
      constexpr int j = decltype(column_index)::VALUE;
      if (Rate == Pace::Free || args.a.ld > j * sizeof(T)) {
        T below[SLOTS];
#pragma unroll
        for (int r = j / P; r < SLOTS; r++) {
          below[r] = P > 1 ? columns[Kept::column(j) + r * P + l] : r > j ? a[r][j] : from_real<T>(0);
        }
        rows.eliminate_below(column_index, inverse[j / P], below);
      }
    });
  }
}

} // namespace batchlas
