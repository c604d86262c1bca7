//! What the values of a pickle refer to, in little: text kept once, lists and dicts in slots that are used
//! again when a record has been made of them, and eight bytes for each value that the pickle may refer back to.

use crate::read::budget::{Budget, Charge};
use std::collections::HashMap;
use std::sync::Arc;

/// What an empty list or dict counts as, in values: about the memory of its slot.
const SLOT_COST: usize = 3;
/// How many bytes of different texts are kept.
const MAX_TEXTS: usize = 64 << 20;
/// What a text takes beside its bytes: the table it is found by, and the allocator's part.
const TEXT: u64 = 192;
/// Slots larger than this are not kept for use again.
const KEPT_CAPACITY: usize = 64;

/// A text, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Str(pub(crate) u32);

/// A list or dict: its slot, and which of the slot's tenants it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Handle {
    slot: u32,
    tenant: u32,
}

/// A value on the machine's stack or in a list or dict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PickleValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Str),
    /// A list, tuple or set.
    List(Handle),
    Dict(Handle),
    /// A record of a kind, by number, as the reader's shapes made it.
    Record(u8, u32),
    /// So many records of a kind in a row, from a number on.
    Run(u8, u32, u32),
    /// What is not kept, such as bytes and numbers beyond 64 bits.
    Other,
    /// What was understood and leaves nothing: lists do not keep it.
    Nothing,
}

/// Texts, lists and dicts.
pub(crate) struct Heap {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    held: usize,
    texts: Vec<Arc<str>>,
    text_ids: HashMap<Arc<str>, Str>,
    text_bytes: usize,
    texts_left_out: u64,
    /// What texts take. Lists and dicts have a part of the budget of their own.
    charge: Charge,
}

#[derive(Default)]
struct Slot {
    items: Vec<PickleValue>,
    tenant: u32,
    /// Where the machine remembers it, so that a record can take its place there.
    remembered: Option<u32>,
    tried: bool,
}

impl Heap {
    pub(super) fn new(words: &[&str], budget: &Budget) -> Self {
        let mut heap = Heap {
            slots: Vec::new(),
            vacant: Vec::new(),
            held: 0,
            texts: Vec::new(),
            text_ids: HashMap::new(),
            text_bytes: 0,
            texts_left_out: 0,
            charge: Charge::new(budget),
        };
        for word in words {
            heap.intern(word.as_bytes());
        }
        heap
    }

    /// The number of a text; the same text has the same one.
    pub(super) fn intern(&mut self, text: &[u8]) -> PickleValue {
        let text = String::from_utf8_lossy(text);
        if let Some(&id) = self.text_ids.get(text.as_ref()) {
            return PickleValue::Str(id);
        }
        // A text costs its bytes and about as much as this to find it again.
        self.text_bytes += text.len() + 64;
        if self.text_bytes > MAX_TEXTS || !self.charge.take(text.len() as u64 + TEXT) {
            self.texts_left_out += 1;
            self.text_bytes -= text.len() + 64;
            return PickleValue::Other;
        }
        let id = Str(self.texts.len() as u32);
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        self.text_ids.insert(text, id);
        PickleValue::Str(id)
    }

    /// A text by its number.
    pub(crate) fn text(&self, id: Str) -> &str {
        self.texts.get(id.0 as usize).map_or("", |text| text)
    }

    /// How many different texts were too many to keep.
    pub(crate) fn texts_left_out(&self) -> u64 {
        self.texts_left_out
    }

    /// What a list holds, or the keys and values of a dict in turn; nothing for other values.
    pub(crate) fn items(&self, value: PickleValue) -> &[PickleValue] {
        let (PickleValue::List(handle) | PickleValue::Dict(handle)) = value else { return &[] };
        let slot = self.slots.get(handle.slot as usize).filter(|slot| slot.tenant == handle.tenant);
        slot.map_or(&[], |slot| &slot.items)
    }

