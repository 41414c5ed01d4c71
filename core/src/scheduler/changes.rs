//! What people change about instances that have not begun: manual triggers that are not due yet, and what is to be left out.
//!
//! Whoever asks can't know whether the instance begins before its owner hears of it. The owner does one or the other, in the order of its
//! inbox, and what is on record of the instance says which.

use std::sync::Arc;

use crate::ids::{InstanceId, TaskId};
use crate::inbox::{DelayedChange, rescheduled_detail};
use crate::instance::{Cause, State};
use crate::scheduler::Scheduler;
use crate::scheduler::requests::by_whom;

impl Scheduler {
    /// A manual trigger is to be cancelled, or to come at another time. One whose time has come goes on.
    pub(super) fn change_delayed(&mut self, task: TaskId, ordinal: u64, change: DelayedChange, by: &str, reason: Option<&str>) {
        let of_task = self.tasks.get(&task).and_then(|task| task.instances.as_ref());
        let Some(id) = of_task.and_then(|of| of.delayed_of(ordinal)) else { return };
        let to = match change {
            DelayedChange::Cancel => return self.cancel_instance(id, Cause::CancelRequested, Some(by_whom(by, reason))),
            DelayedChange::Reschedule(to) => to,
        };
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("delayed instances are live");
        live.change(State::Waiting, Cause::Rescheduled, now).detail = Some(Arc::from(rescheduled_detail(to, by, reason)));
        live.row.due_at = Some(to);
        if let Some(key) = live.timer.take() {
            self.instance_timers.cancel(key);
        }
        self.mark_instance(id);
        self.arm_instance(id, to.since(self.wall_read));
    }

    /// An instance is to be left out. One that has begun goes on.
    pub(super) fn skip_instance(&mut self, id: InstanceId, detail: Arc<str>) {
        let Some(live) = self.instances.get(&id) else { return };
        if live.row.attempt > 0 || !matches!(live.row.state, State::Waiting | State::Created) {
            return;
        }
        self.end_unbegun(id, State::Skipped, Cause::SkipRequested, Some(detail));
    }
}
