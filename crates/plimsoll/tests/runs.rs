//! A run is what its forecast says: over random models, shapes and budgets, on the CPU and for devices that are not here.
//! `PLIMSOLL_DEVICE=cuda:0` runs the same on another device.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::{Activation, Dense, Dropout, LayerNorm};
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{
    Array, Class, Context, DType, DeviceName, ErrorKind, FrontierReport, Init, Input, Inputs, Optimizer,
    Result, Run, RunBuilder, Tensor, Trainer, devices, loss,
};
use proptest::prelude::*;

/// The device that runs are tried on.
fn device() -> DeviceName {
    std::env::var("PLIMSOLL_DEVICE").map_or(Ok(DeviceName::default()), |name| name.parse()).unwrap()
}

/// A random run: towers over several inputs that meet in a trunk, several losses, one or two optimizers, a step that
/// only predicts, and a last batch of fewer samples.
#[derive(Debug, Clone)]
struct Model {
    batch: usize,
    rest: usize,
    inputs: Vec<usize>,
    width: usize,
    depth: usize,
    outputs: Vec<usize>,
    own_loss: bool,
    optimizers: u8,
    dropout: bool,
    norm: bool,
    predicts: bool,
    splits: bool,
}

fn models() -> impl Strategy<Value = Model> {
    (
        (2usize..40, 1usize..40, prop::collection::vec(1usize..24, 1..4), 4usize..48, 1usize..5),
        (prop::collection::vec(1usize..12, 1..3), any::<bool>(), 0u8..4),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(|((batch, rest, inputs, width, depth), (outputs, own_loss, optimizers), flags)| {
            let (dropout, norm, predicts, splits) = flags;
            let rest = rest % batch;
            Model {
                batch,
                rest,
                inputs,
                width,
                depth,
                outputs,
                own_loss,
                optimizers,
                dropout,
                norm,
                predicts,
                splits,
            }
        })
}

impl Model {
    fn inputs(&self, samples: usize, targets: bool) -> Vec<Input> {
        let x = self.inputs.iter().enumerate();
        let mut inputs: Vec<Input> =
            x.map(|(i, &width)| Input::new(&format!("x{i}"), &[samples, width], DType::F32)).collect();
        if targets {
            let y = self.outputs.iter().enumerate();
            inputs.extend(
                y.map(|(i, &width)| Input::new(&format!("y{i}"), &[samples, width], DType::F32).exact()),
            );
        }
        inputs
    }

    fn predictions(&self, cx: &Context, inputs: &Inputs) -> Result<Vec<Tensor>> {
        let mut sum: Option<Tensor> = None;
        for i in 0..self.inputs.len() {
            let tower = Dense::new(self.width).activation(Activation::Tanh);
            let x = cx
                .scope("towers", |cx| cx.layer(&format!("tower{i}"), tower, inputs.get(&format!("x{i}"))?))?;
            sum = Some(match sum {
                Some(sum) => sum.add(&x)?,
                None => x,
            });
        }
        let mut x = sum.expect("an input");
        for i in 0..self.depth {
            x = cx.scope("trunk", |cx| {
                let mut y =
                    cx.layer(&format!("dense{i}"), Dense::new(self.width).activation(Activation::Gelu), &x)?;
                if self.norm {
                    y = cx.layer(&format!("norm{i}"), LayerNorm::new(), &y)?;
                }
                if self.dropout {
                    y = cx.layer(&format!("dropout{i}"), Dropout(0.2), &y)?;
                }
                y.add(&x)
            })?;
        }
        let head = |(i, &width): (usize, &usize)| cx.layer(&format!("head{i}"), Dense::new(width), &x);
        self.outputs.iter().enumerate().map(head).collect()
    }

    fn run(&self) -> RunBuilder {
        let (model, of) = (self.clone(), self.clone());
        let optimizers = match self.optimizers {
            0 => vec![Optimizer::sgd(1e-2)],
            1 => vec![Optimizer::adam(1e-2)],
            2 => vec![
                Optimizer::adam(1e-2).only(["towers", "trunk"]),
                Optimizer::momentum(1e-2, 0.9, false).only(heads()),
            ],
            _ => vec![
                Optimizer::adamw(1e-3).only(["trunk"]),
                Optimizer::adam(1e-2).only(heads()),
                Optimizer::rmsprop(1e-3).only(["towers"]),
            ],
        };
        let mut run = Run::builder().on(device()).seed(3).threads(2).step(
            "train",
            self.inputs(self.batch, true),
            move |cx, inputs| {
                let mut losses = vec![];
                for (i, prediction) in model.predictions(cx, inputs)?.iter().enumerate() {
                    let target = inputs.get(&format!("y{i}"))?;
                    let loss = match model.own_loss {
                        true => prediction.sub(target)?.abs()?.add_scalar(1.0)?.log()?.mean_all()?,
                        false => loss::mse(prediction, target)?,
                    };
                    losses.push((format!("loss{i}"), loss));
                }
                let mut total = losses[0].1.clone();
                for (_, loss) in &losses[1..] {
                    total = total.add(loss)?;
                }
                optimizers.iter().try_for_each(|optimizer| cx.minimise(&total, optimizer))?;
                Ok(losses)
            },
        );
        if self.rest > 0 {
            let shapes: Vec<Vec<usize>> = self.inputs(self.rest, true).iter().map(shape_of).collect();
            run = run.shapes("train", &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        if self.splits {
            run = run.may_split("train");
        }
        if self.predicts {
            run = run.inference("predict", self.inputs(self.batch, false), move |cx, inputs| {
                let outputs = of.predictions(cx, inputs)?.into_iter().enumerate();
                Ok(outputs.map(|(i, y)| (format!("y{i}"), y)).collect::<Vec<_>>())
            });
            run = run.may_split("predict");
        }
        run
    }

    /// A few steps: everything they report, in bytes.
    fn trained(&self, run: &mut Run) -> Vec<Vec<u8>> {
        let mut seen = vec![];
        for samples in [self.batch, self.rest, self.batch] {
            if samples == 0 {
                continue;
            }
            seen.extend(step(run, "train", &self.inputs(samples, true), samples));
        }
        if self.predicts {
            seen.extend(step(run, "predict", &self.inputs(self.batch, false), 1));
        }
        seen
    }
}

fn heads() -> [&'static str; 3] {
    ["head0", "head1", "head2"]
}

fn shape_of(input: &Input) -> Vec<usize> {
    input.shape().to_vec()
}

fn step(run: &mut Run, name: &str, inputs: &[Input], key: usize) -> Vec<Vec<u8>> {
    let arrays: Vec<Array> = inputs
        .iter()
        .map(|input| {
            let count: usize = input.shape().iter().product();
            let values: Vec<f32> = (0..count).map(|i| ((i * 7 + key) as f32 * 0.61).sin()).collect();
            Array::new(input.shape(), &values).unwrap()
        })
        .collect();
    let named: Vec<(&str, &Array)> = inputs.iter().map(Input::name).zip(&arrays).collect();
    let out = run.step(name, &named).unwrap();
    out.iter().map(|(_, array)| array.bytes().to_vec()).collect()
}

/// Rows from the most memory to the least: peaks fall, times rise, none above its budget.
fn check_shape(frontier: &FrontierReport) {
    for pair in frontier.points.windows(2) {
        assert!(pair[0].peak_bytes >= pair[1].peak_bytes, "{frontier}");
        assert!(pair[0].step_seconds <= pair[1].step_seconds, "{frontier}");
    }
    assert!(frontier.points.iter().all(|point| point.peak_bytes <= point.budget_bytes), "{frontier}");
    assert_eq!(frontier.points.last().map(|point| point.budget_bytes), Some(frontier.floor_bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_row_of_a_frontier_is_a_budget_that_gives_its_peak_and_the_same_bits(model in models()) {
        let frontier = model.run().frontier().unwrap();
        check_shape(&frontier);
        let mut free = model.run().compile().unwrap();
        let expected = model.trained(&mut free);
        prop_assert_eq!(free.reserved_bytes(), Some(free.forecast().peak_bytes));
        for (row, point) in frontier.points.iter().enumerate() {
            // What was asked for and what that gives are both budgets.
            let budget = if row % 2 == 0 { point.budget_bytes } else { point.peak_bytes };
            let run = model.run().budget(budget).compile().unwrap();
            prop_assert_eq!(run.forecast().peak_bytes, point.peak_bytes, "budget {}", budget);
        }
        for point in [frontier.points.last().unwrap(), &frontier.points[frontier.points.len() / 2]] {
            let mut run = model.run().budget(point.budget_bytes).compile().unwrap();
            let seen = model.trained(&mut run);
            prop_assert_eq!(run.reserved_bytes(), Some(point.peak_bytes));
            let exact = run.forecast().remedies.iter().all(|remedy| remedy.class() == Class::Exact);
            // What only predicts may be split as well, which changes no bit of a row.
            if exact {
                prop_assert_eq!(&seen, &expected);
            }
        }
        prop_assert!(frontier.no_plan_below_bytes <= frontier.floor_bytes, "{}", frontier);
        let refused = model.run().budget(frontier.floor_bytes - 1).compile();
        if let Err(error) = refused {
            prop_assert_eq!((error.kind(), error.least_bytes()), (ErrorKind::Budget, Some(frontier.floor_bytes)));
        }
    }

    #[test]
    fn rows_for_devices_that_are_not_here_are_budgets_too(model in models(), device in 0usize..3, parts in 1usize..4) {
        let profile = devices::find(["h200", "t4", "rtx4090"][device]).unwrap();
        // The end of a window takes longer where states rest on the host.
        let run = || match parts.min(model.batch) {
            1 => model.run().profile(profile.clone()),
            parts => model.run().profile(profile.clone()).split("train", parts),
        };
        let frontier = run().frontier().unwrap();
        check_shape(&frontier);
        for point in frontier.points.iter().step_by(3) {
            let run = run().budget(point.budget_bytes).compile().unwrap();
            prop_assert_eq!(run.forecast().peak_bytes, point.peak_bytes);
        }
        let mut elsewhere = run().compile().unwrap();
        let error = elsewhere.state("head0/weight").unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::Device);
    }

    #[test]
    fn what_training_forecasts_with_held_out_data_it_reserves(
        (samples, batch, held_out) in (20usize..90, 2usize..50, 0.1f64..0.9),
        (buckets, micro_batches) in (any::<bool>(), 1usize..4),
        tight in 0usize..11,
    ) {
        let data = Synthetic::new(samples, 1).tokens("tokens", "next", 12, 30).unwrap();
        let data = Dataset::new(data).unwrap().split(held_out, 1).unwrap();
        let model = Gpt { layers: 1, width: 16, heads: 2, context: 12, vocab: 30, dropout: 0.1, tied_head: false };
        let mut trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3))
            .batch(batch)
            .micro_batches(micro_batches.min(batch.min(data.train.samples())))
            .steps(4)
            .on(device())
            .threads(2);
        if buckets {
            trainer = trainer.lengths(3..=12).buckets(4);
        }
        let frontier = trainer.frontier(&data.train, Some(&data.held_out)).unwrap();
        check_shape(&frontier);
        let point = &frontier.points[tight.min(frontier.points.len() - 1)];
        for trainer in [trainer.clone(), trainer.budget(point.budget_bytes)] {
            let mut training = trainer.compile(&data.train, Some(&data.held_out)).unwrap();
            let forecast = training.forecast();
            let report = training.fit(&mut ()).unwrap();
            prop_assert_eq!(report.arena_bytes, forecast.peak_bytes);
            prop_assert_eq!(report.predicted_peak_bytes, forecast.peak_bytes);
            if report.budget_bytes.is_some() {
                prop_assert_eq!(forecast.peak_bytes, point.peak_bytes);
            }
        }
    }
}

#[test]
fn without_a_budget_each_program_is_planned_once() {
    let data = Dataset::new(plimsoll::data::digits()).unwrap().split(0.8, 1).unwrap();
    let model = || plimsoll::layers::Sequential::new().then(plimsoll::layers::Flatten).then(Dense::new(10));
    let trainer = Trainer::new(model(), Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).epochs(1);
    let mut training = trainer.compile(&data.train, Some(&data.held_out)).unwrap();
    let forecast = training.forecast();
    // Full batches and the last one, of training and of evaluation.
    assert_eq!((forecast.steps.len(), forecast.plans), (4, 4));
    training.fit(&mut ()).unwrap();
    assert_eq!(training.forecast().plans, 4, "training plans nothing again");
}

#[test]
fn the_forecast_of_training_counts_what_is_held_out() {
    // Evaluation at once of more than is trained on at once sets the peak.
    let data =
        Dataset::new(Synthetic::new(600, 1).normal("x", &[64]).unwrap().classes("y", 10).unwrap()).unwrap();
    let data = data.split(0.2, 1).unwrap();
    let model = Dense::new(10);
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::sgd(1e-2)).batch(512).epochs(1);
    let mut training = trainer.compile(&data.train, Some(&data.held_out)).unwrap();
    let forecast = training.forecast();
    assert!(forecast.notes[0].contains("512") && forecast.notes[0].contains("120"), "{:?}", forecast.notes);
    assert_eq!(training.fit(&mut ()).unwrap().arena_bytes, forecast.peak_bytes);
}

#[test]
fn the_rates_of_an_optimizer_are_changed_between_steps_by_a_state() {
    let sgd = Optimizer::sgd(0.5);
    let factor = sgd.rate_factor();
    let mut run = Run::builder()
        .step("train", [], move |cx, _| {
            let w = cx.parameter("w", &[], Init::Ones)?;
            cx.minimise(&w.mul_scalar(1.0)?, &sgd)
        })
        .compile()
        .unwrap();
    assert_eq!(run.state(&factor).unwrap().item::<f64>().unwrap(), 1.0);
    let mut step = |factor: f64, state: &str| {
        run.set_state(state, &Array::new(&[], &[factor]).unwrap()).unwrap();
        run.step("train", &[]).unwrap();
        run.state("w").unwrap().item::<f32>().unwrap()
    };
    assert_eq!([1.0, 0.5, 0.0].map(|by| step(by, &factor)), [0.5, 0.25, 0.25]);
}

#[test]
fn states_move_from_one_run_to_another_by_name() {
    let run = |width: usize| {
        let adam = Optimizer::adam(1e-2);
        Run::builder()
            .step("train", [Input::new("x", &[4, 3], DType::F32)], move |cx, inputs| {
                let hidden = cx.layer("hidden", Dense::new(width), inputs.get("x")?)?;
                cx.minimise(&hidden.square()?.mean_all()?, &adam)
            })
            .compile()
            .unwrap()
    };
    let (mut one, mut two) = (run(5), run(5));
    let x = Array::new(&[4, 3], &[0.5f32; 12]).unwrap();
    (0..3).for_each(|_| _ = one.step("train", &[("x", &x)]).unwrap());
    for state in one.states() {
        two.set_state(&state.name, &one.state(&state.name).unwrap()).unwrap();
    }
    for run in [&mut one, &mut two] {
        run.step("train", &[("x", &x)]).unwrap();
    }
    for state in one.states() {
        assert_eq!(one.state(&state.name).unwrap(), two.state(&state.name).unwrap(), "{}", state.name);
    }
    assert_eq!(one.state("optimizer:updates").unwrap().item::<i64>().unwrap(), 4);
    let error = two.set_state("hidden/weight", &Array::zeros(&[3, 4], DType::F32).unwrap()).unwrap_err();
    assert!(error.to_string().contains("f32[3, 5]") && error.to_string().contains("f32[3, 4]"), "{error}");
    let error = two.state("hidden/wieght").unwrap_err();
    assert!(error.to_string().contains("hidden/weight"), "{error}");
}

#[test]
fn what_is_wrong_with_a_step_is_said_with_its_name() {
    let compile = |function: fn(&Context, &Inputs) -> Result<()>| {
        Run::builder().step("mine", [Input::new("x", &[4, 3], DType::F32)], function).compile()
    };
    let error = |function| compile(function).map(|_| ()).unwrap_err().to_string();
    let missing = error(|_, inputs| inputs.get("y").map(|_| ()));
    assert!(missing.contains("step `mine`") && missing.contains("`y`") && missing.contains("x"), "{missing}");
    let own = error(|_, _| Err(plimsoll::Error::new(ErrorKind::Argument, "a layer that complains")));
    assert!(own.contains("a layer that complains") && own.contains("step `mine`"), "{own}");
    let twice = error(|cx, inputs| {
        let loss = cx.parameter("w", &[3], Init::Ones)?.mul(inputs.get("x")?)?.mean_all()?;
        cx.minimise(&loss, &Optimizer::adam(1e-3))?;
        cx.minimise(&loss, &Optimizer::sgd(1e-3))
    });
    assert!(twice.contains("`w`") && twice.contains("both"), "{twice}");
    let empty = Run::builder().compile().map(|_| ()).unwrap_err();
    assert!(empty.to_string().contains("at least one step"), "{empty}");

    let mut run = compile(|cx, inputs| cx.output("sum", &inputs.get("x")?.sum_all()?)).unwrap();
    let [right, wide] = [[4, 3], [4, 4]].map(|shape| Array::zeros(&shape, DType::F32).unwrap());
    let whole = Array::zeros(&[4, 3], DType::I32).unwrap();
    for (inputs, said) in [
        (vec![("x", &wide)], "not compiled for `x` f32[4, 4]"),
        (vec![("x", &whole)], "i32[4, 3]"),
        (vec![], "`x` is missing"),
        (vec![("x", &right), ("y", &right)], "no input `y`"),
    ] {
        let error = run.step("mine", &inputs).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("step `mine`"), "{error}");
    }
    assert!(run.step("yours", &[]).unwrap_err().to_string().contains("it has: mine"));
    assert_eq!(run.step("mine", &[("x", &right)]).unwrap()["sum"].item::<f32>().unwrap(), 0.0);
}

