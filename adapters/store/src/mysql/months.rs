//! History by month: what is kept by fire time lies in one partition a month, so that old history goes with one statement instead of a
//! delete a row, and what is hot lies apart from what is old.
//!
//! Fire times before the first month lie in it, those behind the last one in `later`. A month goes only if nothing in it is live, and the last
//! firing of each task stays ([`kept`](super::kept)).

use std::collections::BTreeMap;

use punctual_driver::ports::StoreError;
use sqlx::Row;

use crate::codec::Malformed;
use crate::mysql::error::Failure;
use crate::mysql::kept;
use crate::mysql::session::{Connections, Session};

/// The tables that are kept by month.
pub(crate) const TABLES: [&str; 6] = ["instances", "troubled", "submission_keys", "submissions", "outputs", "occurrences"];
/// How many months ahead there are partitions for.
const MONTHS_AHEAD: i64 = 3;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A month, counted from January 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Month(i64);

impl Month {
    /// The month that has this instant, in UTC.
    fn of(at_ms: i64) -> Self {
        // Days since 1 March 0000, in cycles of 400 years: February, with its leap day, ends a year.
        let days = at_ms.div_euclid(DAY_MS) + 719_468;
        let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        Month((cycle * 400 + year) * 12 + month_from_march + 2 - 1_970 * 12)
    }

    /// When it begins, in UTC.
    fn begins_ms(self) -> i64 {
        let months = self.0 + 1_970 * 12 - 2;
        let (year, month_from_march) = (months.div_euclid(12), months.rem_euclid(12));
        let (cycle, year_of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * month_from_march + 2) / 5;
        let days = cycle * 146_097 + year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
        (days - 719_468) * DAY_MS
    }

    fn name(self) -> String {
        format!("m{:04}{:02}", 1_970 + self.0.div_euclid(12), 1 + self.0.rem_euclid(12))
    }

    fn parse(name: &str) -> Option<Self> {
        let (year, month) = name.strip_prefix('m')?.split_at_checked(4)?;
        let (year, month) = (year.parse::<i64>().ok()?, month.parse::<i64>().ok()?);
        (1..=12).contains(&month).then_some(Month((year - 1_970) * 12 + month - 1))
    }

    fn definition(self) -> String {
        format!("PARTITION {} VALUES LESS THAN ({})", self.name(), Month(self.0 + 1).begins_ms())
    }
}

const LATER: &str = "PARTITION later VALUES LESS THAN MAXVALUE";

/// The partitions of a new table: this month, the coming ones, and what is later.
pub(crate) fn definitions(now_ms: i64) -> String {
    let now = Month::of(now_ms);
    let months: Vec<_> = (now.0..=now.0 + MONTHS_AHEAD).map(|month| Month(month).definition()).collect();
    format!("{}, {LATER}", months.join(", "))
}

/// The months that a table has partitions for, the oldest first.
async fn months(session: &mut Session, table: &str) -> Result<Vec<Month>, Failure> {
    let sql = format!(
        "SELECT CAST(partition_name AS CHAR) FROM information_schema.partitions
         WHERE table_schema = DATABASE() AND table_name = '{table}' ORDER BY partition_ordinal_position"
    );
    let rows = session.rows(sql).await?;
    let mut months = Vec::with_capacity(rows.len());
    for row in rows {
        months.extend(row.try_get::<Option<String>, _>(0)?.as_deref().and_then(Month::parse));
    }
    Ok(months)
}

/// Makes the partitions of the coming months that are not there, and answers with how many that were. What lies in `later` moves.
pub(crate) async fn make(connections: &Connections, now_sql: &str) -> Result<usize, StoreError> {
    let mut session = connections.session().await?;
    let made = async {
        session.lock().await?;
        let now = Month::of(database_ms(&mut session, now_sql).await?);
        let mut made = 0;
        for table in TABLES {
            let last = months(&mut session, table).await?.last().copied().unwrap_or(Month(now.0 - 1));
            let missing: Vec<_> = (last.0 + 1..=now.0 + MONTHS_AHEAD).map(|month| Month(month).definition()).collect();
            if !missing.is_empty() {
                made += missing.len();
                session.run_long(format!("ALTER TABLE {table} REORGANIZE PARTITION later INTO ({}, {LATER})", missing.join(", "))).await?;
            }
        }
        session.unlock().await?;
        Ok(made)
    };
    match made.await {
        Ok(made) => session.done(Ok(made)),
        // The connection is closed, and the lock is free.
        Err(failure) => Err(connections.error(failure)),
    }
}

/// Drops the months that ended at least `keep` whole months ago, with all their history, and answers with their names. It stops at the first
/// that has a live instance.
pub(crate) async fn drop_old(connections: &Connections, keep: u32, now_sql: &str) -> Result<Vec<String>, StoreError> {
    let mut session = connections.session().await?;
    let mut dropped = Vec::new();
    let answer = drop_from(&mut session, keep, now_sql, &mut dropped).await;
    // Table locks go with the session: whatever happened, nobody gets it who does not know of them.
    drop(session);
    answer.map(|()| dropped).map_err(|failure| connections.error(failure))
}

