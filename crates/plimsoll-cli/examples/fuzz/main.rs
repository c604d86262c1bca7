//! Spoils good files in many ways and has them read: `fuzz TARGET --seconds 60`, and `fuzz --list`.
//!
//! What must not happen to any file of up to 10 MiB is a panic, an abort, more than 30 seconds or more than 1 GiB. Each is
//! written to a file, and a panic's is made small first. A mutant is a function of target, seed and number, so that
//! `fuzz TARGET --seed S --only N` has it read again. The number of the one that is being read is kept in a file beside: an
//! abort leaves it there. `.ci/fuzz` runs all targets.

mod allocation;
mod data;
mod mutate;
mod random;
mod target;

use allocation::peak_of;
use clap::Parser;
use mutate::{Seed, mutant};
use random::Random;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use target::{TARGETS, Target};

/// What reading any file may take.
const MOST_MEMORY: usize = 1 << 30;
const MOST_TIME: Duration = Duration::from_secs(30);

/// When a mutant is no longer waited for.
const HANGS: Duration = Duration::from_secs(90);

/// How long to look for a smaller file with the same fault.
const MINIMISING: Duration = Duration::from_secs(20);

/// Spoil good files and have them read
#[derive(Parser)]
struct Args {
    /// Which reader
    #[arg(required_unless_present = "list")]
    target: Option<String>,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// How long
    #[arg(long, default_value = "10")]
    seconds: f64,
    /// How many mutants, however long that takes
    #[arg(long)]
    count: Option<u64>,
    /// Other seeds give other mutants
    #[arg(long, default_value = "1")]
    seed: u64,
    /// The number of the only mutant to be read
    #[arg(long)]
    only: Option<u64>,
    /// Where to write what was found
    #[arg(long, default_value = "target/fuzz")]
    out: PathBuf,
}

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Where the last panic was, and what it said.
static PANIC: Mutex<Option<Panic>> = Mutex::new(None);

#[derive(Debug)]
struct Panic {
    place: String,
    said: String,
}

#[expect(clippy::print_stdout, reason = "printing is all it is for")]
fn main() -> Result {
    let args = Args::parse();
    if args.list {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    let name = args.target.as_deref().unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.ok_or("there is no such target; --list names them")?;
    std::fs::create_dir_all(&args.out)?;
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, ToString::to_string);
        let payload = info.payload();
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
        let said = said.lines().next().unwrap_or_default();
        *PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some(Panic { place, said: said.to_string() });
    }));
    let run = Arc::new(Fuzz { target, seeds: (target.seeds)(), seed: args.seed, out: args.out.clone() });
    if let Some(number) = args.only {
        let bytes = run.mutant(number);
        println!("{} bytes, written to {}", bytes.len(), run.write("only", number, &bytes)?.display());
        let read = run.read(&bytes);
        println!("{read:?}");
        return Ok(());
    }
    let found = run.go(args.count, Duration::from_secs_f64(args.seconds))?;
    if found > 0 {
        return Err(format!("{found} found: see {}", args.out.display()).into());
    }
    Ok(())
}

struct Fuzz {
    target: &'static Target,
    seeds: Vec<Seed>,
    seed: u64,
    out: PathBuf,
}

/// What became of one file.
#[derive(Debug)]
struct Read {
    understood: bool,
    panic: Option<Panic>,
    time: Duration,
    peak_bytes: usize,
}

/// The most of something, and the mutant that had it.
#[derive(Default)]
struct Worst<T>(T, u64);

impl<T: PartialOrd> Worst<T> {
    fn see(&mut self, value: T, number: u64) {
        if value > self.0 {
            *self = Worst(value, number);
        }
    }
}

