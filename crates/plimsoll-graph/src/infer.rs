//! The shape and type of every op's results, or why its operands do not go together.

use crate::op::*;
use crate::{Axes, DType, Error, Result, Shape};

/// The type of a value: its shape and element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueType {
    /// The extents.
    pub shape: Shape,
    /// The element type.
    pub dtype: DType,
}

impl ValueType {
    /// The bytes of the value, densely packed.
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// The results of one op: at most six of them.
pub(crate) type Results = Vec<ValueType>;

/// The types of the results of `op` on operands of these types.
pub(crate) fn infer(op: &Op, operands: &[ValueType]) -> Result<Results> {
    expect_operands(op, operands)?;
    let same = |t: &ValueType| Ok(vec![*t]);
    let of = |shape: Shape, dtype: DType| Ok(vec![ValueType { shape, dtype }]);
    match op {
        Op::Input { shape, dtype } | Op::Constant { shape, dtype, .. } => of(*shape, *dtype),
        Op::Iota { shape, axis, dtype } => {
            Axes::new(&[*axis], shape.rank())?;
            of(*shape, *dtype)
        }
        Op::Random { shape, dtype, .. } => {
            let state = &operands[0];
            if state.dtype != DType::I64 || state.shape[..] != [3] {
                return Err(Error::shape(format!("the random state is i64[3], this is {state}")));
            }
            require_float(*dtype)?;
            of(*shape, *dtype)
        }
        Op::Unary(function) => unary(*function, &operands[0]),
        Op::Binary(function) => {
            require_same(&operands[0], &operands[1])?;
            if matches!(function, Binary::Pow) {
                require_float(operands[0].dtype)?;
            }
            if operands[0].dtype == DType::Bool && matches!(function, Binary::Sub | Binary::Div) {
                return Err(Error::dtype(format!("{} and {}: not of bools", operands[0], operands[1])));
            }
            same(&operands[0])
        }
        Op::Compare(_) => {
            require_same(&operands[0], &operands[1])?;
            of(operands[0].shape, DType::Bool)
        }
        Op::Select => {
            if operands[0].dtype != DType::Bool || operands[0].shape != operands[1].shape {
                return Err(Error::shape(format!(
                    "the condition is bool{} for {}, this is {}",
                    operands[1].shape, operands[1], operands[0]
                )));
            }
            require_same(&operands[1], &operands[2])?;
            same(&operands[1])
        }
        Op::Cast { dtype } => of(operands[0].shape, *dtype),
        Op::Reduce { kind, axes, wide } => {
            let x = &operands[0];
            require_axes(*axes, &x.shape)?;
            if *kind != Reduction::Sum && axes.iter().any(|axis| x.shape[axis] == 0) {
                return Err(Error::shape(format!("nothing to choose from in {x} over axes {axes:?}")));
            }
            if *wide {
                require_float(x.dtype)?;
            }
            of(x.shape.without(*axes), if *wide { x.dtype.accumulator() } else { x.dtype })
        }
        Op::ArgMax { axis } => {
            let axes = Axes::new(&[*axis], operands[0].shape.rank())?;
            if operands[0].shape[*axis] == 0 {
                return Err(Error::shape(format!("nothing to choose from in {}", operands[0])));
            }
            of(operands[0].shape.without(axes), DType::I32)
        }
        Op::Reshape { shape } => {
            if shape.elements() != operands[0].shape.elements() {
                return Err(Error::shape(format!(
                    "{} has {} elements, {shape} has {}",
                    operands[0],
                    operands[0].shape.elements(),
                    shape.elements()
                )));
            }
            of(*shape, operands[0].dtype)
        }
        Op::Permute { order } => permute(order, &operands[0]),
        Op::Broadcast { shape } => {
            if Shape::broadcast(&operands[0].shape, shape)? != *shape {
                return Err(Error::shape(format!("{} does not broadcast to {shape}", operands[0])));
            }
            of(*shape, operands[0].dtype)
        }
        Op::Slice(slice) => slice_type(slice, &operands[0]),
        Op::Pad(pad) => pad_type(pad, &operands[0]),
        Op::Concat { axis } => concat(*axis, operands),
        Op::Dot { transpose_a, transpose_b } => dot(*transpose_a, *transpose_b, &operands[0], &operands[1]),
        Op::Conv2d(conv) => {
            let (x, filter) = (&operands[0], &operands[1]);
            require_float(x.dtype)?;
            require_same_dtype(x, filter)?;
            of(conv.output(&x.shape, &filter.shape)?, x.dtype)
        }
        Op::Conv2dInputGrad { conv, input } => {
            let (filter, dy) = (&operands[0], &operands[1]);
            require_same_dtype(filter, dy)?;
            require_shape(dy, &conv.output(input, &filter.shape)?)?;
            of(*input, dy.dtype)
        }
        Op::Conv2dFilterGrad { conv, filter } => {
            let (x, dy) = (&operands[0], &operands[1]);
            require_same_dtype(x, dy)?;
            require_shape(dy, &conv.output(&x.shape, filter)?)?;
            of(*filter, dy.dtype)
        }
        Op::Pool2d(pool) => {
            require_float(operands[0].dtype)?;
            of(pool.output(&operands[0].shape)?, operands[0].dtype)
        }
        Op::Pool2dGrad(pool) => {
            require_shape(&operands[1], &pool.output(&operands[0].shape)?)?;
            require_same_dtype(&operands[0], &operands[1])?;
            same(&operands[0])
        }
        Op::Gather => gather(&operands[0], &operands[1]),
        Op::ScatterAdd { rows } => scatter_add(*rows, &operands[0], &operands[1]),
        Op::StopGradient => same(&operands[0]),
        Op::Softmax | Op::LogSoftmax => {
            require_float(operands[0].dtype)?;
            require_rank_at_least(&operands[0], 1)?;
            same(&operands[0])
        }
        Op::CrossEntropy => cross_entropy(operands),
        Op::CrossEntropyGrad => {
            let results = cross_entropy(&operands[..2])?;
            require_type(&operands[2], &results[1])?;
            require_type(&operands[3], &results[0])?;
            same(&operands[0])
        }
        Op::ProjectedCrossEntropy { transpose_weight, chunk } => {
            if *chunk == 0 {
                return Err(Error::argument("a chunk of 0 rows; at least 1 is needed"));
            }
            let [x, weight, labels, slope] = [0, 1, 2, 3].map(|i| operands[i]);
            let logits = dot(false, *transpose_weight, &x, &weight)?[0];
            let loss = cross_entropy(&[logits, labels])?[0];
            require_type(&slope, &loss)?;
            Ok(vec![loss, ValueType { dtype: DType::I32, ..loss }, x, weight])
        }
        Op::LayerNorm { .. } => norm(operands, NormOver::Rows),
        Op::LayerNormGrad => norm_grad(operands, NormOver::Rows),
        Op::ResidualLayerNormGrad => {
            require_type(&operands[5], &operands[0])?;
            norm_grad(operands, NormOver::Rows)
        }
        Op::BatchNorm { .. } => norm(operands, NormOver::Channels),
        Op::BatchMoments { .. } => {
            require_float(operands[0].dtype)?;
            require_rank_at_least(&operands[0], 1)?;
            Ok(vec![statistics(&operands[0], NormOver::Channels); 3])
        }
        Op::BatchNormGrad { .. } => norm_grad(operands, NormOver::Channels),
        Op::Attention(_) => attention(operands),
        Op::AttentionGrad(_) => Ok(attention_grad(operands)?.to_vec()),
        Op::JointAttentionGrad(_) => {
            let [q, k, _] = attention_grad(operands)?;
            require_type(&k, &q)?;
            let [batch, length, heads, width] = [0, 1, 2, 3].map(|axis| q.shape[axis]);
            Ok(vec![ValueType { shape: Shape::new(&[batch, length, 3, heads, width])?, ..q }])
        }
        Op::Lstm => lstm(operands),
        Op::LstmGrad => {
            let [x, w, u, h, c, ys, gates, cells, dy] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| operands[i]);
            let bias = ValueType { shape: Shape::from_slice(&[w.shape.last().copied().unwrap_or(0)]), ..w };
            let results = lstm(&[x, w, u, bias, h, c])?;
            for (given, expected) in [ys, gates, cells, dy].iter().zip([0, 1, 2, 0]) {
                require_type(given, &results[expected])?;
            }
            Ok(vec![x, w, u, bias, h, c])
        }
        Op::Gru => gru(operands),
        Op::GruGrad => {
            let [x, w, u, h, ys, gates, dy] = [0, 1, 2, 3, 4, 5, 6].map(|i| operands[i]);
            let bias = ValueType { shape: Shape::from_slice(&[w.shape.last().copied().unwrap_or(0)]), ..w };
            let results = gru(&[x, w, u, bias, bias, h])?;
            for (given, expected) in [ys, gates, dy].iter().zip([0, 1, 0]) {
                require_type(given, &results[expected])?;
            }
            Ok(vec![x, w, u, bias, bias, h])
        }
    }
}