    /// Values held in lists and dicts, with what these cost themselves.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn create(&mut self) -> Handle {
        self.held += SLOT_COST;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        Handle { slot, tenant: self.slots[slot as usize].tenant }
    }

    fn slot(&mut self, handle: Handle) -> Option<&mut Slot> {
        self.slots.get_mut(handle.slot as usize).filter(|slot| slot.tenant == handle.tenant)
    }

    /// Adds items to a list or dict; false if it is no more. Lists keep records of a kind that follow one
    /// another by number as one run.
    pub(super) fn extend(&mut self, handle: Handle, items: &[PickleValue], is_list: bool) -> bool {
        let Some(slot) = self.slot(handle) else { return false };
        let before = slot.items.len();
        slot.items.reserve(items.len());
        if is_list {
            for &item in items {
                match (slot.items.last_mut(), item) {
                    (_, PickleValue::Nothing) => {}
                    (Some(PickleValue::Run(kind, first, count)), PickleValue::Record(of, id))
                        if *kind == of && first.checked_add(*count) == Some(id) =>
                    {
                        *count += 1;
                    }
                    (_, PickleValue::Record(kind, id)) => slot.items.push(PickleValue::Run(kind, id, 1)),
                    (_, item) => slot.items.push(item),
                }
            }
        } else {
            slot.items.extend_from_slice(items);
        }
        let added = slot.items.len() - before;
        self.held += added;
        true
    }

    pub(super) fn remembered(&mut self, handle: Handle, index: u64) {
        if let Some(slot) = self.slot(handle) {
            slot.remembered = u32::try_from(index).ok();
        }
    }

    /// Whether a record is to be tried of it: once only, or what is put into many lists is looked at as often.
    pub(super) fn untried(&mut self, handle: Handle) -> bool {
        self.slot(handle).is_some_and(|slot| !std::mem::replace(&mut slot.tried, true))
    }

    /// Lets a list or dict go, with all that it holds, and returns where it was remembered.
    pub(super) fn release(&mut self, handle: Handle) -> Option<u64> {
        let remembered = self.slot(handle).and_then(|slot| slot.remembered);
        let mut pending = vec![handle];
        while let Some(handle) = pending.pop() {
            let Some(slot) = self.slot(handle) else { continue };
            slot.tenant = slot.tenant.wrapping_add(1) & TENANTS;
            slot.remembered = None;
            slot.tried = false;
            let count = slot.items.len();
            for item in slot.items.drain(..) {
                if let PickleValue::List(inner) | PickleValue::Dict(inner) = item {
                    pending.push(inner);
                }
            }
            if slot.items.capacity() > KEPT_CAPACITY {
                slot.items = Vec::new();
            }
            self.held -= count + SLOT_COST;
            self.vacant.push(handle.slot);
        }
        remembered.map(u64::from)
    }
}

/// Tenants of a slot are told apart by 28 bits.
const TENANTS: u32 = (1 << 28) - 1;
/// How many places may lie apart from the row that picklers fill.
const MAX_APART: usize = 1 << 20;
/// How many places may be used before their number must be in proportion to the file.
const FREE_PLACES: u64 = 1 << 20;

/// What a place takes in the row and apart from it.
const IN_ROW: u64 = 16;
const APART: u64 = 96;

/// What came of remembering a value.
pub(super) enum Put {
    Done,
    NoRoom,
    /// There are more places than the file has values.
    OutOfProportion,
}

/// The values that a pickle may refer back to, by place.
pub(super) struct Memo {
    row: Vec<Packed>,
    apart: HashMap<u64, Packed>,
    used: u64,
    charge: Charge,
}

impl Memo {
    pub(super) fn new(budget: &Budget) -> Memo {
        Memo { row: Vec::new(), apart: HashMap::new(), used: 0, charge: Charge::new(budget) }
    }

    /// The place that `MEMOIZE` uses.
    pub(super) fn next(&self) -> u64 {
        self.used
    }

    /// Remembers a value.
    pub(super) fn put(&mut self, index: u64, value: PickleValue, position: u64) -> Put {
        if self.used > FREE_PLACES + position / 8 || self.apart.len() > MAX_APART {
            return Put::OutOfProportion;
        }
        let packed = Packed::new(value);
        if let Some(place) = usize::try_from(index).ok().and_then(|index| self.row.get_mut(index)) {
            self.used += u64::from(place.is_empty());
            *place = packed;
        } else if index < 2 * self.used + 64 {
            if !self.charge.take(IN_ROW * (index + 1 - self.row.len() as u64)) {
                return Put::NoRoom;
            }
            self.row.resize(index as usize, Packed::EMPTY);
            self.row.push(packed);
            self.used += 1;
        } else {
            if !self.charge.take(APART) {
                return Put::NoRoom;
            }
            self.used += u64::from(self.apart.insert(index, packed).is_none());
        }
        Put::Done
    }

