// Staging: what stands between a batch as the caller laid it out and a vendor library.
//
// cuBLAS and cuSOLVER take arrays of pointers, a single leading dimension, and the liberty to write into the triangle
// that they were told to leave alone. These kernels build the arrays on the device, copy the referenced triangle into a
// packed square and back, fold a full product into one triangle, and turn the vendor's status into ours.
//
// All are limited by memory. Work is dealt out by columns: a power of two of neighbouring threads shares one, so that
// one 64-bit division serves a whole column and neighbouring threads touch neighbouring rows. Any batch: the grid is
// bounded and every thread strides over it.
#pragma once

namespace batchlas::staging {

using u32 = unsigned int;
using u64 = unsigned long long;

/// Threads of a block.
constexpr u32 THREADS = 256;
/// Threads of a warp.
constexpr u32 WARP = 32;
/// Value of `Items::stride` that says that `address` is a table of pointers.
constexpr u64 TABLE = ~0ull;

/// A batch of column-major matrices. All distances are in elements.
struct Items {
  /// Address of item 0, or of the table.
  u64 address;
  /// From one item to the next, or TABLE.
  u64 stride;
  /// Added to each pointer of a table.
  u64 offset;
  /// From one column to the next.
  u64 ld;
};

struct AddressesArgs {
  Items items;
  /// Receives `batch` addresses.
  u64 table;
  u64 batch;
};

/// The caller's matrices of order n and packed squares of the same order, one triangle of which is copied.
struct TriangleArgs {
  Items items;
  /// Address of square 0. `fold` takes 0 for squares of zeros.
  u64 square;
  /// `pack`: receives the addresses of the squares.
  u64 table;
  /// `pack`: receives a zero per item.
  u64 reported;
  u64 n;
  u64 batch;
  /// `fold`: factor of the old triangle, which is not read where it is zero.
  double beta;
  /// 0 for the lower triangle.
  u32 upper;
  /// Threads per column, as a power of two.
  u32 log2_lanes;
};

struct StatusArgs {
  /// Address of the factored square of item 0.
  u64 square;
  /// The vendor's status of each item.
  u64 reported;
  /// Receives ours.
  u64 info;
  u64 n;
  u64 batch;
};

struct ScaleArgs {
  Items items;
  u64 rows;
  u64 cols;
  u64 batch;
  double beta_re;
  double beta_im;
  /// Threads per column, as a power of two.
  u64 log2_lanes;
};

static_assert(sizeof(Items) == 32, "as in staging.rs");
static_assert(sizeof(AddressesArgs) == 48, "as in staging.rs");
static_assert(sizeof(TriangleArgs) == 88, "as in staging.rs");
static_assert(sizeof(StatusArgs) == 40, "as in staging.rs");
static_assert(sizeof(ScaleArgs) == 80, "as in staging.rs");

template <class R> struct alignas(2 * sizeof(R)) Complex {
  R re, im;
};

template <class R> R real_part(R x) { return x; }
template <class R> R real_part(Complex<R> x) { return x.re; }

/// A Hermitian diagonal is real, whatever is stored.
template <class R> R diagonal(R x) { return x; }
template <class R> Complex<R> diagonal(Complex<R> x) { return {x.re, R(0)}; }

template <class R> R add(R x, R y) { return x + y; }
template <class R> Complex<R> add(Complex<R> x, Complex<R> y) { return {x.re + y.re, x.im + y.im}; }

template <class R> R times(R x, double re, double) { return x * R(re); }
template <class R> Complex<R> times(Complex<R> x, double re, double im) {
  return {fma(-x.im, R(im), x.re * R(re)), fma(x.im, R(re), x.re * R(im))};
}

/// By a real factor: an infinite part does not turn the other into NaN.
template <class R> R times(R x, double by) { return x * R(by); }
template <class R> Complex<R> times(Complex<R> x, double by) { return {x.re * R(by), x.im * R(by)}; }

template <class T> T *matrix(const Items &items, u64 item) {
  if (items.stride == TABLE) return reinterpret_cast<T *const *>(items.address)[item] + items.offset;
  return reinterpret_cast<T *>(items.address) + item * items.stride;
}

template <class T> T *square_of(u64 square, u64 n, u64 item) { return reinterpret_cast<T *>(square) + item * n * n; }

/// Calls body(item, column, lane, lanes) for each column of each item, by each of the threads that share it.
template <class Body> void for_columns(u64 cols, u64 batch, u32 log2_lanes, Body body) {
  const u32 lanes = 1u << log2_lanes;
  const u32 lane = threadIdx.x & (lanes - 1);
  const u64 step = (u64(gridDim.x) * THREADS) >> log2_lanes;
  const u64 total = cols * batch;
  for (u64 c = (u64(blockIdx.x) * THREADS + threadIdx.x) >> log2_lanes; c < total; c += step) {
    const u64 item = c / cols;
    body(item, c - item * cols, lane, lanes);
  }
}

/// First row and one past the last of column j of a triangle.
inline u64 first_row(u32 upper, u64 j) { return upper ? 0 : j; }
inline u64 end_row(u32 upper, u64 j, u64 n) { return upper ? j + 1 : n; }

/// table[b] = address of item b.
template <class T> __global__ void __launch_bounds__(THREADS) addresses(const AddressesArgs args) {
  T **const table = reinterpret_cast<T **>(args.table);
  const u64 step = u64(gridDim.x) * THREADS;
  for (u64 b = u64(blockIdx.x) * THREADS + threadIdx.x; b < args.batch; b += step) table[b] = matrix<T>(args.items, b);
}

/// Square = triangle of the item with a real diagonal, and zeros in the other triangle; the table of the squares; no status.
template <class T> __global__ void __launch_bounds__(THREADS) pack(const TriangleArgs args) {
  for_columns(args.n, args.batch, args.log2_lanes, [&](u64 item, u64 j, u32 lane, u32 lanes) {
    const T *const from = matrix<T>(args.items, item) + j * args.items.ld;
    T *const square = square_of<T>(args.square, args.n, item);
    const u64 first = first_row(args.upper, j), end = end_row(args.upper, j, args.n);
    for (u64 i = lane; i < args.n; i += lanes) {
      T x{};
      if (i >= first && i < end) x = from[i];
      square[j * args.n + i] = i == j ? diagonal(x) : x;
    }
    if (j == 0 && lane == 0) {
      reinterpret_cast<T **>(args.table)[item] = square;
      reinterpret_cast<int *>(args.reported)[item] = 0;
    }
  });
}

/// Triangle of the item = triangle of the square, with a real diagonal.
template <class T> __global__ void __launch_bounds__(THREADS) unpack(const TriangleArgs args) {
  for_columns(args.n, args.batch, args.log2_lanes, [&](u64 item, u64 j, u32 lane, u32 lanes) {
    T *const to = matrix<T>(args.items, item) + j * args.items.ld;
    const T *const from = square_of<T>(args.square, args.n, item) + j * args.n;
    const u64 end = end_row(args.upper, j, args.n);
    for (u64 i = first_row(args.upper, j) + lane; i < end; i += lanes) to[i] = i == j ? diagonal(from[i]) : from[i];
  });
}

/// Triangle of the item = square + beta times the triangle, with a real diagonal.
template <class T> __global__ void __launch_bounds__(THREADS) fold(const TriangleArgs args) {
  for_columns(args.n, args.batch, args.log2_lanes, [&](u64 item, u64 j, u32 lane, u32 lanes) {
    T *const to = matrix<T>(args.items, item) + j * args.items.ld;
    const u64 end = end_row(args.upper, j, args.n);
    for (u64 i = first_row(args.upper, j) + lane; i < end; i += lanes) {
      T x{};
      if (args.square != 0) x = square_of<T>(args.square, args.n, item)[j * args.n + i];
      if (args.beta != 0) x = add(x, times(to[i], args.beta));
      to[i] = i == j ? diagonal(x) : x;
    }
  });
}

/// info = the first of: what the vendor reported, and the first diagonal element of the factor that is not positive and
/// finite. A warp per item. An element before the reported one is a final pivot's root, or the untouched diagonal,
/// which bounds the pivot from above: if it is not positive, neither is the pivot.
template <class T> __global__ void __launch_bounds__(THREADS) status(const StatusArgs args) {
  const u32 lane = threadIdx.x % WARP;
  const u64 step = u64(gridDim.x) * (THREADS / WARP);
  for (u64 item = u64(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP; item < args.batch; item += step) {
    const T *const square = square_of<T>(args.square, args.n, item);
    u32 first = ~0u;
    for (u64 j = lane; j < args.n; j += WARP) {
      const auto root = real_part(square[j * args.n + j]);
      // Inf - Inf is not 0.
      if (!(root > 0 && root - root == 0)) {
        first = u32(j) + 1;
        break;
      }
    }
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
      const u32 other = __shfl_xor_sync(~0u, first, distance);
      first = other < first ? other : first;
    }
    if (lane == 0) {
      const int reported = reinterpret_cast<const int *>(args.reported)[item];
      if (reported > 0 && u32(reported) < first) first = u32(reported);
      reinterpret_cast<int *>(args.info)[item] = first == ~0u ? 0 : int(first);
    }
  }
}

/// Item = beta times the item, which is not read where beta is zero.
template <class T> __global__ void __launch_bounds__(THREADS) scale(const ScaleArgs args) {
  for_columns(args.cols, args.batch, u32(args.log2_lanes), [&](u64 item, u64 j, u32 lane, u32 lanes) {
    T *const column = matrix<T>(args.items, item) + j * args.items.ld;
    const bool clear = args.beta_re == 0 && args.beta_im == 0;
    for (u64 i = lane; i < args.rows; i += lanes) column[i] = clear ? T{} : times(column[i], args.beta_re, args.beta_im);
  });
}

}  // namespace batchlas::staging