fn expect_operands(op: &Op, operands: &[ValueType]) -> Result<()> {
    let expected = match op {
        Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => 0,
        Op::Concat { .. } => operands.len().max(1),
        Op::Binary(_)
        | Op::Compare(_)
        | Op::Dot { .. }
        | Op::Conv2d(_)
        | Op::Conv2dInputGrad { .. }
        | Op::Conv2dFilterGrad { .. }
        | Op::Pool2dGrad(_)
        | Op::Gather
        | Op::ScatterAdd { .. }
        | Op::CrossEntropy => 2,
        Op::Select | Op::LayerNorm { .. } | Op::BatchNorm { .. } | Op::Attention(_) => 3,
        Op::CrossEntropyGrad | Op::ProjectedCrossEntropy { .. } => 4,
        Op::LayerNormGrad | Op::BatchNormGrad { .. } => 5,
        Op::ResidualLayerNormGrad => 6,
        Op::AttentionGrad(_) | Op::JointAttentionGrad(_) | Op::Lstm | Op::Gru => 6,
        Op::GruGrad => 7,
        Op::LstmGrad => 9,
        _ => 1,
    };
    if operands.len() == expected {
        return Ok(());
    }
    Err(Error::argument(format!("takes {expected} operands, was given {}", operands.len())))
}

