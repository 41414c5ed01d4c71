//! Random calls, carried out on the model and on a real store: each reply is the same, and so is all that can be read at the end. What MariaDB
//! recorded of them is what the model did.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use punctual_driver::ports::{Catalog, Store};
use punctual_sim::history::Recorder;
use punctual_sim::model::ModelStore;
use punctual_store::conformance::{PARTITIONS, decode, definition};
use punctual_store::{Decode, MySqlOptions, MySqlStore, Options, SqliteStore, recorder};
use punctual_testbed::MariaDb;

use crate::calls::{Call, Reply, carry_out, everything};
use crate::steps::{NAMES, Step, World, Wrong, any_step};
use crate::{block_on, model, recorded, recording_model};

/// From so many on, all that is to come to pass does.
const ENOUGH_CASES: u32 = 200;
/// Cases of SQLite for one of MariaDB, where a new database takes longer than all that is done with it.
const SQLITE_CASES_PER_MARIADB_CASE: u32 = 8;

/// How often something came to pass.
type Seen = BTreeMap<String, u64>;

/// Both stores, and what the callers know.
struct Pair<'a, S> {
    model: ModelStore,
    real: S,
    world: World,
    seen: &'a RefCell<Seen>,
}

impl<S: Store + Catalog> Pair<'_, S> {
    async fn carry_out(&mut self, call: Call) -> Result<Reply, TestCaseError> {
        let expected = carry_out(&self.model, call.clone(), self.world.now).await;
        let found = carry_out(&self.real, call.clone(), self.world.now).await;
        prop_assert_eq!(&expected, &found, "the model on the left, the real store on the right: {:#?}", call);
        self.world.learn(&call, &expected);
        if matches!(call, Call::Apply { dry_run: false, .. }) {
            self.learn_tasks().await;
        }
        Ok(expected)
    }

    /// Ids are given in the order in which tasks were made.
    async fn learn_tasks(&mut self) {
        for task in 1.. {
            let Some(name) = self.model.name_of(punctual_core::ids::TaskId(task)).await.expect("an answer") else { return };
            self.world.learn_task(&name);
        }
    }

    async fn run(&mut self, steps: Vec<Step>) -> Result<(), TestCaseError> {
        for step in World::beginning().into_iter().chain(steps) {
            let wrong = if let Step::Commit { wrong, .. } = &step { Some(*wrong) } else { None };
            for call in self.world.calls(step) {
                let name = kind(&call);
                let reply = self.carry_out(call).await?;
                let outcome = match (wrong, &reply) {
                    (Some(wrong), reply) => format!("{wrong:?} {reply:?}"),
                    (None, Reply::Submitted(submitted)) => kind(submitted),
                    (None, Reply::Failed(_)) => format!("{name} failed"),
                    (None, _) => name,
                };
                *self.seen.borrow_mut().entry(outcome).or_default() += 1;
            }
        }
        for id in self.world.instances().collect::<Vec<_>>() {
            self.carry_out(Call::Outputs(id)).await?;
        }
        for call in everything(&NAMES) {
            self.carry_out(call).await?;
        }
        Ok(())
    }
}

/// The name of a variant.
fn kind(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Runs some cases, each on a pair of new stores, and looks that what is to come to pass did.
fn compare(config: ProptestConfig, case: impl Fn(Vec<Step>, &RefCell<Seen>) -> Result<(), TestCaseError>) {
    let cases = config.cases;
    let seen = RefCell::new(Seen::new());
    let mut runner = TestRunner::new(config);
    if let Err(error) = runner.run(&proptest::collection::vec(any_step(), 1..60), |steps| case(steps, &seen)) {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    if cases < ENOUGH_CASES {
        return;
    }
    // A comparison of nothing with nothing would be equal too.
    let some = |what: String| assert!(seen.get(&what).is_some_and(|count| *count > 0), "{what} never came to pass: {seen:#?}");
    Wrong::ALL.iter().for_each(|wrong| some(format!("Some({wrong:?}) Refused")));
    let answers = [
        "None Committed",
        "None Refused",
        "Accepted",
        "Repeated",
        "KeyTaken",
        "NoSuchTask",
        "NoSuchInstance",
        "StillRuns",
        "IsPart",
        "Trigger failed",
    ];
    answers.iter().for_each(|answer| some((*answer).to_owned()));
}

#[test]
fn sqlite_does_what_the_model_does() {
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() };
    compare(config, |steps, seen| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::new(folder.path().join("punctual.db"), decode());
        options.partitions = PARTITIONS;
        let real = SqliteStore::open(options).expect("a store");
        block_on(Pair { model: model(), real, world: World::new(), seen }.run(steps))
    });
}

/// The codec of the records. One that can't be decoded is for the model what its writer said it was.
fn decode_all() -> Decode {
    let decode = decode();
    Arc::new(move |document| {
        decode(document).or_else(|reason| {
            let fields: serde_json::Value = serde_json::from_str(document).map_err(|_| reason)?;
            Ok(definition(fields["name"].as_str().unwrap_or_default(), ""))
        })
    })
}

#[test]
fn mariadb_does_what_the_model_does_and_records_it() {
    // What survives a crash is not what is looked at here.
    let server = MariaDb::start_with(&["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]).expect("a server");
    let count = std::cell::Cell::new(0);
    let all = ProptestConfig::default();
    let cases = all.cases.div_ceil(SQLITE_CASES_PER_MARIADB_CASE);
    let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 100, ..all };
    compare(config, |steps, seen| {
        count.set(count.get() + 1);
        let name = format!("case{}", count.get());
        let url = server.create(&name).expect("a database");
        let mut options = MySqlOptions::new(&url, decode()).callers_clock();
        options.partitions = PARTITIONS;
        let outcome = block_on(async {
            let real = MySqlStore::open(options).await.expect("a store");
            recorder::install(&url).await.expect("it records");
            let history = Recorder::default();
            let mut pair = Pair { model: recording_model(&history), real, world: World::new(), seen };
            pair.run(steps).await?;
            let found = recorder::read(&url, decode_all()).await.expect("what was recorded");
            let (expected, found) = (recorded::of_model(&history.take()), recorded::of_database(found));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                prop_assert_eq!(expected, found, "record {}: the model's on the left", place);
            }
            prop_assert_eq!(expected.len(), found.len());
            pair.real.close().await;
            Ok(())
        });
        server.run(&format!("DROP DATABASE {name};")).expect("it goes");
        outcome
    });
}
