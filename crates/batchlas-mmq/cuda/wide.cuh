// mmq, family `wide`: the published kernel of 128 tokens x 128 rows, for its claims to be tested again.
//
// Planes in shared memory, `Depth` chunks deep: activations | their scales, a pair of tokens in 16 bytes | one super-block of weights, a nibble a byte, slot-major
// [chunk][row][48 bytes] | scales and minima of the rows. A warp has 16 rows and all 128 tokens: 8 fragments of activations times 2 of weights. Weights come by
// one `ldmatrix.x4` a chunk, which the pitch of 48 bytes keeps free of bank conflicts; scales by accesses as wide as what the epilogue takes at once. One buffer:
// loads of a tile come first, their stores after.
#pragma once
#include <batchlas/q4k.cuh>
#include <batchlas/shared.cuh>

namespace batchlas {

template <int Depth> struct Wide {
  static constexpr int TOKENS = 128, ROWS = 128, THREADS = 256, SLOT = 48;
  static constexpr int X_CHUNK = TOKENS * 32, X_SCALES = Depth * X_CHUNK, X_SCALES_CHUNK = TOKENS * 8;
  static constexpr int W = X_SCALES + Depth * X_SCALES_CHUNK, W_CHUNK = ROWS * SLOT;
  static constexpr int W_SCALES = W + 8 * W_CHUNK, W_SCALES_CHUNK = ROWS * 8;
  static constexpr int SHARED = W_SCALES + Depth * W_SCALES_CHUNK;
};

template <int Depth, int MinBlocks> __global__ void __launch_bounds__(256, MinBlocks) mmq_wide(const MmqArgs args) {
  using S = Wide<Depth>;
  unsigned char *const shared = dynamic_shared<unsigned char>();
  const u32 base = arch::shared_address(shared);
  const int thread = static_cast<int>(threadIdx.x), lane = arch::lane(), warp = arch::warp(), g = lane / 4, t = lane % 4;
  const int token_tiles = (args.tokens + S::TOKENS - 1) / S::TOKENS;
  const int token = static_cast<int>(blockIdx.x) % token_tiles * S::TOKENS, row = static_cast<int>(blockIdx.x) / token_tiles * S::ROWS;
  const int all_cells = cells(args);
  const u32 left = base + static_cast<u32>(lane / 8 % 2 * 256 + lane / 16 * 128 + lane % 8 * 16);
  const u32 right = base + static_cast<u32>(S::W + (warp * 16 + lane / 16 * 8 + lane % 8) * S::SLOT + lane / 8 % 2 * 16);

  float c[8][2][4];
#pragma unroll
  for (int m = 0; m < 8; m++) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        c[m][n][e] = 0;
      }
    }
  }
  // Where a cell lies: those beyond the last read the last, and their results are not stored.
  auto cell = [&](int chunk, int index) {
    return args.panel + static_cast<u64>(chunk / 4) * static_cast<u64>(all_cells) * Cell::BYTES +
           static_cast<u64>(min(token / CELL_TOKENS + index, all_cells - 1)) * Cell::BYTES;
  };
