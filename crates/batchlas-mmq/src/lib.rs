//! Matrix product of Q4_K weights and activations: `Y = W X`, that is `y[n, t] = sum_k w[n, k] x[k, t]`.
//!
//! W (`N x K`) is a Q4_K tensor of a GGUF file as it lies there: rows of super-blocks of 256 weights in 144 bytes ([`q4k`]). X (`K x M`, a
//! token a column) and Y (`N x M`) are column-major f32, with any leading dimension. [`Mmq`] is the routed operation.
//!
//! Activations are first brought into a [`Panel`], once for all products that share them:
//!
//! * [`Arithmetic::Int8`]: signed bytes with one f32 scale per 32 inner indices, by the rule of [`panel`]. Every family sums the products of bytes and
//!   nibbles of 32 inner indices exactly, as integers, and rounds what remains in f32. Against the exact product of the quantised operands the error is at most
//!   `(K/16 + K/32 + 4) 2^-24 sum |terms|` (tested); against that of the unquantised ones it is some 0.5% for normally distributed activations.
//! * [`Arithmetic::Bf16`]: both operands rounded to bfloat16, sums in f32. Closer to the unquantised product (some 0.25%), and faster where tokens are many.
//!
//! | family | arithmetic | what it is | serves |
//! |---|---|---|---|
//! | [`stream`] | int8 | weights stream through shared memory once | up to 16 tokens, `sm_90` and later |
//! | [`tile`] | int8 | tensor-core tiles on packed nibbles, steps dealt to several blocks | any size, `sm_80` and later |
//! | [`wide`] | int8 | the published 128 x 128 kernel, as the baseline | any size, `sm_80` and later |
//! | [`bf16`] | bf16 | tiles that turn nibbles into bfloat16 in registers | any size, `sm_80` and later |
//! | [`dot`] | int8 | integer dot products, the rest in f64 | the CPU |
//!
//! # Contract
//! * K is a positive multiple of 256; M and N may be 0, and then nothing is done.
//! * A token with a NaN or an infinity anywhere has a Y of NaN in every row, and touches no other token. A row with a super-block whose `d` or
//!   `dmin` is not finite has no finite element in Y, and touches no other row. (`bf16` computes by IEEE rules instead.)
//! * Each family gives the same bits on every run. A token's result does not depend on the other tokens as long as the family is the same; families
//!   differ in the last bits, and selection depends on M.
//! * A panel is drawn from the queue in stream order, and so is scratch of its first product that deals steps to several blocks; later products
//!   neither allocate nor wait, so that they can be captured in a graph.

pub mod bf16;
pub mod dot;
mod error;
pub mod gguf;

mod launch;
pub mod layout;
pub mod panel;
pub mod q4k;
mod route;
pub mod stream;
pub mod tile;
mod tiling;
mod weights;
pub mod wide;

pub use error::{Error, Result};
pub use panel::Panel;
pub use route::{Arithmetic, Mmq, Problem, VOCABULARY, kernels};
pub use weights::Q4kMatrix;
