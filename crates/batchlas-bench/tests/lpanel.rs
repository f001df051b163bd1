//! Guards of `potrf` `lpanel` on the simulated device: each is broken in turn, in the text of the kernel or in its PTX, and
//! must be seen; and the orders around its edges, which the corpus on the simulator is too slow for.

use batchlas::{Buffer, Context, Dtype, Environment, InfoMut, PotrfOptions, Uplo, WorkspaceMut};
use batchlas_bench::conform::{Filter, Report, run};
use batchlas_bench::corpus::{Corpus, FactorCase};
use batchlas_bench::matrices::{Random, definite};
use batchlas_bench::operands::Layout;
use batchlas_core::{Kernel, KernelSource, QueueError};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::{Job, Nvrtc};
use batchlas_sim::mutate::{Mutation, sites};
use batchlas_sim::{Compiled, DeviceConfig, SimQueue};
use std::sync::Arc;

const ARCH: &str = "sm_90";

/// A change of the kernel's text: every occurrence of the first becomes the second.
type Plant = &'static [(&'static str, &'static str)];

fn compile(kernel: &Kernel, plant: Plant) -> Result<Compiled, QueueError> {
    let failed =
        |error| QueueError::runtime("compiling for the simulator (`cargo xtask setup` fetches NVRTC)", error);
    let mut text = kernel.source.text.to_owned();
    for (from, to) in plant {
        assert!(text.contains(from), "`{from}` is not in the kernel any more");
        text = text.replace(from, to);
    }
    let source = Box::leak(Box::new(KernelSource { name: kernel.source.name, text: text.leak() }));
    let kernel = Kernel { source, ..kernel.clone() };
    let arch: Arch = ARCH.parse().map_err(failed)?;
    let entry = [kernel.entry.as_str()];
    let ptx = Nvrtc::load().and_then(|nvrtc| nvrtc.ptx(&Job::of(&kernel, &entry, arch))).map_err(failed)?;
    Ok(Compiled { entry: ptx.lowered[0].clone(), ptx: ptx.text })
}

fn context(plant: Plant) -> Context {
    let queue = SimQueue::new(ARCH, DeviceConfig::default(), move |kernel| compile(kernel, plant));
    Context::on(Box::new(queue), Environment::default()).expect("a context")
}

/// Runs cases of the committed corpus by name, with other orders, in one padded layout and batches of 3.
fn conform(plant: Plant, family: &str, dtype: Dtype, cases: &[(&str, &[usize])]) -> Report {
    let mut corpus = Corpus::committed().expect("a well-formed corpus");
    let all = std::mem::take(&mut corpus.factor);
    for (name, n) in cases {
        let case = all.iter().find(|case| case.name == *name).expect("a case of this name");
        let layout = vec![Layout::Padded];
        corpus.factor.push(FactorCase { n: n.to_vec(), batch: vec![3], layout, ..case.clone() });
    }
    let filter = Filter {
        ops: vec!["potrf".into()],
        families: vec![family.into()],
        dtypes: vec![dtype],
        max_elements: None,
    };
    let report = run(&context(plant), &corpus, &filter).expect("a run");
    assert!(report.lines.iter().all(|line| line.ran > 0), "nothing ran\n{report}");
    report
}

fn edges(family: &str, dtype: Dtype) {
    // The widest order in one type only: simulated time grows as its cube.
    let orders: &[usize] = if dtype == Dtype::F32 { &[64, 65, 129] } else { &[64, 65] };
    let report = conform(&[], family, dtype, &[("orders", orders), ("negative pivots", &[65])]);
    assert!(report.ok(), "{report}");
}

#[test]
fn edges_f32_are_clean_and_right() {
    edges("lpanel:panel=8", Dtype::F32);
    edges("lpanel:panel=16", Dtype::F32);
}

#[test]
fn edges_f64_are_clean_and_right() {
    edges("lpanel:panel=8", Dtype::F64);
}

#[test]
fn edges_c32_are_clean_and_right() {
    edges("lpanel:panel=8", Dtype::C32);
}

#[test]
fn edges_c64_are_clean_and_right() {
    edges("lpanel:panel=8", Dtype::C64);
}

