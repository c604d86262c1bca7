//! Reads one epoch of a file in batches, and says how fast it came and what it took: what `benches/peers/data` measures
//! beside other pipelines.
//!
//! usage: epoch TASK FOLDER [BUDGET]

use plimsoll_data::image::{ImageMut, flip};
use plimsoll_data::sources::{Inputs, Key, Targets, TfRecord, npy};
use plimsoll_data::{Csv, Dataset, Depth, Element, Field, ImageFolder, RamBudget, Workers};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

const BATCH: usize = 256;
const IMAGES: usize = 32;
const SIZE: usize = 224;
#[cfg(feature = "tokenizers")]
const LENGTH: usize = 1024;
#[cfg(feature = "tokenizers")]
const ROWS: usize = 16;

/// A line of the kernel's account of this process, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes << 10)
}

fn open(task: &str, folder: &Path) -> Result<Dataset, Box<dyn Error>> {
    let data = match task {
        "npy" => {
            let (x, y) = (folder.join("x.npy"), folder.join("y.npy"));
            let stored = npy(&x, &y, Inputs::default(), Targets::Classes(10))?;
            Dataset::new(stored)?.shuffle_all(1)?.batch(BATCH, false)?
        }
        "csv" => Dataset::new(Csv::label("label").open(folder.join("rows.csv"))?)?.batch(BATCH, false)?,
        "tfrecord" => {
            let x = Key::of(Field::new("features", Element::F32, &[64])?);
            let label = Key::of(Field::new("label", Element::I64, &[])?).classes(10);
            let rows = TfRecord::new(&[x, label])?.open(folder.join("rows.tfrecord"))?;
            Dataset::new(rows)?.shuffle(10_000, 1).batch(BATCH, false)?
        }
        #[cfg(feature = "parquet")]
        "parquet" => {
            let rows = plimsoll_data::sources::parquet(folder.join("rows.parquet"))?;
            Dataset::new(rows)?.batch(BATCH, false)?
        }
        "jpeg" => {
            let images = ImageFolder::new(folder.join("images"))?.size(SIZE, SIZE)?;
            let images = Dataset::new(images)?.shuffle_all(1)?;
            let fields = images.fields().to_vec();
            let flipped = images.map_random(Workers::Auto, &fields, 1, |from, to, draws| {
                to.copy_from(from);
                if draws.chance(0.5) {
                    let pixels = to.get_mut::<u8>("features")?;
                    flip(&mut ImageMut::new(pixels, [SIZE, SIZE, 3])?);
                }
                Ok(())
            })?;
            flipped.batch(IMAGES, false)?
        }
        #[cfg(feature = "tokenizers")]
        "tokens" => {
            use plimsoll_data::sources::{JsonLines, Tokenizer};
            use plimsoll_data::{ErrorKind, Pack};
            let text = Key::of(Field::open("text", Element::U8, &[Field::OPEN])?);
            let texts = Dataset::new(JsonLines::new(&[text])?.open(folder.join("texts.jsonl"))?)?;
            let tokenizer = Tokenizer::open(folder.join("tokenizer.json"))?;
            let tokens = [Field::open("tokens", Element::I32, &[Field::OPEN])?];
            let tokenised = texts.map(Workers::Auto, &tokens, move |from, to| {
                let text = std::str::from_utf8(from.get("text")?);
                let text = text.map_err(|error| ErrorKind::Field {
                    name: "text".to_string(),
                    reason: error.to_string(),
                })?;
                let mut tokens = Vec::new();
                tokenizer.encode(text, &mut tokens)?;
                to.set("tokens", &[tokens.len()], &tokens)
            })?;
            tokenised.pack(LENGTH, Pack::Cut, &[])?.batch(ROWS, false)?
        }
        other => return Err(format!("there is no task {other}").into()),
    };
    Ok(data.prefetch(Depth::Auto))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, folder, rest @ ..] = &arguments[..] else {
        return Err("usage: epoch TASK FOLDER [BUDGET]".into());
    };
    let (before, start) = (status("VmRSS"), Instant::now());
    let mut data = open(task, Path::new(folder))?;
    if let Some(budget) = rest.first() {
        data = data.within(RamBudget::bytes(budget.parse()?))?;
    }
    let mut records = data.records(0)?;
    let mut rows = 0;
    while let Some(batch) = records.read()? {
        rows += batch.shape(1)[0];
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{}", records.report());
    // The kernel counts a process's pages, not those of files that it reads.
    let peak_bytes = status("VmHWM").saturating_sub(before);
    let line = format!("{{\"rows\": {rows}, \"seconds\": {seconds}, \"peak_bytes\": {peak_bytes}}}");
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
