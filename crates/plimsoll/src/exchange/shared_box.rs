//! Elements that two tensors of other layouts share, and moving them without having either tensor whole.
//!
//! A transposed, permuted or joined tensor is a box of elements that lies in both tensors with other strides. One
//! description serves both directions: weights that come from a file and those that go into one.

use crate::{DType, Result};
use half::{bf16, f16};
use std::ops::Range;

/// A box of elements, and where it lies in the tensor that is read and in the one that is written.
#[derive(Debug, Clone)]
pub(crate) struct SharedBox {
    /// From the largest stride of what is read to the smallest.
    axes: Vec<Axis>,
    /// The first element of what is read, and of what is written.
    from: usize,
    to: usize,
}

#[derive(Debug, Clone, Copy)]
struct Axis {
    extent: usize,
    from: usize,
    to: usize,
}

/// What becomes of the elements that were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Instead,
    Added,
}

/// Shows a range of the bytes of a tensor in order, one piece after another, each with where it begins.
pub(crate) type ShowBytes<'a> =
    &'a mut dyn FnMut(Range<usize>, &mut dyn FnMut(usize, &[u8]) -> Result<()>) -> Result<()>;

/// The strides of a tensor whose last axis is dense.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

impl SharedBox {
    /// Reading a tensor of theirs whose axis k is axis `order[k]` of ours, as part `part` of those that lie one after
    /// another along our last axis.
    pub(crate) fn from_theirs(ours: &[usize], order: &[usize], part: usize, parts: usize) -> SharedBox {
        let (theirs, first) = (shape_of_theirs(ours, order, parts), first_of_part(ours, part, parts));
        let (theirs_strides, our_strides) = (strides(&theirs), strides(ours));
        let axes = order.iter().enumerate().map(|(theirs_axis, &our_axis)| Axis {
            extent: theirs[theirs_axis],
            from: theirs_strides[theirs_axis],
            to: our_strides[our_axis],
        });
        SharedBox::new(axes.collect(), 0, first)
    }

    /// The same box, reading ours and writing theirs.
    pub(crate) fn from_ours(ours: &[usize], order: &[usize], part: usize, parts: usize) -> SharedBox {
        let SharedBox { axes, from, to } = SharedBox::from_theirs(ours, order, part, parts);
        let swapped = axes.into_iter().map(|Axis { extent, from, to }| Axis { extent, from: to, to: from });
        SharedBox::new(swapped.collect(), to, from)
    }

    fn new(mut axes: Vec<Axis>, from: usize, to: usize) -> SharedBox {
        axes.retain(|axis| axis.extent != 1);
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.from));
        SharedBox { axes, from, to }
    }

    /// Moves what belongs into a piece of the tensor that is written, `f32` from its element `first` on, out of elements
    /// of type `dtype`, each rounded once. Those of no float type are left out, as are elements outside of the box.
    pub(crate) fn move_into(
        &self,
        first: usize,
        piece: &mut [u8],
        dtype: DType,
        written: Written,
        show: ShowBytes<'_>,
    ) -> Result<()> {
        match dtype {
            DType::F32 => self.move_all(first, piece, written, show, f32::from_le_bytes),
            DType::F64 => {
                self.move_all(first, piece, written, show, |bytes| f64::from_le_bytes(bytes) as f32)
            }
            DType::F16 => {
                self.move_all(first, piece, written, show, |bytes| f16::from_le_bytes(bytes).to_f32())
            }
            DType::BF16 => {
                self.move_all(first, piece, written, show, |bytes| bf16::from_le_bytes(bytes).to_f32())
            }
            DType::I32 | DType::I64 | DType::U8 | DType::Bool => Ok(()),
        }
    }

    fn move_all<const SIZE: usize>(
        &self,
        first: usize,
        piece: &mut [u8],
        written: Written,
        show: ShowBytes<'_>,
        read: impl Fn([u8; SIZE]) -> f32 + Copy,
    ) -> Result<()> {
        let wanted = first..first + piece.len() / size_of::<f32>();
        let Some(axes) = self.within(&wanted) else { return Ok(()) };
        let low = self.from + axes.iter().map(|axis| axis.range.start * axis.from).sum::<usize>();
        let high = self.from + axes.iter().map(|axis| (axis.range.end - 1) * axis.from).sum::<usize>() + 1;
        show(low * SIZE..high * SIZE, &mut |at, bytes| {
            let shown = at / SIZE..(at + bytes.len()) / SIZE;
            let mut each = |from: usize, to: usize| {
                if !wanted.contains(&to) {
                    return;
                }
                let (from, to) =
                    (&bytes[(from - shown.start) * SIZE..], (to - wanted.start) * size_of::<f32>());
                let Some(value) = from.first_chunk().map(|&bytes| read(bytes)) else { return };
                if let Some(place) = piece[to..].first_chunk_mut() {
                    let value = match written {
                        Written::Instead => value,
                        Written::Added => f32::from_le_bytes(*place) + value,
                    };
                    *place = value.to_le_bytes();
                }
            };
            walk(&axes, self.from, self.to, &shown, &mut each);
            Ok(())
        })
    }

    /// The axes with the part of each that can lie in a range of what is written: all of it, but for the axis of the
    /// largest stride there. Nothing if the box is empty or lies elsewhere.
    fn within(&self, wanted: &Range<usize>) -> Option<Vec<CutAxis>> {
        let mut axes: Vec<CutAxis> = self
            .axes
            .iter()
            .map(|&Axis { extent, from, to }| CutAxis { range: 0..extent, from, to })
            .collect();
        if let Some(outer) = axes.iter_mut().max_by_key(|axis| axis.to) {
            let low = wanted.start.saturating_sub(self.to) / outer.to;
            let high = wanted.end.saturating_sub(self.to).div_ceil(outer.to);
            outer.range = low..high.min(outer.range.end);
        }
        axes.iter().all(|axis| !axis.range.is_empty()).then_some(axes)
    }
}

