//! The networks of the zoo, at sizes that people train on a CPU.

use plimsoll::layers::Layer;
use plimsoll::models::*;
use plimsoll::{Context, DType, Inputs, Result, Tensor, loss};

/// The cross-entropy of a network's logits.
pub(crate) fn classes(model: impl Layer, cx: &Context, x: &Inputs) -> Result<Tensor> {
    loss::sparse_cross_entropy(&model.forward(cx, x.get("x")?)?, x.get("y")?)
}

const VOCAB: usize = 8000;

/// What the network of this name is trained to make small.
pub(crate) fn loss_of(name: &str, cx: &Context, x: &Inputs) -> Result<Tensor> {
    match name {
        "resnet18" => classes(ResNet::resnet18(100), cx, x),
        "resnet50" => classes(ResNet::resnet50(100), cx, x),
        "resnext50" => classes(ResNet::resnext50(100), cx, x),
        "vgg" => {
            let stages = vec![(1, 64), (1, 128), (2, 256), (2, 512)];
            classes(Vgg { stages, hidden: 512, batch_norm: false, dropout: 0.0, classes: 100 }, cx, x)
        }
        "densenet" => {
            classes(DenseNet { blocks: vec![6, 12, 24, 16], growth: 32, stem: 64, classes: 100 }, cx, x)
        }
        "googlenet" => classes(Inception::googlenet(100), cx, x),
        "mobilenet_v2" => classes(MobileNet::v2(100), cx, x),
        "mobilenet_v3" => classes(MobileNet::v3_large(100), cx, x),
        "efficientnet" => classes(MobileNet::efficientnet_b0(100), cx, x),
        "convnext" => {
            let (depths, widths) = (vec![2, 2, 6, 2], vec![40, 80, 160, 320]);
            classes(ConvNext { depths, widths, classes: 100 }, cx, x)
        }
        "unet_nearest" => classes(unet(Upsampling::Nearest), cx, x),
        "unet_bilinear" => classes(unet(Upsampling::Bilinear), cx, x),
        "unet_transposed" => classes(unet(Upsampling::Transposed), cx, x),
        "deeplab" => classes(DeepLab { width: 64, blocks: 4, rates: vec![6, 12, 18], classes: 21 }, cx, x),
        "unet3d" => classes(UNet3d { widths: vec![16, 32], classes: 4 }, cx, x),
        "dcgan" => {
            let made = DcganGenerator { width: 64, doublings: 4, channels: 3 }.forward(cx, x.get("z")?)?;
            loss::mse(&made, x.get("y")?)
        }
        "autoencoder" => {
            let found = Autoencoder { widths: vec![32, 64, 128], latent: 128 }.forward(cx, x.get("x")?)?;
            loss::mse(&found, x.get("x")?)
        }
        "vit" => {
            classes(VisionTransformer { patch: 8, layers: 6, width: 192, heads: 3, classes: 100 }, cx, x)
        }
        "mixer" => {
            let (token_hidden, channel_hidden) = (128, 1024);
            let sizes =
                MlpMixer { patch: 8, layers: 6, width: 256, token_hidden, channel_hidden, classes: 100 };
            classes(sizes, cx, x)
        }
        "diffusion" => {
            let model = DiffusionUNet { widths: vec![64, 128, 128], groups: 32, heads: 4 };
            loss::mse(&model.noise(cx, x.get("x")?, x.get("t")?)?, x.get("y")?)
        }
        "gpt2" => {
            let (context, vocab) = (128, VOCAB);
            classes(
                Gpt { layers: 4, width: 256, heads: 4, context, vocab, dropout: 0.0, tied_head: true },
                cx,
                x,
            )
        }
        "llama" => {
            let (heads, key_value_heads, hidden) = (8, 2, 688);
            let base = 10000.0;
            classes(
                Llama { layers: 4, width: 256, heads, key_value_heads, hidden, vocab: VOCAB, base },
                cx,
                x,
            )
        }
        "bert" => {
            let (hidden, context) = (1024, 128);
            let bert = Bert { layers: 4, width: 256, heads: 4, hidden, context, vocab: VOCAB, dropout: 0.0 };
            let (tokens, last) = (x.get("x")?, x.get("n")?);
            let real = cx.iota(tokens.shape().as_ref(), 1, DType::I32)?.le(&last.unsqueeze(1)?)?;
            loss::sparse_cross_entropy(&bert.with_padding(cx, tokens, &real)?, x.get("y")?)
        }
        "t5" => {
            let (hidden, buckets, farthest) = (1024, 32, 128);
            let t5 = T5 { layers: 2, width: 256, heads: 4, hidden, vocab: VOCAB, buckets, farthest };
            loss::sparse_cross_entropy(&t5.logits(cx, x.get("source")?, x.get("x")?)?, x.get("y")?)
        }
        "lstm" => classes(RecurrentLm { cell: Cell::Lstm, layers: 2, width: 256, vocab: VOCAB }, cx, x),
        "gru" => classes(RecurrentLm { cell: Cell::Gru, layers: 2, width: 256, vocab: VOCAB }, cx, x),
        "seq2seq" => {
            let model = Seq2Seq { width: 256, source_vocab: VOCAB, target_vocab: VOCAB };
            let lengths = x.get("n")?.add_scalar(1.0)?;
            let logits = model.logits(cx, x.get("source")?, &lengths, x.get("x")?)?;
            loss::sparse_cross_entropy(&logits, x.get("y")?)
        }
        "wavenet" => classes(WaveNet { levels: 256, width: 64, layers: 8, stacks: 2 }, cx, x),
        "recommender" => {
            let tables = vec![100_000, 50_000, 20_000, 10_000, 5000, 1000, 500, 100];
            let model = Recommender { tables, width: 32, bottom: vec![256, 128], top: vec![256, 128] };
            let labels = x.get("y")?.cast(DType::F32)?;
            loss::bce_from_logits(&model.logits(cx, x.get("x")?, x.get("i")?)?, &labels)
        }
        "pinn" => {
            let model = Pinn { layers: 4, width: 128 };
            let points = x.get("x")?;
            let residual = model.heat_residual(cx, points, 0.3)?.square()?.mean_all()?;
            let value = model.forward(cx, points)?.squeeze(1)?;
            residual.add(&loss::mse(&value, x.get("y")?)?)
        }
        "experts" => {
            let model = MixtureOfExperts { experts: 8, chosen: 2, hidden: 512 };
            loss::mse(&model.forward(cx, x.get("x")?)?, x.get("y")?)
        }
        _ => super::others::loss_of(name, cx, x),
    }
}

fn unet(upsampling: Upsampling) -> UNet {
    UNet::new(3).widths(&[32, 64, 128]).upsampling(upsampling)
}
