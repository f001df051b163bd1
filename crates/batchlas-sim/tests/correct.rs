//! Correct kernels under every schedule: the right answer for every item, and nothing to report.

#![allow(clippy::unwrap_used)]

mod common;

use batchlas_sim::{FindingKind, Layout, Module, Permission, Schedule, lint};
use common::{Bench, Numbers, Params, SCHEDULES, module};

const N: usize = 16;

/// A batch of symmetric positive definite matrices, both triangles stored.
fn spd(batch: usize) -> Vec<f64> {
    let mut numbers = Numbers(1);
    let mut a = vec![0.0; batch * N * N];
    for item in a.chunks_mut(N * N) {
        for j in 0..N {
            for i in j..N {
                let x = numbers.next() + if i == j { N as f64 } else { 0.0 };
                (item[i + j * N], item[j + i * N]) = (x, x);
            }
        }
    }
    a
}

/// Factors a batch whose item 5 has a pivot that is not positive at column 4, in a matrix with padding, and with the
/// upper triangle and the padding forbidden.
fn potrf<T: common::Bytes + Into<f64>>(
    m: &Module,
    entry: &str,
    from: fn(f64) -> T,
    schedule: Schedule,
) -> f64 {
    let (batch, ld) = (19, N + 3);
    let stride = ld * N + 5;
    let mut a = spd(batch);
    a[5 * N * N + 3 * (N + 1)] = -1.0;
    let mut padded = vec![from(-999.0); batch * stride];
    for b in 0..batch {
        for j in 0..N {
            for i in 0..N {
                padded[b * stride + i + j * ld] = from(a[b * N * N + i + j * N]);
            }
        }
    }
    let mut bench = Bench::new();
    let at = bench.filled("A", &padded);
    bench.device.set_layout(at, Layout { element: T::SIZE, ld, stride }).unwrap();
    bench
        .device
        .protect_elements(at, T::SIZE, padded.len(), |e| {
            let (row, column) = (e % stride % ld, e % stride / ld);
            if column < N && row < N && row >= column { Permission::ReadWrite } else { Permission::None }
        })
        .unwrap();
    let info = bench.empty::<i32>("info", batch);
    let params = Params::default().u64(at).i32(ld as i32).u64(stride as u64).u64(info).i32(batch as i32);
    let report = bench.run(m, entry, [batch.div_ceil(2) as u32, 1, 1], 64, 0, params, schedule);
    assert!(report.is_clean(), "{report}");
    let infos = bench.read::<i32>(info, batch);
    assert!(infos.iter().enumerate().all(|(b, i)| *i == if b == 5 { 4 } else { 0 }), "{infos:?}");
    let l: Vec<f64> = bench.read::<T>(at, padded.len()).into_iter().map(Into::into).collect();
    let mut worst = 0f64;
    for b in (0..batch).filter(|b| *b != 5) {
        let l = |i: usize, j: usize| l[b * stride + i + j * ld];
        for i in 0..N {
            for j in 0..=i {
                let sum: f64 = (0..=j).map(|k| l(i, k) * l(j, k)).sum();
                worst = worst.max((sum - a[b * N * N + i + j * N]).abs());
            }
        }
    }
    worst / N as f64
}

#[test]
fn potrf_in_registers() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("potrf.{arch}"));
        for schedule in SCHEDULES {
            let e = potrf::<f32>(&m, "potrf_f32", |x| x as f32, schedule);
            assert!(e < 4.0 * f64::from(f32::EPSILON), "{arch} {schedule:?}: {e:e}");
            let e = potrf::<f64>(&m, "potrf_f64", |x| x, schedule);
            assert!(e < 4.0 * f64::EPSILON, "{arch} {schedule:?}: {e:e}");
        }
    }
}

