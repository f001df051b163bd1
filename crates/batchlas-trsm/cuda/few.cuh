// trsm, family `few`: triangular solve of order N <= 128 with at most Q <= 8 right-hand sides, where reading the triangle is what costs.
//
// P lanes of a warp share one item, so a warp holds 32 / P of them and a work-group several warps that know nothing of each other: no shared memory, no
// barrier. Lane l owns rows l, l + P, ... of the solution, of all right-hand sides. The triangle is read once, by blocks of P x P, lanes walking down its
// columns; the blocks of a block row are all on their way before the first is used.
//
// With E = op(A) on the left and op(A)^T on the right, both sides solve E x = alpha b (cta.cuh says how the 24 cases fold). Block by block in the direction of
// the elimination: the solved blocks are subtracted, then the diagonal block is eliminated, one broadcast per row and right-hand side. Where E is the
// transpose of A, a block of A is transposed across the lanes first.
//
// A row is solved by its own lane, and only rows that are still unsolved are ever updated: a NaN or an infinity reaches what depends on it and nothing else.
#pragma once
#include <batchlas/partition.cuh>
#include <batchlas/solve.cuh>
#include <batchlas/unroll.cuh>

namespace batchlas {

template <class T, int N, Side S, Uplo U, bool Transposed, int Q, int P, int Warps, int MinBlocks>
__global__ void __launch_bounds__(arch::WARP *Warps, MinBlocks) trsm_few(const TrsmArgs args) {
  static_assert(N >= 1 && N <= 128, "trsm few serves orders 1 to 128");
  using Lanes = Partition<P>;
  constexpr int SLOTS = (N + P - 1) / P;
  constexpr bool FORWARD = (U == Uplo::Lower) != Transposed;

  const u64 wanted = (arch::block() * Warps + arch::warp()) * Lanes::PER_WARP + Lanes::index();
  // A partition without an item takes part in the shuffles, on zeros.
  const bool live = wanted < args.batch;
  const u64 item = live ? wanted : args.batch - 1;
  const int l = Lanes::lane();
  // With alpha = 0 nothing is read: a system of ones and zeros is solved.
  const bool reads = live && !(args.flags & ALPHA_ZERO);
  const u64 a = item_address(args.a, item) + l * sizeof(T);
  const u64 b = item_address(args.b, item);
  const u64 row_bytes = S == Side::Left ? sizeof(T) : args.b.ld_bytes;
  const u64 rhs_bytes = S == Side::Left ? args.b.ld_bytes : sizeof(T);

  // Row l of block (row, column) of A: what the triangle has of it.
  const auto load_block = [&](T(&block)[P], auto row_index, auto column_index) {
    constexpr int row = decltype(row_index)::VALUE;
    constexpr int first = decltype(column_index)::VALUE * P;
    // Block rows share their columns, whose addresses would be kept for all of them.
    u64 column = (SLOTS == 1 ? a : arch::renamed(a)) + first * args.a.ld_bytes + row * P * sizeof(T);
#pragma unroll
    for (int c = 0; c < P; c++) {
      const bool stored = row * P != first || (U == Uplo::Lower ? l > c : l < c);
      block[c] = load(reads && first + c < N && stored && (row * P + P <= N || l < N - row * P), column, zero<T>());
      column += args.a.ld_bytes;
    }
  };

  T y[SLOTS][Q], inverse[SLOTS], diagonal[P];
#pragma unroll
  for (int r = 0; r < SLOTS; r++) {
    const bool within = reads && (r * P + P <= N || l < N - r * P);
    inverse[r] = load(within && !(args.flags & UNIT), a + r * P * (args.a.ld_bytes + sizeof(T)) + l * args.a.ld_bytes, one<T>());
#pragma unroll
    for (int s = 0; s < Q; s++) {
      y[r][s] = load(within && s < args.q, b + (r * P + l) * row_bytes + s * rhs_bytes, zero<T>());
    }
  }
  constexpr int START = FORWARD ? 0 : SLOTS - 1;
  load_block(diagonal, Index<START>(), Index<START>());
  arch::fence_block();
#pragma unroll
  for (int r = 0; r < SLOTS; r++) {
    inverse[r] = reciprocal(inverse[r]);
#pragma unroll
    for (int s = 0; s < Q; s++) {
      y[r][s] = prepared(args, y[r][s]);
    }
  }

  unroll<0, SLOTS>([&](auto step_index) {
    constexpr int step = decltype(step_index)::VALUE;
    constexpr int i = FORWARD ? step : SLOTS - 1 - step;
    unroll<0, step>([&](auto solved) {
      constexpr int k = FORWARD ? decltype(solved)::VALUE : SLOTS - 1 - decltype(solved)::VALUE;
      // Always true, which the compiler cannot know: the loads of a block are not mixed with the work on others, whose registers they would need.
      if (args.a.ld_bytes > (step * SLOTS + decltype(solved)::VALUE) * sizeof(T)) {
        T block[P];
        if constexpr (Transposed) {
          load_block(block, Index<k>(), Index<i>());
          arch::fence_block();
          Lanes::transpose(block);
        } else {
          load_block(block, Index<i>(), Index<k>());
          arch::fence_block();
        }
#pragma unroll
        for (int c = 0; c < P; c++) {
          if (k * P + c < N) {
#pragma unroll
            for (int s = 0; s < Q; s++) {
              y[i][s] = sub_mul(y[i][s], block[c], Lanes::broadcast(y[k][s], c));
            }
          }
        }
      }
    });
    if (step == 0 || args.a.ld_bytes > (step * SLOTS + step) * sizeof(T)) {
      if constexpr (step > 0) {
        load_block(diagonal, Index<i>(), Index<i>());
        arch::fence_block();
      }
      if constexpr (Transposed) {
        Lanes::transpose(diagonal);
      }
      unroll<0, P>([&](auto distance) {
        constexpr int c = FORWARD ? decltype(distance)::VALUE : P - 1 - decltype(distance)::VALUE;
        if constexpr (i * P + c < N) {
          const bool unsolved = FORWARD ? l > c : l < c;
#pragma unroll
          for (int s = 0; s < Q; s++) {
            const T scaled = mul(y[i][s], inverse[i]);
            const T x = Lanes::broadcast(scaled, c);
            y[i][s] = select(unsolved, sub_mul(y[i][s], diagonal[c], x), select(l == c, scaled, y[i][s]));
          }
        }
      });
    }
  });

  const u64 out = arch::renamed(b);
  const int writer = arch::renamed(live ? l : -1);
#pragma unroll
  for (int r = 0; r < SLOTS; r++) {
    const bool within = static_cast<u32>(writer) < static_cast<u32>(N - r * P);
#pragma unroll
    for (int s = 0; s < Q; s++) {
      const T x = conj_if(args.flags & CONJUGATE, y[r][s]);
      store(within && s < args.q, out + (r * P + writer) * row_bytes + s * rhs_bytes, x);
    }
  }
}

} // namespace batchlas
