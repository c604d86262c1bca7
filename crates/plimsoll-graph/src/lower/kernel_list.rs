//! A list in which an item can be taken out, put in after another, and compared with another as to which comes first, each
//! without walking over the list: what moving kernels in a program of ten thousand needs.
//!
//! Every item has a label that grows along the list. A new item's lies half way between those of its neighbours; where
//! no number is left between them, all items get new labels.

/// An order of items that are named by numbers.
pub(super) struct OrderedList {
    next: Vec<usize>,
    previous: Vec<usize>,
    label: Vec<u64>,
}

/// The distance between the labels of neighbours when they are all new.
const SPACING: u64 = 1 << 32;

impl OrderedList {
    /// The items `0..count`, in this order. Their number, `count`, stands for the ends of the list.
    pub(super) fn new(count: usize) -> OrderedList {
        let around = count + 1;
        let mut list = OrderedList {
            next: (0..around).map(|item| (item + 1) % around).collect(),
            previous: (0..around).map(|item| (item + count) % around).collect(),
            label: vec![0; around],
        };
        list.relabel(count);
        list
    }

    /// Whether `a` comes before `b`.
    pub(super) fn is_before(&self, a: usize, b: usize) -> bool {
        self.label[a] < self.label[b]
    }

    /// Puts a new item after one that is in the list, or after `ends`; returns its number.
    pub(super) fn insert_after(&mut self, item: usize, ends: usize) -> usize {
        let (new, next) = (self.next.len(), self.next[item]);
        self.next.push(next);
        self.previous.push(item);
        self.label.push(0);
        self.next[item] = new;
        self.previous[next] = new;
        let low = if item == ends { 0 } else { self.label[item] };
        let high = if next == ends { low.saturating_add(2 * SPACING) } else { self.label[next] };
        self.label[new] = low + (high - low) / 2;
        if self.label[new] == low {
            self.relabel(ends);
        }
        new
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, item: usize) {
        let (previous, next) = (self.previous[item], self.next[item]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    /// The item before one that is in the list.
    pub(super) fn before(&self, item: usize) -> usize {
        self.previous[item]
    }

    /// The items from the first to the last, where `ends` is the number that stands for the ends.
    pub(super) fn items(&self, ends: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(self.next[ends]), |&item| Some(self.next[item]))
            .take_while(move |&item| item != ends)
    }

    fn relabel(&mut self, ends: usize) {
        let items: Vec<usize> = self.items(ends).collect();
        for (item, position) in items.into_iter().zip(1..) {
            self.label[item] = position * SPACING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moves_and_comparisons_are_those_of_a_plain_list(
            count in 1..20usize,
            moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let mut list = OrderedList::new(count);
            let mut plain: Vec<usize> = (0..count).collect();
            for (from, after) in moves {
                let item = plain.remove(from.index(plain.len()));
                list.remove(item);
                let position = after.index(plain.len() + 1);
                let before = if position == 0 { count } else { plain[position - 1] };
                plain.insert(position, list.insert_after(before, count));
            }
            prop_assert_eq!(list.items(count).collect::<Vec<_>>(), plain.clone());
            for (i, &a) in plain.iter().enumerate() {
                for (j, &b) in plain.iter().enumerate() {
                    prop_assert_eq!(list.is_before(a, b), i < j);
                }
            }
        }

        #[test]
        fn any_number_of_items_can_be_put_after_one(count in 1..200usize) {
            let mut list = OrderedList::new(2);
            let mut last: Vec<usize> = (0..count).map(|_| list.insert_after(0, 2)).collect();
            last.reverse();
            let expected: Vec<usize> = [vec![0], last, vec![1]].concat();
            prop_assert_eq!(list.items(2).collect::<Vec<_>>(), expected.clone());
            prop_assert!(expected.windows(2).all(|pair| list.is_before(pair[0], pair[1])));
        }
    }
}
