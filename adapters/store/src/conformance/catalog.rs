//! The catalogue: documents in, and everything to be read.

use std::sync::Arc;

use punctual_core::batch::Reference;
use punctual_core::chains::{Call, ChainProblem};
use punctual_core::definition::{Chain, ChainOn, TaskDefinition};
use punctual_core::ids::{PartitionId, TaskId, Version, partition_of};
use punctual_core::inbox::{Request, ordinal_of};
use punctual_core::instance::{InstanceRow, Origin, State};
use punctual_core::occurrence::{Occurrence, Outcome};
use punctual_core::time::Timestamp;
use punctual_driver::ports::{Applying, Catalog, InstanceCursor, InstanceFilter, Store, Submitted, TaskDocument};

use super::nodes::{workflow, workflow_document};
use super::{Factory, Owner, PARTITIONS, START, apply, commit, definition, document, dump, ended, entry_ids, open, tasks_in_force};

pub(super) fn names(names: &[Arc<str>]) -> Vec<&str> {
    let mut names: Vec<_> = names.iter().map(|name| &**name).collect();
    names.sort_unstable();
    names
}

async fn task_names(store: &impl Catalog) -> Vec<String> {
    store.tasks(None, 1_000).await.expect("tasks").into_iter().map(|view| view.name.to_string()).collect()
}

/// With a version and an inbox entry each.
pub async fn documents_are_made_changed_and_removed<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let applied = apply(&store, vec![document("a", "v1"), document("b", "v1"), document("c", "v1")], START).await;
    assert_eq!((names(&applied.created), applied.changed.len(), applied.unchanged, applied.removed.len()), (vec!["a", "b", "c"], 0, 0, 0));
    let later = Timestamp(START.0 + 1);
    let applied = apply(&store, vec![document("a", "v2"), document("b", "v1"), document("d", "v1")], later).await;
    assert_eq!((names(&applied.created), names(&applied.changed)), (vec!["d"], vec!["a"]));
    assert_eq!((names(&applied.removed), applied.unchanged), (vec!["c"], 1));
    assert_eq!(entry_ids(&store).await.len(), 6);
    assert_eq!(task_names(&store).await, ["a", "b", "d"]);

    let (view, versions) = store.task("a".into()).await.expect("an answer").expect("the task");
    assert_eq!((view.version, &*view.document, view.removed), (Version(2), &*document("a", "v2").document, false));
    let history: Vec<_> = versions.iter().map(|version| (version.version, version.at, version.document.clone())).collect();
    let (first, second) = (document("a", "v1").document, document("a", "v2").document);
    assert_eq!(history, [(Version(2), later, Some(second)), (Version(1), START, Some(first))]);
    assert!(versions.iter().all(|version| &*version.by == "tester"));

    let (view, versions) = store.task("c".into()).await.expect("an answer").expect("the removed task");
    assert_eq!((view.version, &*view.document, view.removed), (Version(2), &*document("c", "v1").document, true));
    assert_eq!(versions.iter().map(|version| version.document.is_some()).collect::<Vec<_>>(), [false, true]);
    assert!(store.task("e".into()).await.expect("an answer").is_none());
    for name in ["a", "c", "e"] {
        let with_versions = store.task(name.into()).await.expect("an answer");
        assert_eq!(store.task_now(name.into()).await.expect("an answer"), with_versions.map(|(view, _)| view));
    }
}

/// However often it is applied.
pub async fn what_does_not_differ_is_not_written<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1"), document("b", "v1")], START).await;
    let before = dump(&store).await;
    let applied = apply(&store, vec![document("b", "v1"), document("a", "v1")], Timestamp(START.0 + 1)).await;
    assert_eq!((applied.created.len(), applied.changed.len(), applied.removed.len(), applied.unchanged), (0, 0, 0, 2));
    assert_eq!(dump(&store).await, before);
}

/// And says what it would.
pub async fn a_dry_run_writes_nothing<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1"), document("b", "v1"), document("c", "v1")], START).await;
    let before = dump(&store).await;
    let documents = || vec![document("a", "v2"), document("b", "v1"), document("d", "v1")];
    let would = store.apply("files".into(), "tester".into(), documents(), true, START).await.expect("an answer");
    assert_eq!(dump(&store).await, before);
    assert_eq!(apply(&store, documents(), START).await, would);
}

