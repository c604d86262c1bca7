//! Networks of sizes that nobody tuned kernels for: odd widths, small batches, deep and thin, long sequences. Forecasts are
//! judged by them; no table of times is fitted on them.

use super::networks::classes;
use plimsoll::layers::{Dense, Layer};
use plimsoll::models::*;
use plimsoll::{Context, DType, Inputs, Result, Tensor, loss};

/// What the network of this name is trained to make small.
pub(crate) fn loss_of(name: &str, cx: &Context, x: &Inputs) -> Result<Tensor> {
    match name {
        "odd_mlp" => layers_of(&[301, 77, 10], cx, x),
        "wide_few" => layers_of(&[1900, 1900, 1900, 50], cx, x),
        "deep_thin" => layers_of(&[48; 40], cx, x),
        "odd_resnet" => {
            let blocks = [1, 2, 2, 1];
            classes(
                ResNet { blocks, width: 40, bottleneck: false, groups: 1, group_width: 64, classes: 30 },
                cx,
                x,
            )
        }
        "small_mobilenet" => classes(MobileNet::v2(37), cx, x),
        "odd_unet" => classes(UNet::new(5).widths(&[20, 44, 92]), cx, x),
        "odd_vit" => {
            classes(VisionTransformer { patch: 7, layers: 4, width: 144, heads: 4, classes: 60 }, cx, x)
        }
        "long_gpt" => classes(gpt(2, 192, 3, 512, 3000), cx, x),
        "thin_gpt" => classes(gpt(12, 96, 2, 64, 1000), cx, x),
        "long_lstm" => classes(RecurrentLm { cell: Cell::Lstm, layers: 1, width: 100, vocab: 900 }, cx, x),
        "wide_wavenet" => classes(WaveNet { levels: 256, width: 88, layers: 5, stacks: 2 }, cx, x),
        "odd_recommender" => {
            let model = Recommender {
                tables: vec![200_000, 3000, 70],
                width: 20,
                bottom: vec![100, 50],
                top: vec![120],
            };
            let labels = x.get("y")?.cast(DType::F32)?;
            loss::bce_from_logits(&model.logits(cx, x.get("x")?, x.get("i")?)?, &labels)
        }
        "small_gru" => classes(RecurrentLm { cell: Cell::Gru, layers: 3, width: 72, vocab: 2500 }, cx, x),
        "odd_convnext" => {
            classes(ConvNext { depths: vec![1, 2, 3, 1], widths: vec![24, 56, 112, 200], classes: 40 }, cx, x)
        }
        "thin_densenet" => {
            classes(DenseNet { blocks: vec![4, 6, 8], growth: 12, stem: 24, classes: 20 }, cx, x)
        }
        "odd_t5" => {
            let (hidden, buckets, farthest) = (500, 16, 64);
            let t5 = T5 { layers: 3, width: 160, heads: 5, hidden, vocab: 1700, buckets, farthest };
            loss::sparse_cross_entropy(&t5.logits(cx, x.get("source")?, x.get("x")?)?, x.get("y")?)
        }
        "long_llama" => {
            let (heads, key_value_heads, hidden) = (6, 3, 400);
            classes(
                Llama { layers: 3, width: 180, heads, key_value_heads, hidden, vocab: 1200, base: 10000.0 },
                cx,
                x,
            )
        }
        "odd_inception" => classes(Inception::googlenet(23), cx, x),
        _ => unreachable!("inputs were found by this name"),
    }
}

/// A perceptron with layers of these widths.
fn layers_of(widths: &[usize], cx: &Context, x: &Inputs) -> Result<Tensor> {
    let mut value = x.get("x")?.clone();
    for (at, &width) in widths.iter().enumerate() {
        let made = cx.layer(&format!("layer{at}"), Dense::new(width), &value)?;
        value = if at + 1 < widths.len() { made.relu()? } else { made };
    }
    loss::sparse_cross_entropy(&value, x.get("y")?)
}

fn gpt(layers: usize, width: usize, heads: usize, context: usize, vocab: usize) -> impl Layer {
    Gpt { layers, width, heads, context, vocab, dropout: 0.0, tied_head: true }
}