    pub(super) fn get(&self, index: u64) -> Option<PickleValue> {
        let place = usize::try_from(index).ok().and_then(|index| self.row.get(index));
        let place = place.filter(|place| !place.is_empty()).or_else(|| self.apart.get(&index));
        place.map(|packed| packed.value())
    }

    /// Puts a record where its dict or list was remembered.
    pub(super) fn replace(&mut self, index: u64, value: PickleValue) {
        let place = usize::try_from(index).ok().and_then(|index| self.row.get_mut(index));
        if let Some(place) = place.or_else(|| self.apart.get_mut(&index)) {
            *place = Packed::new(value);
        }
    }
}

/// A value in eight bytes: four bits of tag, 28 of kind or tenant, 32 of number. Plain numbers, which no
/// pickler remembers, do not fit and are not kept.
#[derive(Clone, Copy, PartialEq)]
struct Packed(u64);

impl Packed {
    const EMPTY: Packed = Packed(0);

    fn new(value: PickleValue) -> Self {
        let pack = |tag: u64, more: u32, id: u32| Packed(tag << 60 | u64::from(more) << 32 | u64::from(id));
        match value {
            PickleValue::None => pack(1, 0, 0),
            PickleValue::Bool(yes) => pack(2, 0, yes.into()),
            PickleValue::Str(Str(id)) => pack(3, 0, id),
            PickleValue::List(handle) => pack(4, handle.tenant, handle.slot),
            PickleValue::Dict(handle) => pack(5, handle.tenant, handle.slot),
            PickleValue::Record(kind, id) => pack(6, kind.into(), id),
            PickleValue::Nothing => pack(7, 0, 0),
            PickleValue::Int(_) | PickleValue::Float(_) | PickleValue::Run(..) | PickleValue::Other => {
                pack(8, 0, 0)
            }
        }
    }

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    fn value(self) -> PickleValue {
        let more = (self.0 >> 32) as u32 & TENANTS;
        let id = self.0 as u32;
        match self.0 >> 60 {
            1 => PickleValue::None,
            2 => PickleValue::Bool(id == 1),
            3 => PickleValue::Str(Str(id)),
            4 => PickleValue::List(Handle { slot: id, tenant: more }),
            5 => PickleValue::Dict(Handle { slot: id, tenant: more }),
            6 => PickleValue::Record(more as u8, id),
            7 => PickleValue::Nothing,
            _ => PickleValue::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::budget::Limits;

    #[test]
    fn what_is_remembered_comes_back_as_it_was() {
        let handle = Handle { slot: u32::MAX, tenant: TENANTS };
        let values = [
            PickleValue::None,
            PickleValue::Bool(true),
            PickleValue::Bool(false),
            PickleValue::Str(Str(u32::MAX)),
            PickleValue::List(handle),
            PickleValue::Dict(handle),
            PickleValue::Record(255, u32::MAX),
            PickleValue::Nothing,
            PickleValue::Other,
        ];
        for value in values {
            assert_eq!(Packed::new(value).value(), value);
        }
        assert_eq!(size_of::<Packed>(), 8);
        assert_eq!(size_of::<PickleValue>(), 16);
    }

    #[test]
    fn records_in_a_row_are_one_value_of_a_list() {
        let mut heap = Heap::new(&[], &Budget::new(Limits::default()));
        let list = heap.create();
        for id in 0..1000 {
            assert!(heap.extend(list, &[PickleValue::Record(3, id), PickleValue::Nothing], true));
        }
        assert!(heap.extend(list, &[PickleValue::Record(4, 1000)], true));
        assert_eq!(
            heap.items(PickleValue::List(list)),
            [PickleValue::Run(3, 0, 1000), PickleValue::Run(4, 1000, 1)]
        );
    }

    #[test]
    fn a_slot_used_again_is_not_seen_by_who_knew_its_last_tenant() {
        let mut heap = Heap::new(&[], &Budget::new(Limits::default()));
        let first = heap.create();
        heap.extend(first, &[PickleValue::Int(1)], true);
        heap.release(first);
        let second = heap.create();
        heap.extend(second, &[PickleValue::Int(2)], true);
        assert_eq!(heap.items(PickleValue::List(first)), []);
        assert_eq!(heap.items(PickleValue::List(second)), [PickleValue::Int(2)]);
        assert!(!heap.extend(first, &[PickleValue::Int(3)], true));
    }
}
