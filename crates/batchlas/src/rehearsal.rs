//! Contexts that only find out what a call would launch.

use batchlas_core::seam::{FactorShape, SolveShape, UpdateShape};
use batchlas_core::{
    Device, Diag, Factor, InfoMut, Kernel, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, RealOf, Rehearsal,
    Result, Side, TrailingUpdate, Trans, Uplo, WorkspaceMut,
};
use batchlas_select::{Environment, Selector};
use batchlas_vendor::{CudaArm, Element};

use crate::context::{Arm, Context, TABLES, VOCABULARIES};

impl Context {
    /// A context for a device that need not be there: its calls take every decision, launch nothing, and are told by
    /// [`Context::rehearsed`]. Vendor libraries count as present.
    ///
    /// # Errors
    /// A malformed `BATCHLAS_*` variable or table.
    pub fn rehearsing(device: Device, environment: Environment) -> Result<Self> {
        let selector = Selector::new(VOCABULARIES, TABLES, environment, false)?;
        let queue = Box::new(Rehearsal::new(device));
        Ok(Context { queue, arm: Arm::Silent(Silent { real: None }), selector })
    }

    /// A context that rehearses for the device of this one, with its tables, its environment and what is known of its
    /// vendor libraries. Nothing that it does is traced.
    #[must_use]
    pub fn rehearsal(&self) -> Self {
        let real = match self.arm {
            Arm::Cuda(arm) => Some(arm),
            Arm::Silent(silent) => silent.real,
            Arm::Faer(_) | Arm::None => None,
        };
        let arm = match self.arm {
            Arm::None => Arm::None,
            _ => Arm::Silent(Silent { real }),
        };
        let selector = Selector {
            tables: self.selector.tables.clone(),
            environment: self.selector.environment.clone(),
            vendor_free: self.selector.vendor_free,
            ..Selector::default()
        };
        Context { queue: Box::new(Rehearsal::new(self.device().clone())), arm, selector }
    }

    /// The kernels that calls on this rehearsing context would have launched since the last question, each once; none on
    /// any other context.
    pub fn rehearsed(&self) -> Vec<Kernel> {
        self.queue.as_any().downcast_ref::<Rehearsal>().map_or_else(Vec::new, Rehearsal::take_kernels)
    }
}

/// A vendor arm that is asked and not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silent {
    /// The arm that knows what it can do; without one it can do everything.
    real: Option<CudaArm>,
}

impl<T: Element> Factor<T> for Silent {
    fn can_factor(&self, device: &Device, shape: &FactorShape) -> Result<(), String> {
        self.real.map_or(Ok(()), |real| Factor::<T>::can_factor(&real, device, shape))
    }

    fn factor_workspace(&self, _: &dyn Queue, _: Uplo, _: MatBatch<'_, T>) -> Result<usize> {
        Ok(0)
    }

    fn factor(
        &self,
        _: &dyn Queue,
        _: Uplo,
        _: MatBatchMut<'_, T>,
        _: InfoMut<'_>,
        _: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        Ok(Ran::leaf("potrf", "vendor"))
    }
}

impl<T: Element> PanelSolve<T> for Silent {
    fn can_solve(&self, device: &Device, shape: &SolveShape) -> Result<(), String> {
        self.real.map_or(Ok(()), |real| PanelSolve::<T>::can_solve(&real, device, shape))
    }

    fn solve(
        &self,
        _: &dyn Queue,
        _: Side,
        _: Uplo,
        _: Trans,
        _: Diag,
        _: T,
        _: MatBatch<'_, T>,
        _: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        Ok(Ran::leaf("trsm", "vendor"))
    }
}

impl<T: Element> TrailingUpdate<T> for Silent {
    fn can_update(&self, device: &Device, shape: &UpdateShape) -> Result<(), String> {
        self.real.map_or(Ok(()), |real| TrailingUpdate::<T>::can_update(&real, device, shape))
    }

    fn gemm(
        &self,
        _: &dyn Queue,
        _: Trans,
        _: Trans,
        _: T,
        _: MatBatch<'_, T>,
        _: MatBatch<'_, T>,
        _: T,
        _: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        Ok(Ran::leaf("gemm", "vendor"))
    }

    fn herk(
        &self,
        _: &dyn Queue,
        _: Uplo,
        _: Trans,
        _: RealOf<T>,
        _: MatBatch<'_, T>,
        _: RealOf<T>,
        _: MatBatchMut<'_, T>,
    ) -> Result<Ran> {
        Ok(Ran::leaf("herk", "vendor"))
    }
}
