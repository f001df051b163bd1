// Q4_K weights, quantised activations, and what products of the two have in common.
//
// A *super-block* is 256 weights of one row in 144 bytes: d and dmin (f16), 8 scales and 8 minima of 6 bits in 12 bytes, 128 bytes of nibbles. *Chunk*
// j of it, 32 weights q, stands for d sc_j q - dmin m_j; chunks 2 p and 2 p + 1 are the low and high nibbles of bytes 32 p .. 32 p + 31.
//
// Activations come in *cells* of 8 tokens x 128 inner indices (a *step*, half a super-block), which batchlas-mmq/src/layout.rs describes. Inside a chunk
// the order is that of the tensor cores: 16 bytes h of a token hold elements 8 i + 4 h .. 8 i + 4 h + 3 as word i, so that the 8 bytes of packed
// nibbles 8 i .. 8 i + 7 are a lane's whole fragment of two chunks.
//
// High nibbles are not shifted: masked, they are 16 q, and their scale is divided by 16, which is exact.
#pragma once
#include <batchlas/instructions.cuh>

namespace batchlas {

/// Bytes of a super-block, and of what stands before its nibbles.
constexpr int BLOCK_BYTES = 144, HEADER_BYTES = 16;
/// Bytes of nibbles of a step.
constexpr int STEP_BYTES = 64;
constexpr u32 LOW_NIBBLES = 0x0f0f0f0fu, HIGH_NIBBLES = 0xf0f0f0f0u;
/// Tokens of a cell.
constexpr int CELL_TOKENS = 8;

/// A cell of bytes: chunk c, half h, token t at 256 c + 128 h + 16 t; then what belongs to chunk c of token t.
struct Cell {
  static constexpr int BYTES = 1536, CHUNK = 256, HALF = 128, TOKEN = 16;
  /// d A as a leading part of 11 bits and the rest, f32 [token][chunk] each.
  static constexpr int LEAD = 1024, REST = 1152;
  /// The scale d, f32 [chunk][token], and the sum A of the bytes, i32 [chunk][token].
  static constexpr int SCALE = 1280, SUM = 1408, PER_CHUNK = 32;
};

/// The one parameter of the products. Addresses and `ldy` in bytes; `steps` is the inner dimension over 128, `paired` whether two neighbouring rows of
/// y are aligned to 8 bytes, `splits` among how many blocks the steps of a tile are dealt.
struct MmqArgs {
  u64 weights, panel, y, ldy, partial, counters;
  i32 tokens, rows, steps, paired, splits, tiles;
};
static_assert(sizeof(MmqArgs) == 72, "batchlas-mmq/src/launch.rs");

BATCHLAS_DEVICE int cells(const MmqArgs &args) { return (args.tokens + CELL_TOKENS - 1) / CELL_TOKENS; }
/// Where the blocks of a row begin; a row beyond the last reads the last.
BATCHLAS_DEVICE u64 weight_row(const MmqArgs &args, int row) {
  return args.weights + static_cast<u64>(min(row, args.rows - 1)) * static_cast<u64>(args.steps / 2 * BLOCK_BYTES);
}

/// The scales and minima of four chunks, a byte each.
struct Sixes {
  u32 scales, minima;

  /// Of chunks 4 half .. 4 half + 3, from a header.
  BATCHLAS_DEVICE Sixes(const Quad &header, int half) {
    const u32 low = header.at[1], mid = header.at[2], high = header.at[3];
    if (half == 0) {
      scales = low & 0x3f3f3f3fu;
      minima = mid & 0x3f3f3f3fu;
    } else {
      scales = (high & 0x0f0f0f0fu) | ((low >> 2) & 0x30303030u);
      minima = ((high >> 4) & 0x0f0f0f0fu) | ((mid >> 2) & 0x30303030u);
    }
  }
  BATCHLAS_DEVICE float scale(int chunk) const { return static_cast<float>((scales >> (8 * chunk)) & 255u); }
  BATCHLAS_DEVICE float minimum(int chunk) const { return static_cast<float>((minima >> (8 * chunk)) & 255u); }
};
BATCHLAS_DEVICE float header_d(const Quad &header) { return arch::from_half(header.at[0]); }
BATCHLAS_DEVICE float header_dmin(const Quad &header) { return arch::from_half(header.at[0] >> 16); }

/// The leading 11 bits of a number; the rest is exact.
BATCHLAS_DEVICE float leading(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }

/// An integer sum that starts here reads as the float MAGIC + sum, as long as the sum stays below 2^22: no conversion.
constexpr i32 MAGIC_BITS = 0x4b400000;
constexpr float MAGIC = 12582912.0f;
/// scale * sum, rounded once; `minus` is -MAGIC * scale, which is exact for scales of up to 22 bits.
BATCHLAS_DEVICE float scaled(float scale, i32 sum, float minus) { return arch::fma(scale, __int_as_float(sum), minus); }

/// Stores rows `row` and `row + 1` of a token's result, as far as they exist.
BATCHLAS_DEVICE void store_rows(const MmqArgs &args, int token, int row, float a, float b) {
  const u64 at = args.y + static_cast<u64>(token) * args.ldy + static_cast<u64>(row) * sizeof(float);
  const bool first = token < args.tokens && row < args.rows, second = first && row + 1 < args.rows;
  if (args.paired) {
    arch::store(second, at, a, b);
    arch::store(first && !second, at, a);
  } else {
    arch::store(first, at, a);
    arch::store(second, at + sizeof(float), b);
  }
}

} // namespace batchlas
