//! Recurrent layers.

use super::Layer;
use crate::{Context, Init, Result, Tensor};

/// What a recurrent layer returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returns {
    Last,
    Sequence,
}

impl Returns {
    /// The part of the hidden states `[batch, time, hidden]` that is returned.
    fn of(self, states: Tensor) -> Result<Tensor> {
        let [batch, time, hidden] = [0, 1, 2].map(|axis| states.shape()[axis]);
        match self {
            Returns::Sequence => Ok(states),
            // Without any time there is no last state, which the slice says.
            Returns::Last => states.slice(1, time.max(1) - 1..time.max(1))?.reshape(&[batch, hidden]),
        }
    }
}

macro_rules! recurrent {
    ($($(#[$doc:meta])* $name:ident, $kind:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Weights start uniform within ±1/√hidden, biases at zero, and states at zero for every batch.
        #[derive(Debug, Clone)]
        pub struct $name {
            hidden: usize,
            returns: Returns,
        }

        impl $name {
            /// A layer of this hidden width that returns the last state: `[batch, time, in]` becomes
            /// `[batch, hidden]`.
            pub fn new(hidden: usize) -> Self {
                $name { hidden, returns: Returns::Last }
            }

            /// Returns the states of all times: `[batch, time, in]` becomes `[batch, time, hidden]`.
            pub fn sequences(mut self) -> Self {
                self.returns = Returns::Sequence;
                self
            }

            /// The input and hidden weights, and the zero state.
            fn prepare(&self, cx: &Context, x: &Tensor, gates: usize) -> Result<[Tensor; 3]> {
                cx.expect_axes($kind, x, &["batch", "time", "in"])?;
                let (batch, inputs, width) = (x.shape()[0], x.shape()[2], gates.saturating_mul(self.hidden));
                let init = Init::Uniform(1.0 / (self.hidden.max(1) as f64).sqrt());
                Ok([
                    cx.parameter("input_weight", &[inputs, width], init)?,
                    cx.parameter("hidden_weight", &[self.hidden, width], init)?,
                    cx.constant(0.0, &[batch, self.hidden], x.dtype())?,
                ])
            }
        }
    )*};
}

recurrent! {
    /// A long short-term memory layer; gates are in the order input, forget, cell, output.
    Lstm, "lstm";
    /// A gated recurrent layer; gates are in the order reset, update, new.
    Gru, "gru";
}

impl Layer for Lstm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let [input_weight, hidden_weight, zero] = self.prepare(cx, x, 4)?;
        let bias = cx.parameter("bias", &[4 * self.hidden], Init::Zeros)?;
        let [states, _] = x.lstm(&input_weight, &hidden_weight, &bias, &zero, &zero)?;
        self.returns.of(states)
    }

    fn kind(&self) -> &'static str {
        "lstm"
    }
}

impl Layer for Gru {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let [input_weight, hidden_weight, zero] = self.prepare(cx, x, 3)?;
        let input_bias = cx.parameter("input_bias", &[3 * self.hidden], Init::Zeros)?;
        let hidden_bias = cx.parameter("hidden_bias", &[3 * self.hidden], Init::Zeros)?;
        let states = x.gru(&input_weight, &hidden_weight, &input_bias, &hidden_bias, &zero)?;
        self.returns.of(states)
    }

    fn kind(&self) -> &'static str {
        "gru"
    }
}
