//! Damaged PTX gives an error or findings, never a panic.

#![allow(clippy::unwrap_used)]

use batchlas_sim::{DeviceConfig, Module, Options, Schedule, SimDevice};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// Deletes, repeats or exchanges words of one line, or the line itself.
fn damage(lines: &mut Vec<String>, dice: &mut Dice) {
    let at = dice.below(lines.len());
    match dice.below(6) {
        0 => {
            lines.remove(at);
        }
        1 => {
            let copy = lines[at].clone();
            lines.insert(dice.below(lines.len()), copy);
        }
        2 => {
            let keep = dice.below(lines[at].len() + 1);
            lines[at] = lines[at].chars().take(keep).collect();
        }
        kind => {
            let from = dice.below(lines.len());
            let words: Vec<String> = lines[from].split_whitespace().map(str::to_string).collect();
            let mut own: Vec<String> = lines[at].split_whitespace().map(str::to_string).collect();
            if words.is_empty() || own.is_empty() {
                return;
            }
            let slot = dice.below(own.len());
            own[slot] = if kind == 3 {
                ["0", "-1", "999999999999", "0x7fffffff", "65", ";", "{", "}", "[", "%r1", "%p1", "_"]
                    [dice.below(12)]
                .into()
            } else {
                words[dice.below(words.len())].clone()
            };
            lines[at] = own.join(" ");
        }
    }
}

#[test]
fn damaged_text_never_panics() {
    let mut dice = Dice(1);
    let (mut refused, mut ran) = (0, 0);
    for name in [
        "broken.sm_90",
        "warp.sm_100",
        "mma.sm_90",
        "gemm.sm_90",
        "trsm.sm_100",
        "phases.sm_90",
        "control.sm_90",
    ] {
        let path = format!("{}/tests/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for _ in 0..400 {
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            for _ in 0..=dice.below(3) {
                damage(&mut lines, &mut dice);
            }
            let Ok(module) = Module::parse(&lines.join("\n")) else {
                refused += 1;
                continue;
            };
            for entry in module.entries() {
                if dice.below(4) > 0 {
                    continue;
                }
                let mut device = SimDevice::new(DeviceConfig::default());
                let a = device.alloc("a", 1024).unwrap();
                device.write(a, &[1; 1024]).unwrap();
                let mut params = a.to_le_bytes().repeat(8);
                params.resize(entry.param_bytes(), 0);
                let options = Options {
                    max_instructions: 2000,
                    ..Options::with_schedule(Schedule::Random(dice.below(100) as u64))
                };
                match device.launch(&module, &entry.name, [2, 1, 1], [40, 1, 1], 64, &params, &options) {
                    Ok(_) => ran += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert!(refused > 500 && ran > 1000, "{refused} refused, {ran} ran");
}
