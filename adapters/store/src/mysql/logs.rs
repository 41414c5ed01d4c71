//! Lines of attempts, in a partition a day: old days go with one statement. They have connections of their own, and lie in a table that no
//! commit touches.

use std::sync::Arc;

use punctual_core::ids::{Fence, TaskId, WorkerId};
use punctual_core::time::Timestamp;
use punctual_driver::logs::{Answer, Day, FoundLine, Level, LogBatch, LogCursor, LogLine, LogPage, LogQuery, LogStore, TraceId};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::codec::Malformed;
use crate::mysql::NOW;
use crate::mysql::error::Failure;
use crate::mysql::rows::required_text;
use crate::mysql::session::{Connections, Session};
use crate::mysql::sql::{literal, statements};

/// How many days ahead there are partitions for.
const DAYS_AHEAD: i64 = 3;
const LATER: &str = "PARTITION later VALUES LESS THAN MAXVALUE";

/// The lines of a database's attempts.
#[derive(Clone, Debug)]
pub struct MySqlLogs {
    pub(crate) writes: Connections,
    pub(crate) reads: Connections,
    pub(crate) callers_clock: bool,
}

impl MySqlLogs {
    /// Ends all connections.
    pub async fn close(&self) {
        tokio::join!(self.writes.close(), self.reads.close());
    }
}

fn name(day: Day) -> String {
    format!("d{day}").replace('-', "")
}

fn definition(day: Day) -> String {
    format!("PARTITION {} VALUES LESS THAN ({})", name(day), day.0 + 1)
}

fn inserts(batches: &[Arc<LogBatch>], today: Day) -> Vec<String> {
    let head = "INSERT IGNORE INTO log_lines (day, instance, fence, seq, attempt, task, worker, trace, written_at, level, dropped, message) VALUES ";
    let lines = batches.iter().flat_map(|batch| {
        batch.attempts.iter().flat_map(move |attempt| attempt.lines.iter().map(move |line| (&batch.worker, attempt, line)))
    });
    statements(head, lines, "", |values, (worker, attempt, line)| {
        values
            .signed(Day::of_line(line.at, today).0)
            .unsigned(attempt.instance.0)
            .unsigned(attempt.fence.0)
            .unsigned(line.seq)
            .unsigned(attempt.attempt)
            .unsigned(attempt.task.0)
            .text(Some(&worker.0))
            .bytes(&attempt.trace.0)
            .signed(line.at.0)
            .unsigned(line.level.code())
            .unsigned(line.dropped)
            .bytes(line.message.as_bytes())
            .done();
    })
}

/// The lines behind where the page begins.
fn behind(query: &LogQuery) -> String {
    let (first, last) = query.days();
    let after = query.after.unwrap_or_default();
    let (fence, seq) = (after.fence.0, after.seq);
    format!(
        "FROM log_lines WHERE day BETWEEN {} AND {} AND instance = {} AND fence >= {fence} AND (fence > {fence} OR seq > {seq})",
        first.0, last.0, query.instance.0
    )
}

/// The last one of them, wanted or not.
async fn end(session: &mut Session, query: &LogQuery) -> Result<Option<LogCursor>, Failure> {
    let rows = session.rows(format!("SELECT fence, seq {} ORDER BY fence DESC, seq DESC LIMIT 1", behind(query))).await?;
    rows.first().map(|row| Ok(LogCursor { fence: Fence(row.try_get(0)?), seq: row.try_get(1)? })).transpose()
}

fn select(query: &LogQuery, end: LogCursor) -> String {
    let order = if query.newest { "DESC" } else { "ASC" };
    let (fence, seq) = (end.fence.0, end.seq);
    let attempt = query.attempt.map(|attempt| format!(" AND attempt = {attempt}")).unwrap_or_default();
    let text = query.text.as_deref().map(|text| format!(" AND LOCATE({}, message) > 0", literal(text.as_bytes()))).unwrap_or_default();
    format!(
        "SELECT fence, attempt, task, worker, trace, seq, written_at, level, dropped, message {}
           AND (fence < {fence} OR (fence = {fence} AND seq <= {seq})){attempt} AND (dropped > 0 OR (level >= {}{text}))
         ORDER BY fence {order}, seq {order}, day {order} LIMIT {}",
        behind(query),
        query.level.code(),
        query.limit
    )
}

