// gemm and herk, family `mma`: products of f64 and c64 on the FP64 tensor cores.
//
// A warp holds `Down` x `Across` tensor-core tiles of 16 x 8. With g = lane / 4 and t = lane % 4 the hardware gives a lane rows g and g + 8 of the left
// operand, column g of the right one, and rows g and g + 8 of columns 2t and 2t + 1 of the sum. f64 calls rows 2g and 2g + 1 of a tile g and g + 8, so
// that a lane's two rows are 16 bytes of shared and of global memory. A complex product is four real ones, on fragments that were read once.
//
// The body of the kernel is batchlas/product.cuh.
#pragma once
#include <batchlas/product.cuh>

namespace batchlas {

/// The tile of one warp: 16 Down x 8 Across.
template <class T, int Down, int Across> struct Fragments;

/// Where a lane stands in a fragment.
BATCHLAS_DEVICE int fragment_row() { return arch::lane() / 4; }
BATCHLAS_DEVICE int fragment_col() { return arch::lane() % 4; }

template <int Down, int Across> struct Fragments<f64, Down, Across> {
  static constexpr int ROWS = 16 * Down, COLS = 8 * Across;
  /// Contiguous rows of a lane.
  static constexpr int RUN = 2;
  static constexpr int RUNS = 2 * Down * Across;
  /// Runs of C that fit the registers beside the tile, each with its predicates.
  static constexpr int SPARE_RUNS = 4;

  f64 c[Down][Across][4];

  BATCHLAS_DEVICE void zero() {
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int n = 0; n < Across; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          c[m][n][i] = 0;
        }
      }
    }
  }

  /// Adds the product of staged tiles; `a` and `b` point to the warp's first row and column.
  template <bool, int Depth, int PitchA, int PitchB> BATCHLAS_DEVICE void multiply(const f64 *a, const f64 *b) {
    const f64 *const rows = a + fragment_col() * PitchA + 2 * fragment_row(), *const cols = b + fragment_col() * PitchB + fragment_row();
#pragma unroll 1
    for (int k = 0; k < Depth; k += 8) {
      f64 left[Down][4];
#pragma unroll
      for (int m = 0; m < Down; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const Pack<f64> pair = *reinterpret_cast<const Pack<f64> *>(rows + (k + 4 * h) * PitchA + 16 * m);
          left[m][2 * h] = pair.at[0];
          left[m][2 * h + 1] = pair.at[1];
        }
      }
#pragma unroll
      for (int n = 0; n < Across; n++) {
        const f64 right[2] = {cols[k * PitchB + 8 * n], cols[(k + 4) * PitchB + 8 * n]};
#pragma unroll
        for (int m = 0; m < Down; m++) {
          arch::mma_16x8x8(c[m][n], left[m], right);
        }
      }
    }
  }

  /// body(row, column, run) for the groups of contiguous rows [First, End) of this lane, in the warp's tile.
  template <int First, int End, class Body> BATCHLAS_DEVICE void each_run(Body &&body) {
#pragma unroll
    for (int index = First; index < End; index++) {
      const int m = index / (2 * Across), n = index / 2 % Across, q = index % 2;
      f64 run[2] = {c[m][n][q], c[m][n][2 + q]};
      body(16 * m + 2 * fragment_row(), 8 * n + 2 * fragment_col() + q, run);
      c[m][n][q] = run[0];
      c[m][n][2 + q] = run[1];
    }
  }
};

template <int Down, int Across> struct Fragments<c64, Down, Across> {
  static constexpr int ROWS = 16 * Down, COLS = 8 * Across;
  static constexpr int RUN = 1;
  static constexpr int RUNS = 4 * Down * Across;
  static constexpr int SPARE_RUNS = 8;

  f64 re[Down][Across][4], im[Down][Across][4];

  BATCHLAS_DEVICE void zero() {
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int n = 0; n < Across; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          re[m][n][i] = im[m][n][i] = 0;
        }
      }
    }
  }

  template <bool Mixed, int Depth, int PitchA, int PitchB> BATCHLAS_DEVICE void multiply(const c64 *a, const c64 *b) {
    const c64 *const rows = a + fragment_col() * PitchA + fragment_row(), *const cols = b + fragment_col() * PitchB + fragment_row();
#pragma unroll 1
    for (int k = 0; k < Depth; k += 8) {
      f64 left_re[Down][4], left_im[Down][4];
#pragma unroll
      for (int m = 0; m < Down; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const c64 x = rows[(k + 4 * (i / 2)) * PitchA + 16 * m + 8 * (i % 2)];
          left_re[m][i] = x.re;
          left_im[m][i] = x.im;
        }
      }
#pragma unroll
      for (int n = 0; n < Across; n++) {
        const c64 near = cols[k * PitchB + 8 * n], far = cols[(k + 4) * PitchB + 8 * n];
        const f64 right_re[2] = {near.re, far.re}, right_im[2] = {near.im, far.im}, minus[2] = {-near.im, -far.im};
#pragma unroll
        for (int m = 0; m < Down; m++) {
          arch::mma_16x8x8(re[m][n], left_re[m], right_re);
          arch::mma_16x8x8(im[m][n], left_im[m], right_re);
        }
#pragma unroll
        for (int m = 0; m < Down; m++) {
          arch::mma_16x8x8(re[m][n], left_im[m], Mixed ? right_im : minus);
          arch::mma_16x8x8(im[m][n], left_re[m], Mixed ? minus : right_im);
        }
      }
    }
  }

  template <int First, int End, class Body> BATCHLAS_DEVICE void each_run(Body &&body) {
#pragma unroll
    for (int index = First; index < End; index++) {
      const int m = index / (4 * Across), n = index / 4 % Across, i = index % 4;
      c64 run[1] = {{re[m][n][i], im[m][n][i]}};
      body(16 * m + fragment_row() + 8 * (i / 2), 8 * n + 2 * fragment_col() + i % 2, run);
      re[m][n][i] = run[0].re;
      im[m][n][i] = run[0].im;
    }
  }
};

template <class T, int Rows, int Cols, int Down, int Across, int Depth, int Stages, int MinBlocks, Contiguous A, Contiguous B, bool Aligned, bool Mixed>
__global__ void __launch_bounds__(BlockShape<Fragments<T, Down, Across>, Rows, Cols>::THREADS, MinBlocks) gemm_mma(const ProductArgs args) {
  product<T, Fragments<T, Down, Across>, Rows, Cols, Depth, Stages, A, B, Aligned, Mixed, Part::Full>(args);
}

/// `Side` x `Side` tiles; the right operand is the adjoint of the left one, and lies as it does.
template <class T, int Side, int Down, int Across, int Depth, int Stages, int MinBlocks, Contiguous A, bool Aligned>
__global__ void __launch_bounds__(BlockShape<Fragments<T, Down, Across>, Side, Side>::THREADS, MinBlocks) herk_mma(const ProductArgs args) {
  product<T, Fragments<T, Down, Across>, Side, Side, Depth, Stages, A, A, Aligned, ScalarTraits<T>::COMPLEX, Part::Triangle>(args);
}

} // namespace batchlas
