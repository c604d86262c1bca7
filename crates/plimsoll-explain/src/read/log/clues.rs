//! Clues to what a program is: its job, its platform, its versions, from paths, frames and habits of speech in its log.
//!
//! None of them is a statement; each is what such programs have in their tracebacks. Where clues contradict each other, the
//! one that is hardest to have by accident counts.

use super::parse::{after, number};
use crate::program::{Backend, Job, Platform, Program, Server};
use crate::recording::Framework;
use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// What a word is a clue to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clue {
    Backward,
    Training,
    Evaluation,
    Generation,
    Serving,
    Vllm,
    Sglang,
    Tgi,
    Ollama,
    Loading,
    LoadsCheckpoint,
    Ranks,
    Windows,
    Linux,
    MacOs,
    TensorFlow1,
    TensorFlow2,
    Torch113,
    Torch25,
    Ggml,
    OnnxRuntime,
    Torch,
    Paddle,
    CuPy,
    Hip,
    Xpu,
    Npu,
    Dml,
}

const CLUES: &[(&str, Clue)] = &[
    (".backward(", Clue::Backward),
    ("in backward", Clue::Backward),
    ("optimizer.step", Clue::Backward),
    ("gradients/", Clue::Backward),
    ("training_step", Clue::Training),
    ("train_step", Clue::Training),
    ("trainer.train", Clue::Training),
    ("train_one_epoch", Clue::Training),
    ("train.py", Clue::Training),
    ("run_training", Clue::Training),
    ("finetune", Clue::Training),
    ("fine_tun", Clue::Training),
    ("in train", Clue::Training),
    (".fit(", Clue::Training),
    ("Epoch", Clue::Training),
    ("epoch", Clue::Training),
    ("validation_step", Clue::Evaluation),
    ("evaluation_loop", Clue::Evaluation),
    ("in evaluate", Clue::Evaluation),
    ("evaluate(", Clue::Evaluation),
    ("in validate", Clue::Evaluation),
    ("validate(", Clue::Evaluation),
    ("eval.py", Clue::Evaluation),
    ("in eval", Clue::Evaluation),
    ("generate(", Clue::Generation),
    ("in generate", Clue::Generation),
    ("generate.py", Clue::Generation),
    ("diffusers", Clue::Generation),
    ("webui", Clue::Generation),
    ("txt2img", Clue::Generation),
    ("ComfyUI", Clue::Generation),
    ("comfy", Clue::Generation),
    ("nference.py", Clue::Generation),
    ("infer.py", Clue::Generation),
    ("demo.py", Clue::Generation),
    ("sample.py", Clue::Generation),
    ("predict.py", Clue::Generation),
    ("in predict", Clue::Generation),
    ("gradio", Clue::Generation),
    ("decode_latents", Clue::Generation),
    ("vllm/", Clue::Vllm),
    ("vllm.", Clue::Vllm),
    ("EngineCore", Clue::Vllm),
    ("RayWorkerWrapper", Clue::Vllm),
    ("GPU KV cache size: ", Clue::Vllm),
    ("# GPU blocks: ", Clue::Vllm),
    ("sglang", Clue::Sglang),
    ("mem-fraction-static", Clue::Sglang),
    ("KV Cache is allocated. #tokens", Clue::Sglang),
    ("text_generation", Clue::Tgi),
    ("prefill tokens", Clue::Tgi),
    ("llama runner", Clue::Ollama),
    ("ollama", Clue::Ollama),
    ("api_server", Clue::Serving),
    ("uvicorn", Clue::Serving),
    ("tritonserver", Clue::Serving),
    ("_cuda_deserialize", Clue::LoadsCheckpoint),
    ("default_restore_location", Clue::LoadsCheckpoint),
    ("[rank", Clue::Ranks),
    ("[RANK ", Clue::Ranks),
    ("local_rank", Clue::Ranks),
    ("torchrun", Clue::Ranks),
    ("VllmWorker", Clue::Vllm),
    ("RayWorkerVllm", Clue::Vllm),
    ("dataloader.py", Clue::Loading),
    ("DataLoader worker", Clue::Loading),
    ("WinError", Clue::Windows),
    ("C:\\", Clue::Windows),
    ("D:\\", Clue::Windows),
    ("E:\\", Clue::Windows),
    ("F:\\", Clue::Windows),
    ("\\site-packages", Clue::Windows),
    ("\\lib\\", Clue::Windows),
    (".dll", Clue::Windows),
    ("on Windows", Clue::Windows),
    ("/home/", Clue::Linux),
    ("/usr/l", Clue::Linux),
    ("/opt/", Clue::Linux),
    ("/root/", Clue::Linux),
    ("/workspace/", Clue::Linux),
    ("/__w/", Clue::Linux),
    ("/media/", Clue::Linux),
    ("/mnt/", Clue::Linux),
    ("/Users/", Clue::MacOs),
    ("MPS backend", Clue::MacOs),
    ("[[Node: ", Clue::TensorFlow1),
    ("(see above for traceback)", Clue::TensorFlow1),
    ("gpu_options", Clue::TensorFlow1),
    ("eager/execute.py", Clue::TensorFlow2),
    ("keras/utils/traceback_utils", Clue::TensorFlow2),
    ("{{function_node", Clue::TensorFlow2),
    ("Op:", Clue::TensorFlow2),
    ("local_tsl", Clue::TensorFlow2),
    ("tensorflow/tsl/", Clue::TensorFlow2),
    ("torch.cuda.OutOfMemoryError", Clue::Torch113),
    ("torch.OutOfMemoryError", Clue::Torch25),
    ("ggml", Clue::Ggml),
    ("llama_", Clue::Ggml),
    ("onnxruntime", Clue::OnnxRuntime),
    ("packages/torch/", Clue::Torch),
    ("TORCH_", Clue::Torch),
    ("kernel errors might be asynchronously", Clue::Torch),
    ("UR backend", Clue::Torch),
    ("packages\\torch\\", Clue::Torch),
    ("torch.", Clue::Torch),
    ("paddle", Clue::Paddle),
    ("cupy", Clue::CuPy),
    ("rocm_driver", Clue::Hip),
    ("HIP_ERROR", Clue::Hip),
    ("hipError", Clue::Hip),
    ("/opt/rocm", Clue::Hip),
    ("HIPCachingAllocator", Clue::Hip),
    ("level_zero", Clue::Xpu),
    ("intel_gpu", Clue::Xpu),
    ("openvino", Clue::Xpu),
    ("torch_npu", Clue::Npu),
    ("rtMalloc", Clue::Npu),
    ("Ascend", Clue::Npu),
    ("DmlExecutionProvider", Clue::Dml),
    ("DirectML", Clue::Dml),
    ("directml", Clue::Dml),
];