impl Fuzz {
    /// Reads mutants, so many or for so long; says how many different faults were found.
    #[expect(clippy::print_stdout, reason = "printing is all it is for")]
    fn go(self: &Arc<Fuzz>, count: Option<u64>, time: Duration) -> Result<usize> {
        let begun = Instant::now();
        let watch = Arc::new(Watch { number: AtomicU64::new(0), begun: Mutex::new(Instant::now()) });
        thread::spawn({
            let (run, watch) = (self.clone(), watch.clone());
            move || watch.wait_for_hangs(&run)
        });
        let at_path = self.out.join(format!("{}.at", self.target.name));
        let mut at = File::create(&at_path)?;
        let mut found: HashMap<String, u64> = HashMap::new();
        let (mut understood, mut longest, mut largest) = (0_u64, Worst::default(), Worst::default());
        let mut number = 0;
        while count.map_or_else(|| begun.elapsed() < time, |count| number < count) {
            let bytes = self.mutant(number);
            at.rewind()?;
            writeln!(at, "seed {} mutant {number}", self.seed)?;
            watch.begin(number);
            let read = self.read(&bytes);
            understood += u64::from(read.understood);
            longest.see(read.time, number);
            largest.see(read.peak_bytes, number);
            // Faults at one place are one.
            let fault = match read {
                Read { panic: Some(panic), .. } => Some((panic.place, panic.said)),
                Read { time, .. } if time > MOST_TIME => Some(("slow".to_string(), format!("{time:?}"))),
                Read { peak_bytes, .. } if peak_bytes > MOST_MEMORY => {
                    Some(("large".to_string(), format!("{peak_bytes} bytes")))
                }
                _ => None,
            };
            if let Some((fault, said)) = fault {
                let times = found.entry(fault.clone()).or_default();
                *times += 1;
                if *times == 1 {
                    let bytes = self.minimised(bytes, &fault);
                    let file = self.write("found", number, &bytes)?;
                    let (name, seed, file) = (self.target.name, self.seed, file.display());
                    println!("{name}: mutant {number} of seed {seed}: {fault}: {said}: {file}");
                }
            }
            number += 1;
        }
        drop(at);
        std::fs::remove_file(at_path)?;
        let faults: u64 = found.values().sum();
        println!(
            "{:<15} {number:>8} mutants in {:>4.0} s, {:>5.1} % understood, {faults} faults at {} places, \
             {:>8.1} ms at most (mutant {}), {:>6.1} MiB at most (mutant {})",
            self.target.name,
            begun.elapsed().as_secs_f64(),
            100.0 * understood as f64 / number.max(1) as f64,
            found.len(),
            1e3 * longest.0.as_secs_f64(),
            longest.1,
            largest.0 as f64 / f64::from(1 << 20),
            largest.1,
        );
        Ok(found.len())
    }

    fn mutant(&self, number: u64) -> Vec<u8> {
        mutant(
            &self.seeds,
            self.target.most_bytes,
            self.target.unpacks,
            &mut Random::of_mutant(self.seed, number),
        )
    }

    fn read(&self, bytes: &[u8]) -> Read {
        let begun = Instant::now();
        let (outcome, peak_bytes) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (self.target.read)(bytes))));
        let time = begun.elapsed();
        let panic = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        Read { understood: outcome.unwrap_or(false), panic, time, peak_bytes }
    }

    /// A smaller file with a panic at the same place: pieces are left out, large ones first, as long as it stays.
    fn minimised(&self, mut bytes: Vec<u8>, place: &str) -> Vec<u8> {
        let begun = Instant::now();
        let panics = |bytes: &[u8]| self.read(bytes).panic.is_some_and(|panic| panic.place == place);
        if !panics(&bytes) {
            return bytes;
        }
        let mut size = bytes.len().next_power_of_two() / 2;
        while size > 0 {
            let mut start = 0;
            while start < bytes.len() {
                if begun.elapsed() > MINIMISING {
                    return bytes;
                }
                let end = (start + size).min(bytes.len());
                let smaller = [&bytes[..start], &bytes[end..]].concat();
                if panics(&smaller) { bytes = smaller } else { start = end }
            }
            size /= 2;
        }
        bytes
    }

    fn write(&self, what: &str, number: u64, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.out.join(format!("{}-{what}-{}-{number}", self.target.name, self.seed));
        std::fs::write(&path, bytes)?;
        Ok(path)
    }
}

/// Which mutant is being read, and since when.
struct Watch {
    number: AtomicU64,
    begun: Mutex<Instant>,
}

impl Watch {
    fn begin(&self, number: u64) {
        self.number.store(number, Relaxed);
        *self.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Instant::now();
    }

    /// Ends the process if a mutant is read without end.
    #[expect(clippy::print_stdout, reason = "printing is all it is for")]
    fn wait_for_hangs(&self, run: &Fuzz) {
        loop {
            thread::sleep(Duration::from_secs(1));
            let begun = *self.begun.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if begun.elapsed() > HANGS {
                let number = self.number.load(Relaxed);
                let _ = run.write("hang", number, &run.mutant(number));
                println!("{}: mutant {number} of seed {} hangs", run.target.name, run.seed);
                std::process::exit(2);
            }
        }
    }
}
