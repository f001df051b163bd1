//! Every kernel on the simulated device: exact-size memory, no uninitialised reads, no races, and results within the gate; and the failures of other
//! projects' kernels that are publicly known, each with its smallest input.

#![allow(missing_docs)]
// Helpers outside of test functions; clippy exempts only those.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use batchlas_core::{Buffer, CpuQueue, Device, Kernel, MatBatchMut, Place, Queue, QueueError};
use batchlas_kernels::Arch;
use batchlas_kernels::headers::{HEADERS, Header};
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_mmq::q4k::BLOCK_BYTES;
use batchlas_mmq::{Arithmetic, Mmq, Panel, Problem, Q4kMatrix, VOCABULARY};
use batchlas_select::Selector;
use batchlas_sim::{Compiled, DeviceConfig, SimQueue};

use common::{MARKER, Random, activations, expected, judge, run, weights};

const ARCH: &str = "sm_90";

/// What was compiled by any test.
static DONE: Mutex<Option<HashMap<Kernel, Compiled>>> = Mutex::new(None);

fn compile(kernel: &Kernel) -> Result<Compiled, QueueError> {
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = done.get_or_insert_default();
    if let Some(compiled) = done.get(kernel) {
        return Ok(compiled.clone());
    }
    let failed =
        |error| QueueError::runtime("compiling for the simulator (`cargo xtask setup` fetches NVRTC)", error);
    let arch: Arch = ARCH.parse().map_err(failed)?;
    let entry = [kernel.entry.as_str()];
    let ptx = Nvrtc::load().and_then(|nvrtc| nvrtc.ptx(&Job::of(kernel, &entry, arch))).map_err(failed)?;
    let compiled = Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text };
    done.insert(kernel.clone(), compiled.clone());
    Ok(compiled)
}

fn queue() -> SimQueue {
    SimQueue::new(ARCH, DeviceConfig::default(), compile)
}

/// Runs a spelling on shapes `[n, k, m]` and holds it to the gate, with padded columns of both operands.
fn check(route: &str, shapes: &[[usize; 3]]) {
    let queue = queue();
    let mut random = Random(7);
    for &shape in shapes {
        let [n, k, m] = shape;
        // Aligned columns of X for every other shape; of Y an odd distance, so that rows are stored one by one, in the same way.
        let (ldx, ldy) = if m % 2 == 1 { (k, n + n % 2) } else { (k + 3, n + 5) };
        let (w, x) = (weights(&mut random, n, k), activations(&mut random, ldx, m));
        let y = run(&queue, route, &w, shape, (&x, ldx), ldy)
            .unwrap_or_else(|e| panic!("{route} {shape:?}: {e}"));
        let expected = expected(route, &w, shape, &x, ldx);
        let worst = judge(&y, ldy, shape, &expected).unwrap_or_else(|e| panic!("{route} {shape:?}: {e}"));
        assert!(worst < 0.9, "{route} {shape:?}: {worst} of the gate");
    }
}

#[test]
fn panels_are_those_of_the_cpu_bit_for_bit() {
    let (sim, cpu) = (queue(), batchlas_core::CpuQueue::new(1).unwrap());
    let mut random = Random(3);
    let (k, m) = (512, 11);
    let mut x = activations(&mut random, k, m);
    x[64] = f32::NAN;
    x[100] = f32::INFINITY;
    for (i, small) in [1e-38, 3e-36, 1e-40, -0.0, f32::MAX, 5e-7].into_iter().enumerate() {
        x[k * (i + 2)..k * (i + 2) + 32].fill(small);
    }
    let of = |queue: &dyn Queue| common::panel(queue, &x, k, m).unwrap();
    let (device, host) = (of(&sim), of(&cpu));
    let differ: Vec<usize> = (0..host.len()).filter(|&i| device[i] != host[i]).collect();
    assert!(differ.is_empty(), "{differ:?} of {} bytes", host.len());
}

#[test]
fn stream_is_clean_and_right() {
    check("stream", &[[17, 256, 1], [33, 4352, 3], [16, 8192, 8], [1, 768, 9], [40, 4608, 16]]);
    check("stream:stages=2", &[[50, 512, 5]]);
}

#[test]
fn tile_is_clean_and_right() {
    check("tile:tokens=16:rows=64:splits=1", &[[1, 256, 1], [65, 768, 17]]);
    check("tile:tokens=32:rows=64:splits=2", &[[65, 768, 33]]);
    check("tile:tokens=64:rows=128:splits=4", &[[129, 1280, 65]]);
    check("tile:tokens=128:rows=128:splits=1:stages=2", &[[130, 512, 129]]);
}

