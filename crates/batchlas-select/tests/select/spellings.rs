//! Spellings and vocabularies.

use batchlas_select::{Candidate, Class, Knob, Retired, SelectError, Value, Values, Vocabulary};

use crate::ops::{ALL, POTRF, native, spelled};

#[test]
fn long_and_short_forms_are_one_spelling() {
    for (given, canonical) in [
        ("tiny", "tiny"),
        (" cta ", "cta"),
        ("lpanel:panel=8", "lpanel:panel=8"),
        ("lpanel:8", "lpanel:panel=8"),
        ("tiny:16", "tiny:lanes=16"),
        ("tiny:016", "tiny:lanes=16"),
        ("tiny:16:column", "tiny:lanes=16:order=column"),
        ("tiny:order=column:lanes=16", "tiny:lanes=16:order=column"),
        ("tiny:order=row", "tiny:order=row"),
        ("blocked:nb=96", "blocked:nb=96"),
    ] {
        let spelling = spelled(&POTRF, given);
        assert_eq!(spelling.to_string(), canonical, "{given}");
        assert_eq!(spelled(&POTRF, canonical), spelling);
    }
    assert_ne!(spelled(&POTRF, "lpanel:8"), spelled(&POTRF, "lpanel:16"));
    assert_ne!(spelled(&POTRF, "tiny"), spelled(&POTRF, "cta"));
}

#[test]
fn knobs_are_read_by_name() {
    let spelling = spelled(&POTRF, "tiny:16:row");
    assert_eq!((spelling.family(), spelling.class()), ("tiny", Class::Native));
    assert_eq!((spelling.int("lanes"), spelling.int("order")), (Some(16), None));
    assert_eq!(spelling.knob("order"), Some(Value::Word("row")));
    assert_eq!((spelling.knob("panel"), spelled(&POTRF, "tiny").int("lanes")), (None, None));
    assert_eq!(spelled(&POTRF, "vendor").class(), Class::Vendor);
}

#[test]
fn bad_spellings_say_what_is_valid() {
    for (given, what) in [
        ("", "no family ''"),
        ("small", "no family 'small'"),
        ("Tiny", "no family 'Tiny'"),
        ("tiny:lanes=12", "knob 'lanes' is '12', expected one of 8|16|32"),
        ("tiny:lanes=+8", "knob 'lanes' is '+8'"),
        ("tiny:lanes=", "knob 'lanes' is ''"),
        ("tiny:width=8", "no knob 'width'"),
        ("tiny:8:lanes=8", "knob 'lanes' is given twice"),
        ("tiny:8:row:1", "tiny takes 2 knobs"),
        ("cta:8", "cta takes 0 knobs"),
        ("lpanel:", "knob 'panel' is ''"),
        ("blocked:nb=48", "expected one of 32..128 step 32"),
        ("blocked:nb=160", "expected one of 32..128 step 32"),
        ("tiny:order=diagonal", "expected one of row|column"),
        ("native", "no family 'native'"),
    ] {
        let error = POTRF.spelling(given).unwrap_err();
        assert!(matches!(error, SelectError::Spelling { op: "potrf", .. }), "{given}");
        let message = error.to_string();
        assert!(message.contains(what), "{given}: {message}");
        assert!(
            message.ends_with(
                "valid are: tiny[:lanes=8|16|32][:order=row|column], cta, lpanel:panel=8|16, blocked[:nb=32..128 step 32], vendor"
            ),
            "{message}"
        );
    }
}

#[test]
fn candidates_expand_in_tie_break_order() {
    let all: Vec<String> = POTRF.spellings().map(|spelling| spelling.to_string()).collect();
    assert_eq!(all, ["tiny", "cta", "lpanel:panel=8", "lpanel:panel=16", "blocked", "vendor"]);
}

#[test]
fn a_required_knob_is_required() {
    static BARE: Vocabulary = Vocabulary { retired: &[], ..POTRF };
    let message = BARE.spelling("lpanel").unwrap_err().to_string();
    assert!(message.contains("lpanel needs knob 'panel'"), "{message}");
}

#[test]
fn the_vocabularies_are_consistent() {
    for vocabulary in ALL {
        assert_eq!(vocabulary.check(), Ok(()));
    }
}

#[test]
fn inconsistent_vocabularies_are_found() {
    const BASE: Vocabulary =
        Vocabulary { op: "op", candidates: &[], last_resort: &[], retired: &[], exact: &[], log: &[] };
    const fn knob(values: Values) -> Knob {
        Knob { name: "k", values, required: true }
    }
    static BAD: [(&str, Vocabulary); 12] = [
        ("'a' is not", Vocabulary { candidates: &[native("a"), native("a")], ..BASE }),
        ("'A' is not", Vocabulary { candidates: &[native("A")], ..BASE }),
        ("'n' is not", Vocabulary { log: &[crate::ops::POTRF.log[0], crate::ops::POTRF.log[0]], ..BASE }),
        ("'auto' collides", Vocabulary { candidates: &[native("auto")], ..BASE }),
        ("'vendor' collides", Vocabulary { candidates: &[native("vendor")], ..BASE }),
        (
            "no legal values",
            Vocabulary {
                candidates: &[Candidate { knobs: &[knob(Values::OneOf(&[]))], ..native("a") }],
                ..BASE
            },
        ),
        (
            "has 7 knobs",
            Vocabulary {
                candidates: &[Candidate { knobs: &[knob(Values::OneOf(&[1])); 7], ..native("a") }],
                ..BASE
            },
        ),
        (
            "knob 'k' is not",
            Vocabulary {
                candidates: &[Candidate { knobs: &[knob(Values::OneOf(&[1])); 2], ..native("a") }],
                ..BASE
            },
        ),
        ("last resort 'b'", Vocabulary { candidates: &[native("a")], last_resort: &["b"], ..BASE }),
        (
            "'b', which replaces 'c', is not",
            Vocabulary {
                candidates: &[native("a")],
                retired: &[Retired { alias: "c", instead: "b" }],
                ..BASE
            },
        ),
        (
            "'a' is a candidate",
            Vocabulary {
                candidates: &[native("a"), native("b")],
                retired: &[Retired { alias: "a", instead: "b" }],
                ..BASE
            },
        ),
        (
            "weight of n is 0",
            Vocabulary { log: &[batchlas_select::LogField { name: "n", weight: 0.0 }], ..BASE },
        ),
    ];
    let missed: Vec<(&str, _)> = BAD
        .iter()
        .map(|(what, vocabulary)| (*what, vocabulary.check()))
        .filter(|(what, found)| !found.as_ref().is_err_and(|error| error.to_string().contains(what)))
        .collect();
    assert_eq!(missed, []);
}

#[test]
fn keys_are_checked() {
    for (exact, log, what) in [
        (&["L"][..], &[17][..], "1 exact and 1 log values, expected 1 and 2"),
        (&[], &[17, 4], "0 exact and 2 log values"),
        (&["lower"], &[17, 4], "uplo is 'lower', expected one of: L, U"),
        (&["L"], &[17, 0], "batch is 0, expected at least 1"),
    ] {
        let message = POTRF.key(exact, log).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
    let key = POTRF.key(&["U"], &[17, 4]).unwrap();
    assert_eq!(POTRF.describe(&key), "uplo=U n=17 batch=4");
}
