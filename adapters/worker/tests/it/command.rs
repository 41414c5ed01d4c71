use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use punctual_core::limits::{OUTPUT_BYTES_MAX, RESULT_BYTES_MAX};
use punctual_core::protocol::{End, MapRole, Shard};
use punctual_driver::ports::{Ended, Stop};
use serde_json::{Value, json};

use crate::harness::{Attempt, KillOnDrop, built_in, gone, lives, pid_in, run, run_for_map, run_node, run_on, run_shard, text, until};
use crate::helper::{printed, worker_process};

async fn shell(line: &str) -> Ended {
    run("command", json!({"shell": line})).await
}

async fn shell_of(line: String) -> Ended {
    shell(&line).await
}

/// Makes a file with another process: while this one had it open for writing, a test that starts a program just then would lend it the
/// descriptor, and a file that is open for writing can't be executed.
fn script(folder: &Path, name: &str, content: &str, mode: &str) -> PathBuf {
    let file = folder.join(name);
    let made =
        Command::new("sh").args(["-c", "printf %s \"$2\" > \"$1\" && chmod \"$3\" \"$1\"", "sh"]).arg(&file).args([content, mode]).status();
    assert!(made.expect("sh").success());
    file
}

async fn fails_for_good(config: Value, reason: &str) {
    let ended = run("command", config.clone()).await;
    assert_eq!((ended.end, ended.code), (End::FailedForGood, None), "{config}");
    let detail = ended.detail.expect("a detail");
    assert!(detail.contains(reason), "{config}: {detail}");
}

#[tokio::test]
async fn both_streams_are_captured_in_the_order_of_arrival() {
    let ended = shell("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done").await;
    let expected: String = (1..=5).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Succeeded, Some(0), None));
    assert_eq!(text(&ended.output), expected);
}

#[tokio::test]
async fn arguments_reach_the_program_as_they_are() {
    let ended = run("command", json!({"argv": ["printf", "%s|", "a b", "", "$HOME", "'\"*"]})).await;
    assert_eq!(text(&ended.output), "a b||$HOME|'\"*|");
}

#[tokio::test]
async fn the_exit_code_decides() {
    let ended = shell("exit 3").await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Failed, Some(3), Some("exit code 3")));
    let ended = run("command", json!({"shell": "exit 3", "success_codes": [1, 3]})).await;
    assert_eq!((ended.end, ended.code, ended.detail), (End::Succeeded, Some(3), None));
    let ended = run("command", json!({"shell": "exit 0", "success_codes": [1, 3]})).await;
    assert_eq!((ended.end, ended.code), (End::Failed, Some(0)));
}

#[tokio::test]
async fn a_death_by_signal_has_no_code_and_names_the_signal() {
    let ended = shell("echo before; kill -9 $$").await;
    assert_eq!((ended.end, ended.code, ended.detail.as_deref()), (End::Failed, None, Some("killed by signal 9 (SIGKILL)")));
    assert_eq!(text(&ended.output), "before\n");
}

#[tokio::test]
async fn the_program_is_told_about_the_attempt() {
    let line = r#"printf '%s|' "$PUNCTUAL_INSTANCE" "$PUNCTUAL_ATTEMPT" "$PUNCTUAL_FENCE" "$PUNCTUAL_KEY" "$PUNCTUAL_TASK" "$PUNCTUAL_FIRE_TIME" "$PUNCTUAL_WORKER" "$MINE""#;
    let ended = run("command", json!({"shell": line, "env": {"MINE": "x=y", "PUNCTUAL_FENCE": "999"}})).await;
    assert_eq!(text(&ended.output), "0-42|3|77|5/2023-11-14T22:13:20.5Z/0|每日对账 \u{7}|2023-11-14T22:13:20.5Z|w1|x=y|");
}

