//! Matrices with known properties, the same on every machine.

use batchlas::{Scalar, Uplo};

/// A 64-bit generator (`SplitMix64`, Steele, Lea and Flood 2014): small, seedable, good enough for test data.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for one item of one case.
    pub fn new(seed: u64, item: usize) -> Self {
        let mut random = Random(seed ^ (item as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.bits();
        random
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn real(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Both components uniform in [-1, 1); the second is dropped by a real type.
    pub fn scalar<T: Scalar>(&mut self) -> T {
        let (re, im) = (self.real(), self.real());
        T::from_parts(re, im)
    }

    /// A small integer, for arithmetic that must be exact.
    pub fn integer(&mut self, bound: i64) -> f64 {
        ((self.bits() >> 1) as i64).rem_euclid(2 * bound + 1) as f64 - bound as f64
    }
}

/// A dense square matrix, column-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Square<T> {
    /// Order.
    pub n: usize,
    /// Elements, column by column.
    pub data: Vec<T>,
}

impl<T: Scalar> Square<T> {
    /// A matrix from its elements.
    pub fn from_fn(n: usize, mut element: impl FnMut(usize, usize) -> T) -> Self {
        let data = (0..n).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| element(i, j)).collect();
        Square { n, data }
    }

    /// Element `(i, j)`.
    pub fn at(&self, i: usize, j: usize) -> T {
        self.data[j * self.n + i]
    }

    /// Sets element `(i, j)`.
    pub fn set(&mut self, i: usize, j: usize, value: T) {
        self.data[j * self.n + i] = value;
    }

    /// Sets `(i, j)` and its mirror image.
    fn set_hermitian(&mut self, i: usize, j: usize, value: T) {
        self.set(i, j, value);
        self.set(j, i, value.conj());
    }

    /// The identity.
    pub fn identity(n: usize) -> Self {
        Self::from_fn(n, |i, j| if i == j { T::one() } else { T::zero() })
    }
}

/// What an item of a factorisation case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `G G^H / n + I`-like, positive definite, condition number O(10).
    Definite,
    /// `(b + 1) I` for item `b`.
    ScaledIdentity,
    /// A negative pivot at a given place, visible on the original diagonal.
    NegativePivot,
    /// All original diagonal entries +1; the pivot is negative only after the update.
    StalePivot,
    /// A leading minor that is exactly zero.
    ZeroMinor,
    /// NaN on the diagonal.
    NanPivot,
    /// +Inf on the diagonal.
    InfPivot,
}

impl Kind {
    /// Whether the leading minor of the given order is what fails; otherwise the item succeeds.
    pub fn fails(self) -> bool {
        !matches!(self, Kind::Definite | Kind::ScaledIdentity)
    }

    /// Smallest order at which the kind can fail at order `at`.
    pub fn exists(self, n: usize, at: usize) -> bool {
        at <= n && (at >= 2 || !matches!(self, Kind::StalePivot))
    }
}

/// A Hermitian positive definite matrix with condition number O(10).
pub fn definite<T: Scalar>(n: usize, random: &mut Random) -> Square<T> {
    // Off-diagonal rows of absolute sum below 1 under a diagonal in [1.5, 2.5): strictly dominant, hence definite,
    // and rough enough that every product in the factorisation matters.
    let scale = 0.7 / (n.max(1) as f64).sqrt();
    let mut a = Square::from_fn(n, |_, _| T::zero());
    for j in 0..n {
        for i in j + 1..n {
            let (re, im) = (random.real() * scale, random.real() * scale);
            a.set_hermitian(i, j, T::from_parts(re, im));
        }
        a.set(j, j, T::from_parts(2.5 + random.real() / 2.0, 0.0));
    }
    a
}

/// A Hermitian positive definite matrix with eigenvalues spread evenly in the logarithm from 1 to `1 / condition`, dense:
/// three random reflections hide the diagonal that it starts as.
pub fn conditioned<T: Scalar>(n: usize, condition: f64, random: &mut Random) -> Square<T> {
    let real = |x: f64| T::from_parts(x, 0.0);
    let mut a = Square::from_fn(n, |i, j| {
        let eigenvalue = condition.powf(-(i as f64) / (n as f64 - 1.0).max(1.0));
        if i == j { real(eigenvalue) } else { T::zero() }
    });
    let dot = |x: &[T], y: &[T]| x.iter().zip(y).fold(T::zero(), |sum, (&x, &y)| sum + x.conj() * y);
    for _ in 0..3 {
        let v: Vec<T> = (0..n).map(|_| random.scalar()).collect();
        let twice = real(2.0 / dot(&v, &v).widen().re);
        // (1 - t v v^H) A (1 - t v v^H), with w = A v and s = v^H w.
        let w: Vec<T> = a.data.chunks(n).map(|column| dot(column, &v)).collect();
        let s = twice * twice * dot(&v, &w);
        for (i, j) in (0..n).flat_map(|j| (0..=j).map(move |i| (i, j))) {
            let (vi, vj, wi, wj) = (v[i], v[j].conj(), w[i], w[j].conj());
            let value = a.at(i, j) - twice * (vi * wj + wi * vj) + s * vi * vj;
            a.set_hermitian(i, j, if i == j { T::from_real(value.re()) } else { value });
        }
    }
    a
}

