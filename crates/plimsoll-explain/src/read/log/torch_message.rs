//! PyTorch's out-of-memory message, in the wordings it has had since 2018 and on every backend. It is often
//! all that a person has, and it tells the device's capacity, what others hold, and the pool's two figures.

use super::parse::{Size, after, number, short, size, size_after, size_before};
use crate::program::{Backend, Platform, Program};
use crate::recording::{Device, Failure};

/// A message may be wrapped over this many lines by whatever printed it.
const MOST_LINES: usize = 16;
const MOST_BYTES: usize = 1 << 13;

/// The words a message begins with. `CUDA`, `HIP`, `XPU` and others stand before the first two.
const BEGINNINGS: [&str; 5] = [
    "out of memory. Tried to allocate",
    "out of memory.",
    "MPS backend out of memory",
    "would exceed allowed memory. (out of memory)",
    "you tried to allocate ",
];

/// A message that is being gathered, line by line.
#[derive(Debug)]
struct Gathering {
    text: String,
    /// Its lines, as they stand.
    pieces: Vec<String>,
    lines: usize,
    at: u64,
    caller: Option<String>,
}

/// A message as it was understood.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) device: Device,
    /// The line it began at.
    pub(super) at: u64,
    /// Whether the log ended before its last figure.
    pub(super) cut: bool,
}

/// The messages of a log: the last one of each device.
#[derive(Debug, Default)]
pub(super) struct Messages {
    gathering: Option<Gathering>,
    pub(super) found: Vec<Message>,
    pub(super) count: u64,
}

impl Messages {
    /// Takes a line. `caller` says where in the program a message that begins here came from.
    pub(super) fn line(&mut self, line: &str, at: u64, caller: impl Fn() -> Option<String>) {
        let begins = BEGINNINGS.iter().filter_map(|words| line.find(words)).min();
        // The words before may stand on a line of their own.
        let alone = !self.is_gathering()
            && line.trim_start().starts_with("Tried to allocate ")
            && (line.contains("(GPU") || line.contains(". GPU"));
        let begins = begins.or(alone.then_some(0));
        if let Some(start) = begins {
            self.end();
            // A few words before the beginning name the device.
            let from =
                (start.saturating_sub(48)..=start).find(|&at| line.is_char_boundary(at)).unwrap_or(start);
            let text = cut(&line[from..]).to_string();
            let pieces = vec![cut(line).to_string()];
            self.gathering = Some(Gathering { text, pieces, lines: 1, at, caller: caller() });
        } else if let Some(gathering) = &mut self.gathering {
            let over = gathering.lines >= MOST_LINES || gathering.text.len() >= MOST_BYTES;
            if over || line.contains("Traceback (most recent") {
                self.end();
            } else {
                gathering.lines += 1;
                gathering.text.push(' ');
                gathering.text.push_str(cut(line));
                gathering.pieces.push(cut(line).to_string());
            }
        }
    }

