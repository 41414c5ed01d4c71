//! Random calls, carried out on the model and on SQLite: each reply is the same, and so is all that can be read at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use punctual_driver::ports::Catalog;
use punctual_sim::model::ModelStore;
use punctual_store::conformance::{PARTITIONS, decode};
use punctual_store::{Options, SqliteStore};

use crate::calls::{Call, Reply, carry_out, everything};
use crate::steps::{NAMES, Step, World, Wrong, any_step};
use crate::{block_on, model};

/// How often something came to pass.
type Seen = BTreeMap<String, u64>;

/// Both stores, and what the callers know.
struct Pair<'a> {
    model: ModelStore,
    sqlite: SqliteStore,
    world: World,
    seen: &'a RefCell<Seen>,
}

impl Pair<'_> {
    async fn carry_out(&mut self, call: Call) -> Result<Reply, TestCaseError> {
        let expected = carry_out(&self.model, call.clone(), self.world.now).await;
        let found = carry_out(&self.sqlite, call.clone(), self.world.now).await;
        prop_assert_eq!(&expected, &found, "the model on the left, SQLite on the right: {:#?}", call);
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

#[test]
fn the_model_does_what_sqlite_does() {
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() };
    let cases = config.cases;
    let seen = RefCell::new(Seen::new());
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&proptest::collection::vec(any_step(), 1..60), |steps| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::new(folder.path().join("punctual.db"), decode());
        options.partitions = PARTITIONS;
        let sqlite = SqliteStore::open(options).expect("a store");
        block_on(Pair { model: model(), sqlite, world: World::new(), seen: &seen }.run(steps))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    if cases < 200 {
        return;
    }
    // A comparison of nothing with nothing would be equal too.
    let some = |what: String| assert!(seen.get(&what).is_some_and(|count| *count > 0), "{what} never came to pass: {seen:#?}");
    Wrong::ALL.iter().for_each(|wrong| some(format!("Some({wrong:?}) Refused")));
    let answers = ["None Committed", "None Refused", "Accepted", "Repeated", "KeyTaken", "NoSuchTask", "NoSuchInstance", "Trigger failed"];
    answers.iter().for_each(|answer| some((*answer).to_owned()));
}
