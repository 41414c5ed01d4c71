//! A schedule or an interval with all that refines when it fires.
//!
//! The *nominal* fire times are those that the series names between the bounds of the window, with those of included days. Of these some
//! are left out: by an excluded day, or by a blackout. The others are fired. All are in whole seconds for cron.

use std::sync::Arc;

use super::calendar::DAY_SECS;
use super::calendar_days::{Blackouts, Calendar, LeftOut, Piece, Pieces};
use super::count::latest_second;
use super::explain::Occurrence;
use super::schedule::{REACH, SECOND_MAX, Schedule};
use crate::backoff::{between, splitmix64};
use crate::ids::TaskId;
use crate::limits::CRON_SEARCH_YEARS;
use crate::time::{Millis, Timestamp};

/// How far a search for a fire time goes, in seconds.
const SEARCH_SECS: i64 = CRON_SEARCH_YEARS as i64 * 366 * 86_400;
/// The first second that there is.
const SECOND_MIN: i64 = Timestamp::MIN.0 / 1_000;

/// What gives the nominal fire times.
#[derive(Clone, Debug, PartialEq)]
pub enum Series {
    /// A cron schedule.
    Cron(Arc<Schedule>),
    /// From fire time to fire time. With a `starts_at` it counts from there, by the wall clock; else from when the task was made.
    FixedRate(Millis),
    /// From the end of an instance to the next fire time.
    FixedDelay(Millis),
}

/// Between which instants a trigger fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Nothing fires before it; a fire time at this very instant is fired.
    pub starts_at: Option<Timestamp>,
    /// Nothing fires at it or after it.
    pub ends_at: Option<Timestamp>,
}

/// A series of fire times, and what refines it.
///
/// Asking is pure. Questions about many fire times cost by the number of days, not of fire times.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    series: Series,
    window: Window,
    calendar: Option<Arc<Calendar>>,
    blackouts: Blackouts,
    jitter: Millis,
    /// The schedule's times of day on every date, where days are included.
    on_every_date: Option<Box<Schedule>>,
}

/// Nominal fire times that are left out for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutRun {
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
    /// How many are left out for this reason from the first to the last.
    pub count: u64,
    /// Why.
    pub reason: LeftOut,
}

/// What a preview shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// A fire time.
    Fires {
        /// When.
        at: Occurrence,
        /// The calendar includes its day.
        is_included: bool,
    },
    /// Neighbours that are left out for one reason.
    LeftOut {
        /// The first.
        first: Occurrence,
        /// The last.
        last: Occurrence,
        /// How many.
        count: u64,
        /// Why.
        reason: LeftOut,
    },
}

impl Timetable {
    /// Refines a series. Calendar and blackouts are for cron; an interval has no zone that days and times could belong to.
    pub fn new(series: Series, window: Window, calendar: Option<Arc<Calendar>>, blackouts: Blackouts, jitter: Millis) -> Timetable {
        let calendar = calendar.filter(|calendar| !calendar.is_empty());
        let has_included = calendar.as_ref().is_some_and(|calendar| calendar.last_included().is_some());
        let on_every_date = match &series {
            Series::Cron(schedule) if has_included => Some(Box::new(Schedule::new(
                schedule.expression().on_every_date(),
                schedule.zone().clone(),
                schedule.gap(),
                schedule.overlap(),
            ))),
            _ => None,
        };
        Timetable { series, window, calendar, blackouts, jitter, on_every_date }
    }

    /// What gives the nominal fire times.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Between which instants it fires.
    pub fn window(&self) -> Window {
        self.window
    }

    /// By how much a start may be put off.
    pub fn jitter(&self) -> Millis {
        self.jitter
    }