#[test]
fn trsm_through_shared_memory() {
    let (n, q, batch) = (24, 10, 3);
    let mut numbers = Numbers(2);
    let l: Vec<f32> = (0..batch * n * n)
        .map(|e| {
            let (i, j) = (e % n, e / n % n);
            if i == j { 4.0 + numbers.next() as f32 } else { numbers.next() as f32 }
        })
        .collect();
    let b: Vec<f32> = (0..batch * n * q).map(|_| numbers.next() as f32).collect();
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let m = module(&format!("trsm.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let at_l = bench.filled("L", &l);
            bench
                .device
                .protect_elements(at_l, 4, l.len(), |e| {
                    if e % n >= e / n % n { Permission::ReadOnly } else { Permission::None }
                })
                .unwrap();
            let at_b = bench.filled("B", &b);
            let params = Params::default().u64(at_l).u64(at_b).i32(n as i32).i32(q as i32);
            let shared = 4 * (n * n + n * q);
            let report = bench.run(&m, "trsm_shared", [batch as u32, 1, 1], 96, shared, params, schedule);
            assert!(report.is_clean(), "{report}");
            let x = bench.read::<f32>(at_b, b.len());
            for item in 0..batch {
                for j in 0..q {
                    for i in 0..n {
                        let sum: f64 = (0..=i)
                            .map(|k| {
                                f64::from(l[item * n * n + i + k * n])
                                    * f64::from(x[item * n * q + k + j * n])
                            })
                            .sum();
                        let error = (sum - f64::from(b[item * n * q + i + j * n])).abs();
                        assert!(error < 1e-6, "{arch} {schedule:?} item {item} ({i}, {j}): {error:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn gemm_with_asynchronous_copies() {
    let (m, n, k) = (64, 32, 96);
    let mut numbers = Numbers(3);
    let a: Vec<f32> = (0..m * k).map(|_| numbers.next() as f32).collect();
    let b: Vec<f32> = (0..k * n).map(|_| numbers.next() as f32).collect();
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let kernel = module(&format!("gemm.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let (at_a, at_b) = (bench.filled("A", &a), bench.filled("B", &b));
            let at_c = bench.empty::<f32>("C", m * n);
            let params =
                Params::default().u64(at_a).u64(at_b).u64(at_c).i32(m as i32).i32(n as i32).i32(k as i32);
            let grid = [m as u32 / 32, n as u32 / 32, 1];
            let report = bench.run(&kernel, "gemm_async", grid, 256, 0, params, schedule);
            assert!(report.is_clean(), "{arch} {schedule:?} {report}");
            let c = bench.read::<f32>(at_c, m * n);
            for j in 0..n {
                for i in 0..m {
                    let sum: f64 = (0..k).map(|p| f64::from(a[i + p * m]) * f64::from(b[p + j * k])).sum();
                    assert!((sum - f64::from(c[i + j * m])).abs() < 1e-5, "{arch} ({i}, {j})");
                }
            }
        }
    }
}

/// Runs a one-warp matrix kernel and compares with the product of the decoded operands.
fn mma<E: common::Bytes, D: common::Bytes + Into<f64>>(
    m: &Module,
    entry: &str,
    (rows, k): (usize, usize),
    a: &[E],
    b: &[E],
    c: &[D],
    product: impl Fn(usize, usize) -> f64,
    tolerance: f64,
) {
    let mut bench = Bench::new();
    let (at_a, at_b, at_c) = (bench.filled("A", a), bench.filled("B", b), bench.filled("C", c));
    let at_d = bench.empty::<D>("D", rows * 8);
    let params = Params::default().u64(at_a).u64(at_b).u64(at_c).u64(at_d);
    let report = bench.run(m, entry, [1; 3], 32, 0, params, Schedule::Forward);
    assert!(report.is_clean(), "{entry} {report}");
    for (e, d) in bench.read::<D>(at_d, rows * 8).into_iter().enumerate() {
        let expected = product(e / 8, e % 8) + c[e].into();
        let got: f64 = d.into();
        assert!(
            (got - expected).abs() <= tolerance,
            "{entry} k={k} ({}, {}): {got} {expected}",
            e / 8,
            e % 8
        );
    }
}

#[test]
fn matrix_instructions() {
    let mut numbers = Numbers(4);
    let mut draw = |count: usize| (0..count).map(|_| numbers.next()).collect::<Vec<f64>>();
    let dot = |k: usize, a: &[f64], b: &[f64], i: usize, j: usize| -> f64 {
        (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum()
    };
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let m = module(&format!("mma.{arch}"));
        for (entry, rows, k) in
            [("mma_f64_m8n8k4", 8, 4), ("mma_f64_m16n8k8", 16, 8), ("mma_f64_m16n8k16", 16, 16)]
        {
            if m.entry(entry).is_none() {
                assert_eq!((arch, rows), ("sm_80", 16));
                continue;
            }
            let (a, b, c) = (draw(rows * k), draw(8 * k), draw(rows * 8));
            mma(&m, entry, (rows, k), &a, &b, &c, |i, j| dot(k, &a, &b, i, j), 1e-15);
        }
        let single = |v: &[f64]| v.iter().map(|x| *x as f32).collect::<Vec<f32>>();

        // Values with few bits are exact in tf32 and bf16, so one rounding is all that is left.
        let coarse = |v: Vec<f64>| v.iter().map(|x| (x * 128.0).round() / 128.0).collect::<Vec<f64>>();
        let (a, b, c) = (coarse(draw(16 * 8)), coarse(draw(8 * 8)), draw(16 * 8));
        let (sa, sb, sc) = (single(&a), single(&b), single(&c));
        mma(&m, "mma_tf32_m16n8k8", (16, 8), &sa, &sb, &sc, |i, j| dot(8, &a, &b, i, j), 1e-7);

        let (a, b) = (coarse(draw(16 * 16)), coarse(draw(16 * 8)));
        let brain = |v: &[f64]| v.iter().map(|x| ((*x as f32).to_bits() >> 16) as u16).collect::<Vec<u16>>();
        // Here B is stored row by row and transposed on the way.
        let row_major = |i: usize, j: usize| (0..16).map(|p| a[i * 16 + p] * b[p * 8 + j]).sum();
        mma(&m, "mma_bf16_m16n8k16", (16, 16), &brain(&a), &brain(&b), &sc, row_major, 1e-7);

        let byte = |v: Vec<f64>| v.iter().map(|x| (x * 255.0).round()).collect::<Vec<f64>>();
        let (a, b) = (byte(draw(16 * 32)), byte(draw(8 * 32)));
        let raw = |v: &[f64]| v.iter().map(|x| *x as i8 as u8).collect::<Vec<u8>>();
        let c: Vec<i32> = draw(128).iter().map(|x| (x * 1e6) as i32).collect();
        mma(&m, "mma_s8_m16n8k32", (16, 32), &raw(&a), &raw(&b), &c, |i, j| dot(32, &a, &b, i, j), 0.0);
    }
}

#[test]
fn shuffles_and_votes() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let out = bench.empty::<i32>("out", 256);
            let report = bench.run(&m, "shuffles", [1; 3], 32, 0, Params::default().u64(out), schedule);
            assert!(report.is_clean(), "{report}");
            let got = bench.read::<i32>(out, 256);
            for l in 0..32i32 {
                let within = |x: i32| 100 + if (0..32).contains(&x) { x } else { l };
                let eighth = |x: i32| 100 + if x / 8 == l / 8 && x >= 0 { x } else { l };
                let expected = [
                    105,
                    within(l - 3),
                    within(l + 3),
                    100 + (l ^ 7),
                    100 + l / 8 * 8 + 1,
                    eighth(l - 3),
                    eighth(l + 3),
                    100 + l / 8 * 8 + (l + 1) % 8,
                ];
                for (i, e) in expected.iter().enumerate() {
                    assert_eq!(got[32 * i + l as usize], *e, "{arch} shuffle {i} lane {l}");
                }
            }

            let out = bench.empty::<u32>("out", 288);
            let report = bench.run(&m, "votes", [1; 3], 32, 0, Params::default().u64(out), schedule);
            assert!(report.is_clean(), "{report}");
            let got = bench.read::<u32>(out, 288);
            for l in 0..32usize {
                let expected = [0x4924_9249, 1, 0, 0x1111_1111 << (l % 4), u32::MAX, 1, 496, 0];
                for (i, e) in expected.iter().enumerate() {
                    assert_eq!(got[32 * i + l], *e, "{arch} vote {i} lane {l}");
                }
                if l >= 8 {
                    assert_eq!(got[256 + l], 0xaaaa_aa00);
                }
            }
        }
    }
}

#[test]
fn atomics_and_block_votes() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let mut start = [0i32; 512];
            start[4] = 7;
            let out = bench.filled("out", &start);
            let (sum, big) = (bench.filled("sum", &[0f32]), bench.filled("big", &[0u64]));
            let params = Params::default().u64(out).u64(sum).u64(big);
            let report = bench.run(&m, "atomics", [3, 1, 1], 64, 0, params, schedule);
            assert!(report.is_clean(), "{schedule:?} {report}");
            let got = bench.read::<i32>(out, 512);
            assert_eq!(got[..4], [191 * 96, 191, -191, -1]);
            assert_ne!(got[4], 7);
            assert!((0..192).all(|t| got[5 + t] == t as i32));
            assert_eq!(got[500..503], [192 % 10, 192, 3 * 1032]);
            assert_eq!(bench.read::<f32>(sum, 1), [96.0]);
            assert_eq!(bench.read::<u64>(big, 1), [192 << 33]);
        }
    }
}

