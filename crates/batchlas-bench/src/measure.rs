//! Timing of one problem by several arms.
//!
//! Arms are interleaved in one process; inputs are restored from a pristine copy on the device before every sample; events
//! bracket the calls alone. A call that is too short to be timed is repeated, each time on the next of several copies of the
//! problem, and its time is the sample's over the number of calls. So a short time is what a loop of calls takes for each:
//! the device's or the host's share, whichever is longer, and not the delay of one launch. A row carries its residual and
//! what was executed, so that no speed stands without them. The problem is also timed at half its batch: a time per item
//! that still falls by more than 15% is not saturated and is not ranked.

use std::borrow::Cow;
use std::ops::Range;
use std::str::FromStr;

use batchlas::{
    Buffer, Context, Device, Diag, Dtype, Element, FactorOutput, InfoMut, Kernel, PosvOptions, PotrfOptions,
    Queue, Ran, Result, Side, Trans, TrsmOptions, Uplo, WorkspaceMut,
};
use num_complex::Complex;
use serde::{Deserialize, Deserializer, Serialize};

mod product;

use crate::floor;
use crate::matrices::{Random, Square, definite};
use crate::operands::{Layout, Store};
use crate::verify::{estimated_factor_residual, factor_residual, solve_residual, triangle_product};

/// Ratio of times per item at half and at full batch up to which a measurement counts as saturated.
const SATURATED: f64 = 1.15;

/// Items whose residual is formed: spread over the batch, first and last included.
const CHECKED: usize = 8;

/// Seconds that a sample lasts at least, as far as there are copies of the problem.
const SAMPLE: f64 = 200e-6;

/// Calls of a sample at most.
const COPIES: usize = 32;

/// Bytes that the copies of a problem fill at most, where there is more than one.
const COPIED_BYTES: usize = 64 << 20;

/// What is spent on a problem beside its timed calls. The references of residuals are compensated and slow, and the tuner
/// has many arms.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Distinct items of a batch; the rest repeats them. None at all: contents are undefined and nothing is checked.
    distinct: usize,
    /// Elements that the distinct items of an operand fill at most, where more than one is distinct.
    elements: usize,
    /// Largest order whose factor is multiplied out for its residual.
    multiplied: usize,
    /// Right-hand sides of a checked item that enter its residual.
    rhs: usize,
}

impl Effort {
    /// Nothing runs.
    const REHEARSAL: Effort = Effort { distinct: 0, ..Effort::TUNER };
    /// Rows that are cited.
    const BENCH: Effort = Effort { distinct: 256, elements: 4 << 20, multiplied: 256, rhs: 32 };
    /// Rows that rank.
    const TUNER: Effort = Effort { distinct: 64, elements: 1 << 20, multiplied: 48, rhs: 4 };

    /// Distinct items of a batch whose operands have so many elements an item.
    fn distinct(self, batch: usize, largest: usize) -> usize {
        batch.min(self.distinct).min((self.elements / largest.max(1)).max(1))
    }
}

/// Copies of a problem, one behind the other in each operand.
#[derive(Clone, Copy, Debug)]
struct Copies {
    count: usize,
    /// Items from one copy to the next: more than a batch where a copy would otherwise be worse aligned than an allocation.
    pitch: usize,
}

impl Copies {
    /// Of a batch whose items take so many bytes of each operand.
    fn new(batch: usize, bytes: &[usize]) -> Self {
        const ALIGNMENT: u32 = 128;
        let items = |bytes: &usize| ALIGNMENT >> bytes.trailing_zeros().min(ALIGNMENT.trailing_zeros());
        let pitch = batch.next_multiple_of(bytes.iter().map(items).max().unwrap_or(1) as usize);
        let fit = COPIED_BYTES / (pitch * bytes.iter().sum::<usize>()).max(1);
        Copies { count: fit.clamp(1, COPIES), pitch }
    }

    /// Items to where copy `count` ends.
    fn items(self, batch: usize, count: usize) -> usize {
        (count - 1) * self.pitch + batch
    }
}

/// What is timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What is computed.
    pub op: Op,
    /// Element type.
    pub dtype: Dtype,
    /// Triangle.
    pub uplo: Uplo,
    /// Order; columns of C in a product.
    pub n: usize,
    /// Right-hand sides; 0 where there are none.
    pub nrhs: usize,
    /// Items.
    pub batch: usize,
}

/// The operations that can be timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Factorisation.
    Potrf,
    /// Solve.
    Posv(Solve),
    /// Triangular solve.
    Trsm(Side, Trans, Diag),
    /// Product, and what leading dimensions are beyond rows.
    Product(Product, usize),
}

/// The products that can be timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Product {
    /// Matrix product: transpositions of A and B, rows of C, inner dimension.
    Gemm([Trans; 2], usize, usize),
    /// Rank-k update: transposition of A, inner dimension.
    Herk(Trans, usize),
}

/// The ways to solve a definite system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Solve {
    /// A receives the factor.
    Storing,
    /// Nobody needs the factor.
    Discarding,
    /// By way of half the precision.
    Mixed,
}

