// Cholesky factorisation of one Hermitian positive definite matrix by a group of warps: left-looking outside, right-looking inside.
//
// Columns go in phases. A phase loads its trapezoid, the columns [FIRST, FIRST + WIDTH) from the diagonal down, into a register tile that lies cyclically
// over the threads; subtracts the contribution of all finished columns, which are in shared memory; and factors the tile right-looking, NB columns (a
// panel) at a time:
//   1. the owners of the panel's columns write them to shared memory, and the NB x NB diagonal block to a place of its own;
//   2. barrier; each solver thread factors the diagonal block again in its own registers and solves for its rows with it, writes them to shared memory and
//      to the matrix;
//   3. barrier; all threads update what is right of the panel by it.
// Two barriers serve NB columns, and nothing is exchanged in between. Of a finished phase only the rows below it are kept, since only those are used later.
//
// Phases are template arguments, because the tile of each has its own shape and must be indexed by constants; the panels of one tile column share code.
//
// What a phase subtracts of finished columns is summed from zero and meets A last: added to A one by one, the products would each be rounded to A's last
// place.
//
// The root of a pivot is the pivot times its reciprocal root, within 2 ulp: another correction would cost every solver thread, for a value that one of them
// stores.
//
// A pivot that is not positive and finite sets the rest of the factor, from its column on, to zero, by value selection after the panel's arithmetic, in a
// branch that sound matrices do not take: the reciprocal roots are a serial chain and nothing may lengthen it. All solvers see all pivots, so they agree
// without exchange.
#pragma once
#include <batchlas/cyclic.cuh>
#include <batchlas/memory.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

/// Widths of the phases, in columns; each but the last is a multiple of the grid's rows, of its columns and of a panel.
template <int... W> struct Phases {
  static constexpr int COUNT = sizeof...(W);
  static BATCHLAS_DEVICE constexpr int width(int phase) {
    constexpr int widths[] = {W...};
    return widths[phase];
  }
  static BATCHLAS_DEVICE constexpr int first(int phase) {
    int sum = 0;
    for (int p = 0; p < phase; p++) {
      sum += width(p);
    }
    return sum;
  }
};

/// How a matrix of order N is factored by a group. `Steps`: a panel is applied to the tile in this many parts, fewer registers against fewer instructions.
/// `Solvers`: threads that solve.
template <class T_, int N_, class Grid_, int NB_, int Steps_, int Solvers_, class Phases_> struct CholeskyPlan {
  using T = T_;
  using Grid = Grid_;
  using Phases = Phases_;
  static constexpr int N = N_, NB = NB_, STEPS = Steps_, SOLVERS = Solvers_;
  static_assert(Phases::first(Phases::COUNT) == N, "the phases make up the matrix");
  /// Columns of a phase, and rows and columns of what a phase is filled up to, are multiples of this.
  static constexpr int GRAIN = Grid::ROWS > Grid::COLS ? Grid::ROWS : Grid::COLS;
  static_assert(GRAIN % Grid::ROWS == 0 && GRAIN % Grid::COLS == 0 && Grid::COLS % NB == 0 && NB % STEPS == 0, "grid, panel and steps divide");
  static_assert(!Grid::TENSOR || (NB * sizeof(T) == 64 && STEPS == 1), "a tensor-core product takes the 64 bytes of a panel row at once");
  static_assert(SOLVERS % arch::WARP == 0 && SOLVERS <= Grid::THREADS, "solvers are whole warps");
  /// Whether the trapezoid of the next phase is brought into the L2 cache ahead: where few matrices share a multiprocessor, nothing else hides the latency of
  /// its loads (3 to 8% measured on an H200; the other way round where many do).
  static constexpr bool AHEAD = Grid::TENSOR || Grid::WARPS >= 8;

  static BATCHLAS_DEVICE constexpr bool last(int phase) { return phase == Phases::COUNT - 1; }
  /// Tile rows and columns of a thread.
  static BATCHLAS_DEVICE constexpr int rows(int phase) { return (N - Phases::first(phase) + GRAIN - 1) / GRAIN * (GRAIN / Grid::ROWS); }
  static BATCHLAS_DEVICE constexpr int cols(int phase) { return (Phases::width(phase) + Grid::COLS - 1) / Grid::COLS; }
  /// Rows of a finished phase that are kept.
  static BATCHLAS_DEVICE constexpr int kept(int phase) { return last(phase) ? 0 : rows(phase) * Grid::ROWS - Phases::width(phase); }
  /// Where they start, in elements.
  static BATCHLAS_DEVICE constexpr int history(int phase) {
    int sum = 0;
    for (int p = 0; p < phase; p++) {
      sum += kept(p) * Phases::width(p);
    }
    return sum;
  }
  /// Panels that make up the 32 bytes of a memory sector: Upper, where a panel is a run of a column of A, stores so many at once.
  static constexpr int SECTOR = NB * int(sizeof(T)) < 32 ? 32 / (NB * int(sizeof(T))) : 1;
  /// Buffers for the part of a panel that lies in its own phase: those of a sector while the next are being written.
  static constexpr int BUFFERS = 2 * SECTOR;
  /// Rows of a buffer.
  static BATCHLAS_DEVICE constexpr int buffer_rows() {
    int most = 0;
    for (int p = 0; p < Phases::COUNT; p++) {
      const int here = last(p) ? rows(p) * Grid::ROWS : Phases::width(p);
      most = here > most ? here : most;
    }
    return most;
  }
  static constexpr int BUFFER = history(Phases::COUNT);
  static constexpr int DIAGONAL = BUFFER + BUFFERS * buffer_rows() * NB;
  /// Shared memory of a group.
  static constexpr int BYTES = (DIAGONAL + NB * NB) * int(sizeof(T));
};

