//! Activations in the form that products take: quantised once, used by any number of them.
//!
//! # The rule of [`Arithmetic::Int8`]
//! Every operation is rounded to nearest even, in f32, subnormal numbers included. For the 32 activations `x` of a chunk of a token:
//!
//! 1. `amax` is the largest absolute value; if one is NaN or infinite, the chunk's scale is NaN and its bytes are 0.
//! 2. `d = amax / 127`, `inverse = 1 / d`. Where that is infinite (`amax` below about 3.7e-37), `d = inverse = 0`.
//! 3. `q = round(x * inverse)`, ties to even. No clamp is needed: `|x * inverse|` exceeds 127 by less than 2^-20 of it.
//! 4. `A` is the sum of the `q`, exact; `d A` is rounded once, and overflows where `amax` exceeds 1e37.
//!
//! So a token with anything that is not finite has a result of NaN, and no other token is touched. [`Arithmetic::Bf16`] rounds each activation to
//! bfloat16, ties to even.
//!
//! [`layout`] says where all that lies. On a CPU and on a device the bytes are the same.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::validate::{Operand, equal};
use batchlas_core::{
    Buffer, Error, Kernel, KernelSource, Launch, MatBatch, Memory, Place, Promise, Queue, QueueError,
};
use bytemuck::{Pod, Zeroable};

use crate::error::Result;
use crate::layout::{self, CELL_TOKENS, STEP, STEP_CHUNKS};
use crate::q4k::{BLOCK, CHUNK};
use crate::route::{Arithmetic, OP};

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-mmq/cuda/panel.cuh", text: include_str!("../cuda/panel.cuh") };

/// Tiles of a product whose steps are dealt to several blocks: each has a counter in the panel.
pub const COUNTERS: usize = 1024;

/// Threads of a block: a warp for each token of a cell.
const THREADS: u32 = 32 * CELL_TOKENS as u32;

/// The kernel's one parameter (`PanelArgs` of the text).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    x: u64,
    ldx: u64,
    panel: u64,
    counters: u64,
    tokens: i32,
    steps: i32,
    count: i32,
    unused: i32,
}

// The text asserts the same number.
const _: () = assert!(size_of::<Args>() == 48);

/// Prepared activations of `tokens` tokens and `k` inner indices, in the memory of a queue.
#[derive(Debug)]
pub struct Panel {
    memory: Buffer<u8>,
    /// Sums of blocks that share a tile; grows with the first product that needs it.
    scratch: Option<Memory>,
    arithmetic: Arithmetic,
    tokens: usize,
    k: usize,
}

impl Panel {
    /// Brings activations (`K x M`, one item) into a panel.
    ///
    /// # Errors
    /// K is no positive multiple of 256; X is a batch, or not where the queue works; `Bf16` on a CPU; no memory.
    pub fn new(queue: &dyn Queue, arithmetic: Arithmetic, x: MatBatch<'_, f32>) -> Result<Panel> {
        let (k, tokens) = (x.rows(), x.cols());
        crate::weights::bytes(1, k)?;
        let too_large = || crate::Error::TooLarge { rows: tokens, k };
        let cells = tokens.div_ceil(CELL_TOKENS);
        let bytes = (k / STEP)
            .checked_mul(cells)
            .and_then(|count| count.checked_mul(arithmetic.cell()))
            .and_then(|bytes| bytes.checked_add(4 * COUNTERS))
            .ok_or_else(too_large)?;
        let mut panel = Panel { memory: Buffer::new(queue, bytes)?, scratch: None, arithmetic, tokens, k };
        panel.fill(queue, x)?;
        Ok(panel)
    }

