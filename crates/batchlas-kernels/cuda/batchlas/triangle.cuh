// One triangle of a square matrix of order N in shared memory, brought there by asynchronous copies.
//
// It lies as in global memory, column by column, each column padded to whole quanta of 16 bytes (the shared pitch); the quanta that hold nothing of the
// triangle are left alone. Of global memory only the triangle is read: quanta wholly inside it by one 16-byte copy where columns start on 16 bytes, all else
// element by element; with a unit diagonal the diagonal is not read. What shares a quantum with the diagonal from the other side is set to zero, so that
// whole quanta can be read back. In place of each diagonal element stands its reciprocal: one quantum then serves a pivot and the elements beside it.
#pragma once
#include <batchlas/memory.cuh>
#include <batchlas/substitution.cuh>
#include <batchlas/unroll.cuh>
#include <batchlas/uplo.cuh>

namespace batchlas {

template <class T, int N, Uplo U> struct SharedTriangle {
  /// Elements of a quantum.
  static constexpr int V = PER_16_BYTES<T>;
  /// Quanta of a column.
  static constexpr int HEIGHT = (N + V - 1) / V;
  /// Elements from a column to the next.
  static constexpr int PITCH = HEIGHT * V;
  /// Quanta of a matrix.
  static constexpr int QUANTA = N * HEIGHT;

  /// Starts the copies of a triangle by `Threads` threads, of which this is `thread`. `a` is the address of A(0, 0); `aligned` says that all columns start on
  /// 16 bytes.
  template <int Threads> static BATCHLAS_DEVICE void copy(Quantum<T> *shared, int thread, u64 a, u64 ld_bytes, bool aligned, bool unit) {
    T *const elements = shared->at;
    if (aligned) {
#pragma unroll
      for (int first = 0; first < QUANTA; first += Threads) {
        const int quantum = first + thread;
        const int c = quantum / HEIGHT;
        const int r = quantum % HEIGHT * V;
        const bool inside = U == Uplo::Lower ? r > c && r + V <= N : r + V <= c;
        arch::copy_async<16>(inside && (QUANTA % Threads == 0 || quantum < QUANTA), shared + quantum, a + c * ld_bytes + r * sizeof(T));
      }
#pragma unroll
      for (int first = 0; first < N * V; first += Threads) {
        const int c = (first + thread) / V;
        if (N * V % Threads == 0 || c < N) {
          const int r = c / V * V + (first + thread) % V;
          copy_element(elements, r, c, a, ld_bytes);
          if (U == Uplo::Lower && N % V != 0 && c < N / V * V) {
            copy_element(elements, N / V * V + r % V, c, a, ld_bytes);
          }
        }
      }
    } else {
#pragma unroll 4
      for (int e = thread; e < N * PITCH; e += Threads) {
        copy_element(elements, e % PITCH, e / PITCH, a, ld_bytes);
      }
    }
#pragma unroll
    for (int first = 0; first < N; first += Threads) {
      const int d = first + thread;
      arch::copy_async<sizeof(T)>(!unit && (N % Threads == 0 || d < N), elements + d * (PITCH + 1), a + d * (ld_bytes + sizeof(T)));
    }
    arch::commit_async();
  }

  /// Waits for this thread's copies and inverts the diagonal elements among them. A barrier of the `Threads` threads must follow.
  template <int Threads> static BATCHLAS_DEVICE void finish(Quantum<T> *shared, int thread, bool unit) {
    arch::wait_async<0>();
#pragma unroll
    for (int first = 0; first < N; first += Threads) {
      const int d = first + thread;
      if (N % Threads == 0 || d < N) {
        T &diagonal = shared->at[d * (PITCH + 1)];
        diagonal = unit ? one<T>() : reciprocal(diagonal);
      }
    }
  }

  /// Quantum `q` of column `c`.
  static BATCHLAS_DEVICE Quantum<T> at(const Quantum<T> *shared, int q, int c) { return shared[c * HEIGHT + q]; }

private:
  /// An element off the diagonal: copied if it is in the triangle, and set to zero if whole quanta bring it back.
  static BATCHLAS_DEVICE void copy_element(T *elements, int r, int c, u64 a, u64 ld_bytes) {
    const bool inside = U == Uplo::Lower ? r > c && r < N : r < c;
    T *const to = elements + c * PITCH + r;
    arch::copy_async<sizeof(T)>(inside, to, a + c * ld_bytes + r * sizeof(T));
    if (!inside && r != c && (r / V == c / V || r >= N)) {
      *to = zero<T>();
    }
  }
};

} // namespace batchlas
