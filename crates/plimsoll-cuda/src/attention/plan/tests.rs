use super::*;
use crate::codegen::compiler::Compiler;
use plimsoll_graph::Shape;
use plimsoll_graph::op::Attention;
use plimsoll_graph::program::{BufferId, Operand, View};
use proptest::prelude::*;

fn properties(capability: (u32, u32)) -> Properties {
    Properties { capability, ..Properties::h100() }
}

fn dense(dtype: DType, dims: &[usize]) -> Operand {
    Operand { buffer: BufferId(0), dtype, view: View::dense(Shape::new(dims).unwrap()) }
}

/// One of q, k and v in a buffer of all three, `[batch, length, 3, heads, width]`.
fn third(dtype: DType, which: usize, [batch, length, heads, width]: [usize; 4]) -> Operand {
    let mut operand = dense(dtype, &[batch, length, heads, width]);
    operand.view.offset = which * heads * width;
    operand.view.strides[0] = length * 3 * heads * width;
    operand.view.strides[1] = 3 * heads * width;
    operand
}

struct Case {
    dtype: DType,
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    width: usize,
    causal: bool,
}

impl Case {
    fn gpt2(dtype: DType) -> Case {
        Case { dtype, batch: 16, queries: 1024, keys: 1024, heads: 12, width: 64, causal: true }
    }

    fn reads(&self) -> Vec<Operand> {
        let Case { dtype, batch, queries, keys, heads, width, .. } = *self;
        let output = dense(dtype, &[batch, queries, heads, width]);
        vec![
            third(dtype, 0, [batch, queries, heads, width]),
            third(dtype, 1, [batch, keys, heads, width]),
            third(dtype, 2, [batch, keys, heads, width]),
            output,
            dense(dtype.accumulator(), &[batch, heads, queries]),
            output,
        ]
    }

    fn attention(&self) -> Attention {
        Attention { causal: self.causal, scale: 0.125 }
    }

    fn plans(&self, properties: &Properties) -> [AttentionPlan; 2] {
        let reads = self.reads();
        [
            forward(&AttentionShape::forward(self.attention(), &reads[..3]).unwrap(), properties),
            backward(&AttentionShape::backward(self.attention(), &reads, false).unwrap(), properties),
        ]
    }
}

fn on_tensor_cores(plan: &AttentionPlan) -> bool {
    plan.source.contains("mma.sync")
}

fn by_groups(plan: &AttentionPlan) -> bool {
    plan.source.contains("wgmma")
}

#[test]
fn halves_of_thirds_of_a_projection_go_to_tensor_cores() {
    for dtype in [DType::BF16, DType::F16] {
        for width in [8, 32, 64, 80, 96, 128, 136, 192, 200, 256] {
            let case = Case { width, ..Case::gpt2(dtype) };
            for plan in case.plans(&properties((8, 0))) {
                assert!(on_tensor_cores(&plan), "{dtype} {width}");
                assert!(plan.source.contains(&format!("#define HALF_TYPE \"{dtype}\"")));
            }
        }
    }
}

#[test]
fn groups_of_warps_multiply_where_the_device_has_them_and_tiles_have_64_columns() {
    let by_groups = |capability, width| {
        let case = Case { width, ..Case::gpt2(DType::BF16) };
        case.plans(&properties(capability)).map(|plan| by_groups(&plan))
    };
    assert_eq!([by_groups((9, 0), 64), by_groups((9, 0), 40)], [[true; 2]; 2]);
    assert_eq!([by_groups((9, 0), 32), by_groups((9, 0), 128)], [[false; 2]; 2]);
    assert_eq!([by_groups((8, 0), 64), by_groups((10, 0), 64)], [[false; 2]; 2]);
}

#[test]
fn what_tensor_cores_cannot_take_goes_without() {
    let able = properties((8, 0));
    let refused = [
        (Case::gpt2(DType::F32), able.clone()),
        (Case::gpt2(DType::F64), able.clone()),
        (Case { width: 12, ..Case::gpt2(DType::BF16) }, able.clone()),
        (Case { width: 264, ..Case::gpt2(DType::BF16) }, able.clone()),
        (Case::gpt2(DType::F16), properties((7, 5))),
        (Case::gpt2(DType::F16), Properties { shared_per_block: 32 << 10, ..able }),
    ];
    for (case, properties) in refused {
        assert!(case.plans(&properties).iter().all(|plan| !on_tensor_cores(plan)));
    }
}

