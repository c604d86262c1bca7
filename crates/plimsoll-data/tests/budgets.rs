//! A budget is asked before memory is taken, and its refusal says how much, how much too much, and what to do.

use std::io::Cursor;

use plimsoll_data::{Columns, Csv, Dataset, ErrorKind, RamBudget, Source, Synthetic, digits};
use proptest::prelude::*;

proptest! {
    #[test]
    fn columns_never_hold_more_than_their_budget(limit in 0u64..2000, lengths in prop::collection::vec(1usize..10, 1..6)) {
        let mut columns = Columns::within(RamBudget::bytes(limit));
        let mut held = 0;
        for (at, length) in lengths.into_iter().enumerate() {
            let asked = held + 10 * 4 * length as u64;
            match columns.clone().column(&format!("c{at}"), &[length], vec![0.0; 10 * length]) {
                Ok(more) => {
                    columns = more;
                    held = asked;
                    prop_assert!(held <= limit);
                    prop_assert_eq!(columns.resident_bytes(), held);
                }
                Err(error) => {
                    prop_assert!(asked > limit);
                    let ErrorKind::OverBudget { bytes, limit: told, .. } = error.kind() else { panic!("{error}") };
                    prop_assert_eq!((*bytes, *told), (asked, limit));
                }
            }
        }
    }
}

#[test]
fn the_refusal_states_bytes_limit_and_remedy() {
    let error = Columns::within(RamBudget::bytes(100)).column("x", &[], vec![0.0; 30]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(
            "the columns would hold 120 bytes of RAM, 20 more than its budget of 100: use fewer"
        )
    );
}

#[test]
fn capacity_that_is_not_filled_is_counted_too() {
    let mut values = Vec::with_capacity(100);
    values.push(1.0);
    assert!(Columns::within(RamBudget::bytes(399)).column("x", &[], values).is_err());
}

#[test]
fn a_csv_file_is_refused_before_its_values_are_read() {
    // 3 rows of 3 values of 4 bytes, and the longest line's 6 bytes. The last row would not parse.
    let text = "a,b,c\n1,2,0\n3,4,1\n5,6,x\n";
    let read = |limit| Csv::label("c").budget(RamBudget::bytes(limit)).read(Cursor::new(text)).unwrap_err();
    assert!(matches!(read(41).kind(), ErrorKind::OverBudget { bytes: 42, limit: 41, .. }), "{}", read(41));
    assert!(matches!(read(42).kind(), ErrorKind::Parse { line: 4, .. }), "{}", read(42));
}

#[test]
fn a_csv_line_longer_than_the_budget_is_refused_unread() {
    let text = format!("a,b\n1,{}", "0".repeat(1000));
    let error = Csv::label("b").budget(RamBudget::bytes(500)).read(Cursor::new(text)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OverBudget { bytes: 1002, limit: 500, .. }), "{error}");
}

#[test]
fn csv_columns_hold_exactly_their_values() {
    let columns = Csv::label("c").read(Cursor::new("a,b,c\n1,2,0\n3,4,1\n")).unwrap();
    assert_eq!(columns.resident_bytes(), 2 * 3 * 4);
}

#[test]
fn any_data_set_can_be_held_to_a_budget() {
    let digits = Dataset::new(digits()).unwrap();
    assert!(digits.clone().within(RamBudget::bytes(116_805)).is_ok());
    let error = digits.clone().within(RamBudget::bytes(116_804)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OverBudget { bytes: 116_805, limit: 116_804, .. }), "{error}");
    assert!(digits.within(RamBudget::UNLIMITED).is_ok());
    let endless = Dataset::new(Synthetic::new(isize::MAX as usize, 0).classes("label", 2).unwrap()).unwrap();
    assert!(endless.within(RamBudget::bytes(0)).is_ok());
}
