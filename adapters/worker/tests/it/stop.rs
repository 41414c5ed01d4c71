use std::path::Path;
use std::time::Duration;

use punctual_core::protocol::End;
use punctual_driver::ports::Stop;
use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::harness::{Attempt, KillOnDrop, built_in, gone, lives, pid_in, process_state, text, until};

/// Begins a shell script that finds its folder in `$D`.
fn begin(folder: &Path, script: &str) -> Attempt {
    Attempt::begin(&built_in("m", true), "command", &json!({"shell": script, "env": {"D": folder}}), None)
}

async fn exists(folder: &Path, name: &str) {
    let file = folder.join(name);
    until(name, || file.exists()).await;
}

/// C318: what it exits with then says nothing of its work.
#[tokio::test]
async fn a_command_may_clean_up_when_it_is_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let attempt = begin(folder.path(), "trap 'echo cleaned; exit 0' TERM; touch $D/ready; while :; do sleep 0.05; done");
    exists(folder.path(), "ready").await;
    attempt.stop.send_replace(Stop::Cancel);
    let ended = attempt.end().await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Cancelled, Some(0), Some("exit code 0")));
    assert!(text(&ended.output).ends_with("cleaned\n"));
}

#[tokio::test]
async fn a_cancelled_command_with_no_such_habit_just_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let attempt = begin(folder.path(), "touch $D/ready; exec sleep 1000");
    exists(folder.path(), "ready").await;
    attempt.stop.send_replace(Stop::Cancel);
    let ended = attempt.end().await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Cancelled, None, Some("killed by signal 15 (SIGTERM)")));
}

#[tokio::test]
async fn one_that_ignores_the_signal_is_killed_when_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "trap 'echo no; touch $D/refused' TERM; trap 'touch $D/later' USR1; echo $$ > $D/pid; while :; do sleep 0.05; done";
    let attempt = begin(folder.path(), script);
    let pid = pid_in(&folder.path().join("pid")).await;
    attempt.stop.send_replace(Stop::Cancel);
    exists(folder.path(), "refused").await;
    assert!(lives(pid));
    // Asked once more in the same way, it isn't signalled once more.
    attempt.stop.send_replace(Stop::Cancel);
    tokio::time::sleep(Duration::from_millis(20)).await;
    rustix::process::kill_process(Pid::from_raw(pid).expect("a number"), Signal::USR1).expect("a signal");
    exists(folder.path(), "later").await;
    attempt.stop.send_replace(Stop::Kill);
    let ended = attempt.end().await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Cancelled, None, Some("killed by signal 9 (SIGKILL)")));
    assert_eq!(text(&ended.output).lines().filter(|line| *line == "no").count(), 1);
    assert!(!lives(pid));
}

#[tokio::test]
async fn a_stopped_process_is_woken_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let attempt = begin(folder.path(), "echo $$ > $D/pid; kill -STOP $$; exec sleep 1000");
    let pid = pid_in(&folder.path().join("pid")).await;
    until("stopped", || process_state(pid) == Some('T')).await;
    attempt.stop.send_replace(Stop::Cancel);
    assert_eq!(attempt.end().await.end, End::Cancelled);
}

#[tokio::test]
async fn the_signal_reaches_the_whole_group() {
    for stop in [Stop::Cancel, Stop::Kill] {
        let folder = tempfile::tempdir().expect("a folder");
        let attempt = begin(folder.path(), "(sleep 1000 & echo $! > $D/deep; wait) & sleep 1000 & echo $! > $D/pid; wait");
        let (pid, deep) = (pid_in(&folder.path().join("pid")).await, pid_in(&folder.path().join("deep")).await);
        attempt.stop.send_replace(stop);
        assert_eq!(attempt.end().await.end, End::Cancelled);
        gone(pid).await;
        gone(deep).await;
    }
}

#[tokio::test]
async fn a_dropped_attempt_is_killed_with_its_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let attempt = begin(folder.path(), "trap '' TERM; sleep 1000 & echo $! > $D/child; echo $$ > $D/pid; wait");
    let (pid, child) = (pid_in(&folder.path().join("pid")).await, pid_in(&folder.path().join("child")).await);
    attempt.task.abort();
    gone(pid).await;
    gone(child).await;
}

#[tokio::test]
async fn one_that_is_stopped_before_it_starts_never_starts() {
    for stop in [Stop::Cancel, Stop::Kill] {
        let folder = tempfile::tempdir().expect("a folder");
        let attempt = begin(folder.path(), "touch $D/ran");
        // The attempt has not been polled yet: this test has the only thread.
        attempt.stop.send_replace(stop);
        assert_eq!(attempt.end().await.end, End::Cancelled);
        assert!(!folder.path().join("ran").exists());
    }
}

#[tokio::test]
async fn one_whose_stopper_is_gone_runs_to_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let Attempt { stop, task } = begin(folder.path(), "echo $$ > $D/pid; while ! test -e $D/go; do sleep 0.02; done; echo done");
    let _leftover = KillOnDrop(pid_in(&folder.path().join("pid")).await);
    drop(stop);
    std::fs::write(folder.path().join("go"), "").expect("a file");
    let ended = tokio::time::timeout(crate::harness::DEADLINE, task).await.expect("hangs").expect("panicked");
    assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, "done\n"));
}