#[test]
fn arguments_constants_and_local_arrays() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        let mut bench = Bench::new();
        let out = bench.empty::<i32>("out", 32);
        let entry = m.entry("arguments").unwrap();
        let mut block = vec![0u8; entry.param_bytes()];
        let at = |i: usize| entry.params[i].offset;
        block[at(0)..at(0) + 4].copy_from_slice(&3i32.to_le_bytes());
        block[at(0) + 8..at(0) + 16].copy_from_slice(&1.5f64.to_le_bytes());
        block[at(0) + 16..at(0) + 24].copy_from_slice(&out.to_le_bytes());
        block[at(0) + 24] = 100;
        block[at(1)] = 0xff;
        block[at(2)..at(2) + 8].copy_from_slice(&4.0f64.to_le_bytes());
        let report = bench.run(&m, "arguments", [1; 3], 32, 0, Params(block), Schedule::Forward);
        assert!(report.is_clean(), "{report}");
        let table = [2, 3, 5, 7, 11];
        for (t, got) in bench.read::<i32>(out, 32).into_iter().enumerate() {
            assert_eq!(got, (t as i32 * 7) % 16 * 3 + table[t % 5] - 1 + 6 + 100);
        }
    }
}

#[test]
fn integer_instructions() {
    let input: Vec<i32> = (0..32).map(|t: i32| (t - 11).wrapping_mul(0x1234_5677) ^ t).collect();
    let n = 32i32;
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        let mut bench = Bench::new();
        let (at, out) = (bench.filled("in", &input), bench.empty::<i64>("out", 16 * 32));
        let params = Params::default().u64(at).u64(out).i32(n);
        let report = bench.run(&m, "integers", [1; 3], 32, 0, params, Schedule::Forward);
        assert!(report.is_clean(), "{report}");
        let got = bench.read::<i64>(out, 16 * 32);
        for (t, &v) in input.iter().enumerate() {
            let (u, s) = (v as u32, t as u32);
            let bytes = [v.to_le_bytes(), n.to_le_bytes()].concat();
            let funnel = ((u64::from(u.wrapping_mul(3)) << 32 | u64::from(u)) << (s & 31)) >> 32;
            let expected: [i64; 16] = [
                (v / n).into(),
                (v % n).into(),
                (i64::from(v) * 123_456_789) >> 32,
                v.count_ones().into(),
                v.leading_zeros().into(),
                i64::from(u.reverse_bits()),
                (u / 7).into(),
                u32::from_le_bytes(bytes[1..5].try_into().unwrap()).into(),
                i64::from(funnel as u32),
                (i64::from(v) * i64::from(v)) / 3,
                if t < 32 { (v >> t).into() } else { 0 },
                if v == 0 { 0 } else { i64::from(v.trailing_zeros()) + 1 },
                (v as i8).into(),
                v.min(5).wrapping_add(v.max(-5)).wrapping_add(v.wrapping_abs()).into(),
                (v as f32 * 1e3f32) as i64,
                (((v ^ t as i32) & !n) | (v << 2)).into(),
            ];
            for (i, e) in expected.iter().enumerate() {
                // The unsigned results are stored through unsigned or signed conversions alike: compare 32 bits there.
                let same = if matches!(i, 5..=8) {
                    got[32 * i + t] as u32 == *e as u32
                } else {
                    got[32 * i + t] == *e
                };
                assert!(same, "{arch} result {i} for {v}: {} {e}", got[32 * i + t]);
            }
        }
    }
}

