//! The corpus on the CPU with every instruction set forced, one after the other.

use batchlas::Context;
use batchlas_bench::conform::{Filter, run};
use batchlas_bench::corpus::Corpus;
use batchlas_lanes::Isa;

/// Largest instance on the instruction sets that are not this CPU's widest.
const MAX_ELEMENTS: usize = 40_000;

/// Every spelling of a family that this CPU has, with two groups in flight where `pairs`.
fn check(op: &str, family: &str, pairs: bool) {
    let ctx = Context::cpu(2).expect("a pool of two threads");
    let corpus = Corpus::committed().expect("a well-formed corpus");
    for isa in Isa::all() {
        for groups in [":groups=1", ":groups=2", ""] {
            if groups.is_empty() == pairs || (groups == ":groups=2" && !isa.is_avx512()) {
                continue;
            }
            let filter = Filter {
                ops: vec![op.into()],
                families: vec![format!("{family}:isa={isa}{groups}")],
                dtypes: Vec::new(),
                max_elements: (isa != Isa::widest()).then_some(MAX_ELEMENTS),
            };
            let report = run(&ctx, &corpus, &filter).expect("a run");
            assert!(report.ok(), "{report}");
            assert!(report.lines.iter().all(|line| line.ran > 60), "{report}");
            eprintln!("{report}");
        }
    }
}

#[test]
fn potrf_holds_the_contract_with_every_instruction_set() {
    check("potrf", "lanes", true);
}

#[test]
fn posv_holds_the_contract_with_every_instruction_set() {
    check("posv", "lanes", true);
}

#[test]
fn trsm_holds_the_contract_with_every_instruction_set() {
    check("trsm", "rows", false);
}
