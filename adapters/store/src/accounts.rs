//! What accounts have in common in every database.

use std::sync::Arc;

use punctual_driver::accounts::{self, Grant, Role, User, UserChange};
use punctual_driver::ports::AuditAction;

/// Longest text that the audit keeps of what was changed, in bytes.
const SUBJECT_BYTES_MAX: usize = 1_000;

/// Whether somebody may change users.
pub(crate) fn is_admin(grants: &[Grant], is_disabled: bool) -> bool {
    !is_disabled && accounts::allow(grants, Role::Admin, None)
}

/// What users look like after a change, where that leaves one.
pub(crate) fn changed(user: User, change: &UserChange) -> Option<User> {
    Some(match change {
        UserChange::Remove => return None,
        UserChange::Add { .. } | UserChange::EndSessions { .. } => user,
        UserChange::SetPassword { password, .. } => User { password: password.clone(), ..user },
        UserChange::SetGrants(grants) => User { grants: grants.clone(), ..user },
        UserChange::SetDisabled(is_disabled) => User { is_disabled: *is_disabled, ..user },
    })
}

/// Whether all sessions of the user end with a change, but for one where one is named.
pub(crate) fn ended_sessions(change: &UserChange) -> Option<Option<accounts::Digest>> {
    match change {
        UserChange::SetPassword { keep, .. } | UserChange::EndSessions { keep } => Some(*keep),
        UserChange::SetDisabled(true) | UserChange::Remove => Some(None),
        UserChange::Add { .. } | UserChange::SetGrants(_) | UserChange::SetDisabled(false) => None,
    }
}

/// What the audit calls a change, and what it keeps of it.
pub(crate) fn audited(name: &str, change: &UserChange) -> (AuditAction, String) {
    let (action, what) = match change {
        UserChange::Add { grants, .. } => (AuditAction::AddUser, format!("{name}: {}", described(grants))),
        UserChange::SetPassword { .. } => (AuditAction::SetPassword, name.to_owned()),
        UserChange::SetGrants(grants) => (AuditAction::ChangeUser, format!("{name}: {}", described(grants))),
        UserChange::SetDisabled(true) => (AuditAction::ChangeUser, format!("{name}: disabled")),
        UserChange::SetDisabled(false) => (AuditAction::ChangeUser, format!("{name}: enabled")),
        UserChange::EndSessions { .. } => (AuditAction::SignOut, format!("{name}: everywhere")),
        UserChange::Remove => (AuditAction::RemoveUser, name.to_owned()),
    };
    (action, what[..what.floor_char_boundary(SUBJECT_BYTES_MAX)].to_owned())
}

fn described(grants: &[Grant]) -> String {
    let one = |grant: &Grant| match &grant.group {
        None => grant.role.name().to_owned(),
        Some(group) => format!("{} in {group}", grant.role.name()),
    };
    if grants.is_empty() { "nothing".to_owned() } else { grants.iter().map(one).collect::<Vec<_>>().join(", ") }
}

/// What the audit calls a token.
pub(crate) fn token_subject(owner: &str, name: &str, id: u64) -> Arc<str> {
    let text = format!("{owner}: {id}, {name}");
    text[..text.floor_char_boundary(SUBJECT_BYTES_MAX)].into()
}
