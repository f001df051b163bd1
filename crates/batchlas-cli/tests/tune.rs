//! The tuner from outside: killed at any moment and started again, it ends with the ledger of an undisturbed run.
// Helpers outside of test functions; clippy exempts only those.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const GRID: &str =
    "potrf f32,f64,c32,c64 L,U 2,3,5,8,12,16 1,7,64 # enough cells to be caught in the middle\n";
const CELLS: usize = 4 * 2 * 6 * 3;

fn tune(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batchlas"));
    command
        .current_dir(folder)
        .args("tune --device cpu --threads 1 --reps 1 --grid grid.txt -o l.jsonl".split(' '));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The rows of a ledger, by cell; each line must be one.
fn rows(text: &str) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut cells: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| row[name].to_string();
        let cell = ["op", "dtype", "uplo", "n", "batch"].map(field).join(" ");
        let [place, of] = [0, 1].map(|i| row["part"][i].as_u64().unwrap());
        cells.entry(cell).or_default().push((place, of));
    }
    cells
}

#[test]
fn a_killed_run_is_resumed_without_a_lost_or_doubled_row() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("l.jsonl");
    fs::write(folder.path().join("grid.txt"), GRID).unwrap();
    let lines = || fs::read_to_string(&ledger).map_or(0, |text| text.lines().count());
    let mut kills = 0;
    for goal in [10, 60, 110] {
        let mut child = tune(folder.path()).spawn().unwrap();
        let start = Instant::now();
        while lines() < goal && child.try_wait().unwrap().is_none() {
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "the tuner does not come on: {} rows",
                lines()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
        // SIGKILL: nothing gets a chance to clean up.
        kills += usize::from(child.kill().is_ok() && !child.wait().unwrap().success());
    }
    assert!(kills > 0, "no run was caught in the middle");
    assert!(tune(folder.path()).status().unwrap().success());
    let found = rows(&fs::read_to_string(&ledger).unwrap());
    assert_eq!(found.len(), CELLS);
    for (cell, parts) in &found {
        let of = parts[0].1;
        assert_eq!(*parts, (1..=of).map(|place| (place, of)).collect::<Vec<_>>(), "{cell}");
    }
    let before = fs::read(&ledger).unwrap();
    assert!(tune(folder.path()).status().unwrap().success());
    assert_eq!(fs::read(&ledger).unwrap(), before, "a finished run has nothing left to do");
    // The tables of the ledger serve a run.
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_batchlas"));
        command.current_dir(folder.path());
        command
    };
    assert!(program().args(["tables", "l.jsonl", "-o", "tuned"]).status().unwrap().success());
    let text = fs::read_to_string(folder.path().join("tuned/potrf.c64.cpu.toml")).unwrap();
    assert!(
        text.contains("generated_by = \"batchlas tables\"") && text.contains("key = [\"U\", 16, 64]"),
        "{text}"
    );
    assert!(folder.path().join("tuned/trsm.f32.sm_90.toml").exists(), "the built-in ones are there too");
    let devices = program().arg("devices").env("BATCHLAS_TUNED_DIR", "tuned").status().unwrap();
    assert!(devices.success());
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_batchlas"))
            .current_dir(folder.path())
            .args(format!("tune --device cpu -o l.jsonl {args}").split_whitespace())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::write(folder.path().join("bad.txt"), "potrf f32 L 8\n").unwrap();
    fs::write(folder.path().join("l.jsonl"), "not a row\n").unwrap();
    for (args, part) in [
        ("--op getrf", "potrf, posv, trsm, gemm, herk"),
        ("--grid none.txt", "none.txt: cannot be read"),
        ("--grid bad.txt", "line 1 of the sweep: the batch is missing"),
        ("--op potrf", "line 1"),
    ] {
        let (status, message) = run(args);
        assert_eq!(status, Some(2), "{args}: {message}");
        assert!(message.contains(part), "{args}: {message}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("l.jsonl")).unwrap(), "not a row\n", "kept as it was");
}
