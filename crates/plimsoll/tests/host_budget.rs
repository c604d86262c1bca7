//! The host's budget: what training on a GPU pins of the host is bounded, foretold and told, and more of it is never worse.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{ErrorKind, Forecast, Optimizer, Spec, Trainer, devices};
use proptest::prelude::*;

fn perceptron(batch: usize) -> (Trainer, Dataset) {
    let layers =
        (0..4).fold(Sequential::new(), |net, _| net.then(Dense::new(96).activation(Activation::Gelu)));
    let data = Synthetic::new(64, 3).normal("x", &[48]).unwrap().classes("y", 10).unwrap();
    let network = layers.then(Dense::new(10));
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(batch);
    (trainer, Dataset::new(data).unwrap())
}

fn convolutions(batch: usize) -> (Trainer, Dataset) {
    let conv = |width| Conv2d::new(width, [3, 3]).padding(Padding::Same).activation(Activation::Tanh);
    let network =
        (0..3).fold(Sequential::new(), |net, _| net.then(conv(12))).then(Flatten).then(Dense::new(5));
    let data = Synthetic::new(64, 3).normal("x", &[12, 12, 3]).unwrap().classes("y", 5).unwrap();
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::momentum(0.1, 0.9, true));
    (trainer.batch(batch), Dataset::new(data).unwrap())
}

fn language(batch: usize) -> (Trainer, Dataset) {
    let gpt = Gpt { layers: 2, width: 32, heads: 2, context: 16, vocab: 200, dropout: 0.1, tied_head: false };
    let data = Synthetic::new(64, 4).tokens("token", "next", 16, 200).unwrap();
    let trainer = Trainer::new(gpt, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(batch);
    (trainer, Dataset::new(data).unwrap())
}

/// The forecast within two budgets, or nothing where that is refused for want of memory.
fn within(trainer: &Trainer, data: &Dataset, device: u64, host: u64) -> Option<Forecast> {
    let held_out = data.samples() > 40;
    match trainer.clone().budget(device).host_budget(host).forecast(data, held_out.then_some(data)) {
        Ok(forecast) => Some(forecast),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
            None
        }
    }
}

