//! Pins: parsing, precedence, errors and degradation.

use batchlas_select::{Asked, AskedBy, Class, Environment, Pin, SelectError, Selector, Warning, Why};

use crate::ops::{ALL, Call, POSV, POTRF, TRSM, file, set, spelled};

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().copied().collect()
}

#[test]
fn pins_parse() {
    for (text, pin) in [
        ("auto", Pin::Auto),
        ("native", Pin::Native),
        ("vendor", Pin::Vendor),
        (" lpanel:8 ", Pin::Exact(spelled(&POTRF, "lpanel:panel=8"))),
    ] {
        assert_eq!(POTRF.pin(text), Ok(pin));
        assert_eq!(POTRF.pin(&pin.to_string()), Ok(pin), "a pin parses back from its text");
    }
    let message = POTRF.pin("fast").unwrap_err().to_string();
    assert!(message.contains("valid are: auto, native, vendor, tiny[:lanes"), "{message}");
}

#[test]
fn every_retired_alias_is_refused_with_advice() {
    let mut seen = 0;
    for (vocabulary, aliases) in [
        (&POTRF, &["native:tiny", "native:cta", "native:lpanel", "native:blocked", "lpanel"][..]),
        (&POSV, &["native:tiny", "native:cta", "native:blocked"]),
    ] {
        for alias in aliases {
            let error = vocabulary.pin(alias).unwrap_err();
            assert!(matches!(error, SelectError::Retired { .. }), "{alias}: {error}");
            let message = error.to_string();
            assert!(message.contains("is retired, use '") && message.contains("auto, native, vendor, tiny"));
            let variable = vocabulary.route_variable();
            let from_environment = environment(&[(&variable, alias)]);
            assert!(Asked::resolve(vocabulary, None, &from_environment).is_err());
            seen += 1;
        }
    }
    assert_eq!(seen, 8);
}

#[test]
fn the_caller_wins_over_the_environment() {
    let resolve = |caller, pairs: &[(&str, &str)]| Asked::resolve(&POTRF, caller, &environment(pairs));
    let nobody = Asked { pin: Pin::Auto, by: AskedBy::Nobody };
    assert_eq!(resolve(None, &[]), Ok(nobody));
    assert_eq!(resolve(None, &[("BATCHLAS_POTRF_ROUTE", " ")]), Ok(nobody), "blank is unset");
    assert_eq!(resolve(None, &[("BATCHLAS_POSV_ROUTE", "nonsense")]), Ok(nobody), "another operation's");
    assert_eq!(
        resolve(None, &[("BATCHLAS_POTRF_ROUTE", "vendor")]),
        Ok(Asked { pin: Pin::Vendor, by: AskedBy::Environment })
    );
    let auto = Asked { pin: Pin::Auto, by: AskedBy::Caller };
    for in_environment in ["vendor", "nonsense"] {
        assert_eq!(resolve(Some(Pin::Auto), &[("BATCHLAS_POTRF_ROUTE", in_environment)]), Ok(auto));
    }
    let message = resolve(None, &[("BATCHLAS_POTRF_ROUTE", "nonsense")]).unwrap_err().to_string();
    assert!(message.starts_with("BATCHLAS_POTRF_ROUTE: potrf: 'nonsense' is not"), "{message}");
}

#[test]
fn route_variables() {
    assert_eq!(
        ALL.map(|vocabulary| vocabulary.route_variable()),
        ["BATCHLAS_TRSM_ROUTE", "BATCHLAS_POTRF_ROUTE", "BATCHLAS_POSV_ROUTE"]
    );
}

/// Only the project's own variables are kept, and the process snapshot is one of them.
#[test]
fn the_environment_is_a_snapshot() {
    let kept = environment(&[("PATH", "/bin"), ("BATCHLAS_TUNED_DIR", " here ")]);
    assert_eq!((kept.get("PATH"), kept.get("BATCHLAS_TUNED_DIR")), (None, Some("here")));
    assert_eq!(Environment::process().get("PATH"), None);
    assert!(std::ptr::eq(Environment::process(), Environment::process()));
}

