//! Pages by whatever people ask for, edits of single tasks, and answers that are kept.

use std::sync::Arc;

use punctual_core::ids::{TaskId, Version, WorkerId, WorkerLife};
use punctual_core::instance::{InstanceRow, Origin, Part, State, WorkerRef};
use punctual_core::time::Timestamp;
use punctual_driver::editing::{ANSWER_KEPT_MS, UNDER_WAY_MS};
use punctual_driver::ports::{
    Applying, AuditFilter, Catalog, Edited, Expected, InstanceCursor, InstanceFilter, InstanceQuery, KeptAnswer, Reserved, Revision,
    TaskDay, TaskDocument, TaskEdit, TaskQuery,
};
use punctual_driver::reading::TASK_DAYS;

use super::{Factory, Owner, START, apply, apply_inbox, commit, document, ended, open, tasks_in_force};

const DAY_MS: i64 = 86_400_000;

fn of_group(name: &str, group: &str) -> TaskDocument {
    let plain = document(name, group);
    let definition = punctual_core::definition::TaskDefinition { group: Some(group.into()), ..(*plain.definition).clone() };
    TaskDocument { definition: Arc::new(definition), ..plain }
}

/// Instances of twenty tasks of two groups and of one more, in all states, of several origins and workers; newest first.
async fn filled<F: Factory>(factory: &F) -> (F::Store, Vec<InstanceRow>, Vec<TaskId>) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let names: Vec<String> = (0..20).map(|number| format!("t{number:02}")).collect();
    let group = |number: usize| if number < 2 { "few" } else { "many" };
    let mut documents: Vec<_> = names.iter().enumerate().map(|(number, name)| of_group(name, group(number))).collect();
    documents.push(document("alone", "v1"));
    apply(&store, documents, START).await;
    apply_inbox(&store, &mut owner, None).await;
    let mut tasks = Vec::new();
    for name in names.iter().map(String::as_str).chain(["alone"]) {
        let (view, _) = store.task(name.into()).await.expect("an answer").expect("the task");
        tasks.push((view.task, punctual_core::ids::partition_of(name, super::PARTITIONS)));
    }
    let mut rows = Vec::new();
    for number in 0..420_usize {
        let (task, partition) = tasks[number % tasks.len()];
        let mut row = owner.dispatched(partition, task, Timestamp(START.0 + (number / 5) as i64 * 1_000));
        row.ordinal = number as u64 + 1;
        row.state = State::ALL[(number / 3) % State::ALL.len()];
        row.origin = Origin::ALL[number % Origin::ALL.len()];
        row.part = if number % 7 == 6 { Part(1 << 32) } else { Part::WHOLE };
        let worker = WorkerId(format!("w{}", number % 4).into());
        row.transitions.last_mut().expect("a transition").worker = Some(worker.clone());
        row.worker = (!row.state.is_terminal()).then_some(WorkerRef { id: worker, life: WorkerLife(1) });
        // Some were made long after their fire time.
        row.transitions[0].at = Timestamp(row.fire_time.0 + (number % 3) as i64 * 10_000);
        rows.push(row);
    }
    for some in rows.chunks(100) {
        let mut batch = owner.batch();
        batch.inserts = some.to_vec();
        commit(&store, batch).await;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(InstanceCursor::of(row)));
    (store, rows, tasks.into_iter().map(|(task, _)| task).collect())
}

/// All pages, and how many those were.
async fn pages(store: &impl Catalog, query: &InstanceQuery) -> (Vec<InstanceRow>, usize) {
    let (mut seen, mut query, mut count) = (Vec::new(), query.clone(), 0);
    loop {
        let page = store.instance_page(query.clone()).await.expect("a page");
        count += 1;
        assert!(page.instances.len() <= query.filter.limit && count < 2_000, "{query:?}");
        seen.extend(page.instances.into_iter().map(|view| view.row));
        let Some(next) = page.next else { return (seen, count) };
        assert!(query.filter.before.is_none_or(|before| next < before), "{query:?}");
        query.filter.before = Some(next);
    }
}

