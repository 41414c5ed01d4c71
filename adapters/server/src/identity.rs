//! Who asks, and what they may do. The sign-in puts it beside each request; handlers and pages ask it before they act.

use std::sync::Arc;

/// What somebody may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Reads.
    Viewer,
    /// Acts on what runs: triggers, pauses, cancels, reruns, marks, settles dead letters.
    Operator,
    /// Changes tasks.
    Editor,
    /// Changes users, tokens and settings.
    Admin,
}

/// A role, in one group of tasks or everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) role: Role,
    /// `None` is everywhere.
    pub(crate) group: Option<Arc<str>>,
}

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
        let covers = |grant: &Grant| grant.group.is_none() || (group.is_some() && grant.group.as_deref() == group);
        self.grants.iter().any(|grant| grant.role >= role && covers(grant))
    }
}
