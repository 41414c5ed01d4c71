//! Users, their sessions and tokens.

use std::sync::Arc;

use punctual_core::time::{Millis, Timestamp};
use punctual_driver::accounts::{
    Accounts, Digest, Grant, NewSession, NewToken, Role, SESSIONS_MAX, TOKENS_MAX, TokenMade, UserChange, UserChanged,
};
use punctual_driver::ports::{Actor, AuditAction, AuditFilter, Catalog};

use super::{Factory, START, open};

const HOUR: Millis = Millis::from_secs(3_600);
const DAY: Millis = Millis::from_secs(86_400);

fn actor() -> Actor {
    Actor { by: "root".into(), from: Some("a test".into()), why: Some("because".into()) }
}

fn digest(number: usize) -> Digest {
    let mut digest = [7; 32];
    digest[..8].copy_from_slice(&number.to_le_bytes());
    digest
}

fn at(millis: u64) -> Timestamp {
    START.saturating_add(Millis(millis))
}

fn grants(role: Role, group: Option<&str>) -> Arc<[Grant]> {
    [Grant { role, group: group.map(Into::into) }].into()
}

async fn change(store: &impl Accounts, name: &str, change: UserChange) -> UserChanged {
    store.change_user(name.into(), change, actor(), START).await.expect("an answer")
}

async fn add(store: &impl Accounts, name: &str, role: Role) {
    let added = UserChange::Add { password: format!("hash of {name}").into(), grants: grants(role, None), as_first: false };
    assert_eq!(change(store, name, added).await, UserChanged::Done);
}

fn session(number: usize, user: &str) -> NewSession {
    NewSession { digest: digest(number), user: user.into(), idle_max: HOUR, lasts: DAY, password: format!("hash of {user}").into() }
}

async fn begins(store: &impl Accounts, new: NewSession, replaces: Option<Digest>, now: Timestamp) -> bool {
    store.begin_session(new, replaces, actor(), now).await.expect("an answer")
}

async fn is_open(store: &impl Accounts, number: usize, now: Timestamp) -> bool {
    store.session(digest(number), now).await.expect("an answer").is_some()
}

fn token(number: usize, owner: &str, lasts: Millis) -> NewToken {
    let grants = grants(Role::Operator, Some("billing"));
    NewToken { name: format!("token {number}").into(), owner: owner.into(), digest: digest(number), grants, lasts }
}

async fn subjects(store: &impl Catalog) -> Vec<(AuditAction, Option<Arc<str>>)> {
    let audit = store.audit(AuditFilter { limit: 100, ..AuditFilter::default() }).await.expect("the audit");
    assert!(audit.iter().all(|audit| audit.actor == actor()));
    audit.into_iter().rev().map(|audit| (audit.action, audit.subject)).collect()
}

/// As they were written, in the order of their names, whatever those are.
pub async fn users_come_back_as_they_were<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    let names = ["Root", "o'brien", "root", "zoë"];
    for name in names {
        add(&store, name, Role::Admin).await;
    }
    let again = UserChange::Add { password: "other".into(), grants: grants(Role::Viewer, None), as_first: false };
    assert_eq!(change(&store, "root", again).await, UserChanged::NameTaken);
    let several: Arc<[Grant]> = [Grant::everywhere(Role::Viewer), Grant { role: Role::Editor, group: Some("the 'a'\n".into()) }].into();
    assert_eq!(change(&store, "zoë", UserChange::SetGrants(several.clone())).await, UserChanged::Done);
    let users = store.users(None, 10).await.expect("users");
    assert_eq!(users.iter().map(|user| &*user.name).collect::<Vec<_>>(), names);
    let page = store.users(Some("Root".into()), 2).await.expect("users");
    assert_eq!(page.iter().map(|user| &*user.name).collect::<Vec<_>>(), ["o'brien", "root"]);
    let found = store.user("zoë".into()).await.expect("an answer").expect("a user");
    assert_eq!(found, users[3]);
    assert_eq!((&found.grants, &*found.password, found.is_disabled), (&several, "hash of zoë", false));
    assert_eq!((found.created_at, found.password_at), (START, START));
    let later = UserChange::SetPassword { password: "new".into(), keep: None };
    assert_eq!(store.change_user("zoë".into(), later, actor(), at(5)).await.expect("an answer"), UserChanged::Done);
    let found = store.user("zoë".into()).await.expect("an answer").expect("a user");
    assert_eq!((&*found.password, found.created_at, found.password_at), ("new", START, at(5)));
    assert_eq!(store.user("ROOT".into()).await.expect("an answer"), None);
    for gone in [UserChange::SetDisabled(true), UserChange::Remove, UserChange::SetGrants(several)] {
        assert_eq!(change(&store, "nobody", gone).await, UserChanged::NoSuchUser);
    }
    assert_eq!(change(&store, "o'brien", UserChange::Remove).await, UserChanged::Done);
    assert_eq!(store.user("o'brien".into()).await.expect("an answer"), None);
}

