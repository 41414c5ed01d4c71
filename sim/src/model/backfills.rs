//! Backfills: what is to be known before one is asked for, asking for it, and how they stand.

use std::sync::Arc;

use punctual_core::backfill::{BackfillPlan, BackfillRow, BackfillState};
use punctual_core::ids::{InboxId, PartitionId, TaskId};
use punctual_core::inbox::Request;
use punctual_core::instance::{Origin, Part};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Fired, Submitted};

use crate::history::What;
use crate::model::data::Write;
use crate::model::{Data, Database};

impl Data {
    /// The newest backfill of a task, also one that nobody has begun yet, and whether it has ended.
    fn newest_backfill(&self, task: TaskId) -> Option<(InboxId, bool)> {
        let begun = self.backfills.values().filter(|row| row.plan.task == task).map(|row| (row.id, row.state != BackfillState::Running));
        let asked = self.inbox.values().filter(|entry| matches!(&entry.request, Request::Backfill { plan } if plan.task == task));
        begun.chain(asked.map(|entry| (entry.id, false))).max()
    }

    /// What is known of a task's fire times in `from..to`.
    pub(crate) fn fired(&self, task: &str, from: Timestamp, to: Timestamp) -> Option<Fired> {
        let (view, _) = self.task_with_versions(task)?;
        let is_own = |origin: Origin| matches!(origin, Origin::Schedule | Origin::CatchUp | Origin::Backfill);
        let rows = self.instances.values().filter(|row| row.task == view.task && row.part == Part::WHOLE && is_own(row.origin));
        let mut fired: Vec<_> = rows.map(|row| row.fire_time).filter(|at| (from..to).contains(at)).collect();
        fired.sort_unstable();
        fired.dedup();
        Some(Fired { newest: self.newest_backfill(view.task).map(|(id, _)| id), view, fired })
    }

    /// Backfills, of one task or of all, newest first.
    pub(crate) fn backfills_of(&self, task: Option<TaskId>, limit: usize) -> Vec<BackfillRow> {
        let rows = self.backfills.values().rev().filter(|row| task.is_none_or(|task| row.plan.task == task));
        rows.take(limit).cloned().collect()
    }

    /// The oldest go that have ended, where a task has more than are remembered.
    pub(crate) fn forget_backfills(&mut self, task: TaskId) {
        let of_task = self.backfills.values().rev().filter(|row| row.plan.task == task);
        let old = of_task.skip(limits::BACKFILLS_KEPT_MAX).filter(|row| match row.state {
            BackfillState::Running => false,
            BackfillState::Cancelled => row.ended >= row.made,
            BackfillState::Done => true,
        });
        for id in old.map(|row| row.id).collect::<Vec<_>>() {
            self.backfills.remove(&id);
        }
    }

    pub(crate) fn partition_of_backfill(&self, id: InboxId) -> Option<(PartitionId, TaskId)> {
        if let Some(row) = self.backfills.get(&id) {
            return Some((row.partition, row.plan.task));
        }
        let entry = self.inbox.get(&id)?;
        match &entry.request {
            Request::Backfill { plan } => Some((entry.partition, plan.task)),
            _ => None,
        }
    }
}

impl Database {
    /// Asks for a backfill, unless one of the task runs, or another one was asked for after `after`.
    pub fn backfill(&mut self, at: u64, plan: &Arc<BackfillPlan>, after: Option<InboxId>, by: &Arc<str>) -> Submitted {
        let task = plan.task;
        let named = self.data().name_of(task).cloned().filter(|name| !self.data().names[name].removed);
        let Some(name) = named else { return Submitted::NoSuchTask };
        match self.data().newest_backfill(task) {
            Some((backfill, false)) => return Submitted::BackfillRuns { backfill },
            newest if newest.map(|(id, _)| id) != after => return Submitted::Outdated,
            _ => {}
        }
        let (partition, now) = (self.data().partition_of(&name), self.clock(at));
        let entry = InboxId(self.data().last_entry().0 + 1);
        let request = Request::Backfill { plan: plan.clone() };
        let write = Write::Submit { partition, by: by.clone(), key: None, request, at: now };
        self.write(at, write, Some(What::BackfillSubmitted { entry, task }));
        Submitted::Accepted { entry }
    }

    /// Asks for the end of a backfill.
    pub fn cancel_backfill(&mut self, at: u64, backfill: InboxId, by: &Arc<str>, reason: Option<Arc<str>>) -> Submitted {
        let Some((partition, task)) = self.data().partition_of_backfill(backfill) else { return Submitted::NoSuchBackfill };
        let now = self.clock(at);
        let entry = InboxId(self.data().last_entry().0 + 1);
        let request = Request::CancelBackfill { backfill, task, reason };
        let write = Write::Submit { partition, by: by.clone(), key: None, request, at: now };
        self.write(at, write, Some(What::BackfillCancelSubmitted { entry, backfill, task }));
        Submitted::Accepted { entry }
    }
}
