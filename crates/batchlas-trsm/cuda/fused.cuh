// trsm, family `fused`: triangular solve of orders above a warp's, in one launch that reads and writes B once, on tensor cores.
//
// As in cta.cuh every case is E x = alpha b for the columns of B (Left) or its rows (Right), with E = A or its transpose. Here the unknowns are counted in the
// order of elimination, so that E is lower triangular: signed strides from one equation and one unknown to the next say where its elements and those of b
// lie, and one kernel serves all 24 cases. A conjugated E is solved as E conj(x) = conj(alpha b).
//
// Unknowns go in blocks of 8. A warp owns 8 R right-hand sides, all unknowns in registers, as results of the tensor cores (batchlas/fragment.cuh): a solved block
// is at once the left operand of what it contributes to the others. Right-looking: for each block in turn, the four lanes that share a right-hand side
// solve with the diagonal block by substitution, two unknowns and one exchange at a time; then one product per remaining block. A solved block is
// stored at once, and its registers take the same block of the warp's next right-hand sides, so that loads have a whole solve to arrive.
// A complex right-hand side takes the place of two real ones, its real parts in rows 0 to 7 of a block and its imaginary parts in rows 8 to 15; E x is then
// two real products, of x and of i x.
//
// The compiler would start the loads of E long before their use and put off stores, and with them the loads of the next right-hand sides, to the end of the
// loop: points that it moves no access across keep both where they are written.
//
// E is staged once per work-group, element by element (no alignment is needed), packed by 8 x 8 blocks of the lower triangle in the order in which lanes read
// them. Of A only the triangle is read, and not its diagonal if that is unit. What does not exist (the upper part of diagonal blocks, unknowns beyond the order)
// is that of the identity. Warps share nothing after that.
//
// The bits of a result depend on the order, the element type and the case, not on how right-hand sides are dealt to warps.
#pragma once
#include <batchlas/fragment.cuh>
#include <batchlas/memory.cuh>
#include <batchlas/partition.cuh>
#include <batchlas/substitution.cuh>
#include <batchlas/unroll.cuh>