impl Op {
    /// The name in ledgers. What a table is made from has the name of its vocabulary.
    pub fn name(self) -> &'static str {
        match self {
            Op::Potrf => "potrf",
            Op::Posv(Solve::Storing) => "posv",
            Op::Posv(Solve::Discarding) => "posv-discard",
            Op::Posv(Solve::Mixed) => "posv-mixed",
            Op::Trsm(..) => "trsm",
            Op::Product(Product::Gemm(..), _) => "gemm",
            Op::Product(Product::Herk(..), _) => "herk",
        }
    }
}

impl Cell {
    /// The exact and the logarithmic fields of its selection key, in vocabulary order.
    pub fn key(&self) -> (Vec<&'static str>, Vec<u64>) {
        let Cell { op, uplo, n, nrhs, batch, .. } = *self;
        let (exact, sizes) = match op {
            Op::Potrf => (vec![uplo.letter()], vec![n]),
            Op::Posv(_) => (vec![uplo.letter()], vec![n, nrhs.max(1)]),
            Op::Trsm(side, trans, _) => (vec![side.letter(), trans.key().letter()], vec![n, nrhs]),
            Op::Product(Product::Gemm([a, b], m, k), _) => {
                (vec![a.key().letter(), b.key().letter()], vec![m, n, k])
            }
            Op::Product(Product::Herk(trans, k), _) => {
                (vec![uplo.letter(), trans.key().letter()], vec![n, k])
            }
        };
        (exact, sizes.into_iter().chain([batch]).map(|size| size as u64).collect())
    }
}

/// One row of a ledger: the fields and their order are the ledger's format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Operation.
    pub op: String,
    /// `f32`, `f64`, `c32` or `c64`.
    pub dtype: String,
    /// Side, for a triangular solve.
    pub side: Option<String>,
    /// Triangle.
    pub uplo: Option<String>,
    /// Transposition; of A and of B, as two letters, for a product.
    pub trans: Option<String>,
    /// Diagonal, for a triangular solve.
    pub diag: Option<String>,
    /// Rows of C, for a product.
    pub m: Option<usize>,
    /// Order; columns of C in a product.
    pub n: usize,
    /// Inner dimension, for a product or a rank-k update.
    pub k: Option<usize>,
    /// Right-hand sides, where there are any.
    pub nrhs: Option<usize>,
    /// Items.
    pub batch: usize,
    /// Leading dimension.
    pub ld: usize,
    /// The spelling that was asked for.
    pub family: String,
    /// What ran, children included.
    pub executed: String,
    /// Whether no vendor library took part.
    pub vendor_free: bool,
    /// Median time per item; on a CPU of the faster half of the runs.
    pub ns_per_item: f64,
    /// Standard deviation over the mean, of the same runs.
    pub rel_sd: f64,
    /// Timed calls.
    pub reps: usize,
    /// Whether the time per item had stopped falling with the batch.
    pub saturated: bool,
    /// Worst normwise residual of the checked items; NaN, which JSON spells `null`, for a wrong answer that is no number.
    #[serde(deserialize_with = "number_or_nan")]
    pub residual: f64,
    /// Items whose `info` is not 0.
    pub bad_items: usize,
    /// The floor of the cell.
    pub floor_ns: f64,
    /// Device name.
    pub device: String,
    /// Architecture.
    pub arch: String,
    /// Driver version.
    pub driver: Option<String>,
    /// NVRTC version.
    pub nvrtc: Option<String>,
    /// Commit the program was built from.
    pub commit: Option<String>,
    /// Day of the measurement.
    pub date: String,
    /// Digest of the device code that was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Place among the rows that the tuner wrote for the cell, from 1, and their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<[usize; 2]>,
}

fn number_or_nan<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Row {
    /// What was timed.
    ///
    /// # Errors
    /// A field that the operation needs is missing or is none of its values.
    pub fn cell(&self) -> Result<Cell, String> {
        fn parsed<T: FromStr>(what: &str, text: Option<&str>) -> Result<T, String> {
            let text = text.ok_or_else(|| format!("{what} is missing"))?;
            text.parse().map_err(|_| format!("{what} is {text:?}"))
        }
        let trans = |at: usize| {
            let letter = self.trans.as_deref().and_then(|letters| letters.get(at..=at));
            parsed::<Trans>("trans", letter)
        };
        let size = |what: &str, size: Option<usize>| size.ok_or_else(|| format!("{what} is missing"));
        let op = match self.op.as_str() {
            "potrf" => Op::Potrf,
            "posv" => Op::Posv(Solve::Storing),
            "posv-discard" => Op::Posv(Solve::Discarding),
            "posv-mixed" => Op::Posv(Solve::Mixed),
            "trsm" => Op::Trsm(
                parsed("side", self.side.as_deref())?,
                trans(0)?,
                parsed("diag", self.diag.as_deref())?,
            ),
            "gemm" => {
                let (m, k) = (size("m", self.m)?, size("k", self.k)?);
                Op::Product(Product::Gemm([trans(0)?, trans(1)?], m, k), self.ld.saturating_sub(m))
            }
            "herk" => {
                let product = Product::Herk(trans(0)?, size("k", self.k)?);
                Op::Product(product, self.ld.saturating_sub(self.n))
            }
            other => return Err(format!("the operation is {other:?}")),
        };
        let uplo = if matches!(op, Op::Product(Product::Gemm(..), _)) {
            Uplo::Lower
        } else {
            parsed("uplo", self.uplo.as_deref())?
        };
        let dtype = parsed("dtype", Some(&self.dtype))?;
        Ok(Cell { op, dtype, uplo, n: self.n, nrhs: self.nrhs.unwrap_or(0), batch: self.batch })
    }

    /// Time per item over the floor.
    pub fn times_floor(&self) -> f64 {
        self.ns_per_item / self.floor_ns
    }

    /// Useful operations per nanosecond, in thousands, of a product or a rank-k update.
    pub fn tflops(&self) -> Option<f64> {
        let (n, k) = (self.n as f64, self.k? as f64);
        let multiply_adds = self.m.map_or(n * (n + 1.0) / 2.0, |m| m as f64 * n) * k;
        let complex = self.dtype.starts_with('c');
        Some(multiply_adds * if complex { 8.0 } else { 2.0 } / self.ns_per_item / 1e3)
    }
}

