//! One error type for the crate: opaque, with a kind that carries the numbers a program or a person needs to act.

use std::path::PathBuf;
use std::{fmt, io};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why data could not be had. The message says what to do; [`Error::kind`] says it to programs.
#[derive(Debug)]
pub struct Error(Box<ErrorKind>);

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The same error, of this sample if it is about a file and says of none.
    pub(crate) fn of_sample(mut self, of: usize) -> Error {
        if let ErrorKind::File { sample: sample @ None, .. } = &mut *self.0 {
            *sample = Some(of);
        }
        self
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

/// The ways in which data can be unusable.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is nothing to train on.
    Empty {
        /// What is empty.
        what: String,
    },
    /// More samples than can be put into an order.
    TooManySamples {
        /// How many there are.
        samples: usize,
    },
    /// A field cannot be what it was declared or used as.
    Field {
        /// The field's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No field has this name, or this position.
    NoSuchField {
        /// What was asked for.
        asked: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A sample index beyond the last sample.
    NoSuchSample {
        /// The index asked for.
        sample: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// A buffer of the wrong size.
    Buffer {
        /// The field that was to be read.
        field: String,
        /// The buffer's bytes.
        bytes: usize,
        /// The bytes it must have.
        needed: usize,
    },
    /// A batch size that no buffer can have.
    BatchSize {
        /// The batch size asked for.
        batch: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A fraction that leaves one side of a split without meaning.
    Split {
        /// The fraction asked for.
        fraction: f64,
        /// How many samples were to be split.
        samples: usize,
    },
    /// A float that is not a number, or infinite.
    NotFinite {
        /// The field it is in.
        field: String,
        /// The sample it is in, counted in the source.
        sample: usize,
        /// Its position in the sample.
        element: usize,
        /// The value.
        value: f32,
    },
    /// A label outside of `0..classes`.
    Label {
        /// The field it is in.
        field: String,
        /// The sample it is in, counted in the source.
        sample: usize,
        /// The label.
        value: i64,
        /// How many classes there are.
        classes: usize,
    },
    /// More RAM would be held than the budget allows.
    OverBudget {
        /// Who would hold it.
        holder: String,
        /// The bytes it would hold.
        bytes: u64,
        /// The budget.
        limit: u64,
        /// What would make it fit.
        remedy: String,
    },
    /// The operating system has no more memory to give.
    OutOfMemory {
        /// Who asked.
        holder: String,
        /// The bytes asked for.
        bytes: u64,
    },
    /// A line of a text file that could not be understood.
    Parse {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The line, counted from 1, the header included.
        line: u64,
        /// The column's name, when one column is to blame.
        column: Option<String>,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A file holds what it should not, or lacks what it should hold.
    File {
        /// The file.
        path: PathBuf,
        /// The sample, counted from 0, when one is to blame.
        sample: Option<usize>,
        /// The byte of the file, when one is to blame.
        offset: Option<u64>,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// An image cannot be decoded, or not be changed as asked.
    Image {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A stage of a pipeline could not make an element.
    Stage {
        /// The stage.
        stage: String,
        /// The element that it was to make, counted from 0 within its epoch.
        element: u64,
        /// What is wrong.
        reason: String,
        /// What was wrong before it came to this stage, if something was.
        error: Option<Error>,
    },
    /// A position in a pipeline is not one of this pipeline.
    Position {
        /// What is wrong with it.
        reason: String,
    },
    /// An option of a source that a workload gives is not usable.
    Option {
        /// What is wrong, with its place in the file.
        message: String,
    },
    /// A file could not be read.
    Io {
        /// What was being read.
        what: String,
        /// What the operating system said.
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            ErrorKind::Empty { what } => write!(f, "{what}: there is nothing to train on"),
            ErrorKind::TooManySamples { samples } => {
                write!(f, "{samples} samples are more than can be put into an order: at most {}", isize::MAX)
            }
            ErrorKind::Field { name, reason } => write!(f, "field `{name}`: {reason}"),
            ErrorKind::NoSuchField { asked, known } => {
                let shown = &known[..known.len().min(12)];
                write!(f, "there is no field {asked}; the fields are: {}", shown.join(", "))?;
                match known.len() - shown.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            ErrorKind::NoSuchSample { sample, samples } => {
                write!(f, "there is no sample {sample}; the samples are 0..{samples}")
            }
            ErrorKind::Buffer { field, bytes, needed } => {
                write!(f, "field `{field}`: the buffer has {bytes} bytes where {needed} are needed")
            }
            ErrorKind::BatchSize { batch, reason } => write!(f, "a batch size of {batch}: {reason}"),
            ErrorKind::Split { fraction, samples } => write!(
                f,
                "{samples} samples cannot be split at {fraction}: the fraction must lie between 0 and 1, both \
                 excluded, and there must be at least 2 samples"
            ),
            ErrorKind::NotFinite { field, sample, element, value } => write!(
                f,
                "field `{field}`, sample {sample}, element {element} is {value}: one such value makes every weight \
                 NaN; remove the sample or replace the value"
            ),
            ErrorKind::Label { field, sample, value, classes } => write!(
                f,
                "field `{field}`, sample {sample}: the label {value} is outside of 0..{classes}; number the classes \
                 from 0, or declare more of them"
            ),
            ErrorKind::OverBudget { holder, bytes, limit, remedy } => write!(
                f,
                "{holder} would hold {bytes} bytes of RAM, {} more than its budget of {limit}: {remedy}",
                bytes.saturating_sub(*limit)
            ),
            ErrorKind::OutOfMemory { holder, bytes } => write!(
                f,
                "{holder} needs {bytes} bytes of RAM, which the operating system refused; use fewer samples, or \
                 free memory"
            ),
            ErrorKind::Parse { path, line, column, reason } => {
                if let Some(path) = path {
                    write!(f, "{}: ", path.display())?;
                }
                match column {
                    Some(column) => write!(f, "line {line}, column `{column}`: {reason}"),
                    None => write!(f, "line {line}: {reason}"),
                }
            }
            ErrorKind::File { path, sample, offset, reason } => {
                write!(f, "{}", path.display())?;
                if let Some(sample) = sample {
                    write!(f, ", sample {sample}")?;
                }
                if let Some(offset) = offset {
                    write!(f, ", byte {offset}")?;
                }
                write!(f, ": {reason}")
            }
            ErrorKind::Image { reason } => write!(f, "the image: {reason}"),
            ErrorKind::Stage { stage, element, reason, .. } => {
                write!(f, "{stage}, element {element}: {reason}")
            }
            ErrorKind::Position { reason } => {
                write!(f, "{reason}: the position was taken in another pipeline, or with other options")
            }
            ErrorKind::Option { message } => f.write_str(message),
            ErrorKind::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Io { error, .. } => Some(error),
            ErrorKind::Stage { error: Some(error), .. } => Some(error),
            _ => None,
        }
    }
}
