//! What is in which element type, and what training and inference do differently.

use plimsoll::layers::*;
use plimsoll::models::{Gpt, ResNet50};
use plimsoll::{Context, DType, Init, Op, Precision, Result, Step, Tensor, loss};

/// Traces a layer on an input of this type.
fn trace_as(
    layer: impl Layer,
    shape: &[usize],
    dtype: DType,
    training: bool,
    precision: Precision,
) -> Result<(Tensor, Step)> {
    let cx = Context::trace(training, precision);
    let x = cx.input("x", shape, dtype)?;
    let y = layer.forward(&cx, &x)?;
    Ok((y, cx.take_step()?))
}

fn count(step: &Step, is: impl Fn(&Op) -> bool) -> usize {
    step.graph.nodes().iter().filter(|node| is(&node.op)).count()
}

#[test]
fn activations_are_in_the_compute_type_and_states_in_f32() -> Result<()> {
    let model = Sequential::new()
        .then(Conv2d::new(4, [3, 3]).activation(Activation::Relu))
        .then(BatchNorm::new())
        .then(MaxPool::new([2, 2]))
        .then(Reshape(vec![9, 4]))
        .then(Gru::new(4).sequences())
        .then(TransformerBlock::new(2).dropout(0.1))
        .then(Lstm::new(5))
        .then(Dense::new(3));
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        for training in [true, false] {
            let (y, step) = trace_as(&model, &[2, 8, 8, 1], DType::F32, training, precision)?;
            assert_eq!(y.dtype(), precision.compute());
            for state in step.states.iter().filter(|s| &*s.name != "random") {
                assert_eq!(step.graph.dtype(state.value), DType::F32, "{}", state.name);
            }
        }
    }
    Ok(())
}

#[test]
fn losses_are_f32_in_every_precision() -> Result<()> {
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let cx = Context::trace(true, precision);
        let y = cx.input("y", &[4, 3], DType::F32)?;
        let labels = cx.target("labels", &[4], DType::I32)?;
        let targets = cx.target("targets", &[4, 3], DType::F32)?;
        assert_eq!(targets.dtype(), DType::F32);
        let losses = [
            loss::sparse_cross_entropy(&y, &labels)?,
            loss::cross_entropy(&y, &targets)?,
            loss::mse(&y, &targets)?,
            loss::bce_from_logits(&y, &targets)?,
        ];
        for loss in losses {
            assert_eq!(loss.to_string(), "f32[]");
        }
    }
    Ok(())
}

#[test]
fn a_shared_parameter_is_converted_once() -> Result<()> {
    let cx = Context::trace(true, Precision::Bf16);
    let first = cx.parameter("w", &[3], Init::Zeros)?;
    let second = cx.parameter("w", &[3], Init::Zeros)?;
    assert_eq!([first.dtype(), second.dtype()], [DType::BF16; 2]);
    assert_eq!(cx.master_parameter("w", &[3], Init::Zeros)?.dtype(), DType::F32);
    assert_eq!(count(&cx.take_step()?, |op| matches!(op, Op::Cast { .. })), 1);
    Ok(())
}

#[test]
fn embeddings_convert_the_rows_they_look_up_and_not_the_table() -> Result<()> {
    let (_, step) = trace_as(Embedding::new(1000, 4), &[2], DType::I32, true, Precision::Bf16)?;
    let casts = step.graph.nodes().iter().filter(|node| matches!(node.op, Op::Cast { .. }));
    let shapes: Vec<_> = casts.map(|node| step.graph.shape(node.operands[0]).to_vec()).collect();
    assert_eq!(shapes, [[2, 4]]);
    Ok(())
}

#[test]
fn dropout_is_for_training() -> Result<()> {
    let random = |training, rate| -> Result<usize> {
        let (_, step) = trace_as(Dropout(rate), &[2, 3], DType::F32, training, Precision::F32)?;
        Ok(count(&step, |op| matches!(op, Op::Random { .. })))
    };
    assert_eq!([random(true, 0.5)?, random(true, 0.0)?, random(false, 0.5)?], [1, 0, 0]);
    Ok(())
}

#[test]
fn every_dropout_draws_its_own_numbers() -> Result<()> {
    let model = Sequential::new().then(Dropout(0.5)).then(Dropout(0.5));
    let (_, step) = trace_as(model, &[2, 3], DType::F32, true, Precision::F32)?;
    let streams: Vec<u64> = step
        .graph
        .nodes()
        .iter()
        .filter_map(|node| match node.op {
            Op::Random { stream, .. } => Some(stream),
            _ => None,
        })
        .collect();
    assert_eq!(streams.len(), 2);
    assert_ne!(streams[0], streams[1]);
    Ok(())
}

#[test]
fn running_statistics_move_in_training_only() -> Result<()> {
    for training in [true, false] {
        let (_, step) = trace_as(BatchNorm::new(), &[4, 3], DType::F32, training, Precision::F32)?;
        let moved: Vec<&str> = step.states.iter().filter(|s| s.next.is_some()).map(|s| &*s.name).collect();
        let trainable: Vec<&str> = step.states.iter().filter(|s| s.trainable).map(|s| &*s.name).collect();
        assert_eq!(moved, if training { vec!["mean", "variance"] } else { vec![] });
        assert_eq!(trainable, ["gamma", "beta"]);
        let by_batch = count(&step, |op| matches!(op, Op::BatchNorm { .. }));
        assert_eq!(by_batch, usize::from(training));
    }
    Ok(())
}

#[test]
fn a_statistic_that_was_set_is_its_new_value() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let old = cx.statistic("count", &[], Init::Zeros)?;
    cx.set_statistic(&old, &old.add_scalar(1.0)?)?;
    let new = cx.statistic("count", &[], Init::Zeros)?;
    let last = new.add_scalar(1.0)?;
    cx.set_statistic(&new, &last)?;
    // What is no present value cannot be set: the old one, or a parameter.
    assert!(cx.set_statistic(&old, &last).is_err());
    let parameter = cx.parameter("w", &[], Init::Zeros)?;
    assert!(cx.set_statistic(&parameter, &last).is_err());
    let present = cx.statistic("count", &[], Init::Zeros)?;
    assert!(cx.set_statistic(&present, &cx.constant(0.0, &[2], DType::F32)?).is_err());

    cx.output("last", &last)?;
    let step = cx.take_step()?;
    assert_eq!(step.states[0].next, Some(step.outputs[0].value));
    Ok(())
}

#[test]
fn inference_has_the_same_states_as_training() -> Result<()> {
    let gpt = Gpt { layers: 2, width: 4, heads: 2, context: 8, vocab: 9, dropout: 0.1, tied_head: false };
    let cases: [(&dyn Layer, &[usize], DType); 2] =
        [(&gpt, &[2, 8], DType::I32), (&ResNet50::new(10), &[2, 32, 32, 3], DType::F32)];
    for (model, shape, dtype) in cases {
        let names = |training, precision| -> Result<Vec<String>> {
            let (_, step) = trace_as(model, shape, dtype, training, precision)?;
            Ok(step.states.iter().map(|s| s.name.to_string()).filter(|name| name != "random").collect())
        };
        assert_eq!(names(true, Precision::Bf16)?, names(false, Precision::F32)?);
    }
    Ok(())
}
