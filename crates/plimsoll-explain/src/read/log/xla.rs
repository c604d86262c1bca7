//! What TensorFlow, JAX and XLA say of memory on a line of their own: the pool they set up, the error that
//! reached the program, the buffers XLA planned, the figures a program printed. Often the dump is not in the
//! log at all, because it is written at a level that is switched off.

use super::parse::{Size, after, index_in, number, short, size, size_after, word};
use plimsoll_memory::Frame;
use std::collections::BTreeMap;

/// Entries of the lists below that are kept.
const MOST: usize = 1 << 14;

/// Words that tell JAX, the first four, from TensorFlow.
pub(super) const FRAMEWORKS: [&str; 9] = [
    "jax",
    "PJRT",
    "pjrt",
    "xla/python/",
    "import tensorflow",
    "tensorflow.python",
    "tensorflow/core/framework/op_kernel",
    "/tensorflow/python/",
    "Created TensorFlow device",
];
const OF_JAX: usize = 4;

/// The error that reached the program.
#[derive(Debug, Clone)]
pub(super) struct Exhausted {
    pub(super) asked: Size,
    /// Elements of the tensor, where its type is not told.
    pub(super) elements: Option<u64>,
    pub(super) allocator: Option<String>,
    pub(super) device: Option<u32>,
    pub(super) op: Option<String>,
    pub(super) at: u64,
}

/// `memory_stats()` of a JAX device, as printed.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryStats {
    pub(super) live: Option<u64>,
    pub(super) peak: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) pool: Option<u64>,
    pub(super) largest_free: Option<u64>,
}

/// A buffer or a tensor and who made it.
#[derive(Debug, Clone)]
pub(super) struct ListedBuffer {
    pub(super) frame: Frame,
    pub(super) bytes: u64,
}

/// Which list the lines that follow belong to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ListUnderWay {
    #[default]
    None,
    /// XLA's buffers at the peak of one program.
    Buffers,
    /// TensorFlow's tensors in use.
    Usage,
}

/// What a log says outside of dumps.
#[derive(Debug, Default)]
pub(super) struct RuntimeMessages {
    pub(super) jax: bool,
    pub(super) tensorflow: bool,
    /// The pool of each device: its bytes, and whether all of it was taken at the start.
    pub(super) pools: BTreeMap<u32, (Size, bool)>,
    pub(super) capacity: Option<Size>,
    pub(super) stats: Option<MemoryStats>,
    pub(super) exhausted: Option<Exhausted>,
    /// A request for the pool itself that the device refused. The program may have gone on with less.
    pub(super) driver: Option<Exhausted>,
    /// Whether that was logged as an error, as it was until TensorFlow 2.1.
    pub(super) driver_is_error: bool,
    /// The least that the device refused so.
    pub(super) driver_least: Option<u64>,
    /// A request that the program could do without, and where it was logged.
    pub(super) not_a_failure: Option<(String, u64)>,
    /// An error that does not say what was requested, and where it was logged.
    pub(super) without_size: Option<(String, u64)>,
    /// What the program that failed needs in all, by XLA's buffer assignment.
    pub(super) program_bytes: Option<u64>,
    /// What XLA's program would hold at its peak.
    pub(super) buffers: Vec<ListedBuffer>,
    /// What was in use, by op.
    pub(super) usage: Vec<ListedBuffer>,
    list: ListUnderWay,
    lines_since: u32,
}

impl RuntimeMessages {
    /// Takes a line outside of a dump.
    pub(super) fn line(&mut self, line: &str, at: u64) {
        self.pool(line);
        self.figures(line);
        self.error(line, at);
        self.lists(line, at);
    }

    /// Takes note that one of [`FRAMEWORKS`] occurs, by its number.
    pub(super) fn names(&mut self, word: usize) {
        self.jax |= word < OF_JAX;
        self.tensorflow |= word >= OF_JAX;
    }

    /// Whether the lines that come belong to a list.
    pub(super) fn is_listing(&self) -> bool {
        self.list != ListUnderWay::None
    }

    /// Counts a line that says nothing.
    pub(super) fn pass(&mut self) {
        self.lines_since = self.lines_since.saturating_add(1);
    }

    /// Takes note of whose source file wrote a line of a dump.
    pub(super) fn written_by(&mut self, line: &str) {
        self.jax |= line.contains("xla.execute") || line.contains("external/org_tensorflow/");
        self.tensorflow |= line.contains(" tensorflow/core/common_runtime/")
            || line.contains(" tensorflow/tsl/")
            || line.contains("external/local_");
    }

