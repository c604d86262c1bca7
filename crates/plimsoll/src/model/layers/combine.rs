//! Layers made of layers, and of functions.

use super::Layer;
use crate::{Context, ErrorKind, Result, Tensor};
use std::collections::HashMap;
use std::fmt;

/// Layers one after another, each in a scope of its own.
///
/// A layer without a name is called by its kind and a number: `dense0`, `dense1`, `conv0`.
///
/// ```
/// use plimsoll::layers::{Activation, Dense, Dropout, Flatten, Layer, Sequential};
/// use plimsoll::{Context, DType, Precision};
/// let model = Sequential::new()
///     .then(Flatten)
///     .named("hidden", Dense::new(100).activation(Activation::Relu))
///     .then(Dropout(0.5))
///     .then(Dense::new(10));
///
/// let cx = Context::trace(true, Precision::F32);
/// let images = cx.input("images", &[32, 28, 28], DType::F32)?;
/// let logits = model.forward(&cx, &images)?;
/// assert_eq!(logits.shape()[..], [32, 10]);
///
/// let step = cx.take_step()?;
/// let names: Vec<&str> = step.states.iter().filter(|s| s.trainable).map(|s| &*s.name).collect();
/// assert_eq!(names, ["hidden/weight", "hidden/bias", "dense0/weight", "dense0/bias"]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Layer>)>,
    /// How many layers of each kind have been named by it.
    counts: HashMap<&'static str, usize>,
}

impl Sequential {
    /// No layers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a layer under a name made of its kind and a number.
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        let count = self.counts.entry(layer.kind()).or_default();
        let name = format!("{}{count}", layer.kind());
        *count += 1;
        self.named(&name, layer)
    }

    /// Appends a layer under a name. The same name again, with the same shapes, means the same weights.
    pub fn named(mut self, name: &str, layer: impl Layer + 'static) -> Self {
        self.layers.push((name.to_string(), Box::new(layer)));
        self
    }
}

impl Layer for Sequential {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, (name, layer)| cx.layer(name, layer, &x))
    }

    fn kind(&self) -> &'static str {
        "sequential"
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers.iter().map(|(name, _)| name)).finish()
    }
}

/// `x + layer(x)`. The layer's parameters are in the residual's own scope, those of a projection in
/// `projection`.
///
/// ```
/// use plimsoll::layers::{Dense, Layer, Residual};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[32, 64], DType::F32)?;
/// let y = Residual::new(Dense::new(128)).projection(Dense::new(128).no_bias()).forward(&cx, &x)?;
/// assert_eq!(y.shape()[..], [32, 128]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub struct Residual {
    layer: Box<dyn Layer>,
    projection: Option<Box<dyn Layer>>,
}

impl Residual {
    /// Adds the input to what the layer makes of it, which must have the same shape.
    pub fn new(layer: impl Layer + 'static) -> Self {
        Residual { layer: Box::new(layer), projection: None }
    }

    /// Passes the input through `projection` before it is added: `projection(x) + layer(x)`.
    pub fn projection(mut self, projection: impl Layer + 'static) -> Self {
        self.projection = Some(Box::new(projection));
        self
    }
}

impl Layer for Residual {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let change = self.layer.forward(cx, x)?;
        let x = match &self.projection {
            Some(projection) => cx.layer("projection", projection, x)?,
            None => x.clone(),
        };
        if x.shape() != change.shape() {
            let message =
                format!("residual: {change} cannot be added to {x}; a projection would make them alike");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        x.add(&change)
    }

    fn kind(&self) -> &'static str {
        "residual"
    }
}

impl fmt::Debug for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Residual({}", self.layer.kind())?;
        if let Some(projection) = &self.projection {
            write!(f, ", projection {}", projection.kind())?;
        }
        f.write_str(")")
    }
}

/// A function as a layer; see [`model`].
#[derive(Clone)]
pub struct Model<F>(F);

/// Makes a layer of a function, for models that are no chain of layers.
///
/// ```
/// use plimsoll::layers::{Dense, Layer, model};
/// use plimsoll::{Context, DType, Precision};
/// let gated = model(|cx, x| {
///     let gate = cx.layer("gate", Dense::new(64), x)?.sigmoid()?;
///     cx.layer("value", Dense::new(64), x)?.mul(&gate)
/// });
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[32, 16], DType::F32)?;
/// assert_eq!(gated.forward(&cx, &x)?.shape()[..], [32, 64]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub fn model<F: Fn(&Context, &Tensor) -> Result<Tensor>>(function: F) -> Model<F> {
    Model(function)
}

impl<F: Fn(&Context, &Tensor) -> Result<Tensor>> Layer for Model<F> {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        (self.0)(cx, x)
    }

    fn kind(&self) -> &'static str {
        "model"
    }
}

impl<F> fmt::Debug for Model<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Model")
    }
}
