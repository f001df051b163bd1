//! The command `mmq`: activations of a NumPy file times a Q4_K tensor of a GGUF file.

use std::path::PathBuf;
use std::time::Instant;

use batchlas::{Arithmetic, Dtype, MmqOptions, Q4kMatrix, gguf::Gguf};
use clap::Args;

use crate::devices::{DeviceArg, context};
use crate::error::{CliError, Result};
use crate::npy::{NpyReader, NpyWriter, numpy_name};
use crate::print;

/// Bytes of activations that are multiplied at a time, unless one token has more.
const CHUNK_BYTES: usize = 64 << 20;

/// Multiply activations by a matrix of Q4_K weights: y = x W^T
#[derive(Debug, Args)]
pub(crate) struct MmqArgs {
    /// GGUF file and tensor, as `model.gguf:blk.0.attn_q.weight`
    weights: String,
    /// Activations: float32, shape (tokens, K)
    x: PathBuf,
    /// File to write the result to, shape (tokens, N); it appears when the run is complete
    #[arg(short, long)]
    output: PathBuf,
    /// Where to compute: auto, cpu or cuda:N
    #[arg(long, default_value_t = DeviceArg::Auto)]
    device: DeviceArg,
    /// Threads of the CPU; 0 means one per core
    #[arg(long, default_value_t = 0, value_parser = crate::threads)]
    threads: usize,
    /// Kernels that `batchlas aot` compiled, for a CUDA device without NVRTC
    #[arg(long)]
    bundle: Option<PathBuf>,
    /// Round both operands to bfloat16 instead of quantising activations to bytes (GPU)
    #[arg(long)]
    bf16: bool,
    /// Kernel family to use instead of the one that the tables choose, such as tile
    #[arg(long)]
    route: Option<String>,
}

/// Runs the command.
pub(crate) fn mmq(args: &MmqArgs) -> Result<usize> {
    let Some((file, tensor)) = args.weights.rsplit_once(':') else {
        return Err(CliError::Weights {
            path: args.weights.clone().into(),
            reason: "name a tensor, as FILE:TENSOR".into(),
        });
    };
    let unusable = |reason: String| CliError::Weights { path: file.into(), reason };
    let weights = Gguf::open(file.as_ref()).and_then(|mut file| file.q4k(tensor));
    let weights = weights.map_err(|error| unusable(error.to_string()))?;
    let (n, k) = (weights.rows, weights.k);
    let mut x = NpyReader::open(&args.x)?;
    let &[tokens, width] = x.shape() else {
        return Err(x.wrong_shape(format!("must have the axes (tokens, {k})")));
    };
    if width != k {
        return Err(x.wrong_shape(format!(
            "must have the axes (tokens, {k}): tensor {tensor} has rows of {k} weights"
        )));
    }
    if x.dtype() != Dtype::F32 {
        let (path, found) = (args.x.clone(), numpy_name(x.dtype()));
        return Err(CliError::Activations { path, found });
    }
    let bundles: Vec<PathBuf> = args.bundle.iter().cloned().collect();
    let ctx = context(args.device, args.threads, &bundles)?;
    let mut output = NpyWriter::create(&args.output, Dtype::F32, &[tokens, n])?;
    let arithmetic = if args.bf16 { Arithmetic::Bf16 } else { Arithmetic::Int8 };
    let options = MmqOptions { arithmetic, route: args.route.clone() };
    let resident = ctx.upload(&weights.bytes)?;
    let w = Q4kMatrix::from_buffer(&resident, n, k)?;
    let (begin, mut ran) = (Instant::now(), None);
    let chunk = (CHUNK_BYTES / (k * size_of::<f32>())).clamp(1, tokens.max(1));
    let mut host = vec![0f32; chunk * k];
    for first in (0..tokens).step_by(chunk) {
        let m = chunk.min(tokens - first);
        let host = &mut host[..m * k];
        x.read(first..first + m, host)?;
        let (x, mut y) = (ctx.upload(host)?, ctx.upload(&vec![0f32; m * n])?);
        let product = ctx.mmq(w, x.view(k, m, k, k * m, 1)?, y.view_mut(n, m, n, n * m, 1)?, &options)?;
        output.write(n, 1, &ctx.download(&y)?)?;
        ran.get_or_insert(product);
    }
    output.finish()?;
    let (seconds, device) = (begin.elapsed().as_secs_f64(), &ctx.device().name);
    let ran = ran.map_or_else(|| "nothing".to_owned(), |ran| ran.to_string());
    print(&format!(
        "mmq: {tokens} tokens, {n} x {k} weights, {ran} on {device}, {seconds:.3} s: {}",
        args.output.display()
    ))?;
    Ok(0)
}
