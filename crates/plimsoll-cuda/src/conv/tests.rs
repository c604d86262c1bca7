//! What is launched for convolutions that have kernels of their own, without a device.

use super::*;
use crate::codegen::compiler::Compiler;
use crate::codegen::launches::LaunchArgument;

const PROCESSORS: u32 = 132;

/// Batch, height, width, channels; height and width of the filter, results; and the geometry.
pub(super) fn shape(
    dtype: DType,
    image: [usize; 4],
    [height, width, results]: [usize; 3],
    conv: Conv2d,
) -> ConvShape {
    let [batch, down, across, channels] = image;
    let out = |axis: usize, extent: usize, taps: usize| {
        let padded = extent + conv.padding[2 * axis] + conv.padding[2 * axis + 1];
        (padded - conv.dilation[axis] * (taps - 1) - 1) / conv.stride[axis] + 1
    };
    let out = [out(0, down, height), out(1, across, width)];
    ConvShape { dtype, batch, image: [down, across], channels, filter: [height, width], results, out, conv }
}

pub(super) fn by_channel(
    dtype: DType,
    image: [usize; 4],
    taps: usize,
    stride: usize,
    times: usize,
) -> ConvShape {
    let conv = Conv2d { stride: [stride; 2], padding: [taps / 2; 4], groups: image[3], ..Conv2d::default() };
    shape(dtype, image, [taps, taps, image[3] * times], conv)
}

pub(super) fn shapes() -> Vec<ConvShape> {
    let plain = Conv2d::default();
    let mut all = vec![];
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        all.extend([
            by_channel(dtype, [64, 56, 56, 96], 7, 1, 1),
            by_channel(dtype, [128, 112, 112, 32], 3, 1, 1),
            by_channel(dtype, [128, 112, 112, 96], 3, 2, 1),
            by_channel(dtype, [2, 9, 11, 33], 5, 2, 1),
            by_channel(dtype, [2, 9, 11, 10], 3, 2, 2),
            by_channel(dtype, [2, 9, 11, 6], 3, 1, 3),
        ]);
        let spread = Conv2d { stride: [1, 3], padding: [2, 1, 4, 0], dilation: [2, 3], groups: 12 };
        all.push(shape(dtype, [2, 13, 17, 12], [3, 3, 12], spread));
        let wide = Conv2d { padding: [0, 0, 15, 15], groups: 4, ..plain };
        all.push(shape(dtype, [2, 5, 40, 4], [1, 31, 4], wide));
        let many = Conv2d { padding: [3; 4], groups: 70, ..plain };
        all.push(shape(dtype, [2, 9, 9, 70], [7, 7, 280], many));
        all.push(shape(dtype, [2, 9, 9, 70], [3, 3, 560], many));
        all.push(shape(dtype, [16, 256, 256, 64], [1, 1, 3], plain));
        let same = Conv2d { padding: [1; 4], ..plain };
        all.push(shape(dtype, [16, 256, 256, 3], [3, 3, 64], same));
        all.push(shape(dtype, [16, 256, 256, 64], [3, 3, 4], same));
        all.push(shape(dtype, [2, 12, 12, 1], [5, 5, 6], Conv2d { stride: [2, 1], ..plain }));
    }
    all
}

fn all_stages() -> Vec<(ConvShape, Direction, Stages)> {
    let mut all = vec![];
    for geometry in shapes() {
        for direction in [Direction::Forward, Direction::Input, Direction::Filter] {
            let stages = own_stages(PROCESSORS, direction, &geometry).expect("a shape within limits");
            all.extend(stages.map(|stages| (geometry, direction, stages)));
        }
    }
    all
}

#[test]
fn channels_with_filters_of_their_own_and_thin_filters_have_kernels() {
    let own = |direction, geometry: ConvShape| {
        own_stages(PROCESSORS, direction, &geometry).expect("a shape within limits").is_some()
    };
    for geometry in shapes() {
        assert!(own(Direction::Filter, geometry), "{geometry:?}");
        let taps = geometry.filter != [1, 1];
        let few = |read: usize| geometry.conv.groups > 1 || (taps && read <= 4);
        assert_eq!(own(Direction::Forward, geometry), few(geometry.channels));
        assert_eq!(own(Direction::Input, geometry), few(geometry.results));
    }
    let dense =
        shape(DType::BF16, [8, 28, 28, 64], [3, 3, 64], Conv2d { padding: [1; 4], ..Conv2d::default() });
    let stem =
        shape(DType::BF16, [8, 224, 224, 3], [7, 7, 64], Conv2d { stride: [2; 2], ..Conv2d::default() });
    let eightfold = by_channel(DType::BF16, [8, 28, 28, 64], 5, 1, 8);
    let double = by_channel(DType::F64, [8, 28, 28, 64], 3, 1, 1);
    for geometry in [dense, stem, eightfold, double] {
        assert!(!own(Direction::Filter, geometry), "{geometry:?}");
    }
}

