//! Holds the families to the gate on a GPU, and times them.
//!
//! ```text
//! measure check                 every family over odd shapes against exact integers and f64; repeats; depth 4 = depth 8
//! measure small LIST            one call per line `M N K ROUTE`, for sanitizers
//! measure time LIST [SECONDS]   one row per line `M N K ROUTE` of the file LIST, as JSON
//! ```
//!
//! A timing is that of a graph of products, each with another copy of the weights, so that none of them is in the L2 cache (copies fill more than
//! 160 MB); activations stay hot. `us` is the product alone, `us_whole` with the preparation of the panel before each. `ratio` is the worst error at spots of
//! Y relative to the gate.
#![allow(unsafe_code, clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::time::Instant;

use batchlas_core::{Buffer, Kernel, Queue};
use batchlas_kernels::cuda::CudaQueue;
use batchlas_mmq::q4k::{BLOCK, BLOCK_BYTES};
use batchlas_mmq::{Arithmetic, Mmq, Panel, Problem, Q4kMatrix, VOCABULARY, kernels, panel};
use batchlas_select::Selector;

use common::{Random, activations, expected, judge, run, weights};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of weights that a graph reads, at least: several times the L2 cache.
const ROTATED: usize = 160 << 20;
/// Launches of a graph that are timed.
const REPEATS: usize = 7;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let queue = CudaQueue::new(0)?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check(&queue),
        ["small", list] => small(&queue, &std::fs::read_to_string(list)?),
        ["time", list] => time(&queue, &std::fs::read_to_string(list)?, f64::INFINITY),
        ["time", list, seconds] => time(&queue, &std::fs::read_to_string(list)?, seconds.parse()?),
        _ => Err("measure check | measure small LIST | measure time LIST [SECONDS]".into()),
    }
}

fn check(queue: &CudaQueue) -> Result<()> {
    let mut prepared: Vec<Kernel> = panel::kernels().collect();
    let shapes: &[[usize; 3]] = &[
        [1, 256, 1],
        [9, 512, 5],
        [32, 256, 8],
        [130, 768, 17],
        [129, 1280, 129],
        [96, 2304, 64],
        [257, 512, 130],
        [144, 4096, 16],
        [77, 4096, 7],
        [4099, 4096, 1],
        [64, 4096, 33],
        [300, 1024, 200],
        [4096, 14_336, 9],
        [519, 4352, 519],
        [1000, 1792, 329],
    ];
    let mut routes: Vec<String> =
        ["auto", "stream", "stream:stages=2", "stream:stages=4", "wide:depth=4", "wide:depth=8"]
            .map(String::from)
            .into();
    for (tokens, rows) in [16, 32, 64, 128].into_iter().flat_map(|t| [64, 128].map(|r| (t, r))) {
        for (splits, stages) in [(1, 3), (2, 2), (4, 4), (8, 3)] {
            for family in ["tile", "bf16"] {
                routes.push(format!("{family}:tokens={tokens}:rows={rows}:splits={splits}:stages={stages}"));
            }
        }
    }
    for route in routes.iter().filter(|route| *route != "auto") {
        let spelling = VOCABULARY.spelling(route)?;
        for m in [1, 16] {
            let problem = Problem { arithmetic: arithmetic(route), m, n: 64, k: 4096 };
            prepared.extend(kernels(queue.device(), &problem, &spelling));
        }
    }
    queue.prepare(&prepared).or_else(|error| {
        println!("prepare: {error}");
        Ok::<(), Box<dyn Error>>(())
    })?;
    let mut random = Random(11);
    let (mut ran, mut failed) = (0, 0);
    for &shape in shapes {
        let [n, k, m] = shape;
        let (ldx, ldy) = (k + 4 * (m % 3), n + m % 2);
        let (w, x) = (weights(&mut random, n, k), activations(&mut random, ldx, m));
        let references = ["auto", "bf16"].map(|route| expected(route, &w, shape, &x, ldx));
        let mut bits: Option<Vec<u32>> = None;
        for route in &routes {
            let y = match run(queue, route, &w, shape, (&x, ldx), ldy) {
                Ok(y) => y,
                Err(error) => {
                    let text = error.to_string();
                    if !(text.contains("stream serves") || text.contains("splits of")) {
                        println!("{route} {shape:?}: {text}");
                        failed += 1;
                    }
                    continue;
                }
            };
            ran += 1;
            match judge(&y, ldy, shape, &references[usize::from(route.starts_with("bf16"))]) {
                Ok(worst) if route.contains("splits=4") || !route.contains("tokens") => {
                    println!("{route} {shape:?} {worst:.3}")
                }
                Ok(_) => {}
                Err(why) => {
                    println!("FAILED {route} {shape:?}: {why}");
                    failed += 1;
                }
            }
            if route.starts_with("wide") {
                let now: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
                if bits.get_or_insert_with(|| now.clone()) != &now {
                    println!("FAILED {route} {shape:?}: other bits than the other depth");
                    failed += 1;
                }
            }
            // Repeats, bit for bit.
            let repeats = if shape == [519, 4352, 519] || shape == [144, 4096, 16] { 200 } else { 2 };
            failed += repeated(queue, route, &w, shape, (&x, ldx), &y, ldy, repeats)?;
        }
    }
    for (tokens, k) in [(32_769, 256), (524_289, 4096)] {
        for route in ["tile", "wide:depth=8", "bf16"] {
            if let Err(why) = large(queue, route, tokens, k) {
                println!("FAILED {route}, {tokens} tokens: {why}");
                failed += 1;
            }
            ran += 1;
        }
    }
    println!("{ran} ran, {failed} failures");
    if failed == 0 { Ok(()) } else { Err(format!("{failed} failures").into()) }
}

