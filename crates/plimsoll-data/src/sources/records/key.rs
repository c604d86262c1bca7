//! Which of the values of a record are taken, and as what.

use super::format::Fault;
use crate::source::add_field;
use crate::sources::table_columns::Names;
use crate::sources::{Answer, Classes, Options, TextTokens, Tokens};
use crate::{Element, ErrorKind, Field, Result};
use std::sync::Arc;

/// The most keys that are taken, and the most axes that a field has.
const MOST_KEYS: usize = 64;
pub(crate) const MOST_AXES: usize = 8;

/// A key of the records of a file, and the field that its values become.
///
/// ```
/// use plimsoll_data::{Element, Field};
/// use plimsoll_data::sources::Key;
///
/// let text = Key::of(Field::open("text", Element::U8, &[Field::OPEN])?);
/// let pixels = Key::of(Field::new("features", Element::F32, &[28, 28, 1])?).called("image/pixels");
/// let digit = Key::of(Field::new("label", Element::I32, &[])?).classes(10);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Key {
    pub(crate) name: String,
    pub(crate) field: Field,
    pub(crate) classes: Option<usize>,
    /// What its values are called, if they are texts that stand for the classes 0, 1, 2 and so on.
    pub(crate) names: Option<Arc<Names>>,
    /// Its values are texts, which become these tokens.
    pub(crate) text: Option<Arc<TextTokens>>,
}

impl Key {
    /// The key of the same name as the field.
    pub fn of(field: Field) -> Key {
        Key { name: field.name().to_string(), field, classes: None, names: None, text: None }
    }

    /// The same field under another key.
    pub fn called(self, name: &str) -> Key {
        Key { name: name.to_string(), ..self }
    }

    /// Its values are classes, of which there are so many; others are refused.
    pub fn classes(self, classes: usize) -> Key {
        Key { classes: Some(classes), ..self }
    }

