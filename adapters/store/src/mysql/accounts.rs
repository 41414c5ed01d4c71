//! Users, their sessions and tokens. Whoever writes takes the turn `accounts`, so that what is looked at stays until it is written.

use std::sync::Arc;

use punctual_core::time::{Millis, Timestamp};
use punctual_driver::accounts::{
    Accounts, Digest, Grant, NewSession, NewToken, SESSIONS_MAX, Session as SignedIn, TOKENS_MAX, Token, TokenMade, User, UserChange,
    UserChanged,
};
use punctual_driver::ports::{Actor, AuditAction, StoreError};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::accounts::{audited, changed, ended_sessions, is_admin, token_subject};
use crate::audit::Audit;
use crate::codec;
use crate::mysql::MySqlStore;
use crate::mysql::error::Failure;
use crate::mysql::people::audit_sql;
use crate::mysql::rows::required_text;
use crate::mysql::session::Session;
use crate::mysql::sql::literal;

const TAKE_TURN: &str = "SELECT name FROM gate WHERE name = 'accounts' FOR UPDATE";
/// The columns that [`user`] reads, of a table called `u`.
const USER_COLUMNS: &str = "u.name, u.password, u.grants, u.disabled, u.created_at, u.password_at";
/// How many that is.
const USER_COLUMNS_COUNT: usize = 6;
/// The columns that [`token`] reads, of a table called `t`.
const TOKEN_COLUMNS: &str = "t.id, t.name, t.owner, t.grants, t.created_at, t.expires_at, t.used_at";

fn user(row: &MySqlRow) -> Result<User, Failure> {
    Ok(User {
        name: required_text(row, 0)?,
        password: required_text(row, 1)?,
        grants: grants(row, 2)?,
        is_disabled: row.try_get::<u8, _>(3)? != 0,
        created_at: Timestamp(row.try_get(4)?),
        password_at: Timestamp(row.try_get(5)?),
    })
}

fn grants(row: &MySqlRow, column: usize) -> Result<Arc<[Grant]>, Failure> {
    Ok(codec::grants(row.try_get(column)?)?)
}

/// Users by name.
pub(crate) async fn users(session: &mut Session, after: Option<&str>, limit: usize) -> Result<Vec<User>, Failure> {
    let after = literal(after.unwrap_or("").as_bytes());
    let sql = format!("SELECT {USER_COLUMNS} FROM users u FORCE INDEX (PRIMARY) WHERE u.name > {after} ORDER BY u.name LIMIT {limit}");
    session.rows(sql).await?.iter().map(user).collect()
}

/// One user.
pub(crate) async fn one(session: &mut Session, name: &str) -> Result<Option<User>, Failure> {
    let sql = format!("SELECT {USER_COLUMNS} FROM users u WHERE u.name = {}", literal(name.as_bytes()));
    session.rows(sql).await?.first().map(user).transpose()
}

/// Puts a write on record that concerns no task.
async fn on_record(session: &mut Session, now_sql: &str, actor: &Actor, action: AuditAction, subject: &str) -> Result<(), Failure> {
    let written = Audit { actor, action, task: None, instance: None, subject: Some(subject) };
    session.run_all(audit_sql([written], now_sql)).await.map(drop)
}

/// Changes one user, in the transaction that was begun.
pub(crate) async fn change_user(
    session: &mut Session,
    name: &str,
    change: &UserChange,
    by: &Actor,
    now_sql: &str,
) -> Result<UserChanged, Failure> {
    session.rows(TAKE_TURN.to_owned()).await?;
    let found = one(session, name).await?;
    let named = literal(name.as_bytes());
    if let UserChange::Add { password, grants, as_first } = change {
        if *as_first && !session.rows("SELECT 1 FROM users LIMIT 1".to_owned()).await?.is_empty() {
            return Ok(UserChanged::NotFirst);
        }
        if found.is_some() {
            return Ok(UserChanged::NameTaken);
        }
        let (hash, packed) = (literal(password.as_bytes()), literal(&codec::pack_grants(grants)));
        let admin = u8::from(is_admin(grants, false));
        let sql = format!(
            "INSERT INTO users (name, password, grants, disabled, admin, created_at, password_at)
             VALUES ({named}, {hash}, {packed}, 0, {admin}, {now_sql}, {now_sql})"
        );
        session.run(sql).await?;
    } else {
        let Some(before) = found else { return Ok(UserChanged::NoSuchUser) };
        let was_admin = is_admin(&before.grants, before.is_disabled);
        let after = changed(before, change);
        let stays_admin = after.as_ref().is_some_and(|after| is_admin(&after.grants, after.is_disabled));
        let another = format!("SELECT 1 FROM users WHERE admin = 1 AND name <> {named} LIMIT 1");
        if was_admin && !stays_admin && session.rows(another).await?.is_empty() {
            return Ok(UserChanged::LastAdmin);
        }
        let mut script = Vec::new();
        match after {
            Some(after) => {
                let (hash, packed) = (literal(after.password.as_bytes()), literal(&codec::pack_grants(&after.grants)));
                let password_at = if matches!(change, UserChange::SetPassword { .. }) { now_sql } else { "password_at" };
                script.push(format!(
                    "UPDATE users SET password = {hash}, grants = {packed}, disabled = {}, admin = {}, password_at = {password_at} WHERE name = {named}",
                    u8::from(after.is_disabled),
                    u8::from(stays_admin)
                ));
            }
            None => {
                script.push(format!("DELETE FROM api_tokens WHERE owner = {named}"));
                script.push(format!("DELETE FROM users WHERE name = {named}"));
            }
        }
        if let Some(keep) = ended_sessions(change) {
            script.push(format!("DELETE FROM sessions WHERE owner = {named} AND digest <> {}", literal(&keep.unwrap_or_default())));
        }
        session.run_all(script).await?;
    }
    let (action, subject) = audited(name, change);
    on_record(session, now_sql, by, action, &subject).await?;
    Ok(UserChanged::Done)
}

