//! Handlers of one's own.

use std::time::Duration;

use punctual_core::limits::{OUTPUT_BYTES_MAX, RESULT_BYTES_MAX};
use punctual_core::protocol::{End, MapRole, Node};
use punctual_driver::ports::Stop;
use punctual_worker::testing::{Attempt, run};
use punctual_worker::{Band, BuildError, HandlerError, Shard, TaskContext, TraitsError, Worker};
use serde_json::json;

async fn double(context: TaskContext, number: u32) -> Result<u32, HandlerError> {
    context.log(format!("attempt {}", context.attempt()));
    number.checked_mul(2).ok_or_else(|| HandlerError::permanent("too large"))
}

#[tokio::test]
async fn a_result_is_the_output_behind_what_was_logged() {
    let outcome = run(double, json!(21)).await;
    assert_eq!((outcome.end, &*outcome.output), (End::Succeeded, "attempt 1\n42"));
    assert_eq!(outcome.result.as_deref(), Some("42"));
}

#[tokio::test]
async fn a_result_is_handed_on_where_it_fits() {
    // With its quotes.
    for (length, detail) in [(RESULT_BYTES_MAX - 2, None), (RESULT_BYTES_MAX - 1, Some("handed on")), (OUTPUT_BYTES_MAX, Some("too large"))]
    {
        let text = move |_: TaskContext, (): ()| async move { Ok::<_, HandlerError>("x".repeat(length)) };
        let outcome = run(text, json!(null)).await;
        assert_eq!((outcome.end, outcome.result.is_some()), (End::Succeeded, detail.is_none()), "{length}");
        assert_eq!(outcome.output.len() == length + 2, length < OUTPUT_BYTES_MAX, "{length}");
        match (outcome.detail, detail) {
            (Some(said), Some(expected)) => assert!(said.contains(expected), "{said}"),
            (said, expected) => assert_eq!(said.as_deref(), expected),
        }
    }
    let nothing = |_: TaskContext, (): ()| async { Ok::<_, HandlerError>(()) };
    assert_eq!(run(nothing, json!(null)).await.result, None);
    assert_eq!(run(double, json!(u32::MAX)).await.result, None);
}

