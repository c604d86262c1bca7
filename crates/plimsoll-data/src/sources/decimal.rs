//! Numbers in text, as the nearest `f32`. Most are a few digits with a point between, for which one exact division is
//! enough; all others go to a parser that knows every case.

/// Digits that a `f64` holds exactly.
const MOST_DIGITS: usize = 15;

/// The powers of ten by which those are divided, all of them exact.
const POWERS: [f64; MOST_DIGITS + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The number that these bytes begin with, as far as they are one, and how many of them it takes.
#[inline]
pub(super) fn parse_single(text: &[u8]) -> Option<(f32, usize)> {
    match parse_short(text, b'.') {
        Some(found) => Some(found),
        None => fast_float2::parse_partial::<f32, _>(text).ok(),
    }
}

/// The same for digits with a point, or what stands for it, between; without an exponent.
#[inline]
pub(super) fn parse_short(text: &[u8], point: u8) -> Option<(f32, usize)> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let (mut digits, mut at) = (0u64, sign);
    at += take_digits(&text[at..], &mut digits);
    let whole = at - sign;
    let mut fraction = 0;
    if whole > 0 && text.get(at) == Some(&point) {
        at += 1;
        if let Some(eight) = text[at..].first_chunk().and_then(eight_digits) {
            digits = digits.wrapping_mul(100_000_000).wrapping_add(eight);
            fraction = 8;
        }
        fraction += take_digits(&text[at + fraction..], &mut digits);
        at += fraction;
    }
    if whole == 0 || whole + fraction > MOST_DIGITS || matches!(text.get(at), Some(b'e' | b'E')) {
        return None;
    }
    let value = digits as f64 / POWERS[fraction];
    // It is rounded once here and once more to an `f32`, which comes to the same unless it is now halfway between two.
    if value.to_bits() << 35 == 1 << 63 {
        return None;
    }
    let value = value as f32;
    Some((if sign == 1 { -value } else { value }, at))
}

/// Adds the digits that these bytes begin with; returns how many there are. More than 19 may wrap.
#[inline]
fn take_digits(text: &[u8], digits: &mut u64) -> usize {
    let mut count = 0;
    while let Some(digit) = text.get(count).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        *digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
        count += 1;
    }
    count
}

/// The number that eight digits are: neighbours are added up in pairs, then in fours, then all.
#[inline]
fn eight_digits(text: &[u8; 8]) -> Option<u64> {
    let text = u64::from_le_bytes(*text);
    let digits = text.wrapping_sub(0x3030_3030_3030_3030);
    if (text.wrapping_add(0x4646_4646_4646_4646) | digits) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    Some(low.wrapping_add(high) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn short_numbers_are_the_nearest_singles(text in "-?[0-9]{1,9}([.][0-9]{0,12})?") {
            let (value, length) = parse_single(text.as_bytes()).unwrap();
            prop_assert_eq!(value.to_bits(), text.parse::<f32>().unwrap().to_bits());
            prop_assert_eq!(length, text.len());
        }

        /// These are halfway between two singles, a little above or a little below.
        #[test]
        fn numbers_next_to_the_middle_of_two_singles_are_rounded_once(
            bits in 0x3f80_0000u32..0x4b00_0000,
            off in -1i64..2,
        ) {
            let middle = (f64::from(f32::from_bits(bits)) + f64::from(f32::from_bits(bits + 1))) / 2.0;
            let text = format!("{:.7}", f64::from_bits(middle.to_bits().wrapping_add_signed(off)));
            prop_assert_eq!(parse_single(text.as_bytes()).unwrap().0, text.parse::<f32>().unwrap());
        }
    }

    #[test]
    fn a_number_ends_where_it_is_none_any_more() {
        let cases = [
            ("1.5,2", 1.5, 3),
            ("7 ", 7.0, 1),
            ("-0.25]", -0.25, 5),
            ("12345678.12345678,", 12_345_678.0, 17),
        ];
        for (text, value, length) in cases {
            assert_eq!(parse_single(text.as_bytes()), Some((value, length)));
        }
        for text in ["", "-", "x", ",1"] {
            assert_eq!(parse_single(text.as_bytes()), None, "{text}");
        }
    }
}