    /// Whether a message is being gathered.
    pub(super) fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// Ends the message that is being gathered, with the log.
    pub(super) fn end_of_log(&mut self) {
        let cut = self.gathering.as_mut().filter(|gathering| !has_last_figure(&gathering.text));
        let is_cut = cut.is_some();
        if let Some(Gathering { text, .. }) = cut {
            // A figure at the end may be cut itself, and so may its unit.
            text.truncate(text.rfind(' ').unwrap_or(0));
            text.truncate(text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').len());
        }
        let count = self.count;
        self.end();
        if let Some(last) = self.found.last_mut().filter(|_| self.count > count) {
            let Device { capacity, live, reserved, device_free, .. } = &last.device;
            // What stands behind these figures is advice.
            let told = [capacity, live, reserved, device_free].iter().all(|figure| figure.is_some());
            last.cut = is_cut && !told;
        }
    }

    /// Ends the message that is being gathered.
    fn end(&mut self) {
        let Some(Gathering { text, pieces, at, caller, .. }) = self.gathering.take() else { return };
        let Some(mut device) = understand_wrapped(&text, &pieces) else { return };
        if let Some(failure) = &mut device.failure {
            failure.op = caller;
        }
        self.count += 1;
        self.found.retain(|known| known.device.name != device.name);
        if self.found.len() < 256 {
            self.found.push(Message { device, at, cut: false });
        }
    }
}

/// Whether a message goes on to the figure that its wording ends with.
fn has_last_figure(text: &str) -> bool {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let inside =
        |marker: &str| after(&text, marker).is_some_and(|rest| rest.contains(|c: char| c.is_ascii_digit()));
    if text.contains("Requested : ") {
        return inside("memory fraction) : ");
    }
    // A line may be broken within a word.
    let squeezed: String = text.split(' ').collect();
    if squeezed.contains("isreservedbyPyTorchbutunallocated") {
        return true;
    }
    let Some(asked) = after(&text, "ried to allocate ") else { return false };
    after(asked, "(").is_some_and(|rest| rest.contains(')') && asked.contains(';'))
        || text.contains("max allowed: ")
            && (text.contains(" on private pool") || text.contains(" on shared pool"))
        || text.contains("you tried to allocate ")
            && (asked.contains(" bytes") || asked.contains("Buy new RAM"))
}

fn cut(line: &str) -> &str {
    let end = (0..=line.len().min(MOST_BYTES)).rev().find(|&at| line.is_char_boundary(at));
    &line[..end.unwrap_or(0)]
}

/// What a message says that may be wrapped: between words, or at a column wherever that is. The reading that makes most
/// sense is taken.
fn understand_wrapped(text: &str, pieces: &[String]) -> Option<Device> {
    let told = |device: &Option<Device>| {
        let known = |device: &Device| {
            let figures = [
                device.capacity,
                device.live,
                device.reserved,
                device.device_free,
                device.process,
                device.limit,
            ];
            1 + figures.iter().flatten().count() + device.others.len() + usize::from(device.index.is_some())
        };
        device.as_ref().map_or(0, known)
    };
    let plain = understand(text);
    if pieces.len() < 2 {
        return plain;
    }
    // Where lines are broken at a column, they are all as long; a single break tells nothing by its length.
    // A blank at the column may be lost.
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.chars().count()).collect();
    let width = lengths.iter().copied().max().unwrap_or(0);
    let alike = lengths.iter().filter(|&&length| length + 1 >= width).count();
    let within = |at: usize| {
        let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.');
        inside(pieces[at].chars().last())
            && pieces.get(at + 1).is_some_and(|next| inside(next.chars().next()))
    };
    let mut joined = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        joined.push_str(piece);
        let whole = if alike == 1 { at > 0 || !within(at) } else { lengths[at] < width };
        if whole {
            joined.push(' ');
        }
    }
    let joined = understand(&joined);
    // Where a break between words is undone, words are lost; where one within a figure is not, the figure is another.
    if told(&joined) >= told(&plain) { joined } else { plain }
}

/// What drives the device that a message is of.
fn backend(text: &str) -> Option<Backend> {
    let before = &text[..text.find(" out of memory")?];
    Some(match before.rsplit([' ', ':']).next()? {
        "CUDA" | "cuda" => Backend::Cuda,
        "HIP" => Backend::Hip,
        "XPU" => Backend::Xpu,
        "NPU" => Backend::Npu,
        "backend" => Backend::Mps,
        word if word.len() >= 2 && word.chars().all(|c| c.is_ascii_uppercase()) => Backend::Other,
        _ => return None,
    })
}

