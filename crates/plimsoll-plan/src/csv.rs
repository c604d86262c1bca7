//! Packing problems and their solutions as text.
//!
//! The format is a header and one line for each item: `id,lower,upper,size`, and `offset` in solutions. It is
//! what allocator papers trade their hard cases in, and what a spreadsheet makes of a trace. Columns are found
//! by their names and others are left alone; lifetimes are half-open, as everywhere.

use std::fmt;

use crate::packing::{Item, Packing, Problem};
use crate::{Error, ErrorKind};

/// Items with the names they have in a file, and where they lie if the file says so.
///
/// ```
/// use plimsoll_plan::csv::Table;
/// use plimsoll_plan::pack::pack_quick;
///
/// let mut table = Table::parse("id,lower,upper,size\nweights,0,9,64\nx,2,5,32\n")?;
/// let packing = pack_quick(&table.problem(1)?);
/// table.offsets = Some(packing.offsets);
/// assert_eq!(table.to_string(), "id,lower,upper,size,offset\nweights,0,9,64,0\nx,2,5,32,64\n");
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What each item is called.
    pub ids: Vec<String>,
    /// The items.
    pub items: Vec<Item>,
    /// The offset of each item, in a solution.
    pub offsets: Option<Vec<u64>>,
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    ///
    /// Names the line, what stands there and what was expected.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let (first, header) = lines
            .next()
            .ok_or_else(|| bad(1, "the file is empty; expected the header `id,lower,upper,size`".into()))?;
        let columns = Columns::find(first, header)?;
        let mut table = Self { offsets: columns.offset.map(|_| Vec::new()), ..Self::default() };
        for (line, text) in lines {
            let fields = fields(line, text)?;
            if fields.len() != columns.count {
                let (found, expected) = (fields.len(), columns.count);
                return Err(bad(line, format!("{found} fields, expected {expected} as in the header")));
            }
            let number = |name: &str, column: usize| {
                let field = &fields[column];
                let explain =
                    |_| bad(line, format!("{name} is `{field}`, expected a whole number below 2^64"));
                field.parse::<u64>().map_err(explain)
            };
            let (lower, upper) = (number("lower", columns.lower)?, number("upper", columns.upper)?);
            if lower > upper {
                return Err(bad(
                    line,
                    format!("upper is {upper}, expected at least lower, which is {lower}"),
                ));
            }
            table.items.push(Item::new(lower, upper, number("size", columns.size)?));
            if let (Some(offsets), Some(column)) = (&mut table.offsets, columns.offset) {
                offsets.push(number("offset", column)?);
            }
            table.ids.push(fields[columns.id].clone());
        }
        Ok(table)
    }

    /// The problem of packing these items.
    ///
    /// # Errors
    ///
    /// As [`Problem::new`].
    pub fn problem(&self, alignment: u64) -> Result<Problem, Error> {
        Problem::new(self.items.clone(), alignment)
    }

    /// The packing that the offsets describe, if there are any.
    #[must_use]
    pub fn packing(&self, problem: &Problem) -> Option<Packing> {
        self.offsets.as_ref().map(|offsets| Packing::from_offsets(problem, offsets.clone()))
    }
}

/// The text that [`Table::parse`] reads.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            if self.offsets.is_some() { "id,lower,upper,size,offset" } else { "id,lower,upper,size" };
        writeln!(f, "{header}")?;
        for (index, (id, item)) in self.ids.iter().zip(&self.items).enumerate() {
            write!(f, "{},{},{},{}", quoted(id), item.lifetime.lower, item.lifetime.upper, item.size)?;
            match self.offsets.as_ref().and_then(|offsets| offsets.get(index)) {
                Some(offset) => writeln!(f, ",{offset}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// Where the columns are.
struct Columns {
    count: usize,
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
    offset: Option<usize>,
}

impl Columns {
    fn find(line: usize, header: &str) -> Result<Self, Error> {
        let names = fields(line, header.trim_start_matches('\u{feff}'))?;
        let find = |name: &str| {
            let mut columns = (0..names.len()).filter(|&column| names[column] == name);
            let column = columns.next();
            match columns.next() {
                Some(_) => Err(bad(line, format!("two columns are called `{name}`"))),
                None => Ok(column),
            }
        };
        let need = |name: &str| {
            let expected = "expected the columns id, lower, upper and size, and in solutions offset";
            find(name)?
                .ok_or_else(|| bad(line, format!("no column `{name}` in `{}`; {expected}", header.trim())))
        };
        Ok(Self {
            count: names.len(),
            id: need("id")?,
            lower: need("lower")?,
            upper: need("upper")?,
            size: need("size")?,
            offset: find("offset")?,
        })
    }
}

/// The fields of a line. One in quotes may contain commas, and quotes if these are doubled.
fn fields(line: usize, text: &str) -> Result<Vec<String>, Error> {
    let mut fields = Vec::new();
    let mut rest = text.trim();
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(inside) => {
                let end = closing_quote(inside)
                    .ok_or_else(|| bad(line, "a quote is opened and never closed".into()))?;
                (inside[..end].replace("\"\"", "\""), inside[end + 1..].trim_start())
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if after.is_empty() => return Ok(fields),
            None => {
                return Err(bad(line, format!("expected a comma after the closing quote, before `{after}`")));
            }
        }
    }
}

/// The first quote that is not doubled.
fn closing_quote(text: &str) -> Option<usize> {
    let mut quotes = text.match_indices('"').map(|(position, _)| position).peekable();
    while let Some(position) = quotes.next() {
        if quotes.next_if_eq(&(position + 1)).is_none() {
            return Some(position);
        }
    }
    None
}

/// A field that reads back as `id`.
fn quoted(id: &str) -> String {
    let plain = !id.contains([',', '"']) && id.trim() == id;
    if plain { id.to_owned() } else { format!("\"{}\"", id.replace('"', "\"\"")) }
}

fn bad(line: usize, message: String) -> Error {
    Error::new(ErrorKind::Csv { line }, format!("line {line}: {message}"))
}
