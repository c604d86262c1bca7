//! Advice on what only words tell: no trace was recorded, so nothing can be replayed and no effect is claimed.
//!
//! It goes by what the job is, and by settings that exist for the framework, its version and the platform. Each line has
//! its reason. Where who held the memory is not known, the first line is the command that shows it.

mod host;

use super::argued;
use crate::analyse::facts::Facts;
use crate::explanation::{Advice, VerdictKind};
use crate::program::{Backend, Job, Platform, Server, buffers};
use crate::recording::Framework;
use crate::sign::{Sign, SignKind};
use plimsoll_memory::{format_bytes, quoted};

/// Lines of change and reason.
type Lines = Vec<(String, String)>;

fn line(change: impl Into<String>, because: impl Into<String>) -> (String, String) {
    (change.into(), because.into())
}

fn told(lines: Lines) -> Vec<Advice> {
    lines.into_iter().map(|(change, because)| argued(change, None, None, because)).collect()
}

/// What to change where a text tells what is wrong.
pub(crate) fn advice(facts: &Facts<'_>, kind: VerdictKind) -> Vec<Advice> {
    let sign = facts.device.sign.as_ref();
    told(match kind {
        VerdictKind::HostMemory => {
            sign.map_or_else(|| host::request(facts), |sign| host::advice(facts, sign))
        }
        VerdictKind::NotMemory => not_memory(sign.map_or(SignKind::CorruptedSize, |sign| sign.kind), facts),
        VerdictKind::RefusedWithRoom => refused_with_room(facts, sign),
        VerdictKind::Full if sign.is_some_and(|sign| sign.kind == SignKind::NoContext) => look(facts),
        VerdictKind::Full if sign.is_some_and(|sign| sign.kind == SignKind::Unspecified) => {
            look_everywhere(facts)
        }
        VerdictKind::Full => look(facts).into_iter().chain(smaller(facts)).collect(),
        VerdictKind::LimitLow => sign.map_or_else(Vec::new, |_| limits(facts)),
        VerdictKind::OtherProcess => sign.map_or_else(Vec::new, |sign| others(facts, sign)),
        _ => Vec::new(),
    })
}

/// Work made smaller, by what the job is.
pub(crate) fn smaller_work(facts: &Facts<'_>) -> Vec<Advice> {
    told(smaller(facts))
}

/// What the program that ran out advises itself, and the commands that show what ran out.
fn look_everywhere(facts: &Facts<'_>) -> Lines {
    let program = &facts.device.program;
    let device = match (program.backend, program.platform) {
        (None, Some(Platform::MacOs)) => String::new(),
        (None, _) => ", and `nvidia-smi` (or the tool of your device's vendor),".into(),
        _ => format!(", and {},", program.process_list()),
    };
    let mut lines = own_words(facts);
    lines.push(line(
        format!("look at {}{device} while the program runs", host::table(program)),
        "they tell whether the host or the device runs full, and who holds it",
    ));
    lines.extend(one_tensor(facts));
    lines.push(line(
        format!("look at {}, and at the lines of the log above this one", host::records(program)),
        "they may say which request was refused",
    ));
    lines
}

/// The advice that stands in the message itself: who wrote it knows the program's settings.
fn own_words(facts: &Facts<'_>) -> Lines {
    const STARTS: [&str; 10] = [
        "Please ",
        "please ",
        "Try ",
        "try ",
        "Consider ",
        "You need to ",
        "You can ",
        "Increase ",
        "Reduce ",
        "Decrease ",
    ];
    let Some(sign) = &facts.device.sign else { return Vec::new() };
    let start = STARTS.iter().filter_map(|start| sign.quote.find(start)).min();
    let Some(words) = start.map(|start| &sign.quote[start..]) else { return Vec::new() };
    let end = [". ", "\n", "; "].iter().filter_map(|end| words.find(end)).min().unwrap_or(words.len());
    let words = words[..end].trim_end_matches(['.', '`', '"', '\'', ' ']);
    if words.split(' ').count() < 3 {
        return Vec::new();
    }
    vec![line(
        format!("the message itself says: {}", quoted(words)),
        "who wrote it knows this program's settings",
    )]
}

