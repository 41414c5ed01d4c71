//! Sentences that say what is wrong with a task file, and what to change.

use serde::{Deserialize, Serialize};

use super::observe::{Facts, TaskFacts};
use super::{DownstreamReport, TaskReport, rules};

/// How bad a finding is. The worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Work is lost, or piles up without end.
    Serious,
    /// It holds, but not well.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Serious => "serious",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The rule that found it; it stays the same over versions.
    pub rule: String,
    /// The task, or the service, that it is about; `None`: the whole file.
    pub about: Option<String>,
    /// What was seen, with numbers.
    pub what: String,
    /// What to do about it.
    pub advice: String,
    /// The field of the task file to change, where there is one.
    pub field: Option<String>,
}

/// A task with all that is known of it.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) task: &'a TaskFacts<'a>,
    pub(super) report: &'a TaskReport,
}

/// Everything that the rules find, the worst first, then in the order of the rules and of the file.
pub(super) fn of(facts: &Facts, tasks: &[TaskReport], downstreams: &[DownstreamReport]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in rules::FOR_TASKS {
        let subjects = facts.tasks.iter().zip(tasks).map(|(task, report)| Subject { facts, task, report });
        findings.extend(subjects.filter_map(rule));
    }
    findings.extend(downstreams.iter().filter_map(|downstream| rules::retry_amplification(facts, downstream)));
    findings.extend(rules::herd(facts));
    // What has one cause is said once: a task that can't keep up also waits, starves and is left over.
    let overloaded: Vec<_> =
        findings.iter().filter(|finding| finding.rule == rules::OVERLOAD).map(|finding| finding.about.clone()).collect();
    let follows = |finding: &Finding| rules::FOLLOW_FROM_OVERLOAD.contains(&finding.rule.as_str()) && overloaded.contains(&finding.about);
    findings.retain(|finding| !follows(finding));
    findings.sort_by_key(|finding| finding.severity);
    findings
}
