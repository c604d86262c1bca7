//! What reads files that may come from anybody, each with good files to begin with.
//!
//! A target does with a file what the command would, and fails by a panic: its own, or that of a check here that what was
//! read holds together and that nothing printed acts on a terminal.

use crate::data;
use crate::mutate::{Form, Seed};
use plimsoll::data::sources::{Inputs, Targets, idx, npy, safetensors};
use plimsoll::data::{Csv, RamBudget, Source};
use plimsoll::exchange::TensorFile;
use plimsoll::{Spec, devices};
use plimsoll_explain::{
    Input, Limits, Progress, Recording, Style, explain, planned, read_files_within, read_input, show,
    write_html,
};
use plimsoll_memory::{Model, Pool, PoolSettings, Start, is_unprintable, replay};
use plimsoll_plan::csv::Table;
use plimsoll_plan::pack::{Effort, pack};
use plimsoll_plan::validate;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Something that reads files.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Good files.
    pub(crate) seeds: fn() -> Vec<Seed>,
    /// The largest file to try.
    pub(crate) most_bytes: usize,
    /// Whether it unpacks what is packed.
    pub(crate) unpacks: bool,
    /// Reads a file; says whether it was understood.
    pub(crate) read: fn(&[u8]) -> bool,
}

pub(crate) const TARGETS: &[Target] = &[
    recording("torch-snapshot", || recorded(Form::Pickle, &["pickle"]), explained),
    recording("torch-message", || recorded(Form::Text, &["oom.txt"]), explained),
    recording("allocator-log", || recorded(Form::Text, &["log"]), explained),
    recording("xplane", || recorded(Form::Protobuf, &["xplane.pb"]), explained),
    recording("pprof", || recorded(Form::Protobuf, &["pprof"]), explained),
    recording("memory-profile", memory_profiles, explained),
    recording("chrome-trace", chrome_traces, explained),
    recording("plimsoll-trace", plimsoll_traces, explained),
    recording("joined", || recorded(Form::Pickle, &["transient.pickle", "fragoom2.pickle"]), joined),
    recording("replay", replayable, replayed),
    // The commands refuse larger ones unread.
    text_file("workload", 1 << 20, workloads, workload),
    text_file("forecast", 1 << 20, small_workloads, forecast),
    text_file("profile", 1 << 20, profiles, profile),
    text_file("packing", 10 << 20, packing_problems, packing),
    text_file("data", 10 << 20, tables, whole_table),
    recording("npy", || array_files(".npy"), arrays),
    recording("npz", || array_files(".npz"), arrays),
    recording("idx", || array_files("idx"), arrays),
    recording("tensors", || array_files(".safetensors"), arrays),
    recording("csv", tables, data::csv_rows),
    recording("json-lines", || data::files(&["records.jsonl"]), data::json_lines),
    recording("tfrecord", || data::files(&["records.tfrecord", "unpacked.tfrecord"]), data::tf_record),
    text_file("image", 1 << 20, || data::files(&["pictures/"]), data::image),
    text_file("weights", 1 << 20, weight_headers, weights),
];

const fn recording(name: &'static str, seeds: fn() -> Vec<Seed>, read: fn(&[u8]) -> bool) -> Target {
    Target { name, seeds, most_bytes: 10 << 20, unpacks: true, read }
}

const fn text_file(
    name: &'static str,
    most_bytes: usize,
    seeds: fn() -> Vec<Seed>,
    read: fn(&[u8]) -> bool,
) -> Target {
    Target { name, seeds, most_bytes, unpacks: false, read }
}

/// Reads, explains and shows what may be a recording.
fn explained(bytes: &[u8]) -> bool {
    match Input::bytes(bytes).and_then(|input| read_input(input, "mutant")) {
        Ok(recording) => {
            show_all(&recording, bytes);
            true
        }
        Err(error) => {
            assert_plain(&error.to_string());
            false
        }
    }
}

