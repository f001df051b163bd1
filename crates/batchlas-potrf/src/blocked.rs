//! `blocked`: right-looking over diagonal blocks, any order, as fast as what is injected.
//!
//! A diagonal block is factored by the routed factorisation itself (the leaf), the panel behind it solved through the seam
//! [`PanelSolve`], and what remains updated through [`TrailingUpdate`], which touches one triangle only: there is no
//! scratch but a status per item. A failed block becomes the identity and its panel zero (`cuda/blocked.cuh`), so that the
//! item stays finite and its first failure is the one that is reported.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::seam::{FactorShape, SolveShape, UpdateShape};
use batchlas_core::{
    Arena, Chunk, Device, Diag, Dtype, Factor, InfoMut, ItemMut, Kernel, KernelSource, Launch, MatBatch,
    MatBatchMut, PanelSolve, Promise, Queue, Ran, Result, Scalar, Side, TrailingUpdate, Trans, Uplo,
    WorkspaceMut,
};
use batchlas_select::{Candidate, Class, Knob, Refusal, Spelling, Values};
use bytemuck::{Pod, Zeroable};

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-potrf/cuda/blocked.cuh", text: include_str!("../cuda/blocked.cuh") };

/// Threads of a block of the grid (`MERGE_THREADS` of the text), and of a warp.
const THREADS: u32 = 256;
const WARP: u32 = 32;
/// Blocks of the largest grid; beyond it warps take several turns.
const MAX_BLOCKS: u64 = 1 << 16;
/// Stride that says that an address is that of a table (`Operand::TABLE`).
const TABLE: u64 = u64::MAX;

/// The family and its knob.
pub(crate) const CANDIDATE: Candidate = Candidate {
    family: "blocked",
    class: Class::Native,
    knobs: &[Knob { name: "nb", values: Values::OneOf(&[32, 64, 128]), required: true }],
};

/// What the driver calls.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'s, T: Scalar> {
    /// Factors the diagonal blocks.
    pub(crate) leaf: &'s dyn Factor<T>,
    /// Solves the panels.
    pub(crate) solve: &'s dyn PanelSolve<T>,
    /// Updates what remains.
    pub(crate) update: &'s dyn TrailingUpdate<T>,
}

/// Order of a diagonal block; the last one may be smaller.
fn width(family: &Spelling) -> usize {
    // The knob is required; its values are positive.
    family.int("nb").map_or(0, |nb| nb as usize)
}

/// The adjoint as kernels for a type call it: a real one has no conjugate, and its kernels none to offer.
fn adjoint(dtype: Dtype) -> Trans {
    if dtype.is_complex() { Trans::ConjTrans } else { Trans::Trans }
}

/// The panel behind a block of order `nb`, `rest` long, as a triangular system.
fn panel_shape(dtype: Dtype, uplo: Uplo, nb: usize, rest: usize, batch: usize) -> SolveShape {
    let side = if uplo == Uplo::Lower { Side::Right } else { Side::Left };
    SolveShape { side, uplo, trans: adjoint(dtype), diag: Diag::NonUnit, n: nb, q: rest, batch }
}

/// Whether the driver serves a problem with these steps: correctness only.
pub(crate) fn can_run<T: Scalar>(
    device: &Device,
    shape: &FactorShape,
    family: &Spelling,
    steps: &Steps<'_, T>,
) -> Result<(), Refusal> {
    let FactorShape { uplo, n, batch } = *shape;
    let nb = width(family);
    if n <= nb {
        return Err(format!("n = {n} is a single diagonal block, blocked serves n > {nb}").into());
    }
    for order in [nb, n % nb] {
        if order > 0 {
            steps.leaf.can_factor(device, &FactorShape { n: order, ..*shape })?;
        }
    }
    let rest = n - nb;
    steps.solve.can_solve(device, &panel_shape(T::DTYPE, uplo, nb, rest, batch))?;
    Ok(steps.update.can_update(device, &UpdateShape { m: rest, n: rest, k: nb, batch })?)
}