/// And goes on counting its versions.
pub async fn a_task_that_comes_back_keeps_its_id<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1")], START).await;
    let (before, _) = store.task("a".into()).await.expect("an answer").expect("the task");
    apply(&store, vec![], START).await;
    assert_eq!(apply(&store, vec![], START).await.removed.len(), 0, "what is removed is not removed again");
    let applied = apply(&store, vec![document("a", "v1")], START).await;
    assert_eq!(names(&applied.changed), ["a"]);
    let (after, _) = store.task("a".into()).await.expect("an answer").expect("the task");
    assert_eq!((after.task, after.version, after.removed), (before.task, Version(3), false));
}

/// What others made stays.
pub async fn a_source_removes_only_its_own_tasks<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1")], START).await;
    let from = |source: &str, documents: Vec<TaskDocument>| store.apply(source.into(), "tester".into(), documents, false, START);
    from("api", vec![document("b", "v1")]).await.expect("an answer");
    assert_eq!(task_names(&store).await, ["a", "b"]);
    assert_eq!(names(&from("api", vec![]).await.expect("an answer").removed), ["b"]);
    assert_eq!(task_names(&store).await, ["a"]);
}

/// A task that nodes call is there and stays, and tasks that call each other, or fire after each other, make no ring: else all is refused.
pub async fn tasks_that_nodes_call_are_there_and_make_no_ring<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let from = |documents: Vec<TaskDocument>| store.apply("files".into(), "tester".into(), documents, false, START);
    let after = |name: &str, other: &str| {
        let chains: Arc<[_]> = [Chain { task: other.into(), on: ChainOn::Any }].into();
        let mut task = document(name, "v1");
        task.definition = Arc::new(TaskDefinition { chains: Some(chains), ..definition(name, "v1") });
        task
    };
    let refused = async |documents| {
        let applied = from(documents).await.expect("an answer");
        assert_eq!((applied.created.len(), applied.changed.len(), applied.removed.len()), (0, 0, 0));
        applied.refused
    };
    let called = |times: u32| ChainProblem::NothingToCall(Call { task: "w".into(), called: "sub".into(), times });
    let ring = |path: &[&str]| ChainProblem::Cycle { path: path.iter().map(|name| Arc::from(*name)).collect() };
    assert_eq!(refused(vec![workflow_document("w", &["a", "b>sub"])]).await, [called(1)]);
    assert_eq!(refused(vec![workflow_document("w", &["a>w"])]).await, [ring(&["w", "w"])]);
    let both = || vec![workflow_document("w", &["a", "b>sub", "c>sub"]), document("sub", "v1")];
    assert_eq!(names(&from(both()).await.expect("an answer").created), ["sub", "w"]);
    assert_eq!(refused(vec![workflow_document("w", &["a", "b>sub", "c>sub"])]).await, [called(2)], "it is still called");
    assert_eq!(
        refused(vec![workflow_document("w", &["a", "b>sub", "c>sub"]), workflow_document("sub", &["a>w"])]).await,
        [ring(&["w", "sub", "w"])]
    );
    // By what is stored, and what fires after what is called.
    let other = |documents: Vec<TaskDocument>| store.apply("others".into(), "tester".into(), documents, false, START);
    assert_eq!(names(&other(vec![after("next", "sub")]).await.expect("an answer").created), ["next"]);
    let applied = other(vec![workflow_document("next", &["a>w"]), after("further", "sub")]).await.expect("an answer");
    assert_eq!((names(&applied.created), applied.refused), (vec!["further"], vec![]));
    let with_call = TaskDefinition { chains: after("next", "sub").definition.chains.clone(), ..workflow("next", "v1", &["a>w"]) };
    let with_call = TaskDocument { definition: Arc::new(with_call), ..workflow_document("next", &["a>w", "b"]) };
    assert_eq!(other(vec![with_call, after("further", "sub")]).await.expect("an answer").refused, [ring(&["sub", "next", "w", "sub"])]);
    // What calls it no more lets it go.
    let applied = from(vec![workflow_document("w", &["a"])]).await.expect("an answer");
    assert_eq!(applied.refused.len(), 1, "another source's task fires after it");
    other(vec![document("next", "v1")]).await.expect("an answer");
    let applied = from(vec![workflow_document("w", &["a"])]).await.expect("an answer");
    assert_eq!((names(&applied.removed), applied.refused), (vec!["sub"], vec![]));
}