/// In every combination, each once, in one order, whatever the size of the page and however little is looked at.
pub async fn instances_are_found_by_whatever_is_asked_of_them<F: Factory>(factory: &F) {
    let (store, rows, tasks) = filled(factory).await;
    let at = |seconds: i64| Some(Timestamp(START.0 + seconds * 1_000));
    let some = |text: &str| Some(Arc::<str>::from(text));
    let none = InstanceQuery::default;
    let queries = [
        none(),
        InstanceQuery { worker: some("w1"), ..none() },
        InstanceQuery { origin: Some(Origin::Chain), ..none() },
        InstanceQuery { fired_from: at(20), fired_until: at(40), ..none() },
        InstanceQuery { created_from: at(30), created_until: at(31), ..none() },
        InstanceQuery { origin: Some(Origin::Manual), worker: some("w2"), fired_until: at(60), ..none() },
    ];
    let states = [
        vec![],
        vec![State::Running],
        vec![State::Running, State::Retrying],
        vec![State::Failed],
        vec![State::Failed, State::TimedOut, State::Failed],
        vec![State::Succeeded],
        vec![State::Succeeded, State::Failed, State::Waiting],
    ];
    let whose =
        [(None, None), (some("t01"), None), (None, some("few")), (None, some("many")), (None, some("none")), (some("t01"), some("many"))];
    for query in queries {
        for states in &states {
            for (task, group) in &whose {
                for (whole, limit, look_at) in [(false, 9, 50), (true, 40, 10_000)] {
                    let filter = InstanceFilter { task: task.clone(), whole, limit, ..InstanceFilter::default() };
                    let query = InstanceQuery { filter, states: states.clone(), group: group.clone(), look_at, ..query.clone() };
                    let is_of = |row: &InstanceRow| {
                        let number = tasks.iter().position(|task| *task == row.task).expect("a task");
                        let of_group = match group.as_deref() {
                            None => true,
                            Some("few") => number < 2,
                            Some("many") => (2..20).contains(&number),
                            Some(_) => false,
                        };
                        of_group && (task.is_none() || number == 1)
                    };
                    let expected: Vec<_> = rows.iter().filter(|row| query.matches(row) && is_of(row)).cloned().collect();
                    assert_eq!(pages(&store, &query).await.0, expected, "{query:?}");
                }
            }
        }
    }
    let by_key = InstanceFilter { key: some("no-such-key"), limit: 10, ..InstanceFilter::default() };
    assert!(pages(&store, &InstanceQuery { filter: by_key, look_at: 10, ..none() }).await.0.is_empty());
}

/// A model that looks at all there is may have found the same in fewer pages.
pub async fn a_page_looks_at_so_many_rows_and_says_where_it_has_come_to<F: Factory>(factory: &F) {
    let (store, rows, _) = filled(factory).await;
    let filter = InstanceFilter { limit: 100, ..InstanceFilter::default() };
    let query = InstanceQuery { filter, origin: Some(Origin::Backfill), look_at: 7, ..InstanceQuery::default() };
    let (found, count) = pages(&store, &query).await;
    assert_eq!(found.len(), rows.iter().filter(|row| row.origin == Origin::Backfill).count());
    assert!(count <= rows.len() / 7 + 1, "{count} pages");
    let (_, of_all) = pages(&store, &InstanceQuery { look_at: 10_000, ..query }).await;
    assert!(of_all <= 2, "{of_all} pages");
}

