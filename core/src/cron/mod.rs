//! Cron (to be merged).
#![allow(missing_docs)]
use crate::time::Timestamp;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Unix5,
    Seconds6,
    Quartz,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    #[default]
    AfterGap,
    Skip,
    ShiftForward,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapPolicy {
    #[default]
    First,
    Both,
    Last,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(String);
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CronError(String);
impl Expression {
    pub fn parse(t: &str, _d: Option<Dialect>) -> Result<Self, CronError> {
        Ok(Expression(t.into()))
    }
    pub fn describe(&self) -> String {
        self.0.clone()
    }
}
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub e: Expression,
    pub z: jiff::tz::TimeZone,
}
impl Schedule {
    pub fn new(e: Expression, z: jiff::tz::TimeZone, _: GapPolicy, _: OverlapPolicy) -> Self {
        Schedule { e, z }
    }
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        Some(Timestamp((after.0 / 60_000 + 1) * 60_000))
    }
    pub fn latest_in(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let t = Timestamp(until.0 / 60_000 * 60_000);
        (t > after).then_some(t)
    }
    pub fn count_in(&self, after: Timestamp, until: Timestamp) -> u64 {
        ((until.0 / 60_000) - (after.0 / 60_000)).max(0) as u64
    }
}
pub fn validate_zone_name(_: &str) -> Result<(), CronError> {
    Ok(())
}
