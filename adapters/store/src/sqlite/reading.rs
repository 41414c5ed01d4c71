//! Pages of instances and tasks by whatever people ask for.
//!
//! Rows come through the index that fits best, in its order; the rest is compared here, row by row, up to as many as the query says.

use punctual_core::ids::{TaskId, Version};
use punctual_core::instance::{Part, State};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{ComingTask, InstanceCursor, InstanceFilter, InstancePage, InstanceQuery, TaskDay, TaskPage, TaskQuery};
use rusqlite::{Connection, Row, params, params_from_iter};
use rustc_hash::FxHashSet;

use crate::codes::{Coded, LIVE_STATES_END, TROUBLED_STATES_END};
use crate::reading::{Walk, walks};
use crate::sqlite::catalog::{required_text, task_id};
use crate::sqlite::history::{INSTANCES, TASK_OF_INSTANCE, TASKS, instance_view, put_before, sql_limit, view_of};
use crate::sqlite::rows::unsigned;

/// A page of instances.
pub(crate) fn instance_page(connection: &mut Connection, query: &InstanceQuery) -> rusqlite::Result<InstancePage> {
    let connection = connection.transaction()?;
    let task = match &query.filter.task {
        None => None,
        Some(name) => match task_id(&connection, name)? {
            Some(task) => Some(task),
            None => return Ok(InstancePage::default()),
        },
    };
    let group = match &query.group {
        None => None,
        Some(group) => {
            let mut of_group = connection.prepare_cached("SELECT id FROM tasks INDEXED BY tasks_by_label WHERE label = ?1")?;
            let ids = of_group.query_map([&**group], |row| unsigned(row, 0).map(TaskId))?;
            Some(ids.collect::<rusqlite::Result<FxHashSet<_>>>()?)
        }
    };
    let mut pages = Vec::new();
    for walk in walks(query, task, group.as_ref()) {
        pages.push(one_page(&connection, query, &walk)?);
    }
    Ok(InstancePage::merged(pages, query.filter.limit))
}

fn one_page(connection: &Connection, query: &InstanceQuery, walk: &Walk<'_>) -> rusqlite::Result<InstancePage> {
    if query.filter.limit == 0 {
        return Ok(InstancePage::default());
    }
    let (sql, values) = walk_sql(query, walk);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (mut page, mut seen, mut last) = (InstancePage::default(), 0, None);
    while let Some(row) = rows.next()? {
        seen += 1;
        last = Some(place(row)?);
        if !walk.takes(State::from_code(row.get(7)?), TaskId(unsigned(row, 1)?)) || !has_origin(query, row)? {
            continue;
        }
        let view = instance_view(row)?;
        if query.has_story(&view.row) {
            page.instances.push(view);
        }
        if page.instances.len() == query.filter.limit {
            break;
        }
    }
    page.next = last.filter(|_| page.instances.len() == query.filter.limit || seen == query.look_at);
    Ok(page)
}

fn has_origin(query: &InstanceQuery, row: &Row<'_>) -> rusqlite::Result<bool> {
    Ok(match query.origin {
        None => true,
        Some(origin) => row.get::<_, u8>(6)? == origin.code(),
    })
}

fn place(row: &Row<'_>) -> rusqlite::Result<InstanceCursor> {
    Ok(InstanceCursor {
        task: TaskId(unsigned(row, 1)?),
        fire_time: Timestamp(row.get(3)?),
        ordinal: unsigned(row, 4)?,
        run: row.get(5)?,
        part: Part(unsigned(row, 18)?),
    })
}