/// Page by page, in the order of their names.
pub async fn tasks_are_found_by_name_and_group<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let names = ["alpha", "beta-1", "beta-2", "Beta-3", "gamma-beta", "é-beta"];
    let documents = names.iter().map(|name| if name.ends_with('1') { of_group(name, "g") } else { document(name, "v1") });
    apply(&store, documents.chain([of_group("zeta", "g"), document("gone-beta", "v1")]).collect(), START).await;
    let all: Vec<_> = names.iter().map(|name| if name.ends_with('1') { of_group(name, "g") } else { document(name, "v1") }).collect();
    apply(&store, all.into_iter().chain([of_group("zeta", "g")]).collect(), START).await;
    let find = async |query: TaskQuery| {
        let (mut found, mut query) = (Vec::new(), query);
        loop {
            let page = store.task_page(query.clone()).await.expect("a page");
            assert!(page.tasks.len() <= query.limit);
            found.extend(page.tasks.iter().map(|view| view.name.to_string()));
            let Some(next) = page.next else { return found };
            query.after = Some(next);
        }
    };
    for (limit, look_at) in [(1, 100), (2, 3), (100, 1), (100, 100)] {
        let any = TaskQuery { limit, look_at, ..TaskQuery::default() };
        let some = |text: &str| Some(Arc::<str>::from(text));
        assert_eq!(find(any.clone()).await, ["Beta-3", "alpha", "beta-1", "beta-2", "gamma-beta", "zeta", "é-beta"]);
        assert_eq!(find(TaskQuery { prefix: some("beta"), ..any.clone() }).await, ["beta-1", "beta-2"]);
        let within = ["Beta-3", "beta-1", "beta-2", "gamma-beta", "é-beta"];
        assert_eq!(find(TaskQuery { contains: some("BETA"), ..any.clone() }).await, within);
        assert_eq!(find(TaskQuery { contains: some("É-"), ..any.clone() }).await, ["é-beta"]);
        assert_eq!(find(TaskQuery { group: some("g"), ..any.clone() }).await, ["beta-1", "zeta"]);
        assert_eq!(find(TaskQuery { group: some("g"), prefix: some("z"), ..any.clone() }).await, ["zeta"]);
        assert!(find(TaskQuery { group: some("h"), ..any }).await.is_empty());
    }
}

/// As their owners have it; what fires by hand only, and what was removed, does not come.
pub async fn tasks_that_fire_next_come_first<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["a", "b", "c", "d"]).await;
    let mut batch = owner.batch();
    for ((task, partition), next_fire) in made.iter().zip([Some(30), Some(10), None, Some(20)]) {
        let next_fire = next_fire.map(|seconds| Timestamp(START.0 + seconds * 1_000));
        let version = Some(Version(1));
        batch.tasks.push(punctual_core::batch::TaskWrite { task: *task, partition: *partition, version, next_fire, fired_until: None });
    }
    commit(&store, batch).await;
    let coming = async |seconds: i64, limit| {
        let found = store.coming(Timestamp(START.0 + seconds * 1_000), limit).await.expect("tasks");
        found.into_iter().map(|coming| (coming.name.to_string(), coming.next_fire.0 - START.0)).collect::<Vec<_>>()
    };
    let expected = [("b".to_owned(), 10_000), ("d".to_owned(), 20_000), ("a".to_owned(), 30_000)];
    assert_eq!(coming(31, 10).await, expected);
    assert_eq!((coming(30, 10).await, coming(31, 1).await), (expected[..2].to_vec(), expected[..1].to_vec()));
    apply(&store, vec![document("a", "v1"), document("c", "v1"), document("d", "v1")], START).await;
    assert_eq!(coming(31, 10).await, expected[1..]);
}

/// Whole firings, each on the day of its end; a day goes when its place is taken.
pub async fn the_days_of_a_task_are_counted_and_the_last_ones_kept<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let mut owner = Owner::of_all(&store).await;
    let made = tasks_in_force(&store, &mut owner, &["one", "two"]).await;
    let first = TaskDay::of(START);
    let end = async |owner: &mut Owner, which: usize, state: State, day: i64| {
        let (task, partition) = made[which];
        let fire_time = Timestamp((first + day) * DAY_MS + 1_000 + owner.next(partition) as i64);
        let row = owner.dispatched(partition, task, fire_time);
        let part = InstanceRow { part: Part(1 << 32), ..owner.dispatched(partition, task, fire_time) };
        let mut batch = owner.batch();
        batch.inserts = vec![row.clone(), part.clone()];
        commit(&store, batch).await;
        let mut batch = owner.batch();
        batch.updates = vec![ended(&row, state, fire_time), ended(&part, state, fire_time)];
        commit(&store, batch).await;
    };
    for (which, state, day) in [
        (0, State::Succeeded, 0),
        (0, State::Succeeded, 0),
        (0, State::Failed, 0),
        (0, State::Cancelled, 1),
        (0, State::DeadLettered, 1),
        (1, State::TimedOut, 1),
        (0, State::Succeeded, TASK_DAYS - 1),
    ] {
        end(&mut owner, which, state, day).await;
    }
    let day = |day, succeeded, failed, stopped| TaskDay { day: first + day, succeeded, failed, stopped };
    let days = async |which: usize, from: i64| store.task_days(made[which].0, first + from).await.expect("days");
    assert_eq!(days(0, 0).await, [day(0, 2, 1, 0), day(1, 0, 1, 1), day(TASK_DAYS - 1, 1, 0, 0)]);
    assert_eq!((days(0, 2).await, days(1, 0).await), (vec![day(TASK_DAYS - 1, 1, 0, 0)], vec![day(1, 0, 1, 0)]));
    end(&mut owner, 0, State::Skipped, TASK_DAYS).await;
    assert_eq!(days(0, 1).await, [day(1, 0, 1, 1), day(TASK_DAYS - 1, 1, 0, 0), day(TASK_DAYS, 0, 0, 1)]);
}

