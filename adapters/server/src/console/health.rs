//! How a task's firings have ended over the last 30 days: small bars, and the same as a table. A task has a row a day, so that nothing of the
//! history is counted.

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Catalog, Clock};
use punctual_driver::reading::TaskDay;

use super::Console;
use super::error::ConsoleError;
use super::page::Viewer;
use super::show::Count;
use super::words::Words;
use crate::api::days_of;

/// Days that are shown.
pub(super) const DAYS: usize = 30;
const DAY_MS: i64 = 86_400_000;

/// A day as a bar on a field of 30 by 100: what failed at the bottom, where it is always seen, what ended well on it, what was stopped on top.
pub(super) struct Bar {
    pub(super) x: usize,
    pub(super) day: String,
    /// Class, top and height of each part that is there.
    pub(super) parts: Vec<(&'static str, f64, f64)>,
    pub(super) label: String,
}

/// A day as a row.
pub(super) struct Day {
    pub(super) date: String,
    pub(super) succeeded: Count,
    pub(super) failed: Count,
    pub(super) stopped: Count,
}

pub(super) struct Health {
    pub(super) bars: Vec<Bar>,
    /// Days on which something has ended, the newest first.
    pub(super) days: Vec<Day>,
    /// All of it in words.
    pub(super) label: String,
}

/// That of a task.
pub(super) async fn of<S: Catalog, C: Clock>(console: &Console<S, C>, viewer: &Viewer, task: TaskId) -> Result<Health, ConsoleError> {
    let days = days_of(&console.api, task, DAYS as i64).await?;
    Ok(drawn(&days, TaskDay::of(console.api.clock.now().wall), viewer.words()))
}

fn drawn(days: &[TaskDay], today: i64, w: &Words) -> Health {
    let fill = |text: &str, day: &TaskDay| {
        let text = text.replace("{good}", &Count(day.succeeded).to_string()).replace("{bad}", &Count(day.failed).to_string());
        text.replace("{left}", &Count(day.stopped).to_string())
    };
    let mut all = TaskDay::default();
    for day in days {
        all.succeeded += day.succeeded;
        all.failed += day.failed;
        all.stopped += day.stopped;
    }
    let most = days.iter().map(|day| day.succeeded + day.failed + day.stopped).max().unwrap_or(0).max(1);
    let bar = |x: usize| {
        let number = today - (DAYS - 1 - x) as i64;
        let none = TaskDay { day: number, ..TaskDay::default() };
        let day = days.iter().find(|day| day.day == number).unwrap_or(&none);
        let (mut top, mut parts) = (100.0, Vec::new());
        for (class, count) in [("failed", day.failed), ("succeeded", day.succeeded), ("stopped", day.stopped)] {
            if count > 0 {
                // One among a million can still be seen.
                let height = (count as f64 * 100.0 / most as f64).max(8.0).min(top);
                top -= height;
                parts.push((class, top, height));
            }
        }
        Bar { x, day: date(number), parts, label: format!("{}: {}", date(number), fill(w.health_counts, day)) }
    };
    let rows = days.iter().rev().map(|day| Day {
        date: date(day.day),
        succeeded: Count(day.succeeded),
        failed: Count(day.failed),
        stopped: Count(day.stopped),
    });
    Health { bars: (0..DAYS).map(bar).collect(), days: rows.collect(), label: format!("{}: {}", w.health, fill(w.health_counts, &all)) }
}

/// A day in UTC, such as 2026-11-30.
fn date(day: i64) -> String {
    Timestamp(day * DAY_MS).to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::words::EN;

    #[test]
    fn a_day_is_a_bar_and_one_failure_can_be_seen() {
        let today = 20_000;
        let busy = TaskDay { day: today, succeeded: 1_000_000, failed: 1, stopped: 0 };
        let quiet = TaskDay { day: today - 29, succeeded: 10, failed: 0, stopped: 2 };
        let health = drawn(&[quiet, busy], today, &EN);
        assert_eq!((health.bars.len(), health.days.len()), (DAYS, 2));
        let of = |x: usize| health.bars[x].parts.iter().map(|(class, ..)| *class).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(29)), (vec!["succeeded", "stopped"], vec![], vec!["failed", "succeeded"]));
        let all: f64 = health.bars.iter().flat_map(|bar| &bar.parts).map(|(_, top, height)| top + height).fold(0.0, f64::max);
        assert!(all <= 100.0);
        assert_eq!(health.days[0].date, "2024-10-04");
        assert!(health.label.contains("1\u{202f}000\u{202f}010 succeeded, 1 failed, 2 stopped"), "{}", health.label);
        assert!(drawn(&[], today, &EN).bars.iter().all(|bar| bar.parts.is_empty()));
    }
}
