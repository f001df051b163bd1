//! `cargo xtask races`: breaks every synchronisation of every kernel in the simulator and demands that it shows.
//!
//! Each call of the [`catalogue`] first runs as it is under all schedules: no finding, and the same bits. Then each
//! barrier, warp synchronisation and wait for asynchronous copies of each kernel that it launched is deleted or weakened
//! in turn, until a schedule reports a finding or the answer changes. What survives in all calls needs a reason in the
//! catalogue. Known defects are planted in the source as well and must be seen by the corpus on the simulator: a check
//! that cannot see them proves nothing. No kernel may leave it to the assembler whether a product and a sum are fused.
//!
//! Without `--all` it runs what CI has time for. Families (`potrf:tiny`) restrict it.

mod catalogue;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use batchlas::{Context, Kernel, Uplo};
use batchlas_bench::conform::{self, Filter};
use batchlas_bench::corpus::Corpus;
use batchlas_bench::once::Call;
use batchlas_kernels::headers::HEADERS;
use batchlas_sim::lint::unfused;
use batchlas_sim::mutate::{Mutation, Target, sites};
use batchlas_sim::ptx::Entry;
use batchlas_sim::{Finding, FindingKind, Module, Options, Schedule, Site};

use crate::Result;
use crate::probe::{CATALOGUES, Scope};
use crate::simulate::{self, ARCH, Compiler};
use catalogue::{FAMILIES, Family, PLANTS, Plant, SURVIVORS};

const SCHEDULES: [Schedule; 3] = [Schedule::Forward, Schedule::Reverse, Schedule::Random(7)];

