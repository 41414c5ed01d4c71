//! Lines of attempts: a file a day, beside the database.
//!
//! A writer of the database's own file would make commits wait for it; these files have nothing to do with it. A day that is no longer kept
//! is a file that is removed, and its room is free at once. They are written without waiting for the disk (`synchronous = NORMAL`): a crash
//! of the machine may lose the last seconds of them, never what was before.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_core::ids::{Fence, TaskId, WorkerId};
use punctual_core::time::Timestamp;
use punctual_driver::logs::{Answer, Day, FoundLine, Level, LogBatch, LogCursor, LogLine, LogPage, LogQuery, LogStore, TraceId};
use punctual_driver::ports::StoreError;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use crate::codec::Malformed;
use crate::sqlite::error::{Database, malformed};

/// Says that a file is a day's lines.
const APPLICATION_ID: u32 = 0x5055_4e4c;
const VERSION: u32 = 1;
/// Files that stay open, for writing and for reading each.
const OPEN_MAX: usize = 16;

const SCHEMA: &str = "
CREATE TABLE lines (
    instance INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    task INTEGER NOT NULL,
    worker TEXT NOT NULL,
    trace BLOB NOT NULL,
    at INTEGER NOT NULL,
    level INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    message BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX lines_by_place ON lines (instance, fence, seq);
";

/// The lines of a database's attempts.
#[derive(Clone, Debug)]
pub struct SqliteLogs(Arc<Files>);

#[derive(Debug)]
struct Files {
    database: Database,
    folder: PathBuf,
    writer: Mutex<Open>,
    reader: Mutex<Open>,
    pages_max: Mutex<Option<u32>>,
}

/// Files that are open, by their day.
#[derive(Debug, Default)]
struct Open(BTreeMap<Day, Connection>);

impl SqliteLogs {
    /// Those beside this database. Nothing is made before there are any.
    pub fn beside(path: impl AsRef<Path>) -> Self {
        let mut folder: OsString = path.as_ref().into();
        folder.push(".logs");
        let folder = PathBuf::from(folder);
        let (writer, reader, pages_max) = (Mutex::default(), Mutex::default(), Mutex::default());
        SqliteLogs(Arc::new(Files { database: Database::new(&folder), folder, writer, reader, pages_max }))
    }

    /// Makes a day full at so many pages, from when its file is opened next.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn set_pages_max(&self, pages: Option<u32>) {
        *self.0.pages_max.lock().unwrap_or_else(PoisonError::into_inner) = pages;
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }

    async fn on<T: Send + 'static>(&self, job: impl FnOnce(&Files) -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
        let files = self.0.clone();
        match tokio::task::spawn_blocking(move || job(&files)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.0.database.other("the job was lost: see the log for a panic")),
        }
    }
}

impl Files {
    fn file(&self, day: Day) -> PathBuf {
        self.folder.join(format!("{day}.db"))
    }

