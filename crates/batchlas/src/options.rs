//! Options of every call. The defaults serve most users; set what differs with struct update syntax.
//!
//! `route` pins the kernel family of this one call, in the spelling of the tables and traces (`vendor`, `native`,
//! `tiny:lanes=8`, ...). Left out, `BATCHLAS_<OP>_ROUTE` decides if it is set, else the tuned tables.

use batchlas_core::{Diag, RealOf, Scalar, Side, Trans, Uplo};
use batchlas_posv::FactorOutput;

/// Options of [`Context::potrf`](crate::Context::potrf).
#[derive(Clone, Debug)]
pub struct PotrfOptions {
    /// Which triangle is factored.
    pub uplo: Uplo,
    /// Route pin.
    pub route: Option<String>,
}

impl Default for PotrfOptions {
    fn default() -> Self {
        PotrfOptions { uplo: Uplo::Lower, route: None }
    }
}

/// Options of [`Context::potri`](crate::Context::potri).
#[derive(Clone, Debug)]
pub struct PotriOptions {
    /// Which triangle holds the factor, and will hold the inverse.
    pub uplo: Uplo,
}

impl Default for PotriOptions {
    fn default() -> Self {
        PotriOptions { uplo: Uplo::Lower }
    }
}

/// Options of [`Context::posv`](crate::Context::posv).
#[derive(Clone, Debug)]
pub struct PosvOptions {
    /// Which triangle of A is referenced.
    pub uplo: Uplo,
    /// Whether A receives the factor.
    pub factor: FactorOutput,
    /// Route pin of the whole solve; its children follow the environment and the tables.
    pub route: Option<String>,
}

impl Default for PosvOptions {
    fn default() -> Self {
        PosvOptions { uplo: Uplo::Lower, factor: FactorOutput::Stored, route: None }
    }
}

/// Options of [`Context::potrs`](crate::Context::potrs).
#[derive(Clone, Debug)]
pub struct PotrsOptions {
    /// Which triangle holds the factor.
    pub uplo: Uplo,
    /// Route pin of the whole solve; its children follow the environment and the tables.
    pub route: Option<String>,
}

impl Default for PotrsOptions {
    fn default() -> Self {
        PotrsOptions { uplo: Uplo::Lower, route: None }
    }
}

/// Options of [`Context::trsm`](crate::Context::trsm).
#[derive(Clone, Debug)]
pub struct TrsmOptions<T> {
    /// Which side the factor is on.
    pub side: Side,
    /// Which triangle it is in.
    pub uplo: Uplo,
    /// Its transposition.
    pub trans: Trans,
    /// Whether its diagonal is implicit.
    pub diag: Diag,
    /// Factor of the right-hand side.
    pub alpha: T,
    /// Route pin.
    pub route: Option<String>,
}

impl<T: Scalar> Default for TrsmOptions<T> {
    fn default() -> Self {
        TrsmOptions {
            side: Side::Left,
            uplo: Uplo::Lower,
            trans: Trans::No,
            diag: Diag::NonUnit,
            alpha: T::one(),
            route: None,
        }
    }
}

/// Options of [`Context::gemm`](crate::Context::gemm).
#[derive(Clone, Debug)]
pub struct GemmOptions<T> {
    /// Transposition of A.
    pub trans_a: Trans,
    /// Transposition of B.
    pub trans_b: Trans,
    /// Factor of the product.
    pub alpha: T,
    /// Factor of C on input; 0 never reads C.
    pub beta: T,
    /// Route pin.
    pub route: Option<String>,
}

impl<T: Scalar> Default for GemmOptions<T> {
    fn default() -> Self {
        GemmOptions { trans_a: Trans::No, trans_b: Trans::No, alpha: T::one(), beta: T::zero(), route: None }
    }
}

/// Options of [`Context::herk`](crate::Context::herk).
#[derive(Clone, Debug)]
pub struct HerkOptions<T: Scalar> {
    /// Which triangle of C is updated.
    pub uplo: Uplo,
    /// `N` for `A A^H`, otherwise `A^H A`.
    pub trans: Trans,
    /// Factor of the product.
    pub alpha: RealOf<T>,
    /// Factor of C on input; 0 never reads C.
    pub beta: RealOf<T>,
    /// Route pin.
    pub route: Option<String>,
}

impl<T: Scalar> Default for HerkOptions<T> {
    fn default() -> Self {
        let real = |x| RealOf::<T>::from_parts(x, 0.0);
        HerkOptions { uplo: Uplo::Lower, trans: Trans::No, alpha: real(1.0), beta: real(0.0), route: None }
    }
}
