//! Numbers over the steps of a run, in memory that does not grow.

/// Rows of numbers, one for each step that is a multiple of a stride. When there are too many, every second one goes and
/// the stride doubles: what is kept are always true numbers of steps evenly apart.
#[derive(Debug, Clone)]
pub(super) struct Series {
    stride: usize,
    width: usize,
    steps: Vec<usize>,
    numbers: Vec<f64>,
}

/// The most rows: a few for each pixel that a chart is wide.
const ROWS: usize = 2048;

impl Series {
    /// Rows of so many numbers.
    pub(super) fn new(width: usize) -> Series {
        Series {
            stride: 1,
            width,
            steps: Vec::with_capacity(ROWS),
            numbers: Vec::with_capacity(ROWS * width),
        }
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Adds the row of a step, if that is one to keep. Steps rise.
    pub(super) fn push(&mut self, step: usize, row: impl Iterator<Item = f64>) {
        if !step.is_multiple_of(self.stride) {
            return;
        }
        if self.steps.len() == ROWS {
            self.stride *= 2;
            let (stride, width) = (self.stride, self.width);
            let mut kept = 0;
            for row in 0..self.steps.len() {
                if self.steps[row].is_multiple_of(stride) {
                    self.steps[kept] = self.steps[row];
                    self.numbers.copy_within(row * width..(row + 1) * width, kept * width);
                    kept += 1;
                }
            }
            self.steps.truncate(kept);
            self.numbers.truncate(kept * width);
            if !step.is_multiple_of(stride) {
                return;
            }
        }
        self.steps.push(step);
        self.numbers.extend(row.chain(std::iter::repeat(f64::NAN)).take(self.width));
    }

    /// The rows after a step, with their steps.
    pub(super) fn after(&self, step: usize) -> impl Iterator<Item = (usize, &[f64])> {
        let first = self.steps.partition_point(|&kept| kept <= step);
        self.steps[first..]
            .iter()
            .copied()
            .zip(self.numbers[first * self.width..].chunks_exact(self.width.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_steps_keep_true_numbers_evenly_apart_in_the_same_memory() {
        let mut series = Series::new(2);
        let room = [series.steps.capacity(), series.numbers.capacity()];
        for step in 1..=1_000_000 {
            series.push(step, [step as f64, -(step as f64)].into_iter());
            assert!(series.steps.len() <= ROWS);
        }
        assert_eq!([series.steps.capacity(), series.numbers.capacity()], room);
        assert!(series.steps.len() > ROWS / 3, "{} rows", series.steps.len());
        for (index, (step, row)) in series.after(0).enumerate() {
            assert_eq!(step, (index + 1) * series.stride());
            assert_eq!(row, [step as f64, -(step as f64)]);
        }
        let later: Vec<usize> = series.after(900_000).map(|(step, _)| step).collect();
        assert!(later.iter().all(|&step| step > 900_000) && !later.is_empty());
    }
}
