//! `cargo xtask probe`: compiles what ships and holds it against its promises; red plants first.
//!
//! `--all` probes every instantiation on every architecture; without it, a subset that fits into CI, which each
//! operation crate states. `--arch` takes a comma-separated list, `--kernels` prints a line per kernel.

use std::thread;

use batchlas_core::{Dtype, Kernel, Uplo};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_potrf::{cta, tiny};

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
const CATALOGUES: &[fn(Arch, Scope) -> Vec<Family>] = &[potrf_tiny, potrf_cta, staging, quench];

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

/// Edges of the ranges that share a setting. CI takes three orders of each type in one layout, one on architectures that are not measured.
fn potrf_cta(arch: Arch, scope: Scope) -> Vec<Family> {
    let name = arch.to_string();
    let subset: &[(usize, Uplo)] = match name.as_str() {
        "sm_90" => &[(33, Uplo::Upper), (96, Uplo::Lower), (192, Uplo::Lower)],
        _ => &[(65, Uplo::Lower)],
    };
    let all = [33, 48, 64, 65, 96, 97, 128, 129, 160, 192, 193, 224, 256];
    let all: Vec<_> = all.iter().flat_map(|&n| Uplo::ALL.iter().map(move |&uplo| (n, uplo))).collect();
    let (cases, layouts) = if scope == Scope::All { (&all[..], 2) } else { (subset, 1) };
    let budget = arch.multiprocessor().map_or(0, |sm| (sm.shared - sm.shared_reserved) as usize);
    let spelling = batchlas_potrf::VOCABULARY.spelling("cta").into_iter();
    let kernels = spelling.flat_map(|family| {
        let types = cases.iter().flat_map(|&(n, uplo)| Dtype::ALL.map(|dtype| (dtype, n, uplo)));
        let served =
            types.filter(|&(dtype, n, uplo)| cta::serves(&name, dtype, n, uplo, budget, &family).is_ok());
        served
            .flat_map(|(dtype, n, uplo)| cta::layouts(dtype, n, uplo, &family).take(layouts))
            .collect::<Vec<_>>()
    });
    family("batchlas-potrf", "cta", kernels)
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
