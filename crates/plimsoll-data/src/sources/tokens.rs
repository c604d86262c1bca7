//! Text by the tokens of a `tokenizer.json`, the format in which Hugging Face publishes them.
//!
//! A window of tokens begins at a byte that only tokenising all before it tells. So the text is tokenised once, a piece at a
//! time, and its tokens are kept: a few in memory, many in a temporary file without a name, which is gone with the source.

use super::byte_level::ByteLevelBpe;
use super::bytes::Bytes;
use super::collected::Collected;
use super::guard::guard;
use super::text::found;
use super::{Answer, Description, Tokens};
use crate::source::Promise;
use crate::{Dataset, Element, Error, ErrorKind, Field, Result, Source};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Text is tokenised by as many bytes at a time.
const PIECE: usize = 1 << 20;
/// What follows so closely may decide what a token is, and what comes so closely before it, where tokens begin.
const AROUND: usize = 4 << 10;
const TOKEN: usize = size_of::<i32>();

/// What turns text into tokens.
///
/// ```no_run
/// use plimsoll_data::sources::Tokenizer;
///
/// let tokenizer = Tokenizer::open("tokenizer.json")?;
/// let mut tokens = Vec::new();
/// tokenizer.encode("To be, or not to be", &mut tokens)?;
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    vocabulary: usize,
    padding: i32,
    /// A faster way to the same tokens, where there is one.
    words: Option<ByteLevelBpe>,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Tokenizer");
        shown.field("path", &self.path).field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json`. Truncation and padding that it asks for are left out: no text is cut silently.
    ///
    /// # Errors
    /// If the file cannot be read, or is no tokenizer.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref().to_path_buf();
        let bytes = Bytes::open(&path)?;
        let json = bytes.read_vec(0, bytes.len())?;
        let read = || -> std::result::Result<(tokenizers::Tokenizer, u32), tokenizers::Error> {
            let mut inner = tokenizers::Tokenizer::from_bytes(&json)?;
            let named = || ["[PAD]", "<pad>", "<|pad|>"].into_iter().find_map(|name| inner.token_to_id(name));
            let padding = inner.get_padding().map(|padding| padding.pad_id).or_else(named).unwrap_or(0);
            inner.with_truncation(None)?;
            inner.with_padding(None);
            Ok((inner, padding))
        };
        let inner = guard(|| read().map_err(|error| error.to_string()));
        let (mut inner, padding) =
            inner.map_err(|reason| bytes.error(None, None, format!("it is no tokenizer: {reason}")))?;
        // Numbers need not be without gaps.
        let most = inner.get_vocab(true).into_values().max().unwrap_or(0);
        let Some(vocabulary) = i32::try_from(most).ok().map(|most| most as usize + 1) else {
            return Err(bytes.error(None, None, format!("its token {most} does not fit an i32")));
        };
        let words = ByteLevelBpe::of(&inner);
        if words.is_some() {
            // Words are kept once.
            let mut model = inner.get_model().clone();
            model.resize_cache(0);
            inner.with_model(model);
        }
        // One that it has no token for is as good as any.
        let padding = i32::try_from(padding).ok().filter(|&padding| (padding as usize) < vocabulary);
        Ok(Tokenizer { path, inner, vocabulary, padding: padding.unwrap_or(0), words })
    }

    /// Tokens are below this.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The token that shorter texts are filled up with: what it says itself, or one that is called so, or 0.
    pub fn padding(&self) -> i32 {
        self.padding
    }

    /// Adds the tokens of a text to `out`, with those that the tokenizer puts around every text, if any.
    ///
    /// # Errors
    /// If the tokenizer has no token for something in it.
    pub fn encode(&self, text: &str, out: &mut Vec<i32>) -> Result<()> {
        self.encode_as(text, true, out)
    }

    fn encode_as(&self, text: &str, add_special_tokens: bool, out: &mut Vec<i32>) -> Result<()> {
        if self.encode_words(text, text.len(), out)?.is_some() {
            return Ok(());
        }
        let encode = || self.inner.encode_fast(text, add_special_tokens).map_err(|error| error.to_string());
        let encoded = guard(encode).map_err(|reason| self.failed(&reason))?;
        out.extend(encoded.get_ids().iter().map(|&token| token as i32));
        Ok(())
    }

    /// Adds the tokens of words that end within the first `limit` bytes of a text; returns the bytes of these words, or
    /// nothing if the text is not tokenised so.
    fn encode_words(&self, text: &str, limit: usize, out: &mut Vec<i32>) -> Result<Option<usize>> {
        let Some(words) = &self.words else { return Ok(None) };
        let before = out.len();
        let encode =
            || words.encode(self.inner.get_model(), text, limit, out).map_err(|error| error.to_string());
        guard(encode).map_err(|reason| {
            out.truncate(before);
            self.failed(&reason)
        })
    }

    /// Adds the tokens that the text from `done` on has within a longer one, of which `text` is a part, as far as they are
    /// certain; returns where they end. Those before `done` were added before.
    fn encode_on(&self, text: &str, done: usize, is_last: bool, out: &mut Vec<i32>) -> Result<usize> {
        let limit = if is_last { text.len() } else { text.len().saturating_sub(AROUND) };
        if let Some(used) = self.encode_words(&text[done..], limit.saturating_sub(done), out)?
            && (used > 0 || is_last)
        {
            return Ok(done + used);
        }
        let encode = || self.inner.encode(text, false).map_err(|error| error.to_string());
        let encoded = guard(encode).map_err(|reason| self.failed(&reason))?;
        let (places, tokens) = (encoded.get_offsets(), encoded.get_ids());
        let first = places.iter().take_while(|&&(_, end)| end <= done).count();
        let after = first + places[first..].iter().take_while(|&&(_, end)| end <= limit).count();
        let goes_on = places.get(first).is_none_or(|&(start, _)| start >= done);
        if goes_on && (after > first || is_last) {
            out.extend(tokens[first..after].iter().map(|&token| token as i32));
            let end = places[first..after].last().map_or(done, |&(_, end)| end);
            return Ok(if is_last { text.len() } else { end });
        }
        // It falls into other tokens than before, or is a single one: it is tokenised by itself.
        self.encode_as(&text[done..], false, out)?;
        Ok(text.len())
    }

    fn failed(&self, reason: &str) -> Error {
        let reason = format!("the text cannot be tokenised: {reason}");
        ErrorKind::File { path: self.path.clone(), sample: None, offset: None, reason }.into()
    }
}

/// Text in windows of so many tokens: `tokens`, `i32`, and `next`, the same one token later.
///
/// Windows follow each other without overlap and do not cross from one file to the next; what is left at the end of a file is
/// not read. Files are tokenised when the source is opened, in pieces of about 1 MiB, each with some of the text around it, so
/// that the tokens are those of the whole text; without the tokens that a tokenizer puts around a text. Up to 16 MiB of tokens
/// are kept in memory, more in an unnamed file in the system's folder for temporary files, four bytes a token.
#[derive(Debug)]
pub struct TokenizedText {
    fields: [Field; 2],
    length: usize,
    vocabulary: usize,
    tokens: Bytes,
    parts: Vec<Part>,
}

/// The windows of a file.
#[derive(Debug)]
struct Part {
    windows_before: usize,
    windows: usize,
    /// The first token.
    first: u64,
}

impl TokenizedText {
    /// The text of these files, in windows of `length` tokens.
    ///
    /// # Errors
    /// If a file cannot be read or is not UTF-8, the tokens cannot be written, or no file has as much as a window and one
    /// token more.
    pub fn open<P: AsRef<Path>>(paths: &[P], tokenizer: &Tokenizer, length: usize) -> Result<TokenizedText> {
        let field = |name| Field::new(name, Element::I32, &[length]);
        let fields = [field("tokens")?, field("next")?];
        let mut kept = Collected::new("tokens");
        let (mut parts, mut windows_before) = (Vec::new(), 0usize);
        for path in paths {
            let first = kept.bytes() / TOKEN as u64;
            tokenize(path.as_ref(), tokenizer, &mut kept)?;
            // The last token of a window needs one that follows it.
            let tokens = kept.bytes() / TOKEN as u64 - first;
            let windows = tokens.saturating_sub(1) / length as u64;
            let windows = usize::try_from(windows).unwrap_or(usize::MAX);
            parts.push(Part { windows_before, windows, first });
            windows_before = windows_before.saturating_add(windows);
        }
        if windows_before == 0 {
            let of = paths.first().map_or("no file".to_string(), |path| path.as_ref().display().to_string());
            let (files, tokens) = (paths.len(), kept.bytes() / TOKEN as u64);
            let what = format!(
                "{of} ({files} files with {tokens} tokens in all) has no window of {length} tokens and the one that follows"
            );
            return Err(ErrorKind::Empty { what }.into());
        }
        let tokens = kept.finish(paths[0].as_ref())?;
        Ok(TokenizedText { fields, length, vocabulary: tokenizer.vocabulary, tokens, parts })
    }
}

impl Source for TokenizedText {
    fn samples(&self) -> usize {
        self.parts.last().map_or(0, |last| last.windows_before.saturating_add(last.windows))
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let part = self.parts.partition_point(|part| part.windows_before <= sample) - 1;
        let Part { windows_before, first, .. } = self.parts[part];
        let token = first + (sample - windows_before) as u64 * self.length as u64 + field as u64;
        self.tokens.read(token * TOKEN as u64, out).map_err(|error| error.of_sample(sample))
    }

    fn resident_bytes(&self) -> u64 {
        self.tokens.resident_bytes() + (self.parts.capacity() * size_of::<Part>()) as u64
    }

    fn promise(&self, _: usize) -> Promise {
        Promise::Below(self.vocabulary)
    }
}

/// Text by a tokenizer that a workload names. This is read at once, since models are made for its vocabulary.
#[derive(Debug)]
struct Described {
    path: PathBuf,
    tokenizer: Tokenizer,
    length: usize,
    missing: Option<String>,
}

pub(super) fn describe(
    path: PathBuf,
    tokenizer: &Path,
    length: usize,
    missing: Option<String>,
) -> Result<Box<dyn Description>> {
    found(tokenizer, missing.as_deref())?;
    Ok(Box::new(Described { path, tokenizer: Tokenizer::open(tokenizer)?, length, missing }))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        Answer::Classes
    }

    fn tokens(&self) -> Option<Tokens> {
        Some(Tokens { length: self.length, vocabulary: self.tokenizer.vocabulary })
    }

    fn open(&self) -> Result<Dataset> {
        let paths = found(&self.path, self.missing.as_deref())?;
        Dataset::new(TokenizedText::open(&paths, &self.tokenizer, self.length)?)
    }
}

/// Tokenises a file, a piece at a time.
fn tokenize(path: &Path, tokenizer: &Tokenizer, into: &mut Collected) -> Result<()> {
    let failed = |error| Error::from(ErrorKind::Io { what: path.display().to_string(), error });
    // Refuses a pipe, which would wait for somebody who writes.
    Bytes::open(path)?;
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let (mut text, mut tokens, mut offset) = (Vec::new(), Vec::new(), 0u64);
    // So much of the text was tokenised before.
    let mut done = 0;
    loop {
        let is_last = file.by_ref().take(PIECE as u64).read_to_end(&mut text).map_err(failed)? < PIECE;
        let whole = match std::str::from_utf8(&text) {
            Ok(whole) => whole,
            // A character that goes on after the piece.
            Err(error) if error.error_len().is_none() && !is_last => {
                std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let (offset, reason) =
                    (offset + error.valid_up_to() as u64, "it is no UTF-8 from here on".to_string());
                return Err(ErrorKind::File {
                    path: path.to_path_buf(),
                    sample: None,
                    offset: Some(offset),
                    reason,
                }
                .into());
            }
        };
        tokens.clear();
        let used = match done {
            // All of a short text is tokenised as it is.
            0 if is_last => tokenizer.encode_as(whole, false, &mut tokens).map(|()| whole.len())?,
            done => tokenizer.encode_on(whole, done, is_last, &mut tokens)?,
        };
        into.add(bytemuck::cast_slice(&tokens))?;
        if is_last {
            return Ok(());
        }
        // From the beginning of a character on.
        let kept = (0..=used.saturating_sub(AROUND)).rfind(|&at| whole.is_char_boundary(at)).unwrap_or(0);
        offset += kept as u64;
        text.drain(..kept);
        done = used - kept;
    }
}
