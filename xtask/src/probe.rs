//! `cargo xtask probe`: compiles what ships and holds it against its promises; red plants first.
//!
//! `--all` probes every instantiation on every architecture; without it, a subset that fits into CI, which each
//! operation crate states. `--arch` takes a comma-separated list, `--kernels` prints a line per kernel.

use std::thread;

use batchlas_core::{Dtype, Kernel, Uplo};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_posv as posv;
use batchlas_potrf::tiny;

use crate::Result;

/// How much of a family is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What CI has time for.
    Subset,
    /// Everything that ships.
    All,
}

/// What each crate ships, by architecture.
const CATALOGUES: &[fn(Arch, Scope) -> Vec<Family>] =
    &[potrf_tiny, posv_tiny, posv_cta, posv_mixed, staging, quench];

/// Every order on the architecture that is measured, the edges of the family on the others.
fn potrf_tiny(arch: Arch, scope: Scope) -> Vec<Family> {
    let name = arch.to_string();
    let orders: Vec<usize> = match scope {
        Scope::Subset if name != "sm_90" => vec![1, 2, 17, 20, tiny::MAX_N],
        _ => (1..=tiny::MAX_N).collect(),
    };
    // A default spelling is in the vocabulary; a test of batchlas-potrf holds that.
    let spelling = batchlas_potrf::VOCABULARY.spelling("tiny").into_iter();
    let kernels =
        spelling.flat_map(|family| tiny::kernels(&name, orders.clone(), &family).collect::<Vec<_>>());
    family("batchlas-potrf", "tiny", kernels)
}

/// Every order with one right-hand side and with more than fit at once; in CI the edges of the family, on the
/// architecture that is measured with and without the factor.
fn posv_tiny(arch: Arch, scope: Scope) -> Vec<Family> {
    let measured = arch.to_string() == "sm_90";
    let edges = |dtype: Dtype| match scope {
        Scope::All => (1..=posv::tiny::max_n(dtype)).flat_map(|n| [(n, 1), (n, 9)]).collect::<Vec<_>>(),
        Scope::Subset if measured => vec![(5, 9), (17, 1), (posv::tiny::max_n(dtype), 1)],
        Scope::Subset => vec![(17, 1)],
    };
    let probed = |problem: &posv::Problem, kernel: &Kernel| {
        let small = measured && problem.n < posv::tiny::max_n(problem.dtype);
        scope == Scope::All || small || !kernel.entry.contains("Discard")
    };
    let mut kernels = Vec::new();
    for family in posv::POSV.spelling("tiny").into_iter() {
        for problem in solves() {
            for (n, nrhs) in edges(problem.dtype) {
                let problem = posv::Problem { n, nrhs, ..problem };
                if posv::tiny::serves(&problem).is_err() {
                    continue;
                }
                kernels
                    .extend(posv::tiny::kernels(&problem, &family).filter(|kernel| probed(&problem, kernel)));
            }
        }
    }
    family("batchlas-posv", "tiny", kernels)
}

/// Whether what needs little of a device is probed on an architecture: in CI, on the one that is measured.
fn covered(arch: Arch, scope: Scope) -> bool {
    scope == Scope::All || arch.to_string() == "sm_90"
}

/// Every geometry that a default can have; in CI those of few right-hand sides.
fn posv_cta(arch: Arch, scope: Scope) -> Vec<Family> {
    let sizes: &[(usize, usize)] = match scope {
        Scope::All => {
            &[(32, 1), (32, 2), (32, 4), (32, 8), (256, 1), (256, 2), (256, 4), (256, 8), (512, 1), (512, 8)]
        }
        Scope::Subset => &[(32, 2)],
    };
    let mut kernels = Vec::new();
    for family in posv::POTRS.spelling("cta").into_iter().filter(|_| covered(arch, scope)) {
        for problem in solves() {
            let of = |&(n, nrhs): &(usize, usize)| {
                posv::cta::kernel_of(&posv::Problem { n, nrhs, ..problem }, &family, 0)
            };
            kernels.extend(sizes.iter().map(of));
        }
    }
    family("batchlas-posv", "cta", kernels)
}

fn posv_mixed(arch: Arch, scope: Scope) -> Vec<Family> {
    family("batchlas-posv", "mixed", posv::mixed::kernels().filter(|_| covered(arch, scope)))
}

/// All types, both triangles; the size is to be filled in.
fn solves() -> impl Iterator<Item = posv::Problem> {
    let types = Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| (dtype, uplo)));
    types.map(|(dtype, uplo)| posv::Problem { dtype, uplo, n: 0, nrhs: 0, batch: 1 })
}

fn staging(_: Arch, _: Scope) -> Vec<Family> {
    family("batchlas-vendor", "staging", batchlas_vendor::kernels())
}

fn quench(_: Arch, _: Scope) -> Vec<Family> {
    family("batchlas-posv", "quench", batchlas_posv::kernels())
}

fn family(owner: &str, name: &str, kernels: impl IntoIterator<Item = Kernel>) -> Vec<Family> {
    let kernels: Vec<Kernel> = kernels.into_iter().collect();
    let source = kernels.first().map(|kernel| kernel.source);
    let families = source.map(|source| Family {
        owner: owner.into(),
        name: name.into(),
        source_name: source.name.into(),
        source: source.text.into(),
        options: Vec::new(),
        kernels: kernels.into_iter().map(|kernel| (kernel.entry, kernel.promise)).collect(),
    });
    families.into_iter().collect()
}

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
