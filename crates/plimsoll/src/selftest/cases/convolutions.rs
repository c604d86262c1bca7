//! Convolutions and their two gradients.

use super::{Case, FLOATS, normals};
use plimsoll_graph::op::Conv2d;
use plimsoll_graph::{Graph, Op, Shape, ValueId};

/// Batch, height, width, channels in; filter height and width, channels out; and the geometry.
type Geometry = ([usize; 4], [usize; 3], Conv2d);

fn geometries() -> Vec<(&'static str, Geometry)> {
    let plain = Conv2d::default();
    vec![
        ("3×3", ([2, 9, 11, 8], [3, 3, 16], Conv2d { padding: [1; 4], ..plain })),
        ("1×1", ([2, 7, 5, 24], [1, 1, 40], plain)),
        ("1×1 in steps", ([2, 8, 8, 16], [1, 1, 32], Conv2d { stride: [2, 2], ..plain })),
        ("7×7 of colours", ([2, 32, 32, 3], [7, 7, 16], Conv2d { stride: [2, 2], padding: [3; 4], ..plain })),
        ("5×5 inside", ([3, 12, 12, 1], [5, 5, 6], plain)),
        (
            "3×3 padded at the end",
            ([2, 16, 16, 8], [3, 3, 16], Conv2d { stride: [2, 2], padding: [0, 1, 0, 1], ..plain }),
        ),
        (
            "3×3 far apart",
            ([2, 14, 13, 16], [3, 3, 8], Conv2d { padding: [2; 4], dilation: [2, 2], ..plain }),
        ),
        ("3×3 in 2 groups", ([2, 10, 10, 32], [3, 3, 32], Conv2d { padding: [1; 4], groups: 2, ..plain })),
        ("3×3 by channel", ([2, 10, 12, 48], [3, 3, 48], Conv2d { padding: [1; 4], groups: 48, ..plain })),
        (
            "3×3 by channel, two each",
            ([2, 9, 9, 10], [3, 3, 20], Conv2d { stride: [2, 2], padding: [1; 4], groups: 10, ..plain }),
        ),
        ("7×7 by channel", ([3, 15, 29, 40], [7, 7, 40], Conv2d { padding: [3; 4], groups: 40, ..plain })),
        (
            "5×5 by channel in steps",
            ([2, 14, 17, 33], [5, 5, 33], Conv2d { stride: [2, 2], padding: [2; 4], groups: 33, ..plain }),
        ),
        (
            "3×3 by channel in unlike steps",
            (
                [2, 13, 18, 24],
                [3, 3, 24],
                Conv2d { stride: [1, 3], padding: [2, 1, 4, 0], dilation: [2, 1], groups: 24 },
            ),
        ),
        (
            "3×3 by channel far apart in steps",
            (
                [1, 19, 16, 6],
                [3, 3, 6],
                Conv2d { stride: [2, 2], padding: [3, 2, 1, 3], dilation: [3, 2], groups: 6 },
            ),
        ),
        (
            "2×4 by channel, three each",
            ([2, 9, 10, 5], [2, 4, 15], Conv2d { padding: [0, 1, 2, 1], groups: 5, ..plain }),
        ),
        (
            "1×25 by channel",
            ([2, 3, 41, 66], [1, 25, 66], Conv2d { padding: [0, 0, 12, 12], groups: 66, ..plain }),
        ),
        (
            "3×3 by channel of many",
            ([2, 7, 7, 520], [3, 3, 520], Conv2d { padding: [1; 4], groups: 520, ..plain }),
        ),
        ("1×1 thin", ([3, 33, 31, 24], [1, 1, 3], plain)),
        ("1×1 of thin images", ([2, 17, 9, 2], [1, 1, 70], plain)),
        ("3×3 thin", ([2, 12, 19, 20], [3, 3, 4], Conv2d { stride: [2, 1], padding: [1, 0, 1, 2], ..plain })),
        ("3×3 of thin images", ([2, 21, 18, 3], [3, 3, 36], Conv2d { padding: [1; 4], ..plain })),
        ("3×3 thin at both ends", ([2, 8, 7, 1], [3, 3, 1], Conv2d { dilation: [1, 2], ..plain })),
        ("3×3 of many channels", ([4, 28, 28, 64], [3, 3, 128], Conv2d { padding: [1; 4], ..plain })),
    ]
}

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for (about, (image, [height, width, results], conv)) in geometries() {
            let inner = image[3] / conv.groups;
            let filter = [height, width, inner, results];
            let out = |axis: usize| {
                let padded = image[1 + axis] + conv.padding[2 * axis] + conv.padding[2 * axis + 1];
                (padded - conv.dilation[axis] * (filter[axis] - 1) - 1) / conv.stride[axis] + 1
            };
            let out = [image[0], out(0), out(1), results];
            let (taps, positions) = (height * width * inner, out[0] * out[1] * out[2]);
            let back = height * width * results / conv.groups;
            let name = |op: &str| format!("{op} {dtype} {about} of {image:?}");
            let inputs = vec![normals(dtype, &image), normals(dtype, &filter)];
            let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::Conv2d(conv), v)?]);
            cases.push(Case::new(name("conv2d"), inputs, build).terms(taps));
            let inputs = vec![normals(dtype, &filter), normals(dtype, &out)];
            let build = move |g: &mut Graph, v: &[ValueId]| {
                Ok(vec![g.apply(Op::Conv2dInputGrad { conv, input: Shape::new(&image)? }, v)?])
            };
            cases.push(Case::new(name("conv2d_input_grad"), inputs, build).terms(back));
            let inputs = vec![normals(dtype, &image), normals(dtype, &out)];
            let build = move |g: &mut Graph, v: &[ValueId]| {
                Ok(vec![g.apply(Op::Conv2dFilterGrad { conv, filter: Shape::new(&filter)? }, v)?])
            };
            cases.push(Case::new(name("conv2d_filter_grad"), inputs, build).terms(positions));
        }
    }
    cases
}