fn unary(function: Unary, x: &ValueType) -> Result<Results> {
    match function.domain().result(x.dtype) {
        Some(dtype) => Ok(vec![ValueType { dtype, ..*x }]),
        None => Err(Error::dtype(format!("takes {}, this is {x}", function.domain().describe()))),
    }
}

fn permute(order: &Shape, x: &ValueType) -> Result<Results> {
    if order.rank() != x.shape.rank() {
        return Err(Error::shape(format!("order {order} does not name each axis of {x} once")));
    }
    Axes::new(order, x.shape.rank())?;
    let mut shape = x.shape;
    for (to, &from) in order.iter().enumerate() {
        shape[to] = x.shape[from];
    }
    Ok(vec![ValueType { shape, ..*x }])
}

fn slice_type(slice: &Slice, x: &ValueType) -> Result<Results> {
    let rank = x.shape.rank();
    if [slice.start, slice.stop, slice.step].iter().any(|s| s.rank() != rank) {
        return Err(Error::shape(format!("bounds for {} axes on {x}", slice.start.rank())));
    }
    let mut shape = x.shape;
    for axis in 0..rank {
        let (start, stop, step) = (slice.start[axis], slice.stop[axis], slice.step[axis]);
        if start > stop || stop > x.shape[axis] || step == 0 {
            return Err(Error::shape(format!("{start}..{stop} in steps of {step} along axis {axis} of {x}")));
        }
        shape[axis] = (stop - start).div_ceil(step);
    }
    Ok(vec![ValueType { shape, ..*x }])
}

