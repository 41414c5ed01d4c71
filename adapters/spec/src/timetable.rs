//! Reading what refines a trigger, and making the timetable that the scheduler follows of it.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use jiff::tz::TimeZone;
use punctual_core::cron::{Blackouts, Calendar, DailyBlackout, Series, Timetable, Window};
use punctual_core::limits as core_limits;
use punctual_core::time::{Millis, Timestamp};

use crate::choice::did_you_mean;
use crate::duration;
use crate::fields;
use crate::limits::{CALENDAR_NAME_CHARS_MAX, CALENDARS_MAX};
use crate::node::{Kind, Node, Place};
use crate::problem::{Code, FieldPath, Finding, Step, quoted};
use crate::read::Cursor;
use crate::spec::Trigger;
use crate::timing::{Blackout, DayRange, Days, Moment, Timing, Weekdays};
use crate::zones::Zones;

const MOMENT_HELP: &str = "a time of the trigger's zone such as 2027-01-01T00:00:00, or an instant such as 2027-01-01T00:00:00Z";
const DAYS_HELP: &str = "dates such as 2027-02-20, or ranges such as 2027-02-06..2027-02-12";

/// What may go wrong is recorded at the cursor, as for the other fields of a task.
impl Cursor<'_> {
    /// The calendars of a file.
    pub(crate) fn calendars(&mut self, node: &Node) {
        let Kind::Map(entries) = &node.kind else {
            let message = format!("{} where a map is wanted", node.description());
            return self.refuse(Code::WrongKind, node.place, message, "a map from names to calendars");
        };
        if entries.len() > CALENDARS_MAX {
            self.refuse(Code::TooLarge, node.place, format!("there are {} calendars", entries.len()), format!("at most {CALENDARS_MAX}"));
        }
        for entry in entries.iter().take(CALENDARS_MAX) {
            let length = entry.key.chars().count();
            if length == 0 || length > CALENDAR_NAME_CHARS_MAX || entry.key.chars().any(char::is_control) {
                let message = format!("{} is no name for a calendar", quoted(&entry.key));
                self.refuse(
                    Code::Calendar,
                    entry.place,
                    message,
                    format!("1 to {CALENDAR_NAME_CHARS_MAX} characters, none of them control characters"),
                );
            }
            let days = self.step(Step::Field(entry.key.clone().into()), |cursor| {
                let days = cursor.days(&entry.value).unwrap_or_default();
                // Said here, once, and not for each task that names it.
                let Err(finding) = calendar(&days, FieldPath::default()) else { return days };
                let path = cursor.path.clone();
                cursor.add(entry.value.place, Finding { path, ..finding });
                Days::default()
            });
            self.calendars.insert(entry.key.clone(), days);
        }
    }

    /// One of the fields that refine a trigger.
    pub(crate) fn timing(&mut self, field: &str, node: &Node, to: &mut Timing) {
        match field {
            // Nothing takes back what the defaults say.
            "starts_at" => to.starts_at = self.moment(node),
            "ends_at" => to.ends_at = self.moment(node),
            "calendar" => to.calendar = self.calendar_of(node),
            "blackouts" => to.blackouts = self.list(node, Cursor::blackout).unwrap_or_default(),
            _ => to.jitter = self.duration(node).unwrap_or_default(),
        }
    }

    fn moment(&mut self, node: &Node) -> Option<Moment> {
        if node.is_null() { None } else { self.parsed(node, Code::Moment, MOMENT_HELP) }
    }

    /// A calendar by its name, or its days.
    fn calendar_of(&mut self, node: &Node) -> Option<Days> {
        let name = match &node.kind {
            _ if node.is_null() => return None,
            Kind::Text { text, .. } => text,
            _ => return self.days(node),
        };
        let known = self.calendars.get(name).cloned();
        if known.is_none() {
            let help = match did_you_mean(name, self.calendars.keys().map(String::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None if self.calendars.is_empty() => {
                    "define it under `calendars:` at the top of the file, or write the days here".to_owned()
                }
                None => format!("one of {}", self.calendars.keys().map(String::as_str).take(10).collect::<Vec<_>>().join(", ")),
            };
            self.refuse(Code::Calendar, node.place, format!("there is no calendar {}", quoted(name)), help);
        }
        known
    }

    fn days(&mut self, node: &Node) -> Option<Days> {
        let entries = self.map(node, fields::CALENDAR)?;
        let mut days = Days::default();
        for (field, entry) in &entries {
            let node = &*entry.value;
            let range = |cursor: &mut Self, node: &Node| cursor.parsed::<DayRange>(node, Code::Moment, DAYS_HELP);
            let ranges = self.step(Step::Field(Cow::Borrowed(field)), |cursor| cursor.list(node, range)).unwrap_or_default();
            if *field == "exclude" { days.exclude = ranges } else { days.include = ranges }
        }
        Some(days)
    }

    fn blackout(&mut self, node: &Node) -> Option<Blackout> {
        let entries = self.map(node, fields::BLACKOUT)?;
        let (mut from, mut to, mut days) = (None, None, None);
        for (field, entry) in &entries {
            let node = &*entry.value;
            self.step(Step::Field(Cow::Borrowed(field)), |cursor| match *field {
                "from" => from = cursor.text(node).map(|text| (text, node.place)),
                "to" => to = cursor.text(node).map(|text| (text, node.place)),
                _ => days = cursor.weekdays(node).map(|days| (days, node.place)),
            });
        }
        for field in ["from", "to"] {
            if !entries.iter().any(|(known, _)| *known == field) {
                self.refuse(Code::MissingField, node.place, format!("the blackout has no `{field}`"), "add both ends: `from:` and `to:`");
            }
        }
        let ((from, from_place), (to, to_place)) = (from?, to?);
        let place_of = |field: &str| -> Place {
            match field {
                "from" => from_place,
                "to" => to_place,
                _ => days.map_or(node.place, |(_, place)| place),
            }
        };
        match Blackout::parse(&from, &to, days.map(|(days, _)| days)) {
            Ok(blackout) => Some(blackout),
            Err((field, message)) => {
                let code = if field == "days" || message.starts_with("the window") { Code::Conflict } else { Code::Moment };
                let help = "two times of day such as 22:00 and 06:00, or two times with dates such as 2027-06-18T00:00:00; 24:00 is the end of the day";
                self.step(Step::Field(Cow::Borrowed(field)), |cursor| cursor.refuse(code, place_of(field), message, help));
                None
            }
        }
    }

    /// `mon-fri`, or a list of weekdays.
    fn weekdays(&mut self, node: &Node) -> Option<Weekdays> {
        const HELP: &str = "mon, tue, wed, thu, fri, sat, sun; ranges such as mon-fri; several with commas";
        let Kind::List(list) = &node.kind else { return self.parsed(node, Code::UnknownValue, HELP) };
        if list.is_empty() {
            self.refuse(Code::UnknownValue, node.place, "it names no weekday", "leave it out for all of them");
            return None;
        }
        let days = self.list(node, |cursor, entry| cursor.parsed::<Weekdays>(entry, Code::UnknownValue, HELP))?;
        Some(Weekdays(days.iter().fold(0, |all, days| all | days.0)))
    }

    /// A text that is read as something else.
    fn parsed<T: FromStr<Err = String>>(&mut self, node: &Node, code: Code, help: &str) -> Option<T> {
        let text = self.text(node)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(message) => {
                self.refuse(code, node.place, message, help);
                None
            }
        }
    }
}

