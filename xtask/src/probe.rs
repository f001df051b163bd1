//! `cargo xtask probe`: compiles what ships and holds it against its promises; red plants first.
//!
//! `--all` probes every instantiation on every architecture; without it, a subset that fits into CI, which each
//! operation crate states. `--arch` takes a comma-separated list, `--kernels` prints a line per kernel, and names of
//! families (`jitter left`) leave out the others.

use std::thread;

use batchlas_core::{Dtype, Kernel, Uplo};
use batchlas_kernels::Arch;
use batchlas_kernels::nvrtc::Nvrtc;
use batchlas_kernels::probe::{self, DEFAULT_ARCHS, Family};
use batchlas_posv as posv;
use batchlas_potrf::{left, lpanel, tiny};
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
pub(crate) const CATALOGUES: &[fn(Arch, Scope) -> Vec<Family>] = &[
    potrf_tiny,
    potrf_cta,
    potrf_lpanel,
    potrf_left,
    potrf_blocked,
    potri,
    logdet,
    trsm_cta,
    trsm_few,
    trsm_sg_left,
    trsm_fused,
    gemm_tile,
    gemm_mma,
    posv_tiny,
    posv_cta,
    posv_mixed,
    posv_jitter,
    staging,
    quench,
    mmq_panel,
    mmq_tile,
    mmq_bf16,
    mmq_stream,
    mmq_wide,
];

/// Every order; in CI the edges of the settings.
fn potrf_tiny(arch: Arch, scope: Scope) -> Vec<Family> {
    let name = arch.to_string();
    let orders: Vec<usize> = match scope {
        Scope::All => (1..=tiny::MAX_N).collect(),
        Scope::Subset if name == "sm_90" => vec![1, 2, 8, 16, 17, 24, 31, tiny::MAX_N],
        Scope::Subset => vec![1, 2, 17, 20, tiny::MAX_N],
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
        let served = types.filter(|&(dtype, n, uplo)| {
            batchlas_potrf::cta::serves(&name, dtype, n, uplo, budget, &family).is_ok()
        });
        served
            .flat_map(|(dtype, n, uplo)| batchlas_potrf::cta::layouts(dtype, n, uplo, &family).take(layouts))
            .collect::<Vec<_>>()
    });
    family("batchlas-potrf", "cta", kernels)
}

/// One order per number of warps, which is what a kernel is compiled for; in CI two warps, and the most, where registers
/// are scarcest.
fn potrf_lpanel(arch: Arch, scope: Scope) -> Vec<Family> {
    let Some(device) = arch.device() else { return Vec::new() };
    let mut kernels = Vec::new();
    for family in ["lpanel:panel=8", "lpanel:panel=16"].map(|text| batchlas_potrf::VOCABULARY.spelling(text))
    {
        for (dtype, family) in Dtype::ALL.into_iter().zip(std::iter::repeat(family.ok()).flatten()) {
            let Some(most) = lpanel::max_n(&device, dtype, &family) else { continue };
            let orders: Vec<usize> = match scope {
                Scope::Subset if device.arch != "sm_90" => vec![most],
                Scope::Subset => vec![64, most],
                Scope::All => (32..most).step_by(32).chain([most]).collect(),
            };
            for (n, &uplo) in orders.into_iter().flat_map(|n| Uplo::ALL.iter().map(move |uplo| (n, uplo))) {
                let layouts = lpanel::layouts(&device, dtype, n, uplo, &family);
                kernels.extend(layouts.take(if device.arch == "sm_90" { 2 } else { 1 }));
            }
        }
    }
    family("batchlas-potrf", "lpanel", kernels)
}

/// Every kernel; in CI those of the triangle that needs more registers, on the architecture that is measured.
fn potrf_left(arch: Arch, scope: Scope) -> Vec<Family> {
    let spelling = batchlas_potrf::VOCABULARY.spelling("left").into_iter();
    let kernels = spelling.flat_map(|family| {
        // c64 is not served on sm_12x.
        let served = |dtype: &Dtype| *dtype != Dtype::C64 || !arch.to_string().starts_with("sm_12");
        let types = Dtype::ALL.into_iter().filter(|_| covered(arch, scope)).filter(served);
        types
            .flat_map(|dtype| match scope {
                Scope::All => left::kernels(dtype, &family).collect::<Vec<_>>(),
                Scope::Subset => left::layouts(dtype, Uplo::Upper, &family).take(1).collect(),
            })
            .collect::<Vec<_>>()
    });
    family("batchlas-potrf", "left", kernels)
}

fn potrf_blocked(arch: Arch, scope: Scope) -> Vec<Family> {
    let kernels = batchlas_potrf::blocked::kernels().step_by(if scope == Scope::All { 1 } else { 4 });
    family("batchlas-potrf", "blocked", kernels.filter(|_| covered(arch, scope)))
}

