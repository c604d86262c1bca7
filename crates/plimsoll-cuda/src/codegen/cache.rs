//! What was worked out for a device once and holds for good, kept on disk.
//!
//! Compiling the kernels of a model takes as long as many steps of it. The same sources come up again whenever it is
//! trained, so what came of them is kept under a name that is a digest of everything it depends on. The cache only
//! saves time: where it cannot be read or written, or what is in it is damaged, the work is done again.
//!
//! What is in it is run on the device, so nobody else may put anything there: the folder is this user's own and closed to
//! others, files are this user's own, links are not followed, and a file has a digest of its contents and its name.

use sha2::{Digest, Sha256};
use std::collections::hash_map::RandomState;
use std::env;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A folder of results.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    /// None if there is nowhere to keep anything.
    folder: Option<PathBuf>,
}

/// What a result is kept under: a digest of all that it depends on.
pub(crate) type Key = [u8; 32];

/// More than any kernel's code has.
const MOST_BYTES: u64 = 256 << 20;

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

    /// What was kept under a key, if it is there, whole and ours.
    pub(crate) fn get(&self, key: Key) -> Option<Vec<u8>> {
        let folder = self.folder.as_deref().filter(|folder| is_private(folder))?;
        let file = open_own(&folder.join(name(key))).ok()?;
        let mut bytes = vec![];
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        let kept = bytes.split_off(bytes.len().checked_sub(size_of::<Key>())?);
        (kept == digest(&[&key, &bytes])).then_some(bytes)
    }

    /// Keeps bytes under a key. Others see all of them or none.
    pub(crate) fn put(&self, key: Key, bytes: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let write = || -> io::Result<()> {
            make_private(folder)?;
            if !is_private(folder) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            // A name that nobody can guess, of a file that is new or not made.
            let draft = folder.join(format!(".{:016x}.draft", RandomState::new().build_hasher().finish()));
            let mut file = new_own(&draft)?;
            let written = file.write_all(bytes).and_then(|()| file.write_all(&digest(&[&key, bytes])));
            written.and_then(|()| fs::rename(&draft, folder.join(name(key)))).inspect_err(|_| {
                let _ = fs::remove_file(&draft);
            })
        };
        // It would only have saved time.
        let _ = write();
    }
}

/// The name of the file of a key.
fn name(key: Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of parts in order, each with its length, so that ("ab", "c") is not ("a", "bc").
pub(crate) fn digest(parts: &[&[u8]]) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Whether a folder is this user's own, no link, and closed to others.
fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && is_own(&found))
}

#[cfg(unix)]
mod system {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};

    /// Whether something is this user's, and nobody else may write to it.
    pub(super) fn is_own(found: &Metadata) -> bool {
        // SAFETY: the call takes nothing and cannot fail.
        found.uid() == unsafe { libc::geteuid() } && found.mode() & 0o022 == 0
    }

    /// Makes a folder that is closed to others.
    pub(super) fn make_private(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    /// Opens a file of this user's, and follows no link.
    pub(super) fn open_own(path: &Path) -> io::Result<File> {
        // A pipe would wait for who writes to it.
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        if found.is_file() && is_own(&found) { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Makes a file that was not there.
    pub(super) fn new_own(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }
}

#[cfg(not(unix))]
mod system {
    use super::*;

    pub(super) fn is_own(_: &Metadata) -> bool {
        true
    }

    pub(super) fn make_private(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).create(folder)
    }

    pub(super) fn open_own(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    pub(super) fn new_own(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }
}

use system::{is_own, make_private, new_own, open_own};

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::{NamedTempFile, TempDir};

    const ONE: Key = [1; 32];
    const TWO: Key = [2; 32];

    /// A cache in a folder that goes with what is returned beside it.
    fn temporary() -> (TempDir, Cache) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let cache = Cache { folder: Some(folder.path().join("cache")) };
        (folder, cache)
    }

    fn path(cache: &Cache, key: Key) -> PathBuf {
        cache.folder.as_ref().expect("a folder was named").join(name(key))
    }

    #[test]
    fn what_is_kept_is_found_under_its_key_alone() {
        let (_folder, cache) = temporary();
        assert_eq!(cache.get(ONE), None);
        cache.put(ONE, b"code");
        cache.put(TWO, b"");
        assert_eq!(cache.get(ONE).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.get(TWO).as_deref(), Some(&b""[..]));
        assert_eq!(cache.get([3; 32]), None);
    }

    #[test]
    fn what_was_damaged_or_renamed_is_not_found_and_can_be_kept_again() {
        let (_folder, cache) = temporary();
        cache.put(ONE, b"code");
        cache.put(TWO, b"other code");
        fs::rename(path(&cache, TWO), path(&cache, ONE)).expect("a file can be renamed");
        assert_eq!(cache.get(ONE), None, "the code of another kernel");
        for damage in [&b""[..], b"cod", b"codeX0123456789abcdef0123456789abcdef"] {
            fs::write(path(&cache, ONE), damage).expect("the file can be written");
            assert_eq!(cache.get(ONE), None);
        }
        cache.put(ONE, b"code");
        assert!(cache.get(ONE).is_some());
        let folder = cache.folder.as_ref().expect("a folder was named");
        assert_eq!(fs::read_dir(folder).expect("it exists").count(), 1, "drafts are gone");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let file = NamedTempFile::new().expect("a file can be made");
        for cache in [Cache { folder: None }, Cache { folder: Some(file.path().to_owned()) }] {
            cache.put(ONE, b"code");
            assert_eq!(cache.get(ONE), None);
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_others_could_have_written_is_neither_read_nor_added_to() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let open = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("one's own file");
        };
        let (place, cache) = temporary();
        cache.put(ONE, b"code");
        let folder = cache.folder.clone().expect("a folder was named");
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!([mode(&folder), mode(&path(&cache, ONE))], [0o700, 0o600]);
        // A file, then the folder, that others may write to.
        open(&path(&cache, ONE), 0o666);
        assert_eq!(cache.get(ONE), None);
        open(&path(&cache, ONE), 0o600);
        open(&folder, 0o777);
        assert_eq!(cache.get(ONE), None);
        cache.put(TWO, b"more");
        assert!(!path(&cache, TWO).exists());
        open(&folder, 0o700);
        assert!(cache.get(ONE).is_some());
        // Links to what would be good: as the file, and as the folder.
        let elsewhere = place.path().join("elsewhere");
        fs::rename(path(&cache, ONE), &elsewhere).expect("a file can be moved");
        symlink(&elsewhere, path(&cache, ONE)).expect("a link can be made");
        assert_eq!(cache.get(ONE), None);
        cache.put(ONE, b"new");
        assert!(
            fs::read(&elsewhere).expect("still there").starts_with(b"code"),
            "a link is replaced, not followed"
        );
        assert_eq!(cache.get(ONE).as_deref(), Some(&b"new"[..]));
        let linked = Cache { folder: Some(place.path().join("linked")) };
        symlink(&folder, place.path().join("linked")).expect("a link can be made");
        assert_eq!(linked.get(ONE), None);
    }

    #[test]
    fn digests_tell_parts_apart() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b"ab"]), digest(&[b"ab", b""]));
    }
}
