// Tiles of an operand on their way from global to shared memory, by asynchronous copies.
//
// An operand of a product has an outer index (a row or a column of C) and the inner one. A tile is `Extent` of the outer by `Depth` of the inner index.
//
// `StagedTile`: in shared memory the inner index is the slow one, whichever is contiguous in global memory: element (outer e, inner k) lies at k PITCH + e.
// A copy against the grain moves single elements, eight contiguous ones of global memory by eight lanes, onto distinct banks.
//
// `KeptTile`: an operand that is contiguous along the inner index stays so, for readers that take single elements anyway. Element (e, k) lies at e Depth + k with
// two or three of its bits turned by e, so that 4 consecutive k of consecutive e (of 8 bytes: or of every second one) fall onto distinct banks.
//
// Elements beyond the operand's edge, outer or inner, become zeros and are not read. Addresses are running pointers, one per thread.
#pragma once
#include <batchlas/memory.cuh>

namespace batchlas {

/// Which index of an operand is contiguous in memory.
enum class Contiguous { Outer, Inner };

/// The copies of one thread out of `Threads`. `Aligned`: the operand starts on 16 bytes, its leading dimension and its outer extent are multiples of 16
/// bytes, so that a copy along the outer index moves 16 bytes.
template <class T, int Extent, int Depth, int Threads, Contiguous C, bool Aligned,
          int Pad = C == Contiguous::Inner ? 16 / int(sizeof(T)) : sizeof(T) == 16 ? 2 : 4>
struct StagedTile {
  /// Elements from an inner index to the next: with the default, fragment reads, or copies against the grain, fall onto distinct banks.
  static constexpr int PITCH = Extent + Pad;
  /// Elements from an outer index to the one `n` after it, where 8 divides `n`.
  static BATCHLAS_DEVICE constexpr int ahead(int n) { return n; }
  /// Where an element lies.
  static BATCHLAS_DEVICE constexpr int at(int outer, int inner) { return inner * PITCH + outer; }
  /// Bytes of one tile in shared memory.
  static constexpr int BYTES = Depth * PITCH * int(sizeof(T));
  static constexpr bool OUTER_CONTIGUOUS = true;

  /// `operand` is the address of element (0, 0) of the item, `first` the outer index where the tile starts, `extent` where the operand ends.
  BATCHLAS_DEVICE StagedTile(u64 operand, u64 ld_bytes, int first, int extent) : ld_bytes(ld_bytes) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (C == Contiguous::Outer) {
      inner = thread / COLUMN;
      outer = thread % COLUMN * WIDTH;
      from = operand + (first + outer) * u64(sizeof(T)) + inner * ld_bytes;
    } else {
      inner = thread % RUN;
      outer = thread / RUN;
      from = operand + inner * sizeof(T) + (first + outer) * ld_bytes;
    }
    room = extent - first - outer;
    offset = (inner * PITCH + outer) * int(sizeof(T));
  }

  /// Issues the copies of the next tile to the shared address `stage`; `left` of the inner index are left.
  BATCHLAS_DEVICE void copy_next(u32 stage, int left) {
    const u32 to = stage + offset;
    u64 at = from;
    if constexpr (C == Contiguous::Outer) {
#pragma unroll
      for (int k = 0; k < Depth; k += INNER_STEP) {
#pragma unroll
        for (int e = 0; e < Extent; e += OUTER_STEP) {
          arch::copy_async_or_zero<WIDTH * sizeof(T)>(inner + k < left && e < room, to + (k * PITCH + e) * sizeof(T), at + e * sizeof(T));
        }
        at += INNER_STEP * ld_bytes;
      }
      from += Depth * ld_bytes;
    } else {
#pragma unroll
      for (int e = 0; e < Extent; e += OUTER_STEP) {
#pragma unroll
        for (int k = 0; k < Depth; k += RUN) {
          arch::copy_async_or_zero<sizeof(T)>(inner + k < left && e < room, to + (k * PITCH + e) * sizeof(T), at + k * sizeof(T));
        }
        at += OUTER_STEP * ld_bytes;
      }
      from += Depth * sizeof(T);
    }
  }

private:
  /// Elements of one copy.
  static constexpr int WIDTH = Aligned && C == Contiguous::Outer ? PER_16_BYTES<T> : 1;
  /// Outer: threads side by side along the outer index.
  static constexpr int COLUMN = Extent / WIDTH < Threads ? Extent / WIDTH : Threads;
  /// Inner: threads side by side along the inner index.
  static constexpr int RUN = 8;
  static constexpr int INNER_STEP = C == Contiguous::Outer ? Threads / COLUMN : RUN;
  static constexpr int OUTER_STEP = C == Contiguous::Outer ? COLUMN * WIDTH : Threads / RUN;
  static_assert(Depth % INNER_STEP == 0 && Extent % OUTER_STEP == 0, "the threads do not divide the tile");

