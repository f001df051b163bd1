//! The composed solve: a factorisation through its seam, then the solves.
//!
//! [`factor_then`] is what `blocked` and `cta` have in common; `blocked` solves by two triangular solves through their
//! seam: any order, any number of right-hand sides, as fast as what is injected.

use batchlas_core::{
    Arena, Chunk, Diag, Factor, InfoMut, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar, Side,
    Trans, Uplo, WorkspaceMut,
};

use batchlas_select::Spelling;

use crate::problem::Problem;
use crate::quench::quench;

/// Scratch of one call: the factorisation's own, and `info` where the caller wants none (failed items must be known).
struct Layout<'a> {
    factor: Chunk<'a, u8>,
    info: Chunk<'a, i32>,
}

impl<'a> Layout<'a> {
    fn new(arena: &mut Arena<'a>, problem: &Problem, factor_bytes: usize, info_absent: bool) -> Result<Self> {
        let own = if info_absent { problem.batch } else { 0 };
        Ok(Layout { factor: arena.take("posv", factor_bytes)?, info: arena.take("posv", own)? })
    }
}

/// Bytes that [`factor_then`] needs.
pub(crate) fn workspace_bytes(problem: &Problem, factor_bytes: usize, info_absent: bool) -> Result<usize> {
    let mut arena = Arena::measuring();
    Layout::new(&mut arena, problem, factor_bytes, info_absent)?;
    Ok(arena.used())
}

/// Factors; if there are right-hand sides, `solve` is then enqueued with the factor and the statuses, which are present.
/// Children are reported in the order they ran.
pub(crate) fn factor_then<T: Scalar>(
    queue: &dyn Queue,
    family: &Spelling,
    factor: &dyn Factor<T>,
    problem: &Problem,
    mut a: MatBatchMut<'_, T>,
    mut info: InfoMut<'_>,
    workspace: WorkspaceMut<'_>,
    solve: impl FnOnce(MatBatchMut<'_, T>, InfoMut<'_>) -> Result<Vec<Ran>>,
) -> Result<Ran> {
    let factor_bytes = factor.factor_workspace(queue, problem.uplo, a.rb())?;
    let need = workspace_bytes(problem, factor_bytes, info.is_absent())?;
    workspace.validate("posv", need, queue.device().place)?;
    let Layout { factor: mut scratch, info: mut own } =
        Layout::new(&mut Arena::over(workspace), problem, factor_bytes, info.is_absent())?;
    let mut info = if info.is_absent() { own.info()? } else { info.rb_mut() };

    let mut ran = Ran::leaf("posv", family.to_string());
    ran.children.push(factor.factor(queue, problem.uplo, a.rb_mut(), info.rb_mut(), scratch.workspace()?)?);
    if problem.nrhs > 0 {
        queue.fence()?;
        ran.children.extend(solve(a, info)?);
    }
    Ok(ran)
}

/// The solves of `blocked`: failed items become the identity first.
pub(crate) fn solve<T: Scalar>(
    queue: &dyn Queue,
    solve: &dyn PanelSolve<T>,
    uplo: Uplo,
    mut a: MatBatchMut<'_, T>,
    b: MatBatchMut<'_, T>,
    info: InfoMut<'_>,
) -> Result<Vec<Ran>> {
    quench(queue, uplo, a.rb_mut(), info)?;
    queue.fence()?;
    Ok(potrs(queue, solve, uplo, a.rb(), b)?.into())
}

/// The two solves: `L Y = B`, `L^H X = Y`, or `U^H Y = B`, `U X = Y`.
pub(crate) fn potrs<T: Scalar>(
    queue: &dyn Queue,
    solve: &dyn PanelSolve<T>,
    uplo: Uplo,
    a: MatBatch<'_, T>,
    mut b: MatBatchMut<'_, T>,
) -> Result<[Ran; 2]> {
    let adjoint = if T::DTYPE.is_complex() { Trans::ConjTrans } else { Trans::Trans };
    let (first, second) = match uplo {
        Uplo::Lower => (Trans::No, adjoint),
        Uplo::Upper => (adjoint, Trans::No),
    };
    let mut step =
        |trans| solve.solve(queue, Side::Left, uplo, trans, Diag::NonUnit, T::one(), a, b.rb_mut());
    let forward = step(first)?;
    queue.fence()?;
    Ok([forward, step(second)?])
}