#[tokio::test]
async fn a_shard_is_told_which_it_is() {
    let line = r#"printf '%s|' "$PUNCTUAL_SHARD" "$PUNCTUAL_SHARDS" "${PUNCTUAL_SHARD_KEY-none}" "$PUNCTUAL_RUN""#;
    for (key, expected) in [(Some("eu west"), "1|5|eu west|2|"), (None, "1|5|none|2|")] {
        let shard = Shard { index: 1, count: 5, key: key.map(Into::into) };
        assert_eq!(text(&run_shard("command", json!({"shell": line}), shard).await.output), expected);
    }
    let ended = shell("printf %s \"${PUNCTUAL_SHARD-none} ${PUNCTUAL_SHARDS-none} $PUNCTUAL_RUN\"").await;
    assert_eq!(text(&ended.output), "none none 1");
}

#[tokio::test]
async fn a_node_is_told_what_its_upstreams_answered() {
    let line = r#"printf '%s|' "$PUNCTUAL_NODE" "$PUNCTUAL_INPUTS" "$PUNCTUAL_KEY""#;
    let ended = run_node("command", json!({"shell": line}), r#"{"a":1}"#).await;
    assert_eq!(text(&ended.output), "lädt|{\"a\":1}|5/2023-11-14T22:13:20.5Z/0/node lädt|");
    // As long as it can be.
    let most = format!("{{\"a\":\"{}\"}}", "x".repeat(punctual_core::limits::INPUTS_BYTES_MAX - 8));
    let ended = run_node("command", json!({"shell": "printf %s ${#PUNCTUAL_INPUTS}"}), &most).await;
    assert_eq!(text(&ended.output), punctual_core::limits::INPUTS_BYTES_MAX.to_string());
    let ended = shell("printf %s \"${PUNCTUAL_NODE-none} ${PUNCTUAL_INPUTS-none}\"").await;
    assert_eq!(text(&ended.output), "none none");
}

#[tokio::test]
async fn what_a_program_writes_into_its_result_file_is_its_result() {
    for (line, expected) in [
        ("true", None),
        (": > $PUNCTUAL_RESULT", None),
        ("echo > $PUNCTUAL_RESULT", None),
        (r#"echo '{"n": 3}' > $PUNCTUAL_RESULT"#, Some(r#"{"n": 3}"#)),
        (r"printf 'a\r\n' > $PUNCTUAL_RESULT", Some("a")),
        (r"printf '\n每日\n\n' > $PUNCTUAL_RESULT", Some("\n每日\n")),
        ("echo one > $PUNCTUAL_RESULT; rm $PUNCTUAL_RESULT; echo two > $PUNCTUAL_RESULT", Some("two")),
    ] {
        let ended = shell(line).await;
        assert_eq!((ended.end, ended.detail.as_deref(), ended.result.as_deref()), (End::Succeeded, None, expected), "{line}");
    }
    let ended = run("command", json!({"shell": "echo x > $PUNCTUAL_RESULT; exit 3", "success_codes": [3]})).await;
    assert_eq!((ended.end, ended.result.as_deref()), (End::Succeeded, Some("x")));
    let ended = shell("echo x > $PUNCTUAL_RESULT; exit 3").await;
    assert_eq!((ended.end, ended.result.as_deref()), (End::Failed, None));
}

#[tokio::test]
async fn what_lists_writes_a_list_and_what_reduces_reads_the_results() {
    for (line, expected) in [
        (r#"echo '[1, "a b", {"k": 2}]' > $PUNCTUAL_ITEMS"#, Ok("1\n\"a b\"\n{\"k\":2}")),
        ("echo '[]' > $PUNCTUAL_ITEMS", Ok("")),
        ("true", Err("PUNCTUAL_ITEMS")),
        ("echo '{}' > $PUNCTUAL_ITEMS", Err("no JSON array")),
        ("printf '[\\377]' > $PUNCTUAL_ITEMS", Err("UTF-8")),
        ("head -c 7000000 /dev/zero > $PUNCTUAL_ITEMS", Err("at most")),
    ] {
        let ended = run_for_map("command", json!({"shell": line}), MapRole::List).await;
        match expected {
            Ok(items) => assert_eq!((ended.end, ended.items.as_deref()), (End::Succeeded, Some(items)), "{line}"),
            Err(reason) => {
                assert_eq!((ended.end, ended.items.as_deref()), (End::FailedForGood, None), "{line}");
                assert!(ended.detail.as_deref().is_some_and(|detail| detail.contains(reason)), "{line}: {:?}", ended.detail);
            }
        }
    }
    let failed = run_for_map("command", json!({"shell": "echo '[1]' > $PUNCTUAL_ITEMS; exit 3"}), MapRole::List).await;
    assert_eq!((failed.end, failed.code, failed.items), (End::Failed, Some(3), None));

    let results = MapRole::Reduce { results: "1\nnull\n3\n".into() };
    let ended =
        run_for_map("command", json!({"shell": "cat $PUNCTUAL_RESULTS > $PUNCTUAL_RESULT; echo ${PUNCTUAL_ITEMS-none}"}), results).await;
    assert_eq!((ended.result.as_deref(), text(&ended.output)), (Some("1\nnull\n3"), "none\n"));
}

#[tokio::test]
async fn a_result_of_the_longest_length_is_taken_and_a_longer_one_is_not() {
    let wanted = |length: usize, end: &str| {
        shell_of(format!("head -c {length} /dev/zero | tr '\\0' x > $PUNCTUAL_RESULT; printf '{end}' >> $PUNCTUAL_RESULT"))
    };
    for end in ["", "\\n", "\\r\\n"] {
        let ended = wanted(RESULT_BYTES_MAX, end).await;
        assert_eq!((ended.end, ended.detail, ended.result.map(|text| text.len())), (End::Succeeded, None, Some(RESULT_BYTES_MAX)));
    }
    for length in [RESULT_BYTES_MAX + 1, 4 << 20] {
        let ended = wanted(length, "").await;
        assert_eq!((ended.end, ended.code, ended.result), (End::Succeeded, Some(0), None));
        let detail = ended.detail.expect("a detail");
        assert!(detail.contains(&format!("has {length} bytes")) && detail.contains("at most 16384"), "{detail}");
    }
}

#[tokio::test]
async fn what_is_no_result_leaves_a_success_a_success_and_says_why() {
    for (line, reason) in [
        (r"printf 'abc\377' > $PUNCTUAL_RESULT", "is not UTF-8 from byte 3 on"),
        ("mkdir $PUNCTUAL_RESULT", "plain file"),
        ("mkfifo $PUNCTUAL_RESULT", "plain file"),
        ("ln -s /etc/hostname $PUNCTUAL_RESULT", "can't be opened"),
    ] {
        let ended = shell(line).await;
        assert_eq!((ended.end, ended.code, ended.result), (End::Succeeded, Some(0), None), "{line}");
        assert!(ended.detail.as_ref().is_some_and(|detail| detail.contains(reason)), "{line}: {:?}", ended.detail);
    }
}

#[tokio::test]
async fn no_attempt_sees_anothers_result_and_none_leaves_one_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = folder.path().join("names");
    let executor = built_in("m", true);
    let line = |i: usize| format!("echo $PUNCTUAL_RESULT >> {}; test -e $PUNCTUAL_RESULT || echo {i} > $PUNCTUAL_RESULT", names.display());
    let attempts: Vec<_> = (0..20).map(|i| Attempt::begin(&executor, "command", &json!({"shell": line(i)}), None)).collect();
    for (i, attempt) in attempts.into_iter().enumerate() {
        assert_eq!(attempt.end().await.result.as_deref(), Some(&*i.to_string()));
    }
    // One that is killed, and one that is dropped with its worker.
    for is_dropped in [false, true] {
        let line = format!("echo x > $PUNCTUAL_RESULT; echo $PUNCTUAL_RESULT >> {0}; echo $$ > {0}.pid; exec sleep 1000", names.display());
        let attempt = Attempt::begin(&executor, "command", &json!({"shell": line}), None);
        pid_in(&names.with_added_extension("pid")).await;
        if is_dropped {
            attempt.task.abort();
        } else {
            attempt.stop.send_replace(Stop::Kill);
            assert_eq!(attempt.end().await.result, None);
        }
        fs::remove_file(names.with_added_extension("pid")).expect("removed");
    }
    let names = fs::read_to_string(names).expect("names");
    assert_eq!(names.lines().count(), 22);
    until("all are removed", || names.lines().all(|name| !Path::new(name).exists())).await;
    let own = Path::new(names.lines().next().expect("a name")).parent().and_then(Path::parent).expect("the worker's folder");
    assert!(own.is_dir());
    drop(executor);
    until("the worker's folder is removed", || !own.exists()).await;
}

#[tokio::test]
async fn the_workers_own_secrets_stay_with_it() {
    let attempts = [("command", json!({"shell": "env"}))];
    let output = printed(worker_process("m", &attempts, &[("PUNCTUAL_DATABASE_PASSWORD", "s3cret"), ("PLAIN", "handed on")])).await;
    assert!(output.contains("PLAIN=handed on"), "{output}");
    assert!(!output.contains("s3cret"), "{output}");
}

#[tokio::test]
async fn standard_input_is_the_tasks_or_else_the_payload() {
    let executor = built_in("m", true);
    let ended = run_on(&executor, "command", json!({"argv": ["cat"]}), Some("payload")).await;
    assert_eq!(text(&ended.output), "payload");
    let ended = run_on(&executor, "command", json!({"argv": ["cat"], "stdin": "one\ntwo"}), Some("payload")).await;
    assert_eq!(text(&ended.output), "one\ntwo");
    let ended = run_on(&executor, "command", json!({"argv": ["cat"]}), None).await;
    assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, ""));
}

