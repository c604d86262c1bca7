use crate::support::{Numbers, inputs};
use plimsoll_graph::op::{Attention, Op, Reduction, Unary};
use plimsoll_graph::{DType, Graph, Result, ValueId, gradients};
use plimsoll_reference::{Tensor, evaluate};

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn a_gradient_has_the_type_of_its_value() {
    type Build = fn(&mut Graph, &[ValueId]) -> Result<ValueId>;
    let builds: [Build; 12] = [
        |g, x| g.tanh(x[0]),
        |g, x| g.apply(Op::Unary(Unary::GeluSlope), &x[..1]),
        |g, x| g.rsqrt(x[0]),
        |g, x| g.pow(x[0], x[1]),
        |g, x| g.div(x[0], x[1]),
        |g, x| g.max(x[0], x[1]),
        |g, x| g.reduce(Reduction::Max, x[0], &[1]),
        |g, x| g.apply(Op::Softmax, &x[..1]),
        |g, x| g.apply(Op::LogSoftmax, &x[..1]),
        |g, x| {
            let wide = g.cast(x[0], DType::F32)?;
            g.exp(wide)
        },
        |g, x| {
            let labels = g.iota(&[2], 0, DType::I32)?;
            g.apply(Op::CrossEntropy, &[x[0], labels])
        },
        |g, x| {
            let heads = g.reshape(x[0], &[1, 2, 1, 2])?;
            let attention = Attention { causal: true, scale: 1.0 };
            g.apply(Op::Attention(attention), &[heads; 3])
        },
    ];
    for dtype in FLOATS {
        for build in builds {
            let mut g = Graph::new();
            let x = [(); 2].map(|()| g.input("x", &[2, 2], dtype).unwrap());
            let y = build(&mut g, &x).unwrap();
            let found = gradients(&mut g, &[(y, None)], &x[..1]).unwrap();
            let found = found[0].expect("a path");
            assert_eq!(g.ty(found), g.ty(x[0]), "{}", g.op(y).name());
        }
    }
}

#[test]
fn full_precision_needs_no_casts() {
    let mut g = Graph::new();
    let x = g.input("x", &[2, 3], DType::F32).unwrap();
    let mut y = x;
    for function in [Unary::Tanh, Unary::Gelu, Unary::Sigmoid, Unary::Rsqrt] {
        y = g.apply(Op::Unary(function), &[y]).unwrap();
    }
    y = g.apply(Op::Softmax, &[y]).unwrap();
    gradients(&mut g, &[(y, None)], &[x]).unwrap();
    assert!(g.nodes().iter().all(|node| !matches!(node.op, Op::Cast { .. })));
}

/// Near saturation 1 − y² cancels: with a rounding after each step, half precision would be off by a tenth.
#[test]
fn slopes_in_half_precision_are_off_by_one_rounding_at_most() {
    for (dtype, rounding) in [(DType::BF16, 0.5f64.powi(8)), (DType::F16, 0.5f64.powi(11))] {
        for function in [Unary::Tanh, Unary::Sigmoid] {
            let mut g = Graph::new();
            let mut x = Numbers(3).range(&[200], -3.0, 3.0);
            x = Tensor::new(&[200], dtype, x.data);
            let (ids, values) = inputs(&mut g, &[x]);
            let y = g.apply(Op::Unary(function), &ids).unwrap();
            let found = gradients(&mut g, &[(y, None)], &ids).unwrap()[0].unwrap();
            let results = evaluate(&g, &values, &[y, found]);
            for (y, slope) in results[0].data.iter().zip(&results[1].data) {
                let exact = if function == Unary::Tanh { 1.0 - y * y } else { y * (1.0 - y) };
                assert!(
                    (slope - exact).abs() <= rounding * exact.abs() * 1.001,
                    "{dtype}: {slope} for {exact}"
                );
            }
        }
    }
}
