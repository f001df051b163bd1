//! Vectors: what a kernel may ask of an instruction set.
//!
//! Lanes are items of a batch, or consecutive numbers of one matrix: arithmetic, the pivot test, the transposition that
//! brings items into lanes and back, and masked access to a line.
//!
//! Every method is `unsafe` for one reason, stated here once: it must be inlined into a function that was compiled for the
//! vector's instruction set and runs on a CPU that has it (`isa.rs` is the only caller from outside). A closure is a function
//! of its own without those instructions: none may stand between a kernel and its vectors. Methods that take
//! pointers also need what is under the mask to be readable or writable; nothing else is touched.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

use batchlas_core::Real;

use crate::plan::Chunk;

/// Most lanes of a group: a 512-bit register of f32.
pub(crate) const MAX_LANES: usize = 16;

/// Bits of the first `count` lanes.
pub(crate) const fn low_bits(count: usize) -> u32 {
    if count >= 32 { u32::MAX } else { (1 << count) - 1 }
}

/// A vector: one register.
pub(crate) trait Vector: Copy {
    /// The real type.
    type Real: Real;
    /// Its reals.
    const LANES: usize;
    /// Whether 32 registers are there for tiles; otherwise 16.
    const WIDE: bool;

    unsafe fn splat(x: Self::Real) -> Self;
    /// `self * b + c`.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// `c - self * b`.
    unsafe fn fnma(self, b: Self, c: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    unsafe fn sqrt(self) -> Self;
    /// The larger modulus.
    unsafe fn larger(self, b: Self) -> Self;
    /// The sum of its reals.
    unsafe fn sum(self) -> Self::Real;
    /// Lanes that are positive and finite; NaN is neither.
    unsafe fn positive_finite(self) -> u32;
    /// Lanes outside `mask` become one.
    unsafe fn or_one(self, mask: u32) -> Self;
    /// Reads a chunk of every item and stores its reals, one vector each, to their slots. `items`: one address per lane.
    unsafe fn pack(items: *const *mut Self::Real, chunk: &Chunk, scratch: *mut Self);
    /// The inverse, for the items of `lanes`.
    unsafe fn unpack(items: *const *mut Self::Real, lanes: u32, chunk: &Chunk, scratch: *const Self);
    /// Reals outside `mask` are not read and become zero.
    unsafe fn load(p: *const Self::Real, mask: u32) -> Self;
    /// Reals outside `mask` are not written.
    unsafe fn store(self, p: *mut Self::Real, mask: u32);
    /// Real and imaginary parts change places.
    unsafe fn swap(self) -> Self;
    /// `self + b` in real parts, `self - b` in imaginary ones.
    unsafe fn add_sub(self, b: Self) -> Self;
    /// Interleaved complex numbers times `re + im i`, given as two splats.
    unsafe fn mul_complex(self, re: Self, im: Self) -> Self;
}

/// A plain array that the compiler vectorises for whatever the target has: the portable path.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Array<R, const L: usize>([R; L]);

/// Whether the target multiplies and adds in one instruction without being asked.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl<R: Real, const L: usize> Array<R, L> {
    #[inline(always)]
    fn map(self, b: Self, c: Self, f: impl Fn(R, R, R) -> R) -> Self {
        Array(std::array::from_fn(|l| f(self.0[l], b.0[l], c.0[l])))
    }
    #[inline(always)]
    fn bits(self, f: impl Fn(R) -> bool) -> u32 {
        (0..L).fold(0, |bits, l| bits | u32::from(f(self.0[l])) << l)
    }
}

impl<R: Real, const L: usize> Vector for Array<R, L> {
    type Real = R;
    const LANES: usize = L;
    const WIDE: bool = false;

    #[inline(always)]
    unsafe fn splat(x: R) -> Self {
        Array([x; L])
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        self.map(b, c, |a, b, c| if FUSED { a.mul_add(b, c) } else { c + a * b })
    }
    #[inline(always)]
    unsafe fn fnma(self, b: Self, c: Self) -> Self {
        self.map(b, c, |a, b, c| if FUSED { (-a).mul_add(b, c) } else { c - a * b })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.map(b, b, |a, b, _| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.map(b, b, |a, b, _| a / b)
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        self.map(self, self, |a, _, _| a.sqrt())
    }
    #[inline(always)]
    unsafe fn larger(self, b: Self) -> Self {
        self.map(b, b, |a, b, _| a.abs().max(b.abs()))
    }
    #[inline(always)]
    unsafe fn sum(self) -> R {
        self.0.iter().fold(R::zero(), |sum, &x| sum + x)
    }
    #[inline(always)]
    unsafe fn positive_finite(self) -> u32 {
        self.bits(|x| x > R::zero() && x < R::infinity())
    }
    #[inline(always)]
    unsafe fn or_one(self, mask: u32) -> Self {
        Array(std::array::from_fn(|l| if mask >> l & 1 == 1 { self.0[l] } else { R::one() }))
    }
    #[inline(always)]
    unsafe fn pack(items: *const *mut R, chunk: &Chunk, scratch: *mut Self) {
        for v in (0..L).filter(|v| chunk.mask >> v & 1 == 1) {
            let slot: *mut R = scratch.add(chunk.slots[v] as usize).cast();
            for l in 0..L {
                *slot.add(l) = *(*items.add(l)).wrapping_add(chunk.offset + v);
            }
        }
    }
    #[inline(always)]
    unsafe fn unpack(items: *const *mut R, lanes: u32, chunk: &Chunk, scratch: *const Self) {
        for v in (0..L).filter(|v| chunk.mask >> v & 1 == 1) {
            let slot: *const R = scratch.add(chunk.slots[v] as usize).cast();
            for l in (0..L).filter(|l| lanes >> l & 1 == 1) {
                *(*items.add(l)).wrapping_add(chunk.offset + v) = *slot.add(l);
            }
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const R, mask: u32) -> Self {
        Array(std::array::from_fn(|l| if mask >> l & 1 == 1 { *p.wrapping_add(l) } else { R::zero() }))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut R, mask: u32) {
        for l in (0..L).filter(|l| mask >> l & 1 == 1) {
            *p.wrapping_add(l) = self.0[l];
        }
    }
    #[inline(always)]
    unsafe fn swap(self) -> Self {
        Array(std::array::from_fn(|l| self.0[l ^ 1]))
    }
    #[inline(always)]
    unsafe fn add_sub(self, b: Self) -> Self {
        let sum = |l: usize| if l.is_multiple_of(2) { self.0[l] + b.0[l] } else { self.0[l] - b.0[l] };
        Array(std::array::from_fn(sum))
    }
    #[inline(always)]
    unsafe fn mul_complex(self, re: Self, im: Self) -> Self {
        let crossed = self.swap().mul(im);
        let own = self.mul(re);
        let part =
            |l: usize| if l.is_multiple_of(2) { own.0[l] - crossed.0[l] } else { own.0[l] + crossed.0[l] };
        Array(std::array::from_fn(part))
    }
}
