// A parameter indexed at run time, a switch, and functions that are called.
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
struct Pair { float a; int b; };
__device__ __noinline__ float halve(float x, int n) { for (int i = 0; i < n; i++) x = x * 0.5f + 1; return x; }
__device__ __noinline__ Pair both(float x, int n) { Pair p; p.a = halve(x, n) + halve(x, 1); p.b = n + __float2int_rn(x); return p; }
extern "C" __global__ void calls(const float *a, float *b, int n) {
    int t = threadIdx.x;
    Pair p = {0, 0};
    if (t % 3) p = both(a[t], t % n);
    b[t] = p.a + p.b;
}
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void recursive(int *a, int n) { a[threadIdx.x] = fib(n); }
extern "C" __global__ void sines(const double *a, double *b) { b[threadIdx.x] = sin(a[threadIdx.x]) + pow(fabs(a[threadIdx.x]), 1.7); }
