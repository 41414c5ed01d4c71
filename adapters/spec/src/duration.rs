//! Durations as people write them: `500ms`, `10s`, `5m`, `2h`, `1d`, `1h30m`.

use punctual_core::time::Millis;

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing there.
    #[error("it is empty: write a number and a unit, such as 10s")]
    Empty,
    /// A minus sign.
    #[error("it is negative: durations run forwards")]
    Negative,
    /// A number with no unit.
    #[error("it has no unit: write {number}s for seconds, or one of ms, s, m, h, d")]
    NoUnit {
        /// The number.
        number: String,
    },
    /// A unit that is none.
    #[error("`{unit}` is not a unit: use ms, s, m, h or d")]
    Unit {
        /// The text in its place.
        unit: String,
    },
    /// Units that are repeated, or a smaller one before a larger one.
    #[error("`{unit}` may not follow here: larger units first, each once, as in 1h30m")]
    Order {
        /// The unit.
        unit: String,
    },
    /// More than 64 bits of milliseconds.
    #[error("it is too long: the longest duration is {}", format(punctual_core::limits::DELAY_MAX))]
    Overflow,
    /// Something else.
    #[error("it is not a duration: write numbers and units, such as 500ms, 10s, 5m, 2h, 1d or 1h30m")]
    Malformed,
}

/// Reads a duration: one or more whole numbers, each with a unit, larger units first.
///
/// # Errors
///
/// Says what is wrong with the text. Zero is a duration; whether it is allowed is for the field to say.
pub fn parse(text: &str) -> Result<Millis, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(if rest.starts_with('-') { DurationError::Negative } else { DurationError::Malformed });
        }
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, next) = after.split_at(letters);
        if unit.is_empty() {
            return Err(if after.is_empty() { DurationError::NoUnit { number: number.to_owned() } } else { DurationError::Malformed });
        }
        let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::Unit { unit: unit.to_owned() });
        };
        if *millis >= smallest {
            return Err(DurationError::Order { unit: unit.to_owned() });
        }
        smallest = *millis;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis)).ok_or(DurationError::Overflow)?;
        total = total.checked_add(part).ok_or(DurationError::Overflow)?;
        rest = next;
    }
    Ok(Millis(total))
}

/// The one canonical text of a duration: `90s` comes out as `1m30s`.
pub fn format(duration: Millis) -> String {
    if duration == Millis::ZERO {
        return "0s".to_owned();
    }
    let mut rest = duration.0;
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if rest >= millis {
            text.push_str(&(rest / millis).to_string());
            text.push_str(unit);
            rest %= millis;
        }
    }
    text
}

/// Durations as text in serde's formats.
pub(crate) mod text {
    use punctual_core::time::Millis;
    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    struct DurationVisitor;

    impl Visitor<'_> for DurationVisitor {
        type Value = Millis;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration such as 10s")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Millis, E> {
            super::parse(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    pub(crate) fn serialize<S: Serializer>(duration: &Millis, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Millis, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

/// The same for durations that may be left out.
pub(crate) mod optional_text {
    use punctual_core::time::Millis;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Option<Millis>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::text::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Millis>, D::Error> {
        super::text::deserialize(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis, canonical) in [
            ("500ms", 500, "500ms"),
            ("10s", 10_000, "10s"),
            ("90s", 90_000, "1m30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("48h", 172_800_000, "2d"),
            ("1d1h1m1s1ms", 90_061_001, "1d1h1m1s1ms"),
            ("0s", 0, "0s"),
            ("007s", 7_000, "7s"),
        ] {
            assert_eq!(parse(text), Ok(Millis(millis)), "{text}");
            assert_eq!(format(Millis(millis)), canonical);
            assert_eq!(parse(canonical), Ok(Millis(millis)));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        for (text, error) in [
            ("", DurationError::Empty),
            ("-5s", DurationError::Negative),
            ("10", DurationError::NoUnit { number: "10".to_owned() }),
            ("10w", DurationError::Unit { unit: "w".to_owned() }),
            ("10S", DurationError::Unit { unit: "S".to_owned() }),
            ("5m1h", DurationError::Order { unit: "h".to_owned() }),
            ("5m5m", DurationError::Order { unit: "m".to_owned() }),
            ("99999999999999999999d", DurationError::Overflow),
            ("999999999999999999d", DurationError::Overflow),
            ("1.5h", DurationError::Malformed),
            ("5 m", DurationError::Malformed),
            ("soon", DurationError::Malformed),
            ("PT5M", DurationError::Malformed),
            ("５s", DurationError::Malformed),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