#[test]
fn an_exact_pin_runs_or_fails() {
    let tables = set([file(
        &POTRF,
        "f32",
        "sm_90",
        &["key = ['L', 32, 128], ranking = ['tiny', 'vendor'], source = 'measured'"],
    )]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    call.pin = POTRF.pin("cta").unwrap();
    let choice = call.choose().unwrap();
    assert_eq!((choice.spelling, choice.why), (spelled(&POTRF, "cta"), Why::Pinned));

    call.refuse = &["cta"];
    let error = call.choose().unwrap_err();
    assert!(matches!(error, SelectError::PinCannotRun { .. }));
    let message = error.to_string();
    for part in [
        "'cta' cannot run f32 sm_90 uplo=L n=32 batch=128",
        "cta is refused here",
        "spellings are: auto, native",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_vendor_free_build_refuses_a_vendor_spelling() {
    let tables = set([]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    call.pin = Pin::Exact(spelled(&POTRF, "vendor"));
    assert_eq!(call.picks(), "vendor");
    call.vendor_free = true;
    let message = call.choose().unwrap_err().to_string();
    assert!(message.contains("this build has no vendor libraries"), "{message}");
}

#[test]
fn class_pins_choose_within_their_class() {
    let tables = set([file(
        &POTRF,
        "f32",
        "sm_90",
        &["key = ['L', 32, 128], ranking = ['vendor', 'cta', 'tiny'], source = 'measured'"],
    )]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    for (pin, refuse, expected, limited_to) in [
        (Pin::Auto, &[][..], "vendor", None),
        (Pin::Native, &[], "cta", Some(Class::Native)),
        (Pin::Native, &["cta"], "tiny", Some(Class::Native)),
        (Pin::Native, &["cta", "tiny"], "blocked", Some(Class::Native)),
        (Pin::Native, &["cta", "tiny", "blocked"], "lpanel:panel=8", Some(Class::Native)),
        (Pin::Vendor, &[], "vendor", Some(Class::Vendor)),
    ] {
        (call.pin, call.refuse) = (pin, refuse);
        let choice = call.choose().unwrap();
        assert_eq!((choice.spelling.to_string().as_str(), choice.limited_to), (expected, limited_to));
        assert_eq!(choice.warnings, []);
    }
}

#[test]
fn class_pins_that_match_nothing_degrade_with_a_warning() {
    let tables = set([file(
        &POTRF,
        "f32",
        "sm_90",
        &["key = ['L', 32, 128], ranking = ['tiny', 'vendor'], source = 'measured'"],
    )]);
    let mut call = Call::new(&POTRF, &tables, &["L"], &[32, 128]);
    let natives = ["tiny", "cta", "lpanel", "blocked"];
    for (pin, refuse, vendor_free, expected, class_is_empty) in [
        (Pin::Vendor, &["vendor"][..], false, "tiny", false),
        (Pin::Native, &natives, false, "vendor", false),
        (Pin::Vendor, &[], true, "tiny", true),
    ] {
        (call.pin, call.refuse, call.vendor_free) = (pin, refuse, vendor_free);
        let choice = call.choose().unwrap();
        assert_eq!(choice.spelling.to_string(), expected);
        assert_eq!(choice.warnings, [Warning::PinDegraded { pin, class_is_empty }]);
        assert_eq!(choice.limited_to, vendor_free.then_some(Class::Native));
        assert!(choice.warnings[0].to_string().contains("choosing automatically"));
    }
}

/// posv has no vendor family: `native` is what is chosen anyway, `vendor` is that with a warning.
#[test]
fn an_operation_without_a_vendor_family() {
    let tables = set([file(
        &POSV,
        "f32",
        "sm_90",
        &["key = ['L', 8, 1, 128], ranking = ['cta', 'tiny'], source = 'measured'"],
    )]);
    let mut call = Call::new(&POSV, &tables, &["L"], &[8, 1, 128]);
    let auto = call.choose().unwrap();
    assert_eq!((auto.spelling.to_string().as_str(), auto.warnings.len()), ("cta", 0));
    call.pin = Pin::Native;
    let native = call.choose().unwrap();
    assert_eq!((native.spelling, native.warnings.len()), (auto.spelling, 0));
    call.pin = Pin::Vendor;
    let vendor = call.choose().unwrap();
    assert_eq!(vendor.spelling, auto.spelling);
    assert_eq!(vendor.warnings, [Warning::PinDegraded { pin: Pin::Vendor, class_is_empty: true }]);
}

/// Tuning variables of a driver do not reach selection, whatever they hold.
#[test]
fn driver_variables_are_not_read() {
    let choose = |pairs: &[(&str, &str)]| {
        let selector = Selector { environment: environment(pairs), ..Selector::default() };
        let call = Call::new(&POTRF, &selector.tables, &["L"], &[512, 128]);
        selector.choose(&call.problem(), None, |_| Ok(())).unwrap()
    };
    let plain = choose(&[]);
    assert_eq!(choose(&[("BATCHLAS_POTRF_NB", "nonsense"), ("BATCHLAS_POTRF_W", "-1")]), plain);
    assert_ne!(choose(&[("BATCHLAS_POTRF_ROUTE", "cta")]), plain);
}

#[test]
fn the_selector_honours_the_environment_pin_and_the_caller() {
    let environment = environment(&[("BATCHLAS_TRSM_ROUTE", "sg_left")]);
    let selector = Selector { environment, ..Selector::default() };
    let call = Call::new(&TRSM, &selector.tables, &["left", "N"], &[32, 8, 128]);
    let pick = |pin| selector.choose(&call.problem(), pin, |_| Ok(())).unwrap();
    assert_eq!((pick(None).spelling.family(), pick(None).asked.by), ("sg_left", AskedBy::Environment));
    let pinned = pick(Some(TRSM.pin("cta").unwrap()));
    assert_eq!((pinned.spelling.family(), pinned.asked.by), ("cta", AskedBy::Caller));
}

/// A selector made from the environment reads tables, coverage file and build kind from where it was told.
#[test]
fn a_selector_is_made_from_the_environment() {
    let root = std::env::temp_dir().join(format!("batchlas-selector-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let (name, text) = file(
        &POTRF,
        "f32",
        "sm_90",
        &["key = ['L', 8, 8], ranking = ['vendor', 'cta'], source = 'measured'"],
    );
    std::fs::write(root.join(name), text).unwrap();
    let (tables, coverage) = (root.display().to_string(), root.join("run.jsonl").display().to_string());
    for (vendor_free, expected) in [(false, "vendor"), (true, "cta")] {
        let environment =
            environment(&[("BATCHLAS_TUNED_DIR", &tables), ("BATCHLAS_COVERAGE_OUT", &coverage)]);
        let selector = Selector::new(&ALL, &[], environment, vendor_free).unwrap();
        let call = Call::new(&POTRF, &selector.tables, &["L"], &[8, 8]);
        let choice = selector.choose(&call.problem(), None, |_| Ok(())).unwrap();
        assert_eq!(choice.spelling.to_string(), expected);
        selector.observer.begin(&call.problem(), &choice).executed();
    }
    assert_eq!(batchlas_select::coverage::read(coverage.as_ref()).unwrap().len(), 2);
    std::fs::remove_dir_all(&root).unwrap();
}
