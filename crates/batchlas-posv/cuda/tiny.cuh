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
// Upper beyond order 16 passes through the same shared memory on its way in and out: a lane reads down a column of A into the rows of its own column of L,
// and the tile is then read along its rows. Smaller orders transpose by shuffles.
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

/// What becomes of the factor: A's triangle receives it with each column or all at the end (which is when a staged Upper always does), or stays as it
/// was.
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

  /// Where this lane finds its own column of slot `r`.
  static BATCHLAS_DEVICE T *own(T *columns, int l, int r) { return columns + slot(r) + l * pitch(r); }

  /// The lower triangle S of an Upper item, by way of shared memory. `l` is this thread's lane or IDLE; `item` is the address of A(l, 0).
  static BATCHLAS_DEVICE void load_upper(T (&a)[SLOTS][N], T *columns, int l, u64 item, u64 ld_bytes) {
    T down[SLOTS][ROWS];
    unroll<0, ROWS>([&](auto index) {
      constexpr int i = decltype(index)::VALUE;
#pragma unroll
      for (int q = 0; q <= i / P; q++) {
        down[q][i] = from_real<T>(0);
        if (i < N) {
          down[q][i] = load(static_cast<u32>(l) < static_cast<u32>(q < i / P ? P : i % P + 1), item + q * P * sizeof(T), down[q][i]);
        }
      }
      item += ld_bytes;
    });
    arch::fence_block();
    const int lane = Partition<P>::lane();
#pragma unroll
    for (int q = 0; q < SLOTS; q++) {
#pragma unroll
      for (int i = q * P; i < ROWS; i += W) {
        Chunk<T, W> chunk;
#pragma unroll
        for (int w = 0; w < W; w++) {
          chunk.at[w] = conj(down[q][i + w]);
        }
        *reinterpret_cast<Chunk<T, W> *>(own(columns, lane, q) + i) = chunk;
      }
    }
    arch::sync_warp();
#pragma unroll
    for (int c = 0; c < N; c++) {
#pragma unroll
      for (int r = c / P; r < SLOTS; r++) {
        a[r][c] = columns[column(c) + r * P + lane];
      }
    }
  }

  /// Rows [I, I + W) of the factor, to columns of A; `item` is the address of A(l, I), and this lane holds `root` of its row of each slot.
  template <int I> static BATCHLAS_DEVICE void store_upper(Index<I>, T *columns, const Real<T> (&root)[SLOTS], int l, u64 item, u64 ld_bytes) {
    const int lane = Partition<P>::lane();
#pragma unroll
    for (int q = 0; q <= I / P; q++) {
      const Chunk<T, W> chunk = *reinterpret_cast<const Chunk<T, W> *>(own(columns, lane, q) + I);
      u64 column = item;
#pragma unroll
      for (int i = I; i < I + W && i < N; i++) {
        const T element = q == i / P ? select(lane == i % P, from_real<T>(root[q]), conj(chunk.at[i - I])) : conj(chunk.at[i - I]);
        store(static_cast<u32>(l) < static_cast<u32>(q < i / P ? P : i % P + 1), column + q * P * sizeof(T), element);
        column += ld_bytes;
      }
    }
  }

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
  constexpr bool STAGED = U == Uplo::Upper && P > 1 && N > 16;

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
  if constexpr (STAGED) {
    Kept::load_upper(a, columns, reader, first, args.a.ld);
  } else {
    Tile::load_triangle(a, reader, first, args.a.ld);
  }
  // Stores compute their addresses and predicates anew instead of keeping those of the loads.
  const u64 out = arch::renamed(first);
  u64 rhs = arch::renamed(first_rhs);
  int writer = arch::renamed(reader);

  i32 info = 0;
  R inverse[SLOTS], root[SLOTS];
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

      if constexpr (STAGED && Out != Output::Discard) {
        root[r0] = j % P == 0 ? p.root : select(l == j % P, p.root, root[r0]);
      } else if constexpr (Out != Output::Discard) {
        a[r0][j] = select(l == j % P, from_real<T>(p.root), a[r0][j]);
      }
      if constexpr (Out == Output::Eager && !STAGED) {
        Tile::store_final(a, column_index, writer, out, column, args.a.ld);
        column += args.a.ld;
      }
    }
  });
  if constexpr (STAGED && Out != Output::Discard) {
    unroll<0, (N + W - 1) / W>([&](auto chunk_index) {
      constexpr int i = decltype(chunk_index)::VALUE * W;
      if (Rate == Pace::Free || args.a.ld > i * sizeof(T)) {
        Kept::store_upper(Index<i>(), columns, root, writer, column, args.a.ld);
        column += W * args.a.ld;
      }
    });
  } else if constexpr (Out == Output::Late) {
    unroll<0, N>([&](auto column_index) {
      Tile::store_final(a, column_index, writer, out, column, args.a.ld);
      column += args.a.ld;
    });
  }
  arch::store(live && l == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);

  // A failed item keeps its right-hand sides.
  writer = info == 0 ? writer : IDLE;
  // Rows that do not exist read the last one's column.
  const T *own[SLOTS];
#pragma unroll
  for (int r = 0; r < SLOTS; r++) {
    own[r] = Kept::own(columns, N - r * P < P ? min(l, N - 1 - r * P) : l, r);
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