#[test]
fn every_source_compiles_of_convolutions_that_have_kernels() {
    let compiler = match Compiler::get() {
        Ok(compiler) => compiler,
        Err(error) if std::env::var_os("PLIMSOLL_INSIST_ON_NVRTC").is_some() => panic!("{error}"),
        Err(_) => return,
    };
    for (geometry, direction, stages) in all_stages() {
        let code = compiler.compile(&stages.source, "convolution", &compiler.options((9, 0)));
        assert!(!code.unwrap_or_else(|error| panic!("{direction:?} {geometry:?}: {error}")).is_empty());
    }
}

#[test]
fn sources_do_for_any_batch() {
    for geometry in shapes() {
        for direction in [Direction::Forward, Direction::Input, Direction::Filter] {
            let source = |batch| {
                let stages = own_stages(PROCESSORS, direction, &ConvShape { batch, ..geometry });
                stages.expect("a shape within limits").map(|stages| stages.source)
            };
            assert_eq!(source(5), source(9), "{direction:?} {geometry:?}");
        }
    }
}

#[test]
fn blocks_take_every_line_and_no_more() {
    for (geometry, direction, stages) in all_stages() {
        let launch = &stages.launches[0];
        let counts: Vec<u64> = launch
            .arguments
            .iter()
            .filter_map(|argument| match argument {
                LaunchArgument::Count(count) => Some(*count),
                _ => None,
            })
            .collect();
        let (lines, run) = (counts[0], counts.get(1).copied().unwrap_or(1));
        let workers = u64::from(launch.block);
        let blocks = u64::from(launch.grid[0]);
        assert!(lines > (blocks - 1) * run, "{direction:?} {geometry:?}");
        assert!(blocks * run * workers >= lines, "{direction:?} {geometry:?}");
        assert!(launch.block <= 256 && launch.block.is_multiple_of(32));
        let down = if direction == Direction::Input { geometry.image[0] } else { geometry.out[0] };
        assert!(lines.is_multiple_of((geometry.batch * down) as u64));
    }
}

#[test]
fn parts_of_a_filters_gradient_are_few() {
    for (geometry, direction, stages) in all_stages() {
        let images = (geometry.image_elements() + geometry.out_elements()) * geometry.dtype.size();
        let large = direction == Direction::Filter && geometry.batch > 2;
        assert!(!large || stages.workspace as usize <= images / 4, "{geometry:?}: {}", stages.workspace);
    }
}

#[test]
fn deep_products_of_few_columns_are_those_of_thin_filters() {
    let product = |m, n, k| Gemm::new(DType::BF16, [m, n, k], [1, m], [n, 1]);
    let of = |gemm: &Gemm| {
        let geometry = of_thin_product(gemm)?;
        let stages = filter_sums::stages(PROCESSORS, &geometry).expect("a shape within limits");
        stages.map(|_| (geometry.batch, geometry.image[1]))
    };
    assert_eq!(of(&product(512, 3, 1 << 20)), Some((1 << 17, 8)));
    assert_eq!(of(&product(1, 100, 20_002)), Some((10_001, 2)));
    let other = product(512, 3, 1 << 20);
    let unlike = [
        product(512, 8, 1 << 20),
        product(512, 3, 64),
        Gemm { accumulate: true, ..other },
        Gemm { a: [1 << 20, 1, 0], ..other },
        Gemm { result: DType::F32, ..other },
        Gemm { alignment: [256, 2, 256], ..other },
        Gemm { dtype: DType::F64, result: DType::F64, ..other },
    ];
    for gemm in unlike {
        assert_eq!(of(&gemm), None, "{gemm:?}");
    }
}

#[test]
fn smaller_batches_need_no_more_workspace() {
    for geometry in shapes() {
        let mut most = 0;
        for batch in 1..70 {
            let stages = filter_sums::stages(PROCESSORS, &ConvShape { batch, ..geometry });
            let workspace = stages.expect("a shape within limits").map_or(0, |stages| stages.workspace);
            assert!(workspace >= most, "{batch} of {geometry:?}");
            most = workspace;
        }
    }
}