/// What the machine and the build add to every row.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// Driver version.
    pub driver: Option<String>,
    /// NVRTC version.
    pub nvrtc: Option<String>,
    /// Commit the program was built from.
    pub commit: Option<String>,
    /// Day of the measurement.
    pub date: String,
}

/// What became of one arm.
#[derive(Debug)]
pub struct Timed {
    /// The spelling that was asked for.
    pub family: String,
    /// Its row, or why there is none.
    pub outcome: Result<Row>,
}

/// Times every arm of a cell.
///
/// # Errors
/// The device has no memory for the cell; transfers fail. What an arm refuses is in its outcome.
pub fn measure(
    ctx: &Context,
    cell: &Cell,
    families: &[String],
    reps: usize,
    provenance: &Provenance,
) -> Result<Vec<Timed>> {
    let mut subject = subject(ctx, cell, Effort::BENCH)?;
    let arms = time(&mut *subject, cell.batch, families, reps);
    let timed = |Arm { family, checked, full, half, .. }: Arm<'_>| {
        let outcome = checked
            .map(|(ran, checks)| row(ctx.device(), cell, family, &ran, checks, [&full, &half], provenance));
        Timed { family: family.to_owned(), outcome }
    };
    Ok(arms.into_iter().map(timed).collect())
}

/// The kernels that timing an arm of a cell launches, found on a rehearsing context.
///
/// # Errors
/// What the arm refuses.
pub fn kernels(rehearsal: &Context, cell: &Cell, family: &str) -> Result<Vec<Kernel>> {
    let mut subject = subject(rehearsal, cell, Effort::REHEARSAL)?;
    for batch in [cell.batch, half(cell.batch)] {
        subject.call(family, batch, 1)?;
    }
    drop(subject);
    Ok(rehearsal.rehearsed())
}

/// What the tables choose for a cell, as a row says what was executed, found on a rehearsing context.
///
/// # Errors
/// Nothing runs.
pub fn chosen(rehearsal: &Context, cell: &Cell) -> Result<String> {
    let (_, ran) = subject(rehearsal, cell, Effort::REHEARSAL)?.call("auto", cell.batch, 1)?;
    rehearsal.rehearsed();
    Ok(ran.to_string())
}

/// The smaller batch that a time per item is compared with.
fn half(batch: usize) -> usize {
    (batch / 2).max(1)
}

/// The buffers of a cell.
fn subject<'c>(ctx: &'c Context, cell: &'c Cell, effort: Effort) -> Result<Box<dyn Subject + 'c>> {
    match cell.dtype {
        Dtype::F32 => typed::<f32>(ctx, cell, effort),
        Dtype::F64 => typed::<f64>(ctx, cell, effort),
        Dtype::C32 => typed::<Complex<f32>>(ctx, cell, effort),
        Dtype::C64 => typed::<Complex<f64>>(ctx, cell, effort),
    }
}

fn typed<'c, T: Element>(ctx: &'c Context, cell: &'c Cell, effort: Effort) -> Result<Box<dyn Subject + 'c>> {
    Ok(match cell.op {
        Op::Product(product, pad) => Box::new(product::Products::<T>::new(ctx, cell, product, pad, effort)?),
        _ => Box::new(Bench::<T>::new(ctx, cell, effort)?),
    })
}

/// A problem that is run again and again.
trait Subject {
    /// Restores the inputs and makes `calls` calls, one after the other, each over the first `batch` items of its own copy of
    /// the problem, at most [`Subject::copies`] of them; seconds of a call.
    fn call(&mut self, family: &str, batch: usize, calls: usize) -> Result<(f64, Ran)>;

    /// Calls at most.
    fn copies(&self) -> usize;

    /// Worst residual of the checked items after a call, and the number of failed items.
    fn check(&self) -> Result<(f64, usize)>;
}

/// Makes calls between two events, each given its items; seconds of one, and what the last ran.
fn timed(
    queue: &dyn Queue,
    copies: Copies,
    [batch, calls]: [usize; 2],
    mut run: impl FnMut(Range<usize>) -> Result<Ran>,
) -> Result<(f64, Ran)> {
    let start = queue.record()?;
    let mut ran = run(0..batch)?;
    for call in 1..calls {
        ran = run(call * copies.pitch..call * copies.pitch + batch)?;
    }
    let end = queue.record()?;
    Ok((queue.seconds_between(&start, &end)? / calls.max(1) as f64, ran))
}

