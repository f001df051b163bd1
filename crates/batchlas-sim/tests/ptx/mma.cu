// One warp, D = A B + C with A row-major m x k, B column-major k x 8, C and D row-major m x 8.
typedef unsigned int u32;
#define LANE int l = threadIdx.x, g = l / 4, t = l % 4

template <int K> __device__ void f64_fragments(const double *a, const double *b, const double *c, double *ra, double *rb, double *rc) {
    LANE;
    for (int r = 0; r < K / 2; r++) ra[r] = a[(g + 8 * (r % 2)) * K + 4 * (r / 2) + t];
    for (int r = 0; r < K / 4; r++) rb[r] = b[g * K + 4 * r + t];
    for (int r = 0; r < 4; r++) rc[r] = c[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2];
}
__device__ void f64_store(double *d, const double *rc, int n) {
    LANE;
    for (int r = 0; r < n; r++) d[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2] = rc[r];
}
extern "C" __global__ void mma_f64_m8n8k4(const double *a, const double *b, const double *c, double *d) {
    LANE;
    double ra = a[g * 4 + t], rb = b[g * 4 + t], rc[2] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1]};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(rc[0]), "+d"(rc[1]) : "d"(ra), "d"(rb));
    f64_store(d, rc, 2);
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void mma_f64_m16n8k8(const double *a, const double *b, const double *c, double *d) {
    double ra[4], rb[2], rc[4];
    f64_fragments<8>(a, b, c, ra, rb, rc);
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+d"(rc[0]), "+d"(rc[1]), "+d"(rc[2]), "+d"(rc[3]) : "d"(ra[0]), "d"(ra[1]), "d"(ra[2]), "d"(ra[3]), "d"(rb[0]), "d"(rb[1]));
    f64_store(d, rc, 4);
}
extern "C" __global__ void mma_f64_m16n8k16(const double *a, const double *b, const double *c, double *d) {
    double ra[8], rb[4], rc[4];
    f64_fragments<16>(a, b, c, ra, rb, rc);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
                 : "+d"(rc[0]), "+d"(rc[1]), "+d"(rc[2]), "+d"(rc[3])
                 : "d"(ra[0]), "d"(ra[1]), "d"(ra[2]), "d"(ra[3]), "d"(ra[4]), "d"(ra[5]), "d"(ra[6]), "d"(ra[7]), "d"(rb[0]), "d"(rb[1]), "d"(rb[2]), "d"(rb[3]));
    f64_store(d, rc, 4);
}
#endif
// bf16 operands come through shared memory and ldmatrix; B is stored row-major (k x 8) and transposed by the load.
extern "C" __global__ void mma_bf16_m16n8k16(const u32 *a, const u32 *b, const float *c, float *d) {
    __shared__ __align__(16) u32 sa[16 * 8], sb[16 * 4];
    LANE;
    for (int e = l; e < 128; e += 32) sa[e] = a[e];
    for (int e = l; e < 64; e += 32) sb[e] = b[e];
    __syncwarp();
    u32 ra[4], rb[2];
    u32 pa = (u32)__cvta_generic_to_shared(&sa[(l % 16) * 8 + l / 16 * 4]), pb = (u32)__cvta_generic_to_shared(&sb[(l % 16) * 4]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    float rc[4];
    for (int r = 0; r < 4; r++) rc[r] = c[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(rc[0]), "+f"(rc[1]), "+f"(rc[2]), "+f"(rc[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2] = rc[r];
}
extern "C" __global__ void mma_tf32_m16n8k8(const float *a, const float *b, const float *c, float *d) {
    LANE;
    u32 ra[4], rb[2];
    for (int r = 0; r < 4; r++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(ra[r]) : "f"(a[(g + 8 * (r % 2)) * 8 + 4 * (r / 2) + t]));
    for (int r = 0; r < 2; r++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[r]) : "f"(b[g * 8 + 4 * r + t]));
    float rc[4];
    for (int r = 0; r < 4; r++) rc[r] = c[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(rc[0]), "+f"(rc[1]), "+f"(rc[2]), "+f"(rc[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2] = rc[r];
}
extern "C" __global__ void mma_s8_m16n8k32(const u32 *a, const u32 *b, const int *c, int *d) {
    LANE;
    u32 ra[4], rb[2];
    int rc[4];
    for (int r = 0; r < 4; r++) ra[r] = a[(g + 8 * (r % 2)) * 8 + 4 * (r / 2) + t];
    for (int r = 0; r < 2; r++) rb[r] = b[g * 8 + 4 * r + t];
    for (int r = 0; r < 4; r++) rc[r] = c[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(rc[0]), "+r"(rc[1]), "+r"(rc[2]), "+r"(rc[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int r = 0; r < 4; r++) d[(g + 8 * (r / 2)) * 8 + 2 * t + r % 2] = rc[r];
}
