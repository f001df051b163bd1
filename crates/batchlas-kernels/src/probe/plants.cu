// Kernels that break one rule each. The probe compiles them on every run and must refuse them.

namespace plants {

// Keeps every rule.
template <int Threads>
__global__ void __launch_bounds__(Threads) clean(float *p) {
    const int i = blockIdx.x * Threads + threadIdx.x;
    p[i] = p[i] * 2.0f;
}

// More live values than 1024 threads have registers for. All indices are constants after unrolling, so what does not
// fit is spilled.
template <int Values>
__global__ void __launch_bounds__(1024) spiller(float *p) {
    float v[Values];
#pragma unroll
    for (int i = 0; i < Values; ++i) v[i] = p[i * 1024 + threadIdx.x];
    for (int step = 0; step < Values; ++step) {
#pragma unroll
        for (int i = 0; i < Values; ++i) v[i] = v[i] * v[(i + 1) % Values] + v[(i + 7) % Values];
    }
#pragma unroll
    for (int i = 0; i < Values; ++i) p[i * 1024 + threadIdx.x] = v[i];
}

// An array that is indexed by data, and so has to live in memory. There is no spill.
template <int Values>
__global__ void framed(float *p, int steps) {
    float v[Values];
    for (int i = 0; i < Values; ++i) v[i] = p[i];
    for (int i = 0; i < steps; ++i) v[int(p[i]) & (Values - 1)] += 1.0f;
    float sum = 0.0f;
    for (int i = 0; i < Values; ++i) sum += v[i] * float(i);
    p[0] = sum;
}

// Straight-line code, by halving so that no limit on loop unrolling applies.
template <int Steps>
__device__ __forceinline__ float chain(float v) {
    if constexpr (Steps == 1) {
        return fmaf(v, v, 1.0f);
    } else {
        return chain<Steps - Steps / 2>(chain<Steps / 2>(v));
    }
}

template <int Steps>
__global__ void oversize(float *p) {
    p[threadIdx.x] = chain<Steps>(p[threadIdx.x]);
}

#ifdef PLANT_UNASKED
// Not a template, so it is compiled, and reported, without having been asked for.
__global__ void unasked() {}
#endif

}  // namespace plants
