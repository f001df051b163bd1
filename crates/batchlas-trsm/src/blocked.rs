//! `blocked`: left-looking over two levels of diagonal blocks, any order.
//!
//! An outer block of `outer` unknowns is first updated by everything solved before it, in one wide product. Inside it,
//! blocks of `nb` are updated by what its own part of the solution adds, and solved. Products go through the seam
//! [`TrailingUpdate`], diagonal blocks through [`PanelSolve`]; every operand is a sub-view of the caller's, with its `ld`.
//!
//! `alpha` costs nothing: the first product that touches a block scales it by its `beta`, and the first diagonal block,
//! which no product touches, is solved with it. With `alpha = 0` no product is needed at all.
//!
//! Diagonal blocks are solved, never inverted: an inverse is not backward stable where the block is ill-conditioned,
//! which is where CholQR needs it.

use std::ops::Range;

use batchlas_core::seam::{SolveShape, UpdateShape};
use batchlas_core::{
    Device, Dtype, MatBatch, MatBatchMut, PanelSolve, Queue, Ran, Result, Scalar, Side, TrailingUpdate,
    Trans, Uplo,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};

/// The family and its knobs. Each knob that is left out is decided by [`Blocks::new`].
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "blocked",
    class: Class::Native,
    knobs: &[
        Knob { name: "outer", values: Values::OneOf(&[32, 64, 96, 128, 256]), required: false },
        Knob { name: "nb", values: Values::OneOf(&[16, 32, 64, 96, 128]), required: false },
    ],
};

/// Widths of the two levels of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Unknowns of an outer block. One level only where it is `nb`.
    pub outer: usize,
    /// Unknowns of a diagonal block; the last one may be smaller.
    pub nb: usize,
}

/// A step of the schedule. Ranges are positions in the order of solution, not indices of unknowns.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Subtracts what the unknowns `by` contribute to the unknowns `block`; `first` if nothing has touched them yet.
    Update { by: Range<usize>, block: Range<usize>, first: bool },
    /// Solves a diagonal block; `first` if nothing has touched it yet.
    Solve { block: Range<usize>, first: bool },
}

impl Blocks {
    /// The widths of a spelling. What it leaves out: diagonal blocks as large as one launch solves, and a second level above
    /// them on the left only, where it saves passes over B; on the right it was never found to.
    pub fn new(dtype: Dtype, side: Side, family: &Spelling) -> Blocks {
        let given = |name| family.int(name).map(|width| width as usize);
        let nb = given("nb").unwrap_or(if dtype == Dtype::C64 { 64 } else { 128 });
        let outer = given("outer").unwrap_or(if side == Side::Left { 128 } else { nb });
        Blocks { outer: outer.max(nb), nb }
    }

    /// The steps that solve `n` unknowns.
    fn schedule(self, n: usize) -> impl Iterator<Item = Step> {
        let blocks = |within: Range<usize>, width: usize| {
            let end = within.end;
            within.step_by(width).map(move |start| start..end.min(start + width))
        };
        blocks(0..n, self.outer).flat_map(move |outer| {
            let update = |by: Range<usize>, block: &Range<usize>, first| {
                (!by.is_empty()).then(|| Step::Update { by, block: block.clone(), first })
            };
            let wide = update(0..outer.start, &outer, true);
            let start = outer.start;
            let inner = blocks(outer, self.nb).flat_map(move |block| {
                let narrow = update(start..block.start, &block, start == 0);
                narrow.into_iter().chain([Step::Solve { first: block.start == 0, block }])
            });
            wide.into_iter().chain(inner)
        })
    }

    /// Elements of B that the steps read and write per item and right-hand side: a product reads its prefix, and reads
    /// and writes its block; so does a solve with its block. `2 n` would be ideal.
    pub fn traffic(self, n: usize) -> usize {
        self.schedule(n)
            .map(|step| match step {
                Step::Update { by, block, .. } => by.len() + 2 * block.len(),
                Step::Solve { block, .. } => 2 * block.len(),
            })
            .sum()
    }
}

