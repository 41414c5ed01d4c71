//! `punctual validate`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual};

#[test]
fn a_good_file_is_good() {
    check(&["validate", "examples/quickstart.yaml"], "", expect![[r#""#]]);
    check(&["validate", "examples/quickstart.yaml", "--json"], "", expect![[r#""#]]);
}

#[test]
fn findings_have_places_codes_and_help() {
    let text = "tasks:\n- {name: a, trigger: {cron: '0 25 * * *', timezone: Asia/Mumbai}, comand: x}\n";
    check(&["validate", "-"], text, expect![[r#""#]]);
    let run = punctual(&["validate", "-", "--json"], text);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &report["ok"]), (Some(1), &Value::Bool(false)));
    let problem = &report["files"][0]["problems"][0];
    assert_eq!((problem["code"].as_str(), problem["line"].as_u64(), problem["column"].as_u64()), (Some("PUN-107"), Some(2), Some(3)));
}

#[test]
fn names_are_unique_over_files() {
    let text = "tasks:\n- {name: sweep, trigger: manual, command: x}\n";
    check(&["validate", "examples/quickstart.yaml", "-", "missing.yaml"], text, expect![[r#""#]]);
}
