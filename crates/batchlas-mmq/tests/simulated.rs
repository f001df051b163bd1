//! Every kernel on the simulated device: exact-size memory, no uninitialised reads, no races, and results within the gate.

#![allow(missing_docs)]

mod common;

use batchlas_core::{Kernel, Queue, QueueError};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_sim::{Compiled, DeviceConfig, SimQueue};

use common::{Random, activations, judge, reference, run, weights};

const ARCH: &str = "sm_90";

fn compile(kernel: &Kernel) -> Result<Compiled, QueueError> {
    let failed =
        |error| QueueError::runtime("compiling for the simulator (`cargo xtask setup` fetches NVRTC)", error);
    let arch: Arch = ARCH.parse().map_err(failed)?;
    let entry = [kernel.entry.as_str()];
    let ptx = Nvrtc::load().and_then(|nvrtc| nvrtc.ptx(&Job::of(kernel, &entry, arch))).map_err(failed)?;
    Ok(Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text })
}

fn queue() -> SimQueue {
    SimQueue::new(ARCH, DeviceConfig::default(), compile)
}

/// Runs a spelling on shapes `[n, k, m]` and holds it to the gate.
fn check(route: &str, shapes: &[[usize; 3]]) {
    let queue = queue();
    let mut random = Random(7);
    for &shape in shapes {
        let [n, k, m] = shape;
        let (w, x) = (weights(&mut random, n, k), activations(&mut random, k, m));
        let y = run(&queue, route, &w, shape, (&x, k), n).unwrap_or_else(|e| panic!("{route} {shape:?}: {e}"));
        let expected = reference(&w, n, k, &x, k, m);
        let worst = judge(&y, n, shape, &expected).unwrap_or_else(|e| panic!("{route} {shape:?}: {e}"));
        assert!(worst < 0.5, "{route} {shape:?}: {worst} of the gate");
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