    /// Its values are texts, these, which stand for the classes 0, 1, 2 and so on; others are refused.
    ///
    /// # Errors
    /// If there are no names, or two are the same.
    pub fn class_names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Result<Key> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        match Names::new(&names) {
            Ok(names) => Ok(Key { classes: Some(names.count()), names: Some(Arc::new(names)), ..self }),
            Err(reason) => {
                Err(ErrorKind::Field { name: self.name, reason: format!("classes: {reason}") }.into())
            }
        }
    }

    /// The text of this key, as `tokens`.
    ///
    /// # Errors
    /// If a sample would have more tokens than can be addressed.
    pub fn text(name: &str, tokens: TextTokens) -> Result<Key> {
        let classes = Some(tokens.tokens().vocabulary);
        Ok(Key { classes, text: Some(Arc::new(tokens.clone())), ..Key::of(tokens.field()?).called(name) })
    }

    /// The fields of keys, which must differ; classes are whole numbers.
    pub(crate) fn fields(keys: &[Key]) -> Result<Arc<[Field]>> {
        let mut fields = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let field = &key.field;
            let reason = if key.classes.is_some() && is_float(field.element()) {
                format!("classes are whole numbers, this field is {}", field.element())
            } else if keys[..at].iter().any(|other| other.name == key.name) {
                format!("the key `{}` is taken twice", key.name)
            } else if field.shape().len() > MOST_AXES {
                format!("it has {} axes; at most {MOST_AXES} are read", field.shape().len())
            } else if at >= MOST_KEYS {
                format!("at most {MOST_KEYS} keys are taken")
            } else {
                add_field(&mut fields, field.clone())?;
                continue;
            };
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        }
        if fields.is_empty() {
            return Err(ErrorKind::Empty { what: "no key is taken from the records".to_string() }.into());
        }
        Ok(fields.into())
    }

    /// Writes a whole number as an element, or says why it cannot be one.
    pub(crate) fn write_whole(&self, value: i64, out: &mut [u8]) -> std::result::Result<(), String> {
        if let Some(classes) = self.classes
            && usize::try_from(value).map_or(true, |value| value >= classes)
        {
            return Err(no_class(value, classes));
        }
        let element = self.field.element();
        let refused = |_| format!("{value} does not fit {element}");
        match element {
            Element::U8 => out[0] = u8::try_from(value).map_err(refused)?,
            Element::I32 => out.copy_from_slice(&i32::try_from(value).map_err(refused)?.to_ne_bytes()),
            Element::I64 => out.copy_from_slice(&value.to_ne_bytes()),
            Element::F32 => out.copy_from_slice(&(value as f32).to_ne_bytes()),
            Element::F64 => out.copy_from_slice(&(value as f64).to_ne_bytes()),
        }
        Ok(())
    }

    /// Refuses a sample of another shape than the field's.
    pub(crate) fn check_shape(&self, shape: &[usize], at: usize) -> std::result::Result<(), Fault> {
        if self.field.takes(shape) {
            return Ok(());
        }
        let reason = format!("its shape is {shape:?}, which is not that of the field, {}", self.field);
        Err(Fault::new(at, reason).of(&self.name))
    }

    /// The fault of a record that lacks this key.
    pub(crate) fn missing<'a>(&self, known: impl Iterator<Item = &'a str>) -> Fault {
        let mut known: Vec<&str> = known.collect();
        let more = known.len().saturating_sub(12);
        known.truncate(12);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let reason = format!("the record has no such key; its keys are: {}{more}", known.join(", "));
        Fault::new(0, reason).of(&self.name)
    }

    /// The tokens of samples, if these keys take any.
    pub(crate) fn tokens(keys: &[Key]) -> Option<Tokens> {
        keys.iter().find_map(|key| Some(key.text.as_ref()?.tokens()))
    }

    /// What a workload takes from records: `features`, and `label` or `target` if it wants these.
    pub(crate) fn described(options: &dyn Options, element: Element) -> Result<(Vec<Key>, Answer)> {
        let (keys, answer) = Key::described_whole(options, element)?;
        let wanted = if options.wants_answer() { 2 } else { 1 };
        Ok((keys.into_iter().take(wanted).collect(), answer))
    }

    fn described_whole(options: &dyn Options, element: Element) -> Result<([Key; 2], Answer)> {
        let features = match TextTokens::described(options)? {
            Some((name, tokens)) => Key::text(&name, tokens)?,
            None => {
                let shape = options.need_shape("shape")?;
                let name = options.find_text("features")?.unwrap_or("features".to_string());
                Key::of(Field::new("features", element, &shape)?).called(&name)
            }
        };
        let (label, target) = (options.find_text("label")?, options.find_text("target")?);
        match (label, target, options.find_classes("classes")?) {
            (Some(name), None, Some(classes)) => {
                let label = Key::of(Field::new("label", Element::I32, &[])?).called(&name);
                let label = match classes {
                    Classes::Numbered(classes) => label.classes(classes),
                    Classes::Named(names) => label.class_names(names)?,
                };
                Ok(([features, label], Answer::Classes))
            }
            (Some(_), None, None) => {
                options.need_classes("classes")?;
                Err(options.refuse(None, "a `label` needs `classes`"))
            }
            (None, Some(name), None) => {
                let target = Key::of(Field::new("target", Element::F32, &[])?).called(&name);
                Ok(([features, target], Answer::Number))
            }
            (None, Some(_), Some(_)) => {
                let message = "`classes` are those of a `label`; a `target` has none";
                Err(options.refuse(Some("classes"), message))
            }
            _ => {
                let message = "[data] needs exactly one of `label`, a key of classes to predict, and `target`, a \
                               key of any numbers";
                Err(options.refuse(None, message))
            }
        }
    }
}

/// What is wrong with a label that is none of so many classes.
pub(crate) fn no_class(label: i64, classes: usize) -> String {
    format!(
        "the label {label} is outside of 0..{classes}; number the classes from 0, or declare more of them"
    )
}

/// Whether elements are floats.
pub(crate) fn is_float(element: Element) -> bool {
    matches!(element, Element::F32 | Element::F64)
}
