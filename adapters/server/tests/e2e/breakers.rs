//! Circuit breakers as a user sees them.

use serde_json::json;

use crate::support::{Folder, eventually};

#[test]
fn an_open_breaker_is_in_the_status_until_its_downstream_works_again() {
    let folder = Folder::with(
        "tasks:\n  - name: pay\n    trigger: manual\n    command: test -e works\n    downstream: billing\n    \
         circuit_breaker: {failures: 2, open: 1s}\n    concurrency: {max_running: 3}\n    retry: {max_attempts: 100, backoff: fixed, first: 10ms, jitter: none}\n",
    );
    let dev = folder.dev();
    assert_eq!(dev.get("/api/v1/cluster")["breakers"], json!([]));
    for _ in 0..3 {
        assert_eq!(dev.cli(&["trigger", "pay"]).code, Some(0));
    }
    let breaker = eventually("the breaker to open", || {
        let breakers = dev.get("/api/v1/cluster")["breakers"].clone();
        (breakers[0]["state"] == "open" && breakers[0]["held"] == 3).then(|| breakers[0].clone())
    });
    assert_eq!(breaker["downstream"], "billing");
    assert!(breaker["failures"].as_u64().unwrap() >= 2 && breaker["probe_in_ms"].as_u64().unwrap() <= 1_000, "{breaker}");
    let shown = dev.cli(&["status"]).stdout;
    assert!(shown.contains("BREAKER") && shown.contains("billing"), "{shown}");

    folder.write("works", "");
    eventually("all to go on", || (dev.instances("pay").iter().all(|instance| instance["state"] == "succeeded")).then_some(()));
    let is_closed = |breaker: &serde_json::Value| breaker["state"] == "closed" && breaker["held"] == 0;
    assert!(dev.get("/api/v1/cluster")["breakers"].as_array().unwrap().iter().all(is_closed));
    dev.stop();
}
