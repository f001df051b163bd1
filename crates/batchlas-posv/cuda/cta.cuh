// potrs, family `cta`: both triangular solves of a batch in one launch, the right-hand sides of an item resident in shared memory in between.
//
// `Warps` warps solve up to Q right-hand sides of one item; further ones, Q at a time, are further units of work that read the same factor. With one
// warp per unit a block holds `Units` of them, and only warp barriers are used.
//
// Work proceeds by blocks of 32 rows. One warp solves the diagonal block, lane i holding row i of the unknowns: each finished unknown is broadcast
// and leaves the later rows. Then every warp takes blocks of later rows and removes the finished block from them. A sweep with the factor as it is
// stored ("axpy") reads columns of the off-diagonal block along the lanes. A sweep with its conjugate transpose ("dot") reads the same way, and turns
// the block in shared memory, so that global memory is always walked along columns. Lower solves axpy down and dot up; Upper dot down and axpy up.
//
// Read::Once brings all blocks of the triangle to shared memory by asynchronous copies before anything is solved, so that the factor crosses the memory
// bus once, and keeps them for the second sweep. Read::Twice stages one block per warp at a time, for factors that are too large: both sweeps read it.
//
// Only the triangle of the factor is read; of a diagonal element, the real part. The order of operations depends neither on the number of warps, nor on
// the number of right-hand sides, nor on how the factor is read. Items whose `info` is not 0 are left alone.
#pragma once
#include <batchlas/systems.cuh>
#include <batchlas/tile.cuh>

