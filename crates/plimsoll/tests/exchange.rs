//! Weights of other programs: what PyTorch saved is loaded and computes what PyTorch computed, what is written is read
//! back, and what does not go together is said.

use plimsoll::exchange::{
    Names, OnnxReport, Partial, TensorFile, convert_weights, load_weights, save_weights, write_onnx,
};
use plimsoll::layers::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose2d, Dense, Embedding, Flatten, GlobalMeanPool,
    GroupNorm, Gru, Layer, LayerNorm, Lstm, MaxPool, Padding, Reshape, RmsNorm, Sequential,
};
use plimsoll::models::{Gpt, ResNet50};
use plimsoll::{Array, Context, DType, ErrorKind, Input, Precision, Run, Tensor, layers};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A run that predicts by a model.
fn run_of(model: &Rc<dyn Layer>, inputs: (&[usize], DType), seed: u64) -> Run {
    let model = Rc::clone(model);
    Run::builder()
        .seed(seed)
        .inference("predict", vec![Input::new("inputs", inputs.0, inputs.1)], move |cx, inputs| {
            let [x] = inputs.all()?;
            Ok(vec![("logits".into(), model.forward(cx, x)?)])
        })
        .compile()
        .unwrap()
}

fn small_gpt(tied_head: bool) -> Rc<dyn Layer> {
    Rc::new(Gpt { layers: 2, width: 12, heads: 3, context: 16, vocab: 23, dropout: 0.0, tied_head })
}

fn cnn() -> Rc<dyn Layer> {
    Rc::new(
        Sequential::new()
            .then(Conv2d::new(8, [3, 3]).padding(Padding::Same))
            .then(BatchNorm::new())
            .then(Activation::Relu)
            .then(MaxPool::new([2, 2]))
            .then(Conv2d::new(6, [3, 1]).groups(2).no_bias())
            .then(GlobalMeanPool)
            .then(LayerNorm::new())
            .then(Dense::new(5)),
    )
}

fn convolutions() -> Rc<dyn Layer> {
    let up = ConvTranspose2d::new(6, [4, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4])).groups(2);
    Rc::new(
        Sequential::new()
            .then(up)
            .then(GroupNorm::new(3))
            .then(Reshape(vec![18, 6]))
            .then(Conv1d::new(5, 3).dilation(2))
            .then(RmsNorm::new()),
    )
}

fn recurrent(layer: impl Layer + 'static) -> Rc<dyn Layer> {
    Rc::new(Sequential::new().then(Embedding::new(11, 7)).then(layer).then(Dense::new(5)))
}

fn mlp() -> Rc<dyn Layer> {
    Rc::new(Sequential::new().then(Flatten).then(Dense::new(6)).then(Dense::new(3)))
}

const MLP_INPUTS: (&[usize], DType) = (&[2, 5], DType::F32);

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exchange/torch-{name}.safetensors"))
}

/// A tensor of a file.
fn tensor(file: &TensorFile, name: &str) -> Array {
    let (index, tensor) = file.find(name).unwrap();
    let mut bytes = vec![0; tensor.bytes() as usize];
    file.read(index, 0, &mut bytes).unwrap();
    let words = bytes.chunks(4).map(|word| word.try_into().unwrap());
    match tensor.dtype() {
        Some(DType::F32) => Array::new(tensor.shape(), &words.map(f32::from_le_bytes).collect::<Vec<_>>()),
        _ => Array::new(tensor.shape(), &words.map(i32::from_le_bytes).collect::<Vec<_>>()),
    }
    .unwrap()
}

