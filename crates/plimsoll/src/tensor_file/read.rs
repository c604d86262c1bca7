//! Tensors of a safetensors file of any maker, read where they are, piece by piece.
//!
//! A file may come from anybody: everything its header says is checked against the format and the file's length before
//! anything is read by it, and nothing is read but the header and the pieces that are asked for.

use crate::save::io_error;
use crate::{DType, Error, ErrorKind, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The longest header that the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// The most axes of a tensor that is listed.
const MOST_AXES: usize = 64;

/// The most that a maker may say of a file.
const MOST_TEXTS: usize = 1 << 16;

/// The length of the header's length.
const PREFIX: u64 = 8;

/// A safetensors file that is open to be read: what is in it is known, and its tensors are read in pieces.
///
/// ```no_run
/// use plimsoll::exchange::TensorFile;
/// let file = TensorFile::open("weights.safetensors")?;
/// for tensor in file.tensors() {
///     println!("{} {} {:?}", tensor.name(), tensor.dtype_name(), tensor.shape());
/// }
/// let mut first = [0; 4];
/// file.read(0, 0, &mut first)?;
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorFile {
    file: File,
    path: PathBuf,
    tensors: Vec<StoredTensor>,
    /// Where the tensors' bytes begin.
    data: u64,
    metadata: Vec<(String, String)>,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    /// Where its bytes begin and end after the header.
    offsets: [u64; 2],
}

impl StoredTensor {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type, if it is one that there is here.
    pub fn dtype(&self) -> Option<DType> {
        DType::ALL.into_iter().find(|&dtype| super::dtype_name(dtype) == self.dtype)
    }

    /// What the file calls the element type, as `F32` or `F8_E4M3`.
    pub fn dtype_name(&self) -> &str {
        &self.dtype
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.offsets[1] - self.offsets[0]
    }
}

impl TensorFile {
    /// Opens a file and checks all that its header says.
    ///
    /// # Errors
    /// If it cannot be read, or is not a safetensors file: a header that is too long or no JSON, a tensor outside of the
    /// file, over another, or of other bytes than its shape has. The message names the file, the tensor and the byte.
    pub fn open(path: impl AsRef<Path>) -> Result<TensorFile> {
        let path = path.as_ref();
        let cannot_read = |error| io_error("cannot read", path, error);
        // Before it is opened: a pipe would be waited for.
        if !std::fs::metadata(path).map_err(cannot_read)?.is_file() {
            return Err(Error::new(ErrorKind::File, format!("{} is not a file", path.display())));
        }
        let file = File::open(path).map_err(cannot_read)?;
        let length = file.metadata().map_err(cannot_read)?.len();
        let wrong = |at: u64, message: String| {
            let message = format!("{} is not a safetensors file: {message} (at byte {at})", path.display());
            Error::new(ErrorKind::File, message)
        };
        if length < PREFIX {
            return Err(wrong(length, format!("it ends after {length} bytes, before the header's length")));
        }
        let mut prefix = [0; PREFIX as usize];
        read_exact_at(&file, &mut prefix, 0).map_err(cannot_read)?;
        let header_length = u64::from_le_bytes(prefix);
        if header_length > LONGEST_HEADER {
            let message = format!("a header of {header_length} bytes, of at most {LONGEST_HEADER}");
            return Err(wrong(0, message));
        }
        let data = PREFIX + header_length;
        if data > length {
            let message = format!("a header of {header_length} bytes in a file of {length}");
            return Err(wrong(0, message));
        }
        let mut header = vec![0; header_length as usize];
        read_exact_at(&file, &mut header, PREFIX).map_err(cannot_read)?;
        if header.first() != Some(&b'{') {
            return Err(wrong(PREFIX, "the header does not begin with `{`".into()));
        }
        let Header { tensors, metadata } = serde_json::from_slice(&header).map_err(|error| {
            let lines_before = header.split_inclusive(|&b| b == b'\n').take(error.line().saturating_sub(1));
            let at = lines_before.map(<[u8]>::len).sum::<usize>() + error.column();
            wrong(PREFIX + at as u64, format!("its header: {error}"))
        })?;
        check(&tensors, length - data).map_err(|(at, message)| wrong(data.saturating_add(at), message))?;
        Ok(TensorFile { file, path: path.to_path_buf(), tensors, data, metadata })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensors, in the order of their bytes.
    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// The tensor of a name, and its position.
    pub fn find(&self, name: &str) -> Option<(usize, &StoredTensor)> {
        self.tensors.iter().enumerate().find(|(_, tensor)| tensor.name == name)
    }

    /// What the maker said of the file, by name.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// Reads bytes of a tensor, by its position among all, from so many bytes after its first on.
    ///
    /// # Errors
    /// If there are no such bytes, or they cannot be read.
    pub fn read(&self, index: usize, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let Some(tensor) = self.tensors.get(index) else {
            let message = format!(
                "{} has {} tensors, not one of index {index}",
                self.path.display(),
                self.tensors.len()
            );
            return Err(Error::new(ErrorKind::Argument, message));
        };
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > tensor.bytes()) {
            let message = format!(
                "{}: {} bytes from byte {offset} on of `{}`, which has {}",
                self.path.display(),
                bytes.len(),
                shown(&tensor.name),
                tensor.bytes()
            );
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let at = self.data + tensor.offsets[0] + offset;
        read_exact_at(&self.file, bytes, at).map_err(|error| {
            let what =
                format!("cannot read {} bytes of `{}` at byte {at} of", bytes.len(), shown(&tensor.name));
            io_error(&what, &self.path, error)
        })
    }
}

/// What a file says before its tensors.
#[derive(Default)]
struct Header {
    tensors: Vec<StoredTensor>,
    metadata: Vec<(String, String)>,
}

/// Checks that tensors are side by side in so many bytes, each of as many as its shape has, and that no two have one name.
/// An error has the byte after the header.
fn check(tensors: &[StoredTensor], bytes: u64) -> std::result::Result<(), (u64, String)> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err((0, format!("two tensors are called `{}`", shown(twice[0]))));
    }
    let mut end = 0;
    for StoredTensor { name, dtype, shape, offsets: [first, last] } in tensors {
        let name = shown(name);
        if first > last {
            return Err((*first, format!("tensor `{name}` begins at {first} and ends at {last}")));
        }
        if *last > bytes {
            return Err((
                *last,
                format!("tensor `{name}` ends at {last}, after the {bytes} bytes that there are"),
            ));
        }
        if *first != end {
            let message = match *first < end {
                true => format!("tensor `{name}` begins at {first}, where another is that ends at {end}"),
                false => format!("tensor `{name}` begins at {first}, and nothing is between it and {end}"),
            };
            return Err((*first, message));
        }
        end = *last;
        let Some(bits) = bits(dtype) else { continue };
        let elements = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent as u64));
        let needed = elements.and_then(|n| n.checked_mul(bits)).map(|bits| bits.div_ceil(8));
        if needed != Some(last - first) {
            let needed = needed.map_or("more than can be counted".into(), |needed| needed.to_string());
            let message = format!(
                "tensor `{name}` of {}{shape:?} has {} bytes, not {needed}",
                shown(dtype),
                last - first
            );
            return Err((*first, message));
        }
    }
    if end != bytes {
        return Err((end, format!("the tensors end at {end}, {} bytes before the file does", bytes - end)));
    }
    Ok(())
}