fn small(queue: &CudaQueue, list: &str) -> Result<()> {
    let mut random = Random(43);
    for line in list.lines() {
        let [m, n, k, route] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        let shape = [n.parse()?, k.parse()?, m.parse()?];
        let [n, k, m] = shape;
        let (w, x) = (weights(&mut random, n, k), activations(&mut random, k, m));
        let y = run(queue, route, &w, shape, (&x, k), n)?;
        println!("{line}: {:.3}", judge(&y, n, shape, &expected(route, &w, shape, &x, k))?);
    }
    Ok(())
}

/// Tokens whose offsets exceed 16, and 31 bits: all zeros but the last and the one before the middle.
fn large(queue: &CudaQueue, route: &str, m: usize, k: usize) -> Result<()> {
    let (n, mut random) = (16, Random(41));
    let (w_host, token) = (weights(&mut random, n, k), activations(&mut random, k, 1));
    let mut x = Buffer::from_slice(queue, &vec![0f32; k * m])?;
    let filled = [m / 2 - 1, m - 1];
    for t in filled {
        x.write(queue, t * k, &token)?;
    }
    let (w, mut y) =
        (Buffer::from_slice(queue, &w_host)?, Buffer::from_slice(queue, &vec![common::MARKER; n * m])?);
    let selector = Selector::default();
    let mmq = Mmq { selector: &selector, pin: Some(VOCABULARY.pin(route)?) };
    let (x, view) = (x.view(k, m, k, k * m, 1)?, y.view_mut(n, m, n, n * m, 1)?);
    mmq.multiply(queue, arithmetic(route), Q4kMatrix::from_buffer(&w, n, k)?, x, view)?;
    let y = y.to_vec(queue)?;
    let expected = expected(route, &w_host, [n, k, 1], &token, k);
    for t in filled {
        judge(&y[t * n..(t + 1) * n], n, [n, k, 1], &expected)?;
    }
    let zeros = y.iter().filter(|y| **y == 0.0).count();
    if zeros == n * (m - 2) { Ok(()) } else { Err(format!("{zeros} zeros, expected {}", n * (m - 2)).into()) }
}

/// Runs a spelling again on the same panel; failures.
fn repeated(
    queue: &CudaQueue,
    route: &str,
    w: &[u8],
    [n, k, m]: [usize; 3],
    (x, ldx): (&[f32], usize),
    first: &[f32],
    ldy: usize,
    repeats: usize,
) -> Result<usize> {
    let selector = Selector::default();
    let mmq =
        Mmq { selector: &selector, pin: if route == "auto" { None } else { Some(VOCABULARY.pin(route)?) } };
    let (w, x) = (Buffer::from_slice(queue, w)?, Buffer::from_slice(queue, x)?);
    let mut panel = Panel::new(queue, arithmetic(route), x.view(k, m, ldx, ldx * m, 1)?)?;
    let mut y = Buffer::from_slice(queue, first)?;
    for repeat in 0..repeats {
        if repeat + 1 == repeats {
            y.write(queue, 0, &vec![common::MARKER; first.len()])?;
        }
        mmq.multiply_panel(
            queue,
            Q4kMatrix::from_buffer(&w, n, k)?,
            &mut panel,
            y.view_mut(n, m, ldy, ldy * m, 1)?,
        )?;
    }
    let same = y.to_vec(queue)?.iter().zip(first).all(|(a, b)| a.to_bits() == b.to_bits());
    if !same {
        println!("FAILED {route} [{n}, {k}, {m}]: other bits on repeat");
    }
    Ok(usize::from(!same))
}

/// Weights of one shape, and copies of them on the device.
struct Rotated {
    shape: [usize; 2],
    host: Vec<u8>,
    copies: Vec<Buffer<u8>>,
}

