//! Vectors of elements: real ones, complex ones as they lie in memory, complex ones in two parts.
//!
//! The obligations of `vector.rs` hold for every function here.
#![allow(unsafe_code)]

use crate::vector::Vector;

/// A vector of elements.
pub(crate) trait Lane: Copy {
    type V: Vector;
    /// Reals of memory that it takes.
    const REALS: usize;
    /// Whether elements have imaginary parts.
    const COMPLEX: bool;
    /// A vector of sums in the making.
    type Sum: Copy;

    /// Of one vector, to be overwritten.
    fn empty(v: Self::V) -> Self;
    unsafe fn load(p: *const <Self::V as Vector>::Real, mask: u32) -> Self;
    unsafe fn store(self, p: *mut <Self::V as Vector>::Real, mask: u32);
    unsafe fn start(self) -> Self::Sum;
    /// `sum - self * entry`.
    unsafe fn subtract(self, sum: Self::Sum, entry: (Self::V, Self::V)) -> Self::Sum;
    unsafe fn finish(sum: Self::Sum) -> Self;
    unsafe fn times(self, factor: (Self::V, Self::V)) -> Self;
}

pub(crate) type RealOf<W> = <<W as Lane>::V as Vector>::Real;

/// A vector that also lies along a matrix: its elements belong to one product.
pub(crate) trait Along: Lane {
    /// Sums of a scalar product in the making.
    type Dot: Copy;

    unsafe fn none() -> Self::Dot;
    /// `dot + self . x`, nothing conjugated.
    unsafe fn dot(self, x: Self, dot: Self::Dot) -> Self::Dot;
    /// Real and imaginary part of the product.
    unsafe fn total(dot: Self::Dot) -> (RealOf<Self>, RealOf<Self>);
}

/// Real numbers.
#[derive(Clone, Copy)]
pub(crate) struct Single<V>(V);

impl<V: Vector> Lane for Single<V> {
    type V = V;
    const REALS: usize = V::LANES;
    const COMPLEX: bool = false;
    type Sum = V;

