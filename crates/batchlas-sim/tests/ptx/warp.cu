// Warp operations, atomics and odds and ends; each writes what the host can work out.
typedef unsigned int u32;
extern "C" __global__ void shuffles(int *out) {
    int l = threadIdx.x, v = 100 + l;
    out[l] = __shfl_sync(0xffffffffu, v, 5);
    out[32 + l] = __shfl_up_sync(0xffffffffu, v, 3);
    out[64 + l] = __shfl_down_sync(0xffffffffu, v, 3);
    out[96 + l] = __shfl_xor_sync(0xffffffffu, v, 7);
    out[128 + l] = __shfl_sync(0xffffffffu, v, 1, 8);
    out[160 + l] = __shfl_up_sync(0xffffffffu, v, 3, 8);
    out[192 + l] = __shfl_down_sync(0xffffffffu, v, 3, 8);
    out[224 + l] = __shfl_sync(0xffu << (l & 24), v, l + 1, 8);
}
extern "C" __global__ void votes(int *out) {
    int l = threadIdx.x;
    out[l] = __ballot_sync(0xffffffffu, l % 3 == 0);
    out[32 + l] = __any_sync(0xffffffffu, l == 31);
    out[64 + l] = __all_sync(0xffffffffu, l < 31);
    out[96 + l] = __match_any_sync(0xffffffffu, l % 4);
    int same; out[128 + l] = __match_all_sync(0xffffffffu, l / 32, &same); out[160 + l] = same;
    out[192 + l] = __reduce_add_sync(0xffffffffu, l);
    out[224 + l] = __reduce_max_sync(0xffffffffu, -l);
    if (l >= 8) out[256 + l] = __ballot_sync(0xffffff00u, l & 1); else out[256 + l] = __activemask();
}
extern "C" __global__ void atomics(int *out, float *sum, unsigned long long *big) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&out[0], t); atomicMax(&out[1], t); atomicMin(&out[2], -t); atomicOr((u32 *)&out[3], 1u << (t % 32));
    atomicAdd(sum, 0.5f); atomicAdd(big, 1ull << 33); atomicCAS(&out[4], 7, t); atomicExch(&out[5 + t], t); atomicInc((u32 *)&out[500], 9);
    __shared__ int block;
    if (threadIdx.x == 0) block = 0;
    __syncthreads();
    atomicAdd(&block, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&out[501], block);
    int any = __syncthreads_or(threadIdx.x == 3), all = __syncthreads_and(threadIdx.x == 3), odd = __syncthreads_count(threadIdx.x & 1);
    if (threadIdx.x == 0) atomicAdd(&out[502], any * 1000 + all * 100 + odd);
}
__constant__ int table[5] = {2, 3, 5, 7, 11};
struct Args { int n; double scale; int *out; char tail; };
extern "C" __global__ void arguments(Args a, char small, double x) {
    int local[16];
    for (int i = 0; i < 16; i++) local[i] = i * a.n;
    a.out[threadIdx.x] = local[(threadIdx.x * 7) % 16] + table[threadIdx.x % 5] + small + (int)(a.scale * x) + a.tail;
}
extern "C" __global__ void integers(const int *in, long long *out, int n) {
    int t = threadIdx.x, v = in[t];
    u32 u = v;
    out[t] = v / n; out[n + t] = v % n; out[2 * n + t] = __mulhi(v, 123456789); out[3 * n + t] = __popc(v); out[4 * n + t] = __clz(v);
    out[5 * n + t] = __brev(v); out[6 * n + t] = u / 7u; out[7 * n + t] = __byte_perm(v, n, 0x4321); out[8 * n + t] = __funnelshift_l(v, u * 3, t);
    out[9 * n + t] = (long long)v * v / 3; out[10 * n + t] = v >> (t % 40); out[11 * n + t] = __ffs(v); out[12 * n + t] = (signed char)v;
    out[13 * n + t] = min(v, 5) + max(v, -5) + abs(v); out[14 * n + t] = (long long)(v * 1e3f); out[15 * n + t] = (v ^ t) & ~n | (v << 2);
}
extern "C" __global__ void one_way(int *a, int n) {
    // The first warp produces and goes on; the second waits.
    __shared__ int s[32];
    int l = threadIdx.x % 32;
    if (threadIdx.x < 32) { s[l] = n + l; asm volatile("bar.arrive 1, 64;" ::: "memory"); }
    else { asm volatile("bar.sync 1, 64;" ::: "memory"); a[l] = s[31 - l]; }
}
// Threads that wait for another lane of their warp, and for another warp.
extern "C" __global__ void spin(volatile int *flag, int *out) {
    int t = threadIdx.x;
    if (t == 0) { while (flag[0] == 0); out[0] = 1; } else if (t == 1) { flag[0] = 1; }
    if (t == 2) { while (flag[1] == 0); out[1] = 1; } else if (t == 40) { flag[1] = 1; }
    if (t == 41) { while (flag[2] == 0); out[2] = 1; } else if (t == 3) { flag[2] = 1; }
}