#[test]
fn tokens_and_labels_out_of_range_are_named_with_their_position() {
    let adam = Optimizer::adam(1e-3);
    let mut run = Run::builder()
        .step(
            "train",
            [Input::new("tokens", &[2, 3], DType::I32), Input::new("labels", &[2, 3], DType::I32)],
            move |cx, inputs| {
                let [tokens, labels] = inputs.all()?;
                let x = cx.layer("embed", plimsoll::layers::Embedding::new(10, 4), tokens)?;
                let loss = loss::sparse_cross_entropy(&cx.layer("head", Dense::new(7), &x)?, labels)?;
                cx.minimise(&loss, &adam)?;
                Ok([("loss", loss)])
            },
        )
        .compile()
        .unwrap();
    let array = |values: [i32; 6]| Array::new(&[2, 3], &values).unwrap();
    let good = array([0, 1, 2, 3, 4, 5]);
    // A negative label stands for none, a negative token for nothing.
    run.step("train", &[("tokens", &good), ("labels", &array([-1, 0, 6, 1, 2, 3]))]).unwrap();
    let before = run.state("embed/table").unwrap();
    for (tokens, labels, said) in [
        (array([0, 1, 2, 3, 10, 5]), good.clone(), "`tokens`[1, 1] is 10"),
        (array([0, -3, 2, 3, 1, 5]), good.clone(), "`tokens`[0, 1] is -3"),
        (good.clone(), array([0, 1, 2, 3, 4, 7]), "`labels`[1, 2] is 7"),
    ] {
        let error = run.step("train", &[("tokens", &tokens), ("labels", &labels)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(said), "{error}");
    }
    let after = run.state("embed/table").unwrap();
    assert_eq!(before, after, "a batch that is refused trains nothing");
}