#[test]
fn halves_at_odd_offsets_or_with_negative_scales_go_without_tensor_cores() {
    let case = Case::gpt2(DType::BF16);
    let mut reads = case.reads();
    let negative = Attention { causal: true, scale: -0.5 };
    let plan = forward(&AttentionShape::forward(negative, &reads[..3]).unwrap(), &properties((9, 0)));
    assert!(!on_tensor_cores(&plan) && plan.source.contains("#define SCALE -5e-1\n"));
    reads[1].view.offset += 4;
    let plan = forward(&AttentionShape::forward(case.attention(), &reads[..3]).unwrap(), &properties((9, 0)));
    assert!(!on_tensor_cores(&plan) && plan.source.contains("#define K_FIRST 772\n"));
}

#[test]
fn every_block_of_queries_and_keys_has_threads() {
    let [forward, backward] = Case::gpt2(DType::BF16).plans(&properties((8, 0)));
    assert_eq!(forward.launches[0].grid, [16 * 12 * 8, 1, 1]);
    assert_eq!(backward.launches[0].grid, [16 * 12 * 8, 1, 1]);
    assert_eq!(backward.launches[1].grid, [16 * 12 * 8, 1, 1]);
    let ragged = Case { queries: 65, keys: 257, width: 130, batch: 1, heads: 3, ..Case::gpt2(DType::F32) };
    let [forward, backward] = ragged.plans(&properties((8, 0)));
    assert_eq!(forward.launches[0].grid, [3 * 2, 2, 1]);
    let grids: Vec<_> = backward.launches.iter().map(|launch| (launch.name, launch.grid)).collect();
    let expected = [
        ("attention_grad_products", [25, 1, 1]),
        ("attention_grad_queries", [3 * 2, 2, 1]),
        ("attention_grad_keys", [3 * 5, 2, 1]),
    ];
    assert_eq!(grids, expected);
}

#[test]
fn blocks_of_groups_that_run_at_once_have_few_pairs() {
    let [forward, backward] = Case::gpt2(DType::BF16).plans(&properties((9, 0)));
    let grids: Vec<_> = forward.launches.iter().chain(&backward.launches).map(|launch| launch.grid).collect();
    assert_eq!(grids, [[64, 16, 3], [48, 16, 4], [32, 16, 6]]);
}

proptest! {
    #[test]
    fn a_grid_by_pairs_has_every_pair_once(pairs in 1..1_000_000_usize, blocks in 1..1000_usize, at_once in 1..1000_usize) {
        let [together, each, times] = grid_by_pairs(pairs, blocks, at_once).unwrap().map(|extent| extent as usize);
        prop_assert_eq!(each, blocks);
        prop_assert!(times <= MOST_IN_GRID);
        // No more than the last round's pairs are beyond the end.
        prop_assert!((times - 1) * together < pairs && pairs <= times * together);
    }
}

#[test]
fn longer_sequences_than_a_grid_goes_are_left_to_single_warps() {
    let case =
        Case { batch: 1, heads: 1, queries: 64 * MOST_IN_GRID + 1, keys: 64, ..Case::gpt2(DType::BF16) };
    assert!(case.plans(&properties((9, 0))).iter().all(|plan| on_tensor_cores(plan) && !by_groups(plan)));
}

#[test]
fn the_gradients_need_numbers_for_each_query_and_the_forward_pass_nothing() {
    for (dtype, size) in [(DType::BF16, 8), (DType::F16, 8), (DType::F32, 4), (DType::F64, 8)] {
        let [forward, backward] = Case::gpt2(dtype).plans(&properties((8, 0)));
        assert_eq!((forward.workspace, backward.workspace), (0, 16 * 12 * 1024 * size));
    }
}

#[test]
fn shared_memory_stays_within_what_a_block_may_have() {
    let small = Properties { shared_per_block: 101_376, ..properties((8, 9)) };
    for width in [32, 64, 96, 128] {
        for plan in (Case { width, ..Case::gpt2(DType::BF16) }).plans(&small) {
            assert!(on_tensor_cores(&plan));
            assert!(plan.launches.iter().all(|launch| launch.shared <= small.shared_per_block));
        }
    }
}