/// The same with the message of the same run beside it.
fn joined(bytes: &[u8]) -> bool {
    let file = std::env::temp_dir().join(format!("plimsoll-fuzz-{}", std::process::id()));
    let files = [file.clone(), recordings().join("explained/torch-fragoom2.oom.txt")];
    let read = std::fs::write(&file, bytes)
        .map(|()| read_files_within(&files, &Progress::default(), Limits::default()));
    let _ = std::fs::remove_file(&file);
    match read {
        Ok(Ok(recording)) => {
            show_all(&recording, bytes);
            true
        }
        _ => false,
    }
}

/// Explains a recording, and shows some: as text and JSON one of four times, as a page one of sixteen. That is most of the
/// work.
fn show_all(recording: &Recording, bytes: &[u8]) {
    let explanation = explain(recording);
    let sum = explanation.books.lines.iter().map(|line| u128::from(line.bytes)).sum::<u128>();
    assert_eq!(sum, u128::from(explanation.books.total_bytes), "the books are not closed");
    if bytes.len().is_multiple_of(4) {
        let mut text = Vec::new();
        show(&explanation, Style::default(), &mut text).expect("written to memory");
        assert_plain(std::str::from_utf8(&text).expect("text"));
        assert_plain(&format!("{:#}", explanation.to_json()));
    }
    if bytes.len().is_multiple_of(16) {
        let mut page = Vec::new();
        write_html(recording, &explanation, &mut page).expect("written to memory");
        assert_plain(std::str::from_utf8(&page).expect("text"));
    }
}

/// Checks that nothing in a text acts on what shows it.
fn assert_plain(text: &str) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return;
    }
    let found = text.chars().find(|&character| character != '\n' && is_unprintable(character));
    assert_eq!(found, None, "shown as it is");
}

/// Replays what may be a recording under every allocator.
fn replayed(bytes: &[u8]) -> bool {
    let Ok(recording) = Input::bytes(bytes).and_then(|input| read_input(input, "mutant")) else {
        return false;
    };
    let traced: Vec<_> =
        recording.devices.iter().filter_map(|device| Some((device, device.trace.as_ref()?))).collect();
    for (device, trace) in &traced {
        for model in
            Model::NAMES.iter().filter_map(|name| name.parse::<Model>().ok()).chain(device.model.clone())
        {
            for limit in [None, device.limit.or(device.capacity)] {
                for start in [Start::Recorded, Start::Afresh] {
                    let outcome = replay(trace, &model, limit, start);
                    assert!(outcome.peak_live <= outcome.lower_bound, "more was live than there was");
                }
            }
        }
        let plan = planned(trace);
        assert!(plan.peak_bytes >= plan.lower_bound, "a plan below what is live");
    }
    !traced.is_empty()
}

fn workload(bytes: &[u8]) -> bool {
    Spec::parse(&String::from_utf8_lossy(bytes), Path::new("mutant.toml")).is_ok()
}

/// Forecasts what may be a workload.
fn forecast(bytes: &[u8]) -> bool {
    let Ok(spec) = Spec::parse(&String::from_utf8_lossy(bytes), Path::new("mutant.toml")) else {
        return false;
    };
    let Ok((data, held_out)) = spec.datasets() else { return false };
    let forecast = spec.trainer().forecast(&data, held_out.as_ref());
    forecast.is_ok_and(|forecast| !forecast.to_string().is_empty())
}

fn profile(bytes: &[u8]) -> bool {
    let path = Path::new("mutant.toml");
    let Ok(profile) = devices::parse(&String::from_utf8_lossy(bytes), path) else { return false };
    let again =
        devices::parse(&devices::to_toml(&profile), path).expect("what was written from a profile is one");
    assert_eq!(again, profile, "written and read again");
    true
}

