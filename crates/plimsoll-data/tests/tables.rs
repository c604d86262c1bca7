//! Tables that pyarrow wrote (`scripts/export_tables.py`), read row by row; and what is said of nulls, columns that there are
//! not, and files that are cut off or spoiled.
#![cfg(feature = "parquet")]

use plimsoll_data::sources::{Table, arrow, parquet};
use plimsoll_data::{Dataset, Record, Result, Source};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const ROWS: usize = 50;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables").join(name)
}

fn open(path: &Path) -> Result<Table> {
    if path.extension().is_some_and(|ending| ending == "parquet") { parquet(path) } else { arrow(path) }
}

fn opened(name: &str) -> Table {
    open(&file(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn record(table: &Table) -> Record {
    Record::new(&table.fields().to_vec().into())
}

/// What `export_tables.py` calls `numbers`.
fn check_numbers(row: usize, record: &Record) {
    assert_eq!(record.get::<f32>("single").unwrap(), [row as f32 / 2.0 - 3.0]);
    assert_eq!(record.get::<u8>("text").unwrap(), format!("row {}", "ä".repeat(row % 5)).as_bytes());
    let list: Vec<f32> = (0..row % 4).map(|at| row as f32 + at as f32 / 4.0).collect();
    assert_eq!(record.get::<f32>("list").unwrap(), list);
}

/// What `export_tables.py` calls `everything`.
fn check_everything(row: usize, record: &Record) {
    check_numbers(row, record);
    assert_eq!(record.get::<f64>("double").unwrap(), [row as f64 / 3.0]);
    assert_eq!(record.get::<f32>("half").unwrap(), [row as f32 / 4.0]);
    assert_eq!(record.get::<i32>("tiny").unwrap(), [row as i32 - 25]);
    assert_eq!(record.get::<i32>("short").unwrap(), [row as i32 * -300]);
    assert_eq!(record.get::<i32>("count").unwrap(), [row as i32 * 1000]);
    assert_eq!(record.get::<i32>("word").unwrap(), [row as i32 * -70000]);
    assert_eq!(record.get::<i64>("unsigned").unwrap(), [row as i64 + 4_000_000_000]);
    assert_eq!(record.get::<i64>("long").unwrap(), [row as i64 * 1_000_000_007]);
    assert_eq!(record.get::<u8>("byte").unwrap(), [row as u8 * 5]);
    assert_eq!(record.get::<u8>("flag").unwrap(), [u8::from(row.is_multiple_of(3))]);
    assert_eq!(record.get::<u8>("kind").unwrap(), ["a", "bb", "ccc"][row % 3].as_bytes());
    assert_eq!(record.get::<u8>("raw").unwrap(), vec![row as u8; row % 4]);
    assert_eq!(record.get::<u8>("code").unwrap(), [row as u8, row as u8 + 1]);
    assert_eq!(record.get::<i32>("triple").unwrap(), [row as i32, row as i32 + 1, row as i32 + 2]);
    assert_eq!(record.get::<i64>("pair").unwrap(), [row as i64, -(row as i64)]);
}

#[test]
fn every_kind_of_column_is_a_field() {
    for name in ["everything.parquet", "everything.arrow"] {
        let table = opened(name);
        let fields: Vec<String> = table.fields().iter().map(|field| field.to_string()).collect();
        let wanted = "single: f32 []; text: u8 [?]; list: f32 [?]; double: f64 []; half: f32 []; tiny: i32 []; short: i32 []; \
                      count: i32 []; word: i32 []; unsigned: i64 []; long: i64 []; byte: u8 []; flag: u8 []; kind: u8 [?]; \
                      raw: u8 [?]; code: u8 [2]; triple: i32 [3]; pair: i64 [?]";
        assert_eq!((fields.join("; "), table.samples()), (wanted.to_string(), ROWS), "{name}");
        let mut record = record(&table);
        for row in 0..ROWS {
            table.read_record(row, &mut record).unwrap_or_else(|error| panic!("{error}"));
            check_everything(row, &record);
        }
        assert!(table.read_record(ROWS, &mut record).is_err());
    }
}

#[test]
fn pages_of_every_packing_are_read() {
    let names = ["none", "gzip", "zstd", "lz4", "second-pages"].map(|name| format!("{name}.parquet"));
    let others = ["stream", "zstd", "lz4"].map(|name| format!("{name}.arrow"));
    for name in names.iter().chain(&others) {
        let table = opened(name);
        let mut record = record(&table);
        for row in 0..ROWS {
            table.read_record(row, &mut record).unwrap_or_else(|error| panic!("{error}"));
            check_numbers(row, &record);
        }
    }
}

#[test]
fn columns_are_chosen_by_name_in_the_order_of_the_names() {
    for name in ["everything.parquet", "everything.arrow"] {
        let table = opened(name).columns(&["triple", "kind", "single"]).unwrap();
        let fields: Vec<&str> = table.fields().iter().map(|field| field.name()).collect();
        assert_eq!(fields, ["triple", "kind", "single"]);
        let mut record = record(&table);
        table.read_record(34, &mut record).unwrap();
        assert_eq!(record.get::<i32>("triple").unwrap(), [34, 35, 36]);
        assert_eq!(record.get::<u8>("kind").unwrap(), b"bb");
        assert_eq!(record.get::<f32>("single").unwrap(), [14.0]);
        let mut triple = [0; 12];
        table.read(35, 0, &mut triple).unwrap();
        assert_eq!(integers(&triple), [35, 36, 37]);
        let refusal = |names: &[&str]| opened(name).columns(names).unwrap_err().to_string();
        assert!(refusal(&["tripel"]).contains("there is no field `tripel`; the fields are: single"));
        assert!(refusal(&["single", "single"]).contains("there already is a field"));
        assert!(
            refusal(&["when"]).contains("field `when`: a column of Timestamp("),
            "{}",
            refusal(&["when"])
        );
    }
}

fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn lists_that_are_all_as_long_can_be_given_a_shape() {
    let table = opened("everything.parquet").columns(&["pair", "list"]).unwrap().shape("pair", &[2]).unwrap();
    assert_eq!(table.fields()[0].to_string(), "pair: i64 [2]");
    let mut pair = [0; 16];
    table.read(41, 0, &mut pair).unwrap();
    assert_eq!(pair[..8], 41i64.to_ne_bytes());
    assert_eq!(pair[8..], (-41i64).to_ne_bytes());
    assert!(
        table.read(41, 1, &mut []).unwrap_err().to_string().contains("read whole records, or say its shape")
    );
    let table = table.shape("list", &[3]).unwrap();
    let (mut record, mut list) = (record(&table), [0; 12]);
    table.read_record(3, &mut record).unwrap();
    let error = table.read(42, 1, &mut list).unwrap_err().to_string();
    assert!(error.contains("sample 42: column `list`: the row has 2 values where 3 are expected"), "{error}");
    assert!(table.shape("pair", &[3, 0]).is_err());
    assert!(opened("everything.parquet").shape("triple", &[3]).is_err());
}

#[test]
fn nulls_are_refused_with_their_row_or_filled() {
    for name in ["nulls.parquet", "nulls.arrow"] {
        let columns = ["number", "text", "list", "pair", "kind"];
        let mut refused = Vec::new();
        for column in columns {
            let table = opened(name).columns(&[column]).unwrap();
            let mut record = record(&table);
            for row in 0..4 {
                if let Err(error) = table.read_record(row, &mut record) {
                    let error = error.to_string();
                    assert!(error.contains(&format!("sample {row}: column `{column}`: ")), "{error}");
                    assert!(error.contains("is null; leave the row out"), "{error}");
                    refused.push((column, row));
                }
            }
        }
        let wanted =
            [("number", 1), ("text", 2), ("list", 0), ("list", 2), ("pair", 2), ("pair", 3), ("kind", 1)];
        assert_eq!(refused, wanted, "{name}");

        let filled = columns.iter().fold(opened(name), |table, column| table.fill(column, 9.0).unwrap());
        let mut record = record(&filled);
        let mut rows = Vec::new();
        for row in 0..4 {
            filled.read_record(row, &mut record).unwrap();
            rows.push((
                record.get::<i32>("number").unwrap()[0],
                String::from_utf8(record.get::<u8>("text").unwrap().to_vec()).unwrap(),
                record.get::<f64>("list").unwrap().to_vec(),
                record.get::<u8>("pair").unwrap().to_vec(),
            ));
        }
        let row = |number, text: &str, list: &[f64], pair: [u8; 2]| {
            (number, text.to_string(), list.to_vec(), pair.to_vec())
        };
        let wanted = [
            row(1, "a", &[1.0, 9.0], [1, 2]),
            row(9, "b", &[], [3, 4]),
            row(3, "", &[], [5, 9]),
            row(4, "d", &[2.0], [9, 9]),
        ];
        assert_eq!(rows, wanted, "{name}");
    }
}

#[test]
fn rows_are_the_same_on_every_thread_and_in_every_order() {
    for name in ["everything.parquet", "second-pages.parquet", "stream.arrow"] {
        let table = opened(name);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let mut record = record(table);
                    for row in 0..ROWS {
                        // 7 and 50 have no common divisor: every row comes once.
                        let row = (row * 7 + thread * 13) % ROWS;
                        table.read_record(row, &mut record).unwrap();
                        check_numbers(row, &record);
                    }
                });
            }
        });
    }
}