/// Runs the plants, the calls, and the check that nothing else synchronises.
pub(crate) fn run(args: &[&str]) -> Result {
    let (mut all, mut names) = (false, Vec::new());
    for &arg in args {
        match arg {
            "--all" => all = true,
            name if FAMILIES.iter().any(|family| family.name == name) => names.push(name),
            unknown => {
                let known: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
                return Err(format!("races knows --all and {}, not `{unknown}`", known.join(", ")).into());
            }
        }
    }
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let start = Instant::now();
    let mut failures = Vec::new();

    let plants: Vec<&Plant> = PLANTS.iter().filter(|plant| wanted(plant.family)).collect();
    for (plant, seen) in plants.iter().zip(map(&plants, |plant| look(plant))) {
        match seen {
            Ok(seen) => println!("seen      {:<12} {}: {seen}", plant.family, plant.what),
            Err(error) => failures.push(format!("plant, {} {}: {error}", plant.family, plant.what)),
        }
    }

    let mut calls = Vec::new();
    for family in FAMILIES.iter().filter(|family| wanted(family.name)) {
        calls.extend(expand(family, all)?);
    }
    let compiler = Compiler::new(None)?;
    let mut table = Table::default();
    let examined = map(&calls, |planned| {
        examine(&compiler, &planned.call)
            .map_err(|error| (planned.optional && refused(&*error), chain(&*error)))
    });
    for (planned, outcome) in calls.iter().zip(examined) {
        match outcome {
            Ok(examined) => table.add(planned.family, examined),
            Err((true, _)) => println!("refused   {}", planned.line),
            Err((false, error)) => failures.push(format!("{}: {error}", planned.line)),
        }
    }
    let (lines, survivors) = table.lines();
    print!("{lines}");
    failures.extend(survivors);
    if names.is_empty() {
        failures.extend(silent(&compiler, &table.sources())?);
    }
    println!(
        "{} synchronisations of {} kernels broken, {} plants, {:.0} s",
        table.rows.len(),
        table.kernels().len(),
        plants.len(),
        start.elapsed().as_secs_f64()
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// `work` of each item on all cores, in order.
fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(items.len()) {
            scope.spawn(|| {
                loop {
                    let position = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(position) else { break };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(position, result);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// What the calls and cases of a plant gave.
struct Outcome {
    /// Findings, then what failed.
    seen: Vec<String>,
    kernels: Vec<Kernel>,
    answers: Vec<Vec<u8>>,
}

/// Runs the cases of a plant without and with its edit; says what was seen.
fn look(plant: &Plant) -> Result<String, String> {
    let mut corpus = Corpus::committed().map_err(|error| error.to_string())?;
    corpus.factor.retain(|case| plant.cases.contains(&case.name.as_str()));
    corpus.solve.retain(|case| plant.cases.contains(&case.name.as_str()));
    corpus.product.retain(|case| plant.cases.contains(&case.name.as_str()));
    corpus.factor.iter_mut().for_each(|case| case.n = plant.n.to_vec());
    corpus.solve.iter_mut().for_each(|case| case.n = plant.n.to_vec());
    corpus.product.iter_mut().for_each(|case| case.n = plant.n.to_vec());
    let (op, family) = plant.family.split_once(':').ok_or("the family is OP:FAMILY")?;
    let filter = Filter {
        ops: vec![op.into()],
        families: vec![family.into()],
        dtypes: vec![plant.dtype],
        ..Filter::default()
    };
    let outcome = |edit| -> Result<Outcome> {
        let compiler = Compiler::new(edit)?;
        let ctx = compiler.context()?;
        let queue = simulate::queue(&ctx)?;
        let (mut failures, mut answers) = (Vec::new(), Vec::new());
        for call in plant.calls {
            match simulate::run(&ctx, &call.parse()?) {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push(chain(&*error)),
            }
        }
        if !plant.cases.is_empty() {
            let report = conform::run(&ctx, &corpus, &filter)?;
            if report.lines.iter().all(|line| line.ran == 0) {
                return Err("no case of the corpus ran".into());
            }
            failures.extend(report.lines.into_iter().flat_map(|line| line.failures));
        }
        // A finding says more than the failure that it caused.
        let reports = queue.take_reports();
        let findings = reports.iter().flat_map(|(_, report)| report.findings.iter().map(describe));
        Ok(Outcome { seen: findings.chain(failures).collect(), kernels: queue.kernels(), answers })
    };
    let clean = outcome(None).map_err(|error| error.to_string())?;
    if let Some(failure) = clean.seen.first() {
        return Err(format!("without the plant: {failure}"));
    }
    let matches = plant.edit.matches(&clean.kernels);
    if matches != 1 {
        return Err(format!("{:?} stands {matches} times in {}, not once", plant.edit.find, plant.edit.file));
    }
    let planted = outcome(Some(plant.edit)).map_err(|error| error.to_string())?;
    let wrong = (planted.answers != clean.answers).then(|| "the answer differs".to_owned());
    planted.seen.into_iter().chain(wrong).next().ok_or_else(|| "nothing was seen".into())
}

/// A finding without its kernel and numbers.
fn describe(finding: &Finding) -> String {
    let at = finding.location.as_ref().map(|location| format!(" of {location}")).unwrap_or_default();
    format!("{:?}, {}{at}", finding.kind, place(&finding.site))
}

/// A call of the catalogue, and whether its family may refuse it.
struct Planned {
    family: &'static str,
    line: String,
    call: Call,
    optional: bool,
}

fn expand(family: &Family, all: bool) -> Result<Vec<Planned>> {
    let whole = if all { family.all } else { &[] };
    let mut planned = Vec::new();
    for line in family.subset.iter().chain(whole) {
        let mut lines = vec![Vec::new()];
        for (position, word) in line.split_whitespace().enumerate() {
            let choices: Vec<&str> = match (word, position) {
                ("*", 1) => batchlas::Dtype::ALL.iter().map(|dtype| dtype.name()).collect(),
                ("*", _) => Uplo::ALL.iter().map(|uplo| uplo.letter()).collect(),
                _ => vec![word],
            };
            lines = lines
                .iter()
                .flat_map(|head| choices.iter().map(move |choice| [&head[..], &[*choice]].concat()))
                .collect();
        }
        for words in lines {
            let text = words.join(" ");
            let call = text.parse()?;
            planned.push(Planned { family: family.name, line: text, call, optional: line.contains('*') });
        }
    }
    Ok(planned)
}

/// What showed that a synchronisation was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Found(FindingKind),
    WrongAnswer,
    Survived,
    /// No launch executes it.
    Unreached,
}

/// One broken synchronisation.
struct Broken {
    kernel: Kernel,
    target: Target,
    verdict: Verdict,
}

/// What a call taught.
struct Examined {
    kernels: Vec<Kernel>,
    broken: Vec<Broken>,
}

/// Whether an instruction is broken here: what synchronises, and is not the same when weakened.
fn relevant(target: &Target, threads: u32) -> bool {
    match target.mutation {
        Mutation::Delete | Mutation::NarrowMask | Mutation::WaitFewer => true,
        // A block of one warp has no barrier that is more than the warp's.
        Mutation::WarpScope => threads > 32,
        Mutation::DropGuard | Mutation::NeverBranch => false,
    }
}

/// A call as it is.
struct Whole {
    bits: Vec<u8>,
    /// Kernels with their modules and entries.
    kernels: Vec<(Kernel, Arc<Module>, String)>,
    /// For each kernel's name expression, by instruction: whether a launch executes it.
    reached: HashMap<String, Vec<bool>>,
    /// Warp instructions after which a broken launch is given up.
    budget: u64,
}

/// Runs a call under all schedules: no finding, the same bits.
fn intact(compiler: &Arc<Compiler>, call: &Call) -> Result<Whole> {
    let mut whole: Option<Whole> = None;
    for schedule in SCHEDULES {
        let ctx = compiler.context()?;
        let queue = simulate::queue(&ctx)?;
        queue.set_options(Options::with_schedule(schedule));
        let bits = simulate::run(&ctx, call)?;
        match &whole {
            None => {
                let (mut most, mut reached) = (0, HashMap::<String, Vec<bool>>::new());
                for (name, report) in queue.take_reports() {
                    most = most.max(report.stats.warp_instructions);
                    let known = reached.entry(name).or_default();
                    known.resize(report.sites().count(), false);
                    let issued = report.sites().map(|(_, cost)| cost.issues > 0);
                    known.iter_mut().zip(issued).for_each(|(known, issued)| *known |= issued);
                }
                let module =
                    |kernel: Kernel| queue.module(&kernel).map(|(module, entry)| (kernel, module, entry));
                let kernels = queue.kernels().into_iter().map(module).collect::<Result<_, _>>()?;
                whole = Some(Whole { bits, kernels, reached, budget: 4 * most + 100_000 });
            }
            Some(whole) if whole.bits != bits => {
                return Err(format!("the answer depends on the schedule ({schedule:?})").into());
            }
            Some(_) => {}
        }
    }
    whole.ok_or_else(|| "no schedule".into())
}

/// Runs a call as it is, then with each synchronisation broken.
fn examine(compiler: &Arc<Compiler>, call: &Call) -> Result<Examined> {
    let whole = intact(compiler, call)?;
    let mut broken = Vec::new();
    for (at, (kernel, module, entry)) in whole.kernels.iter().enumerate() {
        let text = module.entry(entry).ok_or("the module lost its entry")?;
        if let Some(pair) = loose(module, text) {
            return Err(pair.into());
        }
        for target in sites(module, text).into_iter().filter(|t| relevant(t, kernel.promise.threads)) {
            let reached = whole.reached.get(&kernel.entry).is_some_and(|sites| sites[target.site.index]);
            let mutant = Arc::new(module.mutated(entry, &target)?);
            let mut verdict = if reached { Verdict::Survived } else { Verdict::Unreached };
            for schedule in SCHEDULES.into_iter().filter(|_| reached) {
                let ctx = compiler.context()?;
                for (i, (kernel, module, entry)) in whole.kernels.iter().enumerate() {
                    let module = if i == at { &mutant } else { module };
                    simulate::queue(&ctx)?.install(kernel, module.clone(), entry.clone());
                }
                verdict = judge(&ctx, call, schedule, &whole)?;
                if verdict != Verdict::Survived {
                    break;
                }
            }
            broken.push(Broken { kernel: kernel.clone(), target, verdict });
        }
    }
    Ok(Examined { kernels: whole.kernels.into_iter().map(|(kernel, ..)| kernel).collect(), broken })
}

/// Whether a call was refused by its family.
fn refused(error: &(dyn std::error::Error + 'static)) -> bool {
    use batchlas_core::{ArgumentError, Error};
    matches!(error.downcast_ref(), Some(Error::InvalidArgument(ArgumentError::Pin(_))))
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Runs a broken call.
fn judge(ctx: &Context, call: &Call, schedule: Schedule, whole: &Whole) -> Result<Verdict> {
    let queue = simulate::queue(ctx)?;
    queue.set_options(Options { max_instructions: whole.budget, ..Options::with_schedule(schedule) });
    let outcome = simulate::run(ctx, call);
    let found = queue.take_reports().iter().find_map(|(_, report)| report.findings.first().map(|f| f.kind));
    match (found, outcome) {
        (Some(kind), _) => Ok(Verdict::Found(kind)),
        (None, Err(error)) => Err(error),
        (None, Ok(out)) => Ok(if out == whole.bits { Verdict::Survived } else { Verdict::WrongAnswer }),
    }
}

/// A site of one kernel: its name expression, the instruction, the mutation.
type Key = (String, usize, String);

/// What all calls taught. A synchronisation is caught if one of them catches it.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Key, (&'static str, Broken)>,
    all: BTreeMap<String, (&'static str, Kernel)>,
}

impl Table {
    fn add(&mut self, family: &'static str, examined: Examined) {
        self.all.extend(examined.kernels.into_iter().map(|k| (k.entry.clone(), (family, k))));
        for broken in examined.broken {
            let key = (
                broken.kernel.entry.clone(),
                broken.target.site.index,
                format!("{:?}", broken.target.mutation),
            );
            match self.rows.get_mut(&key) {
                Some((_, known)) if known.verdict <= broken.verdict => {}
                Some((_, known)) => *known = broken,
                None => drop(self.rows.insert(key, (family, broken))),
            }
        }
    }

    fn kernels(&self) -> Vec<&String> {
        self.all.keys().collect()
    }

    fn sources(&self) -> BTreeSet<&'static str> {
        self.all.values().map(|(_, kernel)| kernel.source.name).collect()
    }

    /// The table, one line for each kernel, source line and mutation; and what survived without a reason.
    fn lines(&self) -> (String, BTreeSet<String>) {
        let (mut text, mut survivors) = (String::new(), BTreeSet::new());
        for (entry, (family, _)) in &self.all {
            let short = entry.replace("batchlas::", "");
            let mut groups: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
            for ((_, _, mutation), (_, broken)) in self.rows.iter().filter(|((e, ..), _)| e == entry) {
                let word = match &broken.verdict {
                    Verdict::Found(kind) => format!("{kind:?}"),
                    Verdict::WrongAnswer => "wrong answer".into(),
                    Verdict::Survived | Verdict::Unreached => {
                        let unreached = broken.verdict == Verdict::Unreached;
                        let what = if unreached { "UNREACHED" } else { "SURVIVED" };
                        match reason(broken) {
                            Some(reason) => format!("{what} ({reason})"),
                            None => {
                                let place = place(&broken.target.site);
                                survivors.insert(format!("{short}: {place} {what} {mutation}"));
                                what.into()
                            }
                        }
                    }
                };
                groups.entry((place(&broken.target.site), mutation)).or_default().push(word);
            }
            if groups.is_empty() {
                text += &format!("none      {family:<12} {short}: no synchronisation\n");
            }
            for ((place, mutation), words) in groups {
                let kinds: BTreeSet<&String> = words.iter().collect();
                let count = |kind| words.iter().filter(|word| *word == kind).count();
                let kinds: Vec<String> =
                    kinds.iter().map(|&kind| format!("{kind} x{}", count(kind))).collect();
                text +=
                    &format!("broken    {family:<12} {short}: {place} {mutation}: {}\n", kinds.join(", "));
            }
        }
        (text, survivors)
    }
}

/// Opcode and source line of a synchronisation, without the line of the PTX.
fn place(site: &Site) -> String {
    let line = |at: &Option<(String, u32)>| at.as_ref().map(|(file, line)| format!("{file}:{line}"));
    match (line(&site.source), line(&site.inlined_at)) {
        (Some(own), Some(caller)) => format!("{} {own} at {caller}", site.opcode),
        (own, _) => format!("{} {}", site.opcode, own.unwrap_or_default()),
    }
}

/// The reason that the catalogue has for a survivor.
fn reason(broken: &Broken) -> Option<&'static str> {
    let site = &broken.target.site;
    let (file, line) = site.inlined_at.as_ref().or(site.source.as_ref())?;
    let own = (broken.kernel.source.name, broken.kernel.source.text);
    let text = std::iter::once(own).chain(HEADERS.iter().map(|h| (h.name, h.text)));
    let text = text.filter(|(name, _)| name.rsplit('/').next() == Some(file)).map(|(_, text)| text).next()?;
    let text = text.lines().nth(*line as usize - 1)?;
    SURVIVORS
        .iter()
        .find(|s| {
            broken.kernel.entry.replace("batchlas::", "").starts_with(s.kernel)
                && s.file.ends_with(file.as_str())
                && text.contains(s.line)
                && s.mutation == broken.target.mutation
        })
        .map(|s| s.reason)
}

/// The first multiplication and addition that the assembler may fuse or not: the simulator rounds twice there.
fn loose(module: &Module, entry: &Entry) -> Option<String> {
    let pair = unfused(module, entry).into_iter().next()?;
    Some(format!("{}: {} feeds {}, and neither names a rounding", entry.name, pair.multiply, pair.add))
}

/// The synchronisations of what ships and no call launches.
fn silent(compiler: &Compiler, launched: &BTreeSet<&'static str>) -> Result<Vec<String>> {
    let arch = ARCH.parse()?;
    let families = CATALOGUES.iter().flat_map(|catalogue| catalogue(arch, Scope::Subset));
    let mut failures = Vec::new();
    for family in families.filter(|family| !launched.contains(family.source_name.as_str())) {
        let entries: Vec<&str> = family.kernels.iter().map(|(entry, _)| entry.as_str()).collect();
        let module = Module::parse(&compiler.ptx(&family.source_name, &family.source, &entries)?)?;
        failures.extend(module.entries().iter().filter_map(|entry| loose(&module, entry)));
        let found =
            |entry| sites(&module, entry).into_iter().filter(|t| relevant(t, u32::MAX)).collect::<Vec<_>>();
        let sites: Vec<Target> = module.entries().iter().flat_map(found).collect();
        println!(
            "none      {}: {} kernels, no call, {} synchronisations",
            family.name,
            entries.len(),
            sites.len()
        );
        if let Some(first) = sites.first() {
            failures.push(format!(
                "{} synchronises ({first}) and races/catalogue.rs has no call of it",
                family.name
            ));
        }
    }
    Ok(failures)
}