/// Scratch of one call: the leaf's own, and its statuses.
struct Layout<'a> {
    leaf: Chunk<'a, u8>,
    info: Chunk<'a, i32>,
}

impl<'a> Layout<'a> {
    fn new(arena: &mut Arena<'a>, batch: usize, leaf_bytes: usize) -> Result<Self> {
        Ok(Layout { leaf: arena.take("potrf", leaf_bytes)?, info: arena.take("potrf", batch)? })
    }
}

/// The most that the leaf needs for any diagonal block.
fn leaf_bytes<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatch<'_, T>,
    nb: usize,
    leaf: &dyn Factor<T>,
) -> Result<usize> {
    let n = a.rows();
    let mut most = 0;
    for block in [0..nb, n - (n - 1) % nb - 1..n] {
        most = most.max(leaf.factor_workspace(queue, uplo, a.sub(block.clone(), block)?)?);
    }
    Ok(most)
}

/// Bytes that [`run`] needs.
pub(crate) fn workspace_bytes<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatch<'_, T>,
    family: &Spelling,
    leaf: &dyn Factor<T>,
) -> Result<usize> {
    let bytes = leaf_bytes(queue, uplo, a, width(family), leaf)?;
    let mut arena = Arena::measuring();
    Layout::new(&mut arena, a.batch(), bytes)?;
    Ok(arena.used())
}

/// Enqueues the factorisation. Children are reported in the order they ran.
pub(crate) fn run<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    mut a: MatBatchMut<'_, T>,
    mut info: InfoMut<'_>,
    workspace: WorkspaceMut<'_>,
    family: &Spelling,
    steps: &Steps<'_, T>,
) -> Result<Ran> {
    let (n, nb, adjoint) = (a.rows(), width(family), adjoint(T::DTYPE));
    let bytes = leaf_bytes(queue, uplo, a.rb(), nb, steps.leaf)?;
    let Layout { mut leaf, info: mut own } = Layout::new(&mut Arena::over(workspace), a.batch(), bytes)?;
    let (side, trans) = match uplo {
        Uplo::Lower => (Side::Right, Trans::No),
        Uplo::Upper => (Side::Left, adjoint),
    };
    let one = T::one().re();
    let mut ran = Ran::leaf("potrf", family.to_string());
    for first in (0..n).step_by(nb) {
        let (block, rest) = (first..n.min(first + nb), n.min(first + nb)..n);
        let panel = match uplo {
            Uplo::Lower => (rest.clone(), block.clone()),
            Uplo::Upper => (block.clone(), rest.clone()),
        };
        let diagonal = a.rb_mut().sub(block.clone(), block.clone())?;
        ran.children.push(steps.leaf.factor(queue, uplo, diagonal, own.info()?, leaf.workspace()?)?);
        queue.fence()?;
        let order = block.len();
        merge(queue, uplo, a.rb_mut().sub(first..n, first..n)?, order, first, info.rb_mut(), own.info()?)?;
        queue.fence()?;
        if rest.is_empty() {
            break;
        }
        let (triangle, b) = a.block_pair((block.clone(), block), panel.clone())?;
        ran.children.push(steps.solve.solve(
            queue,
            side,
            uplo,
            adjoint,
            Diag::NonUnit,
            T::one(),
            triangle,
            b,
        )?);
        queue.fence()?;
        let (b, c) = a.block_pair(panel, (rest.clone(), rest))?;
        ran.children.push(steps.update.herk(queue, uplo, trans, -one, b, one, c)?);
        queue.fence()?;
    }
    Ok(ran)
}

