//! Times, durations and states as HTML of their own making: digits, and words of ours.

use std::fmt;

use askama::filters::HtmlSafe;
use punctual_core::instance::State;
use punctual_core::time::{Millis, Timestamp};

use super::page::Lang;
use super::terms;

/// An instant. The script shows it in the zone of whoever looks; without it, it is in UTC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0.0) {
            Ok(at) => {
                let text = at.strftime("%Y-%m-%d %H:%M:%S UTC");
                write!(f, "<time datetime=\"{at}\">{text}</time>")
            }
            Err(_) => write!(f, "{} ms", self.0.0),
        }
    }
}

impl HtmlSafe for Time {}

/// An instant, or a dash.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaybeTime(pub(super) Option<Timestamp>);

impl fmt::Display for MaybeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(at) => Time(at).fmt(f),
            None => f.write_str(NOTHING),
        }
    }
}

impl HtmlSafe for MaybeTime {}

/// What stands where nothing is.
const NOTHING: &str = "<span class=\"faint\" aria-hidden=\"true\">–</span>";

/// How long something took, to three digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Option<Millis>);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => f.write_str(&span_text(span)),
            None => f.write_str(NOTHING),
        }
    }
}

impl HtmlSafe for Span {}

/// The same as text.
pub(super) fn span_text(Millis(millis): Millis) -> String {
    let seconds = millis / 1_000;
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600_000..172_800_000 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A number with its thousands apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count(pub(super) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                // A narrow blank that doesn't break.
                f.write_str("\u{202f}")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl HtmlSafe for Count {}

/// A state, as a word with a mark: never by its colour alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Badge(pub(super) State, pub(super) Lang);

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"badge {}\">{}</span>", self.0.name(), terms::state(self.0, self.1))
    }
}

impl HtmlSafe for Badge {}

/// A state where there is no room for a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dot(pub(super) State, pub(super) Lang);

impl fmt::Display for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = terms::state(self.0, self.1);
        write!(f, "<span class=\"dot {}\" role=\"img\" aria-label=\"{label}\"></span>", self.0.name())
    }
}

impl HtmlSafe for Dot {}

/// A page with the control characters that somebody has written as pictures of themselves: a browser shows nothing for them, and what they
/// would do in a terminal is there to be read.
pub(super) fn visible(text: String) -> String {
    if !text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t' | '\r')) {
        return text;
    }
    let picture = |character: char| match character {
        '\n' | '\t' | '\r' => character,
        '\0'..' ' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(character),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..'\u{a0}' => '\u{fffd}',
        other => other,
    };
    text.chars().map(picture).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_units_that_people_use() {
        for (millis, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_999, "59.9 s"),
            (60_000, "1 min 00 s"),
            (3_599_000, "59 min 59 s"),
            (3_600_000, "1 h 00 min"),
            (172_800_000, "2 d 00 h"),
        ] {
            assert_eq!(span_text(Millis(millis)), text);
        }
        assert_eq!(Count(1_234_567).to_string(), "1\u{202f}234\u{202f}567");
        assert_eq!(Count(12).to_string(), "12");
    }

    #[test]
    fn control_characters_are_seen() {
        assert_eq!(visible("a\u{1b}[31mred\u{7}\r\n\tb\u{7f}\u{9b}2J é".to_owned()), "a␛[31mred␇\r\n\tb␡\u{fffd}2J é");
    }

    #[test]
    fn an_instant_says_so_without_a_script() {
        assert_eq!(
            Time(Timestamp(1_767_225_600_123)).to_string(),
            "<time datetime=\"2026-01-01T00:00:00.123Z\">2026-01-01 00:00:00 UTC</time>"
        );
        assert_eq!(Time(Timestamp(i64::MAX)).to_string(), "9223372036854775807 ms");
    }
}
