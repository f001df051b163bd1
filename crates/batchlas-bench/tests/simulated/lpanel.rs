//! potrf, family `lpanel`: guards, each broken in turn in the text of the kernel, must be seen; and the orders around its
//! edges, which the corpus on the simulator is too slow for. Its barriers are broken by `cargo xtask races`.

use batchlas::{Buffer, Dtype, PotrfOptions, Uplo};
use batchlas_bench::conform::Report;
use batchlas_bench::corpus::FactorCase;
use batchlas_bench::matrices::{Random, definite};
use batchlas_bench::operands::Layout;

use crate::{check, committed, context, edited};

/// A change of the kernel's text: every occurrence of the first becomes the second.
type Plant = &'static [(&'static str, &'static str)];

/// Runs cases of the committed corpus by name, with other orders, in one padded layout and batches of 3.
fn conform(plant: Plant, family: &str, dtype: Dtype, cases: &[(&str, &[usize])]) -> Report {
    let mut corpus = committed();
    let all = std::mem::take(&mut corpus.factor);
    for (name, n) in cases {
        let case = all.iter().find(|case| case.name == *name).expect("a case of this name");
        let layout = vec![Layout::Padded];
        corpus.factor.push(FactorCase { n: n.to_vec(), batch: vec![3], layout, ..case.clone() });
    }
    let ctx = edited(move |text| {
        plant.iter().fold(text.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "`{from}` is not in the kernel any more");
            text.replace(from, to)
        })
    });
    let report = crate::conform(&ctx, &corpus, "potrf", family, dtype, None);
    assert!(report.lines.iter().all(|line| line.ran > 0), "nothing ran\n{report}");
    report
}

#[test]
fn f32_is_clean_and_right() {
    check("potrf", "lpanel:panel=8", Dtype::F32, 3 * 33 * 33);
    check("potrf", "lpanel:panel=16", Dtype::F32, 3 * 33 * 33);
}

#[test]
fn f64_is_clean_and_right() {
    check("potrf", "lpanel:panel=8", Dtype::F64, 3 * 17 * 17);
}

#[test]
fn c32_is_clean_and_right() {
    check("potrf", "lpanel:panel=8", Dtype::C32, 3 * 17 * 17);
}

#[test]
fn c64_is_clean_and_right() {
    check("potrf", "lpanel:panel=8", Dtype::C64, 3 * 17 * 17);
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

/// Within one panel `lpanel` and `tiny` give the same numbers: every element sees the same operations.
#[test]
fn the_bits_are_those_of_tiny() {
    fn check<T: batchlas::Element>(n: usize, uplo: Uplo) {
        let ctx = context();
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
    for (n, &uplo) in [(7, &Uplo::Lower), (8, &Uplo::Upper)] {
        check::<f32>(n, uplo);
        check::<num_complex::Complex<f64>>(n, uplo);
    }
}
