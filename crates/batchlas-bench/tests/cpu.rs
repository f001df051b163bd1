//! The corpus on the CPU: every family, every element type.

use batchlas::{Context, Dtype};
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::jitter;

fn check(dtype: Dtype) {
    let ctx = Context::cpu(2).expect("a pool of two threads");
    let filter = Filter { dtypes: vec![dtype], ..Filter::default() };
    let report = run(&ctx, &Corpus::committed().expect("a well-formed corpus"), &filter).expect("a run");
    assert!(report.ok(), "{report}");
    for op in ["potrf", "posv", "potrs", "trsm", "gemm", "herk"] {
        let ran: usize = report.lines.iter().filter(|l| l.op == op).map(|l| l.ran).sum();
        assert!(ran > 0, "nothing ran for {op}\n{report}");
    }
    eprintln!("{report}");
}

#[test]
fn f32_holds_the_contract() {
    check(Dtype::F32);
}

#[test]
fn f64_holds_the_contract() {
    check(Dtype::F64);
}

#[test]
fn c32_holds_the_contract() {
    check(Dtype::C32);
}

#[test]
fn c64_holds_the_contract() {
    check(Dtype::C64);
}

#[test]
fn jitter_retries_what_failed_and_nothing_else() {
    let ctx = Context::cpu(2).expect("a pool of two threads");
    jitter::check(&ctx).expect("the contract");
}
