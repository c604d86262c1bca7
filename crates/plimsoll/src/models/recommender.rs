//! What a person may like, from numbers and from categories.

use crate::layers::{Activation, Dense, Embedding};
use crate::{Context, ErrorKind, Result, Tensor};

/// A network in the manner of DLRM: numbers `[batch, features]` and a category for each table, integers
/// `[batch, tables]`, to logits `[batch]`. Numbers become a row as wide as the tables' by a perceptron, and the products of
/// all pairs of rows go into another.
///
/// Parameters are `bottom0` and so on, `table0/table` and so on, `top0` and so on, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommender {
    /// How many rows each table has.
    pub tables: Vec<usize>,
    /// How wide rows are.
    pub width: usize,
    /// How wide the hidden layers over numbers are.
    pub bottom: Vec<usize>,
    /// How wide the hidden layers over pairs are.
    pub top: Vec<usize>,
}

impl Recommender {
    /// The logits.
    ///
    /// # Errors
    /// If shapes do not go together.
    pub fn logits(&self, cx: &Context, numbers: &Tensor, categories: &Tensor) -> Result<Tensor> {
        cx.expect_axes("recommender", numbers, &["batch", "features"])?;
        let batch = numbers.shape()[0];
        if categories.shape()[..] != [batch, self.tables.len()] {
            let message = format!(
                "recommender: categories are [{batch}, {}], these are {categories}",
                self.tables.len()
            );
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let relu = |units| Dense::new(units).activation(Activation::Relu);
        let mut dense = numbers.clone();
        for (at, &units) in self.bottom.iter().chain([&self.width]).enumerate() {
            dense = cx.layer(&format!("bottom{at}"), relu(units), &dense)?;
        }
        let mut rows = vec![dense.unsqueeze(1)?];
        for (at, &count) in self.tables.iter().enumerate() {
            let category = categories.slice(1, at..at + 1)?;
            rows.push(cx.layer(&format!("table{at}"), Embedding::new(count, self.width), &category)?);
        }
        let rows = Tensor::concat(&rows.iter().collect::<Vec<_>>(), 1)?;
        let products = rows.matmul_transposed(&rows)?;
        let mut seen = vec![dense];
        for row in 1..=self.tables.len() {
            seen.push(products.slice(1, row..row + 1)?.slice(2, 0..row)?.squeeze(1)?);
        }
        let mut x = Tensor::concat(&seen.iter().collect::<Vec<_>>(), 1)?;
        for (at, &units) in self.top.iter().enumerate() {
            x = cx.layer(&format!("top{at}"), relu(units), &x)?;
        }
        cx.layer("head", Dense::new(1), &x)?.squeeze(1)
    }
}
