//! Whole trainings on both devices: every kind of workload in small, with and without a budget.
//!
//! Losses must follow the CPU's within what rounding lets them drift apart, the arena must be what was forecast, and a
//! budget that is met by exact remedies must leave every bit as it was.

use super::run_on_both::Trouble;
use super::{Report, Verdict};
use crate::{DeviceName, Spec, Trained, Trainer};
use std::path::Path;
use std::time::Instant;

/// A training to try.
struct Training {
    name: &'static str,
    data: &'static str,
    model: &'static str,
    train: &'static str,
    loss: &'static str,
    /// Adam's first steps go by signs alone, those of gradients that are next to nothing too, which differ between
    /// devices: deep networks take steps that follow the size of gradients here.
    optimizer: &'static str,
    /// How far losses may be apart, relative to their size.
    tolerance: f32,
}

const ADAM: &str = "kind = 'adam'\nrate = 1e-3";
const SGD: &str = "kind = 'sgd'\nrate = 1e-3";
/// Fifty layers that are normalised by statistics of a few samples go apart by themselves: on the CPU, losses from first
/// weights that differ by one rounding are 1e-3 to 3e-3 apart after two steps at a rate of 1e-5, and 1e-4 at this one.
const SLOW_SGD: &str = "kind = 'sgd'\nrate = 1e-6";

