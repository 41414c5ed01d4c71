//! What handlers do, and their own account of it.

use std::sync::Arc;

use punctual_core::batch::Output;
use punctual_core::ids::{Fence, InstanceId};
use punctual_core::protocol::{Assignment, End, MapRole};
use punctual_core::worker;

use crate::behaviour::{HANG_STEP_MS, answers, end_of};
use crate::history::{What, Who};
use crate::tabletop::{Delivery, World};

/// What a handler does in one attempt, driven by hand.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How long it takes.
    pub takes: u64,
    /// How it ends.
    pub end: End,
    /// How long after the cancel signal it ends; `None`: not until it is killed.
    pub obeys_after: Option<u64>,
    /// What it makes of its end where it obeys.
    pub when_cancelled: End,
}

impl Default for Run {
    fn default() -> Self {
        Run { takes: 1_000, end: End::Succeeded, obeys_after: Some(0), when_cancelled: End::Cancelled }
    }
}

/// The ground truth of what a handler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// When, by the monotonic clock.
    pub at: u64,
    /// The worker.
    pub worker: usize,
    /// Its life.
    pub life: u64,
    /// The instance.
    pub instance: InstanceId,
    /// The attempt's fence.
    pub fence: Fence,
    /// When it ended, and whether it did all that it was to do.
    pub ended: Option<(u64, bool)>,
}

/// An attempt that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Its place among all that have begun.
    pub(super) began: usize,
    task_name: Arc<str>,
    /// What it answers where it succeeds: a result, or items.
    answers: (Option<Arc<str>>, Option<Arc<str>>),
    act: Act,
    /// An end with an earlier number does not come.
    turn: u32,
    /// It hangs: only a kill or the fault's end helps.
    hangs: bool,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Scripted(Run),
    Planned { fails: bool },
}

/// An attempt comes to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandlerEnd {
    worker: usize,
    life: u64,
    instance: InstanceId,
    fence: Fence,
    turn: u32,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Its time has come.
    ByItself,
    Cancelled,
    Killed,
    Panicked,
}

impl World {
    pub(super) fn start_handler(&mut self, worker: usize, assignment: &Assignment) {
        let life = self.workers[worker].life;
        let Assignment { instance, fence, attempt, task, version, fire_time, ordinal, .. } = *assignment;
        self.record(Who::Worker(worker), What::Began { life, instance, fence, attempt, task, version, fire_time, ordinal });
        if let Some(MapRole::Reduce { results }) = &assignment.map {
            self.reduced.push((instance, results.clone()));
        }
        let (act, takes, how) = match &self.play {
            Some(play) => {
                let of_node = assignment.node.as_ref().map(|node| &*node.name);
                let attempt = play.behaviours.attempt(&assignment.task_name, fire_time, ordinal, attempt, of_node);
                let trouble = play.worker_trouble(worker);
                let act = Act::Planned { fails: attempt.fails && !play.trouble.is_healed };
                match trouble.panics {
                    0 => (act, attempt.takes_ms * trouble.slow_times.max(1), How::ByItself),
                    _ => (act, 0, How::Panicked),
                }
            }
            None => {
                let node = assignment.node.as_ref();
                if let Some(node) = node {
                    self.inputs.insert(instance, node.inputs.clone());
                }
                let run = self.run_of(&assignment.task_name, node.map(|node| &*node.name), attempt);
                (Act::Scripted(run), run.takes, How::ByItself)
            }
        };
        let running = Running {
            began: self.began.len(),
            task_name: assignment.task_name.clone(),
            answers: self.answers_of(assignment),
            act,
            turn: 0,
            hangs: false,
        };
        self.began.push(Began { at: self.time, worker, life, instance, fence, ended: None });
        self.workers[worker].running.insert((instance, fence), running);
        self.send(takes, Delivery::HandlerEnds(HandlerEnd { worker, life, instance, fence, turn: 0, how }));
    }

    fn answers_of(&self, assignment: &Assignment) -> (Option<Arc<str>>, Option<Arc<str>>) {
        if let Some(node) = &assignment.node {
            return (self.results.get(&of_node(&assignment.task_name, &node.name)).cloned(), None);
        }
        let (result, items) = answers(assignment, self.listed);
        let of_task = self.results.get(&assignment.task_name).cloned().or(result);
        (self.answer_with.clone().filter(|_| assignment.shard.is_some()).or(of_task), items)
    }

    /// A handler is asked to end.
    pub(super) fn cancel_handler(&mut self, worker: usize, instance: InstanceId, fence: Fence) {
        let Some(running) = self.workers[worker].running.get_mut(&(instance, fence)) else { return };
        let after = match running.act {
            Act::Scripted(run) => run.obeys_after,
            Act::Planned { .. } if running.hangs => None,
            Act::Planned { .. } => {
                let play = self.play.as_ref().expect("it was planned");
                let after = play.behaviours.of(&running.task_name).0.obeys_after_ms;
                // It does nothing else any more.
                running.turn += u32::from(after.is_some());
                after
            }
        };
        let turn = running.turn;
        if let Some(after) = after {
            let life = self.workers[worker].life;
            let end = HandlerEnd { worker, life, instance, fence, turn, how: How::Cancelled };
            self.send(after, Delivery::HandlerEnds(end));
        }
    }