#[test]
fn wide_is_clean_and_right() {
    for route in ["wide:depth=4", "wide:depth=8"] {
        check(route, &[[1, 256, 1], [130, 768, 129]]);
    }
}

#[test]
fn bf16_is_clean_and_right() {
    check("bf16:tokens=16:rows=64:splits=1", &[[1, 256, 1], [65, 768, 17]]);
    check("bf16:tokens=64:rows=128:splits=4", &[[130, 768, 66]]);
    check("bf16:tokens=128:rows=128:splits=1:stages=2", &[[127, 512, 129]]);
}

/// One spelling of each way to run, the smallest of its family.
const ROUTES: [&str; 4] = [
    "stream:stages=2",
    "tile:tokens=16:rows=64:splits=2:stages=2",
    "wide:depth=4",
    "bf16:tokens=16:rows=64:splits=2:stages=2",
];

#[test]
fn depths_of_wide_agree_bit_for_bit() {
    let (queue, mut random) = (queue(), Random(5));
    let shape = [97, 768, 33];
    let (w, x) = (weights(&mut random, 97, 768), activations(&mut random, 768, 33));
    let of = |route| run(&queue, route, &w, shape, (&x, 768), 97).unwrap();
    assert_eq!(of("wide:depth=4"), of("wide:depth=8"));
}

/// Cases 1 and 10: parts that are no multiple of anything, down to one step.
#[test]
fn steps_are_dealt_whatever_their_number() {
    let (queue, mut random) = (queue(), Random(9));
    for (k, splits) in [(256, 2), (768, 4), (1280, 8), (2304, 16)] {
        let shape = [3, k, 2];
        let (w, x) = (weights(&mut random, 3, k), activations(&mut random, k, 2));
        let route = |splits| format!("tile:tokens=16:rows=64:splits={splits}:stages=2");
        let y = run(&queue, &route(splits), &w, shape, (&x, k), 3).unwrap();
        judge(&y, 3, shape, &expected("tile", &w, shape, &x, k)).unwrap_or_else(|e| panic!("{k}: {e}"));
        let refused = run(&queue, &route(16), &w, shape, (&x, k), 3);
        assert_eq!(refused.is_err(), k < 2048, "16 parts of {} steps", k / 128);
    }
}

/// Cases 3, 11, 14, 16: extents at each side of every tile, in memory that ends where they end, over a marker.
#[test]
fn extents_off_the_tiles() {
    for (n, m) in [(1, 8), (32, 9), (96, 5), (127, 16), (129, 1)] {
        check(ROUTES[0], &[[n, 256, m]]);
        check(ROUTES[1], &[[n, 256, m]]);
    }
    check("tile:tokens=32:rows=64:splits=2", &[[63, 256, 31]]);
    check("tile:tokens=128:rows=128:splits=1:stages=2", &[[128, 256, 127]]);
    check(ROUTES[2], &[[127, 256, 127]]);
    check(ROUTES[3], &[[33, 256, 15]]);
}

/// Case 4: a sum of 32 activations that half precision cannot hold. Case 20: the result is that of quantised activations, not of the given ones.
#[test]
fn large_activations_stay_finite_and_are_quantised() {
    let (queue, mut random) = (queue(), Random(13));
    let (shape, k) = ([16, 256, 2], 256);
    let w = weights(&mut random, 16, k);
    for route in ROUTES {
        let y = run(&queue, route, &w, shape, (&[3000.0; 512], k), 16).unwrap();
        assert!(y.iter().all(|y| y.is_finite()), "{route}: {y:?}");
    }
    let x = activations(&mut random, k, 2);
    let (float, quantised) = (expected("bf16", &w, shape, &x, k), expected("tile", &w, shape, &x, k));
    let y = run(&queue, ROUTES[1], &w, shape, (&x, k), 16).unwrap();
    judge(&y, 16, shape, &quantised).unwrap();
    assert!(judge(&y, 16, shape, &(float.0, quantised.1)).is_err(), "activations were not quantised");
}

