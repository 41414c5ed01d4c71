//! Tests of what the crate does as a whole.

mod corpus;
mod crontabs;
mod documents;
mod figures;
mod published;
mod refusals;
mod rehearsals;
mod roundtrips;
mod timings;
mod workflows;

use std::sync::LazyLock;

use punctual_spec::file::{TaskFile, read_text};
use punctual_spec::problem::Problems;
use punctual_spec::zones::Zones;

/// Reads a task file with the bundled zones.
fn read(text: &str) -> Result<TaskFile, Problems> {
    read_text("tasks.yaml", text, zones())
}

/// The bundled zones, the same on every machine.
fn zones() -> &'static Zones {
    static ZONES: LazyLock<Zones> = LazyLock::new(Zones::bundled);
    &ZONES
}

/// A file with one task, of whose fields these are the ones that matter.
fn task(fields: &str) -> String {
    format!("tasks:\n- name: a\n  {}\n", fields.replace('\n', "\n  "))
}

/// The repository's folder.
fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn no_test_file_is_forgotten() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}
