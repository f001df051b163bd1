// potrf, family `left`: Cholesky factorisation of a batch of matrices of any order by tiles of 64 x 64, left-looking, one launch per column of tiles.
//
// S is what is factored, by its lower triangle: A itself, or the transpose of its upper triangle (the conjugate of the same matrix). For a tile the block sums
// the products of the finished columns left of it in registers, subtracts the tile (last, or every product would be rounded to the tile's last place), and on
// the same registers solves with the diagonal tile of its column, or factors: a tile is read once and written once. The launch of a column does its tiles below the diagonal; the block of the first of them goes
// on to the next diagonal tile, which then is ready for the next launch. Those blocks come first, so that the others run beside their longer way.
//
// A warp holds 16 Down whole rows of a tile, as fragments of tensor cores: f64 in its own precision, f32 in three products of parts (batchlas/fragment.cuh), a
// complex number as two terms of a sum. f32 sums of few products are formed apart and added with a rounding: the sums of the tensor cores truncate.
//
// Solve: 8 columns at a time, by the inverse of the diagonal block of order 8, which every block of threads forms for itself; its result is the left operand
// of the update as it stands. A warp needs no other. Factor: the columns of one product of fragments at a time; the warps write them to shared memory, each of
// 64 threads factors their diagonal block again in its own registers and solves for its row, and all warps update by the result. In both the tile moves
// one block to the left in each round, so that a round finds what it needs in the same registers and the loop stays a loop.
//
// info[item] = 0, or the 1-based order of the first leading minor whose pivot is not positive and finite. The diagonal tile of that pivot then has zeros from
// its column on. A last diagonal element of zero tells the launches that follow that the item is done; they leave the rest of it as it is, but for that
// element of each diagonal tile to come.
#pragma once
#include <batchlas/cyclic.cuh>
#include <batchlas/fragment.cuh>
#include <batchlas/partition.cuh>
#include <batchlas/product.cuh>
#include <batchlas/substitution.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

/// The operands of a launch over `batch * tiles` blocks. Sizes in bytes are 64-bit, multiples of the size of an element.
struct PotrfLeftArgs {
  /// Address of item 0, or of the table of item addresses (flag::A_TABLE).
  u64 a;
  /// Bytes from a column to the next.
  u64 ld_bytes;
  /// Bytes from an item to the next, or from an address in the table to its item.
  u64 item_bytes;
  /// Address of one 32-bit integer per item, or 0.
  u64 info;
  /// Items, and tiles below the diagonal (1 if `first` is negative).
  u32 batch, tiles;
  /// Order, and the first column; -64: the launch factors the first diagonal tile only.
  i32 n, first;
  /// Bits of `flag`.
  u32 flags;
  u32 unused;
};

/// Rows and columns of a tile.
constexpr int TILE = 64;
/// Columns of a fragment of a sum.
constexpr int WIDE = 8;

