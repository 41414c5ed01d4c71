//! The built binary as a real process on a database of its own: what a user gets, what goes wrong, and what is left after `kill -9`.

mod accounts;
mod api;
mod breakers;
mod browser;
mod chains;
mod cluster;
mod console;
mod dev;
mod doctor;
mod explain;
mod files;
mod get;
mod hostile;
mod kill9;
mod limits;
mod logs;
mod oidc;
mod parts;
mod people;
mod rows;
mod support;
mod trouble;
mod workflows;

use std::path::Path;

#[test]
fn no_test_file_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not run");
    }
}