fn pad_type(pad: &Pad, x: &ValueType) -> Result<Results> {
    let rank = x.shape.rank();
    if [pad.before, pad.after, pad.between].iter().any(|s| s.rank() != rank) {
        return Err(Error::shape(format!("a border for {} axes on {x}", pad.before.rank())));
    }
    let dims: Vec<usize> = (0..rank)
        .map(|axis| {
            let gaps = x.shape[axis].saturating_sub(1).saturating_mul(pad.between[axis]);
            let inner = x.shape[axis].saturating_add(gaps);
            pad.before[axis].saturating_add(inner).saturating_add(pad.after[axis])
        })
        .collect();
    Ok(vec![ValueType { shape: Shape::new(&dims)?, ..*x }])
}

fn concat(axis: usize, operands: &[ValueType]) -> Result<Results> {
    let first = operands[0];
    Axes::new(&[axis], first.shape.rank())?;
    let mut shape = first.shape;
    for other in &operands[1..] {
        let fits = other.shape.rank() == shape.rank() && other.shape.with(axis, 0) == shape.with(axis, 0);
        if !fits || other.dtype != first.dtype {
            return Err(Error::shape(format!("{first} and {other} differ beside axis {axis}")));
        }
        shape[axis] += other.shape[axis];
    }
    Ok(vec![ValueType { shape: Shape::new(&shape)?, ..first }])
}

fn dot(transpose_a: bool, transpose_b: bool, a: &ValueType, b: &ValueType) -> Result<Results> {
    require_same_dtype(a, b)?;
    require_float(a.dtype)?;
    require_rank_at_least(a, 2)?;
    let rank = a.shape.rank();
    let lead = rank - 2;
    let swap = |swapped: bool, t: &ValueType| {
        let r = t.shape.rank();
        if swapped { (t.shape[r - 1], t.shape[r - 2]) } else { (t.shape[r - 2], t.shape[r - 1]) }
    };
    if b.shape.rank() != rank || a.shape[..lead] != b.shape[..lead] {
        return Err(Error::shape(format!("{a} · {b}: leading axes differ")));
    }
    let ((m, k), (k2, n)) = (swap(transpose_a, a), swap(transpose_b, b));
    if k != k2 {
        let mark = |t| if t { "ᵀ" } else { "" };
        return Err(Error::shape(format!(
            "{a}{} · {b}{}: inner extents {k} and {k2} differ",
            mark(transpose_a),
            mark(transpose_b)
        )));
    }
    let mut dims = a.shape;
    dims[lead] = m;
    dims[lead + 1] = n;
    Ok(vec![ValueType { shape: Shape::new(&dims)?, dtype: a.dtype }])
}

