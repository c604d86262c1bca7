//! Running the steps of a trainer: a batch at once, or as a window of micro-batches and one update.

use super::Trainer;
use super::fitting::Plans;
use super::steps::{Kind, Shapes};
use crate::Result;
use crate::session::Session;
use plimsoll_cpu::CpuDevice;
use plimsoll_cuda::write_nontemporal;
use plimsoll_data::{Batch, Dataset, Field};
use plimsoll_graph::program::Kernel;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// The steps of one run, in their session.
pub(crate) struct Runner<'a> {
    trainer: &'a Trainer,
    data: &'a Dataset,
    plans: Plans,
    session: Session<Shapes>,
    cropped: Cropped,
    /// What each run under way is of its step.
    under_way: VecDeque<Part>,
    /// The means of the step whose runs are being collected.
    means: [f64; 2],
    /// What has come of steps that have ended.
    ended: VecDeque<[f32; 2]>,
}

/// A run as a part of a training step.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// How much its metrics count.
    weight: f64,
    /// Whether it is the step's last.
    last: bool,
}

impl<'a> Runner<'a> {
    /// Runs training on `data` in a session, as was planned.
    pub(super) fn new(
        trainer: &'a Trainer,
        data: &'a Dataset,
        plans: Plans,
        session: Session<Shapes>,
        host: CpuDevice,
    ) -> Runner<'a> {
        let samples = trainer.samples_at_once(plans.choice.micro_batches);
        let cropped = Cropped::new(data.fields(), samples, host, session.ahead() > 0);
        let (under_way, ended) = (VecDeque::new(), VecDeque::new());
        Runner { trainer, data, plans, session, cropped, under_way, means: [0.0; 2], ended }
    }

    /// The threads that the host's part is done on.
    pub(crate) fn threads(&self) -> usize {
        self.cropped.host.threads()
    }

    /// The session: its states, arena and device.
    pub(crate) fn session(&self) -> &Session<Shapes> {
        &self.session
    }

    /// Begins to train on a batch in the step of that number. On a device that runs beside the host it may end later;
    /// [`Runner::ended`] tells.
    pub(crate) fn train(&mut self, batch: &Batch<'_>, number: usize) -> Result<()> {
        let micro_batches = self.plans.choice.micro_batches;
        let (kind, length) = (Kind::of_training(micro_batches), self.trainer.length(number));
        let samples = self.trainer.samples(number, batch.samples());
        let Some(batch) = batch.parts(samples).next() else { return Ok(()) };
        let mut parts = batch.parts(self.trainer.samples_at_once(micro_batches)).peekable();
        while let Some(part) = parts.next() {
            let bucket = length.map(|length| self.trainer.bucket(length));
            let shapes = Shapes { samples: part.samples(), length: bucket, kind };
            self.ensure(self.data, shapes)?;
            let weight = part.samples() as f64 / batch.samples() as f64;
            let numbers = self.trainer.numbers(length, weight as f32);
            let fill = &mut |input, out: &mut [u8]| self.cropped.fill(&part, input, length, numbers, out);
            self.session.begin(&shapes, fill)?;
            let last = parts.peek().is_none() && kind != Kind::Accumulate;
            self.begun(Part { weight, last })?;
        }
        if kind == Kind::Accumulate {
            let end = self.trainer.end_of_window(self.data, micro_batches);
            self.ensure(self.data, end)?;
            self.session.begin(&end, &mut |_, _| Ok(()))?;
            self.begun(Part { weight: 0.0, last: true })?;
        }
        Ok(())
    }

    /// Runs the step for a full batch, the largest there is, once more: its kernels in the plan's order, with the seconds
    /// of each.
    pub(crate) fn time_kernels(&mut self) -> Result<Vec<(&Kernel, f64)>> {
        self.finish()?;
        let shapes = self.trainer.largest(self.data, self.plans.choice.micro_batches);
        self.session.time_kernels(&shapes)
    }

    /// The loss and, if there is one, the accuracy of the next training step that has ended.
    pub(crate) fn ended(&mut self) -> Option<[f32; 2]> {
        self.ended.pop_front()
    }

    /// Waits for everything that has begun.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.collect()?;
        }
        Ok(())
    }

    /// Notes a run that has begun, and waits for those before it that must end before the next may begin.
    fn begun(&mut self, part: Part) -> Result<()> {
        self.under_way.push_back(part);
        while self.session.under_way() > self.session.ahead() {
            self.collect()?;
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        let mut values = [0.0; 2];
        self.session.collect(&mut |index, bytes| note(&mut values, index, bytes))?;
        let Some(Part { weight, last }) = self.under_way.pop_front() else { return Ok(()) };
        for (mean, value) in self.means.iter_mut().zip(values) {
            if weight > 0.0 {
                *mean += weight * f64::from(value);
            }
        }
        if last {
            self.ended.push_back(std::mem::take(&mut self.means).map(|mean| mean as f32));
        }
        Ok(())
    }

    /// The metrics on a data set with the present weights.
    pub(crate) fn evaluate(&mut self, data: &Dataset) -> Result<BTreeMap<String, f64>> {
        self.finish()?;
        let samples = self.plans.choice.evaluated;
        let mut cropped = Cropped::new(data.fields(), samples, self.cropped.host.clone(), self.cropped.leave);
        let mut sums = [0.0; 2];
        for batch in data.batches(samples)?.epoch(0) {
            let shapes = self.trainer.evaluation(batch.samples(), self.plans.choice.micro_batches);
            self.ensure(data, shapes)?;
            let numbers = self.trainer.numbers(shapes.length, 1.0);
            let fill = &mut |input, out: &mut [u8]| cropped.fill(&batch, input, shapes.length, numbers, out);
            self.session.begin(&shapes, fill)?;
            let mut values = [0.0; 2];
            self.session.collect(&mut |index, bytes| note(&mut values, index, bytes))?;
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value) * batch.samples() as f64;
            }
        }
        let mean = |sum: f64| sum / data.samples() as f64;
        let mut metrics = BTreeMap::from([("loss".to_string(), mean(sums[0]))]);
        if self.trainer.accuracy {
            metrics.insert("accuracy".into(), mean(sums[1]));
        }
        Ok(metrics)
    }

    /// Compiles and loads a step if that has not been done.
    fn ensure(&mut self, data: &Dataset, shapes: Shapes) -> Result<()> {
        if self.session.has(&shapes) {
            return Ok(());
        }
        self.finish()?;
        let compiled = self.trainer.compile(data, shapes, &self.plans)?;
        self.session.add(shapes, compiled)
    }
}