#[test]
fn arrival_without_waiting_orders_one_way() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let out = bench.empty::<i32>("out", 32);
            let report = bench.run(&m, "one_way", [1; 3], 64, 0, Params::default().u64(out).i32(7), schedule);
            assert!(report.is_clean(), "{schedule:?} {report}");
            assert_eq!(bench.read::<i32>(out, 32), (0..32).map(|l| 7 + 31 - l).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_correct_kernels_leave_no_pair_to_fuse() {
    for (file, entry) in
        [("potrf", "potrf_f32"), ("potrf", "potrf_f64"), ("trsm", "trsm_shared"), ("gemm", "gemm_async")]
    {
        let m = module(&format!("{file}.sm_90"));
        assert_eq!(lint::unfused(&m, m.entry(entry).unwrap()), []);
    }
}

#[test]
fn signed_loads_extend_to_the_register() {
    let text = "
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b16 %rs<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [k_param_0];
    ld.global.s32 %rd2, [%rd1];
    st.global.u64 [%rd1+8], %rd2;
    ld.global.s8 %rd3, [%rd1];
    st.global.u64 [%rd1+16], %rd3;
    ld.global.s8 %r1, [%rd1];
    st.global.u32 [%rd1+24], %r1;
    ld.global.u8 %rs1, [%rd1];
    cvt.s32.s8 %r1, %rs1;
    st.global.u32 [%rd1+28], %r1;
    ret;
}";
    let m = Module::parse(text).unwrap();
    let mut bench = Bench::new();
    let a = bench.filled("a", &[-2i32, 0, 0, 0, 0, 0, 0, 0]);
    let report = bench.run(&m, "k", [1; 3], 1, 0, Params::default().u64(a), Schedule::Forward);
    assert!(report.is_clean(), "{report}");
    assert_eq!(bench.read::<i64>(a + 8, 2), [-2, -2]);
    assert_eq!(bench.read::<i32>(a + 24, 2), [-2, -2]);
}

