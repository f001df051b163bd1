//! The stream: read a chunk of items, compute, write, whatever the size of the files.
//!
//! A chunk is bounded in bytes, and a run holds a few of them: one being read ahead on a thread of its own, one being
//! computed, the device's copy and the result. Results go to disk in order as they are made.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use batchlas::{Buffer, Context, Dtype, Element, MatBatch, Scalar, Side};
use indicatif::{ProgressBar, ProgressStyle};
use num_complex::Complex;

use crate::error::{CliError, Result};
use crate::npy::{NpyReader, NpyWriter, numpy_name};
use crate::ops::{Item, Operation, Outcome};
use crate::report::{Report, Worst};

/// Bytes of A and B in one chunk, unless a single item has more.
const CHUNK_BYTES: usize = 64 << 20;
/// Runs that end sooner show no progress bar.
const SHORT: Duration = Duration::from_millis(500);

/// What to do with which files.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) a: PathBuf,
    pub(crate) b: Option<PathBuf>,
    pub(crate) output: PathBuf,
    pub(crate) route: Option<String>,
    pub(crate) check: bool,
}

impl Job {
    /// Validates the files, computes, and writes the result.
    ///
    /// # Errors
    /// Unusable files, a bad route; the output is then as it was before.
    pub(crate) fn run(&self, ctx: &Context) -> Result<Report> {
        let a = NpyReader::open(&self.a)?;
        let b = self.b.as_deref().map(NpyReader::open).transpose()?;
        let shape = Shape::of(&self.operation, &a, b.as_ref())?;
        match a.dtype() {
            Dtype::F32 => self.stream::<f32>(ctx, shape, a, b),
            Dtype::F64 => self.stream::<f64>(ctx, shape, a, b),
            Dtype::C32 => self.stream::<Complex<f32>>(ctx, shape, a, b),
            Dtype::C64 => self.stream::<Complex<f64>>(ctx, shape, a, b),
        }
    }

    fn stream<T: Element>(
        &self,
        ctx: &Context,
        shape: Shape,
        a: NpyReader,
        b: Option<NpyReader>,
    ) -> Result<Report> {
        let start = Instant::now();
        let Shape { batch, n, .. } = shape;
        let out_shape = b.as_ref().unwrap_or(&a).shape().to_vec();
        let mut report = Report {
            operation: self.operation.name(),
            dtype: numpy_name(T::DTYPE),
            items: batch,
            n,
            failed: 0,
            failures: Vec::new(),
            shifted: 0,
            shifts: Vec::new(),
            worst: None,
            checked: self.check,
            seconds: 0.0,
            compute_seconds: 0.0,
            executed: BTreeSet::new(),
            device: device_name(ctx),
            output: self.output.clone(),
        };
        let mut output = NpyWriter::create(&self.output, T::DTYPE, &out_shape)?;
        let chunk = shape.chunk_items(T::DTYPE.bytes());
        let progress = Progress::new(batch);
        if n > 0 {
            thread::scope(|scope| {
                let (sender, chunks) = sync_channel(0);
                scope.spawn(move || read_ahead(a, b, shape, chunk, &sender));
                self.compute::<T>(ctx, shape, chunk, &chunks, &mut output, &mut report, progress)
            })?;
        }
        output.finish()?;
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }

