//! The CPU arm against its peers: faer, and, where their libraries are found at run time, OpenBLAS, MKL and MKL compact.
//!
//! ```text
//! pip install --no-deps --ignore-installed --prefix target/peers scipy-openblas32 mkl
//! cargo bench -p batchlas-bench --bench peers -- [set=cache|memory] [ops=potrf,posv1,..] [n=2,4,..] [dtypes=f32,..]
//!                                               [threads=1,2] [rounds=3] [out=FILE.jsonl]
//! ```
//!
//! Arms take turns in one process, inputs are restored before every run, and the shortest run of each counts: a machine that
//! does something else meanwhile can only lengthen one. Ours is what a caller gets: automatic choice, packing, pivot tests
//! and `info` included. Peers run as a loop over the items on one thread, and over a pool for more; MKL compact packs,
//! computes and unpacks, 256 KiB at a time. Residuals of all arms are formed from the last item; a peer whose answer is
//! wrong is no peer. `cargo xtask report` draws the rows.
#![allow(unsafe_code, clippy::print_stdout)]

mod arms;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use batchlas::{Context, Dtype, Element, InfoMut, MatBatchMut, Side};
use batchlas_bench::matrices::{Random, definite};
use batchlas_core::CpuQueue;
use num_complex::Complex;

use crate::arms::{Arm, Cell, Op, Run, compact, faer, lapack, library, ours};

type Failure = Box<dyn std::error::Error>;

/// Largest residual, in units of `n eps`, of an answer that counts.
const RIGHT: f64 = 50.0;

/// What is timed unless the command line says otherwise.
struct Set {
    name: &'static str,
    mib: usize,
    ops: &'static str,
    orders: &'static str,
    threads: &'static str,
}

/// Operands that the caches hold, and operands that no cache holds.
const SETS: [Set; 2] = [
    Set {
        name: "cache",
        mib: 4,
        ops: "potrf,posv1,posv4,posv16,left1,left4,left32,right1,right4,right32",
        orders: "2,4,8,16,32,64,128,256",
        threads: "1,2",
    },
    Set { name: "memory", mib: 384, ops: "potrf,posv1,right32", orders: "8,32", threads: "1" },
];

struct Settings {
    threads: Vec<usize>,
    mib: usize,
    rounds: usize,
    out: Option<PathBuf>,
}

/// The operands that the items of a batch repeat.
struct Sources<T> {
    distinct: usize,
    a: Vec<T>,
    b: Vec<T>,
}

impl<T: Element> Sources<T> {
    fn new(n: usize, most_q: usize) -> Self {
        let distinct = if n <= 64 { 64 } else { 8 };
        let a = (0..distinct).flat_map(|i| definite::<T>(n, &mut Random::new(7, i)).data).collect();
        let mut random = Random::new(8, 0);
        Sources { distinct, a, b: (0..distinct * n * most_q).map(|_| random.scalar()).collect() }
    }

    /// Item `item` of a batch.
    fn item(&self, cell: Cell, item: usize) -> (&[T], &[T]) {
        let (at, sa, sb) = (item % self.distinct, cell.n * cell.n, cell.n * cell.q);
        (&self.a[at * sa..][..sa], &self.b[at * sb..][..sb])
    }

    fn restore(&self, cell: Cell, a: &mut [T], b: &mut [T]) {
        for chunk in a.chunks_mut(self.a.len()) {
            chunk.copy_from_slice(&self.a[..chunk.len()]);
        }
        for chunk in b.chunks_mut((self.distinct * cell.n * cell.q).max(1)) {
            chunk.copy_from_slice(&self.b[..chunk.len()]);
        }
    }
}

