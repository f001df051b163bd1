// Cholesky factorisation of matrices in registers: lane l holds row l, column broadcasts are shuffles.
__device__ inline float root(float x) { return sqrtf(x); }
__device__ inline double root(double x) { return sqrt(x); }
__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }
__device__ inline float spread(float v, int from) { return __shfl_sync(0xffffffffu, v, from); }
__device__ inline double spread(double v, int from) { return __shfl_sync(0xffffffffu, v, from); }

template <class T, int N>
__device__ void factor(T *a, int ld, long long stride, int *info, int batch) {
    int lane = threadIdx.x % 32;
    int item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    bool live = item < batch;
    T *p = a + (live ? item : 0) * stride;
    T row[N];
#pragma unroll
    for (int c = 0; c < N; c++) row[c] = live && lane >= c && lane < N ? p[(long long)c * ld + lane] : T(lane == c);
    int bad = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
        T pivot = spread(row[j], j);
        bool ok = pivot > T(0);
        if (!ok && bad == 0) bad = j + 1;
        T inverse = T(1) / root(ok ? pivot : T(1));
        row[j] = row[j] * inverse;
#pragma unroll
        for (int k = j + 1; k < N; k++) row[k] = fused(-row[j], spread(row[j], k), row[k]);
    }
#pragma unroll
    for (int c = 0; c < N; c++)
        if (live && lane >= c && lane < N) p[(long long)c * ld + lane] = row[c];
    if (live && lane == 0) info[item] = bad;
}

extern "C" __global__ void __launch_bounds__(64) potrf_f32(float *a, int ld, long long stride, int *info, int batch) {
    factor<float, 16>(a, ld, stride, info, batch);
}
extern "C" __global__ void __launch_bounds__(64) potrf_f64(double *a, int ld, long long stride, int *info, int batch) {
    factor<double, 16>(a, ld, stride, info, batch);
}