#[test]
fn costs_are_counted_by_source_line() {
    let m = module("trsm.sm_90");
    let mut bench = Bench::new();
    let (n, q) = (32, 32);
    let (l, b) = (bench.filled("L", &vec![1f32; n * n]), bench.filled("B", &vec![1f32; n * q]));
    let params = Params::default().u64(l).u64(b).i32(n as i32).i32(q as i32);
    let report = bench.run(&m, "trsm_shared", [1; 3], 256, 4 * (n * n + n * q), params, Schedule::Forward);
    // The right-hand sides are read and written once, in full sectors: 128 sectors each way.
    let source =
        std::fs::read_to_string(format!("{}/tests/ptx/trsm.cu", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let line = |text: &str| source.lines().position(|l| l.contains(text)).unwrap() as u32 + 1;
    let sectors = |n: u32| report.lines().iter().find(|(_, l, _)| *l == n).map_or(0, |(.., c)| c.sectors);
    assert_eq!(sectors(line("rhs[e] = bp[e]")), 128);
    assert_eq!(sectors(line("bp[e] = rhs[e]")), 128);
    assert_eq!(report.stats.store_sectors, 128);
    // Every thread of the division reads a column: a stride of 32 words is a conflict of all lanes.
    assert!(report.stats.shared_wavefronts > report.stats.shared_wavefronts_least);
}

#[test]
fn barriers_in_shared_memory() {
    let tiles = 5;
    let a: Vec<i32> = (0..64 * tiles).map(|x| x * x + 1).collect();
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("phases.{arch}"));
        for entry in ["bulk_stream", "tracked", "tokens"] {
            for schedule in SCHEDULES {
                let mut bench = Bench::new();
                let (at, b) = (bench.filled("a", &a), bench.empty::<i32>("b", a.len()));
                let params = Params::default().u64(at).u64(b).i32(tiles);
                let report = bench.run(&m, entry, [1; 3], 64, 0, params, schedule);
                assert!(report.is_clean(), "{arch} {entry} {schedule:?} {report}");
                let reversed: Vec<i32> = a.chunks(64).flat_map(|c| c.iter().rev().copied()).collect();
                assert_eq!(bench.read::<i32>(b, a.len()), reversed, "{arch} {entry} {schedule:?}");
            }
        }
    }
}

