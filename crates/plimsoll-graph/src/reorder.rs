//! Ops that change places because the numbers stay the same and the bytes become fewer.
//!
//! The largest of rectified elements is the largest of the elements, rectified. Rectifying after pooling is done on as
//! many elements as there are windows, and so is its gradient; what is left to be kept for the backward pass is one
//! full-sized value, which the gradient of pooling may replace.

use crate::op::{Op, PoolKind, Unary};
use crate::{Graph, ValueId};

impl Graph {
    /// Lets every largest-element pooling of rectified elements change places with the rectifying, unless something
    /// else uses those, or `kept` has them. All values keep their numbers; the one in between is another.
    pub(crate) fn pool_before_rectifying(&mut self, kept: impl IntoIterator<Item = ValueId>) {
        let mut uses = vec![0usize; self.len()];
        for node in self.nodes() {
            node.operands.iter().for_each(|operand| uses[operand.index()] += 1);
        }
        kept.into_iter().for_each(|value| uses[value.index()] += 1);
        for index in 0..self.nodes().len() {
            let pooling = &self.nodes()[index];
            let is_largest = matches!(&pooling.op, Op::Pool2d(pool) if pool.kind == PoolKind::Max);
            let Some(&between) = pooling.operands.first().filter(|_| is_largest) else { continue };
            let is_rectified = *self.op(between) == Op::Unary(Unary::Relu);
            if is_rectified && uses[between.index()] == 1 {
                self.exchange(between, index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::op::{Op, Pool2d, PoolKind};
    use crate::{DType, Graph};

    const PAIRS: Pool2d = Pool2d { kind: PoolKind::Max, window: [2, 2], stride: [2, 2], padding: [0; 4] };

    fn ops(graph: &Graph) -> Vec<&'static str> {
        graph.nodes().iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn rectifying_moves_behind_pooling_where_nothing_else_sees_it() {
        for (other_use, expected) in [(false, ["max_pool2d", "relu"]), (true, ["relu", "max_pool2d"])] {
            let mut graph = Graph::new();
            let x = graph.input("x", &[1, 4, 6, 3], DType::F32).unwrap();
            let rectified = graph.relu(x).unwrap();
            let pooled = graph.apply(Op::Pool2d(PAIRS), &[rectified]).unwrap();
            graph.pool_before_rectifying(other_use.then_some(rectified));
            assert_eq!(ops(&graph)[1..], expected);
            assert_eq!(graph.shape(pooled)[..], [1, 2, 3, 3]);
            assert_eq!(graph.shape(rectified)[1], if other_use { 4 } else { 2 });
        }
    }

    #[test]
    fn the_mean_of_rectified_elements_stays_what_it_is() {
        let mut graph = Graph::new();
        let x = graph.input("x", &[1, 4, 6, 3], DType::F32).unwrap();
        let rectified = graph.relu(x).unwrap();
        graph.apply(Op::Pool2d(Pool2d { kind: PoolKind::Mean, ..PAIRS }), &[rectified]).unwrap();
        graph.pool_before_rectifying([]);
        assert_eq!(ops(&graph)[1..], ["relu", "mean_pool2d"]);
    }
}
