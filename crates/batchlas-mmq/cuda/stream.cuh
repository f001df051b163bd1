// mmq, family `stream`: up to 16 tokens, weights read once, as fast as memory delivers them.
//
// A block stays and takes every gridDim-th tile of 16 rows, in segments of a super-block a warp: 16 warps for one cell of tokens, 8 of twice the registers
// for two. Rows come by bulk copies into a ring of
// `Stages` segments, 32 bytes apart so that eight rows meet all banks, while the tensor cores work on what is there: weights are the left operand, 8 tokens the
// right one, whose fragments a warp keeps in registers as long as its super-block stays the same. Scales and minima stay integers until the end of a
// super-block: d sum(sc S) - dmin sum(m A). The warps' sums are added in their order.
#pragma once
#include <batchlas/q4k.cuh>
#include <batchlas/shared.cuh>

namespace batchlas {

template <int Cells, int Stages> struct Stream {
  static constexpr int WARPS = Cells == 1 ? 16 : 8, THREADS = 32 * WARPS, ROWS = 16;
  static constexpr int PITCH = WARPS * BLOCK_BYTES + 32, STAGE = ROWS * PITCH;
  /// Sums of a tile, and their distance between warps.
  static constexpr int SUMS = ROWS * CELL_TOKENS * Cells, SUMS_PITCH = SUMS + 4;
  static constexpr int BARRIERS = Stages * STAGE + 2 * WARPS * SUMS_PITCH * 4;
  static constexpr int SHARED = BARRIERS + Stages * 8;
};

template <int Cells, int Stages> __global__ void __launch_bounds__(Stream<Cells, Stages>::THREADS, 1) mmq_stream(const MmqArgs args) {
  using S = Stream<Cells, Stages>;
  unsigned char *const shared = dynamic_shared<unsigned char>();
  const u32 base = arch::shared_address(shared);
  const int lane = arch::lane(), warp = arch::uniform_warp(), g = lane / 4, t = lane % 4;
  const int blocks = args.steps / 2, segments = (blocks + S::WARPS - 1) / S::WARPS;
  // Item after item: a segment, and the first row of the tile it is of. Counted, because a division takes as long as a good part of a tile.
  struct Item {
    int row, segment, stage;
  };
  const int last_row = args.tiles * S::ROWS;
  auto advance = [&](Item &item) {
    item.stage = item.stage + 1 == Stages ? 0 : item.stage + 1;
    item.segment++;
    if (item.segment == segments) {
      item.segment = 0;
      item.row += static_cast<int>(gridDim.x) * S::ROWS;
    }
  };

  if (threadIdx.x == 0) {
    for (int s = 0; s < Stages; s++) {
      arch::barrier_init(base + static_cast<u32>(S::BARRIERS + 8 * s), S::ROWS);
    }
    arch::barriers_ready();
  }
  arch::sync_block();
  // Each warp fetches its share of the rows: issued by one warp, sixteen copies take as long as a tile.
  Item ahead = {static_cast<int>(blockIdx.x) * S::ROWS, 0, 0};
  auto fetch = [&]() {
    if (ahead.row < last_row && lane == 0) {
      const u32 barrier = base + static_cast<u32>(S::BARRIERS + 8 * ahead.stage);
      const u32 bytes = static_cast<u32>(min(S::WARPS, blocks - ahead.segment * S::WARPS) * BLOCK_BYTES);
#pragma unroll
      for (int i = 0; i < S::ROWS / S::WARPS; i++) {
        const int r = i * S::WARPS + warp;
        const u64 from = weight_row(args, ahead.row + r) + static_cast<u64>(ahead.segment * S::WARPS * BLOCK_BYTES);
        arch::barrier_expect(barrier, bytes);
        arch::copy_bulk(base + static_cast<u32>(ahead.stage * S::STAGE + r * S::PITCH), from, bytes, barrier);
      }
    }
    advance(ahead);
  };
  for (int s = 0; s < Stages; s++) {
    fetch();
  }

  u32 x[Cells][8][2];
  float dx[Cells][8][2];
  bool held = false;
  int parity = 0, buffer = 0;
#pragma unroll 1
  for (Item item = {static_cast<int>(blockIdx.x) * S::ROWS, 0, 0}; item.row < last_row; advance(item)) {
    const int block = item.segment * S::WARPS + warp;
    const bool live = block < blocks;
    if (live && !held) {
      held = segments == 1;
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int n = 0; n < Cells; n++) {
          const u64 cell = args.panel + static_cast<u64>((2 * block + half) * Cells + n) * Cell::BYTES;
#pragma unroll
          for (int c = 0; c < 4; c++) {
            const int j = 4 * half + c;
            x[n][j][0] = arch::load_word(cell + static_cast<u64>(c * Cell::CHUNK + g * Cell::TOKEN + t * 4));
            x[n][j][1] = arch::load_word(cell + static_cast<u64>(c * Cell::CHUNK + Cell::HALF + g * Cell::TOKEN + t * 4));
            arch::load_pair(cell + static_cast<u64>(Cell::SCALE + c * Cell::PER_CHUNK + t * 8), dx[n][j][0], dx[n][j][1]);
            if (j % 2 == 1) {
              dx[n][j][0] = arch::mul(dx[n][j][0], 0.0625f);
              dx[n][j][1] = arch::mul(dx[n][j][1], 0.0625f);
            }
          }
        }
      }
    }
    float lead[Cells][2], rest[Cells][2];
    if (live) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int n = 0; n < Cells; n++) {
          const u64 cell = args.panel + static_cast<u64>((2 * block + half) * Cells + n) * Cell::BYTES + static_cast<u64>(g * Cell::TOKEN + t * 4);
          lead[n][half] = __uint_as_float(arch::load_word(cell + Cell::LEAD));
          rest[n][half] = __uint_as_float(arch::load_word(cell + Cell::REST));
        }
      }
    }
    arch::barrier_wait(base + static_cast<u32>(S::BARRIERS + 8 * item.stage), static_cast<u32>(parity));
    float sum[Cells][4];
