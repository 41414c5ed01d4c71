//! Who may use this installation: users, what they may do, their sessions and tokens.
//!
//! A store keeps no secret that opens anything: of passwords it has salted hashes, of tokens and session ids digests. Both of those are
//! random and long, so that a digest can't be searched for.

use std::future::Future;
use std::sync::Arc;

use punctual_core::time::{Millis, Timestamp};

use crate::ports::{Actor, StoreError};

/// What somebody may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Acts on what runs: triggers, pauses, cancels, reruns, marks, settles dead letters.
    Operator,
    /// Changes tasks.
    Editor,
    /// Changes users, tokens and settings.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Editor, Role::Admin];

    /// Its name, the same in API, CLI and console.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Editor => "editor",
            Role::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A role, in one group of tasks or everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// `None` is everywhere.
    pub group: Option<Arc<str>>,
}

impl Grant {
    /// The role everywhere.
    pub fn everywhere(role: Role) -> Grant {
        Grant { role, group: None }
    }

    fn covers(&self, group: Option<&str>) -> bool {
        self.group.is_none() || (group.is_some() && self.group.as_deref() == group)
    }
}

/// Whether one of the grants lets somebody act as `role` on tasks of the group; `None` is a task without a group, or all of them.
pub fn allow(grants: &[Grant], role: Role, group: Option<&str>) -> bool {
    grants.iter().any(|grant| grant.role >= role && grant.covers(group))
}

/// Whether `some` allow nothing that `all` don't.
pub fn are_within(some: &[Grant], all: &[Grant]) -> bool {
    some.iter().all(|grant| allow(all, grant.role, grant.group.as_deref()))
}

/// What both allow: of a token what it was made for, as far as its owner still may.
pub fn common(some: &[Grant], others: &[Grant]) -> Vec<Grant> {
    let mut common: Vec<Grant> = Vec::new();
    for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
        let group = match (&one.group, &other.group) {
            (None, group) | (group, None) => group.clone(),
            (Some(group), Some(same)) if group == same => Some(group.clone()),
            _ => continue,
        };
        let grant = Grant { role: one.role.min(other.role), group };
        if !are_within(std::slice::from_ref(&grant), &common) {
            common.push(grant);
        }
    }
    common
}

/// SHA-256 of a secret.
pub type Digest = [u8; 32];

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Their name, which stays.
    pub name: Arc<str>,
    /// A salted hash in the PHC string format.
    pub password: Arc<str>,
    /// What they may do.
    pub grants: Arc<[Grant]>,
    /// Whether they may not sign in.
    pub is_disabled: bool,
    /// When they were added.
    pub created_at: Timestamp,
    /// When their password was set last.
    pub password_at: Timestamp,
}

/// A change to one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserChange {
    /// There is a new one. `as_first`: only where there is no other.
    Add {
        /// The hash of the password.
        password: Arc<str>,
        /// What they may do.
        grants: Arc<[Grant]>,
        /// Only where there is no other user.
        as_first: bool,
    },
    /// The password is another one. All sessions but `keep` end.
    SetPassword {
        /// The hash of the password.
        password: Arc<str>,
        /// The session that goes on.
        keep: Option<Digest>,
    },
    /// They may do this from now on.
    SetGrants(Arc<[Grant]>),
    /// They may not sign in any longer, or again. Their sessions end.
    SetDisabled(bool),
    /// They may go on, and sign in again: all sessions but `keep` end.
    EndSessions {
        /// The session that goes on.
        keep: Option<Digest>,
    },
    /// They are gone, with their sessions and tokens.
    Remove,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserChanged {
    /// It is written.
    Done,
    /// There is no such user.
    NoSuchUser,
    /// There is one of this name.
    NameTaken,
    /// There is a user, so this one would not be the first.
    NotFirst,
    /// Nobody would be left who may change users.
    LastAdmin,
}

/// A token of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: u64,
    /// What it is for.
    pub name: Arc<str>,
    /// Whose it is.
    pub owner: Arc<str>,
    /// What it is good for, as far as its owner may that.
    pub grants: Arc<[Grant]>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is good for nothing.
    pub expires_at: Timestamp,
    /// When it was shown last, to about a minute.
    pub used_at: Option<Timestamp>,
}

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// What it is for.
    pub name: Arc<str>,
    /// Whose it is.
    pub owner: Arc<str>,
    /// Of the token.
    pub digest: Digest,
    /// What it is good for.
    pub grants: Arc<[Grant]>,
    /// How long.
    pub lasts: Millis,
}

/// What became of a token that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenMade {
    /// It is good from now on.
    Done {
        /// Its number.
        id: u64,
        /// Until when.
        expires_at: Timestamp,
    },
    /// There is no such user.
    NoSuchUser,
    /// The user has [`TOKENS_MAX`] that have not expired.
    TooMany,
}

/// Most tokens of a user.
pub const TOKENS_MAX: usize = 100;
/// Most sessions of a user; those that were idle for longest end first.
pub const SESSIONS_MAX: usize = 50;

/// A sign-in that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Of its id.
    pub digest: Digest,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was used last, to about a minute.
    pub seen_at: Timestamp,
    /// When it ends, unless it is used before.
    pub expires_at: Timestamp,
}

