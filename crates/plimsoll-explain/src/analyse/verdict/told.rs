//! Verdicts on what a text says outright: the host's memory, a server's plan, a kernel's scratch memory; and what is said
//! when memory ran out and nothing tells who held it.

use crate::analyse::facts::Facts;
use crate::analyse::usage::total;
use crate::explanation::{Verdict, VerdictKind};
use crate::program::{Backend, Server};
use crate::recording::Framework;
use crate::sign::{Sign, SignKind};
use plimsoll_memory::{format_bytes, quoted};

/// The share of a device that a table must show as held for that to be the answer.
const HELD: f64 = 0.25;

/// A size that no program means.
const ABSURD: u64 = 1 << 50;

/// What a sign says; `None` where figures decide, or there is none.
pub(crate) fn verdict(facts: &Facts<'_>) -> Option<Verdict> {
    if let Some(bytes) = facts.refused.filter(|&bytes| bytes >= ABSURD && facts.device.trace.is_none()) {
        let sentence = format!(
            "Not memory: {} were requested, more than any machine has, so the size was computed from corrupted or mismatched values.",
            format_bytes(bytes)
        );
        let proof = facts.device.sign.as_ref().map(at_line).into_iter().collect();
        return Some(Verdict { kind: VerdictKind::NotMemory, sentence, proof });
    }
    if facts.device.program.backend == Some(Backend::Cpu) && facts.device.sign.is_none() && facts.is_refusal()
    {
        return Some(host_request(facts));
    }
    let sign = facts.device.sign.as_ref()?;
    let (kind, sentence) = match sign.kind {
        SignKind::DeviceFull | SignKind::LibraryFull => {
            return paddle(facts, sign).or_else(|| held_by_others(facts, sign));
        }
        SignKind::HostFull => return Some(host_request(facts)),
        SignKind::NoContext | SignKind::Unspecified => return None,
        kind => said(facts, sign, kind),
    };
    let mut proof = vec![at_line(sign)];
    proof.extend(figures(sign));
    Some(Verdict { kind, sentence, proof })
}

/// The line that says it.
fn at_line(sign: &Sign) -> String {
    format!("line {}: {}", sign.line, quoted(&sign.quote))
}

fn figures(sign: &Sign) -> Option<String> {
    // Scratch memories are counted in bytes.
    let small = matches!(sign.kind, SignKind::KernelResources | SignKind::CompilerScratch);
    let words = |bytes: u64| if small { format!("{bytes} bytes") } else { format_bytes(bytes) };
    match (sign.needed, sign.available) {
        _ if sign.kind == SignKind::Warning => None,
        // Rounded alike, they tell nothing.
        (Some(needed), Some(available)) if needed == available => None,
        (Some(needed), Some(available)) => {
            Some(format!("needed: {}; there: {}", words(needed), words(available)))
        }
        (Some(held), None) if sign.kind == SignKind::KilledByKernel => {
            Some(format!("the process that was ended held {}", words(held)))
        }
        (Some(needed), None) => Some(format!("needed: {}", words(needed))),
        _ => None,
    }
}

