//! Mixed precision: a solve in f64 or c64 by way of a factor in f32 or c32 and iterative refinement, as LAPACK's `dsposv`
//! and `zcposv` do it.
//!
//! Everything is enqueued at once, [`STEPS`] refinements of it; which items still take part is decided on the device, so
//! that nothing waits for the host. An item that is not solved by then, or has no factor in half the precision, is factored
//! and solved in full precision by a simple kernel: right, but slow. `cuda/mixed.cuh` has the kernels and the criterion.
#![allow(unsafe_code)]

use batchlas_core::{
    Arena, Chunk, Dtype, Error, InfoMut, Kernel, KernelSource, Launch, MatBatch, MatBatchMut, Promise, Queue,
    Ran, Result, Scalar, Uplo, WorkspaceMut,
};
use batchlas_select::Spelling;
use bytemuck::{Pod, Zeroable};

use crate::operand::Operand;
use crate::problem::Problem;
use crate::route::Posv;
use crate::{FactorOutput, POTRS, cta};

/// Largest number of refinements. Each gains about seven digits less those that the condition number takes.
pub const STEPS: u64 = 6;

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/mixed.cuh", text: include_str!("../cuda/mixed.cuh") };

/// Items of a block of `mixed_demote` and `mixed_refine` (`WARPS` of the text).
const WARPS: u32 = 4;
/// Threads of a block of `mixed_finish` (`THREADS` of the text).
const THREADS: u32 = 256;

/// The kernels' one parameter (`MixedArgs` of the text).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Operand,
    b: Operand,
    n: u64,
    nrhs: u64,
    batch: u64,
    low_a: u64,
    low_b: u64,
    x: u64,
    factored: u64,
    state: u64,
    info: u64,
    iterations: u64,
    step: u64,
    steps: u64,
}

/// Every kernel of this module, for the residency probe and for ahead-of-time bundles.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let types =
        [Dtype::F64, Dtype::C64].into_iter().flat_map(|d| Uplo::ALL.iter().map(move |&uplo| (d, uplo)));
    types.flat_map(|(dtype, uplo)| {
        ["demote", "refine", "finish"].map(|part| kernel(part, dtype, uplo, cta::promised_shared(0, 0)))
    })
}

fn kernel(part: &str, dtype: Dtype, uplo: Uplo, max_dynamic_shared: u32) -> Kernel {
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    let threads = if part == "finish" { THREADS } else { 32 * WARPS };
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::mixed_{part}<batchlas::{dtype}, batchlas::Uplo::{uplo}>"),
        promise: Promise { threads, min_blocks: 1, max_dynamic_shared },
    }
}

/// Scratch of one call.
struct Layout<'a, T, L> {
    low_a: Chunk<'a, L>,
    low_b: Chunk<'a, L>,
    x: Chunk<'a, T>,
    factored: Chunk<'a, i32>,
    state: Chunk<'a, i32>,
    low: Chunk<'a, u8>,
}

impl<'a, T: Scalar, L: Scalar> Layout<'a, T, L> {
    fn new(arena: &mut Arena<'a>, problem: &Problem, low_bytes: usize) -> Result<Self> {
        let Problem { n, nrhs, batch, .. } = *problem;
        Ok(Layout {
            low_a: arena.take("posv", n.saturating_mul(n).saturating_mul(batch))?,
            low_b: arena.take("posv", n.saturating_mul(nrhs).saturating_mul(batch))?,
            x: arena.take("posv", n.saturating_mul(nrhs).saturating_mul(batch))?,
            factored: arena.take("posv", batch)?,
            state: arena.take("posv", batch)?,
            low: arena.take("posv", low_bytes)?,
        })
    }
}

/// A solve in the precision of `T` by way of the routed solve in that of `L`, which is f32 for f64 and c32 for c64.
#[derive(Clone, Copy)]
pub struct Mixed<'s, L: Scalar> {
    /// The routed solve of half the precision; it stores its factor.
    pub low: Posv<'s, L>,
}

