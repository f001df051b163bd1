// Mixed precision: what surrounds a factorisation and solves of half the precision so that their solution becomes that of full precision.
//
// `mixed_demote` copies A and B to half precision. After each solve with them, `mixed_refine` adds the correction to X, forms the residual B - A X in
// full precision, and either declares the item solved or hands the residual on as the next right-hand side. At the end `mixed_finish` moves X to B, or,
// where an item was not solved, factors and solves it in full precision. Which items take part is decided on the device, by `state`.
//
// An item is solved when every right-hand side has ||b - A x|| <= ||A|| ||x|| eps sqrt(n), largest components for vectors and the Frobenius norm for A. A NaN
// never is. The residual is formed by a warp per item: lanes hold rows; column j of the stored triangle serves A(:, j) x_j, and, conjugated and summed
// over the lanes, A(j, :) x.
#pragma once
#include <batchlas/operand.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

/// The scalar of half the precision.
template <class T> struct LowerOf;
template <> struct LowerOf<f64> {
  using Scalar = f32;
};
template <> struct LowerOf<c64> {
  using Scalar = c32;
};
template <class T> using Low = typename LowerOf<T>::Scalar;

BATCHLAS_DEVICE f32 demoted(f64 a) { return static_cast<f32>(a); }
BATCHLAS_DEVICE c32 demoted(c64 a) { return {static_cast<f32>(a.re), static_cast<f32>(a.im)}; }
BATCHLAS_DEVICE f64 promoted(f32 a) { return a; }
BATCHLAS_DEVICE c64 promoted(c32 a) { return {a.re, a.im}; }

BATCHLAS_DEVICE f64 absolute(f64 a) { return a < 0 ? -a : a; }
/// |re| + |im|, as LAPACK measures complex components.
BATCHLAS_DEVICE f64 size(f64 a) { return absolute(a); }
BATCHLAS_DEVICE f64 size(c64 a) { return absolute(a.re) + absolute(a.im); }
BATCHLAS_DEVICE f64 squared(f64 a) { return arch::mul(a, a); }
BATCHLAS_DEVICE f64 squared(c64 a) { return arch::fma(a.re, a.re, arch::mul(a.im, a.im)); }

struct MixedArgs {
  Operand a, b;
  u64 n, nrhs, batch;
  /// Packed copies in half precision: A, and right-hand sides that solves overwrite.
  u64 low_a, low_b;
  /// X, packed.
  u64 x;
  /// Per item: `info` of the factorisation in half precision; 0 while refining, the number of refinements once solved, -1 if it never will be.
  u64 factored, state;
  /// The caller's, or 0.
  u64 info, iterations;
  /// This refinement, from 1, and their largest number.
  u64 step, steps;
};

/// Warps of a block, each with an item.
constexpr int WARPS = 4;
/// Threads that a full factorisation has.
constexpr int THREADS = 256;

template <Uplo U> BATCHLAS_DEVICE int first_row(int j) { return U == Uplo::Lower ? j : 0; }
template <Uplo U> BATCHLAS_DEVICE int end_row(int j, int n) { return U == Uplo::Lower ? n : j + 1; }

template <class T, Uplo U> __global__ void __launch_bounds__(arch::WARP *WARPS) mixed_demote(const MixedArgs args) {
  const u64 item = arch::block() * WARPS + arch::warp();
  if (item >= args.batch) {
    return;
  }
  const int n = static_cast<int>(args.n);
  const u64 a = args.a.item(item, true), b = args.b.item(item, true);
  Low<T> *const low_a = reinterpret_cast<Low<T> *>(args.low_a) + item * args.n * args.n;
  Low<T> *const low_b = reinterpret_cast<Low<T> *>(args.low_b) + item * args.n * args.nrhs;
  for (int j = 0; j < n; j++) {
    const T *const column = reinterpret_cast<const T *>(a + j * args.a.ld);
    for (int i = first_row<U>(j) + arch::lane(); i < end_row<U>(j, n); i += arch::WARP) {
      low_a[j * args.n + i] = demoted(column[i]);
    }
  }
  for (u64 s = 0; s < args.nrhs; s++) {
    const T *const column = reinterpret_cast<const T *>(b + s * args.b.ld);
    for (int i = arch::lane(); i < n; i += arch::WARP) {
      low_b[s * args.n + i] = demoted(column[i]);
    }
  }
}

