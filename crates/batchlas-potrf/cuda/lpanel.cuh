// potrf, family `lpanel`: Cholesky factorisation of a batch by left-looking panels, one thread per row, little shared memory.
//
// Lanes threads, whole warps and at least one per row, factor one matrix of any order n <= Lanes; a work-group holds Matrices of them. Panels of NB
// columns are taken from left to right. A thread carries its row of the panel in registers while the finished columns to the left are read again from
// global memory, NB at a time: the rows that cross the panel make their part known through a square block in shared memory (sB), which every row
// multiplies by its own. The panel is then published to shared memory (sA, NB columns of n rows) and factored there, column by column; every thread
// forms the pivot itself.
//
// Slots without an item run the whole body on zeros, with the true n, and store nothing: every barrier is at top level, and all threads of the
// work-group meet at it equally often. A failed item is finished by value selection, as in family `tiny`, whose bits the first panel has; its state is
// that of `tiny` as well: columns 1 .. k-1 of the factor of its leading minor, and zeros from column k on (or NaN where the trailing matrix was not
// finite). Layout, triangle and batch do not change the bits.
//
// MinBlocks: work-groups per multiprocessor that the register allocation must allow; 0 leaves it to the compiler.
#pragma once
#include <batchlas/factor.cuh>
#include <batchlas/memory.cuh>
#include <batchlas/shared.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

template <class T, int NB, Uplo U, Layout L, int Lanes, int Matrices, int MinBlocks>
__global__ void __launch_bounds__(Lanes *Matrices, MinBlocks) potrf_lpanel(const FactorArgs args) {
  static_assert(NB % 8 == 0 && arch::WARP % NB == 0, "a panel is 8, 16 or 32 columns, so that its rows are lanes of the matrix even below row n");
  static_assert(Lanes % arch::WARP == 0, "the lanes of a matrix are whole warps");
  using R = Real<T>;
  constexpr int PER_CHUNK = PER_16_BYTES<T>;
  // Finished columns that are read again at a time.
  constexpr int STEP = 8;

  const int n = static_cast<int>(args.n);
  const int thread = arch::warp() * arch::WARP + arch::lane();
  const int slot = thread / Lanes, row = thread % Lanes;
  const u64 matrix = arch::block() * Matrices + slot;
  // A work-group of one matrix has no slot without an item.
  const bool live = Matrices == 1 || matrix < args.batch;
  const bool exists = row < n;
  T *const block = dynamic_shared<T>() + slot * (n * NB + NB * NB);
  T *const panel = block + NB * NB;

  // S is what is factored, by its lower triangle: A itself, or the transpose of its upper triangle. `first` is the address of S(row, 0).
  const u64 item = item_address<L>(args.a, args.item_bytes, matrix, live);
  const u64 first = item + row * (U == Uplo::Lower ? sizeof(T) : args.ld_bytes);
  const u64 across = U == Uplo::Lower ? args.ld_bytes : sizeof(T);

  i32 info = 0;
  for (int j = 0; j < n; j += NB) {
    const bool loads = live && exists && row >= j;
    // Warps whose rows are all finished only keep the others company at the barriers.
    const bool busy = (row | (arch::WARP - 1)) >= j;

    T acc[NB], own[STEP];
#pragma unroll
    for (int i = 0; i < NB; i++) {
      acc[i] = from_real<T>(0);
    }
    u64 column = first;
#pragma unroll
    for (int k = 0; k < STEP; k++) {
      own[k] = load(loads && j > 0, column, from_real<T>(0));
      column = arch::advance(column, across);
    }

    // The last block of finished columns goes through `block`, the one before it through the first NB * NB elements of `panel`, and so on in turn: one
    // barrier per block suffices, and `panel` is free when the columns are published.
    for (int k0 = 0; k0 < j; k0 += STEP) {
      T *const rows = (j - k0) / STEP % 2 == 1 ? block : panel;
      if (row >= j && row < j + NB) {
#pragma unroll
        for (int k = 0; k < STEP; k++) {
          rows[k * NB + row - j] = own[k];
        }
      }
      arch::sync_block(); // B1: the block is complete.
      column = first + (k0 + STEP) * across;
      if (busy) {
#pragma unroll
        for (int k = 0; k < STEP; k++) {
#pragma unroll
          for (int i0 = 0; i0 < NB; i0 += PER_CHUNK) {
            const Chunk<T> chunk = *reinterpret_cast<const Chunk<T> *>(rows + k * NB + i0);
#pragma unroll
            for (int i = 0; i < PER_CHUNK; i++) {
              acc[i0 + i] = sub_mul_conj(acc[i0 + i], own[k], chunk.at[i]);
            }
          }
          // The same column of the next block is on its way as soon as this one is used up.
          own[k] = load(loads && k0 + STEP < j, column, from_real<T>(0));
          column = arch::advance(column, across);
        }
      }
    }

    // What is subtracted is summed from zero and meets A last: added to A one by one, the products would each be rounded to A's last place.
    column = first + j * across;
#pragma unroll
    for (int i = 0; i < NB; i++) {
      acc[i] = add(load(loads && row >= j + i, column, from_real<T>(0)), acc[i]);
      column = arch::advance(column, across);
    }

    // Multiples of the pitch, and who takes part in which column, are computed anew instead of being held through the loop above.
    const int pitch = arch::renamed(n), r = arch::renamed(row);
#pragma unroll
    for (int i = 0; i < NB; i++) {
      if (exists && r >= j + i) {
        panel[i * pitch + r] = acc[i];
      }
    }
    arch::sync_block(); // B3: the panel is published.

    column = first + j * across;
    const int width = min(NB, n - j);
    for (int c = 0; c < width; c++) {
      const T *const crossing = panel + j + c;
      const bool below = exists && r >= j + c;
      T d = crossing[c * pitch];
      T x = from_real<T>(0);
      if (below) {
        x = panel[c * pitch + r];
      }
      // Four at a time: enough to overlap their latencies, and few enough to stay below the registers of the loop above.
#pragma unroll 1
      for (int k0 = 0; k0 < c; k0 += 4) {
#pragma unroll
        for (int k = k0; k < k0 + 4; k++) {
          if (k < c) {
            const T v = crossing[k * pitch];
            d = sub_mul_conj(d, v, v);
            if (below) {
              x = sub_mul_conj(x, panel[k * pitch + r], v);
            }
          }
        }
      }
      const R diagonal = real_part(d);
      const bool positive = info == 0 && positive_and_finite(diagonal);
      info = positive || info != 0 ? info : j + c + 1;
      const Pivot<R> p = pivot(diagonal, positive);
      arch::sync_block(); // B3b: everybody has read the pivot, which its row now replaces by the root.
      x = select(r == j + c, from_real<T>(p.root), scale(x, p.inverse));
      if (below) {
        panel[c * pitch + r] = x;
      }
      store(live && below, column, x);
      column = arch::advance(column, across);
      arch::sync_block(); // B4: the column is final. After the last one the panel's shared memory is free (B6).
    }
  }
  arch::store(live && row == 0 && args.info != 0, args.info + matrix * sizeof(i32), info);
}

} // namespace batchlas
