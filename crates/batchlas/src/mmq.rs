//! Products of Q4_K weights on a [`Context`].

use batchlas_core::{MatBatch, MatBatchMut, Ran};
use batchlas_mmq::{Arithmetic, Mmq, Panel, Q4kMatrix, VOCABULARY};

use crate::context::Context;

/// Why a product of Q4_K weights is refused.
pub use batchlas_mmq::Error as MmqError;

/// Options of [`Context::mmq`].
#[derive(Clone, Debug, Default)]
pub struct MmqOptions {
    /// What activations are made into.
    pub arithmetic: Arithmetic,
    /// Route pin.
    pub route: Option<String>,
}

impl Context {
    /// `Y = W X` for Q4_K weights W (`N x K`), activations X (`K x M`, a token a column) and Y (`N x M`). `M N K` multiply-adds.
    ///
    /// ```
    /// use batchlas::{Context, MatBatch, MatBatchMut, MmqOptions, Q4kMatrix};
    ///
    /// # fn main() -> Result<(), batchlas::MmqError> {
    /// let ctx = Context::cpu(1)?;
    /// let (n, k, m) = (3, 256, 2);
    /// let mut block = [0x11; 144]; // every nibble 1
    /// block[..4].copy_from_slice(&[0, 0x3c, 0, 0]); // d = 1, dmin = 0
    /// block[4..16].copy_from_slice(&[1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]); // every scale 1
    /// let (w, x, mut y) = (block.repeat(n), vec![0.5f32; k * m], vec![0f32; n * m]);
    /// let w = Q4kMatrix::from_slice(&w, n, k)?;
    /// ctx.mmq(w, MatBatch::packed(&x, k, m, 1)?, MatBatchMut::packed(&mut y, n, m, 1)?, &MmqOptions::default())?;
    /// assert_eq!(y, [128.0; 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Operands that do not fit each other or the context, a bad route.
    pub fn mmq(
        &self,
        w: Q4kMatrix<'_>,
        x: MatBatch<'_, f32>,
        y: MatBatchMut<'_, f32>,
        options: &MmqOptions,
    ) -> Result<Ran, MmqError> {
        self.mmq_with(options)?.multiply(self.queue(), options.arithmetic, w, x, y)
    }

    /// Activations prepared for any number of products ([`Context::mmq_panel`]).
    ///
    /// # Errors
    /// K is no positive multiple of 256; X is not where the context works; `Bf16` on a CPU.
    pub fn panel(&self, arithmetic: Arithmetic, x: MatBatch<'_, f32>) -> Result<Panel, MmqError> {
        Panel::new(self.queue(), arithmetic, x)
    }

    /// [`Context::mmq`] of prepared activations; `options.arithmetic` must be theirs. From its second call with a panel on, nothing is allocated and nothing waits.
    ///
    /// # Errors
    /// As for [`Context::mmq`]; a panel of the other arithmetic.
    pub fn mmq_panel(
        &self,
        w: Q4kMatrix<'_>,
        panel: &mut Panel,
        y: MatBatchMut<'_, f32>,
        options: &MmqOptions,
    ) -> Result<Ran, MmqError> {
        let (have, want) = (panel.arithmetic(), options.arithmetic);
        if have != want {
            return Err(MmqError::Arithmetic { have: have.name(), want: want.name() });
        }
        self.mmq_with(options)?.multiply_panel(self.queue(), w, panel, y)
    }

    fn mmq_with(&self, options: &MmqOptions) -> Result<Mmq<'_>, MmqError> {
        let pin = options.route.as_ref().map(|text| VOCABULARY.pin(text)).transpose();
        Ok(Mmq { selector: &self.selector, pin: pin.map_err(batchlas_core::Error::from)? })
    }
}
