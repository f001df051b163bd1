//! Every kernel on every instruction set: nothing outside the operands is touched (they lie against pages that fault, on
//! either side), nothing but the triangle is written, statuses are exact, solutions solve, and the instruction sets that
//! fuse multiplication and addition agree bit for bit.
#![cfg(unix)]
#![allow(unsafe_code, clippy::unwrap_used)]

use batchlas_core::{Diag, InfoMut, MatBatch, MatBatchMut, Scalar, Side, Trans, Uplo};
use batchlas_lanes::{Case, Cholesky, Isa, Keep, Rows, Substitution};
use num_complex::Complex;

/// Memory between two pages that fault.
struct Guarded {
    base: *mut u8,
    pages: usize,
    page: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        // SAFETY: fresh anonymous memory, whose outer pages are then closed.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let pages = bytes.div_ceil(page) + 2;
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(std::ptr::null_mut(), pages * page, access, kind, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let base: *mut u8 = base.cast();
            for end in [base, base.add((pages - 1) * page)] {
                assert_eq!(libc::mprotect(end.cast(), page, libc::PROT_NONE), 0);
            }
            Guarded { base, pages, page }
        }
    }

    /// `len` elements that end (or start) at a closed page.
    fn slice<T: Scalar>(&mut self, len: usize, at_end: bool) -> &mut [T] {
        let free = (self.pages - 2) * self.page - len * size_of::<T>();
        // SAFETY: inside the open pages, zeroed by the system, aligned because pages and sizes are.
        unsafe {
            let first = self.base.add(self.page + if at_end { free } else { 0 });
            std::slice::from_raw_parts_mut(first.cast(), len)
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.base.cast(), self.pages * self.page) };
    }
}

/// Small numbers, and a diagonal that dominates them.
fn fill<T: Scalar>(out: &mut [T], n: usize, ld: usize) {
    let stride = (n - 1) * ld + n;
    for (at, x) in out.iter_mut().enumerate() {
        let place = at % stride;
        let wave = ((at * 37 + 11) % 64) as f64 / 64.0 - 0.5;
        let diagonal = place / ld == place % ld && place % ld < n;
        *x = T::from_parts(if diagonal { n as f64 + 2.0 + wave } else { wave }, wave * 0.5);
    }
}

fn bits<T: bytemuck::Pod>(x: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(x).to_vec()
}

/// Whether `X` solves `op(A) X = B` or `X op(A) = B` for one item, `entry` giving `op(A)`.
fn solves<T: Scalar>(
    side: Side,
    (n, q): (usize, usize),
    entry: impl Fn(usize, usize) -> Complex<f64>,
    b: &[T],
    x: &[T],
) -> bool {
    let at = |v: &[T], k: usize, r: usize| v[if side == Side::Left { r * n + k } else { k * q + r }].widen();
    let largest = (0..n * n).map(|place| entry(place % n, place / n).norm()).fold(0.0, f64::max);
    (0..q).all(|r| {
        let size: f64 = (0..n).map(|k| largest * at(x, k, r).norm() + at(b, k, r).norm()).sum();
        (0..n).all(|i| {
            let product = |k: usize| match side {
                Side::Left => entry(i, k) * at(x, k, r),
                Side::Right => at(x, k, r) * entry(k, i),
            };
            let sum: Complex<f64> = (0..n).map(product).sum();
            (sum - at(b, i, r)).norm() <= 4.0 * (n as f64 + 4.0) * T::DTYPE.epsilon() * size
        })
    })
}