impl Trainer {
    /// The inputs of a step on sequences of a length after the data's fields: where there are buckets, how many
    /// positions there are for each that is real; then, of a step that accumulates, the `weight` of the batch in its
    /// window.
    fn numbers(&self, length: Option<usize>, weight: f32) -> [f32; 2] {
        match length {
            Some(length) if self.buckets.is_some() => [self.bucket(length) as f32 / length as f32, weight],
            _ => [weight, 0.0],
        }
    }
}

/// Takes an output of a step for its loss or its accuracy.
fn note(values: &mut [f32; 2], index: usize, bytes: &[u8]) {
    if let (Some(value), Ok(number)) = (values.get_mut(index), bytes.try_into()) {
        *value = f32::from_ne_bytes(number);
    }
}

/// Reads batches, cropping sequences to a length: the first axis of a sample is time. Where there is more room it is
/// padded, inputs with zeros and targets with labels that stand for nothing.
struct Cropped {
    fields: Vec<Field>,
    whole: Vec<u8>,
    host: CpuDevice,
    /// Whether what is written leaves for a device and is not read here again.
    leave: bool,
}

/// The bytes that are worth another thread.
const WORTH_SHARING: usize = 48 << 10;
/// The most threads that share what is read, so that who reads what has a place on the stack.
const MOST_SHARING: usize = 16;
/// The bytes of a sample that are read to the stack before they leave, at most: such are in the nearest cache.
const MOST_BYTES_BETWEEN: usize = 16 << 10;

impl Cropped {
    fn new(fields: &[Field], samples: usize, host: CpuDevice, leave: bool) -> Cropped {
        let largest = fields.iter().map(Field::bytes).max().unwrap_or(0);
        Cropped { fields: fields.to_vec(), whole: vec![0; largest * samples], host, leave }
    }