static SEARCH: LazyLock<AhoCorasick> =
    LazyLock::new(|| AhoCorasick::new(CLUES.iter().map(|(word, _)| word)).expect("a search for a few words"));

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Clues {
    seen: [u32; 28],
    torch: Option<(u32, u32)>,
    tensorflow: Option<(u32, u32)>,
    /// Whether a frame locks the host's memory.
    pub(super) pins: bool,
    /// Whether a frame makes a context on a device.
    pub(super) makes_context: bool,
    /// Whether a frame makes a semaphore, which is a file in `/dev/shm`.
    pub(super) makes_semaphores: bool,
}

impl Clues {
    /// Takes a line.
    pub(super) fn line(&mut self, line: &str) {
        // Words may be parts of each other.
        for found in SEARCH.find_overlapping_iter(line) {
            let seen = &mut self.seen[CLUES[found.pattern().as_usize()].1 as usize];
            *seen = seen.saturating_add(1);
        }
        // TensorFlow 2 came in 2019, and its logger begins a line with the date.
        if line.contains("tensorflow/")
            && ["2015-", "2016-", "2017-", "2018-"].iter().any(|year| line.starts_with(year))
        {
            self.seen[Clue::TensorFlow1 as usize] += 1;
        }
        let version = |markers: &[&str]| markers.iter().find_map(|marker| version(after(line, marker)?));
        self.torch = version(&["torch==", "torch-", "PyTorch version: ", "PyTorch ", "pytorch ", "torch "])
            .or(self.torch);
        self.tensorflow = version(&[
            "tensorflow==",
            "tensorflow-gpu==",
            "TensorFlow version: ",
            "tensorflow-",
            "TensorFlow ",
        ])
        .or(self.tensorflow);
        self.makes_semaphores |= line.contains("SemLock(") || line.contains("SemLock.__init__");
        self.makes_context |= line.contains("cuCtxCreate") || line.contains("PrimaryCtxRetain");
        self.pins |= super::cuda::is_of_pinned_memory(line);
    }

