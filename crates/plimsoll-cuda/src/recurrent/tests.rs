use super::*;

fn layer(dtype: DType, gates: usize) -> Layer {
    let operands = [[3, 5, 7].as_slice(), &[7, gates * 10], &[10, gates * 10]];
    let reads: Vec<_> = operands.iter().map(|dims| dense(0, dtype, dims).unwrap()).collect();
    Layer::new(&reads).unwrap()
}

/// The bytes of these numbers of elements and of numbers of the accumulator type, each rounded up to the alignment.
fn aligned(dtype: DType, elements: &[usize], numbers: &[usize]) -> u64 {
    let sizes = elements.iter().map(|count| count * dtype.size());
    let sizes = sizes.chain(numbers.iter().map(|count| count * dtype.accumulator().size()));
    sizes.map(|bytes| (bytes as u64).next_multiple_of(256)).sum()
}

#[test]
fn extents_are_those_of_inputs_and_weights() {
    let Layer { batch, time, input, hidden, columns, .. } = layer(DType::F32, 4);
    assert_eq!([batch, time, input, hidden, columns], [3, 5, 7, 10, 40]);
}

#[test]
fn scratch_memory_holds_what_belongs_to_all_steps_only_for_gradients() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let lstm = layer(dtype, 4);
        assert_eq!(ForwardScratch::new(&lstm).products, aligned(dtype, &[30], &[3 * 40]));
        let elements = [15 * 40, 15 * 10, 3 * 40];
        assert_eq!(GradScratch::new(&lstm, lstm::APART).products, aligned(dtype, &elements, &[30, 30]));
        let gru = layer(dtype, 3);
        assert_eq!(ForwardScratch::new(&gru).products, aligned(dtype, &[30], &[3 * 30]));
        let elements = [15 * 30, 15 * 30, 15 * 10, 3 * 30];
        assert_eq!(GradScratch::new(&gru, gru::APART).products, aligned(dtype, &elements, &[30, 30]));
    }
}

#[test]
fn products_of_a_step_are_not_rounded_and_those_with_the_inputs_have_rows_as_wide_as_gates() {
    let gru = layer(DType::BF16, 3);
    let inputs = gru.inputs_by_weight(40);
    assert_eq!(
        ([inputs.m, inputs.n, inputs.k], inputs.c, inputs.result),
        ([15, 30, 7], [40, 0], DType::BF16)
    );
    let state = gru.state_by_weight();
    assert_eq!(([state.m, state.n, state.k], state.c, state.result), ([3, 30, 10], [30, 0], DType::F32));
    let slopes = gru.gates_by_weight();
    assert_eq!(([slopes.m, slopes.n, slopes.k], slopes.c, slopes.result), ([3, 10, 30], [10, 0], DType::F32));
    // The weight is kept as [hidden, columns], and is multiplied with as [columns, hidden].
    assert_eq!((slopes.b, state.b), ([1, 30, 0], [30, 1, 0]));
}

#[test]
fn sources_say_hidden_extents_and_types_and_are_the_same_for_any_batch_and_length() {
    let layer = layer(DType::BF16, 3);
    let source = layer.source();
    for line in ["HIDDEN 10", "Index unsigned", "Stored unsigned short", "ELEMENT 17"] {
        assert!(source.contains(&format!("#define {line}\n")), "{line}");
    }
    assert!(source == Layer { batch: 40, time: 99, ..layer }.source());
}

#[test]
fn more_hidden_numbers_than_can_be_counted_are_an_error() {
    let operands = [[1 << 20, 1, 1].as_slice(), &[1, 1 << 14], &[1 << 12, 1 << 14]];
    let reads: Vec<_> = operands.iter().map(|dims| dense(0, DType::BF16, dims).unwrap()).collect();
    let error = Layer::new(&reads).unwrap_err();
    assert!(error.to_string().contains("1048576 by 4096 over 1"), "{error}");
}
