//! Servers of language models, which plan their memory at the start and say when the plan does not come out.
//!
//! vLLM takes `gpu_memory_utilization` of the device, measures what weights and one step need, and gives the rest to its cache
//! of keys and values. Since 0.4 it refuses when that cache cannot hold one request (`max seq len (…) is larger than the maximum
//! number of tokens`, later `… GiB KV cache is needed, which is larger than the available KV cache memory`), when nothing is
//! left (`No available memory for the cache blocks`), when the device is not free at the start (`Free memory on device (a/b
//! GiB) on startup is less than desired`), and when others changed what is free while it measured (`Error in memory profiling`).
//! SGLang calls its share `--mem-fraction-static`; Text Generation Inference warms up and gives up; Accelerate shrinks the
//! batch to nothing.

use super::found::{Found, has};
use super::parse::{after, size, size_after};
use crate::program::{Job, Server};
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "KV cache",
    "cache blocks",
    "on startup is less",
    "memory profiling",
    "mem-fraction-static",
    "prefill tokens",
    "executable batch size",
    "enough GPU RAM",
    "balanced_memory_low",
    "bigger than the",
    "GPU memory utilization",
    "max_num_batched_tokens",
    "warmup",
    "warming up",
    "ecode out of memory",
    "refill out of memory",
    "available single GPU memory",
];

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    let of = |kind, server: Option<Server>| {
        let mut found = Found::sign(kind, "GPU", line, at).by(Framework::PyTorch);
        found.device.program.server = server;
        found.device.program.job = server.map(|_| Job::Server);
        Some(found)
    };
    if let Some(rest) =
        after(line, "ree memory on device").filter(|_| line.contains("on startup is less than desired"))
    {
        // `(2.30/23.65 GiB)`, or `cuda:0 (12.18/23.56 GiB)`.
        let figures = after(rest, "(").and_then(|inside| inside.split_once('/'));
        let free = figures.and_then(|(free, _)| free.trim().parse::<f64>().ok()).map(gib);
        let total = figures.and_then(|(_, total)| size(total)).map(|(size, _)| size.bytes);
        let wanted = after(rest, "utilization (").and_then(|rest| after(rest, ", ")).and_then(size);
        let mut found = of(SignKind::ServerStart, Some(Server::Vllm))?;
        found.device.device_free = free;
        found.device.capacity = total;
        return Some(found.bytes(wanted.map(|(size, _)| size.bytes), free));
    }
    if line.contains("rror in memory profiling") {
        return of(SignKind::ServerMeasure, Some(Server::Vllm));
    }
    // What a logger writes before it would leave less of it to quote.
    let sentence = line.find("To serve at least one request").map_or(line, |start| &line[start..]);
    let of = |kind, server| {
        let mut found = of(kind, server)?;
        if let (SignKind::ServerCache, Some(sign)) = (kind, &mut found.device.sign) {
            sign.quote = super::parse::short(sentence.trim());
        }
        Some(found)
    };
    if let Some((need, rest)) = line.find(" KV cache is needed").and_then(|at| {
        let before = &line[..at];
        let start = before.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
        let start = start.rfind(|c: char| !(c.is_ascii_digit() || c == '.')).map_or(0, |at| at + 1);
        Some((before.get(start..).and_then(size)?.0, &line[at..]))
    }) {
        let there = size_after(rest, "KV cache memory (");
        let found = of(SignKind::ServerCache, Some(Server::Vllm))?;
        return Some(found.bytes(Some(need.bytes), there.map(|size| size.bytes)));
    }
    let longer = line.contains("max seq len (") && line.contains("stored in KV cache");
    if longer || has(line, &["No available memory for the cache blocks", "llocated KV cache is too small"]) {
        return of(SignKind::ServerCache, Some(Server::Vllm));
    }
    if line.contains("try to increase --mem-fraction-static")
        || line.contains("increase `--mem-fraction-static`")
        || has(line, &["Decode out of memory", "Prefill out of memory"])
            && line.contains("lower your batch size")
    {
        return of(SignKind::ServerCache, Some(Server::Sglang));
    }
    if line.contains("Not enough memory to handle") && line.contains("prefill tokens") {
        return of(SignKind::ServerCache, Some(Server::Tgi));
    }
    if let Some(there) = size_after(line, "available single GPU memory is ") {
        // MLC-LLM counts what it will need before it asks for any of it.
        let parts = ["weight size (", "buffer size ("].map(|part| size_after(line, part));
        let needed = parts.iter().flatten().map(|size| size.bytes).reduce(u64::saturating_add);
        let mut found = of(SignKind::DeviceTooSmall, None)?.by(Framework::Unknown);
        found.device.program.job = Some(Job::Server);
        return Some(found.bytes(needed, Some(there.bytes)));
    }
    if has(line, &["No executable batch size found", "enough GPU RAM to fit the quantized model"]) {
        return of(SignKind::DeviceTooSmall, None);
    }
    None
}

fn gib(figure: f64) -> u64 {
    (figure.clamp(0.0, 1e6) * (1_u64 << 30) as f64) as u64
}