/// The rows of a walk, newest first, and what they are found with. Only fixed text goes into it.
fn walk_sql(query: &InstanceQuery, walk: &Walk<'_>) -> (String, Vec<rusqlite::types::Value>) {
    let InstanceFilter { whole, key, before, .. } = &query.filter;
    let state = walk.state.map(Coded::code);
    let index = match (state, walk.task) {
        _ if key.is_some() => " INDEXED BY instances_by_key",
        _ if walk.is_live => " INDEXED BY instances_live",
        (Some(_), Some(_)) => " INDEXED BY instances_troubled_by_task",
        (Some(_), None) => " INDEXED BY instances_troubled",
        (None, Some(_)) => " INDEXED BY instances_by_task",
        (None, None) => " INDEXED BY instances_firing",
    };
    let mut sql = [INSTANCES, index, TASK_OF_INSTANCE, "TRUE"].concat();
    let mut values = Vec::<rusqlite::types::Value>::new();
    let mut put = |text: &str, value: rusqlite::types::Value| {
        sql.push_str(text);
        values.push(value);
    };
    if let Some(key) = key {
        put(" AND i.key = ?", key.to_string().into());
    }
    if let Some(task) = walk.task {
        put(" AND i.task = ?", task.0.cast_signed().into());
    }
    if let Some(state) = state {
        put(" AND i.state = ?", i64::from(state).into());
    }
    if let Some(from) = query.fired_from {
        put(" AND i.fire_time >= ?", from.0.into());
    }
    if let Some(until) = query.fired_until {
        put(" AND i.fire_time < ?", until.0.into());
    }
    // What the partial indexes need to see.
    if walk.is_live && key.is_none() {
        sql.push_str(" AND i.state < 5");
        let states: Vec<_> = walk.states.iter().flat_map(|states| states.iter()).map(|state| state.code().to_string()).collect();
        sql.push_str(&format!(" AND i.state IN ({})", states.join(",")));
    } else if state.is_some_and(|state| (LIVE_STATES_END..TROUBLED_STATES_END).contains(&state)) {
        sql.push_str(" AND i.state >= 5 AND i.state < 10");
    }
    if *whole {
        sql.push_str(" AND i.part = 0");
    }
    if let Some(before) = before {
        put_before(&mut sql, &mut values, before);
    }
    sql.push_str(" ORDER BY i.fire_time DESC, i.task DESC, i.ordinal DESC, i.run DESC, i.part DESC LIMIT ?");
    values.push(sql_limit(query.look_at).into());
    (sql, values)
}

/// A page of tasks.
pub(crate) fn task_page(connection: &mut Connection, query: &TaskQuery) -> rusqlite::Result<TaskPage> {
    if query.limit == 0 {
        return Ok(TaskPage::default());
    }
    let connection = connection.transaction()?;
    let sql = match query.group {
        Some(_) => {
            "SELECT id, name FROM tasks INDEXED BY tasks_by_label
             WHERE label = ?4 AND name > ?1 AND name >= ?2 AND removed = 0 ORDER BY name LIMIT ?3"
        }
        // No name is empty, so all are behind the empty one.
        None => "SELECT id, name FROM tasks WHERE name > ?1 AND name >= ?2 AND removed = 0 AND ?4 IS NULL ORDER BY name LIMIT ?3",
    };
    let mut names = connection.prepare_cached(sql)?;
    let (after, prefix) = (query.after.as_deref().unwrap_or(""), query.prefix.as_deref().unwrap_or(""));
    let candidates = names.query_map(params![after, prefix, sql_limit(query.look_at), query.group.as_deref()], |row| {
        Ok((row.get::<_, i64>(0)?, required_text(row, 1)?))
    })?;
    let (chosen, next) = query.choose(candidates)?;
    let mut view = connection.prepare_cached(&format!("{TASKS} WHERE t.id = ?1"))?;
    let tasks = chosen.into_iter().map(|id| view.query_row([id], view_of)).collect::<rusqlite::Result<_>>()?;
    Ok(TaskPage { tasks, next })
}

