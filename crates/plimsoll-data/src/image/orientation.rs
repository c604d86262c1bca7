//! How a camera was held. EXIF says it by a number from 1 to 8; the pixels are stored as the sensor saw them.

/// The tag of the orientation.
const TAG: u16 = 0x0112;
/// The type of its value, 16 bits.
const SHORT: u16 = 3;

/// What makes a stored image upright: perhaps an exchange of rows and columns, then perhaps turning over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Rows become columns.
    transposed: bool,
    /// Then the last row is the first.
    from_bottom: bool,
    /// Then the last column is the first.
    from_right: bool,
}

impl Orientation {
    /// What EXIF data says, as stored in a file: TIFF. An image that says nothing that can be understood is upright.
    pub(super) fn read(exif: &[u8]) -> Orientation {
        let (transposed, from_bottom, from_right) = match number(exif) {
            Some(2) => (false, false, true),
            Some(3) => (false, true, true),
            Some(4) => (false, true, false),
            Some(5) => (true, false, false),
            Some(6) => (true, false, true),
            Some(7) => (true, true, true),
            Some(8) => (true, true, false),
            _ => (false, false, false),
        };
        Orientation { transposed, from_bottom, from_right }
    }

    pub(super) fn is_upright(self) -> bool {
        self == Orientation::default()
    }

    /// Writes the upright image of a stored one of this shape, and returns its shape.
    pub(super) fn turn(self, from: &[u8], shape: [usize; 3], to: &mut [u8]) -> [usize; 3] {
        let [rows, columns, channels] = shape;
        let (height, width) = if self.transposed { (columns, rows) } else { (rows, columns) };
        for (row, to) in to.chunks_exact_mut(width * channels).enumerate() {
            let row = if self.from_bottom { height - 1 - row } else { row };
            for (column, to) in to.chunks_exact_mut(channels).enumerate() {
                let column = if self.from_right { width - 1 - column } else { column };
                let place = if self.transposed { column * columns + row } else { row * columns + column };
                to.copy_from_slice(&from[place * channels..][..channels]);
            }
        }
        [height, width, channels]
    }
}

/// The orientation in the first directory of a TIFF file.
fn number(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let word = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let first = tiff.get(4..8)?.try_into().ok()?;
    let first = if is_little { u32::from_le_bytes(first) } else { u32::from_be_bytes(first) } as usize;
    let entries = usize::from(word(first)?);
    let entry = |number: usize| first + 2 + 12 * number;
    let found =
        (0..entries).map(entry).take_while(|at| *at < tiff.len()).find(|&at| word(at) == Some(TAG))?;
    (word(found + 2)? == SHORT).then(|| word(found + 8)).flatten()
}