/// At most `count` items spread over a batch, the first and the last included.
fn spread(count: usize, batch: usize) -> impl Iterator<Item = usize> {
    let count = count.min(batch);
    (0..count).map(move |i| i * (batch - 1) / (count - 1).max(1))
}

/// The right-hand sides of an item that are checked: their shape, and where their elements lie in a packed B.
fn checked_rhs(side: Side, (rows, cols): (usize, usize), count: usize) -> ((usize, usize), Vec<usize>) {
    let (picked_rows, picked_cols): (Vec<usize>, Vec<usize>) = match side {
        Side::Left => ((0..rows).collect(), spread(count, cols).collect()),
        Side::Right => (spread(count, rows).collect(), (0..cols).collect()),
    };
    let kept = picked_cols.iter().flat_map(|j| picked_rows.iter().map(move |i| j * rows + i)).collect();
    ((picked_rows.len(), picked_cols.len()), kept)
}

/// One arm while it is timed: what its checked call ran with its residual and failed items, and seconds per call.
struct Arm<'f> {
    family: &'f str,
    checked: Result<(Ran, (f64, usize))>,
    full: Vec<f64>,
    half: Vec<f64>,
    /// Calls of a sample, once one call has been timed.
    calls: Option<usize>,
}

impl Arm<'_> {
    /// A sample: seconds of a call over `batch` items.
    fn sample(&mut self, subject: &mut dyn Subject, batch: usize) -> Result<f64> {
        let calls = match self.calls {
            Some(calls) => calls,
            None => {
                let (once, _) = subject.call(self.family, batch, 1)?;
                // A clock that did not move asks for as many as there are.
                let calls = (SAMPLE / once).ceil().max(1.0) as usize;
                let calls = *self.calls.insert(calls.min(subject.copies()));
                if calls == 1 {
                    return Ok(once);
                }
                calls
            }
        };
        Ok(subject.call(self.family, batch, calls)?.0)
    }
}

/// Buffers of a cell.
struct Bench<'c, T: Element> {
    ctx: &'c Context,
    cell: &'c Cell,
    effort: Effort,
    copies: Copies,
    items: Vec<Square<T>>,
    rhs: Vec<Vec<T>>,
    pristine_a: Buffer<T>,
    pristine_b: Buffer<T>,
    a: Buffer<T>,
    b: Buffer<T>,
    info: Buffer<i32>,
}

impl<'c, T: Element> Bench<'c, T> {
    fn new(ctx: &'c Context, cell: &'c Cell, effort: Effort) -> Result<Self> {
        let (rows, cols) = Self::rhs_shape(cell);
        let distinct = effort.distinct(cell.batch, (cell.n * cell.n).max(rows * cols));
        let bytes = T::DTYPE.bytes();
        let copies = Copies::new(cell.batch, &[cell.n * cell.n * bytes, rows * cols * bytes]);
        let all = copies.items(cell.batch, copies.count);
        let items: Vec<Square<T>> =
            (0..distinct).map(|b| definite(cell.n, &mut Random::new(11, b))).collect();
        let rhs: Vec<Vec<T>> = (0..distinct)
            .map(|b| {
                let mut random = Random::new(12, b);
                (0..rows * cols).map(|_| random.scalar()).collect()
            })
            .collect();
        let queue = ctx.queue();
        let fill = |items: Vec<&[T]>, each: usize| -> Result<Buffer<T>> {
            let mut buffer = Buffer::new(queue, all * each)?;
            let block = items.concat();
            for start in (0..all).step_by(distinct.max(1)).take_while(|_| distinct > 0) {
                let count = distinct.min(all - start);
                buffer.write(queue, start * each, &block[..count * each])?;
            }
            Ok(buffer)
        };
        let pristine_a = fill(items.iter().map(|m| &m.data[..]).collect(), cell.n * cell.n)?;
        let pristine_b = fill(rhs.iter().map(|m| &m[..]).collect(), rows * cols)?;
        let (a, b) = (Buffer::new(queue, pristine_a.len())?, Buffer::new(queue, pristine_b.len())?);
        let info = Buffer::new(queue, cell.batch)?;
        Ok(Bench { ctx, cell, effort, copies, items, rhs, pristine_a, pristine_b, a, b, info })
    }

    fn rhs_shape(cell: &Cell) -> (usize, usize) {
        match cell.op {
            Op::Trsm(Side::Right, ..) => (cell.nrhs, cell.n),
            _ => (cell.n, cell.nrhs),
        }
    }
}

