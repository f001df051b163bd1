//! NumPy `.npy` files as streams of column-major matrices.
//!
//! A file holds `(batch, rows, cols)` or `(batch, rows)`; item `b` is the matrix `M[b, :, :]`, whatever the order and
//! the endianness of the file. Items are read and written by ranges, so that a file may be larger than memory. Headers
//! are read and written by `npyz`; the numbers are moved in bulk here, because `npyz` reads one element at a time.
//!
//! Costs. A C-order item is contiguous and is read once, front to back. In a Fortran-order file the batch index runs
//! fastest: element `(b, i, j)` lies `b + batch (i + rows j)` elements from the start, so that a range of items is
//! `rows * cols` strips, each reached by a seek. Every byte is still read once in all, but a strip of fewer items than
//! fill a page of the file costs the system the whole page: prefer C order for matrices of large order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use batchlas::{Dtype, RealOf, Scalar};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, TypeStr, WriteOptions, WriterBuilder};

use crate::error::{CliError, Result};

/// Longest header that is looked at: that of a plain array has some 120 bytes, and NumPy itself stops at 10 000.
const HEADER_LIMIT: u64 = 10_000;
/// Bytes moved by one system call where items are small.
const IO_BUFFER: usize = 1 << 20;

/// An open array: where it is, what it holds, and how it is laid out.
#[derive(Debug)]
pub(crate) struct NpyReader {
    path: PathBuf,
    file: File,
    data_start: u64,
    dtype: Dtype,
    swapped: bool,
    order: Order,
    shape: Vec<usize>,
}