    /// The first fire time after `after` (exclusive) that is fired; `None` where there is none within the search limit, and for a fixed delay.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.series {
            Series::Cron(schedule) => instant(self.next_fired(schedule, whole(after), SECOND_MAX)),
            _ => self.next_nominal_after(after),
        }
    }

    /// The first nominal fire time after `after` (exclusive). A rate without a `starts_at` counts from `after`, which is one itself or when the
    /// task was made.
    pub fn next_nominal_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.series {
            Series::Cron(schedule) => instant(self.next_nominal(schedule, whole(after), SECOND_MAX)),
            Series::FixedRate(interval) => match self.window.starts_at {
                Some(starts_at) if after < starts_at => self.before_end(starts_at),
                Some(starts_at) => {
                    self.before_end(starts_at.saturating_add(interval.saturating_mul(steps(after, starts_at, *interval) + 1)))
                }
                None => self.before_end(after.saturating_add(positive(*interval))),
            },
            Series::FixedDelay(_) => None,
        }
    }

    /// How many fire times after `after` (exclusive) until `until` (inclusive) are fired. For a rate `after` is a fire time.
    pub fn count_in(&self, after: Timestamp, until: Timestamp) -> u64 {
        let Series::Cron(schedule) = &self.series else { return self.count_nominal_in(after, until) };
        let mut count = 0;
        self.each_piece(schedule, after, until, |piece, from, end| {
            if piece.left_out.is_none() {
                count += self.nominal_of(schedule, piece).count_seconds(from, end);
            }
        });
        count
    }

    /// How many nominal fire times there are after `after` (exclusive) until `until` (inclusive). For a rate `after` is a fire time.
    pub fn count_nominal_in(&self, after: Timestamp, until: Timestamp) -> u64 {
        match &self.series {
            Series::Cron(schedule) if self.on_every_date.is_none() => {
                let (from, end) = self.bounds(after, until);
                schedule.count_seconds(from, end)
            }
            Series::Cron(schedule) => {
                let mut count = 0;
                let mut each = |piece, from, end| count += self.nominal_of(schedule, piece).count_seconds(from, end);
                self.each_piece(schedule, after, until, &mut each);
                count
            }
            Series::FixedRate(interval) => match self.next_nominal_after(after) {
                Some(first) if first <= until => 1 + steps(self.last_instant(until), first, *interval),
                _ => 0,
            },
            Series::FixedDelay(_) => 0,
        }
    }

    /// The last fire time after `after` (exclusive) until `until` (inclusive) that is fired. For a rate `after` is a fire time.
    pub fn latest_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let Series::Cron(schedule) = &self.series else { return self.latest_nominal_in(after, until) };
        instant(latest_second(whole(after), whole(until), |after, until| self.next_fired(schedule, after, until)))
    }

    /// The last nominal fire time after `after` (exclusive) until `until` (inclusive). For a rate `after` is a fire time.
    pub fn latest_nominal_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        match &self.series {
            Series::Cron(schedule) => {
                instant(latest_second(whole(after), whole(until), |after, until| self.next_nominal(schedule, after, until)))
            }
            Series::FixedRate(interval) => {
                let first = self.next_nominal_after(after).filter(|first| *first <= until)?;
                Some(first.saturating_add(interval.saturating_mul(steps(self.last_instant(until), first, *interval))))
            }
            Series::FixedDelay(_) => None,
        }
    }

    /// What is left out after `after` (exclusive) until `until` (inclusive): at most one run for each reason, in the order of their first fire
    /// times. Others may lie between the first and the last of a run.
    pub fn left_out_in(&self, after: Timestamp, until: Timestamp) -> Vec<LeftOutRun> {
        let Series::Cron(schedule) = &self.series else { return Vec::new() };
        let mut runs: [Option<LeftOutPieces>; 2] = [None; 2];
        if self.calendar.is_none() && self.blackouts.is_empty() {
            return Vec::new();
        }
        self.each_piece(schedule, after, until, |piece, from, end| {
            let Some(reason) = piece.left_out else { return };
            let count = self.nominal_of(schedule, piece).count_seconds(from, end);
            if count > 0 {
                let run = runs[reason as usize].get_or_insert(LeftOutPieces { first: (piece, from), last: (piece, from, end), count: 0 });
                (run.last, run.count) = ((piece, from, end), run.count + count);
            }
        });
        let mut runs: Vec<_> = runs.into_iter().flatten().filter_map(|run| self.run_of(schedule, run)).collect();
        runs.sort_unstable_by_key(|run| run.first);
        runs
    }

    /// Why a nominal fire time is left out; `None` where it is fired.
    pub fn left_out(&self, fire_time: Timestamp) -> Option<LeftOut> {
        match &self.series {
            Series::Cron(schedule) => self.pieces(schedule).at(whole(fire_time)).left_out,
            Series::FixedRate(_) | Series::FixedDelay(_) => None,
        }
    }

    /// The last of the neighbours of `fire_time`, a nominal fire time, that are left out with it: then nothing is fired until behind it.
    pub fn left_out_until(&self, fire_time: Timestamp) -> Timestamp {
        let before = Timestamp(fire_time.0 - 1);
        let until = self.next_after(before).map_or(Timestamp::MAX, |fired| Timestamp(fired.0 - 1));
        self.latest_nominal_in(before, until).unwrap_or(fire_time)
    }

    /// When the firing of `fire_time` starts: put off by an amount that task and fire time decide alone, so that it is the same for every owner.
    /// It stays before the next nominal fire time, before the end of the window, and out of blackouts and excluded days.
    pub fn start_of(&self, task: TaskId, fire_time: Timestamp) -> Timestamp {
        if self.jitter == Millis::ZERO {
            return fire_time;
        }
        let latest = fire_time.saturating_add(self.jitter).min(self.start_bound(fire_time));
        let seed = splitmix64(task.0) ^ fire_time.0.cast_unsigned();
        fire_time.saturating_add(Millis(between(0, latest.since(fire_time).0, seed)))
    }

    /// The latest start of a fire time within its jitter.
    fn start_bound(&self, fire_time: Timestamp) -> Timestamp {
        let mut end = self.window.ends_at.unwrap_or(Timestamp::MAX);
        match &self.series {
            Series::Cron(schedule) => {
                let until = whole(fire_time.saturating_add(self.jitter));
                if let Some(next) = self.next_nominal(schedule, whole(fire_time), until) {
                    end = end.min(Timestamp(next * 1_000));
                }
                let mut pieces = self.pieces(schedule);
                let mut second = whole(fire_time);
                while second <= until {
                    let piece = pieces.at(second);
                    if piece.left_out.is_some() {
                        end = end.min(Timestamp(second * 1_000));
                        break;
                    }
                    second = piece.ends_at;
                }
            }
            Series::FixedRate(interval) => end = end.min(fire_time.saturating_add(positive(*interval))),
            Series::FixedDelay(_) => {}
        }
        Timestamp(end.0 - 1).max(fire_time)
    }

    /// The next `count` fire times after `after` (exclusive) with what is left out before and between them, or fewer where it ends. Empty for
    /// intervals.
    pub fn explain(&self, after: Timestamp, count: usize) -> Vec<Planned> {
        let Series::Cron(schedule) = &self.series else { return Vec::new() };
        let mut planned = Vec::new();
        let mut pieces = self.pieces(schedule);
        let mut next = self.next_nominal_after(after);
        let end = whole(after).saturating_add(SEARCH_SECS);
        while let Some(at) = next
            && planned.len() < count
            && whole(at) < end
        {
            let piece = pieces.at(whole(at));
            let occurrence = self.nominal_of(schedule, piece).occurrence(at);
            let Some(reason) = piece.left_out else {
                planned.push(Planned::Fires { at: occurrence, is_included: piece.is_included });
                next = self.next_nominal_after(at);
                continue;
            };
            let (last, behind) = self.same_reason_until(schedule, at, reason, end);
            let count = self.count_nominal_in(Timestamp(at.0 - 1), last);
            let last = self.nominal_of(schedule, pieces.at(whole(last))).occurrence(last);
            planned.push(Planned::LeftOut { first: occurrence, last, count, reason });
            next = behind;
        }
        planned
    }

    /// The last of the neighbours that are left out for one reason, and the nominal fire time behind it.
    fn same_reason_until(&self, schedule: &Schedule, first: Timestamp, reason: LeftOut, end: i64) -> (Timestamp, Option<Timestamp>) {
        let mut pieces = self.pieces(schedule);
        let mut next = Some(whole(first));
        while let Some(second) = next
            && second < end
        {
            let piece = pieces.at(second);
            if piece.left_out != Some(reason) {
                break;
            }
            next = self.next_nominal(schedule, piece.ends_at - 1, SECOND_MAX);
        }
        let until = next.map_or(Timestamp::MAX, |second| Timestamp(second * 1_000 - 1));
        (self.latest_nominal_in(Timestamp(first.0 - 1), until).unwrap_or(first), instant(next))
    }

    fn before_end(&self, at: Timestamp) -> Option<Timestamp> {
        (at < self.window.ends_at.unwrap_or(Timestamp::MAX)).then_some(at)
    }

    /// The last instant until `until` (inclusive) that is in the window.
    fn last_instant(&self, until: Timestamp) -> Timestamp {
        self.window.ends_at.map_or(until, |end| until.min(Timestamp(end.0 - 1)))
    }

    fn pieces<'a>(&'a self, schedule: &'a Schedule) -> Pieces<'a> {
        Pieces::new(schedule, self.calendar.as_deref(), &self.blackouts)
    }

    /// The schedule whose fire times are the nominal ones of a piece.
    fn nominal_of<'a>(&'a self, schedule: &'a Schedule, piece: Piece) -> &'a Schedule {
        self.on_every_date.as_deref().filter(|_| piece.is_included).unwrap_or(schedule)
    }

    /// The seconds (first, end) after `after` until `until` that lie in the window.
    fn bounds(&self, after: Timestamp, until: Timestamp) -> (i64, i64) {
        (self.first_second().max(whole(after).saturating_add(1)), self.end_second().min(whole(until).saturating_add(1)))
    }

    fn first_second(&self) -> i64 {
        self.window.starts_at.map_or(SECOND_MIN, up).max(SECOND_MIN)
    }

    /// Exclusive.
    fn end_second(&self) -> i64 {
        self.window.ends_at.map_or(SECOND_MAX + 1, up).min(SECOND_MAX + 1)
    }

    /// Calls `each` with the pieces that make up the time after `after` until `until`, each with its first second and its end.
    fn each_piece(&self, schedule: &Schedule, after: Timestamp, until: Timestamp, mut each: impl FnMut(Piece, i64, i64)) {
        let (mut from, end) = self.bounds(after, until);
        let mut pieces = self.pieces(schedule);
        while from < end {
            let piece = pieces.at(from);
            let part_end = piece.ends_at.min(end);
            each(piece, from, part_end);
            from = part_end;
        }
    }

    /// The first second after `after` (exclusive) until `until` (inclusive) that is a nominal fire time.
    fn next_nominal(&self, schedule: &Schedule, after: i64, until: i64) -> Option<i64> {
        let after = after.max(self.first_second() - 1);
        let until = until.min(self.end_second() - 1);
        if after >= until {
            return None;
        }
        let by_date = schedule.next_second(after).filter(|&second| second <= until);
        match &self.on_every_date {
            None => by_date,
            Some(on_every_date) => {
                let included = self.next_included(schedule, on_every_date, after, by_date.unwrap_or(until));
                included.or(by_date)
            }
        }
    }

    /// The first second after `after` (exclusive) until `until` (inclusive) at which an included day fires.
    fn next_included(&self, schedule: &Schedule, on_every_date: &Schedule, after: i64, until: i64) -> Option<i64> {
        // No instant of a date is farther from it than the clock can be off.
        let last = self.calendar.as_ref().and_then(|calendar| calendar.last_included())?;
        let until = until.min((last + 1) * DAY_SECS + REACH);
        let none = Blackouts::default();
        let mut pieces = Pieces::new(schedule, self.calendar.as_deref(), &none);
        let mut after = after;
        while after < until {
            let second = on_every_date.next_second(after).filter(|&second| second <= until)?;
            let piece = pieces.at(second);
            if piece.is_included {
                return Some(second);
            }
            after = piece.ends_at - 1;
        }
        None
    }

    /// The first second after `after` (exclusive) until `until` (inclusive) at which it fires.
    fn next_fired(&self, schedule: &Schedule, after: i64, until: i64) -> Option<i64> {
        if self.blackouts.cover_everything() {
            return None;
        }
        let start = after.max(self.first_second() - 1);
        let until = until.min(start.saturating_add(SEARCH_SECS));
        let mut pieces = self.pieces(schedule);
        let mut after = start;
        while let Some(second) = self.next_nominal(schedule, after, until) {
            let piece = pieces.at(second);
            if piece.left_out.is_none() {
                return Some(second);
            }
            after = piece.ends_at - 1;
        }
        None
    }

    fn run_of(&self, schedule: &Schedule, run: LeftOutPieces) -> Option<LeftOutRun> {
        let (piece, from) = run.first;
        let first = self.nominal_of(schedule, piece).next_second(from - 1)?;
        let (piece, from, end) = run.last;
        let nominal = self.nominal_of(schedule, piece);
        let last = nominal.latest_in(Timestamp(from * 1_000 - 1), Timestamp(end * 1_000 - 1))?;
        Some(LeftOutRun { first: Timestamp(first * 1_000), last, count: run.count, reason: piece.left_out? })
    }
}

/// The pieces between which a run lies.
#[derive(Clone, Copy)]
struct LeftOutPieces {
    first: (Piece, i64),
    last: (Piece, i64, i64),
    count: u64,
}

/// The whole second that an instant lies in.
fn whole(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000).clamp(SECOND_MIN, SECOND_MAX)
}

/// The first whole second at or after an instant.
fn up(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000) + i64::from(at.0.rem_euclid(1_000) > 0)
}

fn instant(second: Option<i64>) -> Option<Timestamp> {
    second.map(|second| Timestamp(second * 1_000))
}

fn positive(interval: Millis) -> Millis {
    Millis(interval.0.max(1))
}

/// How many whole intervals lie between two instants.
fn steps(at: Timestamp, from: Timestamp, interval: Millis) -> u64 {
    at.since(from).0 / positive(interval).0
}
