//! Lives that end with SIGKILL at a random moment, and what must be true in the end.
//!
//! `PUNCTUAL_TEST_LIVES` says how many, `PUNCTUAL_TEST_SEED` repeats a run's moments.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_core::time::Timestamp;
use serde_json::{Value, json};

use crate::support::{Dev, Folder, PATIENCE, check_story, eventually, processes_with, try_request, within};

const LIVES_DEFAULT: u64 = 15;
/// Longest time from the start of a life to its end.
const LIFE_MAX: u64 = 2_500;
/// From one manual trigger to the next.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(60);

/// Each command holds a lock of its instance for as long as any of its processes lives, so that a second attempt beside the first is seen.
const PRELUDE: &str = r#"exec 9>>"locks/$PUNCTUAL_INSTANCE"; flock -n 9 || echo "overlap $PUNCTUAL_INSTANCE" >> ledger; echo "begin $PUNCTUAL_TASK $PUNCTUAL_INSTANCE $PUNCTUAL_ATTEMPT $PUNCTUAL_FENCE" >> ledger"#;
const FINALE: &str = r#"echo "end $PUNCTUAL_TASK $PUNCTUAL_INSTANCE $PUNCTUAL_ATTEMPT $PUNCTUAL_FENCE" >> ledger"#;

/// The tasks; without their own triggers where they are to come to rest.
fn tasks(at_rest: bool) -> String {
    let trigger = |text: &str| if at_rest { "manual".to_owned() } else { text.to_owned() };
    let shell = |middle: &str| serde_json::to_string(&format!("{PRELUDE}; {middle}; {FINALE}")).unwrap();
    format!(
        "
defaults: {{timeout: {{after: 120s, grace: 1s}}, retry: {{max_losses: 1000}}, concurrency: {{max_queue: 100000}}}}
tasks:
  - {{name: clock, trigger: {cron}, command: {quick}}}
  - {{name: rate, trigger: {rate}, command: {quick}}}
  - {{name: long, trigger: manual, concurrency: {{max_running: 4}}, command: {long}}}
  - {{name: unsafe, trigger: {often}, idempotent: false, command: {slow}}}
  - {{name: byhand, trigger: manual, concurrency: {{max_running: 4}}, command: {quick}}}
",
        cron = trigger("{cron: \"* * * * * *\"}"),
        rate = trigger("{fixed_rate: 400ms}"),
        often = trigger("{fixed_rate: 700ms}"),
        quick = shell(":"),
        slow = shell("sleep 0.3"),
        long = shell("[ -e released ] || sleep 30"),
    )
}

/// A small generator: the same seed gives the same moments.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Submits manual triggers all along, each under a key and until it is acknowledged.
#[derive(Clone, Default)]
struct Submitter {
    address: Arc<Mutex<Option<SocketAddr>>>,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    stop: Arc<AtomicBool>,
}

impl Submitter {
    fn run(&self) {
        for number in 0_u64.. {
            let key = format!("key-{number}");
            let task = if number % 20 == 0 { "long" } else { "byhand" };
            let body = json!({ "payload": key }).to_string();
            while !self.submit(task, &key, &body) {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            self.acknowledged.lock().unwrap().insert(key);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(SUBMIT_INTERVAL);
        }
    }

    fn submit(&self, task: &str, key: &str, body: &str) -> bool {
        let Some(address) = *self.address.lock().unwrap() else { return false };
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        match try_request(address, "POST", &format!("/api/v1/tasks/{task}/trigger"), &headers, body.as_bytes()) {
            Ok(answer) if matches!(answer.status, 200 | 202) => true,
            Ok(answer) => panic!("{key}: {answer:?}"),
            Err(_) => false,
        }
    }
}

#[test]
fn nothing_is_lost_and_nothing_runs_twice_whenever_it_is_killed() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let lives = number("PUNCTUAL_TEST_LIVES", LIVES_DEFAULT);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("PUNCTUAL_TEST_SEED", now.as_millis() as u64 | 1);
    println!("PUNCTUAL_TEST_SEED={seed}");
    let mut random = Random(seed);

