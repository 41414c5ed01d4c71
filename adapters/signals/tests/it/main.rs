//! Wake-ups over a real Redis.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use punctual_driver::link::ToSchedulerNode;
use punctual_driver::ports::{Signals, Wake};
use punctual_signals::{LocalSignals, RedisSignals, State};
use punctual_testbed::Redis;
use tokio::sync::mpsc;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

struct Replica {
    signals: RedisSignals,
    node: mpsc::Receiver<ToSchedulerNode>,
}

impl Replica {
    fn of(url: &str, cluster: &str) -> Replica {
        let (send, node) = mpsc::channel(64);
        Replica { signals: RedisSignals::connect(url.parse().unwrap(), cluster, send), node }
    }

    /// Connected, and with nothing more to hear.
    async fn ready(url: &str, cluster: &str) -> Replica {
        let mut replica = Replica::of(url, cluster);
        replica.is(|state| *state == State::Up).await;
        replica.hears().await;
        replica.hears().await;
        replica
    }

    async fn is(&self, wanted: impl FnMut(&State) -> bool) -> State {
        let mut state = self.signals.state();
        let state = timeout(LONG, state.wait_for(wanted)).await.expect("it comes to that").unwrap();
        state.clone()
    }

    async fn hears(&mut self) -> &'static str {
        match timeout(LONG, self.node.recv()).await.expect("somebody speaks") {
            Some(ToSchedulerNode::InboxSignalled) => "inbox",
            Some(ToSchedulerNode::LeasesSignalled) => "leases",
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn every_replica_of_the_cluster_is_woken_up_and_no_other() {
    let redis = Redis::start().unwrap();
    let mut one = Replica::ready(&redis.url(), "a").await;
    let mut two = Replica::ready(&redis.url(), "a").await;
    let mut other = Replica::ready(&redis.url(), "b").await;
    one.signals.wake(Wake::Inbox);
    assert_eq!((one.hears().await, two.hears().await), ("inbox", "inbox"));
    two.signals.wake(Wake::Leases);
    assert_eq!(two.hears().await, "leases");
    // Its own comes back to it over Redis.
    assert_eq!((one.hears().await, one.hears().await), ("inbox", "leases"));
    other.signals.wake(Wake::Leases);
    assert_eq!(other.hears().await, "leases", "the first that it hears is its own");
}

#[tokio::test]
async fn many_wake_ups_in_a_row_are_few_on_the_wire() {
    let redis = Redis::start().unwrap();
    let one = Replica::ready(&redis.url(), "a").await;
    let mut two = Replica::ready(&redis.url(), "a").await;
    for _ in 0..10_000 {
        one.signals.wake(Wake::Inbox);
    }
    assert_eq!(two.hears().await, "inbox");
    two.signals.wake(Wake::Leases);
    let mut heard = 0;
    while two.hears().await == "inbox" {
        heard += 1;
    }
    assert!(heard <= 2, "{heard} more");
}

#[tokio::test]
async fn a_redis_that_comes_back_is_found_and_what_was_missed_is_made_up_for() {
    let mut redis = Redis::start().unwrap();
    let mut one = Replica::ready(&redis.url(), "a").await;
    redis.kill();
    let State::Down { reason } = one.is(|state| *state != State::Up).await else { unreachable!() };
    assert!(reason.contains(&redis.url()), "{reason}");
    // Nobody hears it but the process itself.
    one.signals.wake(Wake::Leases);
    assert_eq!(one.hears().await, "leases");
    redis.start_again().unwrap();
    one.is(|state| *state == State::Up).await;
    let mut heard = [one.hears().await, one.hears().await];
    heard.sort_unstable();
    assert_eq!(heard, ["inbox", "leases"]);
}

#[tokio::test]
async fn a_redis_that_stands_still_is_noticed() {
    let redis = Redis::start().unwrap();
    let one = Replica::ready(&redis.url(), "a").await;
    redis.signal("STOP");
    let state = one.is(|state| *state != State::Up).await;
    redis.signal("CONT");
    assert!(matches!(&state, State::Down { reason } if reason.contains("no answer came in time")), "{state:?}");
    one.is(|state| *state == State::Up).await;
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_shown() {
    let redis = Redis::start_with(&["--requirepass", "right"]).unwrap();
    let address = |password: &str| format!("redis://:{password}@127.0.0.1:{}", redis.port());
    let wrong = Replica::of(&address("wr0ng"), "a");
    let state = wrong.is(|state| matches!(state, State::Down { reason } if reason.contains("Redis "))).await;
    let State::Down { reason } = state else { unreachable!() };
    assert!(reason.to_lowercase().contains("password") && !reason.contains("wr0ng"), "{reason}");
    Replica::ready(&address("right"), "a").await;
}

#[tokio::test]
async fn sentinels_are_asked_for_the_primary_and_of_a_cluster_any_node_will_do() {
    let redis = Redis::start().unwrap();
    // Answers like a sentinel.
    let sentinel = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sentinel_port = sentinel.local_addr().unwrap().port();
    let port = redis.port().to_string();
    std::thread::spawn(move || {
        for stream in sentinel.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = [0; 4_096];
            while let Ok(count @ 1..) = stream.read(&mut asked) {
                let text = String::from_utf8_lossy(&asked[..count]).into_owned();
                let commands = text.matches('*').count();
                let answer = match text.contains("get-master-addr-by-name") {
                    true => format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()),
                    false => "+OK\r\n".repeat(commands),
                };
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    let nobody = punctual_testbed::free_port();
    Replica::ready(&format!("redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{sentinel_port}/main"), "a").await;
    Replica::ready(&format!("redis+cluster://127.0.0.1:{nobody},127.0.0.1:{}", redis.port()), "a").await;
}

#[tokio::test]
async fn a_replica_that_is_alone_wakes_itself_up() {
    let (send, mut node) = mpsc::channel(1);
    let signals = LocalSignals::new(send);
    // The second one finds the queue full: it is awake.
    signals.wake(Wake::Leases);
    signals.wake(Wake::Inbox);
    assert!(matches!(node.recv().await, Some(ToSchedulerNode::LeasesSignalled)));
    assert!(node.try_recv().is_err());
}
