//! The checkup of an SQLite file. What an index finds needs no second look: the file's own check is for that.

use std::path::Path;

use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::instance::Transition;
use punctual_core::time::Timestamp;
use punctual_driver::checkup::{COUNTED_TODAY_MAX, Check, EXAMPLES_MAX, Inconsistency, OVERDUE_MS};
use punctual_driver::ports::StoreError;
use punctual_driver::reading::TaskDay;
use rusqlite::{Connection, OpenFlags, params};
use rustc_hash::FxHashMap;

use crate::checkup::{Dialect, NOT_PAUSED, Of, Statement, of_both};
use crate::codec;
use crate::sqlite::error::{Database, malformed};
use crate::sqlite::rows;

const DIALECT: Dialect = Dialect { text: "TEXT", made_at: "at", first: "first", last: "last", count: "count" };
const DAY_MS: i64 = 86_400_000;
// In the audit, 7 is a rerun and 10 a discard (`codes.rs`): what settles a dead letter.

fn statements(now: Timestamp, is_thorough: bool) -> Vec<Statement> {
    let old = now.0 - OVERDUE_MS;
    let mut statements = of_both(&DIALECT, old, is_thorough);
    let states = if is_thorough { "" } else { "WHERE state < 5" };
    let all = if is_thorough { " UNION ALL SELECT state, -COUNT(*) FROM instances WHERE state >= 5 GROUP BY state" } else { "" };
    statements.extend([
        (
            Check::InstanceWithoutTask,
            Of::Instance,
            "SELECT CAST(i.id AS TEXT) FROM instances i WHERE i.state < 5
             AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = i.task AND t.partition = i.id >> 48)"
                .to_owned(),
        ),
        (
            Check::AttemptWithoutWorker,
            Of::Instance,
            "SELECT CAST(i.id AS TEXT) FROM instances i WHERE i.state < 5 AND i.state = 2 AND i.worker IS NULL".to_owned(),
        ),
        (
            Check::PartWithoutWhole,
            Of::Instance,
            "SELECT CAST(i.id AS TEXT) FROM instances i WHERE i.state < 5 AND i.state IN (0, 1, 4) AND i.part <> 0 AND NOT EXISTS (
                 SELECT 1 FROM instances w WHERE w.fire_time = i.fire_time AND w.task = i.task AND w.ordinal = i.ordinal AND w.run = i.run
                 AND w.part = 0 AND w.state < 5)"
                .to_owned(),
        ),
        (
            Check::Counts,
            Of::Name,
            format!(
                "SELECT CAST(state AS TEXT) FROM (SELECT state, count AS n FROM counts {states}
                 UNION ALL SELECT state, -COUNT(*) FROM instances WHERE state < 5 GROUP BY state{all})
                 GROUP BY state HAVING SUM(n) <> 0"
            ),
        ),
        (
            Check::Slot,
            Of::Instance,
            "SELECT CAST(s.instance AS TEXT) FROM group_slots s
             WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = s.instance AND i.state < 5)
             AND NOT EXISTS (SELECT 1 FROM inbox e WHERE e.partition = s.partition)"
                .to_owned(),
        ),
        (
            Check::Overdue,
            Of::Instance,
            format!(
                "SELECT CAST(i.id AS TEXT) FROM instances i WHERE i.state < 5 AND i.state IN (0, 4) AND i.due_at < {old}
                 AND {NOT_PAUSED}"
            ),
        ),
    ]);
    if is_thorough {
        statements.push((
            Check::DeadLetters,
            Of::Instance,
            "SELECT CAST(d.id AS TEXT) FROM instances d WHERE d.state >= 5 AND d.state < 10 AND d.state = 5 AND d.part = 0 AND d.settled <> (
                 EXISTS (SELECT 1 FROM instances n WHERE n.fire_time = d.fire_time AND n.task = d.task AND n.ordinal = d.ordinal
                         AND n.run > d.run AND n.part = 0)
                 OR EXISTS (SELECT 1 FROM audit a WHERE a.instance = d.id AND a.action IN (7, 10)))"
                .to_owned(),
        ));
        let sql = "SELECT CAST(o.instance AS TEXT) FROM outputs o WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = o.instance)";
        statements.push((Check::Output, Of::Instance, sql.to_owned()));
        let sql = format!(
            "SELECT CAST(d.task AS TEXT) FROM task_days d WHERE d.day = {} AND d.succeeded + d.failed + d.stopped > (
                 SELECT COUNT(*) FROM instances i WHERE i.task = d.task AND i.part = 0 AND i.state >= 5)",
            TaskDay::of(now)
        );
        statements.push((Check::DayTooLong, Of::Name, sql));
    }
    statements
}

