//! The account of a pipeline: one limit on the RAM that all its stages hold together, asked before memory is used.

use crate::{RamBudget, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the stages of a pipeline hold together, and may hold.
#[derive(Debug, Default)]
pub(crate) struct Account {
    budget: RamBudget,
    held: AtomicU64,
    most: AtomicU64,
}

impl Account {
    /// An account from which so many bytes are taken already, by what occupies RAM whether or not the pipeline runs.
    pub(crate) fn new(budget: RamBudget, resident: u64) -> Account {
        Account { budget, held: AtomicU64::new(resident), most: AtomicU64::new(resident) }
    }

    /// The most bytes that were held at once.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more may be held.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        self.budget.limit().is_none_or(|limit| held.saturating_add(bytes) <= limit)
    }
}

/// What one holder holds of an account. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: u64,
}

impl Held {
    pub(crate) fn nothing(account: &Arc<Account>) -> Held {
        Held { account: Arc::clone(account), bytes: 0 }
    }

    /// The bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds so many bytes in all, if there is room for them; else as many as before.
    pub(crate) fn set(&mut self, bytes: u64, holder: &dyn Fn() -> String, remedy: &str) -> Result<()> {
        let Account { budget, held, most } = &*self.account;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let together = held.fetch_add(more, Ordering::Relaxed).saturating_add(more);
            if budget.limit().is_some_and(|limit| together > limit) {
                held.fetch_sub(more, Ordering::Relaxed);
                return budget.admit(&holder(), together, remedy);
            }
            most.fetch_max(together, Ordering::Relaxed);
        } else {
            held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
