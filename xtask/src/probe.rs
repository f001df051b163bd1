//! `cargo xtask probe`: compiles what ships and holds it against its promises; red plants first.
//!
//! `--all` probes every instantiation on every architecture; without it, a subset that fits into CI, which each
//! operation crate states. `--arch` takes a comma-separated list, `--kernels` prints a line per kernel.

use std::thread;

use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};

use crate::Result;

/// How much of a family is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What CI has time for.
    Subset,
    /// Everything that ships.
    All,
}

/// What each operation crate ships, by architecture.
const CATALOGUES: &[fn(Arch, Scope) -> Vec<Family>] = &[];

/// Runs the plants, then the probe.
pub(crate) fn run(args: &[&str]) -> Result {
    let mut scope = Scope::Subset;
    let mut archs = DEFAULT_ARCHS.join(",");
    let mut kernels = false;
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        match arg {
            "--all" => scope = Scope::All,
            "--kernels" => kernels = true,
            "--arch" => archs = (*rest.next().ok_or("--arch needs a list such as sm_80,sm_90")?).to_owned(),
            unknown => return Err(format!("probe knows --all, --arch and --kernels, not `{unknown}`").into()),
        }
    }
    let archs = archs.split(',').map(str::parse).collect::<Result<Vec<Arch>, _>>()?;
    let nvrtc = Nvrtc::load()?;
    let threads = thread::available_parallelism()?.get();
    eprintln!("NVRTC {} from {}", nvrtc.version(), nvrtc.path().display());

    let plants = probe::self_test(nvrtc, &archs, threads);
    for plant in &plants {
        println!("{plant}");
    }
    if plants.iter().any(|plant| !plant.right) {
        return Err("the probe does not see what is planted, so nothing it says can be believed".into());
    }

    let families = |arch| CATALOGUES.iter().flat_map(|catalogue| catalogue(arch, scope)).collect();
    let report = probe::run(nvrtc, &archs, threads, families);
    if kernels {
        print!("{}", report.kernels());
    }
    println!("{report}");
    if report.is_green() { Ok(()) } else { Err("the probe is red".into()) }
}
