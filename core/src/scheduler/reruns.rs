//! Instances that have ended and run once more.
//!
//! A rerun is a new instance of the same firing: same task, fire time, ordinal and payload, and one run more; it begins with fresh counts,
//! under the version that is in force now. Of one that was divided, those shards run again that have not succeeded, unless whoever asks wants
//! all of it: then it is divided anew, as the task says now. The run of a workflow can be run from some nodes only, then the others are
//! carried over into it with what they answered. What has ended stays as it is.
//!
//! Whoever writes the entry sees to it that there is one a run. The unique key of firings is the second lock.

use std::sync::Arc;

use crate::ids::PartitionId;
use crate::inbox::Rerun;
use crate::instance::{Links, Origin, Part};
use crate::probe;
use crate::scheduler::Scheduler;
use crate::scheduler::firing::Firing;
use crate::scheduler::requests::by_whom;
use crate::time::Timestamp;

impl Scheduler {
    /// Somebody wants an instance that has ended to run once more.
    pub(super) fn rerun(&mut self, partition: PartitionId, at: Timestamp, by: &str, of: Rerun) {
        let Rerun { instance, task: id, fire_time, ordinal, run, hops, payload, key, reason, shards, from } = of;
        let Some(task) = self.tasks.get(&id) else {
            return self.record_trigger_of_nothing(id, partition, at);
        };
        let carried = match from.map(|from| Self::carried(&task.definition, &from)) {
            None => Vec::new(),
            Some(Some(carried)) => {
                probe!("rerun.from_node");
                carried
            }
            // The workflow was changed since somebody asked.
            Some(None) => return self.record_trigger_of_nothing(id, partition, at),
        };
        probe!("rerun.fired");
        let firing = Firing {
            task: id,
            version: task.version,
            definition: Arc::clone(&task.definition),
            fire_time,
            ordinal,
            run: run.saturating_add(1),
            part: Part::WHOLE,
            origin: Origin::Rerun,
            payload,
            key,
            links: Some(Box::new(Links { cause: Some(instance), hops, again: shards, ..Links::default() })),
            detail: Some(by_whom(by, reason.as_deref())),
            carried: carried.clone(),
        };
        if let Some(id) = self.fire(firing).filter(|_| !carried.is_empty()) {
            self.record_carried(id, carried);
        }
    }
}