/// The commands that show who holds the device.
fn look(facts: &Facts<'_>) -> Lines {
    let shows = "it lists each process and what it holds; end what is left over from earlier runs";
    let backend = facts.device.program.backend;
    let mut lines = Vec::new();
    let kind = facts.device.sign.as_ref().map(|sign| sign.kind);
    // A pool that takes nearly all at its start leaves libraries nothing for their handles.
    let taken = kind == Some(SignKind::LibraryFull)
        && matches!(facts.framework, Framework::TensorFlow | Framework::Jax | Framework::TensorFlowOrJax);
    if kind == Some(SignKind::Reservation) || taken {
        let change = match facts.framework {
            Framework::Jax => "XLA_PYTHON_CLIENT_PREALLOCATE=false",
            Framework::Paddle => {
                "FLAGS_fraction_of_gpu_memory_to_use=0.5 or less (it was 0.92), or from Paddle 1.6 on FLAGS_allocator_strategy=auto_growth"
            }
            Framework::TensorFlow if facts.device.program.is_at_least((2, 0)) => {
                "tf.config.experimental.set_memory_growth(gpu, True) for each device"
            }
            Framework::TensorFlowOrJax => {
                "config.gpu_options.allow_growth = True (TensorFlow 2: tf.config.experimental.set_memory_growth; JAX: \
                 XLA_PYTHON_CLIENT_PREALLOCATE=false)"
            }
            _ => {
                "config.gpu_options.allow_growth = True (TensorFlow 2: tf.config.experimental.set_memory_growth)"
            }
        };
        lines.push(line(
            change,
            "the pool then takes what it needs, instead of nearly all that seems free at the start",
        ));
    }
    let list = facts.device.program.process_list();
    lines.push(match backend {
        Some(Backend::Tpu) => line(
            "print `jax.local_devices()[0].memory_stats()` before the failing step",
            "it tells how much is in use already",
        ),
        _ if facts.framework == Framework::OnnxRuntime => {
            line(format!("run {list} (with the CPU provider: `free -h`) while the program runs"), shows)
        }
        _ if list.starts_with('`') => line(format!("run {list} while the program runs"), shows),
        _ => line(format!("look into {list} while the program runs"), shows),
    });
    lines.extend(match facts.framework {
        Framework::PyTorch if facts.device.program.is_before((2, 1)) => None,
        Framework::PyTorch if matches!(backend, None | Some(Backend::Cuda | Backend::Hip)) => Some(line(
            "record what the program holds: torch.cuda.memory._record_memory_history() at the start, \
             torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") when it fails (PyTorch 2.1 or newer)",
            "`plimsoll explain snapshot.pickle` then tells which lines hold it",
        )),
        Framework::Jax => Some(line(
            "write jax.profiler.save_device_memory_profile(\"memory.prof\") before the failing step",
            "`plimsoll explain memory.prof` then tells which lines hold it",
        )),
        Framework::TensorFlow if facts.device.program.is_before((2, 0)) => Some(line(
            "pass tf.RunOptions(report_tensor_allocations_upon_oom=True) to session.run",
            "the error then lists which ops hold the memory",
        )),
        Framework::TensorFlow | Framework::TensorFlowOrJax => Some(line(
            "run with TF_CPP_MIN_LOG_LEVEL=0 and keep the whole log",
            "the allocator's dump in it tells what the pool holds",
        )),
        _ => None,
    });
    lines
}

