// Compile-time loops.
//
// A loop whose index picks registers must be unrolled before the compiler decides what lives in registers. `#pragma unroll` is a request that some
// compiler versions grant too late for the outer loops of a factorisation; here the index is a template parameter, so inner loops have constant bounds
// from the start. Bodies are generic lambdas, which NVRTC takes for device code under `-default-device`.
#pragma once
#include <batchlas/arch.cuh>

namespace batchlas {

/// A constant as a type; converts to its value.
template <int I> struct Index {
  static constexpr int VALUE = I;
  BATCHLAS_DEVICE constexpr operator int() const { return I; }
};

/// body(Index<Begin>()), ..., body(Index<End - 1>()).
template <int Begin, int End, class Body> BATCHLAS_DEVICE void unroll(Body &&body) {
  if constexpr (Begin < End) {
    body(Index<Begin>());
    unroll<Begin + 1, End>(body);
  }
}

} // namespace batchlas
