//! Crontabs, whole.

use expect_test::{Expect, expect};
use punctual_spec::crontab::{Import, Kind, Line, Options, Severity, import};
use punctual_spec::handler::{CommandConfig, Program};
use punctual_spec::spec::{Handler, TaskSpec, Trigger};

fn run(name: &str, bytes: &[u8], kind: Kind) -> Import {
    let options = Options { file: name.to_owned(), kind, timezone: "UTC".to_owned() };
    let imported = import(bytes, &options, crate::zones());
    assert_eq!(imported, import(bytes, &options, crate::zones()), "importing twice gives the same");
    assert_accounted_for(bytes, &imported);
    imported
}

/// Every line is a task, a variable, a comment, blank, or has a note; every task comes from a line.
pub(crate) fn assert_accounted_for(bytes: &[u8], import: &Import) {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = if bytes.is_empty() { 0 } else { text.split(|byte| *byte == b'\n').count() };
    assert_eq!(import.lines.len(), lines);
    let tasks: Vec<usize> = import.lines.iter().filter_map(|line| if let Line::Task(index) = line { Some(*index) } else { None }).collect();
    assert_eq!(tasks, (0..import.tasks.len()).collect::<Vec<_>>());
    for (index, line) in import.lines.iter().enumerate() {
        let is_noted = import.notes.iter().any(|note| note.line == index + 1 && note.severity == Severity::Error);
        assert!(*line != Line::Noted || is_noted, "line {} was dropped in silence", index + 1);
    }
}

fn check(name: &str, text: &str, kind: Kind, expected: Expect) {
    let import = run(name, text.as_bytes(), kind);
    let yaml = import.to_yaml(name);
    expected.assert_eq(&yaml);
    if !import.tasks.is_empty() {
        let file = crate::read(&yaml).unwrap_or_else(|problems| panic!("{problems}{yaml}"));
        let specs: Vec<TaskSpec> = file.tasks.into_iter().map(|task| task.spec).collect();
        assert_eq!(specs, import.tasks);
    }
}

fn config(task: &TaskSpec) -> &CommandConfig {
    match &task.handler {
        Handler::Command(config) => config,
        other => panic!("{other:?}"),
    }
}

const USERS: &str = "\
SHELL=/bin/bash
MAILTO=ops@example.com
# nightly things

# Backs things up
0 5 * * * date +\\%F%one%two
PATH=\"/usr/local/bin:/usr/bin\"
GREETING = 'hello there'
CRON_TZ=Europe/Paris
@reboot /usr/local/bin/warm-up
@daily\t/usr/bin/backup.sh --all
# */5 * * * * old
*/5 * * * * cd /srv && A=1 ./run.sh
*/5 * * * * cd /srv && A=1 ./run.sh
0~30 * * * * random
61 * * * * wrong
CRON_TZ=Asia/Mumbai
5 5 * * * in no zone
CRON_TZ=
HOME=/var/jobs
TZ=Asia/Tokyo
0 9 * * 7-0 [ -x /usr/bin/report ] && /usr/bin/report
-*/5 * * * * quiet
0 9 * * *
garbage";

