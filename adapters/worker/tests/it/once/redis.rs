//! Redis.

use std::time::Duration;

use punctual_testbed::Redis;
use punctual_worker::once::Key;
use punctual_worker::once::redis::{Ran, run};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError};

use super::{Numbers, key};

const KEEP: Duration = Duration::from_secs(3_600);

async fn open() -> (MultiplexedConnection, Redis) {
    let server = Redis::start().expect("a server");
    (connect(&server).await, server)
}

async fn connect(server: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

async fn count(redis: &mut MultiplexedConnection, key: &Key, counter: u64) -> Result<Ran<(u64,)>, RedisError> {
    let mut commands = redis::pipe();
    commands.incr(format!("{{own}}:{counter}"), 1);
    run(redis, key, "own", &commands, KEEP).await
}

#[tokio::test]
async fn happens_once_and_answers_what_the_commands_answered() {
    let (mut redis, _server) = open().await;
    let mut commands = redis::pipe();
    commands.set("{own}:a", "x").get("{own}:none").incr("{own}:b", 5).get("{own}:a");
    let first = run::<(String, Option<String>, i64, String)>(&mut redis, &key(1, 5), "own", &commands, KEEP).await.expect("an answer");
    assert_eq!(first, Ran::First(("OK".to_owned(), None, 5, "x".to_owned())));
    for fence in [5, 9, 2] {
        let again = run::<()>(&mut redis, &key(1, fence), "own", &commands, KEEP).await.expect("an answer");
        assert_eq!(again, Ran::Repeated, "fence {fence}");
    }
    assert_eq!(redis.get::<_, i64>("{own}:b").await.expect("a number"), 5);
    let mark = format!("{{own}}:punctual_once:{}", key(1, 5).text());
    let kept_ms: i64 = redis.pttl(mark).await.expect("an expiry");
    assert!((1..=3_600_000).contains(&kept_ms), "{kept_ms}");
}

/// It may be in the middle of what a newer one does anew.
#[tokio::test]
async fn an_older_attempt_does_nothing_after_a_newer_one() {
    let (mut redis, _server) = open().await;
    let step = |fence, name: &str| key(1, fence).step(name);
    assert_eq!(count(&mut redis, &step(10, "one"), 1).await.expect("an answer"), Ran::First((1,)));
    assert_eq!(count(&mut redis, &step(9, "two"), 1).await.expect("an answer"), Ran::Superseded);
    assert_eq!(count(&mut redis, &step(9, "one"), 1).await.expect("an answer"), Ran::Repeated);
    assert_eq!(count(&mut redis, &step(10, "two"), 1).await.expect("an answer"), Ran::First((2,)));
    assert_eq!(count(&mut redis, &step(11, "three"), 1).await.expect("an answer"), Ran::First((3,)));
    assert_eq!(count(&mut redis, &key(2, 1), 1).await.expect("another instance"), Ran::First((4,)));
}

#[tokio::test]
async fn what_is_refused_half_way_counts_as_done() {
    let (mut redis, _server) = open().await;
    let mut commands = redis::pipe();
    commands.incr("{own}:a", 1).lpush("{own}:a", "x").incr("{own}:a", 1);
    let refused = run::<()>(&mut redis, &key(1, 1), "own", &commands, KEEP).await.expect_err("a number is no list");
    assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
    assert_eq!(run::<()>(&mut redis, &key(1, 2), "own", &commands, KEEP).await.expect("an answer"), Ran::Repeated);
    assert_eq!(redis.get::<_, i64>("{own}:a").await.expect("a number"), 1);
}

#[tokio::test]
async fn a_mark_goes_when_its_time_is_over() {
    let (mut redis, _server) = open().await;
    let commands = redis::pipe();
    let soon = Duration::from_millis(50);
    assert_eq!(run(&mut redis, &key(1, 1), "own", &commands, soon).await.expect("an answer"), Ran::First(()));
    tokio::time::sleep(2 * soon).await;
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut redis).await.expect("a number");
    assert_eq!(keys, 0);
}

/// Whatever the order in which attempts come, over several connections, each instance counts once.
#[tokio::test]
async fn of_many_at_once_one_is_the_first() {
    const INSTANCES: u64 = 20;
    let (mut redis, server) = open().await;
    let mut numbers = Numbers(11);
    let connections = [connect(&server).await, connect(&server).await, connect(&server).await];
    let mut attempts = Vec::new();
    for _ in 0..400 {
        let (instance, fence) = (numbers.below(INSTANCES), numbers.below(6));
        let mut redis = connections[usize::try_from(numbers.below(3)).expect("a small number")].clone();
        attempts.push(tokio::spawn(async move { count(&mut redis, &key(instance, fence), instance).await.expect("an answer") }));
    }
    let mut firsts = 0;
    for attempt in attempts {
        match attempt.await.expect("no panic") {
            Ran::First(counted) => {
                assert_eq!(counted, (1,));
                firsts += 1;
            }
            Ran::Repeated => {}
            Ran::Superseded => panic!("the only step was done"),
        }
    }
    assert_eq!(firsts, INSTANCES);
    for instance in 0..INSTANCES {
        assert_eq!(redis.get::<_, u64>(format!("{{own}}:{instance}")).await.expect("a number"), 1);
    }
}
