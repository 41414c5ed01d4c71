//! Who asks, and what they may do. The sign-in puts it beside each request; handlers and pages ask it before they act.

use std::sync::Arc;

pub(crate) use punctual_driver::accounts::{Grant, Role};

/// Somebody who has signed in, or whoever is at this machine where there is no sign-in.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// As the audit keeps it.
    pub(crate) name: Arc<str>,
    pub(crate) grants: Arc<[Grant]>,
}

impl Identity {
    /// Whether they may act as `role` on tasks of the group; `None` is a task without a group, or all of them.
    pub(crate) fn may(&self, role: Role, group: Option<&str>) -> bool {
        punctual_driver::accounts::allow(&self.grants, role, group)
    }

    /// Whether they may act as `role` on some tasks at least.
    pub(crate) fn may_somewhere(&self, role: Role) -> bool {
        self.grants.iter().any(|grant| grant.role >= role)
    }
}
