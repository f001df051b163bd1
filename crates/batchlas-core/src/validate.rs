//! Checks that every operation makes before it enqueues anything.

use crate::device::Place;
use crate::error::{ArgumentError, Result};
use crate::scalar::Scalar;
use crate::view::{MatBatch, MatBatchMut};

/// Geometry of an operand, whatever its access.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    name: &'static str,
    rows: usize,
    cols: usize,
    batch: usize,
    place: Place,
    heterogeneous: bool,
}

impl Operand {
    /// A read-only operand.
    pub fn of<T: Scalar>(name: &'static str, view: &MatBatch<'_, T>) -> Self {
        Operand {
            name,
            rows: view.rows(),
            cols: view.cols(),
            batch: view.batch(),
            place: view.place(),
            heterogeneous: view.is_heterogeneous(),
        }
    }

    /// A writable operand.
    pub fn of_mut<T: Scalar>(name: &'static str, view: &MatBatchMut<'_, T>) -> Self {
        Self::of(name, &view.rb())
    }

    /// The operand is square.
    ///
    /// # Errors
    /// [`ArgumentError::NotSquare`].
    pub fn square(self, op: &'static str) -> Result<Self> {
        if self.rows == self.cols {
            return Ok(self);
        }
        Err(ArgumentError::NotSquare { op, operand: self.name, rows: self.rows, cols: self.cols }.into())
    }

    /// The operand lies where the queue works.
    ///
    /// # Errors
    /// [`ArgumentError::WrongPlace`].
    pub fn at(self, op: &'static str, queue_place: Place) -> Result<Self> {
        if self.place == queue_place {
            return Ok(self);
        }
        let (operand, operand_place) = (self.name, self.place);
        Err(ArgumentError::WrongPlace { op, operand, operand_place, queue_place }.into())
    }

    /// The items have one size.
    ///
    /// # Errors
    /// [`ArgumentError::Heterogeneous`].
    pub fn homogeneous(self, op: &'static str) -> Result<Self> {
        if self.heterogeneous {
            Err(ArgumentError::Heterogeneous { op, operand: self.name }.into())
        } else {
            Ok(self)
        }
    }

    /// Both operands have the same number of items.
    ///
    /// # Errors
    /// [`ArgumentError::Mismatch`].
    pub fn same_batch(self, op: &'static str, other: Operand) -> Result<Self> {
        equal(op, "the batch", (self.name, self.batch), (other.name, other.batch))?;
        Ok(self)
    }
}

/// Two dimensions agree.
///
/// # Errors
/// [`ArgumentError::Mismatch`].
pub fn equal(
    op: &'static str,
    what: &'static str,
    (left, left_value): (&'static str, usize),
    (right, right_value): (&'static str, usize),
) -> Result<()> {
    if left_value == right_value {
        return Ok(());
    }
    Err(ArgumentError::Mismatch { op, what, left, left_value, right, right_value }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_names_its_numbers() {
        fn check(result: Result<Operand>, words: &[&str]) {
            let message = result.unwrap_err().to_string();
            assert!(words.iter().all(|w| message.contains(w)), "{message}");
        }
        let data = [0f32; 24];
        let wide = Operand::of("A", &MatBatch::packed(&data, 2, 3, 4).unwrap());
        let few = Operand::of("B", &MatBatch::packed(&data, 2, 2, 3).unwrap());
        check(wide.square("potrf"), &["A is 2 x 3", "potrf", "square"]);
        check(wide.same_batch("trsm", few), &["batch of A is 4", "of B it is 3"]);
        check(wide.at("trsm", Place::Cuda(0)), &["A lies in host memory", "cuda:0"]);
        assert!(few.square("potrf").is_ok() && few.at("potrf", Place::Host).is_ok());
    }
}
