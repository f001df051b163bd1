// A partition of P lanes of a warp that works on one matrix; a warp holds 32 / P of them.
//
// Its collectives are warp collectives underneath: all lanes of the warp call them together, those of idle partitions too. Complex values travel as
// two reals.
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

template <int P> struct Partition {
  static_assert(P == 1 || P == 2 || P == 4 || P == 8 || P == 16 || P == 32, "a partition is 1, 2, 4, 8, 16 or 32 lanes");
  /// Partitions per warp.
  static constexpr int PER_WARP = arch::WARP / P;

  /// This thread's lane in its partition.
  static BATCHLAS_DEVICE int lane() { return arch::lane() % P; }
  /// This thread's partition in its warp.
  static BATCHLAS_DEVICE int index() { return arch::lane() / P; }

  /// The value held by lane `source` of this partition.
  template <class R> static BATCHLAS_DEVICE R broadcast(R value, int source) {
    if constexpr (P == 1) {
      return value;
    } else {
      return arch::shuffle<P>(value, source);
    }
  }
  template <class R> static BATCHLAS_DEVICE Complex<R> broadcast(Complex<R> value, int source) {
    return {broadcast(value.re, source), broadcast(value.im, source)};
  }

  /// Transposes the P x P block whose row l is lane l's `x`: log2 P rounds of P / 2 exchanges.
  template <class T> static BATCHLAS_DEVICE void transpose(T (&x)[P]) {
#pragma unroll
    for (int bit = 1; bit < P; bit *= 2) {
      const bool upper = (lane() & bit) != 0;
#pragma unroll
      for (int i = 0; i < P; i++) {
        if ((i & bit) == 0) {
          const T received = exchange(select(upper, x[i], x[i | bit]), bit);
          x[i] = select(upper, received, x[i]);
          x[i | bit] = select(upper, x[i | bit], received);
        }
      }
    }
  }

private:
  template <class R> static BATCHLAS_DEVICE R exchange(R value, int mask) { return arch::shuffle_xor(value, mask); }
  template <class R> static BATCHLAS_DEVICE Complex<R> exchange(Complex<R> value, int mask) {
    return {exchange(value.re, mask), exchange(value.im, mask)};
  }
};

} // namespace batchlas
