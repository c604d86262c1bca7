//! A network of the zoo on this machine's CPU, at a size that people train there: how long a step takes, and in what memory.
//!
//! `cargo bench -p plimsoll --bench zoo -- NAME SECONDS [THREADS]`, or `kernels NAME` for the times of its kernels. Inputs are
//! those of `benches/zoo/cpu.json`; `benches/zoo/torch_cpu.py` is the same in PyTorch. Numbers follow from their names, so that
//! both begin with the same loss.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/formula.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod formula;

use formula::{integers, numbers, parameter};
use plimsoll::layers::Layer;
use plimsoll::models::*;
use plimsoll::{Array, Context, DType, Input, Inputs, Optimizer, Result, Run, Tensor, loss};
use serde_json::{Value, json};
use std::time::Instant;

/// Steps that are run and not counted.
const WARM_UP: usize = 3;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let of_kernels = words.first().is_some_and(|word| word == "kernels");
    words.drain(..usize::from(of_kernels));
    let name = words.first().ok_or("usage: zoo [kernels] NAME [SECONDS [THREADS]]")?.clone();
    let seconds: f64 = words.get(1).map_or(Ok(5.0), |word| word.parse())?;
    let threads: usize = words.get(2).map_or(Ok(2), |word| word.parse())?;

    let given = inputs_of(&name)?;
    let given: Vec<(&str, &Array)> = given.iter().map(|(key, array)| (key.as_str(), array)).collect();
    let start = status("VmRSS");
    let begin = Instant::now();
    let inputs = given.iter().map(|(key, of)| Input::new(key, of.shape(), of.dtype()));
    let (called, optimizer) = (name.clone(), Optimizer::adam(1e-4));
    let mut run = Run::builder()
        .threads(threads)
        .step("train", inputs.collect::<Vec<_>>(), move |cx, x| {
            let loss = loss_of(&called, cx, x)?;
            cx.minimise(&loss, &optimizer)?;
            Ok([("loss", loss)])
        })
        .compile()?;
    let ready = begin.elapsed().as_secs_f64();
    let mut parameters = 0;
    for state in run.states().into_iter().filter(|state| state.of_model) {
        parameters += if state.trainable { state.shape.iter().product() } else { 0 };
        run.set_state(&state.name, &Array::new(&state.shape, &parameter(&state.name, &state.shape))?)?;
    }
    let mut step = || -> Result<f32> { run.step("train", &given)?["loss"].item() };
    let mut losses = vec![];
    for _ in 0..WARM_UP {
        losses.push(step()?);
    }
    if of_kernels {
        println!("{}", run.kernel_times()?.to_text(200));
        return Ok(());
    }
    let (mut times, begin) = (vec![], Instant::now());
    while times.len() < 5 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    let report = json!({
        "median_s": at(0.5),
        "spread": [at(0.1), at(0.9)],
        "steps": times.len(),
        "ready_s": ready,
        "losses": losses,
        "parameters": parameters,
        "arena_bytes": run.reserved_bytes(),
        "peak_rss_over_start_bytes": status("VmHWM").saturating_sub(start),
    });
    println!("{report}");
    Ok(())
}

/// A line of this process's status, in bytes; 0 where systems have none.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).map_or(0, |kib: u64| kib << 10)
}

fn inputs_of(name: &str) -> std::result::Result<Vec<(String, Array)>, Box<dyn std::error::Error>> {
    let all: Value = serde_json::from_str(include_str!("../../../benches/zoo/cpu.json"))?;
    let inputs = all[name].as_object().ok_or_else(|| format!("the zoo has no network `{name}`"))?;
    let array = |(key, of): (&String, &Value)| {
        let shape: Vec<usize> = serde_json::from_value(of["shape"].clone())?;
        let (called, count) = (format!("{name}/{key}"), shape.iter().product());
        let array = match of["below"].as_u64() {
            Some(below) => Array::new(&shape, &integers(&called, below as usize, count))?,
            None => Array::new(&shape, &numbers(&called, count))?,
        };
        Ok((key.clone(), array))
    };
    inputs.iter().map(array).collect()
}

/// The cross-entropy of a network's logits.
fn classes(model: impl Layer, cx: &Context, x: &Inputs) -> Result<Tensor> {
    loss::sparse_cross_entropy(&model.forward(cx, x.get("x")?)?, x.get("y")?)
}

const VOCAB: usize = 8000;

fn loss_of(name: &str, cx: &Context, x: &Inputs) -> Result<Tensor> {
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
        _ => unreachable!("inputs were found by this name"),
    }
}

fn unet(upsampling: Upsampling) -> UNet {
    UNet::new(3).widths(&[32, 64, 128]).upsampling(upsampling)
}
