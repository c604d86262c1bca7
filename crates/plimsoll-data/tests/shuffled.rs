//! Rows of a file that are parsed ahead by threads and drawn from a shuffle buffer: the order of rows that lie in memory, at any
//! place from which one goes on, also where a row cannot be read.

use plimsoll_data::{Columns, Csv, Dataset, ErrorKind, Position, RamBudget, Result, Workers};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Too many to be kept in memory, in lines of one length.
const ROWS: usize = 70_000;
const LINE: usize = 76;

fn write(folder: &Path) -> PathBuf {
    let path = folder.join("rows.csv");
    let rows: String = (0..ROWS).map(|row| format!("{row:010}.{:062},{}\n", 0, row % 3)).collect();
    std::fs::write(&path, format!("x,label\n{rows}")).unwrap();
    path
}

fn parsed(path: &Path) -> Dataset {
    let data = Dataset::new(Csv::label("label").open(path).unwrap()).unwrap();
    assert!(data.source().unwrap().reads_whole_records());
    data
}

fn in_memory() -> Dataset {
    let columns = Columns::new().column("features", &[1], (0..ROWS).map(|row| row as f32).collect());
    let columns = columns.unwrap().column("label", &[], (0..ROWS).map(|row| row as i32 % 3).collect());
    Dataset::new(columns.unwrap()).unwrap()
}

/// The rows that follow a position.
fn rows(data: &Dataset, from: Option<&Position>) -> Vec<usize> {
    let mut records = from.map_or_else(|| data.records(5), |from| data.records_from(from)).unwrap();
    let mut rows = vec![];
    while let Some(record) = records.read().unwrap() {
        let row = record.get::<f32>("features").unwrap()[0] as usize;
        assert_eq!(record.get::<i32>("label").unwrap(), [row as i32 % 3]);
        rows.push(row);
    }
    rows
}

/// Where one is after so many rows.
fn position_after(data: &Dataset, count: usize) -> Position {
    let mut records = data.records(5).unwrap();
    for _ in 0..count {
        records.read().unwrap().unwrap();
    }
    Position::from_numbers(&records.position().to_numbers()).unwrap()
}

#[test]
fn rows_that_are_parsed_ahead_are_drawn_in_the_order_of_rows_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let data = parsed(&write(folder.path()));
    for buffer in [1, 300, 2 * ROWS] {
        let expected = rows(&in_memory().shuffle(buffer, 7), None);
        assert!(rows(&data.shuffle(buffer, 7), None) == expected, "from a buffer of {buffer}");
    }
    // Where the budget has room for the buffer alone, nothing is parsed ahead.
    let buffer = data.shuffled_record_bytes() * 300;
    let tight = data.clone().within(RamBudget::bytes(data.resident_bytes() + buffer)).unwrap();
    assert!(rows(&tight.shuffle(300, 7), None) == rows(&in_memory().shuffle(300, 7), None));
}

#[test]
fn a_place_in_a_shuffle_is_a_few_numbers_and_leads_to_the_rows_that_were_to_come() {
    let folder = tempfile::tempdir().unwrap();
    let data = parsed(&write(folder.path()));
    let copied = |workers: usize| {
        let fields = data.fields().to_vec();
        data.map(Workers::Threads(workers), &fields, |from, to| {
            to.copy_from(from);
            Ok(())
        })
    };
    for data in [data.shuffle(400, 2), copied(0).unwrap().shuffle(400, 2), copied(7).unwrap().shuffle(400, 2)]
    {
        let whole = rows(&data, None);
        for count in [0, 1, 399, 20_011, ROWS - 400, ROWS - 1, ROWS] {
            let position = position_after(&data, count);
            assert!(position.to_numbers().len() < 12, "{:?}", position.to_numbers());
            assert!(rows(&data, Some(&position)) == whole[count..], "after {count}");
        }
    }
}

#[test]
fn a_place_that_more_rows_are_drawn_at_than_there_are_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = parsed(&write(folder.path())).shuffle(100, 2);
    let good = position_after(&data, 500).to_numbers();
    assert!(data.records_from(&Position::from_numbers(&good).unwrap()).is_ok());
    for place in 2..good.len() {
        for wrong in [u64::MAX - 1, 1 << 40] {
            let mut numbers = good.clone();
            numbers[place] = wrong;
            let error =
                data.records_from(&Position::from_numbers(&numbers).unwrap()).map(|_| ()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Position { .. }), "{place}: {error}");
        }
    }
}

#[test]
fn a_row_that_cannot_be_read_is_named_and_costs_no_other() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path());
    let data = parsed(&path);
    // Spoiled after the file was checked.
    let spoiled = 12_345;
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(("x,label\n".len() + spoiled * LINE) as u64)).unwrap();
    file.write_all(b"spoiled").unwrap();

    let shuffled = data.shuffle(500, 4);
    let mut records = shuffled.records(5)?;
    let error = loop {
        match records.read() {
            Ok(more) => assert!(more.is_some(), "it was read"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains(&format!("sample {spoiled}")) && error.contains("`spoiled"), "{error}");

    let tolerant = shuffled.skip_errors(1);
    let mut whole = rows(&tolerant, None);
    for count in [12_000, 30_000] {
        let position = position_after(&tolerant, count);
        assert!(rows(&tolerant, Some(&position)) == whole[count..], "after {count}");
    }
    whole.sort_unstable();
    assert!(whole == (0..ROWS).filter(|&row| row != spoiled).collect::<Vec<_>>());
    Ok(())
}
