//! Rows that follow one another in time, as windows from which what comes after them is predicted: the load of the next hour
//! from those of the last day.

use crate::source::Promise;
use crate::{ErrorKind, Field, Result, Source};
use std::fmt;
use std::sync::Arc;

/// Windows over the rows of a source, whose first field becomes that of all rows of a window; the other fields are those of
/// the row so many after its last.
///
/// ```
/// use plimsoll_data::sources::Windows;
/// use plimsoll_data::{Columns, Source};
///
/// let columns = Columns::new().column("load", &[], vec![1f32, 2.0, 3.0, 4.0])?.column("next", &[], vec![1f32, 2.0, 3.0, 4.0])?;
/// let windows = Windows::new(columns, 2, 1)?;
/// assert_eq!(windows.samples(), 2);
/// let (mut window, mut next) = ([0; 8], [0; 4]);
/// windows.read(1, 0, &mut window)?;
/// windows.read(1, 1, &mut next)?;
/// assert_eq!(window, [2f32, 3.0].map(f32::to_ne_bytes).concat()[..]);
/// assert_eq!(next, 4f32.to_ne_bytes());
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
pub struct Windows {
    rows: Arc<dyn Source>,
    fields: Vec<Field>,
    window: usize,
    /// How many rows after the last of a window the answer is.
    horizon: usize,
}

impl fmt::Debug for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Windows");
        shown.field("fields", &self.fields).field("window", &self.window).field("horizon", &self.horizon);
        shown.finish_non_exhaustive()
    }
}

impl Windows {
    /// Windows of so many rows, each beginning one row after the one before it.
    ///
    /// # Errors
    /// If the source has too few rows for one, or its first field is open.
    pub fn new(rows: impl Source + 'static, window: usize, horizon: usize) -> Result<Windows> {
        let rows: Arc<dyn Source> = Arc::new(rows);
        let mut fields = rows.fields().to_vec();
        if let Some(first) = fields.first_mut() {
            if !first.is_fixed() {
                let reason = format!("a window has rows of one shape, and this is open ({first})");
                return Err(ErrorKind::Field { name: first.name().to_string(), reason }.into());
            }
            let shape = [&[window], first.shape()].concat();
            *first = Field::new(first.name(), first.element(), &shape)?;
        }
        let windows = Windows { fields, window, horizon, rows };
        if windows.samples() == 0 {
            let (rows, needed) = (windows.rows.samples(), windows.beyond().saturating_add(1));
            let what = format!(
                "there are {rows} rows, and a window with what comes after it has {needed}: no window"
            );
            return Err(ErrorKind::Empty { what }.into());
        }
        Ok(windows)
    }

    /// The row that the last row of a window's sample is, counted from its first.
    fn beyond(&self) -> usize {
        // Without an answer, the last row of the window is the last.
        let horizon = if self.fields.len() > 1 { self.horizon } else { 0 };
        (self.window - 1).saturating_add(horizon)
    }

    /// The rows that a field of a sample is read from.
    fn first_row(&self, sample: usize, field: usize) -> usize {
        if field == 0 { sample } else { sample + self.beyond() }
    }
}

impl Source for Windows {
    fn samples(&self) -> usize {
        self.rows.samples().saturating_sub(self.beyond())
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let first = self.first_row(sample, field);
        if field == 0 {
            self.rows.read_range(first, self.window, 0, out)
        } else {
            self.rows.read(first, field, out)
        }
    }

    fn reading_bytes(&self) -> u64 {
        self.rows.reading_bytes()
    }

    fn resident_bytes(&self) -> u64 {
        self.rows.resident_bytes()
    }

    fn part_of(&self) -> Option<&Arc<dyn Source>> {
        Some(&self.rows)
    }

    fn origin(&self, sample: usize) -> usize {
        self.rows.origin(sample)
    }

    fn promise(&self, field: usize) -> Promise {
        self.rows.promise(field)
    }
}
