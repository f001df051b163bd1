//! `cargo xtask probe`: compiles what ships and holds it against its promises; red plants first.
//!
//! `--all` probes every instantiation on every architecture; without it, a subset that fits into CI, which each
//! operation crate states. `--arch` takes a comma-separated list, `--kernels` prints a line per kernel.

use std::thread;

use batchlas_core::Kernel;
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_potrf::tiny;
use batchlas_select::Spelling;
use batchlas_trsm::{cta, few, fused, sg_left};

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
    &[potrf_tiny, trsm_cta, trsm_few, trsm_sg_left, trsm_fused, staging, quench];

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

/// The largest order on the architecture that is measured, a small one elsewhere: a kernel takes seconds to compile.
fn trsm_cta(arch: Arch, scope: Scope) -> Vec<Family> {
    let orders: Vec<usize> = match scope {
        Scope::All => (1..=cta::MAX_N).collect(),
        Scope::Subset if arch.to_string() == "sm_90" => vec![cta::MAX_N],
        Scope::Subset => vec![5],
    };
    let kernels = spelled("cta").flat_map(|family| cta::kernels(orders.clone(), &family).collect::<Vec<_>>());
    family("batchlas-trsm", "cta", kernels)
}

/// Orders to 40 everywhere, the largest on the architecture that is measured. Where a block can have less shared memory, a
/// device refuses what does not fit, and so it is left out here.
fn trsm_fused(arch: Arch, scope: Scope) -> Vec<Family> {
    let orders: Vec<usize> = match scope {
        Scope::All => (40..=fused::MAX_N).step_by(8).collect(),
        Scope::Subset if arch.to_string() == "sm_90" => vec![40, fused::MAX_N],
        Scope::Subset => vec![40],
    };
    let fits = |kernel: &Kernel| {
        let available = arch.multiprocessor().map_or(u32::MAX, |sm| sm.shared - sm.shared_reserved);
        kernel.promise.max_dynamic_shared <= available
    };
    let kernels = spelled("fused").flat_map(|family| {
        let of = |q| fused::kernels(orders.clone(), q, &family);
        of(1024).chain(of(1)).collect::<Vec<_>>()
    });
    family("batchlas-trsm", "fused", kernels.filter(fits))
}

/// Every order up to a warp's and some beyond; without `--all` one of each kind.
fn trsm_few(arch: Arch, scope: Scope) -> Vec<Family> {
    let (orders, right_hand_sides): (Vec<usize>, &[usize]) = match scope {
        Scope::All => ((1..=32).chain([33, 48, 64, 100, few::MAX_N]).collect(), few::COMPILED_Q),
        Scope::Subset if arch.to_string() == "sm_90" => (vec![9], &[1]),
        Scope::Subset => (Vec::new(), &[]),
    };
    let kernels = spelled("few")
        .flat_map(|family| few::kernels(orders.clone(), right_hand_sides, &family).collect::<Vec<_>>());
    family("batchlas-trsm", "few", kernels)
}

/// All of them are kernels of `cta`, whose edges are probed.
fn trsm_sg_left(_: Arch, scope: Scope) -> Vec<Family> {
    let orders = (1..=cta::MAX_N).filter(|_| scope == Scope::All);
    let kernels =
        spelled("sg_left").flat_map(|family| sg_left::kernels(orders.clone(), &family).collect::<Vec<_>>());
    family("batchlas-trsm", "sg_left", kernels)
}

/// A spelling of `trsm`; that defaults are in the vocabulary is tested by batchlas-trsm.
fn spelled(family: &str) -> impl Iterator<Item = Spelling> {
    batchlas_trsm::VOCABULARY.spelling(family).into_iter()
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
