//! The trace records what ran; coverage rows and their difference.

use std::io::Write;
use std::sync::{Arc, Mutex};

use batchlas_select::coverage::{self, route_diff};
use batchlas_select::{Device, Environment, Executed, Observer, Pin, SelectError};

use crate::ops::{Call, POSV, POTRF, TRSM, file, set, spelled};

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn get(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn recorded() -> (Observer, Arc<Mutex<Vec<Executed>>>) {
    let records = Arc::new(Mutex::new(Vec::new()));
    (Observer::default().with_recorder(records.clone()), records)
}

/// Runs a posv with a potrf and two trsm inside, as its blocked family would.
fn solve(observer: &Observer, outer_launch_succeeds: bool) {
    let tables = set([]);
    let posv = Call::new(&POSV, &tables, &["L"], &[64, 2, 128]);
    let potrf = Call::new(&POTRF, &tables, &["L"], &[64, 128]);
    let trsm = Call::new(&TRSM, &tables, &["left", "N"], &[64, 2, 128]);
    let (problem, choice) = (posv.problem(), posv.choose().unwrap());
    let outer = observer.begin(&problem, &choice);
    for inner in [&potrf, &trsm, &trsm] {
        let (problem, choice) = (inner.problem(), inner.choose().unwrap());
        observer.begin(&problem, &choice).executed();
    }
    if outer_launch_succeeds {
        outer.executed();
    }
}

fn ops(records: &[Executed]) -> Vec<&'static str> {
    records.iter().map(|record| record.op).collect()
}

#[test]
fn children_are_recorded_inside_their_parent() {
    let (observer, records) = recorded();
    solve(&observer, true);
    let records = records.lock().unwrap();
    assert_eq!(ops(&records), ["posv"]);
    assert_eq!(ops(&records[0].children), ["potrf", "trsm", "trsm"]);
    assert!(records[0].children.iter().all(|child| child.children.is_empty()));
}

#[test]
fn a_launch_that_failed_leaves_only_what_did_run() {
    let (observer, records) = recorded();
    solve(&observer, false);
    assert_eq!(ops(&records.lock().unwrap()), ["potrf", "trsm", "trsm"]);
    solve(&observer, true);
    assert_eq!(ops(&records.lock().unwrap()), ["potrf", "trsm", "trsm", "posv"], "no scope was left open");
}