#pragma unroll 1
  for (int first = 0; first < 4 * args.steps; first += Depth) {
    arch::sync_block();
    Quad x[Depth];
    float2 scale[Depth / 2];
#pragma unroll
    for (int u = 0; u < Depth; u++) {
      x[u] = arch::load_quad(cell(first + u, thread / 16) + static_cast<u64>(u % 4 * Cell::CHUNK + thread % 16 * 16));
    }
#pragma unroll
    for (int u = 0; u < Depth / 2; u++) {
      const int chunk = 2 * u + thread / 128, at = thread % 128;
      const u64 from = cell(first + chunk, at / 8), own = from + static_cast<u64>(at % 8 * Cell::TOKEN + chunk % 4 * 4);
      scale[u].x = __uint_as_float(arch::load_word(from + static_cast<u64>(Cell::SCALE + chunk % 4 * Cell::PER_CHUNK + at % 8 * 4)));
      scale[u].y = arch::add(__uint_as_float(arch::load_word(own + Cell::LEAD)), __uint_as_float(arch::load_word(own + Cell::REST)));
    }
#pragma unroll
    for (int u = 0; u < Depth; u++) {
      *reinterpret_cast<Quad *>(shared + u * S::X_CHUNK + thread * 16) = x[u];
    }
#pragma unroll
    for (int u = 0; u < Depth / 2; u++) {
      const int chunk = 2 * u + thread / 128, at = thread % 128;
      *reinterpret_cast<float2 *>(shared + S::X_SCALES + chunk * S::X_SCALES_CHUNK + at / 16 * 128 + at % 8 * 16 + at / 8 % 2 * 8) = scale[u];
    }
    // A super-block at a time, whatever the depth.
    if (first % 8 == 0) {
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const int p = thread % 4, r = u * 64 + thread / 4;
        const u64 from = weight_row(args, row + r) + static_cast<u64>(first / 8 * BLOCK_BYTES + HEADER_BYTES + p * 32);
        const Quad v = arch::load_quad(from), w = arch::load_quad(from + 16);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          auto nibbles = [h](u32 word) { return (h == 0 ? word : word >> 4) & LOW_NIBBLES; };
          unsigned char *const to = shared + S::W + (2 * p + h) * S::W_CHUNK + r * S::SLOT;
          *reinterpret_cast<Quad *>(to) = {nibbles(v.at[0]), nibbles(v.at[2]), nibbles(w.at[0]), nibbles(w.at[2])};
          *reinterpret_cast<Quad *>(to + 16) = {nibbles(v.at[1]), nibbles(v.at[3]), nibbles(w.at[1]), nibbles(w.at[3])};
        }
      }
    }
#pragma unroll
    for (int u = 0; u < Depth / 2; u++) {
      const int r = thread % 128, chunk = 2 * u + thread / 128, j = (first + chunk) % 8;
      const Quad header = arch::load_quad(weight_row(args, row + r) + static_cast<u64>(first / 8 * BLOCK_BYTES));
      const Sixes sixes(header, j / 4);
      *reinterpret_cast<float2 *>(shared + S::W_SCALES + chunk * S::W_SCALES_CHUNK + r * 8) =
          make_float2(arch::mul(header_d(header), sixes.scale(j % 4)), arch::mul(-header_dmin(header), sixes.minimum(j % 4)));
    }
    arch::sync_block();
#pragma unroll 1
    for (int chunk = 0; chunk < Depth; chunk++) {
      u32 b[4];
      arch::load_matrices(b, right + static_cast<u32>((first + chunk) % 8 * S::W_CHUNK));
      float4 rows[2];
#pragma unroll
      for (int n = 0; n < 2; n++) {
        rows[n] = *reinterpret_cast<const float4 *>(shared + S::W_SCALES + chunk * S::W_SCALES_CHUNK + (warp * 16 + n * 8 + t * 2) * 8);
      }
#pragma unroll
      for (int m = 0; m < 8; m++) {
        u32 a[4];
        arch::load_matrices(a, left + static_cast<u32>(chunk * S::X_CHUNK + m * 512));
        const float4 tokens = *reinterpret_cast<const float4 *>(shared + S::X_SCALES + chunk * S::X_SCALES_CHUNK + m * 128 + g * 16);
#pragma unroll
        for (int n = 0; n < 2; n++) {
          i32 sum[4];
          arch::mma_s8_u8(sum, a, b[2 * n], b[2 * n + 1], 0);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const float dx = e / 2 == 0 ? tokens.x : tokens.z, da = e / 2 == 0 ? tokens.y : tokens.w;
            const float ds = e % 2 == 0 ? rows[n].x : rows[n].z, dm = e % 2 == 0 ? rows[n].y : rows[n].w;
            c[m][n][e] = arch::fma(da, dm, arch::fma(arch::mul(dx, ds), static_cast<float>(sum[e]), c[m][n][e]));
          }
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 8; m++) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        store_rows(args, token + 16 * m + 8 * half + g, row + warp * 16 + 8 * n + 2 * t, c[m][n][2 * half], c[m][n][2 * half + 1]);
      }
    }
  }
}

} // namespace batchlas