namespace batchlas {

/// Rows of a block: one per lane.
constexpr int ROWS = arch::WARP;
/// Elements from a column of a block in shared memory to the next: neither its rows nor its columns share a bank.
constexpr int PITCH = ROWS + 1;
/// Loads in flight per lane.
constexpr int FLIGHT = 16;

/// How often the factor is read from global memory.
enum class Read { Once, Twice };

/// One unit of work: up to Q right-hand sides of one item.
template <class T, Uplo U, int Q, int Warps, Read Reads> struct Unit {
  using R = Real<T>;
  using Lanes = Partition<arch::WARP>;

  /// Address of A(0, 0) and bytes from a column to the next.
  u64 a, ld;
  int n;
  /// This lane, and this warp among those of the unit.
  int l, warp;
  /// The right-hand sides: row i, column s at y[i Q + s]; rows to a multiple of ROWS are zero.
  T *y;
  /// Read once: the blocks of the triangle, numbered by `tile`. Read twice: this warp's block.
  T *tiles;
  /// Read once: the reciprocal of each diagonal element; otherwise unused.
  R *inverses;

  static BATCHLAS_DEVICE T zero() { return from_real<T>(0); }

  BATCHLAS_DEVICE void sync() const {
    if constexpr (Warps == 1) {
      arch::sync_warp();
    } else {
      arch::sync_block();
    }
  }

  BATCHLAS_DEVICE int blocks() const { return (n + ROWS - 1) / ROWS; }
  BATCHLAS_DEVICE u64 element(int i, int j) const { return a + j * ld + i * u64(sizeof(T)); }

  BATCHLAS_DEVICE void read_rows(T (&x)[Q], int block) const {
#pragma unroll
    for (int s = 0; s < Q; s++) {
      x[s] = y[(block * ROWS + l) * Q + s];
    }
  }
  BATCHLAS_DEVICE void write_rows(const T (&x)[Q], int block) const {
#pragma unroll
    for (int s = 0; s < Q; s++) {
      y[(block * ROWS + l) * Q + s] = x[s];
    }
  }

  /// Reads columns [c0, c0 + FLIGHT) of block (I, J), row l of it; zero outside the triangle and the matrix.
  BATCHLAS_DEVICE void load_columns(T (&x)[FLIGHT], int I, int J, int c0) const {
    const int i = I * ROWS + l, j0 = J * ROWS + c0;
    u64 address = element(i, j0);
#pragma unroll
    for (int c = 0; c < FLIGHT; c++) {
      const bool inside = U == Uplo::Lower ? i >= j0 + c : i <= j0 + c;
      x[c] = load(inside && i < n && j0 + c < n, address, zero());
      address += ld;
    }
    arch::fence_block();
  }

  /// Block (I, J) in shared memory: row i, column j of it at [j PITCH + i].
  BATCHLAS_DEVICE T *tile(int I, int J) const {
    if constexpr (Reads == Read::Twice) {
      return tiles;
    } else {
      const int longer = U == Uplo::Lower ? I : J, shorter = U == Uplo::Lower ? J : I;
      return tiles + (longer * (longer + 1) / 2 + shorter) * (ROWS * PITCH);
    }
  }

  /// Sends the whole triangle on its way to shared memory, zeros beyond it; what a warp copied it reads after `wait_async`, the others after a barrier.
  BATCHLAS_DEVICE void fetch_all() const {
    const int count = blocks();
    u32 to = arch::shared_address(tiles) + l * u32(sizeof(T));
    int turn = 0;
#pragma unroll 1
    for (int longer = 0; longer < count; longer++) {
#pragma unroll 1
      for (int shorter = 0; shorter <= longer; shorter++, to += ROWS * PITCH * u32(sizeof(T))) {
        const bool mine = turn == warp;
        turn = turn + 1 == Warps ? 0 : turn + 1;
        if (!mine) {
          continue;
        }
        const int i = (U == Uplo::Lower ? longer : shorter) * ROWS + l, j = (U == Uplo::Lower ? shorter : longer) * ROWS;
        u64 address = element(i, j);
        u32 at = to;
#pragma unroll 8
        for (int c = 0; c < ROWS; c++) {
          const bool inside = (U == Uplo::Lower ? i >= j + c : i <= j + c) && i < n && j + c < n;
          arch::copy_async_or_zero<sizeof(T)>(inside, at, inside ? address : a);
          address += ld;
          at += PITCH * u32(sizeof(T));
        }
      }
    }
    arch::commit_async();
  }

  /// Copies block (I, J) to shared memory; each lane the row that is its own, which other lanes read after a barrier.
  BATCHLAS_DEVICE void stage(int I, int J) const {
#pragma unroll 1
    for (int c0 = 0; c0 < ROWS; c0 += FLIGHT) {
      T x[FLIGHT];
      load_columns(x, I, J, c0);
#pragma unroll
      for (int c = 0; c < FLIGHT; c++) {
        tiles[(c0 + c) * PITCH + l] = x[c];
      }
    }
  }

  /// The reciprocal of this lane's diagonal element of block K, whose place in the block becomes zero; only this lane reads it.
  BATCHLAS_DEVICE R take_diagonal(int K) const {
    T &place = tile(K, K)[l * PITCH + l];
    const R diagonal = real_part(place);
    place = zero();
    return K * ROWS + l < n ? R(1) / diagonal : R(0);
  }

  /// Solves with the diagonal block of block row K, or with its conjugate transpose; `Down`: the first unknown first. `First`: the first sweep.
  template <bool Dot, bool Down, bool First> BATCHLAS_DEVICE void solve_diagonal(int K) const {
    R inverse;
    if constexpr (Reads == Read::Twice) {
      stage(K, K);
      // In the dot form a lane reads a column that the others wrote.
      if constexpr (Dot) {
        arch::sync_warp();
      }
      inverse = take_diagonal(K);
    } else if constexpr (First) {
      inverse = take_diagonal(K);
      inverses[K * ROWS + l] = inverse;
    } else {
      inverse = inverses[K * ROWS + l];
    }
    // Rows are scaled to a unit diagonal, which takes the scaling off the chain from an unknown to the next.
    T x[Q];
    read_rows(x, K);
#pragma unroll
    for (int s = 0; s < Q; s++) {
      x[s] = scale(x[s], inverse);
    }
    // Element (l, c) of the block, or (c, l) of its transpose.
    const T *const row = tile(K, K) + (Dot ? l * PITCH : l);
    constexpr int STEP = Dot ? 1 : PITCH;
#pragma unroll 8
    for (int t = 0; t < ROWS; t++) {
      const int c = Down ? t : ROWS - 1 - t;
      const T m = scale(Dot ? row[c * STEP] : conj(row[c * STEP]), inverse);
#pragma unroll
      for (int s = 0; s < Q; s++) {
        x[s] = sub_mul_conj(x[s], Lanes::broadcast(x[s], c), m);
      }
    }
    write_rows(x, K);
  }

  /// Block row J of the right-hand sides minus the off-diagonal block times the finished block row K.
  template <bool Dot> BATCHLAS_DEVICE void remove(int J, int K) const {
    if constexpr (Dot && Reads == Read::Twice) {
      stage(K, J);
      arch::sync_warp();
    }
    const T *const row = Dot ? tile(K, J) + l * PITCH : tile(J, K) + l;
    T x[Q];
    read_rows(x, J);
#pragma unroll 1
    for (int c0 = 0; c0 < ROWS; c0 += FLIGHT) {
      T column[FLIGHT];
      if constexpr (!Dot && Reads == Read::Twice) {
        load_columns(column, J, K, c0);
      } else if constexpr (!Dot) {
#pragma unroll
        for (int c = 0; c < FLIGHT; c++) {
          column[c] = row[(c0 + c) * PITCH];
        }
      }
#pragma unroll
      for (int c = 0; c < FLIGHT; c++) {
        const T m = Dot ? row[c0 + c] : conj(column[c]);
#pragma unroll
        for (int s = 0; s < Q; s++) {
          x[s] = sub_mul_conj(x[s], y[(K * ROWS + c0 + c) * Q + s], m);
        }
      }
    }
    write_rows(x, J);
    if constexpr (Dot && Reads == Read::Twice) {
      arch::sync_warp();
    }
  }

  /// One barrier per block: it publishes the finished block, and what the warps removed it from a step ago. The block that warp 0 solves next is always one
  /// that warp 0 itself removed the last one from (or loaded), so it goes ahead while the others still remove.
  template <bool Dot, bool Down, bool First> BATCHLAS_DEVICE void sweep() const {
    const int count = blocks();
#pragma unroll 1
    for (int k = 0; k < count; k++) {
      const int K = Down ? k : count - 1 - k;
      if (warp == 0) {
        solve_diagonal<Dot, Down, First>(K);
      }
      sync();
#pragma unroll 1
      for (int j = k + 1 + warp; j < count; j += Warps) {
        remove<Dot>(Down ? j : count - 1 - j, K);
      }
    }
  }

  /// Moves `count` columns between global and shared memory; rows and columns beyond are zero there.
  BATCHLAS_DEVICE void load_rhs(u64 b, u64 ld_bytes, u64 count) const {
#pragma unroll 1
    for (int i = warp * ROWS + l; i < blocks() * ROWS; i += Warps * ROWS) {
      u64 address = b + i * u64(sizeof(T));
#pragma unroll
      for (int s = 0; s < Q; s++) {
        y[i * Q + s] = load(i < n && s < count, address, zero());
        address += ld_bytes;
      }
    }
  }
  BATCHLAS_DEVICE void store_rhs(u64 b, u64 ld_bytes, u64 count) const {
#pragma unroll 1
    for (int i = warp * ROWS + l; i < n; i += Warps * ROWS) {
      u64 address = b + i * u64(sizeof(T));
#pragma unroll
      for (int s = 0; s < Q; s++) {
        store(s < count, address, y[i * Q + s]);
        address += ld_bytes;
      }
    }
  }
};

template <class T, Uplo U, int Q, int Warps, int Units, Read Reads> __global__ void __launch_bounds__(arch::WARP *Warps *Units, 1) potrs_cta(const Systems args) {
  static_assert(Warps == 1 || Units == 1, "the warps of a unit meet at barriers of the block");
  extern __shared__ __align__(16) unsigned char potrs_cta_shared[];
  // Blocks of the same items follow each other.
  const u32 slices = static_cast<u32>((args.nrhs + Q - 1) / Q), block = static_cast<u32>(arch::block());
  const int unit = arch::warp() / Warps;
  const u64 item = u64(block / slices) * Units + unit, first = u64(block % slices) * Q;
  if (item >= args.batch || (args.info != 0 && reinterpret_cast<const i32 *>(args.info)[item] != 0)) {
    return;
  }
  const int n = static_cast<int>(args.n);
  const int padded = (n + ROWS - 1) / ROWS * ROWS;
  // The right-hand sides, the blocks, and the reciprocals, in elements of T, than which the reciprocals are no wider.
  const int rows = padded / ROWS, tiles = Reads == Read::Once ? rows * (rows + 1) / 2 : Warps;
  const int elements = padded * Q + tiles * ROWS * PITCH + (Reads == Read::Once ? padded : 0);
  T *const y = reinterpret_cast<T *>(potrs_cta_shared) + unit * elements;
  T *const first_tile = y + padded * Q;
  Real<T> *const inverses = reinterpret_cast<Real<T> *>(first_tile + tiles * ROWS * PITCH);
  const int warp = arch::warp() % Warps;
  const Unit<T, U, Q, Warps, Reads> work = {
      args.a.item(item, true), args.a.ld, n, arch::lane(), warp, y, first_tile + (Reads == Read::Once ? 0 : warp * ROWS * PITCH), inverses};
  const u64 b = args.b.item(item, true) + first * args.b.ld, count = args.nrhs - first;
  if constexpr (Reads == Read::Once) {
    work.fetch_all();
  }
  work.load_rhs(b, args.b.ld, count);
  if constexpr (Reads == Read::Once) {
    arch::wait_async<0>();
    // A single warp that starts with rows reads what each lane itself copied.
    if constexpr (Warps > 1 || U == Uplo::Upper) {
      work.sync();
    }
  }
  constexpr bool LOWER = U == Uplo::Lower;
  work.template sweep<!LOWER, true, true>();
  work.template sweep<LOWER, false, false>();
  work.store_rhs(b, args.b.ld, count);
}

} // namespace batchlas
