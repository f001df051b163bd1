//! The residency probe: compiles every kernel it is given for several architectures, on a machine without a GPU, and
//! holds each against its promise.
//!
//! It covers what ships: the caller lists the instantiations of each family, and each one must be reported by the
//! compiler under its own name. Before a result is believed, [`self_test`] runs kernels that break one rule each
//! through the same code; a probe that lets one pass, or refuses the clean one, proves nothing.

use std::fmt;
use std::time::{Duration, Instant};

use batchlas_core::Promise;

use crate::Error;
use crate::arch::Arch;
use crate::cubin;
use crate::headers::HEADERS;
use crate::nvrtc::{Job, Nvrtc};
use crate::parallel;
use crate::ptxas::Usage;
use crate::residency::{Breach, admit};

/// Architectures that are probed unless others are asked for.
pub const DEFAULT_ARCHS: [&str; 4] = ["sm_80", "sm_89", "sm_90", "sm_120"];

/// Kernels of one compile. They share the compiler's front end, which is most of the time of a small kernel; more of
/// them would leave one thread with the last compile while the others wait.
const CHUNK: usize = 8;

/// Instantiations of one family, all of one source.
#[derive(Clone, Debug)]
pub struct Family {
    /// The crate that owns it.
    pub owner: String,
    /// Its spelling, e.g. `tiny`.
    pub name: String,
    /// Name of the source file.
    pub source_name: String,
    /// Its text.
    pub source: String,
    /// Options beside those of every compile.
    pub options: Vec<String>,
    /// Name expression and promise of each kernel.
    pub kernels: Vec<(String, Promise)>,
}

/// One kernel that was compiled.
#[derive(Clone, Debug)]
pub struct Row {
    /// The architecture.
    pub arch: Arch,
    /// Crate and family.
    pub family: String,
    /// The name expression.
    pub entry: String,
    /// What the compiler counted.
    pub usage: Usage,
    /// Machine code in bytes.
    pub code: u64,
    /// Resident blocks per multiprocessor; the broken rules where there are any.
    pub verdict: Result<u32, Vec<Breach>>,
}

/// A family that could not be compiled, or whose report does not match what was asked for.
#[derive(Debug)]
pub struct Failure {
    /// The architecture.
    pub arch: Arch,
    /// Crate and family.
    pub family: String,
    /// Why.
    pub error: Error,
}

/// What a probe found.
#[derive(Debug, Default)]
pub struct Report {
    /// Kernels listed, over all architectures.
    pub expected: usize,
    /// Kernels compiled, by architecture and family in the order listed.
    pub rows: Vec<Row>,
    /// What could not be compiled.
    pub failures: Vec<Failure>,
    /// Compiler time by architecture and family.
    pub seconds: Vec<(Arch, String, Duration)>,
    /// Wall time.
    pub elapsed: Duration,
}

/// One compile of the probe.
struct Chunk<'a> {
    arch: Arch,
    label: String,
    family: &'a Family,
    kernels: &'a [(String, Promise)],
}

/// Compiles what `families` lists for each architecture on `threads` threads.
pub fn run(nvrtc: Nvrtc, archs: &[Arch], threads: usize, families: impl Fn(Arch) -> Vec<Family>) -> Report {
    let start = Instant::now();
    let listed: Vec<(Arch, Vec<Family>)> = archs.iter().map(|&arch| (arch, families(arch))).collect();
    let chunks: Vec<Chunk<'_>> = listed
        .iter()
        .flat_map(|(arch, families)| families.iter().map(move |family| (*arch, family)))
        .flat_map(|(arch, family)| {
            let label = format!("{} {}", family.owner, family.name);
            family.kernels.chunks(CHUNK).map(move |kernels| Chunk {
                arch,
                label: label.clone(),
                family,
                kernels,
            })
        })
        .collect();
    let done = parallel::map(&chunks, threads, |_, chunk| {
        let begun = Instant::now();
        let result = probe(nvrtc, chunk);
        (begun.elapsed(), result)
    });
    let mut report =
        Report { expected: chunks.iter().map(|chunk| chunk.kernels.len()).sum(), ..Report::default() };
    for (Chunk { arch, label, .. }, (seconds, result)) in chunks.iter().zip(done) {
        match report.seconds.last_mut() {
            Some((last_arch, last_label, total)) if (*last_arch, &*last_label) == (*arch, label) => {
                *total += seconds
            }
            _ => report.seconds.push((*arch, label.clone(), seconds)),
        }
        match result {
            Ok(mut rows) => report.rows.append(&mut rows),
            Err(error) => report.failures.push(Failure { arch: *arch, family: label.clone(), error }),
        }
    }
    report.elapsed = start.elapsed();
    report
}

