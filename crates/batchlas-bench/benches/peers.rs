//! The CPU arm against its peers: faer, and, where their libraries are found at run time, OpenBLAS, MKL and MKL compact.
//!
//! ```text
//! pip install --no-deps --target target/peers scipy-openblas32 mkl intel-openmp tbb
//! cargo bench -p batchlas-bench --bench peers -- [set=cache|memory] [ops=potrf,posv1,..] [n=2,4,..] [dtypes=f32,..]
//!                                               [threads=1,2] [rounds=3] [out=FILE.jsonl]
//! ```
//!
//! Arms are interleaved and rotated in one process, inputs are restored before every run, and a ratio is the median of the
//! ratios of a round. Ours is what a caller gets: automatic choice, packing, pivot tests and `info` included. Peers run as a
//! loop over the items on one thread, and over a pool for more; MKL compact packs, computes and unpacks, 256 KiB at a time.
//! Residuals of all arms are formed from the last item.
#![allow(unsafe_code, clippy::print_stdout)]

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use batchlas::{
    Context, Dtype, Element, InfoMut, MatBatch, MatBatchMut, PosvOptions, PotrfOptions, Side, Trans,
    TrsmOptions, WorkspaceMut,
};
use batchlas_bench::matrices::{Random, definite};
use batchlas_core::CpuQueue;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::triangular_solve;
use faer::{MatMut, MatRef, Par};
use libloading::Library;
use num_complex::Complex;

type Failure = Box<dyn std::error::Error>;

/// Packed operands that MKL compact works on at a time.
const COMPACT_BYTES: usize = 256 << 10;
/// Distinct matrices of a batch.
const DISTINCT: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Op {
    Potrf,
    Posv,
    Trsm(Side),
}

/// What is timed: order `n`, `q` right-hand sides.
#[derive(Clone, Copy)]
struct Cell {
    op: Op,
    n: usize,
    q: usize,
}

impl Cell {
    fn rhs(&self) -> (usize, usize) {
        if self.op == Op::Trsm(Side::Right) { (self.q, self.n) } else { (self.n, self.q) }
    }
}

/// Operands of a run of items.
struct Run<T> {
    a: *mut T,
    b: *mut T,
    info: *mut i32,
    items: usize,
}

type Arm<'c, T> = Box<dyn Fn(&Run<T>) + Sync + 'c>;

/// A peer's library, where its file is in `target/peers` or in `BATCHLAS_PEERS`.
fn library(part: &str) -> Option<&'static Library> {
    static FOUND: OnceLock<Vec<(PathBuf, Library)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let root = std::env::var_os("BATCHLAS_PEERS")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"), PathBuf::from);
        let mut folders = vec![root];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() {
                    folders.push(path);
                } else if name.starts_with("libscipy_openblas") || name.starts_with("libmkl_rt.so") {
                    files.push(path);
                }
            }
        }
        // SAFETY: BLAS libraries, whose initialisers do nothing beyond starting themselves.
        files.into_iter().filter_map(|path| unsafe { Library::new(&path).ok() }.map(|l| (path, l))).collect()
    });
    found.iter().find(|(path, _)| path.to_string_lossy().contains(part)).map(|(_, library)| library)
}

fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller names the function's type.
    unsafe { library.get::<F>(name.as_bytes()).ok().map(|symbol| *symbol) }
}

fn letter(dtype: Dtype) -> char {
    match dtype {
        Dtype::F32 => 's',
        Dtype::F64 => 'd',
        Dtype::C32 => 'c',
        Dtype::C64 => 'z',
    }
}

type Potrf = unsafe extern "C" fn(*const u8, *const i32, *mut c_void, *const i32, *mut i32, usize);
#[rustfmt::skip]
type Posv = unsafe extern "C" fn(*const u8, *const i32, *const i32, *mut c_void, *const i32, *mut c_void, *const i32,
    *mut i32, usize);
#[rustfmt::skip]
type Trsm = unsafe extern "C" fn(*const u8, *const u8, *const u8, *const u8, *const i32, *const i32, *const c_void,
    *const c_void, *const i32, *mut c_void, *const i32, usize, usize, usize, usize);

