//! Operands, the exact reference and the gate that the tests and the measuring example share.
#![allow(dead_code, missing_docs, reason = "each user takes what it needs")]

use batchlas_core::{Buffer, Queue};
use batchlas_mmq::panel::Chunk;
use batchlas_mmq::q4k::{BLOCK, BLOCK_BYTES, Block, CHUNK, CHUNKS};
use batchlas_mmq::{Arithmetic, Mmq, Panel, Q4kMatrix, Result, VOCABULARY};
use batchlas_select::Selector;

/// A generator of 64-bit numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in (-1, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

/// Super-blocks with scales of either sign, from subnormal to 2^-5.
pub(crate) fn weights(random: &mut Random, rows: usize, k: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * k / BLOCK * BLOCK_BYTES];
    for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
        block.iter_mut().for_each(|byte| *byte = random.bits() as u8);
        for (at, exponents) in [(0, 4), (2, 2)] {
            let bits = random.bits();
            let exponent = if bits & 0xff == 0 { 0 } else { 7 + (bits >> 8) % exponents };
            let sign = u16::from(bits >> 20 & 15 == 0);
            let half = sign << 15 | (exponent as u16) << 10 | (bits >> 32) as u16 & 1023;
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    bytes
}

/// Activations with an outlier here and there; a chunk of zeros, one of a tie.
pub(crate) fn activations(random: &mut Random, k: usize, tokens: usize) -> Vec<f32> {
    let mut x: Vec<f32> = (0..k * tokens).map(|_| random.unit()).collect();
    x.iter_mut().step_by(97).for_each(|x| *x *= 50.0);
    if let Some(first) = x.first_chunk_mut::<CHUNK>() {
        *first = [1.0; CHUNK];
        first[31] = 254.0;
    }
    if let Some(last) = x.last_chunk_mut::<CHUNK>() {
        *last = [0.0; CHUNK];
    }
    x
}

/// The exact product of the quantised operands in f64, and the gate of a kernel in f32 at each element: column-major `n x m`.
pub(crate) fn reference(
    w: &[u8],
    n: usize,
    k: usize,
    x: &[f32],
    ldx: usize,
    m: usize,
) -> (Vec<f64>, Vec<f64>) {
    let tokens: Vec<Vec<Chunk>> = (0..m)
        .map(|t| x[t * ldx..t * ldx + k].as_chunks::<CHUNK>().0.iter().map(|&x| Chunk::new(x)).collect())
        .collect();
    let (mut y, mut gate) = (vec![0.0; n * m], vec![0.0; n * m]);
    for row in 0..n {
        let blocks = w[row * k / BLOCK * BLOCK_BYTES..].as_chunks::<BLOCK_BYTES>().0;
        for (b, block) in blocks[..k / BLOCK].iter().enumerate() {
            let block = Block(block);
            for j in 0..CHUNKS {
                let (scale, minimum) = block.sixes(j);
                let (scale, minimum) =
                    (f64::from(block.d()) * f64::from(scale), f64::from(block.dmin()) * f64::from(minimum));
                let q = block.nibbles(j);
                for (t, token) in tokens.iter().enumerate() {
                    let Chunk { q: x, d, sum } = &token[b * CHUNKS + j];
                    let dot: i32 = q.iter().zip(x).map(|(&q, &x)| i32::from(q) * i32::from(x)).sum();
                    let terms =
                        (f64::from(*d) * scale * f64::from(dot), f64::from(*d) * minimum * f64::from(*sum));
                    y[t * n + row] += terms.0 - terms.1;
                    gate[t * n + row] += terms.0.abs() + terms.1.abs();
                }
            }
        }
    }
    let factor = (k as f64 / 16.0 + k as f64 / 32.0 + 4.0) * 2f64.powi(-24);
    gate.iter_mut().for_each(|gate| *gate *= factor);
    (y, gate)
}