#[tokio::test]
async fn input_beyond_the_pipe_is_no_matter_whether_it_is_read() {
    let input = "x".repeat(4 << 20);
    for (line, output) in [
        ("wc -c | tr -d ' '", "4194304\n"),
        ("echo unread", "unread\n"),
        ("exec <&-; echo closed", "closed\n"),
        ("head -c 3 && echo", "xxx\n"),
    ] {
        let ended = run("command", json!({"shell": line, "stdin": input})).await;
        assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, output), "{line}");
    }
    let ended = run("command", json!({"argv": ["cat"], "stdin": input})).await;
    assert_eq!(ended.output.bytes.len() as u64 + ended.output.dropped, 4 << 20);
}

#[tokio::test]
async fn a_gigabyte_is_taken_in_and_its_ends_are_kept() {
    let ended = shell("echo first; head -c 1073741824 /dev/zero | tr '\\0' x; echo; echo last").await;
    assert_eq!(ended.end, End::Succeeded);
    assert_eq!(ended.output.bytes.len(), OUTPUT_BYTES_MAX);
    assert_eq!(ended.output.bytes.len() as u64 + ended.output.dropped, (1 << 30) + 12);
    assert!(text(&ended.output).starts_with("first\nxxx") && text(&ended.output).ends_with("xxx\nlast\n"));
}

