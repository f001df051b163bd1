// mmq, family `bf16`: both operands rounded to bfloat16, sums in f32 on the tensor cores; no arithmetic per chunk.
//
// Nibbles become weights in registers, on their way to the tensor cores: q set into the mantissa of 1.0 is 1 + q / 16, and one multiply-add makes
// d sc q - dmin m of it. Cells of activations hold 8 tokens x 128 bfloat16 in the order of those fragments (batchlas-mmq/src/layout.rs).
#pragma once
#include <batchlas/q4k_tile.cuh>

namespace batchlas {

template <int Down, int Across> struct Rounded {
  static constexpr int DOWN = Down, ACROSS = Across;
  /// Chunk c, elements 8 i + 4 s .. of its fragments of half h, token t at 512 c + 256 s + 128 h + 16 t.
  static constexpr int CELL_BYTES = 2048, CHUNK = 512, PART = 256, HALF = 128, TOKEN = 16;
  /// 16 d sc and -(16 d sc + dmin m), f32 [chunk][row].
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
    const float d = arch::mul(header_d(header), 16.0f), minus = -header_dmin(header);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float scale = arch::mul(d, sixes.scale(j));
      reinterpret_cast<float2 *>(scales)[j * Rows + row] = make_float2(scale, arch::add(arch::mul(minus, sixes.minimum(j)), -scale));
    }
  }

  /// The weight of the nibble that begins at bit `Bit`.
  template <int Bit> BATCHLAS_DEVICE static float weight(u32 word, float2 scale) {
    constexpr int MANTISSA = 19;
    const u32 moved = Bit <= MANTISSA ? word << (Bit <= MANTISSA ? MANTISSA - Bit : 0) : word >> (Bit <= MANTISSA ? 0 : Bit - MANTISSA);
    return arch::fma(scale.x, __uint_as_float((moved & 0x00780000u) | 0x3f800000u), scale.y);
  }
  template <int First> BATCHLAS_DEVICE static void weights(u32 (&b)[2], u32 word, float2 scale) {
    b[0] = arch::pack_bf16(weight<First>(word, scale), weight<First + 8>(word, scale));
    b[1] = arch::pack_bf16(weight<First + 16>(word, scale), weight<First + 24>(word, scale));
  }

  template <int Rows>
  BATCHLAS_DEVICE void multiply(const unsigned char *, u32 cells, const unsigned char *w, const unsigned char *scales, int row) {
    const int lane = arch::lane();
    const u32 fragment = cells + static_cast<u32>((lane / 8 % 2) * CELL_BYTES + lane / 16 * HALF + lane % 8 * TOKEN);
    const float2 *const scale = reinterpret_cast<const float2 *>(scales) + row + lane / 4;
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
#pragma unroll
        for (int s = 0; s < 2; s++) {
          u32 a[Down][4];
#pragma unroll
          for (int m = 0; m < Down; m++) {
            arch::load_matrices(a[m], fragment + static_cast<u32>(2 * m * CELL_BYTES + chunk * CHUNK + s * PART));
          }
#pragma unroll
          for (int n = 0; n < Across; n++) {
            const u32 word = s == 0 ? packed[n].x : packed[n].y;
            u32 b[2];
            if (h == 0) {
              weights<0>(b, word, scale[chunk * Rows + 8 * n]);
            } else {
              weights<4>(b, word, scale[chunk * Rows + 8 * n]);
            }
#pragma unroll
            for (int m = 0; m < Down; m++) {
              arch::mma_bf16(c[m][n], a[m], b[0], b[1]);
            }
          }
        }
      }
    }
  }
};

template <int Down, int Across, int WarpsDown, int Stages, int MinBlocks>
__global__ void __launch_bounds__(128 * WarpsDown, MinBlocks) mmq_bf16(const MmqArgs args) {
  q4k_tile<Rounded<Down, Across>, WarpsDown, Stages>(args);
}

} // namespace batchlas