template <class Plan, Uplo U> struct Cholesky {
  using T = typename Plan::T;
  using R = Real<T>;
  using Grid = typename Plan::Grid;
  using Phases = typename Plan::Phases;
  static constexpr int N = Plan::N, NB = Plan::NB;
  using Columns = Panel<T, NB>;

  /// Factors the matrix at `item` in place. `shared`: Plan::BYTES bytes of the group, aligned to 16. Returns, in the group's first thread, the order of the
  /// first leading minor that is not positive definite, or 0. The group is one that has a matrix.
  static BATCHLAS_DEVICE i32 factor(T *shared, u64 item, u64 ld_bytes) {
    Cholesky self{shared, item, ld_bytes, Grid::row(), Grid::col(), N};
    self.template phase<0>();
    return self.good < N ? self.good + 1 : 0;
  }

  T *const shared;
  const u64 item, ld_bytes;
  /// This thread's place in the grid, in elements.
  const int y, x;
  /// Columns that can be factored.
  int good;

private:
  static BATCHLAS_DEVICE T oriented(T a) { return U == Uplo::Lower ? a : conj(a); }

  /// What a thread holds at a grid position; with tensor cores, its negative, since those only add.
  struct Cell {
    T at[Grid::PER_THREAD];
  };
  template <int P> using Tile = Cell[Plan::rows(P)][Plan::cols(P)];
  static BATCHLAS_DEVICE T held(T a) { return Grid::TENSOR ? scale(a, R(-1)) : a; }

  template <int P> BATCHLAS_DEVICE void phase() {
    if constexpr (P < Phases::COUNT) {
      Tile<P> a;
      if constexpr (P > 0) {
        clear<P>(a);
        subtract_history<P, 0>(a);
      }
      load<P>(a);
      if constexpr (Plan::AHEAD) {
        prefetch<P + 1>();
      }
      factor_tile<P>(a);
      phase<P + 1>();
    }
  }

  template <int P> static BATCHLAS_DEVICE void clear(Tile<P> &a) {
#pragma unroll
    for (int c = 0; c < Plan::cols(P); c++) {
#pragma unroll
      for (int r = c * Grid::COLS / Grid::ROWS; r < Plan::rows(P); r++) {
#pragma unroll
        for (int e = 0; e < Grid::PER_THREAD; e++) {
          a[r][c].at[e] = from_real<T>(0);
        }
      }
    }
  }

  /// Reads the trapezoid and adds it to the history. What is beyond the matrix is zero: its rows stay zero, and a pivot beyond the matrix is nobody's failure.
  template <int P> BATCHLAS_DEVICE void load(Tile<P> &a) {
    constexpr int FIRST = Phases::first(P);
    const u64 corner = U == Uplo::Lower ? item + (FIRST + y) * sizeof(T) + (FIRST + x) * ld_bytes : item + (FIRST + x) * sizeof(T) + (FIRST + y) * ld_bytes;
    u64 column = corner;
    if constexpr (U == Uplo::Lower) {
#pragma unroll
      for (int c = 0; c < Plan::cols(P); c++) {
#pragma unroll
        for (int r = 0; r < Plan::rows(P); r++) {
          load_cell<P>(a, r, c, column + r * Grid::ROWS * sizeof(T));
        }
        column += Grid::COLS * ld_bytes;
      }
    } else {
#pragma unroll
      for (int r = 0; r < Plan::rows(P); r++) {
#pragma unroll
        for (int c = 0; c < Plan::cols(P); c++) {
          load_cell<P>(a, r, c, column + c * Grid::COLS * sizeof(T));
        }
        column += Grid::ROWS * ld_bytes;
      }
    }
  }

  template <int P> BATCHLAS_DEVICE void load_cell(Tile<P> &a, int r, int c, u64 address) const {
    constexpr int REST = N - Phases::first(P), WIDTH = Phases::width(P);
    const int row0 = r * Grid::ROWS, col0 = c * Grid::COLS;
    if (row0 + Grid::ROWS <= col0) {
      return; // above the diagonal
    }
    const bool whole = row0 + Grid::ROWS <= REST && col0 + Grid::COLS <= WIDTH;
    const bool below = row0 >= col0 + Grid::COLS - 1;
#pragma unroll
    for (int e = 0; e < Grid::PER_THREAD; e++) {
      const bool in_triangle = below || y - x >= col0 + e - row0;
      const bool inside = whole || (y < REST - row0 && x < WIDTH - col0 - e);
      const T element = held(oriented(batchlas::load(in_triangle && inside, address, from_real<T>(0))));
      a[r][c].at[e] = P == 0 ? element : add(a[r][c].at[e], element);
      address += along_row();
    }
  }

  /// Asks for the trapezoid of phase P, whose loads come when its history has been subtracted: pieces of its runs that reach the triangle.
  template <int P> BATCHLAS_DEVICE void prefetch() const {
    if constexpr (P < Phases::COUNT) {
      constexpr int FIRST = Phases::first(P), REST = N - FIRST, WIDTH = Phases::width(P), GRAIN = 64;
      // Runs along the columns of A, in pieces.
      constexpr int RUNS = U == Uplo::Lower ? WIDTH : REST, PIECES = ((U == Uplo::Lower ? REST : WIDTH) * int(sizeof(T)) + GRAIN - 1) / GRAIN;
      const u64 corner = item + FIRST * sizeof(T) + FIRST * ld_bytes;
#pragma unroll 1
      for (u32 i = Grid::thread(); i < RUNS * PIECES; i += Grid::THREADS) {
        const u32 run = i / PIECES, begin = i % PIECES * GRAIN, diagonal = run * sizeof(T);
        if (U == Uplo::Lower ? begin + GRAIN > diagonal : begin <= diagonal) {
          arch::prefetch(corner + run * ld_bytes + begin);
        }
      }
    }
  }

  /// Subtracts the columns of phases From ... P - 1.
  template <int P, int From> BATCHLAS_DEVICE void subtract_history(Tile<P> &a) {
    if constexpr (From < P) {
      constexpr int SKIPPED = Phases::first(P) - Phases::first(From + 1);
      constexpr int PANELS = Phases::width(From) / NB, PITCH = Plan::kept(From) * NB;
      static_assert(SKIPPED % 8 == 0, "the permutation of chunks has period 8");
      const T *panel = shared + Plan::history(From) + SKIPPED * NB;
#pragma unroll 1
      for (int i = 0; i < PANELS; i++) {
        update<P, 0, -1>(a, panel, panel + Phases::width(P) * NB, false);
        panel += PITCH;
      }
      subtract_history<P, From + 1>(a);
    }
  }

  /// a -= l l^H for the tile rows from Row and the tile columns after Col on, and for column Col if `with_first`. The rows of l in the phase's diagonal
  /// block are in `inner`, the others in `outer`, which starts with the row below the block.
  template <int P, int Row, int Col> BATCHLAS_DEVICE void update(Tile<P> &a, const T *inner, const T *outer, bool with_first) const {
    constexpr int ROWS = Plan::rows(P), COLS = Plan::cols(P);
    // A tensor-core product takes 16 bytes of a row per thread.
    constexpr int K = Grid::TENSOR ? Columns::CHUNK : NB / Plan::STEPS;
    const int own = Grid::TENSOR ? arch::lane() % 4 * K : 0, right_row = Grid::right_row();
#pragma unroll
    for (int step = 0; step < Plan::STEPS; step++) {
      T left[ROWS][K];
#pragma unroll
      for (int r = Row; r < ROWS; r++) {
        Columns::load(left[r], grid_row<P>(inner, outer, r), y, own + step * K);
      }
#pragma unroll
      for (int c = Col < 0 ? 0 : Col; c < COLS; c++) {
        // Tested anew each time, or the compiler makes copies of all that lies between two tests.
        if (c > Col || arch::opaque(with_first)) {
          T right[K];
          Columns::load(right, inner + c * Grid::COLS * NB, right_row, own + step * K);
          const int top = c * Grid::COLS / Grid::ROWS > Row ? c * Grid::COLS / Grid::ROWS : Row;
          if constexpr (Grid::TENSOR) {
#pragma unroll
            for (int r = top; r < ROWS; r += 2) {
              if (r + 1 < ROWS) {
                multiply(a[r][c], a[r + 1][c], left[r], left[r + 1], right);
              } else {
                multiply(a[r][c], left[r], right);
              }
            }
          } else {
#pragma unroll
            for (int k = 0; k < K; k++) {
#pragma unroll
              for (int r = top; r < ROWS; r++) {
                a[r][c].at[0] = sub_mul_conj(a[r][c].at[0], left[r][k], right[k]);
              }
            }
          }
        }
      }
    }
  }

  // c += l r^H for 8 x 8 tiles: a thread's 16 bytes are two of the eight terms of each sum, the same two of l and r. A complex number is two of them: with
  // l = a + i b and r = c + i d, the real part is (a, b) . (c, d), and the imaginary part (b, -a) . (c, d).

  static BATCHLAS_DEVICE void multiply(Cell &upper, Cell &lower, const T (&l)[Columns::CHUNK], const T (&m)[Columns::CHUNK], const T (&r)[Columns::CHUNK]) {
    if constexpr (ScalarTraits<T>::COMPLEX) {
      const R right[2] = {r[0].re, r[0].im};
      R re[4] = {upper.at[0].re, upper.at[1].re, lower.at[0].re, lower.at[1].re};
      R im[4] = {upper.at[0].im, upper.at[1].im, lower.at[0].im, lower.at[1].im};
      arch::mma_16x8x8(re, {l[0].re, m[0].re, l[0].im, m[0].im}, right);
      arch::mma_16x8x8(im, {l[0].im, m[0].im, -l[0].re, -m[0].re}, right);
      upper = {{{re[0], im[0]}, {re[1], im[1]}}};
      lower = {{{re[2], im[2]}, {re[3], im[3]}}};
    } else {
      R sum[4] = {upper.at[0], upper.at[1], lower.at[0], lower.at[1]};
      arch::mma_16x8x8(sum, {l[0], m[0], l[1], m[1]}, r);
      upper = {{sum[0], sum[1]}};
      lower = {{sum[2], sum[3]}};
    }
  }
  static BATCHLAS_DEVICE void multiply(Cell &c, const T (&l)[Columns::CHUNK], const T (&r)[Columns::CHUNK]) {
    if constexpr (ScalarTraits<T>::COMPLEX) {
      R re[2] = {c.at[0].re, c.at[1].re}, im[2] = {c.at[0].im, c.at[1].im};
      arch::mma_8x8x4(re, l[0].re, r[0].re);
      arch::mma_8x8x4(re, l[0].im, r[0].im);
      arch::mma_8x8x4(im, l[0].im, r[0].re);
      arch::mma_8x8x4(im, -l[0].re, r[0].im);
      c = {{{re[0], im[0]}, {re[1], im[1]}}};
    } else {
      arch::mma_8x8x4(c.at, l[0], r[0]);
      arch::mma_8x8x4(c.at, l[1], r[1]);
    }
  }

  /// Tile row r of a panel: `inner` has the rows of the phase's diagonal block, `outer` those below it. Panel rows are permuted with period 8, which all
  /// that is added to a pointer here is a multiple of: what a thread adds is the same in all rows of the grid.
  template <int P, class E> static BATCHLAS_DEVICE E *grid_row(E *inner, E *outer, int r) {
    constexpr int WIDTH = Phases::width(P);
    const bool below = !Plan::last(P) && r * Grid::ROWS >= WIDTH;
    return below ? outer + (r * Grid::ROWS - WIDTH) * NB : inner + r * Grid::ROWS * NB;
  }

  /// Factors the tile. Tile columns differ in the registers they touch, so each has code of its own; the solve is shared by all.
  template <int P> BATCHLAS_DEVICE void factor_tile(Tile<P> &a) {
    constexpr int WIDTH = Phases::width(P), FIRST = Phases::first(P);
    // Element (thread, first) of the phase.
    u64 column = item + (FIRST + Grid::thread()) * sizeof(T) + FIRST * ld_bytes;
    publish<P, 0>(a, 0);
#pragma unroll 1
    for (int first = 0; first < WIDTH; first += NB) {
      Grid::sync();
      solve<P>(first, column);
      if (U == Uplo::Upper || !Plan::last(P) || first + NB < WIDTH) {
        Grid::sync();
      }
      if (U == Uplo::Upper) {
        store_upper<P>(first);
      }
      if (first + NB < WIDTH) {
        at_column<P, 0>(first / Grid::COLS, [&](auto index) {
          constexpr int COL = decltype(index)::VALUE;
          const bool inside = first + NB < (COL + 1) * Grid::COLS;
          update<P, COL * Grid::COLS / Grid::ROWS, COL>(a, inner(first), outer<P>(first), inside);
          if (arch::opaque(inside)) {
            publish<P, COL>(a, first + NB);
          } else if constexpr (COL + 1 < Plan::cols(P)) {
            publish<P, COL + 1>(a, first + NB);
          }
        });
      }
    }
  }

  /// body(Index<col>()), for a `col` that all threads agree on.
  template <int P, int Col, class Body> static BATCHLAS_DEVICE void at_column(int col, Body &&body) {
    if constexpr (Col + 1 < Plan::cols(P)) {
      if (col == Col) {
        body(Index<Col>());
      } else {
        at_column<P, Col + 1>(col, body);
      }
    } else {
      body(Index<Col>());
    }
  }

  /// Where the panel that starts at column `first` of phase P keeps its rows in the phase's diagonal block, and those below.
  BATCHLAS_DEVICE T *inner(u32 first) const { return shared + Plan::BUFFER + first / NB % Plan::BUFFERS * (Plan::buffer_rows() * NB); }
  template <int P> BATCHLAS_DEVICE T *outer(u32 first) const { return shared + Plan::history(P) + first * Plan::kept(P); }

  /// Writes the panel that starts at column `first`, in tile column Col, and its diagonal block.
  template <int P, int Col> BATCHLAS_DEVICE void publish(const Tile<P> &a, int first) const {
    constexpr int ROW = Col * Grid::COLS / Grid::ROWS;
    T *const in_block = inner(first), *const below = outer<P>(first);
    const u32 k = static_cast<u32>(x) % NB, owner = static_cast<u32>(x) / NB;
    if (owner == static_cast<u32>(first - Col * Grid::COLS) / NB) {
#pragma unroll
      for (int r = ROW; r < Plan::rows(P); r++) {
        write(grid_row<P>(in_block, below, r), y, k, a[r][Col]);
        if (r * Grid::ROWS < (Col + 1) * Grid::COLS) {
          const int i = r * Grid::ROWS + y - first;
          if (static_cast<u32>(i) < NB) {
            write(shared + Plan::DIAGONAL + i * NB, 0, k, a[r][Col]);
          }
        }
      }
    }
  }
  static BATCHLAS_DEVICE void write(T *panel, u32 row, u32 k, const Cell &cell) {
    T out[Grid::PER_THREAD];
#pragma unroll
    for (int e = 0; e < Grid::PER_THREAD; e++) {
      out[e] = held(cell.at[e]);
    }
    Columns::store(panel, row, k, out);
  }

  /// Factors the diagonal block of the panel that starts at column `first`, and solves for the rows from its grid row on. `column` moves on by NB columns.
  template <int P> BATCHLAS_DEVICE void solve(int first, u64 &column) {
    constexpr int MOST = turns<P>(0), FEWEST = turns<P>(Phases::width(P) - NB);
    const int begin = first & -Grid::ROWS;
    const int t = Grid::thread();
    if (t < Plan::SOLVERS && begin + t - arch::lane() < N - Phases::first(P)) {
      at_turns<P, MOST, FEWEST>(begin, first, column);
    }
  }
  template <int P> static BATCHLAS_DEVICE constexpr int turns(int first) {
    return (N - Phases::first(P) - first / Grid::ROWS * Grid::ROWS + Plan::SOLVERS - 1) / Plan::SOLVERS;
  }
  /// By the least number of turns that reach all rows: only the last may go beyond them.
  template <int P, int Turns, int Fewest> BATCHLAS_DEVICE void at_turns(int begin, int first, u64 &column) {
    if constexpr (Turns > Fewest) {
      if (N - Phases::first(P) - begin > (Turns - 1) * Plan::SOLVERS) {
        solve_rows<P, Turns>(begin, first, column);
      } else {
        at_turns<P, Turns - 1, Fewest>(begin, first, column);
      }
    } else {
      solve_rows<P, Turns>(begin, first, column);
    }
  }

  template <int P, int Turns> BATCHLAS_DEVICE void solve_rows(int begin, int first, u64 &column) {
    constexpr int REST = N - Phases::first(P), WIDTH = Phases::width(P), S = Plan::SOLVERS;
    const int t = Grid::thread();
    const bool inside = begin + t + (Turns - 1) * S < REST;
    T b[Turns][NB];
    T *rows[Turns];
#pragma unroll
    for (int u = 0; u < Turns; u++) {
      const bool in_block = Plan::last(P) || (u * S < WIDTH && begin + t + u * S < WIDTH);
      rows[u] = (in_block ? inner(first) + u * S * NB : outer<P>(first) + (u * S - WIDTH) * NB) + begin * NB;
      if (u < Turns - 1 || inside) {
        Columns::load(b[u], rows[u], t, 0);
      }
    }
    // Left-looking, so that of the diagonal block only what is still needed is in registers.
    T l[NB][NB];
    R d[NB];
    bool sound = true;
#pragma unroll
    for (int m = 0; m < NB; m++) {
#pragma unroll
      for (int i = m; i < NB; i++) {
        if (m % Columns::CHUNK == 0) {
          T chunk[Columns::CHUNK];
          Columns::load(chunk, shared + Plan::DIAGONAL + i * NB, 0, m);
#pragma unroll
          for (int k = 0; k < Columns::CHUNK; k++) {
            l[i][m + k] = chunk[k];
          }
        }
#pragma unroll
        for (int c = 0; c < m; c++) {
          l[i][m] = sub_mul_conj(l[i][m], l[i][c], l[m][c]);
        }
      }
      d[m] = real_part(l[m][m]);
      sound = sound & arch::positive_and_normal(d[m]);
      const R inverse = inverse_root(d[m]);
#pragma unroll
      for (int i = m + 1; i < NB; i++) {
        l[i][m] = scale(l[i][m], inverse);
      }
#pragma unroll
      for (int u = 0; u < Turns; u++) {
#pragma unroll
        for (int c = 0; c < m; c++) {
          b[u][m] = sub_mul_conj(b[u][m], b[u][c], l[m][c]);
        }
        b[u][m] = scale(b[u][m], inverse);
      }
    }
    // Row of the first turn within the panel; a thread's further rows are below the panel's diagonal block.
    const int i = begin + t - first;
    static_assert(S >= Grid::ROWS, "which they are because the panel starts in the grid row where the first turn starts");
    if (!arch::opaque(sound & (good == N))) {
      const int global = Phases::first(P) + first;
#pragma unroll
      for (int m = 0; m < NB; m++) {
        good = positive_and_finite(d[m]) || good < global + m ? good : global + m;
#pragma unroll
        for (int u = 0; u < Turns; u++) {
          b[u][m] = select(global + m < good, b[u][m], from_real<T>(R(0)));
        }
      }
    }
    if constexpr (ScalarTraits<T>::COMPLEX) {
#pragma unroll
      for (int m = 0; m < NB; m++) {
        b[0][m].im = select(i == m, R(0), b[0][m].im);
      }
    }
    u64 address = column + begin * sizeof(T);
#pragma unroll
    for (int u = 0; u < Turns; u++) {
      if (u < Turns - 1 || inside) {
        Columns::store(rows[u], t, 0, b[u]);
      }
    }
    if constexpr (U == Uplo::Lower) {
#pragma unroll
      for (int m = 0; m < NB; m++) {
#pragma unroll
        for (int u = 0; u < Turns; u++) {
          store((u > 0 || i >= m) && (u < Turns - 1 || inside), address + u * S * sizeof(T), b[u][m]);
        }
        address = arch::advance(address, ld_bytes);
      }
      column = address - begin * sizeof(T);
    }
  }

  /// Writes the panels of a sector, if the one that starts at column `first` completes it: a row of S is a column of A, so consecutive threads take
  /// consecutive elements of a row.
  template <int P> BATCHLAS_DEVICE void store_upper(int first) const {
    constexpr int FIRST = Phases::first(P), WIDTH = Phases::width(P), ACROSS = Plan::SECTOR * NB, DOWN = Grid::THREADS / ACROSS;
    const int begin = first & -ACROSS, end = first + NB;
    if (end < begin + ACROSS && end < WIDTH) {
      return;
    }
    const int k = Grid::thread() % ACROSS, column = begin + k;
    const T *const in_block = inner(begin + k / NB * NB), *const below = outer<P>(begin + k / NB * NB) - WIDTH * NB;
    int row = begin + Grid::thread() / ACROSS;
    u64 address = item + (FIRST + column) * sizeof(T) + (FIRST + row) * ld_bytes;
#pragma unroll 2
    for (; row < N - FIRST; row += DOWN) {
      const T value = (Plan::last(P) || row < WIDTH ? in_block : below)[Columns::offset(row, k % NB)];
      store(row >= column && column < end, address, conj(value));
      address += DOWN * ld_bytes;
    }
  }

  /// Bytes from an element of the lower triangle to the one right of it.
  BATCHLAS_DEVICE u64 along_row() const { return U == Uplo::Lower ? ld_bytes : sizeof(T); }
};

} // namespace batchlas
