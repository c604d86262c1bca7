//! Byte-level BPE, as GPT-2 and its many descendants have it, word by word: the `tokenizers` library carries offsets and
//! normalised copies of all text along, which takes several times as long as finding the tokens.
//!
//! Words are found by the library's rule, written out by hand; what the tokens of a word are is asked of the library once,
//! and kept. So the tokens are the library's. Whatever is not of this kind, or says more than words do, is left to it.

use ahash::AHashMap;
use memchr::memmem::Finder;
use regex_syntax::hir::{Class, HirKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokenizers::Model;
use tokenizers::models::ModelWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;

/// As many words are kept for each thread that tokenises at the same time, each of at most so many bytes.
const MOST_WORDS: usize = 28_000;
const LONGEST_WORD: usize = 48;
/// A tokenizer with more tokens beside its words is left to the library, which looks for all of them at once.
const MOST_ADDED: usize = 8;

/// How to find and look up the words of a tokenizer.
pub(super) struct ByteLevelBpe {
    kinds: Kinds,
    /// Texts that are tokens wherever they are found: who has one of them is left to the library.
    added: Vec<Finder<'static>>,
    /// What the library writes for a byte.
    letters: [char; 256],
    idle: Mutex<Vec<Words>>,
}

/// The tokens of words that came up before.
#[derive(Default)]
struct Words {
    /// Where in `tokens` those of a word are, and how many.
    places: AHashMap<Box<[u8]>, (u32, u32)>,
    tokens: Vec<i32>,
    /// A word as the library takes it.
    written: String,
}

impl ByteLevelBpe {
    /// For a tokenizer of this kind.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<ByteLevelBpe> {
        let ModelWrapper::BPE(bpe) = tokenizer.get_model() else { return None };
        let Some(PreTokenizerWrapper::ByteLevel(words)) = tokenizer.get_pre_tokenizer() else { return None };
        let adds_nothing =
            matches!(tokenizer.get_post_processor(), None | Some(PostProcessorWrapper::ByteLevel(_)));
        let is_plain = tokenizer.get_normalizer().is_none() && bpe.dropout.is_none();
        let added = tokenizer.get_added_tokens_decoder();
        if !adds_nothing
            || !is_plain
            || words.add_prefix_space
            || !words.use_regex
            || added.len() > MOST_ADDED
        {
            return None;
        }
        let added = added.values().map(|token| Finder::new(token.content.as_bytes()).into_owned()).collect();
        Some(ByteLevelBpe { kinds: Kinds::new()?, added, letters: letters(), idle: Mutex::default() })
    }

    /// Adds the tokens of the words of a text that end within its first `limit` bytes, and returns how many bytes these words
    /// have; nothing if the text is to be left to the library, and then nothing is added.
    pub(super) fn encode(
        &self,
        model: &ModelWrapper,
        text: &str,
        limit: usize,
        out: &mut Vec<i32>,
    ) -> Result<Option<usize>, tokenizers::Error> {
        if self.added.iter().any(|token| token.find(text.as_bytes()).is_some()) {
            return Ok(None);
        }
        let mut words = self.idle().pop().unwrap_or_default();
        let mut rest = text;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(self.kinds.word(rest));
            if text.len() - after.len() > limit {
                break;
            }
            words.look_up(word.as_bytes(), model, &self.letters, out)?;
            rest = after;
        }
        self.idle().push(words);
        Ok(Some(text.len() - rest.len()))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Words>> {
        // Whole tables are taken out and put back: a thread that panicked between left nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Words {
    /// Adds the tokens of a word.
    fn look_up(
        &mut self,
        word: &[u8],
        model: &ModelWrapper,
        letters: &[char; 256],
        out: &mut Vec<i32>,
    ) -> Result<(), tokenizers::Error> {
        if let Some(&(first, count)) = self.places.get(word) {
            out.extend_from_slice(&self.tokens[first as usize..][..count as usize]);
            return Ok(());
        }
        self.written.clear();
        self.written.extend(word.iter().map(|&byte| letters[usize::from(byte)]));
        let found = model.tokenize(&self.written)?;
        let tokens = found.iter().map(|token| token.id as i32);
        if word.len() <= LONGEST_WORD && self.places.len() < MOST_WORDS {
            // At most as many tokens as bytes: both numbers are small.
            self.places.insert(word.into(), (self.tokens.len() as u32, found.len() as u32));
            self.tokens.extend(tokens.clone());
        }
        out.extend(tokens);
        Ok(())
    }
}

/// What the library writes for a byte: printable ones of Latin-1 as they are, the others as characters from U+0100 on.
fn letters() -> [char; 256] {
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(byte),
        byte => others.next().unwrap_or(char::from(byte)),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letter,
    Number,
    Space,
    Other,
}

/// The kinds of characters, by the tables of the library's expressions.
struct Kinds {
    /// The first and last character of ranges that are letters or numbers, in order.
    ranges: Vec<(char, char, Kind)>,
}

impl Kinds {
    fn new() -> Option<Kinds> {
        let mut ranges = vec![];
        for (expression, kind) in [(r"\p{L}", Kind::Letter), (r"\p{N}", Kind::Number)] {
            let parsed = regex_syntax::parse(expression).ok()?;
            let HirKind::Class(Class::Unicode(class)) = parsed.kind() else { return None };
            ranges.extend(class.iter().map(|range| (range.start(), range.end(), kind)));
        }
        ranges.sort_unstable_by_key(|&(first, _, _)| first);
        Some(Kinds { ranges })
    }

    fn of(&self, character: char) -> Kind {
        match character {
            'a'..='z' | 'A'..='Z' => Kind::Letter,
            '0'..='9' => Kind::Number,
            _ if character.is_whitespace() => Kind::Space,
            _ if character.is_ascii() => Kind::Other,
            _ => {
                let after = self.ranges.partition_point(|&(first, _, _)| first <= character);
                let before = after.checked_sub(1).map(|at| self.ranges[at]);
                before.filter(|&(_, last, _)| character <= last).map_or(Kind::Other, |(_, _, kind)| kind)
            }
        }
    }

    /// The bytes of the first word of a text that is not empty, by the expression
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
    fn word(&self, text: &str) -> usize {
        if let Some(rest) = text.strip_prefix('\'') {
            let endings = ["s", "t", "re", "ve", "m", "ll", "d"];
            if let Some(ending) = endings.into_iter().find(|ending| rest.starts_with(ending)) {
                return 1 + ending.len();
            }
        }
        let spaces = usize::from(text.starts_with(' '));
        let mut characters = text[spaces..].chars();
        match characters.next().map(|first| self.of(first)) {
            Some(kind) if kind != Kind::Space => {
                let ends = |&(_, character): &(usize, char)| self.of(character) != kind;
                let rest = &text[spaces..];
                spaces + rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at)
            }
            _ => {
                // The last space before a word goes with it, or stands by itself; at the end of a text all are one.
                let word = text.find(|character: char| !character.is_whitespace());
                let Some(end) = word else { return text.len() };
                let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
                if last < end { end - last } else { end }
            }
        }
    }
}