/// Cases 5 and 19: what lies around the weights is never read, whatever it would be as a number.
#[test]
fn weights_among_nans() {
    let (queue, mut random) = (queue(), Random(17));
    let shape = [9, 512, 9];
    let [n, k, m] = shape;
    let (w, x) = (weights(&mut random, n, k), activations(&mut random, k, m));
    let poison = [0x00, 0x7e].repeat(BLOCK_BYTES);
    let all = Buffer::from_slice(&queue, &[&poison[..], &w, &poison].concat()).unwrap();
    let (x_device, mut y) =
        (Buffer::from_slice(&queue, &x).unwrap(), Buffer::from_slice(&queue, &vec![MARKER; n * m]).unwrap());
    let selector = Selector::default();
    for route in ROUTES {
        let mmq = Mmq { selector: &selector, pin: Some(VOCABULARY.pin(route).unwrap()) };
        let arithmetic = if route.starts_with("bf16") { Arithmetic::Bf16 } else { Arithmetic::Int8 };
        let refusal = [8, 4, 2].map(|off| at(&all, poison.len() + off, n, k).unwrap_err().to_string());
        assert!(refusal[0].contains("8 bytes past a multiple of 16"), "{}", refusal[0]);
        if m <= 16 {
            let (w_view, x_view) =
                (at(&all, poison.len(), n, k).unwrap(), x_device.view(k, m, k, k * m, 1).unwrap());
            mmq.multiply(&queue, arithmetic, w_view, x_view, y.view_mut(n, m, n, n * m, 1).unwrap()).unwrap();
            judge(&y.to_vec(&queue).unwrap(), n, shape, &expected(route, &w, shape, &x, k))
                .unwrap_or_else(|e| panic!("{route}: {e}"));
        }
    }
}

/// Weights inside a buffer.
#[allow(unsafe_code)]
fn at(buffer: &Buffer<u8>, offset: usize, n: usize, k: usize) -> batchlas_mmq::Result<Q4kMatrix<'_>> {
    assert!(offset + n * k / 256 * BLOCK_BYTES <= buffer.len() + 16);
    // SAFETY: the matrix lies in the buffer, which is initialised and borrowed; a misaligned one is refused.
    unsafe { Q4kMatrix::from_raw(buffer.place(), buffer.address() + offset as u64, n, k) }
}

/// Cases 6 and 18: what cannot be served is an error, and Y stays as it was.
#[test]
fn refusals() {
    let (queue, selector) = (CpuQueue::new(1).unwrap(), Selector::default());
    for k in [4544, 1664, 255, 0] {
        let message = Q4kMatrix::from_slice(&[], 1, k).unwrap_err().to_string();
        assert!(message.contains(&format!("{k}: it must be a positive multiple of 256")), "{message}");
    }
    assert!(Q4kMatrix::from_slice(&[0; 145], 1, 256).unwrap_err().to_string().contains("145 bytes"));
    let (w, x, mut y) = ([0u8; 2 * BLOCK_BYTES], [0f32; 512], [MARKER; 8]);
    let w = Q4kMatrix::from_slice(&w, 2, 256).unwrap();
    let mmq =
        |pin: Option<&str>| Mmq { selector: &selector, pin: pin.map(|pin| VOCABULARY.pin(pin).unwrap()) };
    let mut call = |pin, arithmetic, k: usize, m: usize, rows: usize| {
        let x = batchlas_core::MatBatch::packed(&x, k, m, 1).unwrap();
        let y = MatBatchMut::packed(&mut y, rows, m, 1).unwrap();
        mmq(pin)
            .multiply(&queue, arithmetic, w, x, y)
            .map(|ran| ran.to_string())
            .map_err(|error| error.to_string())
    };
    assert!(
        call(None, Arithmetic::Int8, 128, 2, 2)
            .unwrap_err()
            .contains("inner dimension of W is 256, of X it is 128")
    );
    assert!(call(None, Arithmetic::Int8, 256, 2, 3).unwrap_err().contains("rows of W is 2, of Y it is 3"));
    assert!(call(None, Arithmetic::Bf16, 256, 2, 2).unwrap_err().contains("ask for int8"));
    assert!(call(Some("tile"), Arithmetic::Int8, 256, 2, 2).unwrap_err().contains("sm_80"));
    assert_eq!(call(None, Arithmetic::Int8, 256, 0, 2).unwrap(), "mmq=none", "no tokens");
    assert_eq!(y, [MARKER; 8]);

    let small = Device {
        place: Place::Simulated(0),
        arch: "sm_90".into(),
        has_sg32: true,
        slm_budget: 48 << 10,
        max_work_group: 1024,
        ..Device::cpu(1)
    };
    let problem = |arithmetic, m| Problem { arithmetic, m, n: 4096, k: 4096 };
    for (route, arithmetic) in [
        ("stream", Arithmetic::Int8),
        ("wide:4", Arithmetic::Int8),
        ("tile:tokens=128", Arithmetic::Int8),
        ("bf16:tokens=128", Arithmetic::Bf16),
    ] {
        let refusal =
            mmq(None).can_run(&small, &problem(arithmetic, 16), &VOCABULARY.spelling(route).unwrap());
        assert!(
            refusal.unwrap_err().to_string().contains("bytes of shared memory exceed the device's 49152"),
            "{route}"
        );
    }
    let large = Device { slm_budget: 227 << 10, ..small };
    let refusal =
        mmq(None).can_run(&large, &problem(Arithmetic::Int8, 17), &VOCABULARY.spelling("stream").unwrap());
    assert!(refusal.unwrap_err().to_string().contains("17 tokens: stream serves 16"));
    let refusal =
        mmq(None).can_run(&large, &problem(Arithmetic::Bf16, 8), &VOCABULARY.spelling("tile").unwrap());
    assert!(refusal.unwrap_err().to_string().contains("tile computes in int8, asked is bf16"));
}