fn token(row: &MySqlRow, from: usize) -> Result<Token, Failure> {
    Ok(Token {
        id: row.try_get(from)?,
        name: required_text(row, from + 1)?,
        owner: required_text(row, from + 2)?,
        grants: grants(row, from + 3)?,
        created_at: Timestamp(row.try_get(from + 4)?),
        expires_at: Timestamp(row.try_get(from + 5)?),
        used_at: row.try_get::<Option<i64>, _>(from + 6)?.map(Timestamp),
    })
}

/// Tokens that have not expired, by number.
pub(crate) async fn tokens(
    session: &mut Session,
    owner: Option<&str>,
    after: u64,
    limit: usize,
    now_sql: &str,
) -> Result<Vec<Token>, Failure> {
    let (index, which) = match owner {
        Some(owner) => ("api_tokens_by_owner", format!("t.owner = {}", literal(owner.as_bytes()))),
        None => ("PRIMARY", "TRUE".to_owned()),
    };
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM api_tokens t FORCE INDEX ({index})
         WHERE {which} AND t.id > {after} AND t.expires_at > {now_sql} ORDER BY t.id LIMIT {limit}"
    );
    session.rows(sql).await?.iter().map(|row| token(row, 0)).collect()
}

/// Makes a token, in the transaction that was begun.
pub(crate) async fn make_token(session: &mut Session, new: &NewToken, by: &Actor, now_sql: &str) -> Result<TokenMade, Failure> {
    session.rows(TAKE_TURN.to_owned()).await?;
    if one(session, &new.owner).await?.is_none() {
        return Ok(TokenMade::NoSuchUser);
    }
    let owner = literal(new.owner.as_bytes());
    session.run(format!("DELETE FROM api_tokens WHERE owner = {owner} AND expires_at <= {now_sql}")).await?;
    let count = session.rows(format!("SELECT COUNT(*) FROM api_tokens WHERE owner = {owner}")).await?;
    let count: i64 = count.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    if count >= TOKENS_MAX as i64 {
        return Ok(TokenMade::TooMany);
    }
    let (digest, name, packed) = (literal(&new.digest), literal(new.name.as_bytes()), literal(&codec::pack_grants(&new.grants)));
    session
        .run(format!(
            "INSERT INTO api_tokens (digest, name, owner, grants, created_at, expires_at)
             VALUES ({digest}, {name}, {owner}, {packed}, {now_sql}, {now_sql} + {})",
            new.lasts.0
        ))
        .await?;
    let made = session.rows(format!("SELECT {TOKEN_COLUMNS} FROM api_tokens t WHERE t.digest = {digest}")).await?;
    let made = made.first().map(|row| token(row, 0)).transpose()?.ok_or(codec::Malformed("a token is not where it was put"))?;
    on_record(session, now_sql, by, AuditAction::MakeToken, &token_subject(&new.owner, &new.name, made.id)).await?;
    Ok(TokenMade::Done { id: made.id, expires_at: made.expires_at })
}

/// Ends a token, in the transaction that was begun.
pub(crate) async fn revoke_token(session: &mut Session, id: u64, owner: Option<&str>, by: &Actor, now_sql: &str) -> Result<bool, Failure> {
    session.rows(TAKE_TURN.to_owned()).await?;
    let found = session.rows(format!("SELECT {TOKEN_COLUMNS} FROM api_tokens t WHERE t.id = {id}")).await?;
    let found = found.first().map(|row| token(row, 0)).transpose()?;
    let Some(found) = found.filter(|found| owner.is_none_or(|owner| *found.owner == *owner)) else { return Ok(false) };
    session.run(format!("DELETE FROM api_tokens WHERE id = {id}")).await?;
    on_record(session, now_sql, by, AuditAction::RevokeToken, &token_subject(&found.owner, &found.name, id)).await?;
    Ok(true)
}