    fn compute<T: Element>(
        &self,
        ctx: &Context,
        shape: Shape,
        chunk: usize,
        chunks: &Receiver<Result<Chunk<T>>>,
        output: &mut NpyWriter,
        report: &mut Report,
        mut progress: Progress,
    ) -> Result<()> {
        let Shape { n, rows, cols, .. } = shape;
        let (a_size, b_size) = (n * n, rows * cols);
        let mut device_a = Buffer::<T>::new(ctx.queue(), chunk * a_size)?;
        let mut device_b = Buffer::<T>::new(ctx.queue(), chunk * b_size)?;
        for received in chunks {
            let Chunk { items, a, b } = received?;
            let (first, count) = (items.start, items.len());
            device_a.write(ctx.queue(), 0, &a)?;
            device_b.write(ctx.queue(), 0, &b)?;

            let begun = Instant::now();
            let Outcome { info, shifts, ran } = self.operation.run(
                ctx,
                self.route.as_ref(),
                MatBatch::packed(&a, n, n, count)?,
                device_a.view_mut(n, n, n, a_size, count)?,
                device_b.view_mut(rows, cols, rows.max(1), b_size, count)?,
            )?;
            report.compute_seconds += begun.elapsed().as_secs_f64();
            report.executed.insert(ran.to_string());
            report.count(first, info.failures());
            report.count_shifts(first, &shifts);

            let in_place = self.operation.overwrites_a();
            let (result, size, [out_rows, out_cols]) =
                if in_place { (&device_a, a_size, [n, n]) } else { (&device_b, b_size, [rows, cols]) };
            let mut x = zeroed::<T>(count * size, count)?;
            result.read(ctx.queue(), 0, &mut x)?;
            self.operation.finish(n, &mut x);
            if self.check {
                let item = |i: usize| Item {
                    n,
                    rows,
                    a: &a[i * a_size..][..a_size],
                    b: &b[i * b_size..][..b_size],
                    x: &x[i * size..][..size],
                    shift: shifts.get(i).copied().unwrap_or(0.0),
                };
                let status = info.as_slice();
                let residual = |i: usize| (status[i] == 0).then(|| self.operation.residual(item(i)));
                let found = worst(ctx.device().compute_units as usize, first, count, &residual);
                report.worst = report.worst.into_iter().chain(found).reduce(Worst::or);
            }
            for (i, _) in info.failures() {
                x[i * size..][..size].fill(T::from_parts(f64::NAN, f64::NAN));
            }
            output.write(out_rows, out_cols, &x)?;
            progress.advance(count);
        }
        Ok(())
    }
}

/// Sizes of a job: `batch` matrices of order `n`, and B of `rows x cols` (`n x 0` where there is no B).
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    n: usize,
    rows: usize,
    cols: usize,
}

impl Shape {
    /// Checks the arrays against each other and against the operation.
    fn of(operation: &Operation, a: &NpyReader, b: Option<&NpyReader>) -> Result<Self> {
        let name = operation.name();
        let (batch, n) = match *a.shape() {
            [batch, rows, cols] if rows == cols => (batch, rows),
            [_, rows, cols] => {
                return Err(a.wrong_shape(format!(
                    "A is {rows} x {cols} in each item, and {name} needs it square: (batch, n, n)"
                )));
            }
            [rows, cols] if rows == cols => {
                return Err(a.wrong_shape(format!(
                    "A must have the axes (batch, n, n): a single matrix is a batch of one, (1, {rows}, {cols})"
                )));
            }
            _ => return Err(a.wrong_shape("A must have the axes (batch, n, n)")),
        };
        if let &Operation::Trsm { alpha, .. } = operation
            && alpha.im != 0.0
            && !a.dtype().is_complex()
        {
            let (alpha, dtype) = (alpha.to_string(), numpy_name(a.dtype()));
            return Err(CliError::ComplexAlpha { alpha, dtype });
        }
        let Some(b) = b else { return Ok(Shape { batch, n, rows: n, cols: 0 }) };
        let right = matches!(operation, Operation::Trsm { side: Side::Right, .. });
        let axes = if right { "(batch, m, n)" } else { "(batch, n, nrhs) or (batch, n)" };
        let Some([b_batch, rows, cols]) = b.matrices() else {
            return Err(b.wrong_shape(format!("B must have the axes {axes}")));
        };
        if b_batch != batch {
            return Err(
                b.wrong_shape(format!("B has {b_batch} items and A has {batch}: both need one batch"))
            );
        }
        let (order, what) = if right { (cols, "columns") } else { (rows, "rows") };
        if order != n {
            return Err(b.wrong_shape(format!(
                "B has {order} {what} in each item and A is of order {n}: B must have the axes {axes} with n = {n}"
            )));
        }
        if a.dtype() != b.dtype() {
            return Err(CliError::DtypeMismatch {
                a: a.path().to_owned(),
                a_dtype: numpy_name(a.dtype()),
                b: b.path().to_owned(),
                b_dtype: numpy_name(b.dtype()),
            });
        }
        Ok(Shape { batch, n, rows, cols })
    }