fn potri(arch: Arch, scope: Scope) -> Vec<Family> {
    let kernels: Vec<Kernel> = arch.device().iter().flat_map(batchlas_potrf::potri::kernels).collect();
    let every = if scope == Scope::All || arch.to_string() == "sm_90" { 1 } else { 6 };
    family("batchlas-potrf", "potri", kernels.into_iter().step_by(every))
}

fn logdet(_: Arch, _: Scope) -> Vec<Family> {
    family("batchlas-potrf", "logdet", batchlas_potrf::logdet::kernels().step_by(4))
}

/// The largest order on the architecture that is measured, a small one elsewhere: a kernel takes seconds to compile. The
/// catalogue cycles through eight cases within a type, so that an odd step meets every type and every case.
fn trsm_cta(arch: Arch, scope: Scope) -> Vec<Family> {
    let (orders, step): (Vec<usize>, usize) = match scope {
        Scope::All => ((1..=cta::MAX_N).collect(), 1),
        Scope::Subset if arch.to_string() == "sm_90" => (vec![cta::MAX_N], 3),
        Scope::Subset => (vec![5], 9),
    };
    let kernels = spelled("cta").flat_map(|family| cta::kernels(orders.clone(), &family).collect::<Vec<_>>());
    family("batchlas-trsm", "cta", kernels.step_by(step))
}

/// Orders by blocks, with few right-hand sides and many; in CI a small one with few and, on the architecture that is measured,
/// the largest with many. Where a block can have less shared memory, a device refuses what does not fit, and so it is left
/// out here.
fn trsm_fused(arch: Arch, scope: Scope) -> Vec<Family> {
    let blocks = || (40..=fused::MAX_N).step_by(8).collect::<Vec<_>>();
    let (few, many, step) = match scope {
        Scope::All => (blocks(), blocks(), 1),
        Scope::Subset if arch.to_string() == "sm_90" => (vec![40], vec![fused::MAX_N], 1),
        Scope::Subset => (vec![40], vec![], 3),
    };
    let fits = |kernel: &Kernel| {
        let available = arch.multiprocessor().map_or(u32::MAX, |sm| sm.shared - sm.shared_reserved);
        kernel.promise.max_dynamic_shared <= available
    };
    let kernels = spelled("fused").flat_map(|family| {
        let of = |orders: &Vec<usize>, q| fused::kernels(orders.clone(), q, &family);
        of(&many, 1024).chain(of(&few, 1)).collect::<Vec<_>>()
    });
    family("batchlas-trsm", "fused", kernels.filter(fits).step_by(step))
}

/// Every order up to a warp's and some beyond; in CI every third kernel of one that a block does not hold.
fn trsm_few(arch: Arch, scope: Scope) -> Vec<Family> {
    let (orders, right_hand_sides, step): (Vec<usize>, &[u32], usize) = match scope {
        Scope::All => ((1..=32).chain([33, 48, 64, 100, few::MAX_N]).collect(), few::COMPILED_Q, 1),
        Scope::Subset if arch.to_string() == "sm_90" => (vec![40], &[1], 3),
        Scope::Subset => (Vec::new(), &[], 1),
    };
    let kernels = spelled("few")
        .flat_map(|family| few::kernels(orders.clone(), right_hand_sides, &family).collect::<Vec<_>>());
    family("batchlas-trsm", "few", kernels.step_by(step))
}

/// All of them are kernels of `cta`, whose edges are probed.
fn trsm_sg_left(_: Arch, scope: Scope) -> Vec<Family> {
    let orders = 1..=if scope == Scope::All { cta::MAX_N } else { 0 };
    let kernels =
        spelled("sg_left").flat_map(|family| sg_left::kernels(orders.clone(), &family).collect::<Vec<_>>());
    family("batchlas-trsm", "sg_left", kernels)
}

/// A spelling of `trsm`; that defaults are in the vocabulary is tested by batchlas-trsm.
fn spelled(family: &str) -> impl Iterator<Item = Spelling> {
    batchlas_trsm::VOCABULARY.spelling(family).into_iter()
}

fn gemm_tile(arch: Arch, scope: Scope) -> Vec<Family> {
    products(&batchlas_gemm::tile::FAMILY, arch, scope)
}

fn gemm_mma(arch: Arch, scope: Scope) -> Vec<Family> {
    products(&batchlas_gemm::mma::FAMILY, arch, scope)
}

/// The largest tiles on the architecture that is measured, every eighth of them on the others.
fn products(products: &batchlas_gemm::Family, arch: Arch, scope: Scope) -> Vec<Family> {
    let name = arch.to_string();
    let (sizes, step): (&[usize], usize) = match scope {
        Scope::All => (&[32, 64], 1),
        Scope::Subset if name == "sm_90" => (&[64], 1),
        Scope::Subset => (&[64], 8),
    };
    family("batchlas-gemm", products.name, products.catalogue(&name, sizes).into_iter().step_by(step))
}