fn packing(bytes: &[u8]) -> bool {
    let Ok(table) = Table::parse(&String::from_utf8_lossy(bytes)) else { return false };
    let Ok(problem) = table.problem(1) else { return false };
    validate(&problem, &pack(&problem, None, Effort { steps: 1 << 10 })).expect("a packing is valid");
    Table::parse(&table.to_string()).is_ok_and(|again| again == table)
        || panic!("written and read again, it differs")
}

fn whole_table(bytes: &[u8]) -> bool {
    let budget = RamBudget::bytes(64 << 20);
    let label = Csv::label("species").budget(budget).read(Cursor::new(bytes)).is_ok();
    let target = Csv::target("width").delimiter(';').budget(budget).read(Cursor::new(bytes)).is_ok();
    label | target
}

/// Reads all samples of what may be an array in any of the formats that are read in place, packed or not.
fn arrays(bytes: &[u8]) -> bool {
    let path = std::env::temp_dir().join(format!("plimsoll-fuzz-{}.npz", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file");
    let (given, numbers, classes) = (Inputs::default(), Targets::Numbers, Targets::Classes(3));
    let member = |name: &str| format!("{}:{name}", path.display());
    let opened = [
        npy(&path, &path, given, numbers),
        npy(&path, &path, Inputs { channels: true, ..given }, classes),
        npy(member("x"), member("y"), given, classes),
        idx(&path, &path, given, numbers, RamBudget::bytes(64 << 20)),
        idx(&path, &path, Inputs { scale: true, ..given }, classes, RamBudget::bytes(64 << 20)),
        safetensors(&path, ["x", "y"], given, classes),
    ];
    let mut is_understood = false;
    for source in opened {
        match source {
            Ok(source) => {
                for (position, field) in source.fields().iter().enumerate() {
                    let mut out = vec![0; field.bytes()];
                    let read = (0..source.samples()).try_for_each(|at| source.read(at, position, &mut out));
                    if let Err(error) = read {
                        assert_plain(&error.to_string());
                    }
                }
                is_understood = true;
            }
            Err(error) => assert_plain(&error.to_string()),
        }
    }
    let _ = std::fs::remove_file(&path);
    is_understood
}

/// Files of arrays in whose names this stands, as other programs wrote them.
pub(crate) fn array_files(part: &str) -> Vec<Seed> {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-data/tests/data"), &mut files);
    files.retain(|path| path.to_string_lossy().contains(part));
    files.sort();
    let seed =
        |path: &PathBuf| Seed { form: Form::Text, bytes: std::fs::read(path).expect("a file of an array") };
    files.iter().map(seed).collect()
}

/// Headers of files of weights, as PyTorch wrote them.
fn weight_headers() -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll/tests/exchange");
    let mut files = Vec::new();
    collect(&folder, &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    let header = |path: &PathBuf| {
        let file = std::fs::read(path).expect("a file of weights");
        let (length, rest) = file.split_first_chunk().expect("the length of the header");
        rest[..u64::from_le_bytes(*length) as usize].to_vec()
    };
    files.iter().map(|path| Seed { form: Form::Text, bytes: header(path) }).collect()
}

/// Reads all tensors of a file that has this header and as many bytes as its last tensor ends after, and of one that is the
/// header alone.
fn weights(header: &[u8]) -> bool {
    let path = std::env::temp_dir().join(format!("plimsoll-fuzz-{}.safetensors", std::process::id()));
    let parsed: serde_json::Value = serde_json::from_slice(header).unwrap_or_default();
    let tensors = parsed.as_object().into_iter().flat_map(|tensors| tensors.values());
    let end = tensors.filter_map(|tensor| tensor["data_offsets"][1].as_u64()).max().unwrap_or(0);
    let data = vec![0; end.min(1 << 20) as usize];
    let whole = [&(header.len() as u64).to_le_bytes()[..], header, &data].concat();
    let mut is_understood = false;
    for bytes in [header, &whole] {
        std::fs::write(&path, bytes).expect("a temporary file");
        match TensorFile::open(&path) {
            Ok(file) => {
                for (index, tensor) in file.tensors().iter().enumerate() {
                    let mut all = vec![0; tensor.bytes() as usize];
                    file.read(index, 0, &mut all).expect("bytes that were checked");
                }
                is_understood = true;
            }
            Err(error) => assert_plain(&error.to_string()),
        }
    }
    let _ = std::fs::remove_file(&path);
    is_understood
}

/// The recordings that the tests of the readers have.
fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-explain/tests/data")
}

/// The recordings whose names have one of these endings, unpacked.
fn recorded(form: Form, endings: &[&str]) -> Vec<Seed> {
    let mut files = Vec::new();
    collect(&recordings(), &mut files);
    files.sort();
    let named = |path: &&PathBuf| {
        let name = path.to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        endings.iter().any(|ending| name.ends_with(ending))
    };
    files.iter().filter(named).map(|path| Seed { form, bytes: unpacked(path) }).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of recordings") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn unpacked(path: &Path) -> Vec<u8> {
    let packed = std::fs::read(path).expect("a recording");
    let mut bytes = Vec::new();
    Input::bytes(&packed).expect("a recording").read_to_end(&mut bytes).expect("a recording");
    bytes
}

fn text(text: &str) -> Seed {
    Seed { form: Form::Text, bytes: text.as_bytes().to_vec() }
}

fn memory_profiles() -> Vec<Seed> {
    let mut seeds = recorded(Form::Text, &["memory_profile.json"]);
    seeds.push(text(
        r#"{"memoryProfilePerAllocator":{"GPU_0_bfc":{"profileSummary":{"peakBytesUsageLifetime":"900",
"peakStats":{"heapAllocatedBytes":"800","freeMemoryBytes":"200","fragmentation":0.5,"peakBytesInUse":"800"},
"peakStatsTimePs":"30","memoryCapacity":"1000"},"memoryProfileSnapshots":[{"timeOffsetPs":"10",
"aggregationStats":{"heapAllocatedBytes":"512","freeMemoryBytes":"488","fragmentation":0.1},"activityMetadata":{
"memoryActivity":"ALLOCATION","requestedBytes":"500","allocationBytes":"512","address":"64","tfOpName":"dense/MatMul",
"stepId":"1","regionType":"output","dataType":"FLOAT","tensorShape":"[5,25]"}},{"timeOffsetPs":"20","aggregationStats":{
"heapAllocatedBytes":"0","freeMemoryBytes":"1000"},"activityMetadata":{"memoryActivity":"DEALLOCATION",
"requestedBytes":"500","allocationBytes":"512","address":"64"}}],"activeAllocations":[{"snapshotIndex":"0",
"numOccurrences":"1"},{"specialIndex":"0","numOccurrences":"2"}],"specialAllocations":[{"memoryActivity":"ALLOCATION",
"tfOpName":"stack","allocationBytes":"99"}],"sampledTimelineSnapshots":[]}},"numHosts":1,"memoryIds":["GPU_0_bfc"]}"#,
    ));
    seeds
}