impl NpyReader {
    /// Opens a file and checks that it is an array of two or three axes that is all there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let reading = || CliError::reading(path);
        let not_npy = |reason: String| CliError::NotNpy { path: path.to_owned(), reason };
        // Asked before opening, which would wait for the other end of a pipe.
        if !fs::metadata(path).map_err(reading())?.is_file() {
            return Err(CliError::NotRegular { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(reading())?;
        let mut head = Vec::new();
        (&mut file).take(HEADER_LIMIT).read_to_end(&mut head).map_err(reading())?;
        let (start, end) = header_text(&head).map_err(not_npy)?;
        require_plain(&head[start..end]).map_err(not_npy)?;
        let header = NpyHeader::from_reader(&head[..end]).map_err(|error| not_npy(error.to_string()))?;

        let (dtype, endianness) = element_type(&header.dtype())
            .map_err(|found| CliError::UnsupportedDtype { path: path.to_owned(), found })?;
        let shape_text = tuple(header.shape());
        let too_large = || CliError::TooLarge { path: path.to_owned(), shape: shape_text.clone() };
        let shape: Vec<usize> = header
            .shape()
            .iter()
            .map(|&d| usize::try_from(d))
            .collect::<Result<_, _>>()
            .map_err(|_| too_large())?;
        let element = dtype.bytes();
        let needed = shape
            .iter()
            .try_fold(element as u64, |bytes, &d| bytes.checked_mul(d as u64))
            .ok_or_else(too_large)?;
        let found = file.metadata().map_err(reading())?.len().saturating_sub(end as u64);
        if found < needed {
            let (path, shape) = (path.to_owned(), shape_text);
            return Err(CliError::Truncated { path, shape, element, needed, found });
        }
        Ok(NpyReader {
            path: path.to_owned(),
            file,
            data_start: end as u64,
            dtype,
            swapped: endianness != Endianness::of_machine(),
            order: header.order(),
            shape,
        })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Element type.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Shape as the file has it.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Items, rows and columns; `(batch, rows)` has one column. `None` for other numbers of axes.
    pub(crate) fn matrices(&self) -> Option<[usize; 3]> {
        match self.shape[..] {
            [batch, rows] => Some([batch, rows, 1]),
            [batch, rows, cols] => Some([batch, rows, cols]),
            _ => None,
        }
    }

    /// An error about this file's shape; `wanted` says what it should have been.
    pub(crate) fn wrong_shape(&self, wanted: impl Into<String>) -> CliError {
        CliError::Shape { path: self.path.clone(), shape: tuple(&self.shape), wanted: wanted.into() }
    }

    /// Reads items into packed column-major matrices.
    pub(crate) fn read<T: Scalar>(&mut self, items: Range<usize>, into: &mut [T]) -> Result<()> {
        let [batch, rows, cols] = self.matrices().ok_or_else(|| self.wrong_shape(TWO_OR_THREE_AXES))?;
        debug_assert!(
            T::DTYPE == self.dtype && items.end <= batch && into.len() == items.len() * rows * cols
        );
        let read = match self.order {
            Order::C => self.read_rows(items, rows, cols, into),
            Order::Fortran => self.read_strips(items, batch, rows, cols, into),
        };
        read.map_err(CliError::reading(&self.path))?;
        if self.swapped {
            let component = size_of::<RealOf<T>>();
            bytemuck::cast_slice_mut::<T, u8>(into).chunks_exact_mut(component).for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// Reads elements that lie one after the other.
    fn read_at<T: Scalar>(&mut self, element: usize, into: &mut [T]) -> io::Result<()> {
        let offset = self.data_start + element as u64 * self.dtype.bytes() as u64;
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(bytemuck::cast_slice_mut(into))
    }

    fn read_rows<T: Scalar>(
        &mut self,
        items: Range<usize>,
        rows: usize,
        cols: usize,
        into: &mut [T],
    ) -> io::Result<()> {
        let (first, size) = (items.start * rows * cols, rows * cols);
        if rows <= 1 || cols <= 1 {
            return self.read_at(first, into);
        }
        let block = size * (IO_BUFFER / (size * size_of::<T>())).clamp(1, items.len().max(1));
        let mut row_major = vec![T::zeroed(); block];
        for (index, matrices) in into.chunks_mut(block).enumerate() {
            let row_major = &mut row_major[..matrices.len()];
            self.read_at(first + index * block, row_major)?;
            for (from, to) in row_major.chunks_exact(size).zip(matrices.chunks_exact_mut(size)) {
                transpose(from, cols, rows, to);
            }
        }
        Ok(())
    }

    fn read_strips<T: Scalar>(
        &mut self,
        items: Range<usize>,
        batch: usize,
        rows: usize,
        cols: usize,
        into: &mut [T],
    ) -> io::Result<()> {
        // One column of every item at a time: `rows` strips, gathered item by item.
        let count = items.len();
        let mut strips = vec![T::zeroed(); rows * count];
        for j in 0..cols {
            for (i, strip) in strips.chunks_exact_mut(count.max(1)).enumerate() {
                self.read_at(items.start + batch * (i + rows * j), strip)?;
            }
            for (b, item) in into.chunks_exact_mut((rows * cols).max(1)).enumerate() {
                for (i, element) in item[j * rows..(j + 1) * rows].iter_mut().enumerate() {
                    *element = strips[i * count + b];
                }
            }
        }
        Ok(())
    }
}

/// What a file must look like where its number of axes is wrong.
const TWO_OR_THREE_AXES: &str = "must have the axes (batch, rows, cols) or (batch, rows)";

/// Writes a `(rows, cols)` matrix from column-major to row-major order or, called with the two exchanged, back.
fn transpose<T: Copy>(from: &[T], rows: usize, cols: usize, to: &mut [T]) {
    for i in 0..rows {
        for j in 0..cols {
            to[i * cols + j] = from[j * rows + i];
        }
    }
}

/// Where the text of a header begins and ends, in the first bytes of a file.
fn header_text(head: &[u8]) -> Result<(usize, usize), String> {
    if !head.starts_with(b"\x93NUMPY") {
        return Err("it does not begin with the bytes \\x93NUMPY".into());
    }
    let (start, len) = match head[6..] {
        [1, _, low, high, ..] => (10, usize::from(u16::from_le_bytes([low, high]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        [version, ..] if version > 3 => {
            return Err(format!("format version {version}, and 1 to 3 are known"));
        }
        _ => return Err("it ends within the header".into()),
    };
    match start + len {
        end if end <= head.len() => Ok((start, end)),
        end if end as u64 > HEADER_LIMIT => {
            Err(format!("its header has {len} bytes: that of a plain array has fewer than {HEADER_LIMIT}"))
        }
        _ => Err("it ends within the header".into()),
    }
}

/// Refuses header texts on which the parser would recurse or multiply without bound: more than the nesting of a
/// structured type, and more decimal digits outside strings than a product within 64 bits can have.
fn require_plain(text: &[u8]) -> Result<(), String> {
    const NESTING: usize = 6;
    const DIGITS: usize = 19;
    let (mut quote, mut depth, mut digits) = (None, 0usize, 0usize);
    for &byte in text {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, b'0'..=b'9') => digits += 1,
            (None, b',' | b':' | b' ' | b'\n' | b'L') => {}
            (None, letter) if b"TrueFalse".contains(&letter) => {}
            (None, other) => return Err(format!("its header holds {:?}", char::from(other))),
        }
        if depth > NESTING || digits > DIGITS {
            return Err("its header describes more than an array of numbers can hold".into());
        }
    }
    Ok(())
}

/// The element type behind a NumPy type; its spelling if there is none.
fn element_type(dtype: &DType) -> Result<(Dtype, Endianness), String> {
    let DType::Plain(plain) = dtype else { return Err(format!("{} (structured)", dtype.descr())) };
    let found = match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 4) => Dtype::F32,
        (TypeChar::Float, 8) => Dtype::F64,
        (TypeChar::Complex, 8) => Dtype::C32,
        (TypeChar::Complex, 16) => Dtype::C64,
        (TypeChar::Object, _) => return Err(format!("{plain} (Python objects)")),
        _ => return Err(plain.to_string()),
    };
    Ok((found, plain.endianness()))
}

/// NumPy's name of an element type.
pub(crate) fn numpy_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::C32 => "complex64",
        Dtype::C64 => "complex128",
    }
}

/// A shape as Python writes it.
fn tuple<D: ToString>(shape: &[D]) -> String {
    match shape {
        [one] => format!("({},)", one.to_string()),
        _ => format!("({})", shape.iter().map(D::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// An array under construction, in C order and the machine's endianness. It grows under a temporary name beside its
/// own and takes that name, replacing what was there, in [`NpyWriter::finish`]; dropped before, it leaves nothing.
#[derive(Debug)]
pub(crate) struct NpyWriter {
    path: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
}

impl NpyWriter {
    /// Begins a file of this shape.
    pub(crate) fn create(path: &Path, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        // A link stays a link: what it points to is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return Err(CliError::NotRegular { path });
        }
        let Some(name) = path.file_name() else { return Err(CliError::NotRegular { path }) };
        let partial = path.with_file_name(format!(".{}.{}.partial", name.display(), std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = BufWriter::with_capacity(IO_BUFFER, file.map_err(CliError::writing(&path))?);
        let mut writer = NpyWriter { path, partial, file: Some(file) };
        writer.header(dtype, shape).map_err(CliError::writing(&writer.path))?;
        Ok(writer)
    }

    fn header(&mut self, dtype: Dtype, shape: &[usize]) -> io::Result<()> {
        let kind = if dtype.is_complex() { 'c' } else { 'f' };
        let descr = format!("{}{kind}{}", Endianness::of_machine().to_str(), dtype.bytes());
        let descr: TypeStr = descr.parse().map_err(io::Error::other)?;
        let shape: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
        WriteOptions::new_header_only()
            .dtype(DType::new_scalar(descr))
            .shape(&shape)
            .writer(self.sink())
            .write_header_only()?;
        Ok(())
    }

    fn sink(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect("taken in `finish` only, which consumes the writer")
    }

    /// Appends packed column-major matrices.
    pub(crate) fn write<T: Scalar>(&mut self, rows: usize, cols: usize, matrices: &[T]) -> Result<()> {
        self.append(rows, cols, matrices).map_err(CliError::writing(&self.path))
    }

    fn append<T: Scalar>(&mut self, rows: usize, cols: usize, matrices: &[T]) -> io::Result<()> {
        if rows == 1 || cols == 1 {
            return self.sink().write_all(bytemuck::cast_slice(matrices));
        }
        let mut row_major = vec![T::zeroed(); rows * cols];
        for matrix in matrices.chunks_exact((rows * cols).max(1)) {
            transpose(matrix, rows, cols, &mut row_major);
            self.sink().write_all(bytemuck::cast_slice(&row_major))?;
        }
        Ok(())
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        let flushed = self.sink().flush();
        self.file = None;
        flushed.and_then(|()| fs::rename(&self.partial, &self.path)).map_err(CliError::writing(&self.path))
    }
}

impl Drop for NpyWriter {
    fn drop(&mut self) {
        // After `finish` there is nothing under this name; before, a leftover is all that could remain.
        let _ = fs::remove_file(&self.partial);
    }
}