    /// The days that there are, in order.
    fn days(&self) -> Result<Vec<Day>, StoreError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.database.io(&error)),
        };
        let mut days: Vec<Day> = entries.filter_map(|entry| day_of(entry.ok()?.file_name().to_str()?.strip_suffix(".db")?)).collect();
        days.sort_unstable();
        Ok(days)
    }

    fn open_to_write(&self, day: Day) -> Result<Connection, StoreError> {
        std::fs::create_dir_all(&self.folder).map_err(|error| self.database.io(&error))?;
        // Nobody reads a file that is half made; that is once a day.
        let _reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = || -> rusqlite::Result<Connection> {
            let mut connection = Connection::open_with_flags(self.file(day), flags)?;
            connection.busy_timeout(super::BUSY_TIMEOUT)?;
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            if let Some(pages) = *self.pages_max.lock().unwrap_or_else(PoisonError::into_inner) {
                connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
            }
            let transaction = connection.transaction()?;
            let version: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if version == 0 {
                transaction.execute_batch(SCHEMA)?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", VERSION)?;
            }
            transaction.commit()?;
            Ok(connection)
        };
        opened().map_err(|error| self.database.error(error))
    }

    /// `None`: it has no lines yet.
    fn open_to_read(&self, day: Day) -> rusqlite::Result<Option<Connection>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.file(day), flags)?;
        connection.busy_timeout(super::BUSY_TIMEOUT)?;
        let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((version > 0).then_some(connection))
    }

    fn append(&self, batches: &[Arc<LogBatch>], today: Day) -> Result<(), StoreError> {
        let mut by_day: BTreeMap<Day, Vec<_>> = BTreeMap::new();
        for batch in batches {
            for attempt in &batch.attempts {
                for line in &attempt.lines {
                    by_day.entry(Day::of_line(line.at, today)).or_default().push((&batch.worker, attempt, line));
                }
            }
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        for (day, lines) in by_day {
            if !writer.0.contains_key(&day) {
                let connection = self.open_to_write(day)?;
                writer.put(day, connection);
            }
            let connection = writer.0.get_mut(&day).expect("it was there, or was put there");
            let written = || -> rusqlite::Result<()> {
                let transaction = connection.transaction()?;
                {
                    let mut insert = transaction.prepare_cached(
                        "INSERT INTO lines (instance, fence, seq, attempt, task, worker, trace, at, level, dropped, message)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (instance, fence, seq) DO NOTHING",
                    )?;
                    for (worker, attempt, line) in lines {
                        insert.execute(params![
                            attempt.instance.0.cast_signed(),
                            attempt.fence.0.cast_signed(),
                            line.seq.cast_signed(),
                            attempt.attempt,
                            attempt.task.0.cast_signed(),
                            &*worker.0,
                            attempt.trace.0,
                            line.at.0,
                            line.level.code(),
                            line.dropped.cast_signed(),
                            line.message.as_bytes(),
                        ])?;
                    }
                }
                transaction.commit()
            };
            if let Err(error) = written() {
                // Its file may have been removed or damaged: it is opened anew.
                writer.0.remove(&day);
                return Err(self.database.error(error));
            }
        }
        Ok(())
    }

    /// Reads of a day; `None`: it has nothing.
    fn of_day<T>(
        &self,
        reader: &mut Open,
        day: Day,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        if !reader.0.contains_key(&day) {
            // One whose making was broken off, or that is removed just now, has nothing.
            match self.open_to_read(day) {
                Ok(Some(connection)) => reader.put(day, connection),
                Ok(None) => return Ok(None),
                Err(_) if !self.file(day).exists() => return Ok(None),
                Err(error) => return Err(self.database.error(error)),
            }
        }
        let answer = read(&reader.0[&day]);
        if answer.is_err() {
            reader.0.remove(&day);
        }
        answer.map(Some).map_err(|error| self.database.error(error))
    }

    fn lines(&self, query: &LogQuery) -> Result<LogPage, StoreError> {
        let (first, last) = query.days();
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let days: Vec<Day> = self.days()?.into_iter().filter(|day| (first..=last).contains(day)).collect();
        // Days are written the earlier one first. So they are looked at the later one first: what lies before a line that is there is there.
        let mut end = None;
        for day in days.iter().rev() {
            end = end.max(self.of_day(&mut reader, *day, |connection| read_end(connection, query))?.flatten());
        }
        let Some(end) = end else { return Ok(LogPage::default()) };
        let mut found: Vec<FoundLine> = Vec::new();
        // Clocks of workers may put two attempts' lines on days in the wrong order, so no day's lines simply come behind another's.
        for day in days {
            found.extend(self.of_day(&mut reader, day, |connection| read(connection, query, end))?.unwrap_or_default());
            found.sort_by_key(FoundLine::cursor);
            let excess = found.len().saturating_sub(query.limit);
            if query.newest {
                found.drain(..excess);
            } else {
                found.truncate(query.limit);
            }
        }
        Ok(LogPage::of(query, found, Some(end)))
    }

    fn keep(&self, days: u32, today: Day) -> Result<Vec<Day>, StoreError> {
        let old: Vec<Day> = self.days()?.into_iter().filter(|day| *day < Day::first_kept(today, days)).collect();
        for day in &old {
            // Until the file has gone: who opened it in between would write to one that has no name any more.
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            writer.0.remove(day);
            reader.0.remove(day);
            let file = self.file(*day);
            // The log first: without its database it is nothing.
            for end in ["-wal", "-shm", ""] {
                let mut path: OsString = file.clone().into();
                path.push(end);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(self.database.io(&error)),
                    _ => {}
                }
            }
        }
        Ok(old)
    }
}

