//! Writes models for other programs, with what they compute here: `tests/exchange/check.py` reads them.
//!
//! `exchange write DIR` writes for each model `NAME.safetensors` with our names, `NAME.NAMES.safetensors` with those of
//! others, `NAME.onnx`, and `NAME.check.safetensors` with inputs and logits. `exchange load DIR` loads for each model
//! `NAME.NAMES.given.safetensors`, if it is there, and writes the logits of the same inputs beside it.

use plimsoll::exchange::{Names, Partial, TensorFile, load_weights, save_weights, write_onnx};
use plimsoll::layers::{
    Activation, BatchNorm, Conv2d, ConvTranspose2d, Dense, Embedding, Flatten, GroupNorm, Gru, Layer, Lstm,
    MaxPool, MeanPool, Padding, Sequential, Upsample, model,
};
use plimsoll::models::{DeepLab, Gpt, Llama, MobileNet, ResNet50, UNet, VisionTransformer, WaveNet};
use plimsoll::{Array, Context, DType, Input, Precision, Result, Run, Tensor};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use std::path::Path;
use std::rc::Rc;

/// A model, the shape of a sample, how many tokens it takes (0: it takes images), and whose names it is written with.
struct Subject {
    name: &'static str,
    model: Rc<dyn Layer>,
    sample: &'static [usize],
    tokens: usize,
    names: &'static [&'static str],
}

/// How many samples are computed.
const SAMPLES: usize = 2;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, folder] = &arguments[..] else { return Err("usage: exchange write|load DIR".into()) };
    for subject in subjects() {
        match command.as_str() {
            "write" => subject.write(Path::new(folder))?,
            "load" => subject.load(Path::new(folder))?,
            _ => return Err(format!("there is no command `{command}`").into()),
        }
    }
    Ok(())
}

fn subjects() -> Vec<Subject> {
    let gpt =
        |tied_head| Gpt { layers: 2, width: 48, heads: 4, context: 24, vocab: 97, dropout: 0.1, tied_head };
    let recurrent = |layer: Box<dyn Layer>| -> Rc<dyn Layer> {
        Rc::new(Sequential::new().then(Embedding::new(50, 12)).named("memory", layer).then(Dense::new(7)))
    };
    let mlp = Sequential::new()
        .then(Flatten)
        .then(Dense::new(64).activation(Activation::Relu))
        .then(Dense::new(10));
    let cnn = Sequential::new()
        .then(Conv2d::new(16, [3, 3]).padding(Padding::Same).activation(Activation::Relu))
        .then(MaxPool::new([2, 2]))
        .then(Conv2d::new(24, [3, 3]).stride([2, 2]).padding(Padding::Same).groups(2).no_bias())
        .then(BatchNorm::new())
        .then(Activation::Gelu)
        .then(Flatten)
        .then(Dense::new(10));
    let (heads, key_value_heads, base) = (4, 2, 10000.0);
    let llama = Llama { layers: 2, width: 48, heads, key_value_heads, hidden: 80, vocab: 97, base };
    let wavenet = WaveNet { levels: 50, width: 12, layers: 3, stacks: 2 };
    let vit = VisionTransformer { patch: 4, layers: 2, width: 24, heads: 2, classes: 10 };
    let deeplab = DeepLab { width: 12, blocks: 2, rates: vec![2, 3], classes: 5 };
    let transposed = Sequential::new()
        .then(ConvTranspose2d::new(8, [4, 4]).stride([2, 2]).padding(Padding::Explicit([1; 4])))
        .then(GroupNorm::new(2))
        .then(Activation::Mish)
        .then(
            ConvTranspose2d::new(6, [3, 2])
                .stride([3, 2])
                .dilation([1, 2])
                .groups(2)
                .padding(Padding::Explicit([1, 1, 0, 0]))
                .output_padding([2, 1]),
        )
        .then(Activation::Elu);
    let images = |name, model, sample, names| Subject { name, model, sample, tokens: 0, names };
    let tokens = |name, model, sample, tokens, names| Subject { name, model, sample, tokens, names };
    vec![
        images("mlp", Rc::new(mlp), &[8, 8], &["torch"]),
        images("cnn", Rc::new(cnn), &[17, 16, 3], &["torch"]),
        tokens("gpt", Rc::new(gpt(true)), &[20], 97, &["hf-gpt2"]),
        tokens("gpt-untied", Rc::new(gpt(false)), &[20], 97, &["hf-gpt2"]),
        images("resnet50", Rc::new(ResNet50::new(10)), &[64, 64, 3], &["torchvision-resnet", "hf-resnet"]),
        images("unet", Rc::new(UNet::new(2)), &[32, 32, 3], &["torch"]),
        tokens("lstm", recurrent(Box::new(Lstm::new(20))), &[9], 50, &["torch"]),
        tokens("gru", recurrent(Box::new(Gru::new(20).sequences())), &[9], 50, &["torch"]),
        tokens("llama", Rc::new(llama), &[20], 97, &["torch"]),
        tokens("wavenet", Rc::new(wavenet), &[30], 50, &["torch"]),
        images("vit", Rc::new(vit), &[16, 12, 3], &[]),
        images("mobilenet", Rc::new(MobileNet::v3_large(10)), &[32, 32, 3], &["torch"]),
        images("deeplab", Rc::new(deeplab), &[32, 24, 3], &["torch"]),
        images("transposed", Rc::new(transposed), &[5, 6, 4], &["torch"]),
        images("ops", Rc::new(model(every_op)), &[6, 5, 4], &[]),
    ]
}

