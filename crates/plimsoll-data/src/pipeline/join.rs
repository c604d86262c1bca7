//! Several data sets as one: their records one after the other, or their fields side by side.

use super::{Cursor, Node, Pass, Stream};
use crate::{ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// The records of one, then those of the next.
pub(crate) struct InARow {
    pub(crate) parts: Vec<Arc<dyn Node>>,
}

impl Node for InARow {
    fn fields(&self) -> &Arc<[Field]> {
        self.parts[0].fields()
    }

    fn count(&self) -> Option<u64> {
        self.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.count()?))
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let current = self.parts[0].open(pass)?;
        Ok(Box::new(ReadingInARow { parts: self.parts.clone(), pass: pass.clone(), number: 0, current }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        &self.parts
    }
}

struct ReadingInARow {
    parts: Vec<Arc<dyn Node>>,
    pass: Pass,
    number: usize,
    current: Box<dyn Stream>,
}

impl Stream for ReadingInARow {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        loop {
            if self.current.next(out)? {
                return Ok(true);
            }
            let Some(following) = self.parts.get(self.number + 1) else { return Ok(false) };
            self.current = following.open(&self.pass)?;
            self.number += 1;
        }
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.number as u64);
        self.current.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let number = position.take()?;
        let found = usize::try_from(number).ok().and_then(|number| Some((number, self.parts.get(number)?)));
        let Some((number, part)) = found else {
            let reason = format!("part {number} of {} is to be read", self.parts.len());
            return Err(ErrorKind::Position { reason }.into());
        };
        self.current = part.open(&self.pass)?;
        self.number = number;
        self.current.seek(position)
    }
}

/// The fields of several side by side, as far as the shortest goes.
pub(crate) struct Zipped {
    parts: Vec<Arc<dyn Node>>,
    fields: Arc<[Field]>,
}

impl Zipped {
    pub(crate) fn new(parts: Vec<Arc<dyn Node>>) -> Result<Zipped> {
        let mut fields = vec![];
        for field in parts.iter().flat_map(|part| part.fields().iter()) {
            crate::source::add_field(&mut fields, field.clone())?;
        }
        Ok(Zipped { parts, fields: fields.into() })
    }
}

impl Node for Zipped {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.count()).min().flatten()
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let open = |part: &Arc<dyn Node>| Ok((part.open(pass)?, Record::new(part.fields())));
        Ok(Box::new(Zipping { parts: self.parts.iter().map(open).collect::<Result<_>>()? }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        &self.parts
    }
}

struct Zipping {
    parts: Vec<(Box<dyn Stream>, Record)>,
}

impl Stream for Zipping {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let mut first = 0;
        for (part, record) in &mut self.parts {
            if !part.next(record)? {
                return Ok(false);
            }
            out.swap_fields(first, record);
            first += record.fields().len();
        }
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        self.parts.iter().for_each(|(part, _)| part.save(position));
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.parts.iter_mut().try_for_each(|(part, _)| part.seek(position))
    }
}
