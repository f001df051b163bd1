// What the kernels of a triangular solve are told: operands, alpha, and the facts of a case that no kernel is compiled for.
#pragma once
#include <batchlas/memory.cuh>
#include <batchlas/substitution.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

enum class Side { Left, Right };

/// Where the items of an operand lie: `address + item * item_bytes`, plus entry `item` of the table if there is one.
struct Items {
  u64 address, item_bytes, table;
  u64 ld_bytes;
};

/// The operands of a launch.
struct TrsmArgs {
  Items a, b;
  /// Items, and right-hand sides of each.
  u64 batch;
  u32 q;
  /// Work-groups that the right-hand sides of one item take.
  u32 slices;
  /// alpha; a real type uses the first.
  f64 alpha_re, alpha_im;
  /// Bits of `Flag`.
  u32 flags;
  u32 unused;
};

/// Facts that change loads and stores but not the elimination.
enum Flag : u32 {
  UNIT = 1,
  CONJUGATE = 2,
  /// All columns of all items start on 16 bytes.
  ALIGNED_A = 4,
  ALIGNED_B = 8,
  ALPHA_ZERO = 16,
  ALPHA_ONE = 32,
};

BATCHLAS_DEVICE u64 item_address(const Items &operand, u64 item) {
  return operand.address + item * operand.item_bytes + arch::load_u64(operand.table != 0, operand.table + item * sizeof(u64), 0);
}

/// re + i im; a real type drops `im`.
template <class T> BATCHLAS_DEVICE T from_parts(f64 re, f64 im) {
  if constexpr (ScalarTraits<T>::COMPLEX) {
    return {static_cast<Real<T>>(re), static_cast<Real<T>>(im)};
  } else {
    return static_cast<T>(re);
  }
}

/// alpha b, conjugated if the system is.
template <class T> BATCHLAS_DEVICE T prepared(const TrsmArgs &args, T b) {
  const T scaled = mul(from_parts<T>(args.alpha_re, args.alpha_im), b);
  return conj_if(args.flags & CONJUGATE, select(args.flags & ALPHA_ONE, b, scaled));
}

} // namespace batchlas
