//! Retries of failed systems with a shift on the diagonal: `(A + s I) X = B` for the items that are not positive definite,
//! and for no other.
//!
//! After the solve of the whole batch, the items whose `info` is not 0 are listed on the host, restored from a copy of A
//! with a first shift and solved again, alone, as a pointer-array batch over the caller's memory; those that fail once more
//! get the next shift, until none is left or the largest shift has failed. `cuda/jitter.cuh` has the two kernels round it.
//!
//! # Memory
//! `n^2` elements per item for the copy of A, of which only the referenced triangle is written and read; 8 bytes per item
//! for its shift; 28 bytes per failed item for the list, two addresses and a status; and the workspace of the solves. It
//! is allocated by the call and freed after it.
#![allow(unsafe_code)]

use batchlas_core::cpu::on_host;
use batchlas_core::{
    ArgumentError, Buffer, Dtype, Kernel, KernelSource, Launch, MatBatchMut, Promise, Queue, Ran, Real,
    RealOf, Result, Scalar, Uplo, WorkspaceMut,
};
use bytemuck::{Pod, Zeroable};

use crate::operands::Operand;
use crate::problem::Problem;
use crate::route::Posv;

/// Shifts to try, in this order: `first` times the machine's epsilon, then each time `growth` times more, up to `limit`,
/// which is the last. All are relative to the largest diagonal element of the item, in modulus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// The first shift in units of the machine's epsilon (1.2e-7 for f32 and c32, 2.2e-16 for f64 and c64).
    pub first: f64,
    /// From one shift to the next; at least 1.5.
    pub growth: f64,
    /// The largest shift.
    pub limit: f64,
}

impl Default for Jitter {
    fn default() -> Self {
        Jitter { first: 16.0, growth: 10.0, limit: 1e-3 }
    }
}

/// Smallest growth: with less, the number of retries explodes.
const MIN_GROWTH: f64 = 1.5;

impl Jitter {
    /// The relative shifts for a type.
    ///
    /// # Errors
    /// No first shift above 0, a growth below 1.5, a limit below the first shift; anything not finite.
    pub fn shifts(&self, dtype: Dtype) -> Result<Vec<f64>> {
        let Jitter { first, growth, limit } = *self;
        let wrong = |text: String| Err(ArgumentError::Jitter(text).into());
        let start = first * dtype.epsilon();
        if !(start > 0.0 && start.is_finite()) {
            return wrong(format!("the first shift is {first} epsilons: it must be positive and finite"));
        }
        if !(growth >= MIN_GROWTH && growth.is_finite()) {
            return wrong(format!(
                "the shift grows by a factor of {growth}: it must be finite and at least {MIN_GROWTH}"
            ));
        }
        if !(limit >= start && limit.is_finite()) {
            return wrong(format!(
                "the largest shift is {limit:e}: it must be finite and at least the first, {first} epsilons of \
                 {dtype} or {start:.1e}"
            ));
        }
        let growing = std::iter::successors(Some(start), |shift| Some(shift * growth));
        Ok(growing.take_while(|&shift| shift < limit).chain([limit]).collect())
    }
}

/// What became of every item.
#[derive(Clone, Debug, PartialEq)]
pub struct Retried {
    /// Status of each item: 0 if it was solved, with or without a shift, otherwise that of A as it was given.
    pub info: Vec<i32>,
    /// Shift of each item, in units of A: 0 if it was solved as given, `s` if `(A + s I) X = B` was solved, NaN if nothing
    /// was.
    pub shifts: Vec<f64>,
    /// The whole batch, then each retry.
    pub ran: Ran,
}

static SOURCE: KernelSource =
    KernelSource { name: "batchlas-posv/cuda/jitter.cuh", text: include_str!("../cuda/jitter.cuh") };

/// Items of a block (`WARPS` of the text).
const WARPS: u32 = 4;
/// Blocks on a multiprocessor (`BLOCKS` of the text).
const BLOCKS: u32 = 8;
/// Threads of a warp.
const WARP: u32 = 32;

