//! The set of tables in force, and which of them serves a device.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use crate::table::FileName;
use crate::{Device, Environment, SelectError, Table, Vocabulary};

/// Name of the variable that replaces the built-in tables by a directory.
const DIRECTORY: &str = "BATCHLAS_TUNED_DIR";

/// A set of tables. Files are recognised by name at once and read when first needed.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    files: Vec<File>,
    ignored: Vec<String>,
}

#[derive(Debug, Clone)]
struct File {
    name: String,
    dtype: String,
    device: Device,
    vocabulary: &'static Vocabulary,
    text: Cow<'static, str>,
    table: OnceLock<Result<Table, SelectError>>,
}

impl File {
    fn table(&self) -> Result<&Table, SelectError> {
        self.table
            .get_or_init(|| Table::parse(self.vocabulary, &self.name, &self.text))
            .as_ref()
            .map_err(Clone::clone)
    }
}

/// The table that serves a device.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Name of its file.
    pub file: &'a str,
    /// The table.
    pub table: &'a Table,
    /// The device it was measured on, if that is another one.
    pub borrowed_from: Option<Device>,
}

impl Tables {
    /// Tables from `(file name, text)` pairs; files of operations outside `vocabularies` are ignored.
    ///
    /// # Errors
    /// [`SelectError::File`] for a name that is not `<op>.<dtype>.<device>.toml` or is given twice.
    pub fn from_texts<T: Into<Cow<'static, str>>>(
        vocabularies: &[&'static Vocabulary],
        texts: impl IntoIterator<Item = (impl Into<String>, T)>,
    ) -> Result<Self, SelectError> {
        let mut tables = Self::default();
        for (name, text) in texts {
            let name: String = name.into();
            let FileName { op, dtype, device, .. } = FileName::parse(&name)?;
            let Some(vocabulary) = vocabularies.iter().find(|vocabulary| vocabulary.op == op) else {
                tables.ignored.push(name);
                continue;
            };
            if tables.files.iter().any(|file| file.name == name) {
                return Err(SelectError::File { file: name, what: "given twice".to_owned() });
            }
            let (dtype, table) = (dtype.to_owned(), OnceLock::new());
            tables.files.push(File { dtype, device, vocabulary, text: text.into(), table, name });
        }
        Ok(tables)
    }

    /// Every `*.toml` of a directory.
    ///
    /// # Errors
    /// [`SelectError::File`] if the directory or a table in it cannot be read, or a name does not parse.
    pub fn from_directory(
        vocabularies: &[&'static Vocabulary],
        directory: &Path,
    ) -> Result<Self, SelectError> {
        let failed = |path: &Path, error: std::io::Error| SelectError::File {
            file: path.display().to_string(),
            what: error.to_string(),
        };
        let entries = std::fs::read_dir(directory).map_err(|error| failed(directory, error))?;
        let mut texts = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed(directory, error))?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                texts.push((name, std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?));
            }
        }
        texts.sort();
        Self::from_texts(vocabularies, texts)
    }

    /// The built-in tables, unless `BATCHLAS_TUNED_DIR` names a directory that replaces all of them.
    ///
    /// # Errors
    /// As [`Tables::from_directory`] and [`Tables::from_texts`].
    pub fn from_environment(
        vocabularies: &[&'static Vocabulary],
        embedded: &[(&'static str, &'static str)],
        environment: &Environment,
    ) -> Result<Self, SelectError> {
        match environment.get(DIRECTORY) {
            Some(directory) => Self::from_directory(vocabularies, Path::new(directory)),
            None => Self::from_texts(vocabularies, embedded.iter().copied()),
        }
    }

    /// The table for an operation, type and device, or the closest device's; of equally close ones the older.
    ///
    /// `None` where there is no table at all, and for a CPU without its own: it never borrows.
    ///
    /// # Errors
    /// [`SelectError::Table`] if that table is malformed.
    pub fn find(&self, op: &str, dtype: &str, device: Device) -> Result<Option<Found<'_>>, SelectError> {
        let closest = self
            .files
            .iter()
            .filter(|file| file.vocabulary.op == op && file.dtype == dtype)
            .filter_map(|file| device.distance(file.device).map(|distance| (distance, file.device, file)))
            .min_by_key(|(distance, device, _)| (*distance, *device));
        let Some((distance, measured_on, file)) = closest else {
            return Ok(None);
        };
        let borrowed_from = (distance != 0).then_some(measured_on);
        Ok(Some(Found { file: &file.name, table: file.table()?, borrowed_from }))
    }

    /// Reads every table now, in the order given.
    ///
    /// # Errors
    /// The first [`SelectError::Table`].
    pub fn check(&self) -> Result<Vec<&Table>, SelectError> {
        self.files.iter().map(File::table).collect()
    }

    /// Files that belong to operations nobody asked for.
    #[must_use]
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }
}
