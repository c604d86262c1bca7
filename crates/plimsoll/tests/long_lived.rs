//! A program that lives long and makes and drops everything it uses returns to where it began.
#![cfg(target_os = "linux")]

use plimsoll::data::{Dataset, digits};
use plimsoll::layers::{Activation, Dense, Flatten, Layer, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{Array, DType, Eager, Input, Optimizer, Run, Tensor, Trainer};

/// The kernel's count of threads, and of kilobytes of addresses and of memory.
fn process() -> [u64; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    ["Threads:", "VmSize:", "VmRSS:"].map(number)
}

fn model() -> Sequential {
    Sequential::new().then(Flatten).then(Dense::new(16).activation(Activation::Relu)).then(Dense::new(10))
}

fn eager_step() {
    let eager = Eager::builder().threads(2).build().unwrap();
    let x = eager.tensor(&[4, 8, 8, 1], &[0.5; 256]).unwrap();
    let mut tape = eager.tape();
    let loss = model().forward(&eager.context(true), &x).unwrap().square().unwrap().mean_all().unwrap();
    let parameters = eager.parameters();
    let gradients = tape.gradient(&loss, &parameters.values().collect::<Vec<_>>()).unwrap();
    let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
    eager.apply_gradients(&Optimizer::adam(1e-3), &named).unwrap();
}

fn run_step() {
    let mut run = Run::builder()
        .threads(2)
        .step("f", [Input::new("x", &[32, 32], DType::F32)], |_, inputs| {
            let x = inputs.get("x")?;
            Ok([("y", x.matmul(x)?)])
        })
        .compile()
        .unwrap();
    run.step("f", &[("x", &Array::new(&[32, 32], &[1.0f32; 1024]).unwrap())]).unwrap();
}

fn training(data: &Dataset) {
    let trainer = Trainer::new(model(), Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).threads(2).steps(2);
    trainer.fit(data, None, &mut ()).unwrap();
}

#[test]
fn what_is_dropped_leaves_no_threads_addresses_or_memory() {
    let data = Dataset::new(digits()).unwrap();
    let all = || {
        eager_step();
        run_step();
        training(&data);
    };
    (0..20).for_each(|_| all());
    let before = process();
    (0..200).for_each(|_| all());
    let after = process();
    assert_eq!(before[0], after[0], "threads");
    for (what, i, most_kilobytes) in [("addresses", 1, 64 << 10), ("memory", 2, 8 << 10)] {
        let (was, is) = (before[i], after[i]);
        assert!(is <= was + most_kilobytes, "{what} went from {was} to {is} kB");
    }
}
