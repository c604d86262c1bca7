//! Texts of samples as tokens: reviews, messages, titles, of which something is to be predicted. A sample has as many tokens
//! as the workload says, whatever its text: what is longer is cut, what is shorter is filled up with the token 0.

#[cfg(feature = "tokenizers")]
use super::tokens::Tokenizer;
use super::{Options, Tokens};
use crate::{Element, Field, Result};
#[cfg(feature = "tokenizers")]
use std::cell::RefCell;
#[cfg(feature = "tokenizers")]
use std::sync::Arc;

/// How a text becomes tokens.
///
/// ```
/// use std::io::Cursor;
/// use plimsoll_data::sources::TextTokens;
/// use plimsoll_data::{Csv, Source};
///
/// let csv = Csv::label("stars").text("review", TextTokens::bytes(4));
/// let reviews = csv.read(Cursor::new("review,stars\n\"Fine,\nreally\",4\nno,1\n"))?;
/// let mut tokens = [0; 16];
/// reviews.read(1, 0, &mut tokens)?;
/// assert_eq!(tokens, [b'n', b'o', 0, 0].map(|token| i32::from(token).to_ne_bytes()).concat()[..]);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextTokens {
    length: usize,
    by: By,
}

#[derive(Clone, Debug)]
enum By {
    Bytes,
    /// Words, of which so many are told apart.
    Words(usize),
    #[cfg(feature = "tokenizers")]
    Tokenizer(Arc<Tokenizer>),
}

/// How many different bytes there are. The token 0 is that of no text that anybody writes.
const BYTES: usize = 256;

impl TextTokens {
    /// Each byte is a token, of 256 that there are. Of any language; models of the order of tokens, such as transformers, can
    /// learn from them.
    pub fn bytes(length: usize) -> TextTokens {
        TextTokens { length, by: By::Bytes }
    }

    /// Each word is a token: letters and digits that follow one another, in lower case, or a single letter of a language
    /// that has no spaces. Its number is a hash of it, from 1 to below `words`, so that there is no list of words to make or
    /// keep; of different words some have the same number.
    pub fn words(length: usize, words: usize) -> TextTokens {
        TextTokens { length, by: By::Words(words.max(2)) }
    }

    /// The tokens of a `tokenizer.json`, those included that it puts around a text; its token for padding fills up.
    #[cfg(feature = "tokenizers")]
    pub fn tokenizer(length: usize, tokenizer: Tokenizer) -> TextTokens {
        TextTokens { length, by: By::Tokenizer(Arc::new(tokenizer)) }
    }

    /// Reads what a workload says of a text: the column or key that it is in, and its tokens.
    pub(super) fn described(options: &dyn Options) -> Result<Option<(String, TextTokens)>> {
        let Some(name) = options.find_text("text")? else {
            for key in ["length", "words", "tokenizer"] {
                if options.has(key) {
                    return Err(
                        options.refuse(Some(key), &format!("`{key}` is that of a `text`, and there is none"))
                    );
                }
            }
            return Ok(None);
        };
        for key in ["features", "ignore", "columns", "shape"] {
            if options.has(key) {
                let message = format!(
                    "with a `text` nothing else is read but what is to be predicted: leave out `{key}`"
                );
                return Err(options.refuse(Some(key), &message));
            }
        }
        let length = options.need_count("length")?;
        let words = options.find_count("words")?;
        let tokens = match (words, options.find_companion("tokenizer")?) {
            (Some(1), None) => {
                let message = "the number 0 fills up, so there are at least 2 `words`";
                return Err(options.refuse(Some("words"), message));
            }
            (Some(words), None) if i32::try_from(words).is_err() => {
                return Err(options.refuse(Some("words"), "words are numbered by an i32: fewer of them"));
            }
            (Some(words), None) => TextTokens::words(length, words),
            (None, None) => TextTokens::bytes(length),
            (Some(_), Some(_)) => {
                let message = "the tokens of a text are `words` or those of a `tokenizer`, not both";
                return Err(options.refuse(Some("words"), message));
            }
            #[cfg(feature = "tokenizers")]
            (None, Some(path)) => TextTokens::tokenizer(length, Tokenizer::open(path)?),
            #[cfg(not(feature = "tokenizers"))]
            (None, Some(_)) => {
                let message = super::needs_feature("text by a tokenizer", "tokenizers");
                return Err(options.refuse(Some("tokenizer"), &message));
            }
        };
        Ok(Some((name, tokens)))
    }

    /// How many tokens a sample has, and how many different ones there are.
    pub fn tokens(&self) -> Tokens {
        let vocabulary = match &self.by {
            By::Bytes => BYTES,
            By::Words(words) => *words,
            #[cfg(feature = "tokenizers")]
            By::Tokenizer(tokenizer) => tokenizer.vocabulary(),
        };
        Tokens { length: self.length, vocabulary }
    }

