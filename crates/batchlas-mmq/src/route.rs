//! The routed product: vocabulary, predicate, choice and call.

use std::fmt;

use batchlas_core::validate::{Operand, equal};
use batchlas_core::{Device, Dtype, Kernel, MatBatch, MatBatchMut, Queue, Ran};
use batchlas_select::{
    Call, Candidate, Class, ExactField, LogField, Pin, Refusal, Selector, Spelling, Vocabulary,
};

use crate::error::{Error, Result};
use crate::panel::Panel;
use crate::weights::Q4kMatrix;
use crate::{bf16, dot, layout, stream, tile, tiling, wide};

pub(crate) const OP: &str = "mmq";

const fn native(family: &'static str, knobs: &'static [batchlas_select::Knob]) -> Candidate {
    Candidate { family, class: Class::Native, knobs }
}

/// What a product can be run by.
pub static VOCABULARY: Vocabulary = Vocabulary {
    op: OP,
    candidates: &[
        native("tile", tiling::KNOBS),
        native("stream", stream::KNOBS),
        native("wide", wide::KNOBS),
        native("bf16", tiling::KNOBS),
        native("dot", &[]),
    ],
    last_resort: &["tile", "bf16", "dot"],
    retired: &[],
    exact: &[ExactField { name: "arithmetic", values: &["int8", "bf16"] }],
    log: &[
        LogField { name: "m", weight: 2.0 },
        LogField { name: "n", weight: 1.0 },
        LogField { name: "k", weight: 0.5 },
    ],
};

/// How activations and weights are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Activations as signed bytes with a scale per 32; integer sums.
    #[default]
    Int8,
    /// Activations and weights in bfloat16; sums in f32.
    Bf16,
}

impl Arithmetic {
    /// Its name, as keys have it.
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::Int8 => "int8",
            Arithmetic::Bf16 => "bf16",
        }
    }

    /// Bytes of a cell of activations.
    pub(crate) fn cell(self) -> usize {
        match self {
            Arithmetic::Int8 => layout::BYTES_CELL,
            Arithmetic::Bf16 => layout::BF16_CELL,
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A product as selection and predicates see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What the panel holds.
    pub arithmetic: Arithmetic,
    /// Tokens.
    pub m: usize,
    /// Rows of weights.
    pub n: usize,
    /// Inner dimension.
    pub k: usize,
}

/// Refuses a device without tensor cores of this compute capability (times ten) or above.
pub(crate) fn tensor_cores(device: &Device, least: u32) -> Result<(), Refusal> {
    let digits = device.arch.strip_prefix("sm_").map(|digits| digits.trim_end_matches(['a', 'f']));
    match digits.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(sm) if sm >= least && device.is_gpu() && device.has_sg32 => Ok(()),
        _ => Err(format!("a GPU of sm_{least} or later is needed, the device is {}", device.arch).into()),
    }
}

/// Refuses a device with less shared memory for a work-group.
pub(crate) fn shared_memory(device: &Device, bytes: usize) -> Result<(), Refusal> {
    let budget = device.slm_budget;
    if budget < bytes {
        return Err(format!("{bytes} bytes of shared memory exceed the device's {budget}").into());
    }
    Ok(())
}

/// Every kernel that a spelling launches for a problem on a device, that of the panel left out.
pub fn kernels(device: &Device, problem: &Problem, spelling: &Spelling) -> Vec<Kernel> {
    let tiles = match spelling.family() {
        "tile" => &tile::TILES,
        "bf16" => &bf16::TILES,
        "stream" => return vec![stream::of(problem, spelling)],
        "wide" => return vec![wide::of(spelling)],
        _ => return Vec::new(),
    };
    vec![tiles.kernel(&tiles.tiling(device.compute_units, problem, spelling))]
}

/// The routed product.
#[derive(Clone, Copy, Debug)]
pub struct Mmq<'s> {
    /// Tables, environment and trace.
    pub selector: &'s Selector,
    /// Route pin of this call; overrides the environment's.
    pub pin: Option<Pin>,
}

