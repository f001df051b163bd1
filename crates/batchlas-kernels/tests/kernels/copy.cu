// Kernels for the tests of the compile path.
#include <batchlas/integers.cuh>

namespace test {

template <class T, int Threads>
__global__ void __launch_bounds__(Threads) reverse(T *p) {
    __shared__ T staged[Threads];
    const batchlas::i64 base = batchlas::i64(blockIdx.x) * Threads;
    staged[threadIdx.x] = p[base + threadIdx.x];
    __syncthreads();
    p[base + threadIdx.x] = staged[Threads - 1 - threadIdx.x];
}

__device__ __noinline__ float callee(float *p, int n) {
    float kept[32];
    for (int i = 0; i < 32; ++i) kept[i] = p[i];
    for (int i = 0; i < n; ++i) kept[int(p[i]) & 31] += 1.0f;
    float sum = 0.0f;
    for (int i = 0; i < 32; ++i) sum += kept[i] * float(i);
    return sum;
}

template <int N>
__global__ void calls(float *p) {
    p[threadIdx.x] = callee(p, N);
}

}  // namespace test
