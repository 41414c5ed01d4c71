//! The log of an instance on its page: its last lines, and from where the script goes on.

use std::sync::Arc;

use punctual_core::time::Millis;
use punctual_driver::logs::{FoundLine, Level, LogCursor, LogPage, LogQuery, SEARCH_BYTES_MAX};
use punctual_driver::ports::{Catalog, Clock, InstanceView};

use super::Console;
use super::error::ConsoleError;
use super::form::{Fields, address};
use super::instances::Choice;
use crate::api::logs;

/// Lines of a page: the last ones.
pub(super) const SHOWN: usize = 500;
/// The script goes on with what has ended so lately: lines may be on their way.
const LATE: Millis = Millis::from_secs(10);

/// A line of the page.
pub(super) struct Line {
    pub(super) at: String,
    /// Its time of day, in UTC; the script shows that of whoever looks.
    pub(super) clock: String,
    pub(super) level: &'static str,
    pub(super) message: String,
    pub(super) is_notice: bool,
    /// The attempt that begins with it.
    pub(super) begins: Option<u32>,
}

/// The log of an instance.
pub(super) struct Log {
    pub(super) lines: Vec<Line>,
    /// The attempts that have lines here.
    pub(super) attempts: Vec<u32>,
    pub(super) is_cut: bool,
    /// Where lines come from as they are stored; nothing where none will.
    pub(super) stream: Option<String>,
    pub(super) levels: Vec<Choice>,
    pub(super) text: String,
    /// Whether the page was asked for some lines only.
    pub(super) is_chosen: bool,
    /// The attempt of the last line.
    pub(super) attempt: u32,
    pub(super) trace: Option<String>,
}

impl Log {
    pub(super) async fn of<S: Catalog, C: Clock>(
        console: &Console<S, C>,
        view: &InstanceView,
        asked: &Fields,
    ) -> Result<Log, ConsoleError> {
        // What is no level is as good as none: an address may be anybody's.
        let level = asked.get("level").and_then(Level::from_name).unwrap_or(Level::Trace);
        let text = asked.get("text").unwrap_or_default().to_owned();
        let text = text[..text.floor_char_boundary(SEARCH_BYTES_MAX)].to_owned();
        let wanted = Some(text.as_str()).filter(|text| !text.is_empty()).map(Arc::from);
        let query = LogQuery { newest: true, limit: SHOWN, level, text: wanted, ..logs::of(view) };
        let LogPage { lines: found, seen, is_full } = console.api.logs.store().lines(query).await?;
        let follows = view.row.ended_at().is_none_or(|ended| console.api.clock.now().wall.since(ended) < LATE);
        let mut attempts: Vec<u32> = found.iter().map(|line| line.attempt).collect();
        attempts.dedup();
        let choice = |known: Level| Choice { value: known.name(), label: known.name(), is_chosen: level == known };
        Ok(Log {
            stream: follows.then(|| stream(view, level, &text, seen)),
            levels: Level::ALL.map(choice).into(),
            is_cut: is_full,
            is_chosen: level > Level::Trace || !text.is_empty(),
            text,
            attempt: attempts.last().copied().unwrap_or_default(),
            trace: found.last().map(|line| line.trace.to_string()),
            lines: lines(&found),
            attempts,
        })
    }
}

fn stream(view: &InstanceView, level: Level, text: &str, seen: Option<LogCursor>) -> String {
    let after = seen.map(|seen| seen.to_string()).unwrap_or_default();
    let all = [("after", after.as_str()), ("level", level.name()), ("text", text)];
    let said: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    address(&format!("/api/v1/instances/{}/logs/stream", view.row.id), &said)
}

fn lines(found: &[FoundLine]) -> Vec<Line> {
    let mut attempt = None;
    let line = |found: &FoundLine| {
        let at = found.line.at.to_string();
        let begins = (attempt.replace(found.attempt) != Some(found.attempt)).then_some(found.attempt);
        let clock = at.split('T').nth(1).unwrap_or(&at).trim_end_matches('Z').to_owned();
        let message = plain(&found.line.message);
        Line { at, clock, level: found.line.level.name(), message, is_notice: found.line.dropped > 0, begins }
    };
    found.iter().map(line).collect()
}

/// A message without colours, and with a sign for each other control character: the script does the same (`plain` there).
fn plain(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' if rest.peek() == Some(&'[') => {
                rest.next();
                // Parameters, then one that ends it.
                while rest.next_if(|next| matches!(next, ' '..='?')).is_some() {}
                rest.next_if(|next| matches!(next, '@'..='~'));
            }
            '\t' => shown.push('\t'),
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + character as u32)),
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}' => shown.push('\u{fffd}'),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_would_act_on_a_terminal_is_shown_as_what_it_is() {
        for (message, shown) in [
            ("plain\ttext ä", "plain\ttext ä"),
            ("\u{1b}[1;31mred\u{1b}[0m end", "red end"),
            ("\u{1b}]0;title\u{7}", "␛]0;title␇"),
            ("a\r\nb\0\u{7f}\u{9b}31m", "a␍␊b␀␡\u{fffd}31m"),
            ("cut \u{1b}[", "cut "),
            ("<script>", "<script>"),
        ] {
            assert_eq!(plain(message), shown);
        }
    }
}
