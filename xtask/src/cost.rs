//! `cargo xtask cost`: what a call's kernels cost, counted while the simulator runs them.
//!
//! Shared-memory wavefronts (and what the same bytes would take without bank conflicts), global sectors per request,
//! instructions of the PTX by class, and the dearest source lines, for packed operands. Wavefronts and sectors are those
//! of the hardware (measured on an H200, `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld` and `_op_st`,
//! `l1tex__t_sectors_pipe_lsu_mem_global_op_ld` and `_op_st`), unless the assembler merges neighbouring accesses;
//! instructions are not, since it comes after the PTX.

use batchlas::{Diag, Dtype, Side, Trans, Uplo};
use batchlas_bench::once::{Call, Op};
use batchlas_bench::operands::Layout;
use batchlas_sim::{Class, Report};

use crate::Result;
use crate::simulate::{self, Compiler};

const USAGE: &str = "\
cargo xtask cost OP:FAMILY[:KNOB=VALUE..] [--n 32] [--dtype f32] [--batch 32] [--uplo L] [--m 32] [--k 32] [--nrhs 8]
                 [--side L] [--trans N] [--trans-b N] [--diag N] [--lines 10]
OP is potrf, posv, trsm, gemm or herk; --nrhs are the right-hand sides of posv and trsm.";

/// Runs one call and prints the costs of its kernels.
pub(crate) fn run(args: &[&str]) -> Result {
    let (route, flags) = args.split_first().filter(|(route, _)| !route.starts_with('-')).ok_or(USAGE)?;
    let (op, route) = route.split_once(':').ok_or(USAGE)?;
    let (mut dtype, mut batch, mut lines) = (Dtype::F32, 32, 10);
    let (mut m, mut n, mut k, mut nrhs) = (32, 32, 32, 8);
    let (mut side, mut uplo, mut diag) = (Side::Left, Uplo::Lower, Diag::NonUnit);
    let (mut trans, mut trans_b) = (Trans::No, Trans::No);
    for flag in flags.chunks(2) {
        let [name, value] = *flag else { return Err(USAGE.into()) };
        match name {
            "--dtype" => dtype = value.parse()?,
            "--batch" => batch = value.parse()?,
            "--lines" => lines = value.parse()?,
            "--m" => m = value.parse()?,
            "--n" => n = value.parse()?,
            "--k" => k = value.parse()?,
            "--nrhs" => nrhs = value.parse()?,
            "--side" => side = value.parse()?,
            "--uplo" => uplo = value.parse()?,
            "--diag" => diag = value.parse()?,
            "--trans" => trans = value.parse()?,
            "--trans-b" => trans_b = value.parse()?,
            _ => return Err(format!("there is no {name}\n{USAGE}").into()),
        }
    }
    let op = match op {
        "potrf" => Op::Potrf { uplo, n },
        "posv" => Op::Posv { uplo, n, nrhs },
        "trsm" => Op::Trsm { side, uplo, trans, diag, n, q: nrhs },
        "gemm" => Op::Gemm { trans_a: trans, trans_b, m, n, k },
        "herk" => Op::Herk { uplo, trans, n, k },
        _ => return Err(USAGE.into()),
    };
    let ctx = Compiler::new(None)?.context()?;
    let call = Call { op, dtype, batch, layout: Layout::Packed, route: route.to_owned() };
    simulate::run(&ctx, &call)?;
    for (kernel, report) in simulate::queue(&ctx)?.take_reports() {
        println!("{kernel}\n{}", describe(&report, batch, lines));
    }
    Ok(())
}

fn describe(report: &Report, batch: usize, lines: usize) -> String {
    let stats = &report.stats;
    let per = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    let mut text = format!(
        "  shared   {} requests, {} wavefronts, {} without conflicts; {:.2} a request\n",
        stats.shared_requests,
        stats.shared_wavefronts,
        stats.shared_wavefronts_least,
        per(stats.shared_wavefronts, stats.shared_requests),
    );
    for (name, requests, sectors) in [
        ("loads ", stats.load_requests, stats.load_sectors),
        ("stores", stats.store_requests, stats.store_sectors),
    ] {
        text += &format!(
            "  {name}   {requests} requests, {sectors} sectors; {:.2} a request, {:.1} an item\n",
            per(sectors, requests),
            per(sectors, batch as u64),
        );
    }
    text += &format!(
        "  {} instructions, {:.1} lanes each:",
        stats.warp_instructions,
        per(stats.thread_instructions, stats.warp_instructions)
    );
    for class in Class::ALL.into_iter().filter(|class| stats.of(*class) > 0) {
        text += &format!(" {class:?} {}", stats.of(class));
    }
    let speed = stats.warp_instructions as f64 / report.elapsed.as_secs_f64() / 1e6;
    text += &format!("\n  simulated at {speed:.1} million instructions a second\n");
    text += "  issues wavefronts sectors  line\n";
    for (file, line, cost) in report.lines().into_iter().take(lines) {
        text += &format!("  {:>6} {:>10} {:>7}  {file}:{line}\n", cost.issues, cost.wavefronts, cost.sectors);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchlas_sim::Stats;

    /// A line of the catalogue's kind, with packed operands.
    fn stats(line: &str) -> Stats {
        let call = Call { layout: Layout::Packed, ..line.parse().expect("a call") };
        let ctx = Compiler::new(None).expect("NVRTC").context().expect("a context");
        simulate::run(&ctx, &call).expect("a clean run");
        let (_, report) = simulate::queue(&ctx).expect("a simulated queue").take_reports().remove(0);
        report.stats
    }

    #[test]
    fn wavefronts_conflicts_and_sectors_are_those_of_the_hardware() {
        // Counted by ncu on an H200: loads and stores of shared memory with their wavefronts and bank conflicts, then
        // requests and sectors of global loads and stores.
        for (line, shared, wavefronts, conflicts, global) in [
            (
                "potrf f32 L 32 256 tiny:lanes=16:send=shared:warps=8",
                17408 + 6016,
                32768 + 6016,
                0,
                [6144, 20480, 6272, 20608],
            ),
            (
                "potrf c32 L 17 256 tiny:lanes=8:send=shared",
                5120 + 2560,
                10240 + 5120,
                1536,
                [2624, 17664, 2688, 17728],
            ),
        ] {
            let stats = stats(line);
            assert_eq!(stats.shared_requests, shared, "{line}");
            assert_eq!(stats.shared_wavefronts, wavefronts, "{line}");
            assert_eq!(stats.shared_wavefronts - stats.shared_wavefronts_least, conflicts, "{line}");
            let Stats { load_requests, load_sectors, store_requests, store_sectors, .. } = stats;
            assert_eq!([load_requests, load_sectors, store_requests, store_sectors], global, "{line}");
        }
    }
}