const TRAININGS: [Training; 15] = [
    Training {
        name: "a perceptron",
        data: "kind = 'synthetic'\nsamples = 200\nfeatures = [40]\nclasses = 10",
        model: "kind = 'sequential'\nlayers = [{ dense = 64, activation = 'relu' }, { dense = 10 }]",
        train: "batch = 32\nsteps = 20",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-4,
    },
    Training {
        name: "a perceptron in bf16",
        data: "kind = 'synthetic'\nsamples = 200\nfeatures = [40]\ntarget = [24]",
        model: "kind = 'sequential'\nlayers = [{ dense = 64, activation = 'gelu' }, { dense = 24 }]",
        train: "batch = 32\nsteps = 20\nprecision = 'bf16'",
        loss: "mse",
        optimizer: ADAM,
        tolerance: 2e-2,
    },
    Training {
        name: "a perceptron in f16",
        data: "kind = 'synthetic'\nsamples = 200\nfeatures = [40]\ntarget = [24]",
        model: "kind = 'sequential'\nlayers = [{ dense = 64, activation = 'tanh' }, { dense = 24 }]",
        train: "batch = 32\nsteps = 20\nprecision = 'f16'",
        loss: "mse",
        optimizer: ADAM,
        tolerance: 1e-2,
    },
    Training {
        name: "convolutions",
        data: "kind = 'synthetic'\nsamples = 64\nfeatures = [16, 16, 3]\nclasses = 10",
        model: "kind = 'sequential'\nlayers = [{ conv = 16, window = 3, padding = 'same', activation = 'relu' }, \
                { conv = 32, window = 3, padding = 'same', activation = 'relu' }, { max_pool = 2 }, \
                { conv = 32, window = 3, padding = 'same', activation = 'relu' }, 'global_mean_pool', { dense = 10 }]",
        train: "batch = 16\nsteps = 12",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "convolutions with dropout in bf16",
        data: "kind = 'synthetic'\nsamples = 64\nfeatures = [16, 16, 3]\nclasses = 10",
        model: "kind = 'sequential'\nlayers = [{ conv = 16, window = 3, padding = 'same', activation = 'relu' }, \
                { max_pool = 2 }, 'flatten', { dropout = 0.5 }, { dense = 10 }]",
        train: "batch = 16\nsteps = 12\nprecision = 'bf16'",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 3e-2,
    },
    Training {
        name: "a language model",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 48\nvocabulary = 300",
        model: "kind = 'gpt'\nlayers = 2\nwidth = 64\nheads = 2\ncontext = 48\nvocabulary = 300",
        train: "batch = 8\nsteps = 12",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "a language model in bf16, with a tied head",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 64\nvocabulary = 300",
        model: "kind = 'gpt'\nlayers = 2\nwidth = 128\nheads = 2\ncontext = 64\nvocabulary = 300\ntied_head = true",
        train: "batch = 8\nsteps = 12\nprecision = 'bf16'",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 2e-2,
    },
    Training {
        name: "a language model of many lengths",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 48\nvocabulary = 300",
        model: "kind = 'gpt'\nlayers = 1\nwidth = 64\nheads = 2\ncontext = 48\nvocabulary = 300",
        train: "batch = 4\nsteps = 12\nlengths = [8, 48]",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "a recurrent network",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 20\nvocabulary = 100",
        model: "kind = 'sequential'\nlayers = [{ embedding = 100, width = 32 }, { lstm = 32, sequences = true }, \
                { dense = 100 }]",
        train: "batch = 8\nsteps = 12",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "a residual network",
        data: "kind = 'synthetic'\nsamples = 16\nfeatures = [64, 64, 3]\nclasses = 10",
        model: "kind = 'resnet50'\nclasses = 10",
        train: "batch = 8\nsteps = 3",
        loss: "sparse_cross_entropy",
        optimizer: SLOW_SGD,
        tolerance: 1e-3,
    },
    Training {
        name: "a U-Net",
        data: "kind = 'synthetic'\nsamples = 8\nfeatures = [32, 32, 3]\ntarget = [32, 32, 3]",
        model: "kind = 'unet'\nchannels = 3",
        train: "batch = 4\nsteps = 4",
        loss: "mse",
        optimizer: SGD,
        tolerance: 1e-3,
    },
    Training {
        name: "a language model with root-mean-square norms, rotary positions, few keys and gates",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 32\nvocabulary = 200",
        model: "kind = 'sequential'\nlayers = [{ embedding = 200, width = 64 }, { residual = ['rms_norm', \
                { attention = 4, causal = true, key_value_heads = 2, rotary = 10000, bias = false }] }, \
                { residual = ['rms_norm', { swiglu = 96 }] }, 'rms_norm', { dense = 200 }]",
        train: "batch = 8\nsteps = 12",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "the same in bf16",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 32\nvocabulary = 200",
        model: "kind = 'sequential'\nlayers = [{ embedding = 200, width = 64 }, { residual = ['rms_norm', \
                { attention = 4, causal = true, key_value_heads = 2, rotary = 10000, bias = false }] }, \
                { residual = ['rms_norm', { swiglu = 96 }] }, 'rms_norm', { dense = 200 }]",
        train: "batch = 8\nsteps = 12\nprecision = 'bf16'",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 2e-2,
    },
    Training {
        name: "transposed convolutions, norms of groups, gates of channels and smooth activations",
        data: "kind = 'synthetic'\nsamples = 32\nfeatures = [16, 16, 3]\ntarget = [16, 16, 3]",
        model: "kind = 'sequential'\nlayers = [{ conv = 16, window = 3, stride = 2, padding = 1, activation = 'silu' }, \
                { group_norm = 4 }, { conv = 16, window = 3, padding = 'same', groups = 16, activation = 'hard_swish' }, \
                { squeeze_excite = 4 }, 'instance_norm', 'mish', \
                { conv_transpose = 8, window = 4, stride = 2, padding = 1, activation = 'elu' }, { conv = 3, window = 1 }]",
        train: "batch = 8\nsteps = 12",
        loss: "smooth_l1",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
    Training {
        name: "causal convolutions over time",
        data: "kind = 'synthetic-tokens'\nsamples = 64\nlength = 40\nvocabulary = 100",
        model: "kind = 'sequential'\nlayers = [{ embedding = 100, width = 32 }, \
                { residual = [{ conv1d = 32, window = 2, causal = true, activation = 'leaky_relu' }] }, \
                { residual = [{ conv1d = 32, window = 2, causal = true, dilation = 2, activation = 'hard_sigmoid' }] }, \
                { conv1d = 100, window = 1 }]",
        train: "batch = 8\nsteps = 12",
        loss: "sparse_cross_entropy",
        optimizer: ADAM,
        tolerance: 1e-3,
    },
];

/// Tries those whose names are wanted, and tells of each what came of it.
pub(super) fn all(device: DeviceName, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
    for training in &TRAININGS {
        let name = format!("training {}", training.name);
        if !wanted(&name) {
            continue;
        }
        let start = Instant::now();
        let (verdict, error, detail) = match training.attempt(device) {
            Ok((error, detail)) if error <= 1.0 => (Verdict::Passed, error, detail),
            Ok((error, detail)) => (Verdict::Failed, error, detail),
            Err(Trouble { verdict, message }) => (verdict, f64::INFINITY, message),
        };
        let seconds = start.elapsed().as_secs_f64();
        tell(name, Report { verdict, error, microseconds: 0.0, detail, seconds });
    }
}

impl Training {
    fn spec(&self) -> Result<Spec, Trouble> {
        let Training { data, model, train, loss, optimizer, .. } = self;
        let text = format!(
            "loss = '{loss}'\n[data]\n{data}\n[model]\n{model}\n[optimizer]\n{optimizer}\n[train]\n{train}\n"
        );
        Ok(Spec::parse(&text, Path::new("training.toml"))?)
    }

    /// How far losses are apart over what they may be, and what was seen.
    fn attempt(&self, device: DeviceName) -> Result<(f64, String), Trouble> {
        let spec = self.spec()?;
        let (data, _) = spec.datasets()?;
        let fit = |trainer: Trainer| -> Result<Trained, Trouble> {
            let trained = trainer.fit(&data, None, &mut ())?;
            let report = &trained.report;
            if report.arena_bytes != report.predicted_peak_bytes || report.allocations_after_first_step > 0 {
                return Err(failed(format!(
                    "an arena of {} bytes, {} were forecast; {} reservations after the first step",
                    report.arena_bytes, report.predicted_peak_bytes, report.allocations_after_first_step
                )));
            }
            Ok(trained)
        };
        let expected = fit(spec.trainer())?;
        let actual = fit(spec.trainer().on(device))?;
        let apart = expected.report.losses.iter().zip(&actual.report.losses);
        let apart: Vec<f32> = apart.map(|(a, b)| (a - b).abs() / a.abs().max(0.1)).collect();
        let (first, apart) = (apart.first().copied().unwrap_or(0.0), apart.into_iter().fold(0.0, f32::max));
        let last = |trained: &Trained| trained.report.losses.last().copied().unwrap_or(f32::NAN);
        let mut detail = format!(
            "{} losses, the last {} and {} on the CPU; the first {first:.1e} apart, at most {apart:.1e}",
            actual.report.losses.len(),
            last(&actual),
            last(&expected)
        );
        let arena = actual.report.arena_bytes;
        let budget = [80, 90].map(|percent| arena * percent / 100).into_iter().find_map(|budget| {
            let trainer = spec.trainer().on(device).exact(true).budget(budget);
            trainer.forecast(&data, None).is_ok().then_some((trainer, budget))
        });
        if let Some((trainer, budget)) = budget {
            let within = fit(trainer)?;
            if within.report.losses != actual.report.losses || within.weights != actual.weights {
                return Err(failed(format!(
                    "within {budget} of {arena} bytes the losses or weights have other bits"
                )));
            }
            detail += &format!("; within {} bytes the same bits", within.report.arena_bytes);
        }
        Ok((f64::from(apart / self.tolerance), detail))
    }
}

fn failed(message: String) -> Trouble {
    Trouble { verdict: Verdict::Failed, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_training_runs_on_the_cpu() {
        for training in &TRAININGS {
            let spec = training.spec().unwrap_or_else(|e| panic!("{}: {}", training.name, e.message));
            let (data, _) = spec.datasets().expect("data");
            let trainer = spec.trainer().steps(2).threads(1);
            let trained = trainer.fit(&data, None, &mut ());
            let trained = trained.unwrap_or_else(|e| panic!("{}: {e}", training.name));
            assert_eq!(trained.report.arena_bytes, trained.report.predicted_peak_bytes, "{}", training.name);
        }
    }
}
