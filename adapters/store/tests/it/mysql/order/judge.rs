//! Whether each answer is right in the order of the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::batch::{Batch, LeaseCheck, Renewal};
use punctual_core::ids::{CommitId, Epoch, InboxId, PartitionId, ReplicaId};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{LeaseAnswer, Submitted};
use punctual_store::conformance::START;
use punctual_store::recorder::Seen;

use super::{Answer, Ask, Call, TTL};

/// Something that is in one state after another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Lease(PartitionId),
    Fence(PartitionId),
    Key(Arc<str>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    owner: Option<ReplicaId>,
    epoch: Epoch,
    /// Of a lease.
    expires_at: Timestamp,
    /// Of a fence.
    commits: u64,
    /// Of a key: its entry, and how many instances that asks for.
    entry: Option<(InboxId, usize)>,
}

impl State {
    fn is_held(&self, by: &ReplicaId, epoch: Epoch) -> bool {
        self.owner.as_ref() == Some(by) && self.epoch == epoch
    }
}

/// An object's states, each with the place of the record that made it. The first one was there before all records.
type States = BTreeMap<Object, Vec<(usize, State)>>;

struct Judge<'a> {
    calls: &'a [Call],
    records: &'a [Seen],
    states: States,
    /// The call of each record.
    whose: Vec<usize>,
}

type Verdict = Result<(), String>;

fn check(is_right: bool, what: impl FnOnce() -> String) -> Verdict {
    if is_right { Ok(()) } else { Err(what()) }
}

/// Where in the order of the records each answer is right.
pub(super) fn judge(calls: &[Call], records: &[Seen]) -> Verdict {
    let mut judge = Judge { calls, records, states: States::new(), whose: Vec::new() };
    for (place, record) in records.iter().enumerate() {
        let whose = judge.whose(record).ok_or_else(|| format!("nobody asked for {record:?}"))?;
        judge.whose.push(whose);
        judge
            .follow(place, record, &calls[whose])
            .map_err(|wrong| format!("{wrong}: record {place}, {record:#?} of {:#?}", calls[whose]))?;
    }
    let mut of_calls = vec![Vec::new(); calls.len()];
    judge.whose.iter().enumerate().for_each(|(place, call)| of_calls[*call].push(place));
    for (call, places) in calls.iter().zip(&of_calls) {
        judge.answer(call, places).map_err(|wrong| format!("{wrong}: {call:#?} with records {places:?}"))?;
    }
    Ok(())
}

