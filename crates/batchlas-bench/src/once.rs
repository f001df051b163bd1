//! One call of one operation, from a line of text: for what looks at the kernels that it launches, such as barrier
//! mutation and cost reports, and compares runs bit by bit. Whether the result is right is for the corpus to say.
//!
//! ```text
//! potrf DTYPE UPLO N BATCH ROUTE
//! posv  DTYPE UPLO N NRHS BATCH ROUTE
//! mixed DTYPE UPLO N NRHS BATCH ROUTE      (posv in mixed precision)
//! potrs DTYPE UPLO N NRHS BATCH ROUTE
//! potri DTYPE UPLO N BATCH native
//! trsm  DTYPE SIDE UPLO TRANS DIAG N Q BATCH ROUTE
//! gemm  DTYPE TRANSA TRANSB M N K BATCH ROUTE
//! herk  DTYPE UPLO TRANS N K BATCH ROUTE
//! mmq   f32 ARITHMETIC M N K 1 ROUTE       (M tokens, N rows of K weights)
//! ```
//!
//! Operands are padded between columns and items (a call built in code may choose another layout), and all that is no
//! element of an item is a finite poison.

use std::str::FromStr;

use batchlas::{
    Arithmetic, Buffer, Context, Diag, Dtype, Element, GemmOptions, HerkOptions, MmqError, MmqOptions,
    PosvOptions, PotrfOptions, PotriOptions, PotrsOptions, Q4kMatrix, RealOf, Result, Scalar, Side, Trans,
    TrsmOptions, Uplo, WorkspaceMut,
};
use num_complex::Complex;

use crate::matrices::{Random, definite};
use crate::operands::{Layout, Loaded, Store};
use crate::verify::in_triangle;

/// What `info` holds before a call.
const STALE_INFO: i32 = 77;

/// An operation and its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the operations' arguments")]
pub enum Op {
    Potrf { uplo: Uplo, n: usize },
    Posv { uplo: Uplo, n: usize, nrhs: usize },
    Mixed { uplo: Uplo, n: usize, nrhs: usize },
    Potrs { uplo: Uplo, n: usize, nrhs: usize },
    Potri { uplo: Uplo, n: usize },
    Trsm { side: Side, uplo: Uplo, trans: Trans, diag: Diag, n: usize, q: usize },
    Gemm { trans_a: Trans, trans_b: Trans, m: usize, n: usize, k: usize },
    Herk { uplo: Uplo, trans: Trans, n: usize, k: usize },
    Mmq { arithmetic: Arithmetic, m: usize, n: usize, k: usize },
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The operation.
    pub op: Op,
    /// Element type.
    pub dtype: Dtype,
    /// Items.
    pub batch: usize,
    /// How the items lie; a line of text means padded.
    pub layout: Layout,
    /// The family that is forced, in the spelling of pins.
    pub route: String,
}