/// What tasks call multiplies over what is stored, each node counted: a step that makes it too much is refused.
pub async fn calls_that_multiply_are_refused_where_they_are_too_many<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let step = async |number: usize| {
        let (name, called) = (format!("step{number}"), format!(">step{}", number - 1));
        let nodes = [format!("a{called}"), format!("b{called}")];
        let task = workflow_document(&name, &[&nodes[0], &nodes[1]]);
        store.apply(name.as_str().into(), "tester".into(), vec![task], false, START).await.expect("an answer").refused
    };
    store.apply("step0".into(), "tester".into(), vec![document("step0", "v1")], false, START).await.expect("an answer");
    for number in 1..=15 {
        assert_eq!(step(number).await, []);
    }
    assert_eq!(step(16).await, [ChainProblem::Spreads { task: "step16".into(), firings: 131_070 }]);
}

/// A task that fires after others: their owners find it in their partitions' snapshots and are told of it, a removal takes it back, and what
/// would hang in the air or in a ring is refused whole.
pub async fn tasks_that_fire_after_others_are_told_to_their_owners<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let after = |name: &str, others: &[&str]| {
        let chains = others.iter().map(|other| Chain { task: Arc::from(*other), on: ChainOn::Any });
        let mut task = document(name, "v1");
        task.document = Arc::from(task.document.replace("v1", &others.join(" ")));
        task.definition = Arc::new(TaskDefinition { chains: Some(chains.collect()), ..definition(name, &others.join(" ")) });
        task
    };
    let from = |documents: Vec<TaskDocument>| store.apply("files".into(), "tester".into(), documents, false, START);
    let applied = from(vec![document("a", "v1"), document("b", "v1"), after("c", &["a", "b"])]).await.expect("an answer");
    assert_eq!((names(&applied.created), applied.refused), (vec!["a", "b", "c"], vec![]));
    let id = async |name: &str| store.task(name.into()).await.expect("an answer").expect("the task").0.task;
    let referred = async |name: &str| {
        let partition = partition_of(name, PARTITIONS);
        let all = store.snapshot(partition).await.expect("a snapshot").references;
        let from = id(name).await;
        all.into_iter().filter(|reference| reference.from == from).collect::<Vec<_>>()
    };
    let (a, b, c) = (id("a").await, id("b").await, id("c").await);
    let expected = |from| vec![Reference { from, to: c, partition: partition_of("c", PARTITIONS), on: ChainOn::Any }];
    assert_eq!((referred("a").await, referred("b").await), (expected(a), expected(b)));
    let told = async || {
        let all = (0..PARTITIONS).map(PartitionId).collect();
        let page = store.read_inbox(all, punctual_core::ids::InboxId(0), 100).await.expect("a page");
        let changes = page.entries.into_iter().filter_map(|entry| match entry.request {
            Request::ReferencesChanged { task, references } => Some((task, references)),
            _ => None,
        });
        changes.collect::<Vec<_>>()
    };
    let mut first = told().await;
    first.sort_by_key(|(task, _)| *task);
    assert_eq!(first, [(a, expected(a)), (b, expected(b))]);
    // Nothing of what is refused is written.
    for documents in
        [vec![document("b", "v1"), after("c", &["a", "b"])], vec![after("a", &["c"]), document("b", "v1"), after("c", &["a", "b"])]]
    {
        assert_eq!(from(documents).await.expect("an answer").refused.len(), 1);
    }
    assert_eq!((told().await.len(), task_names(&store).await), (2, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    from(vec![document("a", "v1"), document("b", "v1"), after("c", &["b"])]).await.expect("an answer");
    assert_eq!((referred("a").await, referred("b").await), (vec![], expected(b)));
    from(vec![document("a", "v1")]).await.expect("an answer");
    assert_eq!((referred("b").await, task_names(&store).await), (vec![], vec!["a".to_owned()]));
}

/// Changed or not, it is the new source's from then on.
pub async fn a_source_takes_a_task_over<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1"), document("b", "v1")], START).await;
    let from = |source: &str, documents: Vec<TaskDocument>| store.apply(source.into(), "tester".into(), documents, false, START);
    let applied = from("api", vec![document("a", "v1"), document("b", "v2")]).await.expect("an answer");
    assert_eq!((names(&applied.changed), applied.unchanged), (vec!["b"], 1));
    apply(&store, vec![document("c", "v1")], START).await;
    let mine = &apply(&store, vec![], START).await.removed;
    assert_eq!(names(mine), ["c"]);
    assert_eq!(names(&from("api", vec![]).await.expect("an answer").removed), ["a", "b"]);
    for (name, is_of_api) in [("a", true), ("b", true), ("c", false)] {
        let task = store.task_now(name.into()).await.expect("an answer").expect("a removed task is still its source's");
        assert_eq!(&*task.source == "api", is_of_api, "{name}");
    }
}