fn chrome_traces() -> Vec<Seed> {
    let mut seeds = recorded(Form::Text, &["chrome-trace.json"]);
    seeds.push(text(
        r#"{"schemaVersion":1,"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"tid":0,"ts":1.5,"args":{"name":"python"}},
{"ph":"X","cat":"python_function","name":"train.py(7): step","pid":1,"tid":2,"ts":5.0,"dur":90.5,"args":{"Python id":1}},
{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":2,"ts":19.0,"dur":22.0,"args":{"External id":1}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":1,"tid":2,"ts":12.0,"dur":50.0},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":20.0,
"args":{"Total Reserved":2097152,"Total Allocated":4096,"Bytes":512,"Device Id":1,"Device Type":1,"Addr":64}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":25.5,
"args":{"Total Reserved":0,"Total Allocated":256,"Bytes":256,"Device Id":-1,"Device Type":0,"Addr":18446744073709551615}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":30.0,
"args":{"Total Reserved":2097152,"Total Allocated":3584,"Bytes":-512,"Device Id":1,"Device Type":1,"Addr":64}},
{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[OutOfMemory]","pid":1,"tid":2,"ts":40.0,
"args":{"Total Reserved":2097152,"Total Allocated":3584,"Bytes":1048576,"Device Id":1,"Device Type":1}}
],"traceName":"x"}"#,
    ));
    seeds
}