/// The ops of inference that no other model here has.
fn every_op(cx: &Context, x: &Tensor) -> Result<Tensor> {
    let shape = x.shape().to_vec();
    let y = cx.layer("conv", Conv2d::new(4, [2, 3]).dilation([2, 1]).padding(Padding::Same), x)?;
    let y = cx.layer("pool", MeanPool::new([3, 3]).stride([1, 1]).padding(Padding::Same), &y)?;
    let y = cx.layer("up", Upsample(2), &y)?.slice(1, 3..9)?.slice(2, 0..5)?;
    let (small, positive) = (x.tanh()?, x.abs()?.add_scalar(0.5)?);
    let mut sum = y.add(&x.neg()?.exp()?)?;
    for term in [
        small.softplus()?,
        positive.log()?,
        positive.sqrt()?,
        positive.rsqrt()?,
        positive.pow(&small)?,
        x.sin()?.sub(&x.cos()?)?,
        x.erf()?.maximum(&x.floor()?)?,
        x.sign()?.minimum(&x.sigmoid()?)?,
        x.gelu()?.div(&positive)?,
        x.softmax()?.mul(&x.log_softmax()?)?,
        x.is_finite()?.not()?.cast(DType::F32)?,
        x.is_finite()?.select(&x.square()?, &x.full_like(7.0)?)?,
        cx.iota(&shape, 2, DType::F32)?.mul_scalar(0.1)?,
        x.lt(&small)?.cast(DType::F32)?.add(&x.ne(&small)?.cast(DType::F32)?)?,
        x.ge(&small)?.mul(&x.gt(&positive)?.not()?)?.cast(DType::F32)?,
        x.max(&[3])?.add(&x.min(&[3])?)?.reshape(&[shape[0], shape[1], shape[2], 1])?,
        x.mean(&[1, 2])?.reshape(&[shape[0], 1, 1, shape[3]])?,
        x.gt(&positive)?.sum(&[3])?.cast(DType::F32)?.reshape(&[shape[0], shape[1], shape[2], 1])?,
        x.argmax(3)?.cast(DType::F32)?.reshape(&[shape[0], shape[1], shape[2], 1])?.stop_gradient()?,
        x.permute(&[0, 3, 2, 1])?
            .matmul(&x.permute(&[0, 3, 1, 2])?)?
            .permute(&[0, 2, 3, 1])?
            .slice(1, 0..1)?,
        Tensor::concat(
            &[&x.slice(3, 2..4)?, &cx.constant(0.25, &[shape[0], shape[1], shape[2], 2], DType::F32)?],
            3,
        )?,
    ] {
        sum = sum.add(&term)?;
    }
    Ok(sum)
}