/// Normwise residual of an item, in units of `n eps`.
fn residual<T: Element>(cell: Cell, before: (&[T], &[T]), after: (&[T], &[T])) -> f64 {
    let Cell { op, n, q } = cell;
    let (rows, cols) = cell.rhs();
    let wide = |item: &[T]| -> Vec<Complex<f64>> { item.iter().map(|x| x.widen()).collect() };
    let (a, b, l, x) = (wide(before.0), wide(before.1), wide(after.0), wide(after.1));
    let (mut error, mut size_x) = (0.0, 0.0);
    let size_a: f64 = a.iter().map(Complex::norm_sqr).sum();
    let scale = n as f64 * T::DTYPE.epsilon();
    let lower =
        |m: &[Complex<f64>], i: usize, j: usize| if i >= j { m[j * n + i] } else { Complex::default() };
    if op == Op::Potrf {
        for (i, j) in (0..n).flat_map(|j| (j..n).map(move |i| (i, j))) {
            let sum: Complex<f64> = (0..=j).map(|k| lower(&l, i, k) * lower(&l, j, k).conj()).sum();
            error += (sum - a[j * n + i]).norm_sqr();
        }
        return (error / size_a).sqrt() / scale;
    }
    // A few right-hand sides stand for all.
    let picked = q.min(4);
    for (k, r) in (0..picked).flat_map(|r| (0..n).map(move |k| (k, r))) {
        let (i, j) = if op == Op::Trsm(Side::Right) { (r, k) } else { (k, r) };
        let sum: Complex<f64> = match op {
            Op::Posv => (0..n).map(|k| a[k * n + i] * x[j * rows + k]).sum(),
            Op::Trsm(Side::Left) => (0..n).map(|k| lower(&a, i, k) * x[j * rows + k]).sum(),
            _ => (0..cols).map(|k| x[k * rows + i] * lower(&a, j, k)).sum(),
        };
        error += (sum - b[j * rows + i]).norm_sqr();
        size_x += x[j * rows + i].norm_sqr();
    }
    (error / (size_a * size_x)).sqrt() / scale
}

/// Times every arm of a cell: a line for people and a row per number of threads.
fn time<T: Element>(
    set: &str,
    name: &str,
    cell: Cell,
    sources: &Sources<T>,
    settings: &Settings,
) -> Result<(), Failure> {
    let Cell { n, q, .. } = cell;
    let (rows, cols) = cell.rhs();
    let each = (n * n + n * q) * size_of::<T>();
    // Every thread has a full group at least.
    let items = ((settings.mib << 20) / each / 32 * 32).max(32);
    let (mut a, mut b) = (vec![T::default(); items * n * n], vec![T::default(); items * n * q]);
    let mut info = vec![0; items];
    for &threads in &settings.threads {
        let (ctx, pool) = (Context::cpu(threads)?, CpuQueue::new(threads)?);
        let mut arms: Vec<(&str, Arm<'_, T>)> = vec![("ours", ours(&ctx, cell)), ("faer", faer(cell))];
        let (openblas, mkl) = (library("openblas"), library("mkl_rt"));
        arms.extend(openblas.and_then(|l| lapack(l, "scipy_", cell)).map(|arm| ("openblas", arm)));
        arms.extend(mkl.and_then(|l| lapack(l, "", cell)).map(|arm| ("mkl", arm)));
        arms.extend(mkl.and_then(|l| compact(l, cell)).map(|arm| ("compact", arm)));
        let (mut best, mut wrong) = (vec![f64::INFINITY; arms.len()], vec![0.0; arms.len()]);
        // The first round warms up and is where residuals are formed.
        for round in 0..settings.rounds + 1 {
            for at in (0..arms.len()).map(|x| (x + round) % arms.len()) {
                sources.restore(cell, &mut a, &mut b);
                let start = Instant::now();
                if at == 0 || threads == 1 {
                    let run = Run { a: a.as_mut_ptr(), b: b.as_mut_ptr(), info: info.as_mut_ptr(), items };
                    arms[at].1(&run);
                } else {
                    let operands = (
                        (
                            MatBatchMut::packed(&mut a, n, n, items)?,
                            MatBatchMut::packed(&mut b, rows, cols, items)?,
                        ),
                        InfoMut::host(&mut info),
                    );
                    pool.for_each_chunk(operands, 16, |((mut a, mut b), info)| {
                        let first = a.item_mut(0).map(|mut item| item.as_mut_ptr());
                        let a_ptr = first.unwrap_or(std::ptr::null_mut());
                        let b_ptr = b.item_mut(0).map_or(std::ptr::null_mut(), |mut item| item.as_mut_ptr());
                        let info = std::ptr::with_exposed_provenance_mut(info.address() as usize);
                        arms[at].1(&Run { a: a_ptr, b: b_ptr, info, items: a.batch() });
                        Ok(())
                    })?;
                }
                let ns = start.elapsed().as_secs_f64() * 1e9 / items as f64;
                if round > 0 {
                    best[at] = best[at].min(ns);
                } else {
                    let last = (&a[(items - 1) * n * n..], &b[(items - 1) * n * q..]);
                    wrong[at] = residual(cell, sources.item(cell, items - 1), last);
                }
            }
        }
        let peers = (1..arms.len()).filter(|&at| wrong[at] < RIGHT);
        let Some(peer) = peers.min_by(|&x, &y| best[x].total_cmp(&best[y])) else {
            return Err(format!("{name} n = {n}: no peer is right").into());
        };
        println!(
            "{set:<6} {name:<7} {} n={n:<3} x{threads} {:>11.1} ns  {:>5.2} x {}",
            T::DTYPE,
            best[0],
            best[peer] / best[0],
            arms[peer].0,
        );
        if let Some(out) = &settings.out {
            let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let of = |values: &[f64], digits: i32| -> serde_json::Map<String, serde_json::Value> {
                let round = |x: f64| (x * 10f64.powi(digits)).round() / 10f64.powi(digits);
                arms.iter().zip(values).map(|((arm, _), &x)| ((*arm).into(), round(x).into())).collect()
            };
            let row = serde_json::json!({
                "set": set, "op": name, "dtype": T::DTYPE.to_string(), "n": n, "q": q, "threads": threads,
                "items": items, "ns_per_item": of(&best, 1), "residual_n_eps": of(&wrong, 3), "best_peer": arms[peer].0,
                "ratio": (best[peer] / best[0] * 100.0).round() / 100.0, "cpu": cpu(), "date": &date[..10],
            });
            writeln!(OpenOptions::new().create(true).append(true).open(out)?, "{row}")?;
        }
    }
    Ok(())
}

/// What the system calls its processor.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let [name, family, model] = ["model name", "cpu family", "model\t"].map(|f| field(f).unwrap_or_default());
    format!("{name}, family {family} model {model}")
}