impl Judge<'_> {
    /// The call that a record is of. Times and watermarks are some call's own. Where several may have released a lease or written a key, it is
    /// the first: whoever asked for the same later was right as well.
    fn whose(&self, record: &Seen) -> Option<usize> {
        let by_time = |until: Timestamp| self.calls.binary_search_by_key(&until, Call::until).ok();
        match record {
            Seen::LeaseGranted { until, .. } | Seen::LeaseRenewed { until, .. } => by_time(*until),
            Seen::Committed(batch) => by_time(Timestamp(batch.tasks.first()?.fired_until?.0 + START.0).saturating_add(TTL)),
            Seen::LeaseReleased { partition, epoch } => {
                let owner = self.now(&Object::Lease(*partition)).owner?;
                let is_it = |call: &Call| matches!(call.ask, Ask::Release(of, under) if (of, under) == (*partition, *epoch));
                self.calls.iter().position(|call| call.replica == owner && is_it(call))
            }
            Seen::Submitted { entry, submissions, key: Some(key), .. } => {
                let asked =
                    |call: &Call| matches!(&call.ask, Ask::Trigger { key: of, submissions: count } if (of, count) == (key, submissions));
                let was_told =
                    |call: &Call| matches!(call.answer, Answer::Submitted(Submitted::Accepted { entry: told }) if told == *entry);
                let may_be = |call: &Call| matches!(call.answer, Answer::Unknown);
                let first = |is_it: &dyn Fn(&Call) -> bool| self.calls.iter().position(|call| asked(call) && is_it(call));
                first(&was_told).or_else(|| first(&may_be))
            }
            _ => None,
        }
    }

    /// How an object stands after the records so far.
    fn now(&self, object: &Object) -> State {
        self.states.get(object).and_then(|states| states.last()).map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn becomes(&mut self, place: usize, object: Object, state: State) {
        self.states.entry(object).or_default().push((place, state));
    }

    /// What a record changes, and whether it was to be.
    fn follow(&mut self, place: usize, record: &Seen, call: &Call) -> Verdict {
        let wrong = |what: &str| what.to_owned();
        match record {
            Seen::LeaseGranted { partition, owner, epoch, until } => {
                let (lease, fence) = (Object::Lease(*partition), Object::Fence(*partition));
                let (was, fenced) = (self.now(&lease), self.now(&fence));
                let is_free = was.owner.as_ref().is_none_or(|was| was == owner) || was.expires_at <= call.now();
                check(is_free && *owner == call.replica, || wrong("it was not free"))?;
                check(epoch.0 == was.epoch.0 + 1 && was.epoch == fenced.epoch, || wrong("another epoch follows"))?;
                check(matches!(&call.ask, Ask::Acquire(asked, _) if asked.contains(partition)), || wrong("it was not asked for"))?;
                let owner = Some(owner.clone());
                self.becomes(place, lease, State { owner: owner.clone(), epoch: *epoch, expires_at: *until, ..was });
                self.becomes(place, fence, State { owner, epoch: *epoch, ..fenced });
            }
            Seen::LeaseRenewed { partition, epoch, until } => {
                let lease = Object::Lease(*partition);
                let was = self.now(&lease);
                check(was.is_held(&call.replica, *epoch), || wrong("it was not held"))?;
                let Ask::Renew(renewals) = &call.ask else { return Err(wrong("it was not asked for")) };
                let asked = renewals.iter().find(|renewal| (renewal.partition, renewal.epoch) == (*partition, *epoch));
                let commits = self.now(&Object::Fence(*partition)).commits;
                check(asked.is_some_and(|asked| asked.commit_seq <= commits), || wrong("it has less commits"))?;
                self.becomes(place, lease, State { expires_at: *until, ..was });
            }
            Seen::LeaseReleased { partition, epoch } => {
                for object in [Object::Lease(*partition), Object::Fence(*partition)] {
                    let was = self.now(&object);
                    check(was.is_held(&call.replica, *epoch), || wrong("it was not held"))?;
                    self.becomes(place, object, State { owner: None, ..was });
                }
            }
            Seen::Committed(batch) => {
                let Ask::Commit(asked) = &call.ask else { return Err(wrong("it was not asked for")) };
                check(Batch { id: CommitId(0), ..(**batch).clone() } == **asked, || wrong("it is another batch"))?;
                for lease in &batch.leases {
                    let fence = Object::Fence(lease.partition);
                    let was = self.now(&fence);
                    check(is_next(&was, &call.replica, lease), || format!("its lease was not held: {was:?}"))?;
                    self.becomes(place, fence, State { commits: lease.commit_seq, ..was });
                }
            }
            Seen::Submitted { entry, submissions, key: Some(key), .. } => {
                let object = Object::Key(Arc::clone(key));
                check(self.now(&object).entry.is_none(), || wrong("the key was taken"))?;
                self.becomes(place, object, State { entry: Some((*entry, *submissions)), ..State::default() });
            }
            _ => return Err(wrong("nobody does that")),
        }
        Ok(())
    }

    /// Whether an answer is right, given the call's own records.
    fn answer(&self, call: &Call, places: &[usize]) -> Verdict {
        let is_confirmed = !matches!(call.answer, Answer::Unknown);
        for &place in places {
            for object in objects(&self.records[place]) {
                let (after, before) = self.window(call, &object);
                check(after.is_none_or(|after| after < place), || format!("what ended before it is recorded behind it, at {after:?}"))?;
                let is_before = !is_confirmed || before.is_none_or(|before| place < before);
                check(is_before, || format!("what began after it is recorded before it, at {before:?}"))?;
            }
        }
        let records = || places.iter().map(|place| &self.records[*place]);
        match (&call.ask, &call.answer) {
            (Ask::Commit(_), Answer::Committed) => check(places.len() == 1, || "it is not recorded".to_owned()),
            (Ask::Commit(batch), Answer::Refused) => {
                check(places.is_empty(), || "it is recorded".to_owned())?;
                let is_wrong = |lease: &LeaseCheck| {
                    self.sometimes(call, &Object::Fence(lease.partition), |state| !is_next(state, &call.replica, lease))
                };
                check(batch.leases.iter().any(is_wrong), || "its leases were held all the time".to_owned())
            }
            (_, Answer::Failed) => check(places.is_empty(), || "it is recorded".to_owned()),
            (_, Answer::Leases(answers)) => {
                let mut granted = 0;
                for answer in answers {
                    let is_right = match answer {
                        LeaseAnswer::Granted { partition, epoch, commit_seq, .. } => {
                            granted += 1;
                            let is_it = |record: &&Seen| matches!(record, Seen::LeaseGranted { partition: of, epoch: under, .. } if (of, under) == (partition, epoch));
                            let place = places.iter().find(|place| is_it(&&self.records[**place]));
                            let fence = place.map(|place| self.at(&Object::Fence(*partition), *place));
                            fence.is_some_and(|fence| fence.commits == *commit_seq)
                        }
                        LeaseAnswer::Held { partition, owner, expires_at } => {
                            let says = |state: &State| state.owner.as_ref() == Some(owner) && state.expires_at == *expires_at;
                            *owner != call.replica && *expires_at > call.now() && self.sometimes(call, &Object::Lease(*partition), says)
                        }
                    };
                    check(is_right, || format!("{answer:?} was never right"))?;
                }
                check(granted == places.len(), || "it was granted more".to_owned())
            }
            (Ask::Renew(renewals), Answer::Lost(lost)) => {
                for renewal in renewals {
                    let Renewal { partition, epoch, commit_seq } = *renewal;
                    let is_right = if lost.contains(&partition) {
                        self.sometimes(call, &Object::Lease(partition), |state| !state.is_held(&call.replica, epoch))
                            || self.sometimes(call, &Object::Fence(partition), |state| state.commits < commit_seq)
                    } else {
                        records().any(|record| matches!(record, Seen::LeaseRenewed { partition: of, .. } if *of == partition))
                    };
                    check(is_right, || format!("the answer for partition {partition} was never right"))?;
                }
                Ok(())
            }
            (Ask::Release(partition, epoch), Answer::Done) => {
                let is_gone = |state: &State| !state.is_held(&call.replica, *epoch);
                let is_right = !places.is_empty() || self.sometimes(call, &Object::Lease(*partition), is_gone);
                check(is_right, || "it was held all the time".to_owned())
            }
            (Ask::Trigger { key, submissions }, Answer::Submitted(submitted)) => {
                let object = Object::Key(Arc::clone(key));
                let is_right = match submitted {
                    Submitted::Accepted { entry } => {
                        records().count() == 1 && records().all(|record| matches!(record, Seen::Submitted { entry: of, .. } if of == entry))
                    }
                    Submitted::Repeated { entry } => self.sometimes(call, &object, |state| state.entry == Some((*entry, *submissions))),
                    Submitted::KeyTaken => {
                        self.sometimes(call, &object, |state| state.entry.is_some_and(|(_, count)| count != *submissions))
                    }
                    _ => false,
                };
                check(is_right, || "it was never right".to_owned())
            }
            (_, Answer::Unknown) => Ok(()),
            _ => Err("it is the answer to something else".to_owned()),
        }
    }

    /// The last record of an object whose call had ended before this one began, and the first one whose call began after this one had ended.
    fn window(&self, call: &Call, object: &Object) -> (Option<usize>, Option<usize>) {
        let places = || self.states.get(object).into_iter().flatten().map(|(place, _)| *place);
        let of = |place: &usize| &self.calls[self.whose[*place]];
        let had_ended = |place: &usize| !matches!(of(place).answer, Answer::Unknown) && of(place).ended < call.began;
        (places().filter(had_ended).max(), places().filter(|place| of(place).began > call.ended).min())
    }

    /// An object's state right after this place.
    fn at(&self, object: &Object, place: usize) -> State {
        let states = self.states.get(object).into_iter().flatten();
        states.take_while(|(made_at, _)| *made_at <= place).last().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    /// Whether an object was like that at some place where the call may have been carried out.
    fn sometimes(&self, call: &Call, object: &Object, is_right: impl Fn(&State) -> bool) -> bool {
        let (after, before) = self.window(call, object);
        let first = after.map_or_else(State::default, |after| self.at(object, after));
        let states = self.states.get(object).into_iter().flatten();
        let within = states.filter(|(place, _)| after.is_none_or(|after| *place > after) && before.is_none_or(|before| *place < before));
        is_right(&first) || within.into_iter().any(|(_, state)| is_right(state))
    }
}

fn is_next(state: &State, replica: &ReplicaId, lease: &LeaseCheck) -> bool {
    state.is_held(replica, lease.epoch) && state.commits + 1 == lease.commit_seq
}

/// What a record changes.
pub(super) fn objects(record: &Seen) -> Vec<Object> {
    match record {
        Seen::LeaseGranted { partition, .. } | Seen::LeaseReleased { partition, .. } => {
            vec![Object::Lease(*partition), Object::Fence(*partition)]
        }
        Seen::LeaseRenewed { partition, .. } => vec![Object::Lease(*partition)],
        Seen::Committed(batch) => batch.leases.iter().map(|lease| Object::Fence(lease.partition)).collect(),
        Seen::Submitted { key: Some(key), .. } => vec![Object::Key(Arc::clone(key))],
        _ => vec![],
    }
}
