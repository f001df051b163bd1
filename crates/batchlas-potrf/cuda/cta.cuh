// potrf, family `cta`: Cholesky factorisation of a batch of Hermitian positive definite matrices, a work-group per matrix.
//
// The algorithm is that of batchlas/cholesky.cuh: phases of columns in a register tile, finished columns in shared memory. Few warps with many registers
// each do best, since the panels are serial: 1 warp to about order 96, 8 at 256.
//
// info[item] = 0, or the 1-based order of the first leading minor whose pivot is not positive and finite. A failed item then holds, in the stored triangle,
// columns 1 .. k-1 of the factor of its leading minor and zeros from column k on. No other item is touched.
#pragma once
#include <batchlas/cholesky.cuh>
#include <batchlas/factor.cuh>

namespace batchlas {

template <class Plan, int Bytes, Uplo U, Layout L, int MinBlocks>
__global__ void __launch_bounds__(Plan::Grid::THREADS, MinBlocks) potrf_cta(const FactorArgs args) {
  static_assert(Plan::BYTES == Bytes, "the host asks for another amount of shared memory");
  extern __shared__ Vector<u64, 2> shared[];
  const u64 matrix = arch::block();
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, true);
  const i32 info = Cholesky<Plan, U>::factor(arch::held_shared(reinterpret_cast<typename Plan::T *>(shared)), item, args.ld_bytes);
  arch::store(threadIdx.x == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
}

} // namespace batchlas
