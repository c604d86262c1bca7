//! Records made of others by a person's function, in the caller's thread or on several.

use super::workers::{Ring, RingOptions};
use super::{Cursor, Node, OneToOne, Pass, StageMeter, Stream, Workers};
use crate::random::Draws;
use crate::{ErrorKind, Field, Record, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes a record of another. The random numbers are those of the element.
pub(crate) type Function = Arc<dyn Fn(&Record, &mut Record, &mut Draws) -> Result<()> + Send + Sync>;

/// A function that is applied to every record.
#[derive(Clone)]
pub(crate) struct Mapped {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) fields: Arc<[Field]>,
    pub(crate) function: Function,
    pub(crate) seed: u64,
    pub(crate) workers: Workers,
    /// Whether records come in the order of those they are made of.
    pub(crate) is_ordered: bool,
}

impl Node for Mapped {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        self.upstream.count()
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        let work = Work { function: Arc::clone(&self.function), seed: self.seed, epoch: pass.epoch };
        let threads = self.workers.threads();
        if threads == 0 {
            let (meter, input) = (pass.meter.stage("map"), Record::new(self.upstream.fields()));
            return Ok(Box::new(Mapping { upstream, input, work, element: 0, meter }));
        }
        let order = if self.is_ordered { "" } else { ", in any order" };
        let options = RingOptions {
            meter: pass.meter.stage(format!("map on {threads} threads{order}")),
            threads,
            depth: super::Depth::Auto,
            is_ordered: self.is_ordered,
            work: Some(work),
        };
        Ok(Box::new(Ring::new(upstream, self.upstream.fields(), &self.fields, options, pass)))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn one_to_one(&self) -> Option<OneToOne<'_>> {
        Some((&self.upstream, Box::new(|upstream| Arc::new(Mapped { upstream, ..self.clone() }))))
    }
}

/// The function as it is applied in an epoch.
#[derive(Clone)]
pub(crate) struct Work {
    function: Function,
    seed: u64,
    epoch: u64,
}

impl Work {
    /// Makes the element of that number. What the function does wrong is an error with its number, panics too.
    pub(crate) fn apply(&self, element: u64, input: &Record, out: &mut Record) -> Result<()> {
        let failed = |reason: String, error| {
            ErrorKind::Stage { stage: "map".to_string(), element, reason, error }.into()
        };
        out.begin();
        let mut draws = Draws::new(self.seed, self.epoch, element);
        let run = AssertUnwindSafe(|| (self.function)(input, out, &mut draws));
        match catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(error.to_string(), Some(error))),
            Err(panic) => {
                return Err(failed(format!("the function panicked: {}", message_of(&*panic)), None));
            }
        }
        match out.unset() {
            None => Ok(()),
            Some(field) => {
                Err(failed(format!("the function did not set the field `{}`", field.name()), None))
            }
        }
    }
}

/// What a panic said.
pub(crate) fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it did not say why".to_string())
}

struct Mapping {
    upstream: Box<dyn Stream>,
    input: Record,
    work: Work,
    element: u64,
    meter: Arc<StageMeter>,
}

impl Stream for Mapping {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let element = self.element;
        self.element += 1;
        if !self.upstream.next(&mut self.input)? {
            self.element -= 1;
            return Ok(false);
        }
        self.meter.work(|| self.work.apply(element, &self.input, out))?;
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.element);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.element = position.take()?;
        self.upstream.seek(position)
    }
}