/// Every order with one right-hand side and with more than fit at once; in CI the edges of the family, on the
/// architecture that is measured with and without the factor.
fn posv_tiny(arch: Arch, scope: Scope) -> Vec<Family> {
    let measured = arch.to_string() == "sm_90";
    let edges = |dtype: Dtype| match scope {
        Scope::All => (1..=posv::tiny::max_n(dtype)).flat_map(|n| [(n, 1), (n, 9)]).collect::<Vec<_>>(),
        Scope::Subset if measured => vec![(5, 9), (17, 1), (posv::tiny::max_n(dtype), 1)],
        Scope::Subset => vec![(12, 1)],
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
                if posv::tiny::serves(&arch.to_string(), &problem).is_err() {
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
    let budget = arch.multiprocessor().map_or(0, |sm| (sm.shared - sm.shared_reserved) as usize);
    let sizes: Vec<(usize, usize)> = match scope {
        Scope::All => {
            [32, 64, 150, 256, 512].into_iter().flat_map(|n| [1, 2, 4, 8].map(|q| (n, q))).collect()
        }
        Scope::Subset => vec![(32, 2), (256, 8)],
    };
    let mut kernels = Vec::new();
    for family in posv::POTRS.spelling("cta").into_iter().filter(|_| covered(arch, scope)) {
        for problem in solves() {
            let of = |&(n, nrhs): &(usize, usize)| {
                posv::cta::kernel_of(&posv::Problem { n, nrhs, ..problem }, &family, budget)
            };
            kernels.extend(sizes.iter().map(of));
        }
    }
    family("batchlas-posv", "cta", kernels)
}

fn posv_mixed(arch: Arch, scope: Scope) -> Vec<Family> {
    family("batchlas-posv", "mixed", posv::mixed::kernels().filter(|_| covered(arch, scope)))
}

fn posv_jitter(arch: Arch, scope: Scope) -> Vec<Family> {
    family("batchlas-posv", "jitter", posv::jitter::kernels().filter(|_| covered(arch, scope)))
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

/// Kernels of packed weights, whose registers are scarce: on the architecture that is measured; in CI one ring of stages, of `tile` and `bf16` the
/// widest tiles.
fn mmq(name: &str, arch: Arch, scope: Scope, kernels: fn(u32) -> Vec<Kernel>) -> Vec<Family> {
    let (rings, step): (&[u32], usize) = if scope == Scope::All { (&[2, 3, 4], 1) } else { (&[3], 3) };
    let fits = |kernel: &Kernel| {
        let available = arch.multiprocessor().map_or(u32::MAX, |sm| sm.shared - sm.shared_reserved);
        kernel.promise.max_dynamic_shared <= available
    };
    let kernels = rings.iter().flat_map(|&stages| kernels(stages).into_iter().rev().step_by(step));
    family("batchlas-mmq", name, kernels.filter(|_| covered(arch, scope)).filter(fits))
}

fn mmq_panel(arch: Arch, scope: Scope) -> Vec<Family> {
    family("batchlas-mmq", "panel", batchlas_mmq::panel::kernels().filter(|_| covered(arch, scope)))
}

fn mmq_tile(arch: Arch, scope: Scope) -> Vec<Family> {
    mmq("tile", arch, scope, |stages| batchlas_mmq::tile::kernels(stages).collect())
}

fn mmq_bf16(arch: Arch, scope: Scope) -> Vec<Family> {
    mmq("bf16", arch, scope, |stages| batchlas_mmq::bf16::kernels(stages).collect())
}

/// Bulk copies came with `sm_90`.
fn mmq_stream(arch: Arch, scope: Scope) -> Vec<Family> {
    if arch < Arch::from_capability(9, 0) {
        return Vec::new();
    }
    mmq("stream", arch, scope, |stages| batchlas_mmq::stream::kernels(stages).collect())
}

fn mmq_wide(arch: Arch, scope: Scope) -> Vec<Family> {
    let kernels = batchlas_mmq::wide::kernels().skip(usize::from(scope == Scope::Subset));
    family("batchlas-mmq", "wide", kernels.filter(|_| covered(arch, scope)))
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
    let mut named: Vec<&str> = Vec::new();
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        match arg {
            "--all" => scope = Scope::All,
            "--kernels" => kernels = true,
            "--arch" => archs = (*rest.next().ok_or("--arch needs a list such as sm_80,sm_90")?).to_owned(),
            option if option.starts_with('-') => {
                return Err(format!(
                    "probe knows --all, --arch, --kernels and names of families, not `{option}`"
                )
                .into());
            }
            name => named.push(name),
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

    let wanted = |family: &Family| named.is_empty() || named.contains(&&family.name[..]);
    let families =
        |arch| CATALOGUES.iter().flat_map(|catalogue| catalogue(arch, scope)).filter(wanted).collect();
    let report = probe::run(nvrtc, &archs, threads, families);
    if kernels {
        print!("{}", report.kernels());
    }
    println!("{report}");
    if report.is_green() { Ok(()) } else { Err("the probe is red".into()) }
}