    let folder = Folder::with(&tasks(false));
    std::fs::create_dir(folder.path("locks")).unwrap();
    let submitter = Submitter::default();
    let submitting = std::thread::spawn({
        let submitter = submitter.clone();
        move || submitter.run()
    });
    let mut ended_orphans = 0;
    for _ in 0..lives {
        let begun = Instant::now();
        let life = Duration::from_millis(random.below(LIFE_MAX));
        let mut dev = Dev::spawn(folder.dev_command(&[]));
        let heard = within(life, || {
            assert!(dev.poll().is_none(), "it ended by itself: {}", dev.told());
            dev.address_now()
        });
        if let Some(address) = heard {
            check_that_no_orphan_runs(&folder, dev.pid());
            *submitter.address.lock().unwrap() = Some(address);
            std::thread::sleep(life.saturating_sub(begun.elapsed()));
        }
        *submitter.address.lock().unwrap() = None;
        ended_orphans += usize::from(dev.told().contains("that an earlier run had left behind"));
        assert!(!dev.told().contains("panicked"), "{}", dev.told());
        dev.kill();
    }
    assert!(ended_orphans > 0 || lives < 5, "no life left anything running, so this has tested little");

    // A life that makes up for what was missed, and drains while there is work.
    folder.write("released", "");
    let dev = folder.dev();
    check_that_no_orphan_runs(&folder, dev.pid());
    *submitter.address.lock().unwrap() = Some(dev.address());
    let made_at = dev.get("/api/v1/status")["now"].as_str().unwrap().to_owned();
    eventually("fire times on time again", || {
        let on_time = dev.instances("clock").iter().filter(|one| one["fire_time"].as_str().unwrap() > made_at.as_str()).count();
        (on_time > 2).then_some(())
    });
    submitter.stop.store(true, Ordering::Relaxed);
    submitting.join().unwrap();
    dev.stop();

    // A life in which everything comes to rest.
    folder.write("tasks.yaml", &tasks(true));
    let dev = folder.dev();
    come_to_rest(&dev);
    check(&dev, &folder, &submitter.acknowledged.lock().unwrap());
    dev.stop();
    assert!(processes_with(folder.path("punctual.db").to_str().unwrap()).is_empty());
}

/// Waits until nothing is left to do, for as long as there is progress.
#[track_caller]
fn come_to_rest(dev: &Dev) {
    const UNFINISHED: [&str; 5] = ["waiting", "created", "dispatched", "running", "retrying"];
    let left = || {
        let counts = dev.get("/api/v1/status")["instances"].clone();
        UNFINISHED.iter().map(|state| counts[*state].as_u64().unwrap_or(0)).sum::<u64>()
    };
    let mut before = left();
    while before > 0 {
        let now = within(PATIENCE, || Some(left()).filter(|now| *now < before));
        before = now.unwrap_or_else(|| {
            let stuck = UNFINISHED.map(|state| dev.get(&format!("/api/v1/instances?limit=5&state={state}"))["instances"].clone());
            panic!("{before} come to no end, such as {stuck:#?}; it said {}", dev.told())
        });
    }
}

