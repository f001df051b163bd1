// Arithmetic of triangular substitution: products without conjugation, and the reciprocal of a diagonal element.
//
// Dividing by the diagonal is multiplying by its reciprocal, one rounding more than a division and one division per element of the diagonal instead of one
// per right-hand side. A zero gives the infinity that division gives, so that 0 / 0 and 0 times it are NaN and x / 0 is infinite, as IEEE division has it.
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

/// 16 bytes of a column: what one access of shared memory moves.
template <class T> struct alignas(16) Quantum {
  T at[PER_16_BYTES<T>];
};

template <class T> BATCHLAS_DEVICE T one() { return from_real<T>(1); }
template <class T> BATCHLAS_DEVICE T zero() { return from_real<T>(0); }

/// a b: two roundings per component when complex.
BATCHLAS_DEVICE f32 mul(f32 a, f32 b) { return arch::mul(a, b); }
BATCHLAS_DEVICE f64 mul(f64 a, f64 b) { return arch::mul(a, b); }
template <class R> BATCHLAS_DEVICE Complex<R> mul(Complex<R> a, Complex<R> b) {
  return {arch::fma(-a.im, b.im, arch::mul(a.re, b.re)), arch::fma(a.re, b.im, arch::mul(a.im, b.re))};
}

/// c - a b: two roundings per component when complex.
BATCHLAS_DEVICE f32 sub_mul(f32 c, f32 a, f32 b) { return arch::fma(-a, b, c); }
BATCHLAS_DEVICE f64 sub_mul(f64 c, f64 a, f64 b) { return arch::fma(-a, b, c); }
template <class R> BATCHLAS_DEVICE Complex<R> sub_mul(Complex<R> c, Complex<R> a, Complex<R> b) {
  return {arch::fma(a.im, b.im, arch::fma(-a.re, b.re, c.re)), arch::fma(-a.im, b.re, arch::fma(-a.re, b.im, c.im))};
}

/// 1 / a. A complex one is scaled by its larger component first, so that no square of a component overflows or vanishes.
BATCHLAS_DEVICE f32 reciprocal(f32 a) { return 1.0f / a; }
BATCHLAS_DEVICE f64 reciprocal(f64 a) { return 1.0 / a; }
template <class R> BATCHLAS_DEVICE Complex<R> reciprocal(Complex<R> a) {
  const R re = a.re < 0 ? -a.re : a.re;
  const R im = a.im < 0 ? -a.im : a.im;
  const bool tall = re < im;
  // With the components by size: 1 / a = (big - i small) / (big^2 + small^2) = (1 - i ratio) / (big (1 + ratio^2)), or with the parts exchanged.
  const R big = tall ? a.im : a.re;
  const R ratio = (tall ? a.re : a.im) / big;
  const R inverse = 1 / arch::fma(arch::mul(big, ratio), ratio, big);
  const R other = arch::mul(ratio, inverse);
  return {tall ? other : inverse, tall ? -inverse : -other};
}

/// conj(a) if `condition`.
BATCHLAS_DEVICE f32 conj_if(bool, f32 a) { return a; }
BATCHLAS_DEVICE f64 conj_if(bool, f64 a) { return a; }
template <class R> BATCHLAS_DEVICE Complex<R> conj_if(bool condition, Complex<R> a) { return {a.re, condition ? -a.im : a.im}; }

} // namespace batchlas