/// However often that is asked for.
pub async fn there_is_one_first_user<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    let first = || UserChange::Add { password: "hash".into(), grants: grants(Role::Admin, None), as_first: true };
    assert_eq!(change(&store, "root", first()).await, UserChanged::Done);
    assert_eq!(change(&store, "other", first()).await, UserChanged::NotFirst);
    assert_eq!(change(&store, "root", first()).await, UserChanged::NotFirst);
    assert_eq!(store.users(None, 10).await.expect("users").len(), 1);
}

/// Whichever way the last one would go. Who may change users in one group, or may not sign in, does not count.
pub async fn somebody_who_may_change_users_is_left<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    for name in ["root", "second", "local"] {
        add(&store, name, Role::Admin).await;
    }
    let of_group = UserChange::SetGrants(grants(Role::Admin, Some("billing")));
    assert_eq!(change(&store, "local", of_group.clone()).await, UserChanged::Done);
    assert_eq!(change(&store, "second", UserChange::SetDisabled(true)).await, UserChanged::Done);
    for gone in [UserChange::SetDisabled(true), UserChange::Remove, of_group, UserChange::SetGrants(grants(Role::Editor, None))] {
        assert_eq!(change(&store, "root", gone.clone()).await, UserChanged::LastAdmin, "{gone:?}");
    }
    assert_eq!(change(&store, "second", UserChange::Remove).await, UserChanged::Done);
    assert_eq!(change(&store, "root", UserChange::SetPassword { password: "new".into(), keep: None }).await, UserChanged::Done);
    add(&store, "third", Role::Admin).await;
    assert_eq!(change(&store, "root", UserChange::Remove).await, UserChanged::Done);
}

/// When it is idle for too long, and when it has lasted for too long, however busy.
pub async fn a_session_ends_by_itself<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "root", Role::Admin).await;
    assert!(begins(&store, session(1, "root"), None, START).await);
    let (found, user) = store.session(digest(1), at(HOUR.0 - 1)).await.expect("an answer").expect("a session");
    assert_eq!((&*user.name, found.digest, found.created_at, found.seen_at), ("root", digest(1), START, START));
    assert_eq!(found.expires_at, at(HOUR.0));
    assert!(!is_open(&store, 1, at(HOUR.0)).await && !is_open(&store, 2, START).await);
    let mut now = 0;
    while now + HOUR.0 < DAY.0 {
        now += HOUR.0 - 1;
        store.note_session(digest(1), HOUR, at(now)).await.expect("noted");
    }
    assert!(is_open(&store, 1, at(DAY.0 - 1)).await);
    assert!(!is_open(&store, 1, at(DAY.0)).await, "it has lasted for long enough");
    // What has ended does not come back by being used.
    store.note_session(digest(1), HOUR, at(DAY.0)).await.expect("noted");
    assert!(!is_open(&store, 1, at(DAY.0)).await);
}

