//! Tensors of GGUF files (versions 2 and 3, little endian): a directory of names, shapes and types, and the bytes of Q4_K tensors.
//!
//! A file is magic, version, counts of tensors and of metadata; metadata, of which only `general.alignment` is looked at; one record per tensor; and, aligned, the
//! data. Nothing of a file is believed: every length is held against what is left of the file before memory is set aside for it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::Error as ShapeError;
use crate::weights;

/// Type number of Q4_K tensors.
const Q4K: u32 = 12;
/// Alignment of the data where the metadata do not say otherwise.
const ALIGNMENT: u64 = 32;
/// Longest chain of nested arrays of metadata.
const NESTING: u32 = 4;
/// Most axes of a tensor.
const AXES: u32 = 4;

/// Why a file or a tensor cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system.
    #[error("reading: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it begins with {found:02x?}, a GGUF file with \"GGUF\"")]
    Magic {
        /// First bytes.
        found: [u8; 4],
    },
    /// A version that is not known here.
    #[error("format version {found}: 2 and 3 are known, little endian")]
    Version {
        /// What it says.
        found: u32,
    },
    /// Something that no such file has.
    #[error("{0}")]
    Malformed(String),
    /// There is no such tensor.
    #[error("there is no tensor {name:?}; there are {count}, such as {examples}")]
    Missing {
        /// Asked for.
        name: String,
        /// Tensors in the file.
        count: usize,
        /// Some names of Q4_K matrices.
        examples: String,
    },
    /// It is of another type.
    #[error("tensor {name:?} is of type {found}, Q4_K is {Q4K}")]
    Type {
        /// The tensor.
        name: String,
        /// Its type number.
        found: u32,
    },
    /// It is no matrix of whole super-blocks.
    #[error("tensor {name:?}: {reason}")]
    Shape {
        /// The tensor.
        name: String,
        /// Why not.
        reason: String,
    },
}

/// A tensor as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Sizes of its axes, the contiguous one first.
    pub shape: Vec<u64>,
    /// Number of its type; 12 is Q4_K.
    pub kind: u32,
    offset: u64,
}

/// An open file and its directory.
#[derive(Debug)]
pub struct Gguf<R = BufReader<File>> {
    source: R,
    len: u64,
    data: u64,
    tensors: Vec<Tensor>,
}

/// A matrix of Q4_K weights in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The super-blocks.
    pub bytes: Vec<u8>,
    /// Rows.
    pub rows: usize,
    /// Inner dimension.
    pub k: usize,
}

impl Gguf {
    /// Opens a file and reads its directory.
    ///
    /// # Errors
    /// The system's; a file that is not what it should be.
    pub fn open(path: &Path) -> Result<Gguf, Error> {
        Gguf::new(BufReader::new(File::open(path)?))
    }
}

impl<R: Read + Seek> Gguf<R> {
    /// Reads the directory of any source.
    ///
    /// # Errors
    /// As for [`Gguf::open`].
    pub fn new(mut source: R) -> Result<Gguf<R>, Error> {
        let len = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        let mut cursor = Cursor { source, left: len };
        let found = cursor.bytes::<4>()?;
        if &found != b"GGUF" {
            return Err(Error::Magic { found });
        }
        let version = cursor.u32()?;
        if !matches!(version, 2 | 3) {
            return Err(Error::Version { found: version });
        }
        let (count, metadata) = (cursor.u64()?, cursor.u64()?);
        let mut alignment = ALIGNMENT;
        for _ in 0..metadata {
            let key = cursor.string()?;
            let kind = cursor.u32()?;
            if key == "general.alignment" {
                alignment = match kind {
                    4 => cursor.u32()?.into(),
                    10 => cursor.u64()?,
                    _ => return malformed(format!("general.alignment is of type {kind}, expected 4 or 10")),
                };
            } else {
                cursor.skip_value(kind, NESTING)?;
            }
        }
        if !alignment.is_power_of_two() || alignment > 1 << 30 {
            return malformed(format!("general.alignment is {alignment}, expected a power of two"));
        }
        let mut tensors = Vec::new();
        for _ in 0..count {
            let name = cursor.string()?;
            let axes = cursor.u32()?;
            if axes > AXES {
                return malformed(format!("tensor {name:?} has {axes} axes, at most {AXES} are known"));
            }
            let shape = (0..axes).map(|_| cursor.u64()).collect::<Result<_, _>>()?;
            tensors.push(Tensor { name, shape, kind: cursor.u32()?, offset: cursor.u64()? });
        }
        let data = (len - cursor.left).next_multiple_of(alignment);
        Ok(Gguf { source: cursor.source, len, data, tensors })
    }

