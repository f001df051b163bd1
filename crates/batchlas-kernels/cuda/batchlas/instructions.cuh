// Further wrappers, one per hardware instruction, for products of packed operands: what arch.cuh is for the rest of the device code.
#pragma once
#include <batchlas/arch.cuh>

namespace batchlas {

/// 16 bytes that one access moves.
struct alignas(16) Quad {
  u32 at[4];
};

namespace arch {

BATCHLAS_DEVICE int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
BATCHLAS_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
/// The nearest integer, ties to even.
BATCHLAS_DEVICE int nearest_int(float x) { return __float2int_rn(x); }
BATCHLAS_DEVICE float from_half(u32 bits) {
  float x;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(x) : "r"(bits));
  return x;
}
/// Two numbers rounded to bfloat16, ties to even, the first in the lower half.
BATCHLAS_DEVICE u32 pack_bf16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Global memory, unconditionally; addresses aligned to the access.

BATCHLAS_DEVICE Quad load_quad(u64 address) {
  Quad q;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(q.at[0]), "=r"(q.at[1]), "=r"(q.at[2]), "=r"(q.at[3]) : "l"(address));
  return q;
}
BATCHLAS_DEVICE u32 load_word(u64 address) {
  u32 value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(address));
  return value;
}
BATCHLAS_DEVICE void load_pair(u64 address, float &a, float &b) {
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "l"(address));
}
BATCHLAS_DEVICE void store_word(u64 address, u32 value) { asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory"); }

// Exchange between the blocks of a launch. What a block has stored with `store_strong` before `fence_device` and an arrival, a block that sees the
// arrival and then passes `fence_device` loads with `load_strong`.

BATCHLAS_DEVICE void store_strong(u64 address, const float (&x)[4]) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
BATCHLAS_DEVICE void load_strong(u64 address, float (&x)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "l"(address) : "memory");
}
BATCHLAS_DEVICE void store_strong(u64 address, u32 value) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory"); }
/// Adds one and returns what was there.
BATCHLAS_DEVICE u32 arrive_strong(u64 address) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(address) : "memory");
  return before;
}
BATCHLAS_DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Tensor cores. Lane (g, t) = (lane / 4, lane % 4) holds C(g, 2t), C(g, 2t + 1), C(g + 8, 2t), C(g + 8, 2t + 1).

/// Four 8 x 16-byte matrices: lane 8 i + r gives the address of row r of matrix i, and register i receives bytes 4 t .. 4 t + 3 of row g of matrix i.
BATCHLAS_DEVICE void load_matrices(u32 (&r)[4], u32 shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared));
}
/// D = A B + `start` in every element; A 16 x 32 of signed bytes, B 32 x 8 of unsigned ones. A lane holds bytes A(g, 4t ..), A(g + 8, 4t ..),
/// A(g, 16 + 4t ..), A(g + 8, 16 + 4t ..) and B(4t .., g), B(16 + 4t .., g).
BATCHLAS_DEVICE void mma_s8_u8(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, i32 start) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
/// The same with A unsigned and B signed.
BATCHLAS_DEVICE void mma_u8_s8(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, i32 start) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
/// C += A B in bfloat16, sums in f32; A 16 x 16, B 16 x 8, two elements a register: as above with pairs in place of fours.
BATCHLAS_DEVICE void mma_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// C += A B of f32 of whose elements the upper 19 bits take part; A 16 x 4: A(g, t), A(g + 8, t); B 4 x 8: B(t, g).
BATCHLAS_DEVICE void mma_16x8x4(float (&c)[4], float a0, float a1, float b) {
  asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(b)));
}

// Bulk copies from global to shared memory, by one thread, that complete on a barrier in shared memory (sm_90 and later).

BATCHLAS_DEVICE void barrier_init(u32 barrier, u32 arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
/// Makes initialised barriers known to bulk copies; a barrier of the block follows.
BATCHLAS_DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory"); }
/// Arrives, and announces copies of this many bytes.
BATCHLAS_DEVICE void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Waits for the end of the phase of this parity.
BATCHLAS_DEVICE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile("{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again;}" ::"r"(barrier), "r"(parity) : "memory");
}
/// Copies a multiple of 16 bytes between addresses aligned to 16.
BATCHLAS_DEVICE void copy_bulk(u32 shared, u64 global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

} // namespace arch
} // namespace batchlas
