// potri: the inverse of a batch of Hermitian positive definite matrices from their Cholesky factors, in the triangle that holds the factor.
//
// A block per item keeps the factor L and its inverse X side by side in shared memory: L in the lower triangle of a rectangle of n + 1 columns, the transpose
// of X above it. Column j of X is one thread's forward substitution with column j of the identity; then every thread forms elements of A^-1 = X^H X.
// Upper works on the transpose of the triangle: the conjugate of the same matrix, whose inverse goes back the same way.
//
// info[item] = 0, or the 1-based index of the first diagonal element of the factor that is not positive and finite; such an item is left unchanged.
#pragma once
#include <batchlas/memory.cuh>
#include <batchlas/shared.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

struct PotriArgs {
  /// Layout::Strided: address of item 0. Layout::Pointers: address of the table of item addresses.
  u64 a;
  /// Bytes from a column to the next.
  u64 ld_bytes;
  /// Layout::Strided: bytes from an item to the next. Layout::Pointers: bytes from an address in the table to its item.
  u64 item_bytes;
  /// Number of items; of blocks.
  u64 batch;
  /// Address of `batch` 32-bit integers, or 0 if the caller does not want them.
  u64 info;
  /// Order of the matrices.
  u64 n;
};

template <class T, Uplo U, Layout L, int Threads> __global__ void __launch_bounds__(Threads) potri(const PotriArgs args) {
  using R = Real<T>;
  const int n = static_cast<int>(args.n), pitch = n | 1;
  const int thread = arch::warp() * arch::WARP + arch::lane();
  const u64 matrix = arch::block();
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, true);
  const u64 down = U == Uplo::Lower ? sizeof(T) : args.ld_bytes, across = U == Uplo::Lower ? args.ld_bytes : sizeof(T);
  T *const shared = dynamic_shared<T>();
  const auto factor = [&](int i, int j) -> T & { return shared[j * pitch + i]; };
  const auto inverse = [&](int i, int j) -> T & { return shared[(i + 1) * pitch + j]; };

  for (int at = thread; at < n * n; at += Threads) {
    const int i = U == Uplo::Lower ? at % n : at / n, j = U == Uplo::Lower ? at / n : at % n;
    if (i >= j) {
      factor(i, j) = load(true, item + i * down + j * across, from_real<T>(0));
    }
  }
  arch::sync_block();

  i32 info = 0;
  for (int i = 0; i < n; i++) {
    info = info == 0 && !positive_and_finite(real_part(factor(i, i))) ? i + 1 : info;
  }
  for (int j = thread; j < n; j += Threads) {
    for (int i = j; i < n; i++) {
      T x = from_real<T>(i == j ? 1 : 0);
      for (int k = j; k < i; k++) {
        x = sub_mul_conj(x, factor(i, k), conj(inverse(k, j)));
      }
      inverse(i, j) = scale(x, arch::reciprocal(real_part(factor(i, i))));
    }
  }
  arch::sync_block();

  for (int at = thread; at < n * n; at += Threads) {
    const int i = U == Uplo::Lower ? at % n : at / n, j = U == Uplo::Lower ? at / n : at % n;
    if (i >= j) {
      T minus = from_real<T>(0);
      for (int k = i; k < n; k++) {
        minus = sub_mul_conj(minus, inverse(k, j), inverse(k, i));
      }
      const T element = scale(minus, R(-1));
      store(info == 0, item + i * down + j * across, i == j ? from_real<T>(real_part(element)) : element);
    }
  }
  arch::store(thread == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
}

} // namespace batchlas
