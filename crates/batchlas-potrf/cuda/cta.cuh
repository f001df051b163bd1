// potrf, family `cta`: Cholesky factorisation of a batch of Hermitian positive definite matrices, a work-group per matrix.
//
// The algorithm is that of batchlas/cholesky.cuh: phases of columns in a register tile, finished columns in shared memory. Few warps with many registers
// each do best, since the panels are serial: 1 warp to about order 96, 8 at 256.
//
// info[item] = 0, or the 1-based order of the first leading minor whose pivot is not positive and finite. A failed item then holds, in the stored triangle,
// columns 1 .. k-1 of the factor of its leading minor and zeros from column k on. No other item is touched.
#pragma once
#include <batchlas/cholesky.cuh>

namespace batchlas {

/// The operands of a launch. Sizes in bytes are 64-bit; `ld_bytes` and `item_bytes` are multiples of the size of an element.
struct PotrfCtaArgs {
  /// Layout::Strided: address of item 0. Layout::Pointers: address of the table of item addresses. Aligned to an element (a table: to 8 bytes).
  u64 a;
  /// Bytes from a column to the next, at least N elements.
  u64 ld_bytes;
  /// Layout::Strided: bytes from an item to the next. Layout::Pointers: bytes from an address in the table to its item.
  u64 item_bytes;
  /// Address of one 32-bit integer per item, or 0 if the caller does not want them.
  u64 info;
};

template <class Plan, int Bytes, Uplo U, Layout L, int MinBlocks>
__global__ void __launch_bounds__(Plan::Grid::THREADS, MinBlocks) potrf_cta(const PotrfCtaArgs args) {
  static_assert(Plan::BYTES == Bytes, "the host asks for another amount of shared memory");
  extern __shared__ Vector<u64, 2> shared[];
  const u64 matrix = arch::block();
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, true);
  const i32 info = Cholesky<Plan, U>::factor(reinterpret_cast<typename Plan::T *>(shared), item, args.ld_bytes);
  arch::store(threadIdx.x == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
}

} // namespace batchlas
