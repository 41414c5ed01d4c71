//! Pages of instances and tasks by whatever people ask for.
//!
//! The innermost query takes the places of so many rows from the index that fits best, in its order; of these the next one keeps those that
//! are asked for, and only they are read whole. Written out as derived tables: these servers look no further than a derived table's LIMIT.

use std::fmt::Write;
use std::sync::Arc;

use punctual_core::ids::{TaskId, Version};
use punctual_core::instance::Part;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{ComingTask, InstanceCursor, InstancePage, InstanceQuery, TaskDay, TaskPage, TaskQuery};
use rustc_hash::{FxHashMap, FxHashSet};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::codes::Coded;
use crate::mysql::error::Failure;
use crate::mysql::history::{TASKS, WITH_INSTANCE, instance_view, put_before, task_id, task_view};
use crate::mysql::rows::{INSTANCE_COLUMNS, required_text};
use crate::mysql::session::Session;
use crate::mysql::sql::{list, literal};
use crate::reading::{Walk, walks};

/// Where stories are read to know what is asked for, at most so many are: they come over the network.
const STORIES_MAX: usize = 2_000;
/// Tasks that are read at a time.
const READ_AT_ONCE: usize = 500;

/// A page of instances.
pub(crate) async fn instance_page(session: &mut Session, query: &InstanceQuery) -> Result<InstancePage, Failure> {
    let task = match &query.filter.task {
        None => None,
        Some(name) => match task_id(session, name).await? {
            Some(task) => Some(task),
            None => return Ok(InstancePage::default()),
        },
    };
    let group = match &query.group {
        None => None,
        Some(group) => {
            let sql = format!("SELECT id FROM tasks FORCE INDEX (tasks_by_label) WHERE label = {}", literal(group.as_bytes()));
            let id = |row: &MySqlRow| Ok(TaskId(row.try_get(0)?));
            Some(session.rows(sql).await?.iter().map(id).collect::<Result<FxHashSet<_>, Failure>>()?)
        }
    };
    let mut pages = Vec::new();
    for walk in walks(query, task, group.as_ref()) {
        pages.push(one_page(session, query, &walk).await?);
    }
    Ok(InstancePage::merged(pages, query.filter.limit))
}

async fn one_page(session: &mut Session, query: &InstanceQuery, walk: &Walk<'_>) -> Result<InstancePage, Failure> {
    let (limit, has_story) = (query.filter.limit, query.asks_for_story());
    if limit == 0 {
        return Ok(InstancePage::default());
    }
    let look_at = if has_story { query.look_at.min(STORIES_MAX) } else { query.look_at };
    // Stories are compared here: all whose columns fit come.
    let found = session.rows(page_sql(query, walk, look_at, if has_story { look_at } else { limit })).await?;
    let mut page = InstancePage::default();
    for row in &found {
        let view = instance_view(row)?;
        if query.has_story(&view.row) {
            page.instances.push(view);
            if page.instances.len() == limit {
                page.next = page.instances.last().map(|last| InstanceCursor::of(&last.row));
                return Ok(page);
            }
        }
    }
    // Not a full page: it ends with the list, or where so many rows were looked at.
    let Places { from, d, part, conditions, order } = places(query, walk);
    let sql = format!(
        "SELECT {d}.fire_time, {d}.task, {d}.ordinal, {d}.run, {part} FROM {from} WHERE {conditions} ORDER BY {order} LIMIT 1 OFFSET {}",
        look_at - 1
    );
    page.next = match session.rows(sql).await?.first() {
        None => None,
        Some(row) => Some(InstanceCursor {
            fire_time: Timestamp(row.try_get(0)?),
            task: TaskId(row.try_get(1)?),
            ordinal: row.try_get(2)?,
            run: row.try_get(3)?,
            part: Part(row.try_get(4)?),
        }),
    };
    Ok(page)
}

/// Where a walk goes.
struct Places {
    /// The tables, the one whose index has the order first.
    from: &'static str,
    /// That one's name here.
    d: &'static str,
    /// Where the part is.
    part: &'static str,
    conditions: String,
    order: String,
}