#[test]
fn wide_rows_go_to_tensor_cores_where_their_tiles_fit() {
    let plans = |width, shared_per_block| {
        let properties = Properties { shared_per_block, ..properties((8, 0)) };
        let plans = Case { width, ..Case::gpt2(DType::BF16) }.plans(&properties);
        for launch in plans.iter().filter(|plan| on_tensor_cores(plan)).flat_map(|plan| &plan.launches) {
            assert!(launch.shared <= shared_per_block, "{launch:?}");
        }
        plans.map(|plan| on_tensor_cores(&plan))
    };
    assert_eq!([plans(160, 227 << 10), plans(256, 227 << 10)], [[true; 2]; 2]);
    assert_eq!([plans(160, 163 << 10), plans(256, 163 << 10)], [[true, true], [true, false]]);
    assert_eq!(plans(256, 99 << 10), [false; 2]);
    let [_, backward] = Case { width: 256, keys: 257, ..Case::gpt2(DType::F16) }.plans(&properties((9, 0)));
    let grids: Vec<u32> = backward.launches.iter().map(|launch| launch.grid[0]).collect();
    assert_eq!(grids, [16 * 12 * 8, 16 * 12 * 5]);
}

/// Compiling takes no device, only the compiler. Where that is not installed there is nothing to try; `.ci/kernels` installs
/// it and insists.
#[test]
fn every_source_compiles_of_attention_on_tensor_cores() {
    let compiler = match Compiler::get() {
        Ok(compiler) => compiler,
        Err(error) if std::env::var_os("PLIMSOLL_INSIST_ON_NVRTC").is_some() => panic!("{error}"),
        Err(_) => return,
    };
    for width in [32, 64, 80, 128, 160, 256] {
        for dtype in [DType::BF16, DType::F16] {
            for capability in [(8, 0), (9, 0)] {
                for plan in (Case { width, ..Case::gpt2(dtype) }).plans(&properties(capability)) {
                    let code = compiler.compile(&plan.source, "attention", &compiler.options(capability));
                    assert!(!code.unwrap_or_else(|error| panic!("{width} {error}")).is_empty());
                }
            }
        }
    }
}

#[test]
fn empty_operands_launch_only_what_has_results() {
    let names = |case: Case| {
        let launches = case.plans(&properties((8, 0))).map(|plan| plan.launches);
        launches.map(|launches| launches.iter().map(|launch| launch.name).collect::<Vec<_>>())
    };
    let none: [Vec<&str>; 2] = [vec![], vec![]];
    assert_eq!(names(Case { batch: 0, ..Case::gpt2(DType::BF16) }), none);
    let [forward, backward] = names(Case { queries: 0, ..Case::gpt2(DType::BF16) });
    assert_eq!((forward, backward), (vec![], vec!["attention_grad_keys"]));
    let [forward, backward] = names(Case { keys: 0, ..Case::gpt2(DType::F32) });
    let queries = vec!["attention_grad_products", "attention_grad_queries"];
    assert_eq!((forward, backward), (vec!["attention"], queries));
}

#[test]
fn positions_beyond_32_bits_are_computed_in_64() {
    let [small, _] = Case::gpt2(DType::BF16).plans(&properties((9, 0)));
    assert!(small.source.contains("#define Index int\n"));
    let [large, _] = Case { batch: 4096, ..Case::gpt2(DType::BF16) }.plans(&properties((9, 0)));
    assert!(large.source.contains("#define Index long long\n"));
}

#[test]
fn more_heads_than_a_grid_has_blocks_are_an_error() {
    let case = Case { batch: 1 << 20, queries: 1 << 16, keys: 1, ..Case::gpt2(DType::F32) };
    let error = AttentionShape::forward(case.attention(), &case.reads()[..3]).unwrap_err();
    assert!(error.to_string().contains("12582912 heads of 65536 queries"), "{error}");
}

#[test]
fn one_source_serves_every_batch_and_length() {
    let hopper = properties((9, 0));
    let of = |batch: usize, length: usize| {
        [DType::BF16, DType::F32].map(|dtype| {
            let case = Case { batch, queries: length, keys: length, ..Case::gpt2(dtype) };
            case.plans(&hopper).map(|plan| plan.source)
        })
    };
    assert_eq!(of(16, 1024), of(3, 77));
}
