//! Damages every recording it is given in many ways and reads what comes of it: `mutate SECONDS SEED FILE...`.
//!
//! Each mutant is read, explained and shown. What must not happen ends the run with the mutant written to a file: a panic,
//! more than 30 seconds, more than 1 GiB. The time is shared evenly among the files, and the seed gives the same mutants
//! again.

use plimsoll_explain::{Input, Style, explain, read_input, show, write_html};
use plimsoll_memory::peak_resident_bytes;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The limits that reading has by default.
const MOST_BYTES: u64 = 1 << 30;
const MOST_TIME: Duration = Duration::from_secs(30);

#[expect(clippy::print_stdout, reason = "printing is all it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().ok_or("mutate SECONDS SEED FILE...")?.parse()?;
    let seed: u64 = args.next().ok_or("mutate SECONDS SEED FILE...")?.parse()?;
    let files: Vec<String> = args.collect();
    let mut pool = Vec::new();
    for file in &files {
        let mut bytes = Vec::new();
        Input::bytes(&std::fs::read(file)?)?.read_to_end(&mut bytes)?;
        pool.push(bytes);
    }
    let share = Duration::from_secs_f64(seconds / files.len().max(1) as f64);
    let mut all = 0_u64;
    for (at, file) in files.iter().enumerate() {
        let mut random = Random(seed ^ (at as u64) << 32 | 1);
        let (start, mut count, mut answered, mut longest) = (Instant::now(), 0_u64, 0_u64, Duration::ZERO);
        while start.elapsed() < share {
            let mutant = mutant(&pool, at, &mut random);
            let begun = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| look_at(&mutant)));
            let took = begun.elapsed();
            let bytes = peak_resident_bytes().unwrap_or(0);
            if outcome.is_err() || took > MOST_TIME || bytes > MOST_BYTES {
                std::fs::write("mutant", &mutant)?;
                return Err(format!(
                    "{file}: mutant {count} of seed {seed}: {took:?}, {bytes} bytes: see `mutant`"
                )
                .into());
            }
            answered += u64::from(outcome.unwrap_or(false));
            longest = longest.max(took);
            count += 1;
        }
        all += count;
        let peak = peak_resident_bytes().unwrap_or(0) >> 20;
        println!(
            "{count:>9} mutants, {answered:>9} answered, {longest:>9.3?} at most, {peak:>4} MiB so far: {file}"
        );
    }
    println!("{all} mutants");
    Ok(())
}

/// Reads, explains and shows what may be a recording; says whether it was.
fn look_at(bytes: &[u8]) -> bool {
    let Ok(recording) = Input::bytes(bytes).and_then(|input| read_input(input, "mutant")) else {
        return false;
    };
    let explanation = explain(&recording);
    let mut sink = std::io::sink();
    let _ = show(&explanation, Style::default(), &mut sink);
    let _ = explanation.to_json();
    let _ = write_html(&recording, &explanation, &mut sink);
    true
}

/// A file cut, with bytes changed, pieces repeated, moved, and taken from other files.
fn mutant(pool: &[Vec<u8>], at: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = pool[at].clone();
    for _ in 0..=random.below(8) {
        let place = random.below(bytes.len());
        let length = 1 << random.below(14);
        let end = (place + random.below(length)).min(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(place),
            1 | 2 => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte = random.next() as u8),
            3 => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            4 => drop(bytes.drain(place..end)),
            5 => {
                let times = 1 << random.below(10);
                let piece = bytes[place..end].repeat(times.min((1 << 20) / (end - place).max(1) + 1));
                drop(bytes.splice(place..place, piece));
            }
            6 => {
                let (piece, to) = (bytes[place..end].to_vec(), random.below(bytes.len()));
                drop(bytes.splice(to..to, piece));
            }
            _ => {
                let other = &pool[random.below(pool.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + end - place).min(other.len())].to_vec();
                drop(bytes.splice(place..place, piece));
            }
        }
    }
    bytes
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}