#[test]
fn functions() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("control.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let a: Vec<f32> = (0..64).map(|t| t as f32 * 0.37).collect();
            let (at, b) = (bench.filled("a", &a), bench.empty::<f32>("b", 64));
            let params = Params::default().u64(at).u64(b).i32(5);
            let report = bench.run(&m, "calls", [1; 3], 64, 0, params, schedule);
            assert!(report.is_clean(), "{report}");
            let halve = |x: f32, n: usize| (0..n).fold(x, |x, _| x.mul_add(0.5, 1.0));
            let expected = |(t, x): (usize, &f32)| match t % 3 {
                0 => 0.0,
                _ => halve(*x, t % 5) + halve(*x, 1) + (t as i32 % 5 + x.round_ties_even() as i32) as f32,
            };
            let expected: Vec<f32> = a.iter().enumerate().map(expected).collect();
            assert_eq!(bench.read::<f32>(b, 64), expected);

            // Library functions with tables, slow paths and calls; the last angles need the long reduction.
            let a: Vec<f64> = (0..64)
                .map(|t| if t < 60 { f64::from(t) * 0.7 - 20.0 } else { 1e10 * f64::from(t) })
                .collect();
            let (at, b) = (bench.filled("a", &a), bench.empty::<f64>("b", 64));
            let report = bench.run(&m, "sines", [1; 3], 64, 0, Params::default().u64(at).u64(b), schedule);
            assert!(report.is_clean(), "{report}");
            for (x, got) in a.iter().zip(bench.read::<f64>(b, 64)) {
                let expected = x.sin() + x.abs().powf(1.7);
                assert!((got - expected).abs() <= 4e-15 * (1.0 + expected.abs()), "{x}: {got} {expected}");
            }
        }
        let error = m.check().unwrap_err().to_string();
        assert!(error.contains("_Z3fibi calls itself"), "{error}");
    }
}

