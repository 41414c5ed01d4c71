//! Durations, counts, shares and faults as people write them.

use crate::plan::{Fault, FaultKind, Selector};

/// A text that may come from anybody, for people to see: nothing in it that a terminal would obey, and nothing that is invisible or turns
/// the direction of what follows.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if c.is_control() => out.push(' '),
            c if is_unseen(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Invisible characters, and those that change the direction of writing.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A duration, to two units at most: `850ms`, `12.4s`, `3m 20s`, `2h 5m`, `1d 3h`.
pub(super) fn duration(ms: u64) -> String {
    let pair = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 if (ms / 100).is_multiple_of(10) => format!("{}s", ms / 1_000),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms / 100 % 10),
        60_000..3_600_000 => pair(ms / 60_000, "m", ms / 1_000 % 60, "s"),
        3_600_000..86_400_000 => pair(ms / 3_600_000, "h", ms / 60_000 % 60, "m"),
        _ => pair(ms / 86_400_000, "d", ms / 3_600_000 % 24, "h"),
    }
}

/// The length of a run: `24 hours`.
pub(super) fn hours(ms: u64) -> String {
    if ms.is_multiple_of(3_600_000) { count(ms / 3_600_000, "hour") } else { duration(ms) }
}

/// A count with its noun: `1 run`, `1,200 runs`, `2 retries`.
pub(super) fn count(number: u64, noun: &str) -> String {
    let noun = match noun.strip_suffix('y') {
        _ if number == 1 => noun.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    };
    format!("{} {noun}", thousands(number))
}

/// What goes with a number of things.
pub(super) fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// A number with commas.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share: `12%`, `0.4%`, and never `0%` of something nor `100%` of less than all.
pub(super) fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0%".to_owned();
    }
    match part.saturating_mul(1_000) / whole {
        0 => "under 0.1%".to_owned(),
        tenths @ 1..100 => format!("{}.{}%", tenths / 10, tenths % 10),
        tenths => format!("{}%", tenths / 10),
    }
}

/// A ratio of a thousandth: `2.4`.
pub(super) fn times(per_mille: u64) -> String {
    let tenths = (per_mille + 50) / 100;
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

/// The value that so many of a thousand are at most, by nearest rank. Sorts the values.
pub(super) fn percentile(values: &mut [u64], per_mille: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * per_mille).div_ceil(1_000).max(1);
    values.get(rank - 1).copied()
}

fn utc(starts_at: i64, at_ms: u64) -> jiff::civil::DateTime {
    let at = starts_at.saturating_add(i64::try_from(at_ms).unwrap_or(i64::MAX));
    jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_millisecond(at).unwrap_or_default())
}

/// A moment of the run by the clock, in UTC, with the date after the first day: `03:20`, `Jan 16 03:20`.
pub(super) fn clock(starts_at: i64, at_ms: u64) -> String {
    let at = utc(starts_at, at_ms);
    if at.date() == utc(starts_at, 0).date() { at.strftime("%H:%M").to_string() } else { at.strftime("%b %-d %H:%M").to_string() }
}

/// The time of day alone, in UTC: `03:20`.
pub(super) fn time_of_day(starts_at: i64, at_ms: u64) -> String {
    utc(starts_at, at_ms).strftime("%H:%M").to_string()
}

/// The day alone: `Jan 16`.
pub(super) fn day(starts_at: i64, at_ms: u64) -> String {
    utc(starts_at, at_ms).strftime("%b %-d").to_string()
}

