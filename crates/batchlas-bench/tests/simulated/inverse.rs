//! `potri` and `logdet` on the CPU and on the simulated device, against references in higher precision.

use batchlas::{
    Buffer, Context, Dtype, Element, Environment, PotrfOptions, PotriOptions, Scalar, Uplo, WorkspaceMut,
};
use batchlas_bench::exact::Sum;
use batchlas_bench::matrices::{Random, Square, definite};
use batchlas_bench::operands::{Layout, Store};
use batchlas_bench::verify::{in_triangle, statuses, untouched};
use batchlas_core::{Kernel, QueueError};
use batchlas_sim::{Compiled, DeviceConfig, SimQueue};
use num_complex::Complex;

use crate::{ARCH, compile, context, edited, editing};

/// Bound of `||I - A X|| / (||A|| ||X|| n eps)`: two factors of the factorisation's own, and a condition number of O(10).
const BOUND: f64 = 20.0;

/// A batch of matrices in one triangle; everything else is `poison`.
fn store<T: Element>(layout: Layout, uplo: Uplo, matrices: &[Square<T>], poison: T) -> Store<T> {
    let n = matrices[0].n;
    let mut a = Store::new(layout, n, n, matrices.len(), poison);
    for (b, matrix) in matrices.iter().enumerate() {
        for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
            if in_triangle(uplo, i, j) {
                a.set(b, i, j, matrix.at(i, j));
            }
        }
    }
    a
}

/// `||I - A X||_F / (||A||_F ||X||_F n eps)` for X given by one triangle.
fn residual<T: Element>(a: &Square<T>, uplo: Uplo, x: &Store<T>, b: usize) -> f64 {
    let n = a.n;
    let full = |i: usize, j: usize| {
        if in_triangle(uplo, i, j) { x.at(b, i, j).widen() } else { x.at(b, j, i).widen().conj() }
    };
    let (mut error, mut norms) = (0.0, [0.0, 0.0]);
    for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
        let mut sum = Sum::from(Complex::from(f64::from(u8::from(i == j))));
        for k in 0..n {
            sum.sub(a.at(i, k).widen(), full(k, j));
        }
        error += sum.value().norm_sqr();
        norms[0] += a.at(i, j).widen().norm_sqr();
        norms[1] += full(i, j).norm_sqr();
    }
    (error / (norms[0] * norms[1])).sqrt() / (n as f64 * T::DTYPE.epsilon())
}

fn check<T: Element + Scalar<Real = R>, R: Element>(ctx: &Context, n: usize, uplo: Uplo, layout: Layout) {
    const BATCH: usize = 3;
    let what = format!("{} n = {n} {uplo} {layout:?}", T::DTYPE);
    let mut matrices: Vec<Square<T>> = (0..BATCH).map(|b| definite(n, &mut Random::new(41, b))).collect();
    // Every pivot from this one on fails; the first is what is told.
    let bad = n / 3;
    matrices[1].set(bad, bad, T::from_parts(-1.0, 0.0));
    let source = store(layout, uplo, &matrices, T::from_parts(-999.0, 777.0));
    let expected = |b: usize| if b == 1 { bad as i32 + 1 } else { 0 };

    let mut a = source.upload(ctx).expect("a valid call");
    let options = PotrfOptions { uplo, ..PotrfOptions::default() };
    let info = a.with_mut(ctx, |a| ctx.potrf(a, &options)?.wait()).expect("a valid call");
    statuses(info.as_slice(), expected).unwrap_or_else(|why| panic!("potrf {what}: {why}"));
    let factors = a.download(ctx).expect("a valid call");

    let results = Store::new(layout, 1, 1, BATCH, R::from_parts(-7.0, 0.0));
    let mut out = results.upload(ctx).expect("a valid call");
    let info = a.with(ctx, |a| out.with_mut(ctx, |out| ctx.logdet(a, out)?.wait())).expect("a valid call");
    statuses(info.as_slice(), expected).unwrap_or_else(|why| panic!("logdet {what}: {why}"));
    let found = out.download(ctx).expect("a valid call");
    untouched("results", &results, &found, |_, _, _| true).expect("a valid call");
    for b in 0..BATCH {
        let result = found.at(b, 0, 0).widen().re;
        let exact = 2.0 * (0..n).map(|i| factors.at(b, i, i).widen().re.ln()).sum::<f64>();
        let near = (result - exact).abs() <= T::DTYPE.epsilon() * (exact.abs() * 2.0) + 1e-14;
        assert!(if b == 1 { result.is_nan() } else { near }, "{what}: {result} for {exact}, item {b}");
    }

    let options = PotriOptions { uplo };
    let info = a.with_mut(ctx, |a| ctx.potri(a, &options)?.wait()).expect("a valid call");
    statuses(info.as_slice(), expected).unwrap_or_else(|why| panic!("potri {what}: {why}"));
    let inverse = a.download(ctx).expect("a valid call");
    untouched("A", &factors, &inverse, |b, i, j| b != 1 && in_triangle(uplo, i, j))
        .unwrap_or_else(|why| panic!("potri {what}: {why}"));
    for b in [0, 2] {
        let residual = residual(&matrices[b], uplo, &inverse, b);
        assert!(residual <= BOUND, "potri {what}: the residual of item {b} is {residual:.2} n eps");
        for i in 0..n {
            assert_eq!(inverse.at(b, i, i).widen().im, 0.0, "the diagonal is real");
        }
    }
}

