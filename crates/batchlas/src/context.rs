//! A device, its queue, and everything that is wired to it.

use batchlas_core::{
    Buffer, CpuQueue, Device, Dtype, Error, Factor, PanelSolve, Queue, QueueError, Result, TrailingUpdate,
};
use batchlas_gemm::Gemm;
use batchlas_kernels::cuda::CudaQueue;
use batchlas_posv::{FactorOutput, Posv};
use batchlas_potrf::Potrf;
use batchlas_potrf::potri::Potri;
use batchlas_select::{Environment, Pin, Recorder, Selector, Spelling, Vocabulary};
use batchlas_trsm::Trsm;
use batchlas_vendor::{CudaArm, Element, FaerArm};

use std::sync::Arc;

use crate::rehearsal::Silent;

/// The built-in tables, those under `tuned/`, as (file name, text).
pub static TABLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The vocabulary of every operation.
pub static VOCABULARIES: &[&Vocabulary] = &[
    &batchlas_potrf::VOCABULARY,
    &batchlas_trsm::VOCABULARY,
    &batchlas_gemm::GEMM,
    &batchlas_gemm::HERK,
    &batchlas_posv::POSV,
    &batchlas_posv::POTRS,
    &batchlas_mmq::VOCABULARY,
];

/// The vendor arm that belongs to a queue.
#[derive(Debug)]
pub(crate) enum Arm {
    Faer(FaerArm),
    Cuda(CudaArm),
    Silent(Silent),
    None,
}

/// Where operations run: a queue on one device, the tables that choose families for it, and the arms behind the seams.
#[derive(Debug)]
pub struct Context {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) arm: Arm,
    pub(crate) selector: Selector,
}

impl Context {
    /// The best usable device: a GPU where there is one, else the CPU with one thread per core.
    ///
    /// # Errors
    /// A malformed `BATCHLAS_*` variable or table; the system refuses threads.
    pub fn new() -> Result<Self> {
        match CudaQueue::new(0) {
            Ok(queue) => Self::on(Box::new(queue), Environment::process().clone()),
            Err(reason) => {
                tracing::info!("no GPU is usable, running on the CPU: {reason}");
                Self::cpu(0)
            }
        }
    }

