//! The limit on the host memory that data may hold. It is asked before memory is taken, never after.

use crate::{ErrorKind, Result};

/// How many bytes of RAM a source may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamBudget {
    limit: Option<u64>,
}

impl RamBudget {
    /// No limit of ours; the machine's own remains.
    pub const UNLIMITED: RamBudget = RamBudget { limit: None };

    /// At most this many bytes.
    pub const fn bytes(limit: u64) -> RamBudget {
        RamBudget { limit: Some(limit) }
    }

    /// The limit, if there is one.
    pub const fn limit(self) -> Option<u64> {
        self.limit
    }

    /// Whether `holder` may hold this much; the error tells bytes, limit and `remedy`.
    pub(crate) fn admit(self, holder: &str, bytes: u64, remedy: &str) -> Result<()> {
        match self.limit {
            Some(limit) if bytes > limit => {
                let (holder, remedy) = (holder.to_string(), remedy.to_string());
                Err(ErrorKind::OverBudget { holder, bytes, limit, remedy }.into())
            }
            _ => Ok(()),
        }
    }
}
