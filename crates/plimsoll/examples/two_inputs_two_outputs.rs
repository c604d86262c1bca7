//! A model of two inputs and two outputs with a loss of one's own, compiled within a budget.
//!
//! `cargo run --release -p plimsoll --example two_inputs_two_outputs`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Embedding};
use plimsoll::{Array, DType, Error, ErrorKind, Input, Optimizer, Result, Run, Tensor, loss};

/// The mean of |prediction − target| where it is large, and of its square where it is small.
fn huber(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    if prediction.shape() != target.shape() {
        let message = format!("huber: the prediction is {prediction}, the target {target}");
        return Err(Error::new(ErrorKind::Shape, message));
    }
    let apart = prediction.sub(target)?.abs()?;
    let small = apart.square()?.mul_scalar(0.5)?;
    let large = apart.add_scalar(-0.5)?;
    apart.le(&apart.full_like(1.0)?)?.select(&small, &large)?.mean_all()
}

fn main() -> Result<()> {
    let (batch, shops) = (32, 20);
    let adam = Optimizer::adam(1e-2);
    let inputs = [
        Input::new("weather", &[batch, 4], DType::F32),
        Input::new("shop", &[batch], DType::I32),
        Input::new("revenue", &[batch, 1], DType::F32).exact(),
        Input::new("busy", &[batch], DType::I32),
    ];
    let mut run = Run::builder()
        .step("train", inputs, move |cx, inputs| {
            let [weather, shop, revenue, busy] = inputs.all()?;
            let shop = cx.layer("shop", Embedding::new(shops, 8), shop)?;
            let hidden = Tensor::concat(&[weather, &shop], 1)?;
            let hidden = cx.layer("hidden", Dense::new(32).activation(Activation::Relu), &hidden)?;
            let sales = huber(&cx.layer("sales", Dense::new(1), &hidden)?, revenue)?;
            let crowd = loss::sparse_cross_entropy(&cx.layer("crowd", Dense::new(3), &hidden)?, busy)?;
            cx.minimise(&sales.add(&crowd.mul_scalar(0.5)?)?, &adam)?;
            Ok([("sales", sales), ("crowd", crowd)])
        })
        .budget(64 << 10)
        .compile()?;
    println!("{}", run.forecast());
    for step in 0..=300 {
        let weather: Vec<f32> = (0..batch * 4).map(|i| ((i + step) as f32 * 0.7).sin()).collect();
        let shop: Vec<i32> = (0..batch).map(|i| ((i * 7 + step) % shops) as i32).collect();
        let revenue: Vec<f32> = (0..batch).map(|i| weather[4 * i] * 2.0 + shop[i] as f32 * 0.1).collect();
        let busy: Vec<i32> = revenue
            .iter()
            .map(|&r| {
                if r < 0.5 {
                    0
                } else if r < 1.5 {
                    1
                } else {
                    2
                }
            })
            .collect();
        let out = run.step(
            "train",
            &[
                ("weather", &Array::new(&[batch, 4], &weather)?),
                ("shop", &Array::new(&[batch], &shop)?),
                ("revenue", &Array::new(&[batch, 1], &revenue)?),
                ("busy", &Array::new(&[batch], &busy)?),
            ],
        )?;
        if step % 100 == 0 {
            let [sales, crowd] = ["sales", "crowd"].map(|name| out[name].item::<f32>());
            println!("step {step:>3}  sales {:.4}  crowd {:.4}", sales?, crowd?);
        }
    }
    Ok(())
}