fn pinned(forecast: &Forecast) -> u64 {
    forecast.host_use.map_or(0, |of| of.bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_exceeds_either_budget_and_more_of_either_is_never_slower(
        network in 0usize..3,
        batch in 4usize..24,
        device in prop::sample::select(vec!["h200", "t4", "rtx4090"]),
        exact in any::<bool>(),
        parts in (0.0f64..1.0, 0.0f64..1.0),
    ) {
        let (trainer, data) = [perceptron, convolutions, language][network](batch);
        let trainer = trainer.profile(devices::find(device).unwrap()).exact(exact);
        let frontier = trainer.frontier(&data, Some(&data)).unwrap();
        let (most, least) = (frontier.points[0].peak_bytes, frontier.floor_bytes);
        let host = frontier.points.iter().map(|point| point.host_bytes).max().unwrap_or(0);
        let steps = |least: u64, most: u64, part: f64| {
            [0.0, part, 1.0].map(|part| least + ((most - least) as f64 * part) as u64)
        };
        let devices = steps(least, most, parts.0);
        let hosts = steps(host / 16, host, parts.1);
        let fits: Vec<Vec<Option<Forecast>>> = devices
            .iter()
            .map(|&device| hosts.iter().map(|&host| within(&trainer, &data, device, host)).collect())
            .collect();
        for (d, h) in (0..3).flat_map(|d| (0..3).map(move |h| (d, h))) {
            let Some(here) = &fits[d][h] else { continue };
            prop_assert!(here.peak_bytes <= devices[d] && pinned(here) <= hosts[h], "{here}");
            prop_assert_eq!(here.fits(), Some(true));
            for (more_d, more_h) in [(d + 1, h), (d, h + 1)].into_iter().filter(|&(d, h)| d < 3 && h < 3) {
                let more = fits[more_d][more_h].as_ref();
                let seconds = more.map(|of| of.step_seconds);
                prop_assert!(
                    seconds.is_some_and(|seconds| seconds <= here.step_seconds),
                    "{} / {} take {} s, {} / {} {seconds:?}",
                    devices[d], hosts[h], here.step_seconds, devices[more_d], hosts[more_h]
                );
            }
        }
        // With as much of the host as helps it is the same as without a budget of it.
        prop_assert!(fits.iter().all(|row| row[2].is_some()));
        for (&device, row) in devices.iter().zip(&fits) {
            let free = trainer.clone().budget(device).forecast(&data, Some(&data)).unwrap();
            let same = row[2].as_ref().map(|of| (of.peak_bytes, of.step_seconds));
            prop_assert_eq!(same, Some((free.peak_bytes, free.step_seconds)));
        }
    }
}

/// The bytes in a line of advice that begins so, as in `a host budget of 312 MiB (327461632 bytes) or more`.
fn advised(message: &str, begin: &str) -> Option<u64> {
    let line = message.lines().find_map(|line| line.trim().strip_prefix(begin))?;
    line.split_once('(')?.1.split_once(' ')?.0.parse().ok()
}

#[test]
fn a_refusal_names_what_is_pinned_and_budgets_that_fit() {
    let (trainer, data) = language(16);
    let trainer = trainer.profile(devices::find("h200").unwrap());
    let floor = trainer.frontier(&data, None).unwrap().floor_bytes;
    let error = trainer.clone().budget(floor).host_budget(20 << 10).forecast(&data, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    let message = error.to_string();
    assert!(message.contains("host budget of 20.0 KiB (20480 bytes)"), "{message}");
    assert!(message.contains(" states") && message.contains("staging of inputs and results"), "{message}");
    let host = advised(&message, "a host budget of ").unwrap_or_else(|| panic!("no host budget: {message}"));
    let device = advised(&message, "a budget of ").unwrap_or_else(|| panic!("no budget: {message}"));
    for (device, host) in [(floor, host), (device, 20 << 10)] {
        let forecast =
            within(&trainer, &data, device, host).unwrap_or_else(|| panic!("{device} {host}: {message}"));
        assert!(forecast.peak_bytes <= device && pinned(&forecast) <= host, "{forecast}");
    }
    // Without a budget of the device too: inputs are staged in any case.
    let error = trainer.clone().host_budget(1000).forecast(&data, None).unwrap_err().to_string();
    assert!(error.contains("host budget of 1000 B") && error.contains("staging"), "{error}");
    let frontier = trainer.host_budget(20 << 10).frontier(&data, None).unwrap();
    assert!(frontier.points.iter().all(|point| point.host_bytes <= 20 << 10), "{frontier}");
    assert!(frontier.floor_bytes > floor);
}

#[test]
fn a_workload_says_its_host_budget_and_a_cpu_has_none() {
    let digits = || {
        let spec = Spec::find("digits").unwrap();
        let text = spec.text_with_absolute_paths().replace("[train]\n", "[train]\nhost_budget = \"1MiB\"\n");
        Spec::parse(&text, std::path::Path::new("digits.toml")).unwrap()
    };
    let (data, _) = digits().datasets().unwrap();
    let error = digits().trainer().forecast(&data, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("`budget` bounds RAM"), "{error}");
    let forecast = digits().trainer().profile(devices::find("t4").unwrap()).forecast(&data, None).unwrap();
    assert_eq!(forecast.room.host_budget_bytes, Some(1 << 20));
    let json = forecast.to_json();
    assert_eq!(json["host_use_bytes"].as_u64(), Some(pinned(&forecast)));
    assert_eq!(json["host_use"]["staging_bytes"].as_u64(), Some(pinned(&forecast)), "nothing rests there");
    assert!(pinned(&forecast) > 0);
    assert!(digits().trainer().without_budget().forecast(&data, None).is_ok());
}