    fn pool(&mut self, line: &str) {
        let Some(device) = index_after(line, " on device ") else { return self.tensorflow_pool(line) };
        // Collectives have a pool of their own, which takes nothing until it is used.
        if !line.contains(" for BFCAllocator") {
            return;
        }
        let taken = after(line, "XLA backend allocating ");
        let rest = taken.or_else(|| after(line, "XLA backend will use up to "));
        let Some((human, rest)) = rest.and_then(size) else { return };
        let exact = rest.trim_start().strip_prefix('(').and_then(size).map(|(size, _)| size);
        self.keep_pool(device, exact.unwrap_or(human), taken.is_some());
    }

    fn tensorflow_pool(&mut self, line: &str) {
        if let Some(total) = size_after(line, "totalMemory: ").or_else(|| size_after(line, "Total memory: "))
        {
            self.capacity = Some(total);
        }
        if !(line.contains("Created TensorFlow device") || line.contains("Created device ")) {
            return;
        }
        self.tensorflow = true;
        let device = after(line, "device:GPU:").and_then(number).and_then(|n| u32::try_from(n).ok());
        if let (Some(device), Some(limit)) = (device, size_after(line, " with ")) {
            // Printed in whole MiB; whether it is taken at once is not told.
            self.pools.entry(device).or_insert((Size { exact: false, ..limit }, false));
        }
    }

    fn keep_pool(&mut self, device: u32, bytes: Size, taken: bool) {
        if self.pools.len() < 256 {
            self.pools.insert(device, (bytes, taken));
        }
    }

    fn figures(&mut self, line: &str) {
        let figure = |name: &str| {
            let quoted =
                after(line, &format!("'{name}': ")).or_else(|| after(line, &format!("\"{name}\": ")));
            quoted.and_then(number)
        };
        if !line.contains("bytes_in_use") {
            return;
        }
        let live = figure("bytes_in_use");
        if live.is_some() {
            self.stats = Some(MemoryStats {
                live,
                peak: figure("peak_bytes_in_use"),
                limit: figure("bytes_limit"),
                pool: figure("pool_bytes"),
                largest_free: figure("largest_free_block_bytes"),
            });
        }
    }

    /// What a TPU's compiler and CUDA's driver say. Neither knows of a pool.
    fn device_error(&mut self, line: &str, at: u64) {
        let exhausted =
            |asked| Exhausted { asked, elements: None, allocator: None, device: None, op: None, at };
        let wrote = is_of_a_pool(line);
        if wrote {
            self.tensorflow |= !line.contains("external/") && line.contains("tensorflow/");
            // Without its head a line does not say how grave it is.
            self.driver_is_error |= line.contains(": E ") || line.starts_with('E') || !line.contains(".cc:");
            let least = size_after(line, "failed to allocate ").map(|size| size.bytes);
            self.driver_least =
                self.driver_least.map_or(least, |known| Some(known.min(least.unwrap_or(known))));
        }
        if let Some((used, rest)) = after(line, "out of memory in memory space hbm. Used ").and_then(size) {
            self.capacity = size_after(rest, " of ");
            self.exhausted = Some(Exhausted { allocator: Some("TPU hbm".into()), ..exhausted(used) });
        } else if wrote && self.driver.is_none() {
            // Asked again and again for less and less: the first is what was wanted.
            let asked = after(line, "failed to allocate ").and_then(size);
            let exact = asked.and_then(|(_, rest)| rest.trim_start().strip_prefix('(').and_then(size));
            self.driver = exact.or(asked).map(|(size, _)| exhausted(size));
        }
    }