/// Every operation of a set at one order and type.
fn order<T: Element>(set: &str, n: usize, ops: &[String], settings: &Settings) -> Result<(), Failure> {
    let mut cells = Vec::new();
    for name in ops {
        let (word, q) = name.split_at(name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len()));
        let (q, op) = match word {
            "potrf" => (0, Op::Potrf),
            "posv" => (q.parse()?, Op::Posv),
            "left" => (q.parse()?, Op::Trsm(Side::Left)),
            "right" => (q.parse()?, Op::Trsm(Side::Right)),
            _ => return Err(format!("{name} is none of {}", SETS[0].ops).into()),
        };
        cells.push((name, Cell { op, n, q }));
    }
    let sources = Sources::<T>::new(n, cells.iter().map(|(_, cell)| cell.q).max().unwrap_or(0));
    cells.into_iter().try_for_each(|(name, cell)| time(set, name, cell, &sources, settings))
}

fn main() -> Result<(), Failure> {
    // SAFETY: nothing else runs yet. Peers must not start threads of their own.
    unsafe {
        for (name, value) in [
            ("OPENBLAS_NUM_THREADS", "1"),
            ("MKL_THREADING_LAYER", "SEQUENTIAL"),
            ("MKL_INTERFACE_LAYER", "LP64"),
        ] {
            std::env::set_var(name, value);
        }
    }
    let given =
        |name: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{name}=")).map(str::to_owned));
    for set in SETS.iter().filter(|set| given("set").is_none_or(|wanted| wanted == set.name)) {
        let list = |name: &str, all: &str| -> Vec<String> {
            given(name).unwrap_or_else(|| all.to_owned()).split(',').map(str::to_owned).collect()
        };
        let numbers = |name: &str, all: &str| {
            list(name, all).iter().map(|x| x.parse()).collect::<Result<Vec<usize>, _>>()
        };
        let settings = Settings {
            threads: numbers("threads", set.threads)?,
            mib: set.mib,
            rounds: numbers("rounds", "3")?[0],
            out: given("out").map(PathBuf::from),
        };
        let ops = list("ops", set.ops);
        for dtype in list("dtypes", "f32,f64,c32,c64") {
            let dtype: Dtype = dtype.parse()?;
            for n in numbers("n", set.orders)? {
                match dtype {
                    Dtype::F32 => order::<f32>(set.name, n, &ops, &settings)?,
                    Dtype::F64 => order::<f64>(set.name, n, &ops, &settings)?,
                    Dtype::C32 => order::<Complex<f32>>(set.name, n, &ops, &settings)?,
                    Dtype::C64 => order::<Complex<f64>>(set.name, n, &ops, &settings)?,
                }
            }
        }
    }
    Ok(())
}