fn said(facts: &Facts<'_>, sign: &Sign, kind: SignKind) -> (VerdictKind, String) {
    use VerdictKind::{HostMemory, LimitLow, NotMemory, OtherProcess, RefusedWithRoom, TooBig};
    let program = &facts.device.program;
    let sizes = match (sign.needed, sign.available) {
        (Some(needed), Some(available)) => {
            format!(": {} are needed, {} are there", format_bytes(needed), format_bytes(available))
        }
        (Some(needed), None) => format!(": {}", format_bytes(needed)),
        _ => String::new(),
    };
    let (kind, sentence) = match kind {
        // What is asked for so little is no share of the start any more.
        SignKind::Reservation if sign.needed.is_some_and(|bytes| bytes < 1 << 29) => (
            VerdictKind::Full,
            format!("Full: the device refused the pool even a little more{sizes}; who held the memory is not said."),
        ),
        SignKind::Reservation => (
            VerdictKind::Full,
            format!(
                "Full: the device refused the pool the share that it takes at its start{sizes}; who held the memory is not said."
            ),
        ),
        SignKind::DeviceTooSmall if sign.quote.contains("quantized model") => {
            (TooBig, "Too big: the quantized model does not fit into what is free on the device.".into())
        }
        SignKind::DeviceTooSmall if sign.needed.is_none() => {
            (TooBig, "Too big: not even the smallest piece of the work fits on the device.".into())
        }
        SignKind::DeviceTooSmall => (TooBig, format!("Too big: what is to be put on the device does not fit{sizes}.")),
        SignKind::ServerCache if sign.needed.is_some() => {
            (TooBig, format!("Too big: the cache of keys and values for one request of full length does not fit{sizes}."))
        }
        SignKind::ServerCache => {
            let words = match program.server {
                _ if sign.quote.contains("Decode out") || sign.quote.contains("Prefill out") => {
                    "the requests that run at once need more of the cache of keys and values than there is"
                }
                Some(Server::Tgi) => "the server's warm-up with a full batch does not fit beside the weights",
                _ => "beside the weights there is no room for the cache of one request of full length",
            };
            (TooBig, format!("Too big: {words}."))
        }
        SignKind::ServerStart => {
            (OtherProcess, format!("Another process: the device is not free when the server starts{sizes}."))
        }
        SignKind::ServerMeasure => (
            OtherProcess,
            "Another process: the device's free memory changed while the server measured it, so others use it too.".into(),
        ),
        SignKind::PoolLimit => (LimitLow, format!("Limit set low: the pool has reached the limit that was set for it{sizes}.")),
        SignKind::AllocationCap => (
            RefusedWithRoom,
            format!("Refused with room: one allocation is larger than this device gives at once, whatever is free{sizes}."),
        ),
        SignKind::KilledByKernel => {
            (HostMemory, "Host memory: the host ran out of memory, and its kernel, or a guard beside it, ended a process. It was not the device.".into())
        }
        SignKind::KilledByLimit if is_of_ray(sign) => (
            HostMemory,
            "Host memory: the node's memory was nearly used up, and Ray ended a task for it. It was not the device.".into(),
        ),
        SignKind::JavaHeap if sign.quote.contains("JavaScript") => (
            HostMemory,
            "Host memory: Node reached the limit of its own heap, which is set when it starts. It was not the device.".into(),
        ),
        SignKind::JavaHeap => (
            HostMemory,
            "Host memory: Java's machine reached the limit of its own memory, which is set when it starts. It was not the device."
                .into(),
        ),
        SignKind::KilledByLimit => (
            HostMemory,
            format!(
                "Host memory: the job or container reached its limit of the host's memory and was killed{sizes}. It was not \
                 the device."
            ),
        ),
        SignKind::Killed => (
            HostMemory,
            "Host memory: a process was ended without a word of its own, which is what happens when the host or the container \
             runs out of memory."
                .into(),
        ),
        // A bus error has no other cause worth looking for first.
        SignKind::SharedMemory if is_a_bus_error(sign) => (
            HostMemory,
            "Host memory: a process ended with a bus error, which is what happens when shared memory (/dev/shm) is full.".into(),
        ),
        SignKind::SharedMemory => (
            HostMemory,
            "Host memory: shared memory (/dev/shm), through which processes hand over data, ran out. It was not the device.".into(),
        ),
        SignKind::PageFile => (
            HostMemory,
            "Host memory: Windows may not promise more memory to programs, because the paging file is too small. It was not \
             the device."
                .into(),
        ),
        SignKind::PinnedMemory => {
            (HostMemory, "Host memory: memory of the host could not be locked for the device. It was not the device that was full.".into())
        }
        SignKind::CorruptedSize => (
            NotMemory,
            "Not memory: the requested size is absurd (over 1 EB), so it was computed from corrupted or mismatched values.".into(),
        ),
        SignKind::KernelResources => (
            NotMemory,
            "Not memory: a kernel needs more of a multiprocessor's own resources than it has; the device's memory is not full.".into(),
        ),
        SignKind::CompilerScratch => (
            NotMemory,
            "Not memory: a kernel does not fit into a scratch memory of the chip; the device's main memory is not full.".into(),
        ),
        SignKind::AddressRange => (
            NotMemory,
            "Not memory: an array is larger than this operation can address on this device, whatever is free.".into(),
        ),
        SignKind::Crashed if sign.quote.contains("assert") => {
            (NotMemory, "Not memory: a check in a kernel failed, most often of an index that is out of range.".into())
        }
        SignKind::Crashed if sign.quote.contains("Aborted") => (
            NotMemory,
            "Not memory: a process ended itself (abort), as programs do when a check fails. What it wrote before says which."
                .into(),
        ),
        SignKind::Crashed => (
            NotMemory,
            "Not memory: a process crashed by itself (a segmentation fault). A lack of memory ends processes with an error or with signal 9."
                .into(),
        ),
        SignKind::Mappings => (
            HostMemory,
            "Host memory: the host refused another mapping of shared memory, most often because a process has as many as it may have."
                .into(),
        ),
        SignKind::BadAccess => {
            (NotMemory, "Not memory: a kernel used a bad address. That is a fault in the program, not a lack of memory.".into())
        }
        _ => (
            VerdictKind::Healthy,
            "Healthy: no failure of memory is shown, only a warning or a request that is tried again with less.".into(),
        ),
    };
    (kind, sentence)
}