/// Whether the driver serves a problem with these seams: correctness only. A missing update is reported by the run.
pub(crate) fn can_run<T: Scalar>(
    device: &Device,
    shape: &SolveShape,
    family: &Spelling,
    update: Option<&dyn TrailingUpdate<T>>,
    leaf: &dyn PanelSolve<T>,
) -> Result<(), Refusal> {
    let SolveShape { side, n, q, batch, .. } = *shape;
    let Blocks { nb, .. } = Blocks::new(T::DTYPE, side, family);
    if n <= nb {
        return Err(format!("n = {n} is a single diagonal block, blocked serves n > {nb}").into());
    }
    for order in [nb, n % nb] {
        if order > 0 {
            leaf.can_solve(device, &SolveShape { n: order, ..*shape })?;
        }
    }
    let k = n - 1;
    let (m, n) = if side == Side::Left { (nb, q) } else { (q, nb) };
    match update {
        Some(update) => Ok(update.can_update(device, &UpdateShape { m, n, k, batch })?),
        None => Ok(()),
    }
}

/// Enqueues the solve. Children are reported in the order they ran.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    shape: &SolveShape,
    alpha: T,
    a: MatBatch<'_, T>,
    mut b: MatBatchMut<'_, T>,
    family: &Spelling,
    update: &dyn TrailingUpdate<T>,
    leaf: &dyn PanelSolve<T>,
) -> Result<Ran> {
    let SolveShape { side, uplo, trans, diag, n, q, .. } = *shape;
    // Which unknowns come first: those that no other unknown enters.
    let forward = (uplo == Uplo::Lower) ^ trans.transposes() ^ (side == Side::Right);
    let unknowns = |position: &Range<usize>| {
        if forward { position.clone() } else { n - position.end..n - position.start }
    };
    let scale = |first| if first || alpha == T::zero() { alpha } else { T::one() };

    let mut ran = Ran::leaf("trsm", family.to_string());
    for step in Blocks::new(T::DTYPE, side, family).schedule(n) {
        ran.children.push(match step {
            Step::Update { .. } if alpha == T::zero() => continue,
            Step::Update { by, block, first } => {
                let (by, block) = (unknowns(&by), unknowns(&block));
                // op(A) couples `block` with `by`: rows and columns on the left, the other way round on the right.
                let (rows, cols) = match (side == Side::Left) ^ trans.transposes() {
                    true => (block.clone(), by.clone()),
                    false => (by.clone(), block.clone()),
                };
                let coupling = a.sub(rows, cols)?;
                let (minus, beta) = (-T::one(), scale(first));
                match side {
                    Side::Left => {
                        let (x, c) = b.block_pair((by, 0..q), (block, 0..q))?;
                        update.gemm(queue, trans, Trans::No, minus, coupling, x, beta, c)?
                    }
                    Side::Right => {
                        let (x, c) = b.block_pair((0..q, by), (0..q, block))?;
                        update.gemm(queue, Trans::No, trans, minus, x, coupling, beta, c)?
                    }
                }
            }
            Step::Solve { block, first } => {
                let block = unknowns(&block);
                let (rows, cols) = match side {
                    Side::Left => (block.clone(), 0..q),
                    Side::Right => (0..q, block.clone()),
                };
                let rhs = b.rb_mut().sub(rows, cols)?;
                let triangle = a.sub(block.clone(), block)?;
                leaf.solve(queue, side, uplo, trans, diag, scale(first), triangle, rhs)?
            }
        });
        queue.fence()?;
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use batchlas_core::{CpuQueue, Diag, Error, RealOf};
    use batchlas_select::Selector;

    use super::*;
    use crate::{Trsm, VOCABULARY};

    /// A seam that only notes what it is asked for.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Notes {
        fn add(&self, note: String) {
            self.0.lock().unwrap().push(note);
        }
    }

    impl PanelSolve<f32> for Notes {
        fn can_solve(&self, _: &Device, _: &SolveShape) -> Result<(), String> {
            Ok(())
        }

        fn solve(
            &self,
            _: &dyn Queue,
            side: Side,
            uplo: Uplo,
            trans: Trans,
            diag: Diag,
            alpha: f32,
            a: MatBatch<'_, f32>,
            b: MatBatchMut<'_, f32>,
        ) -> Result<Ran> {
            let (n, ld, rows, cols) = (a.rows(), a.ld(), b.rows(), b.cols());
            self.add(format!(
                "{side}{uplo}{trans}{diag} {n} ld {ld}: {rows}x{cols} ld {} by {alpha}",
                b.ld()
            ));
            Ok(Ran::leaf("trsm", "noted"))
        }
    }

    impl TrailingUpdate<f32> for Notes {
        fn can_update(&self, _: &Device, _: &UpdateShape) -> Result<(), String> {
            Ok(())
        }

        fn gemm(
            &self,
            _: &dyn Queue,
            trans_a: Trans,
            trans_b: Trans,
            alpha: f32,
            a: MatBatch<'_, f32>,
            b: MatBatch<'_, f32>,
            beta: f32,
            c: MatBatchMut<'_, f32>,
        ) -> Result<Ran> {
            let k = if trans_a.transposes() { a.rows() } else { a.cols() };
            assert_eq!(k, if trans_b.transposes() { b.cols() } else { b.rows() });
            assert_eq!(alpha, -1.0);
            self.add(format!("{trans_a}{trans_b} {}x{}x{k} beta {beta}", c.rows(), c.cols()));
            Ok(Ran::leaf("gemm", "noted"))
        }

        fn herk(
            &self,
            _: &dyn Queue,
            _: Uplo,
            _: Trans,
            _: RealOf<f32>,
            _: MatBatch<'_, f32>,
            _: RealOf<f32>,
            _: MatBatchMut<'_, f32>,
        ) -> Result<Ran> {
            panic!("a solve needs no rank-k update")
        }
    }

    /// What the driver asks of its seams, in order.
    fn notes(side: Side, trans: Trans, n: usize, q: usize, alpha: f32, family: &str) -> Vec<String> {
        let (uplo, diag, batch) = (Uplo::Lower, Diag::NonUnit, 1);
        let family = VOCABULARY.spelling(family).unwrap();
        let (a, mut b) = (vec![0f32; (n + 1) * n], vec![0f32; n * q]);
        let a = MatBatch::from_slice(&a, n, n, n + 1, 0, batch).unwrap();
        let (rows, cols) = if side == Side::Left { (n, q) } else { (q, n) };
        let b = MatBatchMut::packed(&mut b, rows, cols, batch).unwrap();
        let shape = SolveShape { side, uplo, trans, diag, n, q, batch };
        let (queue, seam) = (CpuQueue::new(1).unwrap(), Notes::default());
        let ran = run(&queue, &shape, alpha, a, b, &family, &seam, &seam).unwrap();
        let notes = seam.0.into_inner().unwrap();
        assert_eq!(ran.children.len(), notes.len());
        notes
    }

    fn products(notes: &[String]) -> Vec<&str> {
        notes.iter().filter(|note| note.contains("beta")).map(|note| note.as_str()).collect()
    }

    #[test]
    fn the_calls_of_order_512_are_these() {
        let left = notes(Side::Left, Trans::No, 512, 7, 1.0, "blocked:outer=128:nb=32");
        let narrow = ["NN 32x7x32 beta 1", "NN 32x7x64 beta 1", "NN 32x7x96 beta 1"];
        let wide = ["NN 128x7x128 beta 1", "NN 128x7x256 beta 1", "NN 128x7x384 beta 1"];
        let mut expected = narrow.to_vec();
        for wide in wide {
            expected.push(wide);
            expected.extend(narrow);
        }
        assert_eq!(expected.len(), 15);
        assert_eq!(products(&left), expected);
        let leaves: Vec<_> = left.iter().filter(|note| !note.contains("beta")).collect();
        assert_eq!(leaves.len(), 16);
        assert!(leaves.iter().all(|leaf| *leaf == "LLNN 32 ld 513: 32x7 ld 512 by 1"), "{leaves:?}");

        let right = notes(Side::Right, Trans::Trans, 128, 7, 1.0, "blocked:outer=32:nb=32");
        assert_eq!(products(&right), ["NT 7x32x32 beta 1", "NT 7x32x64 beta 1", "NT 7x32x96 beta 1"]);
        assert_eq!(right[0], "RLTN 32 ld 129: 7x32 ld 7 by 1");
    }

    #[test]
    fn alpha_reaches_every_block_once_and_zero_needs_no_product() {
        let notes_of = |alpha| notes(Side::Left, Trans::Trans, 200, 2, alpha, "blocked:outer=128:nb=64");
        let solve = |n, alpha| format!("LLTN {n} ld 201: {n}x2 ld 200 by {alpha}");
        let expected = [
            solve(64, 3),
            "TN 64x2x64 beta 3".into(),
            solve(64, 1),
            "TN 72x2x128 beta 3".into(),
            solve(64, 1),
            "TN 8x2x64 beta 1".into(),
            solve(8, 1),
        ];
        assert_eq!(notes_of(3.0), expected);
        assert_eq!(notes_of(0.0), [solve(64, 0), solve(64, 0), solve(64, 0), solve(8, 0)]);
    }

    #[test]
    fn the_traffic_of_order_512_is_as_published() {
        // 512 unknowns: 1024 elements would be ideal.
        for (outer, nb, elements) in [(32, 32, 5824), (128, 32, 4096), (128, 64, 3328), (128, 128, 2560)] {
            assert_eq!(Blocks { outer, nb }.traffic(512), elements, "outer {outer}, nb {nb}");
        }
    }

    #[test]
    fn what_is_left_out_of_a_spelling_depends_on_type_and_side() {
        let blocks = |dtype, side, text: &str| Blocks::new(dtype, side, &VOCABULARY.spelling(text).unwrap());
        assert_eq!(blocks(Dtype::F32, Side::Left, "blocked"), Blocks { outer: 128, nb: 128 });
        assert_eq!(blocks(Dtype::C64, Side::Left, "blocked"), Blocks { outer: 128, nb: 64 });
        assert_eq!(blocks(Dtype::C64, Side::Right, "blocked"), Blocks { outer: 64, nb: 64 });
        assert_eq!(blocks(Dtype::F64, Side::Left, "blocked:outer=32:nb=64"), Blocks { outer: 64, nb: 64 });
    }

    #[test]
    fn a_missing_product_is_an_error_and_a_single_block_is_refused() {
        let (queue, selector, seam) = (CpuQueue::new(1).unwrap(), Selector::default(), Notes::default());
        let call = |n: usize, update| {
            let pin = Some(VOCABULARY.pin("blocked:nb=32").unwrap());
            let (a, mut b) = (vec![1f32; n * n], vec![1f32; n]);
            let (a, b) = (MatBatch::packed(&a, n, n, 1)?, MatBatchMut::packed(&mut b, n, 1, 1)?);
            let trsm = Trsm { selector: &selector, pin, vendor: Some(&seam), update };
            trsm.solve(&queue, Side::Left, Uplo::Lower, Trans::No, Diag::NonUnit, 1.0, a, b)
        };
        let error = call(33, None).unwrap_err();
        assert!(matches!(error, Error::MissingSeam { op: "trsm", seam: "update" }), "{error}");
        let ran = call(33, Some(&seam)).unwrap();
        assert_eq!(ran.to_string(), "trsm=blocked:nb=32(trsm=noted, gemm=noted, trsm=noted)");
        assert!(call(32, Some(&seam)).unwrap_err().to_string().contains("single diagonal block"));
    }
}