impl<L: Scalar> Mixed<'_, L> {
    /// The validated problem, and the spelling of the solves with the factor.
    fn problem<T: Scalar>(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: &MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
    ) -> Result<(Problem, Spelling)> {
        if !matches!((T::DTYPE, L::DTYPE), (Dtype::F64, Dtype::F32) | (Dtype::C64, Dtype::C32)) {
            return Err(Error::Internal(format!("mixed precision solves f64 and c64, not {}", T::DTYPE)));
        }
        let problem = Problem::new("posv", uplo, a, b, queue.device().place)?;
        let family = POTRS.spelling("cta")?;
        let low = Problem { dtype: L::DTYPE, ..problem };
        let shared = Self::shared_bytes::<T>(problem.n);
        if !problem.is_empty() && problem.nrhs > 0 {
            cta::can_run(queue.device(), &low, &family)
                .map_err(|why| Error::Internal(format!("mixed precision cannot solve this: {why}")))?;
            if shared > queue.device().slm_budget {
                let budget = queue.device().slm_budget;
                return Err(Error::Internal(format!(
                    "mixed precision takes {shared} bytes of shared memory at n = {}, and the device has {budget}: \
                     solve in full precision",
                    problem.n
                )));
            }
        }
        Ok((problem, family))
    }

    /// Bytes of shared memory of a block of `mixed_refine`: a solution and a residual per item.
    fn shared_bytes<T>(n: usize) -> usize {
        WARPS as usize * 2 * n * size_of::<T>()
    }

    /// Bytes that the solve of half the precision needs.
    fn low_bytes(&self, queue: &dyn Queue, problem: &Problem) -> Result<usize> {
        let Problem { uplo, n, nrhs, batch, .. } = *problem;
        // The views' addresses are not looked at: sizing reads shapes.
        let place = queue.device().place;
        // SAFETY: nothing accesses the views; an address of one alignment unit stands for the workspace to come.
        let (a, b) = unsafe {
            let at = batchlas_core::WORKSPACE_ALIGN as u64;
            (
                MatBatchMut::<L>::from_raw_strided(place, at, n, n, n.max(1), n * n, batch)?,
                MatBatchMut::<L>::from_raw_strided(place, at, n, nrhs, n.max(1), n * nrhs, batch)?,
            )
        };
        self.low.posv_workspace(queue, uplo, a.rb(), &b, false)
    }

    /// Bytes of workspace that [`Mixed::posv`] needs for these operands.
    ///
    /// # Errors
    /// As for [`Mixed::posv`].
    pub fn workspace<T: Scalar>(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatch<'_, T>,
        b: &MatBatchMut<'_, T>,
    ) -> Result<usize> {
        let (problem, _) = self.problem(queue, uplo, &a, b)?;
        if problem.is_empty() {
            return Ok(0);
        }
        let mut arena = Arena::measuring();
        Layout::<T, L>::new(&mut arena, &problem, self.low_bytes(queue, &problem)?)?;
        Ok(arena.used())
    }

    /// Replaces B by X; `info` per item, and in `iterations` the number of refinements, or -1 for an item that was solved in
    /// full precision. Such an item's A holds its factor; any other's is unchanged.
    ///
    /// # Errors
    /// Operands that do not fit each other or the queue, a queue that is not a GPU's, an order beyond its shared memory,
    /// a workspace smaller than [`Mixed::workspace`] says. A failing item is not an error.
    pub fn posv<T: Scalar>(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        mut info: InfoMut<'_>,
        mut iterations: InfoMut<'_>,
        workspace: WorkspaceMut<'_>,
    ) -> Result<Ran> {
        let (problem, family) = self.problem(queue, uplo, &a.rb(), &b)?;
        let (Problem { n, nrhs, batch, .. }, place) = (problem, queue.device().place);
        info.validate("posv", batch, place)?;
        iterations.validate("posv", batch, place)?;
        if problem.is_empty() {
            info.clear(queue)?;
            iterations.clear(queue)?;
            return Ok(Ran::nothing("posv"));
        }
        let low_bytes = self.low_bytes(queue, &problem)?;
        let mut measured = Arena::measuring();
        Layout::<T, L>::new(&mut measured, &problem, low_bytes)?;
        workspace.validate("posv", measured.used(), place)?;
        let mut scratch = Layout::<T, L>::new(&mut Arena::over(workspace), &problem, low_bytes)?;
        let args = Args {
            a: Operand::new(a.rb()),
            b: Operand::new(b.rb()),
            n: n as u64,
            nrhs: nrhs as u64,
            batch: batch as u64,
            low_a: scratch.low_a.address()?,
            low_b: scratch.low_b.address()?,
            x: scratch.x.address()?,
            factored: scratch.factored.address()?,
            state: scratch.state.address()?,
            info: info.address(),
            iterations: iterations.address(),
            step: 0,
            steps: STEPS,
        };
        let enqueue = |part: &str, step: u64| -> Result<()> {
            let shared = if part == "refine" { Self::shared_bytes::<T>(n) } else { 0 };
            let kernel =
                kernel(part, T::DTYPE, uplo, cta::promised_shared(shared, queue.device().slm_budget));
            let per_block = if part == "finish" { 1 } else { u64::from(WARPS) };
            let grid = u32::try_from(args.batch.div_ceil(per_block))
                .map_err(|_| Error::Internal(format!("{batch} items are more than one launch can have")))?;
            let args = Args { step, ..args };
            let launch = Launch {
                kernel: &kernel,
                grid,
                dynamic_shared: shared as u32,
                args: bytemuck::bytes_of(&args),
            };
            // SAFETY: `Args` is the parameter struct of these kernels, and its addresses are those of views, spans and
            // a workspace that are exclusively borrowed for work on this queue.
            Ok(unsafe { queue.launch(&launch) }?)
        };

        let low = Posv { output: FactorOutput::Stored, ..self.low };
        let low_problem = Problem { dtype: L::DTYPE, ..problem };
        let mut ran = Ran::leaf("posv", "mixed");
        enqueue("demote", 0)?;
        queue.fence()?;
        ran.children.push(low.posv(
            queue,
            uplo,
            scratch.low_a.matrices(n, n, batch)?,
            scratch.low_b.matrices(n, nrhs, batch)?,
            scratch.factored.info()?,
            scratch.low.workspace()?,
        )?);
        for step in 1..=STEPS {
            queue.fence()?;
            enqueue("refine", step)?;
            if step < STEPS && nrhs > 0 {
                queue.fence()?;
                let (factor, rhs) =
                    (scratch.low_a.matrices(n, n, batch)?, scratch.low_b.matrices(n, nrhs, batch)?);
                ran.children.push(cta::solve(
                    queue,
                    &low_problem,
                    factor.rb(),
                    rhs,
                    scratch.state.info()?,
                    &family,
                )?);
            }
        }
        queue.fence()?;
        enqueue("finish", 0)?;
        Ok(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_text() {
        for line in [format!("constexpr int WARPS = {WARPS};"), format!("constexpr int THREADS = {THREADS};")]
        {
            assert!(SOURCE.text.contains(&line), "{line}");
        }
        assert_eq!(kernels().count(), 12);
    }
}