/// The fields that a timing has, in the order of the table.
fn named(timing: &Timing) -> impl Iterator<Item = &'static str> {
    let Timing { starts_at, ends_at, calendar, blackouts, jitter } = timing;
    let has = [
        ("starts_at", starts_at.is_some()),
        ("ends_at", ends_at.is_some()),
        ("calendar", calendar.is_some()),
        ("blackouts", !blackouts.is_empty()),
        ("jitter", *jitter > Millis::ZERO),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(field, _)| field)
}

/// The name of a trigger's kind.
fn kind(trigger: &Trigger) -> &'static str {
    match trigger {
        Trigger::Cron(_) => "cron",
        Trigger::FixedRate(_) => "fixed_rate",
        Trigger::FixedDelay(_) => "fixed_delay",
        Trigger::Delay(_) => "delay",
        Trigger::Manual => "manual",
    }
}

/// Whether a field that refines may stand beside a kind.
pub(crate) fn may_have(kind: &str, field: &str) -> bool {
    fields::TRIGGER_OPTIONS.iter().any(|(option, kinds)| *option == field && kinds.contains(&kind))
}

/// What of a timing belongs to a trigger: what defaults say for others is left out.
pub(crate) fn of_kind(trigger: &Trigger, mut timing: Timing) -> Timing {
    let may_have = |field| may_have(kind(trigger), field);
    timing.starts_at = timing.starts_at.filter(|_| may_have("starts_at"));
    timing.ends_at = timing.ends_at.filter(|_| may_have("ends_at"));
    timing.calendar = timing.calendar.filter(|_| may_have("calendar"));
    timing.blackouts.retain(|_| may_have("blackouts"));
    timing.jitter = if may_have("jitter") { timing.jitter } else { Millis::ZERO };
    timing
}

