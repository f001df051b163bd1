//! The corpus on the CPU with every instruction set forced, one after the other.

use batchlas::Context;
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_lanes::Isa;

/// Largest instance here; `tests/cpu.rs` runs the whole corpus with the knobs that a family chooses for itself.
const MAX_ELEMENTS: usize = 10_000;

/// Every instruction set that this CPU has.
fn check(op: &str, family: &str) {
    let ctx = Context::cpu(2).expect("a pool of two threads");
    let corpus = Corpus::committed().expect("a well-formed corpus");
    let families = Isa::all().map(|isa| format!("{family}:isa={isa}")).collect();
    let filter =
        Filter { ops: vec![op.into()], families, max_elements: Some(MAX_ELEMENTS), ..Filter::default() };
    let report = run(&ctx, &corpus, &filter).expect("a run");
    assert!(report.ok(), "{report}");
    assert!(report.lines.iter().all(|line| line.ran > 60), "{report}");
    eprintln!("{report}");
}

#[test]
fn potrf_holds_the_contract_with_every_instruction_set() {
    check("potrf", "lanes");
}

#[test]
fn posv_holds_the_contract_with_every_instruction_set() {
    check("posv", "lanes");
}

#[test]
fn trsm_holds_the_contract_with_every_instruction_set() {
    check("trsm", "rows");
}

#[test]
fn trsm_with_items_in_lanes_holds_the_contract_with_every_instruction_set() {
    check("trsm", "lanes");
}
