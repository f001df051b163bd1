// trsm, families `cta` and `sg_left`: triangular solve of order N <= 32, each thread owning C right-hand sides in registers.
//
// A group of `Lanes` threads solves Lanes C right-hand sides of one item; a work-group holds 32 Warps / Lanes groups, each with an item of its own. The
// triangle is staged in shared memory (batchlas/triangle.cuh) behind copies that are issued before the right-hand sides are loaded; after one barrier all that
// is left is arithmetic on registers against broadcast reads, one quantum of a column (16 bytes) serving C multiply-adds per element.
//
// The 24 cases. With E = op(A) on the left and op(A)^T on the right, both sides solve E x = alpha b for vectors b: the columns of B, or its rows. What remains
// is which triangle is stored and whether E is A or its transpose (`Transposed`); together they say in which direction the elimination runs. A conjugated E
// is solved as E conj(x) = conj(alpha b), by conjugating on load and store, and a unit diagonal is a reciprocal of one. Registers, shared memory and global
// memory all keep the order of A: only the order of the steps differs between the four loops.
//   Transposed = false: column i of A is subtracted from what is unsolved as soon as x(i) is known.
//   Transposed = true:  column i of A is row i of E; quanta of V rows of x are subtracted from every unsolved row as soon as they are known.
//
// Right: a right-hand side is a row of B, and neighbouring threads own neighbouring rows: every access is coalesced as it is. Left: a right-hand side is a
// column; four neighbouring threads read up to 64 contiguous bytes of each of their four columns and transpose among themselves, so that no shared memory is
// used and whole sectors move at once.
//
// The bits of a result depend on N, on the element type and on the case, and on nothing else: every element sees the same operations in the same order.
#pragma once
#include <batchlas/partition.cuh>
#include <batchlas/solve.cuh>
#include <batchlas/triangle.cuh>

namespace batchlas {

/// The C right-hand sides of a thread. Rows beyond N are room for a quad's transposition.
template <class T, int N, int C, int Lanes> struct RightHandSides {
  static constexpr int QUAD = 4;
  static constexpr int ROWS = (N + QUAD - 1) / QUAD * QUAD;
  using Tile = T[ROWS][C];

  /// Rows of a quad's chunks from `row` on: the largest power of two of which four fit into the column, at most `widest`.
  static BATCHLAS_DEVICE constexpr int chunk(int row, int widest) {
    int width = 1;
    while (2 * width <= widest && row + 2 * width * QUAD <= N) {
      width *= 2;
    }
    return width;
  }

  /// Right: rows `first`, `first + Lanes`, ... of B.
  static BATCHLAS_DEVICE void load_rows(Tile &x, u64 b, u64 ld_bytes, u32 first, u32 end) {
    u64 column = b + first * sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        x[i][c] = load(first + c * Lanes < end, column + c * Lanes * sizeof(T), zero<T>());
      }
      column += ld_bytes;
    }
  }
  static BATCHLAS_DEVICE void store_rows(const Tile &x, u64 b, u64 ld_bytes, u32 first, u32 end) {
    u64 column = b + first * sizeof(T);
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        store(first + c * Lanes < end, column + c * Lanes * sizeof(T), x[i][c]);
      }
      column += ld_bytes;
    }
  }

  /// Left: columns `first`, `first + Lanes`, ... of B. `Widest`: elements of an access.
  template <int Widest> static BATCHLAS_DEVICE void load_columns(Tile &x, u64 b, u64 ld_bytes, u32 first, u32 end) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      const u32 quad = (first + c * Lanes) / QUAD * QUAD;
      u64 column = b + quad * ld_bytes;
      unroll<0, QUAD>([&](auto index) {
        constexpr int i = decltype(index)::VALUE;
        load_chunks<Widest, 0, i>(x, c, column, quad + i < end);
        column += ld_bytes;
      });
    }
  }
  template <int Widest> static BATCHLAS_DEVICE void store_columns(const Tile &x, u64 b, u64 ld_bytes, u32 first, u32 end) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      const u32 quad = (first + c * Lanes) / QUAD * QUAD;
      u64 column = b + quad * ld_bytes;
      unroll<0, QUAD>([&](auto index) {
        constexpr int i = decltype(index)::VALUE;
        store_chunks<Widest, 0, i>(x, c, column, quad + i < end);
        column += ld_bytes;
      });
    }
  }

  /// Exchanges, for every group of 4 W rows, chunk i of lane l with chunk l of lane i: between a quad's chunks in the order of memory and whole columns.
  template <int Widest> static BATCHLAS_DEVICE void transpose(Tile &x) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      transpose_group<Widest, 0>(x, c);
    }
  }

