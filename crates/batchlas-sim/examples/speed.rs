//! Warp instructions per second of the register Cholesky kernel, single precision and double, on one core.

#![allow(clippy::print_stdout)]

use batchlas_sim::{DeviceConfig, Module, Options, SimDevice};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ptx/potrf.sm_90.ptx");
    let module = Module::parse(&std::fs::read_to_string(path)?)?;
    let (n, batch) = (16usize, 256usize);
    for (entry, size) in [("potrf_f32", 4), ("potrf_f64", 8)] {
        let mut device = SimDevice::new(DeviceConfig::default());
        let a = device.alloc("A", batch * n * n * size)?;
        let info = device.alloc("info", 4 * batch)?;
        let item = (0..n * n).flat_map(|e| {
            let x = if e % n == e / n { n as f64 } else { 0.5 };
            if size == 4 { (x as f32).to_le_bytes().to_vec() } else { x.to_le_bytes().to_vec() }
        });
        device.write(a, &item.collect::<Vec<u8>>().repeat(batch))?;
        let mut params = [a.to_le_bytes(), (n as u64).to_le_bytes(), ((n * n) as u64).to_le_bytes()].concat();
        params.extend(info.to_le_bytes());
        params.extend((batch as i32).to_le_bytes());
        let (mut best, mut stats) = (0f64, String::new());
        for _ in 0..7 {
            let options = Options::default();
            let start = Instant::now();
            let report =
                device.launch(&module, entry, [batch as u32 / 2, 1, 1], [64, 1, 1], 0, &params, &options)?;
            let speed = report.stats.warp_instructions as f64 / start.elapsed().as_secs_f64();
            best = best.max(speed);
            stats = report.to_string();
        }
        println!("{entry}: {:.2} M warp instructions/s, best of 7", best / 1e6);
        println!("{stats}");
    }
    Ok(())
}