/// What it may not remove is left; what it may not take over holds all of it.
pub async fn an_application_removes_and_takes_over_only_where_it_may<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("a", "v1"), document("b", "v1")], START).await;
    let asked = async |source: &str, how: Applying, documents: Vec<TaskDocument>| {
        store.apply_to(source.into(), how, "tester".into(), documents, START).await.expect("an answer").expect("no revision was asked for")
    };
    let (careful, removing) = (Applying::default(), Applying { remove: true, ..Applying::default() });
    let applied = asked("files", careful, vec![document("a", "v2"), document("c", "v1")]).await;
    assert_eq!((names(&applied.created), names(&applied.changed)), (vec!["c"], vec!["a"]));
    assert_eq!((names(&applied.left), names(&applied.removed)), (vec!["b"], vec![]));
    assert_eq!(task_names(&store).await, ["a", "b", "c"]);
    // Changed or not, new ones beside it or not.
    let before = dump(&store).await;
    for how in [careful, removing] {
        for theirs in ["v2", "v3"] {
            let applied = asked("api", how, vec![document("a", theirs), document("d", "v1")]).await;
            assert_eq!((applied.taken, names(&applied.created)), (vec![("a".into(), "files".into())], vec!["d"]));
            assert_eq!(dump(&store).await, before);
        }
    }
    let taking = Applying { take_over: true, ..Applying::default() };
    let would = asked("api", Applying { dry_run: true, ..taking }, vec![document("a", "v2"), document("d", "v1")]).await;
    assert_eq!(dump(&store).await, before);
    assert_eq!(asked("api", taking, vec![document("a", "v2"), document("d", "v1")]).await, would);
    assert_eq!(&*store.task_now("a".into()).await.expect("an answer").expect("the task").source, "api");
    let applied = asked("files", removing, vec![]).await;
    assert_eq!((names(&applied.removed), names(&applied.left)), (vec!["b", "c"], vec![]));
    // What was removed is anybody's.
    let applied = asked("api", careful, vec![document("b", "v1")]).await;
    assert_eq!((names(&applied.changed), applied.taken, names(&applied.left)), (vec!["b"], vec![], vec!["a", "d"]));
}

/// As in a file that is read from top to bottom.
pub async fn of_two_documents_of_one_name_the_later_one_counts<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let applied = apply(&store, vec![document("a", "v1"), document("b", "v1"), document("a", "v2")], START).await;
    assert_eq!(names(&applied.created), ["a", "b"]);
    let (view, _) = store.task("a".into()).await.expect("an answer").expect("the task");
    assert_eq!(*view.document, *document("a", "v2").document);
}

