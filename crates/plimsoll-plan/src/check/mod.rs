//! The checks of what the planner makes, by code that shares nothing with it: that remedies change when and where, never
//! what; and that packings keep their promise. That plans do is checked by [`plimsoll_ir::check`].

mod check_equivalence;
mod validate_packing;

pub use check_equivalence::check_remedies;
pub use validate_packing::validate;