/// Tasks that fire next. All cursors are looked at: an index of them would be written with every firing.
pub(crate) fn coming(connection: &Connection, until: Timestamp, limit: usize) -> rusqlite::Result<Vec<ComingTask>> {
    let mut first = connection.prepare_cached(
        "SELECT t.name, s.version, v.document, s.next_fire
         FROM (SELECT task, version, next_fire FROM task_states
               WHERE next_fire < ?1 AND version IS NOT NULL ORDER BY next_fire, task LIMIT ?2) s
         JOIN tasks t ON t.id = s.task AND t.removed = 0
         JOIN task_versions v ON v.task = s.task AND v.version = s.version AND v.document IS NOT NULL
         ORDER BY s.next_fire, s.task",
    )?;
    let coming = |row: &Row<'_>| {
        Ok(ComingTask {
            name: required_text(row, 0)?,
            version: Version(row.get(1)?),
            document: required_text(row, 2)?,
            next_fire: Timestamp(row.get(3)?),
        })
    };
    first.query_map(params![until.0, sql_limit(limit)], coming)?.collect()
}

/// The days of a task.
pub(crate) fn task_days(connection: &Connection, task: TaskId, from: i64) -> rusqlite::Result<Vec<TaskDay>> {
    let mut days =
        connection.prepare_cached("SELECT day, succeeded, failed, stopped FROM task_days WHERE task = ?1 AND day >= ?2 ORDER BY day")?;
    let day = |row: &Row<'_>| {
        Ok(TaskDay { day: row.get(0)?, succeeded: unsigned(row, 1)?, failed: unsigned(row, 2)?, stopped: unsigned(row, 3)? })
    };
    days.query_map(params![task.0.cast_signed(), from], day)?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(query: &InstanceQuery, task: Option<TaskId>) -> Vec<String> {
        let connection = Connection::open_in_memory().expect("a database");
        crate::sqlite::schema::MIGRATIONS.iter().for_each(|script| connection.execute_batch(script).expect("a schema"));
        let of_walk = |walk: &Walk<'_>| {
            let (sql, values) = walk_sql(query, walk);
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("SQL");
            let lines = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).expect("a plan");
            lines.collect::<rusqlite::Result<Vec<_>>>().expect("a plan").join("; ")
        };
        walks(query, task, None).iter().map(of_walk).collect()
    }

    #[test]
    fn a_walk_goes_through_an_index_from_where_the_last_page_ended() {
        let before = Some(InstanceCursor { fire_time: Timestamp(1), task: TaskId(1), ordinal: 1, run: 1, part: Part::WHOLE });
        let filter = InstanceFilter { before, limit: 10, ..InstanceFilter::default() };
        let all = InstanceQuery { filter, look_at: 100, ..InstanceQuery::default() };
        let states = |states: &[State]| InstanceQuery { states: states.to_vec(), ..all.clone() };
        let only = |query: &InstanceQuery, task| {
            let mut plans = plan(query, task);
            assert_eq!(plans.len(), 1, "{plans:?}");
            plans.remove(0)
        };
        assert!(only(&all, None).starts_with("SEARCH i USING INDEX instances_firing ((fire_time,task,ordinal,run,part)<"));
        // A success is found among all of a time; a failure of a task where there are only such.
        assert!(only(&states(&[State::Succeeded]), None).contains("instances_firing"));
        assert!(only(&states(&[State::Succeeded, State::Failed]), Some(TaskId(1))).contains("instances_by_task (task=? AND fire_time<?)"));
        let failed = only(&states(&[State::Failed]), Some(TaskId(1)));
        assert!(failed.contains("instances_troubled_by_task (task=? AND state=? AND fire_time<?)"), "{failed}");
        let both = plan(&states(&[State::Failed, State::TimedOut]), None);
        assert!(
            both.len() == 2 && both.iter().all(|plan| plan.contains("instances_troubled (state=?") && !plan.contains("B-TREE")),
            "{both:?}"
        );
        // What is live is few: it is sorted.
        assert!(only(&states(&[State::Running, State::Retrying]), None).contains("instances_live"));
    }
}
