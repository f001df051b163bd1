//! Sums of products in twice the working precision, to compare `f64` results against.
//!
//! A [`Sum`] accumulates complex products in double-double: the rounding error of every product comes from a fused
//! multiply-add, that of every sum from Knuth's two-sum (Ogita, Rump, Oishi, "Accurate sum and dot product", 2005).

use num_complex::Complex;

/// A running sum `hi + lo` of real terms.
#[derive(Clone, Copy, Debug, Default)]
struct Twofold {
    hi: f64,
    lo: f64,
}

impl Twofold {
    fn add(&mut self, term: f64) {
        let sum = self.hi + term;
        let shadow = sum - self.hi;
        self.lo += (self.hi - (sum - shadow)) + (term - shadow);
        self.hi = sum;
    }

    fn add_product(&mut self, a: f64, b: f64) {
        let product = a * b;
        self.add(product);
        self.lo += a.mul_add(b, -product);
    }

    fn value(self) -> f64 {
        self.hi + self.lo
    }
}

/// A running sum of complex products.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    re: Twofold,
    im: Twofold,
}

impl Sum {
    /// The sum that starts at `value`.
    pub fn from(value: Complex<f64>) -> Self {
        let mut sum = Sum::default();
        sum.re.add(value.re);
        sum.im.add(value.im);
        sum
    }

    /// Adds `a * b`.
    pub fn add(&mut self, a: Complex<f64>, b: Complex<f64>) {
        self.re.add_product(a.re, b.re);
        // Of real types; three more products of zeros would be most of the time.
        if a.im == 0.0 && b.im == 0.0 {
            return;
        }
        self.re.add_product(-a.im, b.im);
        self.im.add_product(a.re, b.im);
        self.im.add_product(a.im, b.re);
    }

    /// Subtracts `a * b`.
    pub fn sub(&mut self, a: Complex<f64>, b: Complex<f64>) {
        self.add(-a, b);
    }

    /// The sum, rounded once.
    pub fn value(self) -> Complex<f64> {
        Complex::new(self.re.value(), self.im.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellation_that_double_loses_is_kept() {
        let c = |re: f64| Complex::new(re, 0.0);
        let mut sum = Sum::from(c(1e16));
        sum.add(c(1.0 + f64::EPSILON), c(1.0 - f64::EPSILON));
        sum.sub(c(1e8), c(1e8));
        // 1 - eps^2 in full; plain arithmetic gives 0 or 2.
        assert_eq!(sum.value().re, 1.0 - f64::EPSILON * f64::EPSILON);
        let mut sum = Sum::default();
        sum.add(Complex::new(1.0, 2.0), Complex::new(3.0, -4.0));
        assert_eq!(sum.value(), Complex::new(11.0, 2.0));
    }
}
