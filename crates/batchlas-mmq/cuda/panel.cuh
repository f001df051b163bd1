// mmq: activations on their way into cells, as signed bytes with a scale per chunk of 32, or rounded to bfloat16.
//
// A block makes one cell, a warp one token of it, eight lanes a chunk. The rule of the bytes is that of batchlas-mmq/src/panel.rs, operation for operation.
// Tokens beyond the last are zero.
#pragma once
#include <batchlas/q4k.cuh>

namespace batchlas {

/// `ldx` in bytes; `count` counters of the products are zeroed.
struct PanelArgs {
  u64 x, ldx, panel, counters;
  i32 tokens, steps, count, unused;
};
static_assert(sizeof(PanelArgs) == 48, "batchlas-mmq/src/panel.rs");

/// Four elements of a token that exists, else zeros.
template <bool Aligned> BATCHLAS_DEVICE void load_elements(const PanelArgs &args, int token, int element, float (&v)[4]) {
  const u64 at = args.x + static_cast<u64>(token) * args.ldx + static_cast<u64>(element) * sizeof(float);
  const bool live = token < args.tokens;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    v[e] = 0;
  }
  if constexpr (Aligned) {
    arch::load(live, at, v[0], v[1], v[2], v[3]);
  } else {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      arch::load(live, at + static_cast<u64>(e * sizeof(float)), v[e]);
    }
  }
}

template <bool Aligned> __global__ void __launch_bounds__(256) mmq_panel_bytes(const PanelArgs args) {
  const int lane = arch::lane(), t = arch::warp(), l = lane % 8, chunk = lane / 8;
  const int all_cells = (args.tokens + CELL_TOKENS - 1) / CELL_TOKENS;
  const int step = static_cast<int>(blockIdx.x) / all_cells, index = static_cast<int>(blockIdx.x) % all_cells;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < args.count; i += static_cast<int>(gridDim.x * blockDim.x)) {
    arch::store_word(args.counters + static_cast<u64>(i) * sizeof(u32), 0);
  }
  float v[4];
  load_elements<Aligned>(args, index * CELL_TOKENS + t, step * 128 + lane * 4, v);

  // The bits of absolute values are in the order of the values, infinity and NaN above all others.
  int most = 0;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    most = max(most, static_cast<int>(__float_as_uint(v[e]) & 0x7fffffffu));
  }
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) {
    most = max(most, arch::shuffle_xor(most, distance));
  }
  const bool finite = most < 0x7f800000;
  float d = arch::divide(__int_as_float(most), 127.0f), inverse = arch::divide(1.0f, d);
  if (__float_as_uint(inverse) == 0x7f800000u) {
    d = inverse = 0;
  }
  if (!finite) {
    d = __uint_as_float(0x7fc00000u);
    inverse = 0;
  }
  u32 word = 0;
  int sum = 0;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int q = finite ? arch::nearest_int(arch::mul(v[e], inverse)) : 0;
    word |= (static_cast<u32>(q) & 255u) << (8 * e);
    sum += q;
  }
#pragma unroll
  for (int distance = 1; distance < 8; distance *= 2) {
    sum += arch::shuffle_xor(sum, distance);
  }
  const u64 cell = args.panel + static_cast<u64>(step * static_cast<i64>(all_cells) + index) * Cell::BYTES;
  arch::store_word(cell + static_cast<u64>(chunk * Cell::CHUNK + l % 2 * Cell::HALF + t * Cell::TOKEN + l / 2 * 4), word);
  if (l == 0) {
    const float product = finite ? arch::mul(d, static_cast<float>(sum)) : d, lead = leading(product);
    const float rest = (__float_as_uint(product) & 0x7f800000u) == 0x7f800000u ? 0.0f : arch::add(product, -lead);
    const u64 token = cell + static_cast<u64>(t * Cell::TOKEN + chunk * 4), by_chunk = cell + static_cast<u64>(chunk * Cell::PER_CHUNK + t * 4);
    arch::store_word(token + Cell::LEAD, __float_as_uint(lead));
    arch::store_word(token + Cell::REST, __float_as_uint(rest));
    arch::store_word(by_chunk + Cell::SCALE, __float_as_uint(d));
    arch::store_word(by_chunk + Cell::SUM, static_cast<u32>(sum));
  }
}

template <bool Aligned> __global__ void __launch_bounds__(256) mmq_panel_bf16(const PanelArgs args) {
  const int lane = arch::lane(), t = arch::warp(), l = lane % 8, chunk = lane / 8;
  const int all_cells = (args.tokens + CELL_TOKENS - 1) / CELL_TOKENS;
  const int step = static_cast<int>(blockIdx.x) / all_cells, index = static_cast<int>(blockIdx.x) % all_cells;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < args.count; i += static_cast<int>(gridDim.x * blockDim.x)) {
    arch::store_word(args.counters + static_cast<u64>(i) * sizeof(u32), 0);
  }
  float v[4];
  load_elements<Aligned>(args, index * CELL_TOKENS + t, step * 128 + lane * 4, v);
  const u64 cell = args.panel + static_cast<u64>(step * static_cast<i64>(all_cells) + index) * 2048;
  const u64 to = cell + static_cast<u64>(chunk * 512 + l % 2 * 256 + t * 16 + l / 2 * 4);
  arch::store_word(to, arch::pack_bf16(v[0], v[1]));
  arch::store_word(to + 128, arch::pack_bf16(v[2], v[3]));
}

} // namespace batchlas