#[tokio::test]
async fn text_is_cut_between_characters() {
    for pad in ["", "x", "xx"] {
        let ended = shell(&format!("printf '{pad}'; yes 每日€ | head -c 1000000")).await;
        assert!(ended.output.dropped > 0);
        assert!(text(&ended.output).starts_with(&format!("{pad}每日€\n每")));
    }
}

#[tokio::test]
async fn a_program_may_close_its_output_and_go_on() {
    let ended = shell("echo x; exec >&- 2>&-; sleep 0.1; exit 4").await;
    assert_eq!((ended.code, text(&ended.output)), (Some(4), "x\n"));
}

#[tokio::test]
async fn what_is_left_in_the_group_ends_with_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let ended = shell(&format!("sleep 1000 & echo $! > {}; echo done", file.display())).await;
    assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, "done\n"));
    gone(pid_in(&file).await).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_and_holds_the_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let line = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000' & while ! test -e {0}; do sleep 0.01; done; echo done",
        file.display()
    );
    let ended = shell(&line).await;
    assert_eq!((ended.end, text(&ended.output)), (End::Succeeded, "done\n"));
    let daemon = KillOnDrop(pid_in(&file).await);
    assert!(lives(daemon.0));
}

#[tokio::test]
async fn one_that_left_the_group_and_writes_for_ever_is_not_waited_for_either() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let line =
        format!("setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec yes' & while ! test -e {0}; do sleep 0.01; done", file.display());
    let attempt = Attempt::begin(&built_in("m", true), "command", &json!({"shell": line}), None);
    let _writer = KillOnDrop(pid_in(&file).await);
    assert_eq!(attempt.end().await.end, End::Succeeded);
}

