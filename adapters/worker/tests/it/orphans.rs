use std::time::Duration;

use punctual_core::ids::{Fence, InstanceId};
use punctual_core::protocol::End;
use punctual_worker::end_orphans;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{Attempt, KillOnDrop, built_in, gone, lives, pid_in};
use crate::helper::{printed, worker_process};

/// Writes the number of the shell's own process, and of what it has just put in the background.
const OWN: &str = "echo $$ > $D/own";

fn shell(folder: &std::path::Path, script: &str) -> (&'static str, Value) {
    ("command", json!({"shell": script, "env": {"D": folder}}))
}

fn marker() -> String {
    format!("tests/{}", tempfile::tempdir().expect("a folder").path().display())
}

#[tokio::test]
async fn what_a_killed_worker_left_is_ended_and_nothing_else() {
    let marker = marker();
    let folders: Vec<_> = (0..5).map(|_| tempfile::tempdir().expect("a folder")).collect();
    let path = |i: usize| folders[i].path();
    let attempts = [
        shell(path(0), &format!("{OWN}; exec sleep 1000")),
        // Doesn't end when asked to, nor does its child.
        shell(path(1), &format!("trap '' TERM; sleep 1000 & echo $! > $D/child; {OWN}; while :; do sleep 0.05; done")),
        // A child with no marker, in the command's group.
        shell(path(2), &format!("env -i sleep 1000 & echo $! > $D/child; {OWN}; wait")),
        // A child in a session of its own, while the command goes on, and that is still there when the command has ended as asked.
        shell(
            path(3),
            &format!("setsid sh -c 'trap \"\" TERM; echo $$ > $D/child; exec sleep 1000' & {OWN}; while :; do sleep 0.05; done"),
        ),
    ];
    let mut worker = worker_process(&marker, &attempts, &[]);
    let mut pids = Vec::new();
    for (i, name) in [(0, "own"), (1, "own"), (1, "child"), (2, "own"), (2, "child"), (3, "own"), (3, "child")] {
        pids.push(pid_in(&path(i).join(name)).await);
    }

    // While the worker lives, nothing is an orphan.
    assert_eq!(end_orphans(&marker, Duration::ZERO).await.expect("/proc"), []);
    worker.kill().await.expect("killed");
    assert!(pids.iter().all(|pid| lives(*pid)), "the commands outlive their worker");

    let stranger = spawn_sleep(&[]);
    let other_marker = spawn_sleep(&[("PUNCTUAL_OWNER", &format!("{marker}2/1.1.1"))]);
    // A command of this life, under the same marker, with a process that its parent has given up.
    let mine = Attempt::begin(
        &built_in(&marker, true),
        "command",
        &shell(path(4), &format!("(sleep 1000 & echo $! > $D/child); {OWN}; while :; do sleep 0.05; done")).1,
        None,
    );
    let mine_pids = [pid_in(&path(4).join("own")).await, pid_in(&path(4).join("child")).await];

    let found = end_orphans(&marker, Duration::from_millis(200)).await.expect("/proc");
    for pid in &pids {
        gone(*pid).await;
    }
    assert!(found.iter().all(|orphan| orphan.ended), "{found:?}");
    for (marked, fence) in [(0, 77), (1, 78), (2, 78), (3, 79), (5, 80), (6, 80)] {
        let orphan = found.iter().find(|orphan| orphan.pid == pids[marked]).unwrap_or_else(|| panic!("{marked} of {found:?}"));
        assert_eq!((orphan.instance, orphan.attempt, orphan.fence), (Some(InstanceId(42)), Some(3), Some(Fence(fence))));
    }
    for pid in [stranger.1, other_marker.1, mine_pids[0], mine_pids[1]] {
        assert!(lives(pid));
    }
    assert_eq!(end_orphans(&marker, Duration::ZERO).await.expect("/proc"), []);
    mine.task.abort();
    gone(mine_pids[1]).await;
}

#[tokio::test]
async fn a_daemon_of_a_finished_command_is_left_alone() {
    let marker = marker();
    let folder = tempfile::tempdir().expect("a folder");
    let script = "setsid sh -c 'echo $$ > $D/daemon; exec sleep 1000' & while ! test -s $D/daemon; do sleep 0.01; done";
    let output = printed(worker_process(&marker, &[shell(folder.path(), script)], &[])).await;
    assert!(output.contains("Succeeded"), "{output}");
    let daemon = KillOnDrop(pid_in(&folder.path().join("daemon")).await);
    assert_eq!(end_orphans(&marker, Duration::ZERO).await.expect("/proc"), []);
    assert!(lives(daemon.0));
}

#[tokio::test]
async fn a_worker_that_carries_the_marker_itself_does_not_end_itself() {
    let marker = marker();
    let session = own_session();
    let owner = format!("{marker}/1.1.{session}");
    let attempts = [("command", json!({"shell": "echo $PUNCTUAL_OWNER"}))];
    let output = printed(worker_process(&marker, &attempts, &[("PUNCTUAL_OWNER", &owner), ("WORKER_TEST_ORPHANS", "1")])).await;
    assert!(output.contains("Ok([])"), "{output}");
    assert!(output.contains(&format!("{:?}", End::Succeeded)) && !output.contains(&owner), "its commands have its own mark: {output}");
}

/// As `/proc` tells it: 0 where the session's leader is outside of this namespace of processes, which `getsid` has no answer for.
fn own_session() -> i32 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let (_, behind_name) = stat.rsplit_once(") ").expect("a name in parentheses");
    behind_name.split(' ').nth(3).and_then(|session| session.parse().ok()).expect("a session")
}

fn spawn_sleep(environment: &[(&str, &str)]) -> (Child, i32) {
    let child = Command::new("sleep").arg("1000").envs(environment.iter().copied()).kill_on_drop(true).spawn().expect("sleep");
    let pid = child.id().expect("a number").cast_signed();
    (child, pid)
}
