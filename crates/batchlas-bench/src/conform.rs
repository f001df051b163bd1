//! Runs the corpus against every family of a context, each forced by its spelling.
//!
//! One call of [`run`] serves every arm: what a context runs on (a CPU pool, a GPU, the simulator) and what its
//! vocabularies name is all there is to plug in.

mod factor;
mod product;
mod solve;

use std::fmt;

use batchlas::{Context, Dtype, Element, Error, Result, VOCABULARIES};
use num_complex::Complex;

use crate::corpus::Corpus;

/// Which part of the corpus to run. Empty lists mean everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Operations.
    pub ops: Vec<String>,
    /// Family spellings, with knobs or without; empty for every family with its own choice of knobs.
    pub families: Vec<String>,
    /// Element types.
    pub dtypes: Vec<Dtype>,
    /// Orders (columns of C in a product), so that a long run can be dealt to several processes.
    pub orders: Vec<usize>,
    /// Largest number of items times order squared of an instance, to keep slow devices in bounds.
    pub max_elements: Option<usize>,
}

/// What became of one operation, family and element type.
#[derive(Clone, Debug)]
pub struct Line {
    /// The operation.
    pub op: &'static str,
    /// The forced spelling.
    pub family: String,
    /// Element type.
    pub dtype: Dtype,
    /// Instances that ran.
    pub ran: usize,
    /// Instances that the family refused.
    pub refused: usize,
    /// Worst residual or error, in the units of its bound (1 is the bound).
    pub worst: f64,
    /// One message per failing instance.
    pub failures: Vec<String>,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One line per operation, family and element type.
    pub lines: Vec<Line>,
}

impl Report {
    /// Whether nothing failed and something ran.
    pub fn ok(&self) -> bool {
        self.lines.iter().all(|l| l.failures.is_empty()) && self.lines.iter().any(|l| l.ran > 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<6} {:<24} {:<4} {:>7} {:>8} {:>7}  worst/bound",
            "op", "family", "type", "ran", "refused", "failed"
        )?;
        for l in &self.lines {
            let failed = l.failures.len();
            writeln!(
                f,
                "{:<6} {:<24} {:<4} {:>7} {:>8} {failed:>7}  {:.3}",
                l.op, l.family, l.dtype, l.ran, l.refused, l.worst
            )?;
            for failure in l.failures.iter().take(10) {
                writeln!(f, "    {failure}")?;
            }
            if failed > 10 {
                writeln!(f, "    and {} more", failed - 10)?;
            }
        }
        Ok(())
    }
}

/// How one instance ended.
enum Outcome {
    /// Everything held; the worst residual in units of its bound.
    Passed(f64),
    /// The family cannot run this shape.
    Refused,
    /// Something did not hold.
    Failed(String),
}

/// A failed check, or an error of the call itself.
enum Trouble {
    Check(String),
    Call(Error),
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Trouble::Check(text)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Call(error)
    }
}

impl From<std::result::Result<f64, Trouble>> for Outcome {
    fn from(result: std::result::Result<f64, Trouble>) -> Self {
        match result {
            Ok(worst) => Outcome::Passed(worst),
            // A pin that parses and is refused is a family that does not serve this shape.
            Err(Trouble::Call(Error::InvalidArgument(batchlas::ArgumentError::Pin(_)))) => Outcome::Refused,
            Err(Trouble::Call(error)) => Outcome::Failed(error.to_string()),
            Err(Trouble::Check(text)) => Outcome::Failed(text),
        }
    }
}

/// Fails unless `value` (in units of its bound) is at most 1; NaN fails.
fn within(what: &str, value: f64) -> std::result::Result<f64, Trouble> {
    if value <= 1.0 {
        Ok(value)
    } else {
        Err(Trouble::Check(format!("{what} is {value:.3} times its bound")))
    }
}

impl Line {
    fn record(&mut self, outcome: Outcome, describe: impl FnOnce() -> String) {
        match outcome {
            Outcome::Passed(worst) => {
                self.ran += 1;
                self.worst = self.worst.max(worst);
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Failed(text) => {
                self.ran += 1;
                self.failures.push(format!("{}: {text}", describe()));
            }
        }
    }
}

/// Poison: what stands where nothing may be written (finite) or read (NaN).
fn poisons<T: Element>() -> [T; 2] {
    [T::from_parts(-999.0, 777.0), T::from_parts(f64::NAN, f64::NAN)]
}

/// The items whose residuals are formed: all of a small batch; of a large one the first, the last, some between.
fn sampled(batch: usize, always: Option<usize>) -> Vec<usize> {
    if batch <= 64 {
        return (0..batch).collect();
    }
    let mut items: Vec<usize> = (0..16).map(|i| i * (batch - 1) / 15).chain(always).collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// Runs the corpus.
///
/// # Errors
/// None of an instance, which the report holds; only a vocabulary that the context does not have.
pub fn run(ctx: &Context, corpus: &Corpus, filter: &Filter) -> Result<Report> {
    let mut report = Report::default();
    for vocabulary in VOCABULARIES {
        let wanted = |list: &[String], name: &str| list.is_empty() || list.iter().any(|x| x == name);
        if !wanted(&filter.ops, vocabulary.op) {
            continue;
        }
        let families: Vec<String> = if filter.families.is_empty() {
            vocabulary.spellings().map(|s| s.to_string()).collect()
        } else {
            let given = filter.families.iter().filter_map(|text| vocabulary.spelling(text).ok());
            given.map(|s| s.to_string()).collect()
        };
        for family in families {
            for dtype in Dtype::ALL {
                if !filter.dtypes.is_empty() && !filter.dtypes.contains(&dtype) {
                    continue;
                }
                let (op, family) = (vocabulary.op, family.clone());
                let (ran, refused, worst, failures) = (0, 0, 0.0, Vec::new());
                let mut line = Line { op, family, dtype, ran, refused, worst, failures };
                match dtype {
                    Dtype::F32 => run_line::<f32>(ctx, corpus, filter, &mut line),
                    Dtype::F64 => run_line::<f64>(ctx, corpus, filter, &mut line),
                    Dtype::C32 => run_line::<Complex<f32>>(ctx, corpus, filter, &mut line),
                    Dtype::C64 => run_line::<Complex<f64>>(ctx, corpus, filter, &mut line),
                }
                report.lines.push(line);
            }
        }
    }
    Ok(report)
}

fn run_line<T: Element>(ctx: &Context, corpus: &Corpus, filter: &Filter, line: &mut Line) {
    let fits = |n: usize, elements: usize| {
        (filter.orders.is_empty() || filter.orders.contains(&n))
            && filter.max_elements.is_none_or(|max| elements <= max)
    };
    match line.op {
        "potrf" | "posv" | "potrs" => factor::run::<T>(ctx, &corpus.factor, &fits, line),
        "trsm" => solve::run::<T>(ctx, &corpus.solve, &fits, line),
        "gemm" | "herk" => product::run::<T>(ctx, &corpus.product, &fits, line),
        _ => {}
    }
}