impl<T: Element> Subject for Bench<'_, T> {
    fn call(&mut self, family: &str, batch: usize, calls: usize) -> Result<(f64, Ran)> {
        let (ctx, queue, n) = (self.ctx, self.ctx.queue(), self.cell.n);
        let (rows, cols) = Self::rhs_shape(self.cell);
        self.b.copy_from(queue, &self.pristine_b)?;
        let (uplo, route) = (self.cell.uplo, Some(family.to_owned()));
        let (copies, each) = (self.copies, [batch, calls]);
        let all = copies.items(batch, calls);
        let mut b = self.b.view_mut(rows, cols, rows.max(1), rows * cols, all)?;
        if let Op::Trsm(side, trans, diag) = self.cell.op {
            let options = TrsmOptions { side, uplo, trans, diag, alpha: T::one(), route };
            let a = self.pristine_a.view(n, n, n, n * n, all)?;
            return timed(queue, copies, each, |items| {
                ctx.trsm(a.items(items.clone())?, b.rb_mut().items(items)?, &options)
            });
        }
        self.a.copy_from(queue, &self.pristine_a)?;
        let mut a = self.a.view_mut(n, n, n, n * n, all)?;
        let (mut info, _) = self.info.info_mut().split_at(batch);
        if self.cell.op == Op::Potrf {
            let options = PotrfOptions { uplo, route };
            let size = ctx.potrf_workspace(a.rb().items(0..batch)?, &options)?;
            let mut memory = queue.alloc(size)?;
            return timed(queue, copies, each, |items| {
                let (a, info) = (a.rb_mut().items(items)?, info.rb_mut());
                ctx.potrf_in(a, info, WorkspaceMut::over(&mut memory), &options)
            });
        }
        let mut options = PosvOptions { uplo, route, ..Default::default() };
        let (first_a, first_b) = (a.rb().items(0..batch)?, b.rb_mut().items(0..batch)?);
        match self.cell.op {
            Op::Posv(Solve::Mixed) => {
                let mut memory = queue.alloc(ctx.posv_mixed_workspace(first_a, &first_b, &options)?)?;
                return timed(queue, copies, each, |items| {
                    let (a, b) = (a.rb_mut().items(items.clone())?, b.rb_mut().items(items)?);
                    let (info, memory) = (info.rb_mut(), WorkspaceMut::over(&mut memory));
                    ctx.posv_mixed_in(a, b, info, InfoMut::absent(), memory, &options)
                });
            }
            Op::Posv(Solve::Discarding) => options.factor = FactorOutput::Discarded,
            _ => {}
        }
        let mut memory = queue.alloc(ctx.posv_workspace(first_a, &first_b, false, &options)?)?;
        timed(queue, copies, each, |items| {
            let (a, b) = (a.rb_mut().items(items.clone())?, b.rb_mut().items(items)?);
            ctx.posv_in(a, b, info.rb_mut(), WorkspaceMut::over(&mut memory), &options)
        })
    }

    fn copies(&self) -> usize {
        self.copies.count
    }

    fn check(&self) -> Result<(f64, usize)> {
        let (queue, n, batch, uplo) = (self.ctx.queue(), self.cell.n, self.cell.batch, self.cell.uplo);
        let (rows, cols) = Self::rhs_shape(self.cell);
        let scale = n as f64 * T::DTYPE.epsilon();
        let results = spread(CHECKED, batch).map(|item| {
            let mut solved = Store::new(Layout::Packed, rows, cols, 1, T::default());
            self.b.read(queue, item * rows * cols, &mut solved.data)?;
            let mut factor = Store::new(Layout::Packed, n, n, 1, T::default());
            if self.cell.op == Op::Potrf {
                self.a.read(queue, item * n * n, &mut factor.data)?;
            }
            Ok((item, solved, factor))
        });
        let results = results.collect::<Result<Vec<_>>>()?;
        let (op, items, given) = (self.cell.op, &self.items, &self.rhs);
        let residual = |(item, solved, factor): &(usize, Store<T>, Store<T>)| {
            let (matrix, rhs) = (&items[item % items.len()], &given[item % given.len()]);
            match op {
                Op::Potrf => {
                    let residual =
                        if n > self.effort.multiplied { estimated_factor_residual } else { factor_residual };
                    scale * residual(matrix, uplo, factor, 0)
                }
                Op::Posv(_) => {
                    let ((rows, cols), kept) = checked_rhs(Side::Left, (rows, cols), self.effort.rhs);
                    let part = |from: &[T]| {
                        let mut part = Store::new(Layout::Packed, rows, cols, 1, T::default());
                        part.data.iter_mut().zip(&kept).for_each(|(to, &i)| *to = from[i]);
                        part
                    };
                    scale * solve_residual(matrix, &part(rhs), &part(&solved.data), 0)
                }
                Op::Trsm(side, trans, diag) => {
                    let ((rows, cols), kept) = checked_rhs(side, (rows, cols), self.effort.rhs);
                    let x: Vec<Complex<f64>> = kept.iter().map(|&i| solved.data[i].widen()).collect();
                    let product = triangle_product(side, uplo, trans, diag, matrix, &x, (rows, cols));
                    let norm = |v: &mut dyn Iterator<Item = f64>| v.sum::<f64>().sqrt();
                    let error =
                        norm(&mut product.iter().zip(&kept).map(|(p, &i)| (p - rhs[i].widen()).norm_sqr()));
                    let size = norm(&mut matrix.data.iter().map(|e| e.widen().norm_sqr()));
                    error / (size * norm(&mut x.iter().map(Complex::norm_sqr)))
                }
                // A product is another subject; a row with a NaN counts nowhere.
                Op::Product(..) => f64::NAN,
            }
        };
        // The compensated sums of a large order take longer than all its timed calls.
        let residuals = std::thread::scope(|scope| {
            let threads: Vec<_> = results.iter().map(|result| scope.spawn(|| residual(result))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).collect::<Vec<_>>()
        });
        // `max` alone would forget a NaN.
        let worst = residuals.into_iter().fold(0.0, |worst: f64, residual| match worst.is_nan() {
            true => worst,
            false if residual.is_nan() => residual,
            false => worst.max(residual),
        });
        let bad = match self.cell.op {
            Op::Trsm(..) => 0,
            _ => self.info.to_vec(queue)?.iter().filter(|&&status| status != 0).count(),
        };
        Ok((worst, bad))
    }
}