    #[inline(always)]
    fn empty(v: V) -> Self {
        Single(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const V::Real, mask: u32) -> Self {
        // SAFETY: the caller's.
        Single(unsafe { V::load(p, mask) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut V::Real, mask: u32) {
        // SAFETY: the caller's.
        unsafe { self.0.store(p, mask) }
    }
    #[inline(always)]
    unsafe fn start(self) -> V {
        self.0
    }
    #[inline(always)]
    unsafe fn subtract(self, sum: V, entry: (V, V)) -> V {
        // SAFETY: the caller's.
        unsafe { self.0.fnma(entry.0, sum) }
    }
    #[inline(always)]
    unsafe fn finish(sum: V) -> Self {
        Single(sum)
    }
    #[inline(always)]
    unsafe fn times(self, factor: (V, V)) -> Self {
        // SAFETY: the caller's.
        Single(unsafe { self.0.mul(factor.0) })
    }
}

impl<V: Vector> Along for Single<V> {
    type Dot = V;

    #[inline(always)]
    unsafe fn none() -> V {
        // SAFETY: the caller's.
        unsafe { V::splat(num_traits::Zero::zero()) }
    }
    #[inline(always)]
    unsafe fn dot(self, x: Self, dot: V) -> V {
        // SAFETY: the caller's.
        unsafe { self.0.fma(x.0, dot) }
    }
    #[inline(always)]
    unsafe fn total(dot: V) -> (V::Real, V::Real) {
        // SAFETY: the caller's.
        (unsafe { dot.sum() }, num_traits::Zero::zero())
    }
}

/// Complex numbers as they lie in memory.
#[derive(Clone, Copy)]
pub(crate) struct Interleaved<V>(V);

impl<V: Vector> Lane for Interleaved<V> {
    type V = V;
    const REALS: usize = V::LANES;
    const COMPLEX: bool = true;
    /// Minus the products with real parts, plus those with imaginary parts.
    type Sum = (V, V);

    #[inline(always)]
    fn empty(v: V) -> Self {
        Interleaved(v)
    }
    #[inline(always)]
    unsafe fn load(p: *const V::Real, mask: u32) -> Self {
        // SAFETY: the caller's.
        Interleaved(unsafe { V::load(p, mask) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut V::Real, mask: u32) {
        // SAFETY: the caller's.
        unsafe { self.0.store(p, mask) }
    }
    #[inline(always)]
    unsafe fn start(self) -> (V, V) {
        // SAFETY: the caller's.
        (self.0, unsafe { V::splat(num_traits::Zero::zero()) })
    }
    #[inline(always)]
    unsafe fn subtract(self, sum: (V, V), entry: (V, V)) -> (V, V) {
        // SAFETY: the caller's.
        unsafe { (self.0.fnma(entry.0, sum.0), self.0.fma(entry.1, sum.1)) }
    }
    #[inline(always)]
    unsafe fn finish(sum: (V, V)) -> Self {
        // SAFETY: the caller's.
        Interleaved(unsafe { sum.0.add_sub(sum.1.swap()) })
    }
    #[inline(always)]
    unsafe fn times(self, factor: (V, V)) -> Self {
        // SAFETY: the caller's.
        Interleaved(unsafe { self.0.mul_complex(factor.0, factor.1) })
    }
}

impl<V: Vector> Along for Interleaved<V> {
    /// Products of equal parts, and of different ones.
    type Dot = (V, V);

    #[inline(always)]
    unsafe fn none() -> (V, V) {
        // SAFETY: the caller's.
        let zero = unsafe { V::splat(num_traits::Zero::zero()) };
        (zero, zero)
    }
    #[inline(always)]
    unsafe fn dot(self, x: Self, dot: (V, V)) -> (V, V) {
        // SAFETY: the caller's.
        unsafe { (self.0.fma(x.0, dot.0), self.0.fma(x.0.swap(), dot.1)) }
    }
    #[inline(always)]
    unsafe fn total(dot: (V, V)) -> (V::Real, V::Real) {
        // SAFETY: the caller's.
        unsafe { (V::splat(num_traits::Zero::zero()).add_sub(dot.0).sum(), dot.1.sum()) }
    }
}

/// Complex numbers as a vector of real and one of imaginary parts.
#[derive(Clone, Copy)]
pub(crate) struct Planar<V>(V, V);

impl<V: Vector> Lane for Planar<V> {
    type V = V;
    const REALS: usize = 2 * V::LANES;
    const COMPLEX: bool = true;
    type Sum = Self;

    #[inline(always)]
    fn empty(v: V) -> Self {
        Planar(v, v)
    }
    #[inline(always)]
    unsafe fn load(p: *const V::Real, mask: u32) -> Self {
        // SAFETY: the caller's.
        unsafe { Planar(V::load(p, mask), V::load(p.wrapping_add(V::LANES), mask)) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut V::Real, mask: u32) {
        // SAFETY: the caller's.
        unsafe {
            self.0.store(p, mask);
            self.1.store(p.wrapping_add(V::LANES), mask);
        }
    }
    #[inline(always)]
    unsafe fn start(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn subtract(self, sum: Self, (re, im): (V, V)) -> Self {
        // SAFETY: the caller's.
        unsafe { Planar(self.1.fma(im, self.0.fnma(re, sum.0)), self.0.fnma(im, self.1.fnma(re, sum.1))) }
    }
    #[inline(always)]
    unsafe fn finish(sum: Self) -> Self {
        sum
    }
    #[inline(always)]
    unsafe fn times(self, (re, im): (V, V)) -> Self {
        // SAFETY: the caller's.
        unsafe { Planar(self.1.fnma(im, self.0.mul(re)), self.0.fma(im, self.1.mul(re))) }
    }
}