#[test]
fn a_table_is_a_data_set_that_says_what_it_keeps() {
    let table = opened("everything.parquet").columns(&["double", "flag"]).unwrap();
    assert!((100..100_000).contains(&table.resident_bytes()), "{}", table.resident_bytes());
    assert!((10..10_000).contains(&table.reading_bytes()), "{}", table.reading_bytes());
    let dataset = Dataset::new(table).unwrap();
    dataset.check().unwrap();
    dataset.check_labels("flag", 2).unwrap();
    assert!(dataset.check_labels("flag", 1).is_err());
}

#[test]
fn files_that_are_something_else_are_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables.rs");
    let refusal = parquet(&here).unwrap_err().to_string();
    assert!(refusal.contains("tables.rs: it cannot be read as Parquet"), "{refusal}");
    let refusal = arrow(&here).unwrap_err().to_string();
    assert!(refusal.contains("tables.rs: it cannot be read as Arrow"), "{refusal}");
    assert!(parquet(file("none")).is_err());
}

#[test]
fn a_page_that_claims_more_than_its_column_has_is_refused_before_memory_is_taken_for_it() {
    for name in ["gzip.parquet", "zstd.parquet", "lz4.parquet"] {
        let mut bytes = std::fs::read(file(name)).unwrap();
        let footer = bytes.len() - 8;
        let length = u32::from_le_bytes(*bytes[footer..].first_chunk().unwrap()) as usize;
        // The last page's header: three numbers, of which the first says that it is a data page, 0, and the second, of one
        // or two bytes here, what it unpacks to. What is before it stays where it is.
        let is_header = |at: &[u8]| {
            let size = if at[3] < 0x80 { 1 } else { 2 };
            at[0] == 0x15 && at[1] == 0 && at[2] == 0x15 && at[3 + size] == 0x15
        };
        let page = bytes[..footer - length].windows(6).rposition(is_header).unwrap();
        let size = page + 3..page + if bytes[page + 3] < 0x80 { 4 } else { 5 };
        bytes.splice(size, [0xfe, 0xff, 0xff, 0xff, 0x0f]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claims.parquet");
        std::fs::write(&path, bytes).unwrap();
        let table = open(&path).unwrap();
        let mut record = record(&table);
        let error = (0..ROWS).find_map(|row| table.read_record(row, &mut record).err()).unwrap().to_string();
        assert!(
            error.contains("a page claims 2147483647 bytes, where its column may have 1048576 at most"),
            "{error}"
        );
    }
}

/// Opens a file of these bytes and reads all rows, as far as they can be.
fn read_all(folder: &Path, ending: &str, bytes: &[u8]) {
    let path = folder.join(format!("spoiled.{ending}"));
    std::fs::write(&path, bytes).unwrap();
    let Ok(table) = open(&path) else { return };
    let mut record = record(&table);
    for row in 0..table.samples().min(2 * ROWS) {
        let _ = table.read_record(row, &mut record);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn spoiled_files_are_refused_or_read_but_never_panic(
        name in prop::sample::select(vec![
            "everything.parquet", "none.parquet", "gzip.parquet", "zstd.parquet", "lz4.parquet", "second-pages.parquet",
            "nulls.parquet", "everything.arrow", "stream.arrow", "lz4.arrow", "zstd.arrow", "nulls.arrow",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(file(name)).unwrap();
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        read_all(folder.path(), name.rsplit('.').next().unwrap(), &bytes);
    }
}