  u64 from, ld_bytes;
  int inner, outer, room, offset;
};

/// The copies of one thread out of `Threads`, for an operand that is contiguous along the inner index. `Aligned`: it starts on 16 bytes, its leading dimension
/// is a multiple of 16 bytes, and every copy moves 16 bytes.
template <class T, int Extent, int Depth, int Threads, bool Aligned> struct KeptTile {
  static_assert(Depth % (sizeof(T) == 4 ? 16 : 8) == 0, "rows of whole half-lines of banks");
  /// Bytes of one tile in shared memory.
  static constexpr int BYTES = Depth * Extent * int(sizeof(T));
  static constexpr bool OUTER_CONTIGUOUS = false;
  /// Elements from an outer index to the one `n` after it, where 8 divides `n`.
  static BATCHLAS_DEVICE constexpr int ahead(int n) { return n * Depth; }
  /// Where an element lies.
  static BATCHLAS_DEVICE constexpr int at(int outer, int inner) {
    // 4 bytes: the rows of a line of banks take turns together.
    const int turn = sizeof(T) == 4 ? outer * Depth / 32 % (Depth / 4 < 8 ? Depth / 4 : 8) : (outer ^ (outer >> 2 & 1)) % (32 / int(sizeof(T)));
    return (outer * Depth + inner) ^ turn * 4;
  }

  /// `operand` is the address of element (0, 0) of the item, `first` the outer index where the tile starts, `extent` where the operand ends.
  BATCHLAS_DEVICE KeptTile(u64 operand, u64 ld_bytes, int first, int extent) : ld_bytes(ld_bytes) {
    inner = static_cast<int>(threadIdx.x) % ROW * WIDTH;
    outer = static_cast<int>(threadIdx.x) / ROW;
    room = extent - first - outer;
    from = operand + inner * sizeof(T) + (first + outer) * ld_bytes;
  }

  /// Issues the copies of the next tile to the shared address `stage`; `left` of the inner index are left.
  BATCHLAS_DEVICE void copy_next(u32 stage, int left) {
    const int rest = max(left - inner, 0);
    const u32 bytes = min(rest, WIDTH) * int(sizeof(T));
    u64 at_row = from;
#pragma unroll
    for (int e = 0; e < Extent; e += STEP) {
      const u32 to = stage + (at(outer + e % 8, inner) + ahead(e - e % 8)) * int(sizeof(T));
      if constexpr (WIDTH * sizeof(T) == 16) {
        arch::copy_async_start(e < room ? bytes : 0, to, at_row);
      } else {
        arch::copy_async_or_zero<sizeof(T)>(rest > 0 && e < room, to, at_row);
      }
      at_row += STEP * ld_bytes;
    }
    from += Depth * sizeof(T);
  }

private:
  /// Elements of one copy.
  static constexpr int WIDTH = Aligned ? PER_16_BYTES<T> : 1;
  /// Threads side by side along the inner index, and outer indices that all threads copy at once.
  static constexpr int ROW = Depth / WIDTH, STEP = Threads / ROW;
  static_assert(Threads % ROW == 0 && Extent % STEP == 0, "the threads do not divide the tile");

  u64 from, ld_bytes;
  int inner, outer, room;
};

} // namespace batchlas
