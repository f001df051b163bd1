//! The invariants of ARCHITECTURE.md, held against the workspace as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Edges between crates of this workspace, development dependencies excepted. What is not listed must not exist.
const EDGES: &[(&str, &[&str])] = &[
    ("batchlas-core", &[]),
    ("batchlas-resident", &[]),
    ("batchlas-select", &["batchlas-core"]),
    ("batchlas-lanes", &["batchlas-core", "batchlas-select"]),
    ("batchlas-potrf", OPERATION),
    ("batchlas-trsm", OPERATION),
    ("batchlas-gemm", OPERATION),
    ("batchlas-mmq", OPERATION),
    ("batchlas-posv", OPERATION),
    ("batchlas-kernels", &["batchlas-core", "batchlas-resident"]),
    ("batchlas-sim", &["batchlas-core"]),
    ("batchlas-vendor", &["batchlas-core", "batchlas-kernels"]),
    (
        "batchlas",
        &[
            "batchlas-core",
            "batchlas-gemm",
            "batchlas-kernels",
            "batchlas-mmq",
            "batchlas-posv",
            "batchlas-potrf",
            "batchlas-select",
            "batchlas-trsm",
            "batchlas-vendor",
        ],
    ),
    ("batchlas-bench", &["batchlas", "batchlas-kernels", "batchlas-select"]),
    ("batchlas-cli", &["batchlas", "batchlas-bench", "batchlas-kernels", "batchlas-vendor"]),
    (
        "xtask",
        &[
            "batchlas",
            "batchlas-bench",
            "batchlas-core",
            "batchlas-gemm",
            "batchlas-kernels",
            "batchlas-mmq",
            "batchlas-posv",
            "batchlas-potrf",
            "batchlas-select",
            "batchlas-sim",
            "batchlas-trsm",
            "batchlas-vendor",
        ],
    ),
];

/// An operation knows the contract, the residency arithmetic, the CPU kernels and selection, and no sibling.
const OPERATION: &[&str] = &["batchlas-core", "batchlas-lanes", "batchlas-resident", "batchlas-select"];

/// Crates that may name `cudarc`.
const CUDARC: &[&str] = &["batchlas-kernels", "batchlas-vendor"];

/// Files that may hold `unsafe`, each because it owns foreign functions or raw memory.
const UNSAFE: &[&str] = &[
    "crates/batchlas-bench/benches/peers/arms.rs",
    "crates/batchlas-bench/benches/peers/main.rs",
    "crates/batchlas-bench/src/large.rs",
    "crates/batchlas-core/src/arena.rs",
    "crates/batchlas-core/src/cpu.rs",
    "crates/batchlas-core/src/info.rs",
    "crates/batchlas-core/src/queue.rs",
    "crates/batchlas-core/src/rehearsal.rs",
    "crates/batchlas-core/src/view.rs",
    "crates/batchlas-gemm/src/product.rs",
    "crates/batchlas-kernels/src/cuda/driver.rs",
    "crates/batchlas-kernels/src/cuda/graph.rs",
    "crates/batchlas-kernels/src/cuda/queue.rs",
    "crates/batchlas-kernels/src/cuda/selftest.rs",
    "crates/batchlas-kernels/src/cuda/slices.rs",
    "crates/batchlas-kernels/src/locate.rs",
    "crates/batchlas-kernels/src/nvrtc.rs",
    "crates/batchlas-lanes/src/cholesky.rs",
    "crates/batchlas-lanes/src/element.rs",
    "crates/batchlas-lanes/src/few.rs",
    "crates/batchlas-lanes/src/isa.rs",
    "crates/batchlas-lanes/src/lane.rs",
    "crates/batchlas-lanes/src/rows.rs",
    "crates/batchlas-lanes/src/substitution.rs",
    "crates/batchlas-lanes/src/sweep.rs",
    "crates/batchlas-lanes/src/vector.rs",
    "crates/batchlas-lanes/src/x86.rs",
    "crates/batchlas-lanes/tests/guard.rs",
    "crates/batchlas-mmq/examples/measure.rs",
    "crates/batchlas-mmq/src/dot.rs",
    "crates/batchlas-mmq/src/launch.rs",
    "crates/batchlas-mmq/src/panel.rs",
    "crates/batchlas-mmq/src/weights.rs",
    "crates/batchlas-mmq/tests/simulated.rs",
    "crates/batchlas-posv/src/cta.rs",
    "crates/batchlas-posv/src/jitter.rs",
    "crates/batchlas-posv/src/mixed.rs",
    "crates/batchlas-posv/src/operands.rs",
    "crates/batchlas-posv/src/quench.rs",
    "crates/batchlas-posv/src/tiny.rs",
    "crates/batchlas-potrf/src/blocked.rs",
    "crates/batchlas-potrf/src/cta.rs",
    "crates/batchlas-potrf/src/left.rs",
    "crates/batchlas-potrf/src/logdet.rs",
    "crates/batchlas-potrf/src/lpanel.rs",
    "crates/batchlas-potrf/src/operands.rs",
    "crates/batchlas-potrf/src/potri.rs",
    "crates/batchlas-potrf/src/tiny.rs",
    "crates/batchlas-sim/src/alu/fused.rs",
    "crates/batchlas-sim/src/queue.rs",
    "crates/batchlas-sim/tests/queue.rs",
    "crates/batchlas-trsm/src/cta.rs",
    "crates/batchlas-trsm/src/few.rs",
    "crates/batchlas-trsm/src/fused.rs",
    "crates/batchlas-trsm/src/operands.rs",
    "crates/batchlas-vendor/src/cuda/factor.rs",
    "crates/batchlas-vendor/src/cuda/handle.rs",
    "crates/batchlas-vendor/src/cuda/library.rs",
    "crates/batchlas-vendor/src/cuda/mod.rs",
    "crates/batchlas-vendor/src/cuda/solve.rs",
    "crates/batchlas-vendor/src/cuda/staging.rs",
    "crates/batchlas-vendor/src/cuda/tests.rs",
    "crates/batchlas-vendor/src/cuda/update.rs",
    "crates/batchlas-vendor/src/faer_arm.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Name, and the names of the normal and build dependencies, of every member.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let text = |v: &Value| v.as_str().expect("a string").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("dependencies");
            let kept = all.iter().filter(|d| d["kind"].as_str() != Some("dev"));
            (text(&package["name"]), kept.map(|d| text(&d["name"])).collect())
        })
        .collect()
}

