//! The recording: what a program left behind about its memory, whatever wrote it.
//!
//! Every reader ends here and everything after starts here. A recording rarely knows all: a log line knows
//! four numbers, a snapshot knows every block. What was not recorded is `None`, never a guess.

use crate::program::Program;
use crate::sign::Sign;
use plimsoll_memory::{Layout, Model, OwnerId, Owners, Trace};
use std::sync::Arc;

/// What one or several files of one run say.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Where it comes from.
    pub origin: Origin,
    /// The devices, or pools on them, it speaks of.
    pub devices: Vec<Device>,
}

/// Where a recording comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The files read, as they were named.
    pub files: Vec<String>,
    /// Their formats, in the same order.
    pub formats: Vec<Format>,
    /// Who wrote them.
    pub framework: Framework,
    /// What could not be read, one sentence each: a file cut short, entries of an unknown kind. Empty when all
    /// was read.
    pub gaps: Vec<String>,
    /// Whether what is missing could change what follows: a file is cut short, broken, or beyond the limits. The gaps
    /// say which and where.
    pub partial: bool,
}

/// A kind of file that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A pickle written by `torch.cuda.memory._dump_snapshot`.
    TorchSnapshot,
    /// The text of PyTorch's out-of-memory error.
    TorchMessage,
    /// A Chrome trace of PyTorch's profiler with `[memory]` events.
    TorchChromeTrace,
    /// A log with the dump of TensorFlow's or JAX's allocator.
    BfcLog,
    /// A log in which another program, a library, a driver or an operating system says that memory ran out.
    Log,
    /// A profile of TensorFlow's or JAX's profiler.
    XPlane,
    /// The JSON of TensorFlow's memory profile tool.
    MemoryProfile,
    /// A device memory profile of JAX.
    Pprof,
    /// A trace that Plimsoll wrote.
    Plimsoll,
}

impl Format {
    /// The name, as printed and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Format::TorchSnapshot => "pytorch-snapshot",
            Format::TorchMessage => "pytorch-oom-message",
            Format::TorchChromeTrace => "pytorch-chrome-trace",
            Format::BfcLog => "bfc-log",
            Format::Log => "log",
            Format::XPlane => "xplane",
            Format::MemoryProfile => "tensorflow-memory-profile",
            Format::Pprof => "jax-pprof",
            Format::Plimsoll => "plimsoll-trace",
        }
    }
}

/// Whose program it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framework {
    /// PyTorch.
    PyTorch,
    /// TensorFlow.
    TensorFlow,
    /// JAX.
    Jax,
    /// One of those that use XLA's runtime; which is not told.
    TensorFlowOrJax,
    /// Plimsoll itself.
    Plimsoll,
    /// llama.cpp, or a program made of it.
    LlamaCpp,
    /// ONNX Runtime.
    OnnxRuntime,
    /// PaddlePaddle.
    Paddle,
    /// CuPy, or a library on RAPIDS' memory manager.
    CuPy,
    /// What was read does not say.
    Unknown,
}

impl Framework {
    /// The name, as printed and in JSON; empty where it is not known.
    pub const fn name(self) -> &'static str {
        match self {
            Framework::PyTorch => "PyTorch",
            Framework::TensorFlow => "TensorFlow",
            Framework::Jax => "JAX",
            Framework::TensorFlowOrJax => "TensorFlow or JAX",
            Framework::Plimsoll => "Plimsoll",
            Framework::LlamaCpp => "llama.cpp",
            Framework::OnnxRuntime => "ONNX Runtime",
            Framework::Paddle => "PaddlePaddle",
            Framework::CuPy => "CuPy",
            Framework::Unknown => "",
        }
    }
}

/// What is known of one device, or of one pool on it.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// The name, as recorded: `GPU 0`, `GPU_0_bfc`, `cpu`.
    pub name: String,
    /// Its number, where there is one: files of one run are joined by it.
    pub index: Option<u32>,
    /// All of the device's bytes.
    pub capacity: Option<u64>,
    /// The most that the pool may reserve.
    pub limit: Option<u64>,
    /// Free bytes of the device.
    pub device_free: Option<u64>,
    /// Bytes of the device that this process held, its context and libraries included.
    pub process: Option<u64>,
    /// Other processes and what they held.
    pub others: Vec<(String, u64)>,
    /// Bytes that the pool had reserved, as reported.
    pub reserved: Option<u64>,
    /// Bytes of the pool in use, as reported.
    pub live: Option<u64>,
    /// The most bytes in use at once, as reported.
    pub peak_live: Option<u64>,
    /// The largest free block of the pool, as reported.
    pub largest_free: Option<u64>,
    /// The allocator's rules, where they are known.
    pub model: Option<Model>,
    /// Settings as the framework names them, with their values, where they were recorded.
    pub settings: Vec<(String, String)>,
    /// The segments and blocks of the pool at the end, or at the failure.
    pub layout: Option<Layout>,
    /// Requests and frees, in order.
    pub trace: Option<Trace>,
    /// The request that was refused.
    pub failure: Option<Failure>,
    /// Who allocated: what owners in the layout, trace and list below stand for. Devices of one file share them.
    pub owners: Arc<Owners>,
    /// What was in use by owner, where addresses are not known: bytes and how many allocations.
    pub live_by_owner: Vec<(OwnerId, u64, u64)>,
    /// Whether `live` and `live_by_owner` are of the peak, and not of the end or of the failure.
    pub reported_at_peak: bool,
    /// What a text says outright, where figures of a pool do not.
    pub sign: Option<Sign>,
    /// What one program of the compiler needs in all, where it says so: XLA's buffer assignment.
    pub program_bytes: Option<u64>,
    /// How full the pool was, where only a picture of it was printed.
    pub picture: Option<PoolPicture>,
    /// What is known of the program that used it.
    pub program: Program,
    /// The time that the log gives last before the failure, as it stands there: logs of one run are ordered by it.
    pub failed_at: Option<String>,
}

/// A pool as a line of a hundred characters shows it, each a hundredth of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolPicture {
    /// Hundredths in use.
    pub used: u8,
    /// Hundredths of the largest gap.
    pub largest_gap: u8,
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The bytes requested.
    pub requested: u64,
    /// How exact that is: the message gives 1.46GiB where the program requested 1,572,864,000 bytes.
    pub exact: bool,
    /// The event in the trace.
    pub event: Option<usize>,
    /// The op or executable that asked.
    pub op: Option<String>,
}

impl Device {
    /// Bytes that the pool had reserved: from the layout, or as reported.
    pub fn reserved_bytes(&self) -> Option<u64> {
        self.layout.as_ref().map(Layout::reserved_bytes).or(self.reserved)
    }

    /// Bytes of the pool in use: from the layout, or as reported.
    pub fn live_bytes(&self) -> Option<u64> {
        self.layout.as_ref().map(Layout::live_bytes).or(self.live)
    }
}