    fn error(&mut self, line: &str, at: u64) {
        self.device_error(line, at);
        if line.contains("this is not a failure") || line.contains("Garbage collection: ") {
            self.not_a_failure.get_or_insert_with(|| (short(line.trim()), at));
            self.tensorflow |= line.contains("tensorflow/");
            return;
        }
        // Others say the same of the host's memory.
        let ours = ["[Op:", "xhausted", "EXHAUSTED", "function_node", "{{node", "tensorflow", "jax", "xla"];
        if line.contains("failed to allocate memory") && ours.iter().any(|words| line.contains(words)) {
            self.without_size.get_or_insert_with(|| (short(line.trim()), at));
        }
        if let Some(all) = size_after(line, "total allocation:") {
            self.program_bytes = Some(all.bytes);
        }
        if let Some(elements) = after(line, "OOM when allocating tensor with shapedim").and_then(dims) {
            // TensorFlow until 0.6.
            self.tensorflow = true;
            let asked = Size { bytes: 0, exact: false };
            let elements = Some(elements);
            self.exhausted = Some(Exhausted { asked, elements, allocator: None, device: None, op: None, at });
            self.lines_since = 0;
            return;
        }
        if let Some(rest) = after(line, "OOM when allocating tensor with shape[") {
            self.tensorflow = true;
            let Some((elements, rest)) = shape(rest) else { return };
            let element = after(rest, "and type ").and_then(|rest| element_bytes(word(rest)));
            let asked = element.and_then(|bytes| elements.checked_mul(bytes));
            let device = after(rest, "device:GPU:").and_then(number).and_then(|n| u32::try_from(n).ok());
            let allocator = after(rest, "by allocator ").map(|rest| short(word(rest)));
            let op = after(rest, "[Op:").map(|rest| short(word(rest)));
            self.exhausted = Some(Exhausted {
                asked: Size { bytes: asked.unwrap_or(0), exact: asked.is_some() },
                elements: asked.is_none().then_some(elements),
                device: device.or_else(|| allocator.as_deref().and_then(index_in)),
                allocator,
                op,
                at,
            });
            self.lines_since = 0;
            return;
        }
        const REFUSALS: [&str; 6] = [
            "ut of memory while trying to allocate ",
            "RESOURCE_EXHAUSTED: Out of memory allocating ",
            "Failed to allocate request for ",
            "INTERNAL: Failed to allocate ",
            "esource exhausted: Out of memory allocating ",
            "ut of memory trying to allocate ",
        ];
        let refused = REFUSALS.iter().find_map(|words| after(line, words)).and_then(size);
        if let Some((asked, rest)) = refused {
            // `3.00GiB (3221225472B)` is told twice.
            let again = rest.trim_start().strip_prefix('(').and_then(size).map(|(size, _)| size);
            let asked = again.filter(|again| again.exact && asked.may_be(again.bytes)).unwrap_or(asked);
            let allocator = after(rest, "with allocator ").map(|rest| short(word(rest)));
            let op = after(rest, "[executable_name='").map(|rest| short(word(rest)));
            let op = op.filter(|op| !op.is_empty());
            // The same error is logged by the runtime and raised in the program, at times in other words.
            let known = self.exhausted.take().filter(|known| known.asked.may_be(asked.bytes));
            self.exhausted = Some(Exhausted {
                asked: known.as_ref().map_or(asked, |known| if asked.exact { asked } else { known.asked }),
                elements: None,
                device: index_after(rest, " on device ")
                    .or_else(|| index_after(rest, " on device ordinal "))
                    .or(known.as_ref().and_then(|known| known.device)),
                allocator: allocator.or_else(|| known.as_ref()?.allocator.clone()),
                op: op.or_else(|| known.as_ref()?.op.clone()),
                at,
            });
            self.lines_since = 0;
            return;
        }
        // TensorFlow names the op a line or two below.
        self.lines_since = self.lines_since.saturating_add(1);
        if let Some(exhausted) = &mut self.exhausted
            && exhausted.op.is_none()
            && self.lines_since <= 64
        {
            let node = after(line, "{{node ").map(|rest| rest.split('}').next().unwrap_or(rest));
            let node = node
                .or_else(|| after(line, "[[node ").map(word))
                .or_else(|| after(line, "[[Node: ").map(word));
            let node = node.or_else(|| after(line, "[Op:").map(word));
            exhausted.op = node.map(|name| short(name.trim())).filter(|name| !name.is_empty());
        }
    }

    fn lists(&mut self, line: &str, at: u64) {
        // Buffers are listed when a program's memory was refused; what comes before may be lost.
        if line.trim_start().starts_with("XLA Label: ") && self.list != ListUnderWay::Buffers {
            self.list = ListUnderWay::Buffers;
            self.without_size.get_or_insert_with(|| (short(line.trim()), at));
        }
        if line.contains("Peak buffers:") {
            self.list = ListUnderWay::Buffers;
            self.buffers.clear();
        } else if line.contains("Current usage from device:") {
            self.list = ListUnderWay::Usage;
            self.usage.clear();
        } else if self.list == ListUnderWay::Buffers {
            self.buffer(line);
        } else if self.list == ListUnderWay::Usage {
            match line.split_once(" from ").map(|(before, name)| (size(before), name)) {
                Some((Some((held, rest)), name)) if rest.trim().is_empty() && self.usage.len() < MOST => {
                    let frame = Frame { name: short(name.trim()), ..Frame::default() };
                    self.usage.push(ListedBuffer { frame, bytes: held.bytes });
                }
                _ if line.trim().is_empty() || line.contains("Remaining ") => {}
                _ => self.list = ListUnderWay::None,
            }
        }
    }