/// What is wrong with a dependency graph.
fn violations(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, dependencies) in graph {
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is not in the list of crates"));
            continue;
        };
        for dependency in dependencies {
            let ours = graph.contains_key(dependency);
            if ours && !allowed.contains(&dependency.as_str()) {
                wrong.push(format!("{name} must not depend on {dependency}"));
            }
            if dependency == "cudarc" && !CUDARC.contains(&name.as_str()) {
                wrong.push(format!("{name} must not name cudarc"));
            }
        }
    }
    wrong
}

#[test]
fn no_edge_exists_that_the_design_does_not_have() {
    let graph = dependencies(&metadata());
    assert_eq!(violations(&graph), Vec::<String>::new());
    assert_eq!(graph.len(), EDGES.len(), "a crate of the design is missing");

    // The check can fail: each planted edge is seen.
    for (from, to) in
        [("batchlas-potrf", "batchlas-trsm"), ("batchlas-posv", "batchlas-vendor"), ("batchlas", "cudarc")]
    {
        let mut planted = graph.clone();
        planted.get_mut(from).expect("a member").insert(to.to_owned());
        assert_eq!(violations(&planted).len(), 1, "{from} -> {to} was not seen");
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder").map(|e| e.expect("an entry").path()) {
        if entry.is_dir() {
            rust_files(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_is_owned() {
    let (root, mut files) = (root(), Vec::new());
    rust_files(&root.join("crates"), &mut files);
    rust_files(&root.join("xtask/src"), &mut files);
    let holders: BTreeSet<String> = files
        .iter()
        .filter(|file| {
            let text = std::fs::read_to_string(file).expect("a readable file");
            text.contains("allow(unsafe_code")
        })
        .map(|file| file.strip_prefix(&root).expect("inside the workspace").display().to_string())
        .collect();
    let listed: BTreeSet<String> = UNSAFE.iter().map(|f| (*f).to_owned()).collect();
    assert_eq!(holders, listed, "the list of files that may hold unsafe code is not what the workspace has");
}

#[test]
fn tables_are_well_formed_and_vocabularies_consistent() {
    for vocabulary in batchlas::VOCABULARIES {
        vocabulary.check().expect("a consistent vocabulary");
    }
    let tables = batchlas_select::Tables::from_directory(batchlas::VOCABULARIES, &root().join("tuned"))
        .expect("a readable folder");
    let checked = tables.check().expect("well-formed tables").len();
    assert!(checked >= batchlas::VOCABULARIES.len() * 4, "a table per operation and element type");
    assert_eq!(tables.ignored(), Vec::<String>::new(), "a table that nothing reads");
}
