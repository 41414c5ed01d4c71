//! How a task's handler behaves in a rehearsal.
//!
//! It stands in the task's entry of the file and is no part of the task: documents, versions and what workers are told know nothing of
//! it. So it is checked here, where it is read, and not with the task.

use std::borrow::Cow;

use punctual_core::limits::DELAY_MAX;
use punctual_core::time::Millis;

use crate::duration;
use crate::fields;
use crate::limits::{DOWNSTREAM_CHARS_MAX, DURATION_MIN};
use crate::node::{Kind, Node};
use crate::problem::{Code, Step};
use crate::read::Cursor;
use crate::task::put;

/// How a task's handler behaves in a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// Shortest and longest attempt.
    pub takes: (Millis, Millis),
    /// Of a thousand attempts, so many fail.
    pub fails_per_mille: u32,
    /// Whether a failure is for good.
    pub fails_for_good: bool,
    /// From the cancel signal to its end; `None`: it goes on until it is killed.
    pub obeys_after: Option<Millis>,
    /// The service that it calls: a retry storm makes all calls of one fail.
    pub downstream: Option<String>,
}

impl Default for Rehearsal {
    /// One to five seconds, one failure in a hundred attempts, obeys at once, calls nobody.
    fn default() -> Self {
        Rehearsal {
            takes: (Millis::from_secs(1), Millis::from_secs(5)),
            fails_per_mille: 10,
            fails_for_good: false,
            obeys_after: Some(Millis::ZERO),
            downstream: None,
        }
    }
}

const TAKES_HELP: &str = "a duration such as 2s, or a list of the shortest and the longest, such as [1s, 40s]";
const FAILS_HELP: &str = "a percentage from 0% to 100% with at most one decimal, such as 5% or 0.5%";

/// What may be wrong is recorded at the cursor, as for the fields of the task.
impl Cursor<'_> {
    /// The mapping, over what the defaults say.
    pub(crate) fn rehearsal(&mut self, node: &Node, to: &mut Rehearsal) {
        let Some(entries) = self.map(node, fields::REHEARSAL) else { return };
        let (mut stubborn, mut obeys_after) = (None, None);
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "takes" => put(cursor.takes(node), &mut to.takes),
                "fails" => put(cursor.per_mille(node), &mut to.fails_per_mille),
                "fails_for_good" => put(cursor.truth(node), &mut to.fails_for_good),
                "stubborn" => stubborn = cursor.truth(node),
                "obeys_after" => obeys_after = cursor.bounded(node, Millis::ZERO).map(|after| (after, entry.place)),
                _ => put(cursor.downstream(node), &mut to.downstream),
            });
        }
        match (stubborn, obeys_after) {
            (Some(true), Some((_, place))) => {
                let message = "what is `stubborn` obeys only the kill, and here it `obeys_after` a while";
                self.refuse(Code::Conflict, place, message, "keep one of stubborn, obeys_after");
            }
            (_, Some((after, _))) => to.obeys_after = Some(after),
            (Some(true), None) => to.obeys_after = None,
            // Takes back what the defaults say.
            (Some(false), None) => to.obeys_after = to.obeys_after.or(Some(Millis::ZERO)),
            (None, None) => {}
        }
    }

    fn takes(&mut self, node: &Node) -> Option<(Millis, Millis)> {
        match &node.kind {
            Kind::List(list) if list.len() == 2 => {
                let both = self.list(node, |cursor, entry| cursor.bounded(entry, DURATION_MIN))?;
                let &[shortest, longest] = both.as_slice() else { return None };
                if longest < shortest {
                    let (longest, shortest) = (duration::format(longest), duration::format(shortest));
                    let message = format!("the longest ({longest}) is shorter than the shortest ({shortest})");
                    self.refuse(Code::Conflict, node.place, message, "the shortest first");
                }
                Some((shortest, longest))
            }
            Kind::Text { .. } if !node.is_null() => self.bounded(node, DURATION_MIN).map(|takes| (takes, takes)),
            other => {
                let what = match other {
                    Kind::List(list) => format!("a list of {}", list.len()),
                    _ => node.description(),
                };
                self.refuse(Code::WrongKind, node.place, format!("{what} where one or two durations are wanted"), TAKES_HELP);
                None
            }
        }
    }

    /// A duration within its limits.
    fn bounded(&mut self, node: &Node, least: Millis) -> Option<Millis> {
        let duration = self.duration(node)?;
        if duration < least || duration > DELAY_MAX {
            let range = format!("{} to {}", duration::format(least), duration::format(DELAY_MAX));
            self.refuse(Code::Duration, node.place, format!("{} is out of range", duration::format(duration)), range);
            return None;
        }
        Some(duration)
    }

    /// A percentage, with its sign or without.
    fn per_mille(&mut self, node: &Node) -> Option<u32> {
        let per_mille = match &node.kind {
            Kind::Text { text, .. } => per_mille(text),
            _ => None,
        };
        if per_mille.is_none() {
            self.refuse(Code::Number, node.place, format!("{} is not a percentage", node.description()), FAILS_HELP);
        }
        per_mille
    }

    fn downstream(&mut self, node: &Node) -> Option<Option<String>> {
        if node.is_null() {
            // Takes back what the defaults say.
            return Some(None);
        }
        let name = self.text(node)?;
        let count = name.chars().count();
        if count == 0 || count > DOWNSTREAM_CHARS_MAX || name.chars().any(char::is_control) {
            let message = if count > DOWNSTREAM_CHARS_MAX {
                format!("it has {count} characters")
            } else {
                "it is empty or has control characters".to_owned()
            };
            self.refuse(Code::Text, node.place, message, format!("a name of 1 to {DOWNSTREAM_CHARS_MAX} characters, such as payments"));
            return None;
        }
        Some(Some(name))
    }
}

/// `5%`, `5` and `0.5%` in thousandths.
fn per_mille(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole, 3) || !is_number(tenths, 1) {
        return None;
    }
    let per_mille = whole.parse::<u32>().ok()? * 10 + tenths.parse::<u32>().ok()?;
    (per_mille <= 1_000).then_some(per_mille)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_with_their_sign_or_without() {
        for (text, expected) in [("5%", 50), ("5", 50), ("0", 0), ("0.5%", 5), ("100%", 1_000), ("100.0", 1_000), ("12.3%", 123)] {
            assert_eq!(per_mille(text), Some(expected), "{text}");
        }
        for text in ["", "%", "-1", "101%", "100.1", "5.25%", ".5", "5.", "five", "5%%", "5 %", "1e1", "٥%"] {
            assert_eq!(per_mille(text), None, "{text}");
        }
    }
}
