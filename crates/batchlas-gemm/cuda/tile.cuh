// gemm and herk, family `tile`: products by fused multiply-adds on tiles in registers, for every element type.
//
// A warp is 4 x 8 lanes; lane (y, x) holds `Height` rows by `Width` columns of the warp's tile, in groups of as many as fit 16 bytes, so that a step of
// the inner index costs (Height + Width) elements of 16-byte shared-memory reads for Height * Width multiply-adds. The lanes are numbered so that a
// quarter of a warp, which shared and global memory serve at once, is four lanes down by two across: its accesses to C are 64 contiguous bytes of
// each of two columns.
//
// The body of the kernel is batchlas/product.cuh.
#pragma once
#include <batchlas/product.cuh>

namespace batchlas {

/// The tile of one warp: 4 Height x 8 Width.
template <class T, int Height, int Width> struct LaneTile {
  static constexpr int ROWS = 4 * Height, COLS = 8 * Width;
  /// Contiguous rows of a lane.
  static constexpr int RUN = PER_16_BYTES<T>;
  static constexpr int RUNS = Height * Width / RUN;
  /// Runs of C that fit the registers beside the tile, each with its predicates.
  static constexpr int SPARE_RUNS = sizeof(T) == 4 ? 4 : 2;
  static_assert(Height % RUN == 0 && Width % RUN == 0, "a lane holds whole 16-byte groups");

  T c[Width][Height];

  static BATCHLAS_DEVICE int down() { return arch::lane() >> 1 & 3; }
  static BATCHLAS_DEVICE int across() { return (arch::lane() & 1) | (arch::lane() >> 2 & 6); }

  BATCHLAS_DEVICE void zero() {
#pragma unroll
    for (int q = 0; q < Width; q++) {
#pragma unroll
      for (int r = 0; r < Height; r++) {
        c[q][r] = from_real<T>(0);
      }
    }
  }

  /// Adds the product of staged tiles; `a` and `b` point to the warp's first row and column. Real elements of the next inner index are read while those
  /// of this one are multiplied; complex ones have enough to do.
  template <bool Mixed, int Depth, int PitchA, int PitchB> BATCHLAS_DEVICE void multiply(const T *a, const T *b) {
    const T *const rows = a + down() * RUN, *const cols = b + across() * RUN;
    constexpr int AHEAD = ScalarTraits<T>::COMPLEX ? 0 : 1;
    Pack<T> left[AHEAD + 1][Height / RUN], right[AHEAD + 1][Width / RUN];
    auto read = [&](int k) {
#pragma unroll
      for (int g = 0; g < Height / RUN; g++) {
        left[k % (AHEAD + 1)][g] = *reinterpret_cast<const Pack<T> *>(rows + k * PitchA + g * 4 * RUN);
      }
#pragma unroll
      for (int g = 0; g < Width / RUN; g++) {
        right[k % (AHEAD + 1)][g] = *reinterpret_cast<const Pack<T> *>(cols + k * PitchB + g * 8 * RUN);
      }
    };
    if (AHEAD == 1) {
      read(0);
    }
#pragma unroll
    for (int k = 0; k < Depth; k++) {
      if (k + AHEAD < Depth) {
        read(k + AHEAD);
      }
#pragma unroll
      for (int q = 0; q < Width; q++) {
#pragma unroll
        for (int r = 0; r < Height; r++) {
          const T x = left[k % (AHEAD + 1)][r / RUN].at[r % RUN], y = right[k % (AHEAD + 1)][q / RUN].at[q % RUN];
          c[q][r] = Mixed ? add_mul_conj(c[q][r], x, y) : add_mul(c[q][r], x, y);
        }
      }
    }
  }

  /// body(row, column, run) for the groups of contiguous rows [First, End) of this lane, in the warp's tile.
  template <int First, int End, class Body> BATCHLAS_DEVICE void each_run(Body &&body) {
#pragma unroll
    for (int index = First; index < End; index++) {
      const int q = index / (Height / RUN), g = index % (Height / RUN);
      T run[RUN];
#pragma unroll
      for (int i = 0; i < RUN; i++) {
        run[i] = c[q][g * RUN + i];
      }
      body((4 * g + down()) * RUN, (8 * (q / RUN) + across()) * RUN + q % RUN, run);
#pragma unroll
      for (int i = 0; i < RUN; i++) {
        c[q][g * RUN + i] = run[i];
      }
    }
  }
};

template <class T, int Rows, int Cols, int Height, int Width, int Depth, int Stages, int MinBlocks, Contiguous A, Contiguous B, bool Aligned, bool Mixed>
__global__ void __launch_bounds__(BlockShape<LaneTile<T, Height, Width>, Rows, Cols>::THREADS, MinBlocks) gemm_tile(const ProductArgs args) {
  product<T, LaneTile<T, Height, Width>, Rows, Cols, Depth, Stages, A, B, Aligned, Mixed, Part::Full>(args);
}

/// `Side` x `Side` tiles; the right operand is the adjoint of the left one, and lies as it does.
template <class T, int Side, int Height, int Width, int Depth, int Stages, int MinBlocks, Contiguous A, bool Aligned>
__global__ void __launch_bounds__(BlockShape<LaneTile<T, Height, Width>, Side, Side>::THREADS, MinBlocks) herk_tile(const ProductArgs args) {
  product<T, LaneTile<T, Height, Width>, Side, Side, Depth, Stages, A, A, Aligned, ScalarTraits<T>::COMPLEX, Part::Triangle>(args);
}

} // namespace batchlas
