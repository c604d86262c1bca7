//! Whole training steps, as far as tracing goes: gradients, updates, kernels.

use plimsoll::layers::*;
use plimsoll::models::{Gpt, ResNet50, UNet};
use plimsoll::{Context, DType, Op, Optimizer, Precision, Result, Step, loss};
use plimsoll_graph::lower;

/// Traces a training step of a classifier of the last axis.
fn training_step(model: &dyn Layer, shape: &[usize], dtype: DType, precision: Precision) -> Result<Step> {
    let cx = Context::trace(true, precision);
    let x = cx.input("x", shape, dtype)?;
    let logits = model.forward(&cx, &x)?;
    let labels = cx.target("labels", &logits.shape()[..logits.rank() - 1], DType::I32)?;
    let loss = loss::sparse_cross_entropy(&logits, &labels)?;
    cx.output("loss", &loss)?;
    cx.minimise(&loss, &Optimizer::adam(1e-3))?;
    cx.take_step()
}

/// A name, a model, and the input it takes.
type Case = (&'static str, Box<dyn Layer>, Vec<usize>, DType);

fn models() -> Vec<Case> {
    let perceptron = Sequential::new()
        .then(Dense::new(16).activation(Activation::Relu))
        .then(Dropout(0.5))
        .then(Dense::new(10));
    let recurrent = Sequential::new()
        .then(Embedding::new(20, 8))
        .then(Lstm::new(8).sequences())
        .then(Gru::new(8))
        .then(Dense::new(10));
    let small = Gpt { layers: 2, width: 8, heads: 2, context: 8, vocab: 20, dropout: 0.1, tied_head: true };
    let residual = Sequential::new()
        .then(
            Residual::new(Sequential::new().then(Dense::new(8)).then(LayerNorm::new()))
                .projection(Dense::new(8)),
        )
        .then(Dense::new(3));
    vec![
        ("perceptron", Box::new(perceptron), vec![4, 12], DType::F32),
        ("recurrent", Box::new(recurrent), vec![4, 6], DType::I32),
        ("gpt", Box::new(small), vec![4, 8], DType::I32),
        ("residual", Box::new(residual), vec![4, 12], DType::F32),
        ("resnet50", Box::new(ResNet50::new(10)), vec![2, 64, 64, 3], DType::F32),
        ("unet", Box::new(UNet::new(2)), vec![1, 32, 32, 3], DType::F32),
    ]
}

#[test]
fn every_parameter_of_every_model_is_trained() -> Result<()> {
    for (name, model, shape, dtype) in models() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let step = training_step(&*model, &shape, dtype, precision)?;
            let trainable: Vec<_> = step.states.iter().filter(|s| s.trainable).collect();
            assert_eq!(step.gradients.len(), trainable.len(), "{name}");
            for (state, &gradient) in trainable.iter().zip(&step.gradients) {
                assert!(state.next.is_some(), "{name}: {} is not updated", state.name);
                assert_eq!(
                    step.graph.shape(gradient),
                    step.graph.shape(state.value),
                    "{name}: {}",
                    state.name
                );
                // Of a scaled loss, some are in the type they were computed in.
                let scaled = precision == Precision::F16 && step.graph.dtype(gradient) == DType::F16;
                assert!(scaled || step.graph.dtype(gradient) == DType::F32, "{name}: {}", state.name);
                let constant = matches!(step.graph.op(gradient), Op::Constant { .. });
                assert!(!constant, "{name}: no gradient reaches {}", state.name);
            }
        }
    }
    Ok(())
}

#[test]
fn every_model_lowers_to_kernels() -> Result<()> {
    for (name, model, shape, dtype) in models() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let program = lower(&training_step(&*model, &shape, dtype, precision)?);
            assert!(!program.kernels.is_empty(), "{name}");
        }
    }
    Ok(())
}

#[test]
fn the_loss_of_a_step_without_parameters_cannot_be_minimised() -> Result<()> {
    let error = training_step(&Flatten, &[2, 3], DType::F32, Precision::F32).unwrap_err();
    assert!(error.to_string().contains("no parameters, or all are frozen"), "{error}");
    Ok(())
}

#[test]
fn only_a_scalar_can_be_minimised() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", &[2, 3], DType::F32)?;
    let y = Dense::new(4).forward(&cx, &x)?;
    let error = cx.minimise(&y, &Optimizer::sgd(0.1)).unwrap_err();
    assert!(error.to_string().contains("f32[2, 4]"), "{error}");
    Ok(())
}
