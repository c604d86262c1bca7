//! What Plimsoll's pages have in common.
//!
//! A page is one HTML file that can be kept, sent and opened years later. Everything is in it: no fonts, scripts or data
//! come from elsewhere, and a content policy in the page forbids it to ask, and to run any script or use any style but the
//! two whose hashes it names. Names in what it shows are untrusted: they enter it as escaped text or as JSON in which `<`
//! cannot occur, and scripts only ever set them as text.
//!
//! A template has slots, `{{name}}`. Style, script and their hashes are filled in here, whatever else there is by whoever
//! has it to show.
//!
//! ```
//! use plimsoll_page::{Page, escape};
//! let page = Page {
//!     template: "<style>{{style}}</style><h1>{{name}}</h1>",
//!     style: "h1 { color: navy; }".into(),
//!     script: String::new(),
//! };
//! let mut html = vec![];
//! page.write(&mut html, |_slot, out| out.write_all(escape("a < b").as_bytes()))?;
//! assert_eq!(html, b"<style>h1 { color: navy; }</style><h1>a &lt; b</h1>");
//! # Ok::<(), std::io::Error>(())
//! ```

use plimsoll_memory::quoted;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CharEscape, Formatter, Serializer};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io::{self, Write};

/// Colours in light and dark, and how texts, tables, buttons and the tooltip look: the beginning of every page's style.
pub const STYLE: &str = include_str!("base.css");

/// Words for numbers, elements, canvases and the tooltip: the beginning of every page's script. It needs an element
/// `tip` to be there.
pub const SCRIPT: &str = include_str!("draw.js");

/// A page to be filled in.
#[derive(Debug, Clone)]
pub struct Page {
    /// HTML with slots.
    pub template: &'static str,
    /// What the slot `style` stands for; `style-hash` is what a content policy calls it.
    pub style: String,
    /// What the slot `script` stands for; `script-hash` is what a content policy calls it.
    pub script: String,
}

impl Page {
    /// Writes the page; `fill` writes what the page's own slots stand for.
    ///
    /// # Errors
    /// If `out` or `fill` fails.
    pub fn write(
        &self,
        out: &mut dyn Write,
        mut fill: impl FnMut(&str, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rest = self.template;
        while let Some((before, after)) = rest.split_once("{{") {
            let (slot, after) = after.split_once("}}").unwrap_or((after, ""));
            out.write_all(before.as_bytes())?;
            match slot {
                "style" => out.write_all(self.style.as_bytes())?,
                "style-hash" => out.write_all(hash(&self.style).as_bytes())?,
                "script" => out.write_all(self.script.as_bytes())?,
                "script-hash" => out.write_all(hash(&self.script).as_bytes())?,
                own => fill(own, out)?,
            }
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }
}

/// What a content policy calls a script or style that it allows.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text)))
}

/// Text for the body of an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Writes JSON for the body of a script element: no `<` can end it, no line separator can break it, and what is in it can
/// be seen, as [`quoted`] has it. Nothing is copied: what a page shows may be most of the memory there is.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_script_json(value: &Value, out: &mut dyn Write) -> io::Result<()> {
    Ok(value.serialize(&mut Serializer::with_formatter(out, InScript))?)
}

/// How JSON is written into a script.
struct InScript;

impl Formatter for InScript {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        // The fragment has no backslash of its own: those seen here are what stands for something unprintable.
        let safe = quoted(fragment);
        let mut rest = &*safe;
        while let Some(at) = rest.find(['<', '>', '&', '\\']) {
            out.write_all(&rest.as_bytes()[..at])?;
            match rest.as_bytes()[at] {
                b'<' => out.write_all(b"\\u003c")?,
                b'>' => out.write_all(b"\\u003e")?,
                b'&' => out.write_all(b"\\u0026")?,
                _ => out.write_all(b"\\\\")?,
            }
            rest = &rest[at + 1..];
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        let control = match escape {
            CharEscape::Quote => return out.write_all(b"\\\""),
            CharEscape::ReverseSolidus => return out.write_all(b"\\\\"),
            CharEscape::Solidus => return out.write_all(b"/"),
            CharEscape::Backspace => "\u{8}",
            CharEscape::FormFeed => "\u{c}",
            CharEscape::LineFeed => "\n",
            CharEscape::CarriageReturn => "\r",
            CharEscape::Tab => "\t",
            CharEscape::AsciiControl(byte) => {
                return self.write_string_fragment(out, char::from(byte).encode_utf8(&mut [0]));
            }
        };
        self.write_string_fragment(out, control)
    }
}

/// The same value with its texts [`quoted`]: JSON is shown to people too, and it escapes only some controls.
pub fn quoted_json(value: Value) -> Value {
    match value {
        Value::String(text) => match quoted(&text) {
            Cow::Borrowed(_) => Value::String(text),
            Cow::Owned(safe) => Value::String(safe),
        },
        Value::Array(items) => items.into_iter().map(quoted_json).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(key, value)| (quoted(&key).into_owned(), quoted_json(value))).collect()
        }
        other => other,
    }
}

/// Bytes as base64.
pub fn base64(bytes: &[u8]) -> String {
    bytes.chunks(3).flat_map(base64_group).map(char::from).collect()
}

/// One to three bytes as four digits of base64.
pub fn base64_group(group: &[u8]) -> [u8; 4] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
    let bits = at(0) << 16 | at(1) << 8 | at(2);
    let digit = |index: usize| match index <= group.len() {
        true => DIGITS[(bits >> (18 - 6 * index) & 63) as usize],
        false => b'=',
    };
    [digit(0), digit(1), digit(2), digit(3)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn base64_is_as_the_standard_gives_it() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    fn in_script(value: &Value) -> String {
        let mut out = vec![];
        write_script_json(value, &mut out).expect("a vector");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn nothing_in_json_ends_the_script_it_stands_in() {
        let hostile = "</script><!--\u{2028}\u{202e}&";
        let json = in_script(&json!({ hostile: hostile }));
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{202e}']), "{json}");
        let back: Value = serde_json::from_str(&json).expect("JSON still");
        assert!(back.as_object().is_some_and(|map| map.keys().all(|key| key.starts_with("</script>"))));
    }

    #[test]
    fn json_in_a_script_reads_back_as_quoted_texts() {
        let every: String = (0..0x3000).filter_map(char::from_u32).collect();
        for text in ["", "plain", "a\\b\"c/d", "\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{9f}", "größer <b>", &every]
        {
            let value = json!({ text: [text, 1.5, null, { "deep": text }] });
            let back: Value = serde_json::from_str(&in_script(&value)).expect("JSON");
            assert_eq!(back, quoted_json(value), "{text:?}");
        }
    }

    #[test]
    fn slots_are_filled_and_the_policy_names_what_is_there() {
        let page = Page {
            template: "{{style-hash}} {{style}} {{x}}{{unclosed",
            style: "a".into(),
            script: String::new(),
        };
        let mut out = vec![];
        page.write(&mut out, |slot, out| write!(out, "[{slot}]")).expect("a vector");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs= a [x][unclosed]");
    }
}
