// For every check a kernel that trips it (`bad_`) and the same kernel put right (`good_`). n is the block size.
typedef unsigned int u32;
__device__ inline void copy4(int *to, const int *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// One element past the end.
extern "C" __global__ void bad_bounds(int *a, int n) { a[threadIdx.x + 1] = n; }
extern "C" __global__ void good_bounds(int *a, int n) { if (threadIdx.x + 1 < n) a[threadIdx.x + 1] = n; }
// Past the end of a static shared array that has a neighbour.
extern "C" __global__ void bad_shared_bounds(int *a, int n) {
    __shared__ int s[64], t[64];
    t[threadIdx.x] = 1; s[threadIdx.x + 1] = n; __syncthreads(); a[threadIdx.x] = s[(threadIdx.x + 1) % n + n / 64 - 1 + (threadIdx.x + 1 == n)] + t[threadIdx.x];
}
extern "C" __global__ void good_shared_bounds(int *a, int n) {
    __shared__ int s[64], t[64];
    t[threadIdx.x] = 1; s[threadIdx.x] = n; __syncthreads(); a[threadIdx.x] = s[(threadIdx.x + 1) % n] + t[threadIdx.x];
}
// A vector load at an odd element.
extern "C" __global__ void bad_aligned(int *a, int n) { int2 v = *(int2 *)(a + (n & 1)); a[threadIdx.x + 4] = v.x + v.y; }
extern "C" __global__ void good_aligned(int *a, int n) { int2 v = *(int2 *)(a + (n & 2)); a[threadIdx.x + 4] = v.x + v.y; }
extern "C" __global__ void bad_shared_aligned(int *a, int n) {
    __shared__ __align__(8) int s[64];
    s[threadIdx.x] = n; __syncthreads(); int2 v = *(int2 *)(s + (n & 1)); a[threadIdx.x + 4] = v.x + v.y;
}
extern "C" __global__ void good_shared_aligned(int *a, int n) {
    __shared__ __align__(8) int s[64];
    s[threadIdx.x] = n; __syncthreads(); int2 v = *(int2 *)(s + (n & 2)); a[threadIdx.x + 4] = v.x + v.y;
}
extern "C" __global__ void bad_local_aligned(int *a, int n) { __align__(8) int v[8]; for (int i = 0; i < 8; i++) v[i] = i; v[n & 3] = n; int2 w = *(int2 *)(v + (n & 1)); a[threadIdx.x + 4] = w.x + w.y; }
extern "C" __global__ void good_local_aligned(int *a, int n) { __align__(8) int v[8]; for (int i = 0; i < 8; i++) v[i] = i; v[n & 3] = n; int2 w = *(int2 *)(v + (n & 2)); a[threadIdx.x + 4] = w.x + w.y; }
// Past the end of a thread's own array.
extern "C" __global__ void bad_local_bounds(int *a, int n) { int v[8]; for (int i = 0; i < 8; i++) v[i] = i; v[n & 3] = n; a[threadIdx.x] = v[n - 56]; }
extern "C" __global__ void good_local_bounds(int *a, int n) { int v[8]; for (int i = 0; i < 8; i++) v[i] = i; v[n & 3] = n; a[threadIdx.x] = v[n - 57]; }
// Reads what nobody wrote: global, shared and local memory.
extern "C" __global__ void bad_uninitialised(int *a, int n) { a[threadIdx.x] = a[threadIdx.x + n] + 1; }
extern "C" __global__ void good_uninitialised(int *a, int n) { a[threadIdx.x + n] = 1; a[threadIdx.x] = a[threadIdx.x + n] + 1; }
extern "C" __global__ void bad_shared_uninitialised(int *a, int n) {
    __shared__ int s[64];
    if (threadIdx.x) s[threadIdx.x] = n; __syncthreads(); a[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void good_shared_uninitialised(int *a, int n) {
    __shared__ int s[64];
    s[threadIdx.x] = n; __syncthreads(); a[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void bad_local_uninitialised(int *a, int n) { int v[8]; v[n & 3] = n; v[(n & 3) + 1] = 2; a[threadIdx.x] = v[threadIdx.x & 7]; }
extern "C" __global__ void good_local_uninitialised(int *a, int n) { int v[8]; for (int i = 0; i < 8; i++) v[i] = i; v[n & 3] = n; a[threadIdx.x] = v[threadIdx.x & 7]; }
// Writes the protected lower half, reads the protected upper half (the host says which).
extern "C" __global__ void bad_read_only(int *a, int n) { a[threadIdx.x] = n; }
extern "C" __global__ void good_read_only(int *a, int n) { if (threadIdx.x >= n / 2) a[threadIdx.x] = n; }
extern "C" __global__ void bad_forbidden(const int *a, int n, int *b) { b[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void good_forbidden(const int *a, int n, int *b) { b[threadIdx.x] = threadIdx.x < n / 2 ? a[threadIdx.x] : 0; }
// Races: between warps, inside a warp in lock step, between blocks, write after read.
extern "C" __global__ void bad_race(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; a[threadIdx.x] = s[n - 1 - threadIdx.x]; }
extern "C" __global__ void good_race(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncthreads(); a[threadIdx.x] = s[n - 1 - threadIdx.x]; }
extern "C" __global__ void bad_warp_race(int *a, int n) { __shared__ volatile int s[64]; int *p = (int *)s; p[threadIdx.x] = n; a[threadIdx.x] = p[threadIdx.x ^ 1]; }
extern "C" __global__ void good_warp_race(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncwarp(); a[threadIdx.x] = s[threadIdx.x ^ 1]; }
extern "C" __global__ void bad_warp_scope(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncwarp(); a[threadIdx.x] = s[threadIdx.x ^ 32]; }
extern "C" __global__ void good_warp_scope(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncthreads(); a[threadIdx.x] = s[threadIdx.x ^ 32]; }
extern "C" __global__ void bad_mask_scope(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncwarp(0xffu << (threadIdx.x & 24)); a[threadIdx.x] = s[threadIdx.x ^ 8]; }
extern "C" __global__ void good_mask_scope(int *a, int n) { __shared__ int s[64]; s[threadIdx.x] = n; __syncwarp(0xffu << (threadIdx.x & 24)); a[threadIdx.x] = s[threadIdx.x ^ 4]; }
extern "C" __global__ void bad_block_race(int *a, int n) { if (threadIdx.x == 0) *a += n; }
extern "C" __global__ void good_block_race(int *a, int n) { if (threadIdx.x == 0) atomicAdd(a, n); }
extern "C" __global__ void bad_reuse(int *a, int n) {
    __shared__ int s[64];
    for (int k = 0; k < 3; k++) { s[threadIdx.x] = k; __syncthreads(); a[threadIdx.x] = s[n - 1 - threadIdx.x]; }
}
extern "C" __global__ void good_reuse(int *a, int n) {
    __shared__ int s[64];
    for (int k = 0; k < 3; k++) { s[threadIdx.x] = k; __syncthreads(); a[threadIdx.x] = s[n - 1 - threadIdx.x]; __syncthreads(); }
}
// Asynchronous copies: no wait; waiting for the wrong group; waiting but no barrier.
extern "C" __global__ void bad_async(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.commit_group;"); __syncthreads(); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void good_async(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory"); __syncthreads(); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void bad_async_group(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.commit_group;\n cp.async.wait_group 1;" ::: "memory"); __syncthreads(); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void good_async_group(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.commit_group;\n cp.async.commit_group;\n cp.async.wait_group 1;" ::: "memory"); __syncthreads(); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void bad_async_barrier(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.wait_all;" ::: "memory"); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void good_async_barrier(const int *a, int n, int *b) {
    __shared__ int s[64];
    copy4(&s[threadIdx.x], a + threadIdx.x); asm volatile("cp.async.wait_all;" ::: "memory"); __syncthreads(); b[threadIdx.x] = s[n - 1 - threadIdx.x];
}
// The compiler is promised that x is not written.
extern "C" __global__ void bad_non_coherent(const int *a, int n, int *b) {
    int v; asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(a + threadIdx.x)); ((int *)a)[threadIdx.x] = v + n; b[threadIdx.x] = v;
}
extern "C" __global__ void good_non_coherent(const int *a, int n, int *b) {
    int v; asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(a + threadIdx.x)); b[threadIdx.x] = v + n;
}
// A barrier that half of a warp reaches at another place; one that only some warps reach.
extern "C" __global__ void bad_divergent(int *a, int n) {
    if (threadIdx.x & 1) { a[threadIdx.x] = n; asm volatile("bar.sync 0;" ::: "memory"); } else { asm volatile("bar.sync 0;" ::: "memory"); a[threadIdx.x] = 2 * n; }
}
extern "C" __global__ void good_divergent(int *a, int n) { if (threadIdx.x & 1) a[threadIdx.x] = n; __syncthreads(); if (!(threadIdx.x & 1)) a[threadIdx.x] = 2 * n; }
extern "C" __global__ void bad_deadlock(int *a, int n) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1;" ::: "memory"); else asm volatile("bar.sync 2;" ::: "memory"); a[threadIdx.x] = n;
}
extern "C" __global__ void good_deadlock(int *a, int n) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 32;" ::: "memory"); else asm volatile("bar.sync 2, 32;" ::: "memory"); a[threadIdx.x] = n;
}
// A shuffle inside a branch, naming lanes that do not come; one that names lanes that have left.
extern "C" __global__ void bad_collective(int *a, int n) { int v = threadIdx.x; if (threadIdx.x % 32 < n / 4) v = __shfl_sync(0xffffffffu, v, 0); __syncwarp(); a[threadIdx.x] = v; }
extern "C" __global__ void good_collective(int *a, int n) { int v = threadIdx.x, w = __shfl_sync(0xffffffffu, v, 0); if (threadIdx.x % 32 < n / 4) v = w; a[threadIdx.x] = v; }
extern "C" __global__ void bad_departed(int *a, int n) { if (threadIdx.x % 32 >= n / 4) return; a[threadIdx.x] = __shfl_sync(0xffffffffu, n, 3); }
extern "C" __global__ void good_departed(int *a, int n) { int v = __shfl_sync(0xffffffffu, n, 3); if (threadIdx.x % 32 >= n / 4) return; a[threadIdx.x] = v; }
// Never ends, unless n is 0.
extern "C" __global__ void bad_budget(volatile int *a, int n) { while (a[threadIdx.x] != -n) a[threadIdx.x] = n; }
extern "C" __global__ void good_budget(volatile int *a, int n) { for (int i = 0; i < n; i++) a[threadIdx.x] = n; }
extern "C" __global__ void bad_trap(int *a, int n) { if (threadIdx.x == n - 1) __trap(); a[threadIdx.x] = n; }
extern "C" __global__ void good_trap(int *a, int n) { if (threadIdx.x == n) __trap(); a[threadIdx.x] = n; }
