//! JSON Lines: a file in which each line is an object. Numbers, arrays of numbers and texts are taken by their keys;
//! what else an object holds is passed over.

use super::files::Paths;
use super::json::{Json, Parsed};
use super::records::format::{Fault, Format, Framing, Out, frame_line};
use super::records::key::MOST_AXES;
use super::records::{self, Key, RecordFiles, Streamed};
use super::{Answer, Description, Options, SourceKind, Tokens, skips_errors};
use crate::{Dataset, Element, Field, RamBudget, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// How to read files of JSON objects, one a line: which keys are taken, and as what.
///
/// Floats and whole numbers are taken as numbers, an array (of arrays) of them by a shape, and a text as `u8` with an
/// open axis. Numbers that are not finite or do not fit are refused. Of a key that an object has twice, the last
/// counts.
///
/// ```
/// use plimsoll_data::sources::{JsonLines, Key};
/// use plimsoll_data::{Element, Field, Record, Source};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("reviews.jsonl");
/// std::fs::write(&path, r#"{"text": "not bad", "stars": 4}"#).unwrap();
/// let text = Key::of(Field::open("text", Element::U8, &[Field::OPEN])?);
/// let label = Key::of(Field::new("label", Element::I32, &[])?).called("stars").classes(6);
/// let reviews = JsonLines::new(&[text, label])?.open(&path)?;
/// let mut record = Record::new(&reviews.fields().into());
/// reviews.read_record(0, &mut record)?;
/// assert_eq!(record.get::<u8>("text")?, b"not bad");
/// assert_eq!(record.get::<i32>("label")?, [4]);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonLines {
    keys: Arc<[Key]>,
    fields: Arc<[Field]>,
    budget: RamBudget,
}

pub(super) const KIND: SourceKind = SourceKind {
    name: "jsonl",
    keys: &[
        "path",
        "features",
        "shape",
        "label",
        "classes",
        "target",
        "text",
        "length",
        "words",
        "tokenizer",
    ],
    describe,
};

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let path = options.need_path("path")?;
    let (keys, answer) = Key::described(options, Element::F32)?;
    Ok(Box::new(Described {
        path,
        tokens: Key::tokens(&keys),
        lines: JsonLines::new(&keys)?,
        answer,
        skips_errors: skips_errors(options)?,
    }))
}

#[derive(Debug)]
struct Described {
    path: PathBuf,
    lines: JsonLines,
    answer: Answer,
    tokens: Option<Tokens>,
    skips_errors: bool,
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.answer
    }

    fn tokens(&self) -> Option<Tokens> {
        self.tokens
    }

    fn open(&self) -> Result<Dataset> {
        records::dataset(&Paths::from(&self.path).files()?, Arc::new(self.lines.clone()), self.skips_errors)
    }
}

impl JsonLines {
    /// Takes these keys, at most 64.
    pub fn new(keys: &[Key]) -> Result<JsonLines> {
        let fields = Key::fields(keys)?;
        Ok(JsonLines { keys: keys.into(), fields, budget: RamBudget::UNLIMITED })
    }

    /// The most RAM that it may take to find the lines of files.
    pub fn budget(self, budget: RamBudget) -> JsonLines {
        JsonLines { budget, ..self }
    }

    /// The objects of files, by number. They stay in the files, unless these are small and all shapes fixed.
    ///
    /// # Errors
    /// If any object of them is not what it should be.
    pub fn open(&self, paths: impl Into<Paths>) -> Result<RecordFiles> {
        RecordFiles::open(&paths.into().files()?, Arc::new(self.clone()), self.budget)
    }

    /// The objects of files in their order, packed or not.
    pub fn stream(&self, paths: impl Into<Paths>) -> Result<Streamed> {
        Ok(Streamed::new(paths.into().files()?, Arc::new(self.clone())))
    }

    /// The fault of an object that lacks a key.
    fn missing(key: &Key, object: &[u8]) -> Fault {
        let mut json = Json::new(object);
        let mut known = Vec::new();
        let mut list = || -> Parsed<()> {
            json.expect(b'{')?;
            while json.goes_on(known.len(), b'}')? {
                let text = json.text()?;
                let mut name = vec![0; text.length()?];
                text.write(&mut name)?;
                known.push(String::from_utf8_lossy(&name).into_owned());
                json.expect(b':')?;
                json.skip()?;
            }
            Ok(())
        };
        // The object was read before: it has no fault that would end the list early.
        let _ = list();
        key.missing(known.iter().map(String::as_str))
    }
}

impl Format for JsonLines {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn framing(&self) -> Framing {
        frame_line
    }

    fn parse(&self, object: &[u8], out: &mut Out<'_>) -> Parsed<()> {
        let mut json = Json::new(object);
        let (mut seen, mut count) = (0u64, 0);
        if json.peek() == Some(b'[') {
            return json.fault("an array stands where an object is expected; each line holds one: `jq -c '.[]'` writes them so");
        }
        json.expect(b'{')?;
        while json.goes_on(count, b'}')? {
            let name = json.text()?;
            json.expect(b':')?;
            // Objects mostly have the keys that are taken in the same order, beginning with the first.
            let found = (0..self.keys.len()).map(|at| (count + at) % self.keys.len());
            match { found }.find(|&at| name.is(&self.keys[at].name)) {
                Some(position) if out.wants(position) => {
                    seen |= 1 << position;
                    let key = &self.keys[position];
                    take(&mut json, key, position, out).map_err(|fault| fault.of(&key.name))?;
                }
                _ => json.skip()?,
            }
            count += 1;
        }
        if json.peek().is_some() {
            return json.fault("something follows the object; each line holds one");
        }
        match (0..self.keys.len()).find(|&position| out.wants(position) && seen & (1 << position) == 0) {
            Some(position) => Err(JsonLines::missing(&self.keys[position], object)),
            None => Ok(()),
        }
    }

