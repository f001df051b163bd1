//! Elements of a packed matrix: one vector for a real type, two (real parts, imaginary parts) for a complex one. Vector are
//! items in either case, so that complex arithmetic needs no shuffles.
//!
//! The obligations of `vector.rs` hold for every method.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

use num_traits::{One, Zero};

use crate::vector::Vector;

/// One element of every item of a group.
pub(crate) trait Element: Copy {
    /// Its vectors.
    type V: Vector;
    /// Vectors per element.
    const PARTS: usize;

    unsafe fn from_real(re: Self::V) -> Self;
    unsafe fn real(self) -> Self::V;
    /// `self - a b`.
    unsafe fn sub_mul(self, a: Self, b: Self) -> Self;
    /// `self - a conj(b)`.
    unsafe fn sub_mul_conj(self, a: Self, b: Self) -> Self;
    /// Times a real number.
    unsafe fn scale(self, by: Self::V) -> Self;
    unsafe fn mul(self, by: Self) -> Self;
    /// `1 / self`, or of its conjugate, without overflow where the result has none.
    unsafe fn reciprocal(self, conj: bool) -> Self;
    /// The same number for every item; a real type drops `im`.
    unsafe fn splat(re: <Self::V as Vector>::Real, im: <Self::V as Vector>::Real) -> Self;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self::from_real(Self::V::splat(<Self::V as Vector>::Real::zero()))
    }
    #[inline(always)]
    unsafe fn one() -> Self {
        Self::from_real(Self::V::splat(<Self::V as Vector>::Real::one()))
    }
}

/// A real element.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Re<V>(V);

/// A complex element.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Cx<V>(V, V);

impl<V: Vector> Element for Re<V> {
    type V = V;
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn from_real(re: V) -> Self {
        Re(re)
    }
    #[inline(always)]
    unsafe fn real(self) -> V {
        self.0
    }
    #[inline(always)]
    unsafe fn sub_mul(self, a: Self, b: Self) -> Self {
        Re(a.0.fnma(b.0, self.0))
    }
    #[inline(always)]
    unsafe fn sub_mul_conj(self, a: Self, b: Self) -> Self {
        Re(a.0.fnma(b.0, self.0))
    }
    #[inline(always)]
    unsafe fn scale(self, by: V) -> Self {
        Re(self.0.mul(by))
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        Re(self.0.mul(by.0))
    }
    #[inline(always)]
    unsafe fn reciprocal(self, _conj: bool) -> Self {
        Re(Self::one().0.div(self.0))
    }
    #[inline(always)]
    unsafe fn splat(re: V::Real, _im: V::Real) -> Self {
        Re(V::splat(re))
    }
}

impl<V: Vector> Element for Cx<V> {
    type V = V;
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn from_real(re: V) -> Self {
        Cx(re, V::splat(V::Real::zero()))
    }
    #[inline(always)]
    unsafe fn real(self) -> V {
        self.0
    }
    #[inline(always)]
    unsafe fn sub_mul(self, a: Self, b: Self) -> Self {
        Cx(a.1.fma(b.1, a.0.fnma(b.0, self.0)), a.0.fnma(b.1, a.1.fnma(b.0, self.1)))
    }
    #[inline(always)]
    unsafe fn sub_mul_conj(self, a: Self, b: Self) -> Self {
        Cx(a.1.fnma(b.1, a.0.fnma(b.0, self.0)), a.0.fma(b.1, a.1.fnma(b.0, self.1)))
    }
    #[inline(always)]
    unsafe fn scale(self, by: V) -> Self {
        Cx(self.0.mul(by), self.1.mul(by))
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        Cx(self.1.fnma(by.1, self.0.mul(by.0)), self.0.fma(by.1, self.1.mul(by.0)))
    }
    /// Both parts are first divided by the larger one.
    #[inline(always)]
    unsafe fn reciprocal(self, conj: bool) -> Self {
        let one = Self::one();
        let scale = one.0.div(self.0.larger(self.1));
        let (re, im) = (self.0.mul(scale), self.1.mul(scale));
        let by = scale.div(re.fma(re, im.mul(im)));
        let im = if conj { im } else { im.fnma(one.0, one.1) };
        Cx(re.mul(by), im.mul(by))
    }
    #[inline(always)]
    unsafe fn splat(re: V::Real, im: V::Real) -> Self {
        Cx(V::splat(re), V::splat(im))
    }
}
