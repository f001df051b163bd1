//! Cases that need a whole GPU: batches beyond every grid limit, offsets beyond 2^31, streams, memory over time, host
//! time per call, graphs. Each is a row of the behaviour contract.
#![allow(unsafe_code)]

mod accuracy;
mod mixed;
mod solve;

use std::time::Instant;

use batchlas::{
    Buffer, Context, Element, MatBatchMut, PosvOptions, PotrfOptions, Result, Uplo, WorkspaceMut,
};

use crate::matrices::{Random, definite};
use crate::operands::{Layout, Store};
use crate::verify::{estimated_factor_residual, factor_residual};

/// What a case measured, or what did not hold.
pub type Outcome = Result<String, String>;

/// A name and what it checks on a context.
pub type Case = (&'static str, fn(&Context) -> Outcome);

/// Every case.
pub fn all() -> &'static [Case] {
    &[
        ("T1 identities in batches around every grid limit", identities),
        ("T3 clones at orders around every bucket are bit-identical", clones),
        ("T16 offsets beyond 2^31 elements", offsets),
        ("T18 two streams at once", two_streams),
        ("T21 a batch of orders beyond 12,160", orders),
        ("T22 memory over a thousand calls", flat_memory),
        ("T23 host time of a call", host_time),
        ("M9 potrf in a CUDA graph", graph),
        ("retries with a shifted diagonal", crate::jitter::check),
        ("accuracy of factors against the vendor's", accuracy::of_factors),
        ("mixed precision from well to ill conditioned", mixed::conditions),
        ("T1, T2 triangular solves of scaled identities", solve::scaled_identities),
        ("T3 triangular solves by work-groups of several warps", solve::several_warps),
        ("T16 triangular solves beyond 2^31 elements", solve::offsets),
    ]
}

fn text(error: batchlas::Error) -> String {
    error.to_string()
}

/// Factors in place, waits, and returns the statuses that are not 0.
fn factor<T: Element>(ctx: &Context, a: MatBatchMut<'_, T>) -> Result<Vec<(usize, i32)>, String> {
    let info = ctx.potrf(a, &PotrfOptions::default()).map_err(text)?.wait().map_err(text)?;
    Ok(info.failures().collect())
}

fn identities(ctx: &Context) -> Outcome {
    for batch in [65_535, 65_536, 65_537, 262_141, 524_281] {
        let eye = [1.0f32, 0.0, 0.0, 1.0].repeat(batch);
        let mut a = ctx.upload(&eye).map_err(text)?;
        let failed = factor(ctx, a.view_mut(2, 2, 2, 4, batch).map_err(text)?)?;
        let same = ctx.download(&a).map_err(text)? == eye;
        if !failed.is_empty() || !same {
            return Err(format!("batch {batch}: {} failures, identities kept: {same}", failed.len()));
        }
    }
    Ok("up to 524,281 items".into())
}

fn clones(ctx: &Context) -> Outcome {
    const BATCH: usize = 10_240;
    const REPEATS: usize = 20;
    for n in [31, 32, 33, 64, 127, 128, 129] {
        let one = definite::<f32>(n, &mut Random::new(21, n)).data;
        let pristine = ctx.upload(&one.repeat(BATCH)).map_err(text)?;
        let mut a = Buffer::new(ctx.queue(), pristine.len()).map_err(text)?;
        let mut first: Option<Vec<f32>> = None;
        for repeat in 0..REPEATS {
            a.copy_from(ctx.queue(), &pristine).map_err(text)?;
            let failed = factor(ctx, a.view_mut(n, n, n, n * n, BATCH).map_err(text)?)?;
            if let Some((item, status)) = failed.first() {
                return Err(format!("n = {n}, repeat {repeat}: info of item {item} is {status}"));
            }
            // Every item of the first and the last run; a stretch that wanders through the batch of those between.
            let items = match repeat {
                0 => 0..BATCH,
                _ if repeat == REPEATS - 1 => 0..BATCH,
                _ => repeat * BATCH / REPEATS..(repeat + 1) * BATCH / REPEATS,
            };
            let mut data = vec![0.0; items.len() * n * n];
            a.read(ctx.queue(), items.start * n * n, &mut data).map_err(text)?;
            let reference = first.get_or_insert_with(|| data[..n * n].to_vec());
            let differs = data
                .chunks(n * n)
                .position(|item| item.iter().zip(reference.iter()).any(|(x, y)| x.to_bits() != y.to_bits()));
            if let Some(at) = differs {
                let item = items.start + at;
                return Err(format!(
                    "n = {n}, repeat {repeat}: item {item} differs from item 0 of the first run"
                ));
            }
        }
    }
    Ok(format!("{BATCH} items, {REPEATS} repeats, 7 orders"))
}

