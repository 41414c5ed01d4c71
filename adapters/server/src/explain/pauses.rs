//! When a task was held by a pause, from the audit.

use std::sync::Arc;

use punctual_core::time::{Millis, Timestamp};
use punctual_driver::ports::{AuditAction, AuditView, PauseTarget, PauseView};

use super::between;
use crate::cli::ask::lasted;

/// A pause, from its making to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// What it held, in words.
    pub(crate) what: String,
    /// Since when, and who made it; `None`: since before what was read.
    pub(crate) from: Option<(Timestamp, Arc<str>)>,
    /// When it was lifted, and by whom; `None`: it holds.
    pub(crate) until: Option<(Timestamp, Arc<str>)>,
}

impl Span {
    /// Where it lies within a stretch.
    fn within(&self, from: Timestamp, until: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let begin = self.from.as_ref().map_or(from, |(at, _)| from.max(*at));
        let end = self.until.as_ref().map_or(until, |(at, _)| until.min(*at));
        (begin < end).then_some((begin, end))
    }

    /// How it held something in a stretch, as a sentence.
    pub(crate) fn told(&self, from: Timestamp, until: Timestamp) -> Option<(Millis, String)> {
        let (begin, end) = self.within(from, until)?;
        let made = self.from.as_ref().map(|(at, by)| format!(" that {by} made at {at}")).unwrap_or_default();
        let lifted = match &self.until {
            Some((at, by)) => format!(", until {by} lifted it at {at}"),
            None => String::new(),
        };
        Some((end.since(begin), format!("A pause of {}{made} held it for {}{lifted}.", self.what, between(begin, end))))
    }
}

/// How much of a stretch lies within pauses, what lies within several counted once.
pub(crate) fn held(spans: &[Span], from: Timestamp, until: Timestamp) -> Millis {
    let mut within: Vec<_> = spans.iter().filter_map(|span| span.within(from, until)).collect();
    within.sort_unstable();
    let (mut covered, mut sum) = (from, Millis::ZERO);
    for (begin, end) in within {
        let begin = begin.max(covered);
        if begin < end {
            sum = sum.saturating_add(end.since(begin));
            covered = end;
        }
    }
    sum
}

/// "from ready to dispatched" without what a pause says of it.
pub(crate) fn in_short(held: Millis) -> String {
    format!("a pause held it for {}", lasted(held.0))
}

/// The pauses that held a task, from what the audit has, newest first, and from those that hold it now.
pub(crate) fn spans(audit: &[AuditView], now: &[PauseView], task: &str, group: Option<&str>) -> Vec<Span> {
    let of_task = PauseTarget::Task(Arc::from(task));
    let of_group = group.map(|group| PauseTarget::Group(Arc::from(group)));
    let mut found = Vec::new();
    for target in [Some(PauseTarget::All), of_group, Some(of_task)].into_iter().flatten() {
        let is_meant = |view: &AuditView| match &target {
            PauseTarget::All => view.task.is_none() && view.subject.is_none(),
            PauseTarget::Task(_) => view.task.as_deref() == Some(task),
            PauseTarget::Group(_) | PauseTarget::Worker(_) => view.task.is_none() && view.subject.as_deref() == group,
        };
        let what = match &target {
            PauseTarget::All => "everything".to_owned(),
            PauseTarget::Group(group) => format!("the group {group:?}"),
            PauseTarget::Task(name) | PauseTarget::Worker(name) => format!("the task {name:?}"),
        };
        let (mut since, mut is_on_record) = (None, false);
        for view in audit.iter().rev().filter(|view| is_meant(view)) {
            let said = (view.at, view.actor.by.clone());
            match view.action {
                AuditAction::Pause => since = Some(said),
                AuditAction::Resume => found.push(Span { what: what.clone(), from: since.take(), until: Some(said) }),
                _ => continue,
            }
            is_on_record = true;
        }
        if !is_on_record {
            let pause = now.iter().find(|pause| pause.target == target);
            since = pause.map(|pause| (pause.since, pause.actor.by.clone()));
        }
        if since.is_some() {
            found.push(Span { what, from: since, until: None });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audited(id: u64, action: AuditAction, by: &str, task: Option<&str>, subject: Option<&str>) -> AuditView {
        let at = Timestamp(1_795_971_600_000 + i64::try_from(id).expect("a small one") * 1_000);
        AuditView { id, at, actor: by.into(), action, task: task.map(Arc::from), instance: None, subject: subject.map(Arc::from) }
    }

    fn second(at: i64) -> Timestamp {
        Timestamp(1_795_971_600_000 + at * 1_000)
    }

    #[test]
    fn what_held_a_task_is_read_from_the_audit() {
        let audit = [
            audited(9, AuditAction::Pause, "eve", None, Some("other")),
            audited(8, AuditAction::Resume, "bob", None, Some("g")),
            audited(6, AuditAction::Resume, "bob", Some("a"), None),
            audited(5, AuditAction::Trigger, "ann", Some("a"), None),
            audited(4, AuditAction::Pause, "ann", Some("a"), None),
            audited(3, AuditAction::Pause, "ann", Some("b"), None),
        ];
        let all = PauseView { target: PauseTarget::All, since: second(1), actor: "root".into() };
        let found = spans(&audit, &[all], "a", Some("g"));
        let who = |at, by: &str| Some((second(at), Arc::from(by)));
        assert_eq!(
            found,
            [
                // It was made before what was read.
                Span { what: "everything".to_owned(), from: who(1, "root"), until: None },
                Span { what: "the group \"g\"".to_owned(), from: None, until: who(8, "bob") },
                Span { what: "the task \"a\"".to_owned(), from: who(4, "ann"), until: who(6, "bob") },
            ]
        );
        assert_eq!(spans(&audit, &[], "c", None), []);
        assert_eq!(held(&found[1..], second(2), second(7)), Millis(5_000), "what two of them hold counts once");
        assert_eq!(held(&found[2..], second(5), second(9)), Millis(1_000));
        assert_eq!(held(&found[2..], second(6), second(9)), Millis::ZERO);
        assert_eq!(
            found[2].told(second(3), second(9)).expect("it held it").1,
            "A pause of the task \"a\" that ann made at 2026-11-29T17:00:04Z held it for 2 s, until bob lifted it at 2026-11-29T17:00:06Z."
        );
        assert_eq!(found[2].told(second(6), second(9)), None);
    }
}
