//! What the families share on the host: operands as the kernels take them, the variant that they need, the launch.
//!
//! The counterpart of the device header `batchlas/product.cuh`: one block per tile of C and item, one grid axis.
#![allow(unsafe_code)]

use batchlas_core::seam::UpdateShape;
use batchlas_core::{
    ArgumentError, Dtype, Error, Kernel, Launch, MatBatch, MatBatchMut, Queue, RealOf, Result, Scalar, Trans,
    Uplo,
};
use bytemuck::{Pod, Zeroable};

use crate::family::Tiling;

/// Largest size of an operand: a kernel adds a tile's extent to it in 32 bits.
pub(crate) const MAX_SIZE: usize = 1 << 30;

/// Most blocks of a launch.
pub(crate) const MAX_GRID: u64 = (1 << 31) - 1;

/// Bytes that the widest access moves.
const WIDEST: u64 = 16;

/// Bits of `Args::flags`, as `batchlas/product.cuh` names them.
mod flag {
    pub(super) const A_TABLE: u32 = 1;
    pub(super) const B_TABLE: u32 = 2;
    pub(super) const C_TABLE: u32 = 4;
    pub(super) const CONJ: u32 = 8;
    pub(super) const READ_C: u32 = 16;
    pub(super) const UPPER: u32 = 32;
}

/// The kernels' one parameter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    address: [u64; 3],
    ld_bytes: [u64; 3],
    item_bytes: [u64; 3],
    alpha: [f64; 2],
    beta: [f64; 2],
    sizes: [i32; 3],
    row_tiles: u32,
    tiles: u32,
    flags: u32,
}

/// The instantiation that a product needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Whether one triangle of a Hermitian C is computed.
    pub triangle: bool,
    /// Whether A and B are contiguous along the inner index.
    pub inner: [bool; 2],
    /// Whether exactly one operand is conjugated.
    pub mixed: bool,
    /// Whether everything starts and ends on 16 bytes.
    pub aligned: bool,
}

impl Variant {
    /// The variant of a product.
    pub fn gemm(dtype: Dtype, trans_a: Trans, trans_b: Trans, aligned: bool) -> Variant {
        let conj = |trans| dtype.is_complex() && trans == Trans::ConjTrans;
        Variant {
            triangle: false,
            inner: [trans_a.transposes(), !trans_b.transposes()],
            mixed: conj(trans_a) != conj(trans_b),
            aligned: aligned && dtype != Dtype::C64,
        }
    }

    /// The variant of a rank-k update. An element of 16 bytes is always aligned, so c64 has one variant only.
    pub fn herk(dtype: Dtype, trans: Trans, aligned: bool) -> Variant {
        Variant {
            triangle: true,
            inner: [trans.transposes(); 2],
            mixed: dtype.is_complex(),
            aligned: aligned && dtype != Dtype::C64,
        }
    }

    /// Every variant of `gemm` (or of `herk`, for a triangle) of one element type.
    pub fn all(dtype: Dtype, triangle: bool) -> impl Iterator<Item = Variant> {
        let bits = (0..16u32).map(|bits| [1, 2, 4, 8].map(|bit| bits & bit != 0));
        bits.map(move |[a, b, mixed, aligned]| Variant { triangle, inner: [a, b], mixed, aligned }).filter(
            move |v| {
                let alike = v.inner[0] == v.inner[1] && v.mixed == dtype.is_complex();
                (!v.mixed || dtype.is_complex())
                    && (!v.aligned || dtype != Dtype::C64)
                    && (!triangle || alike)
            },
        )
    }

    /// The template arguments: how A lies (and B, unless it is the adjoint of A), the alignment, the kind of product.
    pub(crate) fn arguments(&self) -> String {
        let Variant { triangle, inner, mixed, aligned } = *self;
        let [a, b] = inner
            .map(|inner| if inner { "batchlas::Contiguous::Inner" } else { "batchlas::Contiguous::Outer" });
        if triangle { format!("{a}, {aligned}") } else { format!("{a}, {b}, {aligned}, {mixed}") }
    }
}

/// An operand's geometry in bytes.
#[derive(Clone, Copy, Debug)]
struct Operand {
    address: u64,
    ld_bytes: u64,
    item_bytes: u64,
    table: bool,
}

impl Operand {
    fn of<T: Scalar>(x: &MatBatch<'_, T>) -> Operand {
        let bytes = size_of::<T>() as u64;
        let (address, offset) = x.address();
        Operand {
            address,
            ld_bytes: x.ld() as u64 * bytes,
            item_bytes: x.stride().unwrap_or(offset) as u64 * bytes,
            table: x.stride().is_none(),
        }
    }