/// What doesn't hold, as of one moment.
pub(crate) fn inconsistencies(connection: &Connection, now: Timestamp, is_thorough: bool) -> rusqlite::Result<Vec<Inconsistency>> {
    let transaction = connection.unchecked_transaction()?;
    let mut found = Vec::new();
    if is_thorough {
        let said: Vec<String> =
            transaction.prepare("PRAGMA quick_check(10)")?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        if said != ["ok"] {
            found.push(Inconsistency { check: Check::Damaged, examples: said, has_more: false });
        }
    }
    for (check, of, sql) in statements(now, is_thorough) {
        let mut statement = transaction.prepare(&format!("{sql} LIMIT {}", EXAMPLES_MAX + 1))?;
        let mut examples: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        if of == Of::Instance {
            let named = |text: &String| text.parse().map_or(text.clone(), |id: i64| InstanceId(id.cast_unsigned()).to_string());
            examples = examples.iter().map(named).collect();
        }
        let has_more = examples.len() > EXAMPLES_MAX;
        examples.truncate(EXAMPLES_MAX);
        if !examples.is_empty() {
            found.push(Inconsistency { check, examples, has_more });
        }
    }
    let mut today = transaction.prepare(
        "SELECT i.task, i.transitions FROM instances i WHERE i.fire_time >= ?1 AND i.part = 0 AND i.state >= 5 ORDER BY i.fire_time LIMIT ?2",
    )?;
    let ended = today.query_map(params![TaskDay::of(now) * DAY_MS, COUNTED_TODAY_MAX as i64], |row| {
        let transitions = codec::transitions(row.get_ref(1)?.as_blob()?).map_err(|what| malformed(1, what))?;
        Ok((TaskId(rows::unsigned(row, 0)?), transitions))
    })?;
    let counted = counted_today(&ended.collect::<Result<Vec<_>, _>>()?, now);
    let mut days = transaction.prepare("SELECT succeeded + failed + stopped FROM task_days WHERE task = ?1 AND day = ?2")?;
    let mut examples = Vec::new();
    for (task, count) in counted {
        let kept = days.query_map(params![task.0.cast_signed(), TaskDay::of(now)], |row| row.get::<_, i64>(0))?.next().transpose()?;
        if kept.unwrap_or(0) < count {
            examples.push(task.to_string());
        }
    }
    found.extend(too_short(examples));
    Ok(found)
}

/// How many firings of each task have ended today, of those that are handed over.
pub(crate) fn counted_today(ended: &[(TaskId, Vec<Transition>)], now: Timestamp) -> Vec<(TaskId, i64)> {
    let today = TaskDay::of(now);
    let mut counted: FxHashMap<TaskId, i64> = FxHashMap::default();
    for (task, transitions) in ended {
        if transitions.last().is_some_and(|last| last.to.is_terminal() && TaskDay::of(last.at) == today) {
            *counted.entry(*task).or_default() += 1;
        }
    }
    let mut counted: Vec<_> = counted.into_iter().collect();
    counted.sort_unstable();
    counted
}

/// Tasks whose day has fewer firings than were found.
pub(crate) fn too_short(mut examples: Vec<String>) -> Option<Inconsistency> {
    let has_more = examples.len() > EXAMPLES_MAX;
    examples.truncate(EXAMPLES_MAX);
    (!examples.is_empty()).then_some(Inconsistency { check: Check::DayTooShort, examples, has_more })
}

/// The checkup of a file, which is only read: also beside the process that has it.
pub(crate) fn of_file(path: &Path, now: Timestamp, newest: u32) -> Result<(u32, Vec<Inconsistency>), StoreError> {
    let database = Database::new(path);
    let open = || -> rusqlite::Result<(u32, Connection)> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let schema = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((schema, connection))
    };
    let (schema, connection) = open().map_err(|error| database.error(error))?;
    if schema != newest {
        return Ok((schema, Vec::new()));
    }
    Ok((schema, inconsistencies(&connection, now, true).map_err(|error| database.error(error))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_thorough_reads_no_history() {
        let tables = ["occurrences", "outputs", "instances d"];
        let reads = |is_thorough| {
            let statements = statements(Timestamp(0), is_thorough);
            statements.iter().filter(|(_, _, sql)| tables.iter().any(|table| sql.contains(&format!("FROM {table}")))).count()
        };
        assert_eq!(reads(false), 0);
        assert!(reads(true) >= 3);
    }
}
