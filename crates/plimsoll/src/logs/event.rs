//! TensorBoard's events as protocol buffers: the few messages of `event.proto` and `summary.proto` that logs need,
//! written by hand into memory that is used again.

use super::tf_record::frame;

/// How a field's value is written.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Writes events as the records of a file.
#[derive(Debug)]
pub(super) struct EventWriter {
    /// What is not in the file yet.
    pub(super) pending: Vec<u8>,
    event: Vec<u8>,
    summary: Vec<u8>,
    value: Vec<u8>,
    histogram: Vec<u8>,
}

impl EventWriter {
    /// A writer with room for the event of a step, and for so many bytes of events that are not in the file yet.
    pub(super) fn new(pending: usize) -> EventWriter {
        const EVENT: usize = 4 << 10;
        let [event, summary] = [Vec::with_capacity(EVENT), Vec::with_capacity(EVENT)];
        let pending = Vec::with_capacity(pending + EVENT);
        EventWriter { pending, event, summary, value: Vec::with_capacity(256), histogram: vec![] }
    }

    /// What every file begins with.
    pub(super) fn version(&mut self, time: f64) {
        self.begin(time, 0);
        bytes(&mut self.event, 3, b"brain.Event:2");
        frame(&self.event, &mut self.pending);
    }

    /// Training goes on: what other files have of this step and later ones is no more.
    pub(super) fn restart(&mut self, time: f64, step: u64) {
        const SESSION_START: u64 = 1;
        self.begin(time, step);
        self.value.clear();
        tag(&mut self.value, 1, VARINT);
        varint(&mut self.value, SESSION_START);
        bytes(&mut self.event, 7, &self.value);
        frame(&self.event, &mut self.pending);
    }

    /// Adds a number to the summary that is being put together. Its name is in two parts.
    pub(super) fn scalar(&mut self, prefix: &str, name: &str, number: f64) {
        self.named(prefix, name);
        tag(&mut self.value, 2, FIXED32);
        self.value.extend_from_slice(&(number as f32).to_le_bytes());
        bytes(&mut self.summary, 1, &self.value);
    }

    /// Adds a histogram to the summary that is being put together.
    pub(super) fn histogram(&mut self, prefix: &str, name: &str, histogram: &Histogram) {
        self.named(prefix, name);
        self.histogram.clear();
        histogram.write(&mut self.histogram);
        bytes(&mut self.value, 5, &self.histogram);
        bytes(&mut self.summary, 1, &self.value);
    }

    /// Ends the summary, if there is something in it, as the event of a step.
    pub(super) fn summary(&mut self, time: f64, step: u64) {
        if self.summary.is_empty() {
            return;
        }
        self.begin(time, step);
        bytes(&mut self.event, 5, &self.summary);
        self.summary.clear();
        frame(&self.event, &mut self.pending);
    }

    fn begin(&mut self, time: f64, step: u64) {
        self.event.clear();
        double(&mut self.event, 1, time);
        tag(&mut self.event, 2, VARINT);
        varint(&mut self.event, step);
    }

    /// Begins a value of a summary.
    fn named(&mut self, prefix: &str, name: &str) {
        self.value.clear();
        tag(&mut self.value, 1, BYTES);
        varint(&mut self.value, (prefix.len() + name.len()) as u64);
        self.value.extend_from_slice(prefix.as_bytes());
        self.value.extend_from_slice(name.as_bytes());
    }
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn tag(out: &mut Vec<u8>, field: u8, kind: u8) {
    out.push(field << 3 | kind);
}

fn double(out: &mut Vec<u8>, field: u8, number: f64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    tag(out, field, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How numbers are distributed, in the buckets that TensorFlow has: limits grow by a tenth from 1e-12 on, on both sides
/// of zero. Numbers that are not finite are left out.
#[derive(Debug)]
pub(super) struct Histogram {
    min: f64,
    max: f64,
    count: f64,
    sum: f64,
    squares: f64,
    /// The limits of the buckets of positive numbers, rising; the last is the largest number there is.
    limits: Vec<f64>,
    /// Counts of negative numbers, nearest to zero first, then of others.
    buckets: [Vec<f64>; 2],
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        let rising = std::iter::successors(Some(1e-12), |limit| Some(limit * 1.1));
        let mut limits: Vec<f64> = rising.take_while(|&limit| limit < 1e20).collect();
        limits.push(f64::MAX);
        let buckets = [vec![0.0; limits.len()], vec![0.0; limits.len()]];
        Histogram { min: 0.0, max: 0.0, count: 0.0, sum: 0.0, squares: 0.0, limits, buckets }
    }

    pub(super) fn clear(&mut self) {
        (self.min, self.max) = (f64::INFINITY, f64::NEG_INFINITY);
        (self.count, self.sum, self.squares) = (0.0, 0.0, 0.0);
        self.buckets.iter_mut().for_each(|buckets| buckets.fill(0.0));
    }

    pub(super) fn add(&mut self, numbers: &[f32]) {
        for number in numbers.iter().map(|&number| f64::from(number)).filter(|number| number.is_finite()) {
            self.min = self.min.min(number);
            self.max = self.max.max(number);
            self.count += 1.0;
            self.sum += number;
            self.squares += number * number;
            // A bucket ends below its limit, and the one at zero is that of positive numbers.
            let size = number.abs();
            let at = self.limits.partition_point(|&limit| limit <= size).min(self.limits.len() - 1);
            self.buckets[usize::from(number >= 0.0)][at] += 1.0;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0.0
    }

    /// The buckets in rising order: the upper limit of each and what is in it. Of empty ones side by side there is one.
    fn rising(&self) -> impl Iterator<Item = (f64, f64)> {
        // The upper limit of negative numbers is the limit nearer to zero.
        let lower = |at: usize| if at == 0 { 0.0 } else { -self.limits[at - 1] };
        let negative = (0..self.limits.len()).rev().map(move |at| (lower(at), self.buckets[0][at]));
        let positive = (0..self.limits.len()).map(|at| (self.limits[at], self.buckets[1][at]));
        let mut all = negative.chain(positive).peekable();
        std::iter::from_fn(move || {
            let mut bucket = all.next()?;
            while bucket.1 == 0.0 && all.peek().is_some_and(|next| next.1 == 0.0) {
                bucket = all.next()?;
            }
            Some(bucket)
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        for (field, number) in (1..).zip([self.min, self.max, self.count, self.sum, self.squares]) {
            double(out, field, number);
        }
        let length = 8 * self.rising().count() as u64;
        tag(out, 6, BYTES);
        varint(out, length);
        self.rising().for_each(|(limit, _)| out.extend_from_slice(&limit.to_le_bytes()));
        tag(out, 7, BYTES);
        varint(out, length);
        self.rising().for_each(|(_, count)| out.extend_from_slice(&count.to_le_bytes()));
    }
}