impl Conv2d {
    /// The shape of the result for images and a filter of these shapes.
    pub fn output(&self, input: &Shape, filter: &Shape) -> Result<Shape> {
        if input.rank() != 4 || filter.rank() != 4 {
            return Err(Error::shape(format!(
                "images are [batch, height, width, channels] and the filter [height, width, channels, channels], \
                 these are {input} and {filter}"
            )));
        }
        if self.groups == 0 || self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(Error::argument(format!(
                "stride {:?}, dilation {:?} and groups {} must be at least 1",
                self.stride, self.dilation, self.groups
            )));
        }
        require_geometry(&[&self.stride, &self.dilation, &self.padding])?;
        if !filter[3].is_multiple_of(self.groups) {
            return Err(Error::shape(format!(
                "filter {filter} makes {} channels, which do not divide into {} groups",
                filter[3], self.groups
            )));
        }
        if filter[2].checked_mul(self.groups) != Some(input[3]) {
            return Err(Error::shape(format!(
                "images {input} have {} channels, filter {filter} takes {} in each of {} groups",
                input[3], filter[2], self.groups
            )));
        }
        let mut out = [input[0], 0, 0, filter[3]];
        for axis in 0..2 {
            let padded = padded(input[1 + axis], [self.padding[2 * axis], self.padding[2 * axis + 1]])?;
            let reach = self.reach(axis, filter[axis])?;
            if filter[axis] == 0 || padded < reach {
                return Err(Error::shape(format!(
                    "filter {filter} reaches {reach}, images {input} have {padded}"
                )));
            }
            out[1 + axis] = (padded - reach) / self.stride[axis] + 1;
        }
        Shape::new(&out)
    }

    /// How many elements of an axis a window of this extent reaches over.
    ///
    /// # Errors
    /// If that is more than windows may reach over, 2³¹ − 1.
    pub fn reach(&self, axis: usize, window: usize) -> Result<usize> {
        let reach = self.dilation[axis].checked_mul(window.saturating_sub(1)).and_then(|n| n.checked_add(1));
        reach.filter(|&reach| reach <= MOST_GEOMETRY).ok_or_else(|| {
            Error::argument(format!(
                "a window of {window} with a dilation of {} reaches over more than {MOST_GEOMETRY} elements",
                self.dilation[axis]
            ))
        })
    }
}

/// The largest stride, dilation and padding of a window, the most that it reaches over, and the largest extent of what it
/// moves over, padding included: kernels compute with these, and their sums and products must not overflow.
pub(crate) const MOST_GEOMETRY: usize = i32::MAX as usize;

fn require_geometry(numbers: &[&[usize]]) -> Result<()> {
    match numbers.iter().flat_map(|numbers| numbers.iter()).find(|&&number| number > MOST_GEOMETRY) {
        Some(number) => Err(Error::argument(format!(
            "strides, dilations and paddings are at most {MOST_GEOMETRY}, this is {number}"
        ))),
        None => Ok(()),
    }
}

/// An extent with its padding.
fn padded(extent: usize, padding: [usize; 2]) -> Result<usize> {
    let padded = padding.iter().try_fold(extent, |sum, &pad| sum.checked_add(pad));
    padded.filter(|&padded| padded <= MOST_GEOMETRY).ok_or_else(|| {
        Error::shape(format!(
            "images of {extent} with a padding of {padding:?} are larger than {MOST_GEOMETRY} along an axis"
        ))
    })
}

impl Pool2d {
    /// The shape of the result for images of this shape.
    pub fn output(&self, input: &Shape) -> Result<Shape> {
        if input.rank() != 4 {
            return Err(Error::shape(format!(
                "images are [batch, height, width, channels], these are {input}"
            )));
        }
        if self.window.contains(&0) || self.stride.contains(&0) {
            return Err(Error::argument(format!(
                "window {:?} and stride {:?} must be at least 1",
                self.window, self.stride
            )));
        }
        require_geometry(&[&self.window, &self.stride, &self.padding])?;
        let mut out = *input;
        for axis in 0..2 {
            let pads = [self.padding[2 * axis], self.padding[2 * axis + 1]];
            if pads.iter().any(|&p| p >= self.window[axis]) {
                return Err(Error::argument(format!(
                    "padding {:?} leaves windows of {:?} empty",
                    self.padding, self.window
                )));
            }
            let padded = padded(input[1 + axis], pads)?;
            if padded < self.window[axis] || input[1 + axis] == 0 {
                return Err(Error::shape(format!("windows of {:?} do not fit images {input}", self.window)));
            }
            out[1 + axis] = (padded - self.window[axis]) / self.stride[axis] + 1;
        }
        Ok(out)
    }
}

fn gather(table: &ValueType, indices: &ValueType) -> Result<Results> {
    require_index(indices)?;
    require_rank_at_least(table, 1)?;
    let dims = [&indices.shape[..], &table.shape[1..]].concat();
    Ok(vec![ValueType { shape: Shape::new(&dims)?, dtype: table.dtype }])
}