BATCHLAS_DEVICE f64 sum_of_warp(f64 a) {
#pragma unroll
  for (int bit = 1; bit < arch::WARP; bit *= 2) {
    a += arch::shuffle_xor(a, bit);
  }
  return a;
}
BATCHLAS_DEVICE c64 sum_of_warp(c64 a) { return {sum_of_warp(a.re), sum_of_warp(a.im)}; }
/// NaN if any is.
BATCHLAS_DEVICE f64 largest_of_warp(f64 a) {
#pragma unroll
  for (int bit = 1; bit < arch::WARP; bit *= 2) {
    const f64 other = arch::shuffle_xor(a, bit);
    a = other > a || other != other ? other : a;
  }
  return a;
}

template <class T, Uplo U> __global__ void __launch_bounds__(arch::WARP *WARPS) mixed_refine(const MixedArgs args) {
  extern __shared__ __align__(16) unsigned char mixed_shared[];
  const u64 item = arch::block() * WARPS + arch::warp();
  if (item >= args.batch) {
    return;
  }
  i32 *const state = reinterpret_cast<i32 *>(args.state) + item;
  const bool first = args.step == 1;
  const int l = arch::lane();
  const i32 before = first ? (reinterpret_cast<const i32 *>(args.factored)[item] == 0 ? 0 : -1) : *state;
  if (before != 0) {
    if (first && l == 0) {
      *state = before;
    }
    return;
  }
  const int n = static_cast<int>(args.n);
  T *const x = reinterpret_cast<T *>(mixed_shared) + arch::warp() * 2 * n;
  T *const r = x + n;
  const u64 a = args.a.item(item, true), b = args.b.item(item, true);
  bool solved = true;
  f64 norm = 0;
  for (u64 s = 0; s < args.nrhs; s++) {
    const u64 at = (item * args.nrhs + s) * args.n;
    T *const kept = reinterpret_cast<T *>(args.x) + at;
    Low<T> *const low = reinterpret_cast<Low<T> *>(args.low_b) + at;
    const T *const rhs = reinterpret_cast<const T *>(b + s * args.b.ld);
    for (int i = l; i < n; i += arch::WARP) {
      const T correction = promoted(low[i]);
      const T value = first ? correction : sub_mul_conj(kept[i], correction, from_real<T>(-1));
      kept[i] = value;
      x[i] = value;
      r[i] = rhs[i];
    }
    arch::sync_warp();
    for (int j = 0; j < n; j++) {
      const T *const column = reinterpret_cast<const T *>(a + j * args.a.ld);
      const T x_j = conj(x[j]);
      T across = from_real<T>(0);
      for (int i = first_row<U>(j) + l; i < end_row<U>(j, n); i += arch::WARP) {
        const T element = i == j ? from_real<T>(real_part(column[i])) : column[i];
        r[i] = sub_mul_conj(r[i], element, x_j);
        if (i != j) {
          across = sub_mul_conj(across, x[i], element);
        }
        if (s == 0) {
          norm += (i == j ? 1 : 2) * squared(element);
        }
      }
      across = sum_of_warp(across);
      // By the lane that updated it above.
      if (l == (j - first_row<U>(j)) % arch::WARP) {
        r[j] = sub_mul_conj(r[j], across, from_real<T>(-1));
      }
      arch::sync_warp();
    }
    if (s == 0) {
      norm = pivot(sum_of_warp(norm) * n, true).root;
    }
    f64 largest_r = 0, largest_x = 0;
    for (int i = l; i < n; i += arch::WARP) {
      const f64 of_r = size(r[i]), of_x = size(x[i]);
      largest_r = of_r > largest_r || of_r != of_r ? of_r : largest_r;
      largest_x = of_x > largest_x ? of_x : largest_x;
      low[i] = demoted(r[i]);
    }
    solved = solved && largest_of_warp(largest_r) <= norm * largest_of_warp(largest_x) * 2.220446049250313e-16;
  }
  if (l == 0) {
    *state = solved ? static_cast<i32>(args.step) : args.step == args.steps ? -1 : 0;
  }
}

