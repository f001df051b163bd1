//! What is timed: this library, and its peers as their own users call them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use batchlas::{
    Context, Dtype, Element, InfoMut, MatBatch, MatBatchMut, PosvOptions, PotrfOptions, Side, Trans,
    TrsmOptions, WorkspaceMut,
};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::triangular_solve;
use faer::{MatMut, MatRef, Par};
use libloading::Library;

/// Packed operands that MKL compact works on at a time.
const COMPACT_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Op {
    Potrf,
    Posv,
    Trsm(Side),
}

/// What is timed: order `n`, `q` right-hand sides.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) op: Op,
    pub(crate) n: usize,
    pub(crate) q: usize,
}

impl Cell {
    pub(crate) fn rhs(&self) -> (usize, usize) {
        if self.op == Op::Trsm(Side::Right) { (self.q, self.n) } else { (self.n, self.q) }
    }
}

/// Operands of a run of items.
pub(crate) struct Run<T> {
    pub(crate) a: *mut T,
    pub(crate) b: *mut T,
    pub(crate) info: *mut i32,
    pub(crate) items: usize,
}

pub(crate) type Arm<'c, T> = Box<dyn Fn(&Run<T>) + Sync + 'c>;

/// A peer's library, where its file is in `target/peers` or in `BATCHLAS_PEERS`.
pub(crate) fn library(part: &str) -> Option<&'static Library> {
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
pub(crate) fn lapack<T: Element>(
    library: &'static Library,
    prefix: &str,
    cell: Cell,
) -> Option<Arm<'static, T>> {
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
pub(crate) fn compact<T: Element>(library: &'static Library, cell: Cell) -> Option<Arm<'static, T>> {
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
pub(crate) fn faer<T: Element>(cell: Cell) -> Arm<'static, T> {
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
pub(crate) fn ours<'c, T: Element>(ctx: &'c Context, cell: Cell) -> Arm<'c, T> {
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
