//! Replicas on a real MariaDB and Redis, workers over gRPC, as real processes that get hurt.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use punctual_testbed::{MariaDb, Redis, free_port};
use serde_json::{Value, json};

use crate::support::{Dev, Folder, eventually, request, within};

/// Loops that write down each run.
const LOOPS: usize = 8;

fn loops() -> String {
    let mut text = "tasks:\n".to_owned();
    for number in 0..LOOPS {
        text += &format!(
            "  - name: loop-{number}\n    trigger: {{fixed_rate: 1s}}\n    misfire: {{action: fire_all, limit: 100}}\n    command: echo \"$PUNCTUAL_KEY\" >> ran\n"
        );
    }
    text + "  - name: by-hand\n    trigger: manual\n    command: echo \"$PUNCTUAL_KEY\" >> ran\n"
}

pub(crate) struct Cluster {
    pub(crate) folder: Folder,
    database: MariaDb,
    url: String,
    redis: Option<Redis>,
}

/// A replica, and where workers reach it.
pub(crate) struct Replica {
    pub(crate) process: Dev,
    pub(crate) workers: String,
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        let database = MariaDb::start().unwrap();
        let url = database.create("cluster").unwrap();
        Cluster { folder: Folder::with(&loops()), database, url, redis: None }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(arguments).current_dir(self.folder.path("")).env("PUNCTUAL_DATABASE", &self.url);
        command
    }

    pub(crate) fn server(&self, name: &str) -> Replica {
        self.server_with(name, &[])
    }

    fn server_with(&self, name: &str, environment: &[(&str, &str)]) -> Replica {
        let workers = format!("127.0.0.1:{}", free_port());
        let mut command = self.command(&["server", "--name", name, "--listen", "127.0.0.1:0", "--listen-workers", &workers]);
        command.envs(environment.iter().copied());
        if let Some(redis) = &self.redis {
            command.env("PUNCTUAL_REDIS", redis.url());
        }
        let process = Dev::spawn(command);
        process.address();
        Replica { process, workers }
    }

    pub(crate) fn worker(&self, replica: &Replica, name: &str) -> Dev {
        let worker = Dev::spawn(self.command(&["worker", "--name", name, "--server", &replica.workers, "--allow-commands"]));
        worker.says("connected");
        worker
    }

    pub(crate) fn apply(&self, replica: &Replica) {
        let api = format!("http://{}", replica.process.address());
        let applied = self.folder.punctual(&["apply", "tasks.yaml", "--api", &api]);
        assert_eq!(applied.code, Some(0), "{}{}", applied.stdout, applied.stderr);
    }

    /// How often each key was run.
    fn ran(&self) -> BTreeMap<String, usize> {
        let mut ran = BTreeMap::new();
        for key in self.folder.read("ran").lines() {
            *ran.entry(key.to_owned()).or_default() += 1;
        }
        ran
    }
}

impl Replica {
    fn status(&self) -> Value {
        self.process.get("/api/v1/cluster")
    }

    /// Waits until so many replicas share all partitions, none with more than its share.
    #[track_caller]
    fn shares_with(&self, count: usize) {
        eventually("all partitions have owners", || {
            let status = self.status();
            let owners: Vec<_> = status["partitions"].as_array()?.iter().filter_map(|partition| partition["owner"].as_str()).collect();
            let share = owners.len().div_ceil(count);
            let mut each = BTreeMap::new();
            owners.iter().for_each(|owner| *each.entry(*owner).or_insert(0) += 1);
            (owners.len() == 64 && each.len() == count && each.values().all(|partitions| *partitions <= share)).then_some(())
        });
    }

    /// Waits until every loop has fired for another `more` fire times.
    #[track_caller]
    pub(crate) fn fires(&self, more: usize) {
        let newest = |task: &str| -> Option<String> {
            // The database may be down just now.
            let path = format!("/api/v1/instances?limit=1&task={task}");
            let answer = request(self.process.address(), "GET", &path, &[], b"");
            let page = (answer.status == 200).then(|| answer.json())?;
            Some(page["instances"][0]["fire_time"].as_str()?.to_owned())
        };
        for number in 0..LOOPS {
            let task = format!("loop-{number}");
            let mut seen = BTreeSet::new();
            eventually("each loop fires on", || {
                seen.extend(newest(&task));
                (seen.len() > more).then_some(())
            });
        }
    }
}

