// Where the items of a batch lie, and masked accesses to their elements.
//
// Item offsets are 64-bit. Inside an item a kernel walks a running 64-bit column address, so that any leading dimension is served and the accesses of a
// column differ only in their immediate offsets.
#pragma once
#include <batchlas/scalar.cuh>

namespace batchlas {

/// How a batch is laid out: items a constant stride apart, or a table of device addresses.
enum class Layout { Strided, Pointers };

/// The address of item `item`: `item_bytes` from the item before it, or from the address in the table, which is read only if `live`.
template <Layout L> BATCHLAS_DEVICE u64 item_address(u64 base, u64 item_bytes, u64 item, bool live) {
  if constexpr (L == Layout::Strided) {
    return base + item * item_bytes;
  } else {
    return arch::load_u64(live, base + item * sizeof(u64), 0) + item_bytes;
  }
}

/// `if (active)` the element at `address`; `otherwise` if not.
BATCHLAS_DEVICE f32 load(bool active, u64 address, f32 otherwise) {
  arch::load(active, address, otherwise);
  return otherwise;
}
BATCHLAS_DEVICE f64 load(bool active, u64 address, f64 otherwise) {
  arch::load(active, address, otherwise);
  return otherwise;
}
template <class R> BATCHLAS_DEVICE Complex<R> load(bool active, u64 address, Complex<R> otherwise) {
  arch::load(active, address, otherwise.re, otherwise.im);
  return otherwise;
}

BATCHLAS_DEVICE void store(bool active, u64 address, f32 a) { arch::store(active, address, a); }
BATCHLAS_DEVICE void store(bool active, u64 address, f64 a) { arch::store(active, address, a); }
template <class R> BATCHLAS_DEVICE void store(bool active, u64 address, Complex<R> a) { arch::store(active, address, a.re, a.im); }

/// The widest access, in elements, that starts a run [k, end) of contiguous elements: a power of two that divides k, at most `widest`.
BATCHLAS_DEVICE constexpr int piece(int k, int end, int widest) {
  int width = 1;
  while (2 * width <= widest && k % (2 * width) == 0 && k + 2 * width <= end) {
    width *= 2;
  }
  return width;
}

/// 2 or 4 contiguous elements by one access. Their addresses are aligned to the access.
BATCHLAS_DEVICE void load2(bool active, u64 address, f32 &a, f32 &b) { arch::load(active, address, a, b); }
BATCHLAS_DEVICE void load2(bool active, u64 address, f64 &a, f64 &b) { arch::load(active, address, a, b); }
BATCHLAS_DEVICE void load2(bool active, u64 address, c32 &a, c32 &b) { arch::load(active, address, a.re, a.im, b.re, b.im); }
BATCHLAS_DEVICE void load4(bool active, u64 address, f32 &a, f32 &b, f32 &c, f32 &d) { arch::load(active, address, a, b, c, d); }
BATCHLAS_DEVICE void store2(bool active, u64 address, f32 a, f32 b) { arch::store(active, address, a, b); }
BATCHLAS_DEVICE void store2(bool active, u64 address, f64 a, f64 b) { arch::store(active, address, a, b); }
BATCHLAS_DEVICE void store2(bool active, u64 address, c32 a, c32 b) { arch::store(active, address, a.re, a.im, b.re, b.im); }
BATCHLAS_DEVICE void store4(bool active, u64 address, f32 a, f32 b, f32 c, f32 d) { arch::store(active, address, a, b, c, d); }

} // namespace batchlas
