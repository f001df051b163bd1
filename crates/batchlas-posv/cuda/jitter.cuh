// What surrounds the retries of failed systems: `jitter_keep` copies the referenced triangle of every A before it is factored, `jitter_restore` brings it
// back for the items of a list, with a shift on the diagonal, and notes where these items lie, so that the retry works on them alone.
//
// A warp per item; lanes walk down columns.
#pragma once
#include <batchlas/operand.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

struct JitterArgs {
  Operand a, b;
  /// Order, and number of items: of the batch in `jitter_keep`, of the list in `jitter_restore`.
  u64 n, items;
  /// Packed copies of A, one for each item of the batch.
  u64 kept;
  /// Indices of the items to restore, and where the addresses of their A and B go (64 bits each).
  u64 list, table_a, table_b;
  /// A double for each item of the batch: the shift, in units of A.
  u64 shifts;
  /// The shift in units of the largest diagonal element. Where it is 0, A becomes what it was, bit for bit.
  f64 relative;
};

/// Warps of a block, and blocks on a multiprocessor. Without the latter the compiler keeps to 32 registers and spills (f64, Upper).
constexpr int WARPS = 4, BLOCKS = 8;

template <Uplo U> BATCHLAS_DEVICE int first_row(int j) { return U == Uplo::Lower ? j : 0; }
template <Uplo U> BATCHLAS_DEVICE int end_row(int j, int n) { return U == Uplo::Lower ? n : j + 1; }

template <class T, Uplo U> __global__ void __launch_bounds__(arch::WARP *WARPS, BLOCKS) jitter_keep(const JitterArgs args) {
  const u64 item = arch::block() * WARPS + arch::warp();
  if (item >= args.items) {
    return;
  }
  const int n = static_cast<int>(args.n);
  const u64 a = args.a.item(item, true);
  T *const kept = reinterpret_cast<T *>(args.kept) + item * args.n * args.n;
  for (int j = 0; j < n; j++) {
    const T *const column = reinterpret_cast<const T *>(a + j * args.a.ld);
    for (int i = first_row<U>(j) + arch::lane(); i < end_row<U>(j, n); i += arch::WARP) {
      kept[j * args.n + i] = column[i];
    }
  }
}

template <class T, Uplo U> __global__ void __launch_bounds__(arch::WARP *WARPS, BLOCKS) jitter_restore(const JitterArgs args) {
  using R = Real<T>;
  const u64 entry = arch::block() * WARPS + arch::warp();
  if (entry >= args.items) {
    return;
  }
  const u64 item = reinterpret_cast<const u64 *>(args.list)[entry];
  const int n = static_cast<int>(args.n), l = arch::lane();
  const u64 a = args.a.item(item, true);
  const T *const kept = reinterpret_cast<const T *>(args.kept) + item * args.n * args.n;
  // A NaN is not the largest of anything.
  R largest = 0;
  for (int i = l; i < n; i += arch::WARP) {
    const R d = real_part(kept[i * args.n + i]);
    const R size = d < 0 ? -d : d;
    largest = size > largest ? size : largest;
  }
#pragma unroll
  for (int bit = 1; bit < arch::WARP; bit *= 2) {
    const R other = arch::shuffle_xor(largest, bit);
    largest = other > largest ? other : largest;
  }
  const R shift = static_cast<R>(arch::mul(args.relative, static_cast<f64>(largest)));
  for (int j = 0; j < n; j++) {
    T *const column = reinterpret_cast<T *>(a + j * args.a.ld);
    for (int i = first_row<U>(j) + l; i < end_row<U>(j, n); i += arch::WARP) {
      const T element = kept[j * args.n + i];
      column[i] = i == j && args.relative != 0 ? from_real<T>(arch::add(real_part(element), shift)) : element;
    }
  }
  if (l == 0) {
    reinterpret_cast<u64 *>(args.table_a)[entry] = a;
    reinterpret_cast<u64 *>(args.table_b)[entry] = args.b.item(item, true);
    reinterpret_cast<f64 *>(args.shifts)[item] = static_cast<f64>(shift);
  }
}

} // namespace batchlas
