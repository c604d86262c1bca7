//! The books: where all of a device's bytes were. The lines sum to the total, with what is unknown as a line.

use crate::analyse::call_site::call_site;
use crate::analyse::facts::Facts;
use crate::explanation::{BookLine, Books};
use crate::program::Backend;
use crate::recording::Framework;
use plimsoll_memory::OwnerId;
use std::collections::HashMap;

/// How many call sites get a line of their own.
const CALL_SITES: usize = 6;

/// Closes the books.
pub(crate) fn books(facts: &Facts<'_>) -> Books {
    let device = facts.device;
    let taken = facts.reserved.or(facts.live).unwrap_or(0);
    // More may be free than a device has, where it shares the host's memory.
    let free = device.device_free.unwrap_or(0);
    let limit = device.limit.filter(|&limit| limit >= taken);
    let (total, of) = match (device.capacity, limit) {
        (Some(capacity), _) if capacity >= taken.max(free) => {
            (capacity, format!("{}, all of it", device.name))
        }
        (_, Some(limit)) => (limit, format!("the limit of {}", device.name)),
        _ if facts.reserved.is_some_and(|bytes| bytes > 0) => {
            (taken, format!("what the pool of {} had reserved", device.name))
        }
        _ => (facts.live.unwrap_or(0), format!("what was in use on {}", device.name)),
    };
    let mut writer = BookWriter { left: total, lines: Vec::new() };

    let live = facts.live.unwrap_or(0);
    let asked = facts.requested.unwrap_or(live).min(live);
    in_use(facts, asked, &mut writer);
    writer.line("in use: rounding", live - asked);
    if let Some(reserved) = facts.reserved {
        let rounding_is_known = facts.layout.is_some() || live > asked;
        let name = match facts.requested {
            Some(_) if !rounding_is_known => "reserved by the pool: free, or rounding",
            _ => "reserved by the pool and free",
        };
        writer.line(name, reserved.saturating_sub(live));
    }
    // Beyond the pool: only a total that is the whole device includes these.
    if device.capacity == Some(total) {
        if let (Some(process), Some(reserved)) = (device.process, facts.reserved) {
            writer
                .line("this process outside the pool: context, libraries", process.saturating_sub(reserved));
        }
        for (name, bytes) in &device.others {
            writer.line(name, *bytes);
        }
        if let Some(free) = device.device_free {
            writer.line("free on the device", free);
        }
        if device.others.is_empty() && device.process.is_none() {
            let rest = facts.beside_the_pool().unwrap_or(0);
            writer.line("this process's context, or other processes", rest);
        }
    } else if let Some(limit) = limit {
        if device.program.backend == Some(Backend::Mps) {
            let beside = device.process.unwrap_or(0).saturating_sub(facts.reserved.unwrap_or(0));
            writer.line("this process outside the pool", beside);
        }
        match facts.reserved {
            Some(reserved) => writer.line("not yet reserved", limit.saturating_sub(reserved)),
            None => {
                writer.line("free: not yet reserved, or reserved by the pool", limit.saturating_sub(live))
            }
        }
    }
    let unknown = writer.left;
    writer.lines.push(BookLine { name: "unknown".into(), bytes: unknown });
    Books { of, total_bytes: total, lines: writer.lines }
}

/// What is in use, a line for each of the call sites that hold most.
fn in_use(facts: &Facts<'_>, asked: u64, writer: &mut BookWriter) {
    let mut holders: HashMap<String, u64> = HashMap::new();
    for usage in &facts.by_owner {
        let bytes = holders.entry(holder_name(facts, usage.owner)).or_default();
        *bytes = bytes.saturating_add(usage.bytes);
    }
    let mut holders: Vec<(String, u64)> = holders.into_iter().collect();
    holders.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let before = writer.left;
    for (name, bytes) in holders.iter().take(CALL_SITES) {
        writer.line(&format!("in use: {name}"), (*bytes).min(asked.saturating_sub(before - writer.left)));
    }
    let rest = asked.saturating_sub(before - writer.left);
    let name = if holders.is_empty() { "in use" } else { "in use: other call sites" };
    writer.line(name, rest);
}

/// What a line of the books is called: a category in Plimsoll's own runs, a line of code elsewhere.
fn holder_name(facts: &Facts<'_>, owner: OwnerId) -> String {
    let owners = &facts.device.owners;
    if owner == OwnerId::UNKNOWN {
        return "(no stack was recorded)".into();
    }
    if facts.framework == Framework::Plimsoll {
        return owners.stack(owner).last().map_or_else(String::new, |frame| frame.name.clone());
    }
    call_site(owners, owner).location
}

/// Writes lines and keeps what is left of the total. Reported figures are rounded (`1.46 GiB`), so the last of
/// them may be a little too large: no line takes more than there is.
struct BookWriter {
    left: u64,
    lines: Vec<BookLine>,
}

impl BookWriter {
    fn line(&mut self, name: &str, bytes: u64) {
        let bytes = bytes.min(self.left);
        if bytes > 0 {
            self.left -= bytes;
            self.lines.push(BookLine { name: name.to_string(), bytes });
        }
    }
}
