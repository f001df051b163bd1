//! The operations of a [`Context`].

use batchlas_core::{
    Buffer, Factor, InfoMut, MatBatch, MatBatchMut, PanelSolve, Ran, RealOf, Result, TrailingUpdate,
    WorkspaceMut,
};
use batchlas_posv::Posv;
use batchlas_posv::jitter::Jitter;
use batchlas_posv::mixed::Mixed;
use batchlas_select::{Pin, Vocabulary};
use batchlas_vendor::Element;
use num_complex::Complex;

use crate::context::Context;
use crate::info::{Jittered, Pending};
use crate::options::{
    GemmOptions, HerkOptions, PosvOptions, PotrfOptions, PotriOptions, PotrsOptions, TrsmOptions,
};

/// A route option in terms of an operation's vocabulary.
fn pin(vocabulary: &'static Vocabulary, route: Option<&String>) -> Result<Option<Pin>> {
    Ok(route.map(|text| vocabulary.pin(text)).transpose()?)
}

impl Context {
    fn pending(
        &self,
        batch: usize,
        workspace_bytes: usize,
        call: impl FnOnce(InfoMut<'_>, WorkspaceMut<'_>) -> Result<Ran>,
    ) -> Result<Pending<'_>> {
        let queue = self.queue();
        let mut info = Buffer::new(queue, batch)?;
        let ran = if workspace_bytes == 0 {
            call(info.info_mut(), WorkspaceMut::empty(self.device().place))?
        } else {
            let mut memory = queue.alloc(workspace_bytes)?;
            call(info.info_mut(), WorkspaceMut::over(&mut memory))?
        };
        Ok(Pending { queue, info, ran })
    }

    /// Cholesky factorisation of every item of `a` (`n x n`), in place in one triangle: `A = L L^H` or `A = U^H U`.
    /// `n^3/3` multiply-adds per item.
    ///
    /// # Errors
    /// A view that is not square or not where the context works, a bad route. A failing item is not an error.
    pub fn potrf<T: Element>(&self, a: MatBatchMut<'_, T>, options: &PotrfOptions) -> Result<Pending<'_>> {
        let bytes = self.potrf_workspace(a.rb(), options)?;
        self.pending(a.batch(), bytes, |info, workspace| self.potrf_in(a, info, workspace, options))
    }

    /// [`Context::potrf`] with the caller's `info` and workspace: nothing is allocated and nothing waits.
    ///
    /// # Errors
    /// As for [`Context::potrf`]; an `info` or workspace that does not fit.
    pub fn potrf_in<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
        options: &PotrfOptions,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_potrf::VOCABULARY, options.route.as_ref())?;
        self.potrf_with(pin, |potrf| potrf.factor(self.queue(), options.uplo, a, info, workspace))
    }

    /// Bytes of workspace that [`Context::potrf_in`] needs.
    ///
    /// # Errors
    /// As for [`Context::potrf`].
    pub fn potrf_workspace<T: Element>(&self, a: MatBatch<'_, T>, options: &PotrfOptions) -> Result<usize> {
        let pin = pin(&batchlas_potrf::VOCABULARY, options.route.as_ref())?;
        self.potrf_with(pin, |potrf| potrf.factor_workspace(self.queue(), options.uplo, a))
    }

    /// Inverse of every item from its Cholesky factor, in place in the triangle that holds it; the other triangle is not
    /// touched. `2 n^3/3` multiply-adds per item and no workspace to
    /// [`potri::max_n`](batchlas_potrf::potri::max_n), `2 n^3` and two matrices per item beyond it. The status of an item
    /// whose factor's diagonal is not positive and finite is the 1-based index of the first such element, and the item is
    /// left unchanged.
    ///
    /// # Errors
    /// A view that is not square or not where the context works; a workspace that does not fit the memory.
    pub fn potri<T: Element>(&self, a: MatBatchMut<'_, T>, options: &PotriOptions) -> Result<Pending<'_>> {
        let bytes = self.potri_workspace(a.rb())?;
        self.pending(a.batch(), bytes, |info, workspace| self.potri_in(a, info, workspace, options))
    }

    /// [`Context::potri`] with the caller's `info` and workspace: nothing is allocated and nothing waits.
    ///
    /// # Errors
    /// As for [`Context::potri`]; an `info` or workspace that does not fit.
    pub fn potri_in<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
        options: &PotriOptions,
    ) -> Result<Ran> {
        self.potri_with(|potri| potri.invert(self.queue(), options.uplo, a, info, workspace))
    }

    /// Bytes of workspace that [`Context::potri_in`] needs.
    ///
    /// # Errors
    /// More than there are addresses.
    pub fn potri_workspace<T: Element>(&self, a: MatBatch<'_, T>) -> Result<usize> {
        self.potri_with(|potri| potri.workspace(self.queue(), &a))
    }

    /// Logarithm of the determinant of every item from its Cholesky factor in either triangle of `a`, into `out`
    /// (`1 x 1`, real). `n` logarithms per item, no workspace. The status of an item whose factor's diagonal is not
    /// positive and finite is the 1-based index of the first such element, and its result is NaN.
    ///
    /// # Errors
    /// Views that do not fit each other or the context.
    pub fn logdet<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        out: MatBatchMut<'_, RealOf<T>>,
    ) -> Result<Pending<'_>> {
        self.pending(a.batch(), 0, |info, _| self.logdet_in(a, out, info))
    }

    /// [`Context::logdet`] with the caller's `info`: nothing is allocated and nothing waits.
    ///
    /// # Errors
    /// As for [`Context::logdet`]; an `info` that does not fit.
    pub fn logdet_in<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        out: MatBatchMut<'_, RealOf<T>>,
        info: InfoMut<'_>,
    ) -> Result<Ran> {
        batchlas_potrf::logdet::logdet(self.queue(), a, out, info)
    }

    /// Solves `A X = B` for every item: `a` (`n x n`, Hermitian positive definite) is factored in place (unless
    /// [`PosvOptions::factor`] says that nobody needs the factor), `b` (`n x nrhs`) is replaced by X.
    /// `n^3/3 + 2 n^2 nrhs` multiply-adds per item. A failed item's `b` is left
    /// unchanged.
    ///
    /// # Errors
    /// Views that do not fit each other or the context, a bad route. A failing item is not an error.
    pub fn posv<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        options: &PosvOptions,
    ) -> Result<Pending<'_>> {
        let bytes = self.posv_workspace(a.rb(), &b, false, options)?;
        self.pending(a.batch(), bytes, |info, workspace| self.posv_in(a, b, info, workspace, options))
    }

    /// [`Context::posv`] with the caller's `info` (which may be absent) and workspace: nothing is allocated and nothing
    /// waits.
    ///
    /// # Errors
    /// As for [`Context::posv`]; an `info` or workspace that does not fit.
    pub fn posv_in<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
        options: &PosvOptions,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_posv::POSV, options.route.as_ref())?;
        self.posv_with(pin, |posv| {
            let posv = Posv { output: options.factor, ..*posv };
            posv.posv(self.queue(), options.uplo, a, b, info, workspace)
        })
    }

    /// Bytes of workspace that [`Context::posv_in`] needs; `info_absent` says whether it will be called without `info`.
    ///
    /// # Errors
    /// As for [`Context::posv`].
    pub fn posv_workspace<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
        info_absent: bool,
        options: &PosvOptions,
    ) -> Result<usize> {
        let pin = pin(&batchlas_posv::POSV, options.route.as_ref())?;
        self.posv_with(pin, |posv| posv.posv_workspace(self.queue(), options.uplo, a, b, info_absent))
    }

    /// [`Context::posv_in`] for f64 and c64 by way of a factor in f32 or c32, refined until the solution has full precision
    /// (normwise backward error at most `eps sqrt(n)`). `iterations` receives, per item, the number of refinements, or -1
    /// for an item that did not get there and was solved in full precision; only that item's A holds its factor, any
    /// other's is unchanged. `options.route` pins the solve in half the precision. GPUs only.
    ///
    /// For devices with little double precision, and condition numbers below about 1e7. An H200 factors doubles on tensor
    /// cores, and there this is slower than [`Context::posv`] at every order measured: every refinement reads A again.
    ///
    /// # Errors
    /// As for [`Context::posv_in`]; f32 or c32 operands; a CPU; an order beyond the device's shared memory.
    pub fn posv_mixed_in<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        info: InfoMut<'_>,
        iterations: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
        options: &PosvOptions,
    ) -> Result<Ran> {
        let (pin, queue, uplo) =
            (pin(&batchlas_posv::POSV, options.route.as_ref())?, self.queue(), options.uplo);
        if T::DTYPE.is_complex() {
            self.posv_with::<Complex<f32>, _>(pin, |low| {
                Mixed { low: *low }.posv(queue, uplo, a, b, info, iterations, workspace)
            })
        } else {
            self.posv_with::<f32, _>(pin, |low| {
                Mixed { low: *low }.posv(queue, uplo, a, b, info, iterations, workspace)
            })
        }
    }

    /// [`Context::posv`] that solves items which are not positive definite once more, alone, as `(A + s I) X = B`, with
    /// shifts `s` that grow until the item is positive definite or `jitter`'s limit has failed. Waits, and reports the shift
    /// of every item. An item that no shift helps keeps its A and B, bit for bit; the factor of any other is that of the
    /// matrix that was solved.
    ///
    /// A is copied before it is factored: the call allocates `n^2` elements, and 8 bytes for the shift, per item, and 28
    /// bytes per failed item, beside the workspace of the solves.
    ///
    /// # Errors
    /// As for [`Context::posv`]; shifts that do not grow from above 0 to the limit; no memory for the copy.
    pub fn posv_jittered<T: Element>(
        &self,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        options: &PosvOptions,
        jitter: &Jitter,
    ) -> Result<Jittered> {
        let pin = pin(&batchlas_posv::POSV, options.route.as_ref())?;
        let retried = self.posv_with(pin, |posv| {
            let posv = Posv { output: options.factor, ..*posv };
            posv.posv_jittered(self.queue(), options.uplo, a, b, jitter)
        })?;
        Ok(Jittered { info: retried.info.into(), shifts: retried.shifts, ran: retried.ran })
    }

    /// Bytes of workspace that [`Context::posv_mixed_in`] needs.
    ///
    /// # Errors
    /// As for [`Context::posv_mixed_in`].
    pub fn posv_mixed_workspace<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
        options: &PosvOptions,
    ) -> Result<usize> {
        let (pin, queue, uplo) =
            (pin(&batchlas_posv::POSV, options.route.as_ref())?, self.queue(), options.uplo);
        if T::DTYPE.is_complex() {
            self.posv_with::<Complex<f32>, _>(pin, |low| Mixed { low: *low }.workspace(queue, uplo, a, b))
        } else {
            self.posv_with::<f32, _>(pin, |low| Mixed { low: *low }.workspace(queue, uplo, a, b))
        }
    }

    /// Solves `A X = B` given the Cholesky factor of A in one triangle of `a`, which may be shared by the whole batch
    /// (stride 0); `b` is replaced by X. `2 n^2 nrhs` multiply-adds per item, no workspace.
    ///
    /// # Errors
    /// As for [`Context::posv`].
    pub fn potrs<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
        options: &PotrsOptions,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_posv::POTRS, options.route.as_ref())?;
        self.posv_with(pin, |posv| posv.potrs(self.queue(), options.uplo, a, b))
    }

    /// Triangular solve of every item: `op(A) X = alpha B` or `X op(A) = alpha B`, X over `b`. `a` may be shared by the
    /// whole batch (stride 0). `n^2 q` multiply-adds per item for an order `n` and `q` right-hand sides, no workspace.
    ///
    /// # Errors
    /// Views that do not fit each other or the context, a bad route.
    pub fn trsm<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        b: MatBatchMut<'_, T>,
        options: &TrsmOptions<T>,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_trsm::VOCABULARY, options.route.as_ref())?;
        let TrsmOptions { side, uplo, trans, diag, alpha, .. } = *options;
        self.trsm_with(pin, |trsm| trsm.solve(self.queue(), side, uplo, trans, diag, alpha, a, b))
    }

    /// Matrix product of every item: `C = alpha op(A) op(B) + beta C`. `a` and `b` may be shared by the whole batch
    /// (stride 0). `m n k` multiply-adds per item, no workspace.
    ///
    /// # Errors
    /// Views that do not fit each other or the context, a bad route.
    pub fn gemm<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        b: MatBatch<'_, T>,
        c: MatBatchMut<'_, T>,
        options: &GemmOptions<T>,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_gemm::GEMM, options.route.as_ref())?;
        let GemmOptions { trans_a, trans_b, alpha, beta, .. } = *options;
        self.gemm_with(pin).gemm(self.queue(), trans_a, trans_b, alpha, a, b, beta, c)
    }

    /// Hermitian rank-k update of one triangle of every item: `C = alpha A A^H + beta C` or `C = alpha A^H A + beta C`.
    /// `n^2 k / 2` multiply-adds per item, no workspace.
    ///
    /// # Errors
    /// Views that do not fit each other or the context, a bad route.
    pub fn herk<T: Element>(
        &self,
        a: MatBatch<'_, T>,
        c: MatBatchMut<'_, T>,
        options: &HerkOptions<T>,
    ) -> Result<Ran> {
        let pin = pin(&batchlas_gemm::HERK, options.route.as_ref())?;
        let HerkOptions { uplo, trans, alpha, beta, .. } = *options;
        self.gemm_with(pin).herk(self.queue(), uplo, trans, alpha, a, beta, c)
    }

    /// The spellings that `route` accepts for `op` (`potrf`, `posv`, `potrs`, `trsm`, `gemm` or `herk`).
    pub fn routes(op: &str) -> Option<String> {
        crate::VOCABULARIES.iter().find(|v| v.op == op).map(|v| v.valid_pins())
    }
}