/// What a pool dumps that was asked for this and that.
fn plimsoll_traces() -> Vec<Seed> {
    let dumped = |requests: u64, live_limit| {
        let settings =
            PoolSettings { name: "cpu".into(), live_limit, events: 256, ..PoolSettings::default() };
        let pool = Pool::host(settings);
        let mut blocks = Vec::new();
        for number in 0..requests {
            let owner = pool.owner(["", "model", "model/dense", "loss"][number as usize % 4]);
            blocks.extend(pool.allocate_for(owner, 1000 * number).ok());
            match number % 5 {
                2 => drop(blocks.swap_remove(0)),
                3 => pool.mark("step"),
                4 => _ = pool.trim(),
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        pool.dump().write(&mut bytes).expect("written to memory");
        Seed { form: Form::Text, bytes }
    };
    vec![dumped(12, None), dumped(40, Some(200_000))]
}

fn replayable() -> Vec<Seed> {
    let mut seeds = recorded(Form::Pickle, &["transient.pickle", "other.pickle"]);
    seeds.extend(recorded(Form::Protobuf, &["jax-toobig.xplane.pb"]));
    seeds.extend(plimsoll_traces());
    seeds
}

fn workloads() -> Vec<Seed> {
    let mut seeds: Vec<Seed> =
        plimsoll::spec::workloads().iter().map(|workload| text(workload.text)).collect();
    seeds.push(text(
        "loss = \"mse\"\n[data]\nkind = \"csv\"\npath = \"data.csv\"\ntarget = \"price\"\ndelimiter = \";\"\n[model]\nkind = \
         \"sequential\"\nlayers = [{ dense = 8, activation = \"relu\" }, { dense = 1 }]\n[optimizer]\nkind = \"adam\"\nrate = \
         0.05\nclip = { norm = 1.0 }\n[train]\nbatch = 4\nepochs = 40\nbudget = \"300MiB\"\n",
    ));
    seeds
}

fn small_workloads() -> Vec<Seed> {
    let small = ["digits", "mlp-small", "cnn-small", "gpt-small", "gpt-varlen", "lstm-seq"];
    let all = plimsoll::spec::workloads().iter();
    all.filter(|workload| small.contains(&workload.name)).map(|workload| text(workload.text)).collect()
}

fn profiles() -> Vec<Seed> {
    devices::all().expect("built in").iter().map(|profile| text(&devices::to_toml(profile))).collect()
}

fn packing_problems() -> Vec<Seed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-plan/tests/data/packing");
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a packing problem");
    let small = "id,lower,upper,size,offset\nweights,0,9,64,0\n\"a,b\",2,5,32,64\n\nx,5,7,32,64\ny,7,7,8,0\n";
    vec![text(small), text(&file("A.1048576.csv")), text(&file("resnet50-training.csv"))]
}

fn tables() -> Vec<Seed> {
    vec![
        text("length,width,species\n5.1,3.5,0\n6.2,2.9,1\n-4e-3,1e10,2.0\n"),
        text("length,species\n\"so\n\"\"long\"\"\r\n\",0\nas,1\n\" it\n\nis\",2\n"),
        text("\u{feff}length;\"width\";\"a \"\"b\"\"\"\r\n5.1;3.5;0\r\n\r\n6.2;\"2.9\";1\r\n"),
    ]
}
