// Quench: between factorisation and solve, the triangle of every failed item becomes the identity.
//
// A warp per item reads its status. Where that is 0, the common case, nothing else is read or written: 4 bytes per item.
// Any batch: the grid is bounded and warps stride over it.
#pragma once

namespace batchlas::posv {

using u32 = unsigned int;
using u64 = unsigned long long;

/// Threads of a block.
constexpr u32 THREADS = 256;
/// Threads of a warp.
constexpr u32 WARP = 32;
/// Value of `stride` that says that `address` is a table of pointers.
constexpr u64 TABLE = ~0ull;

/// Distances in elements.
struct QuenchArgs {
  /// Address of item 0, or of a table of items.
  u64 address;
  /// From one item to the next, or TABLE.
  u64 stride;
  /// Added to each pointer of a table.
  u64 offset;
  /// From one column to the next.
  u64 ld;
  /// Address of one 32-bit status per item.
  u64 info;
  u64 n;
  u64 batch;
  /// 0 for the lower triangle.
  u64 upper;
};
static_assert(sizeof(QuenchArgs) == 64, "as in quench.rs");

template <class R> struct alignas(2 * sizeof(R)) Complex {
  R re, im;
};

template <class T> struct One {
  static T value() { return T(1); }
};
template <class R> struct One<Complex<R>> {
  static Complex<R> value() { return {R(1), R(0)}; }
};

template <class T> __global__ void __launch_bounds__(THREADS) quench(const QuenchArgs args) {
  const u32 lane = threadIdx.x % WARP;
  const u64 step = u64(gridDim.x) * (THREADS / WARP);
  for (u64 item = u64(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP; item < args.batch; item += step) {
    if (reinterpret_cast<const int *>(args.info)[item] == 0) continue;
    T *const a = args.stride == TABLE ? reinterpret_cast<T *const *>(args.address)[item] + args.offset
                                      : reinterpret_cast<T *>(args.address) + item * args.stride;
    for (u64 j = 0; j < args.n; ++j) {
      const u64 first = args.upper ? 0 : j, end = args.upper ? j + 1 : args.n;
      for (u64 i = first + lane; i < end; i += WARP) a[j * args.ld + i] = i == j ? One<T>::value() : T{};
    }
  }
}

}  // namespace batchlas::posv