fn offsets(ctx: &Context) -> Outcome {
    const N: usize = 64;
    const BATCH: usize = 524_289;
    let one = definite::<f32>(N, &mut Random::new(22, 0));
    let mut a = Buffer::<f32>::new(ctx.queue(), BATCH * N * N).map_err(text)?;
    let block = one.data.repeat(1024);
    for start in (0..BATCH).step_by(1024) {
        let items = 1024.min(BATCH - start);
        a.write(ctx.queue(), start * N * N, &block[..items * N * N]).map_err(text)?;
    }
    let failed = factor(ctx, a.view_mut(N, N, N, N * N, BATCH).map_err(text)?)?;
    if let Some((item, status)) = failed.first() {
        return Err(format!("info of item {item} is {status}"));
    }
    let mut worst = 0.0f64;
    for item in [0, BATCH / 2, BATCH - 2, BATCH - 1] {
        let mut factor = Store::new(Layout::Packed, N, N, 1, 0.0f32);
        a.read(ctx.queue(), item * N * N, &mut factor.data).map_err(text)?;
        let residual = factor_residual(&one, Uplo::Lower, &factor, 0);
        if residual.is_nan() || residual > 4.0 {
            return Err(format!("the residual of item {item} is {residual:.2} n eps"));
        }
        worst = worst.max(residual);
    }
    Ok(format!("{} elements, worst residual {worst:.3} n eps", BATCH * N * N))
}

fn orders(ctx: &Context) -> Outcome {
    const N: usize = 12_161;
    const BATCH: usize = 2;
    let one = definite::<f32>(N, &mut Random::new(24, 0));
    let mut a = Buffer::<f32>::new(ctx.queue(), BATCH * N * N).map_err(text)?;
    for item in 0..BATCH {
        a.write(ctx.queue(), item * N * N, &one.data).map_err(text)?;
    }
    let failed = factor(ctx, a.view_mut(N, N, N, N * N, BATCH).map_err(text)?)?;
    if let Some((item, status)) = failed.first() {
        return Err(format!("info of item {item} is {status}"));
    }
    let mut factor = Store::new(Layout::Packed, N, N, 1, 0.0f32);
    a.read(ctx.queue(), (BATCH - 1) * N * N, &mut factor.data).map_err(text)?;
    let residual = estimated_factor_residual(&one, Uplo::Lower, &factor, 0);
    if residual.is_nan() || residual > 4.0 {
        return Err(format!("the residual of the last item is {residual:.2} n eps"));
    }
    Ok(format!("{BATCH} of order {N}, residual {residual:.3} n eps"))
}

fn two_streams(ctx: &Context) -> Outcome {
    let batchlas::Place::Cuda(ordinal) = ctx.device().place else {
        return Ok("one queue only on this device".into());
    };
    const N: usize = 24;
    const BATCH: usize = 200_000;
    let other = Context::cuda(ordinal).map_err(text)?;
    let one = definite::<f64>(N, &mut Random::new(23, 0));
    let rhs: Vec<f64> = (0..N).map(|i| i as f64 - 3.0).collect();
    let mut expected: Option<Vec<f64>> = None;
    for _ in 0..5 {
        // Each stream uploads, solves and downloads without waiting for the other; workspaces come from one pool.
        let contexts = [ctx, &other];
        let mut operands = Vec::new();
        for ctx in contexts {
            let a = ctx.upload(&one.data.repeat(BATCH)).map_err(text)?;
            operands.push((a, ctx.upload(&rhs.repeat(BATCH)).map_err(text)?));
        }
        let mut pending = Vec::new();
        for (ctx, (a, b)) in contexts.into_iter().zip(&mut operands) {
            let a = a.view_mut(N, N, N, N * N, BATCH).map_err(text)?;
            let b = b.view_mut(N, 1, N, N, BATCH).map_err(text)?;
            pending.push(ctx.posv(a, b, &PosvOptions::default()).map_err(text)?);
        }
        for call in pending {
            if let Some((item, status)) = call.wait().map_err(text)?.first_failure() {
                return Err(format!("info of item {item} is {status}"));
            }
        }
        for (ctx, (_, b)) in contexts.into_iter().zip(&operands) {
            let x = ctx.download(b).map_err(text)?;
            let reference = expected.get_or_insert_with(|| x[..N].to_vec());
            if let Some(item) = x.chunks(N).position(|item| item != &reference[..]) {
                return Err(format!("the solution of item {item} differs"));
            }
        }
    }
    Ok(format!("5 rounds of {BATCH} solves on each of two streams"))
}