/// Times every family over a whole and a half batch.
fn time<'f>(subject: &mut dyn Subject, batch: usize, families: &'f [String], reps: usize) -> Vec<Arm<'f>> {
    // The first call compiles and warms up, and is the one that is checked.
    let mut arms = Vec::new();
    for family in families {
        let checked = subject.call(family, batch, 1).and_then(|(_, ran)| Ok((ran, subject.check()?)));
        arms.push(Arm { family, checked, full: Vec::new(), half: Vec::new(), calls: None });
    }
    for _ in 0..reps.max(1) {
        for arm in arms.iter_mut().filter(|arm| arm.checked.is_ok()) {
            let times =
                arm.sample(subject, batch).and_then(|full| Ok((full, arm.sample(subject, half(batch))?)));
            match times {
                Ok((full, half)) => {
                    arm.full.push(full);
                    arm.half.push(half);
                }
                Err(error) => arm.checked = Err(error),
            }
        }
    }
    arms
}

/// A time over the best at which an arm is out of the contest after one sample.
const HOPELESS: f64 = 1.4;

/// Relative difference of the medians of two passes up to which they agree.
const AGREE: f64 = 0.10;

/// Passes of an arm at most.
const PASSES: usize = 4;

/// Times families against each other: one call each, then the promising ones in two passes of `reps` interleaved calls, the
/// second in reversed order, and as many more (to [`PASSES`]) as it takes for the last two to agree.
fn contest<'f>(subject: &mut dyn Subject, batch: usize, families: &'f [String], reps: usize) -> Vec<Arm<'f>> {
    let mut arms = time(subject, batch, families, 1);
    let first = |arm: &Arm<'_>| arm.full.first().copied().filter(|_| arm.checked.is_ok());
    let best = arms.iter().filter_map(first).fold(f64::INFINITY, f64::min);
    let mut open: Vec<usize> =
        (0..arms.len()).filter(|&i| first(&arms[i]).is_some_and(|time| time <= HOPELESS * best)).collect();
    for &i in &open {
        arms[i].full.clear();
    }
    let mut medians = vec![f64::NAN; arms.len()];
    for _ in 0..PASSES {
        let from: Vec<usize> = arms.iter().map(|arm| arm.full.len()).collect();
        for rep in 0..reps.max(1) {
            for &i in &open {
                let arm = &mut arms[i];
                let times = arm.sample(subject, batch).and_then(|full| {
                    // One sample at half the batch a pass is enough to tell saturation.
                    let halved = (rep == 0).then(|| arm.sample(subject, half(batch))).transpose()?;
                    Ok((full, halved))
                });
                match times {
                    Ok((full, halved)) => {
                        arm.full.push(full);
                        arm.half.extend(halved);
                    }
                    Err(error) => arm.checked = Err(error),
                }
            }
        }
        open.retain(|&i| {
            let now = median(&arms[i].full[from[i]..]);
            let agreed = (now / medians[i] - 1.0).abs() <= AGREE;
            medians[i] = now;
            arms[i].checked.is_ok() && !agreed
        });
        open.reverse();
    }
    arms
}

/// The arms of a contest over a cell, each with the digest of the code that it launches. What fails has no row.
///
/// # Errors
/// As for [`measure`].
pub fn rank(
    ctx: &Context,
    cell: &Cell,
    arms: &[(String, Option<String>)],
    reps: usize,
    provenance: &Provenance,
) -> Result<Vec<Row>> {
    let mut subject = subject(ctx, cell, Effort::TUNER)?;
    let families: Vec<String> = arms.iter().map(|(family, _)| family.clone()).collect();
    let timed = contest(&mut *subject, cell.batch, &families, reps);
    let rows = timed.into_iter().zip(arms).filter_map(|(arm, (_, code))| {
        let (ran, checks) = arm.checked.ok()?;
        let row = row(ctx.device(), cell, arm.family, &ran, checks, [&arm.full, &arm.half], provenance);
        Some(Row { code: code.clone(), ..row })
    });
    Ok(rows.collect())
}