/// No command of an earlier life runs once the API answers.
#[track_caller]
fn check_that_no_orphan_runs(folder: &Folder, pid: u32) {
    let marker = folder.path("punctual.db").canonicalize().unwrap();
    let of_this_life = format!("PUNCTUAL_OWNER={}/{pid}.", marker.display());
    let left = processes_with(&format!("PUNCTUAL_OWNER={}/", marker.display()));
    let left: Vec<_> = left.into_iter().filter(|(_, environment)| !environment.contains(&of_this_life)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A line of the ledger: what a command said of itself.
struct Line<'a> {
    is_begin: bool,
    task: &'a str,
    instance: &'a str,
    attempt: u64,
    fence: u64,
}

fn ledger(text: &str) -> Vec<Line<'_>> {
    let parse = |line| {
        let mut words = str::split_ascii_whitespace(line);
        let is_begin = match words.next()? {
            "begin" => true,
            "end" => false,
            other => panic!("{other}: {line}"),
        };
        let (task, instance) = (words.next()?, words.next()?);
        Some(Line { is_begin, task, instance, attempt: words.next()?.parse().ok()?, fence: words.next()?.parse().ok()? })
    };
    text.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn check(dev: &Dev, folder: &Folder, acknowledged: &BTreeSet<String>) {
    let text = folder.read("ledger");
    assert!(!text.contains("overlap"), "two attempts of one instance side by side: {text}");
    let lines = ledger(&text);
    let mut begun = BTreeSet::new();
    let mut last_fence: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.is_begin) {
        assert!(begun.insert((line.instance, line.attempt)), "{} began attempt {} twice", line.instance, line.attempt);
        // One at a time for these tasks, and for each instance anyhow.
        let one_at_a_time = matches!(line.task, "clock" | "rate" | "unsafe").then_some(line.task);
        for scope in one_at_a_time.into_iter().chain([line.instance]) {
            let before = last_fence.insert(scope, line.fence).unwrap_or(0);
            assert!(before < line.fence, "{scope}: fence {} after {before}", line.fence);
        }
    }
    let ended: BTreeSet<_> = lines.iter().filter(|line| !line.is_begin).map(|line| (line.instance, line.attempt)).collect();

    let mut keys: BTreeMap<String, u32> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for task in ["clock", "rate", "long", "unsafe", "byhand"] {
        for listed in dev.instances(task) {
            let id = listed["id"].as_str().unwrap().to_owned();
            let instance = dev.get(&format!("/api/v1/instances/{id}"));
            check_story(&instance);
            check_instance(task, &id, &instance, &begun, &ended);
            if let Some(key) = instance["key"].as_str() {
                *keys.entry(key.to_owned()).or_default() += 1;
                assert_eq!(instance["payload"], key, "{instance:#}");
            }
            known.insert(id);
        }
    }
    for (instance, attempt) in &begun {
        assert!(known.contains(*instance), "attempt {attempt} of {instance} began and is not on record");
    }
    for key in acknowledged {
        assert_eq!(keys.get(key), Some(&1), "{key} was acknowledged");
    }
    assert!(keys.values().all(|count| *count == 1), "{keys:?}");
    check_clock(dev);
    println!("{} instances, {} attempts, {} acknowledged triggers", known.len(), begun.len(), acknowledged.len());
}

fn check_instance(task: &str, id: &str, instance: &Value, begun: &BTreeSet<(&str, u64)>, ended: &BTreeSet<(&str, u64)>) {
    let attempts = instance["attempts"].as_array().unwrap();
    match (task, instance["state"].as_str().unwrap()) {
        (_, "succeeded") => {
            let number = instance["attempt"].as_u64().unwrap();
            assert!(begun.contains(&(id, number)) && ended.contains(&(id, number)), "{instance:#}");
        }
        // Nobody knows how far it got: once, and never again.
        ("unsafe", "dead_lettered") => {
            assert_eq!((&instance["cause"], attempts.len()), (&json!("outcome_unknown"), 1), "{instance:#}");
        }
        (_, state) => panic!("{task} is {state}: {instance:#}"),
    }
    if task == "unsafe" {
        assert!(begun.iter().filter(|(instance, _)| *instance == id).count() <= 1, "{instance:#}");
        if begun.contains(&(id, 1)) && !ended.contains(&(id, 1)) {
            assert_eq!(instance["state"], "dead_lettered", "{instance:#}");
        }
    }
}

/// Each second from the first fire time to the last is an instance, or in exactly one run of the record.
fn check_clock(dev: &Dev) {
    let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let mut fates: BTreeMap<i64, u32> = BTreeMap::new();
    for instance in dev.instances("clock") {
        *fates.entry(at(&instance["fire_time"])).or_default() += 1;
    }
    let occurrences = dev.get("/api/v1/tasks/clock/occurrences?limit=1000");
    let occurrences = occurrences["occurrences"].as_array().unwrap();
    assert!(occurrences.len() < 1000, "a page must do");
    for run in occurrences {
        let (first, last) = (at(&run["first"]), at(&run["last"]));
        let times: Vec<i64> = (first..=last).step_by(1000).collect();
        assert_eq!(run["count"], times.len(), "{run}");
        for time in times {
            *fates.entry(time).or_default() += 1;
        }
    }
    let (first, last) = (*fates.keys().next().unwrap(), *fates.keys().next_back().unwrap());
    for time in (first..=last).step_by(1000) {
        assert_eq!(fates.get(&time), Some(&1), "fire time {}", Timestamp(time));
    }
    assert!(fates.keys().all(|time| (time - first) % 1000 == 0));
}
