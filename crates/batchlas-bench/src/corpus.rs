//! The corpus file: its schema and its expansion.

use serde::Deserialize;

use crate::matrices::Kind;
use crate::operands::Layout;

/// The committed corpus.
const TEXT: &str = include_str!("../corpus.toml");

/// Why the corpus could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the corpus: {0}")]
pub struct CorpusError(#[from] toml::de::Error);

/// Every case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// `potrf`, `posv` and `potrs`.
    #[serde(default)]
    pub factor: Vec<FactorCase>,
    /// `trsm`.
    #[serde(default)]
    pub solve: Vec<SolveCase>,
    /// `gemm` and `herk`.
    #[serde(default)]
    pub product: Vec<ProductCase>,
}

impl Corpus {
    /// The committed corpus.
    ///
    /// # Errors
    /// It is malformed; a test excludes that.
    pub fn committed() -> Result<Self, CorpusError> {
        Self::parse(TEXT)
    }

    /// Cases in the format of `corpus.toml`; what it leaves out has no cases.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(text: &str) -> Result<Self, CorpusError> {
        Ok(toml::from_str(text)?)
    }
}

/// Where in the matrix an item fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// The first pivot.
    First,
    /// Pivot `n / 2 + 1`.
    Middle,
    /// The last pivot.
    Last,
}

impl Failing {
    /// The 1-based order of the minor that fails.
    pub fn order(self, n: usize) -> usize {
        match self {
            Failing::First => 1,
            Failing::Middle => n / 2 + 1,
            Failing::Last => n,
        }
    }
}

fn definite() -> Kind {
    Kind::Definite
}

fn anywhere() -> Vec<Failing> {
    vec![Failing::First]
}

/// Factorisations, with right-hand sides (`posv`) or without (`potrf`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorCase {
    /// What it is about.
    pub name: String,
    /// Rows of the behaviour contract it stands for.
    pub guards: Vec<String>,
    /// Orders.
    pub n: Vec<usize>,
    /// Right-hand sides; absent for a factorisation alone.
    #[serde(default)]
    pub nrhs: Vec<usize>,
    /// Numbers of items.
    pub batch: Vec<usize>,
    /// Layouts.
    pub layout: Vec<Layout>,
    /// What the items are.
    #[serde(default = "definite")]
    pub kind: Kind,
    /// Where they fail, if they do.
    #[serde(default = "anywhere")]
    pub at: Vec<Failing>,
    /// Only this item is of `kind`; the others are definite, and must not notice.
    #[serde(default)]
    pub only_item: Option<usize>,
    /// All items are one matrix: their results must be one, run after run.
    #[serde(default)]
    pub clones: bool,
    /// The factor comes first and is then shared by the whole batch: `potrs` with stride 0.
    #[serde(default)]
    pub shared: bool,
}

/// Triangular solves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolveCase {
    /// What it is about.
    pub name: String,
    /// Rows of the behaviour contract it stands for.
    pub guards: Vec<String>,
    /// Orders.
    pub n: Vec<usize>,
    /// Right-hand sides.
    pub q: Vec<usize>,
    /// Numbers of items.
    pub batch: Vec<usize>,
    /// Layouts.
    pub layout: Vec<Layout>,
    /// Real and imaginary part of alpha; real types take the real part.
    pub alpha: Vec<[f64; 2]>,
    /// One A for the whole batch.
    #[serde(default)]
    pub shared: bool,
}

/// Products and rank-k updates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductCase {
    /// What it is about.
    pub name: String,
    /// Rows of the behaviour contract it stands for.
    pub guards: Vec<String>,
    /// Rows of C.
    pub m: Vec<usize>,
    /// Columns of C; the order of an update.
    pub n: Vec<usize>,
    /// Inner dimensions.
    pub k: Vec<usize>,
    /// Numbers of items.
    pub batch: Vec<usize>,
    /// Layouts.
    pub layout: Vec<Layout>,
    /// Real and imaginary part of alpha.
    pub alpha: Vec<[f64; 2]>,
    /// Real and imaginary part of beta.
    pub beta: Vec<[f64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_corpus_parses_and_guards_the_contract() {
        let corpus = Corpus::committed().unwrap();
        let guards: Vec<&str> = (corpus.factor.iter().flat_map(|c| &c.guards))
            .chain(corpus.solve.iter().flat_map(|c| &c.guards))
            .chain(corpus.product.iter().flat_map(|c| &c.guards))
            .map(String::as_str)
            .collect();
        for row in
            ["T2", "T4", "T6", "T8", "T9", "T10", "T11", "T12", "T13", "T14", "T15", "T19", "T24", "T25"]
        {
            assert!(guards.contains(&row), "no case guards {row}");
        }
        assert!(Corpus::parse("[[factor]]\nnames = 1").is_err(), "an unknown field must be refused");
    }
}