private:
  static BATCHLAS_DEVICE int lane() { return Partition<QUAD>::lane(); }
  /// Whether this lane's chunk of the group at ROW lies in the column.
  template <int ROW, int W> static BATCHLAS_DEVICE bool within() { return ROW + W * QUAD <= N || lane() < N - ROW; }

  template <int Widest, int ROW, int I> static BATCHLAS_DEVICE void load_chunks(Tile &x, int c, u64 column, bool active) {
    if constexpr (ROW < N) {
      constexpr int W = chunk(ROW, Widest);
      const u64 address = column + (ROW + lane() * W) * sizeof(T);
      const bool live = active && within<ROW, W>();
#pragma unroll
      for (int w = 0; w < W; w++) {
        x[ROW + I * W + w][c] = zero<T>();
      }
      if constexpr (W == 1) {
        x[ROW + I][c] = load(live, address, x[ROW + I][c]);
      } else if constexpr (W == 2) {
        load2(live, address, x[ROW + I * 2][c], x[ROW + I * 2 + 1][c]);
      } else {
        load4(live, address, x[ROW + I * 4][c], x[ROW + I * 4 + 1][c], x[ROW + I * 4 + 2][c], x[ROW + I * 4 + 3][c]);
      }
      load_chunks<Widest, ROW + QUAD * W, I>(x, c, column, active);
    }
  }

  template <int Widest, int ROW, int I> static BATCHLAS_DEVICE void store_chunks(const Tile &x, int c, u64 column, bool active) {
    if constexpr (ROW < N) {
      constexpr int W = chunk(ROW, Widest);
      const u64 address = column + (ROW + lane() * W) * sizeof(T);
      const bool live = active && within<ROW, W>();
      if constexpr (W == 1) {
        store(live, address, x[ROW + I][c]);
      } else if constexpr (W == 2) {
        store2(live, address, x[ROW + I * 2][c], x[ROW + I * 2 + 1][c]);
      } else {
        store4(live, address, x[ROW + I * 4][c], x[ROW + I * 4 + 1][c], x[ROW + I * 4 + 2][c], x[ROW + I * 4 + 3][c]);
      }
      store_chunks<Widest, ROW + QUAD * W, I>(x, c, column, active);
    }
  }

  template <int Widest, int ROW> static BATCHLAS_DEVICE void transpose_group(Tile &x, int c) {
    if constexpr (ROW < N) {
      constexpr int W = chunk(ROW, Widest);
#pragma unroll
      for (int w = 0; w < W; w++) {
        T block[QUAD];
#pragma unroll
        for (int i = 0; i < QUAD; i++) {
          block[i] = x[ROW + i * W + w][c];
        }
        Partition<QUAD>::transpose(block);
#pragma unroll
        for (int i = 0; i < QUAD; i++) {
          x[ROW + i * W + w][c] = block[i];
        }
      }
      transpose_group<Widest, ROW + QUAD * W>(x, c);
    }
  }
};

/// E x = b in place, with E = A or its transpose.
template <class T, int N, int C, int ROWS, Uplo U, bool Transposed> BATCHLAS_DEVICE void substitute(T (&x)[ROWS][C], const Quantum<T> *triangle) {
  using A = SharedTriangle<T, N, U>;
  constexpr int V = A::V;
  constexpr bool FORWARD = (U == Uplo::Lower) != Transposed;
  if constexpr (!Transposed) {
    unroll<0, N>([&](auto step) {
      constexpr int i = FORWARD ? decltype(step)::VALUE : N - 1 - decltype(step)::VALUE;
      // From the quantum of the diagonal to the far end of the column.
      unroll<0, FORWARD ? A::HEIGHT - i / V : i / V + 1>([&](auto distance) {
        constexpr int q = FORWARD ? i / V + decltype(distance)::VALUE : i / V - decltype(distance)::VALUE;
        const Quantum<T> a = A::at(triangle, q, i);
        if constexpr (q == i / V) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            x[i][c] = mul(x[i][c], a.at[i % V]);
          }
        }
#pragma unroll
        for (int r = q * V; r < q * V + V && r < N; r++) {
          if (FORWARD ? r > i : r < i) {
#pragma unroll
            for (int c = 0; c < C; c++) {
              x[r][c] = sub_mul(x[r][c], a.at[r - q * V], x[i][c]);
            }
          }
        }
      });
    });
  } else {
    unroll<0, A::HEIGHT>([&](auto step) {
      constexpr int q = FORWARD ? decltype(step)::VALUE : A::HEIGHT - 1 - decltype(step)::VALUE;
      // First the rows of the quantum itself, then those that are still unsolved.
      unroll<0, FORWARD ? N - q * V : (q * V + V < N ? q * V + V : N)>([&](auto distance) {
        constexpr int i = FORWARD ? q * V + decltype(distance)::VALUE : (q * V + V < N ? q * V + V : N) - 1 - decltype(distance)::VALUE;
        const Quantum<T> a = A::at(triangle, q, i);
        constexpr bool DIAGONAL = q == i / V;
#pragma unroll
        for (int k = 0; k < V; k++) {
          const int r = q * V + (FORWARD ? k : V - 1 - k);
          if (r < N && (!DIAGONAL || (FORWARD ? r < i : r > i))) {
#pragma unroll
            for (int c = 0; c < C; c++) {
              x[i][c] = sub_mul(x[i][c], a.at[r - q * V], x[r][c]);
            }
          }
        }
        if constexpr (DIAGONAL) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            x[i][c] = mul(x[i][c], a.at[i % V]);
          }
        }
      });
    });
  }
}