/// Each source change and whether it must be seen in f32 and in c32.
#[test]
fn broken_guards_are_seen() {
    let cases: &[(&str, &[usize])] = &[("orders", &[9, 40]), ("negative pivots", &[20])];
    let plants: &[(&str, Plant, [bool; 2])] = &[
        ("nothing", &[], [false, false]),
        (
            "the conjugate of the broadcast row",
            &[(
                "acc[i0 + i] = sub_mul_conj(acc[i0 + i], own[k], chunk.at[i])",
                "acc[i0 + i] = sub_mul_conj(acc[i0 + i], own[k], conj(chunk.at[i]))",
            )],
            [false, true],
        ),
        (
            "the triangle in prefetch, publication and store",
            &[
                ("&& row >= j + i", ""),
                ("exists && r >= j + i", "exists"),
                ("exists && r >= j + c", "exists"),
            ],
            [true, true],
        ),
        (
            "the first failure wins",
            &[("info = positive || info != 0 ? info : j + c + 1", "info = positive ? info : j + c + 1")],
            [true, true],
        ),
        ("the pivot of the Schur complement", &[("d = sub_mul_conj(d, v, v);", "")], [true, true]),
        ("dead slots store nothing", &[("matrix < args.batch", "matrix <= args.batch")], [true, true]),
    ];
    for (what, plant, seen) in plants {
        for (dtype, seen) in [Dtype::F32, Dtype::C32].into_iter().zip(seen) {
            let report = conform(plant, "lpanel:panel=8", dtype, cases);
            assert_eq!(!report.ok(), *seen, "{what}, {dtype}\n{report}");
        }
    }
}

/// Factors a batch of two warps a matrix and five panels; the error, if the simulator finds something.
fn factor(ctx: &Context, uplo: Uplo) -> Result<(), batchlas::Error> {
    const N: usize = 40;
    const BATCH: usize = 2;
    let one = definite::<f32>(N, &mut Random::new(31, 0)).data;
    let mut a = ctx.upload(&one.repeat(BATCH))?;
    let options = PotrfOptions { uplo, route: Some("lpanel:panel=8".into()) };
    let view = a.view_mut(N, N, N, N * N, BATCH)?;
    let workspace = WorkspaceMut::empty(ctx.device().place);
    ctx.potrf_in(view, InfoMut::absent(), workspace, &options).map(drop)
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// B1, B3, B3b and B4 (which is B6 too): without any one of them there is a race.
#[test]
fn every_barrier_is_needed() {
    for &uplo in Uplo::ALL {
        let ctx = context(&[]);
        factor(&ctx, uplo).expect("a clean run");
        let queue = ctx.queue().as_any().downcast_ref::<SimQueue>().expect("the simulated queue");
        let kernel = queue.kernels().pop().expect("a kernel was launched");
        let (module, entry) = queue.module(&kernel).expect("it is compiled");
        let found = module.entry(&entry).expect("the entry");
        let barriers: Vec<_> =
            sites(&module, found).into_iter().filter(|t| t.mutation == Mutation::Delete).collect();
        assert!(barriers.len() >= 4, "{} barriers", barriers.len());
        for target in barriers {
            let broken = module.mutated(&entry, &target).expect("a barrier can be deleted");
            queue.install(&kernel, Arc::new(broken), entry.clone());
            match factor(&ctx, uplo) {
                Ok(()) => panic!("{target}: deleting it stays green"),
                Err(error) => assert!(told(&error).contains("race"), "{target}: {}", told(&error)),
            }
        }
    }
}

/// Where both serve an order, `lpanel` and `tiny` give the same numbers: every element sees the same operations.
#[test]
fn the_bits_are_those_of_tiny() {
    fn check<T: batchlas::Element>(n: usize, uplo: Uplo) {
        let ctx = context(&[]);
        let one = definite::<T>(n, &mut Random::new(32, n)).data;
        let run = |route: &str| -> Vec<T> {
            let mut a: Buffer<T> = ctx.upload(&one).expect("a valid call");
            let options = PotrfOptions { uplo, route: Some(route.into()) };
            let view = a.view_mut(n, n, n, n * n, 1).expect("a valid call");
            assert!(ctx.potrf(view, &options).expect("a valid call").wait().expect("a valid call").ok());
            ctx.download(&a).expect("a valid call")
        };
        assert!(run("tiny") == run("lpanel:panel=8"), "{} {uplo} n = {n}", T::DTYPE);
    }
    for (n, &uplo) in [(7, &Uplo::Lower), (20, &Uplo::Upper), (17, &Uplo::Lower)] {
        check::<f32>(n, uplo);
        check::<num_complex::Complex<f64>>(n, uplo);
    }
}
