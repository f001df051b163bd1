// Kernels for the checks of the runtime on a device.
#include <batchlas/integers.cuh>

namespace selftest {

using batchlas::u32;
using batchlas::u64;

struct Args {
    u64 data;    // address of u32 elements
    u64 count;   // elements
    u32 value;
    u32 cycles;  // to wait before anything is read, so that an order that is not kept shows
};

__device__ inline void wait(u32 cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

// data[i] = 3 data[i] + value: two of these do not commute.
template <int Threads>
__global__ void __launch_bounds__(Threads) affine(const Args a) {
    wait(a.cycles);
    const u64 i = u64(blockIdx.x) * Threads + threadIdx.x;
    if (i < a.count) {
        u32 *p = reinterpret_cast<u32 *>(a.data) + i;
        *p = *p * 3u + a.value;
    }
}

// Reverses `count` elements through dynamic shared memory, in one block.
template <int Threads>
__global__ void __launch_bounds__(Threads) reverse(const Args a) {
    extern __shared__ u32 staged[];
    u32 *p = reinterpret_cast<u32 *>(a.data);
    for (u64 i = threadIdx.x; i < a.count; i += Threads) staged[i] = p[i];
    __syncthreads();
    for (u64 i = threadIdx.x; i < a.count; i += Threads) p[i] = staged[a.count - 1 - i];
}

template <int Threads>
__global__ void __launch_bounds__(Threads) two_parameters(const Args a, u32 *p) {
    *p = a.value;
}

}  // namespace selftest