    fn is_checked_when_opened(&self) -> bool {
        true
    }

    fn classes(&self, position: usize) -> Option<usize> {
        self.keys[position].classes
    }
}

/// Writes the value that stands here.
fn take(json: &mut Json<'_>, key: &Key, position: usize, out: &mut Out<'_>) -> Parsed<()> {
    let field = &key.field;
    let axes = field.shape().len();
    let failed = |error: crate::Error, at| Fault::new(at, error.to_string());
    let first = json.peek();
    let start = json.at();
    if let Some(text) = &key.text {
        if first != Some(b'"') {
            return json.fault("a text is expected, in quotes");
        }
        let room = out.room(position, field.shape()).map_err(|error| failed(error, start))?;
        let written = json.text()?.look(|said| text.write(said, room.as_chunks_mut().0))?;
        return written.map_err(|reason| Fault::new(start, reason));
    }
    if axes == 1 && field.element() == Element::U8 && first == Some(b'"') {
        let text = json.text()?;
        let length = text.length()?;
        key.check_shape(&[length], start)?;
        return text.write(out.room(position, &[length]).map_err(|error| failed(error, start))?);
    }
    let mut shape = [0; MOST_AXES];
    let shape = &mut shape[..axes];
    shape.copy_from_slice(field.shape());
    if !field.is_fixed() {
        measure(json.rest(), field, shape);
        // Each value takes a byte at least: no memory is taken for arrays that turn out not to be there.
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        if elements.is_none_or(|elements| elements > json.rest().len()) {
            let reason = format!("its arrays are not all as long as the first ones, of shape {shape:?}");
            return json.fault(reason);
        }
    }
    let room = out.room(position, shape).map_err(|error| failed(error, start))?;
    let mut elements = room.chunks_exact_mut(field.element().bytes());
    take_array(json, key, shape, &mut elements)
}

/// The shape of the array that begins here: open extents are those of the first array of each depth.
fn measure(text: &[u8], field: &Field, shape: &mut [usize]) {
    let (mut depth, mut is_empty, mut ended) = (0, [true; MOST_AXES], [false; MOST_AXES]);
    let mut commas = [0; MOST_AXES];
    for &byte in text {
        match byte {
            b'[' if depth == shape.len() => break,
            b'[' => {
                if depth > 0 {
                    is_empty[depth - 1] = false;
                }
                depth += 1;
            }
            b']' if depth > 0 => {
                depth -= 1;
                ended[depth] = true;
            }
            b',' if depth > 0 && !ended[depth - 1] => commas[depth - 1] += 1,
            b' ' | b'\t' | b'\r' | b',' => {}
            _ if depth > 0 && !ended[depth - 1] => is_empty[depth - 1] = false,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    for (axis, (extent, &declared)) in shape.iter_mut().zip(field.shape()).enumerate() {
        if declared == Field::OPEN {
            *extent = if is_empty[axis] { 0 } else { commas[axis] + 1 };
        }
    }
}

/// Writes an array of this shape, or an element if it has no axes.
fn take_array<'a>(
    json: &mut Json<'_>,
    key: &Key,
    shape: &[usize],
    out: &mut impl Iterator<Item = &'a mut [u8]>,
) -> Parsed<()> {
    let Some((&extent, shape)) = shape.split_first() else {
        // There is room for as many elements as the shape has.
        return out.next().map_or(Ok(()), |out| take_number(json, key, out));
    };
    json.peek();
    let start = json.at();
    json.expect(b'[')?;
    let mut count = 0;
    while json.goes_on(count, b']')? {
        if count == extent {
            let reason = format!("an array has more than the {extent} values of its field, {}", key.field);
            return Err(Fault::new(start, reason));
        }
        take_array(json, key, shape, out)?;
        count += 1;
    }
    if count < extent {
        let reason = format!("an array has {count} values where its field has {extent}, {}", key.field);
        return Err(Fault::new(start, reason));
    }
    Ok(())
}

fn take_number(json: &mut Json<'_>, key: &Key, out: &mut [u8]) -> Parsed<()> {
    let first = json.peek();
    let start = *json;
    if let Some(names) = &key.names {
        if first != Some(b'"') {
            return json.fault("the name of a class is expected, in quotes");
        }
        let class = json.text()?.look(|name| names.find(name.trim()))?;
        return class
            .and_then(|class| key.write_whole(class as i64, out))
            .or_else(|reason| start.fault(reason));
    }
    let is_finite = match key.field.element() {
        Element::F32 => {
            let value = json.single()?;
            out.copy_from_slice(&value.to_ne_bytes());
            value.is_finite()
        }
        Element::F64 => {
            let value = json.double()?;
            out.copy_from_slice(&value.to_ne_bytes());
            value.is_finite()
        }
        Element::U8 | Element::I32 | Element::I64 => {
            let value = json.whole()?;
            return key.write_whole(value, out).or_else(|reason| start.fault(reason));
        }
    };
    if is_finite {
        return Ok(());
    }
    let number = &start.rest()[..json.at() - start.at()];
    let (number, element) = (String::from_utf8_lossy(number), key.field.element());
    start.fault(format!("{number} is not a finite {element}; replace it, or remove the record"))
}