fn all(ctx: &Context, orders: &[usize]) {
    for (&n, &uplo) in orders.iter().flat_map(|n| Uplo::ALL.iter().map(move |uplo| (n, uplo))) {
        for layout in [Layout::Padded, Layout::Pointers] {
            check::<f32, f32>(ctx, n, uplo, layout);
            check::<f64, f64>(ctx, n, uplo, layout);
            check::<Complex<f32>, f32>(ctx, n, uplo, layout);
            check::<Complex<f64>, f64>(ctx, n, uplo, layout);
        }
    }
}

#[test]
fn a_cpu_inverts() {
    all(&Context::cpu(2).expect("two threads"), &[1, 2, 9, 33, 70]);
}

#[test]
fn the_simulated_device_inverts() {
    all(&context(), &[1, 5, 33]);
}

/// Where an item does not fit a work-group's shared memory the seams take over: here from order 116 in f32, 82 in f64 and c32,
/// 58 in c64. The product needs what is left.
fn small(compile: impl Fn(&Kernel) -> Result<Compiled, QueueError> + Send + Sync + 'static) -> Context {
    let config = DeviceConfig { max_shared: 53 << 10, ..DeviceConfig::default() };
    Context::on(Box::new(SimQueue::new(ARCH, config, compile)), Environment::default()).expect("a context")
}

#[test]
fn the_simulated_device_inverts_beyond_its_shared_memory() {
    let ctx = small(compile);
    let (n, dtype) = (116, Dtype::F32);
    assert!(batchlas_potrf::potri::max_n(ctx.device(), dtype).is_some_and(|most| most < n));
    let mut a = ctx.upload(&vec![1f32; n * n]).expect("a valid call");
    let whole = a.view_mut(n, n, n, n * n, 1).expect("a valid call");
    let bytes = ctx.potri_workspace(whole.rb()).expect("a valid call");
    assert!(bytes > 2 * n * n * size_of::<f32>());
    let mut info = Buffer::from_slice(ctx.queue(), &[0i32]).expect("a valid call");
    let lacking = ctx.potri_in(
        whole,
        info.info_mut(),
        WorkspaceMut::empty(ctx.device().place),
        &PotriOptions::default(),
    );
    assert!(lacking.unwrap_err().to_string().contains("workspace"));
    check::<f32, f32>(&ctx, n, Uplo::Lower, Layout::Padded);
    check::<f64, f64>(&ctx, 82, Uplo::Upper, Layout::Padded);
    check::<Complex<f32>, f32>(&ctx, 82, Uplo::Upper, Layout::Pointers);
    check::<Complex<f64>, f64>(&ctx, 58, Uplo::Upper, Layout::Padded);
    check::<Complex<f64>, f64>(&ctx, 58, Uplo::Lower, Layout::Pointers);
}

