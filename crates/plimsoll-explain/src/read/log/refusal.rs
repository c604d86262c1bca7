//! Sentences that say that memory ran out, whoever wrote them.
//!
//! There are few ways to say it: memory is *out*, *exhausted* or *not enough*; something *could not be allocated*; a limit of
//! memory is *exceeded*. Frameworks, drivers, servers and operating systems put these words in any order, in any case, joined
//! by underscores, with a device's name in between, and in the language of the system. So a sentence is known by its words
//! and their distance, not by its wording. Words before them tell a failure from advice (`to avoid`), conditions (`if you`)
//! and code (`except …`).

use super::found::has;
use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// Parts of words of which every such sentence has one, in any case.
const STEMS: &[&str] = &[
    "out of",
    "out_of",
    "out-of",
    "outof",
    "sufficient",
    "suficient",
    "enough",
    "no memory",
    "no available",
    "no free",
    "no more",
    "no room",
    "unable",
    "cannot",
    "can't",
    "can not",
    "could not",
    "couldn't",
    "not allocate",
    "not be allocated",
    "fail",
    "exceed",
    "exhaust",
    "larger than",
    "greater than",
    "more than",
    "bad_alloc",
    "bad alloc",
    "badalloc",
    "memoryerror",
    "enomem",
    "oom",
    "lack of",
    "due to",
    "because of",
];

/// How systems say it in other languages: what ran out, and the words.
const ABROAD: [(Kind, &str); 30] = [
    (Kind::Device, "显存不足"),
    (Kind::Device, "显存不够"),
    (Kind::Device, "显存溢出"),
    (Kind::Device, "超出显存"),
    (Kind::Device, "爆显存"),
    (Kind::Host, "内存不足"),
    (Kind::Host, "内存不够"),
    (Kind::Host, "内存溢出"),
    (Kind::Host, "无法分配内存"),
    (Kind::Host, "不能分配内存"),
    (Kind::Host, "内存资源不足"),
    (Kind::Host, "記憶體不足"),
    (Kind::Host, "メモリ不足"),
    (Kind::Host, "メモリが不足"),
    (Kind::Host, "メモリを確保できません"),
    (Kind::Host, "메모리 부족"),
    (Kind::Host, "메모리가 부족"),
    (Kind::Host, "메모리를 할당할 수"),
    (Kind::Host, "едостаточно памяти"),
    (Kind::Host, "е хватает памяти"),
    (Kind::Host, "выделить память"),
    (Kind::Host, "icht genügend Arbeitsspeicher"),
    (Kind::Host, "icht genügend Speicher"),
    (Kind::Host, "icht genügend Hauptspeicher"),
    (Kind::Host, "émoire insuffisante"),
    (Kind::Host, "mpossible d'allouer de la mémoire"),
    (Kind::Host, "emoria insuficiente"),
    (Kind::Host, "o se pudo asignar memoria"),
    (Kind::Host, "emoria insufficiente"),
    (Kind::Host, "mpossibile allocare memoria"),
];

static SEARCH: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = STEMS.iter().copied().chain(ABROAD.iter().map(|&(_, words)| words));
    AhoCorasick::builder().ascii_case_insensitive(true).build(words).expect("a search for a few words")
});

/// What ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Device,
    Host,
    /// A process was ended for memory.
    Ended,
    Unsaid,
}

/// How sure it is that a line tells of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// It calls itself an error.
    Error,
    /// It says so and no more.
    Plain,
    /// It warns, or says that it goes on.
    Warning,
}

/// A sentence that says that memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    pub(super) tone: Tone,
    /// Where its words begin.
    pub(super) at: usize,
}

/// Whether a line has any of the words; most have none.
pub(super) fn may_be_in(line: &str) -> bool {
    SEARCH.is_match(line)
}

/// Where a line begins to say it, if it does.
pub(super) fn begins(line: &str) -> Option<usize> {
    read(line).map(|refusal| refusal.at)
}

/// A line longer than this is looked at around the words alone.
const MOST_BYTES: usize = 2048;

