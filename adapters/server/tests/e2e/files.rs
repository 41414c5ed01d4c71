//! Task files and what a running Punctual has: applied, compared, exported.

use serde_json::{Value, json};

use crate::support::{Dev, Folder, Run, repository, request};

const FILE: &str = r#"
tasks:
  - {name: kept, trigger: manual, command: "true"}
  - {name: other, trigger: manual, command: "true"}
"#;

fn sources(dev: &Dev) -> Vec<(String, String)> {
    let tasks = dev.get("/api/v1/tasks");
    let field = |task: &Value, name: &str| task[name].as_str().unwrap().to_owned();
    tasks["tasks"].as_array().unwrap().iter().map(|task| (field(task, "name"), field(task, "source"))).collect()
}

fn named(dev: &Dev) -> Vec<String> {
    sources(dev).into_iter().map(|(name, _)| name).collect()
}

/// The rows of a table, word by word.
fn rows(run: &Run) -> Vec<Vec<&str>> {
    run.stdout.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn an_application_removes_and_takes_over_only_where_it_is_told_to() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let put = |path: &str, body: &Value| {
        let answer = request(dev.address(), "PUT", path, &[("content-type", "application/json")], body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    put("/api/v1/tasks/api-made", &json!({ "name": "api-made", "trigger": "manual", "command": "true" }));
    folder
        .write("new.yaml", "tasks:\n  - {name: kept, trigger: manual, command: \"false\"}\n  - {name: new, trigger: manual, command: x}\n");
    let new = folder.path("new.yaml");
    let apply = |more: &[&str]| dev.cli(&[&["apply", new.to_str().unwrap()], more].concat());
    let applied = apply(&[]);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    let expected: [&[&str]; 3] = [&["new", "created"], &["kept", "changed"], &["other", "left"]];
    assert_eq!(rows(&applied)[1..4].iter().map(|row| &row[..2]).collect::<Vec<_>>(), expected);
    assert!(applied.stdout.ends_with("1 created, 1 changed, 0 removed, 0 unchanged, 1 left\n"), "{}", applied.stdout);
    assert_eq!(named(&dev), ["api-made", "kept", "new", "other"]);
    // What would be removed is said first.
    let diff = dev.cli(&["diff", new.to_str().unwrap(), "--remove"]);
    assert_eq!(diff.code, Some(1), "{}", diff.stderr);
    assert!(
        diff.stdout.starts_with("--- other  version 1\n+++ /dev/null\n") && diff.stdout.contains("\n-name: other\n"),
        "{}",
        diff.stdout
    );
    assert_eq!(named(&dev).len(), 4);
    let removed = apply(&["--remove"]);
    assert!(removed.stdout.contains("other  removed") && removed.stdout.ends_with("1 removed, 2 unchanged\n"), "{}", removed.stdout);
    assert_eq!(named(&dev), ["api-made", "kept", "new"]);

    // A task of another source holds all of it.
    folder
        .write("new.yaml", "tasks:\n  - {name: api-made, trigger: manual, command: mine}\n  - {name: more, trigger: manual, command: x}\n");
    let refused = apply(&[]);
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""));
    assert!(refused.stderr.starts_with("PUN-441: the task \"api-made\" (source \"api\") belongs"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--take-over"), "{}", refused.stderr);
    assert_eq!(named(&dev), ["api-made", "kept", "new"]);
    let diff = dev.cli(&["diff", new.to_str().unwrap()]);
    assert_eq!(diff.code, Some(1));
    assert!(diff.stdout.contains("# api-made would be taken over from the source api; refused without --take-over"), "{}", diff.stdout);
    let taken = apply(&["--take-over", "--reason", "it has a file now"]);
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    assert!(taken.stdout.contains("taken over from the source api"), "{}", taken.stdout);
    assert!(sources(&dev).contains(&("api-made".to_owned(), "file".to_owned())));
    let audit = dev.get("/api/v1/audit?task=api-made&limit=1");
    assert_eq!(audit["audit"][0]["reason"], "it has a file now");
    dev.stop();
}

#[test]
fn a_difference_is_shown_line_by_line_and_told_by_the_exit_code() {
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let file = folder.path("tasks.yaml");
    let diff = |more: &[&str]| dev.cli(&[&["diff", file.to_str().unwrap()], more].concat());
    let same = diff(&[]);
    assert_eq!((same.code, &*same.stdout, &*same.stderr), (Some(0), "", ""));
    folder.write(
        "tasks.yaml",
        &FILE.replace("name: kept, trigger: manual, command: \"true\"", "name: kept, trigger: manual, command: \"false\""),
    );
    let changed = diff(&[]);
    let expected = "--- kept  version 1\n+++ kept\n@@ -1,3 +1,3 @@\n name: kept\n trigger: manual\n-command: {shell: \"true\"}\n+command: {shell: \"false\"}\n";
    assert_eq!((changed.code, &*changed.stdout), (Some(1), expected));
    let json = diff(&["--json"]);
    assert_eq!((json.code, &json.json()["differences"]["kept"]), (Some(1), &json!(expected)));
    let dry = dev.cli(&["apply", "--dry-run", file.to_str().unwrap()]);
    assert_eq!((dry.code, &*dry.stdout), (Some(0), expected));
    assert_eq!(dev.get("/api/v1/tasks/kept")["version"], 1);
    folder.write("twice.yaml", FILE);
    let twice = diff(&[folder.path("twice.yaml").to_str().unwrap()]);
    assert_eq!((twice.code, twice.stderr.contains("PUN-451: the task \"kept\" is in ")), (Some(2), true), "{}", twice.stderr);
    let nowhere = dev.cli(&["diff", file.to_str().unwrap(), "--api", "http://127.0.0.1:1"]);
    assert_eq!(nowhere.code, Some(2), "it can't be told: {}", nowhere.stderr);
    dev.stop();
}

/// Of every example, and of what tests of the console use: tasks of all kinds.
#[test]
fn what_was_exported_is_applied_without_a_change() {
    for example in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = example.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let folder = Folder::with(&std::fs::read_to_string(&path).unwrap());
        let dev = folder.dev();
        // Nothing of it has to run.
        assert_eq!(dev.cli(&["pause", "--all"]).code, Some(0));
        let exported = dev.cli(&["export"]);
        assert_eq!(exported.code, Some(0), "{}", exported.stderr);
        folder.write("exported.yaml", &exported.stdout);
        let file = folder.path("exported.yaml");
        let diff = dev.cli(&["diff", "--remove", file.to_str().unwrap()]);
        assert_eq!((diff.code, &*diff.stdout), (Some(0), ""), "{}: {}", path.display(), diff.stderr);
        let again = dev.cli(&["export", "--source", "file"]);
        assert_eq!(again.stdout.strip_prefix("# source file\n"), Some(&*exported.stdout));
        let name = named(&dev).remove(0);
        let one = dev.cli(&["export", &name]);
        assert!(one.stdout.starts_with("tasks:\n  - name: ") && one.stdout.matches("  - name: ").count() == 1, "{}", one.stdout);
        assert_eq!(dev.cli(&["export", "--source", "none"]).stdout, "# source none\ntasks: []\n");
        let gone = dev.cli(&["export", "gone"]);
        assert_eq!((gone.code, gone.stderr.starts_with("PUN-303")), (Some(1), true));
        dev.stop();
    }
}

#[test]
fn a_task_is_removed_by_its_name_whichever_source_has_it() {
    let folder = Folder::with("tasks:\n  - {name: a, trigger: manual, command: 'true'}\n  - {name: b, after: a, command: 'true'}\n");
    let dev = folder.dev();
    folder.write("more.yaml", "tasks:\n  - {name: c, trigger: manual, command: 'true'}\n");
    let more = folder.path("more.yaml");
    assert_eq!(dev.cli(&["apply", more.to_str().unwrap(), "--source", "more"]).code, Some(0));
    assert_eq!(dev.cli(&["remove", "c", "--dry-run"]).stdout, "c would be removed\n");
    let removed = |name: &str| dev.get(&format!("/api/v1/tasks/{name}"))["removed"] == true;
    assert!(!removed("c"));
    assert_eq!(dev.cli(&["remove", "c", "--reason", "enough"]).stdout, "c is removed; its history stays\n");
    let audit = dev.get("/api/v1/audit?task=c");
    assert_eq!((removed("c"), &audit["audit"][0]["reason"]), (true, &json!("enough")));
    let still_needed = dev.cli(&["remove", "a"]);
    assert!(still_needed.code == Some(2) && still_needed.stderr.starts_with("PUN-151"), "{}", still_needed.stderr);
    let gone = dev.cli(&["remove", "gone"]);
    assert!(gone.code == Some(1) && gone.stderr.starts_with("PUN-303"), "{}", gone.stderr);
    dev.stop();
}

/// As docs/api.md has it.
#[test]
fn the_bodies_of_the_documentation_are_accepted() {
    let page = std::fs::read_to_string(repository().join("docs/api.md")).unwrap();
    let folder = Folder::with(FILE);
    let dev = folder.dev();
    let mut sent = 0;
    for part in page.split("<!-- ").skip(1) {
        let (call, rest) = part.split_once(" -->\n```json\n").expect("a call and its body");
        let (body, _) = rest.split_once("```").unwrap();
        let (method, path) = call.split_once(' ').unwrap();
        let answer = request(dev.address(), method, path, &[("content-type", "application/json")], body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["definition"]["command"], json!({ "shell": "echo hello" }));
        sent += 1;
    }
    assert!(sent > 0);
    dev.stop();
}
