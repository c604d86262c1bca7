//! Functions of each element, and of pairs.

use super::{Bound, Edge, array, floats, ordinary};
use crate::model::tensor::apply_one;
use crate::{DType, Result, Tensor};
use plimsoll_graph::Op;
use plimsoll_graph::op::{Binary, Domain, Unary};

/// What every function meets.
const EDGES: [f32; 22] = [
    0.0,
    1e-45,
    f32::MIN_POSITIVE,
    1e-20,
    1e-7,
    0.003,
    0.5,
    0.99999994,
    1.0,
    1.5,
    std::f32::consts::PI,
    5.5,
    10.0,
    15.0,
    87.5,
    92.0,
    104.0,
    1000.0,
    65519.0,
    1e10,
    1e30,
    f32::MAX,
];

/// All of them, their negatives, infinities and NaN.
fn edges() -> Vec<f32> {
    let positive = EDGES.into_iter().chain([f32::INFINITY]);
    positive.flat_map(|x| [x, -x]).chain([f32::NAN]).collect()
}

pub(super) fn list() -> Vec<Edge> {
    let mut list = vec![];
    let edges = edges();
    for &function in Unary::ALL.iter().filter(|function| function.domain() != Domain::Bools) {
        let (value, slope) = bounds(function);
        let of_one = move |x: &[Tensor]| apply_one(&[&x[0]], |g, v| g.apply(Op::Unary(function), v));
        let operand = array(&[edges.len()], &edges);
        let edge = Edge::new(format!("{} at edges", function.name()), vec![operand], of_one, value, slope);
        list.extend([DType::BF16, DType::F16].map(|dtype| edge.in_type(dtype)));
        list.push(edge);
    }
    for (name, function) in composed() {
        let value = Bound { ulps: 4.0, ..Bound::of_one(2.0) };
        let of_one = move |x: &[Tensor]| function(&x[0]);
        let operand = array(&[edges.len()], &edges);
        let edge =
            Edge::new(format!("{name} at edges"), vec![operand], of_one, value, Some(Bound::of_one(32.0)));
        list.extend([DType::BF16, DType::F16].map(|dtype| edge.in_type(dtype)));
        list.push(edge);
    }
    // Every number meets every other.
    let count = edges.len();
    let pairs =
        [floats(&[count, count], |at| edges[at / count]), floats(&[count, count], |at| edges[at % count])];
    for function in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min] {
        let of_two = move |x: &[Tensor]| apply_one(&[&x[0], &x[1]], |g, v| g.apply(Op::Binary(function), v));
        let slope = match function {
            // By way of (x / y) / y, which can be infinite where the gradient is just not.
            Binary::Div => None,
            _ => Some(Bound::EXACT),
        };
        let name = format!("{} of edges", function.name());
        list.push(Edge::new(name, pairs.to_vec(), of_two, Bound::EXACT, slope));
    }
    powers(&mut list);
    list.push(Edge::new(
        "div of numbers",
        vec![
            floats(&[30, 7], |at| ordinary(at) * 1e3),
            floats(&[7], |at| [-1e15, -3.0, -1e-4, 1e-9, 0.7, 1.0, 1e9][at]),
        ],
        |x| x[0].div(&x[1]),
        Bound::EXACT,
        Some(Bound { ulps: 2.0, ..Bound::of_largest(8.0) }),
    ));
    list.push(Edge::new(
        "select keeps what is not chosen out",
        vec![floats(&[4], |at| [1.0, f32::NAN, f32::INFINITY, -2.0][at]), floats(&[4], ordinary)],
        |x| x[0].gt(&x[0].full_like(0.0)?)?.select(&x[0], &x[1]),
        Bound::EXACT,
        Some(Bound::EXACT),
    ));
    list
}

/// A function that is made of others.
type Composed = fn(&Tensor) -> Result<Tensor>;

fn composed() -> [(&'static str, Composed); 8] {
    [
        ("silu", |x| x.silu()),
        ("mish", |x| x.mish()),
        ("elu", |x| x.elu(1.0)),
        ("leaky_relu", |x| x.leaky_relu(0.01)),
        ("relu6", |x| x.relu6()),
        ("hard_sigmoid", |x| x.hard_sigmoid()),
        ("hard_swish", |x| x.hard_swish()),
        ("clamp", |x| x.clamp(-1.5, 10.0)),
    ]
}

/// What a function of one element promises of its result, and of its gradient.
fn bounds(function: Unary) -> (Bound, Option<Bound>) {
    let slope = |bound| Some(bound);
    match function {
        Unary::Neg | Unary::Abs | Unary::Sign | Unary::Relu | Unary::Floor => {
            (Bound::EXACT, slope(Bound::EXACT))
        }
        Unary::IsFinite | Unary::Not => (Bound::EXACT, None),
        Unary::Sqrt => (Bound::EXACT, slope(Bound::ulps(2.0))),
        Unary::Exp | Unary::Log | Unary::Sin | Unary::Cos => (Bound::ulps(1.0), slope(Bound::ulps(2.0))),
        Unary::Rsqrt => (Bound::ulps(2.0), slope(Bound::ulps(5.0))),
        Unary::Softplus => (Bound::ulps(2.0), slope(Bound::ulps(4.0))),
        // 1 − y² and y (1 − y): as exact as y.
        Unary::Tanh | Unary::Erf => (Bound::ulps(2.0), slope(Bound::of_one(4.0))),
        Unary::Sigmoid => (Bound::ulps(3.0), slope(Bound::of_one(4.0))),
        Unary::Gelu | Unary::GeluSlope => {
            (Bound { ulps: 4.0, ..Bound::of_one(2.0) }, slope(Bound::of_one(8.0)))
        }
    }
}

fn powers(list: &mut Vec<Edge>) {
    let bases = [0.0, 1e-30, 0.25, 1.0, 2.0, 10.0, 1e30, f32::INFINITY];
    let exponents = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0];
    list.push(Edge::new(
        "pow of edges",
        vec![floats(&[8, 8], |at| bases[at / 8]), floats(&[8, 8], |at| exponents[at % 8])],
        |x| x[0].pow(&x[1]),
        Bound::ulps(1.0),
        Some(Bound::ulps(4.0)),
    ));
    let bases = [-3.0, -1.0, -0.5, -0.0];
    list.push(Edge::new(
        "pow of negative numbers to whole ones",
        vec![floats(&[4, 4], |at| bases[at / 4])],
        |x| {
            let exponent = x[0].full_like(3.0)?;
            x[0].pow(&exponent)
        },
        Bound::ulps(1.0),
        Some(Bound::ulps(4.0)),
    ));
}
