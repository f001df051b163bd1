// A parameter indexed at run time, and a branch table.
struct Table { int n; float w[8]; float *out; };
extern "C" __global__ void indexed(const __grid_constant__ Table p, int k) { p.out[threadIdx.x] = p.w[(threadIdx.x * k) & 7] * p.n; }
extern "C" __global__ void cases(const int *a, int *b, int n) {
    int v = a[threadIdx.x], r;
    switch (v) {
    case 0: r = n * 3; break;
    case 1: r = n ^ 77; b[32] = 1; break;
    case 2: r = n / 3; break;
    case 3: r = n - v; b[33] = 1; break;
    case 4: r = v * n; break;
    case 5: r = n % 7; b[34] = 1; break;
    case 6: r = n << 2; break;
    case 7: r = __popc(n); b[35] = 1; break;
    default: r = -1;
    }
    b[threadIdx.x] = r;
}
