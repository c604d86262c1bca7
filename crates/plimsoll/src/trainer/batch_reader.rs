//! Reading batches into the inputs of a step, on several threads where they are large.

use crate::Result;
use plimsoll_cpu::CpuDevice;
use plimsoll_data::{Batch, Field};
use plimsoll_device::write_nontemporal;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Reads batches, cropping sequences to a length: the first axis of a sample is time. Where there is more room it is
/// padded, inputs with zeros and targets with labels that stand for nothing.
pub(super) struct BatchReader {
    fields: Vec<Field>,
    whole: Vec<u8>,
    host: CpuDevice,
    /// Whether what is written leaves for a device and is not read here again.
    leave: bool,
    /// The seconds that writing inputs took since somebody asked.
    seconds: f64,
}

/// The bytes that are worth another thread.
const WORTH_SHARING: usize = 48 << 10;
/// What is read is shared in at most as many parts, so that they have a place on the stack. There are more than threads: one
/// that begins late, or is taken off its core, leaves more of them to the others.
const MOST_PARTS: usize = 32;
/// The bytes of a sample that are read to the stack before they leave, at most: such are in the nearest cache.
const MOST_BYTES_BETWEEN: usize = 16 << 10;

impl BatchReader {
    /// `crops` says whether sequences are cropped, for which whole ones are read first.
    pub(super) fn new(
        fields: &[Field],
        samples: usize,
        host: CpuDevice,
        leave: bool,
        crops: bool,
    ) -> BatchReader {
        let whole = if crops { BatchReader::whole_bytes(fields, samples) } else { 0 };
        BatchReader { fields: fields.to_vec(), whole: vec![0; whole], host, leave, seconds: 0.0 }
    }

    /// The seconds that steps waited for their inputs to be written since this was last asked. Of a device that runs beside the
    /// host nothing is known: while they are written it may be at work on steps before.
    pub(super) fn take_seconds(&mut self) -> Option<f64> {
        let seconds = std::mem::take(&mut self.seconds);
        (!self.leave).then_some(seconds)
    }

    /// The bytes of whole sequences that are read to be cropped.
    pub(super) fn whole_bytes(fields: &[Field], samples: usize) -> usize {
        fields.iter().map(Field::bytes).max().unwrap_or(0) * samples
    }

    /// Writes an input of a step: a field of a batch, cropped to a length.
    pub(super) fn fill(
        &mut self,
        batch: &Batch<'_>,
        field: usize,
        length: Option<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        /// Of four of these bytes is the label −1.
        const NO_LABEL: u8 = 0xff;
        let began = Instant::now();
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
        self.seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Reads a field, on several threads where it is large.
    fn read_whole(&self, batch: &Batch<'_>, field: usize, out: &mut [u8]) -> Result<()> {
        let sharing = (out.len() / WORTH_SHARING).clamp(1, MOST_PARTS);
        if sharing == 1 || self.host.threads() == 1 {
            batch.read(field, out)?;
            return Ok(());
        }
        let samples = batch.samples().div_ceil(sharing);
        let rooms = out.chunks_mut(self.fields[field].bytes() * samples);
        let mut shares = batch.parts(samples).zip(rooms);
        let parts: [_; MOST_PARTS] = std::array::from_fn(|_| Mutex::new(shares.next()));
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
    use plimsoll_data::{Dataset, Synthetic};

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
                let mut reader = BatchReader::new(data.fields(), batch.samples(), host, leave, false);
                let mut out = vec![0xee; batch.samples() * field.bytes()];
                reader.fill(&batch, index, None, &mut out).expect("the field");
                out
            });
            assert!(stayed == left, "{}", field.name());
        }
    }
}
