//! Firings that are mapped over a list: one handler lists items, another is run for each of them, and a third may be given what those
//! answered.
//!
//! The firing itself is an instance that no worker is given, as that of any firing with parts. Its first part lists. What that reports is
//! written in the batch with its end, as output of the firing, in pages of [`MAP_PAGE_ITEMS`](limits::MAP_PAGE_ITEMS) items. From then on
//! at most as many items as the task allows are instances at once: as one ends, the next is made, in the same batch. How many were made
//! is in the firing's own row, so a new owner goes on where the last one was, and reads no more than a page. When all have ended, the
//! results are read from the store, page by page, and handed to the part that reduces.
//!
//! What is read rests on what was written: it is asked for when the commit is through.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::{AttemptOutput, Output};
use crate::ids::InstanceId;
use crate::instance::{Cause, InstanceRow, Links, MapPhase, MapProgress, Part, State};
use crate::limits;
use crate::probe;
use crate::scheduler::{Command, Firings, PageRead, Scheduler};

/// What is in memory of a firing that is mapped, besides its row and its parts.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    /// The next items, at most a page of them.
    items: VecDeque<Arc<str>>,
    /// Something was asked of the store, or will be when what it rests on is written.
    is_reading: bool,
    /// The results that were read so far, a line each, and how many.
    gathered: (String, u32),
    /// All of them.
    results: Option<Arc<str>>,
}

impl Mapping {
    pub(super) fn item_count(&self) -> usize {
        self.items.len()
    }
}

fn progress(row: &InstanceRow) -> Option<&MapProgress> {
    row.links.as_ref()?.map.as_deref()
}

fn progress_mut(row: &mut InstanceRow) -> &mut MapProgress {
    row.links.get_or_insert_default().map.get_or_insert_default()
}

fn count(row: &InstanceRow) -> u32 {
    row.links.as_ref().map_or(0, |links| links.shards)
}

impl Scheduler {
    /// An instance of a task that maps is about to begin. False: it is to be run as it is.
    pub(super) fn map_if_due(&mut self, id: InstanceId) -> bool {
        let now = self.now.wall;
        let live = self.instances.get_mut(&id).expect("checked by the caller");
        if live.definition.map.is_none() || live.row.part.is_shard() {
            return false;
        }
        probe!("map.begun");
        *progress_mut(&mut live.row) = MapProgress::default();
        live.change(State::Running, Cause::Divided, now);
        self.mark_instance(id);
        self.take_up_map(id);
        let part = self.instances[&id].row.part.and_list();
        self.make_map_part(id, part, None);
        true
    }

    fn make_map_part(&mut self, whole: InstanceId, part: Part, payload: Option<Arc<str>>) {
        let row = &self.instances[&whole].row;
        let hops = row.links.as_ref().map_or(0, |links| links.hops);
        let links = Links { parent: Some(whole), shards: count(row), hops, ..Links::default() };
        self.make_part(whole, part, links, payload);
    }

    /// A firing that is mapped is this owner's.
    pub(super) fn take_up_map(&mut self, whole: InstanceId) {
        self.parts.entry(whole).or_default();
        self.maps.entry(whole).or_default();
    }

    /// The handler that lists has succeeded: these are the items, one a line.
    pub(super) fn take_items(&mut self, list: InstanceId, items: Option<Arc<str>>) {
        let Some(whole) = self.instances[&list].row.parent().filter(|_| self.instances[&list].row.part.is_list()) else { return };
        let Some(mapping) = self.maps.get_mut(&whole) else { return };
        let items = items.unwrap_or_default();
        let lines: Vec<&str> = items.lines().take(limits::MAP_ITEMS_MAX as usize).collect();
        mapping.items = lines.iter().take(limits::MAP_PAGE_ITEMS).map(|item| Arc::from(*item)).collect();
        for (attempt, page) in (1..).zip(lines.chunks(limits::MAP_PAGE_ITEMS)) {
            let output = Output { bytes: page.join("\n").into_bytes(), dropped: 0 };
            self.lanes.pending(whole.partition()).put_output(AttemptOutput { instance: whole, attempt, output });
        }
        let live = self.instances.get_mut(&whole).expect("a part's whole is live");
        live.row.links.get_or_insert_default().shards = lines.len() as u32;
        self.mark_instance(whole);
    }

