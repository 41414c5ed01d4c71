//! How much a line matters, as the line itself says.

use std::fmt;

/// How much a line matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every step.
    Trace,
    /// For whoever looks for a mistake.
    Debug,
    /// What goes on. A line that doesn't say matters as much.
    #[default]
    Info,
    /// Something is not as it should be.
    Warn,
    /// Something has failed.
    Error,
}

/// How far into a line a level is looked for, in bytes: behind a time, a process and a name.
const LOOKED_AT: usize = 160;
/// In so many words.
const WORDS: usize = 6;

impl Level {
    /// All of them, the least first.
    pub const ALL: [Level; 5] = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Its number, 1 to 5: how it is stored and sent.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The level of this number.
    pub fn from_code(code: u8) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.code() == code)
    }

    /// What a line says of itself: the member `level`, `lvl` or `severity` of a JSON object, or a word such as `WARN` near its beginning, as
    /// most libraries write it.
    pub fn of(line: &str) -> Level {
        let line = &line[..line.floor_char_boundary(LOOKED_AT)];
        if line.trim_start().starts_with('{') { of_json(line) } else { of_words(line) }.unwrap_or_default()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the libraries call them, in capitals.
fn of_word(word: &str) -> Option<Level> {
    Some(match word {
        "TRACE" => Level::Trace,
        "DEBUG" => Level::Debug,
        "INFO" | "NOTICE" => Level::Info,
        "WARN" | "WARNING" => Level::Warn,
        "ERROR" | "ERR" | "FATAL" | "CRITICAL" | "PANIC" => Level::Error,
        _ => return None,
    })
}

/// Only words in capitals: `error` may be anything, `ERROR` is a level.
fn of_words(line: &str) -> Option<Level> {
    // Colours end with an `m`, which would be part of the word.
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            plain.push(' ');
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(character);
        }
    }
    let words = plain
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()));
    words.take(WORDS).find_map(of_word)
}

/// The text of a member, found without reading the object: it may be longer than a line is looked at.
fn of_json(line: &str) -> Option<Level> {
    ["\"level\"", "\"lvl\"", "\"severity\""].into_iter().find_map(|member| {
        let behind = line[line.find(member)? + member.len()..].trim_start().strip_prefix(':')?.trim_start();
        match behind.strip_prefix('"') {
            Some(text) => of_word(&text[..text.find('"')?].to_ascii_uppercase()),
            // As bunyan and pino count.
            None => match behind[..behind.find(|next: char| !next.is_ascii_digit())?].parse::<u32>().ok()? {
                0..20 => Some(Level::Trace),
                20..30 => Some(Level::Debug),
                30..40 => Some(Level::Info),
                40..50 => Some(Level::Warn),
                _ => Some(Level::Error),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_it_matters() {
        for (line, level) in [
            ("", Level::Info),
            ("hello", Level::Info),
            ("an error that is none", Level::Info),
            ("ERROR: out of paper", Level::Error),
            ("[WARN] low on paper", Level::Warn),
            ("2026-11-30T15:54:30.123456Z  WARN printer: low on paper", Level::Warn),
            ("\u{1b}[2m2026-11-30T15:54:30Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m printer: ok", Level::Info),
            ("\u{1b}[31mERROR\u{1b}[0m printer", Level::Error),
            ("2026-11-30 15:54:30,123 - printer - DEBUG - ok", Level::Debug),
            ("WARNING:root:low", Level::Warn),
            ("E1130 15:54 ERRORS were found", Level::Info),
            (r#"{"time":1,"level":"error","msg":"out"}"#, Level::Error),
            (r#"{"severity": "WARNING", "message": "x"}"#, Level::Warn),
            (r#"{"level":50,"msg":"ERROR"}"#, Level::Error),
            (r#"{"level":30,"msg":"ERROR"}"#, Level::Info),
            (r#"{"level":"#, Level::Info),
            ("\u{1b}[", Level::Info),
            ("one two three four five six ERROR", Level::Info),
        ] {
            assert_eq!(Level::of(line), level, "{line:?}");
        }
        // Neither cuts a character in two nor looks any further.
        assert_eq!(Level::of(&format!("{}ERROR", "€".repeat(LOOKED_AT))), Level::Info);
        for level in Level::ALL {
            assert_eq!((Level::from_code(level.code()), Level::from_name(level.name())), (Some(level), Some(level)));
        }
    }
}
