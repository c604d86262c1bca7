//! What every layer makes of the shape of its input.

mod common;

use common::trace;
use plimsoll::layers::*;
use plimsoll::models::*;
use plimsoll::{DType, Tensor};
use proptest::prelude::*;

fn shape(layer: impl Layer, input: &[usize]) -> Vec<usize> {
    trace(layer, input, DType::F32).unwrap().0.shape().to_vec()
}

#[test]
fn dense_works_on_the_last_axis_of_any_input() {
    assert_eq!(shape(Dense::new(5), &[3]), [5]);
    assert_eq!(shape(Dense::new(5), &[2, 3]), [2, 5]);
    assert_eq!(shape(Dense::new(5), &[7, 2, 3]), [7, 2, 5]);
    assert_eq!(shape(Dense::new(5), &[0, 3]), [0, 5]);
}

#[test]
fn convolutions_follow_stride_padding_dilation_and_groups() {
    let conv = || Conv2d::new(8, [3, 3]);
    let image = [2, 9, 10, 4];
    assert_eq!(shape(conv(), &image), [2, 7, 8, 8]);
    assert_eq!(shape(conv().padding(Padding::Same), &image), [2, 9, 10, 8]);
    assert_eq!(shape(conv().padding(Padding::Same).stride([2, 2]), &image), [2, 5, 5, 8]);
    assert_eq!(shape(conv().padding(Padding::Explicit([1, 0, 2, 0])), &image), [2, 8, 10, 8]);
    assert_eq!(shape(conv().dilation([2, 3]), &image), [2, 5, 4, 8]);
    assert_eq!(shape(conv().dilation([2, 3]).padding(Padding::Same), &image), [2, 9, 10, 8]);
    assert_eq!(shape(conv().groups(4), &image), [2, 7, 8, 8]);
}

proptest! {
    #[test]
    fn same_padding_divides_the_extent_by_the_stride_rounded_up(
        extent in 1usize..40, window in 1usize..7, stride in 1usize..5, dilation in 1usize..4,
    ) {
        let conv = Conv2d::new(1, [window, 1]).stride([stride, 1]).dilation([dilation, 1]);
        let out = shape(conv.padding(Padding::Same), &[1, extent, 1, 1]);
        prop_assert_eq!(out, [1, extent.div_ceil(stride), 1, 1]);
    }
}

#[test]
fn pools_put_windows_beside_each_other_unless_told_otherwise() {
    let image = [2, 9, 10, 4];
    assert_eq!(shape(MaxPool::new([2, 2]), &image), [2, 4, 5, 4]);
    assert_eq!(shape(MeanPool::new([3, 3]).stride([1, 1]), &image), [2, 7, 8, 4]);
    assert_eq!(shape(MaxPool::new([3, 3]).stride([2, 2]).padding(Padding::Same), &image), [2, 5, 5, 4]);
    assert_eq!(shape(GlobalMeanPool, &image), [2, 4]);
}

#[test]
fn norms_activations_and_dropout_keep_the_shape() {
    for input in [&[4, 6][..], &[2, 3, 4, 6]] {
        assert_eq!(shape(BatchNorm::new(), input), input);
        assert_eq!(shape(LayerNorm::new(), input), input);
        assert_eq!(shape(Dropout(0.5), input), input);
        assert_eq!(shape(RmsNorm::new(), input), input);
        assert_eq!(shape(GroupNorm::new(3), input), input);
        assert_eq!(shape(InstanceNorm::new(), input), input);
        for name in [
            "relu",
            "gelu",
            "tanh",
            "sigmoid",
            "softplus",
            "silu",
            "elu",
            "leaky_relu",
            "hard_swish",
            "hard_sigmoid",
            "relu6",
            "mish",
            "softmax",
        ] {
            assert_eq!(shape(name.parse::<Activation>().unwrap(), input), input, "{name}");
        }
    }
}

#[test]
fn embeddings_append_their_width_to_indices_of_any_integer_type() {
    for dtype in [DType::I32, DType::I64, DType::U8] {
        let (y, _) = trace(Embedding::new(11, 5), &[2, 3], dtype).unwrap();
        assert_eq!(y.to_string(), "f32[2, 3, 5]");
    }
}

#[test]
fn recurrent_layers_return_the_last_state_or_all() {
    assert_eq!(shape(Lstm::new(6), &[2, 5, 3]), [2, 6]);
    assert_eq!(shape(Lstm::new(6).sequences(), &[2, 5, 3]), [2, 5, 6]);
    assert_eq!(shape(Gru::new(6), &[2, 5, 3]), [2, 6]);
    assert_eq!(shape(Gru::new(6).sequences(), &[2, 5, 3]), [2, 5, 6]);
}

#[test]
fn attention_and_transformer_blocks_keep_the_shape() {
    assert_eq!(shape(MultiHeadAttention::new(4).causal(), &[2, 5, 12]), [2, 5, 12]);
    assert_eq!(shape(TransformerBlock::new(4).dropout(0.1), &[2, 5, 12]), [2, 5, 12]);
}