#[test]
fn branch_tables() {
    let text = "
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [k_param_0];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    rem.u32 %r2, %r1, 3;
$L_table:
    .branchtargets $L_a, $L_b, $L_c;
    brx.idx %r2, $L_table;
$L_a:
    mov.u32 %r3, 10;
    bra.uni $L_end;
$L_b:
    mov.u32 %r3, 20;
    bra.uni $L_end;
$L_c:
    mov.u32 %r3, 30;
$L_end:
    st.global.u32 [%rd3], %r3;
    ret;
}";
    for schedule in SCHEDULES {
        let mut bench = Bench::new();
        let a = bench.empty::<i32>("a", 32);
        let m = Module::parse(text).unwrap();
        let report = bench.run(&m, "k", [1; 3], 32, 0, Params::default().u64(a), schedule);
        assert!(report.is_clean(), "{report}");
        assert_eq!(bench.read::<i32>(a, 32), (0..32).map(|t| 10 * (t % 3 + 1)).collect::<Vec<_>>());
        let m = Module::parse(&text.replace("rem.u32 %r2, %r1, 3", "rem.u32 %r2, %r1, 4")).unwrap();
        let report = bench.run(&m, "k", [1; 3], 32, 0, Params::default().u64(a), schedule);
        assert_eq!(report.kinds(), [FindingKind::OutOfBounds]);
    }
}

#[test]
fn switches_and_indexed_parameters() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("control.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let out = bench.empty::<f32>("out", 32);
            let mut block = 3i32.to_le_bytes().to_vec();
            (0..8).for_each(|w| block.extend((w as f32 + 0.5).to_le_bytes()));
            block.resize(40, 0);
            block.extend(out.to_le_bytes());
            block.extend(5i32.to_le_bytes());
            let report = bench.run(&m, "indexed", [1; 3], 32, 0, Params(block), schedule);
            assert!(report.is_clean(), "{report}");
            let expected: Vec<f32> = (0..32).map(|t| (((t * 5) & 7) as f32 + 0.5) * 3.0).collect();
            assert_eq!(bench.read::<f32>(out, 32), expected);

            let a: Vec<i32> = (0..32).map(|t| t % 11 - 1).collect();
            let (at, b) = (bench.filled("a", &a), bench.empty::<i32>("b", 36));
            // Several lanes write the same flag: that is a race, and all that may be found.
            let params = Params::default().u64(at).u64(b).i32(100);
            let report = bench.run(&m, "cases", [1; 3], 32, 0, params, schedule);
            assert_eq!(report.kinds(), [FindingKind::Race]);
            let expected = |v: i32| match v {
                0 => 300,
                1 => 100 ^ 77,
                2 => 33,
                3 => 97,
                4 => 400,
                5 => 2,
                6 => 400,
                7 => 3,
                _ => -1,
            };
            assert_eq!(bench.read::<i32>(b, 32), a.iter().map(|v| expected(*v)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_thread_may_wait_for_another_in_a_loop() {
    for arch in ["sm_90", "sm_100"] {
        let m = module(&format!("warp.{arch}"));
        for schedule in SCHEDULES {
            let mut bench = Bench::new();
            let (flag, out) = (bench.filled("flag", &[0i32; 3]), bench.filled("out", &[0i32; 3]));
            let params = Params::default().u64(flag).u64(out);
            let report = bench.run(&m, "spin", [1; 3], 64, 0, params, schedule);
            assert!(report.is_clean(), "{schedule:?} {report}");
            assert_eq!(bench.read::<i32>(out, 3), [1; 3]);
        }
    }
}

#[test]
fn the_other_triangle_is_guarded() {
    // The factor writes column by column: forbidding one element of the lower triangle is noticed at that element.
    let m = module("potrf.sm_90");
    let mut bench = Bench::new();
    let a = bench.filled("A", &spd(1));
    bench.device.set_layout(a, Layout { element: 8, ld: N, stride: N * N }).unwrap();
    bench.device.protect(a + 8 * (7 + 2 * N as u64), 8, Permission::ReadOnly).unwrap();
    let info = bench.empty::<i32>("info", 1);
    let params = Params::default().u64(a).i32(N as i32).u64((N * N) as u64).u64(info).i32(1);
    let report = bench.run(&m, "potrf_f64", [1; 3], 32, 0, params, Schedule::Forward);
    assert_eq!(report.kinds(), [FindingKind::ReadOnlyWrite]);
    let text = report.findings[0].to_string();
    assert!(text.contains("`A` byte 312") && text.contains("= item 0 row 7 column 2"), "{text}");
    assert!(text.contains("potrf.cu:"), "{text}");
}
