//! Networks that are trained to solve equations.

use crate::layers::{Activation, Dense, Layer};
use crate::{Context, Result, Tensor};

/// A perceptron with tanh, whose derivatives exist: points `[n, inputs]` to a value each, `[n, 1]`.
///
/// Parameters are `layer0` and so on, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinn {
    /// How many hidden layers there are.
    pub layers: usize,
    /// How wide they are.
    pub width: usize,
}

impl Pinn {
    /// By how much the network, as u(x, t), misses the heat equation u_t = `conductivity` · u_xx at points `[n, 2]` of x and
    /// t: `[n]`. Derivatives are gradients of the traced step, so that what they depend on can be trained.
    ///
    /// # Errors
    /// If the context does not trace, or the points have other shapes.
    pub fn heat_residual(&self, cx: &Context, points: &Tensor, conductivity: f64) -> Result<Tensor> {
        cx.expect_axes("pinn", points, &["points", "x and t"])?;
        let (x, t) = (points.slice(1, 0..1)?, points.slice(1, 1..2)?);
        let u = self.forward(cx, &Tensor::concat(&[&x, &t], 1)?)?;
        // Each point's value depends on its own coordinates alone, so that the gradient of the sum has all slopes.
        let slopes = cx.gradients(&u.sum_all()?, &[&x, &t])?;
        let curvature = cx.gradients(&slopes[0].sum_all()?, &[&x])?.remove(0);
        slopes[1].sub(&curvature.mul_scalar(conductivity)?)?.squeeze(1)
    }
}

impl Layer for Pinn {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for at in 0..self.layers {
            x = cx.layer(&format!("layer{at}"), Dense::new(self.width).activation(Activation::Tanh), &x)?;
        }
        cx.layer("head", Dense::new(1), &x)
    }

    fn kind(&self) -> &'static str {
        "pinn"
    }
}