fn places(query: &InstanceQuery, walk: &Walk<'_>) -> Places {
    let filter = &query.filter;
    let (from, d, part) = match (walk.state, walk.task) {
        _ if filter.key.is_some() => (
            "submission_keys d STRAIGHT_JOIN instances i FORCE INDEX (PRIMARY) ON i.fire_time = d.fire_time AND i.task = d.task \
             AND i.ordinal = d.ordinal AND i.run = d.run AND i.part = 0",
            "d",
            "i.part",
        ),
        _ if walk.is_live => (
            "live d STRAIGHT_JOIN instances i FORCE INDEX (PRIMARY) ON i.fire_time = d.fire_time AND i.task = d.task \
             AND i.ordinal = d.ordinal AND i.run = d.run AND i.part = d.part",
            "d",
            "d.part",
        ),
        (Some(_), Some(_)) => ("troubled d FORCE INDEX (troubled_by_task)", "d", "d.part"),
        (Some(_), None) => ("troubled d FORCE INDEX (PRIMARY)", "d", "d.part"),
        (None, Some(_)) => ("instances i FORCE INDEX (instances_by_task)", "i", "i.part"),
        (None, None) => ("instances i FORCE INDEX (PRIMARY)", "i", "i.part"),
    };
    // Writing to a String can't fail.
    let mut conditions = "TRUE".to_owned();
    if let Some(key) = &filter.key {
        let _ = write!(conditions, " AND d.submission_key = {}", literal(key.as_bytes()));
    }
    if let Some(task) = walk.task {
        let _ = write!(conditions, " AND {d}.task = {}", task.0);
    }
    if let Some(state) = walk.state {
        let _ = write!(conditions, " AND d.state = {}", state.code());
    }
    if let Some(from) = query.fired_from {
        let _ = write!(conditions, " AND {d}.fire_time >= {}", from.0);
    }
    if let Some(until) = query.fired_until {
        let _ = write!(conditions, " AND {d}.fire_time < {}", until.0);
    }
    if walk.is_live && filter.key.is_none() {
        let states = walk.states.iter().flat_map(|states| states.iter()).map(|state| u64::from(state.code()));
        let _ = write!(conditions, " AND i.state IN {}", list(states));
    }
    if filter.whole {
        let _ = write!(conditions, " AND {part} = 0");
    }
    if filter.before.is_none() && query.fired_until.is_none() {
        // Says nothing but that the index is gone through from its end: a LIMIT in a derived table tells the server less.
        let _ = write!(conditions, " AND {d}.fire_time <= {}", i64::MAX);
    }
    if let Some(before) = &filter.before {
        put_before(&mut conditions, d, part.split('.').next().unwrap_or(d), before);
    }
    let order = format!("{d}.fire_time DESC, {d}.task DESC, {d}.ordinal DESC, {d}.run DESC, {part} DESC");
    Places { from, d, part, conditions, order }
}

fn page_sql(query: &InstanceQuery, walk: &Walk<'_>, look_at: usize, most: usize) -> String {
    let Places { from, d, part, conditions, order } = places(query, walk);
    let has_row = from.contains("instances i");
    let mut kept = "TRUE".to_owned();
    if let Some(states) = walk.states.as_ref().filter(|_| has_row) {
        let _ = write!(kept, " AND d.state IN {}", list(states.iter().map(|state| u64::from(state.code()))));
    }
    if let Some(origin) = query.origin.filter(|_| has_row) {
        let _ = write!(kept, " AND d.origin = {}", origin.code());
    }
    if let Some(tasks) = walk.tasks {
        let mut tasks: Vec<_> = tasks.iter().map(|task| task.0).collect();
        tasks.sort_unstable();
        let _ = write!(kept, " AND d.task IN {}", list(tasks));
    }
    // Of what ended otherwise than well the index has no origin.
    let late = query.origin.filter(|_| !has_row).map(|origin| format!("WHERE i.origin = {}", origin.code())).unwrap_or_default();
    let (columns, cut) = match has_row {
        true => (", i.state, i.origin", format!("LIMIT {most}")),
        false if late.is_empty() => ("", format!("LIMIT {most}")),
        false => ("", String::new()),
    };
    let by = "d.fire_time DESC, d.task DESC, d.ordinal DESC, d.run DESC, d.part DESC";
    let looked_at = if kept == "TRUE" && late.is_empty() { most.min(look_at) } else { look_at };
    format!(
        "SELECT {INSTANCE_COLUMNS}, t.name FROM (
             SELECT d.fire_time, d.task, d.ordinal, d.run, d.part FROM (
                 SELECT {d}.fire_time, {d}.task, {d}.ordinal, {d}.run, {part} AS part{columns} FROM {from}
                 WHERE {conditions} ORDER BY {order} LIMIT {looked_at}) d
             WHERE {kept} ORDER BY {by} {cut}) d
         {WITH_INSTANCE} d.part LEFT JOIN tasks t ON t.id = i.task {late} ORDER BY {by} LIMIT {most}"
    )
}

