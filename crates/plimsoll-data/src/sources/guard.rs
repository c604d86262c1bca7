//! Decoders of other crates that trust what they read in places, and panic where it is not so. A broken file is an error here
//! all the same.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a decoder gives. A panic of it is its error.
pub(super) fn guard<T>(
    decode: impl FnOnce() -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    // What is left behind half done is dropped with the error.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(format!("the decoder gave up: {said}"))
    })
}