    /// Whose program it is, where the message itself does not say.
    pub(super) fn framework(&self) -> Option<Framework> {
        let of = [
            (Clue::Ggml, Framework::LlamaCpp),
            (Clue::OnnxRuntime, Framework::OnnxRuntime),
            (Clue::CuPy, Framework::CuPy),
            (Clue::Torch, Framework::PyTorch),
            (Clue::Paddle, Framework::Paddle),
        ];
        of.into_iter().find(|(clue, _)| self.has(*clue)).map(|(_, framework)| framework)
    }

    fn has(&self, clue: Clue) -> bool {
        self.seen[clue as usize] > 0
    }

    fn job(&self) -> Option<Job> {
        let of = |clue: Clue| self.seen[clue as usize];
        if self.server().is_some() || self.has(Clue::Serving) {
            return Some(Job::Server);
        }
        if self.has(Clue::Backward) {
            return Some(Job::Training);
        }
        if self.has(Clue::Evaluation) {
            return Some(Job::Evaluation);
        }
        let (generation, training) = (of(Clue::Generation), of(Clue::Training));
        match () {
            () if generation > training => Some(Job::Generation),
            () if training > 0 => Some(Job::Training),
            () if self.has(Clue::Loading) => Some(Job::DataLoading),
            () => None,
        }
    }

    fn server(&self) -> Option<Server> {
        let of = [
            (Clue::Vllm, Server::Vllm),
            (Clue::Sglang, Server::Sglang),
            (Clue::Tgi, Server::Tgi),
            (Clue::Ollama, Server::Ollama),
        ];
        of.into_iter().find(|(clue, _)| self.has(*clue)).map(|(_, server)| server)
    }

    /// What drives the device, where only the rest of the log gives it away.
    fn backend(&self) -> Option<Backend> {
        let of = [
            (Clue::Hip, Backend::Hip),
            (Clue::Npu, Backend::Npu),
            (Clue::Xpu, Backend::Xpu),
            (Clue::Dml, Backend::Other),
        ];
        of.into_iter().find(|(clue, _)| self.has(*clue)).map(|(_, backend)| backend)
    }

    fn platform(&self) -> Option<Platform> {
        let of = [
            (Clue::Windows, Platform::Windows),
            (Clue::MacOs, Platform::MacOs),
            (Clue::Linux, Platform::Linux),
        ];
        of.into_iter().find(|(clue, _)| self.has(*clue)).map(|(_, platform)| platform)
    }

    /// What PyTorch's users are told.
    pub(super) fn of_torch(&self) -> Program {
        let by_class = match () {
            () if self.has(Clue::Torch25) => Some((2, 5)),
            () if self.has(Clue::Torch113) => Some((1, 13)),
            () => None,
        };
        let exact = self.torch.filter(|version| version.0 <= 3);
        Program {
            version_from: exact.max(by_class),
            version_before: exact.filter(|_| exact >= by_class).map(|(major, minor)| (major, minor + 1)),
            ..self.of_any()
        }
    }

    /// What TensorFlow's users are told.
    pub(super) fn of_tensorflow(&self) -> Program {
        let exact = self.tensorflow.filter(|version| version.0 <= 3);
        let (first, second) = (self.has(Clue::TensorFlow1), self.has(Clue::TensorFlow2));
        Program {
            version_from: exact.or((second && !first).then_some((2, 0))),
            version_before: exact
                .map(|(major, minor)| (major, minor + 1))
                .or((first && !second).then_some((2, 0))),
            ..self.of_any()
        }
    }

    /// What is known whatever the framework is.
    pub(super) fn of_any(&self) -> Program {
        Program {
            job: self.job(),
            platform: self.platform().or(self.has(Clue::Dml).then_some(Platform::Windows)),
            backend: self.backend(),
            server: self.server(),
            loads_checkpoint: self.has(Clue::LoadsCheckpoint),
            ranks: self.has(Clue::Ranks),
            ..Program::default()
        }
    }
}

/// A version such as `2.0.1` at the start of a text.
fn version(text: &str) -> Option<(u32, u32)> {
    let text = text.trim_start().trim_start_matches('v');
    let (major, rest) = text.split_once('.')?;
    let major = major.parse::<u32>().ok().filter(|&major| major < 10)?;
    Some((major, number(rest)?.try_into().ok().filter(|&minor: &u32| minor < 100)?))
}
