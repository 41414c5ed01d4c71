//! The handler of the example, as its users would test it.

#[path = "../../examples/reminder.rs"]
#[expect(dead_code, reason = "nothing is connected here")]
mod example;

use punctual_core::protocol::End;
use punctual_worker::testing::{Attempt, run};
use serde_json::json;

#[tokio::test]
async fn a_reminder_goes_out_under_its_key() {
    let attempt = Attempt::default();
    let outcome = attempt.run(example::send_reminder, json!({"number": 7, "address": "ada@example.org"})).await;
    let key = attempt.context().idempotency_key();
    assert_eq!(outcome.end, End::Succeeded, "{outcome:?}");
    assert_eq!(outcome.output, format!("reminding ada@example.org of order 7\n{{\"message\":\"{key}\"}}"));
}

#[tokio::test]
async fn an_order_without_an_address_is_not_tried_again() {
    let outcome = run(example::send_reminder, json!({"number": 7, "address": "nowhere"})).await;
    assert_eq!((outcome.end, outcome.detail.as_deref()), (End::FailedForGood, Some("order 7 has no address")));
}