/// What a line says, if it says that memory ran out.
pub(super) fn read(line: &str) -> Option<Refusal> {
    let first = SEARCH.find(line)?.start();
    let start = boundary(line, first.saturating_sub(MOST_BYTES / 2));
    let part = &line[start..boundary(line, start.saturating_add(MOST_BYTES).min(line.len()))];
    if is_code(line) || is_a_test(line) || is_of_a_name(line) {
        return None;
    }
    if let Some(&(kind, words)) = ABROAD.iter().find(|(_, words)| part.contains(words)) {
        let at = part.find(words).unwrap_or(0);
        return Some(Refusal { kind, tone: Tone::Error, at: start + at });
    }
    let words = Words::of(part);
    let Phrase { from, to, kind } = words.phrase()?;
    let tone = words.tone(from, to, part)?;
    let kind = kind.unwrap_or_else(|| words.kind());
    Some(Refusal { kind, tone, at: start + words.list[from].from })
}

fn boundary(line: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0)
}

/// A line of a program's source, as tracebacks and notebooks quote it.
fn is_code(line: &str) -> bool {
    let code = line.trim_start_matches(|c: char| {
        c.is_whitespace() || c.is_ascii_digit() || matches!(c, '-' | '>' | '|' | '│')
    });
    const ALWAYS: [&str; 12] = [
        "elif ",
        "except ",
        "except:",
        "assert ",
        "def ",
        "return ",
        "import ",
        "class ",
        "logger.",
        "logging.",
        "warnings.",
        "//",
    ];
    // Sentences begin so, too.
    const MOSTLY: [&str; 9] = ["if ", "else", "from ", "with ", "for ", "while ", "print(", "catch", "self."];
    let starts = |starts: &[&str]| starts.iter().any(|start| code.starts_with(start));
    starts(&ALWAYS)
        || starts(&MOSTLY) && !code.contains("rror: ")
        || code.starts_with("# ") && code.contains('(')
}

/// A complaint about a name, which may be one of these.
fn is_of_a_name(line: &str) -> bool {
    has(
        line,
        &[
            "has no attribute",
            "cannot import name",
            "is not defined",
            "No module named",
            "No such file",
            "KeyError: '",
        ],
    )
}

/// A line of a list of tests, or of a history, that has the words in a name.
fn is_a_test(line: &str) -> bool {
    let failed = has(line, &["FAILED", "ERROR", "rror:"]);
    let commit = line.split(' ').next().is_some_and(|word| {
        (7..=40).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_hexdigit())
            && word.bytes().any(|b| b.is_ascii_digit())
    });
    !failed && (commit || has(line, &["test_", "PASSED", " ... ok", "tests::"]))
}

/// The words of a line in lower case, with where they stand and what stands before them.
struct Words<'l> {
    list: Vec<Word>,
    line: &'l str,
}

/// A word in lower case, and where it stands.
struct Word {
    from: usize,
    end: usize,
    text: String,
}

/// The words that say it.
struct Phrase {
    from: usize,
    to: usize,
    kind: Option<Kind>,
}

const MEMORY: &[&str] = &["memory", "vram", "ram", "mem", "hbm"];
const DEVICE: &[&str] = &[
    "cuda", "gpu", "gpus", "vram", "hip", "device", "vulkan", "metal", "mps", "npu", "xpu", "tpu", "hbm",
    "dml", "directml", "graphics", "video", "opencl", "rocm", "aclrt", "rtmalloc", "sycl", "cublas", "cudnn",
    "hpu", "neuron", "tensorrt", "trt", "webgpu", "wgpu", "d3d12",
];
const HOST: &[&str] = &[
    "host",
    "cpu",
    "system",
    "ram",
    "swap",
    "malloc",
    "calloc",
    "realloc",
    "mmap",
    "memoryerror",
    "enomem",
    "fork",
    "heap",
    "numpy",
];
/// What is allocated of memory, and of nothing else.
const OBJECTS: &[&str] = &[
    "memory",
    "mem",
    "bytes",
    "byte",
    "buffer",
    "buffers",
    "tensor",
    "tensors",
    "array",
    "arrays",
    "arraybuffer",
    "heap",
    "device",
    "gpu",
    "vram",
    "ram",
    "workspace",
    "arena",
    "cache",
    "weights",
    "block",
    "blocks",
    "pages",
    "chunk",
    "matrix",
    "vector",
    "texture",
    "scratch",
    "space",
    "cuda",
    "hip",
    "storage",
    "segment",
    "pool",
    "vec",
];
/// What else is allocated, by other systems.
const OTHERWISE: &[&str] = &[
    "port",
    "ports",
    "ip",
    "ipv4",
    "license",
    "tty",
    "pty",
    "terminal",
    "instance",
    "instances",
    "quota",
    "subnet",
    "loopback",
    "node",
    "nodes",
    "disk",
    "inode",
];