/// Cases 7, 8 and 13: the same bits on every run, over NaN, and for a token whatever its company; case 12: one token of several.
#[test]
fn bits_depend_on_nothing_but_the_operands() {
    let (queue, mut random) = (queue(), Random(23));
    let (n, k, m) = (33, 512, 13);
    let (w, x) = (weights(&mut random, n, k), activations(&mut random, k, m));
    let selector = Selector::default();
    for route in ROUTES {
        let all = run(&queue, route, &w, [n, k, m], (&x, k), n).unwrap();
        for t in [0, 7, 12] {
            let one = run(&queue, route, &w, [n, k, 1], (&x[t * k..(t + 1) * k], k), n).unwrap();
            assert_eq!(one, all[t * n..(t + 1) * n], "{route}, token {t} alone");
        }
        let (w, x) = (Buffer::from_slice(&queue, &w).unwrap(), Buffer::from_slice(&queue, &x).unwrap());
        let mmq = Mmq { selector: &selector, pin: Some(VOCABULARY.pin(route).unwrap()) };
        let arithmetic = if route.starts_with("bf16") { Arithmetic::Bf16 } else { Arithmetic::Int8 };
        let mut panel = Panel::new(&queue, arithmetic, x.view(k, m, k, k * m, 1).unwrap()).unwrap();
        for _ in 0..3 {
            let mut y = Buffer::from_slice(&queue, &vec![f32::NAN; n * m]).unwrap();
            let view = y.view_mut(n, m, n, n * m, 1).unwrap();
            mmq.multiply_panel(&queue, Q4kMatrix::from_buffer(&w, n, k).unwrap(), &mut panel, view).unwrap();
            assert_eq!(y.to_vec(&queue).unwrap(), all, "{route}");
        }
    }
}

/// A scale in one chunk alone picks that chunk's weights and activations.
#[test]
fn one_chunk_at_a_time() {
    let (queue, mut random) = (queue(), Random(29));
    let (n, k, m) = (8, 256, 3);
    let x = activations(&mut random, k, m);
    // Row j has scale 5 and minimum 3 in chunk j.
    let mut w = weights(&mut random, n, k);
    for (j, block) in w.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        block[..4].copy_from_slice(&[0, 0x3c, 0, 0xb8]);
        block[4..16].fill(0);
        match j {
            0..4 => (block[4 + j], block[8 + j]) = (5, 3),
            _ => block[8 + j] = 5 | 3 << 4,
        }
    }
    for route in ROUTES {
        let y = run(&queue, route, &w, [n, k, m], (&x, k), n).unwrap();
        judge(&y, n, [n, k, m], &expected(route, &w, [n, k, m], &x, k))
            .unwrap_or_else(|e| panic!("{route}: {e}"));
    }
}

