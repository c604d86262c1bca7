//! What every allocator does, and the names by which one is chosen.

use crate::allocators::Moved;
use crate::allocators::bfc::Bfc;
use crate::allocators::caching::Caching;
use crate::allocators::two_ended::TwoEnded;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, SegmentClass};
use crate::paged::Paged;
use crate::source::Source;
use std::str::FromStr;

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
    /// Whether a pool that does not grow keeps what was never used, its central gap, for requests that no hole
    /// holds. Newer JAX does; the gap is tagged so in its log.
    pub partitioned: bool,
}

/// The settings of PyTorch's allocator, as in `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Debug, Clone, PartialEq, Default)]
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

impl Model {
    /// The names that can be parsed.
    pub const NAMES: [&str; 6] = ["bfc", "bfc-growth", "caching", "expandable", "two-ended", "paged"];

    /// The name, as on a command line.
    pub fn name(&self) -> &'static str {
        match self {
            Model::Bfc(settings) if settings.growth => "bfc-growth",
            Model::Bfc(_) => "bfc",
            Model::Caching(settings) if settings.expandable => "expandable",
            Model::Caching(_) => "caching",
            Model::TwoEnded => "two-ended",
            Model::Paged => "paged",
        }
    }

    /// An empty pool with these rules that may take up to `limit` bytes.
    ///
    /// BFC without growth takes all of the limit with the first request; without a limit it grows. Some keep to
    /// the limit by themselves, all if the source does.
    pub fn build(&self, limit: Option<u64>) -> Box<dyn Allocator> {
        match self {
            Model::Bfc(settings) => Box::new(Bfc::new(settings.clone(), limit)),
            Model::Caching(settings) => Box::new(Caching::new(settings.clone(), limit)),
            Model::TwoEnded => Box::new(TwoEnded::new(limit)),
            Model::Paged => Box::new(Paged::new()),
        }
    }

    /// A pool that holds what a recording began with, and where it lies now. `None` if that is not possible.
    pub(crate) fn resume(
        &self,
        limit: Option<u64>,
        start: &Layout,
        source: &mut dyn Source,
    ) -> Option<(Box<dyn Allocator>, Moved)> {
        match self {
            Model::Bfc(settings) => {
                let mut pool = Bfc::new(settings.clone(), limit);
                let moved = pool.resume(start, source).ok()?;
                Some((Box::new(pool), moved))
            }
            Model::Caching(settings) => {
                let mut pool = Caching::new(settings.clone(), limit);
                let moved = pool.resume(start, source).ok()?;
                Some((Box::new(pool), moved))
            }
            Model::TwoEnded | Model::Paged => None,
        }
    }

    /// What a recorded segment is for, from its size and a request that was placed in it.
    pub(crate) fn segment_class(&self, request: Option<u64>, segment: u64) -> SegmentClass {
        match self {
            Model::Caching(settings) => settings.segment_class(request, segment),
            Model::Bfc(_) | Model::TwoEnded | Model::Paged => SegmentClass::Any,
        }
    }

    /// The unit in which the device that a recording is replayed on gives memory.
    pub(crate) fn page_bytes(&self) -> u64 {
        match self {
            Model::Bfc(_) => 256,
            Model::Caching(_) | Model::TwoEnded | Model::Paged => 2 << 20,
        }
    }
}

impl FromStr for Model {
    type Err = Error;

    /// The allocator of that name, with its framework's defaults.
    fn from_str(name: &str) -> Result<Model> {
        let bfc = |growth| Model::Bfc(BfcSettings { growth, garbage_collection: true, partitioned: false });
        let caching =
            |expandable| Model::Caching(CachingSettings { expandable, ..CachingSettings::default() });
        match name {
            "bfc" => Ok(bfc(false)),
            "bfc-growth" => Ok(bfc(true)),
            "caching" => Ok(caching(false)),
            "expandable" => Ok(caching(true)),
            "two-ended" => Ok(Model::TwoEnded),
            "paged" => Ok(Model::Paged),
            _ => {
                let message =
                    format!("there is no allocator '{name}'; there are {}", Model::NAMES.join(", "));
                Err(Error::new(ErrorKind::UnknownAllocator, message))
            }
        }
    }
}
