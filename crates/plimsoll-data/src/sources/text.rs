//! Text by its bytes: each is a token, of 256 that there are, and the next is what is to be predicted. Any text in any
//! language is read so without a list of words, and in place: a file of any size takes no memory.

use super::bytes::Bytes;
use super::files::Paths;
use super::{Answer, Description, Options, SourceKind, Tokens};
use crate::source::Promise;
use crate::{Dataset, Element, ErrorKind, Field, Result, Source};
use std::path::{Path, PathBuf};

pub(super) const KIND: SourceKind =
    SourceKind { name: "text", keys: &["path", "length", "tokenizer", "missing"], describe };

/// How many different bytes there are.
const VOCABULARY: usize = 256;
/// Bytes are converted by as many at a time.
const CHUNK: usize = 8 << 10;

/// Text in windows of so many bytes: `tokens`, `i32`, and `next`, the same one byte later.
///
/// Windows follow each other without overlap and do not cross from one file to the next; what is left at the end of a file
/// is not read.
#[derive(Debug)]
pub struct Text {
    files: Vec<Part>,
    fields: [Field; 2],
    length: usize,
}

/// A file, and the number of windows up to its end, those of the files before it included.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    windows_before: usize,
    windows: usize,
}

impl Text {
    /// The text of these files, in windows of `length` bytes.
    ///
    /// # Errors
    /// If a file cannot be read, or none has as much as a window and one byte more.
    pub fn open<P: AsRef<Path>>(paths: &[P], length: usize) -> Result<Text> {
        let field = |name| Field::new(name, Element::I32, &[length]);
        let fields = [field("tokens")?, field("next")?];
        let (mut files, mut windows_before, mut total) = (Vec::new(), 0usize, 0u64);
        for path in paths {
            let bytes = Bytes::open(path.as_ref())?;
            total = total.saturating_add(bytes.len());
            // The last byte of a window needs one that follows it.
            let windows = bytes.len().saturating_sub(1) / length as u64;
            let windows = usize::try_from(windows).unwrap_or(usize::MAX);
            files.push(Part { bytes, windows_before, windows });
            windows_before = windows_before.saturating_add(windows);
        }
        if windows_before == 0 {
            let of = paths.first().map_or("no file".to_string(), |path| path.as_ref().display().to_string());
            let count = paths.len();
            let what = format!(
                "{of} ({count} files with {total} bytes in all) has no window of {length} bytes and the one that follows"
            );
            return Err(ErrorKind::Empty { what }.into());
        }
        Ok(Text { files, fields, length })
    }
}

/// Text that a workload names.
#[derive(Debug)]
struct Described {
    path: PathBuf,
    length: usize,
    /// How to get the text, if it is not there.
    missing: Option<String>,
}

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let (path, length) = (options.need_path("path")?, options.need_count("length")?);
    let missing = options.find_text("missing")?;
    match options.find_companion("tokenizer")? {
        None => Ok(Box::new(Described { path, length, missing })),
        #[cfg(feature = "tokenizers")]
        Some(tokenizer) => super::tokens::describe(path, &tokenizer, length, missing),
        #[cfg(not(feature = "tokenizers"))]
        Some(_) => {
            let message = super::needs_feature("text by a tokenizer", "tokenizers");
            Err(options.refuse(Some("tokenizer"), &message))
        }
    }
}

/// The files that are meant, if they are there; else how to get them, if that is known.
pub(super) fn found(path: &Path, missing: Option<&str>) -> Result<Vec<PathBuf>> {
    let paths = Paths::from(path);
    match missing {
        Some(missing) if !paths.are_there() => {
            let (path, reason) = (path.to_path_buf(), format!("there is no such file; {missing}"));
            Err(ErrorKind::File { path, sample: None, offset: None, reason }.into())
        }
        _ => paths.files(),
    }
}

impl Description for Described {
    fn answer(&self) -> Answer {
        Answer::Classes
    }

    fn tokens(&self) -> Option<Tokens> {
        Some(Tokens { length: self.length, vocabulary: VOCABULARY })
    }

    fn open(&self) -> Result<Dataset> {
        Dataset::new(Text::open(&found(&self.path, self.missing.as_deref())?, self.length)?)
    }
}

impl Source for Text {
    fn samples(&self) -> usize {
        self.files.last().map_or(0, |last| last.windows_before.saturating_add(last.windows))
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        // The last of the files that begin at or before the sample; those without windows begin where the next one does.
        let file = self.files.partition_point(|part| part.windows_before <= sample) - 1;
        let Part { bytes, windows_before, .. } = &self.files[file];
        let first = (sample - windows_before) as u64 * self.length as u64 + field as u64;
        let mut read = [0; CHUNK];
        for (chunk, out) in out.as_chunks_mut::<4>().0.chunks_mut(CHUNK).enumerate() {
            let read = &mut read[..out.len()];
            let offset = first + (chunk * CHUNK) as u64;
            bytes.read(offset, read).map_err(|error| error.of_sample(sample))?;
            for (out, &byte) in out.iter_mut().zip(&*read) {
                *out = i32::from(byte).to_ne_bytes();
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        0
    }

    fn promise(&self, _: usize) -> Promise {
        Promise::Below(VOCABULARY)
    }
}
