//! The four element types: `f32`, `f64`, `Complex<f32>`, `Complex<f64>`.

use std::fmt;
use std::ops::{AddAssign, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use bytemuck::Pod;
use num_complex::Complex;
use num_traits::{Float, NumAssign};

/// Element type as a value: the spelling used in tables, traces and ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// Complex number of two `f32` (8 bytes).
    C32,
    /// Complex number of two `f64` (16 bytes).
    C64,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Dtype; 4] = [Dtype::F32, Dtype::F64, Dtype::C32, Dtype::C64];

    /// `f32`, `f64`, `c32` or `c64`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::C32 => "c32",
            Dtype::C64 => "c64",
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F64 | Dtype::C32 => 8,
            Dtype::C64 => 16,
        }
    }

    /// Whether the type is complex.
    pub const fn is_complex(self) -> bool {
        matches!(self, Dtype::C32 | Dtype::C64)
    }

    /// Unit round-off doubled (LAPACK's `eps`): 2^-23 or 2^-52.
    pub const fn epsilon(self) -> f64 {
        match self {
            Dtype::F32 | Dtype::C32 => f32::EPSILON as f64,
            Dtype::F64 | Dtype::C64 => f64::EPSILON,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Dtype::ALL
            .into_iter()
            .find(|d| d.name() == text)
            .ok_or_else(|| format!("{text:?} is not an element type: use one of f32, f64, c32, c64"))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for num_complex::Complex<f32> {}
    impl Sealed for num_complex::Complex<f64> {}
}

/// An element of a matrix. Sealed: exactly the four types of [`Dtype`].
pub trait Scalar:
    sealed::Sealed
    + Pod
    + NumAssign
    + Neg<Output = Self>
    + fmt::Debug
    + fmt::Display
    + Default
    + PartialEq
    + Send
    + Sync
    + 'static
{
    /// The type of a modulus or of a Hermitian diagonal.
    type Real: Real;

    /// This type as a value.
    const DTYPE: Dtype;

    /// Complex conjugate; the identity for real types.
    fn conj(self) -> Self;
    /// Real part.
    fn re(self) -> Self::Real;
    /// Imaginary part; zero for real types.
    fn im(self) -> Self::Real;
    /// The number `re + 0i`.
    fn from_real(re: Self::Real) -> Self;
    /// The number `re + im i`; a real type drops `im`.
    fn from_parts(re: f64, im: f64) -> Self;
    /// The same number in double precision, the type that residuals are computed in.
    fn widen(self) -> Complex<f64>;
    /// Whether every component is finite.
    fn finite(self) -> bool;
}

/// The real type of an element type, where `T::Real` would be ambiguous.
pub type RealOf<T> = <T as Scalar>::Real;

/// A real element type: `f32` or `f64`.
pub trait Real:
    Scalar<Real = Self>
    + Float
    + PartialOrd
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// The same number in double precision.
    fn to_f64(self) -> f64;
}

macro_rules! real_scalar {
    ($t:ty, $dtype:expr) => {
        impl Scalar for $t {
            type Real = $t;
            const DTYPE: Dtype = $dtype;

            fn conj(self) -> Self {
                self
            }
            fn re(self) -> $t {
                self
            }
            fn im(self) -> $t {
                0.0
            }
            fn from_real(re: $t) -> Self {
                re
            }
            fn from_parts(re: f64, _im: f64) -> Self {
                re as $t
            }
            fn widen(self) -> Complex<f64> {
                Complex::new(f64::from(self), 0.0)
            }
            fn finite(self) -> bool {
                self.is_finite()
            }
        }

        impl Real for $t {
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl Scalar for Complex<$t> {
            type Real = $t;
            const DTYPE: Dtype = match $dtype {
                Dtype::F32 => Dtype::C32,
                _ => Dtype::C64,
            };

            fn conj(self) -> Self {
                Complex::conj(&self)
            }
            fn re(self) -> $t {
                self.re
            }
            fn im(self) -> $t {
                self.im
            }
            fn from_real(re: $t) -> Self {
                Complex::new(re, 0.0)
            }
            fn from_parts(re: f64, im: f64) -> Self {
                Complex::new(re as $t, im as $t)
            }
            fn widen(self) -> Complex<f64> {
                Complex::new(f64::from(self.re), f64::from(self.im))
            }
            fn finite(self) -> bool {
                self.re.is_finite() && self.im.is_finite()
            }
        }
    };
}

real_scalar!(f32, Dtype::F32);
real_scalar!(f64, Dtype::F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sizes_and_parsing_agree() {
        for d in Dtype::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert!("f16".parse::<Dtype>().unwrap_err().contains("f32, f64, c32, c64"));
        assert_eq!(<Complex<f32> as Scalar>::DTYPE, Dtype::C32);
        assert_eq!(<Complex<f64> as Scalar>::DTYPE, Dtype::C64);
        assert_eq!(Dtype::C64.bytes(), size_of::<Complex<f64>>());
        assert_eq!(Dtype::C32.bytes(), size_of::<Complex<f32>>());
    }

    #[test]
    fn conjugation_is_the_identity_on_reals() {
        assert_eq!(Scalar::conj(-2.5f32), -2.5);
        assert_eq!(Scalar::conj(Complex::new(1.0f64, 2.0)), Complex::new(1.0, -2.0));
        assert_eq!(<f64 as Scalar>::from_parts(1.5, 9.0), 1.5);
    }
}