/// Each change of the kernels round the seams is seen.
#[test]
fn broken_guards_round_the_seams_are_seen() {
    check::<Complex<f64>, f64>(&small(compile), 58, Uplo::Upper, Layout::Padded);
    const PLANTS: &[(&str, &str)] = &[
        ("from_real<T>(i == j ? 1 : 0));", "from_real<T>(1));"),
        ("first = other < first ? other : first;", ""),
        ("|| first < i ? first : i", "? first : i"),
        ("if (arch::load_i32(factor.info + matrix * sizeof(i32)) != 0) {", "if (false) {"),
        ("const int end = U == Uplo::Lower ? n : j + 1;", "const int end = n;"),
    ];
    for &(sound, broken) in PLANTS {
        let seen = std::panic::catch_unwind(|| {
            let ctx = small(editing(move |text| text.replace(sound, broken)));
            check::<Complex<f64>, f64>(&ctx, 58, Uplo::Upper, Layout::Padded);
        });
        assert!(seen.is_err(), "`{broken}` for `{sound}` stays green");
    }
}

/// Each change of a kernel is seen by the check of one order; 40 is more than a warp.
#[test]
fn broken_guards_are_seen() {
    const PLANTS: &[(&str, &str)] = &[
        ("arch::sync_block();", ""),
        ("inverse(k, j), inverse(k, i))", "inverse(k, j), conj(inverse(k, i)))"),
        ("store(info == 0,", "store(true,"),
        ("from_real<T>(real_part(element))", "scale(element, R(1.0625))"),
        ("if (i >= j) {", "{"),
        ("first <= n ? arch::nan() : 2 * sum", "2 * sum"),
        ("arch::shuffle_xor(sum, mask)", "sum"),
        ("item + i * args.step_bytes", "item"),
    ];
    for &(sound, broken) in PLANTS {
        // The text is that of one of the two kernels.
        let seen = std::panic::catch_unwind(|| {
            let ctx = edited(move |text| text.replace(sound, broken));
            check::<Complex<f32>, f32>(&ctx, 40, Uplo::Upper, Layout::Padded);
        });
        assert!(seen.is_err(), "`{broken}` for `{sound}` stays green");
    }
}

#[test]
fn nothing_and_too_much() {
    for ctx in [Context::cpu(1).expect("a thread"), context()] {
        let mut a = ctx.upload(&[0f32; 4]).expect("a valid call");
        let mut out = ctx.upload(&[0f32; 5]).expect("a valid call");
        let empty = a.view_mut(0, 0, 1, 0, 5).expect("a valid call");
        assert!(
            ctx.potri(empty, &PotriOptions::default())
                .expect("a valid call")
                .wait()
                .expect("a valid call")
                .ok()
        );
        let logs = ctx.logdet(
            a.view(0, 0, 1, 0, 5).expect("a valid call"),
            out.view_mut(1, 1, 1, 1, 5).expect("a valid call"),
        );
        assert!(logs.expect("a valid call").wait().expect("a valid call").ok());
        assert_eq!(ctx.download(&out).expect("a valid call"), [0.0; 5], "the determinant of nothing is 1");
        let wide = a.view_mut(1, 2, 1, 2, 2).expect("a valid call");
        assert!(ctx.potri(wide, &PotriOptions::default()).unwrap_err().to_string().contains("square"));
        let few = ctx.logdet(
            a.view(1, 1, 1, 1, 4).expect("a valid call"),
            out.view_mut(1, 1, 1, 1, 5).expect("a valid call"),
        );
        assert!(few.unwrap_err().to_string().contains("batch"));
        assert_eq!(batchlas_potrf::potri::max_n(ctx.device(), Dtype::F32).is_some(), ctx.device().is_gpu());
    }
}
