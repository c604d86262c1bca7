//! What is tried, by what it needs of a device. A list is a function of its module; a new op is a new case in one.

mod convolutions;
mod loops;
mod ops;
mod products;
mod sequences;
mod steps;

use super::{Case, integers, normals, uniform};
use plimsoll_graph::DType;
pub(super) use products::sloped;

/// The types that most ops take.
const FLOATS: [DType; 4] = [DType::F32, DType::BF16, DType::F16, DType::F64];

pub(super) fn all() -> Vec<Case> {
    let lists = [
        products::list(),
        convolutions::list(),
        loops::list(),
        ops::list(),
        sequences::list(),
        steps::list(),
    ];
    lists.into_iter().flatten().collect()
}