fn weights(run: &mut Run) -> Vec<(String, Vec<f32>)> {
    let names: Vec<String> = run.states().into_iter().filter(|s| s.of_model).map(|s| s.name).collect();
    names.into_iter().map(|name| (name.clone(), run.state(&name).unwrap().to_vec().unwrap())).collect()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn what_pytorch_saved_computes_here_what_it_computed_there() {
    let checks = |names: Names| names.ignore("check/inputs").ignore("check/logits");
    for (name, model, names) in [
        ("gpt", small_gpt(true), Names::hf_gpt2()),
        ("gpt", small_gpt(false), Names::hf_gpt2()),
        ("cnn", cnn(), Names::torch()),
        ("mixed", cnn(), Names::torch()),
        ("convolutions", convolutions(), Names::torch()),
        ("lstm", recurrent(Lstm::new(9)), Names::torch()),
        ("gru", recurrent(Gru::new(9)), Names::torch()),
    ] {
        let file = TensorFile::open(fixture(name)).unwrap();
        let inputs = tensor(&file, "check/inputs");
        let mut run = run_of(&model, (inputs.shape(), inputs.dtype()), 1);
        let report = load_weights(&mut run, fixture(name), &checks(names), Partial::Refused).unwrap();
        assert!(report.is_complete(), "{report}");
        let outputs = run.step("predict", &[("inputs", &inputs)]).unwrap();
        let logits: Vec<f32> = outputs.get("logits").unwrap().to_vec().unwrap();
        let expected: Vec<f32> = tensor(&file, "check/logits").to_vec().unwrap();
        assert_eq!(logits.len(), expected.len());
        for (&ours, &theirs) in logits.iter().zip(&expected) {
            assert!((ours - theirs).abs() <= 1e-5 * (1.0 + theirs.abs()), "{name}: {ours} and {theirs}");
        }
    }
}

#[test]
fn a_report_says_what_was_converted_reordered_and_ignored() {
    let names = Names::torch().ignore("check/inputs").ignore("check/logits");
    let mut run = run_of(&cnn(), (&[2, 8, 8, 3], DType::F32), 1);
    let report = load_weights(&mut run, fixture("mixed"), &names, Partial::Refused).unwrap();
    assert_eq!(report.ignored, ["batch_norm0.num_batches_tracked", "check/inputs", "check/logits"]);
    let conv = report.taken.iter().find(|taken| taken.name == "conv0/filter").unwrap();
    assert!(conv.is_reordered && conv.from == ["conv0.weight"]);
    let text = report.to_string();
    for part in
        ["11 of 11 weights taken", "3 in another order", "converted from f16", "converted from f64, rounded"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn every_map_of_names_gives_back_the_weights_that_it_wrote() {
    let gpt = (&[1, 16][..], DType::I32);
    let split = Names::torch().rename("attention.qkv", "attn.q,attn.k,attn.v").unwrap();
    for (model, inputs, names) in [
        (small_gpt(true), gpt, Names::plimsoll()),
        (small_gpt(true), gpt, Names::hf_gpt2()),
        (small_gpt(false), gpt, Names::hf_gpt2()),
        (small_gpt(false), gpt, Names::torch()),
        (small_gpt(false), gpt, split),
        (cnn(), (&[1, 8, 8, 3], DType::F32), Names::torch()),
        (convolutions(), (&[1, 3, 2, 4], DType::F32), Names::torch()),
        (recurrent(Lstm::new(3)), (&[1, 4], DType::I32), Names::torch()),
        (recurrent(Gru::new(3)), (&[1, 4], DType::I32), Names::torch()),
        (Rc::new(ResNet50::new(10)), (&[1, 32, 32, 3], DType::F32), Names::torchvision_resnet()),
        (Rc::new(ResNet50::new(10)), (&[1, 32, 32, 3], DType::F32), Names::hf_resnet()),
    ] {
        let place = folder();
        let [ours, path, again] = ["ours", "theirs", "again"].map(|name| place.path().join(name));
        let mut run = run_of(&model, inputs, 1);
        let saved = save_weights(&mut run, &path, &names).unwrap();
        assert_eq!(saved.bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(saved.tensors, TensorFile::open(&path).unwrap().tensors().len());
        // From a file of ours it is the same.
        save_weights(&mut run, &ours, &Names::plimsoll()).unwrap();
        convert_weights(&TensorFile::open(&ours).unwrap(), &again, &names).unwrap();
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap(), "{}", names.title());
        let mut other = run_of(&model, inputs, 2);
        assert_ne!(weights(&mut run), weights(&mut other));
        let report = load_weights(&mut other, &path, &names, Partial::Refused).unwrap();
        assert!(report.is_complete() && report.ignored.is_empty(), "{report}");
        assert!(weights(&mut run) == weights(&mut other), "{}", names.title());
    }
}

#[test]
fn what_does_not_go_together_is_said_and_nothing_is_changed() {
    let place = folder();
    let path = place.path().join("weights");
    save_weights(&mut run_of(&mlp(), MLP_INPUTS, 1), &path, &Names::torch()).unwrap();
    let other: Rc<dyn Layer> = Rc::new(Sequential::new().then(Dense::new(7)).named("head", Dense::new(3)));
    let mut run = run_of(&other, MLP_INPUTS, 2);
    let before = weights(&mut run);
    let error = load_weights(&mut run, &path, &Names::torch(), Partial::Refused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    for part in [
        "0 of 4 weights taken",
        "head/weight (looked for head.weight)",
        "dense0/weight: dense0.weight is F32[6, 5], not [7, 5]",
        "in the file, but not in the model: 2",
        "dense1.weight",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(weights(&mut run), before);
    // With other names a matrix is another way round.
    let mut same = run_of(&mlp(), MLP_INPUTS, 2);
    let names = Names::plimsoll().rename("dense*/weight", "dense*.weight").unwrap();
    let error = load_weights(&mut same, &path, &names, Partial::Refused).unwrap_err();
    assert!(error.to_string().contains("with its axes in another order it would fit"), "{error}");
}

#[test]
fn a_partial_load_takes_what_fits_and_leaves_the_rest() {
    let place = folder();
    let path = place.path().join("weights");
    let mut first = run_of(&mlp(), MLP_INPUTS, 1);
    save_weights(&mut first, &path, &Names::plimsoll()).unwrap();
    // Another head on the same body.
    let other: Rc<dyn Layer> =
        Rc::new(Sequential::new().then(Flatten).then(Dense::new(6)).then(Dense::new(4)));
    let mut run = run_of(&other, MLP_INPUTS, 2);
    let before = run.state("dense1/weight").unwrap();
    let report = load_weights(&mut run, &path, &Names::plimsoll(), Partial::Allowed).unwrap();
    assert_eq!(report.mismatched.len(), 2);
    assert_eq!(run.state("dense0/weight").unwrap(), first.state("dense0/weight").unwrap());
    assert_eq!(run.state("dense1/weight").unwrap(), before);
    // Of nothing at all, nothing is made.
    let names = Names::plimsoll().rename("dense*", "other*").unwrap();
    assert!(load_weights(&mut run, &path, &names, Partial::Allowed).is_err());
}

#[test]
fn names_are_found_by_name_and_read_from_files() {
    let place = folder();
    let toml = place.path().join("names.toml");
    let json = place.path().join("names.json");
    std::fs::write(&toml, "base = \"torch\"\nrename = [[\"dense*\", \"layers.*\"]]\nignore = [\"steps\"]")
        .unwrap();
    std::fs::write(&json, r#"{"base": "torch", "rename": [["dense*", "layers.*"]]}"#).unwrap();
    for path in [&toml, &json] {
        let names = Names::find(path.to_str().unwrap()).unwrap();
        let file = place.path().join("weights");
        save_weights(&mut run_of(&mlp(), MLP_INPUTS, 1), &file, &names).unwrap();
        let file = TensorFile::open(&file).unwrap();
        assert_eq!(file.find("layers.1.weight").unwrap().1.shape(), [3, 6]);
    }
    for (text, expected) in [
        ("base = \"tensorflow\"", "there is no base `tensorflow`; bases are plimsoll, torch"),
        ("renames = []", "unknown field `renames`"),
        ("rename = [[\"a\", \"*\"]]", "more stars"),
        ("rename = [[\"a\"]]", "names.toml"),
    ] {
        std::fs::write(&toml, text).unwrap();
        let error = Names::find(toml.to_str().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Spec);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = Names::find("keras").unwrap_err();
    assert!(error.to_string().contains("hf-gpt2"), "{error}");
    assert_eq!(Names::find("torchvision-resnet").unwrap().title(), "torchvision-resnet");
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing_behind() {
    let place = folder();
    let path = place.path().join("taken");
    std::fs::create_dir(&path).unwrap();
    let error = save_weights(&mut run_of(&mlp(), MLP_INPUTS, 1), &path, &Names::torch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

/// Writes a model as ONNX, with first weights.
fn written(model: impl Layer + 'static, sample: &[usize]) -> plimsoll::Result<OnnxReport> {
    let place = folder();
    let [weights, path] = ["weights", "model.onnx"].map(|name| place.path().join(name));
    let model: Rc<dyn Layer> = Rc::new(model);
    let mut run = run_of(&model, (&[&[2], sample].concat(), DType::F32), 1);
    save_weights(&mut run, &weights, &Names::plimsoll()).unwrap();
    let trace = |samples: usize| {
        let cx = Context::trace(false, Precision::F32);
        let x = cx.input("inputs", &[&[samples], sample].concat(), DType::F32)?;
        cx.output("logits", &model.forward(&cx, &x)?)?;
        cx.take_step()
    };
    let report = write_onnx(&trace, &TensorFile::open(&weights)?, &path);
    assert_eq!(path.exists(), report.is_ok());
    report
}

#[test]
fn what_onnx_has_nothing_for_is_named_with_its_scope() {
    for (model, expected) in [
        (layers::model(|cx, x| cx.scope("noise", |cx| x.add(&cx.uniform(&x.shape())?))), "random"),
        (layers::model(|cx, x| cx.scope("noise", |_| x.gelu_slope())), "gelu_slope"),
    ]
        as [(layers::Model<fn(&Context, &Tensor) -> plimsoll::Result<Tensor>>, &str); 2]
    {
        let error = written(model, &[4]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("(in scope `noise`)"), "{error}");
    }
}

#[test]
fn a_model_that_depends_on_the_number_of_samples_is_written_for_one_and_that_is_said() {
    let centred = layers::model(|_, x| x.sub(&x.mean(&[0])?));
    let reason = written(centred, &[4]).unwrap().fixed_samples.unwrap();
    assert!(reason.contains("another number of samples"), "{reason}");
    assert_eq!(written(Dense::new(3), &[4]).unwrap().fixed_samples, None);
}

#[test]
fn a_weight_that_is_not_in_the_file_or_otherwise_is_an_error() {
    let place = folder();
    let weights = place.path().join("weights");
    save_weights(&mut run_of(&mlp(), MLP_INPUTS, 1), &weights, &Names::plimsoll()).unwrap();
    let file = TensorFile::open(&weights).unwrap();
    for (name, units, expected) in [
        ("head", 6, "has no weight `head/weight`"),
        ("dense0", 7, "`dense0/weight` is F32[5, 6], the model's is f32[5, 7]"),
    ] {
        let trace = |samples: usize| {
            let cx = Context::trace(false, Precision::F32);
            let x = cx.input("x", &[samples, 5], DType::F32)?;
            cx.output("y", &cx.layer(name, Dense::new(units), &x)?)?;
            cx.take_step()
        };
        let error = write_onnx(&trace, &file, place.path().join("model.onnx")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