fn row(
    device: &Device,
    cell: &Cell,
    family: &str,
    ran: &Ran,
    (residual, bad_items): (f64, usize),
    [full, halved]: [&[f64]; 2],
    provenance: &Provenance,
) -> Row {
    let Cell { op, dtype, uplo, n, nrhs, batch } = *cell;
    let per_item = |seconds: &[f64], items: usize| median(seconds) * 1e9 / items as f64;
    let reps = full.len();
    // On a CPU that others share, a run can only be lengthened: the faster half of the runs counts.
    let (full, halved) = (quieter(device, full), quieter(device, halved));
    let ns_per_item = per_item(&full, batch);
    let floor_ns = match op {
        Op::Potrf => floor::potrf(dtype, uplo, n),
        Op::Posv(solve) => floor::posv(dtype, uplo, n, nrhs, solve == Solve::Storing),
        Op::Trsm(..) => floor::trsm(dtype, uplo, n, nrhs),
        Op::Product(Product::Gemm(_, m, k), _) => floor::gemm(dtype, m, n, k),
        Op::Product(Product::Herk(_, k), _) => floor::herk(dtype, uplo, n, k),
    };
    let (trans, m, k) = match op {
        Op::Potrf | Op::Posv(_) => (None, None, None),
        Op::Trsm(_, trans, _) => (Some(trans.letter().to_owned()), None, None),
        Op::Product(Product::Gemm([a, b], m, k), _) => (Some(format!("{a}{b}")), Some(m), Some(k)),
        Op::Product(Product::Herk(trans, k), _) => (Some(trans.letter().to_owned()), None, Some(k)),
    };
    let pad = if let Op::Product(_, pad) = op { pad } else { 0 };
    let solve = match op {
        Op::Trsm(side, _, diag) => Some((side, diag)),
        _ => None,
    };
    Row {
        op: op.name().into(),
        dtype: dtype.name().into(),
        side: solve.map(|s| s.0.letter().into()),
        uplo: (!matches!(op, Op::Product(Product::Gemm(..), _))).then(|| uplo.letter().into()),
        trans,
        diag: solve.map(|s| s.1.letter().into()),
        m,
        n,
        k,
        nrhs: matches!(op, Op::Posv(_) | Op::Trsm(..)).then_some(nrhs),
        batch,
        ld: m.unwrap_or(n) + pad,
        family: family.into(),
        executed: ran.to_string(),
        vendor_free: ran.vendor_free(),
        ns_per_item,
        rel_sd: relative_deviation(&full),
        reps,
        // A batch of one has no half to be compared with.
        saturated: batch > 1 && per_item(&halved, half(batch)) <= SATURATED * ns_per_item,
        residual,
        bad_items,
        floor_ns,
        device: device.name.clone(),
        arch: device.arch.clone(),
        driver: provenance.driver.clone(),
        nvrtc: provenance.nvrtc.clone(),
        commit: provenance.commit.clone(),
        date: provenance.date.clone(),
        code: None,
        part: None,
    }
}

/// The runs that count.
fn quieter<'r>(device: &Device, runs: &'r [f64]) -> Cow<'r, [f64]> {
    if device.is_gpu() {
        return Cow::Borrowed(runs);
    }
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.truncate(runs.len().div_ceil(2));
    Cow::Owned(sorted)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