impl Subject {
    /// Numbers that are the same in every run, and not too large.
    fn inputs(&self) -> Result<Array> {
        let shape = [&[SAMPLES], self.sample].concat();
        let elements: usize = shape.iter().product();
        if self.tokens > 0 {
            let tokens: Vec<i32> =
                (0..elements).map(|i| (scrambled(i, 7) * self.tokens as f32) as i32).collect();
            return Array::new(&shape, &tokens);
        }
        Array::new(&shape, &(0..elements).map(|i| scrambled(i, 7) * 2.0 - 1.0).collect::<Vec<f32>>())
    }

    fn dtype(&self) -> DType {
        if self.tokens > 0 { DType::I32 } else { DType::F32 }
    }

    fn run(&self) -> Result<Run> {
        let (model, shape) = (Rc::clone(&self.model), [&[SAMPLES], self.sample].concat());
        Run::builder()
            .seed(3)
            .inference("predict", vec![Input::new("inputs", &shape, self.dtype())], move |cx, inputs| {
                let [x] = inputs.all()?;
                Ok(vec![("logits".into(), model.forward(cx, x)?)])
            })
            .compile()
    }

    fn logits(&self, run: &mut Run) -> Result<Array> {
        Ok(run.step("predict", &[("inputs", &self.inputs()?)])?.get("logits")?.clone())
    }

    fn write(&self, folder: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let at = |end: &str| folder.join(format!("{}.{end}", self.name));
        let mut run = self.run()?;
        // Norms, statistics and biases begin as ones and zeros, which would hide mistakes.
        for state in run.states().into_iter().filter(|state| state.of_model && state.shape.len() == 1) {
            let offset =
                if state.name.ends_with("gamma") || state.name.ends_with("variance") { 1.0 } else { 0.0 };
            let seed = state.name.bytes().map(usize::from).sum();
            let value = |i| offset + 0.4 * (scrambled(i, seed) - 0.5);
            let values: Vec<f32> = (0..state.shape[0]).map(value).collect();
            run.set_state(&state.name, &Array::new(&state.shape, &values)?)?;
        }
        save_weights(&mut run, at("safetensors"), &Names::plimsoll())?;
        for names in self.names {
            save_weights(&mut run, at(&format!("{names}.safetensors")), &Names::find(names)?)?;
        }
        let trace = |samples: usize| {
            let cx = Context::trace(false, Precision::F32);
            let x = cx.input("inputs", &[&[samples], self.sample].concat(), self.dtype())?;
            cx.output("logits", &self.model.forward(&cx, &x)?)?;
            cx.take_step()
        };
        let report = write_onnx(&trace, &TensorFile::open(at("safetensors"))?, at("onnx"))?;
        if let Some(reason) = report.fixed_samples {
            return Err(format!("{}: the number of samples is fixed: {reason}", self.name).into());
        }
        let logits = self.logits(&mut run)?;
        write_arrays(&at("check.safetensors"), &[("inputs", &self.inputs()?), ("logits", &logits)])
    }

    fn load(&self, folder: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
        for names in self.names {
            let given = folder.join(format!("{}.{names}.given.safetensors", self.name));
            if given.exists() {
                let mut run = self.run()?;
                load_weights(&mut run, &given, &Names::find(names)?, Partial::Refused)?;
                let result = folder.join(format!("{}.{names}.loaded.safetensors", self.name));
                write_arrays(&result, &[("logits", &self.logits(&mut run)?)])?;
            }
        }
        Ok(())
    }
}

/// A number in [0, 1) for a position.
fn scrambled(index: usize, seed: usize) -> f32 {
    let mixed =
        (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed as u64 * 0x1234_5677);
    ((mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as f32 / (1 << 24) as f32
}

fn write_arrays(
    path: &Path,
    arrays: &[(&str, &Array)],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let views = arrays.iter().map(|(name, array)| {
        let dtype = if array.dtype() == DType::I32 { Dtype::I32 } else { Dtype::F32 };
        Ok((*name, TensorView::new(dtype, array.shape().to_vec(), array.bytes())?))
    });
    let views = views.collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(serialize_to_file(views, None, path)?)
}