    /// Whether every column of every item starts on the widest access; what a table holds is not known here.
    fn aligned(&self) -> bool {
        !self.table && [self.address, self.ld_bytes, self.item_bytes].iter().all(|x| x.is_multiple_of(WIDEST))
    }

    /// The operand from item `start` on.
    fn address_from(&self, start: u64) -> u64 {
        self.address + start * if self.table { size_of::<u64>() as u64 } else { self.item_bytes }
    }
}

/// A product on its way to a kernel.
#[derive(Debug)]
pub(crate) struct Product<'a, T> {
    pub(crate) shape: UpdateShape,
    pub(crate) variant: Variant,
    a: MatBatch<'a, T>,
    b: MatBatch<'a, T>,
    c: MatBatchMut<'a, T>,
    alpha: T,
    beta: T,
    flags: u32,
}

impl<'a, T: Scalar> Product<'a, T> {
    /// `C = alpha op(A) op(B) + beta C`, validated.
    pub(crate) fn gemm(
        shape: UpdateShape,
        (trans_a, trans_b): (Trans, Trans),
        (alpha, beta): (T, T),
        a: MatBatch<'a, T>,
        b: MatBatch<'a, T>,
        c: MatBatchMut<'a, T>,
    ) -> Self {
        let bytes = |extent: usize| (extent * size_of::<T>()) as u64;
        let [at, bt, ct] = [Operand::of(&a), Operand::of(&b), Operand::of(&c.rb())];
        let mut variant = Variant::gemm(T::DTYPE, trans_a, trans_b, true);
        // What is contiguous along the inner index is copied element by element, however it lies.
        variant.aligned &= ct.aligned()
            && (variant.inner[0] || at.aligned())
            && (variant.inner[1] || bt.aligned() && bytes(shape.n).is_multiple_of(WIDEST))
            && bytes(shape.m).is_multiple_of(WIDEST);
        let conj = T::DTYPE.is_complex() && trans_a == Trans::ConjTrans;
        Product { shape, variant, a, b, c, alpha, beta, flags: if conj { flag::CONJ } else { 0 } }
    }

    /// `C = alpha A A^H + beta C` or `C = alpha A^H A + beta C` in one triangle, validated.
    pub(crate) fn herk(
        shape: UpdateShape,
        (uplo, trans): (Uplo, Trans),
        (alpha, beta): (RealOf<T>, RealOf<T>),
        a: MatBatch<'a, T>,
        c: MatBatchMut<'a, T>,
    ) -> Self {
        let (at, ct) = (Operand::of(&a), Operand::of(&c.rb()));
        let mut variant = Variant::herk(T::DTYPE, trans, true);
        variant.aligned &= ct.aligned()
            && (variant.inner[0] || at.aligned())
            && ((shape.n * size_of::<T>()) as u64).is_multiple_of(WIDEST);
        let conj = if T::DTYPE.is_complex() && trans.transposes() { flag::CONJ } else { 0 };
        let flags = conj | if uplo == Uplo::Upper { flag::UPPER } else { 0 };
        Product { shape, variant, a, b: a, c, alpha: T::from_real(alpha), beta: T::from_real(beta), flags }
    }

    /// Enqueues the product: one launch, or as many as it takes for the grid to hold the batch.
    pub(crate) fn launch(self, queue: &dyn Queue, kernel: &Kernel, tiling: &Tiling) -> Result<()> {
        let UpdateShape { m, n, k, batch } = self.shape;
        let operands = [Operand::of(&self.a), Operand::of(&self.b), Operand::of(&self.c.rb())];
        let parts = |x: T| [x.widen().re, x.widen().im];
        // Where nothing is added neither operand is looked at.
        let nothing = k == 0 || self.alpha == T::zero();
        let (k, alpha) = if nothing { (0, T::zero()) } else { (k, self.alpha) };
        let (row_tiles, tiles) = tiling.count(&self.shape, self.variant.triangle);
        let mut flags = self.flags | if self.beta == T::zero() { 0 } else { flag::READ_C };
        for (operand, bit) in operands.iter().zip([flag::A_TABLE, flag::B_TABLE, flag::C_TABLE]) {
            let read = !nothing || bit == flag::C_TABLE;
            flags |= if operand.table && read { bit } else { 0 };
        }
        let too_large = || ArgumentError::TooLarge {
            operand: "C",
            rows: m,
            cols: n,
            ld: self.c.ld(),
            stride: self.c.stride().unwrap_or(0),
            batch,
        };
        let size = |x: usize| i32::try_from(x).map_err(|_| Error::from(too_large()));
        let count = |x: u64| u32::try_from(x).map_err(|_| Error::from(too_large()));
        let mut args = Args {
            address: [0; 3],
            ld_bytes: operands.map(|x| x.ld_bytes),
            item_bytes: operands.map(|x| x.item_bytes),
            alpha: parts(alpha),
            beta: parts(self.beta),
            sizes: [size(m)?, size(n)?, size(k)?],
            row_tiles: count(row_tiles)?,
            tiles: count(tiles)?,
            flags,
        };
        for (start, items) in launches(batch as u64, tiles) {
            args.address = operands.map(|x| x.address_from(start));
            let launch = Launch {
                kernel,
                grid: count(items * tiles)?,
                dynamic_shared: kernel.promise.max_dynamic_shared,
                args: bytemuck::bytes_of(&args),
            };
            // SAFETY: `Args` is the parameter struct of every kernel of this crate. Its addresses are those of views
            // that were validated against each other for this queue, and C's view is exclusively borrowed.
            unsafe { queue.launch(&launch)? };
        }
        Ok(())
    }
}