fn probe(nvrtc: Nvrtc, chunk: &Chunk<'_>) -> Result<Vec<Row>, Error> {
    let sm = chunk.arch.multiprocessor().ok_or(Error::UnknownMultiprocessor { arch: chunk.arch })?;
    let entries: Vec<&str> = chunk.kernels.iter().map(|(entry, _)| entry.as_str()).collect();
    let options: Vec<&str> = chunk.family.options.iter().map(String::as_str).collect();
    let compiled = nvrtc.cubin(&Job {
        source_name: &chunk.family.source_name,
        source: &chunk.family.source,
        headers: HEADERS,
        entries: &entries,
        arch: chunk.arch,
        options: &options,
    })?;
    let row = |((entry, promise), made): (&(String, Promise), &crate::nvrtc::Entry)| {
        let code = cubin::code_size(&compiled.image, &made.lowered)?;
        let verdict = admit(entry, promise, &made.usage, code, &sm).map_err(|error| error.breaches);
        Ok(Row {
            arch: chunk.arch,
            family: chunk.label.clone(),
            entry: entry.clone(),
            usage: made.usage,
            code,
            verdict,
        })
    };
    chunk.kernels.iter().zip(&compiled.entries).map(row).collect()
}

impl Report {
    /// Whether every kernel listed was seen and keeps its promise. A probe of nothing is not green.
    pub fn is_green(&self) -> bool {
        self.expected > 0
            && self.rows.len() == self.expected
            && self.failures.is_empty()
            && self.rows.iter().all(|row| row.verdict.is_ok())
    }

    /// A line per kernel.
    pub fn kernels(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            heading(f, "kernel")?;
            for row in &self.rows {
                let blocks = row.verdict.as_ref().copied().unwrap_or(0);
                line(f, row.arch, &row.family, &row.usage, blocks, row.code)?;
                writeln!(f, "  {}", row.entry)?;
            }
            Ok(())
        })
    }
}

fn heading(f: &mut fmt::Formatter<'_>, last: &str) -> fmt::Result {
    writeln!(
        f,
        "{:<7} {:<28} {:>4} {:>6} {:>6} {:>7} {:>6} {:>8}  {last}",
        "arch", "family", "regs", "frame", "spill", "shared", "blocks", "code"
    )
}

fn line(
    f: &mut fmt::Formatter<'_>,
    arch: Arch,
    family: &str,
    usage: &Usage,
    blocks: u32,
    code: u64,
) -> fmt::Result {
    let Usage { registers, frame, shared, .. } = usage;
    let spill = usage.spill_stores + usage.spill_loads;
    let arch = arch.to_string();
    write!(f, "{arch:<7} {family:<28} {registers:>4} {frame:>6} {spill:>6} {shared:>7} {blocks:>6} {code:>8}")
}

