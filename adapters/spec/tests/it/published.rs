//! What the repository publishes: schema, examples and docs agree with the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use punctual_spec::problem::Code;
use punctual_spec::schema::{schema, schema_text};
use serde_json::Value;

use crate::{read, repository};

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("examples")).unwrap();
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml");
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_yaml).collect();
    assert!(!files.is_empty());
    files
}

/// The YAML blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs").join(page)).unwrap();
    text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The YAML as JSON, by way of the reader of payloads.
fn as_json(yaml: &str) -> Value {
    let indented: String = yaml.lines().map(|line| format!("        {line}\n")).collect();
    let text = format!("tasks:\n- name: a\n  trigger: manual\n  handler:\n    name: a\n    config:\n      file:\n{indented}");
    let file = read(&text).unwrap_or_else(|problems| panic!("{problems}{text}"));
    let document: Value = serde_json::from_str(&file.tasks[0].spec.to_json()).unwrap();
    document["handler"]["config"]["file"].clone()
}

fn assert_valid(name: &Path, yaml: &str) {
    if let Err(problems) = read(yaml) {
        panic!("{}: {problems}", name.display());
    }
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let instance = as_json(yaml);
    let errors: Vec<String> = validator.iter_errors(&instance).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{}: {errors:?}", name.display());
}

#[test]
fn every_example_is_valid() {
    for path in examples() {
        assert_valid(&path, &std::fs::read_to_string(&path).unwrap());
    }
}

#[test]
fn every_block_of_the_docs_is_valid() {
    let blocks = blocks("task-file.md");
    assert!(blocks.len() >= 5);
    blocks.iter().for_each(|block| assert_valid(Path::new("docs/task-file.md"), block));
}

#[test]
fn the_published_schema_is_up_to_date() {
    let path = repository().join("docs/task-file.schema.json");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, schema_text()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema_text(), "run the tests with UPDATE_EXPECT=1 to write docs/task-file.schema.json anew");
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for fields in [
        "trigger: {cron: '* * * * *', delay: 1s}\ncommand: x",
        "trigger: {every: 1s}\ncommand: x",
        "trigger: manual\ncommand: x\ncolour: red",
        "trigger: manual\ncommand: {argv: []}",
        "trigger: manual\ncommand: {env: {}}",
        "trigger: manual\ncommand: x\ntimeout: soon",
        "trigger: manual\ncommand: x\nconcurrency: {max_running: 0}",
        "trigger: manual\ncommand: x\npriority: high",
        "trigger: manual\ncommand: x\npriority: 10",
        "trigger: manual\ncommand: x\npriority: {level: high}",
        "trigger: manual\ncommand: x\nrate_limit: 10",
        "trigger: manual\ncommand: x\nrate_limit: {starts: 0, per: 1s}",
        "trigger: manual\ncommand: x\nrouting: nearest",
        "trigger: manual\ncommand: x\nrouting: {tags: [zone]}",
        "trigger: manual\nhttp: ftp://x",
        "trigger: manual\ncommand: x\nrehearsal: {takes: [1s]}",
        "trigger: manual\ncommand: x\nrehearsal: {fails: 101%}",
        "trigger: manual\ncommand: x\nrehearsal: {fails: 5.25%}",
        "trigger: manual\ncommand: x\nrehearsal: {stubborn: true, obeys_after: 3s}",
        "trigger: manual\ncommand: x\nrehearsal: {downstream: ''}",
    ] {
        let text = crate::task(fields);
        assert!(read(&text).is_err(), "{fields}");
        assert!(!validator.is_valid(&as_json(&text)), "{fields}");
    }
}

/// Every `PUN-` code that the sources of the adapters mention.
fn codes_in(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            codes_in(&entry, codes);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&entry).unwrap();
            let numbers = text.split("PUN-").skip(1).filter_map(|rest| rest.get(..3));
            codes.extend(numbers.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).map(|number| format!("PUN-{number}")));
        }
    }
}

#[test]
fn every_code_has_its_section() {
    let page = std::fs::read_to_string(repository().join("docs/errors.md")).unwrap();
    let mut codes: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    for adapter in ["driver", "server", "spec", "store", "worker"] {
        codes_in(&repository().join("adapters").join(adapter).join("src"), &mut codes);
    }
    assert!(codes.contains("PUN-201") && codes.len() > 30, "{codes:?}");
    for code in &codes {
        assert!(page.contains(&format!("\n### {code}\n")), "{code} has no section");
        assert!(page.contains(&format!("| [{code}](#{}) |", code.to_lowercase())), "{code} is not in the table");
    }
}

#[test]
fn every_field_is_in_the_docs() {
    let page = std::fs::read_to_string(repository().join("docs/task-file.md")).unwrap();
    let schema = schema();
    let mut found = 0;
    for definition in schema["$defs"].as_object().unwrap().values() {
        let forms = definition["oneOf"].as_array().cloned().unwrap_or_else(|| vec![definition.clone()]);
        for field in forms.iter().filter_map(|form| form["properties"].as_object()).flat_map(|fields| fields.keys()) {
            assert!(page.contains(&format!("`{field}")), "{field} is not in docs/task-file.md");
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}