/// The kernel's one parameter.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    /// Address of item 0 from the block on, or of a table of items.
    address: u64,
    /// Bytes from an item to the next, or [`TABLE`].
    stride: u64,
    /// Bytes added to each address of a table.
    offset: u64,
    /// Bytes from a column to the next.
    ld: u64,
    /// Addresses of the statuses: of the items, or 0; of the block.
    info: u64,
    block_info: u64,
    batch: u64,
    /// Order of the block, order of what is left, columns before it.
    block: i32,
    left: i32,
    first: i32,
    unused: u32,
}

/// The kernel of one type and triangle.
fn kernel(dtype: Dtype, uplo: Uplo) -> Kernel {
    let uplo = if uplo == Uplo::Lower { "Lower" } else { "Upper" };
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::potrf_merge<batchlas::{dtype}, batchlas::Uplo::{uplo}>"),
        promise: Promise { threads: THREADS, min_blocks: 1, max_dynamic_shared: 0 },
    }
}

/// Every kernel of the driver's own.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    Dtype::ALL.into_iter().flat_map(|dtype| Uplo::ALL.iter().map(move |&uplo| kernel(dtype, uplo)))
}

/// Merges the statuses of a block, which starts at column `first` of the matrices and is the corner of order `order` of
/// `a`, into those of the items, and keeps failed items from what follows.
fn merge<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'_, T>,
    order: usize,
    first: usize,
    info: InfoMut<'_>,
    own: InfoMut<'_>,
) -> Result<()> {
    let Some(cpu) = queue.cpu() else {
        return launch(queue, uplo, &a, order, first, &info, &own);
    };
    cpu.for_each_chunk(((a, info), own), 64, |((mut a, mut info), own)| {
        for b in 0..a.batch() {
            let status = own.get(b).unwrap_or(0);
            if first == 0 {
                info.set(b, status);
            } else if status != 0 && info.get(b) == Some(0) {
                info.set(b, first as i32 + status);
            }
            if status != 0 {
                neutral(uplo, on_host(a.item_mut(b))?, order);
            }
        }
        Ok(())
    })
}

/// The block becomes the identity, the panel zero.
fn neutral<T: Scalar>(uplo: Uplo, mut a: ItemMut<'_, T>, order: usize) {
    let n = a.rows();
    for j in 0..order {
        for i in j..n {
            let (row, col) = if uplo == Uplo::Lower { (i, j) } else { (j, i) };
            a.set(row, col, if i == j { T::one() } else { T::zero() });
        }
    }
}

