//! `batchlas tune`: measures what the tables are made of, on any machine with a GPU and without Rust.
//!
//! First every kernel that the grid will launch is compiled, by as many processes as there are cores (one process compiles
//! one kernel at a time, whatever its threads), into bundles beside the ledger. Then the cells are timed one by one. A run
//! that was stopped in any way goes on where it was when it is started again with the same arguments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use batchlas::{Context, Dtype};
use batchlas_bench::measure::{Cell, rank};
use batchlas_bench::{sweep, tables, tune};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::devices::{DeviceArg, context};
use crate::error::{CliError, Result};
use crate::lab::provenance;
use crate::print;

/// Time every spelling worth timing over a grid of problems and append the rows to a ledger; start again to resume
#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Operations: potrf, posv, trsm, gemm, herk; all of them if left out
    #[arg(long, value_delimiter = ',')]
    op: Vec<String>,
    /// Element types; all of them if left out
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<Dtype>,
    /// Instead of the built-in grids, the cells of a file: a sweep without routes
    #[arg(long)]
    grid: Option<PathBuf>,
    /// Time also what the tables choose, and instead of the grids 200 problems that are on none: how good is the choice?
    #[arg(long)]
    quality: bool,
    /// Ledger to append to, one JSON object a line
    #[arg(short, long)]
    output: PathBuf,
    /// Time every spelling that there is instead of those that tables and defaults suggest
    #[arg(long)]
    every: bool,
    /// Timed calls of an arm in a pass
    #[arg(long, default_value_t = 5)]
    reps: usize,
    /// Compilers to run at once; 0 means one per core
    #[arg(long, default_value_t = 0)]
    compilers: usize,
    /// Where to run: auto, cpu or cuda:N
    #[arg(long, default_value_t = DeviceArg::Cuda(0))]
    device: DeviceArg,
    /// Threads of the CPU; 0 means one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Commit that the rows are recorded under
    #[arg(long)]
    commit: Option<String>,
}

/// Turn ledgers into tables (for a folder that `BATCHLAS_TUNED_DIR` names): the built-in ones, and those of the ledgers in their place
#[derive(Debug, Args)]
pub(crate) struct Tables {
    /// What `tune` and `bench` wrote
    #[arg(required = true)]
    ledgers: Vec<PathBuf>,
    /// Folder to write the tables to
    #[arg(short, long)]
    output: PathBuf,
}

/// Writes the tables; no item can fail.
pub(crate) fn tables(args: &Tables) -> Result<usize> {
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(CliError::reading(path))?;
        Ok((path.display().to_string(), text))
    };
    let ledgers = args.ledgers.iter().map(read).collect::<Result<Vec<_>>>()?;
    let made = tables::tables(&ledgers, "batchlas tables").map_err(|e| CliError::Lab(e.to_string()))?;
    fs::create_dir_all(&args.output).map_err(CliError::writing(&args.output))?;
    let write = |name: &str, text: &str| {
        let path = args.output.join(name);
        fs::write(&path, text).map_err(CliError::writing(&path))
    };
    for (name, text) in batchlas::TABLES {
        write(name, text)?;
    }
    for file in &made {
        write(&file.name, &file.text)?;
        print(&file.name)?;
        file.warnings.iter().try_for_each(|warning| print(&format!("warning: {warning}")))?;
    }
    print(&format!("use them with BATCHLAS_TUNED_DIR={}", args.output.display()))?;
    Ok(0)
}

/// The arms of a cell: spellings with the digest of their code.
type Arms = Vec<(String, Option<String>)>;