/// Work made smaller, by what the job is.
fn smaller(facts: &Facts<'_>) -> Lines {
    let program = &facts.device.program;
    let says = |words: &[&str]| {
        facts.device.sign.as_ref().is_some_and(|sign| words.iter().any(|words| sign.quote.contains(words)))
    };
    if says(&["quantized model"]) {
        return vec![
            line(
                "run `nvidia-smi` and end what else holds the device",
                "the model is placed into what is free",
            ),
            line(
                "use a smaller model, or 4 bits instead of 8 (BitsAndBytesConfig(load_in_4bit=True))",
                "weights of 4 bits take half the bytes of 8",
            ),
            line(
                "or leave a part in the host's memory: llm_int8_enable_fp32_cpu_offload=True with a device_map of your own",
                "what is left there is kept in 32 bits, and slow",
            ),
        ];
    }
    if says(&["[TRT]", "[TensorRT]", "GPU memory (", "resizePhysical"]) {
        return vec![
            line(
                "build with less workspace: --memPoolSize=workspace:… of trtexec (IBuilderConfig::setMemoryPoolLimit; setMaxWorkspaceSize before 8.4)",
                "the builder tries implementations that ask for much and passes over those that do not fit",
            ),
            line(
                "build for smaller or fixed shapes, or in half precision",
                "buffers are as large as the largest shape allows",
            ),
        ];
    }
    if says(&["xgboost", "catboost", "LightGBM"]) {
        return vec![line(
            "use fewer bins and shallower trees (max_bin, max_depth; CatBoost: border_count, depth; XGBoost: QuantileDMatrix), or a part of the rows",
            "histograms of all features and nodes, and the binned data, lie on the device",
        )];
    }
    if says(&["rmm", "RMM_", "cudf"]) {
        return vec![
            line(
                "work in pieces: read fewer columns or rows at once, or let dask_cudf partition the frame",
                "a file takes several times its size while it is parsed, and results lie beside their operands",
            ),
            line(
                "let RAPIDS use the host's memory too: rmm.reinitialize(managed_memory=True), or cudf.set_option(\"spill\", True) from 23.02 on",
                "what does not fit on the device is then kept in the host's memory, and slower",
            ),
        ];
    }
    let mut lines = one_tensor(facts);
    if program.loads_checkpoint {
        lines.push(line(
            "load the checkpoint to the host: torch.load(path, map_location=\"cpu\"), then move the model",
            "it is otherwise loaded to the device that it was saved from, by every process that loads it",
        ));
    }
    if facts.held_by_an_engine().is_some() {
        lines.push(line(
            "give less to what runs beside PyTorch in this process: the share or the cache in the options of its engine",
            "most of the device is held outside PyTorch's pool, where no setting of PyTorch reaches",
        ));
        return lines;
    }
    match facts.framework {
        Framework::LlamaCpp => {
            lines.extend(llama_cpp(facts));
            return lines;
        }
        Framework::OnnxRuntime => {
            lines.extend([
                line("run smaller inputs, or fewer at once", "activations grow with them"),
                line(
                    "set arena_extend_strategy to kSameAsRequested in the CUDA provider's options",
                    "by default the arena grows by powers of two and takes up to twice what is needed",
                ),
            ]);
            return lines;
        }
        Framework::CuPy => {
            lines.extend([
                line(
                    "call cupy.get_default_memory_pool().free_all_blocks() between phases",
                    "the pool keeps freed blocks",
                ),
                line("work in chunks of rows", "intermediate arrays are as large as their operands"),
            ]);
            return lines;
        }
        _ => {}
    }
    lines.extend(match program.job {
        Some(Job::Server) => server(facts),
        Some(Job::Evaluation) => evaluation(facts),
        Some(Job::Generation) => generation(facts),
        Some(Job::Training) => training(facts),
        _ => vec![line(
            "use a smaller batch, shorter sequences or smaller inputs (in training, accumulate the gradients of several batches)",
            "activations grow with them; by how much cannot be told without a trace of a step",
        )],
    });
    lines
}

/// llama.cpp's three kinds of buffers, the one that was refused first.
fn llama_cpp(facts: &Facts<'_>) -> Lines {
    let layers = line(
        "offload fewer layers: lower -ngl (--n-gpu-layers; num_gpu in Ollama)",
        "what is not offloaded stays in the host's memory",
    );
    let pieces =
        line("compute in smaller pieces: lower -ub (--ubatch-size)", "the buffer for one step grows with it");
    let context = line(
        "use a shorter context: lower -c (--ctx-size; num_ctx in Ollama)",
        "the cache of keys and values grows with it, and so does the buffer for one step",
    );
    let smaller =
        line("use a smaller model or quantization", "its weights then leave more room for the rest");
    match facts.device.failure.as_ref().and_then(|failure| failure.op.as_deref()) {
        Some(buffers::CACHE) => vec![context, layers, smaller],
        Some(buffers::STEP) => vec![pieces, context, layers, smaller],
        Some(buffers::WEIGHTS) => vec![layers, smaller],
        _ => vec![layers, pieces, context, smaller],
    }
}