    /// A part has ended, and was taken out of those that have not.
    pub(super) fn map_part_ended(&mut self, whole: InstanceId, part: InstanceId) {
        let row = &self.instances[&part].row;
        let (number, state, result) = (row.part, row.state, row.result.clone());
        let is_last = self.parts.get(&whole).is_none_or(|parts| parts.is_empty());
        let live = self.instances.get_mut(&whole).expect("checked by the caller");
        if live.cancel.is_some() {
            if is_last {
                self.end_of_parts(whole);
            }
            return;
        }
        if number.is_list() {
            match state {
                State::Succeeded => progress_mut(&mut live.row).phase = MapPhase::Items,
                _ => return self.end_map(whole, State::Failed, Cause::PartsEnded, Some("what lists its items did not succeed".to_owned())),
            }
        } else if number.is_reduce() {
            let (end, detail) = match state {
                State::Succeeded => (State::Succeeded, None),
                _ => (State::Failed, Some("what reduces its results did not succeed".to_owned())),
            };
            live.row.result = result;
            return self.end_map(whole, end, Cause::PartsEnded, detail);
        } else {
            progress_mut(&mut live.row).result_bytes += result.map_or(0, |result| result.len() as u64);
        }
        self.mark_instance(whole);
        self.go_on_with_map(whole);
    }

    /// Makes instances of the next items, as many as there may be.
    pub(super) fn go_on_with_map(&mut self, whole: InstanceId) {
        while self.is_owned(whole.partition())
            && let Some(live) = self.instances.get(&whole)
            && progress(&live.row).is_some_and(|progress| progress.phase == MapPhase::Items)
            && live.cancel.is_none()
        {
            let Some(unfinished) = self.parts.get(&whole).map(super::parts::Parts::len) else { return };
            let parallel = live.definition.map.as_ref().map_or(1, |map| map.parallel as usize);
            let made = progress(&live.row).map_or(0, |progress| progress.made);
            if !self.tasks.contains_key(&live.row.task) {
                // What runs when its task is removed may end; nothing begins.
                if unfinished == 0 {
                    self.end_map(whole, State::Cancelled, Cause::TaskRemoved, None);
                }
                return;
            }
            if made == count(&live.row) {
                if unfinished == 0 {
                    self.items_have_ended(whole);
                }
                return;
            }
            let Some(mapping) = self.maps.get_mut(&whole).filter(|_| unfinished < parallel) else { return };
            let Some(item) = mapping.items.pop_front() else { return self.want_page(whole) };
            let live = self.instances.get_mut(&whole).expect("looked up above");
            progress_mut(&mut live.row).made = made + 1;
            let part = live.row.part.and_shard(made);
            self.mark_instance(whole);
            self.make_map_part(whole, part, Some(item));
        }
    }

    fn items_have_ended(&mut self, whole: InstanceId) {
        let live = self.instances.get_mut(&whole).expect("checked by the caller");
        let (failed, items) = (live.row.failures, count(&live.row));
        if failed > 0 {
            let detail = format!("{failed} of {items} items did not succeed");
            return self.end_map(whole, State::Failed, Cause::PartsEnded, Some(detail));
        }
        if live.definition.map.as_ref().is_none_or(|map| map.reduce.is_none()) {
            return self.end_map(whole, State::Succeeded, Cause::PartsEnded, None);
        }
        // A line each, `null` where there is no result.
        let bytes = progress_mut(&mut live.row).result_bytes + u64::from(items) * 5;
        if bytes > limits::MAP_BYTES_MAX as u64 {
            let most = limits::MAP_BYTES_MAX;
            let detail =
                format!("the results of its {items} items have {bytes} bytes, and {most} can be handed on: answer less, or where it is");
            return self.end_map(whole, State::Failed, Cause::ResultsTooLarge, Some(detail));
        }
        progress_mut(&mut live.row).phase = MapPhase::Reduce;
        let part = live.row.part.and_reduce();
        self.mark_instance(whole);
        self.make_map_part(whole, part, None);
    }

    fn end_map(&mut self, whole: InstanceId, state: State, cause: Cause, detail: Option<String>) {
        self.forget_map(whole);
        self.end(whole, state, cause, None, detail.map(Arc::from));
    }

    /// It ends.
    pub(super) fn forget_map(&mut self, whole: InstanceId) {
        self.parts.remove(&whole);
        self.maps.remove(&whole);
    }

    /// Whether it reduces and what it is to be given has not been read. It is asked for then.
    pub(super) fn awaits_results(&mut self, id: InstanceId) -> bool {
        let row = &self.instances[&id].row;
        let Some(whole) = row.parent().filter(|_| row.part.is_reduce()) else { return false };
        if self.maps.get(&whole).is_none_or(|mapping| mapping.results.is_some()) {
            return false;
        }
        self.want_page(whole);
        true
    }

    /// The results that a part which reduces is given.
    pub(super) fn results_for(&self, row: &InstanceRow) -> Option<Arc<str>> {
        row.parent().and_then(|whole| self.maps.get(&whole)?.results.clone())
    }

    /// Asks for the next page of items, or of results, once what was written before is there.
    fn want_page(&mut self, whole: InstanceId) {
        if let Some(mapping) = self.maps.get_mut(&whole)
            && !std::mem::replace(&mut mapping.is_reading, true)
        {
            self.hold_reading(whole);
        }
    }