#pragma unroll
    for (int n = 0; n < Cells; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        sum[n][e] = 0;
      }
    }
    if (live) {
      const unsigned char *const upper = shared + item.stage * S::STAGE + g * S::PITCH + warp * BLOCK_BYTES, *const lower = upper + 8 * S::PITCH;
      const Quad headers[2] = {*reinterpret_cast<const Quad *>(upper), *reinterpret_cast<const Quad *>(lower)};
      float scaled_sums[Cells][4], minima[Cells][4];
      const Sixes sixes[2][2] = {{Sixes(headers[0], 0), Sixes(headers[0], 1)}, {Sixes(headers[1], 0), Sixes(headers[1], 1)}};
#pragma unroll
      for (int n = 0; n < Cells; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          scaled_sums[n][e] = minima[n][e] = 0;
        }
      }
#pragma unroll
      for (int p = 0; p < 4; p++) {
        const uint2 up = *reinterpret_cast<const uint2 *>(upper + HEADER_BYTES + 32 * p + 8 * t);
        const uint2 low = *reinterpret_cast<const uint2 *>(lower + HEADER_BYTES + 32 * p + 8 * t);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int j = 2 * p + h;
          const u32 mask = h == 0 ? LOW_NIBBLES : HIGH_NIBBLES;
          const u32 a[4] = {up.x & mask, low.x & mask, up.y & mask, low.y & mask};
          const float scale[2] = {sixes[0][j / 4].scale(j % 4), sixes[1][j / 4].scale(j % 4)};
          const float minus[2] = {arch::mul(-MAGIC, scale[0]), arch::mul(-MAGIC, scale[1])};
#pragma unroll
          for (int n = 0; n < Cells; n++) {
            i32 product[4];
            arch::mma_u8_s8(product, a, x[n][j][0], x[n][j][1], MAGIC_BITS);
#pragma unroll
            for (int e = 0; e < 4; e++) {
              scaled_sums[n][e] = arch::fma(dx[n][j][e % 2], scaled(scale[e / 2], product[e], minus[e / 2]), scaled_sums[n][e]);
            }
          }
        }
      }
      const float left[4] = {sixes[0][0].minimum(t), sixes[1][0].minimum(t), sixes[0][1].minimum(t), sixes[1][1].minimum(t)};
#pragma unroll
      for (int n = 0; n < Cells; n++) {
        arch::mma_16x8x8(minima[n], left, lead[n]);
        arch::mma_16x8x8(minima[n], left, rest[n]);
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float d = header_d(headers[e / 2]), minus = -header_dmin(headers[e / 2]);
#pragma unroll
        for (int n = 0; n < Cells; n++) {
          sum[n][e] = arch::fma(minus, minima[n][e], arch::mul(d, scaled_sums[n][e]));
        }
      }
    }
    // By token, then row: the rows of a token are neighbours in y.
    float *const sums = reinterpret_cast<float *>(shared + Stages * S::STAGE) + buffer * (S::WARPS * S::SUMS_PITCH);
#pragma unroll
    for (int n = 0; n < Cells; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float &own = sums[warp * S::SUMS_PITCH + (8 * n + 2 * t + e % 2) * S::ROWS + g + e / 2 * 8];
        own = item.segment == 0 ? sum[n][e] : arch::add(own, sum[n][e]);
      }
    }
    arch::sync_block();
    fetch();
    const int out = static_cast<int>(threadIdx.x) - (S::THREADS - S::SUMS);
    const bool done = item.segment + 1 == segments;
    if (done && out >= 0) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < S::WARPS; w++) {
        total = arch::add(total, sums[w * S::SUMS_PITCH + out]);
      }
      const int token = out / S::ROWS, row = item.row + out % S::ROWS;
      arch::store(token < args.tokens && row < args.rows, args.y + static_cast<u64>(token) * args.ldy + static_cast<u64>(row) * 4, total);
    }
    buffer = done ? 1 - buffer : buffer;
    parity = item.stage + 1 == Stages ? 1 - parity : parity;
  }
}

} // namespace batchlas