/// A moment in full: `2027-01-15 08:00 UTC`.
pub(super) fn date_and_time(starts_at: i64, at_ms: u64) -> String {
    utc(starts_at, at_ms).strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// A state or an outcome in words: `dead_lettered` as `dead lettered`.
pub(super) fn name(name: &str) -> String {
    name.replace('_', " ")
}

/// What goes wrong, and for whom.
pub(super) fn fault(fault: &Fault, downstreams: &[&str]) -> String {
    let on = match fault.on {
        Selector::World => None,
        Selector::Scheduler(number) => Some(format!("scheduler {number}")),
        Selector::Worker(number) => Some(format!("worker {number}")),
        Selector::Owner(partition) => Some(format!("owner of partition {partition}")),
        Selector::Busy(_) => Some("a busy worker".to_owned()),
        Selector::Minority => Some("a minority of the schedulers".to_owned()),
        Selector::AllSchedulers => Some("all schedulers".to_owned()),
        Selector::AllWorkers => Some("all workers".to_owned()),
        Selector::Everybody => Some("everybody".to_owned()),
    };
    let percent = |per_mille: u32| format!("{}%", times(u64::from(per_mille) * 100));
    let signed = |ms: i64| format!("{}{}", if ms < 0 { "-" } else { "+" }, duration(ms.unsigned_abs()));
    let what = match fault.kind {
        FaultKind::Crash => "crash".to_owned(),
        FaultKind::Restart => "restart in good order".to_owned(),
        FaultKind::Pause => "stands still".to_owned(),
        FaultKind::Isolate => "cut off".to_owned(),
        FaultKind::CutOutgoing => "cut off, outgoing".to_owned(),
        FaultKind::CutIncoming => "cut off, incoming".to_owned(),
        FaultKind::CutFromDatabase => "cut off from the database".to_owned(),
        FaultKind::Delay { ms } => format!("messages {} late", duration(ms)),
        FaultKind::Lose { per_mille } => format!("{} of messages lost", percent(per_mille)),
        FaultKind::Duplicate { per_mille } => format!("{} of messages doubled", percent(per_mille)),
        FaultKind::Reset => "connections reset".to_owned(),
        FaultKind::ClockStep { by } => format!("clock set by {}", signed(by)),
        FaultKind::ClockDrift { per_mille } => format!("clock drifts by {per_mille} in a thousand"),
        FaultKind::DatabaseSlow { ms } => format!("database {} slower", duration(ms)),
        FaultKind::DatabaseDown => "database away".to_owned(),
        FaultKind::DatabaseFull => "database full".to_owned(),
        FaultKind::DatabaseAborts { per_mille } => format!("{} of commits aborted", percent(per_mille)),
        FaultKind::CommitAppliedAnswerLost { per_mille } => format!("{} of commits done, answer lost", percent(per_mille)),
        FaultKind::CommitNotAppliedAnswerLost { per_mille } => format!("{} of commits not done, answer lost", percent(per_mille)),
        FaultKind::Failover => "database failover".to_owned(),
        FaultKind::DatabaseClockStep { by } => format!("database clock set by {}", signed(by)),
        FaultKind::WakeUpsDown => "no wake-ups".to_owned(),
        FaultKind::WakeUpsLost { per_mille } => format!("{} of wake-ups lost", percent(per_mille)),
        FaultKind::WakeUpsDoubled => "wake-ups doubled".to_owned(),
        FaultKind::HandlersHang => "handlers hang".to_owned(),
        FaultKind::HandlersSlow { times } => format!("handlers {times} times slower"),
        FaultKind::HandlersPanic => "handlers panic".to_owned(),
        FaultKind::RetryStorm { downstream } => format!("all calls of {} fail", downstreams.get(downstream).unwrap_or(&"a service")),
        FaultKind::Flood { count: number, .. } => format!("{} at once", count(number as u64, "submission")),
    };
    match on {
        Some(on) => format!("{on}: {what}"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (850, "850ms"),
            (12_449, "12.4s"),
            (5_000, "5s"),
            (200_000, "3m 20s"),
            (60_000, "1m"),
            (7_500_000, "2h 5m"),
            (97_200_000, "1d 3h"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn shares_are_never_rounded_to_nothing_or_all() {
        for (part, whole, text) in
            [(0, 9, "0%"), (1, 9_999, "under 0.1%"), (4, 1_000, "0.4%"), (1, 8, "12%"), (999, 1_000, "99%"), (7, 7, "100%")]
        {
            assert_eq!(share(part, whole), text);
        }
        assert_eq!((times(2_400), times(3_000), times(3_049)), ("2.4".to_owned(), "3".to_owned(), "3".to_owned()));
        assert_eq!((thousands(1_234_567), count(1, "run"), count(1_000, "run")), ("1,234,567".into(), "1 run".into(), "1,000 runs".into()));
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        assert_eq!(percentile(&mut [], 500), None);
        assert_eq!(percentile(&mut [3, 1, 2], 500), Some(2));
        assert_eq!(percentile(&mut [1, 2, 3, 4], 500), Some(2));
        assert_eq!(percentile(&mut (1..=200).collect::<Vec<_>>(), 990), Some(198));
    }
}
