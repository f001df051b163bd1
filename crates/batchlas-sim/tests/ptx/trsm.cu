// L X = B in shared memory: L and B are staged, each column of the solution is broadcast through barriers.
extern "C" __global__ void trsm_shared(const float *__restrict__ l, float *__restrict__ b, int n, int q) {
    extern __shared__ float tile[];
    float *tri = tile, *rhs = tile + n * n;
    const float *lp = l + (long long)blockIdx.x * n * n;
    float *bp = b + (long long)blockIdx.x * n * q;
    for (int e = threadIdx.x; e < n * n; e += blockDim.x)
        if (e % n >= e / n) tri[e] = lp[e];
    for (int e = threadIdx.x; e < n * q; e += blockDim.x) rhs[e] = bp[e];
    __syncthreads();
    for (int k = 0; k < n; k++) {
        for (int j = threadIdx.x; j < q; j += blockDim.x) rhs[k + j * n] = rhs[k + j * n] / tri[k + k * n];
        __syncthreads();
        for (int e = threadIdx.x; e < n * q; e += blockDim.x) {
            int i = e % n, j = e / n;
            if (i > k) rhs[i + j * n] = fmaf(-tri[i + k * n], rhs[k + j * n], rhs[i + j * n]);
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < n * q; e += blockDim.x) bp[e] = rhs[e];
}