/// A loop over the items through the Fortran interface.
fn lapack<T: Element>(library: &'static Library, prefix: &str, cell: Cell) -> Option<Arm<'static, T>> {
    let Cell { op, n, q } = cell;
    let (sa, sb, (rows, _)) = (n * n, n * q, cell.rhs());
    let name = |routine: &str| format!("{prefix}{}{routine}_", letter(T::DTYPE));
    let (order, nrhs, ldb) = (n as i32, q as i32, rows as i32);
    Some(match op {
        Op::Potrf => {
            let f: Potrf = symbol(library, &name("potrf"))?;
            Box::new(move |run| {
                for i in 0..run.items {
                    // SAFETY: the arguments of the Fortran routine, for an item inside the run.
                    unsafe { f(b"L".as_ptr(), &order, run.a.add(i * sa).cast(), &order, run.info.add(i), 1) }
                }
            })
        }
        Op::Posv => {
            let f: Posv = symbol(library, &name("posv"))?;
            Box::new(move |run| {
                for i in 0..run.items {
                    // SAFETY: items inside the run.
                    let (a, b) = unsafe { (run.a.add(i * sa).cast(), run.b.add(i * sb).cast()) };
                    // SAFETY: the arguments of the Fortran routine.
                    unsafe { f(b"L".as_ptr(), &order, &nrhs, a, &order, b, &ldb, run.info.add(i), 1) }
                }
            })
        }
        Op::Trsm(side) => {
            let f: Trsm = symbol(library, &name("trsm"))?;
            let trans = if side == Side::Left { b"N" } else { b"T" };
            let (m, k) = if side == Side::Left { (order, nrhs) } else { (nrhs, order) };
            let one = T::one();
            Box::new(move |run| {
                for i in 0..run.items {
                    // SAFETY: items inside the run.
                    let (a, b) = unsafe { (run.a.add(i * sa).cast(), run.b.add(i * sb).cast()) };
                    let (side, alpha) = (side.letter().as_ptr(), (&raw const one).cast());
                    let options = (b"L".as_ptr(), trans.as_ptr(), b"N".as_ptr());
                    // SAFETY: the arguments of the Fortran routine.
                    unsafe {
                        f(
                            side, options.0, options.1, options.2, &m, &k, alpha, a, &order, b, &ldb, 1, 1,
                            1, 1,
                        )
                    }
                }
            })
        }
    })
}

type Size = unsafe extern "C" fn(i32, i32, i32, i32) -> i32;
type Pack = unsafe extern "C" fn(i32, i32, i32, *const *mut c_void, i32, *mut c_void, i32, i32, i32);
type Unpack = unsafe extern "C" fn(i32, i32, i32, *const *mut c_void, i32, *const c_void, i32, i32, i32);
type PotrfCompact = unsafe extern "C" fn(i32, i32, i32, *mut c_void, i32, *mut i32, i32, i32);
#[rustfmt::skip]
type TrsmCompact<A> = unsafe extern "C" fn(i32, i32, i32, i32, i32, i32, i32, A, *const c_void, i32, *mut c_void, i32,
    i32, i32);

/// MKL's interleaved format: column-major 102, Lower 122, Left 141, Right 142, N 111, T 112, C 113, `NonUnit` 131.
fn compact<T: Element>(library: &'static Library, cell: Cell) -> Option<Arm<'static, T>> {
    let Cell { op, n, q } = cell;
    let name = |routine: &str| format!("mkl_{}{routine}_compact", letter(T::DTYPE));
    let format: unsafe extern "C" fn() -> i32 = symbol(library, "mkl_get_format_compact")?;
    let (size, pack): (Size, Pack) = (symbol(library, &name("get_size"))?, symbol(library, &name("gepack"))?);
    let (unpack, potrf): (Unpack, PotrfCompact) =
        (symbol(library, &name("geunpack"))?, symbol(library, &name("potrf"))?);
    let trsm: TrsmCompact<*const c_void> = symbol(library, &name("trsm"))?;
    let (single, double): (TrsmCompact<f32>, TrsmCompact<f64>) =
        (symbol(library, &name("trsm"))?, symbol(library, &name("trsm"))?);
    // SAFETY: takes nothing.
    let format = unsafe { format() };
    let (sa, sb, (rows, cols)) = (n * n, n * q, cell.rhs());
    let (order, rows, cols) = (n as i32, rows as i32, cols as i32);
    let per_item = (sa + if op == Op::Potrf { 0 } else { sb }) * size_of::<T>();
    let chunk = (COMPACT_BYTES / per_item / 16 * 16).max(16);
    let one = T::one();
    Some(Box::new(move |run| {
        // SAFETY: the arguments are those of MKL's interface, for items inside the run; the buffers have the sizes that
        // it asks for.
        unsafe {
            let room = |r: i32, c: i32| (size(r, c, format, chunk as i32) as usize).div_ceil(64) + 1;
            let mut lines = vec![[0u64; 8]; room(order, order) + room(rows, cols) + 1];
            let start = lines.as_mut_ptr().cast::<u8>();
            let pa: *mut c_void = start.add(start.align_offset(64)).cast();
            let pb: *mut c_void = pa.cast::<u8>().add(room(order, order) * 64).cast();
            let solve = |side: i32, trans: i32, count: i32| {
                let options = (102, side, 122, trans, 131, rows, cols);
                let (l, s, u, t, d, m, k) = options;
                match T::DTYPE {
                    Dtype::F32 => single(l, s, u, t, d, m, k, 1.0, pa, order, pb, rows, format, count),
                    Dtype::F64 => double(l, s, u, t, d, m, k, 1.0, pa, order, pb, rows, format, count),
                    _ => {
                        let alpha = (&raw const one).cast();
                        trsm(l, s, u, t, d, m, k, alpha, pa, order, pb, rows, format, count);
                    }
                }
            };
            for first in (0..run.items).step_by(chunk) {
                let taken = chunk.min(run.items - first);
                let count = taken as i32;
                let of = |base: *mut T, stride: usize| -> Vec<*mut c_void> {
                    (first..first + taken).map(|i| base.add(i * stride).cast()).collect()
                };
                let (items, rhs) = (of(run.a, sa), of(run.b, sb));
                pack(102, order, order, items.as_ptr(), order, pa, order, format, count);
                if op != Op::Potrf {
                    pack(102, rows, cols, rhs.as_ptr(), rows, pb, rows, format, count);
                }
                if let Op::Trsm(side) = op {
                    solve(
                        if side == Side::Left { 141 } else { 142 },
                        if side == Side::Left { 111 } else { 112 },
                        count,
                    );
                } else {
                    let mut info = 0;
                    potrf(102, 122, order, pa, order, &mut info, format, count);
                    if op == Op::Posv {
                        solve(141, 111, count);
                        // Real types are passed Trans: ConjTrans of this routine is wrong for them.
                        solve(141, if T::DTYPE.is_complex() { 113 } else { 112 }, count);
                    }
                    unpack(102, order, order, items.as_ptr(), order, pa, order, format, count);
                    (first..first + taken).for_each(|i| *run.info.add(i) = info);
                }
                if op != Op::Potrf {
                    unpack(102, rows, cols, rhs.as_ptr(), rows, pb, rows, format, count);
                }
            }
        }
    }))
}

/// faer in place, as its own users call it.
fn faer<T: Element>(cell: Cell) -> Arm<'static, T> {
    let Cell { op, n, q } = cell;
    let (rows, cols) = cell.rhs();
    Box::new(move |run| {
        let request = llt::factor::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default())
            .or(llt::solve::solve_in_place_scratch::<T>(n, q, Par::Seq));
        let mut memory = MemBuffer::new(request);
        for i in 0..run.items {
            // SAFETY: items inside the run, which this thread has alone.
            let (mut a, b) = unsafe {
                (
                    MatMut::from_raw_parts_mut(run.a.add(i * n * n), n, n, 1, n as isize),
                    MatMut::from_raw_parts_mut(run.b.add(i * n * q), rows, cols, 1, rows as isize),
                )
            };
            match op {
                Op::Trsm(side) => {
                    let b = if side == Side::Left { b } else { b.transpose_mut() };
                    triangular_solve::solve_lower_triangular_in_place(a.as_ref(), b, Par::Seq);
                }
                _ => {
                    let stack = MemStack::new(&mut memory);
                    let done = llt::factor::cholesky_in_place(
                        a.as_mut(),
                        Default::default(),
                        Par::Seq,
                        stack,
                        Default::default(),
                    );
                    // SAFETY: one status per item.
                    unsafe { *run.info.add(i) = i32::from(done.is_err()) };
                    if op == Op::Posv {
                        let l: MatRef<'_, T> = a.as_ref();
                        llt::solve::solve_in_place(l, b, Par::Seq, MemStack::new(&mut memory));
                    }
                }
            }
        }
    })
}

