//! The corpus on the CPU: every family, every element type.

use batchlas::{Context, Dtype};
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::jitter;

/// Families that run here. All others refuse a CPU, which small instances are enough to see.
const OWN: [&str; 4] = ["lanes", "rows", "blocked", "vendor"];

/// Largest instance of an operation whose references cost more than all the rest; larger ones run on a GPU.
const MAX_ELEMENTS: usize = 20_000;

fn check(dtype: Dtype) {
    let ctx = Context::cpu(2).expect("a pool of two threads");
    let corpus = Corpus::committed().expect("a well-formed corpus");
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    for (ops, families, max_elements) in [
        (&[][..], &[][..], Some(300)),
        (&["potrf", "posv", "potrs"], &OWN, None),
        (&["trsm", "gemm", "herk"], &OWN, Some(MAX_ELEMENTS)),
    ] {
        let (dtypes, rest) = (vec![dtype], Filter::default());
        let filter = Filter { ops: names(ops), families: names(families), dtypes, max_elements, ..rest };
        let report = run(&ctx, &corpus, &filter).expect("a run");
        assert!(report.ok(), "{report}");
        for op in ops {
            let ran: usize = report.lines.iter().filter(|l| l.op == *op).map(|l| l.ran).sum();
            assert!(ran > 0, "nothing ran for {op}\n{report}");
        }
        eprintln!("{report}");
    }
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
