//! Users, their sessions and tokens.

use std::sync::Arc;

use punctual_core::time::{Millis, Timestamp};
use punctual_driver::accounts::{
    Accounts, Digest, NewSession, NewToken, SESSIONS_MAX, Session, TOKENS_MAX, Token, TokenMade, User, UserChange, UserChanged,
};
use punctual_driver::ports::{Actor, AuditAction, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::accounts::{audited, changed, ended_sessions, is_admin, token_subject};
use crate::audit::Audit;
use crate::codec;
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::required_text;
use crate::sqlite::commit::transaction;
use crate::sqlite::error::malformed;
use crate::sqlite::history::sql_limit;
use crate::sqlite::people::put_audit;
use crate::sqlite::rows::unsigned;

/// The columns that [`user`] reads, of a table called `u`.
macro_rules! user_columns {
    () => {
        "u.name, u.password, u.grants, u.disabled, u.created_at, u.password_at"
    };
}
/// How many that is.
const USER_COLUMNS: usize = 6;

fn user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        name: required_text(row, 0)?,
        password: required_text(row, 1)?,
        grants: grants(row, 2)?,
        is_disabled: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
        password_at: Timestamp(row.get(5)?),
    })
}

fn grants(row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<[punctual_driver::accounts::Grant]>> {
    codec::grants(row.get_ref(column)?.as_blob()?).map_err(|what| malformed(column, what))
}

/// Users by name.
pub(crate) fn users(connection: &Connection, after: Option<&str>, limit: usize) -> rusqlite::Result<Vec<User>> {
    connection
        .prepare_cached(concat!("SELECT ", user_columns!(), " FROM users u WHERE u.name > ?1 ORDER BY u.name LIMIT ?2"))?
        .query_map(params![after.unwrap_or(""), sql_limit(limit)], user)?
        .collect()
}

/// One user.
pub(crate) fn one(connection: &Connection, name: &str) -> rusqlite::Result<Option<User>> {
    connection.prepare_cached(concat!("SELECT ", user_columns!(), " FROM users u WHERE u.name = ?1"))?.query_row([name], user).optional()
}

/// Puts a write on record that concerns no task.
fn on_record(connection: &Connection, now: Timestamp, actor: &Actor, action: AuditAction, subject: &str) -> rusqlite::Result<()> {
    put_audit(connection, now, &Audit { actor, action, task: None, instance: None, subject: Some(subject) })
}

/// Changes one user.
pub(crate) fn change_user(
    connection: &Connection,
    name: &str,
    change: &UserChange,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<UserChanged> {
    transaction(connection, |connection| {
        let found = one(connection, name)?;
        if let UserChange::Add { password, grants, as_first } = change {
            if *as_first && connection.prepare_cached("SELECT 1 FROM users LIMIT 1")?.exists([])? {
                return Ok(UserChanged::NotFirst);
            }
            if found.is_some() {
                return Ok(UserChanged::NameTaken);
            }
            connection
                .prepare_cached(
                    "INSERT INTO users (name, password, grants, disabled, admin, created_at, password_at) VALUES (?1, ?2, ?3, 0, ?4, ?5, ?5)",
                )?
                .execute(params![name, &**password, codec::pack_grants(grants), is_admin(grants, false), now.0])?;
        } else {
            let Some(before) = found else { return Ok(UserChanged::NoSuchUser) };
            let was_admin = is_admin(&before.grants, before.is_disabled);
            let after = changed(before, change);
            let stays_admin = after.as_ref().is_some_and(|after| is_admin(&after.grants, after.is_disabled));
            let mut another = connection.prepare_cached("SELECT 1 FROM users WHERE admin = 1 AND name <> ?1 LIMIT 1")?;
            if was_admin && !stays_admin && !another.exists([name])? {
                return Ok(UserChanged::LastAdmin);
            }
            match after {
                Some(after) => {
                    connection
                        .prepare_cached("UPDATE users SET password = ?2, grants = ?3, disabled = ?4, admin = ?5 WHERE name = ?1")?
                        .execute(params![name, &*after.password, codec::pack_grants(&after.grants), after.is_disabled, stays_admin])?;
                }
                None => {
                    connection.prepare_cached("DELETE FROM api_tokens WHERE owner = ?1")?.execute([name])?;
                    connection.prepare_cached("DELETE FROM users WHERE name = ?1")?.execute([name])?;
                }
            }
            if matches!(change, UserChange::SetPassword { .. }) {
                connection.prepare_cached("UPDATE users SET password_at = ?2 WHERE name = ?1")?.execute(params![name, now.0])?;
            }
            if let Some(keep) = ended_sessions(change) {
                let keep = keep.unwrap_or_default();
                connection.prepare_cached("DELETE FROM sessions WHERE owner = ?1 AND digest <> ?2")?.execute(params![name, &keep[..]])?;
            }
        }
        let (action, subject) = audited(name, change);
        on_record(connection, now, by, action, &subject)?;
        Ok(UserChanged::Done)
    })
}

/// The columns that [`token`] reads, of a table called `t`, behind `from` others.
macro_rules! token_columns {
    () => {
        "t.id, t.name, t.owner, t.grants, t.created_at, t.expires_at, t.used_at"
    };
}

fn token(row: &Row<'_>, from: usize) -> rusqlite::Result<Token> {
    Ok(Token {
        id: unsigned(row, from)?,
        name: required_text(row, from + 1)?,
        owner: required_text(row, from + 2)?,
        grants: grants(row, from + 3)?,
        created_at: Timestamp(row.get(from + 4)?),
        expires_at: Timestamp(row.get(from + 5)?),
        used_at: row.get::<_, Option<i64>>(from + 6)?.map(Timestamp),
    })
}

/// Tokens that have not expired, by number.
pub(crate) fn tokens(
    connection: &Connection,
    owner: Option<&str>,
    after: u64,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<Token>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let sql = match owner {
        Some(_) => concat!(
            "SELECT ",
            token_columns!(),
            " FROM api_tokens t INDEXED BY api_tokens_by_owner WHERE t.owner = ?4 AND t.id > ?1 AND t.expires_at > ?2 ORDER BY t.id LIMIT ?3"
        ),
        None => concat!(
            "SELECT ",
            token_columns!(),
            " FROM api_tokens t WHERE t.id > ?1 AND t.expires_at > ?2 AND ?4 IS NULL ORDER BY t.id LIMIT ?3"
        ),
    };
    connection.prepare_cached(sql)?.query_map(params![after, now.0, sql_limit(limit), owner], |row| token(row, 0))?.collect()
}

/// Makes a token.
pub(crate) fn make_token(connection: &Connection, new: &NewToken, by: &Actor, now: Timestamp) -> rusqlite::Result<TokenMade> {
    transaction(connection, |connection| {
        if one(connection, &new.owner)?.is_none() {
            return Ok(TokenMade::NoSuchUser);
        }
        connection.prepare_cached("DELETE FROM api_tokens WHERE owner = ?1 AND expires_at <= ?2")?.execute(params![&*new.owner, now.0])?;
        let count: u32 =
            connection.prepare_cached("SELECT count(*) FROM api_tokens WHERE owner = ?1")?.query_row([&*new.owner], |row| row.get(0))?;
        if count as usize >= TOKENS_MAX {
            return Ok(TokenMade::TooMany);
        }
        let expires_at = now.saturating_add(new.lasts);
        let id = connection
            .prepare_cached("INSERT INTO api_tokens (digest, name, owner, grants, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .insert(params![&new.digest[..], &*new.name, &*new.owner, codec::pack_grants(&new.grants), now.0, expires_at.0])?
            .cast_unsigned();
        on_record(connection, now, by, AuditAction::MakeToken, &token_subject(&new.owner, &new.name, id))?;
        Ok(TokenMade::Done { id, expires_at })
    })
}

/// Ends a token.
pub(crate) fn revoke_token(connection: &Connection, id: u64, owner: Option<&str>, by: &Actor, now: Timestamp) -> rusqlite::Result<bool> {
    let Ok(id) = i64::try_from(id) else { return Ok(false) };
    transaction(connection, |connection| {
        let mut found = connection.prepare_cached(concat!("SELECT ", token_columns!(), " FROM api_tokens t WHERE t.id = ?1"))?;
        let found = found.query_row([id], |row| token(row, 0)).optional()?;
        let Some(found) = found.filter(|found| owner.is_none_or(|owner| *found.owner == *owner)) else { return Ok(false) };
        connection.prepare_cached("DELETE FROM api_tokens WHERE id = ?1")?.execute([id])?;
        on_record(connection, now, by, AuditAction::RevokeToken, &token_subject(&found.owner, &found.name, found.id))?;
        Ok(true)
    })
}

/// The token with this digest and its owner.
pub(crate) fn bearer(connection: &Connection, digest: &Digest, now: Timestamp) -> rusqlite::Result<Option<(Token, User)>> {
    connection
        .prepare_cached(concat!(
            "SELECT ",
            user_columns!(),
            ", ",
            token_columns!(),
            " FROM api_tokens t CROSS JOIN users u ON u.name = t.owner WHERE t.digest = ?1 AND t.expires_at > ?2 AND u.disabled = 0"
        ))?
        .query_row(params![&digest[..], now.0], |row| Ok((token(row, USER_COLUMNS)?, user(row)?)))
        .optional()
}

/// Notes that a token was shown.
pub(crate) fn note_token(connection: &Connection, id: u64, now: Timestamp) -> rusqlite::Result<()> {
    let mut noted = connection.prepare_cached("UPDATE api_tokens SET used_at = ?2 WHERE id = ?1")?;
    noted.execute(params![id.cast_signed(), now.0]).map(drop)
}

/// Begins a session.
pub(crate) fn begin_session(
    connection: &Connection,
    new: &NewSession,
    replaces: Option<&Digest>,
    by: &Actor,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    transaction(connection, |connection| {
        let may = one(connection, &new.user)?.is_some_and(|user| !user.is_disabled && user.password == new.password);
        if !may {
            return Ok(false);
        }
        connection.prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?.execute([now.0])?;
        if let Some(replaced) = replaces {
            connection.prepare_cached("DELETE FROM sessions WHERE digest = ?1")?.execute([&replaced[..]])?;
        }
        connection
            .prepare_cached(
                "DELETE FROM sessions WHERE owner = ?1 AND digest NOT IN
                 (SELECT digest FROM sessions WHERE owner = ?1 ORDER BY seen_at DESC LIMIT ?2)",
            )?
            .execute(params![&*new.user, sql_limit(SESSIONS_MAX - 1)])?;
        let ends_at = now.saturating_add(new.lasts);
        let expires_at = now.saturating_add(new.idle_max).min(ends_at);
        connection
            .prepare_cached(
                "INSERT INTO sessions (digest, owner, created_at, seen_at, expires_at, ends_at) VALUES (?1, ?2, ?3, ?3, ?4, ?5)",
            )?
            .execute(params![&new.digest[..], &*new.user, now.0, expires_at.0, ends_at.0])?;
        on_record(connection, now, by, AuditAction::SignIn, &new.user)?;
        Ok(true)
    })
}

/// The session with this digest and its user.
pub(crate) fn session(connection: &Connection, digest: &Digest, now: Timestamp) -> rusqlite::Result<Option<(Session, User)>> {
    let both = |row: &Row<'_>| {
        let at = |column: usize| row.get::<_, i64>(USER_COLUMNS + column).map(Timestamp);
        Ok((Session { digest: *digest, created_at: at(0)?, seen_at: at(1)?, expires_at: at(2)? }, user(row)?))
    };
    connection
        .prepare_cached(concat!(
            "SELECT ",
            user_columns!(),
            ", s.created_at, s.seen_at, s.expires_at FROM sessions s CROSS JOIN users u ON u.name = s.owner
             WHERE s.digest = ?1 AND s.expires_at > ?2 AND u.disabled = 0"
        ))?
        .query_row(params![&digest[..], now.0], both)
        .optional()
}

/// Sessions of a user that have not ended.
pub(crate) fn sessions(connection: &Connection, user: &str, now: Timestamp) -> rusqlite::Result<Vec<Session>> {
    let session = |row: &Row<'_>| {
        let at = |column: usize| row.get::<_, i64>(column).map(Timestamp);
        Ok(Session { digest: row.get(0)?, created_at: at(1)?, seen_at: at(2)?, expires_at: at(3)? })
    };
    connection
        .prepare_cached(
            "SELECT digest, created_at, seen_at, expires_at FROM sessions WHERE owner = ?1 AND expires_at > ?2 ORDER BY seen_at DESC, digest LIMIT ?3",
        )?
        .query_map(params![user, now.0, sql_limit(SESSIONS_MAX)], session)?
        .collect()
}

/// Notes that a session is used.
pub(crate) fn note_session(connection: &Connection, digest: &Digest, idle_max: Millis, now: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE sessions SET seen_at = ?2, expires_at = min(?3, ends_at) WHERE digest = ?1 AND expires_at > ?2")?
        .execute(params![&digest[..], now.0, now.saturating_add(idle_max).0])
        .map(drop)
}

/// Ends a session.
pub(crate) fn end_session(connection: &Connection, digest: &Digest, by: &Actor, now: Timestamp) -> rusqlite::Result<bool> {
    transaction(connection, |connection| {
        let mut whose = connection.prepare_cached("SELECT owner FROM sessions WHERE digest = ?1")?;
        let Some(owner) = whose.query_row([&digest[..]], |row| required_text(row, 0)).optional()? else { return Ok(false) };
        connection.prepare_cached("DELETE FROM sessions WHERE digest = ?1")?.execute([&digest[..]])?;
        on_record(connection, now, by, AuditAction::SignOut, &owner)?;
        Ok(true)
    })
}

impl Accounts for SqliteStore {
    async fn users(&self, after: Option<Arc<str>>, limit: usize) -> Result<Vec<User>, StoreError> {
        self.read(move |connection| users(connection, after.as_deref(), limit)).await
    }

    async fn user(&self, name: Arc<str>) -> Result<Option<User>, StoreError> {
        self.read(move |connection| one(connection, &name)).await
    }

    async fn change_user(&self, name: Arc<str>, change: UserChange, by: Actor, now: Timestamp) -> Result<UserChanged, StoreError> {
        self.write(move |connection| change_user(connection, &name, &change, &by, now)).await
    }

    async fn tokens(&self, owner: Option<Arc<str>>, after: u64, limit: usize, now: Timestamp) -> Result<Vec<Token>, StoreError> {
        self.read(move |connection| tokens(connection, owner.as_deref(), after, limit, now)).await
    }

    async fn make_token(&self, token: NewToken, by: Actor, now: Timestamp) -> Result<TokenMade, StoreError> {
        self.write(move |connection| make_token(connection, &token, &by, now)).await
    }

    async fn revoke_token(&self, id: u64, owner: Option<Arc<str>>, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |connection| revoke_token(connection, id, owner.as_deref(), &by, now)).await
    }

    async fn bearer(&self, digest: Digest, now: Timestamp) -> Result<Option<(Token, User)>, StoreError> {
        self.read(move |connection| bearer(connection, &digest, now)).await
    }

    async fn note_token(&self, id: u64, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |connection| note_token(connection, id, now)).await
    }

    async fn begin_session(&self, session: NewSession, replaces: Option<Digest>, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |connection| begin_session(connection, &session, replaces.as_ref(), &by, now)).await
    }

    async fn session(&self, digest: Digest, now: Timestamp) -> Result<Option<(Session, User)>, StoreError> {
        self.read(move |connection| session(connection, &digest, now)).await
    }

    async fn sessions(&self, user: Arc<str>, now: Timestamp) -> Result<Vec<Session>, StoreError> {
        self.read(move |connection| sessions(connection, &user, now)).await
    }

    async fn note_session(&self, digest: Digest, idle_max: Millis, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |connection| note_session(connection, &digest, idle_max, now)).await
    }

    async fn end_session(&self, digest: Digest, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        self.write(move |connection| end_session(connection, &digest, &by, now)).await
    }
}