/// Terms of a product of fragments. A complex number is two of them: with l = a + i b and r = c + i d, the real part of l conj(r) is (a, b) . (c, d) and the
/// imaginary part (b, -a) . (c, d).
template <class T> struct Terms {
  using R = Real<T>;
  static constexpr bool COMPLEX = ScalarTraits<T>::COMPLEX;
  /// Sums of an element of the result.
  static constexpr int PARTS = COMPLEX ? 2 : 1;
  /// Elements of an operand that a lane brings to a product, and all lanes of a row.
  static constexpr int OWN = COMPLEX ? 1 : 2, COUNT = 4 * OWN;
  /// Products whose sum is formed apart.
  static constexpr int APART = sizeof(T) == 4 ? 2 : 1;
  using Left = Fragment<R, 4>[PARTS];
  using Right = Fragment<R, 2>;

  /// The left operand of rows `upper` and `lower`.
  static BATCHLAS_DEVICE void set(Left &left, const T (&upper)[OWN], const T (&lower)[OWN]) {
    if constexpr (COMPLEX) {
      const R all[2][4] = {{upper[0].re, lower[0].re, upper[0].im, lower[0].im}, {upper[0].im, lower[0].im, -upper[0].re, -lower[0].re}};
#pragma unroll
      for (int part = 0; part < 2; part++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          left[part].set(i, all[part][i]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        left[0].set(2 * i, upper[i]);
        left[0].set(2 * i + 1, lower[i]);
      }
    }
  }
  static BATCHLAS_DEVICE void set(Right &right, const T (&x)[OWN]) {
    if constexpr (COMPLEX) {
      right.set(0, x[0].re);
      right.set(1, x[0].im);
    } else {
      right.set(0, x[0]);
      right.set(1, x[1]);
    }
  }

  /// sum = c + the sum of `Count` products, of the fragments' part `part`.
  template <int Count> static BATCHLAS_DEVICE void add(R (&sum)[4], const R (&c)[4], const Left (&left)[Count], int part, const Right (&right)[Count]) {
    R apart[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      apart[i] = sizeof(R) == 4 ? R(0) : c[i];
    }
#pragma unroll
    for (int i = 0; i < Count; i++) {
      multiply(apart, left[i][part], right[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[i] = sizeof(R) == 4 ? c[i] + apart[i] : apart[i];
    }
  }
};

/// The rows of a tile that a warp holds: 16 Down rows, TILE columns.
///
/// With g = lane / 4 and t = lane % 4, a lane has columns 2 t and 2 t + 1 of each WIDE, and of the rows RUN consecutive ones, 16 bytes where there are so
/// many (`Wide`), of each 8 RUN.
template <class T, int Down, bool Wide> struct Strip {
  using R = Real<T>;
  using Of = Terms<T>;
  static constexpr int ROWS = 16 * Down, OWN_ROWS = 2 * Down, BLOCKS = TILE / WIDE;
  static constexpr int RUN = !Wide ? 1 : PER_16_BYTES<T> < OWN_ROWS ? PER_16_BYTES<T> : OWN_ROWS;

  R c[Down][BLOCKS][Of::PARTS][4];

  static BATCHLAS_DEVICE int g() { return arch::lane() / 4; }
  static BATCHLAS_DEVICE int t() { return arch::lane() % 4; }
  /// The warp's row that is this lane's `i`-th.
  static BATCHLAS_DEVICE int row(int i) { return (i / RUN * 8 + g()) * RUN + i % RUN; }

  /// Element (i, q) of block n, of this lane's rows and columns.
  BATCHLAS_DEVICE T get(int i, int n, int q) const {
    const int m = i / 2, at = i % 2 * 2 + q;
    if constexpr (Of::COMPLEX) {
      return {c[m][n][0][at], c[m][n][1][at]};
    } else {
      return c[m][n][0][at];
    }
  }
  BATCHLAS_DEVICE void set(int i, int n, int q, T value) {
    const int m = i / 2, at = i % 2 * 2 + q;
    if constexpr (Of::COMPLEX) {
      c[m][n][0][at] = value.re;
      c[m][n][1][at] = value.im;
    } else {
      c[m][n][0][at] = value;
    }
  }

  BATCHLAS_DEVICE void zero_block(int m, int n) {
#pragma unroll
    for (int part = 0; part < Of::PARTS; part++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        c[m][n][part][i] = 0;
      }
    }
  }

  BATCHLAS_DEVICE void zero() {
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int n = 0; n < BLOCKS; n++) {
        zero_block(m, n);
      }
    }
  }

  /// What this lane has of RUN rows from its `i`-th on, at index k of a staged tile.
  template <class Tile> static BATCHLAS_DEVICE Vector<T, RUN> run(const T *tile, int i, int k) {
    return *reinterpret_cast<const Vector<T, RUN> *>(tile + Tile::ahead(i / RUN * 8 * RUN) + Tile::at(g() * RUN, k));
  }

  /// Subtracts `Count` blocks of columns from those that start at `first`; `tile` points to the warp's first row in the first of the tiles that have Depth of the
  /// columns each.
  template <class Tile, int Depth, int Count> BATCHLAS_DEVICE void subtract(const T *tile, int first) {
#pragma unroll
    for (int n = 0; n < Count; n++) {
#pragma unroll
      for (int q = 0; q < 2; q++) {
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i += RUN) {
          const Vector<T, RUN> v = run<Tile>(tile + n * WIDE / Depth * (Tile::BYTES / int(sizeof(T))), i, n * WIDE % Depth + 2 * t() + q);
#pragma unroll
          for (int r = 0; r < RUN; r++) {
            set(i + r, first + n, q, sub(get(i + r, first + n, q), v.at[r]));
          }
        }
      }
    }
  }

  /// The left operand from shared memory; `tile` points to the warp's first row, k is the product's first index.
  template <class Tile> static BATCHLAS_DEVICE void load(typename Of::Left (&left)[Down], const T *tile, int k) {
    T x[Of::OWN][OWN_ROWS];
#pragma unroll
    for (int e = 0; e < Of::OWN; e++) {
#pragma unroll
      for (int i = 0; i < OWN_ROWS; i += RUN) {
        const Vector<T, RUN> v = run<Tile>(tile, i, k + t() + 4 * e);
#pragma unroll
        for (int r = 0; r < RUN; r++) {
          x[e][i + r] = v.at[r];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < Down; m++) {
      T upper[Of::OWN], lower[Of::OWN];
#pragma unroll
      for (int e = 0; e < Of::OWN; e++) {
        upper[e] = x[e][2 * m];
        lower[e] = x[e][2 * m + 1];
      }
      Of::set(left[m], upper, lower);
    }
  }
  /// The right operand of one block of columns, which starts at `tile`.
  template <class Tile> static BATCHLAS_DEVICE void load(typename Of::Right &right, const T *tile, int k) {
    T x[Of::OWN];
#pragma unroll
    for (int e = 0; e < Of::OWN; e++) {
      x[e] = tile[Tile::at(g(), k + t() + 4 * e)];
    }
    Of::set(right, x);
  }

  /// Adds a b^H, of staged tiles; `a` points to the warp's first row. `Some`: only for the first `blocks` blocks.
  template <int Depth, class Tile, bool Some> BATCHLAS_DEVICE void add(const T *a, const T *b, int blocks) {
    constexpr int K = Of::COUNT * Of::APART;
    static_assert(Depth % K == 0, "a stage is whole sums");
#pragma unroll 1
    for (int k = 0; k < Depth; k += K) {
      typename Of::Left left[Down][Of::APART];
#pragma unroll
      for (int s = 0; s < Of::APART; s++) {
        typename Of::Left step[Down];
        load<Tile>(step, a, k + s * Of::COUNT);
#pragma unroll
        for (int m = 0; m < Down; m++) {
#pragma unroll
          for (int part = 0; part < Of::PARTS; part++) {
            left[m][s][part] = step[m][part];
          }
        }
      }
#pragma unroll
      for (int n = 0; n < BLOCKS; n++) {
        if (!Some || n < blocks) {
          typename Of::Right right[Of::APART];
#pragma unroll
          for (int s = 0; s < Of::APART; s++) {
            load<Tile>(right[s], b + Tile::ahead(n * WIDE), k + s * Of::COUNT);
          }
#pragma unroll
          for (int m = 0; m < Down; m++) {
#pragma unroll
            for (int part = 0; part < Of::PARTS; part++) {
              Of::add(c[m][n][part], c[m][n][part], left[m], part, right);
            }
          }
        }
      }
    }
  }
};

/// Columns in shared memory, Pitch elements from one to the next, as the readers of staged tiles take them.
template <int Pitch> struct Columns {
  static BATCHLAS_DEVICE constexpr int ahead(int n) { return n; }
  static BATCHLAS_DEVICE constexpr int at(int outer, int inner) { return inner * Pitch + outer; }
};

/// A tile of S and what its block does with it.
template <class T, int Down, int Depth, int Stages, Uplo U, bool Aligned> struct LeftTile {
  using R = Real<T>;
  using Of = Terms<T>;
  using Rows = Strip<T, Down, U == Uplo::Lower>;
  static constexpr int WARPS = TILE / Rows::ROWS, THREADS = WARPS * arch::WARP;
  static_assert(THREADS >= TILE, "a thread per row");
  /// Elements from a column to the next of what is on distinct banks along rows.
  static constexpr int PAD = sizeof(T) == 4 ? 8 : sizeof(T) == 8 ? 4 : 2, PITCH = TILE + PAD;
  /// A row of S is an outer index of a product; in the upper triangle it is contiguous along the inner one, and stays so.
  using Staged = typename Either<U == Uplo::Lower, StagedTile<T, TILE, Depth, THREADS, Contiguous::Outer, Aligned, PAD>,
                                 KeptTile<T, TILE, Depth, THREADS, Aligned || sizeof(T) == 16>>::Type;
  /// Columns of the tile itself in a stage, and the stages that it takes.
  static constexpr int OWN = 2 * Depth, OWN_STAGES = TILE / OWN;
  /// Elements of a staged operand.
  static constexpr int TILE_ELEMENTS = Staged::BYTES / int(sizeof(T));
  /// Elements from a column of the diagonal tile to the next: the fragments of a solve are on distinct banks.
  static constexpr int SOLVE_PITCH = TILE + PER_16_BYTES<T>;
  /// Shared memory: the ring of stages, and afterwards the diagonal tile, or a panel before and after its solve.
  static constexpr int RING = Stages * 2 * Staged::BYTES, DIAGONAL = TILE * SOLVE_PITCH * int(sizeof(T));
  static constexpr int BYTES = RING > DIAGONAL ? RING : DIAGONAL;

  const u64 item, ld_bytes;
  const int n;
  T *const shared;
  /// The tile's row that is the warp's first.
  const int warp_row;

  BATCHLAS_DEVICE u64 at(int row, int col) const {
    return U == Uplo::Lower ? item + row * u64(sizeof(T)) + col * ld_bytes : item + col * u64(sizeof(T)) + row * ld_bytes;
  }

  /// acc = the products of the columns left of the tile at (row, col), less the tile; above the diagonal, and where the matrix ends, less zeros.
  /// `Diagonal`: row and col are the same.
  template <bool Diagonal> BATCHLAS_DEVICE void sum(Rows &acc, int row, int col) const {
    Staged a(item, ld_bytes, row, n), b(item, ld_bytes, col, n);
    const u32 ring = arch::shared_address(shared);
    const int stages = col / Depth;
    // The tile is what follows in its rows: it goes through the ring after the products, in both operands' places.
    auto fill = [&](int stage, int slot) {
      const u32 to = ring + slot * (2 * Staged::BYTES);
      if (stage < stages) {
        a.copy_next(to, Depth);
        if (!Diagonal) {
          b.copy_next(to + Staged::BYTES, Depth);
        }
      } else if (stage < stages + OWN_STAGES) {
        if (Diagonal) {
          copy_own(to, row, (stage - stages) * OWN);
        } else {
          a.copy_next(to, Depth);
          a.copy_next(to + Staged::BYTES, Depth);
        }
      }
      arch::commit_async();
    };
#pragma unroll
    for (int slot = 0; slot < Stages - 1; slot++) {
      fill(slot, slot);
    }
    acc.zero();
    // Blocks of columns that reach the triangle.
    const int blocks = (warp_row + Rows::ROWS) / WIDE;
    int full = 0, empty = Stages - 1;
    // The warp's rows in the stage that comes next, whole.
    auto next = [&](int stage) {
      // The wait makes this thread's part of the stage whole, the barrier everybody's; and it says that nobody reads the stage that is filled next.
      arch::wait_async<Stages - 2>();
      arch::sync_block();
      fill(stage + Stages - 1, empty);
      const T *const at = shared + full * (2 * TILE_ELEMENTS) + Staged::ahead(warp_row);
      full = full + 1 == Stages ? 0 : full + 1;
      empty = empty + 1 == Stages ? 0 : empty + 1;
      return at;
    };
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
      const T *const left = next(stage), *const right = left - Staged::ahead(warp_row) + (Diagonal ? 0 : TILE_ELEMENTS);
      acc.template add<Depth, Staged, Diagonal>(left, right, blocks);
    }
#pragma unroll
    for (int stage = 0; stage < OWN_STAGES; stage++) {
      acc.template subtract<Staged, Depth, OWN / WIDE>(next(stages + stage), stage * (OWN / WIDE));
    }
    // What follows is written where a ring is still read; but a panel of the lower triangle goes where its warp alone reads its rows of the tile.
    if constexpr (!Diagonal || U == Uplo::Upper) {
      arch::sync_block();
    }
  }

  /// Writes block 0 of the warp's rows; `corner` is the address of its first element, `left` the rows from there to the end of the matrix.
  BATCHLAS_DEVICE void store(const Rows &acc, u64 corner, int left) const {
    u64 line = first_line(corner);
#pragma unroll
    for (int outer = 0; outer < LINES; outer++) {
#pragma unroll
      for (int run = 0; run < RUNS; run++) {
        T x[RUN];
#pragma unroll
        for (int r = 0; r < RUN; r++) {
          const Place at = place(outer, run, r);
          x[r] = acc.get(at.i, 0, at.q);
        }
        const u64 to = line + run * (8 * RUN_STEP * sizeof(T));
        if constexpr (Aligned) {
          store_run(Rows::row(place(outer, run, 0).i) < left, to, x);
        } else {
#pragma unroll
          for (int r = 0; r < RUN; r++) {
            batchlas::store(Rows::row(place(outer, run, r).i) < left, to + r * sizeof(T), x[r]);
          }
        }
      }
      line = next_line(line, outer);
    }
  }

  /// Factors the tile at (first, first). The order of the tile's first leading minor that is not positive definite, in the last of TILE threads; or 0.
  BATCHLAS_DEVICE int factor(int first) const {
    Rows acc;
    sum<true>(acc, first, first);
    const int size = min(TILE, n - first);
    // Columns that can be factored; what is beyond the matrix is zero, and no failure.
    int good = TILE;
    T *const solved = shared + Of::COUNT * PITCH;
#pragma unroll 1
    for (int col = 0; col < size; col += WIDE) {
#pragma unroll
      for (int begin = 0; begin < WIDE; begin += Of::COUNT) {
        if (warp_row + Rows::ROWS > col) {
          publish(acc, begin);
        }
        arch::sync_block();
        solve_panel(first, col + begin, size, solved, good);
        arch::sync_block();
        if (warp_row + Rows::ROWS > col + begin + Of::COUNT) {
          if (begin + Of::COUNT == WIDE) {
            update<1>(acc, solved, col);
          } else {
            update<0>(acc, solved, col);
          }
        }
      }
    }
    return good < size ? good + 1 : 0;
  }

  /// Solves for the tile at (row, col) with the finished diagonal tile at (col, col). False, and nothing is written, if the latter is not finished.
  BATCHLAS_DEVICE bool solve(int row, int col) const {
    Rows acc;
    sum<false>(acc, row, col);
    copy_diagonal(col);
    const R last = real_part(batchlas::load(true, at(col + TILE - 1, col + TILE - 1), from_real<T>(0)));
    if (last == 0) {
      return false;
    }
    arch::wait_async<0>();
    arch::sync_block();
    invert_blocks();
    arch::sync_block();
    constexpr int STEPS = WIDE / Of::COUNT;
    const int left = n - row - warp_row;
    u64 corner = at(row + warp_row, col);
    const T *diagonal = shared;
#pragma unroll 1
    for (int blocks = Rows::BLOCKS; blocks > 0; blocks--) {
      typename Of::Left x[Down][STEPS];
      as_left<true>(x, acc);
#pragma unroll
      for (int m = 0; m < Down; m++) {
        acc.zero_block(m, 0);
      }
      multiply_block<0>(acc, 0, x, diagonal);
      store(acc, corner, left);
      as_left<false>(x, acc);
#pragma unroll
      for (int b = 1; b < Rows::BLOCKS; b++) {
        if (b < blocks) {
          multiply_block<1>(acc, b, x, diagonal + b * WIDE);
        }
      }
      corner = arch::advance(corner, U == Uplo::Lower ? WIDE * ld_bytes : WIDE * sizeof(T));
      diagonal += WIDE * (SOLVE_PITCH + 1);
    }
    return true;
  }

private:
  static BATCHLAS_DEVICE int column(int b, int q) { return b * WIDE + 2 * Rows::t() + q; }

  // What a lane has of the warp's rows, in the order of memory: lines that are contiguous (columns of S in the lower triangle, rows in the upper one), each of
  // runs of elements side by side.

  /// Elements of a run, runs of a block in a line, lines of a block.
  static constexpr int RUN = U == Uplo::Lower ? Rows::RUN : 2;
  static constexpr int RUNS = U == Uplo::Lower ? Rows::OWN_ROWS / RUN : 1, LINES = U == Uplo::Lower ? 2 : Rows::OWN_ROWS;
  /// Eighths of the elements from a run to the next.
  static constexpr int RUN_STEP = U == Uplo::Lower ? RUN : 1;
  struct Place {
    int i, b, q;
  };
  static BATCHLAS_DEVICE constexpr Place place(int line, int run, int r) {
    return U == Uplo::Lower ? Place{run * RUN + r, line / 2, line % 2} : Place{line, run, r};
  }
  BATCHLAS_DEVICE u64 first_line(u64 corner) const {
    return U == Uplo::Lower ? corner + 2 * Rows::t() * ld_bytes + Rows::row(0) * u64(sizeof(T)) : corner + Rows::row(0) * ld_bytes + 2 * Rows::t() * u64(sizeof(T));
  }
  BATCHLAS_DEVICE u64 next_line(u64 line, int index) const {
    const int step = U == Uplo::Lower ? (index % 2 == 0 ? 1 : WIDE - 1) : (index + 1) % Rows::RUN != 0 ? 1 : 7 * Rows::RUN + 1;
    return arch::advance(line, step * ld_bytes);
  }
  /// Starts the copies of OWN columns of the diagonal tile at (first, first), from its column `begin` on, to the shared address `to`: zeros above the diagonal
  /// and where the matrix ends.
  BATCHLAS_DEVICE void copy_own(u32 to, int first, int begin) const {
    const int size = n - first;
    const u64 corner = at(first, first + begin);
    constexpr int EIGHT = 8; // Contiguous ones by eight lanes, onto distinct banks.
#pragma unroll 1
    for (int e = static_cast<int>(threadIdx.x); e < TILE * OWN; e += THREADS) {
      const int row = U == Uplo::Lower ? e % TILE : e / EIGHT % TILE, k = U == Uplo::Lower ? e / TILE : e / (EIGHT * TILE) * EIGHT + e % EIGHT;
      const u64 from = corner + (U == Uplo::Lower ? row * sizeof(T) + k * ld_bytes : k * sizeof(T) + row * ld_bytes);
      arch::copy_async_or_zero<sizeof(T)>(begin + k <= row && row < size, to + (k / Depth * TILE_ELEMENTS + Staged::at(row, k % Depth)) * int(sizeof(T)), from);
    }
  }

  /// Starts the copies of the lower triangle of the diagonal tile at (col, col).
  BATCHLAS_DEVICE void copy_diagonal(int col) const {
    constexpr int V = Aligned && U == Uplo::Lower ? PER_16_BYTES<T> : 1;
    const u64 corner = at(col, col);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 4
    for (int e = thread; e < TILE * TILE / V; e += THREADS) {
      const int fast = e % (TILE / V), slow = e / (TILE / V);
      const int row = U == Uplo::Lower ? fast * V : slow, k = U == Uplo::Lower ? slow : fast;
      const u64 from = corner + (U == Uplo::Lower ? row * sizeof(T) + k * ld_bytes : k * sizeof(T) + row * ld_bytes);
      arch::copy_async<V * sizeof(T)>(row >= k, shared + k * SOLVE_PITCH + row, from);
    }
    if (V > 1) {
      // What shares 16 bytes with elements above the diagonal.
#pragma unroll 4
      for (int e = thread; e < TILE * V; e += THREADS) {
        const int k = e / V, row = k / V * V + e % V;
        arch::copy_async<sizeof(T)>(row >= k && k % V != 0, shared + k * SOLVE_PITCH + row, corner + row * sizeof(T) + k * ld_bytes);
      }
    }
    arch::commit_async();
  }

  /// Replaces the diagonal blocks of order WIDE by their inverses, zeros above the diagonal included. A thread per column.
  BATCHLAS_DEVICE void invert_blocks() const {
    const int thread = static_cast<int>(threadIdx.x), c = thread % WIDE;
    if (thread < TILE) {
      T *const block = shared + thread / WIDE * WIDE * (SOLVE_PITCH + 1);
      const R own = arch::reciprocal(real_part(block[c * (SOLVE_PITCH + 1)]));
      T x[WIDE];
#pragma unroll
      for (int i = 0; i < WIDE; i++) {
        T sum = from_real<T>(select(i == c, R(1), R(0)));
#pragma unroll
        for (int k = 0; k < i; k++) {
          sum = sub_mul(sum, block[k * SOLVE_PITCH + i], x[k]);
        }
        x[i] = scale(sum, Partition<WIDE>::broadcast(own, i));
      }
      arch::sync_warp();
#pragma unroll
      for (int i = 0; i < WIDE; i++) {
        block[c * SOLVE_PITCH + i] = x[i];
      }
    }
  }

  /// Block 0 as a left operand: a lane's elements as they are, so that the inner index runs 2 t, 2 t + 1.
  template <bool Negative> static BATCHLAS_DEVICE void as_left(typename Of::Left (&x)[Down][WIDE / Of::COUNT], const Rows &acc) {
    constexpr int STEPS = WIDE / Of::COUNT;
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int s = 0; s < STEPS; s++) {
        T upper[Of::OWN], lower[Of::OWN];
#pragma unroll
        for (int e = 0; e < Of::OWN; e++) {
          upper[e] = scale(acc.get(2 * m, 0, s + e), R(Negative ? -1 : 1));
          lower[e] = scale(acc.get(2 * m + 1, 0, s + e), R(Negative ? -1 : 1));
        }
        Of::set(x[m][s], upper, lower);
      }
    }
  }

  /// Block b - Shift of acc = block b + x d^H, for the rows of the diagonal tile that start at `d`.
  template <int Shift> static BATCHLAS_DEVICE void multiply_block(Rows &acc, int b, const typename Of::Left (&x)[Down][WIDE / Of::COUNT], const T *d) {
    constexpr int STEPS = WIDE / Of::COUNT;
    typename Of::Right right[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      T y[Of::OWN];
#pragma unroll
      for (int e = 0; e < Of::OWN; e++) {
        y[e] = d[(2 * Rows::t() + s + e) * SOLVE_PITCH + Rows::g()];
      }
      Of::set(right[s], y);
    }
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int part = 0; part < Of::PARTS; part++) {
        Of::add(acc.c[m][b - Shift][part], acc.c[m][b][part], x[m], part, right);
      }
    }
  }

  /// Writes the columns [begin, begin + COUNT) of block 0 to shared memory.
  BATCHLAS_DEVICE void publish(const Rows &acc, int begin) const {
#pragma unroll
    for (int q = 0; q < 2; q++) {
      const int k = column(0, q) - begin;
      if (0 <= k && k < Of::COUNT) {
#pragma unroll
        for (int i = 0; i < Rows::OWN_ROWS; i++) {
          shared[k * PITCH + warp_row + Rows::row(i)] = scale(acc.get(i, 0, q), R(-1));
        }
      }
    }
  }

  /// Factors the diagonal block of the panel at column `col` of the tile, and solves for the rows from it on, a thread each.
  BATCHLAS_DEVICE void solve_panel(int first, int col, int size, T *solved, int &good) const {
    constexpr int NB = Of::COUNT;
    const int row = static_cast<int>(threadIdx.x);
    if (row >= TILE || row < col) {
      return;
    }
    // Left-looking, so that of the diagonal block only what is still needed is in registers.
    T b[NB], l[NB][NB];
#pragma unroll
    for (int m = 0; m < NB; m++) {
      b[m] = shared[m * PITCH + row];
#pragma unroll
      for (int i = m; i < NB; i++) {
        l[i][m] = shared[m * PITCH + col + i];
#pragma unroll
        for (int k = 0; k < m; k++) {
          l[i][m] = sub_mul_conj(l[i][m], l[i][k], l[m][k]);
        }
      }
      const R d = real_part(l[m][m]);
      good = positive_and_finite(d) || good < col + m ? good : col + m;
      const R inverse = pivot(d, true).inverse;
#pragma unroll
      for (int i = m + 1; i < NB; i++) {
        l[i][m] = scale(l[i][m], inverse);
      }
#pragma unroll
      for (int k = 0; k < m; k++) {
        b[m] = sub_mul_conj(b[m], b[k], l[m][k]);
      }
      b[m] = scale(b[m], inverse);
    }
    u64 address = at(first + row, first + col);
#pragma unroll
    for (int m = 0; m < NB; m++) {
      b[m] = select(col + m < good, b[m], from_real<T>(R(0)));
      if constexpr (Of::COMPLEX) {
        b[m].im = select(row == col + m, R(0), b[m].im);
      }
      solved[m * PITCH + row] = b[m];
      batchlas::store(row >= col + m && row < size, address, b[m]);
      address += U == Uplo::Lower ? ld_bytes : sizeof(T);
    }
  }

  /// Adds the product of a solved panel to the blocks right of it, and moves them by Shift; `col` is the tile's column of block 0.
  template <int Shift> BATCHLAS_DEVICE void update(Rows &acc, const T *solved, int col) const {
    typename Of::Left left[Down];
    Rows::template load<Columns<PITCH>>(left, solved + warp_row, 0);
#pragma unroll
    for (int b = Shift; b < Rows::BLOCKS; b++) {
      if (b < (TILE - col) / WIDE) {
        typename Of::Right right[1];
        Rows::template load<Columns<PITCH>>(right[0], solved + col + b * WIDE, 0);
#pragma unroll
        for (int m = 0; m < Down; m++) {
          typename Of::Left one[1];
#pragma unroll
          for (int part = 0; part < Of::PARTS; part++) {
            one[0][part] = left[m][part];
          }
#pragma unroll
          for (int part = 0; part < Of::PARTS; part++) {
            Of::add(acc.c[m][b - Shift][part], acc.c[m][b][part], one, part, right);
          }
        }
      }
    }
  }
};