/// One request that is large by itself.
fn one_tensor(facts: &Facts<'_>) -> Lines {
    let Some(refused) = facts.refused else { return Vec::new() };
    let share = facts.device.capacity.map(|capacity| 100.0 * refused as f64 / capacity.max(1) as f64);
    let large = refused >= 4 << 30 || share.is_some_and(|share| share >= 25.0);
    let plans = facts.framework == Framework::LlamaCpp || facts.device.program_bytes.is_some();
    if !large || plans || facts.device.program.backend == Some(Backend::Tpu) {
        return Vec::new();
    }
    let of = share.map_or(String::new(), |share| format!(", {share:.0} % of the device"));
    if matches!(facts.framework, Framework::Jax | Framework::TensorFlowOrJax) {
        return vec![line(
            "make what one compiled program holds at once smaller: smaller shapes, jax.checkpoint around each block, or the work in several calls",
            format!(
                "XLA takes the temporaries of a program in one piece, and most often that is what is refused: here {}{of}",
                format_bytes(refused)
            ),
        )];
    }
    vec![line(
        "make the one tensor that was refused smaller: compute it in chunks or tiles, or from a shorter sequence, a smaller picture or fewer samples",
        format!("it alone is {}{of}", format_bytes(refused)),
    )]
}

fn training(facts: &Facts<'_>) -> Lines {
    let mut lines = vec![line(
        "halve the batch and accumulate the gradients of 2 batches a step",
        "what is kept for the backward pass grows with the batch; by how much cannot be told without a trace of a step",
    )];
    lines.extend(match facts.framework {
        Framework::PyTorch => Some(line(
            "recompute activations in the backward pass: torch.utils.checkpoint.checkpoint (Hugging Face: gradient_checkpointing_enable())",
            "only the inputs of each block are kept then; steps take about a third longer",
        )),
        Framework::Jax => Some(line(
            "recompute activations in the backward pass: jax.checkpoint around each block",
            "only the inputs of each block are kept then; steps take about a third longer",
        )),
        Framework::TensorFlow if facts.device.program.is_at_least((2, 0)) => Some(line(
            "train in half precision: tf.keras.mixed_precision.set_global_policy(\"mixed_float16\") (TensorFlow 2.4 or newer)",
            "activations take half the bytes",
        )),
        _ => None,
    });
    lines
}

fn evaluation(facts: &Facts<'_>) -> Lines {
    let mut lines = Vec::new();
    if facts.framework == Framework::PyTorch {
        lines.push(line(
            "evaluate under torch.no_grad(), and keep results as numbers or on the CPU: out.detach().cpu()",
            "without it every activation is kept for a backward pass that never comes",
        ));
    }
    lines.push(line("use a smaller batch in evaluation", "activations grow with it; the result is the same"));
    lines
}

fn generation(facts: &Facts<'_>) -> Lines {
    let mut lines = vec![line(
        "generate fewer at once, shorter, or at a lower resolution",
        "activations and the cache of keys and values grow with each",
    )];
    if facts.framework == Framework::PyTorch {
        lines.push(line(
            "load the weights in half precision or quantized, or leave a part in the host's memory \
             (device_map=\"auto\"; diffusers: enable_model_cpu_offload())",
            "weights in 32 bits take twice the bytes of 16",
        ));
    }
    lines
}

