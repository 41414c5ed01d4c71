//! The overview, completions and man pages.

use expect_test::expect;

use crate::{check, punctual};

#[test]
fn the_overview_is_by_what_people_want_to_do() {
    check(
        &["--help"],
        "",
        expect![[r#"
            Punctual: a distributed task scheduler

            Usage: punctual <COMMAND>

            Write tasks:
              validate        Check task files and say everything that is wrong with them
              apply           Hand task files over to a running Punctual: tasks are made and changed; others are left, unless --remove says otherwise
              diff            Show what task files would change, line by line
              remove          Remove tasks; what runs of them is cancelled, and their history stays
              export          Print tasks as a task file, which `punctual apply` takes back
              rehearse        Put a task file into a simulated world that goes wrong, and say what becomes of its tasks
              cron            Explain cron expressions
              import          Turn other schedulers' files into task files
              schema          Print the JSON Schema of task files

            Look:
              get             List tasks, instances, workers, replicas, dead letters, backfills, versions, pauses, fire times to come, the audit
              describe        Show all about a task or an instance
              explain         Say in plain words why an instance is where it is, or why a task fired at a time or did not
              logs            Show what the attempts of an instance wrote
              status          Show replicas, partitions and what waits
              doctor          Check the store's own consistency and the cluster's health, and say what to do about what is wrong

            Act:
              trigger         Fire a task now, or after its delay
              cancel          Cancel an instance
              kill            Cancel an instance, and give its attempt no time to clean up
              skip            Leave out an instance that has not begun
              rerun           Run an instance that has ended once more
              mark-succeeded  Say that a node of a workflow's run that waits or has failed is done
              mark-failed     Say that a node of a workflow's run that waits can't be done
              backfill        Make fire times of the past up for: one instance for each that has none
              pause           Pause a task, a group of tasks, or everything: nothing of it starts until it is resumed
              resume          Let a task, a group of tasks, or everything go on
              drain           Give a worker nothing more, until it is undrained
              undrain         Give a drained worker attempts again
              dead-letters    List dead letters, run them again, or discard them

            Run:
              dev             Run a task file on this machine: scheduler, worker and API in one process
              server          Run a scheduler replica on MySQL or MariaDB, one of as many as you like
              worker          Run commands and HTTP calls for the schedulers of a cluster
              migrate         Bring a MySQL or MariaDB database to the newest schema
              bench           Measure scheduler, worker and SQLite on this machine with a no-op handler

            Set up:
              context         Name clusters, and choose which one commands go to
              users           Add users, say what they may do, and set passwords
              tokens          Make tokens for the API, list and revoke them
              completions     Print a shell's completions: `punctual completions bash > /etc/bash_completion.d/punctual`
              man             Write man pages, one for each command
              help            Print this overview, or the help of a command

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit codes: 0 done; 1 something was found or failed; 2 wrong usage, or input that was refused.
            exit code 0
        "#]],
    );
    assert_eq!(punctual(&["help"], "").stdout, punctual(&["--help"], "").stdout);
}

#[test]
fn shells_are_told_of_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let run = punctual(&["completions", shell], "");
        assert_eq!((run.code, &*run.stderr), (Some(0), ""), "{shell}");
        for word in ["dead-letters", "explain", "doctor", "mark-succeeded", "take-over"] {
            assert!(run.stdout.contains(word), "{shell} knows no {word}");
        }
    }
    assert_eq!(punctual(&["completions", "cobol"], "").code, Some(2));
}

#[test]
fn each_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    let run = punctual(&["man", "--out", out.to_str().unwrap()], "");
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    for page in ["punctual.1", "punctual-apply.1", "punctual-explain.1", "punctual-dead-letters-replay.1"] {
        let text = std::fs::read_to_string(out.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = punctual(&["man", "--out", file.to_str().unwrap()], "");
    assert_eq!((refused.code, refused.stderr.starts_with("PUN-454: ")), (Some(1), true), "{}", refused.stderr);
}