fn found(row: &MySqlRow) -> Result<FoundLine, Failure> {
    let trace: Vec<u8> = row.try_get(4)?;
    let message: Vec<u8> = row.try_get(9)?;
    Ok(FoundLine {
        fence: Fence(row.try_get(0)?),
        attempt: row.try_get(1)?,
        task: TaskId(row.try_get(2)?),
        worker: WorkerId(required_text(row, 3)?),
        trace: TraceId(trace.try_into().map_err(|_| Malformed("no trace has so many bytes"))?),
        line: LogLine {
            seq: row.try_get(5)?,
            at: Timestamp(row.try_get(6)?),
            level: Level::from_code(row.try_get(7)?).ok_or(Malformed("no level has this number"))?,
            dropped: row.try_get(8)?,
            message: String::from_utf8_lossy(&message).into(),
        },
    })
}

/// The partitions that there are, the oldest first.
async fn days(session: &mut Session) -> Result<Vec<Day>, Failure> {
    let sql = "SELECT CAST(partition_description AS CHAR) FROM information_schema.partitions
         WHERE table_schema = DATABASE() AND table_name = 'log_lines' ORDER BY partition_ordinal_position";
    let rows = session.rows(sql.to_owned()).await?;
    let mut days = Vec::with_capacity(rows.len());
    for row in rows {
        let end: Option<String> = row.try_get(0)?;
        // The last one has no end.
        days.extend(end.and_then(|end| end.parse::<i64>().ok()).map(|end| Day(end - 1)));
    }
    Ok(days)
}

async fn keep(session: &mut Session, keep: u32, now_sql: &str) -> Result<Vec<Day>, Failure> {
    session.lock().await?;
    let rows = session.rows(format!("SELECT CAST({now_sql} AS SIGNED)")).await?;
    // The database's clock: one replica whose own is wrong must not drop what the others keep.
    let now: i64 = rows.first().ok_or(Failure::Sql(sqlx::Error::RowNotFound))?.try_get(0)?;
    let today = Day::of(Timestamp(now));
    let known = days(session).await?;
    let last = known.last().copied().unwrap_or(Day(today.0 - 2));
    let missing: Vec<_> = (last.0 + 1..=today.0 + DAYS_AHEAD).map(|day| definition(Day(day))).collect();
    if !missing.is_empty() {
        session.run_long(format!("ALTER TABLE log_lines REORGANIZE PARTITION later INTO ({}, {LATER})", missing.join(", "))).await?;
    }
    let old: Vec<Day> = known.into_iter().filter(|day| *day < Day::first_kept(today, keep)).collect();
    if !old.is_empty() {
        let names: Vec<_> = old.iter().map(|day| name(*day)).collect();
        session.run_long(format!("ALTER TABLE log_lines DROP PARTITION {}", names.join(", "))).await?;
    }
    session.unlock().await?;
    Ok(old)
}

impl LogStore for MySqlLogs {
    fn append(&self, batches: Vec<Arc<LogBatch>>, now: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move {
            let statements = inserts(&batches, Day::of(now));
            let mut session = self.writes.session().await?;
            let ran = session.run_all(statements).await.map(drop);
            session.done(ran)
        })
    }

    fn lines(&self, query: LogQuery) -> Answer<'_, LogPage> {
        Box::pin(async move {
            let mut session = self.reads.session().await?;
            let read = async {
                let Some(end) = end(&mut session, &query).await? else { return Ok(LogPage::default()) };
                let mut lines = session.rows(select(&query, end)).await?.iter().map(found).collect::<Result<Vec<_>, Failure>>()?;
                if query.newest {
                    lines.reverse();
                }
                Ok(LogPage::of(&query, lines, Some(end)))
            };
            let read = read.await;
            session.done(read)
        })
    }

    fn keep(&self, days: u32, now: Timestamp) -> Answer<'_, Vec<Day>> {
        Box::pin(async move {
            let now = if self.callers_clock { now.0.to_string() } else { NOW.to_owned() };
            let mut session = self.writes.session().await?;
            match keep(&mut session, days, &now).await {
                Ok(dropped) => session.done(Ok(dropped)),
                // The connection is closed, and the lock is free.
                Err(failure) => Err(self.writes.error(failure)),
            }
        })
    }
}
