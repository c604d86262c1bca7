//! The checks of what the planner makes, by code that shares nothing with it: that remedies change when and where, never
//! what; that packings keep their promise; and what no plan can do with less of. That plans do is checked by [`plimsoll_ir::check`].

mod check_equivalence;
mod looking_back;
mod lower_bound;
mod validate_packing;

pub use check_equivalence::check_remedies;
pub use lower_bound::{LowerBound, lower_bound};
pub use validate_packing::validate;
