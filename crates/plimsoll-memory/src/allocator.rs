//! What every allocator does, and the names by which one is chosen.

use crate::error::Result;
use crate::layout::Layout;
use crate::source::Source;

/// A policy that places requests at addresses of a [`Source`].
///
/// An allocator is given its source with each call and must be given the same one every time.
pub trait Allocator: Send {
    /// Places `bytes` for `stream` and returns the address. A request for nothing has an address too.
    ///
    /// # Errors
    /// If there is no room after all that the policy does to make some. The allocator stays usable.
    fn allocate(&mut self, bytes: u64, stream: u32, source: &mut dyn Source) -> Result<u64>;

    /// Takes back what [`allocate`](Allocator::allocate) placed at `address`.
    fn free(&mut self, address: u64, source: &mut dyn Source);

    /// Gives back to the source all that holds nothing, and returns how many bytes that were.
    fn trim(&mut self, source: &mut dyn Source) -> u64;

    /// Bytes taken from the source and not given back.
    fn reserved_bytes(&self) -> u64;

    /// What lies where now. Owners are not known here.
    fn layout(&self) -> Layout;
}

/// An allocator by its rules: what a recording was made under, or what to replay it under.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// TensorFlow's and JAX's best-fit with coalescing.
    Bfc(BfcSettings),
    /// PyTorch's caching allocator, with expandable segments or without.
    Caching(CachingSettings),
    /// A range with two ends: what lives long is placed from one, what is soon freed from the other.
    TwoEnded,
    /// Plimsoll's own eager pool: one range of addresses, pages behind what is used.
    Paged,
}

/// The settings of TensorFlow's and JAX's allocator.
#[derive(Debug, Clone, PartialEq)]
pub struct BfcSettings {
    /// Whether the pool starts small and doubles (`allow_growth`, or `XLA_PYTHON_CLIENT_PREALLOCATE=false`);
    /// otherwise all of the limit is taken at the start.
    pub growth: bool,
    /// Whether regions that hold nothing may be given back to make room for a larger one.
    pub garbage_collection: bool,
}

/// The settings of PyTorch's allocator, as in `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Debug, Clone, PartialEq)]
pub struct CachingSettings {
    /// `expandable_segments`.
    pub expandable: bool,
    /// `max_split_size_mb`, in bytes: larger blocks are not split. `None`: no limit.
    pub max_split_bytes: Option<u64>,
    /// `garbage_collection_threshold`: the share of the limit above which idle segments are freed; 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions`: divisions of each power of two that sizes round up to, by the power of two
    /// in MiB, smallest first (1, 2, 4, … 32768); 0 is off.
    pub roundup_power2_divisions: Vec<u64>,
}