/// Whether a process ended by the signal for memory that is mapped and not there, and nothing says more.
fn is_a_bus_error(sign: &Sign) -> bool {
    let says = |words: &str| sign.quote.contains(words);
    (says("Bus error") || says("-7") || says("SIGBUS") || says("code 135")) && !says("hared memory")
}

/// Whether it is Ray that watches the node.
pub(crate) fn is_of_ray(sign: &Sign) -> bool {
    ["node running low", "low on memory", "memory pressure", "memory on node"]
        .iter()
        .any(|words| sign.quote.contains(words))
}

/// The host refused a request.
fn host_request(facts: &Facts<'_>) -> Verdict {
    let sign = facts.device.sign.as_ref();
    let size = facts.refused.map_or_else(|| "a request for some".to_string(), format_bytes);
    let there =
        sign.and_then(|sign| sign.needed.zip(sign.available)).map_or(String::new(), |(needed, there)| {
            format!(": {} are needed, {} are there", format_bytes(needed), format_bytes(there))
        });
    let own = sign.filter(|sign| sign.quote.contains("(ulimit -v)")).and_then(|sign| sign.available);
    let sentence = own.map(|limit| {
        format!(
            "Host memory: the host refused {size} to this process, which has nearly used up its own limit (ulimit -v) of {}. It was not \
             the device, and the machine may have more.",
            format_bytes(limit)
        )
    });
    let sentence = sentence.unwrap_or_else(|| {
        format!("Host memory: the host refused {size} of its own memory{there}. It was not the device.")
    });
    let mut proof: Vec<String> = sign.map(at_line).into_iter().collect();
    if let (Some(bytes), true) = (facts.refused, facts.is_exact()) {
        proof.push(format!("requested: {bytes} bytes"));
    }
    Verdict { kind: VerdictKind::HostMemory, sentence, proof }
}

/// Paddle counts what the device has in use, and takes it for its own.
fn paddle(facts: &Facts<'_>, sign: &Sign) -> Option<Verdict> {
    let device = facts.device;
    let (refused, free, capacity) = (facts.refused?, device.device_free?, device.capacity?);
    if facts.framework != Framework::Paddle || free >= refused {
        return None;
    }
    let sentence = format!(
        "Too big: {} were requested and {} of the device's {} were free; the rest is in use, by this program unless others use \
         the device too.",
        format_bytes(refused),
        format_bytes(free),
        format_bytes(capacity)
    );
    Some(Verdict { kind: VerdictKind::TooBig, sentence, proof: vec![at_line(sign)] })
}

