//! Three replicas and a worker, as processes, with tasks that fire each second.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use punctual_testbed::free_port;

use crate::Anyhow;

/// Replicas.
const REPLICAS: usize = 3;
/// Tasks that fire each second.
const TASKS: usize = 500;
/// How long a process may take to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Fleet {
    program: PathBuf,
    database: String,
    redis: String,
    folder: tempfile::TempDir,
    replicas: Vec<Replica>,
    worker: Process,
}

struct Replica {
    api: u16,
    workers: u16,
    process: Process,
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn stop(&mut self) -> Anyhow<()> {
        Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status()?;
        let asked = Instant::now();
        while asked.elapsed() < STOP_TIME_MAX {
            if let Some(status) = self.0.try_wait()? {
                return if status.success() { Ok(()) } else { Err(format!("a process failed: {status}").into()) };
            }
            sleep(Duration::from_millis(10));
        }
        Err("a process does not stop".into())
    }
}

impl Fleet {
    /// Starts all, gives them their tasks, and waits until these fire.
    pub(crate) fn start(program: &Path, database: &str, redis: &str) -> Anyhow<Fleet> {
        let folder = tempfile::tempdir()?;
        let replicas = (0..REPLICAS)
            .map(|index| start_replica(program, database, redis, index, free_port(), free_port()))
            .collect::<Anyhow<Vec<_>>>()?;
        let mut worker = Command::new(program);
        worker.args(["bench", "--worker-of", &format!("127.0.0.1:{}", replicas[0].workers), "--records"]);
        worker.arg(folder.path().join("begun")).stdin(Stdio::null());
        let worker = Process(worker.spawn()?);
        let fleet = Fleet { program: program.into(), database: database.into(), redis: redis.into(), folder, replicas, worker };
        fleet.apply()?;
        Ok(fleet)
    }

    fn apply(&self) -> Anyhow<()> {
        let path = self.folder.path().join("tasks.yaml");
        let mut file = File::create(&path)?;
        writeln!(file, "tasks:")?;
        for task in 0..TASKS {
            // What was missed is made up for: each fire time has to have its instance.
            let rest = "concurrency: {max_running: 100}\n    misfire: {action: fire_all, limit: 100}\n    handler: noop";
            writeln!(file, "  - name: each-second-{task}\n    trigger: {{cron: \"* * * * * *\"}}\n    {rest}")?;
        }
        drop(file);
        let api = format!("http://127.0.0.1:{}", self.replicas[0].api);
        for _ in 0..100 {
            let applied = Command::new(&self.program).arg("apply").arg(&path).args(["--api", &api]).output()?;
            if applied.status.success() {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        Err("the tasks are not taken".into())
    }

    /// One replica dies and stays away.
    pub(crate) fn kill_one(&mut self) -> Anyhow<()> {
        self.replicas.remove(1);
        Ok(())
    }

    /// Each replica is stopped and started again, one after the other.
    pub(crate) fn restart_each(&mut self) -> Anyhow<()> {
        for index in 0..self.replicas.len() {
            let Replica { api, workers, process } = &mut self.replicas[index];
            let (api, workers) = (*api, *workers);
            process.stop()?;
            self.replicas[index] = start_replica(&self.program, &self.database, &self.redis, index, api, workers)?;
            sleep(Duration::from_secs(4));
        }
        Ok(())
    }

    /// Stops all, and reads from the worker's own records how late what began that fired from `since` on, in milliseconds since 1970, and what
    /// never did.
    pub(crate) fn judge(mut self, since: i64) -> Anyhow<String> {
        self.worker.stop()?;
        for replica in &mut self.replicas {
            replica.process.stop()?;
        }
        let (mut by_fire_time, mut instances, mut doubled) = (BTreeMap::<i64, usize>::new(), HashSet::new(), 0);
        let mut late = Vec::new();
        for line in BufReader::new(File::open(self.folder.path().join("begun"))?).lines() {
            let line = line?;
            let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<i64>, _>>()?;
            let [instance, _, fire_time, at] = numbers[..] else { return Err(format!("no record: {line}").into()) };
            if fire_time < since {
                continue;
            }
            *by_fire_time.entry(fire_time).or_default() += 1;
            doubled += usize::from(!instances.insert(instance));
            late.push(at - fire_time);
        }
        if late.is_empty() {
            return Err("nothing has fired".into());
        }
        // The last seconds were cut off by the end.
        let first = (since + 999) / 1_000 * 1_000;
        let last = by_fire_time.keys().next_back().copied().unwrap_or(first) - 2_000;
        let fires = |at: i64| by_fire_time.get(&at).copied().unwrap_or(0);
        let lost: usize = (first..=last).step_by(1_000).map(|at| TASKS.saturating_sub(fires(at))).sum();
        late.sort_unstable();
        let at = |share: usize| late[(late.len() * share / 100).min(late.len() - 1)];
        Ok(format!(
            "{} fires, {TASKS} a second; late p50 {} ms, p99 {} ms, at most {} ms; lost {lost}, doubled {doubled}",
            late.len(),
            at(50),
            at(99),
            late[late.len() - 1]
        ))
    }
}

fn start_replica(program: &Path, database: &str, redis: &str, index: usize, api: u16, workers: u16) -> Anyhow<Replica> {
    let mut server = Command::new(program);
    server.args(["server", "--quiet", "--name", &format!("replica-{index}")]);
    server.args(["--listen", &format!("127.0.0.1:{api}"), "--listen-workers", &format!("127.0.0.1:{workers}")]);
    server.env("PUNCTUAL_DATABASE", database).env("PUNCTUAL_REDIS", redis).stdin(Stdio::null());
    Ok(Replica { api, workers, process: Process(server.spawn()?) })
}
