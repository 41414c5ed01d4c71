//! Commands whose exit code says more than whether they were answered, and how times are shown.

use std::fmt::Write as _;
use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use punctual_spec::zones::Zones;
use serde_json::{Value, json};

use super::Exit;
use super::client::ClientError;
use super::output::Output;
use super::remote::text;

/// What a command prints, and how it ends.
pub(super) type Said = Result<(String, Exit), ClientError>;

/// Prints what a running Punctual answers, or why it doesn't, and then ends as `failed`, or as refused input does.
pub(super) fn ask(output: &mut Output, as_json: bool, failed: Exit, asking: impl Future<Output = Said>) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output.remark(error);
            return failed;
        }
    };
    match runtime.block_on(asking) {
        Ok((shown, exit)) => {
            if !shown.is_empty() {
                output.line(shown);
            }
            exit
        }
        Err(ClientError::NotDone { shown }) => {
            output.line(shown);
            failed
        }
        Err(error) => {
            if as_json {
                output.json(&json!({ "error": error.to_json() }));
            }
            let exit = if failed == Exit::Found { error.exit() } else { failed };
            output.remark(error);
            exit
        }
    }
}

/// An instant of an answer in the zone of whoever reads it, to the second where it has no more; anything else as it is.
pub(super) fn when(value: &Value) -> String {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(|| {
        let (variable, link) = (std::env::var("TZ").ok(), std::fs::read_link("/etc/localtime").ok());
        let name = zone_name(variable.as_deref(), link.as_ref().and_then(|link| link.to_str()));
        name.and_then(|name| Zones::load().get(&name).ok()).unwrap_or(TimeZone::UTC)
    });
    when_in(value, &ZONE)
}

/// A field of an answer; an instant, which its name tells, in the zone of whoever reads it.
pub(super) fn field(record: &Value, name: &str) -> String {
    let is_instant = name == "at" || name.ends_with("_at") || matches!(name, "fire_time" | "next_fire" | "since");
    if is_instant { when(&record[name]) } else { text(&record[name]) }
}

/// The machine's zone by its name: what `TZ` says, else where `/etc/localtime` leads. Of the zone data the newest counts, as in schedules.
fn zone_name(variable: Option<&str>, link: Option<&str>) -> Option<String> {
    let name = |path: &str| path.split_once("zoneinfo/").map(|(_, name)| name.to_owned());
    match variable.map(|variable| variable.trim_start_matches(':')).filter(|variable| !variable.is_empty()) {
        Some(path) if path.starts_with('/') => name(path),
        Some(variable) => Some(variable.to_owned()),
        None => link.and_then(name),
    }
}

fn when_in(value: &Value, zone: &TimeZone) -> String {
    let Some(at) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return text(value) };
    let format = if at.subsec_nanosecond() == 0 { "%Y-%m-%d %H:%M:%S%:z" } else { "%Y-%m-%d %H:%M:%S.%3f%:z" };
    ZonedDateTime::new(at, zone.clone()).strftime(format).to_string()
}

/// A length of time, its two greatest units: `950 ms`, `1 min 5 s`, `3 d 2 h`.
pub(crate) fn lasted(ms: u64) -> String {
    if ms < 1_000 {
        return format!("{ms} ms");
    }
    if ms < 60_000 {
        let (whole, tenths) = (ms / 1_000, ms % 1_000 / 100);
        return if tenths > 0 && whole < 10 { format!("{whole}.{tenths} s") } else { format!("{whole} s") };
    }
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let first = units.iter().position(|(unit, _)| ms >= *unit).unwrap_or(units.len() - 1);
    let mut shown = format!("{} {}", ms / units[first].0, units[first].1);
    if let Some((unit, name)) = units.get(first + 1) {
        let rest = ms % units[first].0 / unit;
        if rest > 0 {
            let _ = write!(shown, " {rest} {name}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_the_readers_zone() {
        let zone = Zones::load().get("Asia/Kathmandu").expect("a zone");
        assert_eq!(when_in(&json!("2026-11-29T17:12:01Z"), &zone), "2026-11-29 22:57:01+05:45");
        assert_eq!(when_in(&json!("2026-11-29T17:12:01.5Z"), &zone), "2026-11-29 22:57:01.500+05:45");
        assert_eq!((when_in(&json!("soon"), &zone), when_in(&Value::Null, &zone)), ("soon".to_owned(), String::new()));
        let record = json!({ "at": "2026-11-29T17:12:01Z", "due_at": "2026-11-29T17:12:01Z", "payload": "2026-11-29T17:12:01Z" });
        assert_eq!([field(&record, "at"), field(&record, "due_at")], [when(&record["at"]), when(&record["at"])]);
        assert_eq!(field(&record, "payload"), "2026-11-29T17:12:01Z", "what is nobody's instant stays as it is");
    }

    #[test]
    fn the_machines_zone_is_what_it_calls_it() {
        let link = Some("/usr/share/zoneinfo/Europe/Berlin");
        for (variable, link, name) in [
            (Some("Asia/Kathmandu"), link, Some("Asia/Kathmandu")),
            (Some(":Asia/Kathmandu"), link, Some("Asia/Kathmandu")),
            (Some("/usr/share/zoneinfo/Asia/Tokyo"), None, Some("Asia/Tokyo")),
            (Some(""), link, Some("Europe/Berlin")),
            (None, link, Some("Europe/Berlin")),
            (None, Some("/somewhere/else"), None),
            (None, None, None),
        ] {
            assert_eq!(zone_name(variable, link).as_deref(), name, "{variable:?} {link:?}");
        }
    }

    #[test]
    fn lengths_of_time_have_two_units() {
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (65_000, "1 min 5 s"),
            (3_600_000, "1 h"),
            (3_660_000, "1 h 1 min"),
            (86_400_000, "1 d"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(lasted(ms), shown);
        }
    }
}