#[tokio::test]
async fn the_working_directory_is_the_tasks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path");
    let ended = run("command", json!({"argv": ["pwd"], "working_directory": path})).await;
    assert_eq!(text(&ended.output).trim(), path.to_str().expect("UTF-8"));
    fs::write(path.join("file"), "").expect("a file");
    fails_for_good(json!({"argv": ["pwd"], "working_directory": path.join("missing")}), "correct `working_directory`").await;
    fails_for_good(json!({"argv": ["pwd"], "working_directory": path.join("file")}), "is no folder").await;
}

#[tokio::test]
async fn the_shell_is_the_tasks_where_it_names_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let shell = script(folder.path(), "my shell", "#!/bin/sh\nprintf '%s|' \"$@\"\n", "755");
    let ended = run("command", json!({"shell": "a 'b'; c", "env": {"SHELL": shell}})).await;
    assert_eq!(text(&ended.output), "-c|a 'b'; c|");
    let ended = run("command", json!({"shell": "-x"})).await;
    assert_eq!(ended.code, Some(127), "a line that begins with a dash is a line, not an option");
}

#[tokio::test]
async fn what_cannot_be_started_fails_for_good_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    fails_for_good(json!({"argv": []}), "Name a program").await;
    fails_for_good(json!({"argv": ["", "x"]}), "Name a program").await;
    fails_for_good(json!({"argv": ["no-such-program-here"]}), "not found on the PATH").await;
    fails_for_good(json!({"argv": [folder.path().join("missing")]}), "was not found").await;
    fails_for_good(json!({"argv": [script(folder.path(), "no-interpreter", "#!/no/such/interpreter\n", "755")]}), "interpreter").await;
    fails_for_good(json!({"argv": [script(folder.path(), "not-executable", "#!/bin/sh\n", "644")]}), "chmod +x").await;
    fails_for_good(json!({"argv": [script(folder.path(), "no-first-line", "echo hello\n", "755")]}), "#!/bin/sh").await;
    fails_for_good(json!({"argv": [folder.path()]}), "chmod +x").await;
    fails_for_good(json!({"argv": ["echo", "a\0b"]}), "zero byte").await;
    fails_for_good(json!({"argv": ["echo", "x".repeat(4 << 20)]}), "too long").await;
    fails_for_good(json!({"argv": ["€".repeat(50_000)]}), "too long for a path. Correct").await;
    fails_for_good(json!({"argv": ["echo"], "env": {"A=B": "x"}}), "environment variable").await;
    fails_for_good(json!({"argv": ["echo"], "env": {"": "x"}}), "environment variable").await;
    fails_for_good(json!({"argv": ["echo"], "colour": "red"}), "colour").await;
    fails_for_good(json!({"nothing": "x"}), "Correct the task").await;
}

#[tokio::test]
async fn many_attempts_run_at_once() {
    let executor = built_in("m", true);
    let attempts: Vec<_> =
        (0..50).map(|i| Attempt::begin(&executor, "command", &json!({"shell": format!("echo {i}; cat"), "stdin": "x"}), None)).collect();
    for (i, attempt) in attempts.into_iter().enumerate() {
        let ended = attempt.end().await;
        assert_eq!(text(&ended.output), format!("{i}\nx"));
    }
}
