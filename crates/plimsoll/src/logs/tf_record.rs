//! TFRecord framing: the length of a record, a checksum of the length, the record, a checksum of it.
//!
//! Checksums are CRC-32C, rotated and offset, so that the checksum of a record that itself holds checksums is no
//! coincidence.

/// Appends a record to the bytes of a file.
pub(super) fn frame(record: &[u8], out: &mut Vec<u8>) {
    let length = (record.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(record);
    out.extend_from_slice(&masked_crc(record).to_le_bytes());
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), reflected, eight bytes at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut crc = !0u32;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(crc);
        crc = (0..8).fold(0, |crc, byte| crc ^ TABLES[7 - byte][(word >> (8 * byte)) as usize & 0xff]);
    }
    for &byte in rest {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(byte)) & 0xff) as usize];
    }
    !crc
}

/// `TABLES[n][b]` is what a byte b does to the checksum n bytes later.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut later = 1;
    while later < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[later - 1][byte];
            tables[later][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        later += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        for (bytes, crc) in [
            (&b"123456789"[..], 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&falling, 0x113f_db5c),
            (&[], 0),
        ] {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    #[test]
    fn the_first_record_of_every_event_file_begins_with_the_known_bytes() {
        // Time, step and `brain.Event:2` are 24 bytes where the step is left out, as TensorFlow does.
        let mut out = vec![];
        frame(&[0; 24], &mut out);
        assert_eq!(out[..12], [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(out.len(), 12 + 24 + 4);
    }

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_are_as_one_by_one(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let slow = bytes.iter().fold(!0u32, |crc, &byte| {
                (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                    if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
                })
            });
            prop_assert_eq!(crc32c(&bytes), !slow);
        }
    }
}