/// The token with this digest and its owner.
pub(crate) async fn bearer(session: &mut Session, digest: &Digest, now_sql: &str) -> Result<Option<(Token, User)>, Failure> {
    let sql = format!(
        "SELECT {USER_COLUMNS}, {TOKEN_COLUMNS} FROM api_tokens t STRAIGHT_JOIN users u ON u.name = t.owner
         WHERE t.digest = {} AND t.expires_at > {now_sql} AND u.disabled = 0",
        literal(digest)
    );
    session.rows(sql).await?.first().map(|row| Ok((token(row, USER_COLUMNS_COUNT)?, user(row)?))).transpose()
}

/// Notes that a token was shown.
pub(crate) async fn note_token(session: &mut Session, id: u64, now_sql: &str) -> Result<(), Failure> {
    session.run(format!("UPDATE api_tokens SET used_at = {now_sql} WHERE id = {id}")).await.map(drop)
}

/// Begins a session, in the transaction that was begun.
pub(crate) async fn begin_session(
    session: &mut Session,
    new: &NewSession,
    replaces: Option<&Digest>,
    by: &Actor,
    now_sql: &str,
) -> Result<bool, Failure> {
    session.rows(TAKE_TURN.to_owned()).await?;
    let may = one(session, &new.user).await?.is_some_and(|user| !user.is_disabled && user.password == new.password);
    if !may {
        return Ok(false);
    }
    let owner = literal(new.user.as_bytes());
    let mut script = vec![format!("DELETE FROM sessions WHERE expires_at <= {now_sql}")];
    script.extend(replaces.map(|replaced| format!("DELETE FROM sessions WHERE digest = {}", literal(replaced))));
    session.run_all(script).await?;
    let oldest = format!(
        "SELECT digest FROM sessions FORCE INDEX (sessions_by_owner) WHERE owner = {owner} ORDER BY seen_at DESC LIMIT 1000 OFFSET {}",
        SESSIONS_MAX - 1
    );
    for row in session.rows(oldest).await? {
        session.run(format!("DELETE FROM sessions WHERE digest = {}", literal(row.try_get(0)?))).await?;
    }
    let (idle, lasts) = (new.idle_max.0.min(new.lasts.0), new.lasts.0);
    let sql = format!(
        "INSERT INTO sessions (digest, owner, created_at, seen_at, expires_at, ends_at)
         VALUES ({}, {owner}, {now_sql}, {now_sql}, {now_sql} + {idle}, {now_sql} + {lasts})",
        literal(&new.digest)
    );
    session.run(sql).await?;
    on_record(session, now_sql, by, AuditAction::SignIn, &new.user).await?;
    Ok(true)
}

/// The session with this digest and its user.
pub(crate) async fn session_of(session: &mut Session, digest: &Digest, now_sql: &str) -> Result<Option<(SignedIn, User)>, Failure> {
    let sql = format!(
        "SELECT {USER_COLUMNS}, s.created_at, s.seen_at, s.expires_at FROM sessions s STRAIGHT_JOIN users u ON u.name = s.owner
         WHERE s.digest = {} AND s.expires_at > {now_sql} AND u.disabled = 0",
        literal(digest)
    );
    let both = |row: &MySqlRow| -> Result<_, Failure> {
        let at = |column: usize| row.try_get(USER_COLUMNS_COUNT + column).map(Timestamp);
        Ok((SignedIn { digest: *digest, created_at: at(0)?, seen_at: at(1)?, expires_at: at(2)? }, user(row)?))
    };
    session.rows(sql).await?.first().map(both).transpose()
}

/// Sessions of a user that have not ended.
pub(crate) async fn sessions(session: &mut Session, user: &str, now_sql: &str) -> Result<Vec<SignedIn>, Failure> {
    let sql = format!(
        "SELECT digest, created_at, seen_at, expires_at FROM sessions FORCE INDEX (sessions_by_owner)
         WHERE owner = {} AND expires_at > {now_sql} ORDER BY seen_at DESC, digest LIMIT {SESSIONS_MAX}",
        literal(user.as_bytes())
    );
    let one = |row: &MySqlRow| -> Result<_, Failure> {
        let at = |column: usize| row.try_get(column).map(Timestamp);
        let digest: &[u8] = row.try_get(0)?;
        let digest = digest.try_into().map_err(|_| codec::Malformed("a session's digest has another length"))?;
        Ok(SignedIn { digest, created_at: at(1)?, seen_at: at(2)?, expires_at: at(3)? })
    };
    session.rows(sql).await?.iter().map(one).collect()
}

