//! The family `lanes` as selection sees it, for every operation that has it: its knobs and what they mean.

use batchlas_core::{CpuQueue, Device, Error, Queue, Result};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::isa::Isa;

/// Largest order: scratch of a group is then at most 9 MiB a thread.
pub const MAX_N: usize = 256;

/// The knob that names an instruction set. Left out, it is the widest of the CPU.
pub const ISA: Knob = Knob { name: "isa", values: Values::Words(Isa::WORDS), required: false };

/// The family.
pub const LANES: Candidate = Candidate {
    family: "lanes",
    class: Class::Native,
    knobs: &[ISA, Knob { name: "groups", values: Values::OneOf(&[1, 2]), required: false }],
};

/// One setting of the knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Instruction set.
    pub isa: Isa,
    /// Two groups in flight.
    pub pair: bool,
}

impl Lanes {
    /// The knobs of a spelling for an order on a device.
    ///
    /// # Errors
    /// Why the family cannot run so.
    pub fn new(device: &Device, n: usize, family: &Spelling) -> Result<Lanes, Refusal> {
        let isa = isa(device, family)?;
        if n > MAX_N {
            return Err(format!("n = {n}, lanes serves n = 1 to {MAX_N}").into());
        }
        // Two groups hide the square roots of small orders on Zen 4 (10 to 30% to n = 8); Emerald Rapids does as well with
        // one, and much better from n = 16.
        let pair = family.int("groups") == Some(2);
        if pair && !isa.is_avx512() {
            return Err(format!("{isa} has too few registers for two groups").into());
        }
        Ok(Lanes { isa, pair })
    }

    /// The spelling of this setting: what a trace shows.
    pub fn spelling(&self) -> String {
        format!("lanes:isa={}:groups={}", self.isa, if self.pair { 2 } else { 1 })
    }
}

/// The instruction set that a spelling names, or the widest.
///
/// # Errors
/// The device is no CPU, or does not have it.
pub fn isa(device: &Device, family: &Spelling) -> Result<Isa, Refusal> {
    if device.is_gpu() {
        return Err(format!("{} runs on a CPU queue only", family.family()).into());
    }
    match family.knob("isa") {
        Some(word) => Ok(Isa::of(&word.to_string())?),
        None => Ok(Isa::widest()),
    }
}

/// The pool behind a queue that is known to be a CPU's.
///
/// # Errors
/// [`Error::Internal`] if it is not.
pub fn pool(queue: &dyn Queue) -> Result<&CpuQueue> {
    queue
        .cpu()
        .ok_or_else(|| Error::Internal("a CPU family was handed a queue that is no thread pool".into()))
}

/// Bytes of operands below which a piece of a batch is not worth a task of its own.
pub const GRAIN_BYTES: usize = 256 << 10;