template <class T, int Down, int Depth, int Stages, int Bytes, Uplo U, bool Aligned, int MinBlocks>
__global__ void __launch_bounds__(LeftTile<T, Down, Depth, Stages, U, Aligned>::THREADS, MinBlocks) potrf_left(const PotrfLeftArgs args) {
  using Tile = LeftTile<T, Down, Depth, Stages, U, Aligned>;
  static_assert(Tile::BYTES == Bytes, "the host asks for another amount of shared memory");
  extern __shared__ Vector<u64, 2> shared[];
  // A tile of S, found anew each time, so that no register holds it in between.
  int row;
  const auto find = [&] {
    const u32 block = arch::renamed(static_cast<int>(arch::block()));
    u32 matrix = block, below = 0;
    if (block >= args.batch) {
      matrix = (block - args.batch) / (args.tiles - 1);
      below = 1 + (block - args.batch) % (args.tiles - 1);
    }
    row = args.first + (1 + static_cast<int>(below)) * TILE;
    const u64 item = operand_item((args.flags & flag::A_TABLE) != 0, args.a, args.item_bytes, matrix);
    return Tile{item, args.ld_bytes, args.n, reinterpret_cast<T *>(shared), arch::uniform_warp() * Tile::Rows::ROWS};
  };
  if (args.first >= 0) {
    const Tile below = find();
    const bool done = below.solve(row, args.first);
    const Tile next = find();
    if (row != args.first + TILE) {
      return;
    }
    if (!done) {
      const int last = min(row + TILE, args.n) - 1;
      store(threadIdx.x == 0, next.at(last, last), from_real<T>(0));
      return;
    }
    arch::sync_block(); // The tile is in memory, and nobody reads the diagonal tile in shared memory.
  }
  const Tile diagonal = find();
  const i32 failed = diagonal.factor(args.first + TILE);
  const u64 matrix = arch::renamed(static_cast<int>(arch::block()));
  arch::store(threadIdx.x == TILE - 1 && args.info != 0 && (failed != 0 || args.first < 0), args.info + matrix * sizeof(i32), failed == 0 ? 0 : args.first + TILE + failed);
}

} // namespace batchlas