/// Notes that a session is used.
pub(crate) async fn note_session(session: &mut Session, digest: &Digest, idle_max: Millis, now_sql: &str) -> Result<(), Failure> {
    let sql = format!(
        "UPDATE sessions SET seen_at = {now_sql}, expires_at = LEAST({now_sql} + {}, ends_at) WHERE digest = {} AND expires_at > {now_sql}",
        idle_max.0,
        literal(digest)
    );
    session.run(sql).await.map(drop)
}

/// Ends a session, in the transaction that was begun.
pub(crate) async fn end_session(session: &mut Session, digest: &Digest, by: &Actor, now_sql: &str) -> Result<bool, Failure> {
    session.rows(TAKE_TURN.to_owned()).await?;
    let which = literal(digest);
    let whose = session.rows(format!("SELECT owner FROM sessions WHERE digest = {which}")).await?;
    let Some(owner) = whose.first().map(|row| required_text(row, 0)).transpose()? else { return Ok(false) };
    session.run(format!("DELETE FROM sessions WHERE digest = {which}")).await?;
    on_record(session, now_sql, by, AuditAction::SignOut, &owner).await?;
    Ok(true)
}

impl Accounts for MySqlStore {
    async fn users(&self, after: Option<Arc<str>>, limit: usize) -> Result<Vec<User>, StoreError> {
        let mut session = self.reads.session().await?;
        let users = users(&mut session, after.as_deref(), limit).await;
        session.done(users)
    }

    async fn user(&self, name: Arc<str>) -> Result<Option<User>, StoreError> {
        let mut session = self.reads.session().await?;
        let user = one(&mut session, &name).await;
        session.done(user)
    }

    async fn change_user(&self, name: Arc<str>, change: UserChange, by: Actor, now: Timestamp) -> Result<UserChanged, StoreError> {
        let mut session = self.writes.begin().await?;
        let changed = change_user(&mut session, &name, &change, &by, &self.now(now)).await;
        session.end(changed).await
    }

    async fn tokens(&self, owner: Option<Arc<str>>, after: u64, limit: usize, now: Timestamp) -> Result<Vec<Token>, StoreError> {
        let mut session = self.reads.session().await?;
        let tokens = tokens(&mut session, owner.as_deref(), after, limit, &self.now(now)).await;
        session.done(tokens)
    }

    async fn make_token(&self, token: NewToken, by: Actor, now: Timestamp) -> Result<TokenMade, StoreError> {
        let mut session = self.writes.begin().await?;
        let made = make_token(&mut session, &token, &by, &self.now(now)).await;
        session.end(made).await
    }

    async fn revoke_token(&self, id: u64, owner: Option<Arc<str>>, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        let mut session = self.writes.begin().await?;
        let revoked = revoke_token(&mut session, id, owner.as_deref(), &by, &self.now(now)).await;
        session.end(revoked).await
    }

    async fn bearer(&self, digest: Digest, now: Timestamp) -> Result<Option<(Token, User)>, StoreError> {
        let mut session = self.reads.session().await?;
        let bearer = bearer(&mut session, &digest, &self.now(now)).await;
        session.done(bearer)
    }

    async fn note_token(&self, id: u64, now: Timestamp) -> Result<(), StoreError> {
        let mut session = self.writes.session().await?;
        let noted = note_token(&mut session, id, &self.now(now)).await;
        session.done(noted)
    }

    async fn begin_session(&self, session: NewSession, replaces: Option<Digest>, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        let (new, mut session) = (session, self.writes.begin().await?);
        let begun = begin_session(&mut session, &new, replaces.as_ref(), &by, &self.now(now)).await;
        session.end(begun).await
    }

    async fn session(&self, digest: Digest, now: Timestamp) -> Result<Option<(SignedIn, User)>, StoreError> {
        let mut session = self.reads.session().await?;
        let found = session_of(&mut session, &digest, &self.now(now)).await;
        session.done(found)
    }

    async fn sessions(&self, user: Arc<str>, now: Timestamp) -> Result<Vec<SignedIn>, StoreError> {
        let mut session = self.reads.session().await?;
        let found = sessions(&mut session, &user, &self.now(now)).await;
        session.done(found)
    }

    async fn note_session(&self, digest: Digest, idle_max: Millis, now: Timestamp) -> Result<(), StoreError> {
        let mut session = self.writes.session().await?;
        let noted = note_session(&mut session, &digest, idle_max, &self.now(now)).await;
        session.done(noted)
    }

    async fn end_session(&self, digest: Digest, by: Actor, now: Timestamp) -> Result<bool, StoreError> {
        let mut session = self.writes.begin().await?;
        let ended = end_session(&mut session, &digest, &by, &self.now(now)).await;
        session.end(ended).await
    }
}