/// The product of the operands as they are in f64, and what rounding both to bfloat16 may change: column-major `n x m`.
pub(crate) fn reference_bf16(
    w: &[u8],
    n: usize,
    k: usize,
    x: &[f32],
    ldx: usize,
    m: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut gate) = (vec![0.0; n * m], vec![0.0; n * m]);
    for row in 0..n {
        let blocks = w[row * k / BLOCK * BLOCK_BYTES..].as_chunks::<BLOCK_BYTES>().0;
        for (b, block) in blocks[..k / BLOCK].iter().enumerate() {
            let block = Block(block);
            for (i, weight) in block.decode().into_iter().enumerate() {
                let unit = f64::from(block.d()).abs() * f64::from(block.sixes(i / CHUNK).0);
                for t in 0..m {
                    let x = f64::from(x[t * ldx + b * BLOCK + i]);
                    y[t * n + row] += x * f64::from(weight);
                    // Half a unit in the last of 8 bits for each operand, and the multiply-add that makes the weight.
                    gate[t * n + row] +=
                        x.abs() * (f64::from(weight).abs() * 2f64.powi(-8) * 1.02 + unit * 2f64.powi(-19));
                }
            }
        }
    }
    (y, gate)
}

/// What a spelling makes of host operands on a queue, `Y` with leading dimension `ldy` over a marker.
pub(crate) fn run(
    queue: &dyn Queue,
    route: &str,
    w: &[u8],
    [n, k, m]: [usize; 3],
    (x, ldx): (&[f32], usize),
    ldy: usize,
) -> Result<Vec<f32>> {
    let selector = Selector::default();
    let pin =
        if route == "auto" { None } else { Some(VOCABULARY.pin(route).map_err(batchlas_core::Error::from)?) };
    let mmq = Mmq { selector: &selector, pin };
    let arithmetic = if route.starts_with("bf16") { Arithmetic::Bf16 } else { Arithmetic::Int8 };
    let (w, x) = (Buffer::from_slice(queue, w)?, Buffer::from_slice(queue, x)?);
    let mut y = Buffer::from_slice(queue, &vec![MARKER; (ldy * m.saturating_sub(1) + n).max(1)])?;
    let weights = Q4kMatrix::from_buffer(&w, n, k)?;
    mmq.multiply(
        queue,
        arithmetic,
        weights,
        x.view(k, m, ldx, ldx * m, 1)?,
        y.view_mut(n, m, ldy, ldy * m, 1)?,
    )?;
    Ok(y.to_vec(queue)?)
}

/// What an element of Y holds before a call.
pub(crate) const MARKER: f32 = 12_345.75;

/// Checks a result against the reference and the gate; elements between columns must hold the marker. The worst ratio to the gate.
pub(crate) fn judge(
    y: &[f32],
    ldy: usize,
    [n, _, m]: [usize; 3],
    (exact, gate): &(Vec<f64>, Vec<f64>),
) -> Result<f64, String> {
    let mut worst = 0f64;
    for (at, &found) in y.iter().enumerate() {
        let (t, row) = (at / ldy, at % ldy);
        if row >= n {
            if found != MARKER {
                return Err(format!("element {row} of column {t}, beyond the {n} rows, is {found}"));
            }
            continue;
        }
        let index = t * n + row;
        let error = (f64::from(found) - exact[index]).abs();
        let ratio = if error == 0.0 { 0.0 } else { error / gate[index] };
        // A NaN is no ratio.
        if ratio.is_nan() || ratio > 1.0 {
            return Err(format!(
                "row {row} of {n}, token {t} of {m}: {found}, exactly {}, gate {:e}",
                exact[index], gate[index]
            ));
        }
        worst = worst.max(ratio);
    }
    Ok(worst)
}

/// The reference that belongs to a spelling.
pub(crate) fn expected(
    route: &str,
    w: &[u8],
    [n, k, m]: [usize; 3],
    x: &[f32],
    ldx: usize,
) -> (Vec<f64>, Vec<f64>) {
    let of = if route.starts_with("bf16") { reference_bf16 } else { reference };
    of(w, n, k, x, ldx, m)
}

/// A panel of host activations.
pub(crate) fn panel(queue: &dyn Queue, x: &[f32], k: usize, m: usize) -> Result<Vec<u8>> {
    let x = Buffer::from_slice(queue, x)?;
    Panel::new(queue, Arithmetic::Int8, x.view(k, m, k, k * m, 1)?)?.to_vec(queue)
}