    fn buffer(&mut self, line: &str) {
        let text = line.trim_start();
        if text.starts_with("Buffer ") && self.buffers.len() < MOST {
            self.buffers.push(ListedBuffer { frame: Frame::default(), bytes: 0 });
            return;
        }
        let Some(buffer) = self.buffers.last_mut() else { return };
        if let Some((held, _)) = text.strip_prefix("Size: ").and_then(size) {
            buffer.bytes = held.bytes;
        } else if text.starts_with("Operator: ") {
            let quoted = |name: &str| after(text, name).and_then(|rest| rest.split('"').next()).map(short);
            buffer.frame.name = quoted("op_name=\"").unwrap_or_default();
            buffer.frame.file = quoted("source_file=\"").unwrap_or_default();
            let line = after(text, "source_line=").and_then(number).and_then(|n| n.try_into().ok());
            buffer.frame.line = line.unwrap_or(0);
        } else if let Some(label) = text.strip_prefix("XLA Label: ") {
            if buffer.frame.name.is_empty() {
                buffer.frame.name = short(label.trim());
            }
        } else if text.starts_with("Entry Parameter Subshape:") {
            buffer.frame.name = "program parameter".into();
        } else if let Some((elements, element)) = text.strip_prefix("Shape: ").and_then(typed_shape) {
            // The size was rounded for print; the shape gives it to the byte where they agree.
            let exact = elements.checked_mul(element).unwrap_or(0);
            if (Size { bytes: buffer.bytes, exact: false }).may_be(exact) {
                buffer.bytes = exact;
            }
        }
    }
}

/// Whether CUDA's or HIP's driver refuses a share of the device to the pool: `failed to allocate 2.12G (2282521344 bytes) from
/// device: CUDA_ERROR_OUT_OF_MEMORY`, `HIP_ERROR_OutOfMemory` or a number.
pub(super) fn is_of_a_pool(line: &str) -> bool {
    let told = ["CUDA_ERROR_OUT_OF_MEMORY", "HIP_ERROR_OutOfMemory", "hipErrorOutOfMemory", "hipError_t("];
    line.contains("failed to allocate ") && told.iter().any(|told| line.contains(told))
}

fn index_after(text: &str, marker: &str) -> Option<u32> {
    after(text, marker).and_then(number)?.try_into().ok()
}

/// The product of the dimensions in `{ size: 64 } dim { size: 8 }`.
fn dims(text: &str) -> Option<u64> {
    let mut sizes = text.split("size: ").skip(1).map(number).peekable();
    sizes.peek()?;
    sizes.try_fold(1_u64, |elements, size| elements.checked_mul(size?))
}

/// The product of the dimensions before `]`, and the text behind it.
fn shape(text: &str) -> Option<(u64, &str)> {
    let (inside, rest) = text.split_once(']')?;
    let mut elements = 1_u64;
    for dimension in inside.split(',').map(str::trim).filter(|d| !d.is_empty()) {
        elements = elements.checked_mul(dimension.parse().ok()?)?;
    }
    Some((elements, rest))
}

/// Elements and bytes of each in an XLA shape such as `bf16[128,6,256]`.
fn typed_shape(text: &str) -> Option<(u64, u64)> {
    let (name, rest) = text.split_once('[')?;
    let element = match name.trim() {
        "pred" | "s8" | "u8" => 1,
        name if name.starts_with("f8") => 1,
        "bf16" | "f16" | "s16" | "u16" => 2,
        "f32" | "s32" | "u32" => 4,
        "f64" | "s64" | "u64" | "c64" => 8,
        "c128" => 16,
        _ => return None,
    };
    shape(rest).map(|(elements, _)| (elements, element))
}

/// Bytes of an element of a TensorFlow type.
fn element_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" => 1,
        "half" | "bfloat16" | "int16" | "uint16" | "qint16" | "quint16" => 2,
        "float" | "int32" | "uint32" | "qint32" => 4,
        "double" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}