/// What the wording gives away of the version: it has changed with nearly every release.
fn version(text: &str, device: &mut Device) {
    let program = &mut device.program;
    program.backend = program.backend.or(backend(text));
    let (from, before) = match () {
        () if text.contains("PYTORCH_ALLOC_CONF=") => (Some((2, 9)), None),
        () if text.contains("ALLOC_CONF=expandable_segments") => (Some((2, 2)), None),
        () if text.contains(" total capacty of") => (Some((2, 1)), Some((2, 3))),
        () if text.contains(" has a total capacity of") => (Some((2, 2)), None),
        () if text.contains("If reserved memory is >> allocated") => (Some((1, 10)), Some((2, 1))),
        () if text.contains(" total capacity;") && text.contains(" cached)") => (None, Some((1, 4))),
        () if text.contains(" total capacity;") => (Some((1, 4)), Some((2, 1))),
        () => (None, None),
    };
    let names = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
    program.settings_variable = names.into_iter().find(|name| text.contains(name));
    program.complete(&Program { version_from: from, version_before: before, ..Program::default() });
}

/// What a message says; `None` if it is not one after all.
fn understand(text: &str) -> Option<Device> {
    // Wrapped lines may be indented.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let asked = size_after(&text, "ried to allocate ").or_else(|| size_after(&text, "Requested : "))?;
    let mut device = Device {
        failure: Some(Failure { requested: asked.bytes, exact: asked.exact, event: None, op: None }),
        ..Device::default()
    };
    let bytes = |size: Option<Size>| size.map(|size| size.bytes);
    if text.contains("MPS backend out of memory") {
        device.name = "mps".into();
        device.limit = bytes(size_after(&text, "max allowed: "));
        device.reserved = bytes(size_after(&text, "MPS allocated: "));
        device.live = device.reserved;
        // What Metal holds for this process beside PyTorch's pool.
        let beside = size_after(&text, "other allocations: ").map_or(0, |size| size.bytes);
        device.process = device.reserved.map(|reserved| reserved.saturating_add(beside));
        device.program =
            Program { backend: Some(Backend::Mps), platform: Some(Platform::MacOs), ..Program::default() };
        if let Some(failure) = &mut device.failure {
            failure.exact = false;
        }
        return device.limit.map(|_| device);
    }
    if text.contains("you tried to allocate ") {
        device.name = "cpu".into();
        device.program.backend = Some(Backend::Cpu);
        // Other systems' branch of the source says `can't allocate memory` and an error code.
        if text.contains("DefaultCPUAllocator: not enough memory") {
            device.program.platform = Some(Platform::Windows);
        }
        return text.contains("llocat").then_some(device);
    }
    if text.contains("would exceed allowed memory") {
        device.index = after(&text, "on device ").and_then(number).and_then(|n| n.try_into().ok());
        device.capacity = bytes(size_after(&text, "Device limit : "));
        device.live = bytes(size_after(&text, "Currently allocated : "));
        device.device_free = bytes(size_after(&text, "Free (according to CUDA): "));
        let limit = bytes(size_after(&text, "memory fraction) : "));
        device.limit = limit.filter(|&limit| device.capacity.is_some_and(|capacity| limit <= capacity));
        device.settings.push(("backend".into(), "cudaMallocAsync".into()));
    } else if let Some(inside) = after(&text, "ried to allocate ").and_then(older) {
        device.index = index(inside);
        device.capacity = bytes(size_before(inside, " total capacity"));
        device.live = bytes(size_before(inside, " already allocated"));
        device.device_free = bytes(size_before(inside, " free"));
        device.limit = bytes(size_before(inside, " allowed"));
        let reserved = bytes(size_before(inside, " reserved in total"));
        // Until 1.3 the message gave what the pool held without using it.
        let cached = bytes(size_before(inside, " cached"));
        device.reserved =
            reserved.or(device.live.zip(cached).map(|(live, cached)| live.saturating_add(cached)));
    } else {
        device.index = text.find(" has a total capac").and_then(|at| index(text[..at].rsplit(". ").next()?));
        let capacity = after(&text, " has a total capac").and_then(|rest| after(rest, "ty of "));
        device.capacity = capacity.and_then(size).map(|(size, _)| size.bytes);
        device.device_free = bytes(after(&text, "of which ").and_then(|rest| size_before(rest, " is free")));
        // A device that is shared in slices reports a figure that has wrapped around.
        let possible =
            |bytes: &u64| device.capacity.is_none_or(|capacity| *bytes <= capacity.saturating_mul(16));
        device.process = bytes(size_after(&text, "this process has ")).filter(possible);
        device.limit = bytes(size_before(&text, " allowed;"));
        device.live = bytes(size_before(&text, " is allocated by PyTorch"));
        let idle = bytes(size_before(&text, " is reserved by PyTorch but unallocated"));
        device.reserved = device.live.zip(idle).map(|(live, idle)| live.saturating_add(idle));
        others(&text, &mut device);
    }
    version(&text, &mut device);
    let kind = if device.program.backend == Some(Backend::Npu) { "NPU" } else { "GPU" };
    device.name = device.index.map_or(kind.into(), |index| format!("{kind} {index}"));
    // Beside figures of two decimals one to the byte proves nothing.
    if let Some(failure) = &mut device.failure {
        failure.exact = false;
    }
    // Words that only look like the message say neither how large the device is nor what is in use.
    (device.capacity.is_some() || device.live.is_some()).then_some(device)
}