/// Names are told apart byte by byte and mean nothing.
pub async fn any_name_will_do<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let all = ["a", "A", "é", "e\u{301}", "每日对账", "'; DROP TABLE tasks; --", "%", "_", "a b", "🕑", "\"", "a "];
    let applied = apply(&store, all.iter().map(|name| document(name, "v1")).collect(), START).await;
    assert_eq!(applied.created.len(), all.len());
    let mut expected: Vec<_> = all.map(str::to_owned).into();
    expected.sort_unstable();
    assert_eq!(task_names(&store).await, expected);
    assert_eq!(store.name_of(TaskId(999)).await.expect("an answer"), None);
    for name in all {
        let triggered = store.trigger(name.into(), "me".into(), None, vec![Default::default()], START).await.expect("an answer");
        assert!(matches!(triggered, Submitted::Accepted { .. }), "{name}");
        let (view, _) = store.task(name.into()).await.expect("an answer").expect("the task");
        assert_eq!(&*view.name, name);
        assert_eq!(store.name_of(view.task).await.expect("an answer").as_deref(), Some(name));
    }
}

/// Each once, whatever the size of the page.
pub async fn tasks_are_paged_by_name<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let all: Vec<String> = (0..25).map(|number| format!("task-{number:02}")).collect();
    apply(&store, all.iter().rev().map(|name| document(name, "v1")).collect(), START).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.tasks(after.take(), 7).await.expect("tasks");
        let Some(last) = page.last() else { break };
        after = Some(Arc::clone(&last.name));
        seen.extend(page.iter().map(|view| view.name.to_string()));
    }
    assert_eq!(seen, all);
    assert!(store.tasks(None, 0).await.expect("tasks").is_empty());
}

/// Instances of two tasks, in many states, some at one instant.
async fn with_instances<F: Factory>(factory: &F) -> (F::Store, Vec<InstanceRow>) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let mut batch = owner.batch();
    let mut rows = Vec::new();
    for number in 0..60 {
        let (task, partition) = made[number % 2];
        let mut row = owner.dispatched(partition, task, Timestamp(START.0 + (number / 6) as i64));
        row.ordinal = number as u64;
        row.state = State::ALL[number % State::ALL.len()];
        row.origin = Origin::Manual;
        row.key = (number % 5 == 0).then(|| format!("key-{}", number % 2).into());
        rows.push(row);
    }
    batch.inserts.clone_from(&rows);
    commit(&store, batch).await;
    rows.sort_by_key(|row| std::cmp::Reverse(InstanceCursor::of(row)));
    (store, rows)
}

async fn pages(store: &impl Catalog, filter: InstanceFilter) -> Vec<InstanceRow> {
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = store.instances(InstanceFilter { before, ..filter.clone() }).await.expect("instances");
        assert!(page.len() <= filter.limit);
        let Some(last) = page.last() else { return seen };
        before = Some(InstanceCursor::of(&last.row));
        seen.extend(page.into_iter().map(|view| view.row));
    }
}

/// Each once, in one order, over all partitions.
pub async fn instances_are_paged_newest_first<F: Factory>(factory: &F) {
    let (store, rows) = with_instances(factory).await;
    for limit in [1, 7, 100] {
        assert_eq!(pages(&store, InstanceFilter { limit, ..InstanceFilter::default() }).await, rows);
    }
    assert!(store.instances(InstanceFilter::default()).await.expect("instances").is_empty(), "a limit of none is none");
}

/// By task, state and key, in every combination.
pub async fn instances_are_filtered<F: Factory>(factory: &F) {
    let (store, rows) = with_instances(factory).await;
    let tasks = [("one", rows.iter().find(|row| row.ordinal == 0)), ("two", rows.iter().find(|row| row.ordinal == 1))];
    let tasks: Vec<(Option<Arc<str>>, Option<TaskId>)> =
        std::iter::once((None, None)).chain(tasks.map(|(name, row)| (Some(Arc::from(name)), row.map(|row| row.task)))).collect();
    for (task, id) in tasks {
        for state in std::iter::once(None).chain(State::ALL.map(Some)) {
            for key in [None, Some("key-0"), Some("key-1"), Some("key-2")] {
                let filter = InstanceFilter { task: task.clone(), state, key: key.map(Into::into), limit: 4, ..InstanceFilter::default() };
                let mut expected = rows.clone();
                expected.retain(|row| {
                    id.is_none_or(|id| row.task == id)
                        && state.is_none_or(|state| row.state == state)
                        && key.is_none_or(|key| row.key.as_deref() == Some(key))
                });
                assert_eq!(pages(&store, filter.clone()).await, expected, "{filter:?}");
            }
        }
    }
    let unknown = InstanceFilter { task: Some("three".into()), limit: 10, ..InstanceFilter::default() };
    assert!(pages(&store, unknown).await.is_empty());
}

