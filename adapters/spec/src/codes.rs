//! Exit codes and HTTP statuses, as numbers and ranges: `75`, `100-110`.

use std::ops::RangeInclusive;

/// The codes that a command can end with.
pub(crate) const EXIT_CODES: RangeInclusive<u16> = 0..=255;
/// The statuses of HTTP.
pub(crate) const STATUSES: RangeInclusive<u16> = 100..=599;

/// What is wrong with a code or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Neither a number nor two with a hyphen between them.
    Form,
    /// One of its ends is not among the codes that there are.
    OutOfRange,
    /// Its last code is smaller than its first.
    Backwards,
}

/// Reads a code or a range of them: its first and its last one, both of which are among `all`.
pub(crate) fn parse(text: &str, all: &RangeInclusive<u16>) -> Result<(u16, u16), Wrong> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    if !all.contains(&first) || !all.contains(&last) {
        return Err(Wrong::OutOfRange);
    }
    if last < first { Err(Wrong::Backwards) } else { Ok((first, last)) }
}

fn number(text: &str) -> Result<u16, Wrong> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // What doesn't fit is out of every range.
    if is_number { Ok(text.parse().unwrap_or(u16::MAX)) } else { Err(Wrong::Form) }
}

/// Brings a list into its one canonical form: in order, and what touches in one range. A list that is wrong stays as it is.
pub(crate) fn normalise(list: &mut Vec<String>, all: &RangeInclusive<u16>) {
    let Ok(mut ranges) = list.iter().map(|text| parse(text, all)).collect::<Result<Vec<_>, _>>() else { return };
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let text = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    *list = merged.iter().map(text).collect();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_is_a_number_or_two() {
        for (text, expected) in [("75", Ok((75, 75))), ("100-110", Ok((100, 110))), (" 0 - 255 ", Ok((0, 255)))] {
            assert_eq!(parse(text, &EXIT_CODES), expected, "{text}");
        }
        for text in ["", "-", "-1", "1-", "1-2-3", "+1", "5xx", "1.5", "\u{0661}"] {
            assert_eq!(parse(text, &EXIT_CODES), Err(Wrong::Form), "{text}");
        }
        for text in ["256", "0-256", "99999999999999999999"] {
            assert_eq!(parse(text, &EXIT_CODES), Err(Wrong::OutOfRange), "{text}");
        }
        assert_eq!(parse("99", &STATUSES), Err(Wrong::OutOfRange));
        assert_eq!(parse("599-500", &STATUSES), Err(Wrong::Backwards));
    }

    proptest! {
        #[test]
        fn the_canonical_list_means_the_same(ranges in proptest::collection::vec((0..=255_u16, 0..40_u16), 0..6)) {
            let written: Vec<(u16, u16)> = ranges.into_iter().map(|(first, length)| (first, (first + length).min(255))).collect();
            let mut list: Vec<String> = written.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            normalise(&mut list, &EXIT_CODES);
            let read: Vec<_> = list.iter().map(|text| parse(text, &EXIT_CODES).unwrap()).collect();
            prop_assert!(read.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{list:?}");
            for code in EXIT_CODES {
                let is_in = |ranges: &[(u16, u16)]| ranges.iter().any(|(first, last)| (*first..=*last).contains(&code));
                prop_assert_eq!(is_in(&read), is_in(&written));
            }
        }
    }
}
