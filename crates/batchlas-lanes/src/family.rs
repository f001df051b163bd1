//! What every family over these kernels shares: the knob, the predicate, the pool. And `lanes`, which three operations
//! have.

use batchlas_core::{CpuQueue, Device, Error, Queue, Result};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

use crate::isa::Isa;

/// Largest order: scratch of a group is then at most 9 MiB a thread.
pub const MAX_N: usize = 256;

/// The knob that names an instruction set. Left out, it is the widest of the CPU.
pub const ISA: Knob = Knob { name: "isa", values: Values::Words(Isa::WORDS), required: false };

/// The family.
pub const LANES: Candidate = Candidate { family: "lanes", class: Class::Native, knobs: &[ISA] };

/// The instruction set that a spelling names, or the widest, for an order on a device.
///
/// # Errors
/// Why a family of this crate cannot run so: the device is no CPU or does not have the instructions; the order.
pub fn isa(device: &Device, n: usize, family: &Spelling) -> Result<Isa, Refusal> {
    let name = family.family();
    if device.is_gpu() {
        return Err(format!("{name} runs on a CPU queue only").into());
    }
    if n > MAX_N {
        return Err(format!("n = {n}, {name} serves n = 1 to {MAX_N}").into());
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
