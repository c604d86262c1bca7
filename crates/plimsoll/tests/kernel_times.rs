//! What a step's time goes to, kernel by kernel.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::{Optimizer, Trainer};

#[test]
fn every_kernel_of_the_step_is_timed_and_shown() {
    let data = Synthetic::new(64, 5).normal("features", &[40]).unwrap().classes("label", 3).unwrap();
    let model = Sequential::new().then(Dense::new(32).activation(Activation::Relu)).then(Dense::new(3));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(32).threads(1);
    let times = trainer.kernel_times(&Dataset::new(data).unwrap()).unwrap();
    assert!(times.kernels.iter().all(|kernel| kernel.seconds > 0.0 && kernel.seconds.is_finite()));
    // Two layers forward, two gradients of weights, one of what is between them.
    assert_eq!(times.kernels.iter().filter(|kernel| kernel.name == "dot").count(), 5);
    let first = times.kernels.iter().find(|kernel| kernel.name == "dot").unwrap();
    assert!(first.operands.starts_with("f32[32, 40] f32[40, 32]"), "{}", first.operands);
    assert!(first.flops >= 2 * 32 * 40 * 32);
    let text = times.to_string();
    assert!(text.contains("dot (dense0)") && text.ends_with("kernels\n"), "{text}");
    assert_eq!(times.to_json()["kernels"].as_array().map(Vec::len), Some(times.kernels.len()));
}
