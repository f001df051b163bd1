// Products of 16 x 8 by 8 x 8 blocks on the tensor cores of a warp, in the full precision of f32 and f64.
//
// f64 products are exact to the rounding of f64 arithmetic. An f32 operand is split into a leading part of 11 bits and the rest, and a product takes three
// products of such parts; what is left out, the product of the rests, is 2^-22 of the whole.
//
// C is held as arch::mma_16x8x8 has it: lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8 of columns 2 t and 2 t + 1. The inner index may run in any
// order if it is the same for both operands. Here it runs so that lane (g, t) has A(g, 2 t), A(g + 8, 2 t), A(g, 2 t + 1), A(g + 8, 2 t + 1) and
// B(2 t, g), B(2 t + 1, g): a result then is a left operand as it stands, without an exchange between lanes.
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

/// `Size` elements of an operand per lane, as the terms that the tensor cores multiply.
template <class R, int Size> struct Fragment;

template <int Size> struct Fragment<f64, Size> {
  f64 all[Size];

  BATCHLAS_DEVICE void set(int i, f64 x) { all[i] = x; }
};

template <int Size> struct Fragment<f32, Size> {
  f32 lead[Size], rest[Size];

  BATCHLAS_DEVICE void set(int i, f32 x) {
    lead[i] = arch::round_tf32(x);
    rest[i] = x - lead[i];
  }
};

/// C += A B.
BATCHLAS_DEVICE void multiply(f64 (&c)[4], const Fragment<f64, 4> &a, const Fragment<f64, 2> &b) { arch::mma_16x8x8(c, a.all, b.all); }
BATCHLAS_DEVICE void multiply(f32 (&c)[4], const Fragment<f32, 4> &a, const Fragment<f32, 2> &b) {
  arch::mma_16x8x8(c, a.rest, b.lead);
  arch::mma_16x8x8(c, a.lead, b.rest);
  arch::mma_16x8x8(c, a.lead, b.lead);
}

} // namespace batchlas
