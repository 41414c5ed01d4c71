//! Edits of single tasks, and answers that are kept under idempotency keys.

use std::sync::Arc;

use punctual_core::ids::{TaskId, Version};
use punctual_core::time::Timestamp;
use punctual_driver::editing::{ANSWER_KEPT_MS, UNDER_WAY_MS};
use punctual_driver::ports::{Edited, KeptAnswer, Reserved, Revision, Standing, TaskEdit};
use rusqlite::{Connection, OptionalExtension, params};

use crate::plan::{Plan, Planner, StoredTask};
use crate::sqlite::catalog::{required_text, stored_ties, those_that_exist};
use crate::sqlite::commit::transaction;
use crate::sqlite::rows::{self, unsigned};

/// So many answers that are too old are forgotten with each new one.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// Compares an edit with what is stored: what is to be written, or why nothing is.
pub(crate) fn compare(connection: &mut Connection, edit: &TaskEdit) -> rusqlite::Result<Result<Plan, Edited>> {
    let connection = connection.transaction()?;
    let mut stored = connection.prepare_cached(
        "SELECT t.id, t.version, t.removed, t.source, v.document FROM tasks t
         LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name = ?1",
    )?;
    let found = stored.query_row([&*edit.name], |row| {
        let (version, is_removed, source) = (Version(row.get(1)?), row.get(2)?, required_text(row, 3)?);
        let foreign = Some(source.clone()).filter(|source| *source != edit.source);
        let document = rows::text(row, 4)?;
        let is_equal = edit.document.as_ref().is_some_and(|task| document.as_ref() == Some(&task.document));
        let stored = StoredTask { id: TaskId(unsigned(row, 0)?), version, is_removed, foreign, is_equal };
        Ok((stored, Standing { source, version: Some(version).filter(|_| !is_removed) }))
    });
    let found = found.optional()?;
    if let Some(refused) = edit.refused(found.as_ref().map(|(_, standing)| standing)) {
        return Ok(Err(refused));
    }
    let mut plan = Planner::of_edit(edit, found.map(|(stored, _)| stored));
    if plan.may_break_chains() {
        let ties = plan.ties_afterwards(stored_ties(&connection)?);
        let there = those_that_exist(&connection, ties.names_to_look_up())?;
        plan.check_chains(&ties, there);
    }
    Ok(Ok(plan))
}

/// Which tasks a source has, and how many.
pub(crate) fn revision(connection: &Connection, source: &str) -> rusqlite::Result<(Revision, u64)> {
    let mut tasks = connection.prepare_cached("SELECT id, version FROM tasks WHERE source = ?1 AND removed = 0 ORDER BY id")?;
    let mut rows = tasks.query([source])?;
    let (mut revision, mut count) = (Revision::default(), 0);
    while let Some(row) = rows.next()? {
        revision = revision.with(TaskId(unsigned(row, 0)?), Version(row.get(1)?));
        count += 1;
    }
    Ok((revision, count))
}

/// Remembers that a call is under way, or answers what is known of it.
pub(crate) fn reserve(connection: &Connection, key: &str, digest: &[u8; 32], now: Timestamp) -> rusqlite::Result<Reserved> {
    transaction(connection, |connection| {
        connection
            .prepare_cached("DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE at < ?1 ORDER BY at LIMIT ?2)")?
            .execute(params![now.0 - ANSWER_KEPT_MS, FORGOTTEN_AT_ONCE])?;
        let mut known = connection.prepare_cached("SELECT digest, at, status, headers, body FROM answers WHERE key = ?1 AND at >= ?2")?;
        let found = known.query_row(params![key, now.0 - ANSWER_KEPT_MS], |row| {
            let is_same = row.get_ref(0)?.as_blob()? == digest;
            let answer = match row.get(2)? {
                Some(status) => {
                    let body: Option<Vec<u8>> = row.get(4)?;
                    Some(KeptAnswer { status, headers: required_text(row, 3)?, body: Arc::from(body.unwrap_or_default()) })
                }
                None => None,
            };
            Ok((is_same, row.get::<_, i64>(1)?, answer))
        });
        match found.optional()? {
            Some((false, _, _)) => return Ok(Reserved::Other),
            Some((true, _, Some(answer))) => return Ok(Reserved::Answered(answer)),
            Some((true, at, None)) if at > now.0 - UNDER_WAY_MS => return Ok(Reserved::UnderWay),
            Some((true, _, None)) | None => {}
        }
        connection.prepare_cached("INSERT OR REPLACE INTO answers (key, digest, at) VALUES (?1, ?2, ?3)")?.execute(params![
            key,
            &digest[..],
            now.0
        ])?;
        Ok(Reserved::New)
    })
}

/// Keeps an answer, or forgets that the call was made.
pub(crate) fn keep(connection: &Connection, key: &str, digest: &[u8; 32], answer: Option<&KeptAnswer>) -> rusqlite::Result<()> {
    transaction(connection, |connection| {
        match answer {
            Some(KeptAnswer { status, headers, body }) => connection
                .prepare_cached(
                    "UPDATE answers SET status = ?3, headers = ?4, body = ?5 WHERE key = ?1 AND digest = ?2 AND status IS NULL",
                )?
                .execute(params![key, &digest[..], status, &**headers, &**body])?,
            None => connection
                .prepare_cached("DELETE FROM answers WHERE key = ?1 AND digest = ?2 AND status IS NULL")?
                .execute(params![key, &digest[..]])?,
        };
        Ok(())
    })
}