impl Mmq<'_> {
    /// Whether a family serves a problem on a device: correctness only, never speed.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_run(&self, device: &Device, problem: &Problem, family: &Spelling) -> Result<(), Refusal> {
        let want = if family.family() == "bf16" { Arithmetic::Bf16 } else { Arithmetic::Int8 };
        if want != problem.arithmetic {
            return Err(
                format!("{} computes in {want}, asked is {}", family.family(), problem.arithmetic).into()
            );
        }
        let most = i32::MAX as usize / 2;
        if problem.m.max(problem.n).max(problem.k) > most {
            let Problem { m, n, k, .. } = *problem;
            return Err(format!("m = {m}, n = {n}, k = {k}: sizes to {most} are served").into());
        }
        match family.family() {
            "tile" => tile::TILES.can_run(device, problem, family),
            "bf16" => bf16::TILES.can_run(device, problem, family),
            "stream" => stream::can_run(device, problem, family),
            "wide" => wide::can_run(device, family),
            _ if device.is_gpu() => Err("dot runs on a CPU".into()),
            _ => Ok(()),
        }
    }

    /// `Y = W X`: prepares X, then multiplies. `2 M N K` operations; reads W once where tokens are few.
    ///
    /// # Errors
    /// Operands that do not fit each other or the queue; a pin that cannot run.
    pub fn multiply(
        &self,
        queue: &dyn Queue,
        arithmetic: Arithmetic,
        w: Q4kMatrix<'_>,
        x: MatBatch<'_, f32>,
        y: MatBatchMut<'_, f32>,
    ) -> Result<Ran> {
        self.check(queue, w, x.cols(), x.rows(), &y)?;
        let mut panel = Panel::new(queue, arithmetic, x)?;
        self.multiply_panel(queue, w, &mut panel, y)
    }

    /// `Y = W X` of prepared activations. The panel is borrowed exclusively because kernels count in it; its activations stay.
    ///
    /// # Errors
    /// As for [`Mmq::multiply`].
    pub fn multiply_panel(
        &self,
        queue: &dyn Queue,
        w: Q4kMatrix<'_>,
        panel: &mut Panel,
        mut y: MatBatchMut<'_, f32>,
    ) -> Result<Ran> {
        self.check(queue, w, panel.tokens(), panel.k(), &y)?;
        let problem =
            Problem { arithmetic: panel.arithmetic(), m: panel.tokens(), n: w.rows(), k: panel.k() };
        if problem.m == 0 || problem.n == 0 {
            return Ok(Ran::nothing(OP));
        }
        let key = VOCABULARY.key(
            &[problem.arithmetic.name()],
            &[problem.m, problem.n, problem.k].map(|extent| extent as u64),
        );
        let key = key.map_err(batchlas_core::Error::from)?;
        let device = queue.device();
        let call = Call {
            selector: self.selector,
            vocabulary: &VOCABULARY,
            dtype: Dtype::F32,
            device,
            key: &key,
            pin: self.pin,
        };
        let ran = call.run(
            |family| self.can_run(device, &problem, family),
            |family, _| {
                match (family.family(), queue.cpu()) {
                    ("tile", _) => tile::TILES.run(queue, &problem, family, w, panel, &y)?,
                    ("bf16", _) => bf16::TILES.run(queue, &problem, family, w, panel, &y)?,
                    ("stream", _) => stream::run(queue, &problem, family, w, panel, &y)?,
                    ("wide", _) => wide::run(queue, &problem, family, w, panel, &y)?,
                    (_, Some(cpu)) => dot::run(cpu, w, panel, &mut y)?,
                    (other, None) => {
                        let what = format!("{other} was chosen on {}", device.name);
                        return Err(batchlas_core::Error::Internal(what));
                    }
                }
                Ok(Ran::leaf(OP, family.to_string()))
            },
        )?;
        Ok(ran)
    }

    fn check(
        &self,
        queue: &dyn Queue,
        w: Q4kMatrix<'_>,
        tokens: usize,
        k: usize,
        y: &MatBatchMut<'_, f32>,
    ) -> Result<()> {
        let place = queue.device().place;
        Operand::of_mut("Y", y).homogeneous(OP)?.at(OP, place)?;
        if w.place() != place {
            let (operand, operand_place, queue_place) = ("W", w.place(), place);
            let wrong =
                batchlas_core::ArgumentError::WrongPlace { op: OP, operand, operand_place, queue_place };
            return Err(Error::Call(wrong.into()));
        }
        equal(OP, "the batch", ("Y", y.batch()), ("one product", 1))?;
        equal(OP, "the inner dimension", ("W", w.k()), ("X", k))?;
        equal(OP, "the number of rows", ("W", w.rows()), ("Y", y.rows()))?;
        equal(OP, "the number of tokens", ("X", tokens), ("Y", y.cols()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_rank_what_runs() {
        let tables = [
            ("mmq.f32.sm_90.toml", include_str!("../../../tuned/mmq.f32.sm_90.toml")),
            ("mmq.f32.cpu.toml", include_str!("../../../tuned/mmq.f32.cpu.toml")),
        ];
        let tables = batchlas_select::Tables::from_texts(&[&VOCABULARY], tables).unwrap();
        let selector = Selector { tables, ..Selector::default() };
        let mmq = Mmq { selector: &selector, pin: None };
        let gpu = Device {
            place: batchlas_core::Place::Cuda(0),
            arch: "sm_90".into(),
            compute_units: 132,
            max_work_group: 1024,
            has_sg32: true,
            slm_budget: 227 << 10,
            ..Device::cpu(1)
        };
        let chosen = |device: &Device, arithmetic: Arithmetic, m: usize, n: usize, k: usize| {
            let key = VOCABULARY.key(&[arithmetic.name()], &[m as u64, n as u64, k as u64]).unwrap();
            let call = Call {
                selector: &selector,
                vocabulary: &VOCABULARY,
                dtype: Dtype::F32,
                device,
                key: &key,
                pin: None,
            };
            let problem = Problem { arithmetic, m, n, k };
            call.route(|family| mmq.can_run(device, &problem, family)).unwrap().choice().spelling.to_string()
        };
        assert_eq!(chosen(&gpu, Arithmetic::Int8, 1, 4096, 4096), "stream:stages=2");
        assert_eq!(
            chosen(&gpu, Arithmetic::Int8, 64, 4096, 4096),
            "tile:tokens=64:rows=64:splits=4:stages=3"
        );
        assert_eq!(
            chosen(&gpu, Arithmetic::Int8, 64, 4096, 256),
            "tile",
            "two steps cannot be dealt to four blocks"
        );
        assert!(chosen(&gpu, Arithmetic::Bf16, 3000, 5000, 4096).starts_with("bf16:"));
        assert_eq!(chosen(&Device::cpu(1), Arithmetic::Int8, 5, 5, 256), "dot");
    }

    #[test]
    fn the_vocabulary_is_consistent() {
        VOCABULARY.check().unwrap();
        assert!(VOCABULARY.spelling("wide").is_err(), "a depth is required");
        assert_eq!(VOCABULARY.spelling("wide:8").unwrap().to_string(), "wide:depth=8");
    }
}
