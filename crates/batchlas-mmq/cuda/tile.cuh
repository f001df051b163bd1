// mmq, family `tile`: signed bytes times packed nibbles on the tensor cores, exact in every chunk of 32.
//
// A chunk's integer sum starts at MAGIC, so that it reads as a float without conversion, and two multiply-adds bring it into the result. The minima take part
// as a product of their own, of 4 chunks at once: (d A) (-dmin m), both split into a leading part of 11 bits and the rest, whose products are exact in
// the tensor cores; the product of the rests is left out (2^-22 of the whole).
#pragma once
#include <batchlas/q4k_tile.cuh>

namespace batchlas {

/// What a warp holds: `Down` x `Across` tiles of 16 tokens x 8 rows.
template <int Down, int Across> struct Bytes {
  static constexpr int DOWN = Down, ACROSS = Across;
  static constexpr int CELL_BYTES = Cell::BYTES;
  /// d sc [chunk][row], then -dmin m [row][chunk], f32.
  static constexpr int SCALE_BYTES = 32;

  float c[Down][Across][4];

  BATCHLAS_DEVICE void zero() {
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int n = 0; n < Across; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          c[m][n][e] = 0;
        }
      }
    }
  }

  template <int Rows> BATCHLAS_DEVICE static void decode(unsigned char *scales, int row, const Quad &header, int half) {
    const Sixes sixes(header, half);
    const float d = header_d(header), high = arch::mul(d, 0.0625f), minus = -header_dmin(header);
    float *const to = reinterpret_cast<float *>(scales);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      to[j * Rows + row] = arch::mul(j % 2 == 0 ? d : high, sixes.scale(j));
    }
    Quad minima;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      minima.at[j] = __float_as_uint(arch::mul(minus, sixes.minimum(j)));
    }
    reinterpret_cast<Quad *>(to + 4 * Rows)[row] = minima;
  }

  /// Adds a step: `x` the warp's first cell, also as an address `cells`, `w` the lane's nibbles of the warp's first tile of rows, whose first row is `row`.
  template <int Rows>
  BATCHLAS_DEVICE void multiply(const unsigned char *x, u32 cells, const unsigned char *w, const unsigned char *scales, int row) {
    const int lane = arch::lane(), g = lane / 4, t = lane % 4;
    const u32 fragment = cells + static_cast<u32>((lane / 8 % 2) * Cell::BYTES + lane / 16 * Cell::HALF + lane % 8 * Cell::TOKEN);
    const float *const scale = reinterpret_cast<const float *>(scales) + row + 2 * t;
    const float *const minima = reinterpret_cast<const float *>(scales) + 4 * Rows + 4 * row;
    const int swap = lane / 4 & 2 ? -32 : 32;
#pragma unroll
    for (int p = 0; p < 2; p++) {
      uint2 packed[Across];
#pragma unroll
      for (int n = 0; n < Across; n++) {
        packed[n] = *reinterpret_cast<const uint2 *>(w + n * 8 * STEP_BYTES + (p == 0 ? 0 : swap));
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int chunk = 2 * p + h;
        u32 a[Down][4];
        float dx[Down][2];
#pragma unroll
        for (int m = 0; m < Down; m++) {
          arch::load_matrices(a[m], fragment + static_cast<u32>(2 * m * Cell::BYTES + chunk * Cell::CHUNK));
#pragma unroll
          for (int half = 0; half < 2; half++) {
            dx[m][half] = *reinterpret_cast<const float *>(x + (2 * m + half) * Cell::BYTES + Cell::SCALE + chunk * Cell::PER_CHUNK + g * 4);
          }
        }
#pragma unroll
        for (int n = 0; n < Across; n++) {
          const float2 ds = *reinterpret_cast<const float2 *>(scale + chunk * Rows + 8 * n);
          const float minus[2] = {arch::mul(-MAGIC, ds.x), arch::mul(-MAGIC, ds.y)};
          const u32 mask = h == 0 ? LOW_NIBBLES : HIGH_NIBBLES;
          const u32 b0 = packed[n].x & mask, b1 = packed[n].y & mask;
#pragma unroll
          for (int m = 0; m < Down; m++) {
            i32 sum[4];
            arch::mma_s8_u8(sum, a[m], b0, b1, MAGIC_BITS);
#pragma unroll
            for (int e = 0; e < 4; e++) {
              c[m][n][e] = arch::fma(dx[m][e / 2], scaled(e % 2 == 0 ? ds.x : ds.y, sum[e], minus[e % 2]), c[m][n][e]);
            }
          }
        }
      }
    }
    float lead[Down][2], rest[Down][2];
#pragma unroll
    for (int m = 0; m < Down; m++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const unsigned char *const token = x + (2 * m + half) * Cell::BYTES + g * Cell::TOKEN + t * 4;
        lead[m][half] = *reinterpret_cast<const float *>(token + Cell::LEAD);
        rest[m][half] = *reinterpret_cast<const float *>(token + Cell::REST);
      }
    }
#pragma unroll
    for (int n = 0; n < Across; n++) {
      const float minimum = minima[(8 * n + g) * 4 + t], top = leading(minimum), below = minimum - top;
#pragma unroll
      for (int m = 0; m < Down; m++) {
        const float left[4] = {lead[m][0], lead[m][1], rest[m][0], rest[m][1]}, right[2] = {top, top};
        arch::mma_16x8x8(c[m][n], left, right);
        arch::mma_16x8x4(c[m][n], lead[m][0], lead[m][1], below);
      }
    }
  }
};

template <int Down, int Across, int WarpsDown, int Stages, int MinBlocks>
__global__ void __launch_bounds__(128 * WarpsDown, MinBlocks) mmq_tile(const MmqArgs args) {
  q4k_tile<Bytes<Down, Across>, WarpsDown, Stages>(args);
}

} // namespace batchlas