fn edit(name: &str, payload: Option<&str>) -> TaskEdit {
    let document = payload.map(|payload| document(name, payload));
    TaskEdit { source: "api".into(), name: name.into(), document, expected: Expected::Anything, take_over: false }
}

/// Made, changed, taken over and removed, each with its entry and on record; the others of its source stay.
pub async fn one_task_is_edited_and_no_other<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("file", "v1"), document("other", "v1")], START).await;
    let done = async |edit: TaskEdit, dry_run: bool| match store.edit(edit, "me".into(), dry_run, START).await.expect("an answer") {
        Edited::Done(applied) => applied,
        edited => panic!("{edited:?}"),
    };
    let entries = async || super::entry_ids(&store).await.len();
    assert_eq!(super::catalog::names(&done(edit("mine", Some("v1")), true).await.created), ["mine"]);
    assert!(store.task("mine".into()).await.expect("an answer").is_none());
    assert_eq!(super::catalog::names(&done(edit("mine", Some("v1")), false).await.created), ["mine"]);
    done(edit("second", Some("v1")), false).await;
    assert_eq!(super::catalog::names(&done(edit("mine", Some("v2")), false).await.changed), ["mine"]);
    let before = entries().await;
    assert_eq!(done(edit("mine", Some("v2")), false).await.unchanged, 1);
    assert_eq!(entries().await, before);
    assert_eq!(super::catalog::names(&done(edit("mine", None), false).await.removed), ["mine"]);
    assert_eq!(entries().await, before + 1);
    let (view, versions) = store.task("mine".into()).await.expect("an answer").expect("the task");
    assert_eq!((view.removed, view.version, versions.len(), &*view.source), (true, Version(3), 3, "api"));
    // What a file had is the API's from then on, and the file's next application takes nothing else away.
    done(TaskEdit { take_over: true, ..edit("file", Some("v1")) }, false).await;
    let source = |name: &str| {
        let view = store.task(name.into());
        async { view.await.expect("an answer").expect("the task").0.source.to_string() }
    };
    assert_eq!((source("file").await, source("other").await, source("second").await), ("api".into(), "files".into(), "api".into()));
    let audit = store.audit(AuditFilter { task: Some("mine".into()), limit: 10, ..AuditFilter::default() }).await.expect("an audit");
    assert_eq!(audit.iter().map(|entry| entry.action.name()).collect::<Vec<_>>(), ["remove", "change", "create"]);
}

/// Neither what another source has, nor what is in another version, nor what is not there.
pub async fn an_edit_of_what_is_not_as_expected_writes_nothing<F: Factory>(factory: &F) {
    let store = open(factory).await;
    apply(&store, vec![document("file", "v1")], START).await;
    let before = super::dump(&store).await;
    let asked = async |edit: TaskEdit| store.edit(edit, "me".into(), false, START).await.expect("an answer");
    let expecting = |expected, edit| TaskEdit { expected, take_over: true, ..edit };
    assert_eq!(asked(edit("file", Some("v2"))).await, Edited::OwnedBy { source: "files".into() });
    assert_eq!(asked(edit("file", None)).await, Edited::OwnedBy { source: "files".into() });
    assert_eq!(asked(edit("none", None)).await, Edited::NoSuchTask);
    let is = Some(Version(1));
    assert_eq!(asked(expecting(Expected::Version(Version(2)), edit("file", Some("v2")))).await, Edited::Unexpected { is });
    assert_eq!(asked(expecting(Expected::Nothing, edit("file", Some("v2")))).await, Edited::Unexpected { is });
    assert_eq!(asked(expecting(Expected::Something, edit("none", Some("v2")))).await, Edited::Unexpected { is: None });
    assert_eq!(super::dump(&store).await, before);
    let done = asked(expecting(Expected::Version(Version(1)), edit("file", Some("v2")))).await;
    assert!(matches!(done, Edited::Done(_)), "{done:?}");
    // A removed one is not there, and may be made anew by anybody.
    asked(edit("file", None)).await;
    let anew = TaskEdit { source: "else".into(), expected: Expected::Nothing, ..edit("file", Some("v2")) };
    assert!(matches!(asked(anew).await, Edited::Done(_)));
}

