// One wrapper per hardware instruction; nothing here knows about matrices.
//
// Device code uses no CUDA headers: this file is the only one that names compiler intrinsics or PTX. Arithmetic is spelled with its
// rounding mode, so that the compiler never contracts or reassociates it and every back end gives the same bits. Global memory is addressed by
// 64-bit integers; loads and stores are predicated inside the instruction, so that a masked lane costs no branch.
#pragma once
#include <batchlas/integers.cuh>

#define BATCHLAS_DEVICE __device__ __forceinline__

namespace batchlas {
namespace arch {

/// Threads in a warp.
constexpr int WARP = 32;

BATCHLAS_DEVICE int lane() { return static_cast<int>(threadIdx.x) % WARP; }
BATCHLAS_DEVICE int warp() { return static_cast<int>(threadIdx.x) / WARP; }
BATCHLAS_DEVICE u64 block() { return blockIdx.x; }

// Warp collectives: every lane of the warp arrives.

BATCHLAS_DEVICE void sync_warp() { __syncwarp(); }
/// Orders this thread's memory accesses as seen by its block; no load is moved past it.
BATCHLAS_DEVICE void fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }

/// A barrier of the whole block: every thread arrives; accesses before it are seen by every thread after it.
BATCHLAS_DEVICE void sync_block() { __syncthreads(); }

/// The value of lane `source` of the caller's group of `Width` lanes.
template <int Width> BATCHLAS_DEVICE float shuffle(float value, int source) { return __shfl_sync(0xffffffffu, value, source, Width); }
template <int Width> BATCHLAS_DEVICE double shuffle(double value, int source) { return __shfl_sync(0xffffffffu, value, source, Width); }

/// The value of the lane whose number differs in the bits of `mask`.
BATCHLAS_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
BATCHLAS_DEVICE double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

/// The same value under a name that the compiler cannot connect with the old one: what was derived from the old one (addresses, predicates) is then
/// computed again where it is needed instead of being held in registers in between. One shuffle per 32 bits.
BATCHLAS_DEVICE int renamed(int value) { return __shfl_sync(0xffffffffu, value, lane()); }
BATCHLAS_DEVICE u64 renamed(u64 value) { return __shfl_sync(0xffffffffu, value, lane()); }

/// `address` + `step`, as one addition that the compiler does not fold into others: a walk along a matrix keeps one running address instead of every
/// multiple of the step.
BATCHLAS_DEVICE u64 advance(u64 address, u64 step) {
  asm volatile("add.u64 %0, %0, %1;" : "+l"(address) : "l"(step));
  return address;
}

/// A point in a long block of code that the compiler moves no memory access across, so that neither what is loaded nor an address holds registers from far
/// above its use, and no store or load is put off. Synchronises nothing: it asks which lanes are here and does not look at the answer.
BATCHLAS_DEVICE void keep_order() { asm volatile("{.reg .b32 lanes; activemask.b32 lanes;}" ::: "memory"); }

/// This warp's number in its block, known by the compiler to be the same in all lanes: branches on it do not diverge.
BATCHLAS_DEVICE int uniform_warp() { return __shfl_sync(0xffffffffu, warp(), 0); }

/// The same value, which the compiler cannot connect with the old one.
BATCHLAS_DEVICE bool opaque(bool value) {
  int same = value;
  asm volatile("" : "+r"(same));
  return same != 0;
}

// Arithmetic, rounded to nearest even.

BATCHLAS_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
BATCHLAS_DEVICE double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
BATCHLAS_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
BATCHLAS_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
BATCHLAS_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
BATCHLAS_DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }

BATCHLAS_DEVICE float reciprocal(float x) { return __frcp_rn(x); }
BATCHLAS_DEVICE double reciprocal(double x) { return __drcp_rn(x); }
/// The natural logarithm, to 1 ulp.
BATCHLAS_DEVICE double log(double x) { return ::log(x); }
BATCHLAS_DEVICE double nan() { return __longlong_as_double(0x7ff8000000000000ll); }

