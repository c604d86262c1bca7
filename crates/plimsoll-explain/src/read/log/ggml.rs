//! llama.cpp and what is made of it (Ollama, llama-cpp-python, whisper.cpp, stable-diffusion.cpp).
//!
//! ggml's CUDA backend words a refusal as `ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0:
//! cudaMalloc failed: out of memory` (before 2024: `ggml_cuda_host_malloc`, `CUDA error 2 at ggml-cuda.cu`), the loader as
//! `unable to allocate CUDA0 buffer` and `failed to allocate CUDA0 buffer of size 8589934592`, contexts as `failed to allocate
//! compute buffers`. Vulkan, Metal and SYCL have sentences of their own. At the start each device is listed with what it has
//! (`Device 0: …, VRAM: 12287 MiB`) and what is free (`using device CUDA0 (…) - 11139 MiB free`).

use super::found::{Found, has};
use super::parse::{Size, after, number, size, size_after, word};
use crate::program::{Backend, Job, Server};
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "ggml",
    "cudaMalloc failed",
    "llama_",
    "MiB free",
    "VRAM: ",
    "alloc_tensor_range",
    "allocate CUDA",
    "allocate ROCm",
    "allocate Vulkan",
    "allocate Metal",
    "compute buffers",
    "llama runner",
    "ollama",
    "hipMalloc failed",
];

/// What was listed of the devices before anything was refused.
#[derive(Debug, Default)]
pub(super) struct Listing {
    free: Option<u64>,
    total: Option<u64>,
    /// Whether the line before said that memory could not be locked, which is no failure.
    pinned: bool,
}

impl Listing {
    /// What a line says, if it is one of these.
    pub(super) fn read(&mut self, line: &str, at: u64) -> Option<Found> {
        self.list(line);
        let pinned = std::mem::replace(&mut self.pinned, line.contains("pinned memory"));
        if pinned && line.contains("ggml_vulkan: vk::") {
            return Some(Found::sign(SignKind::Warning, "host", line, at).by(Framework::LlamaCpp));
        }
        let asked = asked(line);
        let host = has(
            line,
            &[
                "ggml_backend_cpu_buffer",
                "ggml_aligned_malloc",
                "allocate CPU buffer",
                "failed to allocate CPU",
            ],
        );
        if host && has(line, &["fail", "insufficient memory", "unable"]) {
            let found = Found::sign(SignKind::HostFull, "host", line, at).by(Framework::LlamaCpp);
            return Some(found.refused(asked.map(|size| size.bytes), asked.is_some_and(|size| size.exact)));
        }
        if line.contains("exceeds device memory allocation limit") || line.contains("maxMemoryAllocationSize")
        {
            let found = Found::sign(SignKind::AllocationCap, "GPU", line, at).by(Framework::LlamaCpp);
            return Some(found.bytes(asked.map(|size| size.bytes), None));
        }
        // Others word it alike.
        let ours = has(line, &["ggml", "llama", "whisper"]);
        let refused =
            has(line, &["cudaMalloc failed", "hipMalloc failed"]) && line.contains("out of memory") && ours
                || line.contains("CUDA error 2 at ")
                || line.contains("failed to allocate buffer for kv cache")
                || line.contains("failed to allocate compute")
                || has(line, &["failed to allocate", "unable to allocate", "memory allocation of size"])
                    && has(
                        line,
                        &[
                            "CUDA",
                            "ROCm",
                            "Vulkan",
                            "Metal",
                            "SYCL",
                            "ggml_vulkan",
                            "ggml_metal",
                            "ggml_backend_metal",
                        ],
                    )
                    && has(line, &["buffer", "alloc_tensor_range", "Device memory"]);
        if !refused {
            return None;
        }
        let mut found = Found::sign(SignKind::DeviceFull, "GPU", line, at).by(Framework::LlamaCpp);
        let device = &mut found.device;
        device.index = after(line, " on device ").and_then(number).and_then(|n| u32::try_from(n).ok());
        if let Some(index) = device.index {
            device.name = format!("GPU {index}");
        }
        device.capacity = self.total;
        device.program.job = Some(Job::Generation);
        device.program.backend = match () {
            () if has(line, &["CUDA", "cuda"]) => Some(Backend::Cuda),
            () if has(line, &["ROCm", "hip"]) => Some(Backend::Hip),
            () if has(line, &["ulkan"]) => Some(Backend::Other),
            () if has(line, &["etal"]) => Some(Backend::Mps),
            () if has(line, &["SYCL"]) => Some(Backend::Xpu),
            () => None,
        };
        if line.contains("llama runner") || line.contains("ollama") {
            device.program.server = Some(Server::Ollama);
        }
        // What was free at the start, before anything was loaded.
        let found = found.bytes(asked.map(|size| size.bytes), self.free);
        Some(found.refused(asked.map(|size| size.bytes), asked.is_some_and(|size| size.exact)))
    }

    fn list(&mut self, line: &str) {
        if let Some(total) = size_after(line, "VRAM: ") {
            self.total = self.total.or(Some(total.bytes));
        }
        if let Some(end) = line.find(" MiB free").filter(|_| line.contains("using device ")) {
            let start = line[..end].rfind(' ').map_or(0, |at| at + 1);
            self.free = self.free.or(size(&format!("{} MiB", &line[start..end])).map(|(size, _)| size.bytes));
        }
    }
}

/// Whether a line says that a refused request is tried again with less.
pub(super) fn is_tried_again(line: &str) -> bool {
    line.contains("retrying without pipeline parallelism")
}

/// What a refused buffer was for, which the lines after the refusal tell.
pub(super) fn purpose(line: &str) -> Option<&'static str> {
    match () {
        () if has(line, &["for kv cache", "kv_cache_init() failed", "create memory"]) => Some(CACHE),
        () if has(line, &["allocate compute", "gallocr_reserve", "graph_reserve"]) => Some(STEP),
        () if has(line, &["alloc_tensor_range", "error loading model", "load_tensors: "])
            && line.contains("alloc") =>
        {
            Some(WEIGHTS)
        }
        () => None,
    }
}

pub(super) use crate::program::buffers::{CACHE, STEP, WEIGHTS};

fn asked(line: &str) -> Option<Size> {
    size_after(line, "allocating ")
        .or_else(|| size_after(line, " buffer of size "))
        .or_else(|| size_after(line, "memory allocation of size "))
        .or_else(|| size_after(line, "size = "))
        .filter(|size| size.bytes > 0)
        .filter(|_| !word(line.trim_start()).is_empty())
}
