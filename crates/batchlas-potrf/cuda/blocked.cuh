// potrf, family `blocked`: what follows the factorisation of a diagonal block.
//
// A status that is not 0 is added to the item's own, if it is the item's first; and of that item the block becomes the identity and the panel behind it zero,
// so that the solve and the update that follow change nothing and divide by nothing. A warp per item reads its status: 4 bytes where nothing failed. Any batch:
// the grid is bounded and warps stride over it.
#pragma once
#include <batchlas/memory.cuh>
#include <batchlas/operand.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

/// The operands of a launch.
struct PotrfMergeArgs {
  /// What is left of the matrices, from the block on.
  Operand a;
  /// One 32-bit status per item: the item's, or 0 if nobody wants them; and that of the block.
  u64 info, block_info;
  u64 batch;
  /// Order of the block, order of what is left, and columns before it.
  i32 block, left, first;
  u32 unused;
};

/// Threads of a block of the grid.
constexpr int MERGE_THREADS = 256;

template <class T, Uplo U> __global__ void __launch_bounds__(MERGE_THREADS) potrf_merge(const PotrfMergeArgs args) {
  constexpr int WARPS = MERGE_THREADS / arch::WARP;
  for (u64 item = arch::block() * WARPS + arch::warp(); item < args.batch; item += u64(gridDim.x) * WARPS) {
    const i32 status = reinterpret_cast<const i32 *>(args.block_info)[item];
    if (args.info != 0 && arch::lane() == 0) {
      i32 *const info = reinterpret_cast<i32 *>(args.info) + item;
      if (args.first == 0) {
        *info = status;
      } else if (status != 0 && *info == 0) {
        *info = args.first + status;
      }
    }
    if (status == 0) {
      continue;
    }
    u64 column = args.a.item(item, true);
    const int columns = U == Uplo::Lower ? args.block : args.left;
    for (int j = 0; j < columns; j++) {
      const int begin = U == Uplo::Lower ? j : 0, end = U == Uplo::Lower ? args.left : min(j + 1, args.block);
      for (int i = begin + arch::lane(); i < end; i += arch::WARP) {
        store(true, column + i * sizeof(T), from_real<T>(i == j ? 1 : 0));
      }
      column += args.a.ld;
    }
  }
}

} // namespace batchlas