impl Words<'_> {
    fn of(line: &str) -> Words<'_> {
        let mut list = Vec::new();
        let mut start = None;
        for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
            match (c.is_alphanumeric() || c == '\'', start) {
                (true, None) => start = Some(at),
                (false, Some(from)) => {
                    let text = line[from..at].trim_matches('\'').to_lowercase();
                    list.push(Word { from, end: at, text });
                    start = None;
                }
                _ => {}
            }
        }
        Words { list, line }
    }

    fn is(&self, at: usize, words: &[&str]) -> bool {
        self.list.get(at).is_some_and(|word| words.contains(&word.text.as_str()))
    }

    fn starts(&self, at: usize, starts: &[&str]) -> bool {
        self.list.get(at).is_some_and(|word| starts.iter().any(|start| word.text.starts_with(start)))
    }

    /// The first word from `from` on, at most `far` words ahead, that is one of some.
    fn ahead(&self, from: usize, far: usize, words: &[&str]) -> Option<usize> {
        (from..from + far).find(|&at| self.is(at, words))
    }

    /// Whether a word is a part of a path, which says where something is and not what it is.
    fn in_path(&self, at: usize) -> bool {
        let word = &self.list[at];
        let before = self.line[..word.from].chars().next_back();
        let after = self.line[word.end..].chars().next();
        [before, after].iter().any(|c| matches!(c, Some('/' | '\\')))
    }

    fn phrase(&self) -> Option<Phrase> {
        let named = |at: usize| {
            // The words may be a file's name or an option.
            let before = &self.line[..self.list[at].from];
            self.in_path(at) || before.ends_with("--") || before.ends_with("-XX:+")
        };
        (0..self.list.len()).filter(|&at| !named(at)).filter_map(|at| self.phrase_at(at)).find(|phrase| {
            // One sentence says it, or nothing does.
            let said = &self.line[self.list[phrase.from].from..self.list[phrase.to].end];
            !said.contains([':', ';', '"', '`', '\\', '|']) && !said.contains(". ")
        })
    }

    fn phrase_at(&self, at: usize) -> Option<Phrase> {
        let word = self.list[at].text.as_str();
        let whole = |to, kind| Some(Phrase { from: at, to, kind });
        let between = |from: usize, to: usize| {
            let any = |words| (from..=to).any(|at| self.is(at, words));
            let host = any(&["host", "cpu", "system", "ram", "swap"]);
            let device = any(&["gpu", "device", "vram", "video", "cuda", "hbm", "npu", "graphics"]);
            match (host, device) {
                (true, true) => Some(Kind::Unsaid),
                (true, false) => Some(Kind::Host),
                (false, true) => Some(Kind::Device),
                (false, false) => None,
            }
        };
        // `out of (device) memory`, and as one word of a class.
        if word == "out"
            && self.is(at + 1, &["of"])
            && self.is(at + 2, DEVICE)
            && self.starts(at + 3, &["resource"])
        {
            return whole(at + 3, Some(Kind::Device));
        }
        if word == "out" && self.is(at + 1, &["of"]) {
            let to = self.ahead(at + 2, 6, MEMORY)?;
            let measured = (at + 2..to).any(|at| {
                self.starts(at, &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "the", "total"])
            });
            return if measured { None } else { whole(to, between(at + 2, to)) };
        }
        if let Some((before, rest)) = word.split_once("outof")
            && rest.contains("memory")
            && !before.ends_with("on")
        {
            let kind = if rest.contains("host") {
                Some(Kind::Host)
            } else {
                rest.contains("device").then_some(Kind::Device)
            };
            return whole(at, kind);
        }
        // `not enough (free) memory`, `insufficient GPU memory`, `no memory is available`.
        let denied = (at > 0 && self.is(at - 1, &["not", "no", "n't", "doesn't", "isn't"]))
            || (at > 1 && self.is(at - 2, &["not", "doesn't", "don't", "didn't", "isn't"]));
        let lack = word.ends_with("sufficient") && word.starts_with("in")
            || word == "insuficient"
            || word == "enough" && denied
            || word == "lack";
        if lack {
            let from = if word == "enough" { at.saturating_sub(1) } else { at };
            if let Some(to) = self.ahead(at + 1, 5, MEMORY) {
                return Some(Phrase { from, to, kind: between(at, to) });
            }
            let before = (at.saturating_sub(4)..at).find(|&at| self.is(at, MEMORY))?;
            return Some(Phrase { from: before, to: at, kind: between(before.saturating_sub(1), at) });
        }
        if word == "no" {
            let to = self.ahead(at + 1, 3, MEMORY)?;
            let available = ["available", "free", "more", "remaining", "left", "room"];
            return if self.ahead(at + 1, 5, &available).is_some() {
                whole(to, between(at, to))
            } else {
                None
            };
        }
        // `memory exhausted`, `memory limit exceeded`.
        if MEMORY.contains(&word) {
            let to = (at + 1..at + 4)
                .find(|&at| self.starts(at, &["exhaust", "deplet"]) || self.is(at, &["exceeded"]))?;
            return whole(to, between(at.saturating_sub(1), at));
        }
        if word.starts_with("exceed") && self.has_figure() {
            let to = self
                .ahead(at + 1, 8, MEMORY)
                .or_else(|| self.ahead(at + 1, 3, &["array", "buffer", "heap", "allocation"]))?;
            return whole(to, between(at, to));
        }
        if word == "than"
            && self.is(at.wrapping_sub(1), &["more", "larger", "greater", "bigger", "higher"])
            && self.has_figure()
        {
            let to = self.ahead(at + 1, 5, MEMORY)?;
            return whole(to, between(at, to));
        }
        // `failed to allocate`, `allocation failed`, `malloc error`.
        if self.refuses(at) {
            let to = (at + 1..at + 7).find(|&at| self.allocates(at))?;
            return if self.is_of_memory(to) { whole(to, None) } else { None };
        }
        if self.allocates(at) {
            let to = (at + 1..at + 5).find(|&at| self.refuses(at) || self.starts(at, &["error"]))?;
            return if self.is_of_memory(at) { whole(to, None) } else { None };
        }
        // `killed due to memory pressure`, `evicted because of low memory`.
        if self.starts(at, &["kill", "evict", "terminat", "reaped", "restarted"])
            && let Some(because) =
                self.ahead(at + 1, 6, &["due", "because", "exceeding", "exceeded", "over", "as", "since"])
        {
            let to = (because + 1..because + 10).find(|&at| self.is(at, MEMORY) || self.is(at, &["oom"]))?;
            return whole(to, Some(Kind::Ended));
        }
        if word == "bad" && self.starts(at + 1, &["alloc"]) || word == "badalloc" {
            return whole(at, None);
        }
        // TensorFlow's class; of quotas it is called otherwise.
        if word.starts_with("resourceexhaustederror") {
            return whole(at, None);
        }
        if word == "enomem" || word.ends_with("memoryerror") && !word.contains("outof") {
            return whole(at, Some(Kind::Host).filter(|_| !self.has_device()));
        }
        let event =
            ["error", "errors", "killed", "kill", "crash", "crashed", "exception", "event", "failure"];
        let oom = word == "oom"
            && (self.ahead(at + 1, 2, &event).is_some()
                || at > 0 && self.is(at - 1, &["got", "hit", "cuda", "gpu"]));
        if oom { whole(at, None) } else { None }
    }

    fn refuses(&self, at: usize) -> bool {
        self.starts(at, &["fail", "unable", "cannot", "can't", "couldn't", "impossible", "unsuccessful"])
            || self.is(at, &["not"]) && at > 0 && self.is(at - 1, &["can", "could"])
            || self.is(at, &["be"]) && at > 0 && self.is(at - 1, &["not"])
    }

    fn allocates(&self, at: usize) -> bool {
        self.list.get(at).is_some_and(|word| word.text.contains("alloc") && !word.text.contains("allocator"))
    }

    /// Whether what is allocated at a word is memory.
    fn is_of_memory(&self, at: usize) -> bool {
        let any = |words: &[&str]| (0..self.list.len()).any(|at| self.is(at, words));
        let itself = self.list[at].text.contains("malloc");
        (itself || any(OBJECTS) || self.has_figure()) && !any(OTHERWISE)
    }

    fn has_figure(&self) -> bool {
        super::figures::read(self.line, 0).any()
    }

    fn has_device(&self) -> bool {
        (0..self.list.len())
            .any(|at| !self.in_path(at) && (self.is(at, DEVICE) || self.starts(at, &["cuda", "hip", "rmm"])))
    }

    /// What the other words of the line say that ran out.
    fn kind(&self) -> Kind {
        let host = (0..self.list.len()).any(|at| !self.in_path(at) && self.is(at, HOST));
        let bad = (0..self.list.len()).any(|at| self.is(at, &["bad"]) && self.starts(at + 1, &["alloc"]));
        match () {
            () if self.has_device() => Kind::Device,
            () if host || bad => Kind::Host,
            () => Kind::Unsaid,
        }
    }

    /// How the line means it; `None` if it tells of no failure at all.
    fn tone(&self, from: usize, to: usize, line: &str) -> Option<Tone> {
        // Only words of the same sentence say how it is meant.
        let position = self.list[from].from;
        let sentence = [". ", "! ", "? ", "; ", ": ", "\" "]
            .iter()
            .filter_map(|end| line[..position].rfind(end))
            .max()
            .unwrap_or(0);
        let before: Vec<usize> = (0..from).filter(|&at| self.list[at].from >= sentence).collect();
        let any = |words: &[&str]| before.iter().any(|&at| self.is(at, words));
        let begins = |starts: &[&str]| before.iter().any(|&at| self.starts(at, starts));
        let because = any(&["caused", "due", "because", "cause"]);
        let advice = begins(&["avoid", "prevent", "simulat", "handl", "reduc", "mitigat", "resolv"])
            || any(&[
                "fix", "fixes", "fixed", "if", "unless", "whether", "case", "how", "without", "risk",
                "should", "would", "never", "hint", "retry",
            ]);
        let perhaps = any(&["may", "might", "could", "can", "likely", "sometimes"]) && !self.refuses(from);
        let after = (to + 1..to + 3).any(|at| {
            self.is(
                at,
                &[
                    "may",
                    "might",
                    "can",
                    "could",
                    "handling",
                    "handler",
                    "prevention",
                    "protection",
                    "score",
                    "adj",
                ],
            )
        });
        if advice || (perhaps || after) && !because {
            return None;
        }
        let goes_on = [
            "retrying",
            "will retry",
            "trying again",
            "alling back",
            "fallback",
            "attempting to free",
            "kipping",
            "not a failure",
        ];
        let warns = has(line, &["warn", "Warn", "WARN", "[W]", ": W ", " W tensorflow"]);
        let goes_on = has(line, &goes_on);
        // A notebook's heading names the error; what it says stands at the end.
        if line.contains("Traceback (most recent") {
            return Some(Tone::Plain);
        }
        let error = has(
            line,
            &[
                "rror", "ERROR", " err", "fail", "Fail", "FAIL", "xception", "FATAL", "fatal", "Fatal",
                "ritical", "CRITICAL", "abort", "Abort", "[E]", ": E ", "panic", "nable to", "cannot",
                "Cannot", "ould not", "OOM",
            ],
        );
        if (warns || goes_on) && !has(line, &["ERROR", "rror:"]) {
            // A warning alone tells neither that it failed nor that it did not.
            return goes_on.then_some(Tone::Warning);
        }
        // People write sentences, too; programs are brief.
        let brief = self.list.len() <= 24;
        if error { Some(Tone::Error) } else { brief.then_some(Tone::Plain) }
    }
}