impl FromStr for Call {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let mut next = |what: &str| words.next().ok_or_else(|| format!("{line:?}: {what} is missing"));
        fn parsed<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{what} is {text:?}"))
        }
        macro_rules! word {
            ($what:literal) => {
                parsed(next($what)?, $what)?
            };
        }
        let op = next("the operation")?;
        let dtype: Dtype = next("the element type")?.parse()?;
        let op = match op {
            "potrf" => Op::Potrf { uplo: word!("the triangle"), n: word!("the order") },
            "potri" => Op::Potri { uplo: word!("the triangle"), n: word!("the order") },
            solve @ ("posv" | "mixed" | "potrs") => {
                let uplo = word!("the triangle");
                let (n, nrhs) = (word!("the order"), word!("the number of right-hand sides"));
                match solve {
                    "posv" => Op::Posv { uplo, n, nrhs },
                    "mixed" => Op::Mixed { uplo, n, nrhs },
                    _ => Op::Potrs { uplo, n, nrhs },
                }
            }
            "trsm" => Op::Trsm {
                side: word!("the side"),
                uplo: word!("the triangle"),
                trans: word!("the transposition"),
                diag: word!("the diagonal"),
                n: word!("the order"),
                q: word!("the number of right-hand sides"),
            },
            "gemm" => Op::Gemm {
                trans_a: word!("the transposition of A"),
                trans_b: word!("the transposition of B"),
                m: word!("the rows"),
                n: word!("the columns"),
                k: word!("the inner dimension"),
            },
            "herk" => Op::Herk {
                uplo: word!("the triangle"),
                trans: word!("the transposition"),
                n: word!("the order"),
                k: word!("the inner dimension"),
            },
            "mmq" => Op::Mmq {
                arithmetic: match next("the arithmetic")? {
                    "int8" => Arithmetic::Int8,
                    "bf16" => Arithmetic::Bf16,
                    other => return Err(format!("{line:?}: {other:?} is not int8 or bf16")),
                },
                m: word!("the tokens"),
                n: word!("the rows"),
                k: word!("the inner dimension"),
            },
            other => {
                return Err(format!(
                    "{other:?} is not one of potrf, posv, mixed, potrs, potri, trsm, gemm, herk, mmq"
                ));
            }
        };
        let (batch, route) = (word!("the batch"), next("the route")?.to_owned());
        if matches!(op, Op::Potri { .. }) && route != "native" {
            return Err(format!("{line:?}: potri is run by \"native\" alone, not by {route:?}"));
        }
        if matches!(op, Op::Mmq { .. }) && (dtype, batch) != (Dtype::F32, 1) {
            return Err(format!("{line:?}: mmq is of f32, and one product"));
        }
        match words.next() {
            None => Ok(Call { op, dtype, batch, layout: Layout::Padded, route }),
            Some(more) => Err(format!("{line:?}: {more:?} is one word too many")),
        }
    }
}

/// An operand on the device, as the operation may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name in the documentation of the operation.
    pub name: &'static str,
    /// Address of its array.
    pub address: u64,
    /// Bytes of an element.
    pub element: usize,
    /// Elements of the array, padding included.
    pub len: usize,
    /// Rows of an item.
    pub rows: usize,
    /// Columns of an item.
    pub cols: usize,
    /// Elements from a column to the next.
    pub ld: usize,
    /// Elements from an item to the next.
    pub stride: usize,
    /// The triangle that is referenced; without it, everything is.
    pub triangle: Option<Uplo>,
    /// Whether the operation writes it.
    pub written: bool,
}

impl Operand {
    fn new<T: Element>(
        name: &'static str,
        loaded: &Loaded<'_, T>,
        triangle: Option<Uplo>,
        written: bool,
    ) -> Self {
        let store = loaded.store();
        let (rows, cols, ld, stride) = (store.rows(), store.cols(), store.ld(), store.stride());
        let (address, element, len) = (loaded.address(), size_of::<T>(), store.data.len());
        Operand { name, address, element, len, rows, cols, ld, stride, triangle, written }
    }

    /// Whether element `index` of the array is one of an item that the operation may touch.
    pub fn referenced(&self, index: usize) -> bool {
        let within = index % self.stride.max(1);
        let (i, j) = (within % self.ld, within / self.ld);
        i < self.rows && j < self.cols && self.triangle.is_none_or(|uplo| in_triangle(uplo, i, j))
    }
}

impl Call {
    /// Uploads fresh operands, shows each to `watch`, calls the operation, and returns what is in its outputs
    /// afterwards: every byte of the arrays, padding included, and of `info`.
    ///
    /// # Errors
    /// Those of the call; a route that cannot run it is a bad pin.
    pub fn run(&self, ctx: &Context, watch: &mut dyn FnMut(&Operand)) -> Result<Vec<u8>> {
        match self.dtype {
            Dtype::F32 => self.typed::<f32>(ctx, watch),
            Dtype::F64 => self.typed::<f64>(ctx, watch),
            Dtype::C32 => self.typed::<Complex<f32>>(ctx, watch),
            Dtype::C64 => self.typed::<Complex<f64>>(ctx, watch),
        }
    }