/// The kernels' one parameter (`JitterArgs` of the text).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Args {
    a: Operand,
    b: Operand,
    n: u64,
    items: u64,
    kept: u64,
    list: u64,
    table_a: u64,
    table_b: u64,
    shifts: u64,
    relative: f64,
}

/// Every kernel of this module, for the residency probe.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let types = Dtype::ALL.into_iter().flat_map(|d| Uplo::ALL.iter().map(move |&uplo| (d, uplo)));
    types.flat_map(|(dtype, uplo)| ["keep", "restore"].map(|part| kernel(part, dtype, uplo)))
}

fn kernel(part: &str, dtype: Dtype, uplo: Uplo) -> Kernel {
    Kernel {
        source: &SOURCE,
        entry: format!("batchlas::jitter_{part}<batchlas::{dtype}, batchlas::Uplo::{uplo:?}>"),
        promise: Promise { threads: WARP * WARPS, min_blocks: BLOCKS, max_dynamic_shared: 0 },
    }
}

/// The caller's operands and what is kept of them.
struct Kept<'a, T: Scalar> {
    queue: &'a dyn Queue,
    uplo: Uplo,
    a: MatBatchMut<'a, T>,
    b: MatBatchMut<'a, T>,
    copies: Buffer<T>,
    shifts: Buffer<f64>,
}

/// Items that are solved again.
struct Retry {
    items: Vec<u64>,
    list: Buffer<u64>,
    table_a: Buffer<u64>,
    table_b: Buffer<u64>,
    info: Buffer<i32>,
}

impl Retry {
    fn new(queue: &dyn Queue, items: Vec<u64>) -> Result<Self> {
        let count = items.len();
        Ok(Retry {
            list: Buffer::from_slice(queue, &items)?,
            items,
            table_a: Buffer::new(queue, count)?,
            table_b: Buffer::new(queue, count)?,
            info: Buffer::new(queue, count)?,
        })
    }
}

impl<'a, T: Scalar> Kept<'a, T> {
    /// Copies the referenced triangles of all items.
    fn new(queue: &'a dyn Queue, uplo: Uplo, a: MatBatchMut<'a, T>, b: MatBatchMut<'a, T>) -> Result<Self> {
        let (n, batch) = (a.rows(), a.batch());
        let copies = Buffer::new(queue, n.saturating_mul(n).saturating_mul(batch))?;
        let shifts = Buffer::from_slice(queue, &vec![0.0; batch])?;
        let mut kept = Kept { queue, uplo, a, b, copies, shifts };
        match queue.cpu() {
            Some(cpu) => {
                let copies = kept.copies.view_mut(n, n, n, n * n, batch)?;
                cpu.for_each_chunk((kept.a.rb(), copies), 64, |(a, mut copies)| {
                    for item in 0..a.batch() {
                        let (from, mut to) = (on_host(a.item(item))?, on_host(copies.item_mut(item))?);
                        each(uplo, n, |i, j| to.set(i, j, from.at(i, j)));
                    }
                    Ok(())
                })?;
            }
            None => kept.launch("keep", None, 0.0)?,
        }
        Ok(kept)
    }

    /// Enqueues a kernel over all items, or over those of a list.
    fn launch(&mut self, part: &str, retry: Option<&Retry>, relative: f64) -> Result<()> {
        let items = retry.map_or(self.a.batch(), |retry| retry.items.len());
        let [list, table_a, table_b] = retry
            .map_or([0; 3], |retry| [retry.list.address(), retry.table_a.address(), retry.table_b.address()]);
        let args = Args {
            a: Operand::new(self.a.rb()),
            b: Operand::new(self.b.rb()),
            n: self.a.rows() as u64,
            items: items as u64,
            kept: self.copies.address(),
            list,
            table_a,
            table_b,
            shifts: self.shifts.address(),
            relative,
        };
        let kernel = kernel(part, T::DTYPE, self.uplo);
        let grid = i32::try_from(items.div_ceil(WARPS as usize)).map_err(|_| ArgumentError::TooLarge {
            operand: "A",
            rows: self.a.rows(),
            cols: self.a.cols(),
            ld: self.a.ld(),
            stride: self.a.stride().unwrap_or(0),
            batch: items,
        })?;
        let args = bytemuck::bytes_of(&args);
        let launch = Launch { kernel: &kernel, grid: grid.unsigned_abs(), dynamic_shared: 0, args };
        // SAFETY: `Args` is the parameter struct of these kernels. A and B are exclusively borrowed for work on this
        // queue, the copies hold as many matrices, and the list, whose entries are indices of items, has as many entries
        // as the tables.
        Ok(unsafe { self.queue.launch(&launch) }?)
    }