/// A line per architecture and family with the worst of each number, then every broken promise and failure.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(f, "kernels seconds")?;
        for (arch, family, seconds) in &self.seconds {
            let rows = || self.rows.iter().filter(|row| row.arch == *arch && row.family == *family);
            let worst = |field: fn(&Usage) -> u32| rows().map(|row| field(&row.usage)).max().unwrap_or(0);
            let usage = Usage {
                registers: worst(|usage| usage.registers),
                frame: worst(|usage| usage.frame),
                spill_stores: worst(|usage| usage.spill_stores),
                spill_loads: worst(|usage| usage.spill_loads),
                shared: worst(|usage| usage.shared),
                barriers: 0,
            };
            let blocks = rows().map(|row| row.verdict.as_ref().copied().unwrap_or(0)).min().unwrap_or(0);
            let code = rows().map(|row| row.code).max().unwrap_or(0);
            line(f, *arch, family, &usage, blocks, code)?;
            writeln!(f, "  {:>7} {:>7.2}", rows().count(), seconds.as_secs_f64())?;
        }
        for row in &self.rows {
            for breach in row.verdict.as_ref().err().into_iter().flatten() {
                writeln!(f, "RED {} {} `{}`: {breach}", row.arch, row.family, row.entry)?;
            }
        }
        for Failure { arch, family, error } in &self.failures {
            writeln!(f, "RED {arch} {family}: {error}")?;
        }
        if self.expected == 0 {
            writeln!(f, "RED no kernel was listed")?;
        }
        let compiling: Duration = self.seconds.iter().map(|(_, _, seconds)| *seconds).sum();
        write!(
            f,
            "{} of {} kernels seen, {} keep their promise; {:.1} s of compiling in {:.1} s",
            self.rows.len(),
            self.expected,
            self.rows.iter().filter(|row| row.verdict.is_ok()).count(),
            compiling.as_secs_f64(),
            self.elapsed.as_secs_f64()
        )
    }
}

/// A planted kernel and what became of it.
#[derive(Clone, Debug)]
pub struct Plant {
    /// The architecture.
    pub arch: Arch,
    /// What is planted.
    pub name: &'static str,
    /// What the probe said of it.
    pub seen: String,
    /// Whether that is what it must say.
    pub right: bool,
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.right { "as planted" } else { "THE PROBE IS BLIND" };
        write!(f, "plant {:<8} on {:<7} {mark}: {}", self.name, self.arch.to_string(), self.seen)
    }
}

/// Runs a kernel that keeps every rule, and one each that breaks a rule, through the probe.
pub fn self_test(nvrtc: Nvrtc, archs: &[Arch], threads: usize) -> Vec<Plant> {
    type Right = fn(&Report) -> bool;
    fn breach(report: &Report, is_it: fn(&Breach) -> bool) -> bool {
        matches!(&report.rows[..], [Row { verdict: Err(breaches), .. }] if breaches.iter().any(is_it))
    }
    let plants: [(&str, &str, u32, &[&str], Right); 5] = [
        ("clean", "plants::clean<128>", 128, &[], Report::is_green),
        ("spill", "plants::spiller<96>", 1024, &[], |r| breach(r, |b| matches!(b, Breach::Spill { .. }))),
        ("frame", "plants::framed<64>", 32, &[], |r| {
            // The one that looking at spills alone would miss.
            matches!(&r.rows[..], [Row { verdict: Err(breaches), .. }] if matches!(breaches[..], [Breach::Frame { .. }]))
        }),
        ("oversize", "plants::oversize<9000>", 32, &[], |r| breach(r, |b| matches!(b, Breach::Code { .. }))),
        ("unasked", "plants::clean<128>", 128, &["-DPLANT_UNASKED"], |r| {
            matches!(&r.failures[..], [Failure { error: Error::EntriesUnmatched { .. }, .. }])
        }),
    ];
    let family = |(name, entry, block, options, _): &(&str, &str, u32, &[&str], Right)| Family {
        owner: "plant".to_owned(),
        name: (*name).to_owned(),
        source_name: "batchlas-kernels/src/probe/plants.cu".to_owned(),
        source: include_str!("plants.cu").to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        kernels: vec![(
            (*entry).to_owned(),
            Promise { threads: *block, min_blocks: 1, max_dynamic_shared: 0 },
        )],
    };
    let mut outcomes = Vec::new();
    for &arch in archs {
        for plant in &plants {
            let report = run(nvrtc, &[arch], threads, |_| vec![family(plant)]);
            let said: Vec<String> = report
                .rows
                .iter()
                .map(|row| match &row.verdict {
                    Ok(blocks) => format!("{blocks} blocks"),
                    Err(breaches) => breaches.iter().map(Breach::to_string).collect::<Vec<_>>().join("; "),
                })
                .chain(report.failures.iter().map(|failure| failure.error.to_string()))
                .collect();
            let (name, .., right) = *plant;
            outcomes.push(Plant { arch, name, seen: said.join("; "), right: right(&report) });
        }
    }
    outcomes
}