fn at(field: &'static str) -> FieldPath {
    FieldPath::of(&["trigger", field])
}

/// The timetable of a series that a timing refines.
///
/// # Errors
///
/// Everything that is wrong with the timing.
pub(crate) fn timetable(trigger: &Trigger, series: Series, timing: &Timing, zones: &Zones) -> Result<Arc<Timetable>, Vec<Finding>> {
    let mut findings = Vec::new();
    for field in named(timing).filter(|field| !may_have(kind(trigger), field)) {
        let message = format!("`{field}` does not go with `{}`", kind(trigger));
        findings.push(Finding::new(Code::Conflict, at(field), message).help("leave it out"));
    }
    if timing.jitter > core_limits::START_JITTER_MAX {
        let message = format!("{} is out of range", duration::format(timing.jitter));
        let range = format!("0s to {}", duration::format(core_limits::START_JITTER_MAX));
        findings.push(Finding::new(Code::Duration, at("jitter"), message).help(range));
    }
    let zone = match &series {
        Series::Cron(schedule) => schedule.zone().clone(),
        Series::FixedRate(_) | Series::FixedDelay(_) => TimeZone::UTC,
    };
    let window = window(timing, &zone, &mut findings);
    let blackouts = blackouts(&timing.blackouts, &zone, &mut findings);
    let calendar = timing.calendar.as_ref().map(|days| calendar(days, at("calendar"))).transpose();
    let calendar = calendar.map_err(|finding| findings.push(finding)).unwrap_or_default();
    if !findings.is_empty() {
        return Err(findings);
    }
    let calendar = calendar.map(|calendar| zones.shared_calendar(calendar));
    let others = Timing { calendar: None, ..timing.clone() };
    zones.shared_timetable((trigger.clone(), others, calendar.clone()), || {
        let is_cron = matches!(series, Series::Cron(_));
        let timetable = Timetable::new(series, window, calendar, blackouts, timing.jitter);
        if is_cron { fires_at_all(timetable).map_err(|finding| vec![finding]) } else { Ok(timetable) }
    })
}

