// logdet: logarithm of the determinant of a batch of matrices from their Cholesky factors, 2 sum log d_i over the diagonal of the factor.
//
// A warp per item reads the diagonal and nothing else. Logarithms and their sum are formed in f64 whatever the type, in an order that does not depend on
// the batch. info[item] = 0, or the 1-based index of the first diagonal element that is not positive and finite; the result is then NaN.
#pragma once
#include <batchlas/memory.cuh>

namespace batchlas {

struct LogdetArgs {
  /// Layout::Strided: address of item 0. Layout::Pointers: address of the table of item addresses.
  u64 a;
  /// Bytes from a diagonal element to the next.
  u64 step_bytes;
  /// Layout::Strided: bytes from an item to the next. Layout::Pointers: bytes from an address in the table to its item.
  u64 item_bytes;
  /// Number of items.
  u64 batch;
  /// Address of `batch` 32-bit integers, or 0 if the caller does not want them.
  u64 info;
  /// Order of the factors.
  u64 n;
  /// As `a` and `item_bytes`, of the results: one real number per item.
  u64 out;
  u64 out_bytes;
};

template <class T, Layout L, Layout Out, int Warps> __global__ void __launch_bounds__(arch::WARP *Warps) logdet(const LogdetArgs args) {
  using R = Real<T>;
  const u64 matrix = arch::block() * Warps + arch::warp();
  const bool live = matrix < args.batch;
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, live);
  const u64 out = item_address<Out>(args.out, args.out_bytes, matrix, live);
  const int n = static_cast<int>(args.n);
  f64 sum = 0, first = n + 1;
  for (int i0 = 0; i0 < n; i0 += arch::WARP) {
    const int i = i0 + arch::lane();
    const R d = real_part(load(live && i < n, item + i * args.step_bytes, from_real<T>(1)));
    const bool good = positive_and_finite(d);
    first = good || first <= n ? first : i + 1;
    sum += arch::log(good ? static_cast<f64>(d) : 1.0);
  }
#pragma unroll
  for (int mask = 1; mask < arch::WARP; mask *= 2) {
    sum += arch::shuffle_xor(sum, mask);
    const f64 other = arch::shuffle_xor(first, mask);
    first = other < first ? other : first;
  }
  const bool writes = live && arch::lane() == 0;
  store(writes, out, static_cast<R>(first <= n ? arch::nan() : 2 * sum));
  arch::store(writes && args.info != 0, args.info + matrix * sizeof(i32), first <= n ? static_cast<i32>(first) : 0);
}

} // namespace batchlas