/// Item `item` of a factorisation case; its failure, if the kind has one, is at the 1-based order `at`.
pub fn item<T: Scalar>(kind: Kind, n: usize, at: usize, item: usize, random: &mut Random) -> Square<T> {
    let one = |x: f64| T::from_parts(x, 0.0);
    let k = at.saturating_sub(1);
    match kind {
        Kind::Definite => definite(n, random),
        Kind::ScaledIdentity => {
            Square::from_fn(n, |i, j| if i == j { one(item as f64 + 1.0) } else { T::zero() })
        }
        Kind::NegativePivot => {
            let mut a = definite(n, random);
            a.set(k, k, one(-1.0));
            a
        }
        Kind::StalePivot => {
            let mut a = Square::identity(n);
            a.set_hermitian(k, k - 1, T::from_parts(1.5, 0.5));
            a
        }
        Kind::ZeroMinor => {
            let mut a = Square::identity(n);
            if k == 0 {
                a.set(0, 0, T::zero());
            } else {
                a.set_hermitian(k, k - 1, T::one());
            }
            a
        }
        Kind::NanPivot => {
            let mut a = definite(n, random);
            a.set(k, k, one(f64::NAN));
            a
        }
        Kind::InfPivot => {
            let mut a = definite(n, random);
            a.set(k, k, one(f64::INFINITY));
            a
        }
    }
}

/// A triangular matrix whose solves are exact: small integers off the diagonal, powers of two on it. The other
/// triangle, and the diagonal for a unit factor, hold `unread`.
pub fn exact_triangle<T: Scalar>(
    n: usize,
    uplo: Uplo,
    unit: bool,
    unread: T,
    random: &mut Random,
) -> Square<T> {
    Square::from_fn(n, |i, j| {
        let inside = if uplo == Uplo::Lower { i > j } else { i < j };
        if i == j && unit || i != j && !inside {
            unread
        } else if i == j {
            T::from_parts([0.5, 1.0, 2.0][(i + n) % 3], 0.0)
        } else {
            // Most entries are zero, so that integers stay far below the mantissa at every order.
            let keep = i.abs_diff(j) <= 2 || (i * 7 + j) % 13 == 0;
            if keep { T::from_parts(random.integer(1), random.integer(1)) } else { T::zero() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_stable_and_spread() {
        let mut random = Random::new(1, 0);
        let values: Vec<f64> = (0..1000).map(|_| random.real()).collect();
        assert!(values.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(values.iter().sum::<f64>().abs() < 60.0);
        assert_ne!(Random::new(1, 0).real(), Random::new(1, 1).real());
        assert_eq!(Random::new(7, 3).bits(), Random::new(7, 3).bits());
        assert!((0..100).map(|_| random.integer(2)).all(|x| x.abs() <= 2.0));
    }

    #[test]
    fn conditioned_matrices_have_their_eigenvalues_and_are_dense() {
        let (n, condition) = (6, 1e4f64);
        let a: Square<num_complex::Complex<f64>> = conditioned(n, condition, &mut Random::new(3, 0));
        let eigenvalues: Vec<f64> = (0..n).map(|i| condition.powf(-(i as f64) / 5.0)).collect();
        let squares: f64 = a.data.iter().map(|x| x.norm_sqr()).sum();
        assert!(((0..n).map(|i| a.at(i, i).re).sum::<f64>() - eigenvalues.iter().sum::<f64>()).abs() < 1e-14);
        assert!((squares - eigenvalues.iter().map(|x| x * x).sum::<f64>()).abs() < 1e-14);
        assert!((0..n).all(|i| (0..n).all(|j| a.at(i, j) == a.at(j, i).conj() && a.at(i, j).norm() > 1e-4)));
    }

    #[test]
    fn definite_matrices_are_strictly_dominant() {
        let a: Square<num_complex::Complex<f64>> = definite(40, &mut Random::new(3, 0));
        for i in 0..40 {
            let off: f64 = (0..40).filter(|&j| j != i).map(|j| a.at(i, j).norm_sqr()).sum();
            assert!(off < 1.0 && a.at(i, i).re >= 2.0 && a.at(i, i).im == 0.0);
            assert_eq!(a.at(3, 7), a.at(7, 3).conj());
        }
    }
}