    /// Writes an input of a step: a field of a batch, cropped to a length, or one of the `numbers` that follow them.
    fn fill(
        &mut self,
        batch: &Batch<'_>,
        input: usize,
        length: Option<usize>,
        numbers: [f32; 2],
        out: &mut [u8],
    ) -> Result<()> {
        match input.checked_sub(self.fields.len()) {
            None => self.read(batch, input, length, out),
            Some(number) => {
                out.copy_from_slice(&numbers[number].to_ne_bytes());
                Ok(())
            }
        }
    }

    fn read(&mut self, batch: &Batch<'_>, field: usize, length: Option<usize>, out: &mut [u8]) -> Result<()> {
        /// Of four of these bytes is the label −1.
        const NO_LABEL: u8 = 0xff;
        let of = &self.fields[field];
        match (length, of.shape().first()) {
            (Some(length), Some(&whole)) if length < whole => {
                let read = batch.read(field, &mut self.whole)?;
                let (row, kept) = (of.bytes(), of.bytes() / whole * length);
                let room = out.len() / batch.samples().max(1);
                let padding = if field == 0 { 0 } else { NO_LABEL };
                for (from, to) in self.whole[..read].chunks_exact(row).zip(out.chunks_exact_mut(room.max(1)))
                {
                    let (cropped, rest) = to.split_at_mut(kept);
                    cropped.copy_from_slice(&from[..kept]);
                    rest.fill(padding);
                }
            }
            _ => self.read_whole(batch, field, out)?,
        }
        Ok(())
    }

    /// Reads a field, on several threads where it is large.
    fn read_whole(&self, batch: &Batch<'_>, field: usize, out: &mut [u8]) -> Result<()> {
        let sharing = (out.len() / WORTH_SHARING).clamp(1, self.host.threads().min(MOST_SHARING));
        if sharing == 1 {
            batch.read(field, out)?;
            return Ok(());
        }
        let samples = batch.samples().div_ceil(sharing);
        let rooms = out.chunks_mut(self.fields[field].bytes() * samples);
        let mut shares = batch.parts(samples).zip(rooms);
        let parts: [_; MOST_SHARING] = std::array::from_fn(|_| Mutex::new(shares.next()));
        let failure = Mutex::new(None);
        self.host.in_parallel(sharing, &|number| {
            let mut part = parts[number].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((part, room)) = &mut *part
                && let Err(error) = self.read_part(part, field, room)
            {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Reads a field of some samples.
    fn read_part(&self, part: &Batch<'_>, field: usize, room: &mut [u8]) -> plimsoll_data::Result<()> {
        let bytes = self.fields[field].bytes();
        if !self.leave || bytes > MOST_BYTES_BETWEEN {
            return part.read(field, room).map(|_| ());
        }
        let sample = &mut [0; MOST_BYTES_BETWEEN][..bytes];
        for (one, room) in part.parts(1).zip(room.chunks_exact_mut(bytes.max(1))) {
            one.read(field, sample)?;
            write_nontemporal(room, sample);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_data::Synthetic;

    #[test]
    fn inputs_that_leave_for_a_device_have_the_same_bytes() {
        // Samples of 3 KiB, of 20 KiB, which are not read to the stack first, and of 4 bytes.
        let data =
            Synthetic::new(200, 1).normal("small", &[785]).and_then(|data| data.normal("large", &[5000]));
        let data = data.and_then(|data| data.classes("label", 10)).expect("fields");
        let data = Dataset::new(data).expect("a data set");
        let batches = data.batches(96).expect("batches").shuffled(3);
        let batch = batches.epoch(0).next().expect("a batch");
        for (index, field) in data.fields().iter().enumerate() {
            let [stayed, left] = [false, true].map(|leave| {
                let host = CpuDevice::new(Some(3)).expect("threads");
                let mut cropped = Cropped::new(data.fields(), batch.samples(), host, leave);
                let mut out = vec![0xee; batch.samples() * field.bytes()];
                cropped.fill(&batch, index, None, [0.0; 2], &mut out).expect("the field");
                out
            });
            assert!(stayed == left, "{}", field.name());
        }
    }
}