fn relative_deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchlas::Environment;
    use batchlas_kernels::Arch;

    #[test]
    fn a_row_of_each_operation_is_right_and_complete() {
        let ctx = Context::cpu(1).unwrap();
        let trsm = Op::Trsm(Side::Right, Trans::Trans, Diag::NonUnit);
        let gemm = Op::Product(Product::Gemm([Trans::ConjTrans, Trans::No], 7, 5), 0);
        let herk = Op::Product(Product::Herk(Trans::ConjTrans, 5), 3);
        for (op, nrhs, family) in [
            (Op::Potrf, 0, "vendor"),
            (Op::Posv(Solve::Discarding), 2, "blocked"),
            (trsm, 3, "vendor"),
            (gemm, 0, "vendor"),
            (herk, 0, "vendor"),
        ] {
            for dtype in Dtype::ALL {
                // A product has no triangle, and its row says so.
                let uplo =
                    if matches!(op, Op::Product(Product::Gemm(..), _)) { Uplo::Lower } else { Uplo::Upper };
                let cell = Cell { op, dtype, uplo, n: 9, nrhs, batch: 300 };
                let families = [family.to_owned(), "nonsense".to_owned()];
                let timed = measure(&ctx, &cell, &families, 3, &Provenance::default()).unwrap();
                let row = timed[0].outcome.as_ref().unwrap();
                assert!(row.residual > 0.0 && row.residual < 9.0 * dtype.epsilon(), "{}", row.residual);
                assert!(row.ns_per_item > 0.0 && row.bad_items == 0 && row.reps == 3);
                assert_eq!(row.vendor_free, !row.executed.contains("vendor"), "{}", row.executed);
                let operations = matches!(op, Op::Product(..));
                assert_eq!(row.tflops().is_some_and(|rate| rate > 0.0), operations);
                assert!(timed[1].outcome.is_err(), "a spelling that does not exist has no row");
                let json = serde_json::to_value(row).unwrap();
                assert_eq!(json.as_object().unwrap().len(), 28, "the ledger's fields");
                assert_eq!(row.cell().unwrap(), cell, "the row says what was timed");
            }
        }
    }

    /// A rehearsal names the kernels of an arm without a device, those of children behind seams included, and writes to
    /// no memory: a batch that no machine holds costs nothing.
    #[test]
    fn kernels_of_an_arm_are_known_without_a_device() {
        let device = Arch::from_str("sm_90").unwrap().device().unwrap();
        let ctx = Context::rehearsing(device, Environment::default()).unwrap();
        let cell = |op, n, nrhs, batch| Cell { op, dtype: Dtype::F64, uplo: Uplo::Upper, n, nrhs, batch };
        let names = |cell: &Cell, family: &str| -> Vec<String> {
            kernels(&ctx, cell, family).unwrap().into_iter().map(|kernel| kernel.entry).collect()
        };
        let tiny = names(&cell(Op::Potrf, 17, 0, 1 << 31), "tiny");
        assert!(matches!(&tiny[..], [one] if one.contains("potrf_tiny<batchlas::f64, 17")), "{tiny:?}");
        let blocked = names(&cell(Op::Posv(Solve::Storing), 20, 3, 100), "blocked");
        for part in ["potrf_", "trsm_"] {
            assert!(blocked.iter().any(|name| name.contains(part)), "{blocked:?}");
        }
        assert!(
            names(&cell(Op::Product(Product::Gemm([Trans::No; 2], 8, 8), 0), 8, 0, 2), "vendor").is_empty()
        );
        let error = kernels(&ctx, &cell(Op::Potrf, 33, 0, 2), "tiny").unwrap_err();
        assert!(error.to_string().contains("33"), "{error}");
    }

    /// A subject whose calls take given times: the drift of an arm shows in its passes.
    struct Scripted {
        calls: Vec<String>,
        times: fn(&str, usize) -> f64,
    }

    impl Subject for Scripted {
        fn call(&mut self, family: &str, batch: usize, _: usize) -> Result<(f64, Ran)> {
            if family == "broken" {
                return Err(batchlas::Error::Internal("broken".into()));
            }
            if batch == 2 {
                self.calls.push(family.to_owned());
            }
            let nth = self.calls.iter().filter(|call| *call == family).count();
            Ok(((self.times)(family, nth), Ran::leaf("potrf", family.to_owned())))
        }

        fn copies(&self) -> usize {
            1
        }

        fn check(&self) -> Result<(f64, usize)> {
            Ok((0.0, 0))
        }
    }

    #[test]
    fn a_contest_reverses_its_order_and_repeats_what_disagrees() {
        // Each arm is called twice before the passes: checked, and timed once.
        let times = |family: &str, nth: usize| match (family, nth) {
            ("slow", _) => 2.5,
            ("drifts", 0..=4) => 1.3,
            _ => 1.0,
        };
        let mut subject = Scripted { calls: Vec::new(), times };
        let families = ["steady", "slow", "drifts", "broken"].map(str::to_owned);
        let arms = contest(&mut subject, 2, &families, 2);
        let passes = &subject.calls[6..];
        let expected = [
            "steady", "drifts", "steady", "drifts", "drifts", "steady", "drifts", "steady", "drifts",
            "drifts",
        ];
        assert_eq!(passes, expected);
        let counts: Vec<usize> = arms.iter().map(|arm| arm.full.len()).collect();
        assert_eq!(counts, [4, 1, 6, 0]);
        assert!(arms[3].checked.is_err());
    }

    /// A call that is too short is repeated over copies, as far as there are any; a long one is not.
    #[test]
    fn short_calls_are_repeated() {
        struct Counting(Vec<usize>, f64);
        impl Subject for Counting {
            fn call(&mut self, family: &str, _: usize, calls: usize) -> Result<(f64, Ran)> {
                self.0.push(calls);
                Ok((self.1, Ran::leaf("potrf", family.to_owned())))
            }

            fn copies(&self) -> usize {
                20
            }

            fn check(&self) -> Result<(f64, usize)> {
                Ok((0.0, 0))
            }
        }
        for (seconds, expected) in [(0.0, 20), (5e-6, 20), (30e-6, 7), (SAMPLE, 1), (1.0, 1)] {
            let mut subject = Counting(Vec::new(), seconds);
            let families = ["tiny".to_owned()];
            let arms = time(&mut subject, 8, &families, 2);
            // The call that is checked and the one that is timed alone; the latter is a sample if it was long enough.
            let samples = if expected == 1 { 3 } else { 4 };
            assert_eq!(subject.0, [vec![1, 1], vec![expected; samples]].concat(), "{seconds}");
            assert_eq!(arms[0].full, [seconds; 2]);
        }
    }

    /// Every copy begins where an allocation could, and the last ends where the buffer does.
    #[test]
    fn copies_are_aligned_and_fit() {
        for (batch, bytes) in
            [(1, [4, 12]), (3, [49 * 4, 7 * 8]), (20, [128, 256]), (5, [0, 36]), (1 << 20, [64, 8])]
        {
            let copies = Copies::new(batch, &bytes);
            assert!((1..=COPIES).contains(&copies.count) && copies.pitch >= batch);
            assert!(copies.count == 1 || bytes.iter().all(|each| (copies.pitch * each).is_multiple_of(128)));
            assert_eq!(copies.items(batch, copies.count), (copies.count - 1) * copies.pitch + batch);
            let filled = copies.pitch * copies.count * bytes.iter().sum::<usize>();
            assert!(copies.count == 1 || filled <= COPIED_BYTES, "{batch} {bytes:?}");
        }
        assert_eq!(Copies::new(1 << 20, &[64, 8]).count, 1, "a large batch has no copies");
    }

    #[test]
    fn medians_and_deviations() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(relative_deviation(&[2.0, 2.0]), 0.0);
        assert!((relative_deviation(&[1.0, 3.0]) - 0.5).abs() < 1e-12);
    }
}
