//! The words by which lines are known: most lines of a log have none of them, and are passed over without being looked at
//! again.

use super::xla::FRAMEWORKS;
use super::{accelerator, arena, cuda, ggml, host, scratch, server, smi};
use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// Words that every line of interest has one of, outside of dumps. With two bytes beside them they are 64, the most that are
/// searched for with vectors.
const TELLING: [&str; 62] = [
    "too large for system",
    "intel_gpu",
    "emor",
    "MEMORY",
    "OOM",
    "bytes_in_use",
    "lloc",
    "File ",
    "Traceback",
    "jax",
    "ensor",
    "XLA",
    "pjrt",
    "Created device",
    "Cell In[",
    "rror",
    "illed",
    "SIGKILL",
    "137",
    "-9",
    "ignal",
    "oom",
    "shm",
    "1455",
    "页面文件",
    "STATUS_",
    "NCCL",
    "resource",
    "KV cache",
    "cache blocks",
    "MiB",
    " MB |",
    "RAM",
    "OUT_OF",
    "MEMLIMIT",
    "onnxruntime",
    "ggml",
    "torch",
    "limit",
    "terminated",
    "return code",
    "exitcode",
    "SIGBUS",
    "135",
    "已杀死",
    "已砍掉",
    "強制終了",
    "죽었음",
    "Убито",
    "Getötet",
    "Processus arrêté",
    "Ucciso",
    "Morto",
    "Java heap",
    "ALLOC",
    "存",
    "不足",
    "памят",
    "メモリ",
    "메모리",
    "peicher",
    "moire",
];

/// Words of which every line has one that begins anything; others only go on with what was begun.
const BEGINNING: [&str; 31] = [
    "XLA Label: ",
    "from device: ",
    "ut of memory",
    "OUT_OF_MEMORY",
    "OOM when",
    "tried to allocate",
    "Tried to allocate ",
    "runtime error (2)",
    "bfc_allocator",
    "BFCAllocator",
    "Bin (256)",
    "Created ",
    " on device ",
    "otal memory: ",
    "totalMemory: ",
    "bytes_in_use",
    "Failed to allocate",
    "{{node ",
    "[[node ",
    "[[Node: ",
    "[Op:",
    "Peak buffers:",
    "Current usage from",
    "Traceback (",
    "File ",
    "Cell ",
    "memory allocating",
    "llocate memory",
    "Bin for ",
    "total allocation:",
    "ree memory: ",
];

/// Searches for many words at once: logs are long, and most of their lines have none. Made once: that takes longer than
/// reading a message.
pub(super) static WORDS: LazyLock<Words> = LazyLock::new(Words::new);

pub(super) struct Words {
    /// The telling words, and bytes that may hide one: zeros between characters, and colours.
    pub(super) telling: AhoCorasick,
    pub(super) beginning: AhoCorasick,
    pub(super) frameworks: AhoCorasick,
    /// Words of the families that say outright what happened.
    pub(super) families: AhoCorasick,
}

impl Words {
    fn new() -> Words {
        let search = |words: &[&str]| AhoCorasick::new(words).expect("a search for a few words");
        let telling = [&TELLING[..], &["\0", "\x1b"]].concat();
        let frameworks = search(&FRAMEWORKS);
        let families = [
            accelerator::WORDS,
            arena::WORDS,
            cuda::WORDS,
            ggml::WORDS,
            host::WORDS,
            scratch::WORDS,
            server::WORDS,
            smi::WORDS,
        ];
        let families = search(&families.concat());
        Words { telling: search(&telling), beginning: search(&BEGINNING), frameworks, families }
    }
}