fn scatter_add(rows: usize, indices: &ValueType, updates: &ValueType) -> Result<Results> {
    require_index(indices)?;
    let lead = indices.shape.rank();
    if updates.shape.rank() < lead || updates.shape[..lead] != indices.shape[..] {
        return Err(Error::shape(format!("updates {updates} for indices {indices}")));
    }
    let dims = [&[rows], &updates.shape[lead..]].concat();
    Ok(vec![ValueType { shape: Shape::new(&dims)?, dtype: updates.dtype }])
}

fn cross_entropy(operands: &[ValueType]) -> Result<Results> {
    let (logits, labels) = (&operands[0], &operands[1]);
    require_float(logits.dtype)?;
    require_index(labels)?;
    if logits.shape.rank() != 2 || labels.shape[..] != logits.shape[..1] {
        return Err(Error::shape(format!(
            "logits are [n, classes] and labels [n], these are {logits} and {labels}"
        )));
    }
    if logits.shape[1] == 0 {
        return Err(Error::shape(format!("logits {logits} have no classes")));
    }
    let dtype = logits.dtype.accumulator();
    let sums = Shape::from_slice(&[logits.shape[0], 2]);
    Ok(vec![ValueType { shape: labels.shape, dtype }, ValueType { shape: sums, dtype }])
}

#[derive(Clone, Copy)]
enum NormOver {
    Rows,
    Channels,
}

/// Statistics of a norm over `x`: one per row, or one per channel.
fn statistics(x: &ValueType, over: NormOver) -> ValueType {
    let rank = x.shape.rank();
    let dims = match over {
        NormOver::Rows => &x.shape[..rank - 1],
        NormOver::Channels => &x.shape[rank - 1..],
    };
    ValueType { shape: Shape::from_slice(dims), dtype: x.dtype.accumulator() }
}

fn norm(operands: &[ValueType], over: NormOver) -> Result<Results> {
    let x = operands[0];
    require_float(x.dtype)?;
    require_rank_at_least(&x, 1)?;
    let per_channel = ValueType { shape: Shape::from_slice(&x.shape[x.shape.rank() - 1..]), dtype: x.dtype };
    require_type(&operands[1], &per_channel)?;
    require_type(&operands[2], &per_channel)?;
    let statistics = statistics(&x, over);
    Ok(vec![x, statistics, statistics])
}

fn norm_grad(operands: &[ValueType], over: NormOver) -> Result<Results> {
    let (x, gamma) = (operands[0], operands[1]);
    let results = norm(&[x, gamma, gamma], over)?;
    require_type(&operands[2], &results[1])?;
    require_type(&operands[3], &results[2])?;
    require_type(&operands[4], &x)?;
    Ok(vec![x, gamma, gamma])
}

fn attention(operands: &[ValueType]) -> Result<Results> {
    let (q, k, v) = (&operands[0], &operands[1], &operands[2]);
    require_float(q.dtype)?;
    require_type(v, k)?;
    require_same_dtype(q, k)?;
    let fits = q.shape.rank() == 4
        && k.shape.rank() == 4
        && q.shape[0] == k.shape[0]
        && q.shape[2..] == k.shape[2..]
        && k.shape[1] > 0;
    if !fits {
        return Err(Error::shape(format!(
            "q is [batch, queries, heads, width], k and v [batch, keys, heads, width], these are {q}, {k} and {v}"
        )));
    }
    let log_sum = Shape::from_slice(&[q.shape[0], q.shape[2], q.shape[1]]);
    Ok(vec![*q, ValueType { shape: log_sum, dtype: q.dtype.accumulator() }])
}

/// The gradients of q, k and v.
fn attention_grad(operands: &[ValueType]) -> Result<[ValueType; 3]> {
    let results = attention(&operands[..3])?;
    require_type(&operands[3], &results[0])?;
    require_type(&operands[4], &results[1])?;
    require_type(&operands[5], &results[0])?;
    Ok([operands[0], operands[1], operands[2]])
}