    /// Items of a chunk: at least one, and no more than there are.
    fn chunk_items(&self, element: usize) -> usize {
        let bytes = (self.n * self.n + self.rows * self.cols) * element;
        (CHUNK_BYTES / bytes.max(1)).max(1).min(self.batch)
    }
}

/// Items on the host, packed and column-major.
struct Chunk<T> {
    items: Range<usize>,
    a: Vec<T>,
    b: Vec<T>,
}

/// Reads chunk after chunk, one ahead of who receives them; ends early when nobody does any more.
fn read_ahead<T: Scalar>(
    mut a: NpyReader,
    mut b: Option<NpyReader>,
    shape: Shape,
    chunk: usize,
    to: &SyncSender<Result<Chunk<T>>>,
) {
    let mut read = |items: Range<usize>| {
        let count = items.len();
        let mut matrices = zeroed(count * shape.n * shape.n, count)?;
        a.read(items.clone(), &mut matrices)?;
        let mut rhs = zeroed(count * shape.rows * shape.cols, count)?;
        if let Some(b) = &mut b {
            b.read(items.clone(), &mut rhs)?;
        }
        Ok(Chunk { items, a: matrices, b: rhs })
    };
    for first in (0..shape.batch).step_by(chunk.max(1)) {
        let received = read(first..shape.batch.min(first + chunk));
        let last = received.is_err();
        if to.send(received).is_err() || last {
            return;
        }
    }
}

/// Zeros, or an error where the allocator has none left.
fn zeroed<T: Scalar>(len: usize, items: usize) -> Result<Vec<T>> {
    let mut data = Vec::new();
    let out_of_memory = |_| CliError::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()), items };
    data.try_reserve_exact(len).map_err(out_of_memory)?;
    data.resize(len, T::zero());
    Ok(data)
}

/// The worst of `count` residuals, spread over threads; `None` where no item has one.
fn worst(
    threads: usize,
    first: usize,
    count: usize,
    residual: &(impl Fn(usize) -> Option<f64> + Sync),
) -> Option<Worst> {
    let share = count.div_ceil(threads.max(1)).max(1);
    let part = move |from: usize| {
        let items = from..count.min(from + share);
        let each = items.filter_map(|i| residual(i).map(|residual| Worst { item: first + i, residual }));
        each.reduce(Worst::or)
    };
    thread::scope(|scope| {
        let parts: Vec<_> = (0..count).step_by(share).map(|from| scope.spawn(move || part(from))).collect();
        let joined = parts.into_iter().map(|p| p.join().expect("a residual does not panic"));
        joined.flatten().reduce(Worst::or)
    })
}

/// What the report says of where it ran.
fn device_name(ctx: &Context) -> String {
    let device = ctx.device();
    if device.is_gpu() {
        device.name.clone()
    } else {
        format!("{}, {} threads", device.name, device.compute_units)
    }
}

/// A bar on stderr for long runs; nothing where that is not a terminal.
struct Progress {
    begun: Instant,
    total: usize,
    done: usize,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(total: usize) -> Self {
        Progress { begun: Instant::now(), total, done: 0, bar: None }
    }

    fn advance(&mut self, items: usize) {
        self.done += items;
        if self.begun.elapsed() > SHORT && self.done < self.total {
            let bar = self.bar.get_or_insert_with(|| {
                let template = "{wide_bar} {human_pos}/{human_len} items, {eta} left";
                let style = ProgressStyle::with_template(template);
                ProgressBar::new(self.total as u64)
                    .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            });
            bar.set_position(self.done as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
