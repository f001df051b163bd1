//! Mixed precision over condition numbers: every item right, and how many needed the fallback.

use std::fmt::Write as _;

use batchlas::{Context, Element, PosvOptions, WorkspaceMut};
use num_complex::Complex;

use super::{Outcome, text};
use crate::matrices::{Random, Square, conditioned};
use crate::operands::{Layout, Store};
use crate::verify::solve_residual;

const N: usize = 64;
const NRHS: usize = 2;
const BATCH: usize = 256;
/// Condition numbers that the factor of half the precision must be good enough for.
const EASY: f64 = 1e4;
/// Condition numbers at which it cannot exist or help.
const HOPELESS: f64 = 1e10;

pub(super) fn conditions(ctx: &Context) -> Outcome {
    if !ctx.device().is_gpu() {
        return Ok("mixed precision is a GPU's".into());
    }
    let mut report = format!("n = {N}, {BATCH} items");
    for exponent in [2, 4, 6, 7, 8, 10, 12] {
        let condition = 10f64.powi(exponent);
        for line in [items::<f64>(ctx, condition), items::<Complex<f64>>(ctx, condition)] {
            write!(report, "\n       {}", line?).map_err(|e| e.to_string())?;
        }
    }
    Ok(report)
}

/// Solves a batch of one condition number; says how many items fell back, and the worst residual.
fn items<T: Element>(ctx: &Context, condition: f64) -> Result<String, String> {
    let items: Vec<Square<T>> =
        (0..BATCH).map(|b| conditioned(N, condition, &mut Random::new(41, b))).collect();
    let a: Vec<T> = items.iter().flat_map(|item| item.data.iter().copied()).collect();
    let mut rhs = Store::new(Layout::Packed, N, NRHS, BATCH, T::zero());
    let mut random = Random::new(42, 0);
    rhs.data.iter_mut().for_each(|x| *x = random.scalar());
    let (mut a, mut x) = (ctx.upload(&a).map_err(text)?, ctx.upload(&rhs.data).map_err(text)?);
    let mut info = ctx.upload(&[77; BATCH]).map_err(text)?;
    let mut iterations = ctx.upload(&[77; BATCH]).map_err(text)?;
    let options = PosvOptions::default();
    let view = a.view_mut(N, N, N, N * N, BATCH).map_err(text)?;
    let rhs_view = x.view_mut(N, NRHS, N, N * NRHS, BATCH).map_err(text)?;
    let bytes = ctx.posv_mixed_workspace(view.rb(), &rhs_view, &options).map_err(text)?;
    let mut memory = ctx.queue().alloc(bytes).map_err(|e| e.to_string())?;
    let workspace = WorkspaceMut::over(&mut memory);
    ctx.posv_mixed_in(view, rhs_view, info.info_mut(), iterations.info_mut(), workspace, &options)
        .map_err(text)?;

    let (info, iterations) = (ctx.download(&info).map_err(text)?, ctx.download(&iterations).map_err(text)?);
    let mut solved = rhs.clone();
    solved.data = ctx.download(&x).map_err(text)?;
    let dtype = T::DTYPE;
    if let Some(item) = info.iter().position(|&status| status != 0) {
        return Err(format!("{dtype}, condition {condition:.0e}: info of item {item} is {}", info[item]));
    }
    let residuals = items.iter().enumerate().map(|(b, item)| solve_residual(item, &rhs, &solved, b));
    let worst = residuals.fold(0.0, |worst: f64, r| if r.is_nan() { r } else { worst.max(r) });
    let fell_back = iterations.iter().filter(|&&count| count < 0).count();
    let refinements: i32 = iterations.iter().filter(|&&count| count > 0).sum();
    let mean = f64::from(refinements) / (BATCH - fell_back).max(1) as f64;
    let line = format!(
        "{dtype} condition {condition:.0e}: {:.1}% fell back, {mean:.2} refinements of the others, residual {worst:.2} n eps",
        100.0 * fell_back as f64 / BATCH as f64
    );
    let as_promised = match condition {
        _ if worst.is_nan() || worst > 4.0 => false,
        easy if easy <= EASY => fell_back == 0,
        hopeless if hopeless >= HOPELESS => fell_back == BATCH,
        _ => true,
    };
    if as_promised { Ok(line) } else { Err(line) }
}