    fn definite<T: Element>(&self, n: usize) -> Store<T> {
        let mut a = self.empty(n, n);
        for b in 0..self.batch {
            let matrix = definite(n, &mut Random::new(21, b));
            for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
                a.set(b, i, j, matrix.at(i, j));
            }
        }
        a
    }

    fn general<T: Element>(&self, rows: usize, cols: usize, seed: u64) -> Store<T> {
        let mut x = self.empty(rows, cols);
        for b in 0..self.batch {
            let mut random = Random::new(seed, b);
            for (i, j) in (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                x.set(b, i, j, random.scalar());
            }
        }
        x
    }

    fn empty<T: Element>(&self, rows: usize, cols: usize) -> Store<T> {
        Store::new(self.layout, rows, cols, self.batch, T::from_parts(-999.0, 777.0))
    }

    fn typed<T: Element>(&self, ctx: &Context, watch: &mut dyn FnMut(&Operand)) -> Result<Vec<u8>> {
        let (queue, route) = (ctx.queue(), Some(self.route.clone()));
        let bytes = |x: &Loaded<'_, T>| -> Result<Vec<u8>> {
            Ok(bytemuck::cast_slice(&x.download(ctx)?.data).to_vec())
        };
        let op = |trans: Trans, rows: usize, cols: usize| {
            if trans.transposes() { (cols, rows) } else { (rows, cols) }
        };
        match self.op {
            Op::Potrf { uplo, n } => {
                let a = self.definite::<T>(n);
                let mut a = a.upload(ctx)?;
                let mut info = Buffer::from_slice(queue, &vec![STALE_INFO; self.batch])?;
                watch(&Operand::new("A", &a, Some(uplo), true));
                let options = PotrfOptions { uplo, route };
                a.with_mut(ctx, |a| {
                    let mut memory = queue.alloc(ctx.potrf_workspace(a.rb(), &options)?)?;
                    ctx.potrf_in(a, info.info_mut(), WorkspaceMut::over(&mut memory), &options)
                })?;
                Ok([bytes(&a)?, bytemuck::cast_slice(&info.to_vec(queue)?).to_vec()].concat())
            }
            Op::Posv { uplo, n, nrhs } => {
                let (a, b) = (self.definite::<T>(n), self.general::<T>(n, nrhs, 22));
                let (mut a, mut b) = (a.upload(ctx)?, b.upload(ctx)?);
                let mut info = Buffer::from_slice(queue, &vec![STALE_INFO; self.batch])?;
                watch(&Operand::new("A", &a, Some(uplo), true));
                watch(&Operand::new("B", &b, None, true));
                let options = PosvOptions { uplo, route, ..Default::default() };
                a.with_mut(ctx, |a| {
                    b.with_mut(ctx, |b| {
                        let mut memory = queue.alloc(ctx.posv_workspace(a.rb(), &b, false, &options)?)?;
                        ctx.posv_in(a, b, info.info_mut(), WorkspaceMut::over(&mut memory), &options)
                    })
                })?;
                Ok([bytes(&a)?, bytes(&b)?, bytemuck::cast_slice(&info.to_vec(queue)?).to_vec()].concat())
            }
            Op::Mixed { uplo, n, nrhs } => {
                let (mut a, b) = (self.definite::<T>(n), self.general::<T>(n, nrhs, 22));
                // The last item has no factor in half the precision, so that it falls back to the whole one: its last pivot
                // is 1e-9 after the loss of n - 1.
                for (i, j) in (0..n).flat_map(|j| (0..n).map(move |i| (i, j))) {
                    let element = match (i.max(j) == n - 1, i == j) {
                        (true, true) => (n - 1) as f64 + 1e-9,
                        (false, false) => 0.0,
                        _ => 1.0,
                    };
                    a.set(self.batch - 1, i, j, T::from_parts(element, 0.0));
                }
                let (mut a, mut b) = (a.upload(ctx)?, b.upload(ctx)?);
                let mut info = Buffer::from_slice(queue, &vec![STALE_INFO; self.batch])?;
                let mut iterations = Buffer::from_slice(queue, &vec![STALE_INFO; self.batch])?;
                watch(&Operand::new("A", &a, Some(uplo), true));
                watch(&Operand::new("B", &b, None, true));
                let options = PosvOptions { uplo, route, ..Default::default() };
                a.with_mut(ctx, |a| {
                    b.with_mut(ctx, |b| {
                        let mut memory = queue.alloc(ctx.posv_mixed_workspace(a.rb(), &b, &options)?)?;
                        let (info, iterations) = (info.info_mut(), iterations.info_mut());
                        let workspace = WorkspaceMut::over(&mut memory);
                        ctx.posv_mixed_in(a, b, info, iterations, workspace, &options)
                    })
                })?;
                let told = [info.to_vec(queue)?, iterations.to_vec(queue)?].concat();
                Ok([bytes(&a)?, bytes(&b)?, bytemuck::cast_slice(&told).to_vec()].concat())
            }
            Op::Potrs { uplo, n, nrhs } => {
                let (a, b) = (self.definite::<T>(n), self.general::<T>(n, nrhs, 22));
                let (mut a, mut b) = (a.upload(ctx)?, b.upload(ctx)?);
                watch(&Operand::new("A", &a, Some(uplo), false));
                watch(&Operand::new("B", &b, None, true));
                let options = PotrsOptions { uplo, route };
                b.with_mut(ctx, |b| a.with(ctx, |a| ctx.potrs(a, b, &options)))?;
                bytes(&b)
            }
            Op::Potri { uplo, n } => {
                let a = self.definite::<T>(n);
                let mut a = a.upload(ctx)?;
                let mut info = Buffer::from_slice(queue, &vec![STALE_INFO; self.batch])?;
                watch(&Operand::new("A", &a, Some(uplo), true));
                a.with_mut(ctx, |a| {
                    let mut memory = queue.alloc(ctx.potri_workspace(a.rb())?)?;
                    ctx.potri_in(a, info.info_mut(), WorkspaceMut::over(&mut memory), &PotriOptions { uplo })
                })?;
                Ok([bytes(&a)?, bytemuck::cast_slice(&info.to_vec(queue)?).to_vec()].concat())
            }
            Op::Trsm { side, uplo, trans, diag, n, q } => {
                let (rows, cols) = if side == Side::Left { (n, q) } else { (q, n) };
                let (a, b) = (self.definite::<T>(n), self.general::<T>(rows, cols, 22));
                let (mut a, mut b) = (a.upload(ctx)?, b.upload(ctx)?);
                watch(&Operand::new("A", &a, Some(uplo), false));
                watch(&Operand::new("B", &b, None, true));
                let alpha = T::from_parts(1.5, -0.5);
                let options = TrsmOptions { side, uplo, trans, diag, alpha, route };
                b.with_mut(ctx, |b| a.with(ctx, |a| ctx.trsm(a, b, &options)))?;
                bytes(&b)
            }
            Op::Gemm { trans_a, trans_b, m, n, k } => {
                let ((am, an), (bm, bn)) = (op(trans_a, m, k), op(trans_b, k, n));
                let (a, b, c) = (
                    self.general::<T>(am, an, 22),
                    self.general::<T>(bm, bn, 23),
                    self.general::<T>(m, n, 24),
                );
                let (mut a, mut b, mut c) = (a.upload(ctx)?, b.upload(ctx)?, c.upload(ctx)?);
                watch(&Operand::new("A", &a, None, false));
                watch(&Operand::new("B", &b, None, false));
                watch(&Operand::new("C", &c, None, true));
                let (alpha, beta) = (T::from_parts(1.5, -0.5), T::from_parts(0.5, 0.25));
                let options = GemmOptions { trans_a, trans_b, alpha, beta, route };
                c.with_mut(ctx, |c| a.with(ctx, |a| b.with(ctx, |b| ctx.gemm(a, b, c, &options))))?;
                bytes(&c)
            }
            Op::Herk { uplo, trans, n, k } => {
                let (rows, cols) = op(trans, n, k);
                let (a, c) = (self.general::<T>(rows, cols, 22), self.definite::<T>(n));
                let (mut a, mut c) = (a.upload(ctx)?, c.upload(ctx)?);
                watch(&Operand::new("A", &a, None, false));
                watch(&Operand::new("C", &c, Some(uplo), true));
                let real = |x| RealOf::<T>::from_parts(x, 0.0);
                let options = HerkOptions { uplo, trans, alpha: real(1.5), beta: real(0.5), route };
                c.with_mut(ctx, |c| a.with(ctx, |a| ctx.herk(a, c, &options)))?;
                bytes(&c)
            }
            Op::Mmq { arithmetic, m, n, k } => {
                self.mmq(ctx, watch, MmqOptions { arithmetic, route }, [m, n, k])
            }
        }
    }
}