fn server(facts: &Facts<'_>) -> Lines {
    let says = |words: &str| facts.device.sign.as_ref().is_some_and(|sign| sign.quote.contains(words));
    match facts.device.program.server {
        Some(Server::Vllm) => {
            let estimate = facts.device.sign.as_ref().and_then(|sign| {
                let (_, rest) = sign.quote.split_once("estimated maximum model length is ")?;
                rest.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())
            });
            let shorter = line(
                match estimate {
                    Some(tokens) => format!(
                        "lower --max-model-len to {tokens} or less, which is what the server estimates to fit"
                    ),
                    None => "lower --max-model-len to the longest request that is served".into(),
                },
                "the cache must hold at least one request of that length",
            );
            let share = line(
                "raise --gpu-memory-utilization, if nothing else uses the device",
                "it is the share of the device that the server may take",
            );
            let split = line(
                "split the model: --tensor-parallel-size, or a quantized one",
                "weights leave more room for the cache then",
            );
            // What is refused beside the cache is refused because the cache took the rest.
            if facts.device.sign.as_ref().is_none_or(|sign| sign.kind != SignKind::ServerCache) {
                return vec![
                    line(
                        "lower --gpu-memory-utilization",
                        "the cache takes all of that share that weights leave, and what is computed beside it needs room too",
                    ),
                    line(
                        "lower --max-num-batched-tokens, --max-num-seqs or --max-model-len",
                        "what one step computes grows with them",
                    ),
                    split,
                ];
            }
            // Where nothing at all is left, a shorter request does not fit either.
            if says("cache blocks") { vec![share, split, shorter] } else { vec![shorter, share, split] }
        }
        Some(Server::Sglang) if says("Decode out") || says("Prefill out") => vec![
            line(
                "run fewer requests at once: lower --max-running-requests, or raise --schedule-conservativeness",
                "each holds its part of the cache until it has ended",
            ),
            line(
                "raise --mem-fraction-static",
                "it is the share of the device for weights and cache; activations take the rest",
            ),
        ],
        // What is refused beside weights and cache is refused because they took the rest.
        Some(Server::Sglang)
            if facts.device.sign.as_ref().is_none_or(|sign| sign.kind != SignKind::ServerCache) =>
        {
            vec![
                line(
                    "lower --mem-fraction-static",
                    "it is the share of the device for weights and cache; activations and graphs take the rest",
                ),
                line(
                    "lower --cuda-graph-max-bs, --chunked-prefill-size or --max-running-requests",
                    "what one step computes, and the graphs that are kept of it, grow with them",
                ),
            ]
        }
        Some(Server::Sglang) => vec![
            line(
                "raise --mem-fraction-static if the start fails, lower it if requests fail",
                "it divides the device between weights with their cache and the activations of a step",
            ),
            line("lower --context-length or --chunked-prefill-size", "cache and activations grow with them"),
        ],
        Some(Server::Tgi) if says(" total tokens") => vec![line(
            "lower --max-batch-total-tokens",
            "it is how many tokens of all requests together the cache must hold",
        )],
        Some(Server::Tgi) => vec![line(
            "lower --max-batch-prefill-tokens or --max-input-length",
            "the warm-up runs a batch of that size",
        )],
        _ => vec![line("serve fewer or shorter requests at once", "activations and caches grow with them")],
    }
}

/// Limits that other libraries have.
fn limits(facts: &Facts<'_>) -> Lines {
    match facts.framework {
        Framework::OnnxRuntime => vec![line(
            "raise gpu_mem_limit in the CUDA provider's options, or leave it out",
            "the arena refuses what goes beyond it, whatever is free",
        )],
        _ => vec![line(
            "raise the pool's limit (CuPy: CUPY_GPU_MEMORY_LIMIT or pool.set_limit; RAPIDS: maximum_pool_size)",
            "the pool refuses what goes beyond it, whatever is free",
        )],
    }
}

/// Others on the device, by words.
fn others(facts: &Facts<'_>, sign: &Sign) -> Lines {
    let mut lines = vec![line(
        "run `nvidia-smi`, end what is left over from earlier runs, and start again",
        "a server that was killed leaves workers behind that keep their memory",
    )];
    let share = facts
        .device
        .device_free
        .zip(facts.device.capacity)
        .map(|(free, all)| free as f64 / all.max(1) as f64);
    if let (SignKind::ServerStart, Some(share)) = (sign.kind, share.filter(|&share| share > 0.1)) {
        lines.push(line(
            format!(
                "if weights and cache fit into what is free: --gpu-memory-utilization {:.2}",
                (share - 0.01).min(0.95)
            ),
            "it is the share of the whole device, others included",
        ));
    }
    lines
}

