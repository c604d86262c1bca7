//! The program: what it was doing, where, and on which version of its framework, as far as a log gives that away.
//!
//! Advice rests on it. A setting that a version does not know aborts the program, or is passed over in silence; halving
//! the batch is no advice to a server. What a log does not give away is `None`, and advice then says under which condition
//! it holds.

/// What llama.cpp's buffers are for, as they are told.
pub(crate) mod buffers {
    /// The cache of keys and values.
    pub(crate) const CACHE: &str = "the cache of keys and values";
    /// What one step computes in.
    pub(crate) const STEP: &str = "the buffer that one step computes in";
    /// The weights.
    pub(crate) const WEIGHTS: &str = "the weights";
}

/// What is known of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// What it was doing.
    pub job: Option<Job>,
    /// The operating system.
    pub platform: Option<Platform>,
    /// What drives its device.
    pub backend: Option<Backend>,
    /// Its framework is of this version or newer: major and minor.
    pub version_from: Option<(u32, u32)>,
    /// Its framework is older than this version: major and minor.
    pub version_before: Option<(u32, u32)>,
    /// The variable that its allocator is set by, where the message names it.
    pub settings_variable: Option<&'static str>,
    /// The server that it is.
    pub server: Option<Server>,
    /// A checkpoint was being loaded to the device that it was saved from.
    pub loads_checkpoint: bool,
    /// It is one of the ranks of a job.
    pub ranks: bool,
}

/// What a program was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Job {
    /// Training a model.
    Training,
    /// Evaluating one: no gradients are needed.
    Evaluation,
    /// Generating text or pictures, or predicting.
    Generation,
    /// Serving requests.
    Server,
    /// Loading data.
    DataLoading,
}

/// An operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Platform {
    /// Linux, or another Unix.
    Linux,
    /// Windows.
    Windows,
    /// macOS.
    MacOs,
}

/// What drives a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// NVIDIA's CUDA.
    Cuda,
    /// AMD's HIP.
    Hip,
    /// Intel's XPU.
    Xpu,
    /// Apple's Metal.
    Mps,
    /// A TPU.
    Tpu,
    /// Huawei's Ascend.
    Npu,
    /// The host itself.
    Cpu,
    /// Another accelerator with an allocator like PyTorch's.
    Other,
}

/// A server whose settings are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Server {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Hugging Face's Text Generation Inference.
    Tgi,
    /// Ollama.
    Ollama,
}

impl Program {
    /// Whether the framework is surely of this version or newer.
    pub(crate) fn is_at_least(&self, version: (u32, u32)) -> bool {
        self.version_from.is_some_and(|from| from >= version)
    }

    /// Whether the framework is surely older than this version.
    pub(crate) fn is_before(&self, version: (u32, u32)) -> bool {
        self.version_before.is_some_and(|before| before <= version)
    }

    /// What lists the processes that hold memory of the device.
    pub(crate) fn process_list(&self) -> &'static str {
        match (self.backend, self.platform) {
            (Some(Backend::Hip), _) => "`rocm-smi --showpids --showmeminfo vram`",
            (Some(Backend::Xpu), _) => "`xpu-smi ps`",
            (Some(Backend::Mps), _) => "Activity Monitor (Memory)",
            (Some(Backend::Npu), _) => "`npu-smi info`",
            (Some(Backend::Other), Some(Platform::Windows)) => "Task Manager (Details, GPU memory)",
            (Some(Backend::Other), _) => "the device vendor's tool",
            _ => "`nvidia-smi`",
        }
    }

    /// Adds what another text says of the same program.
    pub(crate) fn complete(&mut self, other: &Program) {
        self.job = self.job.or(other.job);
        self.platform = self.platform.or(other.platform);
        self.backend = self.backend.or(other.backend);
        self.version_from = self.version_from.max(other.version_from);
        self.version_before = match (self.version_before, other.version_before) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.settings_variable = self.settings_variable.or(other.settings_variable);
        self.server = self.server.or(other.server);
        self.loads_checkpoint |= other.loads_checkpoint;
        self.ranks |= other.ranks;
    }
}