    /// Restores the listed items with a shift, and fills the tables with their addresses.
    fn restore(&mut self, retry: &mut Retry, relative: f64) -> Result<()> {
        if self.queue.cpu().is_none() {
            return self.launch("restore", Some(retry), relative);
        }
        let (n, uplo, batch) = (self.a.rows(), self.uplo, self.a.batch());
        let copies = self.copies.view(n, n, n, n * n, batch)?;
        let (mut table_a, mut table_b) = (Vec::new(), Vec::new());
        for item in retry.items.iter().map(|&item| item as usize) {
            let (copy, mut a) = (on_host(copies.item(item))?, on_host(self.a.item_mut(item))?);
            let mut b = on_host(self.b.item_mut(item))?;
            // A NaN is not the largest of anything.
            let largest = (0..n).map(|i| copy.at(i, i).widen().re.abs()).fold(0.0, f64::max);
            let shift = RealOf::<T>::from_parts(relative * largest, 0.0);
            each(uplo, n, |i, j| {
                let element = copy.at(i, j);
                let shifted = i == j && relative != 0.0;
                a.set(i, j, if shifted { T::from_real(element.re() + shift) } else { element });
            });
            table_a.push(a.as_mut_ptr().expose_provenance() as u64);
            table_b.push(b.as_mut_ptr().expose_provenance() as u64);
            self.shifts.write(self.queue, item, &[shift.to_f64()])?;
        }
        retry.table_a.write(self.queue, 0, &table_a)?;
        retry.table_b.write(self.queue, 0, &table_b)
    }

    /// Solves the listed items, which are restored, in place.
    fn solve(&mut self, posv: &Posv<'_, T>, retry: &mut Retry) -> Result<Ran> {
        let (queue, place, count) = (self.queue, self.queue.device().place, retry.items.len());
        let (n, nrhs) = (self.a.rows(), self.b.cols());
        // SAFETY: the tables hold the addresses of distinct items of A and of B, which are exclusively borrowed, of these
        // sizes and leading dimensions.
        let (a, b) = unsafe {
            (
                MatBatchMut::from_raw_table(place, retry.table_a.address(), n, n, self.a.ld(), count)?,
                MatBatchMut::from_raw_table(place, retry.table_b.address(), n, nrhs, self.b.ld(), count)?,
            )
        };
        let bytes = posv.posv_workspace(queue, self.uplo, a.rb(), &b, false)?;
        let mut memory = queue.alloc(bytes)?;
        posv.posv(queue, self.uplo, a, b, retry.info.info_mut(), WorkspaceMut::over(&mut memory))
    }
}

/// Calls `element` for every place of the triangle.
fn each(uplo: Uplo, n: usize, mut element: impl FnMut(usize, usize)) {
    for j in 0..n {
        let rows = if uplo == Uplo::Lower { j..n } else { 0..j + 1 };
        rows.for_each(|i| element(i, j));
    }
}