fn flat_memory(ctx: &Context) -> Outcome {
    const N: usize = 1280;
    let one = definite::<f32>(N, &mut Random::new(24, 0)).data;
    let pristine = ctx.upload(&one.repeat(4)).map_err(text)?;
    let mut a = Buffer::new(ctx.queue(), pristine.len()).map_err(text)?;
    // A leak of one workspace per call would exhaust any device long before the end.
    for call in 0..1000 {
        a.copy_from(ctx.queue(), &pristine).map_err(text)?;
        let failed = factor(ctx, a.view_mut(N, N, N, N * N, 4).map_err(text)?)?;
        if !failed.is_empty() {
            return Err(format!("call {call}: {failed:?}"));
        }
    }
    Ok("4 x 1280^2, 1000 calls".into())
}

fn host_time(ctx: &Context) -> Outcome {
    const N: usize = 16;
    const CALLS: u32 = 10_000;
    const LIMIT_US: f64 = 10.0;
    let one = definite::<f32>(N, &mut Random::new(25, 0)).data;
    let mut a = ctx.upload(&one.repeat(10)).map_err(text)?;
    let mut info = ctx.upload(&[0i32; 10]).map_err(text)?;
    let options = PotrfOptions::default();
    let mut call = || -> Result<(), String> {
        let view = a.view_mut(N, N, N, N * N, 10).map_err(text)?;
        let place = ctx.device().place;
        ctx.potrf_in(view, info.info_mut(), WorkspaceMut::empty(place), &options).map(drop).map_err(text)
    };
    call()?;
    ctx.synchronize().map_err(text)?;
    let start = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS);
    ctx.synchronize().map_err(text)?;
    let told = format!("{each:.2} us per call of 10 x 16x16, {CALLS} calls");
    if each < LIMIT_US { Ok(told) } else { Err(format!("{told}: at most {LIMIT_US} us are allowed")) }
}

fn graph(ctx: &Context) -> Outcome {
    const BATCH: usize = 10_000;
    const REPLAYS: usize = 10;
    if !matches!(ctx.device().place, batchlas::Place::Cuda(_)) {
        return Ok("no graphs on this device".into());
    }
    for n in [5, 16, 32] {
        let one = definite::<f32>(n, &mut Random::new(26, n)).data;
        let pristine = ctx.upload(&one.repeat(BATCH)).map_err(text)?;
        let mut a = Buffer::<f32>::new(ctx.queue(), pristine.len()).map_err(text)?;
        let mut info = ctx.upload(&[77i32; BATCH]).map_err(text)?;
        let mut enqueue = |ctx: &Context| {
            a.copy_from(ctx.queue(), &pristine)?;
            let view = a.view_mut(n, n, n, n * n, BATCH)?;
            let workspace = WorkspaceMut::empty(ctx.device().place);
            ctx.potrf_in(view, info.info_mut(), workspace, &PotrfOptions::default()).map(drop)
        };
        ctx.prepare(&mut enqueue).map_err(text)?;
        enqueue(ctx).map_err(text)?;
        let recorded = ctx.capture(|| enqueue(ctx)).map_err(text)?;
        let direct = ctx.download(&a).map_err(text)?;
        let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for replay in 0..REPLAYS {
            let wiped = vec![f32::NAN; a.len()];
            a.write(ctx.queue(), 0, &wiped).map_err(text)?;
            info.write(ctx.queue(), 0, &[77; BATCH]).map_err(text)?;
            // SAFETY: the recorded arrays live, and nothing else uses them while the graph runs in stream order.
            unsafe { recorded.launch() }.map_err(|error| error.to_string())?;
            let (replayed, statuses) = (ctx.download(&a), ctx.download(&info));
            if bits(&replayed.map_err(text)?) != bits(&direct) {
                return Err(format!("n = {n}, replay {replay}: the factors differ from a direct call's"));
            }
            if statuses.map_err(text)?.iter().any(|&status| status != 0) {
                return Err(format!("n = {n}, replay {replay}: info is not 0"));
            }
        }
    }
    Ok(format!("{BATCH} items, 3 orders, {REPLAYS} replays, bits equal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_that_a_cpu_can_hold_pass_there() {
        let ctx = Context::cpu(2).unwrap();
        for (name, case) in [all()[0], all()[3]] {
            case(&ctx).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}