/// Factors and solves 35 items against the guards; the bits of factor, solution and `info`.
fn cholesky<T: Scalar>(isa: Isa, uplo: Uplo, (n, ld, nrhs): (usize, usize, usize), at_end: bool) -> Vec<u8> {
    let (batch, stride) = (35, (n - 1) * ld + n);
    let mut memory = Guarded::new(batch * stride * size_of::<T>());
    let a = memory.slice::<T>(batch * stride, at_end);
    fill(a, n, ld);
    // Two items that fail, in different groups, and fail again where the order has room: the first place counts.
    for (item, at) in [4, 33].into_iter().flat_map(|item| [n / 2, n - 1].map(|at| (item, at))) {
        a[item * stride + at * (ld + 1)] = T::from_parts(f64::NAN, 0.0);
    }
    let mut rhs_memory = Guarded::new(batch * n * nrhs * size_of::<T>());
    let b = rhs_memory.slice::<T>(batch * n * nrhs, at_end);
    fill(b, n, n);
    let (a_before, before) = (a.to_vec(), b.to_vec());
    let mut info = vec![-7; batch];
    let plan = Cholesky::new::<T>(isa, uplo, (n, ld), batch).with_rhs::<T>(nrhs, n, Keep::Factor);
    let view = MatBatchMut::from_slice(a, n, n, ld, stride, batch).unwrap();
    let rhs = MatBatchMut::packed(b, n, nrhs, batch).unwrap();
    plan.solve(view, rhs, InfoMut::host(&mut info)).unwrap();
    // Without storing the factor: the same solution, and A untouched.
    let (mut a_kept, mut b_alone) = (a_before.clone(), before.clone());
    let view = MatBatchMut::from_slice(&mut a_kept, n, n, ld, stride, batch).unwrap();
    let rhs = MatBatchMut::packed(&mut b_alone, n, nrhs, batch).unwrap();
    let alone = Cholesky::new::<T>(isa, uplo, (n, ld), batch).with_rhs::<T>(nrhs, n, Keep::Solution);
    alone.solve(view, rhs, InfoMut::absent()).unwrap();
    assert!(bits(&a_kept) == bits(&a_before) && bits(&b_alone) == bits(b), "{isa} n = {n}: solution alone");
    for (item, &status) in info.iter().enumerate() {
        let failed = [4, 33].contains(&item);
        assert_eq!(status, if failed { (n / 2 + 1) as i32 } else { 0 }, "{isa} n = {n} item {item}");
        let own = item * n * nrhs..(item + 1) * n * nrhs;
        assert_eq!(bits(&b[own.clone()]) == bits(&before[own]), failed, "{isa} n = {n}: B of item {item}");
        let entry = |i: usize, j: usize| {
            let stored = if uplo == Uplo::Lower { i >= j } else { i <= j };
            let z = if stored {
                a_before[item * stride + j * ld + i]
            } else {
                a_before[item * stride + i * ld + j]
            };
            let z = z.widen();
            Complex::new(
                z.re,
                if i == j {
                    0.0
                } else if stored {
                    z.im
                } else {
                    -z.im
                },
            )
        };
        let own = item * n * nrhs..(item + 1) * n * nrhs;
        let right = failed || solves(Side::Left, (n, nrhs), entry, &before[own.clone()], &b[own]);
        assert!(right, "{isa} n = {n} {uplo}: X of item {item}");
        for place in 0..stride {
            let (i, j) = (place % ld, place / ld);
            let inside = i < n && if uplo == Uplo::Lower { i >= j } else { i <= j };
            let at = item * stride + place;
            assert!(
                inside || bits(&a[at..=at]) == bits(&a_before[at..=at]),
                "{isa} n = {n}: ({i}, {j}) written"
            );
        }
        if failed {
            let diagonal = |at: usize| a[item * stride + at * (ld + 1)].widen().re;
            assert!(diagonal(n / 2) == 0.0 && (0..n / 2).all(|at| diagonal(at) > 0.0), "{isa} n = {n}");
            a[item * stride..(item + 1) * stride].fill(T::zero());
        }
    }
    [bits(a), bits(b), bits(&info)].concat()
}

