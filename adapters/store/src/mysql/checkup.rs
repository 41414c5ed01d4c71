//! The checkup of a MySQL or MariaDB database: also of the lists that stand beside the instances, both ways.

use punctual_core::ids::{InstanceId, TaskId};
use punctual_core::time::Timestamp;
use punctual_driver::checkup::{COUNTED_TODAY_MAX, Check, EXAMPLES_MAX, Inconsistency, OVERDUE_MS};
use punctual_driver::reading::TaskDay;
use sqlx::Row;

use crate::checkup::{Dialect, NOT_PAUSED, Of, Statement, of_both};
use crate::codec;
use crate::mysql::error::Failure;
use crate::mysql::rows::text;
use crate::mysql::session::Session;
use crate::sqlite::checkup::{counted_today, too_short};

const DIALECT: Dialect = Dialect { text: "BINARY", made_at: "made_at", first: "fire_time", last: "last_fire_time", count: "fire_times" };
const DAY_MS: i64 = 86_400_000;
// In the audit, 7 is a rerun and 10 a discard (`codes.rs`): what settles a dead letter.
/// An instance by its place.
const PLACE: &str = "i.fire_time = l.fire_time AND i.task = l.task AND i.ordinal = l.ordinal AND i.run = l.run";

fn statements(now: Timestamp, is_thorough: bool) -> Vec<Statement> {
    let old = now.0 - OVERDUE_MS;
    let live = format!("live l JOIN instances i ON {PLACE} AND i.part = l.part");
    let mut statements = of_both(&DIALECT, old, is_thorough);
    let mut add = |check, of, sql: String| statements.push((check, of, sql));
    add(
        Check::LiveList,
        Of::Instance,
        format!(
            "SELECT CAST(l.id AS BINARY) FROM live l WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE {PLACE} AND i.part = l.part AND i.id = l.id AND i.state < 5)"
        ),
    );
    add(
        Check::InstanceWithoutTask,
        Of::Instance,
        format!(
            "SELECT CAST(i.id AS BINARY) FROM {live} WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = i.task AND t.`partition` = i.id >> 48)"
        ),
    );
    add(
        Check::AttemptWithoutWorker,
        Of::Instance,
        format!("SELECT CAST(i.id AS BINARY) FROM {live} WHERE i.state = 2 AND i.worker IS NULL"),
    );
    add(
        Check::PartWithoutWhole,
        Of::Instance,
        format!(
            "SELECT CAST(i.id AS BINARY) FROM {live} WHERE i.state IN (0, 1, 4) AND i.part <> 0 AND NOT EXISTS (
                 SELECT 1 FROM instances w WHERE w.fire_time = i.fire_time AND w.task = i.task AND w.ordinal = i.ordinal AND w.run = i.run
                 AND w.part = 0 AND w.state < 5)"
        ),
    );
    add(
        Check::DeadLetters,
        Of::Instance,
        format!(
            "SELECT CAST(l.id AS BINARY) FROM dead_letters l WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE {PLACE} AND i.part = 0 AND i.state = 5)
             OR EXISTS (SELECT 1 FROM instances i WHERE i.fire_time = l.fire_time AND i.task = l.task AND i.ordinal = l.ordinal AND i.run > l.run
                        AND i.part = 0)"
        ),
    );
    let deep = if is_thorough { "" } else { "WHERE state < 5" };
    let all = if is_thorough { "UNION ALL SELECT state, -COUNT(*) FROM instances WHERE state >= 5 GROUP BY state" } else { "" };
    add(
        Check::Counts,
        Of::Name,
        format!(
            "SELECT CAST(state AS BINARY) FROM (SELECT state, CAST(instances AS SIGNED) AS n FROM counts {deep}
             UNION ALL SELECT i.state, -COUNT(*) FROM {live} GROUP BY i.state {all}) both_ways GROUP BY state HAVING SUM(n) <> 0"
        ),
    );
    add(
        Check::Slot,
        Of::Instance,
        "SELECT CAST(s.instance AS BINARY) FROM group_slots s WHERE NOT EXISTS (SELECT 1 FROM live l WHERE l.id = s.instance)
         AND NOT EXISTS (SELECT 1 FROM inbox e WHERE e.`partition` = s.`partition`)"
            .to_owned(),
    );
    add(
        Check::Overdue,
        Of::Instance,
        format!("SELECT CAST(i.id AS BINARY) FROM {live} WHERE i.state IN (0, 4) AND i.due_at < {old} AND {NOT_PAUSED}"),
    );
    add(
        Check::Lease,
        Of::Name,
        "SELECT CAST(l.`partition` AS BINARY) FROM leases l WHERE NOT EXISTS (SELECT 1 FROM fences f WHERE f.`partition` = l.`partition`)"
            .to_owned(),
    );
    if is_thorough {
        add(
            Check::TroubledList,
            Of::Name,
            format!(
                "SELECT CAST(l.task AS BINARY) FROM troubled l WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE {PLACE} AND i.part = l.part AND i.state = l.state)"
            ),
        );
        // The other way.
        add(
            Check::DeadLetters,
            Of::Instance,
            format!(
                "SELECT CAST(i.id AS BINARY) FROM troubled l JOIN instances i ON {PLACE} AND i.part = l.part
                 WHERE l.state = 5 AND l.part = 0 AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.id = i.id)
                 AND NOT EXISTS (SELECT 1 FROM instances n WHERE n.fire_time = i.fire_time AND n.task = i.task AND n.ordinal = i.ordinal
                                 AND n.run > i.run AND n.part = 0)
                 AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.instance = i.id AND a.action IN (7, 10))"
            ),
        );
        add(
            Check::DayTooLong,
            Of::Name,
            format!(
                "SELECT CAST(d.task AS BINARY) FROM task_days d WHERE d.day = {} AND d.succeeded + d.failed + d.stopped > (
                     SELECT COUNT(*) FROM instances i WHERE i.task = d.task AND i.part = 0 AND i.state >= 5)",
                TaskDay::of(now)
            ),
        );
        add(
            Check::LiveList,
            Of::Instance,
            "SELECT CAST(i.id AS BINARY) FROM instances i WHERE i.state < 5 AND NOT EXISTS (SELECT 1 FROM live l WHERE l.id = i.id)"
                .to_owned(),
        );
        add(
            Check::TroubledList,
            Of::Instance,
            format!(
                "SELECT CAST(i.id AS BINARY) FROM instances i WHERE i.state >= 5 AND i.state < 10 AND NOT EXISTS (SELECT 1 FROM troubled l WHERE {PLACE} AND i.part = l.part AND i.state = l.state)"
            ),
        );
        add(
            Check::Output,
            Of::Instance,
            "SELECT CAST(o.instance AS BINARY) FROM outputs o WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.id = o.instance)"
                .to_owned(),
        );
    }
    statements
}

