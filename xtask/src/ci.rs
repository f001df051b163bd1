//! `cargo xtask ci`: everything that must hold before a commit lands, on a machine without a GPU.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Result;

/// Name, cargo arguments, and an environment variable.
type Step<'a> = (&'static str, &'a [&'a str], Option<(&'static str, &'static str)>);

/// Runs every step; stops at the first that fails.
pub(crate) fn run(args: &[&str]) -> Result {
    if !args.is_empty() {
        return Err(format!("ci takes no arguments, not `{}`", args.join(" ")).into());
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let scratch = root()?.join("target/ci");
    std::fs::create_dir_all(&scratch)?;
    let solution = scratch.join("X.npy");
    let solution = solution.to_str().ok_or("the path of the workspace is not UTF-8")?;
    let rustdoc = ("RUSTDOCFLAGS", "-D warnings");
    #[rustfmt::skip]
    let steps: &[Step<'_>] = &[
        ("formatting", &["fmt", "--all", "--check"], None),
        ("NVRTC", &["xtask", "setup"], None),
        ("lints", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
        ("tests", &["test", "--workspace", "--lib", "--bins", "--tests"], None),
        ("doctests", &["test", "--quiet", "--workspace", "--doc"], None),
        ("documentation", &["doc", "--quiet", "--workspace", "--no-deps"], Some(rustdoc)),
        ("residency", &["xtask", "probe"], None),
        ("races", &["xtask", "races"], None),
        ("main job", &[
            "run", "--quiet", "-p", "batchlas-cli", "--", "posv",
            "examples/rolling/A.npy", "examples/rolling/B.npy", "-o", solution, "--check",
        ], None),
    ];
    let start = Instant::now();
    for (name, args, env) in steps {
        eprintln!("== {name}: cargo {}", args.join(" "));
        let began = Instant::now();
        let status =
            Command::new(&cargo).args(*args).envs(env.iter().copied()).current_dir(root()?).status()?;
        if !status.success() {
            return Err(format!("{name} failed: cargo {} ({status})", args.join(" ")).into());
        }
        eprintln!("== {name}: {:.0} s", began.elapsed().as_secs_f64());
    }
    eprintln!("all of ci passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or_else(|| "xtask has no parent folder".into())
}