/// An axis of a box, and the part of it that is gone through.
struct CutAxis {
    range: Range<usize>,
    from: usize,
    to: usize,
}

/// Goes through the elements of a box that are shown, in the order in which they are read.
fn walk(axes: &[CutAxis], from: usize, to: usize, shown: &Range<usize>, each: &mut impl FnMut(usize, usize)) {
    let Some((axis, inner)) = axes.split_first() else {
        if shown.contains(&from) {
            each(from, to);
        }
        return;
    };
    // How far the axes inside reach; what they read ends before the next index of this one.
    let reach = inner.iter().map(|axis| (axis.range.end - 1) * axis.from).sum::<usize>();
    let low = shown.start.saturating_sub(from + reach).div_ceil(axis.from).max(axis.range.start);
    let high = shown.end.saturating_sub(from).div_ceil(axis.from).min(axis.range.end);
    if inner.is_empty() {
        return (low..high).for_each(|index| each(from + index * axis.from, to + index * axis.to));
    }
    for index in low..high {
        walk(inner, from + index * axis.from, to + index * axis.to, shown, each);
    }
}

/// The shape of one of `parts` tensors whose axis k is axis `order[k]` of ours.
pub(crate) fn shape_of_theirs(ours: &[usize], order: &[usize], parts: usize) -> Vec<usize> {
    let last = ours.len().saturating_sub(1);
    order.iter().map(|&axis| if axis == last { ours[axis] / parts } else { ours[axis] }).collect()
}

fn first_of_part(ours: &[usize], part: usize, parts: usize) -> usize {
    ours.last().map_or(0, |last| last / parts * part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is moved of `source` into a tensor of so many elements, in pieces of some size, shown in pieces of another.
    fn moved(shared: &SharedBox, source: &[f32], elements: usize, pieces: [usize; 2]) -> Vec<f32> {
        let bytes: Vec<u8> = source.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut result = vec![0_u8; elements * 4];
        for (number, piece) in result.chunks_mut(pieces[0] * 4).enumerate() {
            let mut show = |range: Range<usize>, see: &mut dyn FnMut(usize, &[u8]) -> Result<()>| {
                let mut at = range.start;
                for part in bytes[range].chunks(pieces[1] * 4) {
                    see(at, part)?;
                    at += part.len();
                }
                Ok(())
            };
            let first = number * pieces[0];
            shared.move_into(first, piece, DType::F32, Written::Instead, &mut show).unwrap();
        }
        result.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    proptest! {
        #[test]
        fn a_tensor_in_another_order_and_in_parts_comes_back_whatever_the_pieces(
            (shape, order) in prop::collection::vec(1usize..5, 1..5)
                .prop_flat_map(|shape| {
                    let order: Vec<usize> = (0..shape.len()).collect();
                    (Just(shape), Just(order).prop_shuffle())
                }),
            parts in 1usize..4,
            pieces in [1usize..40, 1usize..40],
        ) {
            let mut shape = shape;
            *shape.last_mut().unwrap() *= parts;
            let elements: usize = shape.iter().product();
            let ours: Vec<f32> = (0..elements).map(|i| i as f32 + 1.0).collect();
            let mut back = vec![0.0; elements];
            for part in 0..parts {
                let theirs_shape = shape_of_theirs(&shape, &order, parts);
                let theirs = moved(
                    &SharedBox::from_ours(&shape, &order, part, parts),
                    &ours,
                    theirs_shape.iter().product(),
                    pieces,
                );
                // The law by which theirs is defined, element by element.
                let (our_strides, their_strides) = (strides(&shape), strides(&theirs_shape));
                for (flat, &value) in theirs.iter().enumerate() {
                    let mut at = first_of_part(&shape, part, parts);
                    for (axis, &stride) in their_strides.iter().enumerate() {
                        at += flat / stride % theirs_shape[axis] * our_strides[order[axis]];
                    }
                    prop_assert_eq!(value, ours[at]);
                }
                let shared = SharedBox::from_theirs(&shape, &order, part, parts);
                for (sum, value) in back.iter_mut().zip(moved(&shared, &theirs, elements, pieces)) {
                    *sum += value;
                }
            }
            prop_assert_eq!(back, ours);
        }
    }
}