    /// The directory.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Reads a Q4_K matrix (`K` contiguous, then `N`).
    ///
    /// # Errors
    /// No such tensor; another type; not two axes, or an inner one that is no multiple of 256; data that leave the file.
    pub fn q4k(&mut self, name: &str) -> Result<Matrix, Error> {
        let Some(tensor) = self.tensors.iter().find(|tensor| tensor.name == name) else {
            let matrices = self.tensors.iter().filter(|tensor| tensor.kind == Q4K && tensor.shape.len() == 2);
            let examples: Vec<&str> = matrices.map(|tensor| &*tensor.name).take(3).collect();
            let (count, examples) = (self.tensors.len(), examples.join(", "));
            return Err(Error::Missing { name: name.to_owned(), count, examples });
        };
        let name = || tensor.name.clone();
        if tensor.kind != Q4K {
            return Err(Error::Type { name: name(), found: tensor.kind });
        }
        let [k, rows] = tensor.shape[..] else {
            let reason = format!("it has the axes {:?}, a matrix has two", tensor.shape);
            return Err(Error::Shape { name: name(), reason });
        };
        let shape = |error: ShapeError| Error::Shape { name: name(), reason: error.to_string() };
        let (rows, k) = match (usize::try_from(rows), usize::try_from(k)) {
            (Ok(rows), Ok(k)) => (rows, k),
            _ => return Err(shape(ShapeError::TooLarge { rows: usize::MAX, k: usize::MAX })),
        };
        let size = weights::bytes(rows, k).map_err(shape)?;
        let start = self.data.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(size as u64)).filter(|&end| end <= self.len);
        let (Some(start), Some(_)) = (start, end) else {
            let reason = format!("{size} bytes at {} leave a file of {}", tensor.offset, self.len);
            return Err(Error::Shape { name: name(), reason });
        };
        let mut bytes = vec![0; size];
        self.source.seek(SeekFrom::Start(start))?;
        self.source.read_exact(&mut bytes)?;
        Ok(Matrix { bytes, rows, k })
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Malformed(what.into()))
}

/// A source of which so many bytes are left.
struct Cursor<R> {
    source: R,
    left: u64,
}

impl<R: Read + Seek> Cursor<R> {
    fn take(&mut self, bytes: u64) -> Result<(), Error> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => malformed(format!("{bytes} bytes are announced where {} are left", self.left)),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        self.take(bytes)?;
        // What is taken is within the file, whose length is an i64 to the system.
        self.source.seek_relative(i64::try_from(bytes).map_err(io::Error::other)?)?;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Error> {
        let len = self.u64()?;
        self.take(len)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.source.read_exact(&mut bytes)?;
        String::from_utf8(bytes).or_else(|error| malformed(format!("a name is not UTF-8: {error}")))
    }