/// By its ordinal, once its owner has made it.
pub async fn a_submission_leads_to_its_instance<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let (task, partition) = tasks_in_force(&store, &mut owner, &["one"]).await[0];
    let submitted = store.trigger("one".into(), "me".into(), None, vec![Default::default(); 3], START).await.expect("an answer");
    let Submitted::Accepted { entry } = submitted else { panic!("{submitted:?}") };
    let ordinal = ordinal_of(entry, 2);
    assert!(store.instance_of_submission(ordinal).await.expect("an answer").is_none());
    let row = InstanceRow { ordinal, ..owner.dispatched(partition, task, START) };
    let rerun = InstanceRow { ordinal, run: 2, ..owner.dispatched(partition, task, START) };
    let scheduled = owner.dispatched(partition, task, START);
    let mut batch = owner.batch();
    batch.inserts = vec![rerun, row.clone(), scheduled];
    batch.applied = vec![entry];
    commit(&store, batch).await;
    let mut batch = owner.batch();
    let update = ended(&row, State::Succeeded, START);
    batch.updates.push(update.clone());
    commit(&store, batch).await;
    let view = store.instance_of_submission(ordinal).await.expect("an answer").expect("the instance");
    assert_eq!((view.row, &*view.task_name), (update.row, "one"));
    assert!(store.instance_of_submission(0).await.expect("an answer").is_none(), "no submission has ordinal 0");
    assert!(store.instance_of_submission(ordinal + 1).await.expect("an answer").is_none());
}

/// Those of the task, and with all they say.
pub async fn occurrences_come_newest_first<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let mut batch = owner.batch();
    let mut expected = Vec::new();
    for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
        let first = Timestamp(START.0 + index as i64 * 10);
        let instance = (index % 2 == 0).then(|| punctual_core::ids::InstanceId::new(PartitionId(1), index as u64));
        let occurrence = Occurrence {
            task: made[0].0,
            version: Version(1 + index as u32),
            first,
            last: Timestamp(first.0 + 5),
            count: 1 << (index * 8).min(62),
            outcome,
            instance,
            at: Timestamp(START.0 - 1),
        };
        batch.occurrences.push(Occurrence { task: made[1].0, ..occurrence.clone() });
        expected.push(occurrence.clone());
        batch.occurrences.push(occurrence);
    }
    // The same fire time may have a fate under two versions.
    let again = Occurrence { version: Version(99), ..expected[expected.len() - 1].clone() };
    expected.push(again.clone());
    batch.occurrences.push(again);
    commit(&store, batch).await;
    expected.reverse();
    assert_eq!(store.occurrences("one".into(), 100).await.expect("occurrences"), expected);
    assert_eq!(store.occurrences("one".into(), 3).await.expect("occurrences"), expected[..3]);
    assert!(store.occurrences("three".into(), 3).await.expect("occurrences").is_empty());
    // Runs of a later time that reach back, and the end of the stretch is not in it.
    let around = async |from: i64, until: i64| {
        let found = store.occurrences_around("one".into(), Timestamp(START.0 + from), Timestamp(START.0 + until)).await.expect("an answer");
        found.into_iter().map(|occurrence| occurrence.first.0 - START.0).collect::<Vec<_>>()
    };
    assert_eq!((around(12, 13).await, around(16, 20).await, around(15, 21).await), (vec![10], vec![], vec![20, 10]));
    assert!(store.occurrences_around("none".into(), START, Timestamp(START.0 + 100)).await.expect("an answer").is_empty());
}