/// C304: two replicas whose clocks are three minutes apart, and a worker with the right time. Each second fires once, and at its time: by the
/// database's clock, whatever the machines think.
#[test]
fn replicas_whose_clocks_differ_fire_each_second_once() {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
    assert!(std::path::Path::new(&library).is_file(), "{library} comes with Debian's faketime");
    let clock = |by| [("LD_PRELOAD", &*library), ("FAKETIME", by), ("DONT_FAKE_MONOTONIC", "1")];
    let cluster = Cluster::new();
    let (early, late) = (cluster.server_with("early", &clock("-90s")), cluster.server_with("late", &clock("+90s")));
    early.shares_with(2);
    let _workers = [cluster.worker(&early, "w1"), cluster.worker(&late, "w2")];
    cluster.apply(&early);
    late.fires(1);
    check_all(&cluster, &early, false);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    for number in 0..LOOPS {
        for instance in early.process.instances(&format!("loop-{number}")) {
            let at = |field: &str| instance[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
            let (fire_time, created) = (at("fire_time"), at("created_at"));
            assert!(created >= fire_time && created - fire_time < 5_000, "neither early nor late: {instance:#}");
            assert!((fire_time - now).abs() < 80_000, "by nobody's own clock: {instance:#}");
        }
    }
}

/// That each fire time of each loop, from its first to its last, has one instance or is on record as not fired, and that each instance that
/// succeeded was run once.
#[track_caller]
pub(crate) fn check_all(cluster: &Cluster, replica: &Replica, may_be_passed_over: bool) {
    let ran = cluster.ran();
    for number in 0..LOOPS {
        let task = format!("loop-{number}");
        let instances = replica.process.instances(&task);
        let seconds = |time: &Value| -> i64 {
            let time = time.as_str().unwrap();
            time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
        };
        let fired: BTreeSet<i64> = instances.iter().map(|instance| seconds(&instance["fire_time"])).collect();
        assert_eq!(fired.len(), instances.len(), "{task} fired twice for one time");
        let occurrences = replica.process.get(&format!("/api/v1/tasks/{task}/occurrences?limit=1000"));
        let passed_over: u64 = occurrences["occurrences"].as_array().unwrap().iter().map(|passed| passed["count"].as_u64().unwrap()).sum();
        assert!(passed_over == 0 || may_be_passed_over, "{task}: {occurrences:#}");
        let (first, last) = (*fired.first().unwrap(), *fired.last().unwrap());
        assert_eq!((last - first) / 1_000 + 1, fired.len() as i64 + passed_over as i64, "{task}: {fired:?} {occurrences:#}");
        for instance in instances.iter().filter(|instance| instance["state"] == "succeeded") {
            let story = replica.process.instance(instance["id"].as_str().unwrap());
            let attempts = story["attempt"].as_u64().unwrap() as usize;
            let key = ran.iter().filter(|(key, _)| key.contains(&format!("/{}/", instance["fire_time"].as_str().unwrap())));
            assert!(key.map(|(_, times)| times).all(|times| *times <= attempts), "{story:#}");
        }
    }
    assert!(ran.values().all(|times| *times == 1), "{ran:#?}");
}

#[test]
fn a_killed_replica_is_taken_over_and_nothing_is_lost_or_doubled() {
    let cluster = Cluster { redis: Some(Redis::start().unwrap()), ..Cluster::new() };
    let (a, b) = (cluster.server("a"), cluster.server("b"));
    let worker = cluster.worker(&a, "w");
    worker.says(&b.workers);
    a.shares_with(2);
    cluster.apply(&a);
    a.fires(2);
    a.process.kill();
    b.shares_with(1);
    b.fires(3);
    // Any replica takes what is asked for.
    let fired = b.process.cli(&["trigger", "by-hand", "--json"]);
    assert_eq!(fired.code, Some(0), "{}", fired.stderr);
    b.process.instance_in("by-hand", "succeeded");
    check_all(&cluster, &b, false);
    worker.stop();
    b.process.stop();
}

#[test]
fn replicas_that_stop_one_after_the_other_hand_over_without_a_gap() {
    let cluster = Cluster::new();
    let a = cluster.server("a");
    let worker = cluster.worker(&a, "w");
    cluster.apply(&a);
    a.fires(1);
    let b = cluster.server("b");
    a.shares_with(2);
    worker.says(&b.workers);
    a.process.stop();
    b.shares_with(1);
    let c = cluster.server("c");
    b.shares_with(2);
    worker.says(&c.workers);
    c.fires(1);
    b.process.stop();
    c.shares_with(1);
    c.fires(1);
    check_all(&cluster, &c, false);
    worker.stop();
    c.process.stop();
}

#[test]
fn a_database_and_a_redis_that_crash_cost_time_and_nothing_else() {
    let mut cluster = Cluster { redis: Some(Redis::start().unwrap()), ..Cluster::new() };
    let a = cluster.server("a");
    let worker = cluster.worker(&a, "w");
    cluster.apply(&a);
    a.fires(2);
    cluster.redis.take();
    a.process.says("wake-ups between replicas take up to half a second longer");
    cluster.database.kill();
    a.process.says("can't be reached");
    cluster.database.start_again().unwrap();
    a.process.says("the database works again");
    a.fires(3);
    check_all(&cluster, &a, false);
    worker.stop();
    a.process.stop();
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let cluster = Cluster::new();
    cluster.folder.write(
        "tasks.yaml",
        "tasks:\n  - name: long\n    trigger: manual\n    retry: {first: 100ms, cap: 100ms, max_attempts: 5}\n    command: echo $PUNCTUAL_ATTEMPT >> begun; test $PUNCTUAL_ATTEMPT -gt 1 || sleep 60\n",
    );
    let a = cluster.server("a");
    let first = cluster.worker(&a, "w");
    cluster.apply(&a);
    let fired = a.process.cli(&["trigger", "long"]);
    assert_eq!(fired.code, Some(0), "{}", fired.stderr);
    eventually("it has begun", || cluster.folder.read("begun").contains('1').then_some(()));
    first.kill();
    // In its next life it knows that it has nothing: nobody waits for a lease to run out.
    let second = cluster.worker(&a, "w");
    let story = a.process.instance_in("long", "succeeded");
    assert_eq!((&story["attempt"], &story["losses"]), (&json!(2), &json!(1)), "{story:#}");
    second.stop();
    a.process.stop();
}

/// A worker in Rust, with a handler of its own.
#[test]
fn a_handler_of_ones_own_gets_its_payload_and_its_result_is_kept() {
    let cluster = Cluster::new();
    cluster.folder.write("tasks.yaml", "tasks:\n  - {name: greet, trigger: manual, payload: '\"world\"', handler: {name: greet}}\n");
    let a = cluster.server("a");
    cluster.apply(&a);
    let worker = punctual_worker::Worker::builder().server(&a.workers).name("own").handler("greet", |context, name: String| async move {
        let context: punctual_worker::TaskContext = context;
        context.log(format!("attempt {} of {}", context.attempt(), context.task_name()));
        Ok::<_, punctual_worker::HandlerError>(format!("hello {name}"))
    });
    let worker = worker.build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(worker.run_until(async {
            let _ = stopped.await;
        }))
    });
    for (payload, what) in [(None, "hello world"), (Some("\"moon\""), "hello moon")] {
        let mut arguments = vec!["trigger", "greet", "--json"];
        arguments.extend(payload.into_iter().flat_map(|payload| ["--payload", payload]));
        let fired = a.process.cli(&arguments).json();
        let id = fired["instance"]["id"].as_str().unwrap().to_owned();
        eventually("it succeeds", || (a.process.instance(&id)["state"] == "succeeded").then_some(()));
        let logs = a.process.cli(&["logs", &id]).stdout;
        assert!(logs.contains("attempt 1 of greet") && logs.contains(what), "{logs}");
    }
    let _ = stop.send(());
    working.join().unwrap().unwrap();
    a.process.stop();
}