/// What a caller of this library gets.
fn ours<'c, T: Element>(ctx: &'c Context, cell: Cell) -> Arm<'c, T> {
    let Cell { op, n, q } = cell;
    let (rows, cols) = cell.rhs();
    Box::new(move |run| {
        // SAFETY: the run's operands, which nothing else uses meanwhile.
        let (a, b, info) = unsafe {
            (
                std::slice::from_raw_parts_mut(run.a, run.items * n * n),
                std::slice::from_raw_parts_mut(run.b, run.items * n * q),
                std::slice::from_raw_parts_mut(run.info, run.items),
            )
        };
        let workspace = WorkspaceMut::empty(ctx.device().place);
        let mut b = MatBatchMut::packed(b, rows, cols, run.items).expect("packed operands");
        let done = match op {
            Op::Trsm(side) => {
                let trans = if side == Side::Left { Trans::No } else { Trans::Trans };
                let a = MatBatch::packed(a, n, n, run.items).expect("packed operands");
                ctx.trsm(a, b, &TrsmOptions { side, trans, ..TrsmOptions::default() })
            }
            Op::Potrf => {
                let a = MatBatchMut::packed(a, n, n, run.items).expect("packed operands");
                ctx.potrf_in(a, InfoMut::host(info), workspace, &PotrfOptions::default())
            }
            Op::Posv => {
                let a = MatBatchMut::packed(a, n, n, run.items).expect("packed operands");
                let options = PosvOptions::default();
                let bytes = ctx.posv_workspace(a.rb(), &b, false, &options).expect("a workspace size");
                let mut memory = ctx.queue().alloc(bytes).expect("a workspace");
                ctx.posv_in(a, b.rb_mut(), InfoMut::host(info), WorkspaceMut::over(&mut memory), &options)
            }
        };
        done.expect("a solved batch");
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Normwise residual of the last item, in units of `n eps`.
fn residual<T: Element>(cell: Cell, before: (&[T], &[T]), after: (&[T], &[T])) -> f64 {
    let Cell { op, n, q } = cell;
    let (rows, cols) = cell.rhs();
    let last = |all: &[T], each: usize| -> Vec<Complex<f64>> {
        all[all.len() - each..].iter().map(|x| x.widen()).collect()
    };
    let (a, b, l, x) =
        (last(before.0, n * n), last(before.1, n * q), last(after.0, n * n), last(after.1, n * q));
    let (mut error, mut size_x) = (0.0, 0.0);
    let size_a: f64 = a.iter().map(Complex::norm_sqr).sum();
    let lower =
        |m: &[Complex<f64>], i: usize, j: usize| if i >= j { m[j * n + i] } else { Complex::default() };
    if op == Op::Potrf {
        for (i, j) in (0..n).flat_map(|j| (j..n).map(move |i| (i, j))) {
            let sum: Complex<f64> = (0..n).map(|k| lower(&l, i, k) * lower(&l, j, k).conj()).sum();
            error += (sum - a[j * n + i]).norm_sqr();
        }
        return (error / size_a).sqrt() / (n as f64 * T::DTYPE.epsilon());
    }
    for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
        let sum: Complex<f64> = match op {
            Op::Posv => (0..n).map(|k| a[k * n + i] * x[j * rows + k]).sum(),
            Op::Trsm(Side::Left) => (0..n).map(|k| lower(&a, i, k) * x[j * rows + k]).sum(),
            _ => (0..n).map(|k| x[k * rows + i] * lower(&a, j, k)).sum(),
        };
        error += (sum - b[j * rows + i]).norm_sqr();
        size_x += x[j * rows + i].norm_sqr();
    }
    (error / (size_a * size_x)).sqrt() / (n as f64 * T::DTYPE.epsilon())
}

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

/// Times every arm of a cell and prints a line per number of threads.
fn time<T: Element>(name: &str, cell: Cell, settings: &Settings) -> Result<(), Failure> {
    let Cell { n, q, op } = cell;
    let each = (n * n + if op == Op::Potrf { 0 } else { n * q }) * size_of::<T>();
    let items = ((settings.mib << 20) / each / 64 * 64).max(64);
    let matrices: Vec<T> =
        (0..DISTINCT).flat_map(|i| definite::<T>(n, &mut Random::new(7, i)).data).collect();
    let source: Vec<T> = matrices.iter().copied().cycle().take(items * n * n).collect();
    let mut random = Random::new(8, 0);
    let rhs: Vec<T> = (0..items * n * q).map(|_| random.scalar()).collect();
    let (mut a, mut b, mut info) = (source.clone(), rhs.clone(), vec![0; items]);
    for &threads in &settings.threads {
        let (ctx, pool) = (Context::cpu(threads)?, CpuQueue::new(threads)?);
        let mut arms: Vec<(&str, Arm<'_, T>)> = vec![("ours", ours(&ctx, cell)), ("faer", faer(cell))];
        let (openblas, mkl) = (library("openblas"), library("mkl_rt"));
        arms.extend(openblas.and_then(|l| lapack(l, "scipy_", cell)).map(|arm| ("openblas", arm)));
        arms.extend(mkl.and_then(|l| lapack(l, "", cell)).map(|arm| ("mkl", arm)));
        arms.extend(mkl.and_then(|l| compact(l, cell)).map(|arm| ("compact", arm)));
        let mut times = vec![Vec::new(); arms.len()];
        let mut worst = vec![0.0; arms.len()];
        for round in 0..settings.rounds + 1 {
            for at in (0..arms.len()).map(|x| (x + round) % arms.len()) {
                a.copy_from_slice(&source);
                b.copy_from_slice(&rhs);
                let start = Instant::now();
                if at == 0 || threads == 1 {
                    let run = Run { a: a.as_mut_ptr(), b: b.as_mut_ptr(), info: info.as_mut_ptr(), items };
                    arms[at].1(&run);
                } else {
                    let (rows, cols) = cell.rhs();
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
                let seconds = start.elapsed().as_secs_f64();
                if round > 0 {
                    times[at].push(seconds * 1e9 / items as f64);
                } else {
                    worst[at] = residual(cell, (&source, &rhs), (&a, &b));
                }
            }
        }
        let own = median(times[0].clone());
        let ratio =
            |at: usize| median(times[at].iter().zip(&times[0]).map(|(peer, own)| peer / own).collect());
        let peers: Vec<(&str, f64)> = (1..arms.len()).map(|at| (arms[at].0, ratio(at))).collect();
        // A peer whose answer is wrong is no peer.
        let right = |at: usize| worst[at] < 50.0;
        let best = (1..arms.len()).filter(|&at| right(at)).map(ratio).fold(f64::INFINITY, f64::min);
        let list: Vec<String> = peers.iter().map(|(name, x)| format!("{name} {x:.2}")).collect();
        println!(
            "{name:<7} {} n={n:<4} x{threads} {:>4} MiB {own:>11.1} ns  best {best:>5.2}  res {:.2}  {}",
            T::DTYPE,
            settings.mib,
            worst[0],
            list.join("  "),
        );
        if let Some(out) = &settings.out {
            let mut file = OpenOptions::new().create(true).append(true).open(out)?;
            let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            for at in 0..arms.len() {
                writeln!(
                    file,
                    "{{\"op\":\"{name}\",\"dtype\":\"{}\",\"n\":{n},\"q\":{q},\"items\":{items},\"threads\":{threads},\"mib\":{},\
                     \"arm\":\"{}\",\"ns_per_item\":{:.2},\"peer_over_ours\":{:.3},\"residual_n_eps\":{:.3},\"date\":\"{}\"}}",
                    T::DTYPE,
                    settings.mib,
                    arms[at].0,
                    median(times[at].clone()),
                    ratio(at),
                    worst[at],
                    &date[..10],
                )?;
            }
        }
    }
    Ok(())
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
    for set in SETS {
        let list = |name: &str, all: &str| -> Vec<String> {
            given(name).unwrap_or_else(|| all.to_owned()).split(',').map(str::to_owned).collect()
        };
        let numbers = |name: &str, all: &str| {
            list(name, all).iter().map(|x| x.parse()).collect::<Result<Vec<usize>, _>>()
        };
        if given("set").is_some_and(|wanted| wanted != set.name) {
            continue;
        }
        let settings = Settings {
            threads: numbers("threads", set.threads)?,
            mib: set.mib,
            rounds: numbers("rounds", "3")?[0],
            out: given("out").map(PathBuf::from),
        };
        for name in list("ops", set.ops) {
            let (word, q) = name.split_at(name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len()));
            let (q, op) = match word {
                "potrf" => (0, Op::Potrf),
                "posv" => (q.parse()?, Op::Posv),
                "left" => (q.parse()?, Op::Trsm(Side::Left)),
                "right" => (q.parse()?, Op::Trsm(Side::Right)),
                _ => return Err(format!("{name} is none of {}", set.ops).into()),
            };
            for dtype in list("dtypes", "f32,f64,c32,c64") {
                for n in numbers("n", set.orders)? {
                    let cell = Cell { op, n, q };
                    match dtype.parse()? {
                        Dtype::F32 => time::<f32>(&name, cell, &settings)?,
                        Dtype::F64 => time::<f64>(&name, cell, &settings)?,
                        Dtype::C32 => time::<Complex<f32>>(&name, cell, &settings)?,
                        Dtype::C64 => time::<Complex<f64>>(&name, cell, &settings)?,
                    }
                }
            }
        }
    }
    Ok(())
}