/// A page of tasks.
pub(crate) async fn task_page(session: &mut Session, query: &TaskQuery) -> Result<TaskPage, Failure> {
    if query.limit == 0 {
        return Ok(TaskPage::default());
    }
    // No name is empty, so all are behind the empty one.
    let after = literal(query.after.as_deref().unwrap_or("").as_bytes());
    let prefix = literal(query.prefix.as_deref().unwrap_or("").as_bytes());
    let (index, group) = match &query.group {
        None => ("tasks_by_name", String::new()),
        Some(group) => ("tasks_by_label", format!("label = {} AND ", literal(group.as_bytes()))),
    };
    let sql = format!(
        "SELECT id, name FROM tasks FORCE INDEX ({index}) WHERE {group}name > {after} AND name >= {prefix} AND removed = 0
         ORDER BY name LIMIT {}",
        query.look_at
    );
    let candidate = |row: &MySqlRow| Ok::<_, Failure>((row.try_get::<u64, _>(0)?, required_text(row, 1)?));
    let (chosen, next) = query.choose(session.rows(sql).await?.iter().map(candidate))?;
    let mut views = FxHashMap::default();
    for some in chosen.chunks(READ_AT_ONCE) {
        let sql = format!("{TASKS} WHERE t.id IN {}", list(some.iter().copied()));
        for row in &session.rows(sql).await? {
            let view = task_view(row)?;
            views.insert(view.task.0, view);
        }
    }
    Ok(TaskPage { tasks: chosen.iter().filter_map(|id| views.remove(id)).collect(), next })
}

/// Tasks that fire next. All cursors are looked at: an index of them would be written with every firing.
pub(crate) async fn coming(session: &mut Session, until: Timestamp, limit: usize) -> Result<Vec<ComingTask>, Failure> {
    let sql = format!(
        "SELECT t.name, s.version, v.document, s.next_fire
         FROM (SELECT task, version, next_fire FROM task_states
               WHERE next_fire < {} AND version IS NOT NULL ORDER BY next_fire, task LIMIT {limit}) s
         STRAIGHT_JOIN tasks t ON t.id = s.task AND t.removed = 0
         STRAIGHT_JOIN task_versions v ON v.task = s.task AND v.version = s.version AND v.document IS NOT NULL
         ORDER BY s.next_fire, s.task",
        until.0
    );
    let coming = |row: &MySqlRow| {
        let (name, document): (_, Arc<str>) = (required_text(row, 0)?, required_text(row, 2)?);
        Ok(ComingTask { name, version: Version(row.try_get(1)?), document, next_fire: Timestamp(row.try_get(3)?) })
    };
    session.rows(sql).await?.iter().map(coming).collect()
}

/// The days of a task.
pub(crate) async fn task_days(session: &mut Session, task: TaskId, from: i64) -> Result<Vec<TaskDay>, Failure> {
    let sql = format!("SELECT day, succeeded, failed, stopped FROM task_days WHERE task = {} AND day >= {from} ORDER BY day", task.0);
    let day = |row: &MySqlRow| {
        Ok(TaskDay { day: row.try_get(0)?, succeeded: row.try_get(1)?, failed: row.try_get(2)?, stopped: row.try_get(3)? })
    };
    session.rows(sql).await?.iter().map(day).collect()
}
