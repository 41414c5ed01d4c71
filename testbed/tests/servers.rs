//! The servers start, answer, come back with their data, follow each other, and are gone when they should be.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use punctual_testbed::{MariaDb, Redis};

fn is_listening(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[test]
fn what_mariadb_has_confirmed_outlives_a_crash_of_it() {
    let mut database = MariaDb::start().unwrap();
    database.create("a").unwrap();
    database.run("CREATE TABLE a.t (x INT); INSERT INTO a.t VALUES (7);").unwrap();
    database.kill();
    assert!(!is_listening(database.port()));
    database.start_again().unwrap();
    assert_eq!(database.run("SELECT x FROM a.t;").unwrap().trim(), "7");
    let port = database.port();
    drop(database);
    assert!(!is_listening(port));
}

#[test]
fn a_promoted_replica_has_what_the_primary_has_confirmed() {
    let (mut primary, replica) = MariaDb::start_pair().unwrap();
    primary.create("a").unwrap();
    primary.run("CREATE TABLE a.t (x INT);").unwrap();
    for number in 0..20 {
        primary.run(&format!("INSERT INTO a.t VALUES ({number});")).unwrap();
    }
    assert_eq!(primary.run("SHOW STATUS LIKE 'Rpl_semi_sync_master_status';").unwrap().split_whitespace().last(), Some("ON"));
    primary.kill();
    replica.promote().unwrap();
    assert_eq!(replica.run("SELECT COUNT(*) FROM a.t; INSERT INTO a.t VALUES (99);").unwrap().trim(), "20");
}

#[test]
fn redis_answers_and_forgets() {
    let mut redis = Redis::start().unwrap();
    let ask = |port: u16, text: &str| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = [0; 64];
        let count = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    assert_eq!(ask(redis.port(), "SET a 1\r\n"), "+OK\r\n");
    redis.kill();
    redis.start_again().unwrap();
    assert_eq!(ask(redis.port(), "GET a\r\n"), "$-1\r\n");
}
