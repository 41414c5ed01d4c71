//! `punctual cron explain`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual, repository};

#[test]
fn clock_changes_are_marked() {
    let after = "2026-03-06T12:00:00Z";
    check(&["cron", "explain", "0 2 * * *", "--tz", "America/New_York", "--after", after, "--count", "3"], "", expect![[r#""#]]);
    let after = "2026-10-31T00:00:00-04:00";
    let arguments = ["cron", "explain", "30 1 * * *", "--tz", "America/New_York", "--after", after, "--count", "3", "--overlap", "both"];
    check(&arguments, "", expect![[r#""#]]);
}

#[test]
fn the_answer_is_there_as_json() {
    let arguments =
        ["cron", "explain", "30 1 * * *", "--tz", "America/New_York", "--after", "2026-10-31T12:00:00Z", "--count", "2", "--json"];
    check(&arguments, "", expect![[r#""#]]);
}

#[test]
fn a_refusal_says_what_to_do() {
    check(&["cron", "explain", "0 25 * * *", "--tz", "Asia/Mumbai"], "", expect![[r#""#]]);
    check(&["cron", "explain", "-1 * * * *", "--json"], "", expect![[r#""#]]);
    check(&["cron", "explain", "@daily", "--gap", "later"], "", expect![[r#""#]]);
    check(&["cron", "explain", "@daily", "--after", "yesterday"], "", expect![[r#""#]]);
}

#[test]
fn a_schedule_may_have_an_end() {
    check(&["cron", "explain", "0 0 0 1 1 ? 2026", "--after", "2026-01-01T00:00:00Z"], "", expect![[r#""#]]);
}

#[test]
fn every_row_of_the_corpus_is_answered() {
    let text = std::fs::read_to_string(repository().join("core/tests/data/cron.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    for row in &rows {
        let field = |name: &str| row[name].as_str().unwrap();
        let count = row["expect"].as_array().map_or(1, Vec::len).max(1).to_string();
        let arguments = [
            "cron",
            "explain",
            field("expr"),
            "--tz",
            field("tz"),
            "--dialect",
            field("dialect"),
            "--after",
            field("after"),
            "--count",
            &count,
            "--json",
        ];
        let run = punctual(&arguments, "");
        let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}: {}{}", row["id"], run.stdout, run.stderr));
        if row["expect"]["error"] == true {
            assert!(run.code == Some(2) && answer["error"]["message"].is_string() && !run.stderr.is_empty(), "{}", row["id"]);
        } else {
            assert_eq!((run.code, &answer["next"]), (Some(0), &row["expect"]), "{}", row["id"]);
        }
    }
}
