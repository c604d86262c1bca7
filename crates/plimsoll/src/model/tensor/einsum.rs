//! Products in index notation.
//!
//! Two operands at a time become one batched matrix product: axes that both have and the result keeps are its batch,
//! those that only they have are summed over, and all others are rows or columns. Permuting is a view, so that most
//! notations cost no more than the product.

use super::Tensor;
use crate::{ErrorKind, Result};

impl Tensor {
    /// Products summed over axes in index notation: `"bqhd,bkhd->bhqk"`. Each operand has a letter for each axis; axes of
    /// one letter are walked together, and summed over if the result, after `->`, lacks it. Operands are multiplied from
    /// left to right.
    ///
    /// ```
    /// use plimsoll::{Eager, Tensor};
    /// let eager = Eager::new()?;
    /// let a = eager.tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
    /// let x = eager.tensor(&[2], &[10.0, 1.0])?;
    /// assert_eq!(Tensor::einsum("ij,j->i", &[&a, &x])?.to_vec()?, [12.0, 34.0]);
    /// assert_eq!(Tensor::einsum("ij->ji", &[&a])?.to_vec()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the notation does not fit the operands, a letter stands for different extents or twice in one operand, or the
    /// operands are not floats of one type.
    pub fn einsum(notation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let Some(first) = operands.first() else {
            return Err(crate::Error::new(ErrorKind::Argument, "einsum: there are no operands"));
        };
        let wrong = |why: String| first.error(ErrorKind::Argument, format!("einsum \"{notation}\": {why}"));
        let plain: String = notation.chars().filter(|c| !c.is_whitespace()).collect();
        let Some((given, result)) = plain.split_once("->") else {
            return Err(wrong("has no `->` before the axes of its result".into()));
        };
        let given: Vec<&str> = given.split(',').collect();
        if given.len() != operands.len() {
            return Err(wrong(format!("is for {} operands, there are {}", given.len(), operands.len())));
        }
        for (letters, operand) in given.iter().zip(operands) {
            if letters.len() != operand.rank() || letters.contains(|c: char| !c.is_ascii_alphabetic()) {
                return Err(wrong(format!("\"{letters}\" is not a letter for each axis of {operand}")));
            }
        }
        let twice = |letters: &str| letters.chars().find(|&c| letters.matches(c).count() > 1);
        if let Some(letter) = given.iter().chain([&result]).find_map(|letters| twice(letters)) {
            return Err(wrong(format!("`{letter}` stands twice in one place")));
        }
        if let Some(letter) = result.chars().find(|&c| !given.iter().any(|letters| letters.contains(c))) {
            return Err(wrong(format!("no operand has the axis `{letter}` of the result")));
        }
        let mut so_far = Indexed { letters: given[0].into(), tensor: (*first).clone() };
        for (at, (letters, operand)) in given.iter().zip(operands).enumerate().skip(1) {
            let later: String = given[at + 1..].concat() + result;
            so_far =
                so_far.times(&Indexed { letters: (*letters).into(), tensor: (*operand).clone() }, &later)?;
        }
        so_far.summed_to(result)?.in_order(result)
    }
}

/// A tensor with a letter for each axis.
struct Indexed {
    letters: String,
    tensor: Tensor,
}

impl Indexed {
    /// The product with another, summed over what `later` does not have.
    fn times(&self, other: &Indexed, later: &str) -> Result<Indexed> {
        for (axis, letter) in self.letters.char_indices() {
            let Some(theirs) = other.letters.find(letter) else { continue };
            if self.tensor.shape()[axis] != other.tensor.shape()[theirs] {
                let message = format!(
                    "einsum: `{letter}` is {} in {} and {} in {}",
                    self.tensor.shape()[axis],
                    self.tensor,
                    other.tensor.shape()[theirs],
                    other.tensor
                );
                return Err(self.tensor.error(ErrorKind::Shape, message));
            }
        }
        // What one operand alone has, and nothing needs, need not be multiplied.
        let [a, b] = [
            self.summed_to(&(other.letters.clone() + later))?,
            other.summed_to(&(self.letters.clone() + later))?,
        ];
        let shared = |keep: bool| {
            let both = a.letters.chars().filter(|&c| b.letters.contains(c));
            both.filter(|&c| later.contains(c) == keep).collect::<String>()
        };
        let own = |of: &Indexed, other: &Indexed| {
            of.letters.chars().filter(|&c| !other.letters.contains(c)).collect::<String>()
        };
        let (batch, inner, rows, columns) = (shared(true), shared(false), own(&a, &b), own(&b, &a));
        let left = a.as_matrices(&batch, &rows, &inner)?;
        let right = b.as_matrices(&batch, &columns, &inner)?;
        let letters = format!("{batch}{rows}{columns}");
        let extents = letters.chars().map(|c| a.extent(c).or(b.extent(c)).unwrap_or(1));
        let shape: Vec<usize> = extents.collect();
        Ok(Indexed { letters, tensor: left.matmul_transposed(&right)?.reshape(&shape)? })
    }

    fn extent(&self, letter: char) -> Option<usize> {
        self.letters.find(letter).map(|axis| self.tensor.shape()[axis])
    }

    /// Its axes in another order.
    fn in_order(&self, letters: &str) -> Result<Tensor> {
        let order: Vec<usize> = letters.chars().filter_map(|c| self.letters.find(c)).collect();
        let is_so_already = order.iter().enumerate().all(|(to, &from)| to == from);
        if is_so_already { Ok(self.tensor.clone()) } else { self.tensor.permute(&order) }
    }

    /// `[batch, rows, inner]`, each of these being the axes of some letters.
    fn as_matrices(&self, batch: &str, rows: &str, inner: &str) -> Result<Tensor> {
        let count = |letters: &str| letters.chars().filter_map(|c| self.extent(c)).product::<usize>();
        let ordered = self.in_order(&format!("{batch}{rows}{inner}"))?;
        ordered.reshape(&[count(batch), count(rows), count(inner)])
    }

    /// Summed over the axes that `letters` does not have.
    fn summed_to(&self, letters: &str) -> Result<Indexed> {
        let gone: Vec<usize> = self
            .letters
            .char_indices()
            .filter(|(_, c)| !letters.contains(*c))
            .map(|(axis, _)| axis)
            .collect();
        let kept = self.letters.chars().filter(|&c| letters.contains(c)).collect();
        let tensor = if gone.is_empty() { self.tensor.clone() } else { self.tensor.sum(&gone)? };
        Ok(Indexed { letters: kept, tensor })
    }
}
