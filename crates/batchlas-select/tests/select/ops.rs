//! Vocabularies shaped like those of the operations, and a few rows to select from.

use batchlas_select::{
    Asked, AskedBy, Candidate, Choice, Class, Device, ExactField, Key, Knob, LogField, Pin, Problem, Refusal,
    Retired, SelectError, Spelling, Tables, Values, Vocabulary, choose,
};

pub(crate) const fn native(family: &'static str) -> Candidate {
    Candidate { family, class: Class::Native, knobs: &[] }
}

const VENDOR: Candidate = Candidate { family: "vendor", class: Class::Vendor, knobs: &[] };
const UPLO: ExactField = ExactField { name: "uplo", values: &["L", "U"] };

const fn log(name: &'static str, weight: f64) -> LogField {
    LogField { name, weight }
}

pub(crate) static TRSM: Vocabulary = Vocabulary {
    op: "trsm",
    candidates: &[native("cta"), native("sg_left"), native("blocked"), VENDOR],
    last_resort: &["blocked", "vendor"],
    retired: &[],
    exact: &[
        ExactField { name: "side", values: &["left", "right"] },
        ExactField { name: "trans", values: &["N", "T"] },
    ],
    log: &[log("order", 2.0), log("q", 1.0), log("batch", 1.0)],
};

pub(crate) static POTRF: Vocabulary = Vocabulary {
    op: "potrf",
    candidates: &[
        Candidate {
            family: "tiny",
            class: Class::Native,
            knobs: &[
                Knob { name: "lanes", values: Values::OneOf(&[8, 16, 32]), required: false },
                Knob { name: "order", values: Values::Words(&["row", "column"]), required: false },
            ],
        },
        native("cta"),
        Candidate {
            family: "lpanel",
            class: Class::Native,
            knobs: &[Knob { name: "panel", values: Values::OneOf(&[8, 16]), required: true }],
        },
        Candidate {
            family: "blocked",
            class: Class::Native,
            knobs: &[Knob {
                name: "nb",
                values: Values::Range { min: 32, max: 128, step: 32 },
                required: false,
            }],
        },
        VENDOR,
    ],
    last_resort: &["blocked", "vendor"],
    retired: &[
        Retired { alias: "native:tiny", instead: "tiny" },
        Retired { alias: "native:cta", instead: "cta" },
        Retired { alias: "native:lpanel", instead: "lpanel:panel=8" },
        Retired { alias: "native:blocked", instead: "blocked" },
        Retired { alias: "lpanel", instead: "lpanel:panel=8" },
    ],
    exact: &[UPLO],
    log: &[log("n", 3.0), log("batch", 1.0)],
};

pub(crate) static POSV: Vocabulary = Vocabulary {
    op: "posv",
    candidates: &[native("tiny"), native("cta"), native("blocked")],
    last_resort: &["blocked"],
    retired: &[
        Retired { alias: "native:tiny", instead: "tiny" },
        Retired { alias: "native:cta", instead: "cta" },
        Retired { alias: "native:blocked", instead: "blocked" },
    ],
    exact: &[UPLO],
    log: &[log("n", 3.0), log("nrhs", 1.0), log("batch", 1.0)],
};

pub(crate) static ALL: [&Vocabulary; 3] = [&TRSM, &POTRF, &POSV];

/// A table file: name and text, one row of `rows` a line, the first on line 8.
pub(crate) fn file(vocabulary: &Vocabulary, dtype: &str, device: &str, rows: &[&str]) -> (String, String) {
    let key: Vec<String> = vocabulary.key_fields().map(|name| format!("'{name}'")).collect();
    let text = format!(
        "format = 1\nop = '{op}'\ndtype = '{dtype}'\ndevice = '{device}'\ngenerated_by = 'test'\nkey = [{key}]\nrows = [\n{rows}\n]\n",
        op = vocabulary.op,
        key = key.join(", "),
        rows = rows.iter().map(|row| format!("{{ {row} }},")).collect::<Vec<_>>().join("\n"),
    );
    (format!("{}.{dtype}.{device}.toml", vocabulary.op), text)
}

pub(crate) fn set(files: impl IntoIterator<Item = (String, String)>) -> Tables {
    Tables::from_texts(&ALL, files).unwrap()
}

pub(crate) fn spelled(vocabulary: &'static Vocabulary, text: &str) -> Spelling {
    vocabulary.spelling(text).unwrap()
}

pub(crate) fn by_caller(pin: Pin) -> Asked {
    Asked { pin, by: AskedBy::Caller }
}

/// A call under test.
pub(crate) struct Call<'a> {
    pub(crate) vocabulary: &'static Vocabulary,
    pub(crate) tables: &'a Tables,
    pub(crate) device: Device,
    pub(crate) key: Key,
    pub(crate) pin: Pin,
    pub(crate) vendor_free: bool,
    /// Families that refuse.
    pub(crate) refuse: &'a [&'a str],
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        vocabulary: &'static Vocabulary,
        tables: &'a Tables,
        exact: &[&str],
        log: &[u64],
    ) -> Self {
        let key = vocabulary.key(exact, log).unwrap();
        let (device, pin) = (Device::Sm(90), Pin::Auto);
        Self { vocabulary, tables, device, key, pin, vendor_free: false, refuse: &[] }
    }

    pub(crate) fn problem(&self) -> Problem<'_> {
        Problem { vocabulary: self.vocabulary, dtype: "f32", device: self.device, key: &self.key }
    }

    pub(crate) fn choose(&self) -> Result<Choice, SelectError> {
        choose(&self.problem(), self.tables, by_caller(self.pin), self.vendor_free, |spelling| {
            match self.refuse.contains(&spelling.family()) {
                true => Err(Refusal::from(format!("{} is refused here", spelling.family()))),
                false => Ok(()),
            }
        })
    }

    /// The spelling chosen.
    pub(crate) fn picks(&self) -> String {
        self.choose().unwrap().spelling.to_string()
    }
}