fn window(timing: &Timing, zone: &TimeZone, findings: &mut Vec<Finding>) -> Window {
    let mut instant = |field, moment: Option<Moment>| {
        let moment = moment?;
        let instant = moment.instant_in(zone);
        if instant.is_none() {
            findings.push(Finding::new(Code::Moment, at(field), format!("{moment} is out of range")).help(MOMENT_HELP));
        }
        instant
    };
    let (starts_at, ends_at) = (instant("starts_at", timing.starts_at), instant("ends_at", timing.ends_at));
    if let (Some(start), Some(end)) = (starts_at, ends_at)
        && end <= start
    {
        let message = format!("it ends ({end}) before it starts ({start})");
        findings.push(Finding::new(Code::Conflict, at("ends_at"), message).help("`ends_at` lies after `starts_at`; it is exclusive"));
    }
    Window { starts_at, ends_at }
}

fn blackouts(blackouts: &[Blackout], zone: &TimeZone, findings: &mut Vec<Finding>) -> Blackouts {
    if blackouts.len() > core_limits::BLACKOUTS_MAX {
        let help = format!("at most {}; days off belong in a calendar", core_limits::BLACKOUTS_MAX);
        findings.push(Finding::new(Code::TooLarge, at("blackouts"), format!("there are {} blackouts", blackouts.len())).help(help));
        return Blackouts::default();
    }
    let (mut daily, mut spans) = (Vec::new(), Vec::new());
    for blackout in blackouts {
        match blackout {
            Blackout::Daily { from, to, days } => daily.push(DailyBlackout { from: *from, to: *to, weekdays: days.0 }),
            Blackout::Span { from, to } => {
                let seconds = |moment: &Moment| moment.instant_in(zone).map(|instant| instant.0.div_euclid(1_000));
                match (seconds(from), seconds(to)) {
                    (Some(from), Some(to)) if from < to => spans.push((from, to)),
                    _ => {
                        let message = format!("the blackout from {from} to {to} is empty");
                        findings
                            .push(Finding::new(Code::Conflict, at("blackouts"), message).help("`to` lies after `from`; it is exclusive"));
                    }
                }
            }
        }
    }
    let blackouts = Blackouts::new(daily, spans);
    if blackouts.cover_everything() {
        let message = "the blackouts cover every hour of the week";
        findings.push(Finding::new(Code::NeverFires, at("blackouts"), message).help("leave some time, or say `enabled: false`"));
    }
    blackouts
}

/// The scheduler's calendar of these days.
fn calendar(days: &Days, path: FieldPath) -> Result<Calendar, Finding> {
    let most = core_limits::CALENDAR_DAYS_MAX;
    if days.count() > most as u64 {
        let message = format!("the calendar has {} days", days.count());
        return Err(Finding::new(Code::Calendar, path, message)
            .help(format!("at most {most}; what comes each week belongs in the cron expression")));
    }
    let ends = |ranges: &[DayRange]| ranges.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>();
    Calendar::new(ends(&days.exclude), ends(&days.include)).map_err(|day| {
        Finding::new(Code::Calendar, path, format!("{day} is both excluded and included")).help("take it out of one of them")
    })
}

/// Refuses a timetable of cron that leaves no fire time from its start on, or from 1970 on.
fn fires_at_all(timetable: Timetable) -> Result<Timetable, Finding> {
    let window = timetable.window();
    let from = window.starts_at.unwrap_or_default();
    if timetable.next_after(Timestamp(from.0 - 1)).is_some() {
        return Ok(timetable);
    }
    let (field, message) = match timetable.next_nominal_after(Timestamp(from.0 - 1)) {
        Some(first) => {
            let why = timetable.left_out(first).map(|reason| reason.to_string()).unwrap_or_default();
            (
                "cron",
                format!("nothing is left to fire: the first fire time would be {first}, and it is left out ({why}), as are all others"),
            )
        }
        None => ("ends_at", "the window has no fire time of the expression in it".to_owned()),
    };
    Err(Finding::new(Code::NeverFires, at(field), message).help("leave some fire time; to keep a task from firing say `enabled: false`"))
}
