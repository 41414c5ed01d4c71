//! The corpus of cron cases: preview, task file and import give the same verdict on every row.

use punctual_core::time::Timestamp;
use punctual_spec::choice::Choice;
use punctual_spec::compile;
use punctual_spec::crontab::{Kind, Options, import};
use punctual_spec::spec::{CronTrigger, Dialect, Trigger};
use punctual_spec::zones::Zones;
use serde_json::Value;

use crate::repository;

fn rows() -> Vec<Value> {
    let text = std::fs::read_to_string(repository().join("core/tests/data/cron.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn instants(row: &Value) -> Vec<String> {
    row["expect"].as_array().into_iter().flatten().map(|instant| instant.as_str().unwrap().to_owned()).collect()
}

#[test]
fn preview_file_and_import_agree_with_every_row() {
    let zones = Zones::load();
    let mut imported = 0;
    for row in rows() {
        let (id, expression, zone) = (&row["id"], row["expr"].as_str().unwrap(), row["tz"].as_str().unwrap());
        let dialect = Dialect::from_name(row["dialect"].as_str().unwrap());
        let is_refused = row["expect"]["error"] == true;
        let trigger = CronTrigger { timezone: zone.to_owned(), dialect, ..CronTrigger::new(expression) };

        let mut previewed = trigger.clone();
        previewed.normalise();
        let preview = compile::schedule(&previewed, &zones);
        assert_eq!(preview.is_err(), is_refused, "{id}: the preview of `{expression}` in {zone}");

        let quoted = serde_json::to_string(expression).unwrap();
        let (zone_text, dialect_name) = (serde_json::to_string(zone).unwrap(), dialect.unwrap().name());
        let fields = format!("trigger: {{cron: {quoted}, timezone: {zone_text}, dialect: {dialect_name}}}\ncommand: x");
        let file = punctual_spec::file::read_text("tasks.yaml", &crate::task(&fields), &zones);
        assert_eq!(file.is_err(), is_refused, "{id}: a file with `{expression}` in {zone}");

        if let Ok(schedule) = &preview {
            let after: jiff::Timestamp = row["after"].as_str().unwrap().parse().unwrap();
            let expected = instants(&row);
            let occurrences = schedule.explain(Timestamp(after.as_millisecond()), expected.len());
            let got: Vec<String> = occurrences.iter().map(|occurrence| occurrence.at.to_string()).collect();
            assert_eq!(got, expected, "{id}: `{expression}` in {zone}");
        }

        // A crontab can say only some of it: five fields on one line.
        let has_five = expression.split_ascii_whitespace().count() == 5 && !expression.contains(['\n', '\r', '\0']);
        if dialect == Some(Dialect::Unix5) && has_five && !expression.starts_with(['#', '-', '@']) {
            let options = Options { file: "c".to_owned(), kind: Kind::User, timezone: zone.to_owned() };
            let import = import(format!("{expression} x\n").as_bytes(), &options, &zones);
            assert_eq!(import.tasks.is_empty(), is_refused, "{id}: the import of `{expression}` in {zone}");
            imported += 1;
            if let Some(task) = import.tasks.first() {
                let Trigger::Cron(cron) = &task.trigger else { panic!("{task:?}") };
                assert_eq!(compile::schedule(cron, &zones).ok(), preview.ok(), "{id}");
            }
        }
    }
    assert!(imported > 100, "{imported}");
}