/// Tunes; the number of cells that nothing was timed for.
pub(crate) fn tune(args: &Tune) -> Result<usize> {
    let cells = cells(args)?;
    let (mut ledger, found) = tune::Ledger::open(&args.output).map_err(CliError::writing(&args.output))?;
    if found.dropped > 0 {
        print(&format!("{} bytes of an incomplete cell were taken off the ledger", found.dropped))?;
    }
    let mut ctx = context(args.device, args.threads, &[])?;
    let rehearsal = ctx.rehearsal();
    let arms = |cell| {
        let mut arms = tune::arms(&ctx, &rehearsal, cell, args.every)?;
        // What was chosen is in the row.
        arms.extend(args.quality.then(|| ("auto".to_owned(), None)));
        Ok((cell, arms))
    };
    let planned: Vec<(&Cell, Arms)> =
        cells.iter().filter(|cell| !ledger.has(cell)).map(arms).collect::<Result<_>>()?;
    if ctx.device().is_gpu() && !planned.is_empty() {
        ctx = compiled(args, &ctx, &planned)?;
    }
    let bar = progress(planned.len(), "timing");
    let provenance = provenance(args.commit.clone());
    let mut empty = 0;
    for (cell, arms) in &planned {
        bar.inc(1);
        bar.set_message(cell.to_string());
        match rank(&ctx, cell, arms, args.reps, &provenance) {
            Ok(rows) if !rows.is_empty() => {
                ledger.append(cell, rows).map_err(CliError::writing(&args.output))?;
            }
            Ok(_) => empty += 1,
            Err(error) => {
                empty += 1;
                bar.suspend(|| print(&format!("none: {cell}: {error}")))?;
            }
        }
    }
    bar.finish_and_clear();
    print(&format!("{} cells, {empty} without a row: {}", cells.len(), args.output.display()))?;
    Ok(empty)
}

/// The cells to tune.
fn cells(args: &Tune) -> Result<Vec<Cell>> {
    let known: Vec<&str> = tune::ops().collect();
    if let Some(op) = args.op.iter().find(|op| !known.contains(&op.as_str())) {
        return Err(CliError::Lab(format!("{op:?} is not one of {}", known.join(", "))));
    }
    let all = match &args.grid {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(CliError::reading(path))?;
            sweep::grid(&text).map_err(|e| CliError::Lab(format!("{}: {e}", path.display())))?
        }
        None if args.quality => tune::off_grid(),
        None => known.into_iter().filter_map(tune::grid).flatten().collect(),
    };
    let wanted = |cell: &Cell| {
        (args.op.is_empty() || args.op.iter().any(|op| op == cell.op.name()))
            && (args.dtype.is_empty() || args.dtype.contains(&cell.dtype))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// Compiles everything that the plan launches and opens the device again with the bundles.
fn compiled(args: &Tune, ctx: &Context, planned: &[(&Cell, Arms)]) -> Result<Context> {
    let processes = match args.compilers {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        given => given,
    };
    let folder = args.output.with_extension("kernels");
    fs::create_dir_all(&folder).map_err(CliError::writing(&folder))?;
    // Neighbouring cells share kernels: a process gets a run of them.
    let parts = planned.chunks(planned.len().div_ceil(processes).max(1));
    let program = std::env::current_exe().map_err(CliError::reading(Path::new("this program")))?;
    let mut children = Vec::new();
    let mut bundles = Vec::new();
    for (i, part) in parts.enumerate() {
        let line = |(cell, arms): &(&Cell, Arms)| {
            let routes: Vec<&str> = arms.iter().map(|(name, _)| &name[..]).collect();
            (!routes.is_empty()).then(|| format!("{cell} {}\n", routes.join(" ")))
        };
        let text: String = part.iter().filter_map(line).collect();
        let (list, file) = (folder.join(format!("{i}.txt")), folder.join(format!("{i}.bundle")));
        bundles.push(file.clone());
        // A run that goes on has its bundles.
        if file.exists() && fs::read_to_string(&list).is_ok_and(|old| old == text) {
            continue;
        }
        fs::write(&list, text).map_err(CliError::writing(&list))?;
        let mut command = Command::new(&program);
        command.args(["aot", "--threads", "1", "--arch", &ctx.device().arch, "--multiprocessors"]);
        command.arg(ctx.device().compute_units.to_string()).arg("--sweep").arg(&list).arg("-o").arg(&file);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        children.push(child.map_err(CliError::reading(&program))?);
    }
    let bar = progress(children.len(), "compiling");
    for mut child in children {
        // A kernel that is refused is no failure here: its arm has no row.
        child.wait().map_err(CliError::reading(&program))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    bundles.retain(|file| file.exists());
    context(args.device, args.threads, &bundles)
}

/// A bar with an estimate of the time that is left.
fn progress(len: usize, what: &'static str) -> ProgressBar {
    let style = "{prefix} {bar:30} {pos}/{len} eta {eta} {msg}";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len as u64).with_style(style).with_prefix(what)
}
