// The batched matrix product C = alpha op(A) op(B) + beta C, one tile of C per block; and the same for one triangle of a Hermitian C.
//
// `product` is the body of a kernel, for any accumulator: a type that holds the tile of one warp in registers (a SIMT one, or tensor-core fragments).
// The block stages operand tiles of `Depth` of the inner index in a ring of `Stages` buffers of dynamic shared memory; the copies of the stages to come
// are under way while one is multiplied. C is read and written once, at the end. Every element is summed in the order of the inner index.
//
// Conjugation: a product with both operands conjugate, or only the left one, is the conjugate of one without, or of one with the right one conjugate.
// So the inner loop knows two kinds of product (`Mixed`: the right operand conjugate), and the sum is conjugated at the end if need be.
//
// Triangle: C is square, the tiles are square, and those of the other triangle do not exist: a block finds its tile by folding the triangle of tiles
// into a rectangle. A diagonal tile is written element by element under a mask; of the diagonal only real parts are used, and zeros are
// stored for the imaginary ones.
#pragma once
#include <batchlas/staging.cuh>
#include <batchlas/unroll.cuh>

namespace batchlas {

/// The operands of a launch over `tiles * items` blocks. Addresses are aligned to an element, tables to 8 bytes; sizes in bytes are multiples of the
/// size of an element.
struct ProductArgs {
  /// Address of item 0, or of the table of item addresses.
  u64 a, b, c;
  /// Bytes from a column to the next.
  u64 lda_bytes, ldb_bytes, ldc_bytes;
  /// Bytes from an item to the next, or from an address in the table to its item.
  u64 a_item_bytes, b_item_bytes, c_item_bytes;
  /// Factors; exact in the real type of an element.
  f64 alpha_re, alpha_im, beta_re, beta_im;
  /// Sizes of C, and the inner dimension. All are below 2^31.
  i32 m, n, k;
  /// Tiles along m, and of an item.
  u32 row_tiles, tiles;
  /// Bits of `Flag`.
  u32 flags;
};

namespace flag {
/// An operand is given by a table of addresses.
constexpr u32 A_TABLE = 1, B_TABLE = 2, C_TABLE = 4;
/// The sum of products is conjugated.
constexpr u32 CONJ = 8;
/// C is read: beta is not zero.
constexpr u32 READ_C = 16;
/// The triangle is the upper one.
constexpr u32 UPPER = 32;
} // namespace flag

/// What of C is computed.
enum class Part { Full, Triangle };

/// 16 bytes of elements: one shared-memory access.
template <class T> struct alignas(16) Pack {
  T at[PER_16_BYTES<T>];
};

/// Sizes that the body and the launch share.
template <class Accumulator, int Rows, int Cols> struct BlockShape {
  static constexpr int WARPS_DOWN = Rows / Accumulator::ROWS;
  static constexpr int WARPS_ACROSS = Cols / Accumulator::COLS;
  static constexpr int THREADS = arch::WARP * WARPS_DOWN * WARPS_ACROSS;
  static_assert(Rows % Accumulator::ROWS == 0 && Cols % Accumulator::COLS == 0, "the warps do not divide the tile");
};

/// The address of item `item` of an operand, by table or by stride.
BATCHLAS_DEVICE u64 operand_item(bool table, u64 base, u64 item_bytes, u64 item) {
  return table ? item_address<Layout::Pointers>(base, item_bytes, item, true) : item_address<Layout::Strided>(base, item_bytes, item, true);
}

/// Loads or stores `Run` contiguous elements by one access.
BATCHLAS_DEVICE void load_run(bool active, u64 address, f32 (&a)[4]) { load4(active, address, a[0], a[1], a[2], a[3]); }
template <class T> BATCHLAS_DEVICE void load_run(bool active, u64 address, T (&a)[2]) { load2(active, address, a[0], a[1]); }
template <class T> BATCHLAS_DEVICE void load_run(bool active, u64 address, T (&a)[1]) { a[0] = load(active, address, a[0]); }
BATCHLAS_DEVICE void store_run(bool active, u64 address, const f32 (&a)[4]) { store4(active, address, a[0], a[1], a[2], a[3]); }
template <class T> BATCHLAS_DEVICE void store_run(bool active, u64 address, const T (&a)[2]) { store2(active, address, a[0], a[1]); }
template <class T> BATCHLAS_DEVICE void store_run(bool active, u64 address, const T (&a)[1]) { store(active, address, a[0]); }

/// alpha x, and alpha x + beta y.
template <class T> struct Update {
  T alpha, beta;
  BATCHLAS_DEVICE T of(T x) const { return add_mul(from_real<T>(0), alpha, x); }
  BATCHLAS_DEVICE T of(T x, T y) const { return add_mul(add_mul(from_real<T>(0), beta, y), alpha, x); }
};
/// The same with real factors.
template <class T> struct RealUpdate {
  Real<T> alpha, beta;
  BATCHLAS_DEVICE T of(T x) const { return scale(x, alpha); }
  BATCHLAS_DEVICE T of(T x, T y) const {
    const T old = scale(y, beta);
    if constexpr (ScalarTraits<T>::COMPLEX) {
      return {arch::fma(alpha, x.re, old.re), arch::fma(alpha, x.im, old.im)};
    } else {
      return arch::fma(alpha, x, old);
    }
  }
};

template <class T, Part P> BATCHLAS_DEVICE auto update_of(const ProductArgs &args) {
  using R = Real<T>;
  if constexpr (P == Part::Triangle || !ScalarTraits<T>::COMPLEX) {
    return RealUpdate<T>{R(args.alpha_re), R(args.beta_re)};
  } else {
    return Update<T>{{R(args.alpha_re), R(args.alpha_im)}, {R(args.beta_re), R(args.beta_im)}};
  }
}

/// Row and column of the tile `index` of a triangle of `side` tiles: row r of the rectangle is row side - 1 - r of the lower triangle and the row that
/// complements it.
BATCHLAS_DEVICE void triangle_tile(u32 index, u32 side, u32 &row, u32 &col) {
  const u32 odd = side % 2;
  const u32 width = side + 1 - odd;
  const u32 r = index / width, at = index % width, full = side - r;
  row = at < full ? side - 1 - r : r - odd;
  col = at < full ? at : at - full;
}

/// The accumulator of a warp, after the loop, into its place in C: `corner` is the address of the warp's first element, `rows` and `cols` what is left of C
/// from there. `Diagonal`: the tile is on the diagonal, where C's rows and columns differ by those of the tile and `shift`.
template <class T, Part P, bool Diagonal, bool Aligned, class Accumulator>
BATCHLAS_DEVICE void write_tile(Accumulator &acc, const ProductArgs &args, u64 corner, int rows, int cols, int shift) {
  constexpr int RUN = Accumulator::RUN;
  const auto update = update_of<T, P>(args);
  const bool conjugate = ScalarTraits<T>::COMPLEX && (args.flags & flag::CONJ) != 0;
  const bool upper = (args.flags & flag::UPPER) != 0;
  const u64 ldc = args.ldc_bytes;
  auto address = [&](int row, int col) { return corner + row * u64(sizeof(T)) + col * ldc; };
  auto inside = [&](int row, int col) {
    const int below = row + shift - col;
    return row < rows && col < cols && (!Diagonal || (upper ? below <= 0 : below >= 0));
  };
  auto oriented = [&](T x) { return conjugate ? conj(x) : x; };

  auto add_old = [&](int row, int col, T(&run)[RUN]) {
    T old[RUN];
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      old[i] = from_real<T>(0);
    }
    if constexpr (Aligned && !Diagonal) {
      load_run(inside(row, col), address(row, col), old);
    } else {
#pragma unroll
      for (int i = 0; i < RUN; i++) {
        old[i] = load(inside(row + i, col), address(row + i, col), old[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      run[i] = update.of(oriented(run[i]), old[i]);
    }
  };
  auto write = [&](int row, int col, T(&run)[RUN]) {
    if constexpr (Aligned && !Diagonal) {
      store_run(inside(row, col), address(row, col), run);
    } else {
#pragma unroll
      for (int i = 0; i < RUN; i++) {
        const bool real = Diagonal && row + i + shift == col;
        store(inside(row + i, col), address(row + i, col), real ? from_real<T>(real_part(run[i])) : run[i]);
      }
    }
  };

  auto scaled = [&](int, int, T(&run)[RUN]) {
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      run[i] = update.of(oriented(run[i]));
    }
  };

  // All of C is asked for before any of it is waited for; on the diagonal, where every element has a predicate of its own, a few runs at a time. Addresses
  // and predicates are computed anew for each of these steps: held from one to the next they would not fit the registers.
  constexpr int STEP = Diagonal ? Accumulator::SPARE_RUNS : Accumulator::RUNS;
  unroll<0, Accumulator::RUNS / STEP>([&](auto index) {
    constexpr int first = decltype(index)::VALUE * STEP;
    if ((args.flags & flag::READ_C) != 0) {
      acc.template each_run<first, first + STEP>(add_old);
    } else {
      acc.template each_run<first, first + STEP>(scaled);
    }
    corner = arch::renamed(corner);
    rows = arch::renamed(rows);
    acc.template each_run<first, first + STEP>(write);
  });
}

/// The item of a block, and the first row and column of its tile.
struct BlockPlace {
  u32 item;
  int row, col;
};

template <Part P, int Rows, int Cols> BATCHLAS_DEVICE BlockPlace place_of(u32 block, const ProductArgs &args) {
  const u32 item = block / args.tiles, tile = block % args.tiles;
  u32 row = tile % args.row_tiles, col = tile / args.row_tiles;
  if constexpr (P == Part::Triangle) {
    triangle_tile(tile, args.row_tiles, row, col);
    if ((args.flags & flag::UPPER) != 0) {
      const u32 lower = row;
      row = col;
      col = lower;
    }
  }
  return {item, static_cast<int>(row) * Rows, static_cast<int>(col) * Cols};
}

template <class T, class Accumulator, int Rows, int Cols, int Depth, int Stages, Contiguous A, Contiguous B, bool Aligned, bool Mixed, Part P>
BATCHLAS_DEVICE void product(const ProductArgs &args) {
  static_assert(P == Part::Full || Rows == Cols, "the tiles of a triangle are square");
  static_assert(Stages >= 2, "one stage is multiplied while others are filled");
  using Shape = BlockShape<Accumulator, Rows, Cols>;
  using TileA = StagedTile<T, Rows, Depth, Shape::THREADS, A, Aligned>;
  using TileB = StagedTile<T, Cols, Depth, Shape::THREADS, B, Aligned>;
  constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;
  extern __shared__ Pack<f32> ring[];

  const BlockPlace start = place_of<P, Rows, Cols>(static_cast<int>(arch::block()), args);
  TileA a(operand_item((args.flags & flag::A_TABLE) != 0, args.a, args.a_item_bytes, start.item), args.lda_bytes, start.row, args.m);
  TileB b(operand_item((args.flags & flag::B_TABLE) != 0, args.b, args.b_item_bytes, start.item), args.ldb_bytes, start.col, args.n);
  const u32 ring_address = arch::shared_address(ring);
  int left = args.k;
  auto fill = [&](int slot) {
    if (left > 0) {
      const u32 stage = ring_address + slot * STAGE_BYTES;
      a.copy_next(stage, left);
      b.copy_next(stage + TileA::BYTES, left);
      left -= Depth;
    }
    arch::commit_async();
  };
#pragma unroll
  for (int slot = 0; slot < Stages - 1; slot++) {
    fill(slot);
  }

  const int warp_row = arch::warp() % Shape::WARPS_DOWN * Accumulator::ROWS, warp_col = arch::warp() / Shape::WARPS_DOWN * Accumulator::COLS;
  Accumulator acc;
  acc.zero();
  int full = 0, empty = Stages - 1;
#pragma unroll 1
  for (int k = 0; k < args.k; k += Depth) {
    // The wait makes this thread's part of the stage whole, the barrier everybody's; and it says that nobody reads the stage that is filled next.
    arch::wait_async<Stages - 2>();
    arch::sync_block();
    fill(empty);
    const T *stage_a = reinterpret_cast<const T *>(reinterpret_cast<const char *>(ring) + full * STAGE_BYTES);
    const T *stage_b = reinterpret_cast<const T *>(reinterpret_cast<const char *>(stage_a) + TileA::BYTES);
    acc.template multiply<Mixed, Depth, TileA::PITCH, TileB::PITCH>(stage_a + warp_row, stage_b + warp_col);
    full = full + 1 == Stages ? 0 : full + 1;
    empty = empty + 1 == Stages ? 0 : empty + 1;
  }

  // Found anew, so that no register holds it during the loop.
  const BlockPlace end = place_of<P, Rows, Cols>(arch::renamed(static_cast<int>(arch::block())), args);
  const u64 c = operand_item((args.flags & flag::C_TABLE) != 0, args.c, args.c_item_bytes, end.item);
  const int row = end.row + warp_row, col = end.col + warp_col;
  const u64 corner = c + row * u64(sizeof(T)) + col * args.ldc_bytes;
  if (P == Part::Triangle && end.row == end.col) {
    write_tile<T, P, true, Aligned>(acc, args, corner, args.m - row, args.n - col, warp_row - warp_col);
  } else {
    write_tile<T, P, false, Aligned>(acc, args, corner, args.m - row, args.n - col, 0);
  }
}

} // namespace batchlas