/// C383, and the cases below.
#[test]
fn a_users_crontab() {
    check(
        "jobs",
        USERS,
        Kind::User,
        expect![[r##"
            # Imported from the crontab jobs.
            # As under cron, runs may overlap, nothing is caught up or retried, and nothing is run twice. Change `defaults:` for better.
            # lines with no CRON_TZ above are read in the zone `UTC`; cron uses the machine's zone: name another with --tz
            # cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
            # line 2: MAILTO is not carried over: output is kept with each run and shown there, it is not mailed
            # line 10: PUN-121: @reboot is not carried over: tasks fire at times; start such a command with the system
            # line 15: PUN-121: `0~30` in the minute field is not understood: use `*`, a number, a range `a-b`, a step `*/n`, or a list of these (random times with `~` are not supported: choose a time)
            # line 16: PUN-121: `61` in the minute field is out of range: 0 to 59
            # line 17: PUN-121: CRON_TZ: there is no time zone `Asia/Mumbai` in tzdata 2026f (did you mean `Asia/Kolkata`?)
            # line 18: PUN-121: the CRON_TZ above names no time zone, so nobody knows when this is to fire
            # line 21: TZ is kept for the commands alone, as cron does; CRON_TZ or --tz sets the zone of the schedule
            # line 23: PUN-121: a `-` in front, which keeps some crons from logging, is not understood: remove it
            # line 24: PUN-121: the command is missing
            # line 25: the last line has no line end, which cron would refuse; it was read all the same
            # line 25: PUN-121: not a crontab line: 5 fields and a command are wanted (minute hour day month weekday command)
            defaults:
              misfire: {action: skip}
              concurrency: {max_running: 100000}
              idempotent: false
            tasks:
              - name: jobs-date
                description: "Backs things up"
                trigger: {cron: "0 5 * * *"}
                command:
                  shell: "date +%F"
                  env: {SHELL: /bin/bash}
                  stdin: |
                    one
                    two
              - name: jobs-backup.sh
                trigger: {cron: "@daily", timezone: Europe/Paris}
                command:
                  shell: "/usr/bin/backup.sh --all"
                  env: {GREETING: "hello there", PATH: "/usr/local/bin:/usr/bin", SHELL: /bin/bash}
              - name: jobs-run.sh-d8b17191
                trigger: {cron: "*/5 * * * *", timezone: Europe/Paris}
                command:
                  shell: "cd /srv && A=1 ./run.sh"
                  env: {GREETING: "hello there", PATH: "/usr/local/bin:/usr/bin", SHELL: /bin/bash}
              - name: jobs-run.sh-d8b17191-2
                trigger: {cron: "*/5 * * * *", timezone: Europe/Paris}
                command:
                  shell: "cd /srv && A=1 ./run.sh"
                  env: {GREETING: "hello there", PATH: "/usr/local/bin:/usr/bin", SHELL: /bin/bash}
              - name: jobs-report
                trigger: {cron: "0 9 * * 7-0"}
                command:
                  shell: "[ -x /usr/bin/report ] && /usr/bin/report"
                  env: {GREETING: "hello there", HOME: /var/jobs, PATH: "/usr/local/bin:/usr/bin", SHELL: /bin/bash, TZ: Asia/Tokyo}
                  working_directory: /var/jobs
        "##]],
    );
}

#[test]
fn debians_own_crontab() {
    let text = include_str!("../data/crontab");
    check(
        "/etc/crontab",
        text,
        Kind::of(std::path::Path::new("/etc/crontab")),
        expect![[r##"
        # Imported from the crontab /etc/crontab.
        # As under cron, runs may overlap, nothing is caught up or retried, and nothing is run twice. Change `defaults:` for better.
        # lines with no CRON_TZ above are read in the zone `UTC`; cron uses the machine's zone: name another with --tz
        # cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
        defaults:
          misfire: {action: skip}
          concurrency: {max_running: 100000}
          idempotent: false
        tasks:
          - name: crontab-run-parts-ccc3f455
            trigger: {cron: "17 * * * *"}
            command:
              shell: "cd / && run-parts --report /etc/cron.hourly"
              env: {SHELL: /bin/sh}
              user: root
          - name: crontab-run-parts-301f8a73
            trigger: {cron: "25 6 * * *"}
            command:
              shell: "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }"
              env: {SHELL: /bin/sh}
              user: root
          - name: crontab-run-parts-37c567cb
            trigger: {cron: "47 6 * * 7"}
            command:
              shell: "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }"
              env: {SHELL: /bin/sh}
              user: root
          - name: crontab-run-parts-85e273a2
            trigger: {cron: "52 6 1 * *"}
            command:
              shell: "test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }"
              env: {SHELL: /bin/sh}
              user: root
    "##]],
    );
    let text = include_str!("../data/cron.d/filesystem_scrub");
    check(
        "/etc/cron.d/filesystem_scrub",
        text,
        Kind::of(std::path::Path::new("/etc/cron.d/filesystem_scrub")),
        expect![[r##"
        # Imported from the crontab /etc/cron.d/filesystem_scrub.
        # As under cron, runs may overlap, nothing is caught up or retried, and nothing is run twice. Change `defaults:` for better.
        # lines with no CRON_TZ above are read in the zone `UTC`; cron uses the machine's zone: name another with --tz
        # cron starts commands in the user's home with PATH=/usr/bin:/bin, SHELL=/bin/sh, HOME and LOGNAME alone; here they start where and as the worker does, with what the crontab sets added
        defaults:
          misfire: {action: skip}
          concurrency: {max_running: 100000}
          idempotent: false
        tasks:
          - name: filesystem_scrub-e2scrub_all_cron
            trigger: {cron: "30 3 * * 0"}
            command:
              shell: "test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/x86_64-linux-gnu/e2fsprogs/e2scrub_all_cron"
              user: root
          - name: filesystem_scrub-e2scrub_all
            trigger: {cron: "10 3 * * *"}
            command:
              shell: "test -e /run/systemd/system || SERVICE_MODE=1 /sbin/e2scrub_all -A -r"
              user: root
    "##]],
    );
}

#[test]
fn the_machines_crontabs_are_carried_over() {
    let cron_d = std::fs::read_dir("/etc/cron.d").into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    for path in cron_d.chain(["/etc/crontab".into()]) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let import = run(&path.display().to_string(), &bytes, Kind::of(&path));
        let reboots = String::from_utf8_lossy(&bytes).matches("@reboot").count();
        let errors = import.notes.iter().filter(|note| note.severity == Severity::Error).count();
        assert!(errors <= reboots, "{}: {:?}", path.display(), import.notes);
    }
}

#[test]
fn percent_signs_split_command_and_input() {
    let import = run("c", b"0 5 * * * date +\\%F%one%two\n", Kind::User);
    let config = config(&import.tasks[0]);
    assert_eq!(config.program, Program::Shell("date +%F".to_owned()));
    assert_eq!(config.stdin.as_deref(), Some("one\ntwo\n"));
}

#[test]
fn crlf_tabs_marks_and_missing_line_ends_are_fine() {
    let plain = run("c", b"A=b\n0 5 * * * x\n", Kind::User);
    let dos = run("c", "\u{feff}A=b\r\n0\t5 * * *\tx".as_bytes(), Kind::User);
    assert_eq!(plain.tasks, dos.tasks);
    assert!(!dos.has_errors());
    assert_eq!(dos.notes.iter().filter(|note| note.line > 0).count(), 3, "{:?}", dos.notes);
}

#[test]
fn variables_hold_for_the_lines_below_them() {
    let import = run("c", b"0 1 * * * a\nX=1\n0 2 * * * b\nX=2\n0 3 * * * c\n", Kind::User);
    let values: Vec<Option<&str>> = import.tasks.iter().map(|task| config(task).env.get("X").map(String::as_str)).collect();
    assert_eq!(values, [None, Some("1"), Some("2")]);
}

#[test]
fn a_zone_holds_for_the_lines_below_it() {
    let import = run("c", b"0 1 * * * a\nCRON_TZ=Europe/Paris\n0 1 * * * b\nCRON_TZ=\"\"\n0 1 * * * c\n", Kind::User);
    let zone = |task: &TaskSpec| match &task.trigger {
        Trigger::Cron(cron) => cron.timezone.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(import.tasks.iter().map(zone).collect::<Vec<_>>(), ["UTC", "Europe/Paris", "UTC"]);
}

#[test]
fn names_do_not_depend_on_the_order_of_lines() {
    let names = |text: &str| {
        let mut names: Vec<String> = run("c", text.as_bytes(), Kind::User).tasks.into_iter().map(|task| task.name).collect();
        names.sort();
        names
    };
    let (one, two, three) = ("0 1 * * * a x\n", "0 2 * * * a y\n", "0 3 * * * b\n");
    assert_eq!(names(&[one, two, three].concat()), names(&[three, two, one].concat()));
}

#[test]
fn bytes_that_are_no_text_cost_their_line_only() {
    let import = run("c", b"0 5 * * * x\n0 5 * * * \xff\n0 5 * * * a\0b\n0 5 * * * z\n", Kind::User);
    assert_eq!(import.tasks.len(), 2);
    assert_eq!(import.lines[1..3], [Line::Noted, Line::Noted]);
}

#[test]
fn nothing_comes_of_nothing() {
    for bytes in [&b""[..], b"\n", b"# only a comment\n"] {
        let import = run("c", bytes, Kind::User);
        assert!(import.tasks.is_empty() && !import.has_errors());
        assert_eq!(import.notes.last().map(|note| note.severity), Some(Severity::Warning));
    }
}

#[test]
fn the_wrong_form_is_pointed_out() {
    let import = run("c", b"17 * * * * root run-parts /etc/cron.hourly\n", Kind::User);
    assert!(import.notes.iter().any(|note| note.text.contains("--system")));
    let import = run("c", b"17 * * * * /bin/x y\n", Kind::System);
    assert!(import.notes.iter().any(|note| note.text.contains("--user")));
}
