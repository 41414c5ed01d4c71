//! Why something ran or did not: pure. What is on record goes in, sentences come out.
//!
//! Instants in sentences are in UTC; whoever shows them may put them into a reader's zone ([`with_instants`]).

pub(crate) mod fire_time;
pub(crate) mod instance;
pub(crate) mod pauses;

use punctual_core::time::Timestamp;

use crate::cli::ask::lasted;

/// How long it was from one instant to a later one.
fn between(from: Timestamp, to: Timestamp) -> String {
    lasted(to.since(from).0)
}

/// Of how many.
fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// The sentence with each instant in it put otherwise.
pub(crate) fn with_instants(sentence: &str, shown: impl Fn(&str) -> String) -> String {
    let word = |word: &str| {
        let bare = word.trim_matches(|character: char| matches!(character, '(' | ')' | ',' | ';' | ':' | '.'));
        let is_instant = bare.ends_with('Z') && bare.parse::<jiff::Timestamp>().is_ok();
        if is_instant { word.replace(bare, &shown(bare)) } else { word.to_owned() }
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_in_sentences_are_found() {
        let shown = |text: &str| format!("<{text}>");
        let sentence = "It was due at 2026-11-29T17:12:01.5Z (or 2026-11-29T17:12:02Z), not at Z or in 2026.";
        let expected = "It was due at <2026-11-29T17:12:01.5Z> (or <2026-11-29T17:12:02Z>), not at Z or in 2026.";
        assert_eq!(with_instants(sentence, shown), expected);
    }
}
