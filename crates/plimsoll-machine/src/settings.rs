//! Variables of the environment that bear on memory, and those that look as if they did.
//!
//! A misspelt setting is worse than none: nobody complains about it, and its owner believes that it holds.

use serde::Serialize;

/// Variables that bear on memory, for one program or another. An environment has secrets: only these are ever shown.
const KNOWN: [&str; 43] = [
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MALLOC_ARENA_MAX",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PLIMSOLL_CACHE",
    "PLIMSOLL_CRASH_DIR",
    "PLIMSOLL_DEVICES",
    "PLIMSOLL_EXPLAIN",
    "PLIMSOLL_PROGRAM",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "RANK",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_JOB_ID",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CUDA_HOST_MEM_LIMIT_IN_MB",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE",
    "WORLD_SIZE",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT",
];

/// Beginnings that belong to one program, so that another name with them is a mistake.
const OWNED: [&str; 4] = ["PLIMSOLL_", "XLA_PYTHON_CLIENT_", "XLA_CLIENT_MEM", "PYTORCH_CUDA_"];

/// The keys of PyTorch's allocator, over its versions.
const ALLOCATOR_KEYS: [&str; 23] = [
    "backend",
    "expandable_segments",
    "expandable_segments_handle_type",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_bypass_threshold_mb",
    "roundup_power2_divisions",
    "throw_on_cudamalloc_oom",
];

/// A variable that bears on memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value; none for one that nobody reads.
    pub value: Option<String>,
    /// What is wrong with it, and what to do.
    pub wrong: Option<String>,
}

/// The variables of an environment that bear on memory, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Settings {
    /// All of them.
    pub all: Vec<Setting>,
}

impl Settings {
    /// Picks them from an environment.
    pub fn read(environment: impl IntoIterator<Item = (String, String)>) -> Settings {
        let mut all: Vec<Setting> =
            environment.into_iter().filter_map(|(name, value)| setting(name, value)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        if all.iter().any(|setting| setting.name == "XLA_CLIENT_MEM_FRACTION") {
            for setting in all.iter_mut().filter(|setting| setting.name == "XLA_PYTHON_CLIENT_MEM_FRACTION") {
                setting.wrong = Some("JAX refuses to start with XLA_CLIENT_MEM_FRACTION beside it".into());
            }
        }
        Settings { all }
    }
}

fn setting(name: String, value: String) -> Option<Setting> {
    if KNOWN.contains(&name.as_str()) {
        let wrong = what_is_wrong(&name, &value);
        return Some(Setting { name, value: Some(value), wrong });
    }
    let prefix = OWNED.iter().find(|prefix| name.starts_with(**prefix))?;
    let known: Vec<&str> = KNOWN.into_iter().filter(|known| known.starts_with(prefix)).collect();
    let wrong = Some(format!("nothing reads a variable of this name; there are {}", known.join(", ")));
    Some(Setting { name, value: None, wrong })
}

fn what_is_wrong(name: &str, value: &str) -> Option<String> {
    match name {
        "PYTORCH_ALLOC_CONF" | "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" => allocator(value),
        "XLA_CLIENT_MEM_FRACTION" | "XLA_PYTHON_CLIENT_MEM_FRACTION" => match value.parse::<f64>() {
            Ok(fraction) if fraction > 0.0 && fraction <= 1.0 => None,
            // More than the device has is allowed with unified memory alone.
            Ok(fraction) if fraction > 1.0 => Some(
                "a fraction above 1 is more than the device has, and works with TF_FORCE_UNIFIED_MEMORY=1 alone"
                    .into(),
            ),
            _ => Some("is not a fraction: write a number such as .75".into()),
        },
        "XLA_PYTHON_CLIENT_ALLOCATOR" => {
            one_of(&value.to_lowercase(), &["default", "platform", "bfc", "cuda_async", "vmm"])
        }
        "XLA_PYTHON_CLIENT_PREALLOCATE" | "TF_FORCE_GPU_ALLOW_GROWTH" => {
            one_of(&value.to_lowercase(), &["true", "false", "1", "0"])
        }
        "TF_GPU_ALLOCATOR" => one_of(value, &["cuda_malloc_async", "cuda_malloc", ""]),
        "CUDA_VISIBLE_DEVICES" if value.is_empty() || value.starts_with('-') => {
            Some("hides every GPU: unset it, or name the GPUs that may be used".into())
        }
        "PYTORCH_NO_CUDA_MEMORY_CACHING" => {
            Some("every tensor is allocated by the driver, which is many times slower: unset it".into())
        }
        _ => None,
    }
}

fn one_of(value: &str, known: &[&str]) -> Option<String> {
    let shown: Vec<&str> = known.iter().copied().filter(|known| !known.is_empty()).collect();
    (!known.contains(&value)).then(|| format!("is none of {}", shown.join(", ")))
}

/// PyTorch's `key:value,key:value`, in which a value may be a list in brackets.
fn allocator(value: &str) -> Option<String> {
    let mut depth = 0_usize;
    let entries = value.split(|character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((key, value)) = entry.split_once(':') else {
            return Some(format!("`{entry}` has no value: settings are written key:value"));
        };
        if !ALLOCATOR_KEYS.contains(&key.trim()) {
            return Some(format!("there is no setting `{key}`; there are {}", ALLOCATOR_KEYS.join(", ")));
        }
        if key.trim() == "expandable_segments" && !matches!(value.trim(), "True" | "False") {
            return Some(format!("`{entry}`: expandable_segments is True or False, with a capital letter"));
        }
    }
    None
}