/// Of two who read the same, the second one is told.
pub async fn documents_are_applied_to_what_their_author_has_seen<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let apply_to = async |expected, payload: &str, dry_run| {
        let documents = vec![document("a", payload), document("b", "v1")];
        let how = Applying { expected, remove: true, take_over: true, dry_run };
        store.apply_to("files".into(), how, "me".into(), documents, START).await.expect("an answer")
    };
    let revision = async || store.revision("files".into()).await.expect("an answer");
    let (none, count) = revision().await;
    assert_eq!((none, count), (Revision::default(), 0));
    assert_eq!(apply_to(Some(none), "v1", true).await.expect("it is so").created.len(), 2);
    assert_eq!(apply_to(Some(none), "v1", false).await.expect("it is so").created.len(), 2);
    let (first, count) = revision().await;
    assert!(first != none && count == 2);
    assert_eq!(apply_to(Some(none), "v2", false).await, Err(first));
    assert_eq!(super::catalog::names(&apply_to(Some(first), "v2", false).await.expect("it is so").changed), ["a"]);
    let (second, _) = revision().await;
    assert_eq!(apply_to(Some(first), "v2", false).await, Err(second), "also where nothing would change");
    assert_eq!(apply_to(None, "v2", false).await.expect("whatever it is").unchanged, 2);
    assert_eq!(revision().await, (second, 2));
}

/// For a day; a key is of one call.
pub async fn an_answer_is_kept_for_a_call_that_comes_again<F: Factory>(factory: &F) {
    let store = open(factory).await;
    let reserve = async |key: &str, digest: u8, at: i64| {
        store.reserve_answer(key.into(), [digest; 32], Timestamp(START.0 + at)).await.expect("an answer")
    };
    let keep = async |key: &str, digest: u8, answer| store.keep_answer(key.into(), [digest; 32], answer).await.expect("kept");
    let answer = KeptAnswer { status: 202, headers: "etag: \"1\"".into(), body: Arc::from(&b"{\"a\": \"\xc3\xa9\"}"[..]) };
    assert_eq!((reserve("a", 1, 0).await, reserve("b", 1, 0).await), (Reserved::New, Reserved::New));
    assert_eq!((reserve("a", 1, 1).await, reserve("a", 2, 1).await), (Reserved::UnderWay, Reserved::Other));
    // Its caller may have died.
    assert_eq!((reserve("b", 1, UNDER_WAY_MS).await, reserve("b", 1, UNDER_WAY_MS).await), (Reserved::New, Reserved::UnderWay));
    keep("a", 2, Some(KeptAnswer { status: 500, ..answer.clone() })).await;
    keep("a", 1, Some(answer.clone())).await;
    keep("a", 1, None).await;
    assert_eq!(reserve("a", 1, 10).await, Reserved::Answered(answer.clone()));
    assert_eq!((reserve("a", 2, 10).await, reserve("A", 2, 10).await), (Reserved::Other, Reserved::New));
    keep("b", 1, None).await;
    assert_eq!(reserve("b", 3, UNDER_WAY_MS + 1).await, Reserved::New);
    assert_eq!(reserve("a", 1, ANSWER_KEPT_MS).await, Reserved::Answered(answer));
    assert_eq!(reserve("a", 9, ANSWER_KEPT_MS + 1).await, Reserved::New);
}
