//! GPUs and who holds their memory, as NVIDIA's own tool tells: the driver gives a process's memory to nobody else.

use crate::books::Book;
use crate::cgroup;
use crate::tree::Tree;
use serde::Serialize;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What is asked of a GPU. Older tools know fewer fields, and refuse all if one is unknown.
const FIELDS: [&str; 2] = [
    "index,uuid,driver_version,memory.total,memory.reserved,memory.used,memory.free,compute_mode,persistence_mode,\
     mig.mode.current,name",
    "index,uuid,driver_version,memory.total,memory.used,memory.free,compute_mode,persistence_mode,name",
];
const PROCESS_FIELDS: &str = "gpu_uuid,pid,used_memory,process_name";

/// A driver that is stuck does not answer at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Its number, as the driver counts.
    pub index: u32,
    /// What it is.
    pub name: String,
    /// Its identifier.
    pub uuid: Option<String>,
    /// The version of its driver.
    pub driver: Option<String>,
    /// All of its memory.
    pub total_bytes: u64,
    /// What the driver keeps for itself.
    pub reserved_bytes: Option<u64>,
    /// What is taken, by whomever.
    pub used_bytes: Option<u64>,
    /// What is free.
    pub free_bytes: Option<u64>,
    /// `Default`, `Exclusive_Process` or `Prohibited`.
    pub compute_mode: Option<String>,
    /// Whether the driver stays loaded while nobody uses it.
    pub persistence: Option<bool>,
    /// Whether it is divided into instances.
    pub divided: Option<bool>,
    /// Processes that compute on it.
    pub processes: Vec<Process>,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// What it holds of the GPU's memory, where the driver tells.
    pub used_bytes: Option<u64>,
    /// The program, and the script if it is Python. Arguments are left out: they may be secrets.
    pub command: String,
    /// Whose it is.
    pub user: Option<String>,
    /// The container that it is in, if it is seen to be in one.
    pub container: Option<String>,
    /// What the system says of it.
    pub state: State,
}

/// What the system says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there.
    Alive,
    /// It has ended, and whoever started it has not taken notice.
    Zombie,
    /// It cannot be seen from here: it runs in another container, or has ended.
    Unseen,
}

/// The GPUs of this machine, or why they cannot be told.
///
/// # Errors
/// If NVIDIA's tool is not there, does not answer, or says that something is wrong.
pub fn ask(root: &Path) -> Result<Vec<Gpu>, String> {
    let gpus = FIELDS.iter().map(|fields| run(&format!("--query-gpu={fields}"))).reduce(|a, b| a.or(b));
    let gpus = gpus.unwrap_or_else(|| Err("nothing was asked".into()))?;
    // Without the right to know, the GPUs alone are told.
    let processes = run(&format!("--query-compute-apps={PROCESS_FIELDS}")).unwrap_or_default();
    Ok(read(root, &gpus, &processes))
}

/// Reads GPUs and processes from the tables that `nvidia-smi --query-gpu` and `--query-compute-apps` print as CSV with
/// titles and without units. `root` has the machine's `/proc`.
pub fn read(root: &Path, gpus: &str, processes: &str) -> Vec<Gpu> {
    let tree = Tree::new(root);
    let users = users(tree);
    let mut gpus: Vec<Gpu> = table(gpus).iter().filter_map(gpu).collect();
    for row in table(processes) {
        let Some(pid) = row.get("pid").and_then(|pid| pid.parse().ok()) else { continue };
        let process = process(tree, &users, pid, &row);
        let of = row.get("gpu_uuid");
        if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid.as_ref() == of) {
            gpu.processes.push(process);
        }
    }
    gpus
}

impl Gpu {
    /// The books of its memory.
    pub fn book(&self) -> Book {
        let processes = self.processes.iter().map(|process| {
            let of = process.user.as_deref().map_or(String::new(), |user| format!(" of {user}"));
            let within =
                process.container.as_deref().map_or(String::new(), |id| format!(" in container {id}"));
            (format!("pid {}: {}{of}{within}", process.pid, process.command), process.used_bytes.unwrap_or(0))
        });
        let driver = self.reserved_bytes.map(|bytes| ("kept by the driver".to_owned(), bytes));
        let free = self.free_bytes.map(|bytes| ("free".to_owned(), bytes));
        let of = format!("GPU {}, {}", self.index, self.name);
        Book::close(of, self.total_bytes, free.into_iter().chain(driver).chain(processes))
    }