namespace batchlas {

/// Where the items of an operand lie: `address + item * item_bytes`, plus entry `item` of the table if there is one. `address` is that of the first element in the
/// order of elimination.
struct Items {
  u64 address, item_bytes, table;
};

/// The operands of a launch. Strides are in bytes and may be negative. What a kernel adds to addresses in its loop is here ready-made: a parameter is an operand of
/// an addition, where a product would occupy registers throughout.
struct TrsmFusedArgs {
  Items a, b;
  /// From one equation of E to the next, and from one unknown to the next.
  i64 a_equation, a_unknown;
  /// From one unknown of B to the next, and from one right-hand side to the next.
  i64 b_unknown, b_rhs;
  /// Over a block of unknowns; over 8 right-hand sides; over the right-hand sides from one tile of a warp to its next.
  i64 b_block, b_eight, b_next;
  /// Unknowns, and right-hand sides of an item.
  u32 n, q;
  /// Right-hand sides from one tile of a warp to its next.
  u32 next;
  /// Work-groups per item.
  u32 slices;
  /// alpha; a real type uses the first.
  f64 alpha_re, alpha_im;
  /// Bits of `Flag`.
  u32 flags;
  u32 unused;
};

enum Flag : u32 {
  UNIT = 1,
  CONJUGATE = 2,
  ALPHA_ZERO = 4,
  ALPHA_ONE = 8,
  /// The elements of A run along the equations of E.
  EQUATIONS = 16,
};

/// How B is accessed: element by element; or, where that is aligned, by pairs of unknowns that lie in the order of elimination or against it (Left), or by
/// runs of right-hand sides (Right).
enum class Access { Single, Pairs, ReversedPairs, RightHandSides };

BATCHLAS_DEVICE u64 item_address(const Items &operand, u64 item) {
  return operand.address + item * operand.item_bytes + arch::load_u64(operand.table != 0, operand.table + item * sizeof(u64), 0);
}

/// Unknowns of a block.
constexpr int BLOCK = 8;

/// Bytes of a right-hand side that are stored and loaded at a time where they are contiguous.
constexpr int GROUP_BYTES = 128;

/// Pairs of E that a lane has on their way at once.
constexpr int IN_FLIGHT = 3;

/// Two neighbouring elements: what a lane reads of E at once.
template <class T> struct alignas(2 * sizeof(T)) Pair {
  T at[2];
};

/// E in shared memory.
template <class T, int Blocks> struct Packed {
  /// Pairs of the triangle, and of the reciprocals of the diagonal that follow it.
  static constexpr int TRIANGLE = Blocks * (Blocks + 1) / 2 * (BLOCK * BLOCK / 2);
  static constexpr int RECIPROCALS = Blocks * BLOCK / 2;

  /// Element (row, col) of a block below the diagonal. Pairs of a row are permuted so that the reads, eight rows at a time, do not meet in a bank; copies down a
  /// column meet in twos.
  static BATCHLAS_DEVICE int place(int row, int col) { return (row * 4 + ((col / 2) ^ (row & 3))) * 2 + col % 2; }
  static BATCHLAS_DEVICE constexpr int block(int row, int col) { return (row * (row + 1) / 2 + col) * (BLOCK * BLOCK / 2); }

  /// Starts the copies of the strict lower triangle of the first `n` unknowns, and completes it by zeros. Diagonal blocks are transposed: substitution runs
  /// down their columns. A warp copies blocks along what is contiguous in A, so that its sectors are asked for one after the other: columns of blocks, or rows,
  /// dealt to and fro because they differ in length. A lane copies two elements of each block, half a block apart.
  template <int Warps> static BATCHLAS_DEVICE void copy(Pair<T> *shared, u64 e, i64 equation, i64 unknown, int n, bool along_equations) {
    constexpr int HALF = BLOCK / 2;
    constexpr int ELEMENTS = BLOCK * BLOCK;
    const int fast = arch::lane() % BLOCK;
    const int slow = arch::lane() / BLOCK;
    const int i = along_equations ? fast : slow;
    const int k = along_equations ? slow : fast;
    const int next_i = along_equations ? i : i + HALF;
    const int next_k = along_equations ? k + HALF : k;
    const i64 over_half = HALF * (along_equations ? unknown : equation);
    const i64 down = BLOCK * equation;
    const i64 right = BLOCK * unknown;
    const int first = place(i, k);
    const int second = place(next_i, next_k);
    // This lane's element of block (0, 0).
    const u64 corner = e + i * equation + k * unknown;
    const int warp = arch::uniform_warp();

    // Blocks below the diagonal, of whole block rows.
    const int whole = n / BLOCK;
    const i64 along = along_equations ? down : right;
    int over = 2 * (Warps - warp) - 1;
#pragma unroll 1
    for (int line = warp; line < whole; line += over, over = 2 * Warps - over) {
      const int row = along_equations ? line + 1 : line;
      const int col = along_equations ? line : 0;
      u64 from = corner + row * down + col * right;
      T *to = shared[block(row, col)].at;
      // Block rows grow by a block.
      int step = along_equations ? (row + 1) * ELEMENTS : ELEMENTS;
#pragma unroll 2
      for (int blocks = along_equations ? whole - row : row; blocks > 0; blocks--) {
        arch::copy_async<sizeof(T)>(true, to + first, from);
        arch::copy_async<sizeof(T)>(true, to + second, from + over_half);
        from += along;
        to += step;
        step += along_equations ? ELEMENTS : 0;
      }
    }
    // Diagonal blocks, and block rows that the order ends in or does not reach.
    const auto part = [&](int row, int col) {
      T *const to = shared[block(row, col)].at;
      const u64 from = corner + row * down + col * right;
      copy_part(to + (row == col ? k * BLOCK + i : first), from, BLOCK * row + i, BLOCK * col + k, n);
      copy_part(to + (row == col ? next_k * BLOCK + next_i : second), from + over_half, BLOCK * row + next_i, BLOCK * col + next_k, n);
    };
#pragma unroll 1
    for (int row = warp; row < whole; row += Warps) {
      part(row, row);
    }
#pragma unroll 1
    for (int row = whole; row < Blocks; row++) {
#pragma unroll 1
      for (int col = warp; col <= row; col += Warps) {
        part(row, col);
      }
    }
    arch::commit_async();
  }

  /// The reciprocals of the diagonal, ones from unknown `n` on.
  template <int Warps> static BATCHLAS_DEVICE void invert_diagonal(Pair<T> *shared, u64 e, i64 step, int n) {
    T *const to = shared[TRIANGLE].at;
    for (int s = arch::warp() * arch::WARP + arch::lane(); s < Blocks * BLOCK; s += Warps * arch::WARP) {
      to[s] = reciprocal(load(s < n, e + s * step, one<T>()));
    }
  }

private:
  /// Equation `s` and unknown `p`: an element of the strict triangle, or zero.
  static BATCHLAS_DEVICE void copy_part(T *element, u64 from, int s, int p, int n) {
    const bool inside = p < s && s < n;
    arch::copy_async<sizeof(T)>(inside, element, from);
    if (!inside) {
      *element = zero<T>();
    }
  }
};

/// The right-hand sides of a warp: lane (g, t) holds, of each block, unknowns 2 t and 2 t + 1 of R of them.
template <class T, int Blocks, int Tiles, Access A> struct Unknowns {
  using Component = Real<T>;
  static constexpr bool COMPLEX = ScalarTraits<T>::COMPLEX;
  static constexpr int R = COMPLEX ? Tiles : 2 * Tiles;
  static constexpr bool PAIRS = A == Access::Pairs || A == Access::ReversedPairs;
  static constexpr int FIRST = A == Access::ReversedPairs ? 1 : 0;
  /// Right-hand sides of an access.
  static constexpr int RUN = A != Access::RightHandSides ? 1 : R < PER_16_BYTES<T> ? R : PER_16_BYTES<T>;
  /// Blocks that are stored and loaded together: as many as make up a run of memory that is worth an access of DRAM.
  static constexpr int GROUP = PAIRS && BLOCK * sizeof(T) < GROUP_BYTES ? GROUP_BYTES / (BLOCK * sizeof(T)) : 1;
  using Registers = Component[Blocks][Tiles][4];
  using Block = Component[Tiles][4];

  static BATCHLAS_DEVICE T get(const Block &x, int rhs, int k) {
    if constexpr (COMPLEX) {
      return {x[rhs][k], x[rhs][2 + k]};
    } else {
      return x[rhs / 2][rhs % 2 * 2 + k];
    }
  }
  static BATCHLAS_DEVICE void set(Block &x, int rhs, int k, T value) {
    if constexpr (COMPLEX) {
      x[rhs][k] = value.re;
      x[rhs][2 + k] = value.im;
    } else {
      x[rhs / 2][rhs % 2 * 2 + k] = value;
    }
  }

  /// Which right-hand side of a tile is this lane's first, and how far its next one is.
  static BATCHLAS_DEVICE u32 first() { return arch::lane() / 4 * (A == Access::RightHandSides ? R : 1); }
  static constexpr int STEP = A == Access::RightHandSides ? 1 : BLOCK;

  /// Reads a block of the right-hand sides from `rhs` on that are below `end`; `at` is the address of the lane's first element, `left` the unknowns from the
  /// lane's first to the order. Zeros where nothing is.
  static BATCHLAS_DEVICE void load_block(Block &x, u64 at, const TrsmFusedArgs &args, u32 rhs, u32 end, int left) {
#pragma unroll
    for (int i = 0; i < R; i += RUN) {
      const bool live = rhs + i * STEP < end;
      T v[2 * RUN];
#pragma unroll
      for (int k = 0; k < 2 * RUN; k++) {
        v[k] = zero<T>();
      }
      if constexpr (PAIRS) {
        load2(live && left > 1, at - FIRST * sizeof(T), v[0], v[1]);
        set(x, i, FIRST, v[0]);
        set(x, i, 1 - FIRST, v[1]);
      } else {
        load_run(live && left > 0, at, v);
        load_run(live && left > 1, at + args.b_unknown, v + RUN);
#pragma unroll
        for (int r = 0; r < 2 * RUN; r++) {
          set(x, i + r % RUN, r / RUN, v[r]);
        }
      }
      at += over_run(args);
    }
  }

  static BATCHLAS_DEVICE void store_block(const Block &x, u64 at, const TrsmFusedArgs &args, u32 rhs, u32 end, int left) {
#pragma unroll
    for (int i = 0; i < R; i += RUN) {
      const bool live = rhs + i * STEP < end;
      T v[2 * RUN];
#pragma unroll
      for (int r = 0; r < 2 * RUN; r++) {
        v[r] = conj_if(args.flags & CONJUGATE, get(x, i + r % RUN, r / RUN));
      }
      if constexpr (PAIRS) {
        store2(live && left > 1, at - FIRST * sizeof(T), v[FIRST], v[1 - FIRST]);
      } else {
        store_run(live && left > 0, at, v);
        store_run(live && left > 1, at + args.b_unknown, v + RUN);
      }
      at += over_run(args);
    }
  }

  /// b := alpha b, conjugated with E.
  static BATCHLAS_DEVICE void scale_block(Block &x, const TrsmFusedArgs &args) {
    T alpha = from_real<T>(static_cast<Component>(args.alpha_re));
    if constexpr (COMPLEX) {
      alpha.im = static_cast<Component>(args.alpha_im);
    }
#pragma unroll
    for (int i = 0; i < 2 * R; i++) {
      const T b = get(x, i / 2, i % 2);
      const T scaled = select(args.flags & ALPHA_ONE, b, mul(alpha, b));
      set(x, i / 2, i % 2, conj_if(args.flags & CONJUGATE, scaled));
    }
  }

  /// Solves with a diagonal block. Two unknowns are final with every step; their lane makes them known to the quad. What a lane goes on to compute of unknowns that
  /// are final is never looked at.
  static BATCHLAS_DEVICE void solve_block(Block &x, const Pair<T> *diagonal, Pair<T> inverse) {
    using Quad = Partition<4>;
    const int t = Quad::lane();
    Block solved;
#pragma unroll
    for (int p = 0; p < 4; p++) {
      // Columns 2 p and 2 p + 1 of the block, at this lane's unknowns.
      const Pair<T> e = diagonal[2 * p * (BLOCK / 2)];
      const Pair<T> f = diagonal[(2 * p + 1) * (BLOCK / 2)];
#pragma unroll
      for (int i = 0; i < R; i++) {
        const T u = get(x, i, 0);
        const T v = get(x, i, 1);
        const T y = mul(u, inverse.at[0]);
        const T z = mul(sub_mul(v, e.at[1], y), inverse.at[1]);
        set(solved, i, 0, p == 0 ? y : select(t == p, y, get(solved, i, 0)));
        set(solved, i, 1, p == 0 ? z : select(t == p, z, get(solved, i, 1)));
        if (p < 3) {
          const T a = Quad::broadcast(y, p);
          const T b = Quad::broadcast(z, p);
          set(x, i, 0, sub_mul(sub_mul(u, e.at[0], a), f.at[0], b));
          set(x, i, 1, sub_mul(sub_mul(v, e.at[1], a), f.at[1], b));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * R; i++) {
      set(x, i / 2, i % 2, get(solved, i / 2, i % 2));
    }
  }

private:
  static BATCHLAS_DEVICE i64 over_run(const TrsmFusedArgs &args) { return A == Access::RightHandSides ? RUN * sizeof(T) : args.b_eight; }
  static BATCHLAS_DEVICE void load_run(bool active, u64 address, T *v) {
    if constexpr (RUN == 1) {
      v[0] = load(active, address, v[0]);
    } else if constexpr (RUN == 2) {
      load2(active, address, v[0], v[1]);
    } else {
      load4(active, address, v[0], v[1], v[2], v[3]);
    }
  }
  static BATCHLAS_DEVICE void store_run(bool active, u64 address, const T *v) {
    if constexpr (RUN == 1) {
      store(active, address, v[0]);
    } else if constexpr (RUN == 2) {
      store2(active, address, v[0], v[1]);
    } else {
      store4(active, address, v[0], v[1], v[2], v[3]);
    }
  }
};

/// A solved block, negated, as the left operand of x -= E x: one fragment if real, those of x and i x if complex.
template <class T> struct Solved {
  static constexpr int PARTS = ScalarTraits<T>::COMPLEX ? 2 : 1;
  Fragment<Real<T>, 4> part[PARTS];

  BATCHLAS_DEVICE void set(const Real<T> (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      // Rows g and g + 8 alternate in a left operand and lie two apart in a result.
      const int from = i % 2 * 2 + i / 2;
      part[0].set(i, -x[from]);
      if constexpr (PARTS == 2) {
        part[1].set(i, i % 2 == 0 ? x[from + 2] : -x[from - 2]);
      }
    }
  }

  /// x -= E x for one block of E, of which the lane has the pair `e`.
  BATCHLAS_DEVICE void subtract(Real<T> (&x)[4], const Pair<T> &e) const {
    Fragment<Real<T>, 2> b;
    if constexpr (PARTS == 1) {
      b.set(0, e.at[0]);
      b.set(1, e.at[1]);
      multiply(x, part[0], b);
    } else {
      b.set(0, e.at[0].re);
      b.set(1, e.at[1].re);
      multiply(x, part[0], b);
      b.set(0, e.at[0].im);
      b.set(1, e.at[1].im);
      multiply(x, part[1], b);
    }
  }
};

template <class T, int Blocks, int Tiles, Access A, int Warps, int MinBlocks>
__global__ void __launch_bounds__(arch::WARP *Warps, MinBlocks) trsm_fused(const TrsmFusedArgs args) {
  using E = Packed<T, Blocks>;
  using X = Unknowns<T, Blocks, Tiles, A>;
  extern __shared__ Pair<f64> batchlas_dynamic_shared[];
  Pair<T> *const e = reinterpret_cast<Pair<T> *>(batchlas_dynamic_shared);

  const u64 item = arch::block() / args.slices;
  const u32 slice = static_cast<u32>(arch::block() % args.slices);
  const int n = static_cast<int>(args.n);
  const bool zero_alpha = args.flags & ALPHA_ZERO;
  const u64 a = item_address(args.a, item);
  E::template copy<Warps>(e, a, args.a_equation, args.a_unknown, zero_alpha ? 0 : n, args.flags & EQUATIONS);
  // Divisions come before the registers are full.
  E::template invert_diagonal<Warps>(e, a, args.a_equation + args.a_unknown, zero_alpha || (args.flags & UNIT) ? 0 : n);

  const int t = arch::lane() % 4;
  // Unknowns of the last block from this lane's first on.
  const int left = n - (Blocks - 1) * BLOCK - 2 * t;
  const u32 readable = zero_alpha ? 0 : args.q;
  const u32 first = X::first();
  u32 tile = (slice * Warps + arch::uniform_warp()) * (BLOCK * X::R);
  u64 at = item_address(args.b, item) + 2 * t * args.b_unknown + (tile + first) * args.b_rhs;
  typename X::Registers x;
  u64 from = at;
#pragma unroll
  for (int k = 0; k < Blocks; k++) {
    X::load_block(x[k], from, args, tile + first, readable, k + 1 < Blocks ? BLOCK : left);
    from = arch::renamed(from + args.b_block);
  }
  arch::wait_async<0>();
  arch::sync_block();

  // This lane's pairs of diagonal blocks and of the others. Numbers, where a pointer takes two registers.
  const u32 diagonal = t;
  const u32 below = E::place(arch::lane() / 4, 2 * t) / 2;
  while (tile < args.q) {
    u64 to = at;
    if ((args.flags & (ALPHA_ONE | CONJUGATE)) != ALPHA_ONE) {
#pragma unroll
      for (int k = 0; k < Blocks; k++) {
        X::scale_block(x[k], args);
      }
    }
    unroll<0, Blocks>([&](auto step) {
      constexpr int k = decltype(step)::VALUE;
      arch::keep_order();
      X::solve_block(x[k], e + diagonal + E::block(k, k), e[diagonal + E::TRIANGLE + k * (BLOCK / 2)]);
      Solved<T> solved[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; i++) {
        solved[i].set(x[k][i]);
      }
      unroll<k + 1, Blocks>([&](auto row) {
        constexpr int j = decltype(row)::VALUE;
        if constexpr ((j - k) % IN_FLIGHT == 0) {
          arch::keep_order();
        }
        const Pair<T> pair = e[below + E::block(j, k)];
#pragma unroll
        for (int i = 0; i < Tiles; i++) {
          solved[i].subtract(x[j][i], pair);
        }
      });
      if constexpr ((k + 1) % X::GROUP == 0 || k + 1 == Blocks) {
        constexpr int FIRST = k / X::GROUP * X::GROUP;
        u64 from = to + args.b_next;
        unroll<FIRST, k + 1>([&](auto block) {
          constexpr int j = decltype(block)::VALUE;
          X::store_block(x[j], to, args, tile + first, args.q, j + 1 < Blocks ? BLOCK : left);
          to += args.b_block;
        });
        unroll<FIRST, k + 1>([&](auto block) {
          constexpr int j = decltype(block)::VALUE;
          X::load_block(x[j], from, args, tile + args.next + first, readable, j + 1 < Blocks ? BLOCK : left);
          from += args.b_block;
        });
      }
    });
    tile += args.next;
    at += args.b_next;
  }
}

} // namespace batchlas
