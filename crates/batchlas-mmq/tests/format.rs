//! The published bytes of super-blocks and of a quantised dot product, and the CPU's product against the exact one.

#![allow(missing_docs)]
// Helpers outside of test functions; clippy exempts only those.
#![allow(clippy::unwrap_used)]

mod common;

use batchlas_core::CpuQueue;
use batchlas_mmq::panel::Chunk;
use batchlas_mmq::q4k::{Block, half};
use serde_json::Value;

use common::{Random, activations, judge, reference, run, weights};

fn vectors() -> Value {
    serde_json::from_str(include_str!("q4k_vectors.json")).unwrap()
}

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn bits(value: &Value) -> u32 {
    u32::from_str_radix(value.as_str().unwrap(), 16).unwrap()
}

#[test]
fn super_blocks_decode_to_the_published_bits() {
    let vectors = vectors();
    let blocks = vectors["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 4);
    for vector in blocks {
        let (bytes, name) = (hex(&vector["bytes_hex"]), &vector["name"]);
        let block = Block(bytes.as_array().unwrap());
        assert_eq!(block.d().to_bits(), half(bits(&vector["d_f16"]) as u16).to_bits(), "{name}");
        assert_eq!(block.dmin().to_bits(), half(bits(&vector["dmin_f16"]) as u16).to_bits(), "{name}");
        for j in 0..8 {
            let (scale, minimum) = block.sixes(j);
            assert_eq!(Some(scale.into()), vector["scales"][j].as_u64(), "{name} {j}");
            assert_eq!(Some(minimum.into()), vector["mins"][j].as_u64(), "{name} {j}");
            for (l, q) in block.nibbles(j).into_iter().enumerate() {
                assert_eq!(Some(q.into()), vector["nibbles"][32 * j + l].as_u64(), "{name} {j} {l}");
            }
        }
        for (i, weight) in block.decode().into_iter().enumerate() {
            assert_eq!(weight.to_bits(), bits(&vector["f32_bits"][i]), "{name}, weight {i}");
        }
    }
}

#[test]
fn activations_are_quantised_by_the_rule_and_by_no_other() {
    let vectors = vectors();
    let x: Vec<f32> =
        (0..256).map(|i| f32::from_bits(bits(&vectors["activation"]["x_f32_bits"][i]))).collect();
    let ours = &vectors["dots"]["pad40"];
    for (c, chunk) in x.as_chunks::<32>().0.iter().enumerate() {
        let chunk = Chunk::new(*chunk);
        assert_eq!(Some(chunk.sum.into()), ours["A"][c].as_i64(), "chunk {c}");
        for (e, q) in chunk.q.into_iter().enumerate() {
            assert_eq!(Some(q.into()), ours["q"][c][e].as_i64(), "chunk {c}, element {e}");
        }
    }
    // Chunk 4 holds a tie, which the rules that round it away from zero quantise to 1.
    assert_ne!(ours["A"][4], vectors["dots"]["ggml_ref"]["A"][4]);
}

#[test]
fn the_cpu_rounds_the_exact_product_once() {
    let queue = CpuQueue::new(2).unwrap();
    let mut random = Random(1);
    for shape in [[1, 256, 1], [5, 512, 9], [129, 768, 17], [3, 1280, 40]] {
        let [n, k, m] = shape;
        let (ldx, ldy) = (k + 3, n + 2);
        let (w, x) = (weights(&mut random, n, k), activations(&mut random, ldx, m));
        let y = run(&queue, "dot", &w, shape, (&x, ldx), ldy).unwrap();
        let expected = reference(&w, n, k, &x, ldx, m);
        judge(&y, ldy, shape, &expected).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        for (index, exact) in expected.0.iter().enumerate() {
            let found = f64::from(y[index / n * ldy + index % n]);
            let ulp = f64::from(f32::EPSILON) * exact.abs();
            assert!(
                (found - exact).abs() <= ulp + 1e-6 * expected.1[index],
                "{shape:?} {index}: {found} {exact}"
            );
        }
    }
}
