//! Task files as commands hand them to a running Punctual, and documents as the YAML that people compare.

use std::collections::BTreeMap;
use std::path::PathBuf;

use punctual_spec::emit;
use punctual_spec::file::read_file;
use punctual_spec::spec::TaskSpec;
use punctual_spec::zones::Zones;
use serde_json::Value;
use similar::TextDiff;

/// The tasks of one or several files.
pub(super) struct Files {
    /// In the order of the files.
    pub(super) documents: Vec<Value>,
    /// By name, as YAML.
    pub(super) texts: BTreeMap<String, String>,
    /// The files, for the record.
    pub(super) names: String,
}

impl Files {
    /// Reads all of them, or says everything that is wrong.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Files, String> {
        let zones = Zones::load();
        let (mut problems, mut file_of) = (Vec::new(), BTreeMap::new());
        let mut files = Files { documents: Vec::new(), texts: BTreeMap::new(), names: String::new() };
        for path in paths {
            let shown = path.display().to_string();
            let tasks = match read_file(path, &zones) {
                Ok(file) => file.tasks,
                Err(found) => {
                    problems.push(found.to_string());
                    continue;
                }
            };
            for task in tasks {
                if let Some(other) = file_of.insert(task.spec.name.clone(), shown.clone()) {
                    let name = &task.spec.name;
                    problems
                        .push(format!("{shown}:{}: PUN-451: the task {name:?} is in {other} already; leave one of them out", task.line));
                    continue;
                }
                files.documents.push(serde_json::from_str(&task.spec.to_json()).expect("a document is JSON"));
                files.texts.insert(task.spec.name.clone(), yaml(&task.spec));
            }
        }
        files.names = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        if problems.is_empty() { Ok(files) } else { Err(problems.join("\n")) }
    }
}

/// A task as an entry of a task file, without the list around it.
pub(super) fn yaml(spec: &TaskSpec) -> String {
    let file = emit::to_yaml(std::slice::from_ref(spec), &[]);
    file.lines().skip(1).map(|line| line.get(4..).unwrap_or_default()).flat_map(|line| [line, "\n"]).collect()
}

/// The same of a document as the API has it; one that this program can't read, as JSON. None is no text.
pub(super) fn yaml_of(document: &Value) -> String {
    match document {
        Value::Null => String::new(),
        document => TaskSpec::from_json(&document.to_string()).map_or_else(|_| super::remote::pretty(document) + "\n", |spec| yaml(&spec)),
    }
}

/// What differs, line by line, with three lines around it; nothing where nothing does. What could write to the terminal is escaped.
pub(super) fn line_diff(before: (&str, &str), after: (&str, &str)) -> String {
    let diff = TextDiff::from_lines(before.1, after.1);
    let shown = diff.unified_diff().context_radius(3).header(before.0, after.0).to_string();
    shown.chars().map(|character| if character.is_control() && character != '\n' { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_compared_line_by_line() {
        let document = |command: &str| json!({ "name": "a", "trigger": "manual", "command": { "shell": command } });
        let (before, after) = (yaml_of(&document("x")), yaml_of(&document("y\u{1b}[31m")));
        assert_eq!(line_diff(("a", &before), ("a", &before)), "");
        let shown = line_diff(("a  version 1", &before), ("a  files", &after));
        assert!(shown.starts_with("--- a  version 1\n+++ a  files\n@@ "), "{shown}");
        assert!(shown.contains("\n-command: ") && shown.contains("\n+command: ") && !shown.contains('\u{1b}'), "{shown}");
        assert!(yaml_of(&json!({ "name": "of another version" })).starts_with('{'));
        assert_eq!(yaml_of(&Value::Null), "");
    }
}
