//! The trace: a record of what *ran*, which a parsed pin or a returned choice does not prove.
//!
//! An operation opens a [`Scope`] for its choice, launches, and marks the scope executed. Operations that it calls in
//! between, through seams that know nothing of selection, open their own scopes on the same thread and become its
//! children. A scope that is dropped unmarked (the launch failed) leaves no record of its own; the children that did run
//! move up.
//!
//! Records go to one sink, the [`Observer`]: a recorder in the same process, lines on stderr, a coverage file, or none.
//! An observer that observes nothing costs one branch per call. Scopes of one thread close in reverse order of opening,
//! which nested calls do by themselves.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Choice, Environment, Problem, SelectError, Spelling, coverage};

/// One executed operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Executed {
    /// Operation.
    pub op: &'static str,
    /// Scalar type.
    pub dtype: String,
    /// Device.
    pub device: String,
    /// Selection key: field names and values.
    pub key: Vec<(&'static str, String)>,
    /// The pin that was asked for.
    pub asked: String,
    /// What ran.
    pub spelling: Spelling,
    /// The choice it was launched from; its spelling differs where a launch fell back.
    pub choice: Choice,
    /// Operations that ran inside it, in order of completion.
    pub children: Vec<Executed>,
}

impl Executed {
    /// Distance of the table row that decided; `None` where none did.
    #[must_use]
    pub fn distance(&self) -> Option<f64> {
        self.choice.why.ranking().map(|ranking| ranking.distance)
    }

    /// This record and everything below it as indented lines.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut out = String::new();
        self.write_lines(&mut out, 0);
        out
    }

    fn write_lines(&self, out: &mut String, depth: usize) {
        let key: Vec<String> = self.key.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut line = format!(
            "batchlas: {:indent$}{} {} {} {} asked={} ran={}",
            "",
            self.op,
            self.dtype,
            self.device,
            key.join(" "),
            self.asked,
            self.spelling,
            indent = 2 * depth
        );
        let mut add = |part: String| line.push_str(&part);
        if self.spelling != self.choice.spelling {
            add(format!(" instead of {}", self.choice.spelling));
        }
        add(format!(" ({})", self.choice.why));
        for (skipped, refusal) in &self.choice.skipped {
            add(format!("; skipped {skipped}: {refusal}"));
        }
        for warning in &self.choice.warnings {
            add(format!("; warning: {warning}"));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{line}");
        for child in &self.children {
            child.write_lines(out, depth + 1);
        }
    }
}

/// Receives records in the same process: how tests and benchmarks prove what ran.
pub trait Recorder: Send + Sync {
    /// Called once for each outermost operation, after it was launched.
    fn executed(&self, record: &Executed);
}

impl Recorder for Mutex<Vec<Executed>> {
    fn executed(&self, record: &Executed) {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
    }
}

/// A text sink shared by threads.
type Sink = Mutex<Box<dyn Write + Send>>;

/// Where records go.
#[derive(Default)]
pub struct Observer {
    recorder: Option<Arc<dyn Recorder>>,
    lines: Option<Sink>,
    coverage: Option<Sink>,
    warned: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("recorder", &self.recorder.is_some())
            .field("lines", &self.lines.is_some())
            .field("coverage", &self.coverage.is_some())
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// The observer that the environment asks for: `BATCHLAS_SELECT_TRACE`, `BATCHLAS_COVERAGE_OUT`.
    ///
    /// # Errors
    /// [`SelectError::File`] if the coverage file cannot be opened for appending.
    pub fn from_environment(environment: &Environment) -> Result<Self, SelectError> {
        let mut observer = Self::default();
        if environment.get("BATCHLAS_SELECT_TRACE") == Some("1") {
            observer = observer.with_lines(std::io::stderr());
        }
        if let Some(file) = environment.get("BATCHLAS_COVERAGE_OUT") {
            let opened = OpenOptions::new().create(true).append(true).open(file);
            let failed = |error: std::io::Error| SelectError::File {
                file: file.to_owned(),
                what: format!("cannot append coverage: {error}"),
            };
            observer = observer.with_coverage(opened.map_err(failed)?);
        }
        Ok(observer)
    }