/// A choice proves nothing: without a launch there is no record, and a fallback is recorded as what ran.
#[test]
fn what_ran_is_recorded_not_what_was_asked() {
    let (observer, records) = recorded();
    let tables = set([]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[64, 128]);
    call.pin = Pin::Exact(spelled(&POTRF, "cta"));
    let (problem, choice) = (call.problem(), call.choose().unwrap());
    drop(observer.begin(&problem, &choice));
    assert_eq!(records.lock().unwrap().len(), 0);

    observer.begin(&problem, &choice).executed_as(spelled(&POTRF, "lpanel:8"));
    let records = records.lock().unwrap();
    let record = &records[0];
    assert_eq!(record.spelling.to_string(), "lpanel:panel=8");
    assert_eq!((record.asked.as_str(), record.choice.spelling.to_string().as_str()), ("cta", "cta"));
    assert_eq!(record.key, [("uplo", "L".to_owned()), ("n", "64".to_owned()), ("batch", "128".to_owned())]);
    assert!(
        record.lines().contains("asked=cta ran=lpanel:panel=8 instead of cta (pinned)"),
        "{}",
        record.lines()
    );
    assert!(coverage::to_json_lines(record).contains(r#""chosen_algo":"lpanel:panel=8""#));
}

#[test]
fn each_decision_is_one_line_with_its_children_below() {
    let text = Text::default();
    let observer = Observer::default().with_lines(text.clone());
    let tables = set([file(
        &POTRF,
        "f32",
        "sm_89",
        &["key = ['L', 32, 128], ranking = ['tiny', 'cta'], source = 'transcribed:8b9adeb3'"],
    )]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[64, 128]);
    call.refuse = &["tiny"];
    let (problem, choice) = (call.problem(), call.choose().unwrap());
    observer.begin(&problem, &choice).executed();
    assert_eq!(
        text.get(),
        "batchlas: potrf f32 sm_90 uplo=L n=64 batch=128 asked=auto ran=cta (rank 1 of potrf.f32.sm_89.toml:8, \
         transcribed:8b9adeb3, distance 3.000 (extrapolated), borrowed from sm_89); skipped tiny: tiny is refused \
         here; warning: no table for sm_90, using that of sm_89\n"
    );
    solve(&observer, true);
    let indents: Vec<usize> = text
        .get()
        .lines()
        .map(|line| line.len() - "batchlas: ".len())
        .zip(text.get().lines().map(|line| line["batchlas: ".len()..].trim_start().len()))
        .map(|(all, trimmed)| all - trimmed)
        .collect();
    assert_eq!(indents, [0, 0, 2, 2, 2]);
}

#[test]
fn the_environment_switches_the_sinks() {
    let path = std::env::temp_dir().join(format!("batchlas-coverage-{}.jsonl", std::process::id()));
    let observer =
        |pairs: &[(&str, &str)]| Observer::from_environment(&pairs.iter().copied().collect::<Environment>());
    let describe = |pairs: &[(&str, &str)]| format!("{:?}", observer(pairs).unwrap());
    assert!(describe(&[]).contains("lines: false, coverage: false"));
    assert!(describe(&[("BATCHLAS_SELECT_TRACE", "1")]).contains("lines: true, coverage: false"));
    assert!(describe(&[("BATCHLAS_SELECT_TRACE", "0")]).contains("lines: false"));

    let out = path.display().to_string();
    for _ in 0..2 {
        solve(&observer(&[("BATCHLAS_COVERAGE_OUT", &out)]).unwrap(), true);
    }
    let rows = coverage::read(&path).unwrap();
    assert_eq!(rows.len(), 8, "appended, children included");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(coverage::read(&path), Err(SelectError::File { .. })));
    let nowhere = observer(&[("BATCHLAS_COVERAGE_OUT", "/nonexistent/coverage.jsonl")]);
    assert!(nowhere.unwrap_err().to_string().starts_with("/nonexistent/coverage.jsonl: cannot append"));
}

fn coverage_of(run: impl FnOnce(&Observer)) -> Vec<coverage::Row> {
    let text = Text::default();
    run(&Observer::default().with_coverage(text.clone()));
    coverage::parse("run", &text.get()).unwrap()
}

#[test]
fn coverage_rows_carry_the_path_and_what_ran() {
    let rows = coverage_of(|observer| solve(observer, true));
    let paths: Vec<(&str, &str)> =
        rows.iter().map(|row| (row.cell.path.as_str(), row.chosen_algo.as_str())).collect();
    assert_eq!(
        paths,
        [("posv", "blocked"), ("posv/potrf", "blocked"), ("posv/trsm", "blocked"), ("posv/trsm", "blocked")]
    );
    assert_eq!(rows[0].cell.to_string(), "posv f32 sm_90 batch=128 n=64 nrhs=2 uplo=L");
    assert_eq!(
        (rows[0].asked.as_str(), rows[0].why.as_str(), rows[0].distance),
        ("auto", "last resort", None)
    );
    assert_eq!(rows[0].warnings, ["no table for sm_90, choosing by last resort"]);
}

#[test]
fn coverage_records_the_distance() {
    let tables = set([file(
        &POTRF,
        "f32",
        "sm_90",
        &["key = ['L', 32, 128], ranking = ['cta'], source = 'measured'"],
    )]);
    for (n, distance) in [(32, 0.0), (64, 3.0)] {
        let rows = coverage_of(|observer| {
            let call = Call::new(&POTRF, &tables, &["L"], &[n, 128]);
            let (problem, choice) = (call.problem(), call.choose().unwrap());
            observer.begin(&problem, &choice).executed();
        });
        assert_eq!(rows[0].distance, Some(distance));
    }
}

#[test]
fn a_bad_coverage_row_names_its_line() {
    let error = coverage::parse("run.jsonl", "\n{}\n").unwrap_err();
    assert!(error.to_string().starts_with("run.jsonl:2: not a coverage row"), "{error}");
}

#[test]
fn runs_are_compared_cell_by_cell() {
    let tables = set([]);
    let run = |cells: &[(u64, &str)]| {
        coverage_of(|observer| {
            for (n, spelling) in cells {
                let mut call = Call::new(&POTRF, &tables, &["L"], &[*n, 128]);
                call.pin = Pin::Exact(spelled(&POTRF, spelling));
                let (problem, choice) = (call.problem(), call.choose().unwrap());
                observer.begin(&problem, &choice).executed();
            }
        })
    };
    let a = run(&[(8, "tiny"), (16, "tiny"), (32, "cta"), (32, "tiny"), (64, "cta")]);
    let b = run(&[(8, "tiny"), (8, "tiny"), (16, "cta"), (32, "tiny"), (32, "cta"), (128, "vendor")]);
    let diff = route_diff(&a, &b);
    assert_eq!((diff.same, diff.changed.len(), diff.only_a.len(), diff.only_b.len()), (2, 1, 1, 1));
    assert_eq!(
        diff.to_string(),
        "potrf f32 sm_90 batch=128 n=16 uplo=L: tiny -> cta\n\
         potrf f32 sm_90 batch=128 n=64 uplo=L: only in the first run\n\
         potrf f32 sm_90 batch=128 n=128 uplo=L: only in the second run\n\
         2 cells are the same\n"
    );
    assert!(!diff.is_empty() && route_diff(&a, &a).is_empty());
}

/// A warning is logged once per observer, however often the call is made.
#[test]
fn warnings_are_logged_once() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);
    struct Message<'a>(&'a mut Vec<String>);
    impl tracing::field::Visit for Message<'_> {
        fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            self.0.push(format!("{value:?}"));
        }
    }
    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut Message(&mut self.0.lock().unwrap()));
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    let log = Log::default();
    let tables = set([]);
    let observer = Observer::default();
    tracing::subscriber::with_default(log.clone(), || {
        for device in [Device::Sm(90), Device::Sm(90), Device::Cpu] {
            let mut call = Call::new(&POTRF, &tables, &["L"], &[64, 128]);
            call.device = device;
            let (problem, choice) = (call.problem(), call.choose().unwrap());
            observer.begin(&problem, &choice).executed();
        }
    });
    let logged = log.0.lock().unwrap();
    assert_eq!(
        *logged,
        [
            "potrf f32: no table for sm_90, choosing by last resort",
            "potrf f32: no table for cpu, choosing by last resort"
        ]
    );
}
