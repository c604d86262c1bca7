//! Initialisers: what parameters hold before the first step.
//!
//! The scaled ones keep the variance of activations (or gradients) the same from layer to layer. They need
//! the fan-in and fan-out of the parameter: for a shape `[.., in, out]` these are `in` and `out`, each
//! times the product of the leading axes (the area of a filter). A vector counts as its own fan.

use crate::{Error, ErrorKind, Result, name};
use plimsoll_graph::step::Initial;
use std::fmt;
use std::str::FromStr;

/// How a parameter is initialised.
///
/// ```
/// use plimsoll::Init;
/// let init: Init = "glorot_uniform".parse()?;
/// assert_eq!(init, Init::GlorotUniform);
/// let init: Init = "normal(0.01)".parse()?;
/// assert_eq!(init, Init::Normal(0.01));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All this number.
    Constant(f64),
    /// Uniform within ±√(6 / (fan-in + fan-out)): the default of dense layers.
    GlorotUniform,
    /// Normal with deviation √(2 / (fan-in + fan-out)).
    GlorotNormal,
    /// Uniform within ±√(6 / fan-in).
    HeUniform,
    /// Normal with deviation √(2 / fan-in), for layers before a relu: the default of convolutions.
    HeNormal,
    /// Normal with deviation √(1 / fan-in).
    LecunNormal,
    /// Normal with this deviation; by name alone, with 0.02: the default of embeddings and transformers.
    Normal(f64),
    /// Uniform within ± this limit; by name alone, within ±0.05.
    Uniform(f64),
}

const NAMES: [(&str, Init); 9] = [
    ("zeros", Init::Zeros),
    ("ones", Init::Ones),
    ("glorot_uniform", Init::GlorotUniform),
    ("glorot_normal", Init::GlorotNormal),
    ("he_uniform", Init::HeUniform),
    ("he_normal", Init::HeNormal),
    ("lecun_normal", Init::LecunNormal),
    ("normal", Init::Normal(0.02)),
    ("uniform", Init::Uniform(0.05)),
];

impl Init {
    /// The distribution for a parameter of this shape.
    ///
    /// # Errors
    /// If a limit or deviation is negative, or any number not finite.
    pub fn initial(self, shape: &[usize]) -> Result<Initial> {
        let (fan_in, fan_out) = fans(shape);
        let uniform = |variance: f64| Initial::Uniform { limit: (3.0 * variance).sqrt() };
        let normal = |variance: f64| Initial::Normal { deviation: variance.sqrt() };
        Ok(match self {
            Init::Zeros => Initial::Constant(0.0),
            Init::Ones => Initial::Constant(1.0),
            Init::Constant(value) if value.is_finite() => Initial::Constant(value),
            Init::GlorotUniform => uniform(2.0 / (fan_in + fan_out)),
            Init::GlorotNormal => normal(2.0 / (fan_in + fan_out)),
            Init::HeUniform => uniform(2.0 / fan_in),
            Init::HeNormal => normal(2.0 / fan_in),
            Init::LecunNormal => normal(1.0 / fan_in),
            Init::Normal(deviation) if deviation.is_finite() && deviation >= 0.0 => {
                Initial::Normal { deviation }
            }
            Init::Uniform(limit) if limit.is_finite() && limit >= 0.0 => Initial::Uniform { limit },
            Init::Constant(_) | Init::Normal(_) | Init::Uniform(_) => {
                let message =
                    format!("cannot initialise with {self}: the number must be finite and not negative");
                return Err(Error::new(ErrorKind::Argument, message));
            }
        })
    }
}

/// Fan-in and fan-out, each at least 1 so that empty parameters divide by nothing.
fn fans(shape: &[usize]) -> (f64, f64) {
    let (area, fan_in, fan_out) = match shape {
        [] => (&[][..], 1, 1),
        [n] => (&[][..], *n, *n),
        [area @ .., channels_in, channels_out] => (area, *channels_in, *channels_out),
    };
    let area: f64 = area.iter().map(|&extent| extent as f64).product();
    ((area * fan_in as f64).max(1.0), (area * fan_out as f64).max(1.0))
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Init::Constant(value) => write!(f, "constant({value})"),
            Init::Normal(deviation) => write!(f, "normal({deviation})"),
            Init::Uniform(limit) => write!(f, "uniform({limit})"),
            other => {
                let name = NAMES.iter().find(|(_, init)| init == other).map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

impl FromStr for Init {
    type Err = Error;

    /// A name from the list, or `constant(x)`, `normal(deviation)`, `uniform(limit)`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((kind, rest)) = text.split_once('(') else {
            return name::find("initialiser", &NAMES, text);
        };
        let number = rest.strip_suffix(')').and_then(|number| number.trim().parse().ok());
        match (kind.trim(), number) {
            ("constant", Some(value)) => Ok(Init::Constant(value)),
            ("normal", Some(deviation)) => Ok(Init::Normal(deviation)),
            ("uniform", Some(limit)) => Ok(Init::Uniform(limit)),
            _ => {
                let numbered = ["constant(x)", "normal(deviation)", "uniform(limit)"];
                Err(name::unknown("initialiser", NAMES.iter().map(|(known, _)| *known).chain(numbered), text))
            }
        }
    }
}