    /// What is taken by nobody that is known. Without the memory of every process it cannot be told.
    pub fn unowned_bytes(&self) -> Option<u64> {
        let owned: Option<u64> = self.processes.iter().map(|process| process.used_bytes).sum();
        Some(self.used_bytes?.saturating_sub(owned?))
    }
}

/// What the tool prints, within a time.
fn run(query: &str) -> Result<String, String> {
    let mut child = Command::new("nvidia-smi")
        .args([query, "--format=csv,nounits"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("nvidia-smi cannot be run: {error}"))?;
    let Some(mut output) = child.stdout.take() else { return Err("nvidia-smi has no output".into()) };
    let reading = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                // One that hangs in the driver cannot be ended, and is not waited for.
                let _ = child.kill();
                return Err(format!("nvidia-smi did not answer within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(format!("nvidia-smi cannot be waited for: {error}")),
        }
    };
    let text = reading.join().ok().and_then(Result::ok).ok_or("nvidia-smi printed what is no text")?;
    match status.success() {
        true => Ok(text),
        false => Err(format!("nvidia-smi: {}", text.lines().next().unwrap_or("ended with an error"))),
    }
}

/// A table with titles as rows by title. The last column may have commas in it: names have.
fn table(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines();
    let Some(titles) = lines.next() else { return vec![] };
    // `memory.total [MiB]`: the unit stays in the title.
    let titles: Vec<&str> =
        titles.split(',').map(|title| title.split('[').next().unwrap_or("").trim()).collect();
    let row = |line: &str| {
        let values = line.splitn(titles.len(), ',').map(str::trim);
        let told = titles.iter().zip(values).filter(|(_, value)| !value.starts_with('['));
        told.map(|(title, value)| ((*title).to_owned(), value.to_owned())).collect()
    };
    lines.filter(|line| !line.trim().is_empty()).map(row).collect()
}

fn gpu(row: &HashMap<String, String>) -> Option<Gpu> {
    let text = |title: &str| row.get(title).cloned();
    let switch = |title: &str| row.get(title).map(|value| value == "Enabled");
    Some(Gpu {
        index: row.get("index")?.parse().ok()?,
        name: text("name").unwrap_or_default(),
        uuid: text("uuid"),
        driver: text("driver_version"),
        total_bytes: mebibytes(row, "memory.total")?,
        reserved_bytes: mebibytes(row, "memory.reserved"),
        used_bytes: mebibytes(row, "memory.used"),
        free_bytes: mebibytes(row, "memory.free"),
        compute_mode: text("compute_mode"),
        persistence: switch("persistence_mode"),
        divided: switch("mig.mode.current"),
        processes: vec![],
    })
}

fn mebibytes(row: &HashMap<String, String>, title: &str) -> Option<u64> {
    row.get(title)?.parse::<u64>().ok()?.checked_mul(1 << 20)
}

fn process(
    tree: Tree<'_>,
    users: &HashMap<String, String>,
    pid: u32,
    row: &HashMap<String, String>,
) -> Process {
    let status = tree.text(&format!("/proc/{pid}/status"));
    let of = |name: &str| {
        let line = status.as_deref()?.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    let state = match of("State:").as_deref() {
        None => State::Unseen,
        Some("Z" | "X") => State::Zombie,
        Some(_) => State::Alive,
    };
    let user = of("Uid:").map(|number| users.get(&number).cloned().unwrap_or(number));
    let groups = tree.text(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let command = tree.text(&format!("/proc/{pid}/cmdline")).and_then(|words| command(&words));
    let used = mebibytes(row, "used_memory").or_else(|| mebibytes(row, "used_gpu_memory"));
    Process {
        pid,
        used_bytes: used,
        command: command.or_else(|| row.get("process_name").cloned()).unwrap_or_else(|| "unknown".into()),
        user,
        container: cgroup::container(&groups),
        state,
    }
}

/// The program, and the script that it runs.
fn command(words: &str) -> Option<String> {
    let mut words = words.split('\0').filter(|word| !word.is_empty());
    let program = words.next()?.rsplit('/').next()?.to_owned();
    let script = words.find(|word| word.ends_with(".py"));
    Some(script.map_or(program.clone(), |script| format!("{program} {script}")))
}

/// The names of users by their numbers.
fn users(tree: Tree<'_>) -> HashMap<String, String> {
    let text = tree.text("/etc/passwd").unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.to_owned(), name))
    };
    text.lines().filter_map(entry).collect()
}