#[test]
fn two_workers_of_one_name_and_wrong_tokens_are_said() {
    let cluster = Cluster::new();
    cluster.folder.write("tokens", "a-token-for-worker-one w1\nanother-long-token\n");
    cluster.folder.write("right", "a-token-for-worker-one\n");
    cluster.folder.write("wrong", "no-token-that-is-known\n");
    let workers = format!("127.0.0.1:{}", free_port());
    let server = cluster.command(&["server", "--listen", "127.0.0.1:0", "--listen-workers", &workers, "--worker-tokens", "tokens"]);
    let server = Dev::spawn(server);
    server.address();
    let worker = |name: &str, token: &str| {
        let mut command = cluster.command(&["worker", "--server", &workers, "--name", name]);
        if !token.is_empty() {
            command.args(["--token-file", token]);
        }
        Dev::spawn(command)
    };
    worker("w1", "").says("wants a token");
    worker("w1", "wrong").says("not a worker's");
    worker("w2", "right").says("w2");
    let first = worker("w1", "right");
    first.says("connected");
    let second = worker("w1", "right");
    second.says("connected");
    first.says("another");
    server.stop();
}

#[test]
fn what_cannot_work_is_refused_with_what_to_do() {
    let mut cluster = Cluster::new();
    let port = cluster.database.port();
    let refused = |cluster: &Cluster, database: &str, more: &[&str]| {
        let arguments = [&["server", "--listen", "127.0.0.1:0", "--listen-workers", "127.0.0.1:0", "--database", database], more].concat();
        let mut process = Dev::spawn(cluster.command(&arguments));
        assert!(!process.ended().success(), "{}", process.told());
        process.told()
    };
    let url = cluster.url.clone();
    for (database, more, what) in [
        (format!("mysql://punctual:wrong@127.0.0.1:{port}/cluster"), &[] as &[&str], "PUN-210"),
        (format!("mysql://punctual:private@127.0.0.1:{port}/nowhere"), &[], "PUN-212"),
        ("postgres://localhost/cluster".to_owned(), &[], "mysql://"),
        (url.clone(), &["--redis", "localhost"], "PUN-320"),
        (url.clone(), &["--worker-tokens", "nothing"], "PUN-322"),
        (url.clone(), &["--tls-certificate", "nothing", "--tls-key", "nothing"], "PUN-323"),
        (url.clone(), &["--listen", "0.0.0.0:0"], "PUN-310"),
        (url.clone(), &["--listen-workers", "0.0.0.0:0"], "PUN-501"),
    ] {
        let more: Vec<&str> = more.to_vec();
        let told = match more.first() {
            Some(&("--listen" | "--listen-workers")) => {
                let mut process = Dev::spawn(cluster.command(&[&["server", "--database", &database], &more[..]].concat()));
                assert!(!process.ended().success());
                process.told()
            }
            _ => refused(&cluster, &database, &more),
        };
        assert!(told.contains(what), "{what}: {told}");
        assert!(!told.contains("wrong@") && !told.contains("private"), "the password is shown: {told}");
    }
    // A database of nobody's is not laid out by a look at it.
    let empty = cluster.database.create("empty").unwrap();
    let looked = crate::support::run(&mut cluster.command(&["doctor", "--store", &empty]));
    assert_eq!((looked.code, looked.stderr.starts_with("PUN-453: the database has no schema")), (Some(2), true), "{}", looked.stderr);
    let tables = cluster.database.run("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'empty';").unwrap();
    assert_eq!(tables, "0\n");
    cluster.database.run("SET GLOBAL read_only = 1;").unwrap();
    // Who may do everything may write all the same; the server says what it is.
    let told = refused(&cluster, &url, &[]);
    assert!(told.contains("PUN-213") && told.contains("read_only"), "{told}");
    cluster.database.run("SET GLOBAL read_only = 0;").unwrap();

    // A database that is not there yet is waited for.
    cluster.database.kill();
    let early = Dev::spawn(cluster.command(&["server", "--listen", "127.0.0.1:0", "--listen-workers", "127.0.0.1:0"]));
    early.says("PUN-209");
    cluster.database.start_again().unwrap();
    early.address();
    assert!(within(Duration::from_millis(1), || early.address_now()).is_some());
    early.stop();
}

#[test]
fn what_another_replica_has_is_looked_at_while_somebody_listens() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.server("a"), cluster.server("b"));
    first.shares_with(2);
    cluster.apply(&first);
    let _worker = cluster.worker(&first, "w");
    let mut streams = [&first, &second].map(|replica| {
        let mut stream = crate::api::Listening::start(replica.process.address(), "?task=by-hand", None).unwrap();
        let scope = stream.until(|event| event.kind == "scope");
        (stream, scope.data["looks"].as_bool().unwrap())
    });
    // One has the task's partition, and the other one looks at it.
    let looking = streams.iter().filter(|(_, looks)| *looks).count();
    assert_eq!(looking, 1);
    let triggered = second.process.post("/api/v1/tasks/by-hand/trigger", Some("once"), &json!({}));
    assert_eq!(triggered.status, 202, "{triggered:?}");
    for (stream, _) in &mut streams {
        let ended = stream.until(|event| event.kind == "instance" && event.data["state"] == "succeeded");
        assert_eq!(ended.data["task"], "by-hand");
    }
}
