//! Books that sum, whatever was read: kernels and drivers count in their own ways, and not all at one moment.

use serde::Serialize;

/// What some memory is taken by, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Book {
    /// Of what memory it is.
    pub of: String,
    /// All of it: the sum of the lines.
    pub total_bytes: u64,
    /// What takes how much, with what nobody knows as the last line.
    pub lines: Vec<Line>,
}

/// One line of a book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What takes it.
    pub name: String,
    /// How much.
    pub bytes: u64,
}

impl Book {
    /// Closes the book on a total. A line takes at most what those before it left; the rest is unknown.
    pub(crate) fn close(
        of: impl Into<String>,
        total_bytes: u64,
        lines: impl IntoIterator<Item = (String, u64)>,
    ) -> Book {
        let mut left = total_bytes;
        let mut closed: Vec<Line> = lines
            .into_iter()
            .map(|(name, bytes)| {
                let bytes = bytes.min(left);
                left -= bytes;
                Line { name, bytes }
            })
            .collect();
        closed.push(Line { name: "unknown".into(), bytes: left });
        Book { of: of.into(), total_bytes, lines: closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_sum_to_the_total_whatever_they_claim(total: u64, claims in prop::collection::vec(any::<u64>(), 0..8)) {
            let book = Book::close("memory", total, claims.into_iter().map(|bytes| ("line".to_owned(), bytes)));
            prop_assert_eq!(book.lines.iter().map(|line| u128::from(line.bytes)).sum::<u128>(), u128::from(total));
        }
    }
}