/// NaN and infinity spoil their token, or their row, and nothing else; the CPU agrees.
#[test]
fn what_is_not_finite_stays_where_it_is() {
    let (sim, cpu, mut random) = (queue(), CpuQueue::new(1).unwrap(), Random(31));
    let (n, k, m) = (20, 512, 5);
    let (mut w, mut x) = (weights(&mut random, n, k), activations(&mut random, k, m));
    x[k + 300] = f32::NAN;
    x[3 * k + 5] = f32::NEG_INFINITY;
    let rows = [(2, 0, 0x7c00u16), (7, 1, 0x7e01), (11, 0, 0xfc00), (17, 1, 0x7c00)];
    for (row, which, half) in rows {
        let block = row * 2 * BLOCK_BYTES + 2 * which;
        w[block..block + 2].copy_from_slice(&half.to_le_bytes());
    }
    let routes: [(&dyn Queue, &str); 4] =
        [(&cpu, "dot"), (&sim, ROUTES[0]), (&sim, ROUTES[1]), (&sim, ROUTES[2])];
    for (queue, route) in routes {
        let y = run(queue, route, &w, [n, k, m], (&x, k), n).unwrap();
        for (t, row) in (0..m).flat_map(|t| (0..n).map(move |row| (t, row))) {
            let (bad_token, bad_row) = (t == 1 || t == 3, rows.iter().any(|bad| bad.0 == row));
            let found = y[t * n + row];
            assert_eq!(found.is_finite(), !bad_token && !bad_row, "{route} token {t} row {row}: {found}");
            assert!(!bad_token || found.is_nan(), "{route} token {t} row {row}: {found}");
        }
    }
}

/// Cases 15 and 17: operands off their alignment go the slow way and give the same bits.
#[test]
fn any_alignment_of_activations_and_results() {
    let (queue, mut random) = (queue(), Random(37));
    let (n, k, m) = (10, 256, 6);
    let (w, x) = (weights(&mut random, n, k), activations(&mut random, k, m));
    for route in ROUTES {
        let plain = run(&queue, route, &w, [n, k, m], (&x, k), n).unwrap();
        let mut padded = vec![f32::NAN; (k + 1) * m];
        for t in 0..m {
            padded[t * (k + 1)..][..k].copy_from_slice(&x[t * k..][..k]);
        }
        let odd = run(&queue, route, &w, [n, k, m], (&padded, k + 1), n + 3).unwrap();
        for t in 0..m {
            assert_eq!(odd[t * (n + 3)..][..n], plain[t * n..][..n], "{route}");
        }
    }
}

/// Whether a spelling is right on a small call that has a token that is not finite, a token whose scales underflow, a tie, partial tiles and a second
/// call on the same panel; if not, what was seen first.
fn healthy(queue: &SimQueue, route: &str) -> Result<(), String> {
    let (n, k, m) = (33, if route.starts_with("stream") { 4352 } else { 768 }, 9);
    let (ldy, mut random) = (n + 1, Random(47));
    let (w, mut x) = (weights(&mut random, n, k), activations(&mut random, k, m));
    // Scales of that would overflow when inverted; bfloat16 has them as they are.
    x[2 * k..3 * k].fill(if route.starts_with("bf16") { 1e-30 } else { 1e-38 });
    let shape = [n, k, m];
    let text = |error: batchlas_mmq::Error| error.to_string();
    let y = run(queue, route, &w, shape, (&x, k), ldy).map_err(text)?;
    judge(&y, ldy, shape, &expected(route, &w, shape, &x, k))?;
    x[3 * k + 40] = f32::NAN;
    let selector = Selector::default();
    let mmq = Mmq { selector: &selector, pin: Some(VOCABULARY.pin(route).unwrap()) };
    let arithmetic = if route.starts_with("bf16") { Arithmetic::Bf16 } else { Arithmetic::Int8 };
    let (w, x) = (Buffer::from_slice(queue, &w).unwrap(), Buffer::from_slice(queue, &x).unwrap());
    let mut panel = Panel::new(queue, arithmetic, x.view(k, m, k, k * m, 1).unwrap()).map_err(text)?;
    for call in 0..2 {
        let mut again = Buffer::from_slice(queue, &vec![MARKER; y.len()]).unwrap();
        let view = again.view_mut(n, m, ldy, ldy * m, 1).unwrap();
        mmq.multiply_panel(queue, Q4kMatrix::from_buffer(&w, n, k).unwrap(), &mut panel, view)
            .map_err(text)?;
        for (at, again) in again.to_vec(queue).unwrap().into_iter().enumerate() {
            let spoiled = at / ldy == 3 && at % ldy < n;
            if if spoiled { !again.is_nan() } else { again.to_bits() != y[at].to_bits() } {
                return Err(format!("call {call}, element {at}: {again}, before {}", y[at]));
            }
        }
    }
    Ok(())
}

