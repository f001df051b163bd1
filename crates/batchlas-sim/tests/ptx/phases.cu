// Barriers in shared memory: bulk copies, tracked copies, and arrivals with tokens. 64 threads.
typedef unsigned int u32;
typedef unsigned long long u64;
__device__ inline u32 at(void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ inline void init(u64 *b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ inline void wait(u64 *b, u32 parity) {
    asm volatile("{\n.reg .pred p;\nW_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W_%=;\n}" ::"r"(at(b)), "r"(parity) : "memory");
}
__device__ inline void bulk(void *to, const void *from, int bytes, u64 *b) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(b)) : "memory");
}
__device__ inline void copy4(int *to, const int *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(to)), "l"(from) : "memory");
}

extern "C" __global__ void bulk_stream(const int *a, int *b, int tiles) {
    __shared__ __align__(16) int s[2][64];
    __shared__ u64 full[2];
    int t = threadIdx.x;
    if (t == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (t == 0) bulk(s[0], a, 256, &full[0]);
    for (int i = 0; i < tiles; i++) {
        int stage = i & 1;
        if (t == 0 && i + 1 < tiles) bulk(s[stage ^ 1], a + (i + 1) * 64, 256, &full[stage ^ 1]);
        wait(&full[stage], i >> 1 & 1);
        b[i * 64 + t] = s[stage][63 - t];
        __syncthreads();
    }
}

extern "C" __global__ void tracked(const int *a, int *b, int tiles) {
    __shared__ int s[64];
    __shared__ u64 full;
    int t = threadIdx.x;
    if (t == 0) init(&full, 64);
    __syncthreads();
    for (int i = 0; i < tiles; i++) {
        copy4(&s[t], a + i * 64 + t);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(&full)) : "memory");
        wait(&full, i & 1);
        b[i * 64 + t] = s[63 - t];
        __syncthreads();
    }
}

extern "C" __global__ void tokens(const int *a, int *b, int tiles) {
    __shared__ int s[64];
    __shared__ u64 bar;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 64);
    __syncthreads();
    for (int i = 0; i < 2 * tiles; i++) {
        if (i % 2 == 0) s[t] = a[i / 2 * 64 + t]; else b[i / 2 * 64 + t] = s[63 - t];
        u64 token;
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(at(&bar)) : "memory");
        asm volatile("{\n.reg .pred p;\nT_%=:\nmbarrier.test_wait.shared::cta.b64 p, [%0], %1;\n@!p bra T_%=;\n}" ::"r"(at(&bar)), "l"(token) : "memory");
    }
}