fn launch<T: Scalar>(
    queue: &dyn Queue,
    uplo: Uplo,
    a: &MatBatchMut<'_, T>,
    order: usize,
    first: usize,
    info: &InfoMut<'_>,
    own: &InfoMut<'_>,
) -> Result<()> {
    let bytes = size_of::<T>() as u64;
    let (address, offset) = a.address();
    let args = Args {
        address,
        stride: a.stride().map_or(TABLE, |stride| stride as u64 * bytes),
        offset: offset as u64 * bytes,
        ld: a.ld() as u64 * bytes,
        info: info.address(),
        block_info: own.address(),
        batch: a.batch() as u64,
        block: order as i32,
        left: a.rows() as i32,
        first: first as i32,
        unused: 0,
    };
    let grid = args.batch.div_ceil((THREADS / WARP).into()).clamp(1, MAX_BLOCKS) as u32;
    let kernel = kernel(T::DTYPE, uplo);
    let launch = Launch { kernel: &kernel, grid, dynamic_shared: 0, args: bytemuck::bytes_of(&args) };
    // SAFETY: the bytes are the kernel's argument struct. The view and both arrays of statuses, exclusively borrowed, lie on
    // the queue's device with one entry per item.
    Ok(unsafe { queue.launch(&launch) }?)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use batchlas_core::{CpuQueue, Error};
    use batchlas_select::Selector;

    use super::*;
    use crate::{Potrf, VOCABULARY};

    /// Seams that note what they are asked for, and do it by the text book.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Notes {
        fn add(&self, note: String) {
            self.0.lock().unwrap().push(note);
        }
    }

    /// Element (i, j) of the lower factor in the triangle `uplo`.
    fn at(uplo: Uplo, i: usize, j: usize) -> (usize, usize) {
        if uplo == Uplo::Lower { (i, j) } else { (j, i) }
    }

    impl Factor<f64> for Notes {
        fn can_factor(&self, _: &Device, _: &FactorShape) -> Result<(), String> {
            Ok(())
        }

        fn factor_workspace(&self, _: &dyn Queue, _: Uplo, a: MatBatch<'_, f64>) -> Result<usize> {
            Ok(1000 * a.rows())
        }

        fn factor(
            &self,
            _: &dyn Queue,
            uplo: Uplo,
            mut a: MatBatchMut<'_, f64>,
            mut info: InfoMut<'_>,
            workspace: WorkspaceMut<'_>,
        ) -> Result<Ran> {
            let n = a.rows();
            assert!(workspace.bytes() >= 1000 * n, "the leaf has what it asked for");
            self.add(format!("potrf {n} ld {}", a.ld()));
            for b in 0..a.batch() {
                let mut a = on_host(a.item_mut(b))?;
                info.set(b, 0);
                'columns: for j in 0..n {
                    for i in j..n {
                        let (row, col) = at(uplo, i, j);
                        let mut sum = a.at(row, col);
                        for k in 0..j {
                            let [left, right] = [at(uplo, i, k), at(uplo, j, k)];
                            sum -= a.at(left.0, left.1) * a.at(right.0, right.1);
                        }
                        if i == j && sum.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
                            info.set(b, j as i32 + 1);
                            // What a library may leave behind.
                            (j..n).for_each(|k| a.set(k, k, 0.0));
                            break 'columns;
                        }
                        let diagonal = a.at(j, j);
                        a.set(row, col, if i == j { sum.sqrt() } else { sum / diagonal });
                    }
                }
            }
            Ok(Ran::leaf("potrf", "noted"))
        }
    }

    impl PanelSolve<f64> for Notes {
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
            alpha: f64,
            a: MatBatch<'_, f64>,
            mut b: MatBatchMut<'_, f64>,
        ) -> Result<Ran> {
            let (n, rows, cols) = (a.rows(), b.rows(), b.cols());
            self.add(format!("trsm {side}{uplo}{trans}{diag} {n}: {rows}x{cols} by {alpha}"));
            for item in 0..a.batch() {
                let (a, mut b) = (on_host(a.item(item))?, on_host(b.item_mut(item))?);
                for q in 0..rows.max(cols).min(if side == Side::Right { rows } else { cols }) {
                    for j in 0..n {
                        let x = |j| if side == Side::Right { (q, j) } else { (j, q) };
                        let mut sum = b.at(x(j).0, x(j).1);
                        for k in 0..j {
                            let l = at(uplo, j, k);
                            sum -= b.at(x(k).0, x(k).1) * a.at(l.0, l.1);
                        }
                        b.set(x(j).0, x(j).1, sum / a.at(j, j));
                    }
                }
            }
            Ok(Ran::leaf("trsm", "noted"))
        }
    }

    impl TrailingUpdate<f64> for Notes {
        fn can_update(&self, _: &Device, _: &UpdateShape) -> Result<(), String> {
            Ok(())
        }

        fn gemm(
            &self,
            _: &dyn Queue,
            _: Trans,
            _: Trans,
            _: f64,
            _: MatBatch<'_, f64>,
            _: MatBatch<'_, f64>,
            _: f64,
            _: MatBatchMut<'_, f64>,
        ) -> Result<Ran> {
            panic!("a factorisation needs no full product")
        }

        fn herk(
            &self,
            _: &dyn Queue,
            uplo: Uplo,
            trans: Trans,
            alpha: f64,
            a: MatBatch<'_, f64>,
            beta: f64,
            mut c: MatBatchMut<'_, f64>,
        ) -> Result<Ran> {
            let (n, k) = (c.rows(), a.rows() + a.cols() - c.rows());
            self.add(format!("herk {uplo}{trans} {n}x{k} {alpha} {beta}"));
            for item in 0..a.batch() {
                let (a, mut c) = (on_host(a.item(item))?, on_host(c.item_mut(item))?);
                let x = |i, k| if trans == Trans::No { a.at(i, k) } else { a.at(k, i) };
                for (i, j) in (0..n).flat_map(|j| (j..n).map(move |i| (i, j))) {
                    let (row, col) = at(uplo, i, j);
                    let sum: f64 = (0..k).map(|k| x(i, k) * x(j, k)).sum();
                    c.set(row, col, alpha * sum + beta * c.at(row, col));
                }
            }
            Ok(Ran::leaf("herk", "noted"))
        }
    }

    /// Factors two items of order `n`, the matrices `n` on the diagonal and 1 off it, after `spoil`; `None` stands for the
    /// caller who wants no statuses. The other triangle is NaN.
    fn factored(
        uplo: Uplo,
        n: usize,
        nb: usize,
        info: Option<&mut [i32]>,
        spoil: impl Fn(&mut [f64]),
    ) -> (Vec<f64>, Vec<String>) {
        let mut a: Vec<f64> = (0..2 * n * n)
            .map(|e| (e / n % n, e % n))
            .map(|(j, i)| match i.cmp(&j) {
                std::cmp::Ordering::Equal => n as f64,
                order if (order == std::cmp::Ordering::Greater) == (uplo == Uplo::Lower) => 1.0,
                _ => f64::NAN,
            })
            .collect();
        spoil(&mut a);
        let (queue, seam) = (CpuQueue::new(1).unwrap(), Notes::default());
        let steps = Steps { leaf: &seam, solve: &seam, update: &seam };
        let family = VOCABULARY.spelling(&format!("blocked:nb={nb}")).unwrap();
        let view = MatBatchMut::packed(&mut a, n, n, 2).unwrap();
        let bytes =
            leaf_bytes(&queue, uplo, MatBatch::packed(&vec![0.0; 2 * n * n], n, n, 2).unwrap(), nb, &seam);
        assert_eq!(bytes.unwrap(), 1000 * nb);
        let info = info.map_or(InfoMut::absent(), InfoMut::host);
        let mut scratch = queue.alloc(1000 * nb + 4096).unwrap();
        let scratch = WorkspaceMut::over(&mut scratch);
        let ran = run(&queue, uplo, view, info, scratch, &family, &steps).unwrap();
        let notes = seam.0.into_inner().unwrap();
        assert_eq!(ran.children.len(), notes.len());
        (a, notes)
    }

    #[test]
    fn the_calls_of_order_80_are_these_and_give_the_factor() {
        let calls = |leaf: [&str; 3], solve: &str, herk: &str| {
            [
                leaf[0].to_owned(),
                solve.replace('@', "48"),
                format!("herk {herk} 48x32 -1 1"),
                leaf[1].to_owned(),
                solve.replace('@', "16"),
                format!("herk {herk} 16x32 -1 1"),
                leaf[2].to_owned(),
            ]
        };
        let leaves = ["potrf 32 ld 80", "potrf 32 ld 80", "potrf 16 ld 80"];
        let mut info = [77; 2];
        let (lower, notes) = factored(Uplo::Lower, 80, 32, Some(&mut info), |_| {});
        assert_eq!(notes, calls(leaves, "trsm RLTN 32: @x32 by 1", "LN"));
        let (upper, notes) = factored(Uplo::Upper, 80, 32, Some(&mut info), |_| {});
        assert_eq!(notes, calls(leaves, "trsm LUTN 32: 32x@ by 1", "UT"));
        assert_eq!(info, [0, 0]);
        for (i, j) in (0..80).flat_map(|j| (0..80).map(move |i| (i, j))) {
            let (l, u) = (lower[6400 + j * 80 + i], upper[6400 + i * 80 + j]);
            if i < j {
                assert!(l.is_nan() && u.is_nan(), "the other triangle at ({i}, {j})");
                continue;
            }
            let product: f64 = (0..=j).map(|k| lower[6400 + k * 80 + i] * lower[6400 + k * 80 + j]).sum();
            let expected = if i == j { 80.0 } else { 1.0 };
            assert!((product - expected).abs() < 1e-12 && (l - u).abs() < 1e-12, "({i}, {j}): {product}");
        }
    }

    #[test]
    fn the_first_failure_wins_and_a_failed_item_stays_finite() {
        let n = 80;
        for uplo in Uplo::ALL {
            // Item 0 fails at 35 and, for itself, at 67; item 1 is clean.
            let spoil = |a: &mut [f64]| [34, 66].into_iter().for_each(|d| a[d * n + d] = -1.0);
            let mut info = [77; 2];
            let (clean, _) = factored(*uplo, n, 32, Some(&mut info), |_| {});
            let (failed, _) = factored(*uplo, n, 32, Some(&mut info), spoil);
            assert_eq!(info, [35, 0]);
            let referenced = |e: &usize| clean[*e].is_finite();
            for e in (0..n * n).filter(referenced) {
                assert!(failed[e].is_finite(), "{uplo}: element {e} of a failed item");
                assert_eq!(failed[n * n + e], clean[n * n + e], "{uplo}: its neighbour");
            }
            // The failed block is the identity, and what is behind it zero.
            let (row, col) = at(*uplo, 79, 40);
            assert_eq!((failed[40 * n + 40], failed[col * n + row]), (1.0, 0.0), "{uplo}");
            let (same, _) = factored(*uplo, n, 32, None, spoil);
            assert!((0..n * n).filter(referenced).all(|e| same[e] == failed[e]), "{uplo} without statuses");
        }
    }

    #[test]
    fn a_complex_adjoint_conjugates_and_a_real_one_transposes() {
        let adjoints = Dtype::ALL.map(adjoint);
        assert_eq!(adjoints, [Trans::Trans, Trans::Trans, Trans::ConjTrans, Trans::ConjTrans]);
    }

    #[test]
    fn missing_seams_and_single_blocks_are_refused() {
        let (queue, selector, seam) = (CpuQueue::new(1).unwrap(), Selector::default(), Notes::default());
        let call = |n: usize, update: Option<&dyn TrailingUpdate<f64>>| {
            let pin = Some(VOCABULARY.pin("blocked:nb=32").unwrap());
            let (vendor, solve) = (Some(&seam as &dyn Factor<f64>), Some(&seam as &dyn PanelSolve<f64>));
            let potrf = Potrf { selector: &selector, pin, vendor, solve, update };
            let mut a: Vec<f64> = (0..n * n).map(|e| if e % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
            let bytes = potrf.factor_workspace(&queue, Uplo::Lower, MatBatch::packed(&a, n, n, 1)?)?;
            let (mut scratch, mut info) = (queue.alloc(bytes)?, [0]);
            let scratch = WorkspaceMut::over(&mut scratch);
            let a = MatBatchMut::packed(&mut a, n, n, 1)?;
            potrf.factor(&queue, Uplo::Lower, a, InfoMut::host(&mut info), scratch)
        };
        let ran = call(33, Some(&seam)).unwrap();
        assert_eq!(ran.to_string(), "potrf=blocked:nb=32(potrf=noted, trsm=noted, herk=noted, potrf=noted)");
        let missing = call(33, None).unwrap_err();
        assert!(missing.to_string().contains("update"), "{missing}");
        assert!(!matches!(missing, Error::Internal(_)));
        assert!(call(32, Some(&seam)).unwrap_err().to_string().contains("single diagonal block"));
    }
}
