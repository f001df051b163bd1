// Products of Q4_K weights by tiles: a ring of stages in shared memory, fragments in registers, and the steps of a tile dealt to several blocks if asked.
//
// A block of `Down` x 4 warps computes 16 Fragments::DOWN Down tokens x 32 Fragments::ACROSS rows. A stage is one step: cells of activations as they lie
// in memory, and packed nibbles, row r in 64 bytes whose two halves are exchanged where r & 2, so that eight rows meet all banks. Scales are decoded by
// the threads, one a row, into one of two arrays while the other is in use.
//
// Where tiles are fewer than multiprocessors, `splits` blocks share the steps of a tile. Each stores its sums; the last to arrive adds them in the order of
// the steps, so that the result does not depend on who was last.
#pragma once
#include <batchlas/q4k.cuh>
#include <batchlas/shared.cuh>

namespace batchlas {

template <class Fragments, int Down, int Stages> struct Q4kTile {
  static constexpr int WARPS_ACROSS = 4;
  static constexpr int THREADS = 32 * Down * WARPS_ACROSS;
  static constexpr int TOKENS = 16 * Fragments::DOWN * Down, ROWS = 8 * Fragments::ACROSS * WARPS_ACROSS;
  static constexpr int X_BYTES = TOKENS / CELL_TOKENS * Fragments::CELL_BYTES, W_BYTES = ROWS * STEP_BYTES;
  static constexpr int STAGE = X_BYTES + W_BYTES, SCALES = ROWS * Fragments::SCALE_BYTES;
  static constexpr int SHARED = Stages * STAGE + 2 * SCALES;
  static constexpr int X_PIECES = X_BYTES / 16, W_PIECES = W_BYTES / 16;
  static constexpr int X_EACH = (X_PIECES + THREADS - 1) / THREADS, W_EACH = (W_PIECES + THREADS - 1) / THREADS;
  static_assert(ROWS <= THREADS && W_PIECES % THREADS == 0, "a thread decodes at most one row, and all copy nibbles");
};

/// One tile of the grid, or a part of its steps.
template <class Fragments, int Down, int Stages> BATCHLAS_DEVICE void q4k_tile(const MmqArgs &args) {
  using Tile = Q4kTile<Fragments, Down, Stages>;
  const int thread = static_cast<int>(threadIdx.x), lane = arch::lane(), warp = arch::warp();
  const int down = warp % Down, across = warp / Down;
  const int token_tiles = (args.tokens + Tile::TOKENS - 1) / Tile::TOKENS;
  const int tile = static_cast<int>(blockIdx.x) % args.tiles, part = static_cast<int>(blockIdx.x) / args.tiles;
  const int token = tile % token_tiles * Tile::TOKENS, row = tile / token_tiles * Tile::ROWS;
  const int begin = static_cast<int>(static_cast<i64>(part) * args.steps / args.splits);
  const int end = static_cast<int>(static_cast<i64>(part + 1) * args.steps / args.splits);
  unsigned char *const shared = dynamic_shared<unsigned char>();
  const u32 base = arch::shared_address(shared);

  // Cells beyond the last read the last: their results are not stored.
  const u64 stride = static_cast<u64>(cells(args)) * Fragments::CELL_BYTES, skipped = static_cast<u64>(token / CELL_TOKENS) * Fragments::CELL_BYTES;
  const u64 x = args.panel + skipped;
  const u32 last = static_cast<u32>(min(stride - skipped, static_cast<u64>(Tile::X_BYTES))) - 16;
  u64 nibbles[Tile::W_EACH];
#pragma unroll
  for (int u = 0; u < Tile::W_EACH; u++) {
    nibbles[u] = weight_row(args, row + (u * Tile::THREADS + thread) / 4) + HEADER_BYTES + static_cast<u64>(thread % 4 * 16);
  }
  const bool decodes = thread < Tile::ROWS;
  const u64 headers = weight_row(args, row + thread);

  auto copy = [&](int step, int stage) {
    const u32 to = base + static_cast<u32>(stage * Tile::STAGE);
    const u64 from = x + static_cast<u64>(step) * stride;
#pragma unroll
    for (int u = 0; u < Tile::X_EACH; u++) {
      const u32 at = static_cast<u32>(u * Tile::THREADS + thread) * 16;
      if (Tile::X_PIECES % Tile::THREADS == 0 || at < static_cast<u32>(Tile::X_BYTES)) {
        arch::copy_async_start(16, to + at, from + min(at, last));
      }
    }
    const u64 offset = static_cast<u64>(step / 2 * BLOCK_BYTES + step % 2 * STEP_BYTES);
#pragma unroll
    for (int u = 0; u < Tile::W_EACH; u++) {
      const int piece = u * Tile::THREADS + thread, r = piece / 4;
      const int at = Tile::X_BYTES + r * STEP_BYTES + ((piece % 4 * 16) ^ ((r & 2) * 16));
      arch::copy_async_start(16, to + static_cast<u32>(at), nibbles[u] + offset);
    }
    arch::commit_async();
  };
  auto scales = [&](int step) { return shared + Stages * Tile::STAGE + step % 2 * Tile::SCALES; };

  Fragments fragments;
  fragments.zero();
  Quad header = {};
  if (decodes) {
    header = arch::load_quad(headers + static_cast<u64>(begin / 2 * BLOCK_BYTES));
    Fragments::template decode<Tile::ROWS>(scales(begin), thread, header, begin % 2);
  }
#pragma unroll
  for (int p = 0; p < Stages - 1; p++) {
    if (begin + p < end) {
      copy(begin + p, p);
    } else {
      arch::commit_async();
    }
  }
  int stage = 0;
#pragma unroll 1
  for (int step = begin; step < end; step++) {
    arch::wait_async<Stages - 2>();
    arch::sync_block();
    const int ahead = step + Stages - 1;
    if (ahead < end) {
      copy(ahead, stage == 0 ? Stages - 1 : stage - 1);
    } else {
      arch::commit_async();
    }
    const bool next = decodes && step + 1 < end;
    if (next && step % 2 == 1) {
      header = arch::load_quad(headers + static_cast<u64>((step + 1) / 2 * BLOCK_BYTES));
    }
    const int at = stage * Tile::STAGE + down * (2 * Fragments::DOWN * Fragments::CELL_BYTES);
    const int row_of_lane = across * 8 * Fragments::ACROSS + lane / 4;
    const int packed = stage * Tile::STAGE + Tile::X_BYTES + row_of_lane * STEP_BYTES + ((row_of_lane & 2) * 16) + lane % 4 * 8;
    fragments.template multiply<Tile::ROWS>(shared + at, base + static_cast<u32>(at), shared + packed, scales(step), across * 8 * Fragments::ACROSS);
    if (next) {
      Fragments::template decode<Tile::ROWS>(scales(step + 1), thread, header, (step + 1) % 2);
    }
    stage = stage + 1 == Stages ? 0 : stage + 1;
  }

  if (args.splits > 1) {
    constexpr int EACH = Fragments::DOWN * Fragments::ACROSS;
    const u64 first = args.partial + (static_cast<u64>(tile) * static_cast<u64>(args.splits) * EACH * Tile::THREADS + static_cast<u64>(thread)) * 16;
    const u64 own = first + static_cast<u64>(part) * (EACH * Tile::THREADS * 16);
#pragma unroll
    for (int f = 0; f < EACH; f++) {
      arch::store_strong(own + static_cast<u64>(f * Tile::THREADS * 16), fragments.c[f / Fragments::ACROSS][f % Fragments::ACROSS]);
    }
    arch::fence_device();
    arch::sync_block();
    u32 *const arrived = reinterpret_cast<u32 *>(shared);
    if (thread == 0) {
      const u64 counter = args.counters + static_cast<u64>(tile) * sizeof(u32);
      *arrived = arch::arrive_strong(counter);
      if (*arrived + 1 == static_cast<u32>(args.splits)) {
        arch::store_strong(counter, 0u);
      }
    }
    arch::sync_block();
    if (*arrived + 1 != static_cast<u32>(args.splits)) {
      return;
    }
    arch::fence_device();
    fragments.zero();
#pragma unroll 1
    for (int p = 0; p < args.splits; p++) {
#pragma unroll
      for (int f = 0; f < EACH; f++) {
        float sum[4], (&c)[4] = fragments.c[f / Fragments::ACROSS][f % Fragments::ACROSS];
        arch::load_strong(first + static_cast<u64>(p) * (EACH * Tile::THREADS * 16) + static_cast<u64>(f * Tile::THREADS * 16), sum);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          c[e] = arch::add(c[e], sum[e]);
        }
      }
    }
  }
  const int t = token + down * 16 * Fragments::DOWN + lane / 4, r = row + across * 8 * Fragments::ACROSS + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < Fragments::DOWN; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int n = 0; n < Fragments::ACROSS; n++) {
        store_rows(args, t + 16 * m + 8 * half, r + 8 * n, fragments.c[m][n][2 * half], fragments.c[m][n][2 * half + 1]);
      }
    }
  }
}

} // namespace batchlas
