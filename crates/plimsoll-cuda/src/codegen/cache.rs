//! What was worked out for a device once and holds for good, kept on disk.
//!
//! Compiling the kernels of a model takes as long as many steps of it. The same sources come up again whenever it is
//! trained, so what came of them is kept under a name that is a hash of everything it depends on. The cache only
//! saves time: where it cannot be read or written, or what is in it is damaged, the work is done again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of results.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    /// None if there is nowhere to keep anything.
    folder: Option<PathBuf>,
}

impl Cache {
    /// The folder for results of one kind: in `$PLIMSOLL_CACHE`, or where the system keeps a user's caches.
    pub(crate) fn of(kind: &str) -> Cache {
        let named =
            |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || named("HOME").map(|home| home.join(".cache"));
        let users = || named("XDG_CACHE_HOME").or_else(|| named("LOCALAPPDATA")).or_else(home);
        let root = named("PLIMSOLL_CACHE").or_else(|| Some(users()?.join("plimsoll")));
        Cache { folder: root.map(|root| root.join(kind)) }
    }

    /// What was kept under a key, if it is there and whole.
    pub(crate) fn get(&self, key: u128) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.path(key)?).ok()?;
        let digest = bytes.split_off(bytes.len().checked_sub(DIGEST)?);
        (digest == hash(&[&bytes]).to_le_bytes()).then_some(bytes)
    }

    /// Keeps bytes under a key. Others see all of them or none.
    pub(crate) fn put(&self, key: u128, bytes: &[u8]) {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let Some(path) = self.path(key) else { return };
        let Some(folder) = path.parent() else { return };
        let unique = WRITES.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!(".{key:032x}.{}.{unique}", process::id()));
        let write = |draft: &Path| {
            fs::create_dir_all(folder)?;
            fs::write(draft, [bytes, &hash(&[bytes]).to_le_bytes()].concat())?;
            fs::rename(draft, &path)
        };
        if write(&draft).is_err() {
            _ = fs::remove_file(&draft);
        }
    }

    fn path(&self, key: u128) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{key:032x}")))
    }
}

/// The bytes of the hash that is kept with each result.
const DIGEST: usize = size_of::<u128>();

/// A hash of texts in order (FNV-1a of 128 bits). It tells apart what differs by chance, not by malice.
pub(crate) fn hash(parts: &[&[u8]]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut take = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    };
    for part in parts {
        // The length keeps ("ab", "c") apart from ("a", "bc").
        if parts.len() > 1 {
            take(&(part.len() as u64).to_le_bytes());
        }
        take(part);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::{NamedTempFile, TempDir};

    /// A cache in a folder that goes with what is returned beside it.
    fn temporary() -> (TempDir, Cache) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let cache = Cache { folder: Some(folder.path().join("cache")) };
        (folder, cache)
    }

    #[test]
    fn what_is_kept_is_found_under_its_key_alone() {
        let (_folder, cache) = temporary();
        assert_eq!(cache.get(1), None);
        cache.put(1, b"code");
        cache.put(2, b"");
        assert_eq!(cache.get(1).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.get(2).as_deref(), Some(&b""[..]));
        assert_eq!(cache.get(3), None);
    }

    #[test]
    fn what_was_damaged_is_not_found_and_can_be_kept_again() {
        let (_folder, cache) = temporary();
        cache.put(1, b"code");
        let path = cache.path(1).expect("a folder was named");
        for damage in [&b""[..], b"cod", b"codeX0123456789abcdef"] {
            fs::write(&path, damage).expect("the file can be written");
            assert_eq!(cache.get(1), None);
        }
        cache.put(1, b"code");
        assert!(cache.get(1).is_some());
        let left: Vec<_> = fs::read_dir(path.parent().expect("in a folder")).expect("it exists").collect();
        assert_eq!(left.len(), 1, "drafts are gone");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let file = NamedTempFile::new().expect("a file can be made");
        for cache in [Cache { folder: None }, Cache { folder: Some(file.path().to_owned()) }] {
            cache.put(1, b"code");
            assert_eq!(cache.get(1), None);
        }
    }

    #[test]
    fn hashes_follow_the_definition_and_tell_parts_apart() {
        assert_eq!(hash(&[b""]), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(hash(&[b"a"]), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    }
}