    /// What the next page rests on is written.
    pub(super) fn read_page(&mut self, whole: InstanceId) {
        let (Some(mapping), Some(live)) = (self.maps.get(&whole), self.instances.get(&whole)) else { return };
        let row = &live.row;
        let Some(progress) = progress(row) else { return };
        self.commands.push_back(match progress.phase {
            MapPhase::Reduce => Command::ReadResults {
                of: Firings { whole, task: row.task, fire_time: row.fire_time, ordinal: row.ordinal, run: row.run },
                from: row.part.and_shard(mapping.gathered.1),
                until: row.part.and_shard(count(row)),
            },
            _ => Command::ReadItems { whole, page: progress.made / limits::MAP_PAGE_ITEMS as u32 },
        });
    }

    pub(super) fn items_read(&mut self, whole: InstanceId, page: u32, read: PageRead<Arc<str>>) {
        let (Some(mapping), Some(live)) = (self.maps.get_mut(&whole), self.instances.get(&whole)) else { return };
        let Some(made) = progress(&live.row).filter(|progress| progress.phase == MapPhase::Items).map(|progress| progress.made as usize)
        else {
            // Of what was before its partition was read anew.
            return;
        };
        mapping.is_reading = false;
        match read {
            // Asked for again with the next housekeeping.
            PageRead::Failed => {}
            PageRead::Found(text) if page as usize == made / limits::MAP_PAGE_ITEMS && mapping.items.is_empty() => {
                mapping.items = text.lines().skip(made % limits::MAP_PAGE_ITEMS).map(Arc::from).collect();
                match mapping.items.is_empty() {
                    true => self.map_is_damaged(whole),
                    false => self.go_on_with_map(whole),
                }
            }
            PageRead::Found(_) => self.go_on_with_map(whole),
            PageRead::Missing => self.map_is_damaged(whole),
        }
    }

    pub(super) fn results_read(&mut self, whole: InstanceId, from: Part, read: PageRead<Vec<Option<Arc<str>>>>) {
        let (Some(mapping), Some(live)) = (self.maps.get_mut(&whole), self.instances.get(&whole)) else { return };
        if progress(&live.row).is_none_or(|progress| progress.phase != MapPhase::Reduce) {
            return;
        }
        mapping.is_reading = false;
        let (text, gathered) = &mut mapping.gathered;
        let results = match read {
            PageRead::Found(results) if from == live.row.part.and_shard(*gathered) => results,
            PageRead::Failed | PageRead::Found(_) => return,
            PageRead::Missing => return self.map_is_damaged(whole),
        };
        if results.is_empty() && *gathered < count(&live.row) {
            return self.map_is_damaged(whole);
        }
        for result in results {
            *gathered += 1;
            // In JSON the ends of lines are blanks.
            text.extend(result.as_deref().unwrap_or("null").chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
            text.push('\n');
        }
        if *gathered < count(&live.row) {
            return self.want_page(whole);
        }
        mapping.results = Some(Arc::from(std::mem::take(text)));
        probe!("map.reduced");
        let reduce = self.parts.get(&whole).and_then(super::parts::Parts::first);
        if let Some(reduce) = reduce.filter(|reduce| self.instances.get(reduce).is_some_and(|live| live.row.state == State::Created)) {
            self.make_ready(reduce);
        }
    }

    /// What was written for it is not there: a store that has lost it.
    fn map_is_damaged(&mut self, whole: InstanceId) {
        let unfinished = self.parts.get(&whole).map(|parts| parts.all()).unwrap_or_default();
        if unfinished.is_empty() {
            return self.end_map(whole, State::Failed, Cause::PartsEnded, Some("the store has lost its items or their results".to_owned()));
        }
        // It ends with the last of its parts.
        let live = self.instances.get_mut(&whole).expect("checked by the caller");
        live.row.failures += 1;
        progress_mut(&mut live.row).made = count(&live.row);
        self.mark_instance(whole);
        for part in
            unfinished.into_iter().filter(|part| self.instances.get(part).is_some_and(|live| live.row.part.is_reduce())).collect::<Vec<_>>()
        {
            self.cancel_instance(part, Cause::ParentEnded, None);
        }
    }

    /// Goes on with what the store would not answer, and with what a new owner has found.
    pub(super) fn look_after_maps(&mut self) {
        let idle = self.maps.iter().filter(|(_, mapping)| !mapping.is_reading).map(|(whole, _)| *whole);
        let mut idle: Vec<_> = idle.filter(|whole| self.new_partitions.iter().all(|new| new.id != whole.partition())).collect();
        idle.sort_unstable();
        for whole in idle {
            self.go_on_with_map(whole);
            let reduce = self.parts.get(&whole).and_then(super::parts::Parts::first);
            if let Some(reduce) = reduce.filter(|reduce| self.instances.get(reduce).is_some_and(|live| live.row.state == State::Created)) {
                self.awaits_results(reduce);
            }
        }
    }
}