    /// Brings other activations of the same shape into the panel.
    ///
    /// # Errors
    /// Another shape; X not where the queue works.
    pub fn fill(&mut self, queue: &dyn Queue, x: MatBatch<'_, f32>) -> Result<()> {
        Operand::of("X", &x).homogeneous(OP)?.at(OP, queue.device().place)?;
        equal(OP, "the batch", ("X", x.batch()), ("one product", 1))?;
        equal(OP, "the inner dimension", ("X", x.rows()), ("the panel", self.k))?;
        equal(OP, "the number of tokens", ("X", x.cols()), ("the panel", self.tokens))?;
        if self.tokens == 0 {
            return Ok(());
        }
        match (queue.cpu(), self.arithmetic) {
            (None, _) => self.launch(queue, &x),
            (Some(_), Arithmetic::Int8) => {
                let bytes = self.quantised(&x)?;
                Ok(self.memory.write(queue, 0, &bytes)?)
            }
            (Some(_), Arithmetic::Bf16) => Err(Error::NotRunnable {
                op: OP,
                device: queue.device().name.clone(),
                reasons: "a CPU has no products of bfloat16: ask for int8".into(),
            }
            .into()),
        }
    }

    /// What the activations were made into.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Inner dimension.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The bytes of all cells, waiting for work enqueued before.
    ///
    /// # Errors
    /// The transfer, or work enqueued before it, failed.
    pub fn to_vec(&self, queue: &dyn Queue) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()];
        self.memory.read(queue, 0, &mut bytes)?;
        Ok(bytes)
    }

    fn cells(&self) -> usize {
        self.tokens.div_ceil(CELL_TOKENS)
    }

    pub(crate) fn steps(&self) -> usize {
        self.k / STEP
    }

    fn bytes(&self) -> usize {
        self.cells() * self.steps() * self.arithmetic.cell()
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    pub(crate) fn place(&self) -> Place {
        self.memory.place()
    }

    /// Address of the counters; cells are multiples of 4 bytes.
    pub(crate) fn counters(&self) -> u64 {
        self.memory.address() + self.bytes() as u64
    }

    /// Address of at least so many bytes for one product at a time, in the order of the queue.
    pub(crate) fn scratch(&mut self, queue: &dyn Queue, bytes: usize) -> Result<u64, QueueError> {
        match &self.scratch {
            Some(memory) if memory.bytes() >= bytes => Ok(memory.address()),
            _ => Ok(self.scratch.insert(queue.alloc(bytes)?).address()),
        }
    }

    /// A cell of bytes, if the panel is in host memory.
    pub(crate) fn cell(&self, step: usize, cell: usize) -> Option<&[u8]> {
        debug_assert!(step < self.steps() && cell < self.cells() && self.arithmetic == Arithmetic::Int8);
        (self.place() == Place::Host).then(|| {
            let first: *const u8 = std::ptr::with_exposed_provenance(self.memory.address() as usize);
            let at = (step * self.cells() + cell) * layout::BYTES_CELL;
            // SAFETY: the buffer is host memory that lives as long as the panel, initialised when it was made, and has a cell there.
            unsafe { std::slice::from_raw_parts(first.add(at), layout::BYTES_CELL) }
        })
    }

    fn launch(&mut self, queue: &dyn Queue, x: &MatBatch<'_, f32>) -> Result<()> {
        let (address, ldx) = (x.address().0, x.ld() as u64 * 4);
        let size =
            |x: usize| i32::try_from(x).map_err(|_| crate::Error::TooLarge { rows: self.tokens, k: self.k });
        let args = Args {
            x: address,
            ldx,
            panel: self.address(),
            counters: self.counters(),
            tokens: size(self.tokens)?,
            steps: size(self.steps())?,
            count: size(COUNTERS)?,
            unused: 0,
        };
        let grid = size(self.cells() * self.steps())?.unsigned_abs();
        let kernel = kernel(self.arithmetic, address.is_multiple_of(16) && ldx.is_multiple_of(16));
        let launch = Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
        // SAFETY: `Args` is the parameter struct of this kernel; X is a view that is borrowed for work on this queue, of the shape that the arguments say, and
        // the panel is borrowed exclusively.
        Ok(unsafe { queue.launch(&launch) }?)
    }

    /// The cells by the rule above, on the calling thread.
    fn quantised(&self, x: &MatBatch<'_, f32>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()];
        let item = on_host(x.item(0))?;
        for t in 0..self.tokens {
            for chunk in 0..self.k / CHUNK {
                let quantised = Chunk::new(std::array::from_fn(|e| item.at(chunk * CHUNK + e, t)));
                let cell = (chunk / STEP_CHUNKS * self.cells() + t / CELL_TOKENS) * layout::BYTES_CELL;
                let cell = &mut bytes[cell..cell + layout::BYTES_CELL];
                quantised.store(cell, chunk % STEP_CHUNKS, t % CELL_TOKENS);
            }
        }
        Ok(bytes)
    }
}