fn refused_with_room(facts: &Facts<'_>, sign: Option<&Sign>) -> Lines {
    if sign.is_none() && facts.device.device_free.is_none() {
        let piece = facts.refused.is_some_and(|bytes| bytes >= 4 << 30);
        let look = line(
            format!("look at {}", facts.device.program.process_list()),
            "it tells whether others hold the device",
        );
        let smaller =
            line("try the same with a tensor of 1 GiB", "if that is given, the limit is on one allocation");
        if !piece {
            return vec![look, smaller];
        }
        return vec![
            line(
                "set UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1, if the driver and PyTorch are of 2024 or newer",
                "it lifts the limit of 4 GiB on one allocation",
            ),
            line("or keep each tensor below 4 GiB", "the limit is on one allocation, not on their sum"),
            look,
        ];
    }
    if sign.is_some() {
        return vec![line(
            "cut the one allocation: a smaller batch or context, or the tensor in pieces",
            "the device gives at most so much at once; settings of the allocator do not change that",
        )];
    }
    let mut lines = Vec::new();
    // ROCm is Linux' unless something says otherwise.
    let hip = facts.device.program.backend == Some(Backend::Hip);
    let platform = facts.device.program.platform.or(hip.then_some(Platform::Linux));
    if platform != Some(Platform::Linux) {
        let when = if platform.is_some() { "" } else { "on Windows: " };
        lines.push(line(
            format!("{when}make the paging file larger (System, Advanced, Performance, Virtual memory), as large as the device's memory at least"),
            "Windows promises host memory for all that a device holds; Task Manager shows `Committed` near its limit then",
        ));
    }
    if platform != Some(Platform::Windows) {
        lines.push(line(
            "on Linux: compare `ulimit -v`, /proc/sys/vm/max_map_count and the container's memory limit with what the process uses",
            "drivers need address space, mappings and host memory for what they give",
        ));
    }
    lines.push(line(
        format!("watch {} while it starts", facts.device.program.process_list()),
        "a process that takes memory for a moment shows there, and so does a device that another program was told to use",
    ));
    lines
}

fn not_memory(kind: SignKind, facts: &Facts<'_>) -> Lines {
    match kind {
        _ if facts.refused.is_some() => vec![line(
            "look at the shapes that this request is computed from: inputs, lengths read from a file, indices",
            "one of them is not what the program takes it for; more memory does not help",
        )],
        SignKind::CorruptedSize => vec![
            line(
                "check that all ranks call the same collectives in the same order, with the same sizes and types (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
                "a rank that reads another's data as a size asks for a number like this",
            ),
            line(
                "run with CUDA_LAUNCH_BLOCKING=1",
                "a kernel that failed before may have left garbage in a tensor that a size is read from",
            ),
        ],
        SignKind::KernelResources => vec![line(
            "use smaller blocks or fewer stages in the kernel (BLOCK_…, num_stages), or another implementation of the op",
            "shared memory of a block is fixed by the chip: 48 to 228 KiB",
        )],
        SignKind::CompilerScratch => vec![line(
            "use smaller blocks in the kernel, or shapes that it is given: a shorter max_model_len, fewer sequences at once",
            "scratch memory of the chip is fixed, 1 MiB of smem for instance",
        )],
        SignKind::Crashed => vec![line(
            "run with python -X faulthandler, and with CUDA_LAUNCH_BLOCKING=1 if a device is used",
            "the traceback then names the line that crashed",
        )],
        SignKind::AddressRange => vec![line(
            "split the tensor, or run this operation on the CPU",
            "an array of this backend has at most 2^32 bytes",
        )],
        _ if facts.device.program.backend == Some(Backend::Hip) => vec![line(
            "run with AMD_SERIALIZE_KERNEL=3 (and HIP_LAUNCH_BLOCKING=1)",
            "the error then comes from the line that made it; an index out of range is the usual cause",
        )],
        _ => vec![line(
            "run with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer",
            "the error then comes from the line that made it; an index out of range is the usual cause",
        )],
    }
}