impl Open {
    fn put(&mut self, day: Day, connection: Connection) {
        if self.0.len() >= OPEN_MAX {
            self.0.clear();
        }
        self.0.insert(day, connection);
    }
}

/// The day of a file's name.
fn day_of(name: &str) -> Option<Day> {
    // Only a name that such a day is given.
    let mut parts = name.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    // Days since 1 March 0000, as the calendar counts them.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(Day(days)).filter(|day| day.to_string() == name)
}

/// The last line behind where the page begins, wanted or not.
fn read_end(connection: &Connection, query: &LogQuery) -> rusqlite::Result<Option<LogCursor>> {
    let sql = "SELECT fence, seq FROM lines WHERE instance = ?1 AND (fence, seq) > (?2, ?3) ORDER BY fence DESC, seq DESC LIMIT 1";
    let after = query.after.unwrap_or_default();
    let given = params![query.instance.0.cast_signed(), after.fence.0.cast_signed(), after.seq.cast_signed()];
    let cursor = |row: &Row<'_>| {
        let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Ok(LogCursor { fence: Fence(number(0)?), seq: number(1)? })
    };
    connection.prepare_cached(sql)?.query_row(given, cursor).optional()
}

fn read(connection: &Connection, query: &LogQuery, end: LogCursor) -> rusqlite::Result<Vec<FoundLine>> {
    let order = if query.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT fence, attempt, task, worker, trace, seq, at, level, dropped, message FROM lines
         WHERE instance = ?1 AND (fence, seq) > (?2, ?3) AND (fence, seq) <= (?8, ?9) AND (?4 IS NULL OR attempt = ?4)
           AND (dropped > 0 OR (level >= ?5 AND (?6 IS NULL OR instr(message, ?6) > 0)))
         ORDER BY fence {order}, seq {order} LIMIT ?7"
    );
    let after = query.after.unwrap_or_default();
    let (fence, seq) = (after.fence.0.cast_signed(), after.seq.cast_signed());
    let text = query.text.as_deref().map(str::as_bytes);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(&sql)?;
    let end = (end.fence.0.cast_signed(), end.seq.cast_signed());
    let given = params![query.instance.0.cast_signed(), fence, seq, query.attempt, query.level.code(), text, limit, end.0, end.1];
    select.query_map(given, found)?.collect()
}

fn found(row: &Row<'_>) -> rusqlite::Result<FoundLine> {
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let message = String::from_utf8_lossy(row.get_ref(9)?.as_blob()?).into();
    let level = Level::from_code(row.get(7)?).ok_or_else(|| malformed(7, Malformed("no level has this number")))?;
    Ok(FoundLine {
        fence: Fence(number(0)?),
        attempt: row.get(1)?,
        task: TaskId(number(2)?),
        worker: WorkerId(row.get::<_, String>(3)?.into()),
        trace: TraceId(row.get(4)?),
        line: LogLine { seq: number(5)?, at: Timestamp(row.get(6)?), level, dropped: number(8)?, message },
    })
}

impl LogStore for SqliteLogs {
    fn append(&self, batches: Vec<Arc<LogBatch>>, now: Timestamp) -> Answer<'_, ()> {
        Box::pin(self.on(move |files| files.append(&batches, Day::of(now))))
    }

    fn lines(&self, query: LogQuery) -> Answer<'_, LogPage> {
        Box::pin(self.on(move |files| files.lines(&query)))
    }

    fn keep(&self, days: u32, now: Timestamp) -> Answer<'_, Vec<Day>> {
        Box::pin(self.on(move |files| files.keep(days, Day::of(now))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_day_in_its_name() {
        for day in [Day(0), Day(-1), Day(20_787), Day(11_016), Day(47_540)] {
            assert_eq!(day_of(&day.to_string()), Some(day));
        }
        for other in ["", "2026-11", "2026-02-30", "2026-1-1", "2026-11-30-1", "x", "2026-13-01"] {
            assert_eq!(day_of(other), None, "{other}");
        }
    }
}