impl<T: Scalar> Posv<'_, T> {
    /// [`Posv::posv`] of the whole batch, then of those that failed, with growing shifts. Waits for each.
    ///
    /// An item that no shift makes positive definite keeps its A and its B, bit for bit. The A of any other holds what
    /// [`Posv::output`] says of the matrix that was solved, its shift included.
    ///
    /// # Errors
    /// As for [`Posv::posv`]; shifts that do not grow from above 0 to the limit; no memory for the copy of A.
    pub fn posv_jittered(
        &self,
        queue: &dyn Queue,
        uplo: Uplo,
        a: MatBatchMut<'_, T>,
        b: MatBatchMut<'_, T>,
        jitter: &Jitter,
    ) -> Result<Retried> {
        let problem = Problem::new("posv", uplo, &a.rb(), &b, queue.device().place)?;
        let relative = jitter.shifts(T::DTYPE)?;
        let mut ran = Ran::leaf("posv", "jitter");
        if problem.is_empty() {
            let none = Retried { info: vec![0; problem.batch], shifts: vec![0.0; problem.batch], ran };
            return Ok(none);
        }
        let bytes = self.posv_workspace(queue, uplo, a.rb(), &b, false)?;
        let mut kept = Kept::new(queue, uplo, a, b)?;
        queue.fence()?;
        let mut statuses = Buffer::new(queue, problem.batch)?;
        let mut memory = queue.alloc(bytes)?;
        let (whole_a, whole_b) = (kept.a.rb_mut(), kept.b.rb_mut());
        let workspace = WorkspaceMut::over(&mut memory);
        ran.children.push(self.posv(queue, uplo, whole_a, whole_b, statuses.info_mut(), workspace)?);

        let mut info = statuses.to_vec(queue)?;
        let failed = info.iter().enumerate().filter(|(_, status)| **status != 0);
        let mut failed: Vec<u64> = failed.map(|(item, _)| item as u64).collect();
        // With a shift of 0 at the end, what is left becomes what it was.
        for relative in relative.into_iter().chain([0.0]) {
            if failed.is_empty() {
                break;
            }
            let mut retry = Retry::new(queue, failed)?;
            kept.restore(&mut retry, relative)?;
            if relative > 0.0 {
                queue.fence()?;
                ran.children.push(kept.solve(self, &mut retry)?);
                let again = retry.info.to_vec(queue)?;
                for (&item, status) in retry.items.iter().zip(&again) {
                    info[item as usize] = if *status == 0 { 0 } else { info[item as usize] };
                }
            }
            failed = retry.items.iter().copied().filter(|&item| info[item as usize] != 0).collect();
        }
        let mut shifts = kept.shifts.to_vec(queue)?;
        for item in failed {
            shifts[item as usize] = f64::NAN;
        }
        Ok(Retried { info, shifts, ran })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shifts(first: f64, growth: f64, limit: f64) -> Result<Vec<f64>> {
        Jitter { first, growth, limit }.shifts(Dtype::F64)
    }

    #[test]
    fn shifts_grow_to_the_limit_which_is_tried() {
        let eps = Dtype::F64.epsilon();
        assert_eq!(shifts(2.0, 4.0, 40.0 * eps).unwrap(), [2.0 * eps, 8.0 * eps, 32.0 * eps, 40.0 * eps]);
        assert_eq!(shifts(1.0, 1e300, 0.5).unwrap(), [eps, 0.5]);
        assert_eq!(shifts(1.0, 2.0, eps).unwrap(), [eps]);
        let of = |dtype| Jitter::default().shifts(dtype).unwrap();
        assert_eq!((of(Dtype::F32).len(), of(Dtype::C64).len()), (4, 13));
        assert_eq!(of(Dtype::C32).last(), Some(&1e-3));
    }

    #[test]
    fn shifts_that_go_nowhere_are_refused_with_their_numbers() {
        for (first, growth, limit, part) in [
            (0.0, 10.0, 1e-3, "the first shift is 0 epsilons"),
            (f64::NAN, 10.0, 1e-3, "NaN epsilons"),
            (1.0, 1.0, 1e-3, "a factor of 1: it must be finite and at least 1.5"),
            (1.0, f64::INFINITY, 1e-3, "a factor of inf"),
            (
                1e6,
                10.0,
                1e-12,
                "the largest shift is 1e-12: it must be finite and at least the first, 1000000 eps",
            ),
            (1.0, 10.0, f64::INFINITY, "the largest shift is inf"),
        ] {
            let message = shifts(first, growth, limit).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn constants_are_those_of_the_text() {
        assert!(SOURCE.text.contains(&format!("constexpr int WARPS = {WARPS}, BLOCKS = {BLOCKS};")));
        assert_eq!(kernels().count(), 16);
    }
}
