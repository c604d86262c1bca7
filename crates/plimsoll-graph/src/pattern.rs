//! Patterns of names: how rates, decay and freezing say which parameters they mean.
//!
//! Parameters are named by paths, `block0/mlp/up/bias`. A pattern is such a path, of a parameter or of a scope with all that
//! is in it, in which `*` stands for any characters, `/` among them: `head` is for `head/weight` and `head/bias`, `*/bias` for
//! all that are called `bias` in some scope, however deep, and `*/ln*` for all scopes whose names begin with `ln`.

use std::fmt;

/// Patterns of names, of which one must match.
///
/// ```
/// use plimsoll_graph::pattern::Patterns;
/// let undecayed = Patterns::new(["*/bias", "*/ln*", "head"]);
/// assert!(undecayed.matches("block0/mlp/up/bias") && undecayed.matches("block0/ln1/gamma"));
/// assert!(undecayed.matches("head/weight") && !undecayed.matches("header/weight"));
/// assert!(!undecayed.matches("block0/mlp/up/weight"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns(Vec<Box<str>>);

impl Patterns {
    /// These patterns.
    pub fn new(patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> Patterns {
        Patterns(patterns.into_iter().map(Into::into).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| &**pattern)
    }

    /// Whether one of them matches a name.
    pub fn matches(&self, name: &str) -> bool {
        self.iter().any(|pattern| matches(pattern, name))
    }

    /// Adds others.
    pub fn extend(&mut self, others: impl IntoIterator<Item = impl Into<Box<str>>>) {
        self.0.extend(others.into_iter().map(Into::into));
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<String> = self.iter().map(|pattern| format!("`{pattern}`")).collect();
        f.write_str(&quoted.join(", "))
    }
}

/// Whether a pattern matches a name, or a scope that it is in.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut to) = (0, 0);
    // The last `*`, and how far it reached: it reaches further wherever the rest does not match.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, to));
            at += 1;
        } else if at == pattern.len() && (to == name.len() || name[to] == b'/') {
            return true;
        } else if at < pattern.len() && pattern.get(at) == name.get(to) {
            (at, to) = (at + 1, to + 1);
        } else {
            match star {
                Some((of, reached)) if reached < name.len() => {
                    star = Some((of, reached + 1));
                    (at, to) = (of + 1, reached + 1);
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by trying all that a `*` can stand for.
    fn obviously(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None | Some((b'/', _))) => true,
            (Some((b'*', rest)), _) => (0..=name.len()).any(|taken| obviously(rest, &name[taken..])),
            (Some((a, pattern)), Some((b, name))) => a == b && obviously(pattern, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_whatever_lets_the_rest_match(pattern in "[ab/*]{0,7}", name in "[ab/]{0,9}") {
            prop_assert_eq!(matches(&pattern, &name), obviously(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
