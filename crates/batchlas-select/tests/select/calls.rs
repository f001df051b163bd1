//! A routed call: what a refused kernel gives way to.

use std::cell::RefCell;
use std::sync::Arc;

use batchlas_core::{ArgumentError, Device, Dtype, Error, QueueError, Ran};
use batchlas_select::{Call, Pin, Selector};

use crate::ops::{POTRF, file, set, spelled};

fn refused(entry: &str) -> Error {
    QueueError::Refused { entry: entry.to_owned(), source: Arc::new(std::fmt::Error) }.into()
}

/// Runs a potrf of which the spellings in `broken` are refused at launch; what was tried, with how many refused before.
fn run(pin: Option<Pin>, broken: &[&str]) -> (Result<Ran, Error>, Vec<(String, usize)>) {
    let row = "key = ['L', 16, 128], ranking = ['tiny:lanes=32', 'cta', 'vendor'], source = 'measured'";
    let selector = Selector { tables: set([file(&POTRF, "f32", "cpu", &[row])]), ..Selector::default() };
    let (device, key) = (Device::cpu(1), POTRF.key(&["L"], &[16, 128]).unwrap());
    let call =
        Call { selector: &selector, vocabulary: &POTRF, dtype: Dtype::F32, device: &device, key: &key, pin };
    let tried = RefCell::new(Vec::new());
    let ran = call.run(
        |_| Ok(()),
        |family, refusals| {
            tried.borrow_mut().push((family.to_string(), refusals.len()));
            match broken.contains(&family.to_string().as_str()) {
                true => Err(refused("kernel")),
                false => Ok(Ran::leaf("potrf", family.to_string())),
            }
        },
    );
    (ran, tried.into_inner())
}

fn named(tried: &[(&str, usize)]) -> Vec<(String, usize)> {
    tried.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_refused_kernel_gives_way_to_the_next_choice() {
    let (ran, tried) = run(None, &[]);
    assert_eq!((ran.unwrap().family.as_ref(), tried), ("tiny:lanes=32", named(&[("tiny:lanes=32", 0)])));
    let (ran, tried) = run(None, &["tiny:lanes=32", "tiny"]);
    assert_eq!(ran.unwrap().family, "cta");
    assert_eq!(tried, named(&[("tiny:lanes=32", 0), ("tiny", 1), ("cta", 2)]));
}

#[test]
fn an_exact_pin_has_nothing_to_give_way_to() {
    let (ran, tried) = run(Some(Pin::Exact(spelled(&POTRF, "cta"))), &["cta"]);
    assert_eq!(tried, named(&[("cta", 0)]));
    let error = ran.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(ArgumentError::Pin(_))), "{error}");
    assert!(error.to_string().contains("kernel `kernel` is refused"), "{error}");
}

#[test]
fn when_all_are_refused_the_error_names_each_once() {
    let mut everything: Vec<String> = POTRF.spellings().map(|spelling| spelling.to_string()).collect();
    everything.push("tiny:lanes=32".to_owned());
    let everything: Vec<&str> = everything.iter().map(String::as_str).collect();
    let (ran, tried) = run(None, &everything);
    assert_eq!(tried.len(), everything.len(), "each is tried once: {tried:?}");
    let error = ran.unwrap_err().to_string();
    assert!(everything.iter().all(|name| error.contains(name)), "{error}");
}