/// First item and number of items of each launch, for an item of `tiles` blocks.
fn launches(batch: u64, tiles: u64) -> impl Iterator<Item = (u64, u64)> {
    let at_once = (MAX_GRID / tiles).max(1);
    (0..batch.div_ceil(at_once)).map(move |i| (i * at_once, at_once.min(batch - i * at_once)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transposition_maps_to_a_variant_that_ships() {
        for dtype in Dtype::ALL {
            let gemm: Vec<Variant> = Variant::all(dtype, false).collect();
            let herk: Vec<Variant> = Variant::all(dtype, true).collect();
            for (&a, &b) in Trans::ALL.iter().flat_map(|a| Trans::ALL.iter().map(move |b| (a, b))) {
                for aligned in [false, true] {
                    assert!(gemm.contains(&Variant::gemm(dtype, a, b, aligned)), "{dtype} {a}{b} {aligned}");
                    assert!(herk.contains(&Variant::herk(dtype, a, aligned)), "{dtype} {a} {aligned}");
                }
            }
            let counts = match dtype {
                Dtype::F32 | Dtype::F64 => (8, 4),
                Dtype::C32 => (16, 4),
                Dtype::C64 => (8, 2),
            };
            assert_eq!((gemm.len(), herk.len()), counts, "{dtype}: a kernel that nothing launches");
        }
    }

    #[test]
    fn a_batch_beyond_the_grid_takes_several_launches_and_no_item_twice() {
        assert_eq!(launches(7, 3).collect::<Vec<_>>(), [(0, 7)]);
        assert_eq!(launches(3, MAX_GRID).collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 1)]);
        let many: Vec<(u64, u64)> = launches(10_000_000_000, 3).collect();
        assert!(many.iter().all(|&(_, items)| items * 3 <= MAX_GRID && items > 0));
        assert_eq!(many.iter().map(|&(_, items)| items).sum::<u64>(), 10_000_000_000);
        assert!(many.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
    }

    #[test]
    fn a_product_is_aligned_only_if_all_that_is_copied_wide_is() {
        let place = batchlas_core::Place::Cuda(0);
        let view = |address: u64, rows, cols, ld, stride| {
            // SAFETY: no launch follows; the view is only looked at.
            unsafe { MatBatch::<f32>::from_raw_strided(place, address, rows, cols, ld, stride, 2).unwrap() }
        };
        let aligned = |m: usize, n: usize, ld: usize, stride: usize, at: u64, trans: (Trans, Trans)| {
            let shape = UpdateShape { m, n, k: 8, batch: 2 };
            // SAFETY: as above.
            let c = unsafe { MatBatchMut::from_raw_strided(place, 256, m, n, 64, 64 * n, 2).unwrap() };
            let a = view(at, if trans.0.transposes() { 8 } else { m }, 64, ld, stride);
            Product::gemm(shape, trans, (1.0, 0.0), a, a, c).variant.aligned
        };
        let plain = (Trans::No, Trans::No);
        assert!(aligned(32, 20, 64, 4096, 256, plain));
        assert!(!aligned(33, 20, 64, 4096, 256, plain), "a column of C ends inside 16 bytes");
        assert!(!aligned(32, 20, 65, 4096, 256, plain));
        assert!(!aligned(32, 20, 64, 4095, 256, plain));
        assert!(!aligned(32, 20, 64, 4096, 260, plain));
        assert!(aligned(32, 20, 65, 4095, 260, (Trans::Trans, Trans::No)), "A is copied element by element");
        assert!(
            aligned(32, 21, 64, 4096, 256, plain)
                && !aligned(32, 21, 64, 4096, 256, (Trans::No, Trans::Trans))
        );
    }
}