/// What doesn't hold, in the transaction's view.
pub(crate) async fn inconsistencies(session: &mut Session, now: Timestamp, is_thorough: bool) -> Result<Vec<Inconsistency>, Failure> {
    let mut found: Vec<Inconsistency> = Vec::new();
    session.limit_reads(is_thorough).await?;
    for (check, of, sql) in statements(now, is_thorough) {
        let mut examples = Vec::new();
        let sql = format!("{sql} LIMIT {}", EXAMPLES_MAX + 1);
        for row in &(if is_thorough { session.rows_long(sql).await? } else { session.rows(sql).await? }) {
            let said = text(row, 0)?.unwrap_or_default();
            let named = said.parse().ok().filter(|_| of == Of::Instance).map(|id| InstanceId(id).to_string());
            examples.push(named.unwrap_or_else(|| said.to_string()));
        }
        let has_more = examples.len() > EXAMPLES_MAX;
        examples.truncate(EXAMPLES_MAX);
        if !examples.is_empty() {
            found.push(Inconsistency { check, examples, has_more });
        }
    }
    let today = TaskDay::of(now);
    let sql = format!(
        "SELECT i.task, i.transitions FROM instances i WHERE i.fire_time >= {} AND i.part = 0 AND i.state >= 5 ORDER BY i.fire_time LIMIT {COUNTED_TODAY_MAX}",
        today * DAY_MS
    );
    let mut ended = Vec::new();
    for row in &session.rows(sql).await? {
        ended.push((TaskId(row.try_get(0)?), codec::transitions(row.try_get(1)?)?));
    }
    let mut examples = Vec::new();
    for (task, count) in counted_today(&ended, now) {
        let kept = session
            .rows(format!("SELECT CAST(succeeded + failed + stopped AS SIGNED) FROM task_days WHERE task = {} AND day = {today}", task.0))
            .await?;
        let kept: i64 = kept.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        if kept < count {
            examples.push(task.to_string());
        }
    }
    found.extend(too_short(examples));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_thorough_reads_no_history() {
        let tables = ["troubled", "occurrences", "outputs"];
        let reads = |is_thorough| {
            let statements = statements(Timestamp(0), is_thorough);
            statements.iter().filter(|(_, _, sql)| tables.iter().any(|table| sql.contains(&format!("FROM {table}")))).count()
        };
        assert_eq!(reads(false), 0);
        assert!(reads(true) >= 3);
    }
}