#[test]
fn shape_layers_keep_the_batch() {
    assert_eq!(shape(Flatten, &[2, 3, 4]), [2, 12]);
    assert_eq!(shape(Flatten, &[2]), [2, 1]);
    assert_eq!(shape(Reshape(vec![4, 3]), &[2, 12]), [2, 4, 3]);
    assert_eq!(shape(Upsample(2), &[2, 3, 5, 4]), [2, 6, 10, 4]);
}

#[test]
fn architectures_give_logits_for_each_thing_to_classify() {
    let gpt = Gpt { layers: 2, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.1, tied_head: false };
    let tied = Gpt { tied_head: true, ..gpt.clone() };
    for model in [gpt, tied] {
        // A sequence may be shorter than the context.
        assert_eq!(trace(&model, &[3, 5], DType::I32).unwrap().0.shape()[..], [3, 5, 11]);
    }
    assert_eq!(shape(ResNet50::new(10), &[2, 64, 64, 3]), [2, 10]);
    assert_eq!(shape(UNet::new(3), &[1, 32, 16, 1]), [1, 32, 16, 3]);
}

/// How many numbers a network for 1000 classes of images trains.
fn parameters(model: impl Layer) -> usize {
    let (logits, step) = trace(model, &[1, 224, 224, 3], DType::F32).unwrap();
    assert_eq!(logits.shape()[..], [1, 1000]);
    let trained = step.states.iter().filter(|state| state.trainable);
    trained.map(|state| step.graph.shape(state.value).elements()).sum()
}

#[test]
fn networks_of_published_sizes_have_as_many_parameters_as_were_published() {
    // Those of torchvision, and of timm for the last.
    assert_eq!(parameters(ResNet::resnet18(1000)), 11_689_512);
    assert_eq!(parameters(ResNet::resnet34(1000)), 21_797_672);
    assert_eq!(parameters(ResNet50::new(1000)), 25_557_032);
    assert_eq!(parameters(ResNet::resnet101(1000)), 44_549_160);
    assert_eq!(parameters(ResNet::resnext50(1000)), 25_028_904);
    assert_eq!(parameters(Vgg::vgg11(1000)), 132_863_336);
    assert_eq!(parameters(Vgg::vgg16(1000)), 138_357_544);
    assert_eq!(parameters(DenseNet::densenet121(1000)), 7_978_856);
    assert_eq!(parameters(MobileNet::v2(1000)), 3_504_872);
    assert_eq!(parameters(MobileNet::v3_large(1000)), 5_483_032);
    assert_eq!(parameters(MobileNet::efficientnet_b0(1000)), 5_288_548);
    assert_eq!(parameters(ConvNext::tiny(1000)), 28_589_128);
    assert_eq!(parameters(VisionTransformer::base16(1000)), 86_567_656);
    assert_eq!(parameters(MlpMixer::base16(1000)), 59_880_472);
}

#[test]
fn matmul_takes_vectors_rows_and_batches() {
    let product = |a: &'static [usize], b: &'static [usize]| {
        let multiply = model(move |cx, x| x.matmul(&cx.constant(1.0, b, DType::F32)?));
        shape(multiply, a)
    };
    assert_eq!(product(&[3], &[3, 5]), [5]);
    assert_eq!(product(&[2, 3], &[3, 5]), [2, 5]);
    assert_eq!(product(&[7, 2, 3], &[3, 5]), [7, 2, 5]);
    assert_eq!(product(&[7, 2, 3], &[7, 3, 5]), [7, 2, 5]);
    let transposed = model(|cx, x| x.matmul_transposed(&cx.constant(1.0, &[5, 3], DType::F32)?));
    assert_eq!(shape(transposed, &[7, 2, 3]), [7, 2, 5]);
}

#[test]
fn tensors_are_moved_around_as_their_methods_say() {
    assert_eq!(shape(model(|_, x| x.transpose()), &[2, 3, 4]), [2, 4, 3]);
    assert_eq!(shape(model(|_, x| x.permute(&[2, 0, 1])), &[2, 3, 4]), [4, 2, 3]);
    assert_eq!(shape(model(|_, x| x.slice(1, 1..3)), &[2, 3, 4]), [2, 2, 4]);
    assert_eq!(shape(model(|_, x| x.pad(&[(1, 2), (0, 3)], 0.0)), &[2, 3]), [5, 6]);
    assert_eq!(shape(model(|_, x| Tensor::concat(&[x, x, x], 1)), &[2, 3]), [2, 9]);
    assert_eq!(shape(model(|_, x| x.broadcast(&[5, 2, 3])), &[2, 3]), [5, 2, 3]);
    assert_eq!(shape(model(|_, x| x.max(&[0, 2])), &[2, 3, 4]), [3]);
    assert_eq!(shape(model(|_, x| x.argmax(1)), &[2, 3, 4]), [2, 4]);
    assert!(shape(model(|_, x| x.sum_all()), &[2, 3, 4]).is_empty());
}