/// 1 / sqrt(x) with a relative error of 2^-22 (f32) or about 2^-20 (f64); `x` positive, normal and finite.
BATCHLAS_DEVICE float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
BATCHLAS_DEVICE double rsqrt_approx(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
}

/// Whether `x` is a positive, normal and finite number: by its bits, so that a double takes no unit of double precision.
BATCHLAS_DEVICE bool positive_and_normal(float x) { return __float_as_uint(x) - 0x00800000u < 0x7f000000u; }
BATCHLAS_DEVICE bool positive_and_normal(double x) { return static_cast<u32>(__double2hiint(x)) - 0x00100000u < 0x7fe00000u; }

/// The least normal number, where `x` is not above it; what a NaN becomes is not said.
BATCHLAS_DEVICE float at_least_normal(float x) { return fmaxf(x, 1.17549435e-38f); }
BATCHLAS_DEVICE double at_least_normal(double x) { return __hiloint2double(max(__double2hiint(x), 0x00100000), __double2loint(x)); }

/// `x` moved into the range of the normal, finite, positive numbers; a NaN too ends inside it.
BATCHLAS_DEVICE float clamp_normal(float x) { return fminf(fmaxf(x, 1.17549435e-38f), 3.40282347e+38f); }
BATCHLAS_DEVICE double clamp_normal(double x) {
  const int high = min(max(__double2hiint(x), 0x00100000), 0x7fefffff);
  return __hiloint2double(high, __double2loint(x));
}

// Global memory: `if (active)` one access of 4, 8 or 16 bytes, naturally aligned. An inactive load leaves its destination as it was.

BATCHLAS_DEVICE u64 load_u64(bool active, u64 address, u64 otherwise) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u64 %0, [%1];}" : "+l"(otherwise) : "l"(address), "r"(static_cast<u32>(active)));
  return otherwise;
}
BATCHLAS_DEVICE i32 load_i32(u64 address) {
  i32 value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
BATCHLAS_DEVICE void load(bool active, u64 address, float &a) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.f32 %0, [%1];}" : "+f"(a) : "l"(address), "r"(static_cast<u32>(active)));
}
BATCHLAS_DEVICE void load(bool active, u64 address, float &a, float &b) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.f32 {%0, %1}, [%2];}"
               : "+f"(a), "+f"(b)
               : "l"(address), "r"(static_cast<u32>(active)));
}
BATCHLAS_DEVICE void load(bool active, u64 address, float &a, float &b, float &c, float &d) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
               : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
               : "l"(address), "r"(static_cast<u32>(active)));
}
BATCHLAS_DEVICE void load(bool active, u64 address, double &a) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.f64 %0, [%1];}" : "+d"(a) : "l"(address), "r"(static_cast<u32>(active)));
}
BATCHLAS_DEVICE void load(bool active, u64 address, double &a, double &b) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.f64 {%0, %1}, [%2];}"
               : "+d"(a), "+d"(b)
               : "l"(address), "r"(static_cast<u32>(active)));
}

BATCHLAS_DEVICE void store(bool active, u64 address, i32 a) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u32 [%0], %1;}" ::"l"(address), "r"(a), "r"(static_cast<u32>(active)) : "memory");
}
BATCHLAS_DEVICE void store(bool active, u64 address, float a) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.f32 [%0], %1;}" ::"l"(address), "f"(a), "r"(static_cast<u32>(active)) : "memory");
}
BATCHLAS_DEVICE void store(bool active, u64 address, float a, float b) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.f32 [%0], {%1, %2};}" ::"l"(address), "f"(a), "f"(b), "r"(static_cast<u32>(active))
               : "memory");
}
BATCHLAS_DEVICE void store(bool active, u64 address, float a, float b, float c, float d) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.f32 [%0], {%1, %2, %3, %4};}" ::"l"(address), "f"(a), "f"(b), "f"(c), "f"(d),
               "r"(static_cast<u32>(active))
               : "memory");
}
BATCHLAS_DEVICE void store(bool active, u64 address, double a) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.f64 [%0], %1;}" ::"l"(address), "d"(a), "r"(static_cast<u32>(active)) : "memory");
}
BATCHLAS_DEVICE void store(bool active, u64 address, double a, double b) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.f64 [%0], {%1, %2};}" ::"l"(address), "d"(a), "d"(b), "r"(static_cast<u32>(active))
               : "memory");
}