/// Element (i, j) of the lower triangle S, in place in either triangle of A.
template <class T, Uplo U> struct Stored {
  u64 a, ld;
  BATCHLAS_DEVICE T &at(int i, int j) const {
    return U == Uplo::Lower ? reinterpret_cast<T *>(a + j * ld)[i] : reinterpret_cast<T *>(a + i * ld)[j];
  }
  BATCHLAS_DEVICE T get(int i, int j) const { return U == Uplo::Lower ? at(i, j) : conj(at(i, j)); }
  BATCHLAS_DEVICE void set(int i, int j, T value) const { at(i, j) = U == Uplo::Lower ? value : conj(value); }
};

template <class T, Uplo U> __global__ void __launch_bounds__(THREADS, 1) mixed_finish(const MixedArgs args) {
  const u64 item = arch::block();
  const int n = static_cast<int>(args.n), t = static_cast<int>(threadIdx.x);
  const i32 state = reinterpret_cast<const i32 *>(args.state)[item];
  const u64 b = args.b.item(item, true);
  i32 info = 0;
  if (state > 0) {
    const T *const x = reinterpret_cast<const T *>(args.x) + item * args.nrhs * args.n;
    for (u64 s = 0; s < args.nrhs; s++) {
      for (int i = t; i < n; i += THREADS) {
        reinterpret_cast<T *>(b + s * args.b.ld)[i] = x[s * args.n + i];
      }
    }
  } else {
    const Stored<T, U> S = {args.a.item(item, true), args.a.ld};
    for (int j = 0; j < n && info == 0; j++) {
      const Real<T> d = real_part(S.get(j, j));
      const Pivot<Real<T>> p = pivot(d, positive_and_finite(d));
      info = positive_and_finite(d) ? 0 : j + 1;
      arch::sync_block();
      for (int i = j + t; i < n; i += THREADS) {
        S.set(i, j, i == j ? from_real<T>(p.root) : scale(S.get(i, j), p.inverse));
      }
      arch::sync_block();
      for (int k = j + 1 + arch::warp(); k < n; k += THREADS / arch::WARP) {
        for (int i = k + arch::lane(); i < n; i += arch::WARP) {
          S.set(i, k, sub_mul_conj(S.get(i, k), S.get(i, j), S.get(k, j)));
        }
      }
      arch::sync_block();
    }
    for (u64 s = 0; s < args.nrhs && info == 0; s++) {
      T *const y = reinterpret_cast<T *>(b + s * args.b.ld);
      for (int step = 0; step < 2 * n; step++) {
        const bool forward = step < n;
        const int j = forward ? step : 2 * n - 1 - step;
        const T value = scale(y[j], 1 / real_part(S.get(j, j)));
        arch::sync_block();
        for (int i = (forward ? j + 1 : 0) + t; i < (forward ? n : j); i += THREADS) {
          y[i] = forward ? sub_mul_conj(y[i], S.get(i, j), conj(value)) : sub_mul_conj(y[i], value, S.get(j, i));
        }
        if (t == 0) {
          y[j] = value;
        }
        arch::sync_block();
      }
    }
  }
  if (t == 0 && args.info != 0) {
    reinterpret_cast<i32 *>(args.info)[item] = info;
  }
  if (t == 0 && args.iterations != 0) {
    reinterpret_cast<i32 *>(args.iterations)[item] = state;
  }
}

} // namespace batchlas