/// What a thread has to do: its item, and of its right-hand sides the first and the end. `Columns`: right-hand sides of a group.
template <int Columns> struct Share {
  u64 item;
  u32 first, end;

  /// Work-groups of the same items are neighbours. A group without an item takes part in the barriers; it reads the last triangle and owns no right-hand side.
  BATCHLAS_DEVICE Share(const TrsmArgs &args, int group, int groups, int thread) {
    const u32 block = static_cast<u32>(arch::block());
    const u64 wanted = static_cast<u64>(block / args.slices) * groups + group;
    const bool live = wanted < args.batch;
    item = live ? wanted : args.batch - 1;
    first = block % args.slices * Columns + thread;
    end = live ? args.q : 0;
  }
};

template <class T, int N, Side S, Uplo U, bool Transposed, int C, int Lanes, int Warps, int MinBlocks>
__global__ void __launch_bounds__(arch::WARP *Warps, MinBlocks) trsm_cta(const TrsmArgs args) {
  static_assert(N >= 1 && N <= 32, "trsm cta serves orders 1 to 32");
  static_assert(Lanes >= 4 && arch::WARP * Warps % Lanes == 0, "a work-group is a whole number of groups");
  using A = SharedTriangle<T, N, U>;
  using X = RightHandSides<T, N, C, Lanes>;
  constexpr int THREADS = arch::WARP * Warps;
  constexpr int GROUPS = THREADS / Lanes;
  constexpr int V = PER_16_BYTES<T>;
  // Groups of one warp read their triangles at once: an odd number of quanta puts them on different banks.
  constexpr int PITCH = A::QUANTA | (Lanes < arch::WARP ? 1 : 0);
  __shared__ Quantum<T> triangles[GROUPS * PITCH];

  const int here = arch::warp() * arch::WARP + arch::lane();
  const int group = GROUPS == 1 ? 0 : here / Lanes;
  const bool unit = args.flags & UNIT;
  Quantum<T> *const triangle = triangles + group * PITCH;

  typename X::Tile x;
  if (args.flags & ALPHA_ZERO) {
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        x[i][c] = zero<T>();
      }
    }
  } else {
    const Share<Lanes * C> mine(args, here / Lanes, GROUPS, here % Lanes);
    A::template copy<Lanes>(triangle, here % Lanes, item_address(args.a, mine.item), args.a.ld_bytes, args.flags & ALIGNED_A, unit);
    const u64 b = item_address(args.b, mine.item);
    if constexpr (S == Side::Right) {
      X::load_rows(x, b, args.b.ld_bytes, mine.first, mine.end);
      arch::fence_block();
    } else if (args.flags & ALIGNED_B) {
      X::template load_columns<V>(x, b, args.b.ld_bytes, mine.first, mine.end);
      arch::fence_block();
      X::template transpose<V>(x);
    } else {
      X::template load_columns<1>(x, b, args.b.ld_bytes, mine.first, mine.end);
      arch::fence_block();
      X::template transpose<1>(x);
    }
    const bool conjugate = args.flags & CONJUGATE;
    if (conjugate || !(args.flags & ALPHA_ONE)) {
#pragma unroll
      for (int i = 0; i < N; i++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
          x[i][c] = prepared(args, x[i][c]);
        }
      }
    }
    A::template finish<Lanes>(triangle, here % Lanes, unit);
    if constexpr (Lanes > arch::WARP) {
      arch::sync_block();
    } else {
      arch::sync_warp();
    }
    substitute<T, N, C, X::ROWS, U, Transposed>(x, triangle);
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        x[i][c] = conj_if(conjugate, x[i][c]);
      }
    }
  }

  // Where the results go is computed anew instead of being kept in registers during the elimination.
  const int again = arch::renamed(here);
  const Share<Lanes * C> mine(args, again / Lanes, GROUPS, again % Lanes);
  const u64 b = item_address(args.b, mine.item);
  if constexpr (S == Side::Right) {
    X::store_rows(x, b, args.b.ld_bytes, mine.first, mine.end);
  } else if (args.flags & ALIGNED_B) {
    X::template transpose<V>(x);
    X::template store_columns<V>(x, b, args.b.ld_bytes, mine.first, mine.end);
  } else {
    X::template transpose<1>(x);
    X::template store_columns<1>(x, b, args.b.ld_bytes, mine.first, mine.end);
  }
}

} // namespace batchlas
