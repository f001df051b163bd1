//! Instruction sets, and the one place where code compiled for one of them is entered.
//!
//! An [`Isa`] is a proof: it can only be had on a CPU that has the instructions. So a dispatch needs no check, and the
//! `unsafe` of calling code that was compiled for other instructions than the crate stands here and nowhere else.
#![allow(unsafe_code)]

use std::fmt;

use batchlas_core::Real;

use crate::vector::{Array, Vector};
use crate::{cholesky, rows, substitution};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Avx512,
    Avx512Vl,
    Avx2,
    Portable,
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isa(Kind);

impl Isa {
    /// The names of all, widest first: 512-bit vectors; 256-bit vectors with the masks and the 32 registers of
    /// AVX-512VL; AVX2 with FMA; arrays that the compiler vectorises for the baseline of the target.
    pub const WORDS: &'static [&'static str] = &["avx512", "avx512vl", "avx2", "portable"];

    /// The instruction set of a name of [`Isa::WORDS`].
    ///
    /// # Errors
    /// This CPU does not have it; the name is none.
    pub fn of(word: &str) -> Result<Isa, String> {
        let kind = match word {
            "avx512" => Kind::Avx512,
            "avx512vl" => Kind::Avx512Vl,
            "avx2" => Kind::Avx2,
            "portable" => Kind::Portable,
            _ => return Err(format!("{word} is no instruction set: use one of {}", Self::WORDS.join(", "))),
        };
        if present(kind) { Ok(Isa(kind)) } else { Err(format!("this CPU does not have {word}")) }
    }

    /// All that this CPU has, widest first. Never empty.
    pub fn all() -> impl Iterator<Item = Isa> {
        Self::WORDS.iter().filter_map(|word| Self::of(word).ok())
    }

    /// The widest that this CPU has.
    pub fn widest() -> Isa {
        Self::all().next().unwrap_or(Isa(Kind::Portable))
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self.0 {
            Kind::Avx512 => "avx512",
            Kind::Avx512Vl => "avx512vl",
            Kind::Avx2 => "avx2",
            Kind::Portable => "portable",
        }
    }

    /// Bytes of a vector.
    pub fn vector_bytes(self) -> usize {
        match self.0 {
            Kind::Avx512 => 64,
            Kind::Avx512Vl | Kind::Avx2 => 32,
            Kind::Portable => 16,
        }
    }

    /// What a last group of only `bytes` bytes of lanes is better served by, if anything: half of 512 bits. Both fuse, so
    /// the bits are the same.
    pub(crate) fn narrower(self, bytes: usize) -> Option<Isa> {
        (self.0 == Kind::Avx512 && (1..=32).contains(&bytes)).then_some(Isa(Kind::Avx512Vl))
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(all(target_arch = "x86_64", not(test)))]
fn present(kind: Kind) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma");
    let avx512 = has!("avx512f") && has!("avx512vl") && has!("avx512dq") && has!("avx512bw");
    match kind {
        Kind::Avx512 | Kind::Avx512Vl => avx2 && avx512,
        Kind::Avx2 => avx2,
        Kind::Portable => true,
    }
}

#[cfg(any(not(target_arch = "x86_64"), test))]
fn present(kind: Kind) -> bool {
    kind == Kind::Portable
}

/// Work that is compiled once for every instruction set.
pub(crate) trait Task<R: Real> {
    /// Does it with vectors `V`. Must be `#[inline(always)]`, like everything it calls that touches a vector.
    ///
    /// # Safety
    /// The caller is compiled for the instructions of `V`, and the CPU has them.
    unsafe fn run<V: Vector<Real = R>>(self);
}

/// A real type with vectors, and the entries of the kernels. They are not generic, so that kernels are compiled in this
/// crate and not in whichever crate first names an element type.
pub(crate) trait Dispatch: Real {
    /// Factors, and solves, a run of items.
    fn cholesky(isa: Isa, job: cholesky::Job<'_, Self>);
    /// Solves with triangles, items in lanes.
    fn substitution(isa: Isa, job: substitution::Job<'_, Self>);
    /// Solves with triangles, right-hand sides in lanes.
    fn rows(isa: Isa, job: rows::Job<Self>);
}

macro_rules! dispatch {
    ($real:ty, $dispatch:ident, $z:ident, $y:ident, $baseline:literal) => {
        impl Dispatch for $real {
            fn cholesky(isa: Isa, job: cholesky::Job<'_, Self>) {
                $dispatch(isa, job);
            }
            fn substitution(isa: Isa, job: substitution::Job<'_, Self>) {
                $dispatch(isa, job);
            }
            fn rows(isa: Isa, job: rows::Job<Self>) {
                $dispatch(isa, job);
            }
        }

        /// Runs `task` with the vectors of `isa`.
        #[cfg(all(target_arch = "x86_64", not(test)))]
        fn $dispatch(isa: Isa, task: impl Task<$real>) {
            use crate::x86::{$y, $z};

            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512(task: impl Task<$real>) {
                // SAFETY: this function is compiled for AVX-512.
                unsafe { task.run::<$z>() }
            }
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512vl(task: impl Task<$real>) {
                // SAFETY: this function is compiled for AVX-512VL.
                unsafe { task.run::<$y<true>>() }
            }
            #[target_feature(enable = "avx2,fma")]
            fn avx2(task: impl Task<$real>) {
                // SAFETY: this function is compiled for AVX2 and FMA.
                unsafe { task.run::<$y<false>>() }
            }
            // SAFETY: an `Isa` exists only on a CPU that has its instructions.
            unsafe {
                match isa.0 {
                    Kind::Avx512 => avx512(task),
                    Kind::Avx512Vl => avx512vl(task),
                    Kind::Avx2 => avx2(task),
                    Kind::Portable => task.run::<Array<$real, $baseline>>(),
                }
            }
        }

        /// Runs `task` with arrays, which is all that there is.
        #[cfg(any(not(target_arch = "x86_64"), test))]
        fn $dispatch(_isa: Isa, task: impl Task<$real>) {
            // SAFETY: arrays need no instructions beyond the target's baseline.
            unsafe { task.run::<Array<$real, $baseline>>() }
        }
    };
}

dispatch!(f32, dispatch_f32, Z32, Y32, 4);
dispatch!(f64, dispatch_f64, Z64, Y64, 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_and_the_portable_set_is_always_there() {
        assert_eq!(Isa::of("portable").unwrap().word(), "portable");
        assert!(Isa::of("mmx").unwrap_err().contains("avx512, avx512vl, avx2, portable"));
        for isa in Isa::all() {
            assert_eq!(Isa::of(isa.word()), Ok(isa));
        }
        assert!(Isa::all().any(|isa| isa == Isa::widest()));
    }
}
