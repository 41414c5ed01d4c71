//! `punctual import crontab`.

use expect_test::expect;
use serde_json::Value;

use crate::{check, punctual};

const CRONTAB: &str = "MAILTO=ops\nCRON_TZ=Europe/Paris\n# Says the date\n0 5 * * * date +\\%F%one%two\n@reboot x\n";

#[test]
fn a_crontab_becomes_a_task_file() {
    check(&["import", "crontab", "-"], CRONTAB, expect![[r##""##]]);
    let file = punctual(&["import", "crontab", "-"], CRONTAB).stdout;
    assert_eq!(punctual(&["validate", "-"], &file).code, Some(0));
}

#[test]
fn the_import_is_there_as_json() {
    check(&["import", "crontab", "-", "--json"], CRONTAB, expect![[r#""#]]);
}

#[test]
fn the_form_is_told_by_the_path_or_by_a_flag() {
    let user = |arguments: &[&str], input: &str| {
        let run = punctual(arguments, input);
        let answer: Value = serde_json::from_str(&run.stdout).unwrap();
        answer["tasks"][0]["command"]["user"].as_str().map(str::to_owned)
    };
    let line = "0 5 * * * root x\n";
    assert_eq!(user(&["import", "crontab", "-", "--json"], line), None);
    assert_eq!(user(&["import", "crontab", "-", "--json", "--system"], line).as_deref(), Some("root"));
    let path = "adapters/spec/tests/data/cron.d/filesystem_scrub";
    assert_eq!(user(&["import", "crontab", path, "--json"], "").as_deref(), Some("root"));
    assert_eq!(user(&["import", "crontab", path, "--json", "--user"], ""), None);
}

#[test]
fn what_cannot_be_read_is_refused() {
    check(&["import", "crontab", "/nowhere"], "", expect![[r#""#]]);
    check(&["import", "crontab", "-", "--tz", "europe/paris", "--json"], "", expect![[r#""#]]);
}