fn time(queue: &CudaQueue, list: &str, seconds: f64) -> Result<()> {
    let begin = Instant::now();
    let selector = Selector::default();
    let mut cases = Vec::new();
    for line in list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let [m, n, k, route] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(line.into());
        };
        cases.push(([n.parse()?, k.parse()?, m.parse()?], route));
    }
    let mut prepared: Vec<Kernel> = panel::kernels().collect();
    for &([n, k, m], route) in &cases {
        let spelling = VOCABULARY.spelling(route)?;
        let arithmetic = arithmetic(route);
        prepared.extend(kernels(queue.device(), &Problem { arithmetic, m, n, k }, &spelling));
    }
    prepared.dedup();
    if let Err(error) = queue.prepare(&prepared) {
        println!("prepare: {error}");
    }
    println!("prepared {:.1} s", begin.elapsed().as_secs_f64());
    let mut random = Random(5);
    let mut held: Option<Rotated> = None;
    for &([n, k, m], route) in &cases {
        if begin.elapsed().as_secs_f64() > seconds {
            println!("out of time");
            break;
        }
        if held.as_ref().is_none_or(|held| held.shape != [n, k]) {
            // Freed before the next are made.
            drop(held.take());
            let host = weights(&mut random, n, k);
            let copies = ROTATED.div_ceil(host.len());
            let device = (0..copies)
                .map(|_| Buffer::from_slice(queue, &host))
                .collect::<std::result::Result<_, _>>()?;
            held = Some(Rotated { shape: [n, k], host, copies: device });
        }
        let Some(Rotated { host, copies, .. }) = &held else { continue };
        let x_host = activations(&mut random, k, m);
        let (x, mut y) =
            (Buffer::from_slice(queue, &x_host)?, Buffer::from_slice(queue, &vec![common::MARKER; n * m])?);
        let mmq = Mmq { selector: &selector, pin: Some(VOCABULARY.pin(route)?) };
        let view = x.view(k, m, k, k * m, 1)?;
        let mut panel = Panel::new(queue, arithmetic(route), view)?;
        let mut times = [0.0; 2];
        let mut refused = None;
        for (whole, slot) in [false, true].into_iter().zip(&mut times) {
            let mut work = || -> batchlas_core::Result<()> {
                for w in copies {
                    let mut step = || -> batchlas_mmq::Result<()> {
                        if whole {
                            panel.fill(queue, view)?;
                        }
                        let y = y.view_mut(n, m, n, n * m, 1)?;
                        mmq.multiply_panel(queue, Q4kMatrix::from_buffer(w, n, k)?, &mut panel, y)?;
                        Ok(())
                    };
                    step().map_err(|error| batchlas_core::Error::Internal(error.to_string()))?;
                }
                Ok(())
            };
            if let Err(error) = work() {
                refused = Some(error.to_string());
                break;
            }
            let graph = queue.capture(work)?;
            let mut each = Vec::new();
            for repeat in 0..REPEATS + 2 {
                let start = queue.record()?;
                // SAFETY: all that the graph reaches is alive here, and nothing else is enqueued meanwhile.
                unsafe { graph.launch()? };
                let seconds = queue.seconds_between(&start, &queue.record()?)?;
                if repeat >= 2 {
                    each.push(seconds * 1e6 / copies.len() as f64);
                }
            }
            each.sort_by(f64::total_cmp);
            *slot = each[each.len() / 2];
        }
        if let Some(why) = refused {
            println!("{m} {n} {k} {route}: {why}");
            continue;
        }
        let ratio = match spots(&y.to_vec(queue)?, host, &x_host, [n, k, m], route) {
            Ok(ratio) => ratio,
            Err(why) => {
                println!("FAILED {m} {n} {k} {route}: {why}");
                continue;
            }
        };
        let [us, us_whole] = times;
        let tops = 2.0 * (n * k * m) as f64 / us * 1e-6;
        println!(
            "{{\"m\":{m},\"n\":{n},\"k\":{k},\"route\":\"{route}\",\"us\":{us:.3},\"us_whole\":{us_whole:.3},\"tops\":{tops:.1},\"ratio\":{ratio:.3}}}"
        );
    }
    Ok(())
}

fn arithmetic(route: &str) -> Arithmetic {
    if route.starts_with("bf16") { Arithmetic::Bf16 } else { Arithmetic::Int8 }
}

/// Worst error of some rows and tokens relative to what is allowed.
fn spots(y: &[f32], w: &[u8], x: &[f32], [n, k, m]: [usize; 3], route: &str) -> Result<f64> {
    let pitch = k / BLOCK * BLOCK_BYTES;
    let rows = [0, 1, n / 2, n - 1];
    let tokens = [0, m / 2, m - 1];
    let w: Vec<u8> = rows.iter().flat_map(|&row| &w[row * pitch..(row + 1) * pitch]).copied().collect();
    let x: Vec<f32> = tokens.iter().flat_map(|&token| &x[token * k..(token + 1) * k]).copied().collect();
    let y: Vec<f32> = tokens.iter().flat_map(|&t| rows.map(|row| y[t * n + row])).collect();
    let shape = [rows.len(), k, tokens.len()];
    let expected = expected(route, &w, shape, &x, k);
    Ok(judge(&y, rows.len(), shape, &expected)?)
}