/// The figures that stand in brackets, as they did until 2.0.
fn older(rest: &str) -> Option<&str> {
    let inside = after(rest, "(")?;
    let inside = inside.split(')').next().unwrap_or(inside);
    (inside.contains(" total capacity;") || inside.contains(" already allocated;")).then_some(inside)
}

/// The number in `(GPU 0; …` or `GPU 0`.
fn index(text: &str) -> Option<u32> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    (start <= 8).then(|| number(&text[start..]))??.try_into().ok()
}

/// Other processes on the device. In a container this process may be listed by a number of another namespace
/// and so among them: what PyTorch itself holds then fits nowhere else.
fn others(text: &str, device: &mut Device) {
    let mut rest = text;
    while let Some(next) = after(rest, "Process ") {
        rest = next;
        let process = number(next).zip(after(next, " has ").and_then(size));
        if let Some((process, (size, behind))) = process
            && behind.trim_start().starts_with("memory in use")
            && device.others.len() < 64
        {
            device.others.push((short(&format!("process {process}")), size.bytes));
        }
    }
    if let (None, Some(capacity), Some(reserved)) = (device.process, device.capacity, device.reserved) {
        let taken: u64 = device.others.iter().map(|other| other.1).fold(0, u64::saturating_add);
        let all = taken.saturating_add(reserved).saturating_add(device.device_free.unwrap_or(0));
        if all > capacity.saturating_add(capacity / 200)
            && let Some(own) = closest(&device.others, reserved)
        {
            device.process = Some(device.others.remove(own).1);
        }
    }
}

/// The process that holds at least what the pool has, and the least beyond.
fn closest(others: &[(String, u64)], reserved: u64) -> Option<usize> {
    let holds = others.iter().enumerate().filter(|(_, other)| other.1 >= reserved - reserved / 200);
    holds.min_by_key(|(_, other)| other.1).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::understand;

    #[test]
    fn a_process_of_another_namespace_is_known_as_this_one_by_its_size() {
        let text = "CUDA out of memory. Tried to allocate 28.00 MiB. GPU 0 has a total capacity of 79.11 GiB of \
                    which 5.19 MiB is free. Process 289367 has 79.10 GiB memory in use. Of the allocated memory \
                    76.91 GiB is allocated by PyTorch, with 61.70 MiB allocated in private pools (e.g., CUDA \
                    Graphs), and 494.83 MiB is reserved by PyTorch but unallocated.";
        let device = understand(text).unwrap();
        assert!(device.others.is_empty());
        assert_eq!(device.process, Some(84_932_978_278));
    }

    #[test]
    fn words_that_only_look_like_the_message_are_left_alone() {
        assert!(understand("out of memory. Tried to allocate 5 jokes").is_none());
        assert!(understand("you tried to allocate nothing").is_none());
    }
}