async fn drop_from(session: &mut Session, keep: u32, now_sql: &str, dropped: &mut Vec<String>) -> Result<(), Failure> {
    session.lock().await?;
    // A statement that changes a table commits by itself; the others do so where it is said.
    session.run("SET SESSION autocommit = 0".to_owned()).await?;
    let now = Month::of(database_ms(session, now_sql).await?);
    let first_kept = Month(now.0 - i64::from(keep));
    // Each table's own: a month may have been dropped of some of them when somebody died.
    let mut old: BTreeMap<Month, Vec<&str>> = BTreeMap::new();
    for table in TABLES {
        for month in months(session, table).await?.into_iter().filter(|month| *month < first_kept) {
            old.entry(month).or_default().push(table);
        }
    }
    // Whoever died, or was refused something, may have left copies: also where no month is old.
    kept::recover(session).await?;
    if old.is_empty() {
        return Ok(());
    }
    kept::make_tables(session).await?;
    for (month, of) in old {
        // Where the instances of the month are gone, somebody died behind that, and what was to be kept of it is back.
        let is_whole = of.contains(&"instances");
        let end = Month(month.0 + 1).begins_ms();
        let last = if is_whole { kept::tasks(session, &month.name(), end).await? } else { Vec::new() };
        // Under table locks nothing comes into the month between the look and the drop.
        let tables = TABLES.map(|table| format!("{table} WRITE")).join(", ");
        let others = format!("live WRITE, dead_letters WRITE, counts WRITE, meta WRITE, {}", kept::locks());
        session.run_long(format!("LOCK TABLES {tables}, {others}")).await?;
        let live = session.rows(format!("SELECT 1 FROM live WHERE fire_time < {end} LIMIT 1")).await?;
        // What waits for a person to settle it is kept as well.
        let dead = session.rows(format!("SELECT 1 FROM dead_letters WHERE fire_time < {end} LIMIT 1")).await?;
        if !live.is_empty() || !dead.is_empty() {
            session.run("UNLOCK TABLES".to_owned()).await?;
            break;
        }
        if is_whole {
            kept::copy(session, &month.name(), &of, &last).await?;
            count_off(session, month).await?;
            session.run_long(format!("ALTER TABLE instances DROP PARTITION {}", month.name())).await?;
        } else {
            kept::copy_half(session, &month.name(), &of, end).await?;
        }
        // From here on what was counted off is off for good.
        session.run(format!("DELETE FROM meta WHERE name LIKE '{}%'", note(month))).await?;
        session.run("COMMIT".to_owned()).await?;
        for table in of.into_iter().filter(|table| *table != "instances") {
            session.run_long(format!("ALTER TABLE {table} DROP PARTITION {}", month.name())).await?;
        }
        kept::put_back(session).await?;
        session.run("UNLOCK TABLES".to_owned()).await?;
        dropped.push(month.name());
    }
    kept::drop_tables(session).await
}

/// How the rows of `meta` begin that say how many instances of a month, by state, are not counted any more though they may still be there.
fn note(month: Month) -> String {
    format!("dropping-{}-", month.name())
}

/// Counts the month's instances no more, but for those that are kept, and notes how many those were in the same transaction: who comes after a crash counts anew.
async fn count_off(session: &mut Session, month: Month) -> Result<(), Failure> {
    let (name, note) = (month.name(), note(month));
    let mut changes: BTreeMap<u8, i64> = BTreeMap::new();
    let noted = format!("SELECT CAST(SUBSTRING(name, {}) AS UNSIGNED), value FROM meta WHERE name LIKE '{note}%'", note.len() + 1);
    for row in &session.rows(noted).await? {
        let state = row.try_get::<u64, _>(0)?;
        *changes.entry(u8::try_from(state).map_err(|_| Malformed("no state has this number"))?).or_default() += row.try_get::<i64, _>(1)?;
    }
    session.run(format!("DELETE FROM meta WHERE name LIKE '{note}%'")).await?;
    let counted = format!("SELECT state, COUNT(*) FROM instances PARTITION ({name}) GROUP BY state");
    let mut counts: BTreeMap<u8, i64> = BTreeMap::new();
    for row in &session.rows_long(counted).await? {
        counts.insert(row.try_get(0)?, row.try_get(1)?);
    }
    for (state, count) in kept::counts(session).await? {
        *counts.entry(state).or_default() -= count;
    }
    for (state, count) in counts {
        *changes.entry(state).or_default() -= count;
        session.run(format!("INSERT INTO meta (name, value) VALUES ('{note}{state}', {count})")).await?;
    }
    for (state, change) in changes {
        let add = "ON DUPLICATE KEY UPDATE instances = instances + VALUES(instances)";
        session.run(format!("INSERT INTO counts (`partition`, state, instances) VALUES (0, {state}, {change}) {add}")).await?;
    }
    session.run("COMMIT".to_owned()).await.map(drop)
}

pub(crate) async fn database_ms(session: &mut Session, now_sql: &str) -> Result<i64, Failure> {
    let rows = session.rows(format!("SELECT CAST({now_sql} AS SIGNED)")).await?;
    Ok(rows.first().ok_or(Failure::Sql(sqlx::Error::RowNotFound))?.try_get(0)?)
}

#[cfg(test)]
mod tests {
    use super::Month;

    #[test]
    fn months_begin_where_the_calendar_says() {
        for (name, begins) in [
            ("m1970-01", 0),
            ("m2000-02", 949_363_200_000),
            ("m2000-03", 951_868_800_000),
            ("m2026-11", 1_793_491_200_000),
            ("m2027-01", 1_798_761_600_000),
            ("m2100-03", 4_107_542_400_000_i64),
        ] {
            let month = Month::parse(&name.replace('-', "")).expect("a month");
            assert_eq!((month.begins_ms(), month.name()), (begins, name.replace('-', "")));
            assert_eq!((Month::of(begins), Month::of(begins - 1)), (month, Month(month.0 - 1)));
        }
        assert!((-50_000..50_000).all(|month| Month::of(Month(month).begins_ms()) == Month(month)));
        assert_eq!(Month::parse("later"), None);
    }
}