/// By a sign-out, by the next sign-in of the same browser, and by what makes its user another one.
pub async fn a_session_is_ended<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "root", Role::Admin).await;
    add(&store, "ann", Role::Viewer).await;
    assert!(begins(&store, session(1, "ann"), None, START).await);
    assert!(begins(&store, session(2, "ann"), Some(digest(1)), START).await);
    assert!(!is_open(&store, 1, START).await && is_open(&store, 2, START).await);
    assert!(store.end_session(digest(2), actor(), START).await.expect("an answer"));
    assert!(!store.end_session(digest(2), actor(), START).await.expect("an answer"));
    assert!(!is_open(&store, 2, START).await);
    for number in 3..6 {
        assert!(begins(&store, session(number, "ann"), None, START).await);
    }
    assert!(begins(&store, session(9, "root"), None, START).await);
    let set = UserChange::SetPassword { password: "hash of ann".into(), keep: Some(digest(4)) };
    assert_eq!(change(&store, "ann", set).await, UserChanged::Done);
    assert!(!is_open(&store, 3, START).await && is_open(&store, 4, START).await && !is_open(&store, 5, START).await);
    assert_eq!(change(&store, "ann", UserChange::SetDisabled(true)).await, UserChanged::Done);
    assert!(!is_open(&store, 4, START).await);
    assert!(!begins(&store, session(6, "ann"), None, START).await, "who is disabled does not sign in");
    assert_eq!(change(&store, "ann", UserChange::SetDisabled(false)).await, UserChanged::Done);
    assert!(!is_open(&store, 4, START).await, "it does not come back with its user");
    // Those of others go on, and so does the one that is kept.
    for number in 10..13 {
        assert!(begins(&store, session(number, "ann"), None, at(number as u64)).await);
    }
    let listed = store.sessions("ann".into(), at(20)).await.expect("an answer");
    let digests: Vec<_> = listed.iter().map(|session| session.digest).collect();
    assert_eq!(digests, [digest(12), digest(11), digest(10)], "those that were used last first, and nobody else's");
    assert!(store.sessions("ann".into(), at(HOUR.0 + 20)).await.expect("an answer").is_empty(), "they have ended by themselves");
    assert_eq!(change(&store, "ann", UserChange::EndSessions { keep: Some(digest(11)) }).await, UserChanged::Done);
    assert!(!is_open(&store, 10, at(20)).await && is_open(&store, 11, at(20)).await && is_open(&store, 9, at(20)).await);
    assert_eq!(change(&store, "ann", UserChange::EndSessions { keep: None }).await, UserChanged::Done);
    assert!(!is_open(&store, 11, at(20)).await && is_open(&store, 9, at(20)).await);
    assert_eq!(change(&store, "nobody", UserChange::EndSessions { keep: None }).await, UserChanged::NoSuchUser);
    let audit = store.audit(AuditFilter { limit: 1, ..AuditFilter::default() }).await.expect("an answer");
    assert_eq!((audit[0].action, audit[0].subject.as_deref()), (AuditAction::SignOut, Some("ann: everywhere")));
    let other = NewSession { password: "an older hash".into(), ..session(6, "ann") };
    assert!(!begins(&store, other, None, START).await, "the password was set meanwhile");
    assert!(begins(&store, session(6, "ann"), None, START).await);
    assert_eq!(change(&store, "ann", UserChange::Remove).await, UserChanged::Done);
    add(&store, "ann", Role::Viewer).await;
    assert!(!is_open(&store, 6, START).await, "another user of the name is another user");
    assert!(is_open(&store, 9, START).await && !begins(&store, session(7, "nobody"), None, START).await);
}

/// The ones that were idle for longest go.
pub async fn a_user_has_so_many_sessions<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "ann", Role::Viewer).await;
    add(&store, "bob", Role::Viewer).await;
    assert!(begins(&store, session(1_000, "bob"), None, START).await);
    for number in 0..SESSIONS_MAX + 1 {
        assert!(begins(&store, session(number, "ann"), None, at(number as u64)).await);
        store.note_session(digest(0), HOUR, at(number as u64)).await.expect("noted");
    }
    let now = at(1_000);
    assert!(is_open(&store, 0, now).await && !is_open(&store, 1, now).await && is_open(&store, 2, now).await);
    assert!(is_open(&store, SESSIONS_MAX, now).await && is_open(&store, 1_000, now).await);
}

