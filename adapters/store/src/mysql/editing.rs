//! Edits of single tasks, and answers that are kept under idempotency keys.

use std::sync::Arc;

use punctual_core::ids::{TaskId, Version};
use punctual_driver::editing::{ANSWER_KEPT_MS, UNDER_WAY_MS};
use punctual_driver::ports::{Edited, KeptAnswer, Reserved, Revision, Standing, TaskEdit};
use sqlx::Row;

use crate::mysql::catalog::{TAKE_TASKS_TURN, stored_ties, those_that_exist};
use crate::mysql::error::Failure;
use crate::mysql::rows::{required_text, text};
use crate::mysql::session::Session;
use crate::mysql::sql::literal;
use crate::plan::{Plan, Planner, StoredTask};

/// So many answers that are too old are forgotten with each new one.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// Compares an edit with what is stored: what is to be written, or why nothing is. Until the transaction ends nobody else edits any.
pub(crate) async fn compare(session: &mut Session, edit: &TaskEdit) -> Result<Result<Plan, Edited>, Failure> {
    session.rows(TAKE_TASKS_TURN.to_owned()).await?;
    let sql = format!(
        "SELECT t.id, t.version, t.removed, t.source, v.document FROM tasks t FORCE INDEX (tasks_by_name)
         LEFT JOIN task_versions v ON v.task = t.id AND v.version = t.version WHERE t.name = {}",
        literal(edit.name.as_bytes())
    );
    let found = match session.rows(sql).await?.first() {
        None => None,
        Some(row) => {
            let (version, is_removed, source) = (Version(row.try_get(1)?), row.try_get::<u8, _>(2)? != 0, required_text(row, 3)?);
            let (foreign, document) = (Some(source.clone()).filter(|source| *source != edit.source), text(row, 4)?);
            let is_equal = edit.document.as_ref().is_some_and(|task| document.as_ref() == Some(&task.document));
            let stored = StoredTask { id: TaskId(row.try_get(0)?), version, is_removed, foreign, is_equal };
            Some((stored, Standing { source, version: Some(version).filter(|_| !is_removed) }))
        }
    };
    if let Some(refused) = edit.refused(found.as_ref().map(|(_, standing)| standing)) {
        return Ok(Err(refused));
    }
    let mut plan = Planner::of_edit(edit, found.map(|(stored, _)| stored));
    if plan.may_break_chains() {
        let ties = plan.ties_afterwards(stored_ties(session).await?);
        let there = those_that_exist(session, ties.names_to_look_up()).await?;
        plan.check_chains(&ties, there);
    }
    Ok(Ok(plan))
}

/// Which tasks a source has, and how many.
pub(crate) async fn revision(session: &mut Session, source: &str) -> Result<(Revision, u64), Failure> {
    let sql = format!("SELECT id, version FROM tasks WHERE source = {} AND removed = 0 ORDER BY id", literal(source.as_bytes()));
    let (mut revision, mut count) = (Revision::default(), 0);
    for row in &session.rows(sql).await? {
        revision = revision.with(TaskId(row.try_get(0)?), Version(row.try_get(1)?));
        count += 1;
    }
    Ok((revision, count))
}

/// Remembers that a call is under way, or answers what is known of it.
pub(crate) async fn reserve(session: &mut Session, key: &str, digest: &[u8; 32], now_sql: &str) -> Result<Reserved, Failure> {
    let (key, digest_sql) = (literal(key.as_bytes()), literal(digest));
    session
        .run(format!("DELETE FROM answers WHERE made_at < {now_sql} - {ANSWER_KEPT_MS} ORDER BY made_at LIMIT {FORGOTTEN_AT_ONCE}"))
        .await?;
    // Of two the second waits here for the first one's transaction, and finds what it wrote.
    let insert = format!("INSERT IGNORE INTO answers (answer_key, digest, made_at) VALUES ({key}, {digest_sql}, {now_sql})");
    if session.run(insert).await? == 1 {
        return Ok(Reserved::New);
    }
    let sql = format!(
        "SELECT digest, made_at > {now_sql} - {UNDER_WAY_MS}, made_at >= {now_sql} - {ANSWER_KEPT_MS}, status, headers, body
         FROM answers WHERE answer_key = {key} FOR UPDATE"
    );
    if let Some(row) = session.rows(sql).await?.first() {
        let is_kept = row.try_get::<i64, _>(2)? != 0;
        let is_same = row.try_get::<&[u8], _>(0)? == digest;
        match (is_kept, is_same, row.try_get::<Option<u16>, _>(3)?) {
            (false, _, _) => {}
            (true, false, _) => return Ok(Reserved::Other),
            (true, true, Some(status)) => {
                let body = row.try_get::<Option<&[u8]>, _>(5)?.unwrap_or_default();
                return Ok(Reserved::Answered(KeptAnswer { status, headers: required_text(row, 4)?, body: Arc::from(body) }));
            }
            (true, true, None) if row.try_get::<i64, _>(1)? != 0 => return Ok(Reserved::UnderWay),
            (true, true, None) => {}
        }
    }
    session.run(format!("REPLACE INTO answers (answer_key, digest, made_at) VALUES ({key}, {digest_sql}, {now_sql})")).await?;
    Ok(Reserved::New)
}

/// Keeps an answer, or forgets that the call was made.
pub(crate) async fn keep(session: &mut Session, key: &str, digest: &[u8; 32], answer: Option<&KeptAnswer>) -> Result<(), Failure> {
    let of = format!("WHERE answer_key = {} AND digest = {} AND status IS NULL", literal(key.as_bytes()), literal(digest));
    let sql = match answer {
        Some(KeptAnswer { status, headers, body }) => {
            format!("UPDATE answers SET status = {status}, headers = {}, body = {} {of}", literal(headers.as_bytes()), literal(body))
        }
        None => format!("DELETE FROM answers {of}"),
    };
    session.run(sql).await.map(drop)
}