impl Call {
    fn mmq(
        &self,
        ctx: &Context,
        watch: &mut dyn FnMut(&Operand),
        options: MmqOptions,
        [m, n, k]: [usize; 3],
    ) -> Result<Vec<u8>> {
        let refused = |error| match error {
            MmqError::Call(error) => error,
            other => batchlas::Error::Internal(other.to_string()),
        };
        let mut random = Random::new(25, 0);
        let mut weights = vec![0u8; n * k / 256 * 144];
        for block in weights.chunks_exact_mut(144) {
            block.fill_with(|| (random.scalar::<f32>() * 128.0) as i8 as u8);
            // d = 2^-7, dmin = 2^-8.
            block[..4].copy_from_slice(&[0, 0x20, 0, 0x1c]);
        }
        let len = weights.len();
        let weights = ctx.upload(&weights)?;
        let (x, y) = (self.general::<f32>(k, m, 26), self.general::<f32>(n, m, 27));
        let (mut x, mut y) = (x.upload(ctx)?, y.upload(ctx)?);
        let (address, element, cols, written) = (weights.address(), 1, 1, false);
        let triangle = None;
        watch(&Operand {
            name: "W",
            address,
            element,
            len,
            rows: len,
            cols,
            ld: len,
            stride: len,
            triangle,
            written,
        });
        watch(&Operand::new("X", &x, None, false));
        watch(&Operand::new("Y", &y, None, true));
        let w = Q4kMatrix::from_buffer(&weights, n, k).map_err(refused)?;
        y.with_mut(ctx, |y| x.with(ctx, |x| ctx.mmq(w, x, y, &options).map_err(refused)))?;
        Ok(bytemuck::cast_slice(&y.download(ctx)?.data).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[&str] = &[
        "potrf f32 L 5 3 vendor",
        "posv c64 U 4 2 3 blocked",
        "potrs f64 L 4 2 3 blocked",
        "potri c32 U 4 3 native",
        "trsm f64 R L C N 4 3 2 vendor",
        "gemm c32 T N 3 4 5 2 vendor",
        "herk f64 U N 4 3 2 vendor",
        "mmq f32 int8 3 4 512 1 dot",
    ];

    #[test]
    fn every_operation_runs_and_repeats_its_bits() {
        let ctx = Context::cpu(1).unwrap();
        for line in LINES {
            let call: Call = line.parse().unwrap();
            let mut operands = Vec::new();
            let first = call.run(&ctx, &mut |o| operands.push(*o)).unwrap();
            assert_eq!(first, call.run(&ctx, &mut |_| ()).unwrap(), "{line}");
            assert!(operands.last().is_some_and(|o| o.written), "{line}");
        }
    }

    #[test]
    fn an_operand_knows_its_padding_and_its_triangle() {
        let call: Call = "potrf f32 U 2 2 vendor".parse().unwrap();
        let ctx = Context::cpu(1).unwrap();
        let mut seen = None;
        call.run(&ctx, &mut |o| seen = Some(*o)).unwrap();
        let a = seen.unwrap();
        assert_eq!((a.ld, a.stride, a.len), (5, 15, 22));
        let referenced: Vec<usize> = (0..a.len).filter(|&i| a.referenced(i)).collect();
        assert_eq!(referenced, [0, 5, 6, 15, 20, 21]);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_named() {
        for (line, part) in [
            ("potrf f32 L 5", "the batch is missing"),
            ("getrf f32 L 5 1 x", "getrf"),
            ("potrf f32 L x 1 x", "the order is \"x\""),
            ("potrf f32 L 5 1 x y", "one word too many"),
            ("potri f32 L 5 1 vendor", "native"),
            ("mmq f64 int8 1 1 256 1 dot", "mmq is of f32"),
            ("mmq f32 int4 1 1 256 1 dot", "int4"),
        ] {
            let message = line.parse::<Call>().unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