/// Brings the 64 bytes around an address into the L2 cache, if nothing else has.
BATCHLAS_DEVICE void prefetch(u64 address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Asynchronous copies from global to shared memory: `if (active)` one of 4, 8 or 16 bytes, naturally aligned on both sides. The data are the copying
// thread's after `wait_async`, and other threads' after a barrier that follows.

template <int Bytes> BATCHLAS_DEVICE void copy_async(bool active, void *shared, u64 global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
  if constexpr (Bytes == 16) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(to), "l"(global), "r"(static_cast<u32>(active))
                 : "memory");
  } else {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3;}" ::"r"(to), "l"(global), "r"(static_cast<u32>(active)),
                 "n"(Bytes)
                 : "memory");
  }
}
/// The same to a `shared_address`; `if (!active)` zeros are written and nothing is read.
template <int Bytes> BATCHLAS_DEVICE void copy_async_or_zero(bool active, u32 shared, u64 global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(active ? Bytes : 0) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(shared), "l"(global), "r"(active ? Bytes : 0), "n"(Bytes) : "memory");
  }
}
/// The same of 16 bytes of which only the first `bytes` are read; zeros are written for the rest.
BATCHLAS_DEVICE void copy_async_start(u32 bytes, u32 shared, u64 global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
/// An address in shared memory as the instructions take it.
BATCHLAS_DEVICE u32 shared_address(const void *pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }
/// The same pointer into shared memory, whose address the compiler holds instead of forming it anew, by a special register, after every barrier.
template <class T> BATCHLAS_DEVICE T *held_shared(T *pointer) {
  u32 address = shared_address(pointer);
  asm volatile("" : "+r"(address));
  return static_cast<T *>(__cvta_shared_to_generic(address));
}
/// Closes the group of this thread's copies since the last call.
BATCHLAS_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Pending` of this thread's groups are under way.
template <int Pending> BATCHLAS_DEVICE void wait_async() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

// Tensor cores, f64: C += A B by one warp. With g = lane / 4 and t = lane % 4, a lane holds C(g, 2t), C(g, 2t + 1), C(g + 8, 2t), C(g + 8, 2t + 1).

/// A 8 x 4: a lane holds A(g, t); B 4 x 8: B(t, g); C 8 x 8 as the upper half of the above. Half the rate of the larger one on sm_90.
BATCHLAS_DEVICE void mma_8x8x4(double (&c)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

/// A 16 x 8: a lane holds A(g, t), A(g + 8, t), A(g, t + 4), A(g + 8, t + 4); B 8 x 8: B(t, g), B(t + 4, g). Before sm_90 two rows of 8 x 8 x 4.
BATCHLAS_DEVICE void mma_16x8x8(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
  for (int k = 0; k < 2; k++) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(c[2 * row]), "+d"(c[2 * row + 1])
          : "d"(a[2 * k + row]), "d"(b[k]));
    }
  }
#endif
}
/// The same in f32, of whose elements of A and B the upper 19 bits take part (TF32: 11 bits of precision); sums are f32.
BATCHLAS_DEVICE void mma_16x8x8(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])),
        "r"(__float_as_uint(b[1])));
}
/// `x` rounded to the precision of TF32, ties away from zero.
BATCHLAS_DEVICE float round_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }

} // namespace arch
} // namespace batchlas
