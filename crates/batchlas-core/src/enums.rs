//! The option types of BLAS and LAPACK, spelled as their character arguments.

use std::fmt;
use std::str::FromStr;

macro_rules! option_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $letter:literal $(| $alias:literal)*,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The character LAPACK uses for this value; also the spelling in tables and ledgers.
            pub const fn letter(self) -> &'static str {
                match self { $($name::$variant => $letter,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.letter()) }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let wanted = text.trim().to_ascii_lowercase();
                $(if [$letter, stringify!($variant) $(, $alias)*].iter().any(|s| s.eq_ignore_ascii_case(&wanted)) {
                    return Ok($name::$variant);
                })+
                Err(format!(
                    "{text:?} is not a {}: use one of {}",
                    stringify!($name),
                    [$(concat!($letter, " (", stringify!($variant), ")"),)+].join(", ")
                ))
            }
        }
    };
}

option_enum! {
    /// Which side of the unknown the triangular factor stands on.
    Side {
        /// `op(A) X = alpha B`.
        Left = "L",
        /// `X op(A) = alpha B`.
        Right = "R",
    }
}

option_enum! {
    /// Which triangle of a square matrix is referenced. The other one is neither read nor written.
    Uplo {
        /// The lower triangle.
        Lower = "L",
        /// The upper triangle.
        Upper = "U",
    }
}

option_enum! {
    /// `op(A)` in a product or a solve.
    Trans {
        /// `A`.
        No = "N" | "NoTrans",
        /// `A^T`.
        Trans = "T" | "Transpose",
        /// `A^H`; the same as `A^T` for real types.
        ConjTrans = "C" | "ConjugateTranspose",
    }
}

option_enum! {
    /// Whether a triangular matrix has an implicit unit diagonal, which is then never read.
    Diag {
        /// The diagonal is stored.
        NonUnit = "N",
        /// The diagonal is one and not read.
        Unit = "U",
    }
}

impl Uplo {
    /// The triangle that this one becomes under transposition.
    pub const fn flipped(self) -> Uplo {
        match self {
            Uplo::Lower => Uplo::Upper,
            Uplo::Upper => Uplo::Lower,
        }
    }
}

impl Trans {
    /// The value used as a selection key: a conjugate transpose costs what a transpose costs.
    pub const fn key(self) -> Trans {
        match self {
            Trans::ConjTrans => Trans::Trans,
            other => other,
        }
    }

    /// Whether rows and columns change places.
    pub const fn transposes(self) -> bool {
        !matches!(self, Trans::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_words_and_case_parse_and_nonsense_names_the_choices() {
        assert_eq!("l".parse(), Ok(Uplo::Lower));
        assert_eq!("Upper".parse(), Ok(Uplo::Upper));
        assert_eq!("conjtrans".parse(), Ok(Trans::ConjTrans));
        assert_eq!("NoTrans".parse(), Ok(Trans::No));
        let message = "x".parse::<Side>().unwrap_err();
        assert!(message.contains("L (Left)") && message.contains("R (Right)"), "{message}");
    }

    #[test]
    fn every_letter_round_trips() {
        fn check<T: FromStr<Err = String> + fmt::Display + PartialEq + fmt::Debug + Copy>(all: &[T]) {
            for &value in all {
                assert_eq!(value.to_string().parse(), Ok(value));
            }
        }
        check(Side::ALL);
        check(Uplo::ALL);
        check(Trans::ALL);
        check(Diag::ALL);
    }

    #[test]
    fn conjugation_is_folded_in_keys_only() {
        assert_eq!(Trans::ConjTrans.key(), Trans::Trans);
        assert_eq!(Trans::No.key(), Trans::No);
        assert!(Trans::ConjTrans.transposes() && !Trans::No.transposes());
        assert_eq!(Uplo::Lower.flipped(), Uplo::Upper);
    }
}