    /// Also hands each record to `recorder`.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Also writes a line for each executed operation.
    #[must_use]
    pub fn with_lines(mut self, sink: impl Write + Send + 'static) -> Self {
        self.lines = Some(Mutex::new(Box::new(sink)));
        self
    }

    /// Also writes a coverage row (a JSON line) for each executed operation.
    #[must_use]
    pub fn with_coverage(mut self, sink: impl Write + Send + 'static) -> Self {
        self.coverage = Some(Mutex::new(Box::new(sink)));
        self
    }

    fn is_active(&self) -> bool {
        self.recorder.is_some() || self.lines.is_some() || self.coverage.is_some()
    }

    /// Opens the scope of an operation that is about to launch `choice`. Warnings are logged, each once.
    pub fn begin<'a>(&'a self, problem: &'a Problem<'a>, choice: &'a Choice) -> Scope<'a> {
        for warning in &choice.warnings {
            let text = format!("{} {}: {warning}", problem.vocabulary.op, problem.dtype);
            if self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
                tracing::warn!("{text}");
            }
        }
        let active = self.is_active();
        if active {
            OPEN.with_borrow_mut(|open| open.push(Vec::new()));
        }
        Scope { observer: self, problem, choice, active, ran: None, thread: PhantomData }
    }

    fn emit(&self, record: &Executed) {
        if let Some(recorder) = &self.recorder {
            recorder.executed(record);
        }
        if let Some(sink) = &self.lines {
            write_all(sink, &record.lines(), "trace");
        }
        if let Some(sink) = &self.coverage {
            write_all(sink, &coverage::to_json_lines(record), "coverage");
        }
    }
}

/// One write per record, so that lines of concurrent threads and processes do not mix.
fn write_all(sink: &Sink, text: &str, what: &str) {
    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = sink.write_all(text.as_bytes()).and_then(|()| sink.flush()) {
        tracing::warn!("cannot write {what}: {error}");
    }
}

thread_local! {
    /// The open scopes of this thread, innermost last: the children each has collected.
    static OPEN: RefCell<Vec<Vec<Executed>>> = const { RefCell::new(Vec::new()) };
}

/// An operation between its choice and its launch. Bound to its thread.
#[derive(Debug)]
#[must_use = "an unmarked scope records nothing"]
pub struct Scope<'a> {
    observer: &'a Observer,
    problem: &'a Problem<'a>,
    choice: &'a Choice,
    active: bool,
    ran: Option<Spelling>,
    thread: PhantomData<*const ()>,
}

impl Scope<'_> {
    /// The chosen candidate was launched.
    pub fn executed(self) {
        let chosen = self.choice.spelling;
        self.executed_as(chosen);
    }

    /// Another candidate was launched instead, because the chosen one was refused at launch.
    pub fn executed_as(mut self, spelling: Spelling) {
        self.ran = Some(spelling);
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if !self.active {
            return;
        }
        let children = OPEN.with_borrow_mut(Vec::pop).unwrap_or_default();
        let records = match self.ran {
            None => children,
            Some(spelling) => vec![Executed {
                op: self.problem.vocabulary.op,
                dtype: self.problem.dtype.to_owned(),
                device: self.problem.device.to_string(),
                key: self.problem.vocabulary.key_values(self.problem.key).collect(),
                asked: self.choice.asked.pin.to_string(),
                spelling,
                choice: self.choice.clone(),
                children,
            }],
        };
        let outermost = OPEN.with_borrow_mut(|open| match open.last_mut() {
            Some(parent) => {
                parent.extend(records);
                None
            }
            None => Some(records),
        });
        for record in outermost.into_iter().flatten() {
            self.observer.emit(&record);
        }
    }
}