/// The bits of an element of a type that the format has.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// A name of anybody's as part of a message: cut, and without characters that act on a terminal.
fn shown(name: &str) -> String {
    let cut: String = name.chars().take(120).collect();
    let dots = if cut.len() < name.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value::<Metadata>()?.0;
                        continue;
                    }
                    let Entry { dtype, shape: Axes(shape), data_offsets: offsets } = map.next_value()?;
                    header.tensors.push(StoredTensor { name, dtype, shape, offsets });
                }
                // Empty tensors have the offset of what follows them.
                header.tensors.sort_by(|a, b| a.offsets.cmp(&b.offsets).then_with(|| a.name.cmp(&b.name)));
                Ok(header)
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// A tensor as a header describes it.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Axes,
    data_offsets: [u64; 2],
}

/// A shape, of a number of axes that is bounded while it is read.
struct Axes(Vec<usize>);

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Extents;

        impl<'de> Visitor<'de> for Extents {
            type Value = Axes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a shape of at most {MOST_AXES} axes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Axes, A::Error> {
                let mut extents = vec![];
                while let Some(extent) = seq.next_element()? {
                    if extents.len() == MOST_AXES {
                        return Err(serde::de::Error::invalid_length(MOST_AXES + 1, &self));
                    }
                    extents.push(extent);
                }
                Ok(Axes(extents))
            }
        }

        deserializer.deserialize_seq(Extents)
    }
}

/// Texts by name, of a number that is bounded while they are read.
struct Metadata(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MOST_TEXTS} texts by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Metadata, A::Error> {
                let mut texts = vec![];
                while let Some(text) = map.next_entry()? {
                    if texts.len() == MOST_TEXTS {
                        return Err(serde::de::Error::invalid_length(MOST_TEXTS + 1, &self));
                    }
                    texts.push(text);
                }
                Ok(Metadata(texts))
            }
        }

        deserializer.deserialize_map(Texts)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}