    /// The field that they become.
    pub(super) fn field(&self) -> Result<Field> {
        Field::new("tokens", Element::I32, &[self.length])
    }

    /// Writes the tokens of a text, as many as there is room for, or says why it has none.
    pub(super) fn write(&self, text: &str, out: &mut [[u8; 4]]) -> std::result::Result<(), String> {
        match &self.by {
            By::Bytes => fill(text.bytes().map(i32::from), 0, out),
            By::Words(words) => fill(hashes(text).map(|hash| numbered(hash, *words)), 0, out),
            #[cfg(feature = "tokenizers")]
            By::Tokenizer(tokenizer) => {
                thread_local! {
                    static TOKENS: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
                }
                return TOKENS.with_borrow_mut(|tokens| {
                    tokens.clear();
                    tokenizer.encode(text, tokens).map_err(|error| error.to_string())?;
                    fill(tokens.iter().copied(), tokenizer.padding(), out);
                    Ok(())
                });
            }
        }
        Ok(())
    }
}

fn fill(tokens: impl Iterator<Item = i32>, padding: i32, out: &mut [[u8; 4]]) {
    let tokens = tokens.chain(std::iter::repeat(padding));
    out.iter_mut().zip(tokens).for_each(|(out, token)| *out = token.to_ne_bytes());
}

/// The number of a word, which is not that of padding.
fn numbered(hash: u64, words: usize) -> i32 {
    // `words` fit an i32 or are as good as all there are.
    (1 + hash % (words as u64 - 1)).min(i32::MAX as u64) as i32
}

/// How many words a text has.
pub(super) fn count_words(text: &str) -> u64 {
    hashes(text).count() as u64
}

/// The hashes of the words of a text: FNV-1a, with the bits stirred that a remainder is made of.
fn hashes(text: &str) -> impl Iterator<Item = u64> {
    let mut characters = text.chars().flat_map(char::to_lowercase).peekable();
    std::iter::from_fn(move || {
        let first = characters.find(|character| character.is_alphanumeric())?;
        let mut hash = hash_on(0xcbf2_9ce4_8422_2325, first);
        if !is_word(first) {
            while let Some(next) = characters.next_if(|next| next.is_alphanumeric() && !is_word(*next)) {
                hash = hash_on(hash, next);
            }
        }
        hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Some(hash ^ hash >> 32)
    })
}

fn hash_on(hash: u64, character: char) -> u64 {
    let mut bytes = [0; 4];
    let bytes = character.encode_utf8(&mut bytes).bytes();
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a letter is of a script without spaces between words: Chinese, Japanese, Thai, Lao, Burmese and Khmer.
fn is_word(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(of: &TextTokens, text: &str) -> Vec<i32> {
        let mut out = vec![[1; 4]; of.tokens().length];
        of.write(text, &mut out).expect("tokens");
        out.into_iter().map(i32::from_ne_bytes).collect()
    }

    #[test]
    fn the_same_word_has_the_same_number_wherever_it_stands() {
        let of = TextTokens::words(8, 1 << 20);
        let [a, b] = ["Not bad, NOT good!", "bad... good? not"].map(|text| tokens(&of, text));
        assert_eq!((a[0], a[1], a[3]), (a[2], b[0], b[1]));
        assert_eq!((&a[4..], b[2], &b[3..]), (&[0; 4][..], a[0], &[0; 5][..]));
        assert_eq!(tokens(&of, "größe GRÖSSE Größe")[0], tokens(&of, "größe GRÖSSE Größe")[2]);
        assert_eq!(tokens(&of, "猫が好き")[..4].iter().filter(|&&token| token > 0).count(), 4);
    }

    #[test]
    fn numbers_of_words_are_spread_over_all_there_are() {
        let of = TextTokens::words(1, 65);
        let mut counts = [0; 65];
        (0..6400).for_each(|n| counts[tokens(&of, &format!("word{n}"))[0] as usize] += 1);
        assert_eq!(counts[0], 0, "that of padding");
        assert!(counts[1..].iter().all(|count| (50..150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_numbers_of_words_never_change() {
        // A model that was trained by them knows no others.
        assert_eq!(tokens(&TextTokens::words(3, 20_000), "the quick fox"), [3431, 10461, 19976]);
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(tokens(&TextTokens::bytes(3), "größe"), [103, 114, 195]);
        assert_eq!(tokens(&TextTokens::words(2, 2), "a b c"), [1, 1]);
        assert_eq!(tokens(&TextTokens::words(2, usize::MAX), "").len(), 2);
    }
}
