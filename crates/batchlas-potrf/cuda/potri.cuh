// potri: the inverse of a batch of Hermitian positive definite matrices from their Cholesky factors, in the triangle that holds the factor.
//
// A block per item keeps the factor L and its inverse X side by side in shared memory: L in the lower triangle of a rectangle of n + 1 columns, the transpose
// of X above it. Column j of X is one thread's forward substitution with column j of the identity; then every thread forms elements of A^-1 = X^H X.
// Upper works on the transpose of the triangle: the conjugate of the same matrix, whose inverse goes back the same way.
//
// Orders that do not fit go another way: potri_open writes the identity, a triangular solve makes it X, a rank-k update makes A^-1 of it, and potri_close
// copies the triangle over the factor.
//
// info[item] = 0, or the 1-based index of the first diagonal element of the factor that is not positive and finite; such an item is left unchanged.
#pragma once
#include <batchlas/factor.cuh>
#include <batchlas/memory.cuh>
#include <batchlas/shared.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

template <class T, Uplo U, Layout L, int Threads> __global__ void __launch_bounds__(Threads) potri(const FactorArgs args) {
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

/// The operands of the kernels round the seams. `factor.info` is where the statuses pass from one to the other.
struct PotriArgs {
  FactorArgs factor;
  /// Address of the caller's statuses, or 0.
  u64 info;
  /// A strided batch of matrices.
  u64 scratch, scratch_ld_bytes, scratch_item_bytes;
};

/// Writes the identity to the scratch matrix of a block's item, and the item's status.
template <class T, Uplo U, Layout L, int Threads> __global__ void __launch_bounds__(Threads) potri_open(const PotriArgs args) {
  const FactorArgs &factor = args.factor;
  const int n = static_cast<int>(factor.n);
  const u64 matrix = arch::block(), to = args.scratch + matrix * args.scratch_item_bytes;
  for (int j = arch::warp(); j < n; j += Threads / arch::WARP) {
    for (int i = arch::lane(); i < n; i += arch::WARP) {
      store(true, to + i * sizeof(T) + j * args.scratch_ld_bytes, from_real<T>(i == j ? 1 : 0));
    }
  }
  if (arch::warp() == 0) {
    const u64 item = item_address<L>(factor.a, factor.item_bytes, matrix, true);
    // The first bad element among this lane's; all of them are below 2^53.
    f64 first = n;
    for (int i = arch::lane(); i < n; i += arch::WARP) {
      const T d = load(true, item + i * (factor.ld_bytes + sizeof(T)), from_real<T>(0));
      first = positive_and_finite(real_part(d)) || first < i ? first : i;
    }
    for (int mask = arch::WARP / 2; mask > 0; mask /= 2) {
      const f64 other = arch::shuffle_xor(first, mask);
      first = other < first ? other : first;
    }
    const i32 info = first < n ? static_cast<i32>(first) + 1 : 0;
    arch::store(arch::lane() == 0, factor.info + matrix * sizeof(i32), info);
    arch::store(arch::lane() == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
  }
}

/// Copies the triangle of the scratch matrix over the factor of an item whose status is 0.
template <class T, Uplo U, Layout L, int Threads> __global__ void __launch_bounds__(Threads) potri_close(const PotriArgs args) {
  const FactorArgs &factor = args.factor;
  const int n = static_cast<int>(factor.n);
  const u64 matrix = arch::block(), from = args.scratch + matrix * args.scratch_item_bytes;
  if (arch::load_i32(factor.info + matrix * sizeof(i32)) != 0) {
    return;
  }
  const u64 item = item_address<L>(factor.a, factor.item_bytes, matrix, true);
  for (int j = arch::warp(); j < n; j += Threads / arch::WARP) {
    const int end = U == Uplo::Lower ? n : j + 1;
    for (int i = (U == Uplo::Lower ? j : 0) + arch::lane(); i < end; i += arch::WARP) {
      store(true, item + i * sizeof(T) + j * factor.ld_bytes, load(true, from + i * sizeof(T) + j * args.scratch_ld_bytes, from_real<T>(0)));
    }
  }
}

} // namespace batchlas