    /// The CUDA device with this ordinal, on a stream of its own.
    ///
    /// # Errors
    /// The device or the driver is not usable, and why; a malformed `BATCHLAS_*` variable or table.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        let queue = CudaQueue::new(ordinal)
            .map_err(|error| QueueError::runtime(format!("opening cuda:{ordinal}"), error))?;
        Self::on(Box::new(queue), Environment::process().clone())
    }

    /// The CPU with a pool of `threads` threads; 0 means one per core.
    ///
    /// # Errors
    /// A malformed `BATCHLAS_*` variable or table; the system refuses threads.
    pub fn cpu(threads: usize) -> Result<Self> {
        Self::on(Box::new(CpuQueue::new(threads)?), Environment::process().clone())
    }

    /// Any queue, with an environment of the caller's in place of the process's.
    ///
    /// # Errors
    /// A malformed `BATCHLAS_*` variable or table.
    pub fn on(queue: Box<dyn Queue>, environment: Environment) -> Result<Self> {
        let selector = Selector::new(VOCABULARIES, TABLES, environment, false)?;
        let arm = match queue.as_any().downcast_ref::<CudaQueue>() {
            Some(cuda) => Arm::Cuda(CudaArm::new(cuda.ordinal())),
            None if queue.cpu().is_some() => Arm::Faer(FaerArm),
            None => Arm::None,
        };
        Ok(Context { queue, arm, selector })
    }

    /// The same context that also reports every executed operation, with its decision, to `recorder`.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.selector.observer = self.selector.observer.with_recorder(recorder);
        self
    }

    /// Spellings of `op` that are worth timing for a key (as its exact and logarithmic fields, in vocabulary order): what
    /// the nearest rows of the table rank highest, and every family's defaults; or, with `every`, all that there are.
    /// Which of them run is another question.
    ///
    /// # Errors
    /// There is no such operation; the key is not one of its; the table is malformed.
    pub fn contenders(
        &self,
        op: &str,
        dtype: Dtype,
        (exact, log): (&[&str], &[u64]),
        every: bool,
    ) -> Result<Vec<String>> {
        /// Rows that are asked, and the entries of each.
        const NEAREST: usize = 6;
        const BEST: usize = 4;
        let vocabulary = VOCABULARIES.iter().find(|vocabulary| vocabulary.op == op);
        let vocabulary = vocabulary.ok_or_else(|| Error::Internal(format!("there is no operation {op}")))?;
        let key = vocabulary.key(exact, log)?;
        let mut names: Vec<String> = Vec::new();
        let mut add = |spelling: Spelling| {
            let name = spelling.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        };
        if every {
            vocabulary.all_spellings().for_each(&mut add);
        } else {
            let found = self.selector.tables.find(op, dtype.name(), self.device().arch.parse()?)?;
            let rows = found.map_or_else(Vec::new, |found| found.table.around(&key));
            rows.iter()
                .take(NEAREST)
                .flat_map(|row| &row.ranking[..row.ranking.len().min(BEST)])
                .copied()
                .for_each(&mut add);
            vocabulary.spellings().for_each(&mut add);
        }
        Ok(names)
    }

    /// The queue that work is enqueued on.
    pub fn queue(&self) -> &dyn Queue {
        &*self.queue
    }

    /// The device behind the queue.
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// Copies an array into the device's memory (host memory for a CPU).
    ///
    /// # Errors
    /// The device has no memory left; the transfer fails.
    pub fn upload<T: bytemuck::Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        Buffer::from_slice(self.queue(), data)
    }

    /// Copies an array back, waiting for work enqueued before.
    ///
    /// # Errors
    /// The transfer, or work enqueued before it, failed.
    pub fn download<T: bytemuck::Pod>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        buffer.to_vec(self.queue())
    }

    /// Waits for all enqueued work.
    ///
    /// # Errors
    /// Work failed.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.queue.synchronize()?)
    }

    fn vendor_factor<T: Element>(&self) -> Option<&dyn Factor<T>> {
        match &self.arm {
            Arm::Faer(arm) => Some(arm),
            Arm::Cuda(arm) => Some(arm),
            Arm::Silent(arm) => Some(arm),
            Arm::None => None,
        }
    }

    fn vendor_solve<T: Element>(&self) -> Option<&dyn PanelSolve<T>> {
        match &self.arm {
            Arm::Faer(arm) => Some(arm),
            Arm::Cuda(arm) => Some(arm),
            Arm::Silent(arm) => Some(arm),
            Arm::None => None,
        }
    }

    fn vendor_update<T: Element>(&self) -> Option<&dyn TrailingUpdate<T>> {
        match &self.arm {
            Arm::Faer(arm) => Some(arm),
            Arm::Cuda(arm) => Some(arm),
            Arm::Silent(arm) => Some(arm),
            Arm::None => None,
        }
    }

    /// Makes what the vendor arm makes on first use.
    pub(crate) fn prepare_vendor(&self) -> Result<()> {
        match &self.arm {
            Arm::Cuda(arm) => arm.prepare(self.queue()),
            Arm::Faer(_) | Arm::Silent(_) | Arm::None => Ok(()),
        }
    }

    /// Runs `call` with the routed factorisation, its arms and the solve and the product behind its seams.
    pub(crate) fn potrf_with<T: Element, R>(
        &self,
        pin: Option<Pin>,
        call: impl FnOnce(&Potrf<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let update = self.gemm_with(None);
        let (selector, vendor) = (&self.selector, self.vendor_factor());
        self.trsm_with(None, |solve| {
            let (solve, update) =
                (Some(solve as &dyn PanelSolve<T>), Some(&update as &dyn TrailingUpdate<T>));
            call(&Potrf { selector, pin, vendor, solve, update })
        })
    }

    /// Runs `call` with the routed triangular solve, its arms and the product behind its seam.
    pub(crate) fn trsm_with<T: Element, R>(
        &self,
        pin: Option<Pin>,
        call: impl FnOnce(&Trsm<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let update = self.gemm_with(None);
        let (selector, vendor) = (&self.selector, self.vendor_solve());
        call(&Trsm { selector, pin, vendor, update: Some(&update) })
    }

    /// The routed products with their arms.
    pub(crate) fn gemm_with<T: Element>(&self, pin: Option<Pin>) -> Gemm<'_, T> {
        Gemm { selector: &self.selector, pin, vendor: self.vendor_update() }
    }

    /// Runs `call` with the inversion, the routed solve and product behind its seams.
    pub(crate) fn potri_with<T: Element, R>(
        &self,
        call: impl FnOnce(&Potri<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let update = self.gemm_with(None);
        self.trsm_with(None, |solve| call(&Potri { solve: Some(solve), update: Some(&update) }))
    }

    /// Runs `call` with the routed solve, its children behind the seams.
    pub(crate) fn posv_with<T: Element, R>(
        &self,
        pin: Option<Pin>,
        call: impl FnOnce(&Posv<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let output = FactorOutput::default();
        self.potrf_with(None, |factor| {
            call(&Posv { selector: &self.selector, pin, output, factor: Some(factor), solve: factor.solve })
        })
    }
}
