//! A program that the system killed: what is known of it, and the folder that it is left in.

use super::process::largest_resident_bytes;
use plimsoll_machine::{Cgroup, Place, System};
use plimsoll_memory::format_bytes;
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// What shells and containers tell of a program that was ended by SIGKILL.
const KILLED: u8 = 137;

/// A program that was killed.
pub(super) struct Killed {
    pid: u32,
    code: u8,
    /// How many processes in our group were killed for memory while it ran.
    for_memory: u64,
    /// The group whose limit leaves the least room.
    group: Option<Cgroup>,
    place: Option<Place>,
    /// The memory that the host had left when it began, and all it has.
    host: (u64, u64),
    largest: Option<u64>,
    /// What the kernel wrote of it.
    kernel: Option<String>,
}

impl Killed {
    /// Whether a program that ended with this status was killed, or lost a process of its own to the lack of memory.
    pub(super) fn see(pid: u32, code: u8, before: &System, after: &System) -> Option<Killed> {
        let for_memory = after.killed().saturating_sub(before.killed());
        if code != KILLED && (code == 0 || for_memory == 0) {
            return None;
        }
        Some(Killed {
            pid,
            code,
            for_memory,
            group: after.tightest().cloned(),
            place: after.place,
            host: (before.memory.available, after.memory.total),
            largest: largest_resident_bytes(),
            kernel: kernel_line(pid),
        })
    }

    /// Leaves what is known in a folder, and says what follows from it.
    pub(super) fn report(&self) -> String {
        let folder = make_folder(self.pid);
        let mut text = format!("\nplimsoll: {}\n", self.sentence());
        match &folder {
            Ok(folder) => {
                let message = folder.join("message.txt");
                if let Err(error) = fs::write(&message, self.message()) {
                    return text + &format!("plimsoll: cannot write {}: {error}\n", message.display());
                }
                text += &format!("plimsoll: what is known of it is in {}\n", folder.display());
                if let Some(facts) = this_program(&["doctor".as_ref(), "--json".as_ref()]) {
                    // Without it the rest is there all the same.
                    let _ = fs::write(folder.join("environment.json"), facts);
                }
                if self.is_small() {
                    return text;
                }
                if let Some(verdict) = this_program(&["explain".as_ref(), message.as_ref()]) {
                    text += "\n";
                    text += &verdict;
                }
            }
            Err(error) => text += &format!("plimsoll: no folder could be made for it: {error}\n"),
        }
        text
    }

    /// Whether nothing speaks for memory: nothing was killed for it, and no process was of any size beside what was
    /// available.
    fn is_small(&self) -> bool {
        let counted = self.for_memory > 0 || self.kernel.is_some();
        !counted && self.largest.is_some_and(|bytes| bytes < self.host.0 / 4)
    }

    /// What happened, and what to do.
    fn sentence(&self) -> String {
        let whom = match self.code {
            KILLED => format!("process {} was killed (SIGKILL, exit status 137)", self.pid),
            code => format!(
                "the program ended with status {code}, and meanwhile processes in its control group were killed"
            ),
        };
        let largest = self
            .largest
            .map_or(String::new(), |bytes| format!("; its largest process had {}", format_bytes(bytes)));
        let raise = self.place.unwrap_or(Place::Group).raise_limit();
        match (&self.group, &self.kernel) {
            (Some(group), _) if self.for_memory > 0 => format!(
                "{whom} because the host's memory that it may take ran out: the control group {} is limited to {}{largest}. \
                 Hold less (fewer workers, smaller prefetch, memory-mapped data), or {raise}.",
                group.path,
                group.limit_bytes.map_or("an unknown size".into(), format_bytes),
            ),
            (_, Some(_)) => format!(
                "{whom} because the host's memory ran out, {} in all{largest}. Hold less (fewer workers, smaller prefetch, \
                 memory-mapped data), or use a machine with more.",
                format_bytes(self.host.1)
            ),
            _ if self.for_memory > 0 => format!(
                "{whom} because the host's memory ran out{largest}. Hold less (fewer workers, smaller prefetch, \
                 memory-mapped data), or {raise}."
            ),
            _ if self.is_small() => format!(
                "{whom}{largest}, of {} that were available when it began, and nothing was counted as killed for memory meanwhile. \
                 Most likely somebody, a scheduler or a time limit ended it; the kernel's log, if it may be read, tells: dmesg | grep \
                 -i 'killed process'.",
                format_bytes(self.host.0)
            ),
            _ => format!(
                "{whom}{largest}. Most often that is the host's memory; {} of {} were available when it began. The \
                 kernel's log, if it may be read, tells: dmesg | grep -i 'killed process'. Otherwise somebody, or a \
                 scheduler, ended it.",
                format_bytes(self.host.0),
                format_bytes(self.host.1)
            ),
        }
    }

    /// What is left for `plimsoll explain`.
    fn message(&self) -> String {
        let mut text = format!("Killed\nprocess {} ended with exit code {} (SIGKILL)\n", self.pid, self.code);
        if let Some(bytes) = self.largest {
            text += &format!("largest resident memory of its processes: {bytes} bytes\n");
        }
        let group = self.group.as_ref().and_then(|group| Some((&group.path, group.limit_bytes?)));
        if self.for_memory > 0 {
            text += &format!("oom_kill rose by {} while it ran", self.for_memory);
            text += &group.map_or("\n".into(), |(path, limit)| {
                format!(", in the control group {path} that is limited to {limit} bytes\n")
            });
        } else if let Some((path, limit)) = group {
            text += &format!("memory limit of the control group {path}: {limit} bytes\n");
        }
        text += &format!("memory of the host: {} bytes\n", self.host.1);
        text + self.kernel.as_deref().unwrap_or("")
    }
}

/// What the kernel wrote of the end of a process, where its log may be read.
fn kernel_line(pid: u32) -> Option<String> {
    let log = Command::new("dmesg").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let log = String::from_utf8_lossy(&log.stdout);
    let words = format!("Killed process {pid} ");
    log.lines().rev().find(|line| line.contains(&words)).map(|line| format!("{line}\n"))
}

/// What this same program prints for other arguments, if it succeeds.
fn this_program(arguments: &[&std::ffi::OsStr]) -> Option<String> {
    let output = Command::new(env::current_exe().ok()?).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A folder for what is left, closed to others; among temporary files where there is no other place.
fn make_folder(pid: u32) -> io::Result<PathBuf> {
    let named = env::var_os("PLIMSOLL_CRASH_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let first = named.map_or_else(env::current_dir, Ok)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let name = format!("plimsoll-crash-{}-{pid}", in_words(now));
    let make = |place: &Path| {
        let folder = place.join(&name);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder).map(|()| folder)
    };
    make(&first).or_else(|_| make(&env::temp_dir()))
}

/// A time of so many seconds after the beginning of 1970, as in `20261118-053148`, in UTC.
fn in_words(seconds: u64) -> String {
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        day -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{:02}-{hour:02}{minute:02}{second:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        // As `date -u -d @SECONDS +%Y%m%d-%H%M%S` says.
        for (seconds, written) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (1_709_164_800, "20240229-000000"),
            (1_735_689_599, "20241231-235959"),
            (1_794_979_908, "20261118-053148"),
        ] {
            assert_eq!(in_words(seconds), written);
        }
    }
}
