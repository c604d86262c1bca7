//! Every gradient rule against central differences through the reference evaluator.

mod driver;
mod elementwise;
mod movement;
mod precision;
mod products;
mod structured;
mod support;