/// With its owner, until it expires or is revoked, or its owner may not sign in.
pub async fn a_token_is_good_until_it_is_not<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "ann", Role::Viewer).await;
    add(&store, "bob", Role::Viewer).await;
    let make = |new: NewToken| store.make_token(new, actor(), START);
    assert_eq!(make(token(1, "nobody", DAY)).await.expect("an answer"), TokenMade::NoSuchUser);
    let made = make(token(1, "ann", HOUR)).await.expect("an answer");
    let TokenMade::Done { id, expires_at } = made else { panic!("{made:?}") };
    assert_eq!(expires_at, at(HOUR.0));
    let (found, owner) = store.bearer(digest(1), at(HOUR.0 - 1)).await.expect("an answer").expect("a token");
    assert_eq!((found.id, &*found.name, &*found.owner, &*owner.name), (id, "token 1", "ann", "ann"));
    assert_eq!((&found.grants, found.created_at, found.used_at), (&grants(Role::Operator, Some("billing")), START, None));
    assert_eq!(store.bearer(digest(1), at(HOUR.0)).await.expect("an answer"), None, "it has expired");
    assert_eq!(store.bearer(digest(2), START).await.expect("an answer"), None);
    store.note_token(id, at(5)).await.expect("noted");
    let listed = store.tokens(Some("ann".into()), 0, 10, START).await.expect("tokens");
    assert_eq!(listed.iter().map(|token| (token.id, token.used_at)).collect::<Vec<_>>(), [(id, Some(at(5)))]);
    assert_eq!(store.tokens(Some("ann".into()), 0, 10, at(HOUR.0)).await.expect("tokens"), []);
    let made = make(token(3, "bob", DAY)).await.expect("an answer");
    let TokenMade::Done { id: second, .. } = made else { panic!("{made:?}") };
    let ids = |tokens: Vec<punctual_driver::accounts::Token>| tokens.into_iter().map(|token| token.id).collect::<Vec<_>>();
    assert_eq!(ids(store.tokens(None, 0, 10, START).await.expect("tokens")), [id, second]);
    assert_eq!(ids(store.tokens(None, id, 10, START).await.expect("tokens")), [second]);
    assert_eq!(ids(store.tokens(None, 0, 1, START).await.expect("tokens")), [id]);
    let revoke = |id, owner: Option<&str>| store.revoke_token(id, owner.map(Into::into), actor(), START);
    assert!(!revoke(id, Some("bob")).await.expect("an answer"), "it is not bob's");
    assert!(store.bearer(digest(1), START).await.expect("an answer").is_some());
    assert!(revoke(id, Some("ann")).await.expect("an answer"));
    assert!(!revoke(id, None).await.expect("an answer"));
    assert_eq!(store.bearer(digest(1), START).await.expect("an answer"), None);
    assert_eq!(change(&store, "bob", UserChange::SetDisabled(true)).await, UserChanged::Done);
    assert_eq!(store.bearer(digest(3), START).await.expect("an answer"), None);
    assert_eq!(change(&store, "bob", UserChange::SetDisabled(false)).await, UserChanged::Done);
    assert!(store.bearer(digest(3), START).await.expect("an answer").is_some());
    assert_eq!(change(&store, "bob", UserChange::Remove).await, UserChanged::Done);
    add(&store, "bob", Role::Viewer).await;
    assert_eq!(store.bearer(digest(3), START).await.expect("an answer"), None);
}

/// Those that have expired don't count.
pub async fn a_user_has_so_many_tokens<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "ann", Role::Viewer).await;
    add(&store, "bob", Role::Viewer).await;
    for number in 0..TOKENS_MAX {
        let made = store.make_token(token(number, "ann", HOUR), actor(), START).await.expect("an answer");
        assert!(matches!(made, TokenMade::Done { .. }));
    }
    let more = |number, owner, now| store.make_token(token(number, owner, HOUR), actor(), now);
    assert_eq!(more(TOKENS_MAX, "ann", at(1)).await.expect("an answer"), TokenMade::TooMany);
    assert!(matches!(more(TOKENS_MAX, "bob", at(1)).await.expect("an answer"), TokenMade::Done { .. }));
    assert!(matches!(more(TOKENS_MAX + 1, "ann", at(HOUR.0)).await.expect("an answer"), TokenMade::Done { .. }));
}

/// Who, and what; nothing of what was refused, and no secret.
pub async fn what_is_done_to_accounts_is_on_record<F: Factory>(factory: &F)
where
    F::Store: Accounts,
{
    let store = open(factory).await;
    add(&store, "root", Role::Admin).await;
    assert_eq!(change(&store, "root", UserChange::Remove).await, UserChanged::LastAdmin);
    add(&store, "ann", Role::Viewer).await;
    change(&store, "ann", UserChange::SetGrants(grants(Role::Editor, Some("billing")))).await;
    change(&store, "ann", UserChange::SetDisabled(true)).await;
    change(&store, "ann", UserChange::SetDisabled(false)).await;
    begins(&store, session(1, "nobody"), None, START).await;
    begins(&store, session(1, "ann"), None, START).await;
    store.end_session(digest(1), actor(), START).await.expect("an answer");
    let made = store.make_token(token(1, "ann", DAY), actor(), START).await.expect("an answer");
    let TokenMade::Done { id, .. } = made else { panic!("{made:?}") };
    store.revoke_token(id, Some("bob".into()), actor(), START).await.expect("an answer");
    store.revoke_token(id, None, actor(), START).await.expect("an answer");
    change(&store, "ann", UserChange::SetPassword { password: "hash".into(), keep: None }).await;
    change(&store, "ann", UserChange::Remove).await;
    use AuditAction::*;
    let token = format!("ann: {id}, token 1");
    let expected = [
        (AddUser, "root: admin"),
        (AddUser, "ann: viewer"),
        (ChangeUser, "ann: editor in billing"),
        (ChangeUser, "ann: disabled"),
        (ChangeUser, "ann: enabled"),
        (SignIn, "ann"),
        (SignOut, "ann"),
        (MakeToken, &token),
        (RevokeToken, &token),
        (SetPassword, "ann"),
        (RemoveUser, "ann"),
    ];
    assert_eq!(subjects(&store).await, expected.map(|(action, subject)| (action, Some(subject.into()))));
}