    pub(super) fn kill_handler(&mut self, worker: usize, instance: InstanceId, fence: Fence) {
        let Some(running) = self.running_mut(worker, instance, fence) else { return };
        // Who was asked to end before says so.
        let how = if running.turn > 0 { How::Cancelled } else { How::Killed };
        let turn = running.turn;
        let life = self.workers[worker].life;
        self.send(0, Delivery::HandlerEnds(HandlerEnd { worker, life, instance, fence, turn, how }));
    }

    pub(super) fn handler_ends(&mut self, end: HandlerEnd) {
        let HandlerEnd { worker, life, instance, fence, turn, how } = end;
        let node = &mut self.workers[worker];
        if node.life != life || node.node.is_none() {
            return;
        }
        if node.paused {
            return node.waiting.push_back(Delivery::HandlerEnds(end));
        }
        let Some(running) = node.running.get_mut(&(instance, fence)).filter(|running| running.turn == turn) else { return };
        let (end, detail) = match (how, running.act) {
            (How::Cancelled, Act::Planned { .. }) => (End::Cancelled, Some("cancelled")),
            (How::Killed, Act::Planned { .. }) => (End::Cancelled, Some("killed")),
            (How::Cancelled, Act::Scripted(run)) => (run.when_cancelled, None),
            (How::Killed, Act::Scripted(_)) => (End::Cancelled, None),
            (How::Panicked, _) => (End::Failed, Some("the handler panicked")),
            (How::ByItself, Act::Scripted(run)) => (run.end, None),
            (How::ByItself, Act::Planned { fails }) => {
                let play = self.play.as_ref().expect("it was planned");
                if play.worker_trouble(worker).hang > 0 {
                    running.hangs = true;
                    return self.send(HANG_STEP_MS, Delivery::HandlerEnds(end));
                }
                let (handler, downstream) = play.behaviours.of(&running.task_name);
                end_of(handler, fails, play.trouble.rages(*downstream))
            }
        };
        self.handler_ended(worker, instance, fence, end, detail);
    }

    fn handler_ended(&mut self, worker: usize, instance: InstanceId, fence: Fence, end: End, detail: Option<&'static str>) {
        let Some(running) = self.workers[worker].running.remove(&(instance, fence)) else { return };
        self.began[running.began].ended = Some((self.time, end == End::Succeeded));
        if end == End::Succeeded {
            self.record(Who::Worker(worker), What::Effect { instance, fence });
        }
        self.record(Who::Worker(worker), What::Ended { instance, fence, end: Some(end) });
        let output = match self.play {
            Some(_) => Output::default(),
            None => Output { bytes: b"out".to_vec(), dropped: 0 },
        };
        let detail = detail.map(Arc::from);
        let (result, items) = if end == End::Succeeded { running.answers } else { (None, None) };
        self.tell_worker(
            worker,
            worker::Event::Ended { instance, fence, end, code: None, detail, output, result, items, retry_after: None },
        );
    }

    fn run_of(&self, name: &str, node: Option<&str>, attempt: u32) -> Run {
        let of_node = node.and_then(|node| self.scripts.get(&of_node(name, node)));
        let runs = of_node.or_else(|| self.scripts.get(name)).map_or(&[][..], Vec::as_slice);
        runs.get((attempt.max(1) - 1) as usize).or(runs.last()).copied().unwrap_or_default()
    }

    /// What the handler of a workflow's node does, attempt by attempt, where that is not what those of its other nodes do.
    pub fn script_node(&mut self, name: &str, node: &str, runs: &[Run]) {
        let before = self.longest_runs.entry(Arc::from(name)).or_default();
        *before = runs.iter().map(|run| run.takes).max().unwrap_or(0).max(*before);
        self.scripts.insert(of_node(name, node), runs.to_vec());
    }

    /// What the handler of a task answers that is no workflow.
    pub fn answer(&mut self, name: &str, result: &str) {
        self.results.insert(Arc::from(name), Arc::from(result));
    }

    /// What the handler of a workflow's node answers.
    pub fn answer_node(&mut self, name: &str, node: &str, result: &str) {
        self.results.insert(of_node(name, node), Arc::from(result));
    }

    /// What the handler of a task does, attempt by attempt; the last run stands for all that follow.
    pub fn script(&mut self, name: &str, runs: &[Run]) {
        let longest = runs.iter().map(|run| run.takes).max().unwrap_or(0);
        let before = self.longest_runs.entry(Arc::from(name)).or_default();
        *before = longest.max(*before);
        self.scripts.insert(Arc::from(name), runs.to_vec());
    }
}

/// What a node's script and answer are known by.
fn of_node(task: &str, node: &str) -> Arc<str> {
    Arc::from(format!("{task}/{node}"))
}