#[tokio::test]
async fn what_a_handler_returns_is_the_list_and_what_reduces_is_given_the_results() {
    let mut attempt = Attempt::default();
    attempt.assignment.map = Some(MapRole::List);
    let lists = |_: TaskContext, (): ()| async { Ok::<_, HandlerError>(["a", "b\nc"]) };
    let outcome = attempt.run(lists, json!(null)).await;
    assert_eq!((outcome.end, outcome.items.as_deref(), outcome.result), (End::Succeeded, Some("\"a\"\n\"b\\nc\""), None));
    let mut attempt = Attempt::default();
    attempt.assignment.map = Some(MapRole::List);
    assert_eq!(attempt.run(double, json!(1)).await.end, End::FailedForGood, "a number is no list");
    let mut attempt = Attempt::default();
    attempt.assignment.map = Some(MapRole::Reduce { results: "1\n2\n".into() });
    let sums = |context: TaskContext, (): ()| async move {
        Ok::<_, HandlerError>(context.results().unwrap_or_default().lines().filter_map(|line| line.parse::<u32>().ok()).sum::<u32>())
    };
    assert_eq!(attempt.run(sums, json!(null)).await.result.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_handler_knows_its_shard_and_its_run() {
    let tells = |context: TaskContext, (): ()| async move {
        let shard = context.shard().map(|shard| (shard.index, shard.count, shard.key.as_deref().map(str::to_owned)));
        Ok::<_, HandlerError>((context.run(), shard))
    };
    assert_eq!(run(tells, json!(null)).await.result.as_deref(), Some("[1,null]"));
    let mut attempt = Attempt::default();
    attempt.assignment.run = 3;
    attempt.assignment.shard = Some(Shard { index: 1, count: 5, key: Some("eu".into()) });
    assert_eq!(attempt.run(tells, json!(null)).await.result.as_deref(), Some(r#"[3,[1,5,"eu"]]"#));
}

#[tokio::test]
async fn a_handler_knows_its_node_and_what_was_answered_before() {
    let tells = |context: TaskContext, (): ()| async move {
        Ok::<_, HandlerError>((context.node().map(str::to_owned), context.inputs().map(str::to_owned)))
    };
    assert_eq!(run(tells, json!(null)).await.result.as_deref(), Some("[null,null]"));
    let mut attempt = Attempt::default();
    attempt.assignment.node = Some(Node { name: "load".into(), inputs: "{\"a\":1}".into() });
    assert_eq!(attempt.run(tells, json!(null)).await.result.as_deref(), Some(r#"["load","{\"a\":1}"]"#));
}

#[tokio::test]
async fn a_payload_of_another_shape_fails_for_good() {
    let outcome = run(double, json!("many")).await;
    assert_eq!(outcome.end, End::FailedForGood);
    assert!(outcome.detail.expect("a detail").contains("the payload is not what this handler takes"));
}

#[tokio::test]
async fn errors_say_whether_they_may_pass() {
    assert_eq!(run(double, json!(u32::MAX)).await.end, End::FailedForGood);
    let fails = |_: TaskContext, (): ()| async { Ok::<_, HandlerError>("x".parse::<u32>()?) };
    let outcome = run(fails, json!(null)).await;
    assert_eq!((outcome.end, outcome.detail.as_deref()), (End::Failed, Some("invalid digit found in string")));
}

#[tokio::test]
async fn an_error_may_say_how_long_to_wait() {
    let busy = |_: TaskContext, (): ()| async { Err::<(), _>(HandlerError::retry_after(Duration::from_secs(90), "busy")) };
    let outcome = run(busy, json!(null)).await;
    assert_eq!((outcome.end, outcome.detail.as_deref()), (End::Failed, Some("busy")));
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(90)));
    let fails = |_: TaskContext, (): ()| async { Err::<(), _>(HandlerError::retry("busy")) };
    assert_eq!(run(fails, json!(null)).await.retry_after, None);
}

#[tokio::test]
async fn a_panic_is_a_failure_and_keeps_what_was_logged() {
    async fn panics(context: TaskContext, (): ()) -> Result<(), HandlerError> {
        context.log("before");
        panic!("no more {}", "paper")
    }
    let outcome = run(panics, json!(null)).await;
    assert_eq!((outcome.end, outcome.detail.as_deref()), (End::Failed, Some("the handler panicked: no more paper")));
    assert_eq!(outcome.output, "before\n");
}

#[tokio::test]
async fn a_handler_that_is_asked_to_end_may_clean_up_and_one_that_goes_on_is_dropped() {
    let attempt = Attempt::default();
    let stop = attempt.stop.clone();
    let ends = move |context: TaskContext, (): ()| {
        let stop = stop.clone();
        async move {
            stop.send_replace(Stop::Cancel);
            context.cancelled().await;
            context.log("cleaned up");
            Err::<(), _>(HandlerError::retry("cancelled"))
        }
    };
    let outcome = attempt.run(ends, json!(null)).await;
    assert_eq!((outcome.end, &*outcome.output), (End::Cancelled, "cleaned up\n"));

    let attempt = Attempt::default();
    let stop = attempt.stop.clone();
    let goes_on = move |_: TaskContext, (): ()| {
        stop.send_replace(Stop::Kill);
        std::future::pending::<Result<(), HandlerError>>()
    };
    assert_eq!(attempt.run(goes_on, json!(null)).await.end, End::Cancelled);
}

#[test]
fn a_worker_that_could_not_work_is_not_built() {
    let builder = || Worker::builder().server("127.0.0.1:8651").name("w1");
    assert!(builder().handler("double", double).build().is_ok());
    assert_eq!(builder().build().err(), Some(BuildError::NothingToDo));
    assert_eq!(builder().slots(0).http(true).build().err(), Some(BuildError::NothingToDo));
    assert_eq!(Worker::builder().server("127.0.0.1:8651").http(true).build().err(), Some(BuildError::NoName));
    for name in ["double", "command"] {
        let refused = builder().handler("double", double).handler(name, double).build().err();
        assert_eq!(refused, Some(BuildError::NameTaken { name: name.to_owned() }));
    }
    assert!(matches!(Worker::builder().name("w1").http(true).build().err(), Some(BuildError::Dial(_))));
}

#[test]
fn what_a_worker_says_of_itself_is_checked() {
    let builder = || Worker::builder().server("127.0.0.1:8651").name("w1").slots(4).http(true);
    let whole = builder().tag("zone", "eu").tag("gpu", "true").version("1.4.0").reserve(Band::Urgent, 3).reserve(Band::Normal, 1);
    assert!(whole.build().is_ok());
    assert!(matches!(builder().tag("zone", "").build().err(), Some(BuildError::Traits(TraitsError::Tag(_)))));
    assert!(matches!(builder().tag("a=b", "c").build().err(), Some(BuildError::Traits(TraitsError::Tag(_)))));
    assert!(matches!(builder().version("new").build().err(), Some(BuildError::Version { version, .. }) if version == "new"));
    assert!(matches!(builder().reserve(Band::Urgent, 5).build().err(), Some(BuildError::Traits(TraitsError::Reserved(_)))));
    assert_eq!(builder().reserve(Band::Low, 1).build().err(), Some(BuildError::ReservedForAll));
}