    /// Passes over a value of metadata.
    fn skip_value(&mut self, kind: u32, nesting: u32) -> Result<(), Error> {
        let fixed = |kind| match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            _ => None,
        };
        match (kind, fixed(kind)) {
            (_, Some(bytes)) => self.skip(bytes),
            (8, _) => {
                let len = self.u64()?;
                self.skip(len)
            }
            (9, _) if nesting > 0 => {
                let (kind, count) = (self.u32()?, self.u64()?);
                if let Some(bytes) = fixed(kind) {
                    return match count.checked_mul(bytes) {
                        Some(bytes) => self.skip(bytes),
                        None => malformed(format!("an array of {count} elements of {bytes} bytes")),
                    };
                }
                (0..count).try_for_each(|_| self.skip_value(kind, nesting - 1))
            }
            _ => malformed(format!("a value of type {kind}, or arrays nested deeper than {NESTING}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::q4k::BLOCK_BYTES;

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    /// A file with metadata of every kind and three tensors; the data of `w` are 1, 2, 3, ...
    fn file(alignment: u32) -> Vec<u8> {
        let mut f = b"GGUF".to_vec();
        f.extend(3u32.to_le_bytes());
        f.extend(3u64.to_le_bytes());
        f.extend(4u64.to_le_bytes());
        f.extend([string("name"), 8u32.to_le_bytes().to_vec(), string("a model")].concat());
        f.extend([string("general.alignment"), [4u32, alignment].map(u32::to_le_bytes).concat()].concat());
        f.extend([string("tokens"), [9u32, 8].map(u32::to_le_bytes).concat()].concat());
        f.extend([2u64.to_le_bytes().to_vec(), string("a"), string("bc")].concat());
        f.extend(
            [
                string("flags"),
                [9u32, 7].map(u32::to_le_bytes).concat(),
                3u64.to_le_bytes().to_vec(),
                vec![1, 0, 1],
            ]
            .concat(),
        );
        for (name, shape, kind, offset) in
            [("w", [512u64, 2], 12u32, 64u64), ("odd", [500, 2], 12, 0), ("f", [4, 4], 0, 0)]
        {
            f.extend([string(name), 2u32.to_le_bytes().to_vec()].concat());
            f.extend(shape.map(u64::to_le_bytes).concat());
            f.extend([kind.to_le_bytes().to_vec(), offset.to_le_bytes().to_vec()].concat());
        }
        f.resize(f.len().next_multiple_of(alignment as usize) + 64, 0xee);
        f.extend((0..4 * BLOCK_BYTES).map(|i| (i + 1) as u8));
        f
    }

    fn open(bytes: &[u8]) -> Result<Gguf<io::Cursor<&[u8]>>, Error> {
        Gguf::new(io::Cursor::new(bytes))
    }

    #[test]
    fn a_matrix_is_found_where_it_lies() {
        for alignment in [32, 64, 4096] {
            let file = file(alignment);
            let mut gguf = open(&file).unwrap();
            assert_eq!(gguf.tensors().len(), 3);
            let Matrix { bytes, rows, k } = gguf.q4k("w").unwrap();
            assert_eq!((rows, k, bytes.len()), (2, 512, 4 * BLOCK_BYTES));
            assert!(
                bytes.iter().enumerate().all(|(i, &byte)| byte == (i + 1) as u8),
                "alignment {alignment}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_reason() {
        let good = file(32);
        let refusal = |name: &str| open(&good).unwrap().q4k(name).unwrap_err().to_string();
        assert!(refusal("v").contains("no tensor \"v\"; there are 3, such as w, odd"));
        assert!(refusal("f").contains("of type 0, Q4_K is 12"));
        assert!(refusal("odd").contains("500: it must be a positive multiple of 256"));
        let error = |edit: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            edit(&mut bytes);
            open(&bytes).and_then(|mut gguf| gguf.q4k("w")).unwrap_err().to_string()
        };
        assert!(error(&|b| b[0] = b'X').contains("begins with"));
        assert!(error(&|b| b[4] = 1).contains("version 1"));
        assert!(error(&|b| b[7] = 3).contains("little endian"));
        assert!(error(&|b| b.truncate(b.len() - 1)).contains("leave a file"));
        assert!(
            error(&|b| b[8..16].fill(0xff)).contains("announced where"),
            "more tensors than the file has bytes"
        );
        assert!(error(&|b| b[24..32].fill(0xff)).contains("announced where"), "a name longer than the file");
    }

    #[test]
    fn no_prefix_of_a_file_is_taken_for_a_file() {
        let good = file(32);
        for len in 0..good.len() {
            assert!(open(&good[..len]).and_then(|mut gguf| gguf.q4k("w")).is_err(), "{len} bytes");
        }
    }
}