/// A quantised chunk of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// The bytes.
    pub q: [i8; CHUNK],
    /// What one of them stands for.
    pub d: f32,
    /// Their sum.
    pub sum: i32,
}

impl Chunk {
    /// Quantises by the rule of this module.
    pub fn new(x: [f32; CHUNK]) -> Chunk {
        if x.iter().any(|x| !x.is_finite()) {
            return Chunk { q: [0; CHUNK], d: f32::NAN, sum: 0 };
        }
        let amax = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        let d = amax / 127.0;
        let inverse = 1.0 / d;
        let (d, inverse) = if inverse.is_infinite() { (0.0, 0.0) } else { (d, inverse) };
        let q = x.map(|x| (x * inverse).round_ties_even() as i8);
        Chunk { q, d, sum: q.iter().map(|&q| i32::from(q)).sum() }
    }

    fn store(&self, cell: &mut [u8], c: usize, t: usize) {
        for (e, &q) in self.q.iter().enumerate() {
            cell[layout::byte(c, t, e)] = q.cast_unsigned();
        }
        let product = if self.d.is_nan() { self.d } else { self.d * self.sum as f32 };
        let lead = f32::from_bits(product.to_bits() & 0xffff_e000);
        let rest = if product.is_finite() { product - lead } else { 0.0 };
        let words = [
            (layout::lead(c, t), lead.to_le_bytes()),
            (layout::rest(c, t), rest.to_le_bytes()),
            (layout::scale(c, t), self.d.to_le_bytes()),
            (layout::sum(c, t), self.sum.to_le_bytes()),
        ];
        for (at, word) in words {
            cell[at..at + 4].copy_from_slice(&word);
        }
    }
}

fn kernel(arithmetic: Arithmetic, aligned: bool) -> Kernel {
    let name = match arithmetic {
        Arithmetic::Int8 => "bytes",
        Arithmetic::Bf16 => "bf16",
    };
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::mmq_panel_{name}<{aligned}>"),
        promise: Promise { threads: THREADS, min_blocks: 4, max_dynamic_shared: 0 },
    }
}

/// Every kernel that makes panels.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let both = [Arithmetic::Int8, Arithmetic::Bf16];
    both.into_iter().flat_map(|arithmetic| [true, false].map(|aligned| kernel(arithmetic, aligned)))
}

const _: () = assert!(BLOCK == 2 * STEP);

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(x: &[f32]) -> Chunk {
        Chunk::new(std::array::from_fn(|e| x[e % x.len()]))
    }

    #[test]
    fn ties_go_to_even_and_sums_are_exact() {
        let mut x = [1f32; 32];
        x[31] = 254.0;
        let tie = Chunk::new(x);
        assert_eq!(
            (tie.d, tie.sum, tie.q[0], tie.q[31]),
            (2.0, 127, 0, 127),
            "1 / 2 is a tie, and 0 is even"
        );
        assert_eq!(chunk(&[3000.0]).sum, 32 * 127, "no sum of activations that could overflow");
        assert_eq!(
            chunk(&[-5.0, 5.0]),
            Chunk { q: std::array::from_fn(|e| if e % 2 == 0 { -127 } else { 127 }), d: 5.0 / 127.0, sum: 0 }
        );
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(chunk(&[0.0, -0.0]), Chunk { q: [0; 32], d: 0.0, sum: 0 });
        assert_eq!(chunk(&[1e-38]), Chunk { q: [0; 32], d: 0.0, sum: 0 }, "1 / d overflows");
        let small = chunk(&[1e-36]);
        assert!(small.d > 0.0 && small.q[0] == 127, "{small:?}");
        assert_eq!(chunk(&[f32::MAX]).q, [127; 32]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let chunk = chunk(&[1.0, bad]);
            assert!(chunk.d.is_nan() && chunk.q == [0; 32] && chunk.sum == 0, "{bad}");
        }
    }
}