/// A device without figures, and a table beside the error that shows who holds it.
fn held_by_others(facts: &Facts<'_>, sign: &Sign) -> Option<Verdict> {
    let device = facts.device;
    let capacity = device.capacity.filter(|_| facts.live.is_none())?;
    let held = match device.others.is_empty() {
        false => total(device.others.iter().map(|&(_, bytes)| bytes)),
        // Before the program had loaded anything, what was not free was others'.
        true => capacity.saturating_sub(sign.available?),
    };
    if (held as f64) < HELD * capacity as f64 {
        return None;
    }
    let sentence = format!(
        "Another process: {} of the device's {} were held by others when that was looked at.",
        format_bytes(held),
        format_bytes(capacity)
    );
    let mut proof: Vec<String> = device
        .others
        .iter()
        .map(|(name, bytes)| format!("{}: {}", quoted(name), format_bytes(*bytes)))
        .collect();
    if !proof.is_empty() {
        proof.push("one of them may be this program itself: compare the numbers".into());
    }
    proof.push(at_line(sign));
    Some(Verdict { kind: VerdictKind::OtherProcess, sentence, proof })
}

/// Memory ran out, and nothing tells who held it.
pub(crate) fn full(facts: &Facts<'_>) -> Verdict {
    let device = facts.device;
    let asked = match facts.refused {
        Some(bytes) => format!("{} were refused", format_bytes(bytes)),
        None => "a request was refused".into(),
    };
    let free = device.device_free.map_or(String::new(), |free| format!(", {} were free", format_bytes(free)));
    let kind = device.sign.as_ref().map(|sign| sign.kind);
    let library = device.sign.as_ref().filter(|sign| sign.kind == SignKind::LibraryFull);
    let sentence = match library {
        _ if kind == Some(SignKind::NoContext) => {
            "Full: not even a context could be made on the device, so others hold its memory, or it is kept for one of them.".into()
        }
        _ if kind == Some(SignKind::Unspecified) => {
            let asked = facts.refused.map_or(String::new(), |bytes| format!(" ({} were refused)", format_bytes(bytes)));
            format!(
                "Full: memory ran out{asked}; what was read says neither whether it was the device's or the host's, nor who held it."
            )
        }
        // Its CPU provider has an arena, too.
        _ if facts.framework == Framework::OnnxRuntime && device.name == "arena" => format!(
            "Full: the memory under ONNX Runtime's arena ran out ({asked}): the device's with a provider such as CUDA, the host's \
             with the CPU's; who held it is not said."
        ),
        Some(sign) if sign.quote.contains("ALLOC") || sign.quote.contains("out of memory") => {
            "Full: a library got no memory of the device for its handle or workspace; what was read does not say who held it.".into()
        }
        // The same status is given for other reasons, too.
        Some(_) => "Full: a library could not be set up on the device, most often because its memory is full; what was read does \
                    not say who held it."
            .into(),
        None if device.sign.as_ref().is_some_and(|sign| ["OUT_OF_RESOURCES", "out of GPU resources"].iter().any(|words| sign.quote.contains(words))) => {
            "Full: the driver ran out of resources, most often of the device's memory; what was read does not say who held it.".into()
        }
        None => format!("Full: the device's memory ran out ({asked}{free}); what was read does not say who held it."),
    };
    let mut proof: Vec<String> = device.sign.as_ref().map(at_line).into_iter().collect();
    if let Some(program) = device.program_bytes {
        proof.push(format!(
            "the compiled program itself needs {} in all: the rest is held by other arrays of this process, or by others",
            format_bytes(program)
        ));
    }
    if let Some(bytes) = facts.live {
        let held = if facts.framework == Framework::CuPy { "held by the pool" } else { "in use" };
        proof.push(format!("{held}: {}", facts.told(bytes)));
    }
    let others = device.others.iter();
    proof.extend(others.map(|(name, bytes)| format!("{}: {}", quoted(name), facts.told(*bytes))));
    if !device.others.is_empty() && device.process.is_none() {
        proof.push("one of them may be this program itself: compare the numbers".into());
    }
    if let (Some(refused), Some(largest)) = (facts.refused, facts.largest_free()) {
        proof.push(format!(
            "requested: {}; the largest hole is {}",
            facts.told(refused),
            facts.told(largest)
        ));
    }
    Verdict { kind: VerdictKind::Full, sentence, proof }
}