/// A session that is to begin.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Of its id.
    pub digest: Digest,
    /// Who has signed in.
    pub user: Arc<str>,
    /// How long it may be idle.
    pub idle_max: Millis,
    /// How long it lasts at most.
    pub lasts: Millis,
    /// The hash that the password was checked against: where it is another one by now, nothing begins.
    pub password: Arc<str>,
}

/// The accounts' side of the store. All writes by people are on record, in the transaction that has them; times are by the store's clock.
pub trait Accounts: Send + Sync + 'static {
    /// Users by name; `after` is the last name of the page before.
    fn users(&self, after: Option<Arc<str>>, limit: usize) -> impl Future<Output = Result<Vec<User>, StoreError>> + Send;

    /// One user.
    fn user(&self, name: Arc<str>) -> impl Future<Output = Result<Option<User>, StoreError>> + Send;

    /// Changes one user. Whoever may change users everywhere and is not disabled is never the last one to go.
    fn change_user(
        &self,
        name: Arc<str>,
        change: UserChange,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<UserChanged, StoreError>> + Send;

    /// Tokens that have not expired, of one user or of all, by number; `after` is the last number of the page before.
    fn tokens(
        &self,
        owner: Option<Arc<str>>,
        after: u64,
        limit: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Token>, StoreError>> + Send;

    /// Makes a token. Those of the user that have expired go.
    fn make_token(&self, token: NewToken, by: Actor, now: Timestamp) -> impl Future<Output = Result<TokenMade, StoreError>> + Send;

    /// Ends a token, of this user only where one is named; whether there was one.
    fn revoke_token(
        &self,
        id: u64,
        owner: Option<Arc<str>>,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The token with this digest and its owner, where it has not expired and the owner may sign in.
    fn bearer(&self, digest: Digest, now: Timestamp) -> impl Future<Output = Result<Option<(Token, User)>, StoreError>> + Send;

    /// Notes that a token was shown.
    fn note_token(&self, id: u64, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Begins a session, where the user may sign in and has this password; whether it did. `replaces`: what ends with that, the session
    /// that the same browser had. Sessions that have ended go.
    fn begin_session(
        &self,
        session: NewSession,
        replaces: Option<Digest>,
        by: Actor,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The session with this digest and its user, where it has not ended and the user may sign in.
    fn session(&self, digest: Digest, now: Timestamp) -> impl Future<Output = Result<Option<(Session, User)>, StoreError>> + Send;

    /// Sessions of a user that have not ended, those that were used last first; at most [`SESSIONS_MAX`].
    fn sessions(&self, user: Arc<str>, now: Timestamp) -> impl Future<Output = Result<Vec<Session>, StoreError>> + Send;

    /// Notes that a session is used, so that it may be idle for so long from now on.
    fn note_session(&self, digest: Digest, idle_max: Millis, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends a session; whether there was one.
    fn end_session(&self, digest: Digest, by: Actor, now: Timestamp) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every list of up to two grants in up to two groups.
    fn lists() -> Vec<Vec<Grant>> {
        let groups = [None, Some(Arc::from("a")), Some(Arc::from("b"))];
        let one: Vec<Grant> =
            Role::ALL.into_iter().flat_map(|role| groups.iter().map(move |group| Grant { role, group: group.clone() })).collect();
        let two = one.iter().flat_map(|first| one.iter().map(move |second| vec![first.clone(), second.clone()]));
        [Vec::new()].into_iter().chain(one.iter().map(|grant| vec![grant.clone()])).chain(two).collect()
    }

    fn questions() -> impl Iterator<Item = (Role, Option<&'static str>)> {
        Role::ALL.into_iter().flat_map(|role| [None, Some("a"), Some("b"), Some("c")].map(|group| (role, group)))
    }

    #[test]
    fn what_is_common_is_what_both_allow_and_nothing_else() {
        let lists = lists();
        for (some, others) in lists.iter().flat_map(|some| lists.iter().map(move |others| (some, others))) {
            let common = common(some, others);
            for (role, group) in questions() {
                let expected = allow(some, role, group) && allow(others, role, group);
                assert_eq!(allow(&common, role, group), expected, "{some:?} {others:?}: {role:?} in {group:?}");
            }
        }
    }

    #[test]
    fn what_is_within_allows_nothing_more() {
        let lists = lists();
        for (some, all) in lists.iter().flat_map(|some| lists.iter().map(move |all| (some, all))) {
            let allows_no_more = questions().all(|(role, group)| !allow(some, role, group) || allow(all, role, group));
            assert_eq!(are_within(some, all), allows_no_more, "{some:?} {all:?}");
        }
    }

    #[test]
    fn a_grant_of_a_group_says_nothing_of_tasks_without_one() {
        let of_group = [Grant { role: Role::Admin, group: Some("a".into()) }];
        assert!(allow(&of_group, Role::Admin, Some("a")));
        assert!(!allow(&of_group, Role::Viewer, None) && !allow(&of_group, Role::Viewer, Some("b")));
        assert!(Role::ALL.iter().all(|role| Role::from_name(role.name()) == Some(*role)));
    }
}
