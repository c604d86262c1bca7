//! What it costs that an eager pool remembers its last events: the same ops with a ring and without one.
//!
//! Run with `cargo bench -p plimsoll --bench ring_cost`.

use plimsoll::layers::{Activation, Dense, Layer, Sequential};
use plimsoll::memory::{Pool, PoolSettings};
use plimsoll::{Eager, Optimizer, Result, Tensor};
use std::io::Write;
use std::time::Instant;

/// Steps that are timed together.
const STEPS: u32 = 20;
/// How often each way is timed, most of them with a ring that has wrapped.
const ROUNDS: usize = 400;

/// One training step of a small model, so that there are many events for little arithmetic.
fn step(eager: &Eager, model: &impl Layer, x: &Tensor) -> Result<()> {
    let mut tape = eager.tape();
    let loss = model.forward(&eager.context(true), x)?.square()?.sum_all()?;
    let parameters = eager.parameters();
    let wrt: Vec<&Tensor> = parameters.values().collect();
    let gradients = tape.gradient(&loss, &wrt)?;
    let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
    eager.apply_gradients(&Optimizer::sgd(1e-6), &named)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let model = Sequential::new()
        .then(Dense::new(16).activation(Activation::Relu))
        .then(Dense::new(16).activation(Activation::Relu))
        .then(Dense::new(4));
    let eager = |events| {
        let pool = Pool::host(PoolSettings { events, ..PoolSettings::default() });
        Eager::builder().threads(1).pool(pool).build()
    };
    let ways = [eager(PoolSettings::default().events)?, eager(0)?];
    let mut times = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for (eager, times) in ways.iter().zip(&mut times) {
            let x = eager.tensor(&[8, 16], &[0.5; 128])?;
            let start = Instant::now();
            for _ in 0..STEPS {
                step(eager, &model, &x)?;
            }
            times.push(start.elapsed().as_secs_f64() / f64::from(STEPS));
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let [with, without] = [&times[0], &times[1]].map(|times| (times[0], times[ROUNDS / 2]));
    let blocks = ways[0].memory().allocations / u64::from(STEPS * ROUNDS as u32);
    let pool = Pool::new(None);
    let start = Instant::now();
    const BLOCKS: u32 = 200_000;
    for _ in 0..BLOCKS {
        pool.allocate(1000)?;
    }
    let block = start.elapsed().as_secs_f64() / f64::from(BLOCKS);
    let more = |with: f64, without: f64| 100.0 * (with / without - 1.0);
    writeln!(
        std::io::stdout(),
        "a step of {blocks} blocks with a ring and without: {:.1} and {:.1} µs at best ({:+.2} %), {:.1} and {:.1} µs in \
         the middle ({:+.2} %); a block made and freed: {:.0} ns",
        1e6 * with.0,
        1e6 * without.0,
        more(with.0, without.0),
        1e6 * with.1,
        1e6 * without.1,
        more(with.1, without.1),
        1e9 * block
    )?;
    Ok(())
}
