//! `cargo xtask tables`: turns the ledgers of `tuned/ledger` into the tables of `tuned`; `sm_89.txt` there is a ranking that was
//! published for that device, whose rows are marked `transcribed`.

use std::fs;
use std::path::Path;

use batchlas_bench::tables;

use crate::Result;

/// The command that the tables name.
const BY: &str = "cargo xtask tables";

/// Regenerates every table that a ledger has rows for, and those that were published for another device.
pub(crate) fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        return Err(format!("tables takes no arguments, not `{}`", args.join(" ")).into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let mut ledgers = Vec::new();
    for entry in fs::read_dir(root.join("tuned/ledger"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            ledgers.push((path.display().to_string(), fs::read_to_string(&path)?));
        }
    }
    ledgers.sort();
    let published = fs::read_to_string(root.join("tuned/ledger/sm_89.txt"))?;
    let mut files = tables::transcribed("sm_89.txt", &published, "sm_89", "BatchLAS", BY)?;
    files.extend(tables::tables(&ledgers, BY)?);
    for file in files {
        fs::write(root.join("tuned").join(&file.name), &file.text)?;
        println!("{}", file.name);
        file.warnings.iter().for_each(|warning| println!("warning: {warning}"));
    }
    Ok(())
}
