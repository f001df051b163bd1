// C = A B, column-major, 32 x 32 tiles, two stages filled by asynchronous copies.
__device__ inline void copy16(float *to, const float *from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

extern "C" __global__ void __launch_bounds__(256) gemm_async(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) float ta[2][32 * 32];
    __shared__ __align__(16) float tb[2][32 * 32];
    int i0 = blockIdx.x * 32, j0 = blockIdx.y * 32, t = threadIdx.x;
    int row = t % 8 * 4, col = t / 8;
    auto fill = [&](int stage, int k0) {
        copy16(&ta[stage][col * 32 + row], a + (long long)(k0 + col) * m + i0 + row);
        copy16(&tb[stage][col * 32 + row], b + (long long)(j0 + col) * k + k0 + row);
        commit();
    };
    float acc[4] = {0, 0, 0, 0};
    int i = t % 32, j = t / 32 * 4;
    fill(0, 0);
    for (int k0 = 0; k0 < k; k0 += 32) {
        int stage = k0 / 32 % 2;
        if (k0 + 32 < k) {
            fill(stage ^ 1, k0 + 32);
            wait<1>();
        } else {
            wait<0>();
        }
        __syncthreads();
        for (int p = 0; p < 32; p++)
            for (int q = 0; q < 4; q++) acc[q] = fmaf(ta[stage][p * 32 + i], tb[stage][(j + q) * 32 + p], acc[q]);
        __syncthreads();
    }
    for (int q = 0; q < 4; q++) c[(long long)(j0 + j + q) * m + i0 + i] = acc[q];
}
