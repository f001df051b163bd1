// Scalars: f32, f64 and their complex numbers c32, c64, under one set of names.
//
// Kernels are written once over a scalar type T whose real type is Real<T>. Every product is an explicit fused multiply-add or a rounded product, so
// that results do not depend on contraction. A select works on the real components: choosing between whole 16-byte structs would send a register
// array to local memory.
#pragma once
#include <batchlas/arch.cuh>

namespace batchlas {

/// re + i im, laid out as BLAS lays it out.
template <class R> struct alignas(2 * sizeof(R)) Complex {
  R re, im;
};
using f32 = float;
using f64 = double;
using c32 = Complex<float>;
using c64 = Complex<double>;

template <class T> struct ScalarTraits {
  using Real = T;
  static constexpr bool COMPLEX = false;
};
template <class R> struct ScalarTraits<Complex<R>> {
  using Real = R;
  static constexpr bool COMPLEX = true;
};
template <class T> using Real = typename ScalarTraits<T>::Real;

/// Scalars of type T in 16 bytes.
template <class T> constexpr int PER_16_BYTES = 16 / sizeof(T);

BATCHLAS_DEVICE f32 real_part(f32 a) { return a; }
BATCHLAS_DEVICE f64 real_part(f64 a) { return a; }
template <class R> BATCHLAS_DEVICE R real_part(Complex<R> a) { return a.re; }

BATCHLAS_DEVICE f32 conj(f32 a) { return a; }
BATCHLAS_DEVICE f64 conj(f64 a) { return a; }
template <class R> BATCHLAS_DEVICE Complex<R> conj(Complex<R> a) { return {a.re, -a.im}; }

/// The real number `a` as a T.
template <class T> BATCHLAS_DEVICE T from_real(Real<T> a) {
  if constexpr (ScalarTraits<T>::COMPLEX) {
    return {a, 0};
  } else {
    return a;
  }
}

/// `condition ? a : b`, component by component.
BATCHLAS_DEVICE f32 select(bool condition, f32 a, f32 b) { return condition ? a : b; }
BATCHLAS_DEVICE f64 select(bool condition, f64 a, f64 b) { return condition ? a : b; }
template <class R> BATCHLAS_DEVICE Complex<R> select(bool condition, Complex<R> a, Complex<R> b) {
  return {condition ? a.re : b.re, condition ? a.im : b.im};
}

BATCHLAS_DEVICE f32 add(f32 a, f32 b) { return arch::add(a, b); }
BATCHLAS_DEVICE f64 add(f64 a, f64 b) { return arch::add(a, b); }
template <class R> BATCHLAS_DEVICE Complex<R> add(Complex<R> a, Complex<R> b) { return {arch::add(a.re, b.re), arch::add(a.im, b.im)}; }
/// a - b.
BATCHLAS_DEVICE f32 sub(f32 a, f32 b) { return arch::add(a, -b); }
BATCHLAS_DEVICE f64 sub(f64 a, f64 b) { return arch::add(a, -b); }
template <class R> BATCHLAS_DEVICE Complex<R> sub(Complex<R> a, Complex<R> b) { return {arch::add(a.re, -b.re), arch::add(a.im, -b.im)}; }

/// a s, with s real.
BATCHLAS_DEVICE f32 scale(f32 a, f32 s) { return arch::mul(a, s); }
BATCHLAS_DEVICE f64 scale(f64 a, f64 s) { return arch::mul(a, s); }
template <class R> BATCHLAS_DEVICE Complex<R> scale(Complex<R> a, R s) { return {arch::mul(a.re, s), arch::mul(a.im, s)}; }

/// c - a conj(b): two roundings per component when complex.
BATCHLAS_DEVICE f32 sub_mul_conj(f32 c, f32 a, f32 b) { return arch::fma(-a, b, c); }
BATCHLAS_DEVICE f64 sub_mul_conj(f64 c, f64 a, f64 b) { return arch::fma(-a, b, c); }
template <class R> BATCHLAS_DEVICE Complex<R> sub_mul_conj(Complex<R> c, Complex<R> a, Complex<R> b) {
  return {arch::fma(-a.im, b.im, arch::fma(-a.re, b.re, c.re)), arch::fma(a.re, b.im, arch::fma(-a.im, b.re, c.im))};
}

/// c + a b, and c + a conj(b): two roundings per component when complex.
BATCHLAS_DEVICE f32 add_mul(f32 c, f32 a, f32 b) { return arch::fma(a, b, c); }
BATCHLAS_DEVICE f64 add_mul(f64 c, f64 a, f64 b) { return arch::fma(a, b, c); }
template <class R> BATCHLAS_DEVICE Complex<R> add_mul(Complex<R> c, Complex<R> a, Complex<R> b) {
  return {arch::fma(-a.im, b.im, arch::fma(a.re, b.re, c.re)), arch::fma(a.re, b.im, arch::fma(a.im, b.re, c.im))};
}
BATCHLAS_DEVICE f32 add_mul_conj(f32 c, f32 a, f32 b) { return arch::fma(a, b, c); }
BATCHLAS_DEVICE f64 add_mul_conj(f64 c, f64 a, f64 b) { return arch::fma(a, b, c); }
template <class R> BATCHLAS_DEVICE Complex<R> add_mul_conj(Complex<R> c, Complex<R> a, Complex<R> b) {
  return {arch::fma(a.im, b.im, arch::fma(a.re, b.re, c.re)), arch::fma(-a.re, b.im, arch::fma(a.im, b.re, c.im))};
}

/// Whether a pivot can be factored by; false for NaN.
BATCHLAS_DEVICE bool positive_and_finite(f32 d) { return d > 0 && d <= 3.40282347e+38f; }
BATCHLAS_DEVICE bool positive_and_finite(f64 d) { return d > 0 && d <= 1.7976931348623157e+308; }

/// The square root of a pivot, and the reciprocal that scales the column below it.
template <class R> struct Pivot {
  R root, inverse;
};

// Both come from the hardware's reciprocal square root y0 = (1 + e) / sqrt(d) and a correction in fused arithmetic, with no branch, so that the code
// between two columns stays straight-line.
// f32: |e| <= 2^-22, one Newton step, whose own error (3/2) e^2 is below 2^-43. f64: |e| <= 2^-19, one step of third order, error (5/2) e^3 below
// 2^-55. In both the reciprocal is left with the rounding of its last operation, under 1 ulp; the root is then corrected by half its own residual
// over itself, which leaves the last rounding: exact for perfect squares.
// A pivot below the smallest normal number is taken as that number for the reciprocal (a change of at most 2^-126, or 2^-1022, in the diagonal). A pivot
// that is not `positive` has reciprocal and root zero (NaN root if the pivot is not finite).
BATCHLAS_DEVICE f32 normal_inverse_root(f32 x) {
  const f32 y = arch::rsqrt_approx(x);
  return arch::fma(y, arch::fma(-arch::mul(x, y), arch::mul(0.5f, y), 0.5f), y);
}
BATCHLAS_DEVICE f64 normal_inverse_root(f64 x) {
  const f64 y = arch::rsqrt_approx(x);
  const f64 e = arch::fma(-arch::mul(x, y), y, 1.0);
  return arch::fma(arch::mul(y, e), arch::fma(e, 0.375, 0.5), y);
}
BATCHLAS_DEVICE Pivot<f32> pivot(f32 d, bool positive) {
  const f32 x = arch::clamp_normal(d);
  const f32 inverse = select(positive, normal_inverse_root(x), 0.0f);
  const f32 root = arch::mul(x, inverse);
  return {arch::fma(arch::fma(-root, root, x), arch::mul(0.5f, inverse), arch::mul(d, inverse)), inverse};
}
BATCHLAS_DEVICE Pivot<f64> pivot(f64 d, bool positive) {
  const f64 x = arch::clamp_normal(d);
  const f64 inverse = select(positive, normal_inverse_root(x), 0.0);
  const f64 root = arch::mul(x, inverse);
  return {arch::fma(arch::fma(-root, root, x), arch::mul(0.5, inverse), arch::mul(d, inverse)), inverse};
}
/// The reciprocal of `pivot` alone, for a chain of pivots: the same where `d` is positive and finite, and anything, without a branch, where it is not.
template <class R> BATCHLAS_DEVICE R inverse_root(R d) { return normal_inverse_root(arch::at_least_normal(d)); }

} // namespace batchlas