/// Solves for every side, triangle, transposition and diagonal against the guards.
fn triangular<T: Scalar>(isa: Isa, lanes: bool, (n, q): (usize, usize), at_end: bool) {
    let batch = if lanes { 9 } else { 2 };
    let mut memory = Guarded::new(batch * n * n * size_of::<T>());
    let a = memory.slice::<T>(batch * n * n, at_end);
    fill(a, n, n);
    for (&side, &uplo) in Side::ALL.iter().flat_map(|s| Uplo::ALL.iter().map(move |u| (s, u))) {
        for (&trans, &diag) in Trans::ALL.iter().flat_map(|t| Diag::ALL.iter().map(move |d| (t, d))) {
            let (r, c) = if side == Side::Left { (n, q) } else { (q, n) };
            let mut rhs_memory = Guarded::new(batch * n * q * size_of::<T>());
            let b = rhs_memory.slice::<T>(batch * n * q, at_end);
            fill(b, n, n);
            let (alpha, before) = (T::from_parts(0.5, 0.25), b.to_vec());
            let triangle = MatBatch::packed(a, n, n, batch).unwrap();
            let rhs = MatBatchMut::packed(b, r, c, batch).unwrap();
            let case = Case { side, uplo, trans, diag };
            if lanes {
                let plan = Substitution::new::<T>(isa, case, (n, q), (n, r));
                plan.solve(alpha, triangle, rhs).unwrap();
            } else {
                Rows { isa, case }.solve(alpha, triangle, rhs).unwrap();
            }
            let scaled: Vec<T> = before.iter().map(|&x| x * alpha).collect();
            for item in 0..batch {
                let entry = |i: usize, j: usize| {
                    let (i, j) = if trans.transposes() { (j, i) } else { (i, j) };
                    let z = a[item * n * n + j * n + i].widen();
                    match (if uplo == Uplo::Lower { i >= j } else { i <= j }, i == j && diag == Diag::Unit) {
                        (false, _) => Complex::default(),
                        (_, true) => Complex::new(1.0, 0.0),
                        _ if trans == Trans::ConjTrans => z.conj(),
                        _ => z,
                    }
                };
                let own = item * n * q..(item + 1) * n * q;
                let right = solves(side, (n, q), entry, &scaled[own.clone()], &b[own]);
                assert!(right, "{isa} {side}{uplo}{trans}{diag} n = {n} q = {q}: X of item {item}");
            }
        }
    }
}

fn check<T: Scalar>() {
    let mut fused = Vec::new();
    for isa in Isa::all() {
        let mut all = Vec::new();
        for (n, nrhs) in [(1, 1), (2, 3), (3, 4), (4, 1), (5, 5), (8, 2), (9, 1), (16, 4), (17, 1), (33, 6)] {
            for (pad, at_end, uplo) in [
                (0, true, Uplo::Lower),
                (0, false, Uplo::Upper),
                (3, true, Uplo::Upper),
                (1, false, Uplo::Lower),
            ] {
                all.push(cholesky::<T>(isa, uplo, (n, n + pad, nrhs), at_end));
            }
        }
        if isa.word() != "portable" {
            fused.push(all);
        }
    }
    assert!(fused.windows(2).all(|two| two[0] == two[1]), "instruction sets disagree");
    for isa in Isa::all() {
        for (n, q) in
            [(1, 1), (3, 2), (4, 7), (8, 17), (9, 33), (17, 5), (16, 70), (34, 1), (66, 3), (130, 4)]
        {
            for at_end in [true, false] {
                for lanes in [false, true] {
                    triangular::<T>(isa, lanes, (n, q), at_end);
                }
            }
        }
    }
}

#[test]
fn f32_stays_inside() {
    check::<f32>();
}

#[test]
fn f64_stays_inside() {
    check::<f64>();
}

#[test]
fn c32_stays_inside() {
    check::<Complex<f32>>();
}

#[test]
fn c64_stays_inside() {
    check::<Complex<f64>>();
}