/// Checks `x`, the two weights and the first state of a recurrent layer with `gates` gates.
/// Returns batch, time and hidden extents.
fn recurrent(gates: usize, x: &ValueType, w: &ValueType, u: &ValueType, h: &ValueType) -> Result<[usize; 3]> {
    require_float(x.dtype)?;
    let hidden = if h.shape.rank() == 2 { h.shape[1] } else { 0 };
    let fits = x.shape.rank() == 3
        && h.shape.rank() == 2
        && w.shape[..] == [x.shape[2], gates * hidden]
        && u.shape[..] == [hidden, gates * hidden]
        && h.shape[0] == x.shape[0]
        && [w, u, h].iter().all(|t| t.dtype == x.dtype);
    if !fits {
        return Err(Error::shape(format!(
            "x is [batch, time, in], weights [in, {gates} hidden] and [hidden, {gates} hidden], the first state \
             [batch, hidden]; these are {x}, {w}, {u} and {h}"
        )));
    }
    Ok([x.shape[0], x.shape[1], hidden])
}

fn lstm(operands: &[ValueType]) -> Result<Results> {
    let (x, h) = (&operands[0], &operands[4]);
    let [batch, time, hidden] = recurrent(4, x, &operands[1], &operands[2], h)?;
    require_shape(&operands[3], &Shape::from_slice(&[4 * hidden]))?;
    require_same_dtype(x, &operands[3])?;
    require_type(&operands[5], h)?;
    let over_time = |width| ValueType { shape: Shape::from_slice(&[batch, time, width]), dtype: x.dtype };
    Ok(vec![over_time(hidden), over_time(4 * hidden), over_time(hidden)])
}

fn gru(operands: &[ValueType]) -> Result<Results> {
    let x = &operands[0];
    let [batch, time, hidden] = recurrent(3, x, &operands[1], &operands[2], &operands[5])?;
    for bias in &operands[3..5] {
        require_shape(bias, &Shape::from_slice(&[3 * hidden]))?;
        require_same_dtype(x, bias)?;
    }
    let over_time = |width| ValueType { shape: Shape::from_slice(&[batch, time, width]), dtype: x.dtype };
    Ok(vec![over_time(hidden), over_time(4 * hidden)])
}

fn require_float(dtype: DType) -> Result<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(format!("takes floats, this is {dtype}"))) }
}

fn require_index(t: &ValueType) -> Result<()> {
    match t.dtype {
        DType::I32 | DType::I64 => Ok(()),
        _ => Err(Error::dtype(format!("indices and labels are i32 or i64, these are {t}"))),
    }
}

fn require_same(a: &ValueType, b: &ValueType) -> Result<()> {
    require_same_dtype(a, b)?;
    if a.shape == b.shape { Ok(()) } else { Err(Error::shape(format!("{a} and {b} have different shapes"))) }
}

fn require_same_dtype(a: &ValueType, b: &ValueType) -> Result<()> {
    if a.dtype == b.dtype { Ok(()) } else { Err(Error::dtype(format!("{a} and {b} have different types"))) }
}

fn require_shape(t: &ValueType, shape: &Shape) -> Result<()> {
    if t.shape == *shape { Ok(()) } else { Err(Error::shape(format!("{t} where {shape} is needed"))) }
}

fn require_type(t: &ValueType, expected: &ValueType) -> Result<()> {
    if t == expected { Ok(()) } else { Err(Error::shape(format!("{t} where {expected} is needed"))) }
}

fn require_rank_at_least(t: &ValueType, rank: usize) -> Result<()> {
    if t.shape.rank() >= rank {
        return Ok(());
    }
    Err(Error::shape(format!("{t} has {} axes, at least {rank} are needed", t.shape.rank())))
}

fn require_axes(axes: Axes, shape: &Shape) -> Result<()> {
    match axes.iter().last() {
        Some(axis) if axis >= shape.rank() => Err(Error::shape(format!("axis {axis} of {shape}"))),
        _ => Ok(()),
    }
}