/// Each line breaks one guard of the device code, and is seen.
#[test]
fn broken_guards_are_seen() {
    let [stream, tile, wide, bf16] = ROUTES;
    let plants: &[(&str, &str, &str, &str, &str)] = &[
        (
            tile,
            "low part of the minima",
            "mmq/cuda/tile.cuh",
            "arch::mma_16x8x4(c[m][n], lead[m][0], lead[m][1], below);",
            "",
        ),
        (tile, "high nibbles without their 1/16", "mmq/cuda/tile.cuh", "j % 2 == 0 ? d : high", "d"),
        (
            wide,
            "top bits of the minima",
            "q4k.cuh",
            "((mid >> 2) & 0x30303030u)",
            "((low >> 2) & 0x30303030u)",
        ),
        (tile, "rows beyond the last are stored", "q4k.cuh", "&& row < args.rows, second", ", second"),
        (tile, "tokens beyond the last are stored", "q4k.cuh", "token < args.tokens && row", "row"),
        (
            "tile:tokens=128:rows=128:splits=1:stages=2",
            "cells beyond the last are read",
            "q4k_tile.cuh",
            "from + min(at, last)",
            "from + at",
        ),
        (stream, "weights beyond the last are read", "q4k.cuh", "min(row, args.rows - 1)", "row"),
        (
            tile,
            "truncation in place of rounding",
            "panel.cuh",
            "arch::nearest_int(arch::mul(v[e], inverse))",
            "static_cast<int>(arch::mul(v[e], inverse))",
        ),
        (
            tile,
            "NaN is lost",
            "panel.cuh",
            "__float_as_uint(v[e]) & 0x7fffffffu",
            "__float_as_uint(fmaxf(fabsf(v[e]), 0.0f))",
        ),
        (
            wide,
            "the scale underflows",
            "panel.cuh",
            "== 0x7f800000u) {\n    d = inverse",
            "== 1u) {\n    d = inverse",
        ),
        (
            stream,
            "activations of the first segment stay",
            "stream.cuh",
            "held = segments == 1;",
            "held = true;",
        ),
        (stream, "halves of the rows exchanged", "stream.cuh", "g + e / 2 * 8]", "g + (1 - e / 2) * 8]"),
        (
            stream,
            "no barrier before the sums are read",
            "stream.cuh",
            "    arch::sync_block();\n    fetch();",
            "    fetch();",
        ),
        (tile, "the counter is not reset", "q4k_tile.cuh", "arch::store_strong(counter, 0u);", ""),
        (
            tile,
            "a part is one step short",
            "q4k_tile.cuh",
            "(part + 1) * args.steps / args.splits)",
            "(part + 1) * args.steps / args.splits - 1)",
        ),
        (
            tile,
            "sums of other blocks by weak accesses",
            "instructions.cuh",
            "st.relaxed.gpu.global.v4.f32",
            "st.global.v4.f32",
        ),
        (
            tile,
            "no barrier before a stage is read",
            "q4k_tile.cuh",
            "arch::wait_async<Stages - 2>();\n    arch::sync_block();",
            "arch::wait_async<Stages - 2>();",
        ),
        (wide, "weights staged for every other super-block", "wide.cuh", "first % 8 == 0", "first % 16 == 0"),
        (bf16, "nibbles of the other half", "bf16.cuh", "if (h == 0) {", "if (h == 1) {"),
    ];
    for route in ROUTES {
        healthy(&queue(), route).unwrap_or_else(|seen| panic!("{route} as it is: {seen}"));
    }
    for &(route, what, file, sound, broken) in plants {
        let edit = move |name: &str, text: &str| {
            let here = name.ends_with(file);
            assert!(!here || text.contains(sound), "{what}: `{sound}` is not in {name}");
            if here { text.replace(sound, broken) } else { text.to_owned() }
        };
        let queue = SimQueue::new(ARCH, DeviceConfig::default(), move |kernel| {
            let arch: Arch = ARCH.parse().expect("an architecture");
            let entry = [kernel.entry.as_str()];
            let mut job = Job::of(kernel, &entry, arch);
            let source = edit(job.source_name, job.source);
            let texts: Vec<String> = HEADERS.iter().map(|h| edit(h.name, h.text)).collect();
            let headers: Vec<Header<'_>> =
                HEADERS.iter().zip(&texts).map(|(h, text)| Header { name: h.name, text }).collect();
            (job.source, job.headers) = (&source, &headers);
            let ptx = Nvrtc::load()
                .and_then(|nvrtc| nvrtc.ptx(&job))
                .map_err(|e| QueueError::runtime("compiling", e))?;
            Ok(Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text })
        });
        assert!(
            healthy(&queue, route).is_err_and(|seen| !seen.contains("compiling")),
            "{what}: not seen by {route}"
        );
    }
}
